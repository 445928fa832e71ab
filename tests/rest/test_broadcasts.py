"""Broadcasts over REST."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.clock import SystemClock
from tests.support.running import Broker, broker


class Later(SystemClock):
    """The machine's clock, some hours ahead."""

    hours = 0.0

    def now(self) -> float:
        return super().now() + 3_600 * self.hours


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path) as running:
        yield running


def tell(b: Broker, **body: Any) -> Any:
    return b.http.post("/api/broadcasts", json={"channel": "general", "message": "hello"} | body)


def heard(b: Broker, **params: str) -> Any:
    answer = b.http.get("/api/broadcasts", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_broadcast_is_kept_for_every_agent_of_the_workspace_but_its_sender(b: Broker) -> None:
    for name in ("cursor", "cowork"):
        b.register(name)
    b.register("deaf", broadcasts=False)
    told = tell(b, source_agent="cowork", data={"n": 12345678901234567890})
    assert told.status_code == 201
    assert told.json()["data"] == {"n": 12345678901234567890}
    assert heard(b, agent="cursor")["broadcasts"] == [told.json()]
    assert heard(b, agent="cowork")["broadcasts"] == []
    assert heard(b, agent="deaf")["broadcasts"] == []
    assert b.http.get("/api/agents/deaf").json()["broadcasts"] is False


def test_the_names_of_the_older_clients_are_read(b: Broker) -> None:
    told = b.http.post("/api/broadcasts", json={"channel": "x", "message": "y", "sourceAgent": "cowork"})
    assert told.json()["source_agent"] == "cowork"


def test_a_reader_goes_on_from_its_cursor_over_a_restart(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        tell(b, message="one")
        first = heard(b)
    with broker(tmp_path) as b:
        tell(b, message="two")
        later = heard(b, after=first["next_cursor"])
        assert [said["message"] for said in later["broadcasts"]] == ["two"]
        assert not later["resync"]
        empty = heard(b, after=later["next_cursor"])
        assert (empty["broadcasts"], empty["next_cursor"]) == ([], later["next_cursor"])


def test_a_broadcast_goes_when_its_time_is_over(tmp_path: Path) -> None:
    clock = Later()
    with broker(tmp_path, clock=clock, broadcast_keep=3_600) as b:
        tell(b)
        clock.hours = 0.9
        assert len(heard(b)["broadcasts"]) == 1
        clock.hours = 1.1
        assert heard(b)["broadcasts"] == []


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"channel": ""}, 400, "channel"),
        ({"message": ""}, 400, "message"),
        ({"message": None}, 400, "message"),
        ({"message": "x" * 20_000}, 413, "message"),
        ({"data": [1]}, 400, "data"),
        ({"data": {"x": "y" * 70_000}}, 413, "data"),
        ({"workspace": "a\nb"}, 400, "workspace"),
    ],
)
def test_a_broadcast_that_is_wrong_is_refused_at_its_place(
    b: Broker, body: dict[str, Any], status: int, field: str
) -> None:
    answer = tell(b, **body)
    assert (answer.status_code, [e["field"] for e in answer.json()["errors"]]) == (status, [field])
    assert heard(b)["broadcasts"] == []


def test_c018_an_agents_broadcast_does_not_wake_itself(b: Broker) -> None:
    b.register("cowork")
    tell(b, source_agent="CoWork")
    watch = {"agent": "cowork", "timeout": "0", "include": "broadcasts"}
    assert b.http.get("/api/handoffs/watch", params=watch).status_code == 204
