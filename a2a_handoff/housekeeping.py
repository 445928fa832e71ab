"""Old chains go, a few at a time, so that nobody who writes has to wait for it.

Duty: once an hour remove the chains that ended longer ago than the setting ``retention``.
Rules: in small transactions with pauses between; several brokers on one store do no harm to each other.
Not here: what goes with a chain (the stores).
"""

from __future__ import annotations

import logging

from a2a_handoff.feed import Feed
from a2a_handoff.ports import Clock, Notifier, Store, StoreUnavailable

_LOG = logging.getLogger("a2a_handoff.housekeeping")
_EVERY_S = 3600.0
#: Chains that go in one transaction: it lasts some milliseconds, and as long a pause follows.
_AT_ONCE = 20
_PAUSE_S = 0.05


class Housekeeping:
    """Keeps a store from growing for ever. ``keep_s``: how old a chain may become, 0 for ever."""

    def __init__(self, *, store: Store, feed: Feed, notifier: Notifier, clock: Clock, keep_s: float) -> None:
        self._store = store
        self._feed = feed
        self._notifier = notifier
        self._clock = clock
        self._keep_s = keep_s

    async def run(self) -> None:
        """Never ends."""
        with self._notifier.listen("housekeeping") as never:
            while True:
                try:
                    await self.tidy()
                except StoreUnavailable as error:
                    _LOG.warning("old chains cannot be removed now: %s", error)
                await never.wait(timeout_s=_EVERY_S)

    async def tidy(self) -> int:
        """Remove what is too old now. Gives the number of handoffs that went."""
        if not self._keep_s:
            return 0
        before = self._clock.now() - self._keep_s
        removed = 0
        with self._notifier.listen("housekeeping") as never:
            while gone := await self._store.prune(before=before, limit=_AT_ONCE):
                removed += len(gone)
                for handoff_id in gone:
                    self._feed.forget(handoff_id)
                await never.wait(timeout_s=_PAUSE_S)
        if removed:
            _LOG.info("%d handoffs older than the retention were removed", removed)
        return removed
