"""Agents that fetch their work: what they are shown, and that every call of theirs is a sign of life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import Agent, card, completes
from tests.support.running import Ahead, Broker, broker, running


def _hand_off(b: Broker, **more: Any) -> str:
    answer = b.http.post("/api/handoffs", json={"task": "do it", "target_agent": "editor"} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()["handoff_id"]


def _inbox(b: Broker) -> list[str]:
    page = b.http.get("/api/handoffs/pending", params={"target": "editor"}).json()
    return [handoff["handoff_id"] for handoff in page["handoffs"]]


def test_the_inbox_shows_the_most_urgent_first(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("editor")
        low, normal, urgent = (_hand_off(b, priority=p) for p in ("low", "normal", "urgent"))
        assert _inbox(b) == [urgent, normal, low]


def test_what_was_accepted_is_not_in_the_inbox_any_more(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("editor")
        first, second = _hand_off(b), _hand_off(b)
        b.http.post(f"/api/handoffs/{first}/accept", json={"agent_id": "editor"})
        assert _inbox(b) == [second]


def _present(b: Broker, agent_id: str = "editor") -> bool:
    return b.http.get(f"/api/agents/{agent_id}").json()["present"]


_ACTIONS: dict[str, Callable[[Broker, str], httpx.Response]] = {
    "pending": lambda b, _: b.http.get("/api/handoffs/pending", params={"target": "editor"}),
    "accept": lambda b, h: b.http.post(f"/api/handoffs/{h}/accept", json={"agent_id": "editor"}),
    "accept of its own": lambda b, h: b.http.post(f"/api/handoffs/{h}/accept"),
    "progress": lambda b, h: b.http.post(f"/api/handoffs/{h}/progress", json={"agent_id": "EDITOR"}),
    "decline": lambda b, h: b.http.post(f"/api/handoffs/{h}/decline", json={"agent_id": "editor"}),
    "complete": lambda b, h: b.http.post(f"/api/handoffs/{h}/complete", json={"agent_id": "editor"}),
}


@pytest.mark.parametrize("action", _ACTIONS)
def test_any_call_is_a_sign_of_life(tmp_path: Path, action: str) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("editor")
        handoff = _hand_off(b)
        clock.seconds += 30
        assert not _present(b)
        answer = _ACTIONS[action](b, handoff)
        assert answer.status_code == 200, answer.text
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
