"""A running broker lets old chains go, and only those."""

from __future__ import annotations

from pathlib import Path

from tests.support.running import Broker, broker
from tests.support.wire import eventually


def hand_off(b: Broker, agent: str) -> str:
    """A handoff that ends at once, for nobody can take it."""
    return b.send("hello", context={"target_agent": agent})["id"]


def status(b: Broker, handoff_id: str) -> int:
    return b.http.get(f"/api/handoffs/{handoff_id}").status_code


def test_what_is_older_than_the_retention_is_gone_for_every_reader(tmp_path: Path) -> None:
    with broker(tmp_path, retention=0.05) as b:
        first, second = hand_off(b, "a"), hand_off(b, "b")
        eventually(lambda: b.loop.run(b.app.service.housekeeping.tidy()))
        assert (status(b, first), status(b, second)) == (404, 200), "the newest keeps the place in the log"
        answer = b.rpc("GetTask", {"id": first})
        assert answer["error"]["code"] == -32001
        assert [one["handoff_id"] for one in b.http.get("/api/handoffs").json()["handoffs"]] == [second]


def test_it_goes_by_itself_when_the_broker_starts(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        first, second = hand_off(b, "a"), hand_off(b, "b")
    with broker(tmp_path, retention=0.01) as b:
        eventually(lambda: status(b, first) == 404)
        assert status(b, second) == 200


def test_with_a_retention_of_zero_everything_stays(tmp_path: Path) -> None:
    with broker(tmp_path, retention=0) as b:
        first = hand_off(b, "a")
        hand_off(b, "b")
        assert b.loop.run(b.app.service.housekeeping.tidy()) == 0
        assert status(b, first) == 200
