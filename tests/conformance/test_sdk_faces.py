"""The SDK's own client and card resolver at the face of an agent that has no address and fetches its work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    TaskState,
)
from google.protobuf.json_format import MessageToDict

from tests.support.puller import Puller, puller
from tests.support.running import WAIT_S, Broker, broker

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


@pytest.fixture
def editor(tmp_path: Path) -> Generator[Puller]:
    with (
        broker(tmp_path, cancel_wait=WAIT_S, grpc_port=0) as b,
        puller(b, "editor", platform="cursor") as agent,
    ):
        yield agent


@asynccontextmanager
async def face(b: Broker, binding: str) -> AsyncGenerator[tuple[AgentCard, Client]]:
    """The card of the face as the SDK finds it, and the client that the SDK makes of it."""
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as http:
        found = await A2ACardResolver(http, f"{b.url}/agents/editor").get_agent_card()
        config = ClientConfig(
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[binding],
            use_client_preference=True,
        )
        made = ClientFactory(config).create(found)
        yield found, made
        if binding == "GRPC":
            await made.close()


def said(text: str, message_id: str, **more: Any) -> SendMessageRequest:
    message = Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)], **more)
    return SendMessageRequest(message=message)


async def until(events: AsyncIterator[StreamResponse], state: TaskState) -> StreamResponse:
    """The first event of a stream that has a state."""
    async for event in events:
        if state in (event.status_update.status.state, event.task.status.state):
            return event
    raise AssertionError(f"the stream has no {state}")


def told(event: StreamResponse) -> str:
    return event.status_update.status.message.parts[0].text


@pytest.mark.parametrize("binding", BINDINGS)
def test_the_sdk_streams_a_task_that_an_agent_does_behind_its_long_poll(editor: Puller, binding: str) -> None:
    async def do(verb: str, task_id: str, **body: Any) -> dict[str, Any]:
        return await asyncio.to_thread(editor.do, verb, task_id, **body)

    async def story() -> None:
        async with face(editor.broker, binding) as (found, client):
            assert (found.name, found.capabilities.streaming) == ("editor", True)
            assert found.supported_interfaces[0].url.startswith(f"{editor.broker.url}/agents/editor")
            stream = client.send_message(said("Review a.py", "m-1"))
            task = (await anext(stream)).task
            assert task.status.state == TaskState.TASK_STATE_SUBMITTED
            offer = await asyncio.to_thread(lambda: editor.watch(WAIT_S).json())
            assert (offer["handoff_id"], offer["task"]) == (task.id, "Review a.py")
            await do("accept", task.id)
            await until(stream, TaskState.TASK_STATE_WORKING)
            await do("progress", task.id, message="reading a.py")
            assert told(await until(stream, TaskState.TASK_STATE_WORKING)) == "reading a.py"
            await do("progress", task.id, state="input_required", message="which branch?")
            assert told(await until(stream, TaskState.TASK_STATE_INPUT_REQUIRED)) == "which branch?"
            assert [event async for event in stream] == []

            stream = client.send_message(said("main", "m-2", task_id=task.id, context_id=task.context_id))
            await until(stream, TaskState.TASK_STATE_WORKING)
            log = editor.http.get(f"/api/handoffs/{task.id}/events").json()["events"]
            replies = [e["data"]["message"] for e in log if e["type"] == "a2a-handoff.reply_received"]
            assert [reply["parts"] for reply in replies] == [[{"text": "main"}]]
            files: list[dict[str, Any]] = [
                {"raw": "aGVsbG8=", "mediaType": "text/x-diff", "filename": "a.diff"},
                {"url": "https://files.example/a.png", "mediaType": "image/png"},
                {"data": {"findings": [1, None]}},
            ]
            artifact = {"artifactId": "review", "name": "review", "parts": files}
            await do("complete", task.id, artifacts=[artifact], message="looks good")
            rest = [event async for event in stream]
            parts = rest[0].artifact_update.artifact.parts
            assert (parts[0].raw, parts[0].media_type, parts[0].filename) == (
                b"hello",
                "text/x-diff",
                "a.diff",
            )
            assert parts[1].url == files[1]["url"]
            assert MessageToDict(parts[2].data) == files[2]["data"]
            assert rest[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
            assert told(rest[-1]) == "looks good"

    asyncio.run(asyncio.wait_for(story(), 3 * WAIT_S))


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_cancel_by_the_sdk_reaches_the_agent_whose_word_makes_it_final(
    editor: Puller, binding: str
) -> None:
    async def story() -> None:
        async with face(editor.broker, binding) as (_, client):
            stream = client.send_message(said("Review everything", "m-1"))
            task = (await anext(stream)).task
            accepted = await asyncio.to_thread(editor.do, "accept", task.id)
            assert accepted["cancel_requested"] is False
            seen = (await asyncio.to_thread(events, task.id, 0, 0))["events"][-1]["seq"]
            waiting = asyncio.create_task(asyncio.to_thread(events, task.id, seen, WAIT_S))
            canceling = asyncio.create_task(client.cancel_task(CancelTaskRequest(id=task.id)))
            news = (await waiting)["events"]
            assert [event["type"] for event in news] == ["a2a-handoff.cancel_requested"]
            told = await asyncio.to_thread(editor.do, "progress", task.id, message="stopping")
            assert told["cancel_requested"] is True
            await asyncio.to_thread(editor.do, "release", task.id, reason="stopped")
            assert (await canceling).status.state == TaskState.TASK_STATE_CANCELED
            await until(stream, TaskState.TASK_STATE_CANCELED)

    def events(task_id: str, after: int, timeout: float) -> dict[str, Any]:
        asked = {"after": after, "timeout": timeout}
        return editor.http.get(f"/api/handoffs/{task_id}/events", params=asked).json()

    asyncio.run(asyncio.wait_for(story(), 3 * WAIT_S))
