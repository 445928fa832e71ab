"""``make bench-pull``: agents that fetch their work, by long poll, WebSocket and MCP.

How soon one that waits has an offer (``wakeup``), how many handoffs a second they complete (``rate``), what
those cost that wait (``sockets``). The load and the agents share one CPU, the server has another one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from tests.benchmarks import rate, servers, sockets, wakeup

PARTS = ("wakeup", "rate", "sockets")


async def measure(folder: Path, parts: Sequence[str], *, quick: bool) -> bool:
    """Measure and print one part after the other. False if a wake-up is too slow against a bare one."""
    worst = 0.0
    console = Console(width=140)
    if "wakeup" in parts:
        waiters, rounds = ((1, 10), 20) if quick else (wakeup.WAITERS, 300)
        for surface in wakeup.SURFACES:
            table, ratio = await wakeup.measure_surface(folder, surface, waiters, rounds)
            console.print(table)
            worst = max(worst, ratio)
    if "rate" in parts:
        seconds, rounds = (1.0, 1) if quick else (3.0, 5)
        console.print(await rate.measure_all(folder, seconds, rounds))
    if "sockets" in parts:
        count, idle_s = (100, 1.0) if quick else (sockets.SOCKETS, sockets.IDLE_S)
        await sockets.measure(folder, count, idle_s=idle_s)
    if worst > wakeup.RATIO_MAX:
        console.print(f"A wake-up costs {worst:.0f} bare deliveries, more than {wakeup.RATIO_MAX:.0f}.")
    return worst <= wakeup.RATIO_MAX


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. 1 if something is slower than it may be."""
    parser = argparse.ArgumentParser(prog="make bench-pull", description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it runs")
    chosen = parser.parse_args(arguments)
    print(
        f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} CPUs, "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    servers.pin(os.getpid(), servers.LOAD_CPU)
    with (
        tempfile.TemporaryDirectory() as folder,
        sockets.many_files(),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        well = runner.run(measure(Path(folder), chosen.only, quick=chosen.quick))
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
