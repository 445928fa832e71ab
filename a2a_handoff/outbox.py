"""Tells programs elsewhere the log: every event of every handoff, in order, once.

Duty: read on in the log from what the stream has last, append to it page by page, keep how far it is.
Rules: the log is the outbox and the stream itself the cursor: its last entry says where to go on, after any
crash of either. The mark in the store serves only where the stream does not say it, because entries at its
end were removed. Of several brokers on one store one publishes: an entry is taken only right after the one
that its publisher knows as the last. Who finds another's there stands by, and goes on when that one has
ceased to. What is too large for the stream goes without its data, with an address to read them at. What was
in the log before the first start is not told.
Sources: CloudEvents 1.0; W3C Trace Context.
Not here: the stream (``notify.jetstream``), who may see the log over HTTP (``broker``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from a2a_handoff import chores
from a2a_handoff.bulletin import workspace_of
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.tracing import SpanRef
from a2a_handoff.feed import LOG_TOPIC
from a2a_handoff.journal import Journal
from a2a_handoff.ports import (
    Clock,
    Entry,
    EventStream,
    Listener,
    Notifier,
    Recorded,
    Store,
    StoreUnavailable,
    StreamEnd,
    StreamUnavailable,
)
from a2a_handoff.registry import Registry
from a2a_handoff.wire import native
from a2a_handoff.wire.native import views

#: The mark in the store up to which the log was told.
EVENTS_MARK = "events"
#: How often a broker that stands by looks whether another one still publishes, in seconds.
STANDBY_S = 5.0
#: A broker that stops tells the last events for at most so long, in seconds.
LAST_S = 1.0

_LOG = logging.getLogger("a2a_handoff.outbox")
#: How often the mark is moved at most, in seconds.
_MARK_EVERY_S = 1.0
_AGAIN_S = 0.2
_AGAIN_MAX_S = 5.0
_QUIET_S = 3_600.0


class Outbox:
    """Publishes the log, unless another broker does.

    ``tenant`` is the usual one, which is not named in places; ``trace_url`` is where a trace is shown.
    """

    def __init__(
        self,
        *,
        store: Store,
        journal: Journal,
        registry: Registry,
        notifier: Notifier,
        stream: EventStream,
        clock: Clock,
        tenant: str,
        trace_url: Callable[[str], str],
        standby_s: float = STANDBY_S,
    ) -> None:
        self._store = store
        self._journal = journal
        self._registry = registry
        self._notifier = notifier
        self._stream = stream
        self._clock = clock
        self._tenant = tenant
        self._trace_url = trace_url
        self._standby_s = standby_s
        self._log = ""
        self._after = 0
        self._publishing = False
        self._moved = asyncio.Event()
        self._marked = (0, 0.0)
        self._pending_at: float | None = None
        self._chores: list[asyncio.Task[None]] = []
        self.published = 0
        """Entries that this broker has told since its start."""
        self.trouble = ""
        """Why nothing can be told now; empty if it can."""

    @property
    def lag_s(self) -> float:
        """The age of the oldest entry that was not told, in seconds; 0 if all were."""
        return 0.0 if self._pending_at is None else max(0.0, self._clock.now() - self._pending_at)

    async def open(self, log: str) -> None:
        """At the first start, note where the log ends. ``log`` names it. Raises ``StoreUnavailable``."""
        self._log = log
        if await self._store.get_mark(EVENTS_MARK) is None:
            await self._store.set_mark(EVENTS_MARK, await self._store.log_end())

    def start(self) -> None:
        """Begin. Waits for nothing."""
        self._chores = [chores.begin(self._run, "outbox")]

    async def stop(self) -> None:
        """Tell what the log has by now, if the stream takes it within ``LAST_S``, and nothing more.

        What was not told is told after the next start, or by another broker.
        """
        with contextlib.suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(LAST_S):
                end = await self._store.log_end()
                while self._publishing and self._after < end:
                    self._moved.clear()
                    await self._moved.wait()
        await chores.end(self._chores)
        self._cease()

    async def _run(self) -> None:
        again_s = _AGAIN_S
        with self._notifier.listen(LOG_TOPIC) as log:
            while True:
                try:
                    await self._publish(log)
                    self._cease()
                    again_s = _AGAIN_S
                    await self._stand_by()
                except (StreamUnavailable, StoreUnavailable) as error:
                    self._cease()
                    if again_s > _AGAIN_S:  # what passes at once is not worth a word
                        self._say(str(error))
                    with contextlib.suppress(StoreUnavailable):
                        await self._look(await self._marked_at())
                    await asyncio.sleep(again_s)
                    again_s = min(again_s * 2, _AGAIN_MAX_S)

    # --- publishing ------------------------------------------------------------------------------

    async def _publish(self, log: Listener) -> None:
        """Tell the log as it grows, until another broker is found to do so."""
        while True:
            end = await self._stream.end()
            after, sequence = await self._position(end), end.sequence
            self._after, self._publishing = after, True
            self._say("")
            while True:
                page = await self._next(log, after)
                self._pending_at = page[0][0].event.at
                entries = [self._entry(*item) for item in page]
                appended = await self._stream.append(entries, after=sequence)
                if appended.taken:
                    after, sequence = entries[appended.taken - 1].position, appended.sequence
                    self.published += appended.taken
                    await self._keep(after)
                if appended.taken < len(page):
                    break
            if not appended.taken:
                return

    async def _next(self, log: Listener, after: int) -> list[tuple[Recorded, Handoff]]:
        """The next page of the log, as soon as there is one."""
        while not (page := await self._journal.page(after)):
            self._pending_at = None
            marked = self._marked[0] == after
            await log.wait(timeout_s=_QUIET_S if marked else _MARK_EVERY_S)
            await self._keep(after)
        return page

    def _entry(self, recorded: Recorded, handoff: Handoff) -> Entry:
        event = views.event_out(recorded, handoff, trace_url=self._trace_url(handoff.trace.trace_id))
        body = native.encode(event)
        if len(body) > self._stream.body_max:
            body = views.event_reference(event)
        workspace, trace = workspace_of(handoff, self._registry), handoff.trace
        return Entry(
            id=event.id,
            log=self._log,
            position=recorded.position,
            place=(workspace,) if handoff.tenant == self._tenant else (handoff.tenant, workspace),
            name=views.event_name(recorded.event),
            body=body,
            traceparent=SpanRef(
                trace_id=trace.trace_id, span_id=trace.hop_span_id, sampled=trace.sampled
            ).traceparent,
            tracestate=trace.tracestate,
        )

    def _cease(self) -> None:
        """Another broker tells the log from now on, or nobody can."""
        self._publishing = False
        self._moved.set()

    # --- where it is -----------------------------------------------------------------------------

    async def _position(self, end: StreamEnd) -> int:
        """Up to where the log was told, by whomever."""
        known = end.position if end.log == self._log else 0
        log_end = await self._store.log_end()
        if known and end.whole and known <= log_end:
            return known
        if known > log_end:
            _LOG.warning("the stream has events that the log has not: is the store an older copy?")
            known = 0
        return min(max(await self._marked_at(), known), log_end)

    async def _marked_at(self) -> int:
        """Up to where the log was told, as far as the stream need not be asked."""
        return max(await self._store.get_mark(EVENTS_MARK) or 0, self._after)

    async def _keep(self, after: int) -> None:
        """Keep how far it is, now and then."""
        self._after = after
        self._moved.set()
        marked, at = self._marked
        now = self._clock.monotonic()
        if marked != after and now - at >= _MARK_EVERY_S:
            await self._store.set_mark(EVENTS_MARK, after)
            self._marked = (after, now)

    # --- while another one publishes, or nobody can ----------------------------------------------

    async def _stand_by(self) -> None:
        """Come back when the stream stands still although there is more to tell."""
        end, goal = await self._stream.end(), await self._store.log_end()
        while True:
            await self._look(await self._position(end))
            await asyncio.sleep(self._standby_s)
            before, end = end, await self._stream.end()
            if end.sequence == before.sequence and await self._position(end) < goal:
                return
            goal = await self._store.log_end()

    async def _look(self, after: int) -> None:
        """See since when there is something to tell."""
        page: Sequence[Recorded] = await self._store.read_log(after=after, limit=1)
        self._pending_at = page[0].event.at if page else None

    def _say(self, trouble: str) -> None:
        if trouble and not self.trouble:
            _LOG.warning("events are not told to the stream now: %s", trouble)
        elif self.trouble and not trouble:
            _LOG.info("events are told to the stream again")
        self.trouble = trouble


__all__ = ["EVENTS_MARK", "LAST_S", "STANDBY_S", "Outbox"]
