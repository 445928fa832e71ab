"""The native JSON shapes: three ways to ask for a handoff, payloads byte for byte, answers from core objects."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from a2a_handoff.core.agents import Agent, AgentView, Binding, Generation, Interface, Readiness, Role
from a2a_handoff.core.context import HandoffContext, HandoffOptions, Package
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import (
    Candidate,
    HandoffAcknowledged,
    HandoffOffered,
    HandoffRequested,
    HandoffReturned,
    Outcome,
    PassedOver,
    Resolution,
    State,
)
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.tracing import HopTrace, ParentSource
from a2a_handoff.ports import Chain, Recorded
from a2a_handoff.wire.context import read_context
from a2a_handoff.wire.faults import problem
from a2a_handoff.wire.native import (
    ActionIn,
    AgentIn,
    BroadcastIn,
    EventOut,
    HandoffIn,
    HandoffOut,
    HeartbeatIn,
    Problem,
    decode,
    encode,
)
from a2a_handoff.wire.native.views import (
    STATUS_WORDS,
    agent_out,
    chain_out,
    cursor_of,
    event_out,
    handoff_out,
    read_cursor,
    resolution_out,
)

NUMBERS = b'{"one": 1.10, "big": 123456789012345678901234567890.5, "none": null}'


# --- a new handoff -------------------------------------------------------------------------------


def context_of(body: bytes) -> dict[str, object]:
    return json.loads(decode(HandoffIn, body).handoff_context())


def test_the_first_source_shape_gives_intent_summary_and_facts() -> None:
    asked = decode(
        HandoffIn,
        b'{"targetAgent":"cursor","task":"Review it","context":{"files":["a.ts"]},"priority":"high"}',
    )
    assert json.loads(asked.handoff_context()) == {
        "target_agent": "cursor",
        "priority": "high",
        "key_facts": {"files": ["a.ts"]},
        "user_intent": "Review it",
        "conversation_summary": "Review it",
    }
    assert json.loads(asked.message_json("m1")) == {
        "messageId": "m1",
        "role": "ROLE_USER",
        "parts": [{"text": "Review it"}, {"data": {"context": {"files": ["a.ts"]}}}],
    }
    assert asked.workspace == "default"


def test_the_second_source_shape_gives_sender_type_steps_and_workspace() -> None:
    asked = decode(
        HandoffIn,
        b'{"fromAgent":"cowork","toAgentType":"code","toAgentId":"c1","type":"implementation",'
        b'"summary":"Review it","tasks":[{"description":"Check"}],"workspace":"editor2"}',
    )
    assert json.loads(asked.handoff_context()) == {
        "source_agent": "cowork",
        "target_agent": "c1",
        "requirements": {"agent_type": "code"},
        "key_facts": {"type": "implementation", "tasks": [{"description": "Check"}]},
        "user_intent": "Review it",
        "conversation_summary": "Review it",
    }
    assert asked.workspace == "editor2"


def test_a_whole_context_stands_in_for_what_is_not_given_beside_it() -> None:
    asked = context_of(
        b'{"task":"T","priority":"low","context":{"user_intent":"I","key_facts":{"a":1},"priority":"high"}}'
    )
    assert asked == {
        "user_intent": "I",
        "conversation_summary": "T",
        "key_facts": {"a": 1},
        "priority": "low",
    }


def test_the_text_of_a_message_gives_intent_and_summary() -> None:
    body = (
        b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"one"},{"data":1},{"text":"two"}]}}'
    )
    asked = decode(HandoffIn, body)
    assert asked.message_json("other") == body[len(b'{"message":') : -1]
    assert json.loads(asked.handoff_context())["user_intent"] == "one\ntwo"


def test_a_message_may_be_its_text() -> None:
    asked = decode(HandoffIn, b'{"message":"do it","context_id":"c"}')
    assert json.loads(asked.message_json("m")) == {
        "messageId": "m",
        "role": "ROLE_USER",
        "parts": [{"text": "do it"}],
        "contextId": "c",
    }


def test_a_handoff_without_any_task_is_refused_where_it_is_missing() -> None:
    with pytest.raises(HandoffError) as caught:
        decode(HandoffIn, b'{"targetAgent":"x"}').message_json("m")
    assert caught.value.code is Code.INVALID_PARAMS
    assert caught.value.violations[0].field == "task"


@pytest.mark.parametrize("where", [b'"context":%s', b'"key_facts":%s', b'"context":{"key_facts":%s}'])
def test_facts_stay_byte_for_byte(where: bytes) -> None:
    asked = decode(HandoffIn, b'{"task":"t",' + where % NUMBERS + b"}")
    facts = bytes(msgspec.json.decode(asked.handoff_context(), type=dict[str, msgspec.Raw])["key_facts"])
    assert b"1.10" in facts
    assert b"123456789012345678901234567890.5" in facts
    assert b"null" in facts


@pytest.mark.parametrize(
    "body",
    [
        b'{"task":"t"}',
        b'{"summary":"t","tasks":[],"type":"x","toAgentType":"browser"}',
        b'{"message":"t","fallback":["a"],"replay_safe":true,"mode":"delegate","wait_for_agent":3}',
    ],
)
def test_what_the_shapes_amount_to_is_a_handoff_context_without_fault(body: bytes) -> None:
    package = read_context(decode(HandoffIn, body).handoff_context(), path="body", now=0.0)
    assert package.context.user_intent == "t"


def test_wrong_values_inside_pass_through_to_the_one_place_that_judges_them() -> None:
    asked = decode(
        HandoffIn,
        b'{"task":"t","agent_type":"x","context":{"user_intent":1,"key_facts":"no","requirements":7}}',
    )
    with pytest.raises(HandoffError) as caught:
        read_context(asked.handoff_context(), path="body", now=0.0)
    assert {v.field for v in caught.value.violations} == {
        "body.user_intent",
        "body.key_facts",
        "body.requirements",
    }


def test_unknown_fields_are_known_by_name_so_that_an_answer_can_warn() -> None:
    assert decode(HandoffIn, b'{"task":"t","replay_saef":true}').unknown_fields == ("replay_saef",)


# --- other bodies --------------------------------------------------------------------------------


def test_a_registration_reads_both_spellings_and_keeps_the_card() -> None:
    card = b'{"name": "X", "n": 1.10}'
    asked = decode(
        AgentIn,
        b'{"agentId":"x","platform":"external","sessionNumber":3,"capabilities":{"canBrowse":true,'
        b'"canTestUI":false,"domains":["shop"]},"card":' + card + b"}",
    )
    registration = asked.registration()
    assert registration.agent_id == "x"
    assert registration.session_number == 3
    assert registration.capabilities == {"canBrowse": True, "canTestUI": False}
    assert registration.domains == ("shop",)
    assert registration.card == card


def test_a_capability_that_is_no_switch_is_refused_by_name() -> None:
    asked = decode(AgentIn, b'{"agent_id":"x","capabilities":{"canBrowse":["a"],"domains":true}}')
    with pytest.raises(HandoffError) as caught:
        asked.registration()
    assert [v.field for v in caught.value.violations] == ["capabilities.canBrowse", "capabilities.domains"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"agent_id":7}', "agent_id"),
        (b'{"agent_id":"x","role":"king"}', "role"),
        (b'{"agent_id":"x","card":"no"}', "card"),
        (b'{"agent_id":"x","max_concurrency":0}', "max_concurrency"),
    ],
)
def test_each_wrong_field_of_a_registration_is_one_violation(body: bytes, field: str) -> None:
    with pytest.raises(HandoffError) as caught:
        decode(AgentIn, body)
    assert caught.value.code is Code.INVALID_PARAMS
    (violation,) = caught.value.violations
    assert violation.field in (field, "agentId")
    assert "input" not in violation.description


@pytest.mark.parametrize("body", [b"[1]", b"{", b"nul", b'"x"', b"\xff"])
def test_a_body_that_is_no_object_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(HandoffError) as caught:
        decode(HeartbeatIn, body)
    assert caught.value.code is Code.PARSE_ERROR


def test_an_empty_body_and_nulls_mean_the_defaults() -> None:
    assert decode(HeartbeatIn, b"") == decode(HeartbeatIn, b'{"status":null,"in_flight":null}')
    assert decode(ActionIn, b'{"attempt":null,"result":null,"message":null}').artifact_jsons("r") == ()


def test_a_result_becomes_an_artifact_after_those_that_were_given() -> None:
    asked = decode(ActionIn, b'{"result":"done","artifacts":[{"artifactId":"a","parts":[{"data":1.0}]}]}')
    first, last = asked.artifact_jsons("r")
    assert first == b'{"artifactId":"a","parts":[{"data":1.0}]}'
    assert json.loads(last) == {"artifactId": "r", "name": "result", "parts": [{"text": "done"}]}


def test_a_result_that_is_not_text_becomes_data_with_its_numbers_as_they_came() -> None:
    (artifact,) = decode(ActionIn, b'{"result":' + NUMBERS + b"}").artifact_jsons("r")
    assert b'{"data":' + NUMBERS + b"}" in artifact


def test_what_an_agent_says_may_be_text_or_a_message() -> None:
    assert json.loads(decode(ActionIn, b'{"message":"hi"}').message_json("m")) == {
        "messageId": "m",
        "role": "ROLE_AGENT",
        "parts": [{"text": "hi"}],
    }
    whole = b'{"messageId":"x", "role":"ROLE_AGENT","parts":[{"text":"hi"}]}'
    assert decode(ActionIn, b'{"message":%b}' % whole).message_json("m") == whole
    assert json.loads(decode(ActionIn, b'{"message":{"parts":[{"text":"hi"}]}}').message_json("m")) == {
        "messageId": "m",
        "role": "ROLE_AGENT",
        "parts": [{"text": "hi"}],
    }
    assert decode(ActionIn, b"{}").message_json("m") == b""


def test_a_broadcast_needs_channel_and_message() -> None:
    with pytest.raises(HandoffError) as caught:
        decode(BroadcastIn, b'{"data":{}}')
    assert [v.field for v in caught.value.violations] == ["channel", "message"]


@pytest.mark.parametrize(
    "model", [AgentIn, HandoffIn, ActionIn, HeartbeatIn, BroadcastIn, HandoffOut, EventOut]
)
def test_every_shape_has_an_openapi_schema_with_meanings(model: type[HandoffIn]) -> None:
    schema = model.model_json_schema()
    assert schema["type"] == "object"
    assert schema["description"]
    if model is HandoffIn:
        assert all(field.get("description") for field in schema["properties"].values())


# --- answers -------------------------------------------------------------------------------------


def requested(**changes: object) -> HandoffRequested:
    context = HandoffContext(
        correlation_id="order-1",
        source_agent="alice",
        conversation_summary="S",
        user_intent="I",
        key_facts=NUMBERS,
        handoff_chain=("alice",),
    )
    package = Package(
        context=context, options=HandoffOptions(transcript=b'["secret"]'), tokens=7, warnings=("w",)
    )
    fields: dict[str, object] = {
        "at": 1_000.5,
        "handoff_id": "h1",
        "tenant": "default",
        "sender": "alice",
        "context_id": "c1",
        "message": b'{"messageId":"m","role":"ROLE_USER","parts":[{"text":"I"}]}',
        "message_id": "m",
        "request_metadata": b"",
        "extensions": (),
        "package": package,
        "resolution": Resolution(
            candidates=(Candidate(agent_id="bob", readiness=Readiness.PULL, reasons=("skill",)),),
            passed_over=(PassedOver(agent_id="carl", reason="no canBrowse", near=True),),
            rule="billing",
        ),
        "policy": Policy(),
        "trace": HopTrace(
            trace_id="ab" * 16,
            sampled=True,
            hop_span_id="cd" * 8,
            route_span_id="ef" * 8,
            parent_span_id="01" * 8,
            parent_source=ParentSource.ROOT,
        ),
        "deadline_at": 2_000.0,
    }
    return HandoffRequested(**(fields | changes))  # pyright: ignore[reportArgumentType]


def acknowledged() -> Handoff:
    offered = HandoffOffered(
        at=1_001.0, attempt=1, agent_id="bob", offer_id="o1", span_id="aa" * 8, readiness=Readiness.PULL
    )
    handoff = evolve(None, requested())
    handoff = evolve(handoff, offered)
    return evolve(handoff, HandoffAcknowledged(at=1_002.0, attempt=1, agent_id="bob"))


def test_a_handoff_is_shown_with_its_state_in_old_and_new_words() -> None:
    shown = json.loads(
        encode(handoff_out(acknowledged(), requested(), trace_url="http://j/t", tokenizer="bpe"))
    )
    assert shown["state"] == "acknowledged"
    assert shown["status"] == "accepted"
    assert shown["owner"] == "target"
    assert shown["assigned_to"] == "bob"
    assert shown["handoff_chain"] == ["alice", "bob"]
    assert shown["hop_count"] == 1
    assert shown["trace_id"] == "ab" * 16
    assert shown["created_at"] == "1970-01-01T00:16:40.500Z"
    assert (shown["tokens"], shown["tokenizer"], shown["warnings"]) == (7, "bpe", ["w"])
    assert shown["attempts"][0]["agent_id"] == "bob"
    assert shown["attempts"][0]["acked_at"] == "1970-01-01T00:16:42.000Z"
    assert shown["passed_over"] == [{"agent_id": "carl", "reason": "no canBrowse", "near": True}]


def test_context_and_message_of_a_handoff_are_shown_byte_for_byte() -> None:
    written = encode(handoff_out(acknowledged(), requested()))
    assert NUMBERS in written
    assert requested().message in written


def test_a_handoff_without_its_request_shows_what_the_state_alone_tells() -> None:
    shown = handoff_out(acknowledged())
    assert shown.message is None
    assert shown.task == ""


@pytest.mark.parametrize(
    ("artifacts", "message", "result"),
    [
        ((), b"", None),
        ((b'{"parts":[{"text":"one"}]}',), b"", "one"),
        ((b'{"parts":[{"data":{"a":1.0}}]}',), b'{"parts":[{"text":"bye"}]}', {"a": 1.0}),
        ((b'{"parts":[{"text":"a"},{"text":"b"}]}',), b'{"parts":[{"text":"bye"}]}', "ab"),
        ((b'{"parts":[{"text":"a"},{"url":"http://x"}]}',), b'{"parts":[{"text":"bye"}]}', "a\nbye"),
        ((), b'{"parts":[{"text":"bye"}]}', "bye"),
        ((b'{"parts":[{"url":"http://x"}]}',), b"", None),
    ],
)
def test_the_result_is_the_one_thing_that_was_made_or_else_all_that_was_said(
    artifacts: tuple[bytes, ...], message: bytes, result: object
) -> None:
    ended = replace(acknowledged(), state=State.COMPLETED)
    shown = json.loads(encode(handoff_out(ended, artifacts=artifacts, status_message=message)))
    assert shown["result"] == result


def test_what_is_said_on_the_way_is_no_result() -> None:
    said = b'{"parts":[{"text":"Handing the task to billing."}]}'
    shown = json.loads(encode(handoff_out(acknowledged(), status_message=said)))
    assert shown["result"] is None
    assert shown["status_message"] == json.loads(said)


def test_what_the_broker_says_of_a_return_is_no_result() -> None:
    returned = evolve(acknowledged(), HandoffReturned(at=1_003.0, outcome=Outcome.RELEASED, detail=""))
    shown = handoff_out(returned, status_message=b'{"parts":[{"text":"back"}]}')
    assert (shown.state, shown.result) == ("returned", None)


def test_every_state_has_an_older_word_and_every_end_is_an_end_in_it() -> None:
    assert set(STATUS_WORDS) == set(State)
    for state in State:
        assert (STATUS_WORDS[state] in {"completed", "failed", "cancelled"}) == state.terminal


def test_an_event_is_a_cloudevent_without_the_transcript() -> None:
    recorded = Recorded(handoff_id="h1", seq=1, position=42, event=requested())
    written = encode(event_out(recorded, acknowledged()))
    assert b"secret" not in written
    assert NUMBERS in written
    event = EventOut.model_validate_json(written)
    assert (event.id, event.type, event.subject) == ("h1/1", "a2a-handoff.handoff_requested", "h1")
    assert (event.seq, event.position, event.time) == (1, 42, "1970-01-01T00:16:40.500Z")
    assert event.correlationid == acknowledged().correlation_id
    assert json.loads(bytes(event.data))["resolution"]["rule"] == "billing"


def test_a_chain_is_as_far_as_the_handoff_that_carries_it() -> None:
    root = handoff_out(acknowledged()).model_copy(
        update={"state": "handed_off", "owner": "leaf", "leaf_id": "h2"}
    )
    leaf = handoff_out(acknowledged()).model_copy(
        update={"handoff_id": "h2", "assigned_to": "dora", "hop_count": 2}
    )
    chain = Chain(
        tenant="default",
        correlation_id="order-1",
        trace_id="ab" * 16,
        first_handoff_id="h1",
        started_at=1_000.0,
    )
    shown = chain_out(chain, [root, leaf])
    assert (shown.state, shown.owner, shown.hops) == ("acknowledged", "dora", 2)


def test_a_decision_shows_why_nobody_may() -> None:
    shown = resolution_out(Resolution(reason=Outcome.NO_CAPABLE_AGENT), warnings=["w"])
    assert (shown.candidates, shown.reason, shown.warnings) == ([], "no_capable_agent", ["w"])


def test_an_agent_shows_its_capabilities_as_a_registration_takes_them() -> None:
    agent = Agent(
        agent_id="x",
        tenant="default",
        role=Role.AGENT,
        capabilities=frozenset({"canBrowse"}),
        domains=("shop",),
        interfaces=(Interface(url="http://x/", binding=Binding.JSONRPC, generation=Generation.V0_3),),
        metadata=NUMBERS,
    )
    shown = agent_out(AgentView(agent=agent, in_flight=2))
    assert shown.capabilities == {"canBrowse": True, "domains": ["shop"]}
    assert shown.interfaces[0].protocol_version == "0.3"
    assert (shown.readiness, shown.in_flight) == ("probe", 2)
    assert NUMBERS in encode(shown)


def test_a_problem_is_read_as_it_is_written() -> None:
    refusal = problem(HandoffError(Code.CYCLE_DETECTED, facts={"path": "a,b"}), "/api/handoffs")
    read = Problem.model_validate_json(refusal.body)
    assert (read.code, read.status, read.facts) == ("cycle_detected", 409, {"path": "a,b"})


def test_a_cursor_comes_back_as_it_went() -> None:
    cursor = cursor_of((12.5, "h1"))
    assert cursor
    assert read_cursor(cursor) == (12.5, "h1")
    assert cursor_of(None) is None
    assert read_cursor("") is None


@pytest.mark.parametrize("cursor", ["abc", "-1", "999999", "WzFd", "\xfc", "é" * 3])
def test_a_foreign_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(HandoffError) as caught:
        read_cursor(cursor)
    assert caught.value.violations[0].field == "cursor"
