"""What happens to handoffs, told to the workspace, and to an agent what concerns it alone.

Duty: from the log to the frames of sockets: the events that a workspace hears, the offers that are taken or
withdrawn, the cancels and replies that an agent waits for.
Rules: the log is read once for all who follow, as long as anybody does, and each of them goes at its own
pace: what is kept at hand for one audience is bounded, and who falls behind that reads the log. Who was away
for more than ``BEHIND_MAX`` entries of it is told so, and goes on from its end.
Not here: offers themselves and broadcasts (``inbox``), sockets (``transports.websocket``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec
from msgspec import Raw

from a2a_handoff import chores
from a2a_handoff.core import events as ev
from a2a_handoff.core.events import Outcome
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.matching import DEFAULT_WORKSPACE
from a2a_handoff.feed import LOG_TOPIC
from a2a_handoff.journal import Journal
from a2a_handoff.ports import Listener, Notifier, Recorded, Store, StoreUnavailable
from a2a_handoff.registry import Registry
from a2a_handoff.wire.native.frames import frame
from a2a_handoff.wire.native.views import result_out

#: Items that are kept at hand for one audience.
KEPT_MAX = 256
#: Entries of the log that are read again for one who was away.
BEHIND_MAX = 10_000
#: A text of an event is cut to so many characters, a result of more bytes is left out.
TEXT_CHARS_MAX = 2_000
RESULT_BYTES_MAX = 65_536

_LOG = logging.getLogger("a2a_handoff.bulletin")
_QUIET_S = 3_600.0
_STORE_AGAIN_S = 1.0


class Item(msgspec.Struct, frozen=True):
    """One thing that is told. ``body`` is the frame but for its cursor."""

    position: int
    body: bytes


class _Board:
    """What is kept for one audience: everything after ``since``."""

    __slots__ = ("items", "readers", "since")

    def __init__(self, since: int) -> None:
        self.items: deque[Item] = deque()
        self.readers = 0
        self.since = since

    def put(self, item: Item) -> None:
        self.items.append(item)
        if len(self.items) > KEPT_MAX:
            self.since = self.items.popleft().position

    def after(self, position: int) -> list[Item]:
        found: list[Item] = []
        for item in reversed(self.items):
            if item.position <= position:
                break
            found.append(item)
        return found[::-1]


class Reading:
    """Somebody who follows. ``position`` is up to where it was told; it moves that itself, item by item."""

    __slots__ = ("_boards", "_bulletin", "_listener", "position", "topics")

    def __init__(
        self,
        bulletin: Bulletin,
        listener: Listener,
        boards: Sequence[_Board],
        topics: Sequence[str],
        position: int,
    ) -> None:
        self._bulletin = bulletin
        self._listener = listener
        self._boards = boards
        self.topics = topics
        self.position = position

    def settle(self) -> None:
        """Move on to where the log was read, if nothing is left to tell: who returns then reads less."""
        if not any(board.since > self.position or board.after(self.position) for board in self._boards):
            self.position = max(self.position, self._bulletin.position)

    async def next(self) -> list[Item]:
        """What comes next, at once or as soon as there is something; nothing when the broker stops."""
        while True:
            self.settle()
            if any(board.since > self.position for board in self._boards):
                items = await self._bulletin.reread(self)
            else:
                items = [item for board in self._boards for item in board.after(self.position)]
                items.sort(key=lambda item: item.position)
            if items or self._bulletin.closing:
                return items
            await self._listener.wait(timeout_s=_QUIET_S)


class Bulletin:
    """Tells workspaces and agents what the log says."""

    def __init__(self, *, store: Store, journal: Journal, registry: Registry, notifier: Notifier) -> None:
        self._store = store
        self._journal = journal
        self._registry = registry
        self._notifier = notifier
        self._boards: dict[str, _Board] = {}
        self._beginning = asyncio.Lock()
        self._readers = 0
        self._chores: list[asyncio.Task[None]] = []
        self.position = 0
        """Up to where the log was read; everything before is on the boards."""
        self.closing = False
        """Set at the start of a graceful stop: readers end."""

    async def close(self) -> None:
        """Stop reading the log."""
        await chores.end(self._chores)

    # --- following -------------------------------------------------------------------------------

    @asynccontextmanager
    async def follow(
        self, tenant: str, agent_id: str, *, workspace: str | None, after: int | None
    ) -> AsyncGenerator[tuple[Reading, bool]]:
        """Follow as an agent; with a ``workspace`` also what that hears. ``after`` ``None`` is from now on.

        True if ``after`` means nothing here or lies too far back: then from now on, too. Raises
        ``StoreUnavailable``.
        """
        topics = [_agent_topic(tenant, agent_id)]
        if workspace is not None:
            topics.append(_workspace_topic(tenant, workspace))
        self._readers += 1
        try:
            async with self._beginning:
                if not self._chores:
                    self.position = await self._store.log_end()
                    self._chores = [chores.begin(self._read, "bulletin")]
            boards = [self._boards.setdefault(topic, _Board(self.position)) for topic in topics]
            for board in boards:
                board.readers += 1
            try:
                end = await self._store.log_end()
                beyond = after is not None and not end - BEHIND_MAX <= after <= end
                with self._notifier.listen(*topics) as listener:
                    start = end if after is None or beyond else after
                    yield Reading(self, listener, boards, topics, start), beyond
            finally:
                self._leave(topics)
        finally:
            self._readers -= 1
            if not self._readers:
                await self._rest()

    def _leave(self, topics: Sequence[str]) -> None:
        for topic in topics:
            board = self._boards[topic]
            board.readers -= 1
            if not board.readers:
                del self._boards[topic]

    async def _rest(self) -> None:
        """Nobody follows: the log need not be read."""
        async with self._beginning:
            if not self._readers:
                await chores.end(self._chores)
                self._chores = []

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        with self._notifier.listen(LOG_TOPIC) as log:
            while True:
                try:
                    page = await self._journal.page(self.position)
                except StoreUnavailable as error:
                    _LOG.warning("the log cannot be read now: %s", error)
                    await asyncio.sleep(_STORE_AGAIN_S)
                    continue
                for recorded, handoff in page:
                    topics = self._topics_of(recorded.event, handoff)
                    told: list[tuple[str, bytes]] = []
                    if any(topic in self._boards for topic in topics):
                        told = await self._told(recorded, handoff)
                    for topic, body in told:
                        board = self._boards.get(topic)
                        if board is not None:
                            board.put(Item(recorded.position, body))
                            self._notifier.wake(topic)
                    self.position = recorded.position
                if not page:
                    await log.wait(timeout_s=_QUIET_S)

    async def reread(self, reading: Reading) -> list[Item]:
        """What a reader is told of the next page of the log; it moves on over what is nothing to it."""
        found: list[Item] = []
        for recorded, handoff in await self._journal.page(reading.position):
            if any(topic in reading.topics for topic in self._topics_of(recorded.event, handoff)):
                told = await self._told(recorded, handoff)
                found += [Item(recorded.position, body) for topic, body in told if topic in reading.topics]
            if not found:
                reading.position = recorded.position
        return found

    # --- what is told ----------------------------------------------------------------------------

    def _topics_of(self, event: ev.Event, h: Handoff) -> list[str]:
        """Who may be told of an event: an agent, then the workspace."""
        agent_id = _concerned(event, h)
        topics = [_agent_topic(h.tenant, agent_id)] if agent_id else []
        return [*topics, _workspace_topic(h.tenant, workspace_of(h, self._registry))]

    async def _told(self, recorded: Recorded, h: Handoff) -> list[tuple[str, bytes]]:
        """The frames of an event, by topic."""
        event, position = recorded.event, recorded.position
        *agents, workspace = self._topics_of(event, h)
        found = [(topic, _frame_for_agent(event, h, position)) for topic in agents]
        named = await self._event_of(event, h)
        if named is not None:
            name, data = named
            data = {"handoffId": h.id, **data}
            found.append((workspace, frame("event", event=f"handoff:{name}", data=data, position=position)))
        return found

    async def _event_of(self, event: ev.Event, h: Handoff) -> tuple[str, dict[str, object]] | None:
        """The name of an event and what belongs to it; ``None`` for what a workspace is not told."""
        match event:
            case ev.HandoffRequested(package=package, resolution=resolution):
                first = resolution.candidates[0].agent_id if resolution.candidates else ""
                task = package.context.user_intent[:TEXT_CHARS_MAX]
                return "created", {"targetAgent": package.context.target_agent or first, "task": task}
            case ev.HandoffOffered(agent_id=agent_id, attempt=attempt):
                return "offered", {"agent": agent_id, "attempt": attempt}
            case ev.HandoffAcknowledged(agent_id=agent_id, attempt=attempt):
                return "accepted", {"agent": agent_id, "attempt": attempt}
            case ev.CallerAsked(auth=auth):
                return ("auth_required" if auth else "input_required"), {}
            case ev.HandedOff(child_id=child_id):
                return "handed_off", {"childId": child_id}
            case ev.HandoffEscalated(outcome=outcome, detail=detail):
                return "escalated", _why(outcome, detail)
            case ev.HandoffCompleted():
                return "completed", {"result": await self._result(h)}
            case ev.HandoffFailed(outcome=outcome, detail=detail):
                return "failed", _why(outcome, detail)
            case ev.HandoffReturned(outcome=outcome, detail=detail):
                return "returned", _why(outcome, detail)
            case ev.HandoffExpired(detail=detail):
                return "expired", _why(Outcome.EXPIRED, detail)
            case ev.HandoffCanceled():
                return "canceled", {}
            case _:
                return None

    async def _result(self, h: Handoff) -> Raw | None:
        view = await self._journal.view(h)
        result = result_out(h, view.status_message, view.artifacts)
        return result if result is not None and len(bytes(result)) <= RESULT_BYTES_MAX else None


def workspace_of(h: Handoff, registry: Registry) -> str:
    """The workspace that hears of a handoff: the one that is named, else its sender's."""
    sender = registry.get(h.tenant, h.sender)
    return h.workspace or (sender.workspace if sender else DEFAULT_WORKSPACE)


def _agent_topic(tenant: str, agent_id: str) -> str:
    return f"told:{tenant}:agent:{agent_id}"


def _workspace_topic(tenant: str, workspace: str) -> str:
    return f"told:{tenant}:workspace:{workspace}"


def _why(outcome: Outcome, detail: str) -> dict[str, object]:
    return {"reason": outcome.value, "detail": detail[:TEXT_CHARS_MAX]}


def _concerned(event: ev.Event, h: Handoff) -> str:
    """The agent that an event concerns alone; empty if it concerns none."""
    match event:
        case ev.HandoffAcknowledged(agent_id=agent_id) | ev.AttemptEnded(agent_id=agent_id):
            return agent_id
        case ev.CancelRequested() | ev.ReplyReceived() if h.attempts and h.attempts[-1].acked_at is not None:
            return h.attempts[-1].agent_id
        case ev.HandoffCanceled() | ev.HandoffExpired() if h.attempts and h.attempts[-1].outcome is None:
            return h.attempts[-1].agent_id
        case _:
            return ""


def _frame_for_agent(event: ev.Event, h: Handoff, position: int) -> bytes:
    attempt = h.attempts[-1].number if h.attempts else 0
    here: dict[str, object] = {"handoff_id": h.id, "attempt": attempt, "position": position}
    match event:
        case ev.HandoffAcknowledged():
            return frame("taken", **here | {"attempt": event.attempt}, instance_id=event.instance_id)
        case ev.AttemptEnded():
            why = _why(event.outcome, event.detail)
            return frame("rescinded", **here | {"attempt": event.attempt}, **why)
        case ev.CancelRequested(reason=reason):
            return frame("cancel_requested", **here, reason=reason[:TEXT_CHARS_MAX])
        case ev.ReplyReceived(message=message):
            return frame("reply", **here, message=Raw(message))
        case ev.HandoffExpired(detail=detail):
            return frame("rescinded", **here, **_why(Outcome.EXPIRED, detail))
        case _:
            return frame("rescinded", **here, **_why(Outcome.CANCELED, ""))
