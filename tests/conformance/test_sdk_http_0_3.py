"""The SDK's own client of 0.3 over HTTP+JSON, which writes and reads ProtoJSON, against the broker."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.compat.v0_3.rest_transport import CompatRestTransport
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotFoundError,
)
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.support.agents import URI, Agent, Answer, Call, asks, card, completes, streams
from tests.support.running import Broker, broker, handoff_context, running

CAN = {"requirements": {"capabilities": ["canWork"]}}


@pytest.fixture
def served(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path) as made:
        yield made


@asynccontextmanager
async def sdk(b: Broker) -> AsyncGenerator[CompatRestTransport]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        yield CompatRestTransport(http, None, b.url)


def asked(
    text: str = "hello", *, wait: bool = True, context: dict[str, Any] | None = None, **message: Any
) -> SendMessageRequest:
    request = SendMessageRequest(
        message=Message(
            message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **message
        ),
        configuration=SendMessageConfiguration(return_immediately=not wait),
    )
    ParseDict({"handoff_context": handoff_context(**(CAN | (context or {})))}, request.metadata)
    return request


def ours(task: Task) -> dict[str, Any]:
    return MessageToDict(task.metadata)[URI]


def register(b: Broker, url: str, *, streaming: bool = False) -> None:
    modes = {"defaultInputModes": ["text/plain", "application/json", "x/y"]}
    b.register("worker", card=card(url, streaming=streaming, capabilities={"canWork": True}) | modes)


def test_a_message_is_answered_with_the_finished_task(served: Broker) -> None:
    agent = Agent(completes)
    data = Part()
    ParseDict({"n": 1, "list": [None, True]}, data.data.struct_value)
    request = asked("pay")
    request.message.parts.append(data)
    request.message.parts.append(Part(url="https://x.test/y", media_type="x/y", filename="f"))

    async def body() -> Task:
        async with sdk(served) as client:
            return (await client.send_message(request)).task

    with running(agent) as url:
        register(served, url)
        task = asyncio.run(body())
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert task.artifacts[0].parts[0].text.startswith("done: pay")
    assert [part.text for part in task.history[0].parts][:1] == ["pay"]
    assert ours(task)["state"] == "completed"
    parts = agent.calls[0].message["parts"]
    assert parts[1:] == [
        {"data": {"n": 1.0, "list": [None, True]}},
        {"url": "https://x.test/y", "mediaType": "x/y", "filename": "f"},
    ]


def test_a_caller_that_will_not_wait_gets_the_task_at_once_and_can_read_and_cancel_it(served: Broker) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return agent.task("CANCELED", task_id=call.params["id"])
        return {"task": agent.task("WORKING")}

    async def body() -> tuple[Task, Task, Task]:
        async with sdk(served) as client:
            first = (await client.send_message(asked(wait=False))).task
            await asyncio.to_thread(served.until, first.id, "acknowledged")
            read = await client.get_task(GetTaskRequest(id=first.id))
            return first, read, await client.cancel_task(CancelTaskRequest(id=first.id))

    with running(Agent(script)) as url:
        register(served, url)
        first, read, canceled = asyncio.run(body())
    assert first.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
    assert read.status.state == TaskState.TASK_STATE_WORKING
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED


def test_a_stream_tells_the_task_its_artifacts_and_its_end(served: Broker) -> None:
    async def body() -> list[Any]:
        async with sdk(served) as client:
            return [event async for event in client.send_message_streaming(asked())]

    with running(Agent(streams("one ", "two"))) as url:
        register(served, url, streaming=True)
        events = asyncio.run(body())
    assert events[0].HasField("task")
    chunks = [e.artifact_update for e in events if e.HasField("artifact_update")]
    assert [(c.artifact.parts[0].text, c.append, c.last_chunk) for c in chunks] == [
        ("one ", False, False),
        ("two", True, True),
    ]
    states = [e.status_update.status.state for e in events if e.HasField("status_update")]
    assert states[-1] == TaskState.TASK_STATE_COMPLETED


def test_a_question_is_answered_and_its_task_followed(served: Broker) -> None:
    async def body() -> tuple[Task, list[Any], Task]:
        async with sdk(served) as client:
            task = (await client.send_message(asked())).task
            following = client.subscribe(SubscribeToTaskRequest(id=task.id))
            first = await anext(following)
            reply = SendMessageRequest(
                message=Message(
                    message_id=str(uuid.uuid4()),
                    role=Role.ROLE_USER,
                    parts=[Part(text="blue")],
                    task_id=task.id,
                ),
                configuration=SendMessageConfiguration(return_immediately=False),
            )
            done = (await client.send_message(reply)).task
            return task, [first, *[event async for event in following]], done

    with running(Agent(asks)) as url:
        register(served, url)
        task, events, done = asyncio.run(body())
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert task.status.message.parts[0].text == "Which one?"
    assert task.status.message.role == Role.ROLE_AGENT
    assert done.id == task.id
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert events[0].task.id == task.id
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


def test_refusals_are_the_errors_that_the_client_knows(served: Broker) -> None:
    config = TaskPushNotificationConfig(id="c", task_id="t", url="https://x.test/hook")

    async def body() -> list[A2AError]:
        found: list[A2AError] = []
        async with sdk(served) as client:
            for call in (
                client.get_task(GetTaskRequest(id="nobody")),
                client.cancel_task(CancelTaskRequest(id="nobody")),
                anext(client.subscribe(SubscribeToTaskRequest(id="nobody"))),
                client.send_message(SendMessageRequest()),
                client.create_task_push_notification_config(config),
            ):
                with pytest.raises(A2AError) as caught:
                    await call
                found.append(caught.value)
        return found

    assert [type(error) for error in asyncio.run(body())] == [
        TaskNotFoundError,
        TaskNotFoundError,
        TaskNotFoundError,
        InvalidParamsError,
        TaskNotFoundError,
    ]


def test_faults_are_named_as_the_caller_wrote_them(served: Broker) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": 5}]}
    answer = served.http.post("/v1/message:send", json={"message": message})
    assert answer.status_code == 400
    (fault,) = answer.json()["error"]["details"][1]["fieldViolations"]
    assert fault["field"] == "message.content[0].text"
    again = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": 5}]}
    answer = served.http.post("/v1/message:send", json={"message": again})
    (fault,) = answer.json()["error"]["details"][1]["fieldViolations"]
    assert fault["field"] == "message.parts[0].text"


def test_bytes_data_and_metadata_go_through_in_the_shape_of_the_proto(served: Broker) -> None:
    written = (
        b'{"message":{"message_id":"m-1","role":"ROLE_USER","content":['
        b'{"text":"a","metadata":{"n":1e2}},'
        b'{"data":{"data":{"big":12345678901234567890,"f":1.10}}},'
        b'{"file":{"file_with_bytes":"AP/+","mime_type":"x/y","name":"f"}}]},'
        b'"configuration":{"blocking":true},'
        b'"metadata":{"handoff_context":%b}}' % json.dumps(handoff_context(**CAN)).encode()
    )

    async def script(agent: Agent, call: Call) -> Answer:
        artifact = {"artifactId": "all", "parts": call.message["parts"]}
        return {"task": agent.task("COMPLETED", artifacts=[artifact])}

    agent = Agent(script)
    with running(agent) as url:
        register(served, url)
        answer = served.http.post("/v1/message:send", content=written)
    assert b'{"big":12345678901234567890,"f":1.10}' in agent.calls[0].body
    assert agent.calls[0].message["parts"][2] == {"raw": "AP/+", "mediaType": "x/y", "filename": "f"}
    task = answer.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    parts = task["artifacts"][0]["parts"]
    assert parts[1] == {"data": {"data": {"big": 12345678901234567890, "f": 1.1}}}
    assert parts[2] == {"file": {"fileWithBytes": "AP/+", "mimeType": "x/y", "name": "f"}}
    assert task["history"][0]["content"] == parts
    assert task["history"][0]["role"] == "ROLE_USER"


def test_a_listing_takes_the_names_of_the_proto_for_states_and_writes_them(served: Broker) -> None:
    agent = Agent(completes)
    with running(agent) as url:
        register(served, url)
        task = served.send(context=CAN)
        page = served.http.get("/v1/tasks", params={"status": "TASK_STATE_COMPLETED"}).json()
        none = served.http.get("/v1/tasks", params={"status": "TASK_STATE_CANCELLED"}).json()
    assert [(t["id"], t["status"]["state"]) for t in page["tasks"]] == [(task["id"], "TASK_STATE_COMPLETED")]
    assert none["tasks"] == []
