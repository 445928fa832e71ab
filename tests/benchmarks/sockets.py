"""What idle WebSockets cost the broker: memory for each, CPU for all, and how soon an offer reaches one of them.

Run by hand: ``python -m tests.benchmarks.sockets``. Every socket is another agent, registered before, so that
what an agent costs is not counted with its socket. The clients answer pings and do nothing else. Memory is
resident memory of the broker's process; CPU is its user and system time, in percent of one core. An offer
takes from the first byte of ``POST /api/handoffs`` to the last byte of the frame.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from tests.benchmarks import servers, waiting

SOCKETS = 10_000
IDLE_S = 60.0
ROUNDS = 300


@contextmanager
def many_files() -> Generator[None]:
    """As many open connections as the system allows, here and in the servers that are started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def measure(
    folder: Path, count: int, *, idle_s: float = IDLE_S, rounds: int = ROUNDS, events: bool = False
) -> None:
    """Register, connect, wait, wake; print what it took. ``events``: every socket hears its workspace."""
    with servers.broker(folder / "sockets", env={"A2A_HANDOFF_LOG_LEVEL": "warning"}) as (url, pid):
        agents = [f"agent-{number}" for number in range(count)]
        await waiting.register(url, agents)
        await asyncio.sleep(3)
        before = servers.rss_mb(pid)
        began = time.perf_counter()
        opened = await waiting.each(agents, lambda agent: waiting.socket(url, agent, events=events))
        took = time.perf_counter() - began
        await asyncio.sleep(10)
        after = servers.rss_mb(pid)
        print(f"{count} sockets: opened in {took:.1f} s, {count / took:.0f} a second")
        print(f"memory: {before:.0f} MB before, {after:.0f} MB with them, "
              f"{(after - before) * 1024 / count:.1f} kB for each")  # fmt: skip
        cpu, clock = servers.cpu_s(pid), time.perf_counter()
        await asyncio.sleep(idle_s)
        share = (servers.cpu_s(pid) - cpu) / (time.perf_counter() - clock)
        print(f"idle for {idle_s:g} s: {100 * share:.1f} % of one core", flush=True)
        waits = sorted([await _woken(url, agents, opened) for _ in range(rounds)])
        print(f"an offer reaches one of them after {1000 * waits[len(waits) // 2]:.2f} ms (median), "
              f"{1000 * waits[int(len(waits) * 0.99)]:.2f} ms (99 %)")  # fmt: skip
        for each in opened:
            each.close()


async def _woken(url: str, agents: list[str], opened: list[waiting.Socket]) -> float:
    """Wake one of them, by chance; the seconds until it has the offer."""
    number = random.randrange(len(agents))
    caller = await waiting.connect(url)
    shown = opened[number].next()
    body = {"task": "do it", "target_agent": agents[number], "source_agent": "x"}
    began = time.perf_counter()
    answer = await caller.ask(waiting.request("/api/handoffs", body))
    await shown
    took = time.perf_counter() - began
    path = f"/api/handoffs/{json.loads(answer)['handoff_id']}/complete"
    await caller.ask(waiting.request(path, {"agent_id": agents[number], "result": "done"}))
    caller.close()
    await asyncio.sleep(0.005)
    return took


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sockets", type=int, default=SOCKETS)
    options.add_argument("--idle", type=float, default=IDLE_S, metavar="SECONDS")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--events", action="store_true", help="every socket hears its workspace")
    chosen = options.parse_args()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        many_files(),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        one = measure(
            Path(folder), chosen.sockets, idle_s=chosen.idle, rounds=chosen.rounds, events=chosen.events
        )
        runner.run(one)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
