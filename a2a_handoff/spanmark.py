"""How far spans have left, and sending those that a broker did not send before it was gone.

Duty: keep in the store up to where the spans of this broker have left; derive what is missing of a
predecessor, or of another broker on the store, from the log, and send it.
Rules: the mark trails: spans leave after their commit, and the mark moves after they left. So some are sent
twice, as the same bytes. Metrics are not made up for: who committed counted them.
Not here: what the spans are (``core.spans``), sending (``telemetry``), who is gone (``replicas``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from a2a_handoff.core.errors import HandoffError
from a2a_handoff.journal import Journal
from a2a_handoff.ports import Departed, Notifier, SharedStore, Store, StoreUnavailable
from a2a_handoff.telemetry import SPANS_MARK, Telemetry

_EVERY_S = 5.0
_PAGE = 500
_DEPARTED_TOPIC = "span-mark"

_LOG = logging.getLogger("a2a_handoff.telemetry")


class SpanMark:
    """Keeps the mark of this broker, and is the heir of others."""

    def __init__(self, *, store: Store, journal: Journal, telemetry: Telemetry, notifier: Notifier) -> None:
        self._store = store
        self._shared = store if isinstance(store, SharedStore) else None
        self._journal = journal
        self._telemetry = telemetry
        self._notifier = notifier
        self._departed: dict[int, Departed] = {}

    async def begin(self) -> None:
        """Send what a predecessor did not. To be called before anything is committed.

        Raises ``StoreUnavailable``.
        """
        if self._telemetry.exported_position is None:
            return
        if self._shared is not None:
            # Each broker has its own mark; those who are gone have an heir.
            await self._shared.note_spans(self._shared.replica, await self._store.log_end())
            return
        mark = await self._store.get_mark(SPANS_MARK)
        if mark is None:
            # The first start that exports: what was committed before was never meant to leave.
            await self._store.set_mark(SPANS_MARK, await self._store.log_end())
            return
        touched: dict[str, None] = {}
        after = mark
        while page := await self._store.read_log(after=after, limit=_PAGE):
            touched.update(dict.fromkeys(item.handoff_id for item in page))
            after = page[-1].position
        await self._send_again(touched, after=mark)
        self._telemetry.replayed(after)

    async def move(self) -> None:
        """Note how far spans have left. Raises ``StoreUnavailable``."""
        position = self._telemetry.exported_position
        if not position:
            return
        if self._shared is not None:
            await self._shared.note_spans(self._shared.replica, position)
        else:
            await self._store.set_mark(SPANS_MARK, position)

    async def end(self) -> None:
        """Note it for the last time, and whether there is anything left for an heir."""
        with contextlib.suppress(StoreUnavailable):
            await self.move()
            if self._shared is not None and self._telemetry.exported_position is not None:
                replica, left = self._shared.replica, self._telemetry.exported_position
                if not await self._shared.read_written(replica, after=left, limit=1):
                    await self._shared.note_spans(replica, None)

    def inherit(self, departed: Departed) -> None:
        """A broker is gone, and what it did not send is left to this one."""
        if departed.replica not in self._departed:
            self._departed[departed.replica] = departed
            self._notifier.wake(_DEPARTED_TOPIC)

    async def keep(self) -> None:
        """Move the mark, and send what is inherited, for ever."""
        with self._notifier.listen(_DEPARTED_TOPIC) as listener:
            while True:
                await listener.wait(timeout_s=_EVERY_S)
                with contextlib.suppress(StoreUnavailable):
                    await self.move()
                    for departed in list(self._departed.values()):
                        await self._settle(departed)

    async def _settle(self, departed: Departed) -> None:
        """Send what one that is gone did not. What could not be sent is tried again."""
        if self._shared is None:
            return
        if self._telemetry.exported_position is not None and departed.spans is not None:
            after = departed.spans
            while page := await self._shared.read_written(departed.replica, after=after, limit=_PAGE):
                lost = sum(self._telemetry.dropped.values())
                touched = dict.fromkeys(item.handoff_id for item in page)
                await self._send_again(touched, after=after, only=frozenset(item.position for item in page))
                sent = await asyncio.to_thread(self._telemetry.flush)
                if not sent or sum(self._telemetry.dropped.values()) > lost:
                    return
                after = page[-1].position
                await self._shared.note_spans(departed.replica, after)
                self._departed[departed.replica] = Departed(replica=departed.replica, spans=after)
            _LOG.info("the spans of a broker that is gone have left")
        await self._shared.note_spans(departed.replica, None)
        del self._departed[departed.replica]

    async def _send_again(
        self, handoff_ids: Iterable[str], *, after: int, only: frozenset[int] | None = None
    ) -> None:
        for handoff_id in handoff_ids:
            try:
                handoff = await self._journal.load(handoff_id)
            except HandoffError:
                continue  # it was removed since
            history = await self._journal.log(handoff_id, upto=handoff.version)
            chain = await self._store.find_chain(handoff.tenant, handoff.correlation_id)
            new_chain = chain is not None and chain.first_handoff_id == handoff_id
            self._telemetry.replay(history, after=after, only=only, new_chain=new_chain)
