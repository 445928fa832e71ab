"""Reading the log of handoffs: as a task, as a stream, or one fact of it.

Duty: what was said and what is, for callers that wait or stream and for those who talk to targets.
Rules: fresh events come from the feed, the others from the store; a reader goes at its own pace and
loses nothing. Reading changes nothing.
Not here: who may read (``broker``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType

import msgspec

from a2a_handoff.core import events as ev
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Event, State
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.feed import LOG_TOPIC, Feed
from a2a_handoff.ports import Listener, Notifier, Recorded, Store
from a2a_handoff.wire.tasks import TaskView, fold

_PAGE = 500
_ASK_GONE_S = 5.0
_FROM_THE_START: Mapping[str, int] = MappingProxyType({})


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a handoff as a follower sees it, with the states around it."""

    before: Handoff | None
    event: Event
    after: Handoff

    @property
    def settled(self) -> bool:
        """Whether a blocking caller gets its answer here (A2A 1.0 section 3.2.2)."""
        return self.after.state.terminal or self.after.state.asks

    def comes_back(self, root: str) -> bool:
        """Whether a leaf was returned, which is no end yet: its sender is on the chain of ``root``.

        The end of the task follows, or more of it.
        """
        return self.after.state is State.RETURNED and self.after.id != root


class _Quiet:
    """Waits for a listener, and tells when nothing was found for ``seconds``, however often it was woken."""

    __slots__ = ("_ends_at", "_listener", "_now", "_seconds")

    def __init__(self, listener: Listener, seconds: float) -> None:
        self._listener = listener
        self._seconds = seconds
        self._now = asyncio.get_running_loop().time
        self.begin()

    def begin(self) -> None:
        """Something was found."""
        self._ends_at = self._now() + self._seconds

    async def wait(self) -> bool:
        """Whether it is time to look again; False when it was quiet for so long, which begins anew."""
        if await self._listener.wait(timeout_s=self._ends_at - self._now()):
            return True
        self.begin()
        return False


class Journal:
    """Reads handoffs."""

    def __init__(self, *, store: Store, feed: Feed, notifier: Notifier) -> None:
        self._store = store
        self._feed = feed
        self._notifier = notifier
        self.closing = False
        """Set at the start of a graceful stop: followers end once they have read what there is."""

    async def load(self, handoff_id: str) -> Handoff:
        """The handoff as it stands. Raises ``HandoffError`` (``task_not_found``)."""
        handoff = await self._store.load_handoff(handoff_id)
        if handoff is None:
            raise HandoffError(Code.TASK_NOT_FOUND)
        return handoff

    async def recall(self, handoff_id: str) -> Handoff:
        """The handoff as this process last knew it, which spares a read of the store.

        For those whose commands are fenced anyway. Raises ``task_not_found``.
        """
        return self._feed.state(handoff_id) or await self.load(handoff_id)

    async def log(self, handoff_id: str, *, upto: int = 0) -> list[Recorded]:
        """Every event of one handoff, at least up to version ``upto``.

        What the store has is in the feed only a moment later.
        """
        recent = self._feed.after(handoff_id, 0)
        if recent is not None and recent[-1].seq >= upto:
            return recent
        out: list[Recorded] = []
        while True:
            page = await self._store.read_events(handoff_id, after=len(out), limit=_PAGE)
            out.extend(page)
            if not page or 0 < upto <= len(out):
                return out

    async def read(
        self, handoff: Handoff, *, after: int, limit: int, timeout_s: float = 0.0
    ) -> tuple[list[Recorded], bool]:
        """A page of the log, as soon as it has something, or after ``timeout_s`` seconds with nothing.

        True if the log of ``handoff`` goes on after it. Nobody waits for a handoff that has ended, or in a
        broker that stops.
        """
        with self._notifier.listen(handoff.id) as listener:
            now = asyncio.get_running_loop().time
            ends_at = now() + timeout_s
            while True:
                found = await self._store.read_events(handoff.id, after=after, limit=limit)
                left_s = ends_at - now()
                if found or left_s <= 0 or handoff.state.terminal or self.closing:
                    return found, bool(found) and found[-1].seq < handoff.version
                await listener.wait(timeout_s=left_s)

    async def request_of(self, handoff_id: str) -> ev.HandoffRequested:
        """The event that a handoff began with: its message and its context."""
        first = self._feed.first(handoff_id)
        if first is None:
            log = await self._store.read_events(handoff_id, limit=1)
            first = log[0].event if log else None
        if not isinstance(first, ev.HandoffRequested):
            raise HandoffError(Code.TASK_NOT_FOUND)
        return first

    async def reply_of(self, handoff_id: str, message_id: str) -> bytes:
        """A follow-up message of the caller. Raises ``task_not_found``."""
        for recorded in await self.log(handoff_id, upto=(await self.load(handoff_id)).version):
            event = recorded.event
            if isinstance(event, ev.ReplyReceived) and event.message_id == message_id:
                return event.message
        raise HandoffError(Code.TASK_NOT_FOUND)

    async def known_outputs(self, handoff_id: str) -> frozenset[bytes]:
        """Every artifact and status message that is in the log, to tell what of a snapshot is new."""
        view = await self.view(await self.load(handoff_id))
        return frozenset((*view.artifacts, *view.history, view.status_message)) - {b""}

    async def view(self, handoff: Handoff) -> TaskView:
        """The A2A task of a handoff: its own log, continued by that of the leaf."""
        view, _ = await self.look(handoff)
        return view

    async def look(self, handoff: Handoff) -> tuple[TaskView, dict[str, int]]:
        """The task as ``view`` gives it, and up to which version of which handoff it was read."""
        log = await self.log(handoff.id, upto=handoff.version)
        view = fold(handoff, [r.event for r in log if r.seq <= handoff.version])
        read = {handoff.id: handoff.version}
        if handoff.leaf_id:
            leaf, leaf_read = await self.look(await self.load(handoff.leaf_id))
            return view.continued_by(leaf), read | leaf_read
        return view, read

    async def follow(self, handoff_id: str, *, quiet_s: float = 3600.0) -> AsyncGenerator[Step | None]:
        """Every event of a handoff from its first on, then those to come, until its end.

        Where the task was handed on, the leaf's events follow in its place. ``None`` is yielded after
        ``quiet_s`` seconds without an event, and lets the caller write a keep-alive. Ends early when
        the broker stops. A slow caller loses nothing: it reads at its own pace.
        """
        with self._notifier.listen(handoff_id) as listener:
            quiet = _Quiet(listener, quiet_s)
            state: Handoff | None = None
            while True:
                seq = 0 if state is None else state.version
                batch = self._feed.after(handoff_id, seq)
                if batch is None:
                    batch = await self._store.read_events(handoff_id, after=seq, limit=_PAGE)
                for recorded in batch:
                    before, state = state, evolve(state, recorded.event)
                    yield Step(before=before, event=recorded.event, after=state)
                    if isinstance(recorded.event, ev.HandedOff):
                        async with aclosing(self.follow(recorded.event.child_id, quiet_s=quiet_s)) as leaf:
                            async for step in leaf:
                                yield step
                if state is not None and state.state.terminal:
                    return
                if batch:
                    quiet.begin()
                    continue
                if self.closing:
                    return
                if not await quiet.wait():
                    yield None

    async def page(self, after: int) -> list[tuple[Recorded, Handoff]]:
        """The events of all handoffs that follow a position, a page of them, in the order of the log.

        Each comes with its handoff as it stands by now; none at the end of the log.
        """
        known: dict[str, Handoff] = {}
        found: list[tuple[Recorded, Handoff]] = []
        for recorded in await self._store.read_log(after=after, limit=_PAGE):
            handoff = known.get(recorded.handoff_id) or await self.recall(recorded.handoff_id)
            if handoff.version < recorded.seq:  # what the store has this process knows only a moment later
                handoff = await self.load(recorded.handoff_id)
            known[handoff.id] = handoff
            found.append((recorded, handoff))
        return found

    async def tail(
        self, after: int, *, quiet_s: float = 3600.0
    ) -> AsyncGenerator[tuple[Recorded, Handoff] | None]:
        """Every event of every handoff after a position, then those to come, in the order of the log.

        Each comes as in ``page``. ``None``, the end and slow readers as in ``follow``.
        """
        with self._notifier.listen(LOG_TOPIC) as listener:
            quiet = _Quiet(listener, quiet_s)
            while True:
                batch = await self.page(after)
                for recorded, handoff in batch:
                    yield recorded, handoff
                    after = recorded.position
                if batch:
                    quiet.begin()
                    continue
                if self.closing:
                    return
                if not await quiet.wait():
                    yield None

    async def versions(self, handoff: Handoff) -> dict[str, int]:
        """The version of a handoff and of each that it was handed on to, down to the leaf."""
        found = {handoff.id: handoff.version}
        while handoff.leaf_id:
            handoff = await self.load(handoff.leaf_id)
            found[handoff.id] = handoff.version
        return found

    async def wait(
        self,
        handoff_id: str,
        *,
        since: Mapping[str, int] = _FROM_THE_START,
        gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> TaskView:
        """The task once it is terminal or asks the caller (A2A 1.0 section 3.2.2).

        A question that a handoff asked before its version in ``since`` has been answered and does not
        count. ``gone`` is asked from time to time whether the caller still waits; if not, the task is
        given as it is, and goes on.
        """
        await self._settled(handoff_id, since, gone)
        return await self.view(await self.recall(handoff_id))

    async def _settled(
        self, handoff_id: str, since: Mapping[str, int], gone: Callable[[], Awaitable[bool]] | None
    ) -> None:
        """Wait for ``wait``. It looks at the state alone: most callers wait for one step, the last."""
        with self._notifier.listen(handoff_id) as listener:
            quiet = _Quiet(listener, _ASK_GONE_S)
            while True:
                handoff = await self.recall(handoff_id)
                if handoff.state is State.HANDED_OFF:
                    await self._settled(handoff.leaf_id, since, gone)
                    return
                settled = handoff.state.terminal or handoff.state.asks
                if settled and handoff.version >= since.get(handoff_id, 0):
                    return
                if self.closing:
                    return
                if not await quiet.wait() and gone is not None and await gone():
                    return

    async def ended(self, handoff_id: str) -> Handoff:
        """Wait for the end of a handoff."""
        async with aclosing(self.follow(handoff_id)) as steps:
            async for step in steps:
                if step is not None and step.after.id == handoff_id and step.after.state.terminal:
                    return step.after
        return await self.load(handoff_id)
