"""How soon an agent that waits has the offer, next to the barest delivery in the same way.

The clock runs from the first byte of ``POST /api/handoffs`` to the last byte of what the waiting agent gets.
For the broker that is reading, resolving, the durable commit, the wake-up, the read of the inbox, the answer;
the bare server (``bare``) parses the request and answers whoever waits. Rounds alternate between both; each
wakes one of the agents that wait, by chance. What counts is the ratio within one run. ``accepted`` is the
time after which the caller of the broker had its own answer.
Not here: how agents wait (``waiting``).
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from tests.benchmarks import servers
from tests.benchmarks.waiting import (
    MCP,
    POLL,
    SOCKET,
    Surface,
    Waiter,
    connect,
    opened,
    quiet,
    register,
    request,
)

SURFACES = (POLL, SOCKET, MCP)
WAITERS = (1, 100, 1_000)
#: What a wake-up is to stay below, in milliseconds.
BARS = (50, 100)
_WARM_UP = 20
_BODY = {
    "source_agent": "bench",
    "task": "Review the new implementation of the invoice service.",
    "context": {"files": [f"src/invoice_{n}.py" for n in range(10)], "focus": ["errors", "performance"]},
    "priority": "high",
}


class Round(NamedTuple):
    """Seconds from the first byte sent until the caller, and until the agent that waits, have an answer."""

    accepted: float
    woken: float


class Side:
    """One of the two servers, with agents that wait at it."""

    def __init__(self, waiters: list[Waiter], caller: Any) -> None:
        self._waiters = waiters
        self._caller = caller
        self._offers = [waiter.next() for waiter in waiters]

    async def wake(self, number: int) -> tuple[Round, Any]:
        """Wake one of them. Also what the caller was answered."""
        asked = request("/api/handoffs", _BODY | {"target_agent": _agent(number)})
        waiting = asyncio.ensure_future(_stamped(self._offers[number]))
        await asyncio.sleep(0)
        began = time.perf_counter()
        answer, accepted_at = await _stamped(self._caller.ask(asked))
        offer, woken_at = await waiting
        if b"handoff_id" not in offer and b"handoffId" not in offer:
            raise SystemExit(f"an agent was woken with {offer[:200]!r}")
        return Round(accepted_at - began, woken_at - began), answer

    def wait_again(self, number: int) -> None:
        """The agent waits for the next one."""
        self._offers[number] = self._waiters[number].next()

    async def call(self, path: str, body: Any) -> None:
        """A call that is not measured."""
        await self._caller.ask(request(path, body))

    async def close(self) -> None:
        """Let them go."""
        for connection in (self._caller, *self._waiters):
            connection.close()
        await asyncio.gather(*self._offers, return_exceptions=True)


async def _stamped(answer: asyncio.Future[bytes]) -> tuple[bytes, float]:
    return await answer, time.perf_counter()


def _agent(number: int) -> str:
    return f"agent-{number}"


async def _side(server: tuple[str, int], surface: Surface, agents: int) -> Side:
    url, pid = server
    waiters = await opened(surface, url, map(_agent, range(agents)))
    side = Side(waiters, await connect(url))
    await quiet(pid)
    return side


class Found(NamedTuple):
    """All rounds with so many agents that wait in one way."""

    agents: int
    bare: list[Round]
    broker: list[Round]

    @property
    def ratio(self) -> float:
        """The median wake-up of the broker against that of the bare server."""
        return at([one.woken for one in self.broker], 0.5) / at([one.woken for one in self.bare], 0.5)

    def row(self) -> list[str]:
        """As it is printed."""
        plain, ours = ([one.woken for one in rounds] for rounds in (self.bare, self.broker))
        median = at(ours, 0.5)
        accepted = at([one.accepted for one in self.broker], 0.5)
        below = next((f"{bar} ms" for bar in BARS if median < bar), "neither")
        times = [at(plain, 0.5), at(plain, 0.99), median, at(ours, 0.99), accepted]
        ratios = [f"{at(ours, share) / at(plain, share):.1f}" for share in (0.5, 0.99)]
        return [f"{self.agents:,}", *(f"{value:.2f}" for value in times), *ratios, below]


#: A wake-up may cost so many bare deliveries at the median. One that looked every 50 ms would cost 50.
RATIO_MAX = 25.0


def at(values: Sequence[float], share: float) -> float:
    """The value that so many of them do not exceed, in milliseconds."""
    return 1000 * sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure(
    bare: tuple[str, int], broker: tuple[str, int], surface: Surface, agents: int, rounds: int
) -> Found:
    """Alternate between both servers, each an address and a process, with so many agents that wait at each."""
    await register(broker[0], map(_agent, range(agents)))
    plain, ours = [await _side(server, surface, agents) for server in (bare, broker)]
    found = Found(agents, [], [])
    for turn in range(rounds + _WARM_UP):
        number = random.randrange(agents)
        one, _ = await plain.wake(number)
        plain.wait_again(number)
        two, answer = await ours.wake(number)
        handoff_id = json.loads(answer)["handoff_id"]
        done = {"agent_id": _agent(number), "result": "done"}
        await ours.call(f"/api/handoffs/{handoff_id}/complete", done)
        ours.wait_again(number)
        await asyncio.sleep(surface.back_s)  # so that what follows is not charged to the next round
        if turn >= _WARM_UP:
            found.bare.append(one)
            found.broker.append(two)
    await plain.close()
    await ours.close()
    return found


async def measure_surface(
    folder: Path, surface: Surface, waiters: Sequence[int], rounds: int
) -> tuple[Table, float]:
    """One surface with every number of agents, each on servers of their own; and the worst ratio."""
    shown = Table(
        title=f"{surface.name}: from POST /api/handoffs until the agent that waits has the offer, ms"
    )
    heads = ("bare p50", "p99", "broker p50", "p99", "accepted", "ratio p50", "p99", "p50 below")
    for head in ("waiting", *heads):
        shown.add_column(head, justify="right")
    env = {"A2A_HANDOFF_PULL_ACK_WAIT": "600"}
    worst = 0.0
    for agents in waiters:
        own = folder / f"{surface.name}-{agents}"
        with servers.bare() as bare, servers.broker(own, env=env) as broker:
            found = await measure(bare, broker, surface, agents, rounds)
        shown.add_row(*found.row())
        worst = max(worst, found.ratio)
    return shown, worst
