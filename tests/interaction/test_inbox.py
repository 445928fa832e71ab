"""Every call of an agent that fetches its work is a sign of life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import Agent, card, completes
from tests.support.running import Ahead, Broker, broker, running
from tests.support.tools import Tools


def _hand_off(b: Broker, **more: Any) -> str:
    answer = b.http.post("/api/handoffs", json={"task": "do it", "target_agent": "editor"} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()["handoff_id"]


def _present(b: Broker, agent_id: str = "editor") -> bool:
    return b.http.get(f"/api/agents/{agent_id}").json()["present"]


def _said(answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text


def _tool(b: Broker, name: str, **arguments: Any) -> None:
    Tools(broker=b, agent="editor").do(name, **arguments)


_ACTIONS: dict[str, Callable[[Broker, str], None]] = {
    "pending": lambda b, _: _said(b.http.get("/api/handoffs/pending", params={"target": "editor"})),
    "accept": lambda b, h: _said(b.http.post(f"/api/handoffs/{h}/accept", json={"agent_id": "editor"})),
    "accept of its own": lambda b, h: _said(b.http.post(f"/api/handoffs/{h}/accept")),
    "progress": lambda b, h: _said(b.http.post(f"/api/handoffs/{h}/progress", json={"agent_id": "EDITOR"})),
    "decline": lambda b, h: _said(b.http.post(f"/api/handoffs/{h}/decline", json={"agent_id": "editor"})),
    "complete": lambda b, h: _said(b.http.post(f"/api/handoffs/{h}/complete", json={"agent_id": "editor"})),
    "watch_handoffs": lambda b, _: _tool(b, "watch_handoffs", timeout=0, autoAccept=False),
    "check_handoffs": lambda b, _: _tool(b, "check_handoffs"),
    "accept_handoff": lambda b, h: _tool(b, "accept_handoff", handoffId=h),
    "handoff_progress": lambda b, h: _tool(b, "handoff_progress", handoffId=h, message="half"),
    "decline_handoff": lambda b, h: _tool(b, "decline_handoff", handoffId=h),
    "complete_handoff": lambda b, h: _tool(b, "complete_handoff", handoffId=h, result="done"),
}


@pytest.mark.parametrize("action", _ACTIONS)
def test_any_call_is_a_sign_of_life(tmp_path: Path, action: str) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("editor")
        handoff = _hand_off(b)
        clock.seconds += 30
        assert not _present(b)
        _ACTIONS[action](b, handoff)
        assert _present(b)


def test_who_hands_a_task_off_is_there(tmp_path: Path) -> None:
    clock = Ahead()
    with running(Agent(completes)) as url, broker(tmp_path, clock=clock) as b:
        b.register("editor")
        b.register("worker", card=card(url, capabilities={"canWork": True}))
        clock.seconds += 30
        b.send(context={"source_agent": "editor", "requirements": {"capabilities": ["canWork"]}})
        assert _present(b)


def test_a_call_of_somebody_else_is_none(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("editor")
        handoff = _hand_off(b)
        clock.seconds += 30
        b.http.get(f"/api/handoffs/{handoff}")
        b.http.post(f"/api/handoffs/{handoff}/cancel")
        assert not _present(b)
