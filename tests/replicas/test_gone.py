"""What becomes of the work, and of the spans, of a broker that is gone, stands still, or ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, Answer, Call, card, completes
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.replicas import processes
from tests.support.running import WAIT_S, running
from tests.support.wire import eventually


class Door:
    """Lets whoever comes wait until it is opened."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    async def __call__(self) -> None:
        self.came.set()
        await asyncio.to_thread(self._open.wait, 30.0)


def works_behind(door: Door) -> Any:
    """An agent that tells its task id, and is done when the door opens."""

    async def script(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": dict(task)}
            await door()
            task["artifacts"] = [{"artifactId": "a", "parts": [{"text": "made"}]}]
            yield agent.artifact(task, "a", "made")
            yield agent.status(task, "COMPLETED", "done")

        if call.method == "SubscribeToTask":
            return {"task": agent.tasks[call.params["id"]]}
        return events()

    return script


class Probed(Agent):
    """An agent whose card is read behind a door, the first time."""

    door: Door

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET" and not self.door.came.is_set():
            await self.door()
        await super().__call__(scope, receive, send)


def sends(agent: Agent) -> list[str]:
    """The tasks that an agent was sent."""
    return [call.text for call in agent.calls if call.method in ("SendMessage", "SendStreamingMessage")]


def test_a_task_whose_broker_was_killed_is_brought_to_its_end_by_another(tmp_path: Path) -> None:
    door = Door()
    agent = Agent(works_behind(door))
    with running(agent) as url, processes(tmp_path, 2) as (a, b):
        a.register("worker", card=card(url, streaming=True))
        task = a.send("survive", context={"target_agent": "worker"})
        assert door.came.wait(WAIT_S)
        a.until(task["id"], "acknowledged")
        a.kill()
        door.open()
        assert b.ended(task["id"])["state"] == "completed"
        assert b.log(task["id"]).count("handoff_completed") == 1
    assert sends(agent) == ["survive"]


def test_a_broker_that_ends_gives_its_work_to_the_others_at_once(tmp_path: Path) -> None:
    door = Door()
    agent = Agent(works_behind(door))
    # Neither a lease nor the look for the dead comes in time.
    with running(agent) as url, processes(tmp_path, 2, work_lease=600) as (a, b):
        a.register("worker", card=card(url, streaming=True))
        task = a.send("take over", context={"target_agent": "worker"})
        assert door.came.wait(WAIT_S)
        a.until(task["id"], "acknowledged")
        assert a.stop() == 0
        door.open()
        assert b.ended(task["id"])["state"] == "completed"
    assert sends(agent) == ["take over"]


def test_a_broker_that_stood_still_does_not_send_what_another_sent_meanwhile(tmp_path: Path) -> None:
    door = Door()
    agent = Probed(completes)
    agent.door = door
    with running(agent) as url, processes(tmp_path, 2, ack_wait=20) as (a, b):
        a.register("worker", card=card(url))
        task = a.send("once", context={"target_agent": "worker"})
        assert door.came.wait(WAIT_S)
        a.freeze()
        try:
            # The other one finds that its lease has ended, asks the agent anew, and sends the task.
            assert b.ended(task["id"])["state"] == "completed"
            door.open()
        finally:
            a.thaw()
        # It goes on, and has no second try at it.
        again = a.send("next", context={"target_agent": "worker"})
        assert a.ended(again["id"])["state"] == "completed"
        assert a.log(task["id"]) == b.log(task["id"])
    assert sends(agent) == ["once", "next"]


def test_a_result_that_comes_to_a_broker_that_stood_still_counts_once(tmp_path: Path) -> None:
    door = Door()
    agent = Agent(works_behind(door))
    with running(agent) as url, processes(tmp_path, 2) as (a, b):
        a.register("worker", card=card(url, streaming=True))
        task = a.send("once", context={"target_agent": "worker"})
        assert door.came.wait(WAIT_S)
        a.until(task["id"], "acknowledged")
        a.freeze()
        try:
            door.open()
            assert b.ended(task["id"])["state"] == "completed"
        finally:
            a.thaw()
        assert a.ended(task["id"])["state"] == "completed"
        log = a.log(task["id"])
        assert log.count("handoff_completed") == 1
        (artifact,) = a.task(task["id"])["artifacts"]
        assert [part["text"] for part in artifact["parts"]] == ["made"]
    assert sends(agent) == ["once"]


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_each_span_that_was_committed_is_sent_though_its_broker_is_gone(tmp_path: Path, end: str) -> None:
    agent = Agent(completes)
    with OtlpReceiver() as receiver:
        # Spans of the first one would leave long after it is gone.
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "60000"}
        with running(agent) as url, processes(tmp_path, 2, env=env) as (a, b):
            a.register("worker", card=card(url))
            task = a.send("traced", wait=True, context={"target_agent": "worker"})
            trace_id = a.handoff(task["id"])["trace_id"]
            before = {span.name for span in receiver.trace(trace_id)}
            assert not before
            if end == "killed":
                a.kill()
            else:
                assert a.stop() == 0
            eventually(lambda: len(receiver.trace(trace_id)) >= 3, within_s=20)
            spans = receiver.trace(trace_id)
            assert len({span.span_id for span in spans}) == len(spans)
            receiver.one_root(trace_id)
            later = b.send("after", wait=True, context={"target_agent": "worker"})
            assert later["status"]["state"] == "TASK_STATE_COMPLETED"
