"""The context-loss score: its weights, the share of each part, and its laws."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from a2a_handoff.core.context import HOP_SEPARATOR, HandoffContext
from a2a_handoff.core.score import WEIGHTS, context_score, passed_on

SENT = HandoffContext(
    correlation_id="c",
    source_agent="a",
    conversation_summary="She asked for it. It was refused.\n---hop---\nThen it was paid.",
    user_intent="Send the March invoice",
    key_facts=b'{"invoice": "F-1", "lines": [1, 2], "customer": {"id": 7, "vip": true}}',
    task_progress=b'{"step": 3, "total": 7, "completed": ["a", "b"]}',
    user_preferences=b'{"language": "fr"}',
)
ECHO: dict[str, Any] = {
    "user_intent": SENT.user_intent,
    "key_facts": json.loads(SENT.key_facts),
    "task_progress": json.loads(SENT.task_progress),
    "user_preferences": json.loads(SENT.user_preferences),
    "conversation_summary": SENT.conversation_summary,
}
ONLY_FACTS = replace(
    SENT, user_intent="", conversation_summary="", task_progress=b"{}", user_preferences=b"{}"
)


def score(received: object, sent: HandoffContext = SENT) -> float | None:
    return context_score(sent, json.dumps(received).encode())


def facts_share(sent: object, received: object) -> float | None:
    return score({"key_facts": received}, replace(ONLY_FACTS, key_facts=json.dumps(sent).encode()))


def test_the_weights_add_up_to_one() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1)
    assert WEIGHTS["key_facts"] == 0.35


def test_a_full_echo_lost_nothing() -> None:
    assert score(ECHO) == 1


@pytest.mark.parametrize(("part", "weight"), WEIGHTS.items())
def test_a_part_that_is_missing_costs_its_weight(part: str, weight: float) -> None:
    assert score({name: value for name, value in ECHO.items() if name != part}) == pytest.approx(1 - weight)


def test_parts_that_were_not_sent_do_not_count() -> None:
    sent = replace(SENT, task_progress=b"{}", user_preferences=b"{}")
    assert score({**ECHO, "key_facts": {}}, sent) == pytest.approx((0.25 + 0.15) / 0.75)


@pytest.mark.parametrize("evidence", [{}, {"note": "ok"}, [], None, "ready", {"user_intent": None}])
def test_without_evidence_there_is_no_score(evidence: object) -> None:
    assert score(evidence) is None


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"user_intent": ', b"[" * 100_000])
def test_what_is_not_json_is_no_evidence(raw: bytes) -> None:
    assert context_score(SENT, raw) is None


@pytest.mark.parametrize(
    ("sent", "received", "share"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, 0.5),
        ({"a": 1}, {"a": 1.0, "more": "facts"}, 1),
        ({"a": 1}, {"a": "1"}, 0),
        ({"a": 1}, {"a": True}, 0),
        ({"a": True, "b": 0}, {"a": True, "b": False}, 0.5),
        ({"a": None}, {"a": None}, 1),
        ({"a": None}, {}, 0),
        ({"a": []}, {"a": []}, 1),
        ({"a": []}, {"a": {}}, 0),
        ({"a": [1, 2, 2]}, {"a": [2, 1]}, 2 / 3),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "x"}}}, 1),
        ({"a": {"b": "x"}}, {"b": "x"}, 0),
        ({"n": 12345678901234567890}, {"n": 12345678901234567891}, 0),
        ({"a": 1}, [1], 0),
        ({"a": 1}, "a", 0),
    ],
)
def test_facts_survive_by_path_and_value(sent: object, received: object, share: float) -> None:
    assert facts_share(sent, received) == pytest.approx(share)


def test_numbers_beyond_every_float_are_no_obstacle() -> None:
    sent = replace(ONLY_FACTS, key_facts=b'{"a": 1e999}')
    assert context_score(sent, b'{"key_facts": {"a": 1e999}}') == 1


def test_progress_that_went_on_is_not_lost() -> None:
    moved = {**ECHO, "task_progress": {"step": 4, "total": 7, "completed": ["a", "b", "c"]}}
    assert score(moved) == 1


def test_progress_that_went_back_is_lost() -> None:
    sent = replace(ONLY_FACTS, key_facts=b"{}", task_progress=b'{"step": 3, "total": 7}')
    assert score({"task_progress": {"step": 2, "total": 7}}, sent) == 0.5
    assert score({"task_progress": {"step": True, "total": 7}}, sent) == 0.5


def test_the_intent_survives_word_by_word() -> None:
    sent = replace(ONLY_FACTS, key_facts=b"{}", user_intent="Send the March invoice")
    assert score({"user_intent": "invoice: send!"}, sent) == 0.5
    assert score({"user_intent": ""}, sent) == 0
    assert score({"user_intent": 4}, sent) == 0
    assert score({"user_intent": "查订单"}, replace(sent, user_intent="查订单状态")) == pytest.approx(3 / 5)
    assert score({"user_intent": "🧪 "}, replace(sent, user_intent="🧪")) == 1


def test_segments_of_the_summary_count_alike_however_long_they_are() -> None:
    sent = replace(ONLY_FACTS, key_facts=b"{}", conversation_summary=SENT.conversation_summary)
    assert score({"conversation_summary": "then  it was PAID."}, sent) == 0.5
    assert score({"conversation_summary": "It was refused. Then it was paid."}, sent) == 0.75
    assert score({"conversation_summary": "The invoice was settled."}, sent) == 0
    assert score({"conversation_summary": SENT.conversation_summary + HOP_SEPARATOR + "New."}, sent) == 1


def test_the_next_hop_of_a_chain_is_evidence_like_a_receipt() -> None:
    hop = {**ECHO, "target_agent": "c", "key_facts": {**ECHO["key_facts"], "new": 1}}
    assert score(hop) == 1


# --- laws ----------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=5)


@st.composite
def packages(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "user_intent": draw(st.text(min_size=1, max_size=40).filter(str.strip)),  # never blank
        "key_facts": draw(objects),
        "task_progress": draw(objects),
        "user_preferences": draw(objects),
        "conversation_summary": draw(st.text(max_size=100)),
    }


def as_context(package: dict[str, Any]) -> HandoffContext:
    return HandoffContext(
        correlation_id="c",
        source_agent="a",
        user_intent=package["user_intent"],
        conversation_summary=package["conversation_summary"],
        key_facts=json.dumps(package["key_facts"]).encode(),
        task_progress=json.dumps(package["task_progress"]).encode(),
        user_preferences=json.dumps(package["user_preferences"]).encode(),
    )


@given(packages())
def test_an_echo_of_everything_scores_one(package: dict[str, Any]) -> None:
    assert score(package, as_context(package)) == 1


@given(packages(), packages())
def test_the_score_is_a_share(sent: dict[str, Any], received: dict[str, Any]) -> None:
    found = score(received, as_context(sent))
    assert found is None or 0 <= found <= 1


@given(packages(), st.data())
def test_forgetting_a_fact_never_raises_the_score(package: dict[str, Any], data: st.DataObject) -> None:
    if not package["key_facts"]:
        return
    forgotten = data.draw(st.sampled_from(sorted(package["key_facts"])))
    rest = {name: value for name, value in package["key_facts"].items() if name != forgotten}
    whole = score(package, as_context(package))
    less = score({**package, "key_facts": rest}, as_context(package))
    assert whole is not None
    assert less is not None
    assert less <= whole


# --- the next hop --------------------------------------------------------------------------------


def test_who_passes_everything_on_loses_nothing_and_needs_no_summary_but_its_own() -> None:
    assert passed_on(SENT, SENT) == 1
    assert passed_on(SENT, replace(SENT, conversation_summary="I found it.")) == 1


def test_facts_that_are_not_passed_on_are_lost() -> None:
    kept = passed_on(SENT, replace(SENT, key_facts=b"{}"))
    assert kept == pytest.approx(1 - WEIGHTS["key_facts"])


def test_a_directive_that_says_nothing_of_the_context_is_no_evidence() -> None:
    assert passed_on(SENT, SENT, b'{"requirements":{"capabilities":["canBrowse"]}}') is None
    assert passed_on(SENT, SENT, b'{"user_intent":"Send it"}') == 1
