"""The spans of a handoff, derived from its committed events and from nothing else.

Duty: ``spans_of(before, event, after)`` gives the spans that an event completes.
Rules: a span is emitted once, when the event that ends it is committed. Ids and times come from the
log, further ids are hashes of those, so exporting again after a crash gives the same bytes. A parent is
emitted by the same or an earlier event, or is the span of an agent at work, which is emitted when that
work ends. The number of spans of a handoff grows with its attempts, never with its output.
Not here: names and meanings (``signals``), parents of hops (``tracing``), exporting (``telemetry``).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from a2a_handoff.core import events as ev
from a2a_handoff.core.events import Event, Outcome, State
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.core.tracing import HopTrace, ParentSource, SpanRef, agent_span_id, derived_span_id

_CHAIN_SHOWN = 16
_ID_SHOWN = 128

#: Stands for the HTTP method where a request came over gRPC; its route is service and method.
GRPC = "gRPC"

#: How an ended handoff looks as an A2A task.
TASK_STATES = {
    State.COMPLETED: "TASK_STATE_COMPLETED",
    State.FAILED: "TASK_STATE_FAILED",
    State.CANCELED: "TASK_STATE_CANCELED",
    State.RETURNED: "TASK_STATE_REJECTED",
    State.EXPIRED: "TASK_STATE_FAILED",
}

AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, AttributeValue]


class SpanKind(StrEnum):
    """The kinds of OpenTelemetry that occur here."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened within a span. ``at`` is epoch seconds."""

    name: str
    at: float
    attributes: Attributes = {}


class SpanLink(msgspec.Struct, frozen=True):
    """A span in another trace."""

    trace_id: str
    span_id: str
    attributes: Attributes


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished span.

    Ids are lower-case hex. ``parent_span_id`` is empty for a root; ``parent_remote`` if the parent came
    in a ``traceparent``. Times are epoch seconds. ``service`` is the agent that a synthetic span
    stands for, empty for the broker itself. ``failed`` sets the status to error.
    """

    name: str
    kind: SpanKind
    trace_id: str
    span_id: str
    parent_span_id: str
    start: float
    end: float
    attributes: Attributes
    parent_remote: bool = False
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    failed: bool = False
    service: str = ""


def spans_of(
    before: Handoff | None, event: Event, after: Handoff, *, new_chain: bool
) -> tuple[SpanRecord, ...]:
    """The spans that ``event`` completes; ``before`` and ``after`` are the states around it.

    ``new_chain``: the handoff started its chain, so its request emits the root.
    """
    if isinstance(event, ev.HandoffRequested):
        return _requested(event, after, new_chain=new_chain)
    if before is None or not after.trace.sampled:
        return ()
    match event:
        case ev.CandidatesResolved(at=at, resolution=resolution):
            span_id = derived_span_id(after.trace.route_span_id, f"route {before.version}")
            return (_route(after, resolution, span_id, at),)
        case ev.HandoffAcknowledged(at=at):
            invoke = _invoke(after, after.attempts[-1], at, None)
            return (invoke,) if before.acked_at is not None else (invoke, _hop(after, at))
        case ev.AttemptEnded(at=at, outcome=outcome):
            attempt = before.attempts[-1]
            if attempt.acked_at is None:
                return (_invoke(after, attempt, at, outcome),)
            return _agent(after, attempt, at, outcome)
        case ev.HandedOff(at=at):
            return _agent(after, after.attempts[-1], at, None)
        case (
            ev.HandoffCompleted(at=at)
            | ev.HandoffFailed(at=at)
            | ev.HandoffCanceled(at=at)
            | ev.HandoffReturned(at=at)
            | ev.HandoffExpired(at=at)
        ):
            return _ended(before, after, at)
        case _:
            return ()


def span_of_holder(handoff: Handoff) -> SpanRef | None:
    """The span under which the agent that holds the task works; ``None`` if nobody was asked yet.

    What the agent sends without a ``traceparent`` hangs below it.
    """
    attempt = handoff.attempt
    if attempt is None:
        return None
    span_id = agent_span_id(attempt.span_id) if attempt.synthetic_span else attempt.span_id
    return SpanRef(trace_id=handoff.trace.trace_id, span_id=span_id, sampled=handoff.trace.sampled)


def server_attributes(
    *, method: str, route: str, rpc_method: str = "", protocol_version: str = "", task_id: str = ""
) -> Attributes:
    """What every server span shows of its request, whoever makes it."""
    if method == GRPC:
        out: Attributes = {"rpc.system.name": "grpc", "rpc.method": route or "_OTHER"}
    else:
        out = {"http.request.method": method}
        if route:
            out["http.route"] = route
    if rpc_method:
        out["a2a.method.name"] = rpc_method
        if task_id:
            out["a2a.task.id"] = task_id
    if protocol_version:
        out["a2a.protocol.version"] = protocol_version
    return out


def server_name(method: str, route: str) -> str:
    """The name of a server span (HTTP conventions: the method alone if no route matched)."""
    if method == GRPC:
        return route or "grpc"
    shown = "HTTP" if method == "_OTHER" else method
    return f"{shown} {route}" if route else shown


# --- at the request ------------------------------------------------------------------------------


def _requested(event: ev.HandoffRequested, h: Handoff, *, new_chain: bool) -> tuple[SpanRecord, ...]:
    trace, at = event.trace, event.at
    out: list[SpanRecord] = []
    if new_chain and trace.sampled:
        out.append(_root(event, h))
    if trace.server is not None and trace.server.span.sampled:
        out.append(_server(event, trace))
    if trace.sampled:
        out.append(_route(h, event.resolution, trace.route_span_id, at, event))
    return tuple(out)


def _root(event: ev.HandoffRequested, h: Handoff) -> SpanRecord:
    trace = event.trace
    started_at = trace.server.started_at if trace.server else event.resolution.started_at or event.at
    return SpanRecord(
        name="handoff_chain",
        kind=SpanKind.INTERNAL,
        trace_id=trace.trace_id,
        span_id=trace.root_span_id,
        parent_span_id=trace.root_parent.span_id if trace.root_parent else "",
        parent_remote=trace.root_parent is not None,
        start=min(started_at, event.at),
        end=event.at,
        attributes=_named(h),
    )


def _server(event: ev.HandoffRequested, trace: HopTrace) -> SpanRecord:
    server = trace.server
    assert server is not None
    foreign = server.span.trace_id != trace.trace_id
    attributes = server_attributes(
        method=server.method,
        route=server.route,
        rpc_method=server.rpc_method,
        protocol_version=server.protocol_version,
        task_id=event.handoff_id,
    )
    attributes["handoff.id"] = event.handoff_id
    attributes["handoff.correlation_id"] = event.package.context.correlation_id
    back = SpanLink(trace.trace_id, trace.hop_span_id, {"handoff.link.type": "chain"})
    return SpanRecord(
        name=server_name(server.method, server.route),
        kind=SpanKind.SERVER,
        trace_id=server.span.trace_id,
        span_id=server.span.span_id,
        parent_span_id=server.parent_span_id,
        parent_remote=foreign or trace.parent_source is ParentSource.PROPAGATED,
        start=min(server.started_at, event.at),
        end=event.at,
        attributes=attributes,
        links=(back,) if foreign and trace.sampled else (),
    )


def _route(
    h: Handoff, resolution: ev.Resolution, span_id: str, at: float, event: ev.HandoffRequested | None = None
) -> SpanRecord:
    attributes = _named(h)
    _capability(attributes, h)
    attributes["handoff.candidate.count"] = len(resolution.candidates)
    if resolution.rule:
        attributes["handoff.rule"] = resolution.rule
    nobody = not resolution.candidates and not resolution.wait
    if nobody:
        attributes["error.type"] = (resolution.reason or Outcome.NO_CAPABLE_AGENT).value
    events: tuple[SpanEvent, ...] = ()
    if event is not None:
        attributes["handoff.context.size"] = event.package.tokens
        if event.package.dropped:
            events = (SpanEvent("handoff.context.truncated", at),)
    return SpanRecord(
        name="route_handoff",
        kind=SpanKind.INTERNAL,
        trace_id=h.trace.trace_id,
        span_id=span_id,
        parent_span_id=h.trace.hop_span_id,
        start=min(resolution.started_at or at, at),
        end=at,
        attributes=attributes,
        events=events,
        failed=nobody,
    )


# --- on the way ----------------------------------------------------------------------------------


def _hop(h: Handoff, at: float) -> SpanRecord:
    """The handoff itself, when the target took it or it ended without."""
    trace = h.trace
    target = h.attempts[-1].agent_id if h.attempts else ""
    attributes = _named(h)
    if target:
        attributes["handoff.target.agent.name"] = target
    attributes["handoff.reason"] = h.reason
    attributes["handoff.hop_count"] = h.hop_count
    attributes["handoff.chain"] = h.path[-_CHAIN_SHOWN:]
    _capability(attributes, h)
    attributes["handoff.parent.source"] = trace.parent_source.value
    attributes["gen_ai.conversation.id"] = h.context_id
    if h.context_score is not None:
        attributes["handoff.context.score"] = h.context_score
    if h.outcome is not None:
        attributes["error.type"] = h.outcome.value
    below_server = trace.server is not None and trace.server.span.span_id == trace.parent_span_id
    return SpanRecord(
        name=f"handoff {target}" if target else "handoff",
        kind=SpanKind.INTERNAL,
        trace_id=trace.trace_id,
        span_id=trace.hop_span_id,
        parent_span_id=trace.parent_span_id,
        parent_remote=trace.parent_source is ParentSource.PROPAGATED and not below_server,
        start=h.created_at,
        end=at,
        attributes=attributes,
        events=_hop_events(h, at),
        links=tuple(SpanLink(r.trace_id, r.span_id, {"handoff.link.type": "caller"}) for r in trace.links),
        failed=_is_failure(h.outcome),
    )


def _hop_events(h: Handoff, at: float) -> tuple[SpanEvent, ...]:
    out = [SpanEvent("handoff.accepted", h.created_at), SpanEvent("handoff.routed", h.created_at)]
    for attempt in h.attempts:
        number = attempt.number
        out.append(SpanEvent("handoff.dispatched", attempt.offered_at, {"handoff.attempt.number": number}))
        if attempt.outcome is not None and attempt.ended_at is not None:
            why: Attributes = {"handoff.attempt.number": number, "error.type": attempt.outcome.value}
            out.append(SpanEvent("handoff.rejected", attempt.ended_at, why))
    if h.acked_at is not None:
        out.append(SpanEvent("handoff.first_message", at))
    elif h.state is State.EXPIRED:
        out.append(SpanEvent("handoff.expired", at))
    return tuple(out)


def _invoke(h: Handoff, attempt: Attempt, at: float, outcome: Outcome | None) -> SpanRecord:
    """One attempt, when the target took it or it ended without."""
    attributes = _invoked(h, attempt)
    attributes["handoff.target.agent.name"] = attempt.agent_id
    attributes["handoff.attempt.kind"] = "initial" if attempt.number == 1 else "retry"
    if outcome is None and h.context_score is not None:
        attributes["handoff.context.score"] = h.context_score
    if outcome is not None:
        attributes["error.type"] = outcome.value
    return SpanRecord(
        name=f"invoke_agent {attempt.agent_id}",
        kind=SpanKind.CLIENT,
        trace_id=h.trace.trace_id,
        span_id=attempt.span_id,
        parent_span_id=h.trace.hop_span_id,
        start=attempt.offered_at,
        end=at,
        attributes=attributes,
        events=tuple(
            SpanEvent("handoff.retry_scheduled", retry.at, {"error.type": retry.outcome.value})
            for retry in attempt.retries
        ),
        failed=_is_failure(outcome),
    )


def _agent(h: Handoff, attempt: Attempt, at: float, outcome: Outcome | None) -> tuple[SpanRecord, ...]:
    """The target's side, if it does not show it itself."""
    if not attempt.synthetic_span:
        return ()
    attributes = _invoked(h, attempt)
    attributes["handoff.synthetic"] = True
    attributes["handoff.state"] = h.state.value
    if h.state in TASK_STATES:
        attributes["a2a.task.state"] = TASK_STATES[h.state]
    if outcome is not None:
        attributes["error.type"] = outcome.value
    span = SpanRecord(
        name=f"invoke_agent {attempt.agent_id}",
        kind=SpanKind.SERVER,
        trace_id=h.trace.trace_id,
        span_id=agent_span_id(attempt.span_id),
        parent_span_id=attempt.span_id,
        start=attempt.offered_at,
        end=at,
        attributes=attributes,
        failed=_is_failure(outcome),
        service=attempt.agent_id,
    )
    return (span,)


def _ended(before: Handoff, after: Handoff, at: float) -> tuple[SpanRecord, ...]:
    attempt = after.attempt
    open_attempt = attempt is not None and attempt.outcome is None
    out: tuple[SpanRecord, ...] = ()
    if attempt is not None and open_attempt and before.state is not State.HANDED_OFF:
        if attempt.acked_at is None:
            out = (_invoke(after, attempt, at, after.outcome),)
        else:
            out = _agent(after, attempt, at, after.outcome)
    if before.acked_at is None:
        return (*out, _hop(after, at))
    if at > before.acked_at or after.outcome is not None:
        return (*out, _outcome(after, before.acked_at, at))
    return out


def _outcome(h: Handoff, acked_at: float, at: float) -> SpanRecord:
    """How it ended, once the span of the handoff itself is closed."""
    target = h.attempts[-1].agent_id
    attributes = _named(h)
    attributes["handoff.target.agent.name"] = target
    attributes["handoff.hop_count"] = h.hop_count
    attributes["handoff.state"] = h.state.value
    attributes["a2a.task.state"] = TASK_STATES[h.state]
    if h.outcome is not None:
        attributes["error.type"] = h.outcome.value
    events: tuple[SpanEvent, ...] = ()
    if h.state is State.COMPLETED:
        events = (SpanEvent("handoff.completed", at),)
    elif h.state is State.EXPIRED:
        events = (SpanEvent("handoff.expired", at),)
    return SpanRecord(
        name=f"handoff_outcome {target}",
        kind=SpanKind.INTERNAL,
        trace_id=h.trace.trace_id,
        span_id=derived_span_id(h.trace.hop_span_id, "outcome"),
        parent_span_id=h.trace.hop_span_id,
        start=acked_at,
        end=at,
        attributes=attributes,
        events=events,
        failed=_is_failure(h.outcome),
    )


# --- attributes ----------------------------------------------------------------------------------


def _named(h: Handoff) -> Attributes:
    return {
        "handoff.id": h.id,
        "handoff.correlation_id": h.correlation_id,
        "handoff.source.agent.name": h.sender,
    }


def _capability(attributes: Attributes, h: Handoff) -> None:
    if h.requirements.capabilities:
        attributes["handoff.capability"] = h.requirements.capabilities


def _invoked(h: Handoff, attempt: Attempt) -> Attributes:
    attributes = _named(h)
    attributes["handoff.attempt.number"] = attempt.number
    attributes["gen_ai.operation.name"] = "invoke_agent"
    attributes["gen_ai.provider.name"] = "a2a"
    attributes["gen_ai.agent.name"] = attempt.agent_id
    attributes["gen_ai.conversation.id"] = h.context_id
    if attempt.remote.task_id:
        attributes["a2a.task.id"] = attempt.remote.task_id[:_ID_SHOWN]
    return attributes


def _is_failure(outcome: Outcome | None) -> bool:
    """Being called off is no fault."""
    return outcome is not None and outcome not in (Outcome.CANCELED, Outcome.RESCINDED)
