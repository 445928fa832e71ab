"""The real broker in a world of chance: crashes at every commit, a bad network, callers who insist.

One seed is one schedule: which agents there are, what callers ask for, what the network loses, at which commits
the broker dies and whether the commit was made. Only ports are simulated; the broker, its dispatcher and the
core are those of the product. After each commit and at the end the invariants of a handoff are checked.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from a2a_handoff.broker import Claim
from a2a_handoff.config import Settings
from a2a_handoff.core.agents import Readiness, Registration
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import CancelRequested, HandoffOffered, LateResultRecorded, State
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.rules import RoutingRules
from a2a_handoff.ports import (
    Commit,
    Committed,
    FetchedCard,
    HookAnswer,
    Principal,
    StoreUnavailable,
)
from a2a_handoff.service import Ports, Service
from a2a_handoff.transports.calls import NativeCalls, Origin
from a2a_handoff.wire import native
from tests.simulation.agents import Network, PushAgent, Weather
from tests.simulation.books import Books
from tests.simulation.time import EPOCH, Process, VirtualClock, VirtualLoop
from tests.support.agents import card
from tests.support.memory_store import MemoryData, MemoryStore

_T = TypeVar("_T")

ANYBODY = Principal(trusted=True)
DEADLINE_S = 120.0
#: Seconds after its deadline by which everything is over: the broker may be down, and is started again.
LATE_S = 60.0
#: Seconds of bad weather, and those that the broker may take in good weather for what is not a matter of chance.
STORM_S = 40.0
PROMPT_S = 45.0
#: How many callers hang up before they have an answer.
IMPATIENT = 0.1
#: Seconds until a killed broker is started again.
DOWN_S = 3.0

_SETTINGS = Settings(store="sqlite:///nowhere.db", lease=20.0, reconcile_every=5.0, cancel_wait=4.0)


class Broken(AssertionError):
    """An invariant does not hold."""


class _Outside:
    """Ports that the simulated world has no use for."""

    @property
    def name(self) -> str:
        return "characters"

    def count(self, text: str) -> int:
        return len(text)

    async def fetch(self, url: str) -> FetchedCard:
        raise HandoffError(Code.CARD_UNAVAILABLE)

    async def fetch_changed(self, url: str, etag: str) -> FetchedCard | None:
        raise HandoffError(Code.CARD_UNAVAILABLE)

    async def vet(self, url: str) -> str:
        raise HandoffError(Code.CARD_UNAVAILABLE)

    async def post(
        self, url: str, headers: tuple[tuple[str, str], ...], body: bytes, *, timeout_s: float
    ) -> HookAnswer:
        raise AssertionError(url)

    async def close(self) -> None:
        pass


class FaultyStore(MemoryStore):
    """Takes its time, and may die with the broker before or after a commit."""

    def __init__(self, world: World) -> None:
        super().__init__(world.data)
        self._world = world
        self._could: dict[int, dict[str, frozenset[str]]] = {}

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        # Who could be asked when it was decided: by the time that it is written somebody may have come.
        self._could[id(commit)] = self._world.could_be_asked(commit)
        return super().commit(commit)

    async def _turn(self) -> MemoryData:
        if self._world.chance.random() < 0.2:
            await asyncio.sleep(self._world.chance.uniform(0, 0.02))
        if self._world.chance.random() < self._world.weather.full:
            raise StoreUnavailable("the disk is full for a moment")
        return await super()._turn()

    async def _commit(self, commit: Commit) -> Committed:
        world, could = self._world, self._could.pop(id(commit))
        dies = world.chance.random() < world.deadly
        late = world.chance.random() < 0.5
        if dies and not late:
            await self._die()
        committed = await super()._commit(commit)
        world.check(commit)
        world.check_limits(commit, could)
        if dies:
            await self._die()
        return committed

    async def _die(self) -> None:
        self.available = False
        self._world.crashed.set()
        raise StoreUnavailable("the broker is dead")


@dataclass
class Asked:
    """A handoff that a caller asked for."""

    handoff_id: str
    replay_safe: bool
    deadline_at: float


@dataclass
class World:
    """One schedule."""

    seed: int
    loop: VirtualLoop
    deadly: float = 0.0
    chance: random.Random = field(init=False)
    data: MemoryData = field(default_factory=MemoryData)
    weather: Weather = field(default_factory=Weather)
    asked: list[Asked] = field(default_factory=list[Asked])
    begun_by_pull: dict[str, int] = field(default_factory=dict[str, int])
    crashes: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.clock = VirtualClock(self.loop, random.Random(self.seed + 1))
        self.books = Books(self.data)
        self.crashed = asyncio.Event()
        self.ready = asyncio.Event()
        self.deadly = self.chance.choice((0.0, 0.02, 0.1))
        self.agents = {
            name: PushAgent(name, random.Random(self.seed + n), polite=name.startswith("polite"))
            for n, name in enumerate(("plain", "polite", "polite-2"))
        }
        draw = random.Random(self.seed + 2)
        #: How many tasks an agent takes at a time.
        self.limits = {name: draw.choice((None, 1, 1, 2)) for name in (*self.agents, "puller")}
        self._outside: list[asyncio.Task[None]] = []

    # --- the broker --------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Start the broker, again after each crash."""
        while True:
            self.crashed.clear()
            self.process = Process()
            self.clock.restart()
            self.store = FaultyStore(self)
            started = self.process.spawn(self._start())
            dying = asyncio.ensure_future(self.crashed.wait())
            await asyncio.wait((started, dying), return_when=asyncio.FIRST_COMPLETED)
            if started.done() and not started.cancelled() and (error := started.exception()) is not None:
                if not _store_is_away(error):
                    raise error
                self.crashed.set()
            elif started.done():
                self.ready.set()
            await dying
            self.ready.clear()
            self.crashes += 1
            self.store.available = False
            await self.process.kill()
            self.books.crashed()
            await asyncio.sleep(self.chance.uniform(0.1, DOWN_S))

    async def _start(self) -> None:
        outside = _Outside()
        client = Network(self.agents, self.weather, self.chance)
        ports = Ports(
            store=self.store,
            client=client,
            hooks=outside,
            fetcher=outside,
            policy=outside,
            recorder=self.books,
            counter=outside,
            clock=self.clock,
            rules=RoutingRules(()),
        )
        service = Service(_SETTINGS, ports)
        await service.open(None, tenant="default")
        for name, agent in self.agents.items():
            said = card(
                f"http://{name}.test/", streaming=True, speaks=agent.polite, capabilities={"canWork": True}
            )
            await service.registry.register(
                ANYBODY,
                Registration(
                    agent_id=name, card=json.dumps(said).encode(), max_concurrency=self.limits[name]
                ),
            )
        await service.registry.register(
            ANYBODY,
            Registration(
                agent_id="puller",
                capabilities={"canWork": True},
                lease_s=20.0,
                max_concurrency=self.limits["puller"],
            ),
        )
        service.start()
        self.service = service
        self.calls = NativeCalls(service.broker, settings=_SETTINGS)

    async def call(self, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """A call over the network: tried until it is answered. Raises what the broker refuses with."""
        while True:
            await self.ready.wait()
            await asyncio.sleep(self.chance.uniform(0, 0.05))
            if not self.ready.is_set():
                continue
            task = self.process.spawn(ask())
            if self.chance.random() < IMPATIENT:  # hangs up, and calls again
                await asyncio.wait((task,), timeout=self.chance.uniform(0, 0.03))
                task.cancel()
            await asyncio.wait((task,))
            if task.cancelled():
                continue
            error = task.exception()
            if error is None:
                return task.result()
            if not _store_is_away(error):
                raise error
            await asyncio.sleep(0.5)

    # --- who is around it --------------------------------------------------------------------------

    async def ask(self, number: int) -> None:
        """A caller hands a task off, and may stop it later."""
        await asyncio.sleep(self.chance.uniform(0, 10))
        replay_safe = self.chance.random() < 0.4
        body: dict[str, Any] = {
            "source_agent": "caller",
            "message_id": f"m-{number}",
            "task": f"task {number}",
            "replay_safe": replay_safe,
            "wait_for_agent": 30,
        }
        if self.chance.random() < 0.5:
            body["targetAgent"] = self.chance.choice((*self.agents, "puller"))
            body["fallback"] = ["polite", "puller"]
        else:
            body["requirements"] = {"capabilities": ["canWork"]}
        deadline_at = self.clock.now() + DEADLINE_S
        body["deadline"] = _instant(deadline_at)
        wanted = native.decode(native.HandoffIn, json.dumps(body).encode())
        origin = Origin(surface="rest", method="POST", route="/api/handoffs")
        accepted = await self.call(lambda: self.calls.create(ANYBODY, wanted, origin))
        self.asked.append(Asked(accepted.handoff.id, replay_safe, deadline_at))
        if self.chance.random() < 0.2:
            await asyncio.sleep(self.chance.uniform(0, 20))
            await self._quietly(lambda: self.service.broker.cancel(ANYBODY, accepted.handoff.id))

    async def pull(self) -> None:
        """An agent that fetches its work."""
        while True:
            found = await self._quietly(
                lambda: self.service.broker.inbox.watch(ANYBODY, "puller", timeout_s=20.0)
            )
            if found is not None and found.offer is not None:
                await self._work_on(found.offer)

    async def _work_on(self, offer: Handoff) -> None:
        """Take it and do it, or not: decline, give it back, or say nothing until the lease is over."""
        claim = Claim(agent_id="puller", attempt=offer.attempts[-1].number)
        fate = self.chance.random()
        if fate < 0.2:
            await self._quietly(lambda: self.service.broker.decline(ANYBODY, offer.id, claim, "not now"))
            return
        taken = await self._quietly(lambda: self.service.broker.accept(ANYBODY, offer.id, claim))
        if taken is None:
            return
        self.begun_by_pull[offer.id] = self.begun_by_pull.get(offer.id, 0) + 1
        await asyncio.sleep(self.chance.uniform(0, 15))
        if fate > 0.9:
            await asyncio.sleep(40)
        if fate > 0.85:
            await self._quietly(lambda: self.service.broker.release(ANYBODY, offer.id, claim, "cannot"))
        else:
            await self._quietly(lambda: self.service.broker.complete(ANYBODY, offer.id, claim))

    async def _quietly(self, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        """A call of which a refusal is nothing new."""

        async def asking() -> _T:
            return await ask()

        try:
            return await self.call(asking)
        except HandoffError:
            return None

    async def replay(self, *, handoffs: int) -> None:
        """From the first call to the end of everything. Raises ``Broken``."""
        create = self.loop.create_task
        living = [create(self.serve()), create(self.pull()), create(self._set_clock())]
        asking = [create(self.ask(number)) for number in range(handoffs)]
        try:
            await self._pass(STORM_S, *living, *asking)
            vars(self.weather).update(vars(Weather.fair()))
            self.deadly = 0.0
            await self._pass(DEADLINE_S + LATE_S, *living, *asking)
            self.check_end()
        finally:
            for task in (*living, *asking):
                task.cancel()
            await asyncio.gather(*living, *asking, return_exceptions=True)
            await self.process.kill()

    async def _set_clock(self) -> None:
        """The wall clock is put forward, and back."""
        while True:
            await asyncio.sleep(self.chance.uniform(5, 60))
            self.clock.skew = self.chance.choice((0.0, 0.0, self.chance.uniform(-15, 15)))

    async def _pass(self, seconds: float, *tasks: asyncio.Task[None]) -> None:
        """Let time pass. Raises what any of the tasks failed with."""
        forever = self.loop.create_task(asyncio.sleep(seconds))
        watched = [task for task in tasks if not task.done()]
        while not forever.done():
            done, _ = await asyncio.wait((forever, *watched), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            watched = [task for task in watched if not task.done()]

    # --- what must hold ----------------------------------------------------------------------------

    def check(self, commit: Commit) -> None:
        """After a commit: the log of each handoff in it is sound."""
        for write in commit.writes:
            log = [one.event for one in self.data.log if one.handoff_id == write.handoff.id]
            h: Handoff | None = None
            for event in log:
                if h is not None and h.state.terminal and not isinstance(event, LateResultRecorded):
                    self.broken(write.handoff.id, f"{type(event).__name__} after the end")
                h = evolve(h, event)
            if h != self.data.handoffs[write.handoff.id]:
                self.broken(write.handoff.id, "the snapshot is not what the log gives")
            if h is not None and sum(a.outcome is None for a in h.attempts) > 1:
                self.broken(h.id, "two agents hold it")

    def could_be_asked(self, commit: Commit) -> dict[str, frozenset[str]]:
        """Whom each handoff that a commit offers to somebody could be offered to instead."""
        return {
            write.handoff.id: self.service.registry.eligible(write.handoff)
            - {attempt.agent_id for attempt in write.handoff.attempts}
            for write in commit.writes
            if any(isinstance(event, HandoffOffered) for event in write.events)
        }

    def check_limits(self, commit: Commit, could: dict[str, frozenset[str]]) -> None:
        """After a commit: who is full was offered nothing, unless by name, or everybody is."""
        has = Counter(h.occupies for h in self.data.handoffs.values())
        limits = {name: limit for name, limit in self.limits.items() if limit is not None}
        for write in commit.writes:
            h = write.handoff
            limit = limits.get(h.occupies)
            if h.id not in could or limit is None or has[h.occupies] <= limit or h.names(h.occupies):
                continue
            free = [name for name in could[h.id] if name not in limits or has[name] < limits[name]]
            if free:
                self.broken(h.id, f"{h.occupies} has {has[h.occupies]} of {limit}, and {free} were free")

    def check_end(self) -> None:
        """When all is over."""
        for asked in self.asked:
            h = self.data.handoffs.get(asked.handoff_id)
            if h is None:
                raise self.broken(asked.handoff_id, "it was accepted and is not there")
            if not h.state.terminal:
                self.broken(h.id, f"it is still {h.state}")
            if (h.ended_at or 0) > asked.deadline_at + LATE_S:
                self.broken(h.id, "it ended long after its deadline")
        roots = [h for h in self.data.handoffs.values() if h.parent is None]
        if len(self.asked) != len(roots):
            self.broken("", f"{len(self.asked)} were asked for, {len(roots)} are there")
        for h in self.data.handoffs.values():
            if not h.state.terminal:
                self.broken(h.id, f"it is still {h.state}")
            if h.hop_count > h.policy.max_hops or len(set(h.path)) != len(h.path):
                self.broken(h.id, f"its path is {h.path}")
            if h.state is State.EXPIRED:
                self._check_expired(h)
            begun = self.begun_by_pull.get(h.id, 0) + sum(a.begun[h.id] for a in self.agents.values())
            if begun > 1 and not h.replay_safe:
                self.broken(h.id, f"it was begun {begun} times")
            carried = any(child.handoff_id == h.leaf_id for child in h.children)
            if h.state is State.COMPLETED and not begun and not carried:
                self.broken(h.id, "it was completed and never begun")
        self.books.check(self.broken)
        left = [key for key in self.data.work if key.kind.value not in ("cancel", "rescind", "cancel_child")]
        if left:
            self.broken(left[0].handoff_id, f"work is left: {left[0].kind}")

    def _check_expired(self, h: Handoff) -> None:
        """Nothing but time could end it: what could be done in good weather was done."""
        over = h.deadline_at - EPOCH - PROMPT_S
        if over < STORM_S or h.children:
            return
        log = [one.event for one in self.data.log if one.handoff_id == h.id]
        asked = [event.at - EPOCH for event in log if isinstance(event, CancelRequested)]
        if asked and asked[0] < over:
            self.broken(h.id, "it was to be stopped, and was not")
        attempt = next((a for a in reversed(h.attempts) if a.readiness is not Readiness.PULL), None)
        if attempt is None or attempt is not h.attempts[-1]:
            return
        if (
            attempt.readiness is Readiness.OFFER
            and attempt.acked_at is None
            and attempt.offered_at - EPOCH < over
        ):
            self.broken(h.id, "an offer had no end")
        task = self.agents[attempt.agent_id].tasks.get(attempt.remote.task_id)
        if task is not None and task.ended_at is not None and task.ended_at < over:
            self.broken(h.id, f"its agent was done at {task.ended_at:.0f} and nobody asked")

    def broken(self, handoff_id: str, what: str) -> Broken:
        """Raises, with the log of the handoff."""
        log = [one for one in self.data.log if one.handoff_id == handoff_id]
        told = [f"{one.event.at - EPOCH:8.3f} {type(one.event).__name__} {_told(one.event)}" for one in log]
        raise Broken("\n".join((f"seed {self.seed}: {what} ({handoff_id})", *told)))


def _store_is_away(error: BaseException) -> bool:
    away = isinstance(error, HandoffError) and error.code is Code.UNAVAILABLE
    return away or isinstance(error, StoreUnavailable)


def _told(event: Any) -> str:
    names = ("attempt", "agent_id", "outcome", "detail", "readiness", "delivery", "state")
    return " ".join(
        f"{name}={getattr(event, name)}" for name in names if getattr(event, name, "") not in ("", None)
    )


def _instant(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat()


def simulate(seed: int, *, handoffs: int = 3) -> World:
    """Run one schedule to its end. Raises ``Broken``."""
    logger, loop = logging.getLogger("a2a_handoff"), VirtualLoop()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        world = World(seed, loop)
        loop.run_until_complete(world.replay(handoffs=handoffs))
        return world
    finally:
        logger.setLevel(level)
        loop.close()
