"""Two broker processes on one PostgreSQL and one NATS: they wake each other, and tell the log once, whoever dies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.notify.nats import LOOK_S
from tests.notify.follower import events
from tests.support.nats import Nats, nats_server
from tests.support.postgres import postgres_server
from tests.support.served import Served, served
from tests.support.wire import eventually, metric

WAIT_S = 60.0
_NOBODY = {"capabilities": ["canFly"]}


@pytest.fixture
def server(tmp_path: Path) -> Generator[Nats]:
    (tmp_path / "nats").mkdir()
    with nats_server(tmp_path / "nats") as running:
        yield running


@contextmanager
def _brokers(tmp_path: Path, server: Nats, count: int = 2) -> Generator[list[Served]]:
    database = postgres_server()
    name = database.migrated()
    with ExitStack() as running:
        made: list[Served] = []
        for number in range(count):
            folder = tmp_path / f"broker-{number}"
            folder.mkdir()
            settings: dict[str, Any] = {
                "store": database.url(name),
                "nats": server.url,
                "nats_stream": "events",
            }
            made.append(running.enter_context(served(folder, forked=True, **settings)))
        yield made
    database.drop(name)


def _hand_off(b: Served) -> str:
    """One that nobody can do."""
    body = {"task": "fly", "source_agent": "shop", "requirements": _NOBODY}
    answer = b.http.post("/api/handoffs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["handoff_id"]


def _told(server: Nats, b: Served, made: list[str]) -> None:
    """Each event of these handoffs is in the stream, once, and those of a handoff are in order."""
    wanted = {handoff_id: [event["id"] for event in b.events(handoff_id)] for handoff_id in made}
    count = sum(map(len, wanted.values()))
    heard = events(server.url, least=count, within_s=WAIT_S)
    assert len(heard) == count
    for handoff_id, ids in wanted.items():
        assert [each.id for each in heard if each.event["subject"] == handoff_id] == ids


def _heard_after(reader: Served, writer: Served) -> float:
    """Seconds from an answer of one broker until a follower of another one sees its event."""
    there = threading.Event()
    found: list[float] = []

    def follow() -> None:
        with reader.http.stream("GET", "/api/events", timeout=WAIT_S) as answer:
            there.set()
            for line in answer.iter_lines():
                if line.startswith("data:") and json.loads(line.removeprefix("data:"))["subject"]:
                    found.append(time.monotonic())
                    return

    following = threading.Thread(target=follow)
    following.start()
    assert there.wait(WAIT_S)
    _hand_off(writer)
    began = time.monotonic()
    following.join(WAIT_S)
    return found[0] - began


def _connected(b: Served, there: float) -> None:
    eventually(
        lambda: metric(b.http.get("/metrics").text, "handoff_nats_connected") == there, within_s=WAIT_S
    )


def test_a_follower_at_one_broker_hears_at_once_what_happens_at_the_other(
    tmp_path: Path, server: Nats
) -> None:
    with _brokers(tmp_path, server) as (one, other):
        for b in (one, other):
            _connected(b, 1)
        assert min(_heard_after(other, one) for _ in range(3)) < LOOK_S / 5
        server.kill()
        for b in (one, other):
            _connected(b, 0)
        assert _heard_after(one, other) < LOOK_S  # without a hint: it looks by itself
        server.start()
        for b in (one, other):
            _connected(b, 1)
        assert min(_heard_after(one, other) for _ in range(3)) < LOOK_S / 5


def test_when_the_broker_that_tells_is_killed_another_one_goes_on(tmp_path: Path, server: Nats) -> None:
    with _brokers(tmp_path, server) as brokers:
        made = [_hand_off(b) for b in brokers for _ in range(3)]
        for victim, survivor in (brokers, brokers[::-1]):
            victim.kill()
            made += [_hand_off(survivor) for _ in range(3)]
            _told(server, survivor, made)
            victim.start()
            made += [_hand_off(b) for b in brokers for _ in range(3)]
        _told(server, brokers[0], made)
