"""Who the agents are: what a registration says, finding them, and following how they come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import card
from tests.support.puller import hand_off, puller
from tests.support.running import WAIT_S, Ahead, Broker, broker


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("agents")
    with broker(folder, presence=600) as running:
        running.register("cursor", platform="cursor")
        running.register("cowork", platform="cowork", capabilities={"domains": ["web"]})
        running.register("anna", role="human", workspace="editor2")
        running.register("billing", card=card("http://127.0.0.1:9", skills=("refund",), tags=("money",)))
        yield running


def found(b: Broker, **params: Any) -> list[str]:
    answer = b.http.get("/api/agents", params=params)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["total"] == len(page["agents"])
    return [agent["agent_id"] for agent in page["agents"]]


# --- what is said of an agent ----------------------------------------------------------------------


def test_a_registration_is_shown_as_it_was_said_over_the_defaults_of_its_platform(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        said = {
            "platform": "cowork", "workspace": "editor2", "instance_id": "tab-1", "session_number": 81,
            "capabilities": {"canTestUI": False, "canAnalyze": True, "domains": ["web"]},
            "max_concurrency": 2, "lease_s": 60.0, "metadata": {"build": 1.0},
        }  # fmt: skip
        b.register("helper", **said)
        shown = b.http.get("/api/agents/helper").json()
        assert shown["capabilities"] == {"canAnalyze": True, "canBrowse": True, "domains": ["web"]}
        same = ("platform", "workspace", "instance_id", "session_number", "max_concurrency", "metadata")
        assert {name: shown[name] for name in same} == {name: said[name] for name in same}
        again = b.http.post("/api/agents", json={"agent_id": "helper", "platform": "cursor"})
        assert (again.status_code, again.json()["registered_at"]) == (200, shown["registered_at"])
        assert again.json()["capabilities"] == {"canEditFiles": True, "canExecuteCode": True, "domains": []}
        assert (again.json()["max_concurrency"], again.json()["workspace"]) == (None, "default")


def test_an_agent_shows_what_it_received_completed_and_failed_and_how_fast_it_was(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "cursor") as cursor:
        made = [hand_off(b, target_agent="cursor")["handoff_id"] for _ in range(3)]
        for handoff_id in made[:2]:
            cursor.do("accept", handoff_id)
        busy = b.http.get("/api/agents/cursor").json()
        assert (busy["received"], busy["completed"], busy["failed"], busy["in_flight"]) == (3, 0, 0, 3)
        assert 0 <= busy["response_s"] < WAIT_S
        cursor.do("complete", made[0], result="done")
        cursor.do("fail", made[1], reason="no")
        done = b.http.get("/api/agents/cursor").json()
        assert (done["received"], done["completed"], done["failed"], done["in_flight"]) == (3, 1, 1, 1)
        assert done["success_rate"] == 0.5


def test_an_agent_that_registers_again_in_the_middle_of_its_work_keeps_it(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "cursor", instance="one") as cursor:
        held, waiting = (hand_off(b, target_agent="cursor")["handoff_id"] for _ in range(2))
        cursor.do("accept", held)
        b.register("cursor", instance_id="one", capabilities={"canFly": True})
        assert cursor.watch().json()["handoff_id"] == waiting
        assert cursor.do("progress", held, message="still at it")["state"] == "acknowledged"
        assert cursor.do("complete", held, result="done")["state"] == "completed"
        assert b.log(held).count("handoff_offered") == 1
        assert b.http.get("/api/agents/cursor").json()["received"] == 2


# --- finding them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({}, ["anna", "billing", "cowork", "cursor"]),
        ({"capability": "CANBROWSE"}, ["cowork"]),
        ({"capability": ["canEditFiles", "canExecuteCode"]}, ["cursor"]),
        ({"capability": ["canEditFiles", "canBrowse"]}, []),
        ({"skill": "refund"}, ["billing"]),
        ({"domain": "Web"}, ["cowork"]),
        ({"tag": "money"}, ["billing"]),
        ({"platform": "cursor"}, ["cursor"]),
        ({"role": "human"}, ["anna"]),
        ({"workspace": "editor2"}, ["anna"]),
        ({"workspace": "EDITOR2"}, []),
        ({"status": "online"}, ["anna", "billing", "cowork", "cursor"]),
        ({"status": "busy,draining"}, []),
        ({"domain": "web", "platform": "cowork", "workspace": "default", "status": "online"}, ["cowork"]),
        ({"domain": "web", "platform": "cursor"}, []),
        ({"skill": "", "tag": "nobody-has-it"}, []),
    ],
)
def test_agents_are_found_by_what_they_have(b: Broker, params: dict[str, Any], names: list[str]) -> None:
    assert found(b, **params) == names


def test_a_skill_is_found_as_the_capability_that_it_is_matched_as(b: Broker) -> None:
    explained = b.http.post(
        "/api/resolve", json={"task": "x", "requirements": {"capabilities": ["refund"]}}
    ).json()
    assert [candidate["agent_id"] for candidate in explained["candidates"]] == ["billing"]
    assert found(b, capability="refund") == ["billing"]


_NO_NAMES = (
    ("role", "boss"),
    ("capability", "x" * 201),
    ("skill", " "),
    ("domain", "we\nb"),
    ("tag", "\x00"),
    ("workspace", "w" * 201),
    ("platform", "\u202e"),
)


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("/api/agents", "status", "sleeping"),
        ("/api/agents", "status", "online,sleeping"),
        *(("/api/agents", *fault) for fault in _NO_NAMES),
        *(("/api/events/agents", *fault) for fault in _NO_NAMES),
    ],
)
def test_a_filter_that_nothing_can_meet_is_refused_at_its_place(
    b: Broker, path: str, name: str, value: str
) -> None:
    answer = b.http.get(path, params={name: value})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert [error["field"] for error in answer.json()["errors"]] == [name]


# --- following them --------------------------------------------------------------------------------


@contextmanager
def following(b: Broker, **params: Any) -> Generator[Iterator[tuple[str, dict[str, Any]]]]:
    """The changes, each as its kind and its data, after the list of those who were there."""
    with b.http.stream("GET", "/api/events/agents", params=params, timeout=WAIT_S) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in lines:
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            yield name or "change", json.loads(value)
        elif not line:
            name = ""


def kind(event: tuple[str, dict[str, Any]]) -> tuple[str, str]:
    return event[1]["subject"], event[1]["type"].removeprefix("a2a-handoff.")


def listed(events: Iterator[tuple[str, dict[str, Any]]]) -> list[str]:
    """Read the list that a stream begins with."""
    names: list[str] = []
    for event in events:
        if event[0] == "listed":
            assert event[1] == {"total": len(names)}
            return names
        assert kind(event)[1] == "agent_listed"
        names.append(kind(event)[0])
    raise AssertionError("the list has no end")


def test_a_follower_hears_who_is_there_and_then_every_change(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("old")
        with following(b) as events:
            assert listed(events) == ["old"]
            b.register("new", platform="cursor")
            name, told = next(events)
            assert (name, told["specversion"], told["subject"]) == ("change", "1.0", "new")
            assert told["type"] == "a2a-handoff.agent_registered"
            assert told["data"]["capabilities"]["canEditFiles"] is True
            b.register("new", platform="cowork")
            event = next(events)
            assert (kind(event), event[1]["data"]["platform"]) == (("new", "agent_updated"), "cowork")
            b.http.post("/api/agents/new/heartbeat", json={"status": "busy"})
            event = next(events)
            assert (kind(event), event[1]["data"]["status"]) == (("new", "agent_status_changed"), "busy")
            b.http.delete("/api/agents/old")
            event = next(events)
            assert (kind(event), event[1]["data"]) == (("old", "agent_removed"), None)
    assert told["id"] != event[1]["id"]


def test_a_follower_hears_that_an_agent_fell_silent_and_that_it_is_back(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("cursor")
        with following(b) as events:
            listed(events)
            clock.seconds += 30
            gone = next(events)
            assert kind(gone) == ("cursor", "agent_status_changed")
            assert (gone[1]["data"]["status"], gone[1]["data"]["present"]) == ("offline", False)
            b.http.post("/api/agents/cursor/heartbeat")
            back = next(events)
            assert (back[1]["data"]["status"], back[1]["data"]["present"]) == ("online", True)


def test_what_changes_with_every_handoff_is_no_change_of_an_agent(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "cursor") as cursor, following(b) as events:
        listed(events)
        cursor.do("complete", hand_off(b, target_agent="cursor")["handoff_id"], result="done")
        b.http.post("/api/agents/cursor/heartbeat")
        b.register("cursor")
        b.register("last")
        assert kind(next(events)) == ("last", "agent_registered")


def test_a_follower_hears_only_of_agents_that_have_what_it_asked_for(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("other")
        with following(b, capability="canBrowse") as events:
            assert listed(events) == []
            b.register("cursor", platform="cursor")
            b.register("cowork", platform="cowork")
            assert kind(next(events)) == ("cowork", "agent_registered")
            b.register("cowork", platform="cursor")
            assert kind(next(events)) == ("cowork", "agent_removed")


def test_who_comes_back_hears_who_is_there_now(tmp_path: Path) -> None:
    """There is no position to keep: what happened meanwhile is in the list."""
    with broker(tmp_path) as b:
        b.register("one")
        with following(b) as events:
            assert listed(events) == ["one"]
        b.http.delete("/api/agents/one")
        b.register("two")
        with following(b) as events:
            assert listed(events) == ["two"]


def test_a_follower_is_kept_alive_and_let_go_when_the_broker_stops(tmp_path: Path) -> None:
    with (
        broker(tmp_path, keepalive=0.05) as b,
        b.http.stream("GET", "/api/events/agents", timeout=WAIT_S) as answer,
    ):
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(3)] == ["event: listed", 'data: {"total":0}', ""]
        assert [next(lines) for _ in range(3)] == [": keep-alive", "", ": keep-alive"]
        b.loop.loop.call_soon_threadsafe(b.app.begin_stop)
        assert all(line in ("", ": keep-alive") for line in lines)


def test_a_follower_that_goes_is_noticed(b: Broker) -> None:
    with following(b) as events:
        listed(events)
        assert "agents" in b.waiters

    async def gone() -> None:
        async with asyncio.timeout(WAIT_S):
            while "agents" in b.waiters:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)

    b.loop.run(gone())
