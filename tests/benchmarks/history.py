"""What a long history costs: brokers with ten thousand, a hundred thousand and a million handoffs in their stores.

Run by hand: ``python -m tests.benchmarks.history`` (8 GB of disk in TMPDIR, some minutes). The handoffs have ended, over the
last thirty days; a handoff sent through, a task read and a page listed are measured in rounds that alternate. Ratios are
to the broker with the shortest history, the median of the rounds. A rate below ``LEAST`` of it fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from a2a_handoff.stores.batch import Batch, Known, prepare
from a2a_handoff.stores.sqlite_file import DatabaseFile
from tests.benchmarks import servers, waiting
from tests.benchmarks.store import life

SIZES = (10_000, 100_000, 1_000_000)
CALLERS = 16
READS = 200
LEAST = 0.9
_DAYS_S = 30 * 86_400.0
_TOGETHER = 10_000


def fill(path: Path, count: int) -> list[str]:
    """A store with ``count`` handoffs that have ended; some of their ids."""
    file = DatabaseFile(path)
    connection = file.connect()
    file.migrate(connection)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA wal_autocheckpoint = 10000")
    began = time.time() - _DAYS_S
    sample: list[str] = []
    for start in range(0, count, _TOGETHER):
        rows = list(_rows(range(start, min(start + _TOGETHER, count)), began, _DAYS_S / count))
        connection.execute("BEGIN")
        for table, width in _WIDTHS.items():
            values = ",".join("?" * width)
            connection.executemany(
                f"INSERT INTO {table} VALUES ({values})",
                (row for found in rows for row in found[table]),
            )
        connection.execute("COMMIT")
        sample.append(rows[0]["chains"][0][3])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return sample


_WIDTHS = {
    "events (position, handoff_id, seq, type, body)": 5,
    "handoffs (id, tenant, sender, correlation_id, context_id, created_at, updated_at, version, state, open, holder, face,"
    " snapshot)": 13,
    "chains": 5,
    "request_keys": 5,
}


def _rows(numbers: range, began: float, step: float) -> Iterator[dict[str, Any]]:
    """The rows of handoffs, by table: those of one, each time under another id and at another time."""
    model = f"{0:016x}-{0:08d}-{0:010x}"
    known = Known()
    batch = Batch(known, position=0, owner="", lease_s=30)
    for commit in life(model):
        batch.add(prepare(commit))
    (row,) = batch.handoffs.values()
    events = batch.events
    for number in numbers:
        at = began + number * step
        handoff_id = f"{int(at * 1e9):016x}-{number:08d}-{uuid.uuid4().hex[:10]}"
        old, new = model.encode(), handoff_id.encode()
        first = number * len(events) + 1
        log = [
            (first + n, handoff_id, seq, kind, body.replace(old, new))
            for n, (_, _, seq, kind, body) in enumerate(events)
        ]
        head = (handoff_id, *row[1:3], handoff_id, handoff_id, at, at + 1)
        state = (*head, *row[7:12], row[12].replace(old, new))
        chain = (handoff_id, row[1], uuid.uuid4().hex, handoff_id, at)
        key = ("default", row[2], handoff_id, "0" * 64, handoff_id)
        yield dict(zip(_WIDTHS, (log, [state], [chain], [key]), strict=True))


async def reads(url: str, ids: list[str]) -> tuple[float, float]:
    """The medians, in ms, of reading a task and of listing fifty."""
    connection = await waiting.connect(url)
    spent: tuple[list[float], list[float]] = ([], [])
    for number in range(READS):
        for times, path in zip(
            spent, (f"/tasks/{ids[number % len(ids)]}", "/tasks?pageSize=50"), strict=True
        ):
            head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nA2A-Version: 1.0\r\n\r\n".encode()
            began = time.perf_counter()
            answer = await connection.ask(head)
            times.append(1000 * (time.perf_counter() - began))
            if b'"status"' not in answer:
                raise SystemExit(f"{path}: {answer[:200]!r}")
    return statistics.median(spent[0]), statistics.median(spent[1])


def fire(url: str, seconds: float) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.load",
        "fire",
        url,
        str(CALLERS),
        str(seconds),
        "handoff",
    ]
    result: dict[str, float] = json.loads(subprocess.check_output(command))
    if result["errors"]:
        raise SystemExit(f"{result['errors']:.0f} wrong answers")
    return result


def main() -> None:
    """Measure and print. Exit code 1 if a long history makes the broker slower than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    chosen = parser.parse_args()
    found: dict[int, list[tuple[float, float, float, float, float]]] = {size: [] for size in chosen.sizes}
    with contextlib.ExitStack() as up:
        folder = Path(up.enter_context(tempfile.TemporaryDirectory()))
        agent_url, _ = up.enter_context(servers.agent())
        running: dict[int, tuple[str, list[str]]] = {}
        for size in chosen.sizes:
            home = folder / str(size)
            home.mkdir()
            ids = fill(home / "bench.db", size)
            env = {"A2A_HANDOFF_RETENTION": "0"}
            running[size] = (up.enter_context(servers.broker(home, agent_url, env))[0], ids)
        for number in range(chosen.rounds + 1):
            for size in chosen.sizes if number % 2 else reversed(chosen.sizes):
                url, ids = running[size]
                sent = fire(url, chosen.seconds)
                one = (sent["rps"], sent["p50_ms"], sent["p99_ms"], *asyncio.run(reads(url, ids)))
                if number:  # the first round warms up
                    found[size].append(one)
    shown = Table(title=f"A handoff after a long history, {CALLERS} callers")
    for head in (
        "handoffs stored",
        "handoffs a second",
        "ratio",
        "p50, ms",
        "p99, ms",
        "a task read, ms",
        "50 listed, ms",
    ):
        shown.add_column(head, justify="right")
    least = 1.0
    for size in chosen.sizes:
        ratio = statistics.median(
            a[0] / b[0] for a, b in zip(found[size], found[chosen.sizes[0]], strict=True)
        )
        least = min(least, ratio)
        rate, *times = (statistics.median(column) for column in zip(*found[size], strict=True))
        shown.add_row(f"{size:,}", f"{rate:,.0f}", f"{ratio:.2f}", *(f"{value:.2f}" for value in times))
    Console(width=140).print(shown)
    if least < LEAST:
        raise SystemExit(
            f"The longest history costs more than it may: {least:.2f} of the rate, {LEAST} wanted."
        )


if __name__ == "__main__":
    main()
