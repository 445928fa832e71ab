"""What the native surface keeps of handoffs: repeats of a request, pages of a list, the context of each hop."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.puller import Puller, hand_off, in_threads, puller
from tests.support.running import Broker, broker


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path) as running:
        yield running


@pytest.fixture
def cursor(b: Broker) -> Generator[Puller]:
    with puller(b, "cursor", platform="cursor") as agent:
        yield agent


def create(b: Broker, key: str, **body: Any) -> Any:
    said = {"task": "do it", "target_agent": "cursor", "source_agent": "shop"} | body
    return b.http.post("/api/handoffs", json=said, headers={"Idempotency-Key": key})


# --- repeats ---------------------------------------------------------------------------------------


def test_a_request_that_is_repeated_under_its_key_makes_one_handoff(b: Broker, cursor: Puller) -> None:
    first, again = create(b, "k-1"), create(b, "k-1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["handoff_id"] == first.json()["handoff_id"]
    assert len(cursor.pending()) == 1
    other = create(b, "k-1", task="do another thing")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert other.headers["content-type"] == "application/problem+json"
    assert create(b, "k-2").status_code == 201
    assert create(b, "k-1", source_agent="another-shop").status_code == 201


def test_requests_at_once_under_one_key_make_one_handoff(b: Broker, cursor: Puller) -> None:
    answers = in_threads(*[lambda: create(b, "k-1")] * 8)
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["handoff_id"] for answer in answers}) == 1
    assert len(cursor.pending()) == 1


def test_of_results_that_come_at_once_the_first_counts_and_answers_all(b: Broker, cursor: Puller) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    cursor.do("accept", handoff_id)
    answers = in_threads(
        *[lambda n=n: cursor.act("complete", handoff_id, attempt=1, result=f"result {n}") for n in range(8)]
    )
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["result"] for answer in answers} == {b.handoff(handoff_id)["result"]}
    assert b.log(handoff_id).count("handoff_completed") == 1


# --- short answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["return=minimal", "respond-async, Return=Minimal; x=1", 'return="minimal"'])
def test_who_reports_often_is_answered_without_what_it_knows(b: Broker, cursor: Puller, said: str) -> None:
    handoff_id = hand_off(b, target_agent="cursor")["handoff_id"]
    cursor.do("accept", handoff_id)
    artifacts = [{"artifactId": "a", "parts": [{"text": "x" * 100_000}]}]
    whole = cursor.act("progress", handoff_id, artifacts=artifacts)
    short = cursor.act("progress", handoff_id, headers={"Prefer": said}, message="on")
    assert len(whole.content) > 100_000 > 10 * len(short.content)
    assert (short.json()["state"], short.json()["artifacts"]) == ("acknowledged", [])
    assert short.headers["preference-applied"] == "return=minimal"
    assert short.headers["etag"] == b.http.get(f"/api/handoffs/{handoff_id}").headers["etag"]
    assert "preference-applied" not in whole.headers


# --- lists -----------------------------------------------------------------------------------------


def test_a_list_is_read_to_its_end_by_its_cursor_each_handoff_once(b: Broker, cursor: Puller) -> None:
    made = [hand_off(b, target_agent="cursor", source_agent="shop")["handoff_id"] for _ in range(7)]
    hand_off(b, target_agent="cursor", source_agent="another")
    seen: list[str] = []
    asked: dict[str, Any] = {"sender": "shop", "limit": 3}
    while True:
        page = b.http.get("/api/handoffs", params=asked).json()
        assert page["total"] == 7
        seen += [h["handoff_id"] for h in page["handoffs"]]
        if page["next_cursor"] is None:
            break
        asked["cursor"] = page["next_cursor"]
    assert seen == made[::-1]


def test_a_list_is_narrowed_by_every_filter_together(b: Broker, cursor: Puller) -> None:
    wanted = hand_off(
        b, target_agent="cursor", source_agent="shop", correlation_id="case-7", context_id="talk-7"
    )["handoff_id"]
    cursor.do("accept", wanted)
    hand_off(b, target_agent="cursor", source_agent="shop")
    fits = {
        "sender": "shop", "holder": "CURSOR", "agent": "cursor", "state": "acknowledged,completed",
        "correlation_id": "case-7", "context_id": "talk-7",
    }  # fmt: skip
    others = {
        "sender": "x", "holder": "shop", "agent": "x", "state": "offered",
        "correlation_id": "case-8", "context_id": "talk-8",
    }  # fmt: skip
    page = b.http.get("/api/handoffs", params=fits).json()
    assert [h["handoff_id"] for h in page["handoffs"]] == [wanted]
    for name, value in others.items():
        assert b.http.get("/api/handoffs", params=fits | {name: value}).json()["total"] == 0, name


# --- the context of each hop -----------------------------------------------------------------------


def test_each_hop_of_a_chain_has_its_own_context_which_stays_as_it_was(b: Broker, cursor: Puller) -> None:
    with puller(b, "cowork", platform="cowork") as cowork:
        first = hand_off(
            b, target_agent="cursor", source_agent="shop", correlation_id="case-9",
            conversation_summary="It began.", user_intent="mend it", key_facts={"n": 1},
        )["handoff_id"]  # fmt: skip
        cursor.do("accept", first)
        before = b.http.get("/api/chains/case-9/snapshots/1").json()
        second = hand_off(
            b, source_agent="cursor", parent_handoff_id=first, mode="transfer", target_agent="cowork",
            conversation_summary="It went on.", user_intent="test it", key_facts={"m": 2},
        )["handoff_id"]  # fmt: skip
        cowork.do("accept", second)
        hops = [b.http.get(f"/api/chains/case-9/snapshots/{hop}").json() for hop in (1, 2)]
        cowork.do("complete", second, result="done")
        chain = b.http.get("/api/chains/case-9").json()
    assert hops[0] == before
    assert hops[0] != hops[1]
    assert (chain["state"], chain["hops"], chain["owner"]) == ("completed", 2, "")
    assert [h["handoff_id"] for h in chain["handoffs"]] == [first, second]
    assert b.http.get("/api/chains/case-9/snapshots/3").status_code == 404
    assert b.http.get("/api/chains/case-9/snapshots/0").status_code == 400
