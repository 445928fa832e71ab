"""A workspace is a wall: what was asked for within it is not looked for outside, however often it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.agents import Agent, card, completes, rejects
from tests.support.running import Broker, broker, running


def _hand_off(b: Broker, **more: Any) -> str:
    body = {"task": "do it", "requirements": {"capabilities": ["canWork"]}, "workspace": "team"}
    answer = b.http.post("/api/handoffs", json=body | more)
    assert answer.status_code == 201, answer.text
    return answer.json()["handoff_id"]


def test_agents_that_are_looked_for_anew_are_of_the_same_workspace(tmp_path: Path) -> None:
    no, yes = Agent(rejects), Agent(completes)
    with running(no) as first, running(yes) as second, broker(tmp_path) as b:
        b.register("ours", workspace="team", card=card(first, capabilities={"canWork": True}))
        b.register("theirs", card=card(second, capabilities={"canWork": True}))
        ended = b.until(_hand_off(b), "returned", "completed")
    assert [attempt["agent_id"] for attempt in ended["attempts"]] == ["ours"]
    assert yes.calls == []


def test_an_agent_that_comes_is_given_what_waits_in_its_own_workspace_only(tmp_path: Path) -> None:
    with broker(tmp_path, presence=1.0) as b:
        b.register("away", workspace="team", capabilities={"canWork": True})
        b.http.post("/api/agents/away/heartbeat", json={"status": "offline"})
        waiting = _hand_off(b)
        assert b.handoff(waiting)["state"] == "requested"
        b.register("stranger", capabilities={"canWork": True})
        b.register("friend", workspace="team", capabilities={"canWork": True})
        offered = b.until(waiting, "offered")
    assert offered["assigned_to"] == "friend"


def test_an_escalation_goes_to_the_supervisor_of_the_workspace(tmp_path: Path) -> None:
    with running(Agent(rejects)) as url, broker(tmp_path) as b:
        b.register("ours", workspace="team", card=card(url, capabilities={"canWork": True}))
        b.register("a-boss", role="supervisor")
        b.register("team-boss", workspace="team", role="supervisor")
        ended = b.until(_hand_off(b), "escalated", "returned")
    assert ended["assigned_to"] == "team-boss"
