"""Small makers of core values for tests: name what matters, the rest is plausible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, cast

from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Agent, Readiness
from a2a_handoff.core.context import HandoffContext, Package
from a2a_handoff.core.events import Action, Event
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.tracing import HopTrace, ParentSource, trace_id_of
from a2a_handoff.ports import Commit, HandoffWrite

NOW = 1_800_000_000.0
MESSAGE = b'{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}'


def make_trace(correlation_id: str, tenant: str = "default") -> HopTrace:
    return HopTrace(
        trace_id=trace_id_of(correlation_id, tenant),
        sampled=True,
        hop_span_id="00000000000000aa",
        route_span_id="00000000000000ab",
        parent_span_id="00000000000000ac",
        parent_source=ParentSource.ROOT,
    )


def requested_event(
    handoff_id: str = "h-1",
    *,
    at: float = NOW,
    tenant: str = "default",
    sender: str = "sender",
    correlation_id: str = "",
    context_id: str = "context-1",
    face: str = "",
    message: bytes = MESSAGE,
    message_id: str = "m-1",
    parent: ev.ParentRef | None = None,
    candidates: Sequence[str] = ("billing",),
    policy: Policy | None = None,
) -> ev.HandoffRequested:
    """The first event of a log. Without ``correlation_id`` the handoff is a chain of its own."""
    correlation_id = correlation_id or f"chain-of-{handoff_id}"
    context = HandoffContext(
        correlation_id=correlation_id,
        source_agent=sender,
        conversation_summary="The customer disputes an invoice.",
        user_intent="Correct the invoice of March.",
        key_facts=b'{"invoice":"2030-03","amount":120.50}',
        handoff_chain=(sender,),
    )
    return ev.HandoffRequested(
        at=at,
        handoff_id=handoff_id,
        tenant=tenant,
        sender=sender,
        context_id=context_id,
        face=face,
        message=message,
        message_id=message_id,
        request_metadata=b"",
        extensions=(),
        package=Package(context=context),
        resolution=ev.Resolution(
            candidates=tuple(ev.Candidate(agent_id=name, readiness=Readiness.PROBE) for name in candidates)
        ),
        policy=policy or Policy(),
        trace=make_trace(correlation_id, tenant),
        deadline_at=at + 3600,
        parent=parent,
    )


def offered_event(agent_id: str = "billing", *, at: float = NOW, attempt: int = 1) -> ev.HandoffOffered:
    return ev.HandoffOffered(
        at=at,
        attempt=attempt,
        agent_id=agent_id,
        offer_id=f"offer-{attempt}",
        span_id=f"{attempt:016x}",
        readiness=Readiness.PROBE,
        ack_due_at=at + 5,
    )


def acknowledged_event(
    agent_id: str = "billing", *, at: float = NOW, attempt: int = 1
) -> ev.HandoffAcknowledged:
    return ev.HandoffAcknowledged(
        at=at, attempt=attempt, agent_id=agent_id, remote=ev.Remote(task_id="remote-1")
    )


def output_event(body: bytes = b'{"parts":[{"text":"word"}]}', *, at: float = NOW) -> ev.OutputRecorded:
    output = ev.Output(kind=ev.OutputKind.ARTIFACT, body=body, append=True, last=False, artifact_id="a-1")
    return ev.OutputRecorded(at=at, attempt=1, outputs=(output,))


def completed_event(message: bytes = b"", *, at: float = NOW) -> ev.HandoffCompleted:
    return ev.HandoffCompleted(at=at, attempt=1, message=message)


def replay(*events: Event) -> Handoff:
    """The handoff that a log gives."""
    return cast("Handoff", reduce(evolve, events, None))


def make_handoff(handoff_id: str = "h-1", *more: Event, **fields: Any) -> Handoff:
    """A handoff after ``requested_event(handoff_id, **fields)`` and then ``more``."""
    return replay(requested_event(handoff_id, **fields), *more)


def first_write(
    handoff_id: str = "h-1", *more: Event, actions: Sequence[Action] = (), **fields: Any
) -> HandoffWrite:
    """Creates a handoff, with ``more`` events in the same write."""
    events = (requested_event(handoff_id, **fields), *more)
    return HandoffWrite(handoff=replay(*events), events=events, expected_version=0, actions=tuple(actions))


def next_write(before: Handoff, *events: Event, actions: Sequence[Action] = ()) -> HandoffWrite:
    """Goes on from ``before``."""
    after = reduce(evolve, events, before)
    return HandoffWrite(handoff=after, events=events, expected_version=before.version, actions=tuple(actions))


def commit_of(*writes: HandoffWrite, now: float = NOW, **fields: Any) -> Commit:
    return Commit(writes=writes, now=now, **fields)


def make_agent(agent_id: str = "billing", *, tenant: str = "default", **fields: Any) -> Agent:
    return Agent(agent_id=agent_id, tenant=tenant, **fields)
