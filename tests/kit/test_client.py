"""The client against a real A2A server, and every step that a broker can tell of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from a2a.types import StreamResponse
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.demo.agent import build
from a2a_handoff.kit.client import BrokerClient, Step, step_of
from tests.support.running import running

CARD: dict[str, Any] = {
    "name": "Billing",
    "description": "Answers about invoices",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "http://127.0.0.1:9/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "billing", "name": "Billing", "description": "Invoices", "tags": ["billing"]}],
}

CONTEXT: dict[str, Any] = {
    "correlation_id": "c1",
    "user_intent": "wants a refund",
    "conversation_summary": "asked for a refund",
    "key_facts": {"invoice": "INV-7"},
    "offer_id": "o1",
}


def check(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(body(), 20)

    asyncio.run(bounded())


def step(answer: dict[str, Any]) -> Step:
    return step_of(ParseDict(answer, StreamResponse()))


# --- steps ---------------------------------------------------------------------------------------


def test_a_task_is_a_step_with_its_ids_and_state() -> None:
    told = step({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}})
    assert (told.task_id, told.context_id, told.state) == ("t", "c", "WORKING")
    assert not told.ended
    assert not told.waiting


def test_a_system_event_is_told_apart_from_words() -> None:
    event = {
        "type": "system_event",
        "event": "handoff_started",
        "message": "…",
        "target_agent": "billing_agent",
    }
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Transferring"}, {"data": event}]}
    status = {"state": "TASK_STATE_SUBMITTED", "message": message}
    told = step({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}})
    assert told.event == event
    assert told.text == "Transferring"


def test_a_chunk_of_an_artifact_says_whether_it_continues_one() -> None:
    artifact = {"artifactId": "a", "name": "patch", "parts": [{"text": "+1"}]}
    told = step({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": True}})
    assert (told.artifact_id, told.artifact_name, told.text, told.append) == ("a", "patch", "+1", True)


def test_a_question_to_the_caller_is_waiting_and_a_result_is_the_end() -> None:
    asked = step(
        {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}}
    )
    assert asked.waiting
    ended = step(
        {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_REJECTED"}}}
    )
    assert ended.ended


def test_a_plain_message_is_a_step_with_its_metadata() -> None:
    told = step(
        {
            "message": {
                "messageId": "m",
                "contextId": "c",
                "role": "ROLE_AGENT",
                "parts": [{"text": "hi"}],
                "metadata": {"n": 1},
            }
        }
    )
    assert told.text == "hi"
    assert repr(told.metadata) == "{'n': 1}"


# --- sending -------------------------------------------------------------------------------------


def test_a_task_is_followed_to_its_end_and_its_context_arrives() -> None:
    async def body() -> None:
        async with BrokerClient(url, agent_id="shop") as broker:
            steps = await broker.send("refund please", CONTEXT)
            words = [told.text for told in steps if told.text]
            assert words == [
                (
                    "I am taking over your request from shop. I see what you need: wants a refund. "
                    "I already know: invoice: INV-7."
                ),
                "Invoice INV-7 is settled; the amount goes back within three days.",
            ]
            assert steps[-1].state == "COMPLETED"
            receipt = steps[1].metadata[EXTENSION_URI]["receipt"]
            assert receipt["key_facts"] == {"invoice": "INV-7"}
            task = await broker.get(steps[0].task_id)
            assert task.id == steps[0].task_id

    with running(build("billing_agent", CARD)) as url:
        check(body)


def test_a_task_that_waits_is_continued_by_its_id() -> None:
    async def body() -> None:
        async with BrokerClient(url) as broker:
            asked = (await broker.send("refund please"))[-1]
            assert asked.waiting
            more = {**CONTEXT, "key_facts": {"invoice": "INV-8"}}
            steps = [told async for told in broker.stream("INV-8", more, task_id=asked.task_id)]
            assert steps[-1].state == "COMPLETED"
            assert steps[-1].task_id == asked.task_id

    with running(build("billing_agent", CARD)) as url:
        check(body)


def test_an_error_of_the_broker_is_raised_as_the_sdk_names_it() -> None:
    async def body() -> None:
        async with BrokerClient(url) as broker:
            with pytest.raises(TaskNotFoundError):
                await broker.cancel("no-such-task")

    with running(build("billing_agent", CARD)) as url:
        check(body)


def test_token_and_sender_go_along_with_every_rest_call() -> None:
    seen: list[tuple[str, str, Any]] = []

    async def echo(request: Request) -> JSONResponse:
        body = await request.body()
        seen.append((request.url.path, request.headers.get("authorization", ""), json.loads(body or b"null")))
        return JSONResponse({"ok": True}, status_code=404 if "missing" in request.url.path else 200)

    async def body() -> None:
        async with BrokerClient(url, agent_id="shop", token="t0") as broker:
            assert await broker.resolve({"requirements": {"skill": "billing"}}) == {"ok": True}
            await broker.register({"agent_id": "shop"})
            await broker.chain("order-7")
            with pytest.raises(httpx.HTTPStatusError):
                await broker.chain("missing")

    with running(Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])])) as url:
        check(body)
    assert seen[:3] == [
        ("/api/resolve", "Bearer t0", {"source_agent": "shop", "requirements": {"skill": "billing"}}),
        ("/api/agents", "Bearer t0", {"agent_id": "shop"}),
        ("/api/chains/order-7", "Bearer t0", None),
    ]
