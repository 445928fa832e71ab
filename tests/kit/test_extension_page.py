"""docs/reference/extension.md says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.core.agents import PLATFORM_CAPABILITIES
from a2a_handoff.core.context import (
    EXTENSION_URI,
    HOP_SEPARATOR,
    TOKEN_BUDGET,
    HandoffContext,
    Limits,
    Package,
    Reason,
)
from a2a_handoff.core.errors import ERRORS, Code
from a2a_handoff.core.policy import MAX_HOPS_CAP, Policy
from a2a_handoff.kit import IncomingHandoff, handoff, read_incoming, ready, release
from a2a_handoff.kit.directive import REASON_CHARS_MAX, RECEIPT_FIELDS
from a2a_handoff.wire import notices
from a2a_handoff.wire.card_lints import PARAMETERS
from a2a_handoff.wire.card_reader import read_facts
from a2a_handoff.wire.cards import check
from a2a_handoff.wire.context import Stamp, write_context
from a2a_handoff.wire.directive import REASON_CHARS, Directive, Verb, read_directive
from tests.support.builders import offered_event, replay, requested_event

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "extension.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def block(with_text: str) -> dict[str, Any]:
    text = next(b for b in BLOCKS if with_text in b).strip()
    return json.loads(text if text.startswith("{") else f"{{{text}}}")


@pytest.mark.parametrize("text", BLOCKS)
def test_every_example_is_json(text: str) -> None:
    text = text.strip()
    json.loads(text if text.startswith("{") else f"{{{text}}}")


def test_the_offer_of_the_page_is_read_as_one() -> None:
    offer = read_incoming(block('"offer"')["message"])
    assert offer is not None
    assert offer.offer
    assert (offer.attempt, offer.ack_wait_s) == (1, 5.0)


def test_the_broker_reads_the_answers_of_the_page() -> None:
    for example, verb in (('"ready"', Verb.READY), ('{"handoff"', Verb.HANDOFF)):
        told = block(example)
        said = told.get("message", {}).get("metadata", {EXTENSION_URI: told})
        held = held_context()
        directive = read_directive(json.dumps(said).encode(), now=0.0, parent=held)
        assert directive is not None
        assert directive.verb is verb


def said_by(example: str) -> Directive:
    told = block(example)
    said = told.get("message", {}).get("metadata", {EXTENSION_URI: told})
    directive = read_directive(json.dumps(said).encode(), now=0.0, parent=held_context())
    assert directive is not None
    return directive


def test_every_member_of_an_answer_is_one_that_the_broker_reads() -> None:
    ready = said_by('"ready"')
    assert (ready.verb, ready.offer_id) == (Verb.READY, "0198c1f2-…")
    assert json.loads(ready.receipt) == {"…": "…"}
    declined = said_by('{"declined"')
    assert (declined.verb, declined.offer_id, declined.reason) == (
        Verb.DECLINED, "0198c1f2-…", "in the middle of an incident",
    )  # fmt: skip
    release = said_by('{"release"')
    assert (release.verb, release.reason) == (Verb.RELEASE, "not my customer")
    receipt = block('{"receipt"')["receipt"]
    assert set(receipt) == set(RECEIPT_FIELDS)
    assert json.loads(said_by('{"receipt"').receipt) == receipt


def test_every_member_of_a_directive_is_one_that_the_broker_knows() -> None:
    package = said_by('{"handoff"').package
    assert package is not None
    assert set(json.loads(package.context.extra)) == {"requirements", "mode"}
    assert package.requirements.capabilities == ("canEditFiles",)
    assert (package.context.handoff_reason, package.options.mode) == ("capability_boundary", "transfer")
    assert json.loads(package.context.key_facts)["invoice"] == "INV-2041"


def test_every_member_of_an_offer_is_one_that_the_broker_writes() -> None:
    message = block('"offer"')["message"]
    assert set(message) == {"messageId", "role", "parts", "extensions", "metadata"}
    offer: dict[str, Any] = message["metadata"][EXTENSION_URI]["offer"]
    stamp = Stamp(handoff_id="h", offer_id="o", attempt=1, deadline_at=1.0, traceparent="t")
    written = json.loads(write_context(Package(context=held_context()), stamp))
    assert set(offer) - set(written) == {"ack_wait_s", "…"}
    assert set(block('{"rescinded"')["rescinded"]) == {"offer_id", "attempt", "handoff_id"}


def test_every_parameter_of_the_page_is_one_that_cards_may_have_and_none_is_missing() -> None:
    section = PAGE.partition("## 1. ")[2].partition("## 2. ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == PARAMETERS
    capabilities = block('"extensions": [{')["capabilities"]
    card = {
        "name": "A", "description": "A.", "version": "1", "capabilities": capabilities,
        "supportedInterfaces": [
            {"url": "https://a.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "a", "name": "A", "description": "A.", "tags": ["a"]}],
    }  # fmt: skip
    assert check(json.dumps(card)) == []
    facts, _ = read_facts(card)
    assert (facts.platform, facts.token_budget, facts.max_concurrency) == ("external", 1500, 4)
    assert (facts.domains, facts.speaks_handoff) == (("web",), True)


def test_every_member_of_a_system_event_is_one_that_the_broker_sends() -> None:
    example = block('"system_event"')["data"]
    world = replay(requested_event(), offered_event())
    told = json.loads(notices.notice(world, notices.STARTED, "en"))
    assert set(example) == set(told["parts"][1]["data"])


def test_the_broker_reads_what_the_kit_writes() -> None:
    held = IncomingHandoff(offer_id="o1", user_intent="i", raw={"user_intent": "i"})
    for payload, verb in (
        (ready(held), Verb.READY),
        (release("not mine"), Verb.RELEASE),
        (handoff("b", base=held, summary="s"), Verb.HANDOFF),
    ):
        said = read_directive(json.dumps({EXTENSION_URI: payload}).encode(), now=0.0, parent=held_context())
        assert said is not None
        assert said.verb is verb


def held_context() -> HandoffContext:
    return HandoffContext(
        correlation_id="order-7", source_agent="a", conversation_summary="s", user_intent="i"
    )


def test_the_page_names_every_field_reason_and_receipt_field() -> None:
    delivered = write_context(Package(context=held_context()), Stamp(handoff_id="h", offer_id="o", attempt=1))
    for name in (*json.loads(delivered), *RECEIPT_FIELDS, *(reason.value for reason in Reason)):
        assert f"`{name}`" in PAGE or f'"{name}"' in PAGE, name
    for platform in PLATFORM_CAPABILITIES:
        assert f"`{platform}`" in PAGE
    assert repr(HOP_SEPARATOR).strip("'") in PAGE
    assert EXTENSION_URI in PAGE


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    limits, policy = Limits(), Policy()
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.partition("## 9. Limits")[2], re.MULTILINE))
    assert rows["hops in a chain"] == str(MAX_HOPS_CAP)
    budget = f"{TOKEN_BUDGET:,} tokens, {limits.summary_and_facts_bytes:,} bytes"
    assert rows["summary (its newest segment) and `key_facts` together"] == budget
    assert rows["`conversation_summary`, all segments"] == f"{limits.summary_bytes:,} bytes"
    assert rows["`user_intent`"] == f"{limits.intent_bytes:,} bytes"
    assert limits.task_progress_bytes == limits.user_preferences_bytes
    assert rows["`task_progress`, `user_preferences`"] == f"{limits.task_progress_bytes:,} bytes each"
    assert rows["all unknown fields together"] == f"{limits.extra_bytes:,} bytes"
    assert rows["`transcript` (kept by the broker, never delivered)"] == f"{limits.transcript_bytes:,} bytes"
    assert rows["`context_ref` and other references"] == f"{limits.reference_chars:,} characters"
    assert rows["entries of a list"] == str(limits.list_items)
    assert REASON_CHARS == REASON_CHARS_MAX
    assert rows["`reason`"] == f"cut at {REASON_CHARS} characters"
    assert rows["answer to an offer"].endswith(f"{policy.ack_wait_s:g} s by default")
    assert rows["deliveries of one offer"] == str(policy.deliveries)
    assert rows["agents tried for one handoff"].startswith(f"{policy.agents},")


def test_the_system_events_of_the_page_are_those_that_the_broker_sends() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## 7.")[2].partition("## 8.")[0], re.MULTILINE)
    sent = (
        notices.STARTED, notices.OVERDUE, notices.CONFIRMED, notices.RETURNED, notices.EXPIRED, notices.FAILED,
        notices.STANDBY, notices.ACTIVE,
    )  # fmt: skip
    assert tuple(rows) == ("event", *sent)


def test_the_error_codes_of_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (-\d+) \|", PAGE.partition("## 8. Errors")[2], re.MULTILINE)
    assert rows
    for code, number in rows:
        assert ERRORS[Code(code)].jsonrpc == int(number), code
