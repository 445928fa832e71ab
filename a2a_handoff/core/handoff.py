"""The handoff as it stands: what replaying its log gives.

Duty: the aggregate's control state and ``evolve``. It holds no payload: messages and artifacts are in
the log alone, so that a long stream does not rewrite what it has said.
Not here: what may happen next (``machine``).
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec.structs import replace

from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness, Role, fold
from a2a_handoff.core.context import Mode, Priority, Requirements
from a2a_handoff.core.events import Candidate, Outcome, ParentRef, PassedOver, Remote, State
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.tracing import HopTrace


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The same agent is asked again within its attempt: when that was decided, and why."""

    at: float
    due_at: float
    outcome: Outcome


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One offer to one agent. ``outcome`` is ``None`` while it is the current one, or holds.

    ``rescinded``: its end is told to the agent. ``instance_id`` is which process of the agent accepted it.
    ``retries`` and ``synthetic_span`` are there for the spans, which end later than these are known.
    """

    number: int
    agent_id: str
    offer_id: str
    span_id: str
    readiness: Readiness
    role: Role = Role.AGENT
    offered_at: float = 0.0
    deliveries: int = 1
    acked_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    detail: str = ""
    remote: Remote = msgspec.field(default_factory=Remote)
    retries: tuple[Retry, ...] = ()
    synthetic_span: bool = False
    rescinded: bool = False
    instance_id: str = ""


class Child(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A handoff that the target of this one made, by a call to the broker or by a directive."""

    handoff_id: str
    mode: Mode
    target_open: bool
    by_call: bool = False
    state: State | None = None


class Handoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One transfer of responsibility for one task. ``version`` is the number of its events."""

    id: str
    version: int
    tenant: str
    sender: str
    correlation_id: str
    context_id: str
    message_id: str
    state: State
    policy: Policy
    trace: HopTrace
    created_at: float
    updated_at: float
    deadline_at: float
    hops_before: int = 0
    path: tuple[str, ...] = ()
    parent: ParentRef | None = None
    mode: Mode = Mode.TRANSFER
    reason: str = ""
    priority: Priority = Priority.NORMAL
    replay_safe: bool = False
    requirements: Requirements = msgspec.field(default_factory=Requirements)
    target_agent: str = ""
    workspace: str = ""
    face: str = ""
    returns_to: str = ""
    candidates: tuple[Candidate, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    resolutions: int = 1
    attempts: tuple[Attempt, ...] = ()
    escalated: bool = False
    uncertain: bool = False
    output_started: bool = False
    cancel_requested: bool = False
    waiting_until: float | None = None
    wait_for_agent_s: float | None = None
    children: tuple[Child, ...] = ()
    leaf_id: str = ""
    replies: tuple[str, ...] = ()
    context_score: float | None = None
    outcome: Outcome | None = None
    detail: str = ""
    ended_at: float | None = None
    acked_at: float | None = None

    @property
    def hop_count(self) -> int:
        """Depth on the chain: that of the sender until the target took over, then one more."""
        return self.hops_before + (0 if self.acked_at is None else 1)

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, whether or not it has ended."""
        return self.attempts[-1] if self.attempts else None

    @property
    def holder(self) -> str:
        """The agent that was offered the task or holds it; empty if nobody."""
        attempt = self.attempt
        if attempt is None or attempt.outcome is not None or self.state.terminal:
            return ""
        return attempt.agent_id

    @property
    def occupies(self) -> str:
        """The agent that has it among its tasks at a time: the holder, until it has handed it on."""
        return "" if self.state is State.HANDED_OFF else self.holder

    def names(self, agent_id: str) -> bool:
        """Whether the sender named this agent as its target."""
        return fold(agent_id) == fold(self.target_agent)

    @property
    def owner(self) -> str:
        """Who is responsible now: ``source``, ``target``, ``leaf`` or ``nobody``."""
        match self.state:
            case State.REQUESTED | State.OFFERED | State.ESCALATED | State.RETURNED | State.EXPIRED:
                return "source"
            case State.ACKNOWLEDGED | State.INPUT_REQUIRED | State.AUTH_REQUIRED:
                return "target"
            case State.HANDED_OFF:
                return "leaf"
            case State.COMPLETED | State.FAILED | State.CANCELED:
                return "nobody"


def requested(event: ev.HandoffRequested) -> Handoff:
    """The handoff that a log begins with."""
    package = event.package
    context = package.context
    parent = event.parent
    return Handoff(
        id=event.handoff_id,
        version=1,
        tenant=event.tenant,
        sender=event.sender,
        correlation_id=context.correlation_id,
        context_id=event.context_id,
        face=event.face,
        message_id=event.message_id,
        state=State.REQUESTED,
        policy=event.policy,
        trace=event.trace,
        created_at=event.at,
        updated_at=event.at,
        deadline_at=event.deadline_at,
        hops_before=context.hop_count,
        path=context.handoff_chain,
        parent=parent,
        mode=parent.mode if parent else Mode.TRANSFER,
        reason=context.handoff_reason.value,
        priority=package.options.priority,
        replay_safe=package.options.replay_safe,
        requirements=package.requirements,
        target_agent=context.target_agent,
        workspace=event.workspace,
        returns_to=event.returns_to,
        candidates=event.resolution.candidates,
        passed_over=event.resolution.passed_over,
        escalated=parent.escalated if parent else False,
        wait_for_agent_s=package.options.wait_for_agent_s,
    )


def evolve(handoff: Handoff | None, event: ev.Event) -> Handoff:
    """What the event makes of the handoff. Total: every event in a log can be applied."""
    if isinstance(event, ev.HandoffRequested):
        return requested(event)
    if handoff is None:
        raise ValueError("a log begins with HandoffRequested")
    if isinstance(event, ev.LateResultRecorded):
        return replace(handoff, version=handoff.version + 1)
    return _apply(replace(handoff, version=handoff.version + 1, updated_at=event.at), event)


def _apply(h: Handoff, event: ev.Event) -> Handoff:
    match event:
        case ev.ResolutionRequested():
            return replace(h, state=_with_source(h), waiting_until=None)
        case ev.CandidatesResolved(resolution=resolution):
            return replace(
                h,
                candidates=resolution.candidates,
                passed_over=resolution.passed_over,
                resolutions=h.resolutions + (0 if h.waiting_until else 1),
                waiting_until=None,
            )
        case ev.AgentAwaited(until=until):
            return replace(h, waiting_until=until)
        case ev.HandoffOffered():
            return _offered(h, event)
        case ev.RedeliveryScheduled(at=at, delivery=delivery, due_at=due_at, outcome=outcome):
            return _attempt(h, deliveries=delivery, retry=Retry(at=at, due_at=due_at, outcome=outcome))
        case ev.AttemptEnded(at=at, outcome=outcome, detail=detail, rescind=rescind):
            ended = _attempt(h, ended_at=at, outcome=outcome, detail=detail, rescinded=rescind)
            return replace(ended, state=_with_source(h), uncertain=False)
        case ev.DeliveryUncertain():
            return replace(h, uncertain=True)
        case ev.HandoffAcknowledged(at=at, agent_id=agent_id, remote=remote, context_score=score):
            taken = _attempt(
                h,
                acked_at=at,
                remote=remote,
                synthetic_span=event.synthetic_span,
                instance_id=event.instance_id,
            )
            return replace(
                taken,
                state=State.ACKNOWLEDGED,
                acked_at=h.acked_at if h.acked_at is not None else at,
                path=(*h.path, agent_id),
                context_score=h.context_score if score is None else score,
                uncertain=False,
            )
        case ev.RemoteLearnt(remote=remote):
            return _attempt(h, remote=remote)
        case ev.OutputRecorded():
            return replace(h, state=_working(h), output_started=True, uncertain=False)
        case ev.CallerAsked(auth=auth, outputs=outputs):
            state = State.AUTH_REQUIRED if auth else State.INPUT_REQUIRED
            started = h.output_started or bool(outputs)
            return replace(h, state=state, output_started=started, uncertain=False)
        case ev.ReplyReceived(message_id=message_id):
            return replace(h, state=_working(h), replies=(*h.replies, message_id))
        case ev.ChildAttached(child_id=child_id, mode=mode):
            child = Child(
                handoff_id=child_id, mode=mode, target_open=event.target_open, by_call=event.by_call
            )
            score = event.context_score if h.context_score is None else h.context_score
            return replace(h, children=(*h.children, child), context_score=score, uncertain=False)
        case ev.HandedOff(child_id=child_id):
            return replace(h, state=State.HANDED_OFF, leaf_id=child_id)
        case ev.ChildAsked():
            return h
        case ev.ChildEnded(child_id=child_id, state=state):
            return replace(h, children=_child_ended(h, child_id, state))
        case ev.HandoffEscalated():
            return replace(h, state=State.ESCALATED, escalated=True)
        case ev.CancelRequested():
            return replace(h, cancel_requested=True)
        case ev.HandoffCanceled(confirmed=confirmed):
            detail = "" if confirmed else "cancel_unconfirmed"
            return _ended(h, event.at, State.CANCELED, Outcome.CANCELED, detail)
        case ev.HandoffCompleted():
            return _ended(h, event.at, State.COMPLETED, None, "")
        case ev.HandoffFailed(outcome=outcome, detail=detail):
            return _ended(h, event.at, State.FAILED, outcome, detail)
        case ev.HandoffReturned(outcome=outcome, detail=detail):
            return _ended(h, event.at, State.RETURNED, outcome, detail)
        case ev.HandoffExpired(detail=detail):
            return _ended(h, event.at, State.EXPIRED, Outcome.EXPIRED, detail)
        case ev.HandoffRequested() | ev.LateResultRecorded():
            return h  # taken care of by evolve
        case _:
            assert_never(event)


def _with_source(h: Handoff) -> State:
    """Where the task goes when an attempt ends: an escalated handoff stays escalated."""
    return State.ESCALATED if h.state is State.ESCALATED else State.REQUESTED


def _working(h: Handoff) -> State:
    """Any word from the target, or to it, ends a pause."""
    return State.ACKNOWLEDGED if h.state.asks else h.state


def _offered(h: Handoff, event: ev.HandoffOffered) -> Handoff:
    attempt = Attempt(
        number=event.attempt,
        agent_id=event.agent_id,
        offer_id=event.offer_id,
        span_id=event.span_id,
        readiness=event.readiness,
        role=event.role,
        offered_at=event.at,
    )
    state = State.ESCALATED if h.state is State.ESCALATED else State.OFFERED
    return replace(h, state=state, attempts=(*h.attempts, attempt), waiting_until=None)


def _attempt(
    h: Handoff,
    *,
    deliveries: int | None = None,
    acked_at: float | None = None,
    ended_at: float | None = None,
    outcome: Outcome | None = None,
    detail: str | None = None,
    remote: Remote | None = None,
    retry: Retry | None = None,
    synthetic_span: bool = False,
    rescinded: bool = False,
    instance_id: str = "",
) -> Handoff:
    last = h.attempts[-1]
    changed = replace(
        last,
        deliveries=last.deliveries if deliveries is None else deliveries,
        acked_at=last.acked_at if acked_at is None else acked_at,
        ended_at=last.ended_at if ended_at is None else ended_at,
        outcome=last.outcome if outcome is None else outcome,
        detail=last.detail if detail is None else detail,
        remote=last.remote if remote is None else remote,
        retries=last.retries if retry is None else (*last.retries, retry),
        synthetic_span=last.synthetic_span or synthetic_span,
        rescinded=last.rescinded or rescinded,
        instance_id=last.instance_id or instance_id,
    )
    return replace(h, attempts=(*h.attempts[:-1], changed))


def _child_ended(h: Handoff, child_id: str, state: State) -> tuple[Child, ...]:
    return tuple(replace(c, state=state) if c.handoff_id == child_id else c for c in h.children)


def _ended(h: Handoff, at: float, state: State, outcome: Outcome | None, detail: str) -> Handoff:
    return replace(
        h, state=state, outcome=outcome, detail=detail, ended_at=at, uncertain=False, waiting_until=None
    )
