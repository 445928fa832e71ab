"""The log of all handoffs reads the same at every broker on one PostgreSQL, whoever wrote it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import Agent, card, completes
from tests.support.replicas import processes, replicas
from tests.support.running import WAIT_S, Broker, running
from tests.support.served import Served
from tests.support.sockets import socket_of
from tests.support.tails import Event, tail
from tests.support.wire import eventually

#: What the log has of a task that goes well, and its number of events.
STEPS = ["handoff_requested", "handoff_offered", "handoff_acknowledged", "handoff_completed"]


def kind(event: Event) -> str:
    return event.data["type"].removeprefix("a2a-handoff.")


def work_at(brokers: Sequence[Broker | Served], worker: str, *, tasks: int) -> list[str]:
    """Have tasks done, each at the next broker; their ids."""
    return [
        b.send("go", context={"target_agent": worker})["id"]
        for b, _ in zip(itertools.cycle(brokers), range(tasks), strict=False)
    ]


def check(events: list[Event], ids: Sequence[str]) -> None:
    """Every event of these tasks is there once, in the order of the log, and each task's in its own order."""
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    told: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        told[event.data["subject"]].append(event)
    assert told.keys() == set(ids)
    for handoff_id, of_it in told.items():
        assert [event.data["id"] for event in of_it] == [
            f"{handoff_id}/{n}" for n in range(1, len(STEPS) + 1)
        ]
        assert [kind(event) for event in of_it] == STEPS


@pytest.fixture
def agent() -> Agent:
    return Agent(completes)


def test_a_reader_hears_at_once_of_a_task_that_another_broker_handles(tmp_path: Path, agent: Agent) -> None:
    with running(agent) as url, replicas(tmp_path) as (a, b):
        a.register("worker", card=card(url))
        work_at([a], "worker", tasks=1)
        with tail(b.http) as events:
            (made,) = work_at([a], "worker", tasks=1)
            heard = [next(events) for _ in STEPS]
        assert [(event.data["subject"], kind(event)) for event in heard] == [(made, step) for step in STEPS]
        page = a.http.get(f"/api/handoffs/{made}/events").json()["events"]
        assert [event.data for event in heard] == page


def test_a_reader_that_moves_from_broker_to_broker_misses_nothing_and_hears_nothing_twice(
    tmp_path: Path, agent: Agent
) -> None:
    """It moves after every few events, in the middle of tasks, while all three write."""
    tasks = 30
    with (
        running(agent) as url,
        replicas(tmp_path, 3) as brokers,
        ThreadPoolExecutor(3) as pool,
    ):
        brokers[0].register("worker", card=card(url))
        for one in brokers:
            eventually(lambda one=one: one.http.get("/api/agents/worker").is_success)
        made = [pool.submit(work_at, [one], "worker", tasks=tasks // 3) for one in brokers]
        events: list[Event] = []
        for one in itertools.cycle(brokers):
            with (
                httpx.Client(base_url=one.url, trust_env=False) as http,
                tail(http, events[-1].position if events else 0) as some,
            ):
                events += itertools.islice(some, min(7, tasks * len(STEPS) - len(events)))
            if len(events) == tasks * len(STEPS):
                break
        check(events, [task for one in made for task in one.result(WAIT_S)])
        # The log itself says the same.
        log = brokers[1].loop.run(brokers[1].app.store.read_log())
        assert [(event.position, event.data["subject"]) for event in events] == [
            (recorded.position, recorded.handoff_id) for recorded in log
        ]


def test_a_reader_whose_broker_is_killed_goes_on_at_another(tmp_path: Path, agent: Agent) -> None:
    with running(agent) as url, processes(tmp_path, 3) as (a, b, c):
        a.http.post("/api/agents", json={"agent_id": "worker", "card": card(url)})
        ids = work_at([a, c], "worker", tasks=4)
        events: list[Event] = []

        def read() -> None:
            with httpx.Client(base_url=b.url, trust_env=False) as http, tail(http, 0) as some:
                for event in some:
                    events.append(event)
                    if len(events) == 6:  # in the middle of the second task
                        b.kill()

        with pytest.raises(httpx.TransportError):
            read()
        ids += work_at([c, a], "worker", tasks=4)
        with tail(c.http, events[-1].position) as some:
            events += itertools.islice(some, len(ids) * len(STEPS) - len(events))
        check(events, ids)


def test_a_socket_that_moves_to_another_broker_goes_on_with_its_events(tmp_path: Path) -> None:
    def named(socket: Any, count: int) -> list[tuple[str, str]]:
        events = [socket.next("event") for _ in range(count)]
        return [(event["event"].removeprefix("handoff:"), event["data"]["handoffId"]) for event in events]

    with replicas(tmp_path, 3) as (a, b, c):
        a.register("cursor", platform="cursor")
        body = {"source_agent": "shop", "target_agent": "cursor", "task": "work"}

        def done(at: Broker) -> str:
            made = at.http.post("/api/handoffs", json=body).json()["handoff_id"]
            for step in ("accept", "complete"):
                assert a.http.post(f"/api/handoffs/{made}/{step}", json={"agent_id": "cursor"}).is_success
            return made

        steps = ("created", "offered", "accepted", "completed")
        with socket_of(b, "watcher", platform="external", events=True) as socket:
            first = done(a)
            assert named(socket, 2) == [(step, first) for step in steps[:2]]
            cursor = socket.cursor
        second = done(a)
        with socket_of(c, "watcher", platform="external", events=True, cursor=cursor) as socket:
            third = done(b)
            expected = [*((step, first) for step in steps[2:]), *itertools.product(steps, [second])]
            assert named(socket, 10) == [*expected, *((step, third) for step in steps)]
