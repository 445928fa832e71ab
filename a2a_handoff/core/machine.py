"""What may happen to a handoff, and what follows from it.

``decide(handoff, command, now) -> events``: the only place where the rules of the life cycle stand.
A command that the state does not allow raises and changes nothing. ``ALLOWED`` is that rule as data;
the state diagram of the docs is drawn from it and from what ``decide`` does.

Rules that hold always: terminal is final; one owner at a time; the source goes on standby only with
``HandoffAcknowledged``; what cannot be proven unstarted is not given to another agent unless the
sender said that this is safe; attempts and agents are bounded.

Not here: which work follows from an event (``actions``), who is a candidate (``matching``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from msgspec.structs import replace

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness, Role, fold
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import Mode
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Event, Outcome, State
from a2a_handoff.core.handoff import Attempt, Handoff, evolve
from a2a_handoff.core.policy import CHILDREN_MAX, REPLIES_MAX

_OPEN = frozenset(state for state in State if not state.terminal)
_WAITING = frozenset({State.REQUESTED, State.ESCALATED})
_OFFERED = frozenset({State.OFFERED, State.ESCALATED})
_ASKED = frozenset({State.INPUT_REQUIRED, State.AUTH_REQUIRED})
_HELD = _ASKED | {State.ACKNOWLEDGED}
_WITH_TARGET = _OFFERED | _HELD
_EVERY = frozenset(State)

#: The states in which each command may be obeyed; ``Request`` is obeyed when there is no handoff.
#: Results are listed everywhere because a late one is recorded, never lost.
ALLOWED: dict[type[Command], frozenset[State]] = {
    cmd.Request: frozenset(),
    cmd.Resolved: _WAITING,
    cmd.Acknowledge: _WITH_TARGET,
    cmd.Decline: _OFFERED,
    cmd.DeliveryFailed: _WITH_TARGET,
    cmd.DeliveryUnsure: _WITH_TARGET,
    cmd.OfferLapsed: _OFFERED,
    cmd.TargetLost: _HELD,
    cmd.Progress: _WITH_TARGET,
    cmd.AskCaller: _WITH_TARGET,
    cmd.Reply: _OPEN - {State.HANDED_OFF},
    cmd.Complete: _EVERY,
    cmd.Fail: _EVERY,
    cmd.Release: _WITH_TARGET,
    cmd.Cancel: _OPEN,
    cmd.ConfirmCancel: _OPEN,
    cmd.Expire: _OPEN,
    cmd.WaitOver: _WAITING | _OFFERED,
    cmd.AttachChild: _HELD,
    cmd.ChildTookOver: _HELD,
    cmd.ChildAsks: _HELD,
    cmd.ChildOver: _HELD | {State.HANDED_OFF},
}


def decide(handoff: Handoff | None, command: Command, now: float) -> tuple[Event, ...]:
    """The events that a command brings about; empty if it says nothing new.

    Raises ``HandoffError``: ``max_hops_exceeded`` or ``cycle_detected`` for a request, else
    ``handoff_ended``, ``wrong_state``, ``stale_attempt`` or ``not_the_holder``.
    """
    if isinstance(command, cmd.Request):
        if handoff is not None:
            raise HandoffError(Code.WRONG_STATE, "This handoff exists already.")
        return _request(command, now)
    if handoff is None:
        raise HandoffError(Code.TASK_NOT_FOUND)
    _check_allowed(handoff, command)
    return _decide(handoff, command, now)


def decide_all(
    handoff: Handoff | None, commands: Iterable[Command], now: float
) -> list[tuple[Event, Handoff]]:
    """Decide several commands one after the other, for one commit.

    Gives every event with the state after it.
    """
    steps: list[tuple[Event, Handoff]] = []
    for command in commands:
        for event in decide(handoff, command, now):
            handoff = evolve(handoff, event)
            steps.append((event, handoff))
    return steps


def _check_allowed(h: Handoff, command: Command) -> None:
    if h.state in ALLOWED[type(command)]:
        return
    name = type(command).__name__
    if h.state.terminal:
        if isinstance(command, cmd.Cancel):
            raise HandoffError(
                Code.TASK_NOT_CANCELABLE, f"The task has ended as {h.state}; it cannot be canceled any more."
            )
        if isinstance(command, cmd.Reply):
            raise HandoffError(
                Code.UNSUPPORTED_OPERATION,
                f"The task has ended as {h.state} and takes no more messages; start a new task.",
            )
        raise HandoffError(Code.HANDOFF_ENDED, f"The handoff has ended as {h.state}; {name} changes nothing.")
    raise HandoffError(Code.WRONG_STATE, f"{name} does not fit a handoff that is {h.state}.")


def _decide(h: Handoff, command: Command, now: float) -> tuple[Event, ...]:
    match command:
        case cmd.Resolved():
            return _resolved(h, command, now)
        case cmd.Acknowledge():
            return _acknowledge(h, command, now)
        case cmd.Decline(means=means, reason=reason):
            attempt = _fenced(h, command.agent_id, command.attempt)
            ended = _end_attempt(attempt, now, Outcome.TARGET_REJECTED, reason)
            return _move_on(h, (ended,), now, means)
        case cmd.DeliveryFailed():
            return _delivery_failed(h, command, now)
        case cmd.DeliveryUnsure():
            return _unsure(h, command, now)
        case cmd.TargetLost():
            return _unsure(h, command, now)
        case cmd.OfferLapsed():
            return _offer_lapsed(h, command, now)
        case cmd.Progress():
            return _progress(h, command, now)
        case cmd.AskCaller():
            attempt = _fenced(h, command.agent_id, command.attempt)
            return (
                *_implied_ack(attempt, now),
                ev.CallerAsked(
                    at=now,
                    attempt=attempt.number,
                    auth=command.auth,
                    message=command.message,
                    outputs=command.outputs,
                ),
            )
        case cmd.Reply(message=message, message_id=message_id):
            if message_id in h.replies or message_id == h.message_id:
                return ()
            if len(h.replies) >= REPLIES_MAX:
                raise HandoffError(
                    Code.UNSUPPORTED_OPERATION,
                    f"This task has taken {REPLIES_MAX} messages and takes no more; start a new task.",
                )
            return (ev.ReplyReceived(at=now, message=message, message_id=message_id),)
        case cmd.Complete() | cmd.Fail():
            return _finish(h, command, now)
        case cmd.Release(reason=reason, outcome=outcome):
            attempt = _fenced(h, command.agent_id, command.attempt)
            ended = _end_attempt(attempt, now, outcome, reason, rescind=command.target_open)
            detail = f"{attempt.agent_id} gave the task back"
            return (ended, _back(h, ev.HandoffReturned(at=now, outcome=outcome, detail=detail)))
        case cmd.Cancel():
            return _cancel(h, command, now)
        case cmd.ConfirmCancel(confirmed=confirmed):
            if not h.cancel_requested and not confirmed:
                raise HandoffError(Code.WRONG_STATE, "Nobody asked to cancel this handoff.")
            return (*_dangling(h, now, Outcome.CANCELED), ev.HandoffCanceled(at=now, confirmed=confirmed))
        case cmd.Expire():
            detail = "the deadline passed"
            return (*_dangling(h, now, Outcome.EXPIRED), ev.HandoffExpired(at=now, detail=detail))
        case cmd.WaitOver(means=means):
            return _wait_over(h, now, means)
        case cmd.AttachChild():
            return _attach_child(h, command, now)
        case cmd.ChildTookOver(child_id=child_id):
            if _pending_transfer(h) != child_id:
                return ()
            return (ev.HandedOff(at=now, child_id=child_id),)
        case cmd.ChildAsks(child_id=child_id):
            waits = any(c.handoff_id == child_id and c.state is None and not c.by_call for c in h.children)
            return (ev.ChildAsked(at=now, child_id=child_id),) if waits else ()
        case cmd.ChildOver():
            return _child_over(h, command, now)
        case cmd.Request():
            raise HandoffError(Code.WRONG_STATE, "This handoff exists already.")
        case _:
            assert_never(command)


# --- creation ------------------------------------------------------------------------------------


def _request(c: cmd.Request, now: float) -> tuple[Event, ...]:
    context = c.package.context
    _guard(c)
    requested = ev.HandoffRequested(
        at=now,
        handoff_id=c.handoff_id,
        tenant=c.tenant,
        sender=c.sender,
        context_id=c.context_id,
        message=c.message,
        message_id=c.message_id,
        request_metadata=c.request_metadata,
        extensions=c.extensions,
        package=c.package,
        resolution=c.resolution,
        policy=c.policy,
        trace=c.trace,
        deadline_at=c.deadline_at,
        parent=c.parent,
        workspace=c.workspace,
        input_modes=c.input_modes,
        accepted_output_modes=c.accepted_output_modes,
        surface=c.surface,
        face=c.face,
        returns_to=c.returns_to or context.source_agent or c.sender,
    )
    return (requested, *_first_step(evolve(None, requested), c.resolution, now, c.means))


def _guard(c: cmd.Request) -> None:
    """Loops and the hop limit, from the broker's own record, before anything is stored."""
    context = c.package.context
    path = context.handoff_chain
    if context.hop_count >= c.policy.max_hops:
        raise HandoffError(
            Code.MAX_HOPS_EXCEEDED,
            f"The chain {' -> '.join(path)} has used its {c.policy.max_hops} hops.",
            facts={"path": ",".join(path), "hop_count": str(context.hop_count)},
        )
    if c.came_back >= c.policy.max_hops:
        raise HandoffError(
            Code.MAX_HOPS_EXCEEDED,
            f"The same request came back {c.came_back} times in this chain. Ask for something else, "
            "do it yourself, or ask a person.",
            facts={"came_back": str(c.came_back)},
        )
    taken = {fold(name) for name in path}
    looped = context.target_agent if fold(context.target_agent) in taken else ""
    if not looped and c.resolution.reason is Outcome.CYCLE_DETECTED and not c.resolution.candidates:
        looped = next((p.agent_id for p in c.resolution.passed_over if fold(p.agent_id) in taken), "")
    if looped:
        walk = (*path, looped)
        raise HandoffError(
            Code.CYCLE_DETECTED,
            f"{looped} is already on the chain: {' -> '.join(walk)}. Give the task back instead.",
            facts={"path": ",".join(walk)},
        )


def _first_step(h: Handoff, resolution: ev.Resolution, now: float, means: ev.Means) -> tuple[Event, ...]:
    candidate = _preferred(h, resolution.candidates, means)
    if candidate is not None:
        return (_offer(h, candidate, now, means),)
    if resolution.wait:
        return _await_agent(h, now)
    outcome = resolution.reason or Outcome.NO_CAPABLE_AGENT
    return (ev.HandoffReturned(at=now, outcome=outcome, detail=_nobody(outcome)),)


def _nobody(outcome: Outcome) -> str:
    match outcome:
        case Outcome.SELF_ONLY:
            return "only the sender itself can do this"
        case Outcome.CYCLE_DETECTED:
            return "everybody who can do this had the task before"
        case Outcome.TARGET_UNAVAILABLE:
            return "the named target is not available"
        case _:
            return "no registered agent can do this"


def _await_agent(h: Handoff, now: float) -> tuple[Event, ...]:
    wait_s = h.policy.wait_for_agent_s if h.wait_for_agent_s is None else h.wait_for_agent_s
    until = min(now + wait_s, h.deadline_at)
    if until <= now:
        return _give_up(h, now, None, Outcome.TARGET_UNAVAILABLE)
    return (ev.AgentAwaited(at=now, until=until),)


# --- offers --------------------------------------------------------------------------------------


def _offer(h: Handoff, candidate: ev.Candidate, now: float, means: ev.Means) -> ev.HandoffOffered:
    match candidate.readiness:
        case Readiness.PERSON:
            due = h.deadline_at
        case Readiness.PULL:
            due = now + h.policy.pull_ack_wait_s
        case Readiness.OFFER | Readiness.PROBE:
            due = now + h.policy.ack_wait_s
    return ev.HandoffOffered(
        at=now,
        attempt=len(h.attempts) + 1,
        agent_id=candidate.agent_id,
        offer_id=means.offer_id,
        span_id=means.span_id,
        readiness=candidate.readiness,
        role=candidate.role,
        ack_due_at=min(due, h.deadline_at),
    )


def _next_candidate(h: Handoff, means: ev.Means) -> ev.Candidate | None:
    """The next agent in the frozen order that may still be asked."""
    tried = {attempt.agent_id for attempt in h.attempts}
    if len(tried) >= h.policy.agents:
        return None
    left = [c for c in h.candidates if c.agent_id not in tried and c.agent_id in means.eligible]
    return _preferred(h, left, means)


def _preferred(h: Handoff, candidates: Sequence[ev.Candidate], means: ev.Means) -> ev.Candidate | None:
    """The first who is not full; the first of all if everybody is, since who is full is asked last.

    Whom the sender names is asked in its place in any case: a name skips the ranking.
    """
    free = (c for c in candidates if c.agent_id not in means.full or h.names(c.agent_id))
    return next(free, candidates[0] if candidates else None)


def _move_on(h: Handoff, ended: tuple[Event, ...], now: float, means: ev.Means) -> tuple[Event, ...]:
    """After a failed attempt: the next candidate, a new resolution, a supervisor, or the sender."""
    for event in ended:
        h = evolve(h, event)
    if h.cancel_requested:
        return (*ended, ev.HandoffCanceled(at=now, confirmed=True))
    if h.state is State.ESCALATED:
        return (*ended, *_give_up(h, now, None, _last_outcome(h)))
    candidate = _next_candidate(h, means)
    if candidate is not None:
        return (*ended, _offer(h, candidate, now, means))
    if h.resolutions < 2 and len({a.agent_id for a in h.attempts}) < h.policy.agents:
        return (*ended, ev.ResolutionRequested(at=now, reason="every candidate was asked"))
    return (*ended, *_give_up(h, now, means, _last_outcome(h)))


def _last_outcome(h: Handoff) -> Outcome:
    last = h.attempt
    return last.outcome if last is not None and last.outcome is not None else Outcome.NO_CAPABLE_AGENT


def _give_up(h: Handoff, now: float, means: ev.Means | None, outcome: Outcome) -> tuple[Event, ...]:
    """A supervisor if there is one (once per chain), else back to the sender."""
    tried = {attempt.agent_id for attempt in h.attempts}
    supervisors = [s for s in (means.supervisors if means else ()) if s.agent_id not in (*tried, *h.path)]
    supervisor = None if means is None or h.escalated else _preferred(h, supervisors, means)
    detail = f"{len(tried)} agent{' was' if len(tried) == 1 else 's were'} asked; none took it"
    if means is not None and supervisor is not None:
        escalated = ev.HandoffEscalated(at=now, outcome=outcome, detail=detail)
        return (escalated, _offer(evolve(h, escalated), supervisor, now, means))
    return (ev.HandoffReturned(at=now, outcome=outcome, detail=detail),)


def _end_attempt(
    attempt: Attempt, now: float, outcome: Outcome, detail: str, *, rescind: bool = False
) -> ev.AttemptEnded:
    return ev.AttemptEnded(
        at=now,
        attempt=attempt.number,
        agent_id=attempt.agent_id,
        outcome=outcome,
        detail=detail,
        rescind=rescind,
    )


def _resolved(h: Handoff, c: cmd.Resolved, now: float) -> tuple[Event, ...]:
    current = h.attempt
    if current is not None and current.outcome is None:
        return ()  # an offer is out already
    resolved = ev.CandidatesResolved(at=now, resolution=c.resolution)
    waited = h.waiting_until is not None
    after = evolve(h, resolved)
    # They were found a moment ago; ``means`` knows of the ones from before.
    found = frozenset(candidate.agent_id for candidate in c.resolution.candidates)
    candidate = _next_candidate(after, replace(c.means, eligible=found))
    if candidate is not None:
        return (resolved, _offer(after, candidate, now, c.means))
    if waited:
        return ()  # still nobody: the wait goes on, and is not logged again
    if c.resolution.wait and not h.attempts:
        return (resolved, *_await_agent(after, now))
    return (resolved, *_give_up(after, now, c.means, _last_outcome(h)))


def _wait_over(h: Handoff, now: float, means: ev.Means) -> tuple[Event, ...]:
    current = h.attempt
    if current is not None and current.outcome is None:
        if current.acked_at is not None or h.waiting_until is None:
            return ()
        ended = _end_attempt(current, now, Outcome.TIMEOUT, "nobody accepted in time", rescind=True)
        return (ended, *_give_up(evolve(h, ended), now, means, Outcome.TIMEOUT))
    if h.waiting_until is None:
        return ()
    return _give_up(h, now, means, Outcome.TARGET_UNAVAILABLE)


def _offer_lapsed(h: Handoff, c: cmd.OfferLapsed, now: float) -> tuple[Event, ...]:
    """A pull offer found no taker in time: announce it again once, then the next candidate.

    With no other candidate it stays in the inbox until the wait for an agent is over.
    """
    attempt = h.attempt
    if attempt is None or attempt.number != c.attempt or attempt.outcome is not None:
        return ()
    if attempt.readiness is not Readiness.PULL or attempt.acked_at is not None:
        return ()
    if attempt.deliveries < h.policy.deliveries:
        return (
            ev.RedeliveryScheduled(
                at=now,
                attempt=attempt.number,
                delivery=attempt.deliveries + 1,
                outcome=Outcome.TIMEOUT,
                detail="not accepted in time",
                due_at=now + h.policy.pull_ack_wait_s,
            ),
        )
    wait_s = h.policy.wait_for_agent_s if h.wait_for_agent_s is None else h.wait_for_agent_s
    until = min(h.created_at + wait_s, h.deadline_at)
    if _next_candidate(h, c.means) is None and until > now and h.state is not State.ESCALATED:
        return (ev.AgentAwaited(at=now, until=until),)
    ended = _end_attempt(attempt, now, Outcome.TIMEOUT, "not accepted in time", rescind=True)
    return _move_on(h, (ended,), now, c.means)


# --- delivery ------------------------------------------------------------------------------------


def _current(h: Handoff, number: int) -> Attempt:
    """The current attempt, for the dispatcher that works on it."""
    attempt = h.attempt
    if attempt is None or attempt.number != number or attempt.outcome is not None:
        raise HandoffError(Code.STALE_ATTEMPT, f"Attempt {number} is not the current one.")
    return attempt


def _acknowledge(h: Handoff, c: cmd.Acknowledge, now: float) -> tuple[Event, ...]:
    attempt = _fenced(h, c.agent_id, c.attempt)
    if attempt.acked_at is None:
        return (
            ev.HandoffAcknowledged(
                at=now,
                attempt=attempt.number,
                agent_id=attempt.agent_id,
                remote=c.remote,
                context_score=c.context_score,
                synthetic_span=c.synthetic_span,
                instance_id=c.instance_id,
                lease_s=c.lease_s,
            ),
        )
    if c.instance_id and attempt.instance_id and c.instance_id != attempt.instance_id:
        raise HandoffError(
            Code.STALE_ATTEMPT, f"Instance {attempt.instance_id} of {attempt.agent_id} accepted it first."
        )
    return _learn(attempt, c.remote, now)


def _learn(attempt: Attempt, remote: ev.Remote | None, now: float) -> tuple[Event, ...]:
    """Note the target's own ids if they are new; ids that are missing now stay what they were."""
    if remote is None:
        return ()
    known = attempt.remote
    merged = ev.Remote(
        task_id=remote.task_id or known.task_id, context_id=remote.context_id or known.context_id
    )
    if merged == known:
        return ()
    return (ev.RemoteLearnt(at=now, attempt=attempt.number, remote=merged),)


def _implied_ack(attempt: Attempt, now: float) -> tuple[Event, ...]:
    """Work that arrives before the word *ready* says it as well."""
    if attempt.acked_at is not None:
        return ()
    return (ev.HandoffAcknowledged(at=now, attempt=attempt.number, agent_id=attempt.agent_id),)


def _delivery_failed(h: Handoff, c: cmd.DeliveryFailed, now: float) -> tuple[Event, ...]:
    attempt = _current(h, c.attempt)
    if h.output_started or attempt.remote.task_id or h.state in _ASKED:
        return _mark_uncertain(h, attempt, c.detail, now)  # it has begun, whatever failed now
    if c.again and attempt.deliveries < h.policy.deliveries and not h.cancel_requested:
        wait_s = h.policy.retry_delay(attempt.deliveries, c.means.jitter)
        if c.retry_after_s is not None:
            wait_s = max(wait_s, min(c.retry_after_s, h.policy.retry_delay_max_s))
        if now + wait_s < h.deadline_at:
            return (
                ev.RedeliveryScheduled(
                    at=now,
                    attempt=attempt.number,
                    delivery=attempt.deliveries + 1,
                    outcome=c.outcome,
                    detail=c.detail,
                    due_at=now + wait_s,
                ),
            )
    # One that did not answer an offer in time may still say *ready*, and hears that it is too late.
    late = attempt.readiness is Readiness.OFFER and c.outcome is Outcome.TIMEOUT
    return _move_on(h, (_end_attempt(attempt, now, c.outcome, c.detail, rescind=late),), now, c.means)


def _unsure(h: Handoff, c: cmd.DeliveryUnsure | cmd.TargetLost, now: float) -> tuple[Event, ...]:
    """It may be at work. Another agent gets the task only if running it twice does no harm.

    A target whose task is known is asked about it before that, until it counts as lost.
    """
    attempt = _current(h, c.attempt)
    can_be_asked = isinstance(c, cmd.DeliveryUnsure) and bool(attempt.remote.task_id)
    if h.replay_safe and not h.output_started and not h.state.asks and not can_be_asked:
        ended = _end_attempt(attempt, now, Outcome.TIMEOUT, c.detail, rescind=True)
        return _move_on(h, (ended,), now, c.means)
    return _mark_uncertain(h, attempt, c.detail, now)


def _mark_uncertain(h: Handoff, attempt: Attempt, detail: str, now: float) -> tuple[Event, ...]:
    if h.uncertain:
        return ()
    return (ev.DeliveryUncertain(at=now, attempt=attempt.number, detail=detail),)


# --- what the target says ------------------------------------------------------------------------


def _fenced(h: Handoff, agent_id: str, number: int) -> Attempt:
    """The attempt that the speaker holds.

    Number 0 is the speaker's own current one. Raises ``stale_attempt`` for one that was superseded
    and ``not_the_holder`` for somebody else's.
    """
    attempt = h.attempt
    if attempt is None:
        raise HandoffError(Code.NOT_THE_HOLDER, "Nobody holds this handoff yet.")
    if number and number != attempt.number:
        raise HandoffError(
            Code.STALE_ATTEMPT,
            f"Attempt {number} has been superseded; the current one is {attempt.number}.",
            facts={"attempt": str(attempt.number)},
        )
    if agent_id and agent_id != attempt.agent_id:
        if any(a.agent_id == agent_id for a in h.attempts):
            raise HandoffError(Code.STALE_ATTEMPT, f"{agent_id} no longer holds this handoff.")
        raise HandoffError(Code.NOT_THE_HOLDER)
    if attempt.outcome is not None:
        raise HandoffError(Code.STALE_ATTEMPT, f"Attempt {attempt.number} is over: {attempt.outcome}.")
    return attempt


def _progress(h: Handoff, c: cmd.Progress, now: float) -> tuple[Event, ...]:
    attempt = _fenced(h, c.agent_id, c.attempt)
    acked = _implied_ack(attempt, now)
    learnt = _learn(attempt, c.remote, now)
    if not c.outputs and not h.state.asks:
        return (*acked, *learnt)
    return (*acked, *learnt, ev.OutputRecorded(at=now, attempt=attempt.number, outputs=c.outputs))


def _finish(h: Handoff, c: cmd.Complete | cmd.Fail, now: float) -> tuple[Event, ...]:
    state = State.COMPLETED if isinstance(c, cmd.Complete) else State.FAILED
    if h.state.terminal or h.state is State.HANDED_OFF:
        return _late(h, c, state, now)
    try:
        attempt = _fenced(h, c.agent_id, c.attempt)
    except HandoffError as error:
        if error.code is Code.STALE_ATTEMPT:
            return _late(h, c, state, now)
        raise
    acked = _implied_ack(attempt, now)
    if isinstance(c, cmd.Complete):
        return (
            *acked,
            ev.HandoffCompleted(at=now, attempt=attempt.number, message=c.message, outputs=c.outputs),
        )
    return (
        *acked,
        ev.HandoffFailed(
            at=now,
            attempt=attempt.number,
            outcome=c.outcome,
            detail=c.detail,
            message=c.message,
            outputs=c.outputs,
        ),
    )


def _late(h: Handoff, c: cmd.Complete | cmd.Fail, state: State, now: float) -> tuple[Event, ...]:
    """A result after the switch or the end: a repeat says nothing new, another is kept aside."""
    last = h.attempt
    speaker = c.agent_id or (last.agent_id if last is not None else "")
    if not any(a.agent_id == speaker for a in h.attempts):
        raise HandoffError(Code.NOT_THE_HOLDER)
    same_attempt = last is not None and c.attempt in (0, last.number) and last.agent_id == speaker
    if same_attempt and h.state is state:
        return ()
    return (
        ev.LateResultRecorded(
            at=now,
            attempt=c.attempt,
            agent_id=speaker,
            state=state,
            message=c.message,
            outputs=c.outputs,
        ),
    )


# --- ends ----------------------------------------------------------------------------------------


def _dangling(h: Handoff, now: float, outcome: Outcome) -> tuple[Event, ...]:
    """End an attempt whose agent has no task that could be canceled, so that it hears of it all the same."""
    attempt = h.attempt
    if attempt is None or attempt.outcome is not None:
        return ()
    if attempt.acked_at is not None and not _only_ready(h, attempt):
        return ()
    return (_end_attempt(attempt, now, outcome, "", rescind=True),)


def _only_ready(h: Handoff, attempt: Attempt) -> bool:
    """The agent said *ready* to an offer, and nothing since."""
    spoke = bool(attempt.remote.task_id) or h.output_started or h.state.asks or bool(h.children)
    return attempt.readiness is Readiness.OFFER and not spoke


def _back(h: Handoff, returned: ev.HandoffReturned) -> Event:
    """The task is with its sender again; one that the sender wanted to be stopped is that."""
    return ev.HandoffCanceled(at=returned.at, confirmed=True) if h.cancel_requested else returned


def _cancel(h: Handoff, c: cmd.Cancel, now: float) -> tuple[Event, ...]:
    if h.cancel_requested:
        return ()
    attempt = h.attempt
    asked = ev.CancelRequested(at=now, by=c.by, reason=c.reason)
    idle = attempt is None or attempt.outcome is not None
    fetched = attempt is not None and attempt.readiness in (Readiness.PULL, Readiness.PERSON)
    if idle or (fetched and attempt is not None and attempt.acked_at is None):
        return (asked, *_dangling(h, now, Outcome.RESCINDED), ev.HandoffCanceled(at=now, confirmed=True))
    return (asked,)


# --- handing on ----------------------------------------------------------------------------------


def _pending_transfer(h: Handoff) -> str:
    """The child that is to take over and has not yet; empty if there is none."""
    return next(
        (c.handoff_id for c in h.children if c.mode is Mode.TRANSFER and c.state is None),
        "",
    )


def _attach_child(h: Handoff, c: cmd.AttachChild, now: float) -> tuple[Event, ...]:
    attempt = _fenced(h, c.agent_id, c.attempt)
    inherited = h.parent is not None and h.parent.escalated
    if attempt.role is not Role.AGENT and h.escalated and not inherited:
        raise HandoffError(
            Code.WRONG_STATE,
            "An escalation is handed on no further: complete it, fail it, or give it back.",
        )
    if len(h.children) >= CHILDREN_MAX:
        raise HandoffError(
            Code.WRONG_STATE, f"{CHILDREN_MAX} handoffs were made from this one, and no more can be."
        )
    if c.mode is Mode.TRANSFER and _pending_transfer(h):
        raise HandoffError(Code.WRONG_STATE, "The task is being handed on already.")
    if h.cancel_requested:
        raise HandoffError(Code.WRONG_STATE, "The task is being canceled.")
    return (
        ev.ChildAttached(
            at=now,
            child_id=c.child_id,
            mode=c.mode,
            target_open=c.target_open,
            by_call=c.by_call,
            context_score=c.context_score if h.context_score is None else None,
        ),
    )


def _child_over(h: Handoff, c: cmd.ChildOver, now: float) -> tuple[Event, ...]:
    child = next((k for k in h.children if k.handoff_id == c.child_id), None)
    if child is None or child.state is not None:
        return ()
    ended = ev.ChildEnded(at=now, child_id=c.child_id, state=c.state)
    if h.state is State.HANDED_OFF:
        if h.leaf_id != c.child_id:
            return (ended,)
        return (ended, _as_the_child(h, c, now))
    if child.mode is Mode.DELEGATE or child.target_open:
        return (ended,)
    outcome = c.outcome or Outcome.TARGET_UNAVAILABLE
    detail = f"{h.holder} could not hand it on: {c.detail or c.state}"
    returned = ev.HandoffReturned(at=now, outcome=outcome, detail=detail, by_child=c.child_id)
    return (ended, _back(h, returned))


def _as_the_child(h: Handoff, c: cmd.ChildOver, now: float) -> Event:
    """A handed-off handoff ends as the one that carries its task."""
    attempt = h.attempts[-1].number
    outcome = c.outcome or Outcome.TARGET_FAILED
    match c.state:
        case State.COMPLETED:
            return ev.HandoffCompleted(at=now, attempt=attempt, by_child=c.child_id)
        case State.CANCELED:
            return ev.HandoffCanceled(at=now, confirmed=True)
        case State.EXPIRED:
            return ev.HandoffExpired(at=now, detail=c.detail, by_child=c.child_id)
        case State.RETURNED:
            return ev.HandoffReturned(at=now, outcome=outcome, detail=c.detail, by_child=c.child_id)
        case _:
            return ev.HandoffFailed(
                at=now, attempt=attempt, outcome=outcome, detail=c.detail, by_child=c.child_id
            )
