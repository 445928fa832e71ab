"""``make bench-pull``: agents that fetch their work, by long poll, WebSocket and MCP.

How soon one that waits has an offer (``wakeup``), how many handoffs a second they complete (``rate``), what
those cost that wait (``sockets``). The load and the agents share one CPU, the server has another one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from tests.benchmarks import rate, servers, sockets, wakeup

PARTS = ("wakeup", "rate", "sockets")


async def measure(folder: Path, parts: Sequence[str], *, quick: bool) -> None:
    """Measure and print one part after the other."""
    console = Console(width=140)
    if "wakeup" in parts:
        waiters, rounds = ((1, 10), 20) if quick else (wakeup.WAITERS, 300)
        for surface in wakeup.SURFACES:
            console.print(await wakeup.measure_surface(folder, surface, waiters, rounds))
    if "rate" in parts:
        seconds, rounds = (1.0, 1) if quick else (3.0, 5)
        console.print(await rate.measure_all(folder, seconds, rounds))
    if "sockets" in parts:
        count, idle_s = (100, 1.0) if quick else (sockets.SOCKETS, sockets.IDLE_S)
        await sockets.measure(folder, count, idle_s=idle_s)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
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
        runner.run(measure(Path(folder), chosen.only, quick=chosen.quick))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
