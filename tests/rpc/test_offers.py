"""Agents over gRPC that speak the extension: offers, declines and handing on, by the kit on a2a-sdk."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import Part, Task, TaskState, a2a_pb2_grpc

from a2a_handoff.kit import Declined, HandoffReceiver, handoff
from a2a_handoff.kit.executor import HandoffExecutor, direct, incoming_of
from tests.support.agents import card
from tests.support.running import WAIT_S, Loop, broker

KEY_FACTS = {"invoice": 4711, "rate": 0.5, "paid": False, "items": [{"n": 1}]}


class Worker(AgentExecutor):
    """Finishes its task with the facts that it was given, or hands it on to ``then``."""

    def __init__(self, then: str = "") -> None:
        self.then = then
        self.facts: list[Any] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        held = incoming_of(context)
        assert held is not None
        self.facts.append(held.key_facts)
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        task = Task(id=context.task_id, context_id=context.context_id)
        task.status.state = TaskState.TASK_STATE_WORKING
        await event_queue.enqueue_event(task)
        if self.then:
            payload = handoff(self.then, base=held, summary="Now you.")
            await direct(context, event_queue, "Handing on.", payload)
            return
        await updater.add_artifact([Part(text="made")], artifact_id="a")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


@contextmanager
def served(worker: Worker, receiver: HandoffReceiver) -> Generator[str]:
    """The agent at host and port."""
    handler = DefaultRequestHandler(
        agent_executor=HandoffExecutor(worker, receiver),
        task_store=InMemoryTaskStore(),
        agent_card=parse_agent_card(card_of("127.0.0.1:1", "1.0")),
    )
    loop = Loop()

    async def start() -> tuple[Any, int]:
        server = grpc.aio.server()
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    async def stop(server: Any) -> None:
        await server.stop(1)
        await handler.aclose()

    server, port = loop.run(start())
    try:
        yield f"127.0.0.1:{port}"
    finally:
        loop.run(stop(server), WAIT_S)
        loop.close()


def card_of(url: str, version: str, *, streaming: bool = True) -> dict[str, Any]:
    made = card(url, streaming=streaming, speaks=True)
    made["supportedInterfaces"] = [{"url": url, "protocolBinding": "GRPC", "protocolVersion": version}]
    return made


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_an_agent_is_asked_before_it_gets_the_task(tmp_path: Path, version: str, streaming: bool) -> None:
    worker = Worker()
    with served(worker, HandoffReceiver("worker")) as url, broker(tmp_path) as b:
        b.register("worker", card=card_of(url, version, streaming=streaming))
        task = b.send(context={"target_agent": "worker", "key_facts": KEY_FACTS})
        handoff_id = task["id"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert task["artifacts"][0]["parts"] == [{"text": "made"}]
        (attempt,) = b.handoff(handoff_id)["attempts"]
        assert attempt["deliveries"] == 1
    assert [dict(facts) for facts in worker.facts] == [KEY_FACTS]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_one_agent_declines_and_the_next_hands_on(tmp_path: Path, version: str) -> None:
    def decide(_: Any) -> Declined:
        return Declined("in an incident")

    no, first, last = Worker(), Worker(then="last"), Worker()
    with (
        served(no, HandoffReceiver("no", decide=decide)) as at_no,
        served(first, HandoffReceiver("first")) as at_first,
        served(last, HandoffReceiver("last")) as at_last,
        broker(tmp_path) as b,
    ):
        for name, url in (("no", at_no), ("first", at_first), ("last", at_last)):
            b.register(name, card=card_of(url, version))
        task = b.send(context={"target_agent": "no", "fallback": ["first"], "key_facts": KEY_FACTS})
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        declined, *_ = b.handoff(task["id"])["attempts"]
        assert (declined["agent_id"], declined["outcome"]) == ("no", "target_rejected")
        assert declined["detail"] == "in an incident"
    assert (no.facts, len(first.facts), len(last.facts)) == ([], 1, 1)
