"""How many durable commits a second the store takes, next to SQLite used in the plain way.

Run by hand: ``python -m tests.benchmarks.store``. Both sides write the same rows of the same handoffs:
one commit takes and offers a handoff of about 4 KB (two events, snapshot, chain, request key, two work
items), the next acknowledges and completes it. The plain way is one transaction for each commit, one
after the other on one connection of the same kind. What counts is the ratio within one run: the disk and
the neighbours decide on the rest. With ``--postgres URL`` the store is on that database, and the plain way
still SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
import uuid
from pathlib import Path

from a2a_handoff.core.events import Drop, Schedule, WorkKind
from a2a_handoff.ports import Commit, RequestKey, Store
from a2a_handoff.stores import open_store, sqlite_writer
from a2a_handoff.stores.batch import Batch, Known, prepare
from a2a_handoff.stores.sqlite_file import DatabaseFile
from tests.support.builders import (
    NOW,
    acknowledged_event,
    commit_of,
    completed_event,
    first_write,
    next_write,
    offered_event,
)

MESSAGE = b'{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"' + b"x" * 2300 + b'"}]}'
RESULT = b'{"parts":[{"text":"' + b"y" * 800 + b'"}]}'
CALLERS = (1, 16, 256)


def lives(count: int) -> list[tuple[Commit, Commit]]:
    """The two commits of each of ``count`` handoffs, made before the clock runs."""
    # As with UUIDv7, ids grow with time and end at random.
    return [life(f"{time.time_ns():016x}-{number:08d}-{uuid.uuid4().hex[:10]}") for number in range(count)]


def life(handoff_id: str) -> tuple[Commit, Commit]:
    """The two commits of a handoff that is taken, done and over."""
    create = first_write(
        handoff_id,
        offered_event(),
        message=MESSAGE,
        actions=(
            Schedule(kind=WorkKind.DEADLINE, due_at=NOW + 3600),
            Schedule(kind=WorkKind.DELIVER, due_at=NOW, attempt=1),
        ),
    )
    key = RequestKey(
        tenant="default", sender="sender", key=handoff_id, digest="0" * 64, handoff_id=handoff_id
    )
    end = next_write(create.handoff, acknowledged_event(), completed_event(RESULT), actions=(Drop(),))
    return commit_of(create, request_key=key), commit_of(end)


def plain(path: Path, work: list[tuple[Commit, Commit]]) -> float:
    """Commits a second of one transaction after the other."""
    file = DatabaseFile(path)
    connection = file.connect()
    file.migrate(connection)
    position = 0
    began = time.perf_counter()
    for commit in (commit for pair in work for commit in pair):
        versions = {write.handoff.id: write.expected_version for write in commit.writes}
        batch = Batch(Known(versions=versions), position=position, owner="plain", lease_s=30)
        batch.add(prepare(commit))
        position = batch.position
        connection.execute("BEGIN IMMEDIATE")
        for table, rows in (
            ("events", batch.events),
            ("chains", batch.chains),
            ("request_keys", batch.requests),
        ):
            if rows:
                marks = ",".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        connection.executemany(
            f"{sqlite_writer._PUT_HANDOFFS} VALUES ({','.join('?' * 13)}) {sqlite_writer._OR_UPDATE_HANDOFF}",
            batch.handoffs.values(),
        )
        connection.executemany(
            "DELETE FROM work WHERE handoff_id = ?", [(one,) for one in batch.void_handoffs]
        )
        connection.executemany("REPLACE INTO work VALUES (?,?,?,?,?,?,?,?,?)", batch.work)
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return 2 * len(work) / seconds


async def grouped(store: Store, work: list[tuple[Commit, Commit]], callers: int) -> tuple[float, list[float]]:
    """Commits a second through the store with ``callers`` tasks, and the seconds that each took."""
    await store.open()
    took: list[float] = []
    rest = iter(work)

    async def call() -> None:
        for pair in rest:
            for commit in pair:
                began = time.perf_counter()
                await store.commit(commit)
                took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*[call() for _ in range(callers)])
    seconds = time.perf_counter() - began
    await store.close()
    return len(took) / seconds, took


def main() -> None:
    """Alternate both ways and print the median of each and of the ratios."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1.0, help="about how long each measurement takes")
    options.add_argument("--folder", type=Path, help="where the databases are written (the disk to measure)")
    options.add_argument(
        "--postgres", metavar="URL", help="measure the store on this database, with its own disk"
    )
    chosen = options.parse_args()
    print(f"{'callers':>7} {'plain/s':>8} {'store/s':>8} {'ratio':>6} {'p50 ms':>7} {'p99 ms':>7}")
    for callers in CALLERS:
        count = int(chosen.seconds * {1: 500, 16: 3000, 256: 5000}[callers])
        rates: list[tuple[float, float]] = []
        took: list[float] = []
        for _ in range(chosen.rounds):
            with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
                few, many = lives(int(chosen.seconds * 500)), lives(count)
                # Thousands of commits made beforehand are no burden that a broker would carry.
                gc.collect()
                gc.freeze()
                alone = plain(Path(folder) / "plain.db", few)
                store = open_store(chosen.postgres or f"sqlite:///{folder}/store.db")
                together, times = asyncio.run(grouped(store, many, callers))
                gc.unfreeze()
            rates.append((alone, together))
            took += times
        took.sort()
        print(
            f"{callers:>7} {statistics.median(alone for alone, _ in rates):>8.0f}"
            f" {statistics.median(together for _, together in rates):>8.0f}"
            f" {statistics.median(together / alone for alone, together in rates):>6.2f}"
            f" {took[len(took) // 2] * 1000:>7.2f} {took[len(took) * 99 // 100] * 1000:>7.2f}"
        )


if __name__ == "__main__":
    main()
