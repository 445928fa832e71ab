"""A registry, inboxes and broadcasts on a store in memory, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from a2a_handoff.broadcasts import Broadcasts
from a2a_handoff.clock import SystemClock
from a2a_handoff.core.agents import Readiness, Registration
from a2a_handoff.core.context import Priority
from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.inbox import Found, Inbox
from a2a_handoff.ledger import inbox_topic
from a2a_handoff.notify import LocalNotifier
from a2a_handoff.ports import FetchedCard, HandoffWrite, Principal
from a2a_handoff.registry import Registry
from tests.support.builders import NOW, commit_of, offered_event, replay, requested_event
from tests.support.memory_store import MemoryData, MemoryStore

ANYBODY = Principal(tenant="default", trusted=True)
WAIT_S = 5.0

_T = TypeVar("_T")


class NoCards:
    async def fetch(self, url: str) -> FetchedCard:
        raise AssertionError(url)

    async def fetch_changed(self, url: str, etag: str) -> FetchedCard | None:
        raise AssertionError(url)


class HandClock(SystemClock):
    """A clock that is put forward by hand; waits are real."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> float:
        return NOW + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass
class World:
    data: MemoryData = field(default_factory=MemoryData)
    clock: HandClock = field(default_factory=HandClock)
    notifier: LocalNotifier = field(default_factory=LocalNotifier)

    async def open(self) -> World:
        self.store = MemoryStore(self.data)
        self.registry = Registry(
            store=self.store, clock=self.clock, notifier=self.notifier, fetcher=NoCards(), refresh_s=3_600
        )
        self.broadcasts = Broadcasts(
            store=self.store, registry=self.registry, notifier=self.notifier, clock=self.clock, keep_s=60
        )
        self.inbox = Inbox(
            store=self.store,
            registry=self.registry,
            broadcasts=self.broadcasts,
            notifier=self.notifier,
            clock=self.clock,
        )
        await self.store.open()
        await self.registry.load()
        await self.broadcasts.open()
        return self

    async def register(self, *names: str, by: Principal = ANYBODY, **said: Any) -> None:
        for name in names:
            await self.registry.register(by, Registration(agent_id=name, **said))

    async def offer(
        self,
        handoff_id: str,
        to: str = "cursor",
        *,
        priority: Priority = Priority.NORMAL,
        at: float = NOW,
        readiness: Readiness = Readiness.PULL,
    ) -> Handoff:
        """A handoff that was offered, and the wake-up for it."""
        requested = requested_event(handoff_id, at=at, message_id=handoff_id)
        options = replace(requested.package.options, priority=priority)
        requested = replace(requested, package=replace(requested.package, options=options))
        offered = replace(offered_event(to, at=at), offer_id=f"offer of {handoff_id}", readiness=readiness)
        return await self.write(0, requested, offered)

    async def write(self, before: Handoff | int, *events: Event) -> Handoff:
        """Go on with a handoff, and wake whoever has it."""
        version = before if isinstance(before, int) else before.version
        past = [] if isinstance(before, int) else await self.store.read_events(before.id)
        after = replay(*(one.event for one in past), *events)
        write = HandoffWrite(handoff=after, events=events, expected_version=version)
        await self.store.commit(commit_of(write))
        self.notifier.publish(inbox_topic(after.tenant, after.attempts[-1].agent_id))
        return after

    async def watch(
        self, agent_id: str = "cursor", *, by: Principal = ANYBODY, timeout_s: float = 0.0, **more: Any
    ) -> Found:
        return await bounded(self.inbox.watch(by, agent_id, timeout_s=timeout_s, **more))

    def watching(self, agent_id: str = "cursor", **more: Any) -> asyncio.Task[Found]:
        """A watch that waits for as long as it takes."""
        return asyncio.create_task(self.inbox.watch(ANYBODY, agent_id, timeout_s=60.0, **more))


async def bounded(work: Awaitable[_T]) -> _T:
    async with asyncio.timeout(WAIT_S):
        return await work


async def settle() -> None:
    """Let everything that can go on without a wake-up go on."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(body: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = await World().open()
        try:
            await body(world)
        finally:
            await world.registry.close()

    asyncio.run(main())


def offer_of(found: Found) -> str:
    return "" if found.offer is None else found.offer.id
