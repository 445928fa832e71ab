"""The log of all handoffs as server-sent events, followed as it grows."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_handoff.ports import Principal
from tests.support.puller import hand_off, puller
from tests.support.running import WAIT_S, Broker, broker, send_params
from tests.support.tails import Event, events_of, tail


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path, keepalive=0.05) as running:
        yield running


def kinds(events: Iterator[Event], count: int) -> list[str]:
    return [next(events).data["type"].removeprefix("a2a-handoff.") for _ in range(count)]


def test_events_come_as_cloud_events_while_they_happen(b: Broker) -> None:
    with puller(b, "cursor") as cursor, tail(b.http) as events:
        made = hand_off(b, target_agent="cursor")["handoff_id"]
        cursor.do("accept", made)
        cursor.do("complete", made, result="done")
        heard = [next(events) for _ in range(4)]
    page = b.http.get(f"/api/handoffs/{made}/events").json()["events"]
    assert [event.data for event in heard] == page
    assert [event.position for event in heard] == [event["position"] for event in page] == [1, 2, 3, 4]
    assert {event.name for event in heard} == {""}
    first = heard[0].data
    assert (first["specversion"], first["subject"], first["id"]) == ("1.0", made, f"{made}/1")


def test_an_event_leads_to_the_trace_of_its_chain(tmp_path: Path) -> None:
    with broker(tmp_path, jaeger_url="http://jaeger.example:16686") as b:
        b.register(agent_id="cursor", platform="cursor", instance_id="w-1")
        made = hand_off(b, target_agent="cursor", source_agent="shop")
        (first, *_) = b.http.get(f"/api/handoffs/{made['handoff_id']}/events").json()["events"]
    assert first["correlationid"] == made["correlation_id"]
    assert first["traceid"] == made["trace_id"]
    assert first["traceurl"] == made["trace_url"] == f"http://jaeger.example:16686/trace/{made['trace_id']}"


def test_a_tail_begins_now_unless_it_names_an_event(b: Broker) -> None:
    b.register("cursor")
    old = hand_off(b, target_agent="cursor")["handoff_id"]
    with tail(b.http) as events:
        new = hand_off(b, target_agent="cursor")["handoff_id"]
        assert next(events).data["subject"] == new
    with tail(b.http, 0) as events:
        assert [next(events).data["subject"] for _ in range(4)] == [old, old, new, new]
    with tail(b.http, 1) as events:
        assert next(events).position == 2
    with b.http.stream("GET", "/api/events", params={"after": 3}) as answer:
        assert next(events_of(answer.iter_lines())).position == 4


def test_who_comes_back_reads_on_without_a_gap_or_a_repeat(b: Broker) -> None:
    b.register("cursor")
    positions: list[int] = []
    for _ in range(5):
        with tail(b.http, positions[-1] if positions else 0) as events:
            hand_off(b, target_agent="cursor")
            positions.append(next(events).position)
    assert positions == [1, 2, 3, 4, 5]


def test_a_place_beyond_the_end_is_told_and_the_tail_goes_on_from_the_end(b: Broker) -> None:
    b.register("cursor")
    hand_off(b, target_agent="cursor")
    with tail(b.http, 10**6) as events:
        resync = next(events)
        assert (resync.name, resync.position, resync.data) == ("resync", 2, {"position": 2})
        hand_off(b, target_agent="cursor")
        assert next(events).position == 3


def test_a_message_of_many_lines_stays_one_event(b: Broker) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": send_params("one\u2028two", wait=False),
    }
    content = json.dumps(body, indent=2, ensure_ascii=False).encode()
    b.http.post("/", content=content, headers={"A2A-Version": "1.0", "Content-Type": "application/json"})
    with tail(b.http, 0) as events:
        first = next(events)
    assert first.data["data"]["message"]["parts"] == [{"text": "one\u2028two"}]


def test_a_silent_tail_is_kept_alive(b: Broker) -> None:
    with b.http.stream("GET", "/api/events") as answer:
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(5)] == [": keep-alive", "", ": keep-alive", "", ": keep-alive"]


def test_a_slow_reader_loses_nothing_and_holds_nothing_up(b: Broker) -> None:
    """It reads nothing until more is out than all buffers on the way hold, then all of it is there."""
    b.register("cursor")
    host, port = b.url.removeprefix("http://").split(":")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        slow.connect((host, int(port)))
        slow.sendall(b"GET /api/events?after=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        made = [hand_off(b, **_large(n))["handoff_id"] for n in range(40)]
        assert b.handoff(made[-1])["state"] == "offered"
        slow.settimeout(WAIT_S)
        with slow.makefile("rb") as reading:
            ids = (int(line[3:]) for line in reading if line.startswith(b"id:"))
            assert [next(ids) for _ in range(80)] == list(range(1, 81))


def _large(number: int) -> dict[str, Any]:
    return {
        "target_agent": "cursor",
        "user_intent": "read it",
        "conversation_summary": "a large text came",
        "message": {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": "x" * 300_000}]},
    }


def test_a_tail_ends_when_the_broker_stops(tmp_path: Path) -> None:
    with broker(tmp_path) as b, tail(b.http) as events:
        b.loop.loop.call_soon_threadsafe(b.app.begin_stop)
        assert list(events) == []


def test_a_reader_that_goes_is_noticed(b: Broker) -> None:
    with tail(b.http):
        b.loop.run(_until_listen(b, 1))
    b.loop.run(_until_listen(b, 0))


async def _until_listen(b: Broker, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(b.waiters.get("log", ())) != count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


def test_a_tail_shows_what_its_reader_takes_part_in(b: Broker) -> None:
    b.register("cursor")
    b.register("cowork")
    mine = hand_off(b, target_agent="cursor", source_agent="shop")["handoff_id"]
    hand_off(b, target_agent="cowork", source_agent="shop")

    async def read(name: str, *scopes: str, tenant: str = "default") -> list[str]:
        who = Principal(name=name, tenant=tenant, scopes=frozenset(scopes), authenticated=True)
        seen: list[str] = []
        async for item in b.app.broker.tail(who, 0, quiet_s=0.05):
            if item is None:
                break
            seen.append(item[0].handoff_id)
        return seen

    assert b.loop.run(read("cursor")) == [mine, mine]
    assert len(b.loop.run(read("shop"))) == 4
    assert len(b.loop.run(read("boss", "handoff:admin"))) == 4
    assert b.loop.run(read("stranger")) == []
    assert b.loop.run(read("boss", "handoff:admin", tenant="other")) == []


def test_two_readers_see_the_same_at_their_own_pace(b: Broker) -> None:
    b.register("cursor")
    with (
        httpx.Client(base_url=b.url, trust_env=False, timeout=WAIT_S) as other,
        other.stream("GET", "/api/events", params={"after": 0}) as answer,
        tail(b.http) as quick,
    ):
        slow = events_of(answer.iter_lines())
        hand_off(b, target_agent="cursor")
        assert kinds(quick, 2) == ["handoff_requested", "handoff_offered"]
        hand_off(b, target_agent="cursor")
        assert [next(slow).position for _ in range(4)] == [1, 2, 3, 4]
        assert [next(quick).position for _ in range(2)] == [3, 4]
