"""What one, two and three brokers do on one PostgreSQL, next to one on SQLite, and next to bare commits of each store.

Run by hand: ``python -m tests.benchmarks.replicas`` (PostgreSQL has to be installed; a server is started for it, with
``fsync`` on). The same 16 callers send blocking tasks to the brokers in turn. A bare commit is one row of 4 KB in a
transaction of its own, by 16 writers at a time on PostgreSQL and by one on SQLite, which has one. A handoff is two commits:
the ratio says how many of the bare ones they cost. Everything shares the processors of one machine, so more brokers
show what sharing a log costs, not what more machines bring.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import servers
from tests.support.postgres import Postgres, programs

CALLERS = 16
BROKERS = (1, 2, 3)
_ROW = b"x" * 4096


def bare_sqlite(path: Path, seconds: float) -> float:
    """Commits a second of one row each."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS bare (body BLOB)")
    count, ends_at = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        connection.execute("INSERT INTO bare VALUES (?)", (_ROW,))
        count += 1
    connection.close()
    return count / seconds


async def bare_postgres(url: str, seconds: float) -> float:
    """Commits a second of one row each, by as many connections as there are callers."""
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none

    connections: list[Any] = [await asyncpg.connect(url) for _ in range(CALLERS)]
    await connections[0].execute("CREATE TABLE IF NOT EXISTS bare (body BYTEA)")
    count, ends_at = 0, time.perf_counter() + seconds

    async def insert(connection: Any) -> None:
        nonlocal count
        while time.perf_counter() < ends_at:
            await connection.execute("INSERT INTO bare VALUES ($1)", _ROW)
            count += 1

    await asyncio.gather(*map(insert, connections))
    for connection in connections:
        await connection.close()
    return count / seconds


async def fire(urls: list[str], seconds: float) -> tuple[float, float, float]:
    """Handoffs a second over all brokers, and the medians of p50 and p99 in ms."""
    share = [CALLERS // len(urls) + (n < CALLERS % len(urls)) for n in range(len(urls))]
    loads = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.benchmarks.load", "fire", url, str(callers), str(seconds), "handoff",
            stdout=asyncio.subprocess.PIPE,
        )
        for url, callers in zip(urls, share, strict=True)
    ]  # fmt: skip
    said: list[dict[str, float]] = [json.loads((await load.communicate())[0]) for load in loads]
    if wrong := sum(one["errors"] for one in said):
        raise SystemExit(f"{wrong:.0f} wrong answers")
    return (
        sum(one["rps"] for one in said),
        statistics.median(one["p50_ms"] for one in said),
        statistics.median(one["p99_ms"] for one in said),
    )


def main() -> None:
    """Measure in rounds that alternate, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    chosen = parser.parse_args()
    found = programs()
    if found is None:
        raise SystemExit("PostgreSQL is not installed.")
    results: dict[str, list[tuple[float, float, float, float]]] = {}
    with contextlib.ExitStack() as up:
        folder = Path(up.enter_context(tempfile.TemporaryDirectory()))
        agent_url, _ = up.enter_context(servers.agent())
        server = Postgres(found, durable=True)
        up.callback(server.remove)
        server.start()
        lone, _ = up.enter_context(servers.broker(folder / "sqlite", agent_url))
        ways: dict[str, list[str]] = {"SQLite, one broker": [lone]}
        for count in BROKERS:
            env = {"A2A_HANDOFF_STORE": server.url(server.fresh())}
            ways[f"PostgreSQL, {count} broker{'s' * (count > 1)}"] = [
                up.enter_context(servers.broker(folder / f"{count}-{n}", agent_url, env))[0]
                for n in range(count)
            ]
        bare = server.url(server.fresh())
        for number in range(chosen.rounds + 1):
            raw = {
                "SQLite": bare_sqlite(folder / "bare.db", 1.0),
                "PostgreSQL": asyncio.run(bare_postgres(bare, 1.0)),
            }
            for name in ways if number % 2 else reversed(ways):
                rate, p50, p99 = asyncio.run(fire(ways[name], chosen.seconds))
                if number:  # the first round warms up
                    ratio = 2 * rate / raw[name.partition(",")[0]]
                    results.setdefault(name, []).append((rate, p50, p99, ratio))
    shown = Table(title=f"Durable handoffs by {CALLERS} callers")
    for head in ("", "handoffs a second", "p50, ms", "p99, ms", "two commits each / bare commits"):
        shown.add_column(head, justify="right" if head else "left")
    for name in ways:
        rate, p50, p99, ratio = (statistics.median(column) for column in zip(*results[name], strict=True))
        ratios = sorted(one[3] for one in results[name])
        shown.add_row(
            name,
            f"{rate:,.0f}",
            f"{p50:.1f}",
            f"{p99:.1f}",
            f"{ratio:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})",
        )
    Console(width=140).print(shown)


if __name__ == "__main__":
    main()
