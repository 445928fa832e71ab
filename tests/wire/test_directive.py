"""What a target says in the metadata of its messages, and what it may not say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.context import EXTENSION_URI, HandoffContext, Mode, Reason
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.kit.directive import declined, handoff, in_metadata, ready, receipt, release
from a2a_handoff.kit.incoming import read_incoming
from a2a_handoff.wire.directive import REASON_CHARS, Directive, Verb, read_directive

NOW = 1_800_000_000.0
HANDOFF: dict[str, Any] = {
    "conversation_summary": "It was found.",
    "user_intent": "Pay it",
    "key_facts": {"n": 1},
    "target_agent": "payer",
}
PARENT = HandoffContext(
    correlation_id="c",
    source_agent="a",
    conversation_summary="Look.",
    user_intent="Find it",
    key_facts=b'{"k":2}',
)


def read(said: object, *, parent: HandoffContext | None = None) -> Directive | None:
    body = said if isinstance(said, bytes) else json.dumps({EXTENSION_URI: said}).encode()
    return read_directive(body, now=NOW, parent=parent)


def faults(said: object) -> dict[str, str]:
    with pytest.raises(HandoffError) as error:
        read(said)
    assert error.value.code is Code.INVALID_CONTEXT
    prefix = f'metadata["{EXTENSION_URI}"].'
    return {fault.field.removeprefix(prefix): fault.description for fault in error.value.violations}


def test_ready_carries_its_offer_and_receipt() -> None:
    said = {"ready": {"offer_id": "o1", "receipt": {"key_facts": {"a": 1.10}}}}
    assert read(said) == Directive(verb=Verb.READY, offer_id="o1", receipt=b'{"key_facts": {"a": 1.1}}')


def test_a_receipt_may_stand_alone_or_beside() -> None:
    assert read({"receipt": {"user_intent": "x"}}) == Directive(receipt=b'{"user_intent": "x"}')
    both = read({"ready": {"offer_id": "o"}, "receipt": {"user_intent": "x"}})
    assert both is not None
    assert (both.verb, both.receipt) == (Verb.READY, b'{"user_intent": "x"}')


@pytest.mark.parametrize(("value", "verb"), [(True, Verb.READY), (False, Verb.DECLINED)])
def test_ready_has_a_short_form(value: bool, verb: Verb) -> None:
    assert read({"ready": value}) == Directive(verb=verb)


def test_declined_and_release_say_why() -> None:
    assert read({"declined": {"offer_id": "o", "reason": "busy"}}) == Directive(
        verb=Verb.DECLINED, offer_id="o", reason="busy"
    )
    assert read({"release": {"reason": "x" * 9000}}) == Directive(
        verb=Verb.RELEASE, reason="x" * REASON_CHARS
    )
    assert read({"release": {}}) == Directive(verb=Verb.RELEASE)


def test_handing_on_is_a_transfer_unless_it_says_otherwise() -> None:
    found = read({"handoff": HANDOFF})
    assert found is not None
    assert found.package is not None
    assert found.verb is Verb.HANDOFF
    assert found.package.context.target_agent == "payer"
    assert found.package.options.mode is Mode.TRANSFER
    assert json.loads(found.handed_on) == HANDOFF
    delegated = read({"handoff": {**HANDOFF, "mode": "delegate"}})
    assert delegated is not None
    assert delegated.package is not None
    assert delegated.package.options.mode is Mode.DELEGATE


def test_handing_on_updates_the_context_that_the_target_holds() -> None:
    found = read({"handoff": {"target_agent": "payer", "handoff_reason": "escalation"}}, parent=PARENT)
    assert found is not None
    assert found.package is not None
    context = found.package.context
    assert (context.user_intent, context.key_facts) == ("Find it", b'{"k":2}')
    assert (context.target_agent, context.handoff_reason) == ("payer", Reason.ESCALATION)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b"not json",
        b'{"other": {"ready": true}}',
        json.dumps({EXTENSION_URI: None}).encode(),
        json.dumps({EXTENSION_URI: {}}).encode(),
        json.dumps({EXTENSION_URI: "x"}).encode(),
        json.dumps({EXTENSION_URI: {"ready": None, "receipt": None}}).encode(),
        json.dumps({"text": EXTENSION_URI}).encode(),
    ],
)
def test_metadata_without_our_extension_says_nothing(metadata: bytes) -> None:
    assert read(metadata) is None


def test_a_package_that_is_echoed_is_no_directive() -> None:
    assert read({**HANDOFF, "handoff_id": "h", "offer_id": "o", "attempt": 1}) is None
    assert read({"offer": HANDOFF}) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"ready": {}, "declined": {}}, {"declined": "contradicts ready; say one of them"}),
        ({"handoff": HANDOFF, "release": {}}, {"release": "contradicts handoff; say one of them"}),
        ({"ready": 1}, {"ready": "must be an object"}),
        ({"release": True}, {"release": "must be an object"}),
        ({"declined": {"reason": 3}}, {"declined.reason": "must be a string"}),
        ({"ready": {"offer_id": "a\nb"}}, {"ready.offer_id": "contains a control character"}),
        ({"receipt": []}, {"receipt": "must be an object of at most 262144 bytes"}),
        ({"ready": {"receipt": 1}}, {"ready.receipt": "must be an object of at most 262144 bytes"}),
        ({"receipt": {"a": "x" * 262_144}}, {"receipt": "must be an object of at most 262144 bytes"}),
        ({"handoff": {**HANDOFF, "key_facts": []}}, {"handoff.key_facts": "must be an object"}),
        ({"handoff": []}, {"handoff": "must be an object"}),
    ],
)
def test_what_is_said_wrongly_is_refused_at_its_place(said: object, expected: dict[str, str]) -> None:
    assert faults(said) == expected


def test_what_the_kit_writes_is_understood() -> None:
    held = read_incoming({"metadata": {EXTENSION_URI: {"offer": {**HANDOFF, "offer_id": "o"}}}})
    assert held is not None

    def said(*payloads: Any) -> Directive | None:
        return read_directive(json.dumps(in_metadata(*payloads)).encode(), now=NOW)

    answer = said(ready(held, receipt(held)))
    assert answer is not None
    assert (answer.verb, answer.offer_id) == (Verb.READY, "o")
    assert json.loads(answer.receipt)["key_facts"] == {"n": 1}
    assert said(declined(held, "busy")) == Directive(verb=Verb.DECLINED, offer_id="o", reason="busy")
    assert said(release("done")) == Directive(verb=Verb.RELEASE, reason="done")
    on = said(handoff("next", summary="Own segment.", base=held))
    assert on is not None
    assert on.package is not None
    assert on.package.context.conversation_summary == "Own segment."


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
verbs = st.sampled_from([*Verb, "receipt", "offer"])


def outcome(said: object) -> Directive | HandoffError | None:
    try:
        return read(said, parent=PARENT)
    except HandoffError as error:
        return error


@given(st.dictionaries(verbs, json_values, max_size=3))
def test_whatever_a_target_says_is_understood_or_refused_with_its_place(said: dict[str, Any]) -> None:
    found = outcome(said)
    if isinstance(found, HandoffError):
        assert found.code is Code.INVALID_CONTEXT
        assert all(fault.field.startswith("metadata[") for fault in found.violations)
    elif found is not None:
        assert found.verb is not None or found.receipt
