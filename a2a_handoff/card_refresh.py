"""Reading cards again that may have changed.

Duty: read the card of every agent that has an address for it from time to time, and at once after a call
that failed as it would if the card were out of date; put what is new in its place.
Rules: nothing here holds up traffic. A read that fails, or finds a card that is not taken, leaves the card
as it was and says so in a notice. What a registration said over the old card stays said over the new one.
Not here: what may replace a card (``wire.renewal``), fetching (``client.cards``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from a2a_handoff import chores
from a2a_handoff.core.agents import Agent, Signature
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.core.roster import Roster
from a2a_handoff.ports import CardFetcher, Clock, StoreUnavailable
from a2a_handoff.presence import Presence
from a2a_handoff.wire import renewal

#: Seconds between two looks at every card.
REFRESH_EVERY_S = 300.0

_LOG = logging.getLogger("a2a_handoff.registry")
#: Seconds that pass at least between two looks at one card because of calls that failed.
_LOOK_AGAIN_S = 30.0
#: Cards that are read at the same time.
_READ_AT_ONCE = 8
#: How calls end if an agent is not any more what its card says.
_SMELLS_OF_CHANGE = frozenset({Outcome.INVALID_RESPONSE, Outcome.TARGET_AUTH, Outcome.TARGET_UNAVAILABLE})


class CardRefresh:
    """Keeps the cards of ``roster`` fresh.

    ``verify`` judges the signatures of a card; ``put`` stores a record in the place of the one that it
    followed from, and is false if that was registered anew meanwhile. ``lease_s`` is what agents get that
    do not say. ``every_s``: the time between two looks at all cards.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        fetcher: CardFetcher,
        verify: Callable[[bytes], Awaitable[Signature]],
        put: Callable[[Agent, Agent], Awaitable[bool]],
        presence: Presence,
        clock: Clock,
        lease_s: float,
        every_s: float = REFRESH_EVERY_S,
    ) -> None:
        self._roster = roster
        self._fetcher = fetcher
        self._verify = verify
        self._put = put
        self._presence = presence
        self._clock = clock
        self._lease_s = lease_s
        self._every_s = every_s
        self._suspects: dict[tuple[str, str], float] = {}
        self._suspicion = asyncio.Event()
        self._chores: list[asyncio.Task[None]] = []
        presence.on_failed = self._suspect

    def start(self) -> None:
        """Begin."""
        self._chores = [chores.begin(self._keep_fresh, "card-refresh")]

    async def close(self) -> None:
        """Stop."""
        await chores.end(self._chores)

    async def _keep_fresh(self) -> None:
        """Read all cards again from time to time, and at once those of agents that seem to have changed."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._every_s
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._suspicion.wait(), max(0.0, due - clock()))
            if clock() >= due:
                due = clock() + self._every_s
                await self.refresh_all()
            if self._suspicion.is_set():
                await self.refresh_suspects()

    def _suspect(self, agent: Agent, outcome: Outcome) -> None:
        """A call to an agent failed; perhaps as it would if its card were out of date."""
        key = (agent.tenant, agent.agent_id)
        if (
            outcome in _SMELLS_OF_CHANGE
            and agent.card_url
            and self._clock.monotonic() >= self._suspects.get(key, 0.0)
        ):
            self._suspects[key] = float("inf")
            self._suspicion.set()

    async def refresh_suspects(self) -> int:
        """Read the cards again of agents that seem to have changed. How many had."""
        self._suspicion.clear()
        keys = [key for key, until in self._suspects.items() if until == float("inf")]
        self._suspects |= dict.fromkeys(keys, self._clock.monotonic() + _LOOK_AGAIN_S)
        found = [entry.agent for key in keys if (entry := self._roster.find(*key)) is not None]
        return await self._refresh_each(found)

    async def refresh_all(self) -> int:
        """Read every card again that has an address. How many had changed."""
        self._suspects.clear()
        return await self._refresh_each([entry.agent for entry in self._roster if entry.agent.card_url])

    async def _refresh_each(self, agents: Iterable[Agent]) -> int:
        """A few at a time: those that do not answer must not hold up the others."""
        places = asyncio.Semaphore(_READ_AT_ONCE)

        async def refreshed(agent: Agent) -> bool:
            async with places:
                try:
                    return await self._refresh(agent)
                except (HandoffError, StoreUnavailable) as error:
                    _LOG.info("card of %s is kept as it was: %s", agent.agent_id, error)
                    return False

        return sum(await asyncio.gather(*map(refreshed, agents)))

    async def _refresh(self, agent: Agent) -> bool:
        card = await self._fetcher.fetch_changed(agent.card_url, agent.card_etag)
        self._presence.answered(agent)
        body = agent.card if card is None else card.body
        found_at, etag = (agent.card_url, agent.card_etag) if card is None else (card.url, card.etag)
        try:
            signature = await self._verify(body)
            renewed = renewal.renewed(
                agent, body, signature, lease_s=self._lease_s, found_at=found_at, etag=etag
            )
        except HandoffError as error:
            notice = renewal.notice(error, changed=body != agent.card)
            if notice != agent.card_notice:
                _LOG.warning("card of %s: %s", agent.agent_id, notice)
                await self._put(agent, replace(agent, card_notice=notice))
            return False
        if renewed == agent or not await self._put(agent, renewed):
            return False
        if body == agent.card and renewed.signature == agent.signature:
            return False
        _LOG.info("card of %s has changed: %s", agent.agent_id, renewal.changes(agent, renewed))
        self._presence.arrived()
        return True
