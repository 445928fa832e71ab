"""Faults of ours and of others that must not leave a broker that says it is ready and does nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw_server import SSE_HEAD, Request, event, reset, working
from tests.support.agents import Agent, Answer, Call, card, completes
from tests.support.running import WAIT_S, Broker, broker, running
from tests.support.wire import Gate, calls, eventually, raw


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


async def _works_until_told(agent: Agent, call: Call, told: Gate) -> Answer:
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


async def _resets(_: Request, writer: asyncio.StreamWriter) -> None:
    reset(writer)


def test_a_target_that_does_not_answer_any_more_is_lost_and_what_is_on_its_way_goes_to_the_next(
    tmp_path: Path,
) -> None:
    cut, told = Gate(), Gate()

    async def loses(request: Request, writer: asyncio.StreamWriter) -> None:
        if "taskId" in request.params["message"]:
            await asyncio.Event().wait()
        writer.write(SSE_HEAD + event(working()))
        await writer.drain()
        await cut.wait()
        reset(writer)

    other = Agent(lambda agent, call: _works_until_told(agent, call, told))
    with (
        raw(SendStreamingMessage=loses, GetTask=_resets, CancelTask=_resets) as lost,
        running(other) as url,
        broker(tmp_path, reconcile_every=0.25, lost_after=1) as b,
    ):
        _register(b, "a-lost", lost.url, streaming=True)
        _register(b, "b-next", url, streaming=True)
        route = {"target_agent": "a-lost", "fallback": ["b-next"], "replay_safe": True}
        task = b.send(context=route, wait=False)
        b.until(task["id"], "acknowledged")
        b.send("and hurry", message={"taskId": task["id"]}, wait=False)
        eventually(lambda: len(calls(lost, "SendStreamingMessage")) == 2)
        cut.open()
        ended = b.until(task["id"], "completed")
    assert len(calls(lost, "GetTask")) >= 4
    assert ended["attempts"][0]["outcome"] == "timeout"
    heard = [(call.text, call.message.get("taskId")) for call in other.calls]
    assert heard == [("hello", None), ("and hurry", "r-1")]


def test_a_task_that_a_fault_of_ours_keeps_from_being_sent_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(completes)
    monkeypatch.setattr("a2a_handoff.dispatcher._FAULT_AGAIN_S", 0.05)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        # Stands for a message that some code of ours cannot write.
        monkeypatch.setattr("a2a_handoff.exchange.task_delivery", None)
        task = b.send(context={"target_agent": "worker"})
        handoff = b.handoff(task["id"])
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert [(a["outcome"], a["detail"]) for a in handoff["attempts"]] == [
        ("target_unavailable", "the broker could not send it")
    ]
    assert agent.calls == []
