"""Which work follows from an event.

Duty: ``actions_for(event, handoff)``, read with the state *after* the event. The store writes the work
in the same transaction as the event; the dispatcher does it, once or more, never without it.
"""

from __future__ import annotations

from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness
from a2a_handoff.core.events import Action, Drop, Event, Schedule, WorkKind
from a2a_handoff.core.handoff import Attempt, Handoff

#: Void when an attempt ends. A message of the caller is not: it goes to whoever takes the task next.
_OF_AN_ATTEMPT = frozenset(
    {
        WorkKind.PROBE,
        WorkKind.DELIVER,
        WorkKind.OFFER_LAPSE,
        WorkKind.RECONCILE,
        WorkKind.LEASE,
        WorkKind.WAIT_OVER,
    }
)
_FETCHED = (Readiness.PULL, Readiness.PERSON)


def actions_for(event: Event, handoff: Handoff) -> tuple[Action, ...]:
    """The work that ``event`` makes due or void. ``handoff`` is the state after it."""
    h = handoff
    match event:
        case ev.HandoffRequested(deadline_at=deadline_at):
            return (Schedule(kind=WorkKind.DEADLINE, due_at=deadline_at),)
        case ev.ResolutionRequested(at=at):
            return (Schedule(kind=WorkKind.RESOLVE, due_at=at),)
        case ev.AgentAwaited(at=at, until=until):
            # An agent that came between the look and this commit has woken nobody: look once more.
            return (
                Schedule(kind=WorkKind.RESOLVE, due_at=at),
                Schedule(kind=WorkKind.WAIT_OVER, due_at=until),
            )
        case ev.HandoffOffered():
            return _offered(event)
        case ev.RedeliveryScheduled(attempt=attempt, due_at=due_at):
            current = h.attempts[-1]
            fetched = current.readiness in _FETCHED
            kind = WorkKind.OFFER_LAPSE if fetched else WorkKind.DELIVER
            return (Schedule(kind=kind, due_at=due_at, attempt=attempt),)
        case ev.AttemptEnded(at=at, attempt=attempt, rescind=rescind):
            void = Drop(kinds=_OF_AN_ATTEMPT)
            if rescind:
                return (void, Schedule(kind=WorkKind.RESCIND, due_at=at, attempt=attempt))
            return (void,)
        case ev.DeliveryUncertain(at=at, attempt=attempt):
            known = bool(h.attempts[-1].remote.task_id)
            due_at = at if known else at + h.policy.reconcile_every_s
            return (Schedule(kind=WorkKind.RECONCILE, due_at=due_at, attempt=attempt),)
        case ev.HandoffAcknowledged(at=at, attempt=attempt, lease_s=lease_s):
            return _acknowledged(h, at, attempt, h.policy.lease_s if lease_s is None else lease_s)
        case ev.RemoteLearnt(at=at, attempt=attempt) if h.cancel_requested and not h.children:
            return (Schedule(kind=WorkKind.CANCEL, due_at=at, attempt=attempt),)
        case ev.CallerAsked(at=at, attempt=attempt, auth=True) if h.attempts[-1].readiness not in _FETCHED:
            # Who authorises it may tell the target without the broker: then it goes on by itself.
            later = at + h.policy.reconcile_every_s
            return (Schedule(kind=WorkKind.RECONCILE, due_at=later, attempt=attempt),)
        case ev.ReplyReceived(at=at, message_id=message_id):
            return (
                Schedule(
                    kind=WorkKind.FORWARD,
                    due_at=at,
                    attempt=h.attempts[-1].number if h.attempts else 0,
                    ref=message_id,
                ),
            )
        case ev.HandedOff(child_id=child_id, at=at):
            void = Drop(kinds=_OF_AN_ATTEMPT)
            if h.cancel_requested:
                return (void, Schedule(kind=WorkKind.CANCEL_CHILD, due_at=at, ref=child_id))
            return (void,)
        case ev.ChildAsked(child_id=child_id, at=at):
            return _of_child(h, child_id, at, f"child:{child_id}:{h.version}")
        case ev.ChildEnded(child_id=child_id, at=at):
            return _of_child(h, child_id, at, f"child:{child_id}")
        case ev.CancelRequested(at=at):
            return _cancel_requested(h, at)
        case (
            ev.HandoffCanceled()
            | ev.HandoffCompleted()
            | ev.HandoffFailed()
            | ev.HandoffReturned()
            | ev.HandoffExpired()
        ):
            return _ended(event, h)
        case _:
            return ()


def _offered(event: ev.HandoffOffered) -> tuple[Action, ...]:
    settled = Drop(kinds=frozenset({WorkKind.WAIT_OVER, WorkKind.RESOLVE}))
    match event.readiness:
        case Readiness.OFFER | Readiness.PROBE:
            if event.attempt == 1:
                return (Schedule(kind=WorkKind.DELIVER, due_at=event.at, attempt=1),)
            return (settled, Schedule(kind=WorkKind.DELIVER, due_at=event.at, attempt=event.attempt))
        case Readiness.PULL:
            lapse = Schedule(kind=WorkKind.OFFER_LAPSE, due_at=event.ack_due_at, attempt=event.attempt)
            return (settled, lapse)
        case Readiness.PERSON:
            return (settled,)


def _acknowledged(h: Handoff, at: float, number: int, lease_s: float) -> tuple[Action, ...]:
    attempt = h.attempts[-1]
    out: list[Action] = []
    if attempt.readiness in _FETCHED:
        out.append(Drop(kinds=frozenset({WorkKind.OFFER_LAPSE, WorkKind.WAIT_OVER})))
    if attempt.readiness is Readiness.PULL:
        out.append(Schedule(kind=WorkKind.LEASE, due_at=at + lease_s, attempt=number))
    if h.cancel_requested and h.children == ():
        out.append(Schedule(kind=WorkKind.CANCEL, due_at=at, attempt=number))
    return tuple(out)


def _cancel_requested(h: Handoff, at: float) -> tuple[Action, ...]:
    out: list[Action] = []
    attempt = h.attempt
    if attempt is not None and attempt.outcome is None and not h.leaf_id:
        out.append(Schedule(kind=WorkKind.CANCEL, due_at=at, attempt=attempt.number))
    out.extend(
        Schedule(kind=WorkKind.CANCEL_CHILD, due_at=at, ref=child.handoff_id)
        for child in h.children
        if child.state is None
    )
    out.append(Schedule(kind=WorkKind.CANCEL_DUE, due_at=at + h.policy.cancel_wait_s))
    return tuple(out)


def _of_child(h: Handoff, child_id: str, at: float, ref: str) -> tuple[Action, ...]:
    """An open target hears what its child asks and how it ended.

    As a follow-up message, or as the answer to its call.
    """
    child = next(c for c in h.children if c.handoff_id == child_id)
    attempt = h.attempt
    if (
        h.state.terminal
        or child.by_call
        or not child.target_open
        or attempt is None
        or attempt.readiness in _FETCHED
    ):
        return ()
    return (Schedule(kind=WorkKind.FORWARD, due_at=at, attempt=attempt.number, ref=ref),)


def _ended(event: Event, h: Handoff) -> tuple[Action, ...]:
    at = h.ended_at or h.updated_at
    out: list[Action] = [Drop()]
    attempt = h.attempt
    if not h.leaf_id and _still_at_work(event, attempt) and attempt is not None:
        out.append(Schedule(kind=WorkKind.CANCEL, due_at=at, attempt=attempt.number))
    elif attempt is not None and attempt.rescinded and attempt.ended_at == at:
        out.append(Schedule(kind=WorkKind.RESCIND, due_at=at, attempt=attempt.number))
    out.extend(
        Schedule(kind=WorkKind.CANCEL_CHILD, due_at=at, ref=child.handoff_id)
        for child in h.children
        if child.state is None
    )
    return tuple(out)


def _still_at_work(event: Event, attempt: Attempt | None) -> bool:
    """Whether the target has to be told to stop: the handoff ended over its head."""
    if attempt is None or attempt.outcome is not None or attempt.readiness in _FETCHED:
        return False
    if isinstance(event, ev.HandoffExpired):
        return True
    return isinstance(event, ev.HandoffCanceled) and not event.confirmed
