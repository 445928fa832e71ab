"""Waiting for work by long poll, over real connections."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.puller import CURSOR, RESYNC, Puller, hand_off, in_threads, puller
from tests.support.running import WAIT_S, Ahead, Broker, broker


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path) as running:
        yield running


@pytest.fixture
def cursor(b: Broker) -> Generator[Puller]:
    with puller(b, "cursor", platform="cursor") as agent:
        yield agent


def test_a_watch_comes_back_with_the_handoff_as_soon_as_it_is_offered(b: Broker, cursor: Puller) -> None:
    watch = cursor.watching()
    made = hand_off(b, target_agent="cursor", source_agent="cowork", context={"files": ["a.py"]})
    offer = watch.result(WAIT_S)
    assert offer.status_code == 200
    body = offer.json()
    assert body["handoff_id"] == made["handoff_id"]
    assert (body["state"], body["status"], body["attempt"]) == ("offered", "pending", 1)
    assert body["offer_id"] == body["attempts"][0]["offer_id"]
    assert body["cursor"] == offer.headers[CURSOR]
    assert RESYNC not in offer.headers


def test_an_offer_has_the_context_that_an_agent_with_an_address_would_get(b: Broker, cursor: Puller) -> None:
    made = hand_off(b, target_agent="cursor", source_agent="cowork", key_facts={"n": 12345678901234567890})
    context = cursor.watch().json()["context"]
    twelve = {
        "correlation_id", "source_agent", "target_agent", "handoff_reason", "conversation_summary",
        "user_intent", "key_facts", "task_progress", "user_preferences", "context_ref", "hop_count",
        "handoff_chain",
    }  # fmt: skip
    assert twelve <= context.keys()
    assert (context["hop_count"], context["handoff_chain"]) == (1, ["cowork", "cursor"])
    assert context["key_facts"] == {"n": 12345678901234567890}
    assert context["handoff_id"] == made["handoff_id"]
    assert context["traceparent"].split("-")[1] == made["trace_id"]
    assert cursor.pending()[0]["context"] == context
    assert cursor.do("accept", made["handoff_id"])["context"] == context


def test_a_watch_that_finds_nothing_is_answered_204_with_a_cursor(cursor: Puller) -> None:
    answer = cursor.watch(0.05)
    assert (answer.status_code, answer.content) == (204, b"")
    assert cursor.watch(0.05, after=answer.headers[CURSOR]).headers[CURSOR] == answer.headers[CURSOR]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"agent": ""}, "agent"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": "-1"}, "timeout"),
        ({"timeout": "301"}, "timeout"),
        ({"timeout": "nan"}, "timeout"),
        ({"include": "everything"}, "include"),
        ({"after": "999999"}, "after"),
    ],
)
def test_what_is_wrong_with_a_watch_is_told_at_its_place(
    cursor: Puller, params: dict[str, str], field: str
) -> None:
    answer = cursor.watch(**params) if "timeout" not in params else cursor.watch(params["timeout"])  # type: ignore[arg-type]
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_an_agent_that_nobody_registered_is_told_to_register(cursor: Puller) -> None:
    answer = cursor.watch(30, agent="nobody")
    assert (answer.status_code, answer.json()["code"]) == (404, "agent_not_found")
    assert "POST /api/agents" in answer.json()["detail"]


def test_the_same_agent_is_meant_however_its_name_is_written(b: Broker, cursor: Puller) -> None:
    made = hand_off(b, target_agent="CURSOR")
    assert cursor.watch(agent="Cursor").json()["handoff_id"] == made["handoff_id"]


def test_an_offer_outlives_the_connection_that_it_was_shown_on(b: Broker, cursor: Puller) -> None:
    """The client goes in every phase: while it waits, and before it has read its answer."""
    host, port = b.url.removeprefix("http://").split(":")
    request = b"GET /api/handoffs/watch?agent=cursor&timeout=30 HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection((host, int(port))) as waiting:
        waiting.sendall(request)
        cursor.until_waits(1)
    cursor.until_waits(0)
    assert b.http.get("/api/agents/cursor").json()["present"]
    made = hand_off(b, target_agent="cursor")
    with socket.create_connection((host, int(port))) as careless:
        careless.sendall(request)
    assert cursor.watch().json()["handoff_id"] == made["handoff_id"]
    assert b.log(made["handoff_id"]) == ["handoff_requested", "handoff_offered"]


def test_an_agent_is_there_while_it_waits_and_for_a_while_after(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b, puller(b, "cursor") as cursor:
        watch = cursor.watching(timeout=300)
        clock.seconds += 100
        assert b.http.get("/api/agents/cursor").json()["present"]
        made = hand_off(b, target_agent="cursor")
        assert watch.result(WAIT_S).json()["handoff_id"] == made["handoff_id"]
        assert b.http.get("/api/agents/cursor").json()["present"]
        clock.seconds += 21
        assert not b.http.get("/api/agents/cursor").json()["present"]


def test_who_waits_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "cursor") as cursor:
        watch = cursor.watching()
        b.loop.loop.call_soon_threadsafe(b.app.begin_stop)
        answer = watch.result(WAIT_S)
    assert answer.status_code == 204
    assert answer.headers[CURSOR]


def test_an_offer_waits_out_a_restart_of_the_broker(tmp_path: Path) -> None:
    with broker(tmp_path) as b, puller(b, "cursor") as cursor:
        made = hand_off(b, target_agent="cursor")
        shown = cursor.watch()
    with broker(tmp_path) as b, puller(b, "cursor") as cursor:
        again = cursor.watch(after=shown.headers[CURSOR])
        assert (again.status_code, again.headers.get(RESYNC)) == (204, None)
        assert cursor.watch().json()["handoff_id"] == made["handoff_id"]
        assert cursor.do("accept", made["handoff_id"])["state"] == "acknowledged"


def test_a_broadcast_wakes_a_watch_that_asks_for_it(b: Broker, cursor: Puller) -> None:
    watch = cursor.watching(include="broadcasts")
    said = {"channel": "urgent", "message": "stop", "data": {"n": 1.10}, "source_agent": "cowork"}
    assert b.http.post("/api/broadcasts", json=said).status_code == 201
    answer = watch.result(WAIT_S)
    assert answer.status_code == 200
    body = answer.json()
    assert "handoff_id" not in body
    (heard,) = body["broadcasts"]
    assert {name: heard[name] for name in said} == said
    assert cursor.watch(include="broadcasts", after=body["cursor"]).status_code == 204


# --- c092, c093: cursors -------------------------------------------------------------------------


def test_c092_a_cursor_of_another_agent_is_answered_at_once_with_what_there_is(
    b: Broker, cursor: Puller
) -> None:
    b.register("cowork")
    foreign = cursor.watch(agent="cowork").headers[CURSOR]
    empty = cursor.watch(30, after=foreign)
    assert (empty.status_code, empty.headers[RESYNC]) == (204, "true")
    made = hand_off(b, target_agent="cursor")
    full = cursor.watch(30, after=foreign)
    assert (full.status_code, full.headers[RESYNC]) == (200, "true")
    assert (full.json()["handoff_id"], full.json()["resync"]) == (made["handoff_id"], True)
    for answer in (empty, full):
        assert RESYNC not in cursor.watch(after=answer.headers[CURSOR]).headers


def test_c092_a_cursor_from_before_the_store_was_made_anew_is_answered_at_once(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with broker(tmp_path / "one") as b, puller(b, "cursor") as cursor:
        old = cursor.watch().headers[CURSOR]
    with broker(tmp_path / "two") as b, puller(b, "cursor") as cursor:
        answer = cursor.watch(30, after=old)
    assert (answer.status_code, answer.headers[RESYNC]) == (204, "true")


@pytest.mark.parametrize("after", ["999999", "-1", "abc", "null", "AAAA"])
def test_c092_what_is_no_cursor_is_refused(cursor: Puller, after: str) -> None:
    answer = cursor.watch(30, after=after)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_params")
    assert cursor.http.get("/api/broadcasts", params={"after": after}).status_code == 400


def test_c093_a_repeat_of_a_watch_is_answered_as_before(b: Broker, cursor: Puller) -> None:
    start = cursor.watch().headers[CURSOR]
    first, second = (hand_off(b, target_agent="cursor")["handoff_id"] for _ in range(2))
    one = cursor.watch(after=start)
    assert cursor.watch(after=start).content == one.content
    two = cursor.watch(after=one.headers[CURSOR])
    assert cursor.watch(after=one.headers[CURSOR]).content == two.content
    assert [answer.json()["handoff_id"] for answer in (one, two)] == [first, second]
    assert cursor.watch(after=two.headers[CURSOR]).headers[CURSOR] == two.headers[CURSOR]


def test_c093_two_that_poll_for_one_agent_share_its_work_without_loss_or_double(tmp_path: Path) -> None:
    """Twenty handoffs, two processes of the agent: each is accepted once, by one of them."""
    taken: list[tuple[str, str]] = []
    refused: list[int] = []
    done = threading.Event()

    def work(agent: Puller) -> None:
        while not done.is_set():
            answer = agent.watch(0.5)
            if answer.status_code == 204:
                continue
            handoff_id = answer.json()["handoff_id"]
            accepted = agent.act("accept", handoff_id, attempt=answer.json()["attempt"])
            if accepted.status_code != 200:
                refused.append(accepted.status_code)
                continue
            taken.append((handoff_id, agent.instance))
            agent.do("complete", handoff_id, result=agent.instance)
            if len(taken) == 20:
                done.set()

    with (
        broker(tmp_path) as b,
        puller(b, "cursor", instance="one") as one,
        puller(b, "cursor", instance="two") as two,
    ):
        workers = [threading.Thread(target=work, args=(agent,)) for agent in (one, two)]
        for worker in workers:
            worker.start()
        made = [hand_off(b, target_agent="cursor", task=f"task {n}")["handoff_id"] for n in range(20)]
        for worker in workers:
            worker.join(3 * WAIT_S)
        assert done.is_set()
        assert sorted(handoff_id for handoff_id, _ in taken) == sorted(made)
        by = dict(taken)
        for handoff_id in made:
            assert b.log(handoff_id).count("handoff_acknowledged") == 1
            assert b.handoff(handoff_id)["result"] == by[handoff_id]
    assert set(refused) <= {409}


def test_c093_of_two_processes_of_an_agent_that_accept_at_once_one_is_refused(b: Broker) -> None:
    with puller(b, "cursor", instance="one") as one, puller(b, "cursor", instance="two") as two:
        handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
        answers = in_threads(lambda: one.act("accept", handoff_id), lambda: two.act("accept", handoff_id))
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        winner = next(answer for answer in answers if answer.status_code == 200).json()
        loser = next(answer for answer in answers if answer.status_code == 409).json()
        assert loser["code"] == "stale_attempt"
        instance = winner["attempts"][0]["instance_id"]
        assert f"Instance {instance} of cursor" in loser["detail"]
        again = {"one": one, "two": two}[instance].act("accept", handoff_id)
        assert again.status_code == 200


# --- c073: what waits holds no connection of the store ---------------------------------------------


def test_c073_a_hundred_that_wait_leave_the_store_to_the_others(b: Broker) -> None:
    host, port = b.url.removeprefix("http://").split(":")
    names = [f"agent-{n}" for n in range(50)]
    for name in names:
        b.register(name)
    connections: list[socket.socket] = []
    try:
        for name in names:
            for path in (f"/api/handoffs/watch?agent={name}&timeout=60", "/api/events"):
                connection = socket.create_connection((host, int(port)))
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                connections.append(connection)
        with puller(b, "cursor") as cursor:
            started = time.monotonic()
            made = hand_off(b, target_agent="cursor")
            assert cursor.watch().json()["handoff_id"] == made["handoff_id"]
            assert b.handoff(made["handoff_id"])["state"] == "offered"
            assert time.monotonic() - started < WAIT_S
    finally:
        for connection in connections:
            connection.close()


# --- c083: text ------------------------------------------------------------------------------------


def test_c083_text_comes_through_a_long_poll_as_it_went_in(b: Broker, cursor: Puller) -> None:
    text = "订单 🧪‍🦰 مرحبا"
    hand_off(b, target_agent="cursor", task=text, context={"said": text})
    answer = cursor.watch()
    assert text.encode() in answer.content
    body: dict[str, Any] = json.loads(answer.content)
    assert (body["task"], body["context"]["key_facts"]["said"]) == (text, text)
