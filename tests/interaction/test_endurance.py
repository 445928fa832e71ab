"""Faults of ours and of others that must not leave a broker that says it is ready and does nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, Answer, Call, card
from tests.support.running import WAIT_S, Broker, broker, running
from tests.support.wire import Gate, eventually


def _register(b: Broker, name: str, url: str, **more: Any) -> None:
    b.register(name, card=card(url, capabilities={"canWork": True}, **more))


def test_work_is_claimed_again_after_a_fault_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path, wait_for_agent=0.5) as b, caplog.at_level(logging.ERROR, "a2a_handoff"):
        b.register("absent", capabilities={"canWork": True})
        b.http.post("/api/agents/absent/heartbeat", json={"status": "offline"})
        claim, failed = b.app.store.claim_work, threading.Event()

        async def breaks_once(**how: Any) -> Any:
            if not failed.is_set():
                failed.set()
                raise RuntimeError("a fault of ours")
            return await claim(**how)

        b.app.store.claim_work = breaks_once  # type: ignore[method-assign]
        # Nobody but the loop that claims notices that the wait is over.
        task = b.send(context={"requirements": {"capabilities": ["canWork"]}})
        assert failed.wait(WAIT_S)
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert "claim failed and begins anew" in caplog.text


def test_a_message_of_the_caller_reaches_the_next_agent_if_the_first_one_is_lost(tmp_path: Path) -> None:
    cut, told = Gate(), Gate()

    async def loses(agent: Agent, call: Call) -> Answer:
        if call.message.get("taskId"):
            await asyncio.Event().wait()

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": agent.task("WORKING")}
            await cut.wait()

        return events()

    async def works(agent: Agent, call: Call) -> Answer:
        task_id = call.message.get("taskId", "")
        if task_id:
            told.open()
            return {"task": agent.tasks[task_id]}

        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            await told.wait()
            yield agent.status(task, "COMPLETED", "done")

        return events()

    lost, other = Agent(loses), Agent(works)
    with running(lost) as first, running(other) as second, broker(tmp_path) as b:
        _register(b, "a-lost", first, streaming=True)
        _register(b, "b-next", second, streaming=True)
        route = {"target_agent": "a-lost", "fallback": ["b-next"], "replay_safe": True}
        task = b.send(context=route, wait=False)
        b.until(task["id"], "acknowledged")
        b.send("and hurry", message={"taskId": task["id"]}, wait=False)
        eventually(lambda: len(lost.calls) == 2)  # the message is on its way when the agent is lost
        cut.open()
        b.until(task["id"], "completed")
    heard = [(call.text, call.message.get("taskId")) for call in other.calls]
    assert heard == [("hello", None), ("and hurry", "r-1")]
