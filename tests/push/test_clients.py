"""The client of a2a-sdk sets, reads and removes webhooks, and reads what they are told with its own types."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.compat.v0_3 import types as v03
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.json_format import Parse, ParseDict

from tests.push.conftest import Office
from tests.support.hooks import Hook
from tests.support.running import WAIT_S, handoff_context

BINDINGS = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]


@asynccontextmanager
async def sdk(url: str, binding: str, version: str) -> AsyncGenerator[Client]:
    """The SDK's client for one interface of the broker."""
    interface = AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
    card = AgentCard(
        name="a2a-handoff",
        supported_interfaces=[interface],
        capabilities=AgentCapabilities(push_notifications=True),
    )
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as http:
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=False)
        yield ClientFactory(config).create(card)


@pytest.mark.parametrize(("binding", "version"), BINDINGS)
def test_the_sdk_names_a_webhook_in_its_message_and_reads_what_it_is_told(
    office: Office, binding: str, version: str
) -> None:
    told = office.hook()
    agent, puppet = office.puppet()

    async def story() -> str:
        message = Message(message_id=f"m-{version}", role=Role.ROLE_USER, parts=[Part(text="go")])
        request = SendMessageRequest(
            message=message,
            configuration=SendMessageConfiguration(
                return_immediately=True,
                task_push_notification_config=TaskPushNotificationConfig(
                    url=told.url,
                    token="tok",
                    authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret"),
                ),
            ),
        )
        ParseDict({"handoff_context": handoff_context(target_agent=agent)}, request.metadata)
        async with sdk(office.broker.url, binding, version) as client:
            (event,) = [event async for event in client.send_message(request)]
            return event.task.id

    task_id = asyncio.run(story())
    puppet.next().answer({"task": puppet.task("COMPLETED", "done")})
    told.until()
    assert {one.headers["authorization"] for one in told.told} == {"Bearer s3cret"}
    assert {one.headers["x-a2a-notification-token"] for one in told.told} == {"tok"}
    if version == "1.0":
        read = [Parse(one.body, StreamResponse()) for one in told.told]
        assert {event.status_update.task_id for event in read} == {task_id}
        assert read[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    else:
        tasks = [v03.Task.model_validate_json(one.body) for one in told.told]
        assert {task.id for task in tasks} == {task_id}
        assert tasks[-1].status.state is v03.TaskState.completed


@pytest.mark.parametrize(("binding", "version"), BINDINGS)
def test_the_sdk_sets_reads_lists_and_removes_webhooks(office: Office, binding: str, version: str) -> None:
    told: Hook = office.hook()
    agent, puppet = office.puppet()
    task_id = office.send(agent)["id"]

    async def story() -> None:
        async with sdk(office.broker.url, binding, version) as client:
            wanted = TaskPushNotificationConfig(
                task_id=task_id,
                id="w-1",
                url=told.url,
                token="tok",
                authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret"),
            )
            assert await client.create_task_push_notification_config(wanted) == wanted
            named = GetTaskPushNotificationConfigRequest(task_id=task_id, id="w-1")
            assert await client.get_task_push_notification_config(named) == wanted
            if (binding, version) == ("HTTP+JSON", "0.3"):
                return  # the SDK has no more of it there
            page = await client.list_task_push_notification_configs(
                ListTaskPushNotificationConfigsRequest(task_id=task_id)
            )
            assert list(page.configs) == [wanted]
            other = TaskPushNotificationConfig(task_id=task_id, id="w-2", url=told.url)
            await client.create_task_push_notification_config(other)
            gone = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="w-2")
            await client.delete_task_push_notification_config(gone)
            with pytest.raises(TaskNotFoundError):
                await client.get_task_push_notification_config(
                    GetTaskPushNotificationConfigRequest(task_id=task_id, id="w-2")
                )

    asyncio.run(story())
    puppet.next().answer({"task": puppet.task("COMPLETED")})
    (end,) = [one for one in told.until() if one.state == "COMPLETED"]
    assert task_id in json.dumps(end.json)
