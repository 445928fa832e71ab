"""The other brokers on the store: what they did, whom they hear, what they leave behind.

Duty: follow the log for what others wrote, their changes of agents and broadcasts; exchange signs of life;
take over from those that are gone.
Rules: the store is asked again every ``LOOK_S`` seconds, and at once on a hint: a lost hint costs a moment.
The log is read in its order and without gaps; each event is told to this process once.
Not here: carrying hints (``notify``, ``stores.postgres_hints``), who may do what work (the store).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from a2a_handoff import chores
from a2a_handoff.broadcasts import BROADCASTS_TOPIC
from a2a_handoff.ledger import WORK_TOPIC, Ledger
from a2a_handoff.ports import Departed, Ends, Notifier, SharedStore, StoreUnavailable
from a2a_handoff.presence import SIGNS_TOPIC
from a2a_handoff.registry import NEWS_TOPIC, Registry

#: Seconds after which news are read that no hint told of.
LOOK_S = 0.5
#: Seconds between two exchanges of signs of life; who is heard for the first time is told of at once. A
#: sign is two of them old at most, and must not be older than the time for which one makes an agent present.
SIGNS_S = 3.0
#: Seconds between two looks for brokers that are gone; it takes two to be sure.
BURY_S = 2.0
#: Seconds between two counts of what agents have: an event that was told twice or never is no fault for ever.
RECOUNT_S = 60.0

_AGAIN_S = 1.0
_LOG = logging.getLogger("a2a_handoff.replicas")


class Replicas:
    """Lives with the other brokers on ``store``."""

    def __init__(
        self,
        *,
        store: SharedStore,
        ledger: Ledger,
        registry: Registry,
        notifier: Notifier,
        presence_s: float,
    ) -> None:
        """``presence_s``: how long a pull agent is present after a call."""
        self._signs_every_s = min(SIGNS_S, presence_s / 3)
        self._store = store
        self._ledger = ledger
        self._registry = registry
        self._notifier = notifier
        self._known = Ends()
        self._signs_after = 0.0
        self._gone: set[int] = set()
        self._chores: list[asyncio.Task[None]] = []
        self.on_departed: Callable[[Departed], None] = lambda _departed: None
        """Set by who sends spans: those that a broker that is gone has not sent are left to this one."""

    async def open(self) -> None:
        """Follow from now on. To be called before anything is read that others may change."""
        self._known = await self._store.ends()

    def start(self) -> None:
        """Begin to live with the others."""
        self._chores = [
            chores.begin(self._follow, "replicas-news"),
            chores.begin(self._exchange_signs, "replicas-signs"),
            chores.begin(self._bury, "replicas-gone"),
            chores.begin(self._recount, "replicas-count"),
        ]

    async def close(self) -> None:
        """Hear of nothing more, and give back what this broker has not done."""
        await chores.end(self._chores)
        try:
            mine, _ = self._registry.presence.take_signs()
            await self._store.share_signs(mine, after=self._signs_after)
            await self._store.hand_back()
        except StoreUnavailable as error:
            _LOG.warning(
                "work is not given back, others take it when they see that this broker is gone: %s", error
            )
            return
        self._notifier.tell(WORK_TOPIC)

    # --- news ------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        with self._notifier.listen(NEWS_TOPIC) as news:
            while True:
                try:
                    await self.look()
                except StoreUnavailable as error:
                    _LOG.warning("what other brokers do cannot be seen now: %s", error)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                await news.wait(timeout_s=LOOK_S)

    async def look(self) -> None:
        """Read what is new, and tell it in this process. Raises ``StoreUnavailable``."""
        known, ends = self._known, await self._store.ends()
        if ends.agents > known.agents:
            await self._registry.catch_up()
        after = known.events
        while after < ends.events:
            page = await self._store.read_others(after=after, upto=ends.events)
            await self._ledger.heard(page)
            after = page[-1].position if page else ends.events
            self._known = Ends(events=after, broadcasts=known.broadcasts, agents=known.agents)
        if ends.broadcasts > known.broadcasts:
            self._notifier.wake(BROADCASTS_TOPIC)
        self._known = ends

    # --- signs of life ---------------------------------------------------------------------------

    async def _exchange_signs(self) -> None:
        with self._notifier.listen(SIGNS_TOPIC) as signs:
            while True:
                try:
                    await self._share()
                except StoreUnavailable as error:
                    _LOG.warning("signs of life of agents are not shared now: %s", error)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                await signs.wait(timeout_s=self._signs_every_s)

    async def _share(self) -> None:
        mine, soon = self._registry.presence.take_signs()
        theirs, self._signs_after = await self._store.share_signs(mine, after=self._signs_after)
        if soon:
            self._notifier.tell(SIGNS_TOPIC)
        self._registry.presence.note_signs(theirs)

    # --- those who are gone ----------------------------------------------------------------------

    async def _bury(self) -> None:
        with self._notifier.listen("replicas-gone") as never:
            while True:
                await never.wait(timeout_s=BURY_S)
                try:
                    departed = await self._store.bury()
                except StoreUnavailable:
                    continue
                for one in departed:
                    if one.replica not in self._gone:
                        self._gone.add(one.replica)
                        _LOG.warning("another broker is gone; what it had is taken over")
                        self._notifier.wake(WORK_TOPIC)
                    if one.spans is not None:
                        self.on_departed(one)

    async def _recount(self) -> None:
        with self._notifier.listen("replicas-count") as never:
            while True:
                await never.wait(timeout_s=RECOUNT_S)
                try:
                    await self._registry.recount()
                except StoreUnavailable:
                    continue
