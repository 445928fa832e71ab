"""What a long history costs: brokers with ten thousand, a hundred thousand and a million handoffs in their stores.

Run by hand: ``python -m tests.benchmarks.history --store sqlite`` or ``--store postgres`` (PostgreSQL has to be installed;
a server is started for it, with ``fsync`` on). Each takes some minutes and 12 GB of disk in TMPDIR.

The handoffs have ended, over the last thirty days. A broker for each size runs all the time; how long it took to start, a
handoff sent through, a task read and a page listed are measured in rounds that alternate. Ratios are to the broker
with the shortest history in the same round, the median of the rounds. The run fails if a rate is below ``LEAST`` of it,
or a time (but the start, and p99) longer by as much.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from a2a_handoff.stores import open_store
from a2a_handoff.stores.batch import Batch, Known, prepare
from a2a_handoff.stores.sqlite_file import DatabaseFile
from tests.benchmarks import servers, waiting
from tests.benchmarks.store import MESSAGE, life
from tests.support.postgres import Postgres, programs

SIZES = (10_000, 100_000, 1_000_000)
CALLERS = 16
READS = 1000
LEAST = 0.9
_DAYS_S = 30 * 86_400.0
_TOGETHER = 10_000
_FILLER = b"x" * 2000
_TABLES = {
    "events": "position, handoff_id, seq, type, body",
    "handoffs": "id, tenant, sender, correlation_id, context_id, created_at, updated_at, version, state, open, holder, face,"
    " snapshot",
    "chains": "correlation_id, tenant, trace_id, first_handoff_id, started_at",
    "request_keys": "tenant, sender, key, digest, handoff_id",
}

Rows = dict[str, list[tuple[Any, ...]]]
Fill = Callable[[int], "tuple[str, list[str]]"]


def blocks(count: int) -> Iterator[Rows]:
    """The rows of ``count`` handoffs that have ended, by table, in blocks and in the order of time."""
    began = time.time() - _DAYS_S
    chance = random.Random(1)
    # Words that a database cannot press together, as those of people are hard to.
    words = chance.randbytes(1 << 20).hex().encode()
    assert _FILLER in MESSAGE
    model = f"{0:016x}-{0:08d}-{0:010x}"
    batch = Batch(Known(), position=0, owner="", lease_s=30)
    for commit in life(model):
        batch.add(prepare(commit))
    (head,) = batch.handoffs.values()
    for start in range(0, count, _TOGETHER):
        rows: Rows = {table: [] for table in _TABLES}
        for number in range(start, min(start + _TOGETHER, count)):
            at = began + number * _DAYS_S / count
            handoff_id = f"{int(at * 1e9):016x}-{number:08d}-{chance.getrandbits(40):010x}"
            said = words[(place := chance.randrange(len(words) - len(_FILLER))) : place + len(_FILLER)]

            def own(body: bytes, new: bytes = handoff_id.encode(), said: bytes = said) -> bytes:
                return body.replace(model.encode(), new).replace(_FILLER, said)

            first = number * len(batch.events) + 1
            rows["events"] += [
                (first + n, handoff_id, seq, kind, own(body))
                for n, (_, _, seq, kind, body) in enumerate(batch.events)
            ]
            tenant, sender = head[1:3]
            rows["handoffs"].append(
                (handoff_id, tenant, sender, handoff_id, handoff_id, at, at + 1, *head[7:12], own(head[12]))
            )
            rows["chains"].append(
                (handoff_id, tenant, uuid.UUID(int=chance.getrandbits(128)).hex, handoff_id, at)
            )
            rows["request_keys"].append((tenant, sender, handoff_id, "0" * 64, handoff_id))
        yield rows


def fill_sqlite(folder: Path, count: int) -> tuple[str, list[str]]:
    """A file with so many handoffs: its address, and some of their ids."""
    path = folder / f"{count}.db"
    file = DatabaseFile(path)
    connection = file.connect()
    file.migrate(connection)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA wal_autocheckpoint = 10000")
    ids: list[str] = []
    for rows in blocks(count):
        connection.execute("BEGIN")
        for table, columns in _TABLES.items():
            marks = ",".join("?" * (columns.count(",") + 1))
            connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows[table])
        connection.execute("COMMIT")
        ids += [row[0] for row in rows["handoffs"][:: _TOGETHER // 20]]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return f"sqlite:///{path}", ids


def fill_postgres(server: Postgres, count: int) -> tuple[str, list[str]]:
    """A database with so many handoffs: its address, and some of their ids."""
    url = server.url(server.fresh())
    return url, asyncio.run(_fill_postgres(url, count))


async def _fill_postgres(url: str, count: int) -> list[str]:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none

    store = open_store(url)
    await store.open()
    await store.close()
    connection: Any = await asyncpg.connect(url)
    ids: list[str] = []
    events = 0
    for rows in blocks(count):
        rows["handoffs"] = [(*row[:9], bool(row[9]), *row[10:]) for row in rows["handoffs"]]
        for table, columns in _TABLES.items():
            await connection.copy_records_to_table(table, records=rows[table], columns=columns.split(", "))
        events += len(rows["events"])
        ids += [row[0] for row in rows["handoffs"][:: _TOGETHER // 20]]
    await connection.execute("UPDATE positions SET events = $1", events)
    # Else the server would do both by itself, in the middle of a measurement.
    await connection.execute("VACUUM (ANALYZE)", timeout=600)
    await connection.execute("CHECKPOINT", timeout=600)
    await connection.close()
    return ids


@contextlib.contextmanager
def filler(store: str, folder: Path) -> Generator[Fill]:
    """What fills a store of that kind."""
    if store == "sqlite":
        yield lambda count: fill_sqlite(folder, count)
        return
    found = programs()
    if found is None:
        raise SystemExit("PostgreSQL is not installed.")
    server = Postgres(found, durable=True)
    server.start()
    try:
        yield lambda count: fill_postgres(server, count)
    finally:
        server.remove()


async def reads(url: str, ids: list[str]) -> list[float]:
    """The medians, in ms, of reading a task, of listing fifty, and of listing those that failed: there are none."""
    connection = await waiting.connect(url)
    spent: list[list[float]] = [[], [], []]
    for number in range(READS):
        asked = (
            (f"/tasks/{ids[number % len(ids)]}", b'"status"'),
            ("/tasks?pageSize=50", b'"status"'),
            ("/tasks?pageSize=50&status=TASK_STATE_FAILED", b'"tasks":[]'),
        )
        for times, (path, wanted) in zip(spent, asked, strict=True):
            head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nA2A-Version: 1.0\r\n\r\n".encode()
            began = time.perf_counter()
            answer = await connection.ask(head)
            times.append(1000 * (time.perf_counter() - began))
            if wanted not in answer:
                raise SystemExit(f"{path}: {answer[:200]!r}")
    return [statistics.median(times) for times in spent]


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


MEASURES = (
    "handoffs a second",
    "p50, ms",
    "a task read, ms",
    "50 listed, ms",
    "failed listed, ms",
    "p99, ms",
)
#: Those by which a run is judged; the rate first.
JUDGED = 5


def measure(url: str, ids: list[str], seconds: float) -> tuple[float, ...]:
    """One round of one broker, in the order of ``MEASURES``."""
    sent = fire(url, seconds)
    return sent["rps"], sent["p50_ms"], *asyncio.run(reads(url, ids)), sent["p99_ms"]


def main() -> None:
    """Measure and print. Exit code 1 if a long history makes the broker slower than it may."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    chosen = parser.parse_args()
    found: dict[int, list[tuple[float, ...]]] = {size: [] for size in chosen.sizes}
    started: dict[int, float] = {}
    with contextlib.ExitStack() as up:
        folder = Path(up.enter_context(tempfile.TemporaryDirectory()))
        agent_url, _ = up.enter_context(servers.agent())
        fill = up.enter_context(filler(chosen.store, folder))
        stores: dict[int, tuple[str, list[str]]] = {}
        for size in chosen.sizes:
            began = time.perf_counter()
            stores[size] = fill(size)
            print(f"{size:,} handoffs written in {time.perf_counter() - began:.0f} s", flush=True)
        # What was written is on the disk, not on its way there while others are measured.
        os.sync()
        running: dict[int, str] = {}
        for size, (store, _) in stores.items():
            env = {"A2A_HANDOFF_RETENTION": "0", "A2A_HANDOFF_STORE": store}
            began = time.perf_counter()
            running[size], _ = up.enter_context(servers.broker(folder / str(size), agent_url, env))
            started[size] = time.perf_counter() - began
        for number in range(chosen.rounds + 1):
            for size in chosen.sizes if number % 2 else reversed(chosen.sizes):
                one = measure(running[size], stores[size][1], chosen.seconds)
                if number:  # the first round warms up
                    found[size].append(one)
    least = _show(found, started, f"A handoff after a long history, {CALLERS} callers, {chosen.store}")
    if least < LEAST:
        raise SystemExit(f"A long history costs more than it may: {least:.2f}, {LEAST} wanted.")


def _show(found: dict[int, list[tuple[float, ...]]], started: dict[int, float], title: str) -> float:
    """Print all figures with their ratios; the worst ratio by which the run is judged."""
    shown = Table(title=title)
    for head in ("handoffs stored", *MEASURES, "start, s"):
        shown.add_column(head, justify="right")
    shortest = min(found)
    least = 1.0
    for size, rounds in found.items():
        cells: list[str] = []
        for place, values in enumerate(zip(*rounds, strict=True)):
            shares = [
                mine[place] / base[place] if place == 0 else base[place] / mine[place]
                for mine, base in zip(rounds, found[shortest], strict=True)
            ]
            ratio = statistics.median(shares)
            if place < JUDGED:
                least = min(least, ratio)
            digits = 0 if place == 0 else 2
            cells.append(f"{statistics.median(values):,.{digits}f} ({ratio:.2f})")
        shown.add_row(f"{size:,}", *cells, f"{started[size]:.1f}")
    Console(width=140).print(shown)
    print("In brackets: how good it is next to the shortest history, 1 is as good.")
    return least


if __name__ == "__main__":
    main()
