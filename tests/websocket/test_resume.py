"""A socket is cut, or its broker stops: whoever comes back with the cursor misses nothing and hears nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.puller import hand_off
from tests.support.running import Broker, broker, kept_port
from tests.support.sockets import Socket, socket_of


def _cut(socket: Socket) -> None:
    """Drop the connection without a word."""
    socket.connection.socket.shutdown(2)


def _say(b: Broker, message: str) -> None:
    said = {"channel": "general", "message": message, "source_agent": "cowork"}
    assert b.http.post("/api/broadcasts", json=said).status_code == 201


def test_what_was_shown_is_not_shown_again_and_what_came_meanwhile_is(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor", events=True) as socket:
        first = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        _say(b, "one")
        assert socket.next("offer")["handoff_id"] == first
        assert socket.next("broadcast")["message"] == "one"
        while socket.next("event")["event"] != "handoff:offered":
            pass
        _cut(socket)
    second = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
    _say(b, "two")
    with socket_of(b) as again:
        again.hello("cursor", cursor=socket.cursor, events=True)
        assert again.next("offer")["handoff_id"] == second
        assert again.next("broadcast")["message"] == "two"
        events = [again.next("event") for _ in range(2)]
        assert [e["event"] for e in events] == ["handoff:created", "handoff:offered"]
        assert {e["data"]["handoffId"] for e in events} == {second}
        assert again.quiet() == []
        assert [h["handoff_id"] for h in _pending(b)] == [first, second]


def _pending(b: Broker) -> list[dict[str, str]]:
    return b.http.get("/api/handoffs/pending", params={"target": "cursor"}).json()["handoffs"]


def test_a_cut_before_the_first_event_loses_none(b: Broker) -> None:
    """Also on a store that is empty, whose log has no position."""
    with socket_of(b, "cursor", platform="cursor", events=True) as socket:
        _cut(socket)
    made = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
    with socket_of(b) as again:
        again.hello("cursor", cursor=socket.cursor, events=True)
        assert again.next("event")["data"]["handoffId"] == made


def test_a_withdrawal_during_the_cut_is_told_afterwards(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        made = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        socket.next("offer")
        _cut(socket)
    b.http.post(f"/api/handoffs/{made}/cancel")
    b.until(made, "canceled")
    with socket_of(b) as again:
        again.hello("cursor", cursor=socket.cursor)
        told = again.next("rescinded")
        assert (told["handoff_id"], told["reason"]) == (made, "rescinded")


def test_without_a_cursor_every_open_offer_is_shown_and_events_begin_now(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor", events=True) as socket:
        made = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        socket.next("offer")
        _cut(socket)
    with socket_of(b) as again:
        again.hello("cursor", events=True)
        assert again.next("offer")["handoff_id"] == made
        assert again.quiet() == []


def test_an_agent_that_leaves_many_offers_lying_is_shown_each_once(b: Broker) -> None:
    """More than a cursor remembers, and the most urgent first."""
    b.register("cursor")
    priorities = ["normal", "low", "urgent"]
    made = [
        hand_off(b, target_agent="cursor", source_agent="cowork", priority=priorities[number % 3])[
            "handoff_id"
        ]
        for number in range(99)
    ]
    with socket_of(b, "cursor") as socket:
        shown = [socket.next("offer")["handoff_id"] for _ in made]
        assert shown == made[2::3] + made[0::3] + made[1::3]
        assert socket.quiet() == []
        more = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        assert socket.next("offer")["handoff_id"] == more
        assert socket.quiet() == []


def test_the_cursor_of_every_frame_is_good(b: Broker) -> None:
    """Cut after any frame, then read on: together it is everything once, in order."""
    with socket_of(b, "cursor", platform="cursor", events=True) as socket:
        made = [hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"] for _ in range(3)]
        for number in range(3):
            _say(b, f"{number}")
        whole: list[tuple[str, str]] = []
        cursors: list[str] = []
        for _ in range(12):
            frame = socket.receive()
            whole.append(_told(frame))
            cursors.append(frame["cursor"])
    for number, cursor in enumerate(cursors):
        with socket_of(b) as again:
            again.hello("cursor", cursor=cursor, events=True)
            rest = [_told(again.receive()) for _ in range(11 - number)]
            assert again.quiet() == []
            assert sorted(whole[: number + 1] + rest) == sorted(whole)
    assert {what for kind, what in whole if kind == "offer"} == set(made)


def _told(frame: dict[str, object]) -> tuple[str, str]:
    kind = str(frame["type"])
    return kind, str(
        frame.get("handoff_id") or frame.get("message") or (frame.get("event"), frame.get("data"))
    )


@pytest.mark.parametrize("events", [True, False])
def test_c092_a_cursor_that_means_nothing_here_is_answered_with_resync(b: Broker, events: bool) -> None:
    b.register("cowork", platform="cowork")
    b.register("cursor", platform="cursor")
    with socket_of(b, "cowork", events=True) as other:
        foreign = other.cursor
    made = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
    with socket_of(b) as socket:
        socket.hello("cursor", cursor=foreign, events=events)
        resync = socket.next("resync")
        assert resync["cursor"] != foreign
        assert socket.next("offer")["handoff_id"] == made
    with socket_of(b) as socket:
        refused = socket.ask("hello", agent_id="cursor", cursor="999999")
        assert [e["field"] for e in refused["problem"]["errors"]] == ["cursor"]
        assert socket.hello("cursor")["type"] == "welcome"


def test_c081_a_broker_that_stops_says_so_and_the_next_one_goes_on(tmp_path: Path) -> None:
    port = kept_port()
    with broker(tmp_path, port=port) as b:
        sockets = [
            socket_of(b, "cursor", platform="cursor", events=True, instance_id=f"w-{n}") for n in range(3)
        ]
        one, *others = (each.__enter__() for each in sockets)
        made = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        one.do("accept", handoff_id=made)
        while one.next("event")["event"] != "handoff:accepted":
            pass
        one.frames.clear()
    for socket in (one, *others):
        code, frames = socket.closed()
        assert code == 1012
        assert (frames[-1]["type"], frames[-1]["code"]) == ("closing", 1012)
    for each in sockets:
        each.__exit__(None, None, None)
    with broker(tmp_path, port=port) as b, socket_of(b) as again:
        again.hello("cursor", cursor=one.cursor, events=True, instance_id="w-0")
        assert again.quiet() == []
        assert again.do("complete", handoff_id=made, result="x")["handoff"]["state"] == "completed"
        assert again.next("event")["event"] == "handoff:completed"
