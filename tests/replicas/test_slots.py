"""Brokers on one PostgreSQL never give an agent more than it takes at a time while another one is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff import ledger
from a2a_handoff.core.matching import CANDIDATES_MAX
from tests.support.replicas import processes, replicas
from tests.support.running import Broker, broker
from tests.support.served import Served
from tests.support.wire import eventually

ROUNDS = 5


def register(b: Broker | Served, *agents: str, limit: int | None) -> None:
    for name in agents:
        body = {"agent_id": name, "capabilities": {"canWork": True}, "max_concurrency": limit}
        assert b.http.post("/api/agents", json=body).is_success


def known(brokers: Sequence[Broker | Served], *agents: str) -> bool:
    return all(
        one.http.get(f"/api/agents/{name}").json().get("present") is True
        for one in brokers
        for name in agents
    )


def hand_off(b: Broker | Served, **more: Any) -> Any:
    body = {"source_agent": "triage", "task": "work", "requirements": {"capabilities": ["canWork"]}} | more
    answer = b.http.post("/api/handoffs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def finish(b: Broker | Served, made: Any) -> None:
    for step in ("accept", "complete"):
        answer = b.http.post(
            f"/api/handoffs/{made['handoff_id']}/{step}", json={"agent_id": made["assigned_to"]}
        )
        assert answer.is_success, answer.text


def test_bursts_at_two_brokers_fill_every_agent_to_its_limit_and_none_beyond(tmp_path: Path) -> None:
    agents = [f"w-{n}" for n in range(12)]
    with replicas(tmp_path) as brokers, ThreadPoolExecutor(12) as pool:
        register(brokers[0], *agents, limit=1)
        eventually(lambda: known(brokers, *agents))
        for _ in range(ROUNDS):
            made = list(pool.map(hand_off, brokers * 6))
            assert Counter(one["assigned_to"] for one in made) == Counter(agents)
            assert all(len(one["attempts"]) == 1 for one in made)
            list(pool.map(finish, brokers * 6, made))


def test_an_agent_that_has_a_slot_is_found_among_many_that_all_seem_to_be_full(tmp_path: Path) -> None:
    """They say that they have work from elsewhere, which no slot is taken by; more match than are listed."""
    agents = [f"w-{n}" for n in range(24)]
    with replicas(tmp_path) as (a, b):
        register(a, *agents, limit=1)
        for name in agents:
            beat = {"status": "busy", "in_flight": 1}
            assert a.http.post(f"/api/agents/{name}/heartbeat", json=beat).is_success
        for name in agents:
            eventually(lambda name=name: b.http.get(f"/api/agents/{name}").json()["in_flight"] == 1)
        made = [hand_off(one) for one in (a, b) * 12]
        assert Counter(one["assigned_to"] for one in made) == Counter(agents)


def test_when_all_are_full_the_next_task_waits_with_one_of_them(tmp_path: Path) -> None:
    with replicas(tmp_path) as brokers:
        a, b = brokers
        register(a, "w-1", "w-2", limit=1)
        eventually(lambda: known(brokers, "w-1", "w-2"))
        first, second, third = hand_off(a), hand_off(b), hand_off(a)
        assert {first["assigned_to"], second["assigned_to"]} == {"w-1", "w-2"}
        assert third["assigned_to"] in ("w-1", "w-2")
        finish(b, first)
        assert hand_off(b)["assigned_to"] in ("w-1", "w-2")


def test_whom_the_sender_names_gets_it_at_the_limit_too(tmp_path: Path) -> None:
    with replicas(tmp_path) as brokers:
        a, b = brokers
        register(a, "w-1", "w-2", limit=1)
        eventually(lambda: known(brokers, "w-1", "w-2"))
        for one in (a, b, a):
            assert hand_off(one, target_agent="w-1")["assigned_to"] == "w-1"
        assert hand_off(b)["assigned_to"] == "w-2"


def test_a_task_that_moves_on_passes_over_an_agent_that_another_broker_has_filled(tmp_path: Path) -> None:
    with replicas(tmp_path) as brokers:
        a, b = brokers
        register(a, "w-1", "w-2", "w-3", limit=1)
        eventually(lambda: known(brokers, "w-1", "w-2", "w-3"))
        made = hand_off(a)
        first, second, third = [made["assigned_to"], *sorted({"w-1", "w-2", "w-3"} - {made["assigned_to"]})]
        filled = hand_off(b, target_agent=second)
        assert filled["assigned_to"] == second
        # Right after, so that the broker that decides may not have heard of it.
        answer = a.http.post(f"/api/handoffs/{made['handoff_id']}/decline", json={"agent_id": first})
        assert (answer.json()["assigned_to"], len(answer.json()["attempts"])) == (third, 2)


def test_a_limit_that_changes_holds_for_the_next_offer(tmp_path: Path) -> None:
    with replicas(tmp_path) as brokers:
        a, b = brokers
        register(a, "w-1", limit=3)
        register(a, "w-2", limit=None)
        eventually(lambda: known(brokers, "w-1", "w-2"))
        for _ in range(2):
            hand_off(a, target_agent="w-1")
        register(a, "w-1", limit=2)
        eventually(lambda: b.http.get("/api/agents/w-1").json()["max_concurrency"] == 2)
        assert {hand_off(one)["assigned_to"] for one in (a, b, a, b)} == {"w-2"}
        register(b, "w-1", limit=7)
        eventually(lambda: a.http.get("/api/agents/w-1").json()["max_concurrency"] == 7)
        assert hand_off(a)["assigned_to"] == "w-1"


def test_what_a_killed_broker_offered_keeps_its_slots_until_it_ends(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as (a, b):
        register(a, "w-1", "w-2", limit=1)
        register(a, "spare", limit=None)
        eventually(lambda: known([b], "w-1", "w-2", "spare"))
        held = [hand_off(a, target_agent=name) for name in ("w-1", "w-2")]
        a.kill()
        assert [hand_off(b)["assigned_to"] for _ in range(3)] == ["spare"] * 3
        finish(b, held[0])
        assert hand_off(b)["assigned_to"] == "w-1"
        assert hand_off(b)["assigned_to"] == "spare"


def test_of_a_large_fleet_that_is_full_not_everybody_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_CONFLICTS", ledger._REROUTES_MAX + 2)
    agents = [f"w-{n}" for n in range(CANDIDATES_MAX * (ledger._REROUTES_MAX + 3))]
    with broker(tmp_path) as alone:
        register(alone, *agents, limit=1)
        made = [hand_off(alone) for _ in agents]
        assert Counter(one["assigned_to"] for one in made) == Counter(agents)
        assert hand_off(alone)["assigned_to"] in agents
