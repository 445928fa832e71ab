"""Who there is, and every change of it, for those who show the agents or choose among them.

Duty: the agents that have what was asked for, then each that comes, changes, falls silent or goes.
Rules: a reader compares what there is with what it was told. So one that is slow or was away misses no
agent, only states that have passed, and there is no position to keep. What changes with every handoff
(load, times, counts) is no change. Silence is nobody's call: it is looked for every ``LOOK_S`` seconds, as
long as somebody reads.
Not here: the agents (``registry``), who may be offered what (``core.matching``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from enum import StrEnum

import msgspec

from a2a_handoff.core.agents import AgentView
from a2a_handoff.core.roster import Facet
from a2a_handoff.ports import Clock, Notifier
from a2a_handoff.presence import AGENTS_TOPIC
from a2a_handoff.registry import Registry

#: Seconds after which the silence of an agent is told at the latest.
LOOK_S = 1.0


class News(StrEnum):
    """What is told of an agent. ``LISTED``: it was there when the reader came."""

    LISTED = "agent_listed"
    REGISTERED = "agent_registered"
    UPDATED = "agent_updated"
    STATUS_CHANGED = "agent_status_changed"
    REMOVED = "agent_removed"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ``view`` is ``None`` for an agent that is gone, or has not any more what was asked for."""

    news: News
    agent_id: str
    view: AgentView | None
    at: float


class RollCall:
    """Calls the roll of a tenant's agents."""

    def __init__(self, *, registry: Registry, notifier: Notifier, clock: Clock) -> None:
        self._registry = registry
        self._notifier = notifier
        self._clock = clock
        self.closing = False
        """Set at the start of a graceful stop: readers end."""

    async def follow(
        self, tenant: str, facets: Sequence[Facet], *, quiet_s: float
    ) -> AsyncGenerator[tuple[Told, ...] | None]:
        """First those who are there, which may be nobody; then the changes, together what came together.

        ``None`` is yielded after ``quiet_s`` seconds without one.
        """
        known: dict[str, AgentView] = {}
        with self._notifier.listen(AGENTS_TOPIC) as listener:
            yield self._changes(known, tenant, facets, came=News.LISTED)
            quiet_since = self._clock.monotonic()
            while not self.closing:
                await listener.wait(timeout_s=min(LOOK_S, quiet_s))
                changes = self._changes(known, tenant, facets, came=News.REGISTERED)
                if changes:
                    yield changes
                elif self._clock.monotonic() - quiet_since < quiet_s:
                    continue
                else:
                    yield None
                quiet_since = self._clock.monotonic()

    def _changes(
        self, known: dict[str, AgentView], tenant: str, facets: Iterable[Facet], *, came: News
    ) -> tuple[Told, ...]:
        """What is otherwise than ``known``, which is brought up to date."""
        now = self._clock.now()
        there = {view.agent.agent_id: view for view in self._registry.views(tenant, facets)}
        told = [
            Told(news=News.REMOVED, agent_id=agent_id, view=None, at=now)
            for agent_id in known.keys() - there.keys()
        ]
        for agent_id, view in there.items():
            news = _news(known.get(agent_id), view, came)
            if news is not None:
                told.append(Told(news=news, agent_id=agent_id, view=view, at=now))
        known.clear()
        known.update(there)
        return tuple(told)


def _news(before: AgentView | None, now: AgentView, came: News) -> News | None:
    if before is None:
        return came
    if before is now:  # as long as nothing at all changed it is the same object
        return None
    if before.agent != now.agent:
        return News.UPDATED
    if (before.status, before.present) != (now.status, now.present):
        return News.STATUS_CHANGED
    return None
