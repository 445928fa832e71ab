"""What a workspace hears of its handoffs, and what an agent is told alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.puller import hand_off
from tests.support.running import Ahead, Broker, broker
from tests.support.sockets import Socket, socket_of


def _events(socket: Socket, last: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of the events up to the one named ``last``."""
    found: list[tuple[str, dict[str, Any]]] = []
    while not found or found[-1][0] != last:
        event = socket.next("event")
        found.append((event["event"], event["data"]))
    return found


def test_the_whole_workspace_hears_what_is_created_and_completed(b: Broker) -> None:
    with (
        socket_of(b, "cursor", platform="cursor", events=True) as cursor,
        socket_of(b, "cowork", platform="cowork", events=True) as cowork,
        socket_of(b, "third", platform="external", events=True) as third,
    ):
        made = cowork.do("create", handoff={"targetAgent": "cursor", "task": "Review a.py"})["handoff"]
        here = {"handoffId": made["handoff_id"]}
        cursor.do("accept", handoff_id=made["handoff_id"])
        cursor.do("complete", handoff_id=made["handoff_id"], result={"comments": ["fine"]})
        for socket in (cursor, cowork, third):
            assert _events(socket, "handoff:completed") == [
                ("handoff:created", here | {"targetAgent": "cursor", "task": "Review a.py"}),
                ("handoff:offered", here | {"agent": "cursor", "attempt": 1}),
                ("handoff:accepted", here | {"agent": "cursor", "attempt": 1}),
                ("handoff:completed", here | {"result": {"comments": ["fine"]}}),
            ]


def test_another_workspace_hears_nothing_of_it(b: Broker) -> None:
    with (
        socket_of(b, "cursor", platform="cursor", events=True, workspace="editor2") as cursor,
        socket_of(b, "stranger", platform="external", events=True) as stranger,
    ):
        made = hand_off(b, target_agent="cursor", source_agent="cowork", workspace="editor2")["handoff_id"]
        cursor.do("complete", handoff_id=made, result="x")
        assert _events(cursor, "handoff:completed")
        assert stranger.quiet() == []
        hand_off(b, target_agent="stranger", source_agent="cowork")
        assert _events(stranger, "handoff:offered")
        assert [f for f in cursor.quiet() if f == "event"] == []


def test_who_did_not_ask_for_events_gets_none(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as cursor:
        made = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        cursor.next("offer")
        cursor.do("accept", handoff_id=made)
        cursor.next("taken")
        cursor.do("complete", handoff_id=made, result="x")
        assert cursor.quiet() == []


def test_the_bad_ends_are_events_with_their_reasons(b: Broker) -> None:
    with (
        socket_of(b, "watcher", platform="external", events=True) as watcher,
        socket_of(b, "cursor", platform="cursor") as cursor,
    ):
        failed = hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"]
        cursor.do("accept", handoff_id=failed)
        cursor.do("progress", handoff_id=failed, state="input_required", message="?")
        cursor.do("fail", handoff_id=failed, reason="disk full")
        name, data = _events(watcher, "handoff:failed")[-1]
        assert (name, data["handoffId"], data["detail"]) == ("handoff:failed", failed, "disk full")
        released = hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"]
        cursor.do("accept", handoff_id=released)
        cursor.do("release", handoff_id=released, reason="not mine")
        assert _events(watcher, "handoff:returned")[-1][1]["reason"] == "released"
        canceled = hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"]
        b.http.post(f"/api/handoffs/{canceled}/cancel")
        assert _events(watcher, "handoff:canceled")[-1][1] == {"handoffId": canceled}


def test_what_is_large_is_cut_or_left_out_of_an_event(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor", events=True) as cursor:
        made = hand_off(b, target_agent="cursor", source_agent="a", task="x" * 3_000, user_intent="y" * 2_500)
        cursor.do("complete", handoff_id=made["handoff_id"], result="z" * 100_000)
        events = dict(_events(cursor, "handoff:completed"))
        assert events["handoff:created"]["task"] == "y" * 2_000
        assert events["handoff:completed"]["result"] is None


def test_an_offer_that_is_withdrawn_is_told_to_who_was_shown_it(tmp_path: Path) -> None:
    with (
        broker(tmp_path, pull_ack_wait=0.2) as b,
        socket_of(b, "first", platform="cursor") as first,
        socket_of(b, "second", platform="cursor") as second,
    ):
        made = hand_off(b, requirements={"capabilities": ["canEditFiles"]}, source_agent="a")["handoff_id"]
        shown = {"first": first, "second": second}[b.handoff(made)["assigned_to"]]
        other = second if shown is first else first
        assert shown.next("offer")["handoff_id"] == made
        told = shown.next("rescinded")
        assert (told["handoff_id"], told["attempt"], told["reason"]) == (made, 1, "timeout")
        assert other.next("offer")["attempt"] == 2
        other.do("accept", handoff_id=made)
        late = shown.ask("accept", handoff_id=made, attempt=1)
        assert late["problem"]["code"] in ("stale_attempt", "not_the_holder")


def test_an_offer_whose_caller_cancels_is_withdrawn_once(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as cursor:
        made = hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"]
        cursor.next("offer")
        b.http.post(f"/api/handoffs/{made}/cancel")
        told = cursor.next("rescinded")
        assert (told["handoff_id"], told["reason"]) == (made, "rescinded")
        assert cursor.quiet() == []


def test_a_task_whose_agent_does_not_stop_is_not_its_own_any_more(tmp_path: Path) -> None:
    with broker(tmp_path, cancel_wait=0.1) as b, socket_of(b, "cursor", platform="cursor") as cursor:
        made = hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"]
        cursor.do("accept", handoff_id=made)
        b.http.post(f"/api/handoffs/{made}/cancel")
        assert cursor.next("cancel_requested")["handoff_id"] == made
        told = cursor.next("rescinded")
        assert (told["handoff_id"], told["reason"]) == (made, "canceled")


def test_the_windows_of_one_agent_share_its_work(b: Broker) -> None:
    """One is shown an offer, the other two seconds later; the first to accept has it, and both are told."""
    with (
        socket_of(b, "cursor", platform="cursor", instance_id="w-1") as one,
        socket_of(b, "cursor", platform="cursor", instance_id="w-2") as two,
    ):
        made = hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"]
        b.loop.run(_until_shown(b))
        shown = one if "offer" in one.quiet() else two
        other = two if shown is one else one
        assert other.next("offer")["handoff_id"] == made
        winner = "w-1" if shown is one else "w-2"
        shown.do("accept", handoff_id=made)
        for socket in (one, two):
            taken = socket.next("taken")
            assert (taken["handoff_id"], taken["instance_id"]) == (made, winner)
        assert other.ask("accept", handoff_id=made)["problem"]["code"] == "stale_attempt"


async def _until_shown(b: Broker) -> None:
    """Return when one of the seats of the agent was shown the offer."""
    import asyncio

    async with asyncio.timeout(5):
        while not any(seat.cursor.shown for seat in b.app.service.inbox._seats["inbox:default:cursor"]):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


def test_an_open_socket_is_presence_and_a_goodbye_ends_it_at_once(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        with socket_of(b, "cursor", platform="cursor") as one:
            with socket_of(b, "cursor"):
                clock.seconds += 100
                assert b.http.get("/api/agents/cursor").json()["present"]
            b.loop.run(_until_seats(b, 1))
            assert b.http.get("/api/agents/cursor").json()["present"]
            assert one.ask("ping")
        b.loop.run(_until_seats(b, 0))
        assert not b.http.get("/api/agents/cursor").json()["present"]
        assert b.http.get("/api/agents/cursor").json()["status"] == "offline"
        b.http.get("/api/handoffs/pending", params={"target": "cursor"})
        assert b.http.get("/api/agents/cursor").json()["present"]


async def _until_seats(b: Broker, count: int) -> None:
    import asyncio

    async with asyncio.timeout(5):
        while len(b.app.service.inbox._seats.get("inbox:default:cursor", ())) != count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    await asyncio.sleep(0)
