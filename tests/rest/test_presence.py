"""Agents that come, go, fall silent and come back, over REST."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.clock import SystemClock
from tests.support.puller import Puller, hand_off, puller
from tests.support.running import WAIT_S, Ahead, Broker, broker

CAN: dict[str, Any] = {"requirements": {"capabilities": ["canTestUI"]}}
ABLE: dict[str, Any] = {"capabilities": {"canTestUI": True}}


def accepted(agent: Puller, **more: Any) -> str:
    handoff_id = hand_off(agent.broker, target_agent=agent.name, **more)["handoff_id"]
    agent.do("accept", handoff_id)
    return handoff_id


# --- who comes after the task ----------------------------------------------------------------------


def test_an_agent_that_comes_after_the_task_gets_it(tmp_path: Path) -> None:
    """It was known and absent, so the task waited; a later start of it is an arrival."""
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("tester", **ABLE)
        clock.seconds += 30
        made = hand_off(b, **CAN)
        assert (made["state"], made["attempts"]) == ("requested", [])
        assert made["waiting_until"]
        with puller(b, "tester", instance="second", **ABLE) as tester:
            assert tester.watch(WAIT_S).json()["handoff_id"] == made["handoff_id"]


def test_a_task_that_waits_goes_to_a_new_agent_that_can_do_it(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("absent", **ABLE)
        clock.seconds += 30
        made = hand_off(b, **CAN)
        with puller(b, "new", **ABLE) as new:
            assert new.watch(WAIT_S).json()["handoff_id"] == made["handoff_id"]


def test_to_watch_is_to_arrive(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b, puller(b, "tester", **ABLE) as tester:
        clock.seconds += 30
        made = hand_off(b, **CAN)
        assert made["state"] == "requested"
        assert tester.watch(WAIT_S).json()["handoff_id"] == made["handoff_id"]


def test_the_inbox_of_a_named_agent_keeps_the_task_until_it_comes(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock, pull_ack_wait=0.05) as b:
        b.register("cursor")
        clock.seconds += 30
        made = hand_off(b, target_agent="cursor")
        assert made["state"] == "offered"
        b.logged(made["handoff_id"], "agent_awaited")
        with puller(b, "cursor") as cursor:
            offer = cursor.watch(WAIT_S).json()
            assert (offer["handoff_id"], offer["attempt"]) == (made["handoff_id"], 1)
            assert cursor.do("accept", made["handoff_id"])["state"] == "acknowledged"


def test_an_agent_that_drains_keeps_its_work_and_gets_no_more(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "tester", **ABLE) as tester:
        mine = hand_off(b, **CAN)["handoff_id"]
        tester.do("accept", mine)
        b.http.post("/api/agents/tester/heartbeat", json={"status": "draining"})
        assert hand_off(b, **CAN)["state"] == "returned"
        assert tester.do("complete", mine, result="done")["state"] == "completed"
        assert b.http.get("/api/agents/tester").json()["status"] == "draining"


def test_an_agent_that_leaves_is_offered_nothing_and_can_finish(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "tester", **ABLE) as tester:
        mine = accepted(tester)
        assert b.http.delete("/api/agents/tester").status_code == 204
        assert hand_off(b, **CAN)["outcome"] == "no_capable_agent"
        assert tester.watch().status_code == 404
        assert tester.do("complete", mine, result="done")["state"] == "completed"


# --- who falls silent ------------------------------------------------------------------------------


def test_a_holder_whose_lease_ran_out_is_uncertain_and_may_go_on(tmp_path: Path) -> None:
    with (
        broker(tmp_path) as b,
        puller(b, "cursor", lease_s=1.0) as cursor,
        puller(b, "other", **ABLE) as other,
    ):
        handoff_id = accepted(cursor, fallback=["other"])
        b.logged(handoff_id, "delivery_uncertain")
        assert b.handoff(handoff_id)["state"] == "acknowledged"
        assert other.watch().status_code == 204
        assert cursor.do("progress", handoff_id, message="I was thinking")["state"] == "acknowledged"
        assert cursor.do("complete", handoff_id, result="done")["state"] == "completed"


def test_what_may_run_twice_goes_to_another_when_the_lease_ran_out(tmp_path: Path) -> None:
    with (
        broker(tmp_path) as b,
        puller(b, "cursor", lease_s=1.0) as cursor,
        puller(b, "other", **ABLE) as other,
    ):
        handoff_id = accepted(cursor, fallback=["other"], replay_safe=True)
        offer = other.watch(WAIT_S).json()
        assert (offer["handoff_id"], offer["attempt"]) == (handoff_id, 2)
        late = cursor.act("complete", handoff_id, attempt=1, result="mine")
        assert (late.status_code, late.json()["code"]) == (409, "stale_attempt")
        assert other.do("complete", handoff_id, result="theirs")["result"] == "theirs"
        outcomes = [(a["agent_id"], a["outcome"], a["detail"]) for a in b.handoff(handoff_id)["attempts"]]
    assert outcomes == [("cursor", "timeout", "its lease ran out"), ("other", None, "")]


def test_what_has_said_something_is_given_to_nobody_else(tmp_path: Path) -> None:
    with (
        broker(tmp_path) as b,
        puller(b, "cursor", lease_s=1.0) as cursor,
        puller(b, "other", **ABLE) as other,
    ):
        handoff_id = accepted(cursor, fallback=["other"], replay_safe=True)
        cursor.do("progress", handoff_id, message="begun")
        b.logged(handoff_id, "delivery_uncertain")
        assert other.watch().status_code == 204


def test_who_waits_for_more_work_is_not_silent(tmp_path: Path) -> None:
    with (
        broker(tmp_path) as b,
        puller(b, "cursor", lease_s=1.0) as cursor,
        puller(b, "silent", lease_s=1.0) as silent,
    ):
        mine = accepted(cursor)
        watch = cursor.watching()
        theirs = accepted(silent)
        b.logged(theirs, "delivery_uncertain")
        assert "delivery_uncertain" not in b.log(mine)
        hand_off(b, target_agent="cursor")
        assert watch.result(WAIT_S).status_code == 200


def test_who_asked_the_caller_may_be_silent(tmp_path: Path) -> None:
    with (
        broker(tmp_path) as b,
        puller(b, "cursor", lease_s=1.0) as cursor,
        puller(b, "silent", lease_s=1.0) as silent,
    ):
        asking = accepted(cursor)
        cursor.do("progress", asking, state="input_required", message="which one?")
        b.logged(accepted(silent), "delivery_uncertain")
        b.logged(accepted(silent), "delivery_uncertain")
        assert "delivery_uncertain" not in b.log(asking)


class Later(SystemClock):
    """The machine's clock, an hour ahead: whatever was due within it is due."""

    def now(self) -> float:
        return super().now() + 3_600


def test_a_restart_of_the_broker_is_not_the_agents_silence(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "cursor", lease_s=600) as cursor:
        handoff_id = accepted(cursor)
    with broker(tmp_path, clock=Later()) as b:
        b.loop.run(_until_nothing_is_due(b))
        assert "delivery_uncertain" not in b.log(handoff_id)
        assert b.http.post(f"/api/handoffs/{handoff_id}/complete").json()["state"] == "completed"


async def _until_nothing_is_due(b: Broker) -> None:
    async with asyncio.timeout(WAIT_S):
        while ((await b.app.store.next_due()) or 0) < b.app.clock.now():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("role", ["human", "supervisor"])
def test_a_person_has_all_the_time_there_is(tmp_path: Path, role: str) -> None:
    """Neither an offer nor a task that was accepted is taken from a person before the deadline."""
    clock = Ahead()
    with (
        broker(tmp_path, clock=clock, pull_ack_wait=0.05, wait_for_agent=0) as b,
        puller(b, "anna", role=role, lease_s=0.1) as anna,
        puller(b, "silent", lease_s=0.1) as silent,
    ):
        made = hand_off(b, target_agent="anna", source_agent="cowork", task="Is this fair?")["handoff_id"]
        clock.seconds += 10_000
        b.logged(accepted(silent), "delivery_uncertain")
        assert b.handoff(made)["state"] == "offered"
        assert [h["handoff_id"] for h in anna.pending()] == [made]
        assert anna.watch().json()["handoff_id"] == made
        anna.do("accept", made)
        b.logged(accepted(silent), "delivery_uncertain")
        done = anna.do("complete", made, result="It is.")
    assert (done["state"], done["result"]) == ("completed", "It is.")
    assert [a["readiness"] for a in done["attempts"]] == ["person"]


def test_an_escalation_lands_with_the_supervisor_who_answers_or_gives_it_back(tmp_path: Path) -> None:
    with (
        broker(tmp_path, pull_ack_wait=0.05, wait_for_agent=0) as b,
        puller(b, "cursor", **ABLE) as cursor,
        puller(b, "boss", role="supervisor") as boss,
    ):
        first, second = hand_off(b, **CAN)["handoff_id"], hand_off(b, **CAN)["handoff_id"]
        for handoff_id in (first, second):
            cursor.act("decline", handoff_id, reason="not now")
            b.until(handoff_id, "escalated")
        assert {h["handoff_id"] for h in boss.pending()} == {first, second}
        offer = boss.watch().json()
        assert (offer["state"], offer["owner"], offer["status"]) == ("escalated", "source", "pending")
        assert boss.do("accept", first)["owner"] == "target"
        assert boss.do("complete", first, result="done by hand")["state"] == "completed"
        back = boss.do("release", second, reason="not ours")
        assert (back["state"], back["outcome"]) == ("returned", "released")
        assert [a["agent_id"] for a in back["attempts"]] == ["cursor", "boss"]
