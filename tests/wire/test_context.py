"""Handoff contexts on the wire: found, read with every fault at its place, and written byte for byte."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from a2a_handoff.core.context import (
    CONTEXT_KEY,
    EXTENSION_URI,
    Dropped,
    HandoffContext,
    HandoffOptions,
    Limits,
    Mode,
    Overflow,
    Package,
    Priority,
    Profile,
    Reason,
    Requirements,
    Signals,
)
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.wire.context import (
    Stamp,
    read_context,
    read_package,
    synthesize,
    write_context,
    write_instant,
)
from a2a_handoff.wire.context_reader import CONTEXT_FIELDS, STAMPS
from a2a_handoff.wire.fields import FAULTS_MAX, members_of, same_json

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
DAY = 86_400.0
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

MINIMAL: dict[str, Any] = {
    "conversation_summary": "She asked for the March invoice.",
    "user_intent": "Get the invoice",
    "key_facts": {},
}
FULL: dict[str, Any] = {
    **MINIMAL,
    "correlation_id": "order-42",
    "source_agent": "triage",
    "target_agent": "billing",
    "handoff_reason": "escalation",
    "key_facts": {"invoice": "F-1"},
    "task_progress": {"step": 3, "total": 7, "completed": ["a"]},
    "user_preferences": {"language": "fr"},
    "context_ref": "s3://bucket/snapshot",
    "hop_count": 2,
    "handoff_chain": ["intake", "triage"],
    "requirements": {"capabilities": ["canBrowse"], "skill": "invoices", "tags": ["eu"]},
    "signals": {"intent": "billing", "risk_level": 8, "completion_estimate": 0.4},
    "mode": "delegate",
    "priority": "high",
    "fallback": ["billing2"],
    "replay_safe": True,
    "deadline": "2027-01-15T10:00:00+01:00",
    "wait_for_agent": 30,
    "parent_handoff_id": "0198-parent",
    "context_overflow": "trim",
    "context_profile": "minimal",
    "transcript": [{"role": "user", "text": "hello"}],
    "traceparent": TRACEPARENT,
}


def metadata(value: object, key: str = CONTEXT_KEY) -> dict[str, Raw]:
    return {key: Raw(value if isinstance(value, bytes) else json.dumps(value).encode())}


def read(value: object, **options: Any) -> Package:
    package = read_package(metadata(value), None, now=NOW, **options)
    assert package is not None
    return package


def changed(**members: Any) -> dict[str, Any]:
    return {**MINIMAL, **members}


def faults(value: object, **options: Any) -> dict[str, str]:
    with pytest.raises(HandoffError) as error:
        read(value, **options)
    assert error.value.code is Code.INVALID_CONTEXT
    assert error.value.row.jsonrpc == -32602
    prefix = "metadata.handoff_context"
    return {
        fault.field.removeprefix(prefix).removeprefix("."): fault.description
        for fault in error.value.violations
    }


# --- reading -------------------------------------------------------------------------------------


def test_every_field_arrives() -> None:
    package = read(FULL)
    context = package.context
    assert context == HandoffContext(
        correlation_id="order-42",
        source_agent="triage",
        target_agent="billing",
        handoff_reason=Reason.ESCALATION,
        conversation_summary=MINIMAL["conversation_summary"],
        user_intent="Get the invoice",
        key_facts=b'{"invoice": "F-1"}',
        task_progress=b'{"step": 3, "total": 7, "completed": ["a"]}',
        user_preferences=b'{"language": "fr"}',
        context_ref="s3://bucket/snapshot",
        hop_count=2,
        handoff_chain=("intake", "triage"),
        extra=context.extra,
    )
    assert package.requirements == Requirements(capabilities=("canBrowse",), skill="invoices", tags=("eu",))
    assert package.signals == Signals(intent="billing", risk_level=8, completion_estimate=0.4)
    assert package.options == HandoffOptions(
        mode=Mode.DELEGATE,
        priority=Priority.HIGH,
        fallback=("billing2",),
        replay_safe=True,
        deadline_at=NOW + 3600,
        wait_for_agent_s=30,
        parent_handoff_id="0198-parent",
        context_overflow=Overflow.TRIM,
        context_profile=Profile.MINIMAL,
        transcript=b'[{"role": "user", "text": "hello"}]',
        traceparent=TRACEPARENT,
    )
    assert package.warnings == ()
    assert not package.synthesized


def test_summary_intent_and_facts_are_enough() -> None:
    assert read(MINIMAL) == Package(
        context=HandoffContext(
            correlation_id="",
            source_agent="",
            conversation_summary=MINIMAL["conversation_summary"],
            user_intent="Get the invoice",
        )
    )


def test_null_means_absent() -> None:
    nulls = {name: None for name in FULL if name not in MINIMAL}
    package = read(changed(**nulls))
    assert replace(package, context=replace(package.context, extra=b"{}")) == read(MINIMAL)
    assert set(faults(dict.fromkeys(MINIMAL))) == set(MINIMAL)


def test_a_request_without_a_context_has_none() -> None:
    assert read_package(None, None, now=NOW) is None
    assert read_package(metadata({"a": 1}, "other"), {}, now=NOW) is None
    assert read_package(metadata(None), metadata(None, EXTENSION_URI), now=NOW) is None


@pytest.mark.parametrize("key", [CONTEXT_KEY, EXTENSION_URI])
@pytest.mark.parametrize("place", [0, 1])
def test_a_context_is_found_in_four_places_and_faults_name_the_place(key: str, place: int) -> None:
    found: list[dict[str, Raw] | None] = [None, None]
    found[place] = metadata(MINIMAL, key)
    assert read_package(*found, now=NOW) == read(MINIMAL)
    found[place] = metadata({}, key)
    with pytest.raises(HandoffError) as error:
        read_package(*found, now=NOW)
    at = f"metadata.{key}" if key == CONTEXT_KEY else f'metadata["{key}"]'
    prefix = "message." if place else ""
    assert error.value.violations[0].field == f"{prefix}{at}.conversation_summary"


def test_copies_that_say_the_same_in_other_words_are_one() -> None:
    one = b'{"conversation_summary":"s","user_intent":"\\u00e9","key_facts":{"a":1,"b":1.10},"hop_count":1}'
    two = '{ "hop_count":1.0, "user_intent":"é","key_facts":{"b":1.1,"a":1e0},"conversation_summary":"s"}'
    package = read_package(metadata(one), metadata(two.encode(), EXTENSION_URI), now=NOW)
    assert package is not None
    assert package.context.key_facts == b'{"a":1,"b":1.10}'


@pytest.mark.parametrize(
    "other",
    [
        changed(key_facts={"a": 1}),
        changed(key_facts=[]),
        changed(hop_count=1),
        {},
    ],
)
def test_copies_that_disagree_are_refused(other: object) -> None:
    with pytest.raises(HandoffError) as error:
        read_package(metadata(MINIMAL), metadata(other, EXTENSION_URI), now=NOW)
    assert error.value.code is Code.INVALID_CONTEXT
    (fault,) = error.value.violations
    assert (fault.field, fault.description) == (
        f'message.metadata["{EXTENSION_URI}"]',
        "differs from metadata.handoff_context",
    )


@pytest.mark.parametrize(
    "said", [{"receipt": {}}, {"ready": {"offer_id": "o"}}, {"offer": MINIMAL}, {"handoff": MINIMAL}]
)
def test_what_a_target_says_is_no_context(said: object) -> None:
    assert read_package(None, metadata(said, EXTENSION_URI), now=NOW) is None
    assert read_package(metadata(MINIMAL), metadata(said, EXTENSION_URI), now=NOW) == read(MINIMAL)


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{}, {"capability": "", "target": None}])
def test_c021_a_context_that_names_no_route_and_says_nothing_is_refused_at_once(value: object) -> None:
    assert set(faults(value)) == {"conversation_summary", "user_intent", "key_facts"}


@pytest.mark.parametrize("value", [[], "text", 1, True, ""])
def test_a_context_that_is_no_object_is_refused(value: object) -> None:
    assert faults(value) == {"": "must be an object"}


@pytest.mark.parametrize("blank", ["", "  ", "\n\t", "\u200b\u2060"])
@pytest.mark.parametrize("name", ["conversation_summary", "user_intent"])
def test_blank_summary_and_intent_are_refused(name: str, blank: str) -> None:
    assert faults(changed(**{name: blank})) == {name: "must not be blank"}


@pytest.mark.parametrize("count", [6, -1, 5.5, "5", True, [5], {"n": 5}])
def test_c020_a_hop_count_outside_the_limit_or_of_the_wrong_type_is_refused(count: object) -> None:
    assert faults(changed(hop_count=count)) == {"hop_count": "must be an integer from 0 to 5"}


@pytest.mark.parametrize("raw", [b"1e400", b"-1e400", b"123456789012345678901234567890"])
def test_c020_a_hop_count_beyond_every_number_is_refused(raw: bytes) -> None:
    body = json.dumps(MINIMAL).encode()[:-1] + b', "hop_count": ' + raw + b"}"
    assert faults(body) == {"hop_count": "must be an integer from 0 to 5"}


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (5, 5), (5.0, 5), (1.0, 1)])
def test_c085_a_whole_float_is_an_integer_because_some_senders_have_no_other_numbers(
    count: float, expected: int
) -> None:
    found = read(changed(hop_count=count)).context.hop_count
    assert (found, type(found)) == (expected, int)


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        ({"correlation_id": 42}, {"correlation_id": "must be a string"}),
        ({"source_agent": ["a"]}, {"source_agent": "must be a string"}),
        ({"target_agent": "a\nb"}, {"target_agent": "contains a control character"}),
        ({"target_agent": "x" * 201}, {"target_agent": "is longer than 200 characters"}),
        (
            {"handoff_reason": "because"},
            {
                "handoff_reason": "must be one of "
                "capability_boundary, specialization, escalation, load_balancing"
            },
        ),
        ({"handoff_reason": 1}, {"handoff_reason": "must be one of " + ", ".join(Reason)}),
        ({"conversation_summary": 5}, {"conversation_summary": "must be a string"}),
        ({"user_intent": ["x"]}, {"user_intent": "must be a string"}),
        ({"key_facts": []}, {"key_facts": "must be an object"}),
        ({"key_facts": "{}"}, {"key_facts": "must be an object"}),
        ({"task_progress": 3}, {"task_progress": "must be an object"}),
        ({"user_preferences": False}, {"user_preferences": "must be an object"}),
        ({"context_ref": "x" * 1001}, {"context_ref": "is longer than 1000 characters"}),
        ({"handoff_chain": "a"}, {"handoff_chain": "must be a list of strings"}),
        ({"handoff_chain": ["a", 1]}, {"handoff_chain": "must be a list of strings"}),
        ({"handoff_chain": ["a", "", "b\x00"]}, {"handoff_chain[1]": "is empty"}),
        ({"handoff_chain": ["a"] * 65}, {"handoff_chain": "must have at most 64 items"}),
        ({"requirements": []}, {"requirements": "must be an object"}),
        ({"requirements": {"skill": 1}}, {"requirements.skill": "must be a string"}),
        (
            {"requirements": {"capabilities": "canBrowse"}},
            {"requirements.capabilities": "must be a list of strings"},
        ),
        ({"requirements": {"tags": ["a", "\r"]}}, {"requirements.tags[1]": "contains a control character"}),
        ({"signals": {"risk_level": "8"}}, {"signals.risk_level": "must be a number"}),
        ({"signals": {"risk_level": True}}, {"signals.risk_level": "must be a number"}),
        (
            {"signals": {"completion_estimate": 80}},
            {"signals.completion_estimate": "must be a number from 0 to 1"},
        ),
        ({"signals": {"language": "f\x1br"}}, {"signals.language": "contains a control character"}),
        ({"mode": "steal"}, {"mode": "must be one of transfer, delegate"}),
        ({"priority": 0}, {"priority": "must be one of low, normal, high, urgent"}),
        ({"fallback": {}}, {"fallback": "must be a list of strings"}),
        ({"replay_safe": "false"}, {"replay_safe": "must be true or false"}),
        ({"replay_safe": 1}, {"replay_safe": "must be true or false"}),
        ({"wait_for_agent": -1}, {"wait_for_agent": "must be a number from 0 to 604800"}),
        ({"wait_for_agent": "30"}, {"wait_for_agent": "must be a number"}),
        ({"parent_handoff_id": " a"}, {"parent_handoff_id": "begins or ends with white space"}),
        ({"context_overflow": True}, {"context_overflow": "must be one of refuse, trim"}),
        ({"context_profile": "medium"}, {"context_profile": "must be one of rich, minimal"}),
        ({"traceparent": 1}, {"traceparent": "must be a string"}),
    ],
)
def test_what_is_wrong_is_refused_and_never_coerced(member: dict[str, Any], expected: dict[str, str]) -> None:
    found = faults(changed(**member))
    assert expected.items() <= found.items()


def test_every_fault_is_told_at_once() -> None:
    found = faults(
        {
            "conversation_summary": "",
            "key_facts": [],
            "hop_count": "5",
            "signals": {"risk_level": "x"},
            "deadline": "tomorrow",
        }
    )
    assert set(found) == {
        "conversation_summary",
        "user_intent",
        "key_facts",
        "hop_count",
        "signals.risk_level",
        "deadline",
    }


def test_a_requirement_that_is_not_known_is_refused_because_passing_over_it_would_misroute() -> None:
    assert set(faults(changed(requirements={"capability": ["x"], "skill": "y"}))) == {
        "requirements.capability"
    }


def test_a_signal_that_is_not_known_is_passed_on_with_a_warning() -> None:
    package = read(changed(signals={"mood": 3}))
    assert package.signals == Signals()
    assert json.loads(package.context.extra) == {"signals": {"mood": 3}}
    (warning,) = package.warnings
    assert warning.startswith("signals: only intent")


def test_the_list_of_faults_is_bounded() -> None:
    assert len(faults(changed(requirements={f"r{number}": 1 for number in range(200)}))) == FAULTS_MAX


def test_numbers_of_signals_must_be_finite() -> None:
    body = json.dumps(MINIMAL).encode()[:-1] + b', "signals": {"risk_level": 1e999}}'
    assert faults(body) == {"signals.risk_level": "must be a number"}


def test_lone_surrogates_are_no_json() -> None:
    body = b'{"conversation_summary": "\\ud800", "user_intent": "x", "key_facts": {}}'
    assert faults(body) == {"": "must be an object"}


def test_parts_over_their_size_are_refused_each_at_its_place() -> None:
    limits = Limits(
        intent_bytes=10,
        summary_bytes=20,
        summary_and_facts_bytes=20,
        task_progress_bytes=10,
        user_preferences_bytes=10,
        extra_bytes=20,
        transcript_bytes=10,
    )
    big = "é" * 20
    found = faults(
        {
            "conversation_summary": big,
            "user_intent": big,
            "key_facts": {"k": big},
            "task_progress": {"k": big},
            "user_preferences": {"k": big},
            "transcript": big,
            "mine": big,
        },
        limits=limits,
    )
    assert set(found) == {
        "conversation_summary",
        "user_intent",
        "key_facts",
        "task_progress",
        "user_preferences",
        "transcript",
        "mine",
    }
    assert "20 bytes of UTF-8" in found["conversation_summary"]


# --- ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "correlation_id", ["<script>", "a=1 tenant=victim", "../../", "🧪", "订单-1", "x" * 200, "0"]
)
def test_c058_any_printable_correlation_id_is_kept_as_it_is(correlation_id: str) -> None:
    assert read(changed(correlation_id=correlation_id)).context.correlation_id == correlation_id


def test_c057_zeros_of_a_correlation_id_are_kept() -> None:
    given_id = "00000000-0000-4000-8000-00000000abcd"
    assert read(changed(correlation_id=given_id)).context.correlation_id == given_id


@pytest.mark.parametrize("nil", ["", None, "0" * 32, "00000000-0000-0000-0000-000000000000"])
def test_c058_a_correlation_id_of_nothing_is_left_to_the_broker(nil: str | None) -> None:
    assert read(changed(correlation_id=nil)).context.correlation_id == ""


@pytest.mark.parametrize("bad", ["x\r\nSet-Cookie: a=1", "x" * 16_384, "a\u2028b", "\x1b[31m", "x" * 201])
def test_c087_a_correlation_id_that_would_break_a_line_or_is_over_long_is_refused(bad: str) -> None:
    found = faults(changed(correlation_id=bad))
    assert set(found) == {"correlation_id"}
    assert len(found["correlation_id"]) < 100


# --- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline", "after_now"),
    [
        ("2027-01-15T13:30:00+05:30", 0),
        ("2027-01-14T21:00:00-11:00", 0),
        ("2027-01-15T08:00:00Z", 0),
        ("2027-01-15t08:00:00.5z", 0.5),
        ("2027-01-15T08:00:00.500000-00:00", 0.5),
    ],
)
def test_c086_the_same_instant_is_the_same_deadline(deadline: str, after_now: float) -> None:
    package = read_package(metadata(changed(deadline=deadline)), None, now=NOW - 60)
    assert package is not None
    assert package.options.deadline_at == NOW + after_now


@pytest.mark.parametrize(
    "deadline",
    [
        "2030-01-01T00:00:00",
        "2030-01-01",
        "2030-02-30T00:00:00Z",
        "2030-W01-1T00:00:00Z",
        "20300101T000000Z",
        "tomorrow",
        "",
        1_900_000_000,
        1_900_000_000.5,
        "1900000000",
        "2030-01-01T25:00:00Z",
        "2030-01-01T00:00:00+25:00",
    ],
)
def test_c086_a_deadline_without_offset_or_off_the_calendar_is_refused(deadline: object) -> None:
    assert "RFC 3339" in faults(changed(deadline=deadline))["deadline"]


@pytest.mark.parametrize(
    "deadline", ["2027-01-15T08:00:00Z", "0001-01-01T00:00:00+14:00", "1969-12-31T00:00:00Z"]
)
def test_c086_a_deadline_in_the_past_is_refused(deadline: str) -> None:
    assert faults(changed(deadline=deadline)) == {"deadline": "is in the past"}


@pytest.mark.parametrize("deadline", ["9999-12-31T23:59:59-11:00", "2027-01-22T08:00:00.001Z"])
def test_c086_a_deadline_beyond_seven_days_is_brought_forward_with_a_warning(deadline: str) -> None:
    package = read(changed(deadline=deadline))
    assert package.options.deadline_at == NOW + 7 * DAY
    assert package.warnings == ("deadline: brought forward to 2027-01-22T08:00:00.000Z, the latest allowed",)


def test_instants_are_written_in_utc_with_milliseconds() -> None:
    assert write_instant(NOW + 0.25) == "2027-01-15T08:00:00.250Z"


def test_an_invalid_traceparent_is_ignored_with_a_warning_as_w3c_asks() -> None:
    package = read(changed(traceparent="00-zz-zz-01"))
    assert package.options.traceparent == ""
    assert package.warnings == ("traceparent: not valid (W3C Trace Context), ignored",)


# --- an update of the parent ---------------------------------------------------------------------


def test_an_update_takes_from_the_parent_what_it_leaves_out() -> None:
    parent = read(FULL).context
    package = read_context(b'{"target_agent": "c", "key_facts": {"n": 1}}', path="x", now=NOW, parent=parent)
    assert package.context == replace(
        parent,
        source_agent="",
        target_agent="c",
        handoff_reason=Reason.SPECIALIZATION,
        key_facts=b'{"n": 1}',
        context_ref="",
        hop_count=0,
        handoff_chain=(),
        extra=b"{}",
    )


def test_an_update_that_is_wrong_is_refused_all_the_same() -> None:
    with pytest.raises(HandoffError) as error:
        read_context(b'{"key_facts": 1, "user_intent": 2}', path="", now=NOW, parent=read(FULL).context)
    assert [fault.field for fault in error.value.violations] == ["user_intent", "key_facts"]


# --- writing -------------------------------------------------------------------------------------


def written(
    package: Package, stamp: Stamp | None = None, context: HandoffContext | None = None
) -> dict[str, Any]:
    return json.loads(write_context(package, stamp or Stamp(), context))


def test_a_delivered_package_has_all_twelve_fields_first() -> None:
    assert list(written(read(MINIMAL))) == list(CONTEXT_FIELDS)


def test_a_package_comes_out_as_it_went_in_but_for_what_stays_with_the_broker() -> None:
    kept_back = {"parent_handoff_id", "transcript", "deadline", "traceparent"}
    assert written(read(FULL)) == {name: value for name, value in FULL.items() if name not in kept_back}


def test_c085_numbers_keep_their_digits() -> None:
    raw = b'{"hop":1,"big":9007199254740993,"amount":12345678901234567890,"f":1.10,"e":1e999}'
    body = b'{"conversation_summary":"s","user_intent":"i","key_facts":%b,"task_progress":%b,"own":%b}'
    out = write_context(read(body % (raw, raw, raw)), Stamp())
    assert out.count(raw) == 3


def test_c088_zero_false_empty_and_null_are_values() -> None:
    raw = b'{"priority":0,"dry_run":false,"note":"","tags":[],"opt":null,"nested":{"z":{}}}'
    body = b'{"conversation_summary":"s","user_intent":"i","key_facts":%b,"own":%b,"none":null,"empty":""}'
    members = members_of(write_context(read(body % (raw, raw)), Stamp()))
    assert members is not None
    assert bytes(members["key_facts"]) == bytes(members["own"]) == raw
    assert bytes(members["none"]) == b"null"
    assert bytes(members["empty"]) == b'""'


def test_c083_text_keeps_its_code_points_and_is_not_escaped() -> None:
    text = "订单 🧪\u200d🦰 مرحبا"
    out = write_context(read(changed(user_intent=text)), Stamp())
    assert text.encode() in out


def test_what_the_broker_adds_is_stamped_on() -> None:
    stamp = Stamp(
        handoff_id="h",
        offer_id="o",
        attempt=2,
        ack_wait_s=5,
        traceparent=TRACEPARENT,
        deadline_at=NOW,
        dropped=(Dropped(part="key_facts", unit="member", count=1, bytes=9, tokens=3, names=("k",)),),
        warnings=("careful",),
    )
    out = written(read(MINIMAL), stamp)
    assert {name: out[name] for name in out if name not in CONTEXT_FIELDS} == {
        "handoff_id": "h",
        "offer_id": "o",
        "attempt": 2,
        "ack_wait_s": 5,
        "traceparent": TRACEPARENT,
        "deadline": "2027-01-15T08:00:00.000Z",
        "context_dropped": [
            {"part": "key_facts", "unit": "member", "count": 1, "bytes": 9, "tokens": 3, "names": ["k"]}
        ],
        "warnings": ["careful"],
    }


def test_stamps_of_an_earlier_hop_are_not_passed_on_in_a_copied_package() -> None:
    stamp = Stamp(
        handoff_id="h1", offer_id="o1", attempt=3, ack_wait_s=5, traceparent=TRACEPARENT, warnings=("w",)
    )
    received = write_context(read(FULL), stamp)
    again = written(read(received), Stamp(handoff_id="h2"))
    assert again["handoff_id"] == "h2"
    assert not {"offer_id", "attempt", "ack_wait_s", "traceparent", "warnings"} & again.keys()


def test_a_cut_context_stands_in_for_the_packages_own() -> None:
    package = read(FULL)
    cut = replace(package.context, conversation_summary="short", target_agent="other", hop_count=3)
    out = written(package, context=cut)
    assert (out["conversation_summary"], out["target_agent"], out["hop_count"]) == ("short", "other", 3)


def test_what_was_never_json_is_written_from_its_values() -> None:
    package = Package(
        context=HandoffContext(
            correlation_id="c", source_agent="a", conversation_summary="s", user_intent="i"
        ),
        requirements=Requirements(capabilities=("x",)),
        signals=Signals(risk_level=0.0),
        options=HandoffOptions(mode=Mode.TRANSFER, priority=Priority.LOW, replay_safe=True, fallback=("b",)),
    )
    out = written(package)
    assert {name: out[name] for name in out if name not in CONTEXT_FIELDS} == {
        "requirements": {"capabilities": ["x"]},
        "signals": {"risk_level": 0.0},
        "mode": "transfer",
        "priority": "low",
        "fallback": ["b"],
        "replay_safe": True,
    }


# --- made from a message -------------------------------------------------------------------------


def test_a_plain_message_gets_a_minimal_context_that_is_marked() -> None:
    package = synthesize(
        b'{"parts": [{"text": "Pay it."}, {"data": {"a": 1}}, {"text": "Today."}]}',
        source_agent="a",
        target_agent="b",
        correlation_id="c",
    )
    assert package.context == HandoffContext(
        correlation_id="c",
        source_agent="a",
        target_agent="b",
        conversation_summary="Pay it.\nToday.",
        user_intent="Pay it.\nToday.",
    )
    assert written(package)["synthesized"] is True


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        (b'{"parts": [{"text": ""}]}', "A message without text (1 part)."),
        (b'{"parts": [{"data": 1}, {"url": "u"}]}', "A message without text (2 parts)."),
        (b'{"parts": []}', "A message without text (0 parts)."),
        (b'{"parts": [{"text": 5}]}', "A message without text (0 parts)."),
        (b"not json", "A message without text (0 parts)."),
    ],
)
def test_c021_a_message_without_text_is_described_by_its_parts(message: bytes, summary: str) -> None:
    context = synthesize(message, source_agent="a").context
    assert context.conversation_summary == context.user_intent == summary


@given(st.lists(st.text(max_size=3000), max_size=4))
def test_a_synthesized_context_is_always_valid_and_needs_no_count(texts: list[str]) -> None:
    message = msgspec.json.encode({"parts": [{"text": text} for text in texts]})
    package = synthesize(message, source_agent="a")
    assert len(package.context.conversation_summary.encode()) + len(package.context.key_facts) <= 2_000
    again = read(write_context(package, Stamp()))
    assert again.context == package.context


# --- laws ----------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
known_names = st.sampled_from([*FULL, "handoff_id", "attempt", "own"])


def outcome(body: object) -> Package | HandoffError:
    try:
        return read(body)
    except HandoffError as error:
        return error


@given(st.dictionaries(known_names, json_values, max_size=12))
def test_whatever_is_sent_is_read_or_refused_with_its_faults(members: dict[str, Any]) -> None:
    found = outcome({**FULL, **members})
    if isinstance(found, HandoffError):
        assert found.code is Code.INVALID_CONTEXT
        assert found.violations
        assert all(fault.field.startswith("metadata.handoff_context") for fault in found.violations)
    else:
        assert not {name for name in MINIMAL if members.get(name, 1) is None}
        assert read(write_context(found, Stamp())).context == found.context


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5))
def test_unknown_members_come_out_byte_for_byte(own: dict[str, Any]) -> None:
    own = {name: value for name, value in own.items() if name not in FULL and name not in STAMPS}
    raw = {name: json.dumps(value).encode() for name, value in own.items()}
    body = msgspec.json.encode({**MINIMAL, **{name: Raw(value) for name, value in raw.items()}})
    out = members_of(write_context(read(body), Stamp()))
    assert out is not None
    assert {name: bytes(out[name]) for name in own} == raw


@given(json_values, json_values)
def test_same_json_is_equality_of_values(one: object, other: object) -> None:
    assert same_json(json.dumps(one).encode(), json.dumps(one, indent=2, ensure_ascii=False).encode())
    if same_json(json.dumps(one).encode(), json.dumps(other).encode()):
        assert one == other


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", "1.0", True),
        ("100", "1e2", True),
        ("-0", "0.0", True),
        ("0.10", "1e-1", True),
        ("9007199254740993", "9007199254740992", False),
        ("1e400", "1e401", False),
        ("1e400", "10e399", True),
        ("1", "true", False),
        ("1", '"1"', False),
        ("0", "null", False),
        ("[1,2]", "[2,1]", False),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', True),
        ("1" * 5000, "1" * 5000 + ".0", True),
        ("1e99999999999999999999", "1e99999999999999999998", False),
    ],
)
def test_numbers_are_compared_exactly(one: str, other: str, same: bool) -> None:
    assert same_json(one.encode(), other.encode()) is same
