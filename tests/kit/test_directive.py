"""What an agent says: the payloads, as docs/reference/extension.md writes them."""

from __future__ import annotations

import pytest

from a2a_handoff.core.context import Mode, Reason
from a2a_handoff.kit import (
    EXTENSION_URI,
    IncomingHandoff,
    declined,
    handoff,
    in_metadata,
    ready,
    receipt,
    release,
)

HELD = IncomingHandoff(
    correlation_id="order-7",
    user_intent="wants the March invoice",
    conversation_summary="asked for an invoice",
    key_facts={"invoice": 4711, "month": "March"},
    task_progress={"step": 1, "total": 3, "completed": []},
    user_preferences={"language": "fr"},
    offer_id="o1",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    raw={"user_intent": "wants the March invoice", "key_facts": {"invoice": 4711}, "context_ref": "x"},
)


def test_payloads_stand_side_by_side_under_the_extension() -> None:
    assert in_metadata(ready(HELD), {"receipt": {"key_facts": {}}}) == {
        EXTENSION_URI: {"ready": {"offer_id": "o1"}, "receipt": {"key_facts": {}}}
    }


def test_a_receipt_echoes_what_arrived_and_nothing_else() -> None:
    assert receipt(HELD) == {"user_intent": "wants the March invoice", "key_facts": {"invoice": 4711}}
    assert ready(HELD, receipt(HELD))["ready"]["receipt"] == receipt(HELD)


def test_a_decline_names_the_offer_and_its_reason_is_cut() -> None:
    assert declined(HELD, "busy") == {"declined": {"offer_id": "o1", "reason": "busy"}}
    assert len(declined(HELD, "x" * 9_999)["declined"]["reason"]) == 500
    assert release("not mine") == {"release": {"reason": "not mine"}}


def test_handing_on_keeps_intent_and_facts_and_merges_the_update() -> None:
    directive = handoff(
        "code-editor",
        base=HELD,
        summary="The template is wrong.",
        update={"file": "invoice.html", "month": 3},
    )["handoff"]
    assert directive["target_agent"] == "code-editor"
    assert directive["user_intent"] == HELD.user_intent
    assert directive["key_facts"] == {"invoice": 4711, "month": 3, "file": "invoice.html"}
    assert directive["conversation_summary"] == "The template is wrong."
    assert directive["correlation_id"] == "order-7"
    assert directive["traceparent"] == HELD.traceparent
    assert (directive["mode"], directive["handoff_reason"]) == ("transfer", "specialization")
    assert "requirements" not in directive
    assert "hop_count" not in directive


def test_handing_on_may_ask_for_abilities_instead_of_a_name() -> None:
    directive = handoff(
        summary="Needs a browser.",
        intent="read a page",
        capabilities=["canBrowse"],
        skill="read-page",
        domain="web",
        reason=Reason.CAPABILITY_BOUNDARY,
        mode=Mode.DELEGATE,
        priority="high",
    )["handoff"]
    assert directive["requirements"] == {"capabilities": ["canBrowse"], "skill": "read-page", "domain": "web"}
    assert directive["mode"] == "delegate"
    assert directive["priority"] == "high"
    assert "target_agent" not in directive


def test_a_fact_that_is_empty_is_still_a_fact() -> None:
    directive = handoff("x", base=HELD, summary="s", update={"paid": False, "open": 0, "note": ""})["handoff"]
    assert directive["key_facts"].items() >= {"paid": False, "open": 0, "note": ""}.items()


def test_a_handoff_to_nobody_or_without_words_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="name a target"):
        handoff(base=HELD, summary="s")
    with pytest.raises(ValueError, match="summary and an intent"):
        handoff("x", base=HELD, summary="  ")
    with pytest.raises(ValueError, match="summary and an intent"):
        handoff("x", summary="s")
