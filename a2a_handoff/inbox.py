"""The inboxes of agents that fetch their work: editors, browser extensions, people.

Duty: what an agent was offered and has not accepted, in the order in which it is to be done; waiting for
the next offer, and for broadcasts.
Rules: an inbox is read from the store, so nothing is lost: an offer stays until it is accepted, declined or
withdrawn, whatever becomes of the connection that it was shown on. Waiting costs nothing until a wake-up
comes. Who waits has a seat, for one answer or for as long as a socket is open. Of several that wait for one
agent, one is shown an offer first, the others if it was not accepted within ``HOLD_S`` or when their time is
over; the first ``accept`` has it.
A cursor says what was shown: with it only other offers come, or the same one when it is announced again.
Not here: accepting (``broker``), the order (``core.inbox``), who is offered what (``core.matching``).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import msgspec
from msgspec.structs import replace

from a2a_handoff.broadcasts import BROADCASTS_TOPIC, Broadcasts, broadcast_topic
from a2a_handoff.core.agents import Agent, Readiness
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import State
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.core.inbox import in_order
from a2a_handoff.ledger import inbox_topic
from a2a_handoff.ports import Broadcast, Clock, HandoffQuery, Listener, Notifier, Principal, Scope, Store
from a2a_handoff.registry import Registry, speaks_for_itself
from a2a_handoff.wire.cursor import Cursor, mark, read_cursor, written

#: Seconds that an offer is left to whoever was shown it first.
HOLD_S = 2.0
#: A cursor remembers so many offers; what was shown before and is still there is shown again.
SHOWN_MAX = 64

_FETCHED = (Readiness.PULL, Readiness.PERSON)
_OFFERED = frozenset({State.OFFERED, State.ESCALATED})
_PAGE = 500


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch came back with; without offers and broadcasts if with nothing.

    ``cursor`` is where to go on from. ``resync``: the cursor that was given means nothing here, so
    everything is shown again.
    """

    cursor: str
    offers: tuple[Handoff, ...] = ()
    broadcasts: tuple[Broadcast, ...] = ()
    resync: bool = False

    @property
    def offer(self) -> Handoff | None:
        """The most urgent offer."""
        return self.offers[0] if self.offers else None


class Seat:
    """Somebody who waits for what an agent is offered, and remembers what it was shown.

    ``cursor`` is where it stands; ``resync``: the cursor that was given means nothing here. ``left`` are
    offers that are left to another seat of the same agent, and until when. ``most`` offers are shown at once.
    """

    __slots__ = (
        "_inbox",
        "_listener",
        "agent",
        "broadcasts",
        "cursor",
        "left",
        "most",
        "resync",
        "seen",
        "topic",
    )

    def __init__(
        self,
        inbox: Inbox,
        agent: Agent,
        cursor: Cursor,
        listener: Listener,
        *,
        broadcasts: bool,
        resync: bool,
        most: int,
    ) -> None:
        self._inbox = inbox
        self._listener = listener
        self.agent = agent
        self.broadcasts = broadcasts
        self.cursor = cursor
        self.left: dict[int, float] = {}
        self.resync = resync
        self.most = most
        self.seen = set(cursor.shown)
        """All that was shown here and is still open: more than a cursor can say."""
        self.topic = inbox_topic(agent.tenant, agent.agent_id)

    def leaves(self, offer: int, now: float) -> bool:
        """Whether an offer is left to another one."""
        return self.left.get(offer, now) > now

    def unshow(self, found: Found, before: Cursor) -> None:
        """What was found could not be shown: go back to where the seat stood."""
        self.cursor = before
        self.seen.difference_update(map(_mark_of, found.offers))

    async def next(self, *, timeout_s: float) -> Found | None:
        """The most urgent offers that were not shown, at once or as soon as one comes; broadcasts too.

        ``None`` after ``timeout_s`` seconds, or when the broker stops. Raises ``StoreUnavailable``.
        """
        inbox = self._inbox
        ends_at = inbox.clock.monotonic() + timeout_s
        while True:
            found, self.cursor = await inbox.look(self)
            if found.offers or found.broadcasts or found.resync or self.resync:
                found = replace(found, resync=found.resync or self.resync)
                self.resync = False
                return found
            now = inbox.clock.monotonic()
            if inbox.closing or (now >= ends_at and not self.left):
                return None
            if now >= ends_at:
                self.left.clear()  # its time is over: better shown twice than not at all
                continue
            again_at = min((until for until in self.left.values() if until > now), default=ends_at)
            await self._listener.wait(timeout_s=min(again_at, ends_at) - now)


class Inbox:
    """The inboxes of all agents."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        broadcasts: Broadcasts,
        notifier: Notifier,
        clock: Clock,
    ) -> None:
        self._store = store
        self._registry = registry
        self._broadcasts = broadcasts
        self._notifier = notifier
        self.clock = clock
        self._seats: dict[str, set[Seat]] = {}
        self.closing = False
        """Set at the start of a graceful stop: who waits is let go with nothing."""

    async def pending(self, principal: Principal, agent_id: str) -> list[Handoff]:
        """What an agent was offered and has not accepted, most urgent first; nothing for an unknown one.

        Without a name the caller's own. To look is a sign of life. Raises ``HandoffError``
        (``agent_not_found``) for the inbox of another.
        """
        principal.require(Scope.WORK)
        agent = await self._registry.find(principal.tenant, agent_id or principal.name)
        if agent is None:
            return []
        self._check_owner(principal, agent)
        self._registry.presence.called(principal, agent.agent_id)
        return await self._offers(agent, fetched=False)

    async def watch(
        self,
        principal: Principal,
        agent_id: str,
        *,
        timeout_s: float,
        after: str = "",
        broadcasts: bool = False,
    ) -> Found:
        """The most urgent offer that was not shown, at once or as soon as one comes.

        Comes back with nothing after ``timeout_s`` seconds, or when the broker stops. The agent is present
        as long as it waits. ``broadcasts``: come back for them too. A cursor that means nothing here is
        answered at once. Raises ``HandoffError``: ``agent_not_found``, ``invalid_params``.
        """
        await self._registry.find(principal.tenant, agent_id or principal.name)
        with self.seat(principal, agent_id, after=after, broadcasts=broadcasts) as seat:
            start = seat.cursor
            found = await seat.next(timeout_s=timeout_s)
            return found or Found(cursor=after or written(start))

    @contextmanager
    def seat(
        self,
        principal: Principal,
        agent_id: str,
        *,
        after: str = "",
        broadcasts: bool = False,
        field: str = "after",
        most: int = 1,
    ) -> Generator[Seat]:
        """A place to wait at, from where the cursor ``after`` stands. The agent is present meanwhile.

        Raises ``HandoffError``: ``agent_not_found``, ``invalid_params`` at ``field``.
        """
        principal.require(Scope.WORK)
        agent = self._registry.get(principal.tenant, agent_id or principal.name)
        if agent is None:
            raise HandoffError(
                Code.AGENT_NOT_FOUND,
                f"There is no agent {agent_id[:64]!r}: register it first (POST /api/agents).",
            )
        self._check_owner(principal, agent)
        start = Cursor(epoch=self._broadcasts.epoch, owner=mark(agent.tenant, agent.agent_id))
        given = read_cursor(after, field) if after else start
        resync = (given.epoch, given.owner) != (start.epoch, start.owner)
        topics = [inbox_topic(agent.tenant, agent.agent_id)]
        if broadcasts:
            topics += (broadcast_topic(agent.tenant, agent.workspace), BROADCASTS_TOPIC)
        with ExitStack() as held:
            if agent.readiness in _FETCHED:
                held.enter_context(self._registry.presence.connected(agent.tenant, agent.agent_id))
            listener = held.enter_context(self._notifier.listen(*topics))
            seat = Seat(
                self,
                agent,
                start if resync else given,
                listener,
                broadcasts=broadcasts,
                resync=resync,
                most=most,
            )
            seats = self._seats.setdefault(seat.topic, set())
            seats.add(seat)
            try:
                yield seat
            finally:
                seats.discard(seat)
                if not seats:
                    del self._seats[seat.topic]

    def _check_owner(self, principal: Principal, agent: Agent) -> None:
        if not speaks_for_itself(principal, agent.agent_id):
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {agent.agent_id[:64]!r} of yours.")

    async def look(self, seat: Seat) -> tuple[Found, Cursor]:
        """What there is now beyond what a seat was shown and what is left to others, and its next cursor."""
        cursor, agent = seat.cursor, seat.agent
        heard: tuple[Broadcast, ...] = ()
        position, beyond = cursor.position, False
        if seat.broadcasts:
            heard, position, beyond = await self._broadcasts.since(agent, position)
        there = {_mark_of(offer): offer for offer in await self._offers(agent)}
        now = self.clock.monotonic()
        seat.seen &= there.keys()
        seat.left = {m: until for m, until in seat.left.items() if m in there}
        fresh = [m for m in there if m not in seat.seen and not seat.leaves(m, now)][: seat.most]
        seat.seen.update(fresh)
        for other in self._seats[seat.topic] - {seat}:
            other.left.update(dict.fromkeys(fresh, now + HOLD_S))
        shown = (*(m for m in cursor.shown if m in there), *fresh)[-SHOWN_MAX:]
        after = replace(cursor, position=position, shown=shown)
        found = Found(
            cursor=written(after),
            offers=tuple(there[m] for m in fresh),
            broadcasts=heard,
            resync=beyond,
        )
        return found, after

    async def _offers(self, agent: Agent, *, fetched: bool = True) -> list[Handoff]:
        """The open offers of an agent, most urgent first. ``fetched``: without those that are sent to it."""
        query = HandoffQuery(tenant=agent.tenant, holder=agent.agent_id, states=_OFFERED, limit=_PAGE)
        found: list[Handoff] = []
        while True:
            page = await self._store.list_handoffs(query)
            found += [h for h in page.handoffs if not fetched or _open_attempt(h).readiness in _FETCHED]
            if page.next is None:
                return in_order(found)
            query = replace(query, before=page.next)


def _open_attempt(handoff: Handoff) -> Attempt:
    return handoff.attempts[-1]  # who is offered a handoff has an attempt


def _mark_of(handoff: Handoff) -> int:
    """Stands for one announcement of an offer: a repeated one is shown again."""
    attempt = _open_attempt(handoff)
    return mark(attempt.offer_id, str(attempt.deliveries))
