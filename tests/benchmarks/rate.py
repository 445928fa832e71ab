"""How many handoffs a second agents complete that fetch their work, next to an agent that is sent it.

The same blocking SendMessage to the same broker from as many callers, each with one handoff in flight and an
agent of its own: one request is done when its handoff is completed. Agents that fetch watch, accept and
complete, three calls one after the other; the agent that is sent its work answers with the completed task.
Rounds alternate. A ratio is the median of those of the rounds.
Not here: what a handoff to the agent costs (``make bench``).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.table import Table

from tests.benchmarks import servers, waiting

SIZES = (16, 64)


async def polling(url: str, agent: str) -> None:
    """Work over REST until cancelled."""
    connection = await waiting.connect(url)
    while True:
        offer = await connection.ask(waiting.watch(agent))
        if not offer:  # nothing came for so long
            continue
        handoff_id = json.loads(offer)["handoff_id"]
        for verb, more in (("accept", {}), ("complete", {"result": "done"})):
            asked = waiting.request(f"/api/handoffs/{handoff_id}/{verb}", {"agent_id": agent} | more)
            await connection.ask(asked)


async def on_socket(url: str, agent: str) -> None:
    """Work over a WebSocket until cancelled."""
    opened = await waiting.socket(url, agent)
    while True:
        handoff_id = json.loads(await opened.next())["handoff_id"]
        await opened.ask({"type": "accept", "handoff_id": handoff_id})
        await opened.ask({"type": "complete", "handoff_id": handoff_id, "result": "done"})


#: By the name in the table: who the handoffs of a caller go to, and what such an agent does.
WAYS: dict[str, tuple[str, Callable[[str, str], Awaitable[None]] | None]] = {
    "sent": ("bench-agent", None),
    "REST": ("rest-{}", polling),
    "WebSocket": ("socket-{}", on_socket),
}


async def _fire(
    server: tuple[str, int], callers: int, seconds: float, target: str
) -> tuple[float, float, float]:
    """Handoffs a second, the median of their times in ms, and the broker's CPU for each in µs."""
    url, pid = server
    before = servers.cpu_s(pid)
    command = ["-m", "tests.benchmarks.load", "fire", url, str(callers), str(seconds), "handoff", target]
    load = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    said, _ = await load.communicate()
    if load.returncode:
        raise SystemExit(f"{target}, {callers} callers: the load was broken off")
    result = json.loads(said)
    if result["errors"]:
        raise SystemExit(f"{target}, {callers} callers: {result['errors']} wrong answers")
    return result["rps"], result["p50_ms"], 1e6 * (servers.cpu_s(pid) - before) / (result["rps"] * seconds)


async def measure_all(folder: Path, seconds: float, rounds: int) -> Table:
    """Every way with every number of agents, on one broker."""
    shown = Table(title="Handoffs completed a second: fetched, next to sent")
    heads = (
        "agents",
        "sent",
        "fetched",
        "ratio",
        "p50 sent, ms",
        "p50 fetched, ms",
        "CPU sent, µs",
        "CPU fetched, µs",
    )
    for head in ("", *heads):
        shown.add_column(head, justify="right" if head else "left")
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    with servers.agent() as (agent_url, _), servers.broker(folder / "rate", agent_url) as server:
        async with asyncio.TaskGroup() as group:  # an agent that fails ends it all
            working = [
                group.create_task(_at_work(server[0], named.format(number), work))
                for named, work in WAYS.values()
                if work is not None
                for number in range(max(SIZES))
            ]
            await waiting.quiet(server[1])
            for number in range(rounds):
                for callers in SIZES:
                    for way in WAYS if number % 2 == 0 else reversed(WAYS):
                        one = await _fire(server, callers, seconds, WAYS[way][0])
                        found.setdefault((way, callers), []).append(one)
            for each in working:
                each.cancel()
    for way in ("REST", "WebSocket"):
        for callers in SIZES:
            sent, fetched = found["sent", callers], found[way, callers]
            ratio = statistics.median(b[0] / a[0] for a, b in zip(sent, fetched, strict=True))
            pairs = [
                tuple(statistics.median(one[column] for one in rounds) for rounds in (sent, fetched))
                for column in range(3)
            ]
            values = [f"{value:,.0f}" for value in pairs[0]]
            values += [f"{ratio:.2f}", *(f"{value:,.1f}" for value in pairs[1])]
            shown.add_row(way, str(callers), *values, *(f"{value:,.0f}" for value in pairs[2]))
    return shown


async def _at_work(url: str, agent: str, work: Callable[[str, str], Awaitable[None]]) -> None:
    await waiting.register(url, [agent])
    await work(url, agent)
