"""Delivering to an agent of the first generation."""

from __future__ import annotations

import json

import pytest

from a2a_handoff.client import WellKnownCardFetcher
from a2a_handoff.core.agents import Agent, Generation
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Delivery, RemoteState, Sent, Update
from a2a_handoff.security.urls import OutboundPolicy
from tests.client.raw_server import agent_at, client, collect, run
from tests.support.first_generation import FirstGenerationAgent, first_generation_agent

both = pytest.mark.parametrize("streaming", [False, True], ids=["unary", "stream"])


def says(text: str, message_id: str = "m-1", *, task: str = "", session: str = "") -> Delivery:
    parts = [{"text": text}, {"data": {"n": 1}}, {"raw": "QUJD", "filename": "a.bin", "mediaType": "x/y"}]
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": parts}
    body = json.dumps(message).encode()
    return Delivery(message=body, remote_task_id=task, remote_context_id=session)


def face(server: FirstGenerationAgent, *, streaming: bool) -> Agent:
    return agent_at(server.url, streaming=streaming, generation=Generation.V0_1)


def texts(update: Update) -> list[str]:
    return [part.get("text", "") for part in json.loads(update.message)["parts"]] if update.message else []


def test_a_send_is_answered_with_the_whole_task() -> None:
    async def body() -> None:
        async with first_generation_agent() as server, client() as made:
            (update,) = await collect(made, face(server, streaming=False), says("echo"))
            assert update.state is RemoteState.COMPLETED
            assert update.snapshot
            assert (update.remote_task_id, update.remote_context_id) == ("m-1", "m-1")
            assert texts(update) == ["done"]
            assert json.loads(update.metadata) == {"from": "agent"}
            first, second = (json.loads(output.body) for output in update.outputs)
            assert [output.artifact_id for output in update.outputs] == ["artifact-0", "artifact-1"]
            assert first["parts"] == [{"text": "one "}, {"text": "two"}]
            assert second["parts"] == [
                {"text": "echo"},
                {"data": {"n": 1}},
                {"raw": "QUJD", "filename": "a.bin", "mediaType": "x/y"},
            ]

    run(body())


def test_a_stream_is_read_event_by_event() -> None:
    async def body() -> None:
        async with first_generation_agent() as server, client() as made:
            updates = await collect(made, face(server, streaming=True), says("echo"))
            assert [update.state for update in updates] == [
                RemoteState.WORKING,
                None,
                None,
                None,
                RemoteState.COMPLETED,
            ]
            chunks = [(o.artifact_id, o.append, o.last) for u in updates for o in u.outputs]
            assert chunks == [
                ("artifact-0", False, False),
                ("artifact-0", True, True),
                ("artifact-1", False, True),
            ]
            assert not any(update.snapshot for update in updates)
            assert {update.remote_task_id for update in updates} == {"m-1"}

    run(body())


@both
def test_a_question_is_answered_under_the_same_task_and_session(streaming: bool) -> None:
    async def body() -> None:
        async with first_generation_agent() as server, client() as made:
            agent = face(server, streaming=streaming)
            *_, asked = await collect(made, agent, says("ask"))
            assert asked.state is RemoteState.INPUT_REQUIRED
            assert texts(asked) == ["which one?"]
            follow_up = says(
                "the red one",
                "m-2",
                task=asked.remote_task_id,
                session=asked.remote_context_id,
            )
            *_, done = await collect(made, agent, follow_up)
            assert done.state is RemoteState.COMPLETED
            assert len(server.tasks) == 1
            assert {request["params"]["sessionId"] for request in server.requests} >= {"m-1"}

    run(body())


def test_a_retry_of_the_same_message_names_the_same_task() -> None:
    async def body() -> None:
        async with first_generation_agent() as server, client() as made:
            agent = face(server, streaming=False)
            await collect(made, agent, says("echo"))
            with pytest.raises(AgentError) as caught:
                await collect(made, agent, says("echo"))
            # The server's own word for a task that has ended; in 1.0 the code means something else.
            assert (caught.value.outcome, caught.value.jsonrpc_code) == (Outcome.TARGET_REJECTED, -32009)
            assert len(server.tasks) == 1

    run(body())


def test_get_and_cancel_and_their_errors() -> None:
    async def body() -> None:
        async with first_generation_agent() as server, client() as made:
            agent = face(server, streaming=True)
            updates = made.send(agent, says("slow"), first_wait_s=10)
            assert (await anext(updates)).state is RemoteState.WORKING
            assert (await made.get(agent, "m-1")).state is RemoteState.WORKING
            assert (await made.cancel(agent, "m-1")).state is RemoteState.CANCELED
            await updates.aclose()
            for call in (made.cancel(agent, "m-1"), made.get(agent, "nobody")):
                with pytest.raises(AgentError) as caught:
                    await call
                assert caught.value.sent is Sent.YES
                assert caught.value.jsonrpc_code in (-32001, -32002)

    run(body())


def test_a_task_under_way_is_followed_from_a_snapshot_to_its_end() -> None:
    async def body() -> None:
        async with first_generation_agent() as server, client() as made:
            agent = face(server, streaming=True)
            first = made.send(agent, says("slow"), first_wait_s=10)
            await anext(first)
            updates = made.subscribe(agent, "m-1")
            assert (await anext(updates)).snapshot
            server.release.set()
            last = [update async for update in updates][-1]
            assert last.state is RemoteState.COMPLETED
            methods = [request["method"] for request in server.requests]
            assert methods[-3:] == ["tasks/get", "tasks/resubscribe", "tasks/get"]
            await first.aclose()

    run(body())


def test_a_failed_task_is_a_state_and_no_error() -> None:
    async def body() -> None:
        async with first_generation_agent() as server, client() as made:
            *_, last = await collect(made, face(server, streaming=True), says("fail"))
            assert (last.state, texts(last)) == (RemoteState.FAILED, ["it broke"])

    run(body())


def test_its_card_is_found_under_the_old_name() -> None:
    async def body() -> None:
        async with first_generation_agent() as server:
            card = await WellKnownCardFetcher(OutboundPolicy(allow_private=True)).fetch(server.url)
            assert card.url == server.url + ".well-known/agent.json"
            async with client() as made:
                await made.probe(face(server, streaming=False), timeout_s=10)

    run(body())
