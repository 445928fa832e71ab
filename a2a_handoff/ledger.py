"""The only writer of handoffs.

Duty: load, decide, commit, then tell everybody: the feed, the waiters, the recorder, the registry and the
dispatcher. Every change of every handoff, whoever asks for it, goes through ``create`` or ``change``.
Rules: one change of a handoff at a time in this process; another broker is found out by the version and
the change decided anew, and so is what the state at hand refuses: it may have moved on elsewhere. An offer to
an agent that takes only so many tasks at a time needs a slot of it, taken by the same commit; if none is left
it is decided anew who is asked. What other brokers commit is told here by ``heard``, as far as it concerns
this process. Nothing is told before it is durable, and what is durable is told, also if whoever asked for it
is cancelled meanwhile.
Not here: what is decided (``core.machine``), which work is done (``dispatcher``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from weakref import WeakValueDictionary

from msgspec.structs import replace

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.actions import actions_for
from a2a_handoff.core.agents import Readiness
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import Mode
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Event, Outcome, WorkKind
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.machine import decide_all
from a2a_handoff.feed import LOG_TOPIC, Feed
from a2a_handoff.ports import (
    Change,
    Clock,
    Commit,
    Committed,
    HandoffWrite,
    Notifier,
    Recorded,
    Recorder,
    RequestKey,
    SlotConflict,
    Store,
    StoreUnavailable,
    VersionConflict,
    Webhook,
    Work,
    WorkKey,
)
from a2a_handoff.registry import NEWS_TOPIC, Registry
from a2a_handoff.slots import Need, informed, needed

#: Wakes whoever claims work: some is due sooner than it would look again by itself.
WORK_TOPIC = "work"

#: How long the claiming loop sleeps at most.
IDLE_S = 5.0

_CONFLICTS = 50
#: How often a request is resolved again because all of its candidates turn out to be full: ten at a time are
#: looked at, and of a large fleet without a free agent not all need be.
_REROUTES_MAX = 5


def inbox_topic(tenant: str, agent_id: str) -> str:
    """Wakes the agent that waits for offers."""
    return f"inbox:{tenant}:{agent_id}"


Decide = Callable[[Handoff], Sequence[Command]]
Reroute = Callable[[frozenset[str]], ev.Resolution]
Steps = list[tuple[Event, Handoff]]


class WorkLost(Exception):
    """This broker stood still, and another one has taken over the work that a change follows from."""


async def _always_ours(_key: WorkKey) -> bool:
    return True


class Ledger:
    """Writes handoffs to the store and tells the rest of the process."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        notifier: Notifier,
        recorder: Recorder,
        clock: Clock,
        feed: Feed,
        shared: bool = False,
    ) -> None:
        """``shared``: other brokers write to the store too."""
        self.store = store
        self._shared = shared
        self._registry = registry
        self._notifier = notifier
        self._recorder = recorder
        self._clock = clock
        self._feed = feed
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.on_work: Callable[[Sequence[Work], float], None] = lambda _works, _at: None
        """Set by the dispatcher: takes the work that a commit claimed, at what time."""
        self.holds: Callable[[WorkKey], Awaitable[bool]] = _always_ours
        """Set by the dispatcher: whether no other broker has taken over work that was claimed here."""
        self.on_over: Callable[[str], None] = lambda _handoff_id: None
        """Set by the dispatcher: an attempt is over, whoever talks to its agent may stop."""
        self.on_said: Callable[[str], None] = lambda _handoff_id: None
        """Set by who talks to agents: another broker passes on what the caller said."""

    async def create(
        self,
        request: cmd.Request,
        *,
        reroute: Reroute | None = None,
        key: RequestKey | None = None,
        alias: str = "",
        alias_owner: str = "",
        attach: cmd.AttachChild | None = None,
        settled: tuple[WorkKey, ...] = (),
        webhooks: tuple[Webhook, ...] = (),
    ) -> Handoff:
        """Store a new handoff, and in the same commit that its parent has a child, and who is to be told.

        ``reroute`` resolves again, given the agents that are full; without it the resolution stays.
        ``settled`` is work that this is the outcome of. Raises ``HandoffError`` if a guard refuses it,
        ``DuplicateRequest``, ``ChainTaken`` and ``WorkLost``; nothing is stored then.
        """
        await self._check(*settled)
        if request.parent is None or attach is None:
            return await self._create(request, reroute, key, (alias, alias_owner), None, settled, webhooks)
        async with self._lock(request.parent.handoff_id):
            return await self._create(request, reroute, key, (alias, alias_owner), attach, settled, webhooks)

    async def _create(
        self,
        request: cmd.Request,
        reroute: Reroute | None,
        key: RequestKey | None,
        alias: tuple[str, str],
        attach: cmd.AttachChild | None,
        settled: tuple[WorkKey, ...],
        webhooks: tuple[Webhook, ...],
    ) -> Handoff:
        reroutes = 0
        for _ in range(_CONFLICTS):
            now = self._clock.now()
            own = decide_all(None, (request,), now)
            writes = [self._write(None, own, *(_telling(webhook, now) for webhook in webhooks))]
            befores: list[Handoff | None] = [None]
            with ExitStack() as locks:
                if attach is not None and request.parent is not None:
                    commands = (attach, *_for_the_parent(own))
                    parent, steps = await self._decided(request.parent.handoff_id, _always(commands), now)
                    writes.append(self._write(parent, steps))
                    befores.append(parent)
                    await self._climb(parent, steps, now, locks, writes, befores)
                need = needed(self._registry, own, request.means.full)
                commit = Commit(
                    writes=tuple(writes),
                    now=now,
                    settled=settled,
                    slots=need.slots,
                    beyond=need.beyond,
                    request_key=key,
                    alias=alias[0],
                    alias_owner=alias[1],
                    webhooks=webhooks,
                )
                try:
                    return await self._commit(commit, befores)
                except VersionConflict:
                    for write in writes:
                        self._feed.forget(write.handoff.id)
                except SlotConflict as conflict:
                    full = need.learnt(request.means.full, conflict)
                    request = replace(request, means=replace(request.means, full=full))
                    if reroute is not None and reroutes < _REROUTES_MAX:
                        reroutes += 1
                        request = replace(request, resolution=reroute(full))
        raise HandoffError(Code.UNAVAILABLE, "What this handoff depends on changes too fast; try again.")

    async def change(
        self,
        handoff_id: str,
        decide: Decide,
        *,
        settled: tuple[WorkKey, ...] = (),
        held: tuple[WorkKey, ...] = (),
    ) -> Handoff:
        """Decide on the newest state, and commit. ``settled`` work is done with the same commit.

        ``decide`` may be called again if another replica was faster. Raises what the machine raises, and
        ``WorkLost`` if ``settled`` or ``held`` work, which this follows from, is another broker's by now.
        """
        full: frozenset[str] = frozenset()
        async with self._lock(handoff_id):
            for _ in range(_CONFLICTS):
                await self._check(*settled, *held)
                now = self._clock.now()
                before, steps = await self._decided(handoff_id, informed(decide, full), now)
                if not steps:
                    if settled:
                        await self.settle(*settled)
                    return before
                need = needed(self._registry, steps, full)
                try:
                    return await self._commit_change(before, steps, settled, need, now)
                except VersionConflict:
                    self._feed.forget(handoff_id)
                except SlotConflict as conflict:
                    full = need.learnt(full, conflict)
        raise HandoffError(Code.UNAVAILABLE, "The handoff changes too fast; try again.")

    async def _check(self, *keys: WorkKey) -> None:
        """Raises ``WorkLost`` if work is not this broker's any more."""
        if self._shared:
            for key in keys:
                if not await self.holds(key):
                    raise WorkLost

    async def settle(self, *keys: WorkKey) -> None:
        """Work that is done and changed nothing. Raises ``WorkLost`` as ``change``."""
        await self._check(*keys)
        await self.store.commit(Commit(writes=(), now=self._clock.now(), settled=keys))

    async def swap(self, key: WorkKey, *works: ev.Schedule) -> None:
        """Work in place of other work, in one commit. The handoff does not change. Raises ``WorkLost``."""
        await self._check(key)
        await self._schedule(key.handoff_id, *works, settled=(key,))

    async def attach(self, webhook: Webhook, *, settled: tuple[WorkKey, ...] = ()) -> None:
        """A webhook and the work of telling it, in one commit. The handoff does not change.

        ``settled`` is the work of the edition whose place it takes.
        """
        work = _telling(webhook, self._clock.now())
        await self._schedule(webhook.handoff_id, work, settled=settled, webhooks=(webhook,))

    async def _schedule(
        self,
        handoff_id: str,
        *works: ev.Schedule,
        settled: tuple[WorkKey, ...] = (),
        webhooks: tuple[Webhook, ...] = (),
    ) -> None:
        async with self._lock(handoff_id):
            for _ in range(_CONFLICTS):
                h = await self._current(handoff_id)
                write = HandoffWrite(handoff=h, events=(), expected_version=h.version, actions=works)
                commit = Commit(writes=(write,), now=self._clock.now(), settled=settled, webhooks=webhooks)
                try:
                    committed = await self.store.commit(commit)
                except VersionConflict:
                    self._feed.forget(handoff_id)
                    continue
                self.on_work(committed.claimed, commit.now)
                return
        raise HandoffError(Code.UNAVAILABLE, "The handoff changes too fast; try again.")

    async def _commit_change(
        self,
        before: Handoff,
        steps: Steps,
        settled: tuple[WorkKey, ...],
        need: Need,
        now: float,
    ) -> Handoff:
        """Write a change, and in the same commit what it means for the chain above.

        A child's ACK ends its parent's part, and its end is that of a parent that handed off: one owner
        at any time, and no moment in which a chain stands half ended.
        """
        writes = [self._write(before, steps)]
        befores: list[Handoff | None] = [before]
        with ExitStack() as locks:
            if before.parent is not None:
                await self._climb(before, steps, now, locks, writes, befores)
            commit = Commit(
                writes=tuple(writes), now=now, settled=settled, slots=need.slots, beyond=need.beyond
            )
            try:
                return await self._commit(commit, befores)
            except VersionConflict:
                for write in writes:
                    self._feed.forget(write.handoff.id)
                raise

    async def _climb(
        self,
        before: Handoff,
        steps: Steps,
        now: float,
        locks: ExitStack,
        writes: list[HandoffWrite],
        befores: list[Handoff | None],
    ) -> None:
        """Add what a change means for the handoffs above, which stay locked by ``locks``."""
        while before.parent is not None and (commands := _for_the_parent(steps)):
            lock = self._lock(before.parent.handoff_id)
            await lock.acquire()
            locks.callback(lock.release)
            try:
                before, steps = await self._decided(before.parent.handoff_id, _always(commands), now)
            except HandoffError:
                return  # the parent has ended; its end cancels this child
            if not steps:
                return
            writes.append(self._write(before, steps))
            befores.append(before)

    @staticmethod
    def _write(before: Handoff | None, steps: Steps, *work: ev.Schedule) -> HandoffWrite:
        actions = [action for event, after in steps for action in actions_for(event, after)]
        return HandoffWrite(
            handoff=steps[-1][1],
            events=tuple(event for event, _ in steps),
            expected_version=0 if before is None else before.version,
            actions=(*actions, *work),
        )

    async def _commit(self, commit: Commit, befores: Sequence[Handoff | None]) -> Handoff:
        """Write, then tell. The state of the first write is given back."""
        try:
            pending = self.store.commit(commit)
            try:
                committed = await asyncio.shield(pending)
            except asyncio.CancelledError:
                pending.add_done_callback(lambda done: self._tell_alone(commit, done, befores))
                raise
        except StoreUnavailable as error:
            # A store that was lost in the middle may have written it all the same: the next look is there.
            for write in commit.writes:
                self._feed.forget(write.handoff.id)
            raise HandoffError(
                Code.UNAVAILABLE,
                "The broker cannot write now. Try again.",
                retry_after_s=1.0,
            ) from error
        self._tell(commit, committed, befores)
        return commit.writes[0].handoff

    def _tell_alone(
        self, commit: Commit, done: asyncio.Future[Committed], befores: Sequence[Handoff | None]
    ) -> None:
        """Who wrote it is gone, but others wait for it."""
        if not done.cancelled() and done.exception() is None:
            self._tell(commit, done.result(), befores)

    def _tell(self, commit: Commit, committed: Committed, befores: Sequence[Handoff | None]) -> None:
        self._feed.add(committed.recorded, [write.handoff for write in commit.writes])
        for before, write in zip(befores, commit.writes, strict=True):
            after = write.handoff
            self._recorder.record(
                Change(
                    before=before,
                    after=after,
                    recorded=tuple(r for r in committed.recorded if r.handoff_id == after.id),
                    new_chain=after.id in committed.new_chains,
                )
            )
            for event in write.events:
                self._tell_registry(after, event)
            self._notifier.wake(after.id)
            if before is not None and before.holder and after.holder != before.holder:
                self.on_over(after.id)
        if committed.recorded:
            self._notifier.wake(LOG_TOPIC)
            self._notifier.tell(NEWS_TOPIC)
        if committed.claimed:
            self.on_work(committed.claimed, commit.now)
        soon = commit.now + IDLE_S
        if any(
            isinstance(action, ev.Schedule) and commit.now < action.due_at < soon
            for write in commit.writes
            for action in write.actions
        ):
            self._notifier.wake(WORK_TOPIC)

    async def heard(self, recorded: Sequence[Recorded]) -> None:
        """Tell this process what other brokers committed, in the order of the log."""
        for item in recorded:
            before = self._feed.state(item.handoff_id)
            known = 0 if before is None else before.version
            if item.seq == known + 1:
                after = evolve(before, item.event)
            else:
                # It was built upon here already, or lies too far back to be at hand.
                after = await self.store.load_handoff(item.handoff_id)
                if after is None:
                    continue
            self._feed.add((item,), (after,))
            self._tell_registry(after, item.event)
            self._notifier.wake(item.handoff_id)
            if isinstance(item.event, ev.ReplyReceived):
                self.on_said(item.handoff_id)
            if _ends_a_part(item.event):
                self.on_over(item.handoff_id)
        if recorded:
            self._notifier.wake(LOG_TOPIC)

    def _tell_registry(self, h: Handoff, event: Event) -> None:
        match event:
            case ev.HandoffOffered(agent_id=agent_id, readiness=readiness):
                self._registry.presence.note_offered(h.tenant, agent_id)
                if readiness in (Readiness.PULL, Readiness.PERSON):
                    self._notifier.wake(inbox_topic(h.tenant, agent_id))
            case ev.RedeliveryScheduled() if h.holder:
                self._notifier.wake(inbox_topic(h.tenant, h.holder))
            case ev.HandoffAcknowledged(agent_id=agent_id, at=at):
                offered_at = h.attempts[-1].offered_at
                self._registry.presence.note_acknowledged(h.tenant, agent_id, response_s=at - offered_at)
            case ev.AttemptEnded(agent_id=agent_id, outcome=outcome):
                self._registry.presence.note_ended(h.tenant, agent_id, outcome)
            case ev.HandedOff():
                self._registry.presence.note_ended(h.tenant, h.attempts[-1].agent_id, None)
            case (
                ev.HandoffCompleted()
                | ev.HandoffFailed()
                | ev.HandoffCanceled()
                | ev.HandoffReturned()
                | ev.HandoffExpired()
            ):
                last = h.attempt
                if last is not None and last.outcome is None and not h.leaf_id:
                    returned = isinstance(event, ev.HandoffReturned)  # nobody took on what it handed on
                    outcome = Outcome.RELEASED if returned else h.outcome
                    self._registry.presence.note_ended(h.tenant, last.agent_id, outcome)
            case _:
                pass

    async def _decided(self, handoff_id: str, decide: Decide, now: float) -> tuple[Handoff, Steps]:
        """A handoff, and what follows for it from commands. Raises what the machine raises."""
        before = await self._current(handoff_id)
        try:
            steps = decide_all(before, decide(before), now)
        except HandoffError:
            if not self._shared:
                raise
        else:
            if steps or not self._shared:
                return before, steps
        self._feed.forget(handoff_id)
        before = await self._current(handoff_id)
        return before, decide_all(before, decide(before), now)

    async def _current(self, handoff_id: str) -> Handoff:
        handoff = self._feed.state(handoff_id) or await self.store.load_handoff(handoff_id)
        if handoff is None:
            raise HandoffError(Code.TASK_NOT_FOUND)
        return handoff

    def _lock(self, handoff_id: str) -> asyncio.Lock:
        """One change at a time. Order of nesting: a child before its parent, never the other way.

        It is there as long as somebody holds it or waits for it.
        """
        lock = self._locks.get(handoff_id)
        if lock is None:
            lock = self._locks[handoff_id] = asyncio.Lock()
        return lock


def _always(commands: Sequence[Command]) -> Decide:
    return lambda _: commands


def _ends_a_part(event: Event) -> bool:
    """Whether the agent that a handoff was with has no more to say to it."""
    return isinstance(
        event,
        ev.AttemptEnded
        | ev.HandedOff
        | ev.HandoffCompleted
        | ev.HandoffFailed
        | ev.HandoffCanceled
        | ev.HandoffReturned
        | ev.HandoffExpired,
    )


def _telling(webhook: Webhook, now: float) -> ev.Schedule:
    """The work of a webhook, to begin at once."""
    return ev.Schedule(kind=WorkKind.WEBHOOK, due_at=now, ref=webhook.edition)


def _for_the_parent(steps: Steps) -> tuple[Command, ...]:
    """What a child's change tells its parent."""
    after = steps[-1][1]
    if after.parent is None:
        return ()
    commands: list[Command] = []
    kinds = {type(event) for event, _ in steps}
    if after.parent.mode is Mode.TRANSFER and ev.HandoffAcknowledged in kinds:
        commands.append(cmd.ChildTookOver(child_id=after.id))
    if after.parent.mode is Mode.DELEGATE and ev.CallerAsked in kinds and after.state.asks:
        commands.append(cmd.ChildAsks(child_id=after.id))
    if after.state.terminal and not isinstance(steps[-1][0], ev.LateResultRecorded):
        commands.append(
            cmd.ChildOver(child_id=after.id, state=after.state, outcome=after.outcome, detail=after.detail)
        )
    return tuple(commands)
