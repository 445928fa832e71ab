"""Against a real a2a-sdk server: both of its generations on each of its bindings."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Generator
from contextlib import aclosing
from typing import Any

import pytest

from a2a_handoff.client import WellKnownCardFetcher
from a2a_handoff.core.agents import Agent, Binding, Generation
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Delivery, RemoteState, Sent, Update
from a2a_handoff.security.urls import OutboundPolicy
from tests.client.raw_server import agent_at, client, collect, run
from tests.support.sdk_agent import SdkAgent, sdk_agent

FACES = [(generation, binding) for generation in (Generation.V1_0, Generation.V0_3) for binding in Binding]


@pytest.fixture(scope="module")
def server() -> Generator[SdkAgent]:
    with sdk_agent() as agent:
        yield agent


@pytest.fixture(params=FACES, ids=lambda face: f"{face[0].value}-{face[1].value}")
def face(request: pytest.FixtureRequest, server: SdkAgent) -> Agent:
    generation, binding = request.param
    urls = {
        Binding.JSONRPC: f"{server.url}/rpc",
        Binding.HTTP_JSON: server.url,
        Binding.GRPC: f"127.0.0.1:{server.grpc_port}",
    }
    return agent_at(urls[binding], generation=generation, binding=binding)


def is_proto03(agent: Agent) -> bool:
    interface = agent.interfaces[0]
    return (interface.generation, interface.binding) == (Generation.V0_3, Binding.HTTP_JSON)


def streaming(agent: Agent) -> Agent:
    return Agent(agent_id="a", tenant="default", interfaces=agent.interfaces, streaming=True)


PARTS: list[dict[str, Any]] = [
    {"data": {"n": 1, "list": [None, True]}},
    {"url": "https://x/y", "mediaType": "x/y", "filename": "f"},
]


def says(text: str, *more: dict[str, Any], **ids: Any) -> Delivery:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}, *more]}
    return Delivery(message=json.dumps(message).encode(), **ids)


def parts_of(update: Update) -> list[dict[str, Any]]:
    return json.loads(update.message)["parts"] if update.message else []


def check_done(updates: list[Update]) -> None:
    assert updates[-1].state is RemoteState.COMPLETED
    assert parts_of(updates[-1]) == [{"text": "done"}]
    assert json.loads(updates[-1].message)["role"] == "ROLE_AGENT"
    assert json.loads(updates[-1].metadata) == {"from": "agent"}
    assert len({update.remote_task_id for update in updates}) == 1
    assert updates[-1].remote_task_id
    assert updates[-1].remote_context_id


def test_a_message_to_an_agent_that_does_not_stream_is_polled_to_its_end(face: Agent) -> None:
    async def body() -> None:
        async with client() as made:
            updates = await collect(made, face, says("echo", *PARTS))
            check_done(updates)
            first, second = updates[-1].outputs
            assert json.loads(first.body)["parts"] == [{"text": "one "}, {"text": "two"}]
            assert json.loads(second.body) == {
                "artifactId": "b",
                "name": "echo",
                "parts": [{"text": "echo"}, *PARTS],
            }

    run(body())


def test_a_message_to_a_streaming_agent_is_followed(face: Agent) -> None:
    async def body() -> None:
        async with client() as made:
            updates = await collect(made, streaming(face), says("echo", *PARTS))
            check_done(updates)
            chunks = [(o.artifact_id, o.append, o.last) for u in updates for o in u.outputs]
            assert chunks[:2] == [("a", False, False), ("a", True, True)]
            assert chunks[2][0] == "b"
            last = [output for update in updates for output in update.outputs][-1]
            assert json.loads(last.body)["parts"] == [{"text": "echo"}, *PARTS]

    run(body())


def test_a_file_survives_there_and_back(face: Agent) -> None:
    """On 0.3 over HTTP+JSON and gRPC the SDK's server takes the bytes for base64 of them and fails at it."""

    async def body() -> None:
        raw = {"raw": base64.b64encode(bytes(range(256))).decode(), "mediaType": "x/y", "filename": "f"}
        async with client() as made:
            interface = face.interfaces[0]
            if interface.generation is Generation.V0_3 and interface.binding is not Binding.JSONRPC:
                with pytest.raises(AgentError):
                    await collect(made, face, says("echo", raw))
                return
            *_, last = await collect(made, face, says("echo", raw))
            assert json.loads(last.outputs[1].body)["parts"][1] == raw

    run(body())


@pytest.mark.parametrize("streams", [False, True])
def test_a_question_pauses_and_the_reply_under_the_remote_ids_goes_on(face: Agent, streams: bool) -> None:
    async def body() -> None:
        agent = streaming(face) if streams else face
        async with client() as made:
            *_, asked = await collect(made, agent, says("ask"))
            assert asked.state is RemoteState.INPUT_REQUIRED
            assert parts_of(asked) == [{"text": "which one?"}]
            reply = says(
                "the red one",
                remote_task_id=asked.remote_task_id,
                remote_context_id=asked.remote_context_id,
            )
            updates = await collect(made, agent, reply)
            check_done(updates)
            assert updates[-1].remote_task_id == asked.remote_task_id

    run(body())


@pytest.mark.parametrize("streams", [False, True])
def test_a_message_in_answer_is_a_reply(face: Agent, streams: bool) -> None:
    async def body() -> None:
        async with client() as made:
            (update,) = await collect(made, streaming(face) if streams else face, says("message"))
            assert update.reply
            assert update.state is None
            assert parts_of(update) == [{"text": "hello"}]
            assert json.loads(update.metadata) == {"from": "agent"}
            assert update.remote_context_id

    run(body())


def test_a_rejection_is_a_state(face: Agent) -> None:
    async def body() -> None:
        async with client() as made:
            *_, last = await collect(made, face, says("reject"))
            assert (last.state, parts_of(last)) == (RemoteState.REJECTED, [{"text": "not mine"}])

    run(body())


def test_get_subscribe_and_the_end_of_a_slow_task(face: Agent, server: SdkAgent) -> None:
    async def body() -> None:
        server.hold()
        agent = streaming(face)
        async with client() as made:
            first = made.send(agent, says("slow"), first_wait_s=10)
            async with aclosing(first):
                task_id = (await anext(first)).remote_task_id
            # The stream was given up; the task goes on.
            snapshot = await made.get(agent, task_id)
            assert snapshot.snapshot
            assert snapshot.state in (RemoteState.SUBMITTED, RemoteState.WORKING)
            updates = made.subscribe(agent, task_id)
            assert (await anext(updates)).snapshot
            server.release()
            found = [update async for update in updates]
            check_done(found)
            again = [update async for update in made.subscribe(agent, task_id)]
            check_done(again)
            assert again[0].snapshot

    run(body())


def test_a_slow_task_can_be_canceled_once(face: Agent, server: SdkAgent) -> None:
    async def body() -> None:
        server.hold()
        async with client() as made:
            updates = made.send(face, says("slow"), first_wait_s=10)
            async with aclosing(updates):
                task_id = (await anext(updates)).remote_task_id
            assert (await made.cancel(face, task_id)).state is RemoteState.CANCELED
            with pytest.raises(AgentError) as caught:
                await made.cancel(face, task_id)
            assert (caught.value.outcome, caught.value.sent) == (Outcome.TARGET_REJECTED, Sent.YES)
            assert caught.value.jsonrpc_code == -32002

    run(body())


def test_an_unknown_task_is_named_by_its_code(face: Agent) -> None:
    async def body() -> None:
        async with client() as made:
            calls = [
                made.get(face, "nobody"),
                made.cancel(face, "nobody"),
                collect(made, face, says("x", remote_task_id="nobody")),
            ]
            if not is_proto03(face):
                # There the server drops the connection of a stream for an unknown task.
                calls.append(collect(made, streaming(face), says("x", remote_task_id="nobody")))
            for call in calls:
                with pytest.raises(AgentError) as caught:
                    await call
                assert caught.value.jsonrpc_code == -32001

    run(body())


def test_the_headers_arrive(face: Agent, server: SdkAgent) -> None:
    async def body() -> None:
        traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with client() as made:
            sent = says("message", traceparent=traceparent, tracestate="a=1", extensions=("urn:x",))
            await collect(made, face, sent)
        rpc = face.interfaces[0].binding is Binding.GRPC
        headers = (server.metadata if rpc else server.headers)[-1]
        assert (headers["traceparent"], headers["tracestate"]) == (traceparent, "a=1")
        assert headers["a2a-extensions"] == "urn:x"

    run(body())


def test_its_card_is_found_and_its_probe_answered(face: Agent, server: SdkAgent) -> None:
    async def body() -> None:
        card = await WellKnownCardFetcher(OutboundPolicy(allow_private=True)).fetch(server.url)
        assert json.loads(card.body)["name"] == "SDK"
        async with client() as made:
            await made.probe(face, timeout_s=10)

    run(body())
