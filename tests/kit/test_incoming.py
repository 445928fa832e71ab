"""Reading what arrives: every place, every shape, never a failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.context import CONTEXT_KEY
from a2a_handoff.kit import EXTENSION_URI, IncomingHandoff, read_incoming
from a2a_handoff.kit.incoming import read_child_end, whole_numbers

PACKAGE: dict[str, Any] = {
    "correlation_id": "order-7",
    "source_agent": "triage-agent",
    "target_agent": "billing_agent",
    "handoff_reason": "specialization",
    "conversation_summary": "asked for an invoice\n---hop---\nfound it",
    "user_intent": "wants the March invoice",
    "key_facts": {"invoice": 4711, "paid": False, "note": None},
    "task_progress": {"step": 1, "total": 3, "completed": ["greeted"]},
    "user_preferences": {"language": "fr"},
    "context_ref": "ctx_snap_1",
    "hop_count": 2,
    "handoff_chain": ["user", "triage-agent"],
    "handoff_id": "h1",
    "offer_id": "o1",
    "attempt": 1,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read(package: dict[str, Any]) -> IncomingHandoff:
    incoming = read_incoming({"metadata": {EXTENSION_URI: package}})
    assert incoming is not None
    return incoming


def test_every_field_of_the_package_has_its_name_and_type() -> None:
    incoming = read(PACKAGE)
    assert incoming.correlation_id == "order-7"
    assert incoming.key_facts == {"invoice": 4711, "paid": False, "note": None}
    assert incoming.handoff_chain == ("user", "triage-agent")
    assert (incoming.hop_count, incoming.attempt, incoming.offer_id) == (2, 1, "o1")
    assert incoming.summaries == ("asked for an invoice", "found it")
    assert incoming.raw == PACKAGE
    assert not incoming.offer


@pytest.mark.parametrize(
    ("message", "request_metadata"),
    [
        ({"metadata": {EXTENSION_URI: PACKAGE}}, None),
        ({"metadata": {CONTEXT_KEY: PACKAGE}}, None),
        ({}, {CONTEXT_KEY: PACKAGE}),
        ({}, {EXTENSION_URI: PACKAGE}),
        ({"metadata": {"other": 1}}, {CONTEXT_KEY: PACKAGE}),
    ],
)
def test_the_package_is_found_wherever_it_may_stand(
    message: dict[str, Any], request_metadata: dict[str, Any] | None
) -> None:
    incoming = read_incoming(message, request_metadata)
    assert incoming is not None
    assert incoming.user_intent == PACKAGE["user_intent"]


def test_a_message_without_a_package_is_no_handoff() -> None:
    assert read_incoming({"parts": [{"text": "hello"}]}, {"tenant": "x"}) is None


def test_a_directive_alone_is_no_package() -> None:
    assert read_incoming({"metadata": {EXTENSION_URI: {"receipt": {"user_intent": "x"}}}}) is None


def test_an_offer_is_told_from_the_task_itself() -> None:
    incoming = read_incoming({"metadata": {EXTENSION_URI: {"offer": {**PACKAGE, "ack_wait_s": 5}}}})
    assert incoming is not None
    assert incoming.offer
    assert incoming.ack_wait_s == 5.0


def test_numbers_that_a_struct_turned_into_floats_come_back_whole() -> None:
    incoming = read({"hop_count": 2.0, "attempt": 1.0, "key_facts": {"invoice": 4711.0, "amount": 1.5}})
    assert (incoming.hop_count, incoming.attempt) == (2, 1)
    assert repr(incoming.key_facts) == "{'invoice': 4711, 'amount': 1.5}"


def test_a_float_beyond_exact_integers_stays_a_float() -> None:
    assert isinstance(whole_numbers(1e300), float)


def test_calls_that_serve_the_task_stay_in_its_trace() -> None:
    assert read(PACKAGE).headers == {"traceparent": PACKAGE["traceparent"]}
    assert read({"hop_count": 1}).headers == {}


@given(st.dictionaries(st.sampled_from([*PACKAGE, "unknown"]), JSON, min_size=1))
def test_wrong_types_take_the_default_and_never_fail(package: dict[str, Any]) -> None:
    incoming = read(package)
    assert isinstance(incoming.key_facts, dict)
    assert isinstance(incoming.user_intent, str)
    assert incoming.hop_count >= 0
    assert all(isinstance(name, str) for name in incoming.handoff_chain)
    assert set(incoming.raw) == set(package)


@given(JSON, JSON)
def test_metadata_of_any_shape_is_read_without_failing(metadata: Any, around: Any) -> None:
    read_incoming({"metadata": metadata}, around)
    read_incoming({"metadata": {EXTENSION_URI: metadata}}, {CONTEXT_KEY: around})


@pytest.mark.parametrize(("state", "asks"), [("input_required", True), ("completed", False), ("odd", False)])
def test_word_of_a_helper_is_its_question_or_its_end(state: str, asks: bool) -> None:
    note = {"child": {"handoff_id": "h-2", "state": state, "reason": ""}}
    child = read_child_end({"metadata": {EXTENSION_URI: note}})
    assert child is not None
    assert (child.handoff_id, child.asks) == ("h-2", asks)
