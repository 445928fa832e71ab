"""Every state that one handoff can come into, breadth first, and what must hold in each.

The world around the pure machine is as bad as it gets: any word of any agent comes at any time, once or
again, for this attempt or an old one; any due work is done, and done again because a crash kept that from
being noted; the caller cancels and replies in between. A state is the handoff and the work that is pending;
times and versions are left out, so there are finitely many.

Not here: the broker, the store, several handoffs (``tests/acceptance``, ``tests/races``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.actions import actions_for
from a2a_handoff.core.agents import Readiness, Role
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import Mode
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Drop, Event, Outcome, State, WorkKind
from a2a_handoff.core.handoff import Attempt, Handoff, evolve
from a2a_handoff.core.machine import decide
from a2a_handoff.core.policy import Policy
from tests.support.machine import NOW, candidate, means, request

#: (kind, attempt, ref)
Work = tuple[WorkKind, int, str]

_FETCHED = (Readiness.PULL, Readiness.PERSON)
#: Work that outlives the handoff: telling others that it is over, and what the caller said last.
_AFTER_THE_END = {WorkKind.CANCEL, WorkKind.CANCEL_CHILD, WorkKind.RESCIND}
#: Work that is done again and again, until the attempt ends.
_PUT_BACK = {WorkKind.RECONCILE, WorkKind.LEASE}
_OUTPUT = ev.Output(kind=ev.OutputKind.ARTIFACT, body=b"{}", artifact_id="a")
_ENDS = (State.COMPLETED, State.CANCELED, State.RETURNED)


@dataclass(frozen=True)
class Cast:
    """Who plays: agents in the order of candidates, perhaps a supervisor; and what they do beside that."""

    agents: tuple[tuple[str, Readiness], ...]
    supervisor: bool = False
    replay_safe: bool = False
    hands_on: Mode | None = None
    target_open: bool = False
    converses: bool = False
    policy: Policy = field(default_factory=lambda: Policy(deliveries=2, agents=2))

    @property
    def candidates(self) -> tuple[ev.Candidate, ...]:
        return tuple(candidate(name, readiness) for name, readiness in self.agents)

    def means(self, h: Handoff) -> Iterator[ev.Means]:
        """All agents are there to be asked next, or none is."""
        boss = (candidate("boss", Readiness.PERSON, Role.SUPERVISOR),) if self.supervisor else ()
        for names in (tuple(name for name, _ in self.agents), ()):
            yield means(*names, supervisors=boss, n=len(h.attempts) + 1)


@dataclass
class Node:
    """A state, and one way to it."""

    handoff: Handoff
    pending: frozenset[Work]
    log: tuple[Event, ...]
    way: tuple[str, ...]

    @property
    def key(self) -> Any:
        """What makes it another state than others."""
        return _timeless(self.handoff), self.pending


@dataclass(frozen=True)
class Move:
    """Something that happens: a command, and the work that is over with it."""

    name: str
    command: Command
    settles: Work | None = None


@dataclass
class Explored:
    """What there was. ``ends`` counts the states in which it is over."""

    states: int = 0
    steps: int = 0
    ends: Counter[State] = field(default_factory=Counter[State])


class Broken(AssertionError):
    """Something does not hold. The message says what, and how to come there."""

    def __init__(self, what: str, way: tuple[str, ...]) -> None:
        super().__init__(f"{what}\n" + "\n".join(f"{n}. {step}" for n, step in enumerate(way, 1)))


def explore(cast: Cast, *, most: int = 100_000) -> Explored:
    """Visit every state. Raises ``Broken``; also if there are more than ``most`` states."""
    explored = Explored()
    queue = deque(_beginnings(cast))
    seen = {node.key for node in queue}
    while queue:
        node = queue.popleft()
        explored.states += 1
        if explored.states > most:
            raise Broken(f"there are more than {most} states", node.way)
        if node.handoff.state.terminal:
            explored.ends[node.handoff.state] += 1
        for move in _moves(cast, node):
            explored.steps += 1
            after = _step(node, move)
            if after is not None and (key := after.key) not in seen:
                seen.add(key)
                queue.append(after)
    return explored


def _beginnings(cast: Cast) -> Iterator[Node]:
    """Candidates are there at once, or are waited for."""
    for name, candidates in (("requested", cast.candidates), ("requested, nobody is there", ())):
        asked = request(
            *candidates,
            wait=not candidates,
            replay_safe=cast.replay_safe,
            policy=cast.policy,
            deadline_at=1e12,
        )
        events = decide(None, asked, NOW)
        node = Node(handoff=evolve(None, events[0]), pending=frozenset(), log=(), way=(name,))
        yield _after(node, events, None, name)


# --- what may happen ---------------------------------------------------------------------------------


def _moves(cast: Cast, node: Node) -> Iterator[Move]:
    h = node.handoff
    yield from _work_done(cast, node)
    for attempt in h.attempts:
        yield from _agent_says(cast, h, attempt)
    yield Move("the caller cancels", cmd.Cancel(by="sender"))
    if cast.converses:
        yield Move("the caller says something", cmd.Reply(message=b"{}", message_id="m-2"))
    for child in h.children:
        yield Move(f"{child.handoff_id} took over", cmd.ChildTookOver(child_id=child.handoff_id))
        for end in _ENDS:
            over = cmd.ChildOver(child_id=child.handoff_id, state=end, outcome=Outcome.NO_CAPABLE_AGENT)
            yield Move(f"{child.handoff_id} is over: {end}", over)


def _work_done(cast: Cast, node: Node) -> Iterator[Move]:
    """Each pending work, done and noted; or not noted, because of a crash or because it is to be done again."""
    for work in sorted(node.pending):
        for command in _outcomes(cast, node.handoff, work):
            name = f"{work[0]} of attempt {work[1]}: {_shown(command)}"
            yield Move(f"{name}, not noted", command)
            if work[0] not in _PUT_BACK:
                yield Move(name, command, work)


def _outcomes(cast: Cast, h: Handoff, work: Work) -> Iterator[Command]:
    kind, number, _ = work
    match kind:
        case WorkKind.DELIVER:
            for given in cast.means(h):
                # Only the first delivery of an attempt can prove that nothing has begun.
                for again in () if h.uncertain else (True, False):
                    yield cmd.DeliveryFailed(
                        attempt=number,
                        outcome=Outcome.TARGET_UNAVAILABLE,
                        detail="down",
                        means=given,
                        again=again,
                    )
                yield cmd.DeliveryUnsure(attempt=number, detail="silent", means=given)
        case WorkKind.RECONCILE:
            for given in cast.means(h):
                yield cmd.TargetLost(attempt=number, detail="lost", means=given)
                yield cmd.DeliveryUnsure(attempt=number, detail="silent", means=given)
        case WorkKind.LEASE:
            for given in cast.means(h):
                yield cmd.TargetLost(attempt=number, detail="lease", means=given)
        case WorkKind.OFFER_LAPSE:
            for given in cast.means(h):
                yield cmd.OfferLapsed(attempt=number, means=given)
        case WorkKind.RESOLVE:
            for given in cast.means(h):
                for found in (cast.candidates, ()):
                    yield cmd.Resolved(
                        resolution=ev.Resolution(candidates=found, wait=not found), means=given
                    )
                yield cmd.Resolved(resolution=ev.Resolution(reason=Outcome.NO_CAPABLE_AGENT), means=given)
        case WorkKind.WAIT_OVER:
            for given in cast.means(h):
                yield cmd.WaitOver(means=given)
        case WorkKind.CANCEL:
            yield cmd.ConfirmCancel(confirmed=True)
        case WorkKind.CANCEL_DUE:
            yield cmd.ConfirmCancel(confirmed=False)
        case WorkKind.DEADLINE:
            yield cmd.Expire()
        case _:
            return


def _agent_says(cast: Cast, h: Handoff, attempt: Attempt) -> Iterator[Move]:
    """Any word of an agent that was ever asked. It ends its delivery, if that is under way."""
    who, number = attempt.agent_id, attempt.number
    named: dict[str, Any] = {"agent_id": who, "attempt": number}
    given = next(cast.means(h))
    words: list[Command] = [
        cmd.Acknowledge(**named, remote=ev.Remote(task_id="r")),
        cmd.Decline(**named, means=given),
        cmd.Progress(**named, outputs=(_OUTPUT,)),
        cmd.Complete(**named),
        cmd.Fail(**named),
        cmd.Release(**named),
    ]
    if attempt.readiness is Readiness.OFFER:
        words.append(cmd.Acknowledge(**named))
    if cast.converses:
        words.append(cmd.AskCaller(**named, message=b"{}"))
    if cast.hands_on is not None and not h.children:
        words.append(
            cmd.AttachChild(**named, child_id="child", mode=cast.hands_on, target_open=cast.target_open)
        )
    delivery = (WorkKind.DELIVER, number, "")
    for word in words:
        yield Move(f"{who} in attempt {number}: {_shown(word)}", word, delivery)
    # What it says by a call of its own leaves its delivery under way; the dispatcher names attempts only.
    yield Move(f"{who} calls in attempt {number}: Progress", cmd.Progress(**named, outputs=(_OUTPUT,)))
    yield Move(f"the answer in attempt {number}: Complete", cmd.Complete(attempt=number), delivery)


def _shown(command: Command) -> str:
    name = type(command).__name__
    match command:
        case cmd.DeliveryFailed(again=again):
            return f"{name}({again=})"
        case cmd.ConfirmCancel(confirmed=confirmed):
            return f"{name}({confirmed=})"
        case cmd.Resolved(resolution=resolution):
            return f"{name}({[c.agent_id for c in resolution.candidates]})"
        case _:
            return name


# --- what comes of it --------------------------------------------------------------------------------


def _step(node: Node, move: Move) -> Node | None:
    """The state after a move; ``None`` if it was refused or says nothing new."""
    before = node.handoff
    way = (*node.way, move.name)
    try:
        events = decide(before, move.command, before.updated_at + 1)
    except HandoffError:
        return None
    if not events and (move.settles is None or move.settles not in node.pending):
        return None
    _check_events(before, move.command, events, way)
    return _after(node, events, move.settles, move.name)


def _after(node: Node, events: tuple[Event, ...], settles: Work | None, name: str) -> Node:
    pending = set(node.pending) - {settles}
    handoff: Handoff | None = node.handoff if node.log else None
    for event in events:
        handoff = evolve(handoff, event)
        for action in actions_for(event, handoff):
            if isinstance(action, Drop):
                pending = {work for work in pending if action.kinds and work[0] not in action.kinds}
            else:
                pending.add((action.kind, action.attempt, action.ref))
    assert handoff is not None
    after = Node(handoff, frozenset(pending), (*node.log, *events), (*node.way, name))
    _check_state(after)
    return after


def _timeless(h: Handoff) -> Handoff:
    """The handoff without what differs between two ways to the same state."""
    attempts = tuple(
        replace(
            attempt,
            offered_at=0.0,
            acked_at=None if attempt.acked_at is None else 0.0,
            ended_at=None if attempt.ended_at is None else 0.0,
            retries=(),
            detail="",
        )
        for attempt in h.attempts
    )
    return replace(
        h,
        version=0,
        updated_at=0.0,
        attempts=attempts,
        waiting_until=None if h.waiting_until is None else 0.0,
        acked_at=None if h.acked_at is None else 0.0,
        ended_at=None if h.ended_at is None else 0.0,
        detail="",
    )


# --- what must hold ----------------------------------------------------------------------------------


def _check_events(before: Handoff, command: Command, events: tuple[Event, ...], way: tuple[str, ...]) -> None:
    """Of what was decided, in the state before it."""

    def holds(what: str, yes: bool) -> None:
        if not yes:
            raise Broken(what, way)

    late = all(isinstance(event, ev.LateResultRecorded) for event in events)
    holds("terminal is final", not before.state.terminal or late)
    number = getattr(command, "attempt", 0)
    current = not number or (bool(before.attempts) and number == before.attempts[-1].number)
    holds("an old attempt changes nothing", current or late)
    h = before
    for event in events:
        after = evolve(h, event)
        acked = isinstance(event, ev.HandoffAcknowledged)
        holds("the source lets go only by an ACK", after.owner != "target" or h.owner == "target" or acked)
        if isinstance(event, ev.HandoffOffered):
            holds("nothing is replayed once output was relayed", not h.output_started)
            holds("one attempt at a time", all(a.outcome is not None for a in h.attempts))
            begun = any(a.remote.task_id or a.acked_at is not None for a in h.attempts)
            declined = bool(h.attempts) and h.attempts[-1].outcome is Outcome.TARGET_REJECTED
            unsure = before.uncertain or begun
            holds("what may be at work is not given away", h.replay_safe or declined or not unsure)
            holds("a task that is to stop is offered to nobody", not h.cancel_requested)
        if isinstance(event, ev.HandoffEscalated):
            holds("one escalation", not h.escalated)
        h = after


def _check_state(node: Node) -> None:
    h, pending = node.handoff, {work[:2] for work in node.pending}
    kinds = {kind for kind, _ in pending}
    attempt = h.attempt

    def holds(what: str, yes: bool) -> None:
        if not yes:
            raise Broken(what, node.way)

    replayed: Handoff | None = None
    for event in node.log:
        replayed = evolve(replayed, event)
    holds("replaying the log gives the snapshot", replayed == h)
    holds("one agent holds it at most", sum(a.outcome is None for a in h.attempts) <= 1)
    tried = [a.agent_id for a in h.attempts]
    holds("each agent is tried once", len(tried) == len(set(tried)))
    holds("agents are bounded", len(set(tried) - {"boss"}) <= h.policy.agents)
    holds("deliveries are bounded", all(a.deliveries <= h.policy.deliveries for a in h.attempts))
    holds("resolutions are bounded", h.resolutions <= 2 or not tried)
    if h.owner == "target":
        holds("the owner has said ready", attempt is not None and attempt.acked_at is not None)
    if h.state.terminal:
        holds("nothing is done for a handoff that is over", kinds <= _AFTER_THE_END)
        holds("an end has its time", h.ended_at is not None)
        return
    holds("it ends by its deadline", WorkKind.DEADLINE in kinds)
    holds("a cancel ends", not h.cancel_requested or WorkKind.CANCEL_DUE in kinds)
    if h.state is State.REQUESTED:
        holds("it is being looked for somebody", bool(kinds & {WorkKind.RESOLVE, WorkKind.WAIT_OVER}))
    if attempt is None or attempt.outcome is not None or h.state is State.HANDED_OFF:
        return
    current = attempt.number
    if attempt.acked_at is None and attempt.readiness is Readiness.PULL and h.state is State.OFFERED:
        on_time = (WorkKind.OFFER_LAPSE, current) in pending or WorkKind.WAIT_OVER in kinds
        holds("an offer does not lie for ever", on_time)
    if attempt.acked_at is None and attempt.readiness not in _FETCHED and not h.uncertain:
        holds("an offer is delivered", (WorkKind.DELIVER, current) in pending)
    if h.uncertain and attempt.readiness not in _FETCHED:
        asked = {(WorkKind.RECONCILE, current), (WorkKind.DELIVER, current)}
        holds("a target that may be at work is asked", bool(asked & pending))
