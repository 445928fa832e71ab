"""A store that several brokers share: who is there, and what goes from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from a2a_handoff.core.agents import Agent, Status
from a2a_handoff.ports.store import Recorded, Store, WorkKey


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """How far a store has come: the newest position of the log, of broadcasts and of changes of agents."""

    events: int = 0
    broadcasts: int = 0
    agents: int = 0


class AgentChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Registrations that were made or changed, those that are gone as (tenant, id), up to a revision."""

    agents: tuple[Agent, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    revision: int


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life of an agent, as brokers tell each other.

    ``age_s``: so many seconds ago a broker heard from it; ``gone``: that it goes. ``said_age_s``: so long ago
    it said ``status`` and ``in_flight`` of itself there; ``None``: never.
    """

    tenant: str
    agent_id: str
    age_s: float
    gone: bool = False
    said_age_s: float | None = None
    status: Status = Status.ONLINE
    in_flight: int = 0


class Departed(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is gone. ``spans``: up to where its spans have left; ``None`` if it exported none."""

    replica: int
    spans: int | None


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store of several brokers, each with a number of its own, ``replica``."""

    @property
    def replica(self) -> int:
        """The number of this broker, from when it opened the store until it closes it."""
        ...

    async def ends(self) -> Ends:
        """How far everything is that brokers follow."""
        ...

    async def read_others(self, *, after: int, upto: int, limit: int = 1000) -> list[Recorded]:
        """What others wrote into the log after one position, up to another; pages as in ``read_log``."""
        ...

    async def read_agents(self, *, after: int) -> AgentChanges:
        """What became of agents after a revision; ``-1`` for all there are."""
        ...

    async def share_signs(self, signs: Sequence[Sign], *, after: float) -> tuple[list[Sign], float]:
        """Tell the other brokers of signs of life, and learn of those that were told since a moment.

        Gives the moment to go on from, too; it is the store's, 0 to begin with.
        """
        ...

    async def keep_work(self, key: WorkKey, *, now: float) -> bool:
        """Renew one claim. False if it is not this broker's any more."""
        ...

    async def talked_elsewhere(self, handoff_id: str, *, now: float) -> bool:
        """Whether another broker is at a conversation with the agent that a handoff is with."""
        ...

    async def hand_back(self) -> None:
        """Free all work of this broker, which ends."""
        ...

    async def bury(self) -> list[Departed]:
        """Free the work of brokers that are gone. Those that are new, or whose spans this one is to send.

        To be called every few seconds: gone is who was not connected the last time either.
        """
        ...

    async def note_spans(self, replica: int, position: int | None) -> None:
        """Up to where the spans of a broker have left; ``None`` of one that is gone: it is done with."""
        ...

    async def read_written(self, replica: int, *, after: int, limit: int = 500) -> list[Recorded]:
        """What one broker wrote into the log after a position; pages as in ``read_log``."""
        ...
