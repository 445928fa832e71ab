"""The spans of a handoff follow from its log."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness
from a2a_handoff.core.context import Dropped, Mode
from a2a_handoff.core.events import Outcome, State
from a2a_handoff.core.handoff import evolve
from a2a_handoff.core.signals import ATTRIBUTES, EVENTS, SPANS
from a2a_handoff.core.spans import SpanKind, span_of_holder, spans_of
from a2a_handoff.core.tracing import InboundTrace, root_span_id
from tests.telemetry.story import (
    AGENTS,
    CALLER,
    CHAIN,
    T0,
    Post,
    Story,
    orphans,
    roots,
    spans_of_step,
    tales,
)


def names(spans):
    return [span.name for span in spans]


def one(story, name, kind=None):
    (span,) = [s for s in story.spans_named(name) if kind in (None, s.kind)]
    return span


def test_a_straight_handoff_makes_seven_spans_in_one_tree():
    story = Story()
    h = story.request("agent-b")
    story.ack(h, score=0.9)
    story.do(h, cmd.Complete())
    assert Counter(names(story.spans)) == {
        "handoff_chain": 1,
        "POST /": 1,
        "route_handoff": 1,
        "handoff agent-b": 1,
        "invoke_agent agent-b": 2,
        "handoff_outcome agent-b": 1,
    }
    assert names(roots(story.spans)) == ["handoff_chain"]
    assert orphans(story.spans) == []


def test_the_tree_of_a_straight_handoff():
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    story.do(h, cmd.Complete())
    root, server = one(story, "handoff_chain"), one(story, "POST /")
    hop = one(story, "handoff agent-b")
    client, agent = (one(story, "invoke_agent agent-b", k) for k in (SpanKind.CLIENT, SpanKind.SERVER))
    assert server.parent_span_id == root.span_id
    assert hop.parent_span_id == server.span_id
    assert one(story, "route_handoff").parent_span_id == hop.span_id
    assert client.parent_span_id == hop.span_id
    assert agent.parent_span_id == client.span_id
    assert agent.service == "agent-b"
    assert one(story, "handoff_outcome agent-b").parent_span_id == hop.span_id
    assert root.span_id == root_span_id(root.trace_id)


def test_the_handoff_ends_with_the_acceptance_and_the_agents_work_with_the_task():
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    story.do(h, cmd.Complete(), after_s=3600)
    hop, client = one(story, "handoff agent-b"), one(story, "invoke_agent agent-b", SpanKind.CLIENT)
    agent = one(story, "invoke_agent agent-b", SpanKind.SERVER)
    outcome = one(story, "handoff_outcome agent-b")
    assert hop.start == client.start == agent.start == T0 + 0.25
    assert hop.end == client.end == outcome.start == T0 + 0.75
    assert agent.end == outcome.end == T0 + 3600.75
    assert one(story, "handoff_chain").end - one(story, "handoff_chain").start < 1


def test_an_answer_that_is_acceptance_and_result_at_once_needs_no_outcome():
    story = Story()
    h = story.request("agent-b")
    story.do(h, cmd.Acknowledge(agent_id="agent-b", synthetic_span=False), cmd.Complete())
    assert names(story.spans) == [
        "handoff_chain", "POST /", "route_handoff", "invoke_agent agent-b", "handoff agent-b",
    ]  # fmt: skip


def test_a_failure_in_the_first_answer_is_shown_all_the_same():
    story = Story()
    h = story.request("agent-b")
    story.do(h, cmd.Acknowledge(agent_id="agent-b"), cmd.Fail(detail="no"))
    outcome = one(story, "handoff_outcome agent-b")
    assert outcome.failed
    assert outcome.attributes["error.type"] == "target_failed"
    assert not one(story, "handoff agent-b").failed


def test_an_agent_that_shows_its_own_work_gets_no_synthetic_span():
    story = Story()
    h = story.request("agent-b")
    story.ack(h, synthetic=False)
    story.do(h, cmd.Complete())
    assert names(story.spans).count("invoke_agent agent-b") == 1


def test_each_attempt_has_its_span_and_redeliveries_are_events_of_it():
    story = Story()
    h = story.request("agent-b", "agent-c")
    story.do(h, cmd.DeliveryFailed(attempt=1, outcome=Outcome.TIMEOUT, detail="", means=story.means()))
    story.do(
        h, cmd.DeliveryFailed(attempt=1, outcome=Outcome.TARGET_UNAVAILABLE, detail="", means=story.means())
    )
    story.ack(h)
    first = one(story, "invoke_agent agent-b")
    assert first.failed
    assert first.attributes["error.type"] == "target_unavailable"
    assert first.attributes["handoff.attempt.kind"] == "initial"
    assert [(e.name, e.attributes) for e in first.events] == [
        ("handoff.retry_scheduled", {"error.type": "timeout"})
    ]
    second = one(story, "invoke_agent agent-c")
    assert second.attributes["handoff.attempt.number"] == 2
    assert second.attributes["handoff.attempt.kind"] == "retry"
    hop = one(story, "handoff agent-c")
    assert not hop.failed
    assert [e.name for e in hop.events] == [
        "handoff.accepted", "handoff.routed", "handoff.dispatched", "handoff.rejected", "handoff.dispatched",
        "handoff.first_message",
    ]  # fmt: skip


def test_a_handoff_that_nobody_took_ends_in_error_with_the_cause():
    story = Story()
    h = story.request("agent-b")
    story.do(h, cmd.Decline(agent_id="agent-b", means=story.means("agent-b"), reason="busy with secrets"))
    story.do(h, cmd.Resolved(resolution=ev.Resolution(), means=story.means()))
    hop = one(story, "handoff agent-b")
    assert hop.failed
    assert hop.attributes["error.type"] == "target_rejected"
    assert names(story.spans).count("route_handoff") == 2
    assert len({s.span_id for s in story.spans}) == len(story.spans)


def test_a_handoff_without_candidates_has_no_target_in_its_name():
    story = Story()
    story.request()
    hop = one(story, "handoff")
    assert hop.failed
    assert hop.attributes["error.type"] == "no_capable_agent"
    assert one(story, "route_handoff").failed


def test_a_cancel_is_no_fault():
    story = Story()
    h = story.request("agent-b", readiness=Readiness.PULL)
    story.do(h, cmd.Cancel(by="agent-a"))
    hop, client = one(story, "handoff agent-b"), one(story, "invoke_agent agent-b")
    assert not hop.failed
    assert not client.failed
    assert hop.attributes["error.type"] == "canceled"


def test_an_offer_that_hangs_until_the_deadline_is_closed_with_the_handoff():
    story = Story()
    h = story.request("agent-b", readiness=Readiness.PERSON)
    story.do(h, cmd.Expire())
    assert one(story, "invoke_agent agent-b").attributes["error.type"] == "expired"
    assert "handoff.expired" in [e.name for e in one(story, "handoff agent-b").events]


def test_work_that_is_given_back_ends_the_agents_span_and_shows_the_outcome():
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    story.do(h, cmd.Release(agent_id="agent-b", reason="too hard"))
    agent = one(story, "invoke_agent agent-b", SpanKind.SERVER)
    assert agent.attributes["error.type"] == "released"
    assert one(story, "handoff_outcome agent-b").attributes["handoff.state"] == "returned"


def test_a_second_acceptance_after_a_lost_target_is_not_a_second_handoff():
    story = Story()
    h = story.request("agent-b", "agent-c")
    story.ack(h)
    ended = ev.AttemptEnded(at=story.now + 1, attempt=1, agent_id="agent-b", outcome=Outcome.TIMEOUT)
    offered = ev.HandoffOffered(
        at=story.now + 1,
        attempt=2,
        agent_id="agent-c",
        offer_id="o",
        span_id="c" * 16,
        readiness=Readiness.PROBE,
    )
    acked = ev.HandoffAcknowledged(at=story.now + 2, attempt=2, agent_id="agent-c")
    state, out = story.handoffs[h], []
    for event in (ended, offered, acked):
        after = evolve(state, event)
        out += spans_of(state, event, after, new_chain=False)
        state = after
    assert [(s.name, s.kind) for s in out] == [
        ("invoke_agent agent-b", SpanKind.SERVER),
        ("invoke_agent agent-c", SpanKind.CLIENT),
    ]


# --- chains --------------------------------------------------------------------------------------


def three_hops(*, silent: bool) -> Story:
    """a -> b -> c -> d; each hands on without a traceparent."""
    story = Story()
    h1 = story.request("agent-b", correlation_id=CHAIN)
    story.ack(h1, synthetic=silent)
    h2 = story.request("agent-c", sender="agent-b", parent=h1, mode=Mode.TRANSFER)
    story.hand_over(h2, h1, synthetic=silent)
    h3 = story.request("agent-d", sender="agent-c", parent=h2, mode=Mode.TRANSFER)
    story.hand_over(h3, h2, synthetic=silent)
    story.do(h3, cmd.Complete())
    story.do(h2, cmd.ChildOver(child_id=h3, state=State.COMPLETED))
    story.do(h1, cmd.ChildOver(child_id=h2, state=State.COMPLETED))
    return story


@pytest.mark.parametrize("silent", [True, False])
def test_a_chain_of_three_hops_is_one_trace_with_one_root_and_no_orphans(silent):
    story = three_hops(silent=silent)
    assert {span.trace_id for span in story.spans} == {CHAIN.replace("-", "")}
    assert names(roots(story.spans)) == ["handoff_chain"]
    assert orphans(story.spans) == []
    assert all(h.state is State.COMPLETED for h in story.handoffs.values())


def test_through_silent_agents_the_services_form_the_path_of_the_chain():
    story = three_hops(silent=True)
    by_id = {span.span_id: span for span in story.spans}
    edges = {
        (by_id[s.parent_span_id].service or "broker", s.service or "broker")
        for s in story.spans
        if s.parent_span_id and by_id[s.parent_span_id].service != s.service
    }
    assert edges == {
        ("broker", "agent-b"), ("agent-b", "broker"), ("broker", "agent-c"), ("agent-c", "broker"),
        ("broker", "agent-d"),
    }  # fmt: skip


def test_the_agents_span_of_a_handoff_that_was_handed_on_ends_with_the_switch():
    story = three_hops(silent=True)
    agent = one(story, "invoke_agent agent-b", SpanKind.SERVER)
    child_accepted = one(story, "handoff agent-c").end
    assert agent.end == child_accepted
    assert agent.attributes["handoff.state"] == "handed_off"


def test_a_second_handoff_of_the_chain_does_not_emit_the_root_again():
    story = Story()
    story.request("agent-b", correlation_id=CHAIN)
    story.request("agent-c", correlation_id=CHAIN)
    assert names(story.spans).count("handoff_chain") == 1


def test_c056_the_trace_of_the_caller_goes_on_to_the_target():
    story = Story()
    h = story.request("agent-b", inbound=InboundTrace(http=CALLER, trusted=True))
    story.ack(h)
    root, server = one(story, "handoff_chain"), one(story, "POST /")
    assert root.trace_id == server.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert root.parent_span_id == server.parent_span_id == "00f067aa0ba902b7"
    assert root.parent_remote
    assert server.parent_remote
    assert not one(story, "handoff agent-b").parent_remote
    assert story.handoffs[h].attempts[0].span_id == one(story, "invoke_agent agent-b").span_id


def test_a_foreign_trace_keeps_the_request_and_the_links_lead_both_ways():
    story = Story()
    h = story.request("agent-b", correlation_id=CHAIN, inbound=InboundTrace(http=CALLER, trusted=True))
    story.ack(h)
    server, hop = one(story, "POST /"), one(story, "handoff agent-b")
    assert server.trace_id == CALLER[3:35]
    assert [(k.trace_id, k.span_id) for k in server.links] == [(hop.trace_id, hop.span_id)]
    assert [(k.trace_id, k.span_id) for k in hop.links] == [(server.trace_id, server.span_id)]
    assert hop.parent_span_id == root_span_id(hop.trace_id)


def test_an_unsampled_chain_makes_no_spans_but_the_request_in_the_callers_trace():
    story = Story(ratio=0.0)
    h = story.request("agent-b", correlation_id=CHAIN, inbound=InboundTrace(http=CALLER, trusted=True))
    story.ack(h)
    story.do(h, cmd.Complete())
    assert names(story.spans) == ["POST /"]
    assert story.spans[0].links == ()


def test_a_directive_makes_no_server_span():
    story = Story()
    h1 = story.request("agent-b")
    story.ack(h1)
    h2 = story.request("agent-c", sender="agent-b", parent=h1, call=Post(started_at=0.0))
    story.ack(h2)
    hop = one(story, "handoff agent-c")
    holder = span_of_holder(story.handoffs[h1])
    assert holder is not None
    assert hop.parent_span_id == holder.span_id
    assert names(story.spans).count("POST /") == 1


def test_nobody_works_on_a_handoff_that_was_not_offered():
    story = Story()
    assert span_of_holder(story.handoffs[story.request()]) is None


# --- what is in them -----------------------------------------------------------------------------


def test_c060_the_number_of_spans_grows_with_attempts_and_never_with_output():
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    outputs = tuple(ev.Output(kind=ev.OutputKind.ARTIFACT, body=b"x") for _ in range(10))
    for _ in range(500):
        story.do(h, cmd.Progress(outputs=outputs))
    story.do(h, cmd.Complete())
    assert len(story.spans) == 7


def test_dropped_parts_of_the_context_leave_an_event():
    story = Story()
    gone = Dropped(part="conversation_summary", unit="segment", count=1, bytes=40)
    story.request("agent-b", dropped=(gone,))
    assert [e.name for e in one(story, "route_handoff").events] == ["handoff.context.truncated"]


def test_no_body_no_free_text_and_no_path_is_in_a_span():
    story = three_hops(silent=True)
    shown = repr(story.spans).lower()
    for word in ("secret", "nobody may read"):
        assert word not in shown


# --- laws ----------------------------------------------------------------------------------------

T = TypeVar("T")
KNOWN_NAMES = {row.name for row in SPANS}
KNOWN_ATTRIBUTES = {row.name for row in ATTRIBUTES}
KNOWN_EVENTS = {row.name for row in EVENTS}


@given(tales())
@settings(deadline=None, max_examples=300)
def test_every_tale_is_one_trace_with_one_root_no_orphan_and_no_span_twice(story):
    spans = story.spans
    chain = {h.trace.trace_id for h in story.handoffs.values()}
    assert len(chain) == 1
    inside = [span for span in spans if span.trace_id in chain]
    assert names(inside).count("handoff_chain") == 1
    tops = [span for span in inside if not span.parent_span_id or span.parent_remote]
    assert {span.name for span in tops} <= {"handoff_chain", "POST /"}
    assert len({span.parent_span_id for span in tops}) == 1
    assert orphans(spans) == []
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    hops = Counter(
        span.span_id for span in spans if span.name.startswith("handoff agent") or span.name == "handoff"
    )
    assert hops == Counter(h.trace.hop_span_id for h in story.handoffs.values())
    attempts = [a.span_id for h in story.handoffs.values() for a in h.attempts]
    clients = [span.span_id for span in spans if span.kind is SpanKind.CLIENT]
    assert Counter(clients) == Counter(attempts)


@given(tales())
@settings(deadline=None, max_examples=100)
def test_every_tale_speaks_only_the_published_names(story):
    for span in story.spans:
        template = span.name
        for agent in AGENTS:
            template = template.replace(agent, "{target}")
        template = template.replace("POST /", "{method} {http.route}")
        template = "handoff {target}" if template == "handoff" else template
        assert template in KNOWN_NAMES
        assert set(span.attributes) <= KNOWN_ATTRIBUTES
        assert span.start <= span.end
        for event in span.events:
            assert event.name in KNOWN_EVENTS
            assert set(event.attributes) <= KNOWN_ATTRIBUTES
            assert span.start <= event.at <= span.end
        for link in span.links:
            assert set(link.attributes) <= KNOWN_ATTRIBUTES
        assert span.failed <= ("error.type" in span.attributes)


@given(tales())
@settings(deadline=None, max_examples=50)
def test_spans_of_a_log_read_back_are_the_same_bytes(story):
    for step in story.steps:
        again = spans_of(
            step.before and read_back(step.before),
            read_back(step.event),
            read_back(step.after),
            new_chain=step.new_chain,
        )
        assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(spans_of_step(step))


def read_back(what: T) -> T:
    """As it comes out of a store."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(what), type=type(what))
