"""The log of one handoff in pages, and waiting for its next event."""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.puller import Puller, hand_off, puller
from tests.support.running import WAIT_S, Broker, broker
from tests.support.wire import eventually


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path) as running:
        yield running


@pytest.fixture
def cursor(b: Broker) -> Generator[Puller]:
    with puller(b, "cursor") as agent:
        yield agent


def page(agent: Puller, handoff_id: str, **asked: Any) -> dict[str, Any]:
    answer = agent.http.get(f"/api/handoffs/{handoff_id}/events", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def kinds(answer: dict[str, Any]) -> list[str]:
    return [event["type"].removeprefix("a2a-handoff.") for event in answer["events"]]


def waiting(agent: Puller, handoff_id: str, after: int) -> Future[dict[str, Any]]:
    """Wait for the next event in the background; comes back when the broker waits."""
    waiters = agent.broker.waiters
    before = len(waiters.get(handoff_id, ()))
    asked = agent.threads.submit(page, agent, handoff_id, after=after, timeout=WAIT_S)
    eventually(lambda: len(waiters.get(handoff_id, ())) > before)
    return asked


def test_the_log_is_read_page_by_page(b: Broker, cursor: Puller) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    cursor.do("complete", handoff_id, result="done")
    seen, after = list[str](), 0
    while True:
        found = page(cursor, handoff_id, after=after, limit=1)
        seen += kinds(found)
        if found["next_cursor"] is None:
            break
        after = found["next_cursor"]
    assert seen == b.log(handoff_id)


def test_a_page_of_large_events_is_short_and_the_cursor_leads_on(b: Broker, cursor: Puller) -> None:
    """Many may read at a time, so a page is bounded in bytes as well."""
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    for _ in range(5):
        cursor.do("progress", handoff_id, message="x" * 600_000)
    found: list[list[str]] = []
    after: int | None = 0
    while after is not None:
        answer = page(cursor, handoff_id, after=after)
        found.append(kinds(answer))
        after = answer["next_cursor"]
    assert [each.count("output_recorded") for each in found] == [2, 2, 1]


def test_the_holder_that_asked_is_woken_by_the_reply(b: Broker, cursor: Puller) -> None:
    task = b.send("which one?", wait=False, context={"target_agent": "cursor"})
    handoff_id = task["id"]
    cursor.do("accept", handoff_id)
    cursor.do("progress", handoff_id, state="input_required", message="which one?")
    waits = waiting(cursor, handoff_id, len(b.log(handoff_id)))
    b.send("this one", wait=False, message={"taskId": handoff_id, "contextId": task["contextId"]})
    answer = waits.result(WAIT_S)
    assert kinds(answer) == ["reply_received"]
    assert answer["events"][0]["data"]["message"]["parts"] == [{"text": "this one"}]


def test_who_waits_for_an_event_that_does_not_come_gets_an_empty_page(b: Broker, cursor: Puller) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    assert page(cursor, handoff_id, after=2, timeout=0.05) == {"events": [], "next_cursor": None}


def test_nobody_waits_for_what_has_ended(b: Broker, cursor: Puller) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    cursor.do("complete", handoff_id, result="done")
    began = time.monotonic()
    assert page(cursor, handoff_id, after=len(b.log(handoff_id)), timeout=300)["events"] == []
    assert time.monotonic() - began < WAIT_S


def test_who_waits_for_an_event_is_let_go_when_the_broker_stops(b: Broker, cursor: Puller) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    waits = waiting(cursor, handoff_id, 2)
    b.loop.loop.call_soon_threadsafe(b.app.begin_stop)
    assert waits.result(WAIT_S)["events"] == []


def test_who_waits_for_an_event_and_goes_leaves_nothing_behind(b: Broker, cursor: Puller) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    with pytest.raises(httpx.ReadTimeout):
        b.http.get(f"/api/handoffs/{handoff_id}/events", params={"after": 2, "timeout": 60}, timeout=0.2)
    eventually(lambda: handoff_id not in b.waiters)


@pytest.mark.parametrize("wrong", ["-1", "301", "nan", "soon"])
def test_a_time_to_wait_that_is_none_is_refused(b: Broker, cursor: Puller, wrong: str) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    answer = cursor.http.get(f"/api/handoffs/{handoff_id}/events", params={"timeout": wrong})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "timeout")
