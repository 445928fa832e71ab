"""The work that this process holds.

Duty: know since when each piece is held, whether it still is, and how to let go of it.
Rules: held and not done, work would never be done; so it is given back however long the store cannot write.
Not here: taking work (``dispatcher``), doing it (``errands``).
"""

from __future__ import annotations

import asyncio

from a2a_handoff.core.errors import HandoffError
from a2a_handoff.ledger import WORK_TOPIC, Ledger, WorkLost
from a2a_handoff.ports import Clock, Notifier, SharedStore, Store, StoreUnavailable, WorkKey

_STORE_AGAIN_S = 1.0
#: A claim that is older was perhaps lost meanwhile: this process may have stood still. Others do not hold it
#: for gone sooner.
_SURE_S = 1.5


class Claims:
    """The work that this process holds, and how it lets go of it."""

    def __init__(self, *, store: Store, ledger: Ledger, notifier: Notifier, clock: Clock) -> None:
        self._store = store
        self._ledger = ledger
        self._notifier = notifier
        self._clock = clock
        self._shared = store if isinstance(store, SharedStore) else None
        self._since: dict[WorkKey, float] = {}
        self.stopping = False
        """Set at the end: then what cannot be put back at once is left to the next start."""
        self.paused = False
        """Set while nothing is begun here: what is put back is for others."""

    def took(self, key: WorkKey, at: float) -> None:
        """Work was claimed at a time."""
        if self._shared is not None:
            self._since[key] = at

    def let_go(self, key: WorkKey) -> None:
        """Nobody is at that work here any more."""
        self._since.pop(key, None)

    async def still_ours(self, key: WorkKey) -> bool:
        """Whether no other broker has taken work over, as it may after this one stood still.

        Asked before an effect that must not happen twice. Raises ``StoreUnavailable``.
        """
        if self._shared is None:
            return True
        now = self._clock.now()
        since = self._since.get(key, now)  # what was not claimed here is nobody else's either
        if 0.0 <= now - since <= _SURE_S:
            return True
        kept = await self._shared.keep_work(key, now=now)
        if kept and key in self._since:
            self._since[key] = now
        return kept

    async def put_back(self, key: WorkKey, in_s: float) -> None:
        """Give work back, however long the store cannot write: held and not done it would never be done."""
        while True:
            try:
                await self._store.release_work(key, due_at=self._clock.now() + in_s)
            except StoreUnavailable:
                if self.stopping:
                    return
                await asyncio.sleep(_STORE_AGAIN_S)
                continue
            others_too = self.stopping or self.paused
            (self._notifier.publish if others_too else self._notifier.wake)(WORK_TOPIC)
            return

    async def settle(self, key: WorkKey) -> None:
        """Work that is done and changed nothing."""
        try:
            await self._ledger.settle(key)
        except (StoreUnavailable, HandoffError):
            await self.put_back(key, _STORE_AGAIN_S)
        except WorkLost:
            pass  # who has it settles it
