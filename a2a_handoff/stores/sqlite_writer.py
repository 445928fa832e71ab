"""The one writer of a SQLite store: a thread that commits whatever waits, together.

Duty: queue, group commit, answering the callers, copying the write-ahead log back in the background.
Rules:
- While one transaction is being synced the next ones gather; so the group grows with the load and a
  single commit waits for nobody.
- The interpreter lock is the scarce thing here: a busy event loop leaves it for a few microseconds at a
  time, and each statement needs it twice. So a table gets one statement with many rows, not many
  statements.
- The log is never copied back twice without a commit between: a second checkpoint that begins while a
  commit restarts the log may lose pages in SQLite before 3.51.3 (https://sqlite.org/wal.html#walresetbug).
Not here: what is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from a2a_handoff.core.events import State
from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.stores.batch import Batch, Known, Prepared, touched
from a2a_handoff.stores.jobs import Job, answer
from a2a_handoff.stores.sqlite_work import release
from a2a_handoff.stores.usage import Line

if TYPE_CHECKING:
    from a2a_handoff.stores.sqlite_file import DatabaseFile

#: If the last transaction had ``CROWD`` commits at least, more are on their way, and one sync, one turn of
#: the interpreter lock, serves them all. The next one waits for them as long as the last one took, which
#: suits any disk and processor, but never longer than these seconds. A single caller never waits.
GATHER_MAX_S = 0.003
CROWD = 6
#: Most commits in one transaction.
COMMITS_MAX = 512
#: Most rows in one statement, and how many are few: for each number up to there a statement stays prepared.
ROWS_MAX = 256
ROWS_FEW = 16
#: Written bytes after which the log is copied back in the background.
CHECKPOINT_BYTES = 4 << 20
#: What a row writes beside its body, roughly: its share of table and index pages.
ROW_BYTES = 512
#: Pages in the log at which the writer waits until it is copied back, so that the log starts anew.
LOG_PAGES_MAX = 8192
#: Bytes that are written while the log is copied back: then the writer waits for that. Without, the log would
#: grow for as long as copying is slower than writing.
BEHIND_MAX_BYTES = 16 << 20
#: Handoffs whose version is kept in memory.
VERSIONS_MAX = 65536

_log = logging.getLogger(__name__)

_CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

# Each is followed by VALUES and rows of parameters, and closed as it was opened. Rows in IN need the
# inner SELECT: SQLite scans the table for a bare VALUES of several columns.
_FIND_VERSIONS = "SELECT id, version FROM handoffs WHERE id IN (SELECT * FROM ("
_FIND_CHAINS = "SELECT correlation_id, tenant FROM chains WHERE correlation_id IN (SELECT * FROM ("
_FIND_REQUESTS = (
    "SELECT tenant, sender, key, handoff_id, digest FROM request_keys"
    " WHERE (tenant, sender, key) IN (SELECT * FROM ("
)
_FIND_ALIASES = (
    "SELECT tenant, owner, alias, handoff_id FROM aliases WHERE (tenant, owner, alias) IN (SELECT * FROM ("
)
_OCCUPYING = [state for state in State if not state.terminal and state is not State.HANDED_OFF]
_FIND_HELD = "SELECT tenant, holder, count(*) FROM ("
# Of each agent, by an index: the states come first there.
_OF_HOLDER = (
    ") AS t CROSS JOIN handoffs INDEXED BY handoffs_open ON tenant = t.column1 AND holder = t.column2"
    f" AND open = 1 AND state IN ({', '.join(repr(str(state)) for state in _OCCUPYING)})"
    " GROUP BY tenant, holder"
)
_FIND_OCCUPIED = (
    f"SELECT id, tenant, holder FROM handoffs WHERE holder <> '' AND state <> '{State.HANDED_OFF}'"  # noqa: S608 - a constant
    " AND id IN (SELECT * FROM ("
)
_VOID_HANDOFFS = "DELETE FROM work WHERE kind <> 'webhook' AND handoff_id IN (SELECT * FROM ("
_VOID_KINDS = "DELETE FROM work WHERE (handoff_id, kind) IN (SELECT * FROM ("
_VOID_KEYS = "DELETE FROM work WHERE (handoff_id, kind, attempt, ref) IN (SELECT * FROM ("
_CLOSE = "))"
_PUT_EVENTS = "INSERT INTO events (position, handoff_id, seq, type, body)"
_PUT_HANDOFFS = (
    "INSERT INTO handoffs (id, tenant, sender, correlation_id, context_id, created_at, updated_at,"
    " version, state, open, holder, face, snapshot)"
)
# The columns that never change are left out, so that their indexes are not touched.
_OR_UPDATE_HANDOFF = (
    "ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, version = excluded.version,"
    " state = excluded.state, open = excluded.open, holder = excluded.holder, snapshot = excluded.snapshot"
)
_PUT_CHAINS = "INSERT INTO chains (correlation_id, tenant, trace_id, first_handoff_id, started_at)"
_PUT_REQUESTS = "INSERT INTO request_keys (tenant, sender, key, digest, handoff_id)"
_PUT_ALIASES = "INSERT INTO aliases (tenant, owner, alias, handoff_id)"
_PUT_WEBHOOKS = "REPLACE INTO webhooks (handoff_id, id, edition, body)"
_PUT_WORK = "REPLACE INTO work (handoff_id, kind, attempt, ref, due_at, wake_at, owner, claims, orphaned)"

Statement = Callable[[sqlite3.Connection], object]


_Job = Job[Statement]


class Writer:
    """Owns the only connection that writes."""

    def __init__(self, file: DatabaseFile, *, owner: str, lease_s: float) -> None:
        self._file = file
        self._owner = owner
        self._lease_s = lease_s
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._stopping = False
        self._versions: dict[str, int] = {}
        self._position = 0
        self._last = 0
        self._last_took_s = 0.0
        self._unsaved = 0
        self._copying = False
        self._copied: int | None = None
        self._copy_over = threading.Event()
        self._copies: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.line = Line()
        """Writes that wait, for whoever measures."""
        self.failed = False
        """Whether the last write was lost by a fault of the file or its disk."""
        self._connection: sqlite3.Connection
        self._loop: asyncio.AbstractEventLoop

    def start(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to write on ``connection``, and to answer on ``loop``. Raises ``sqlite3.Error``."""
        self._connection = connection
        self._loop = loop
        (self._position,) = connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()
        second = self._file.connect()
        self._threads = [
            threading.Thread(target=self._write_all, name="a2a-handoff-writer", daemon=True),
            threading.Thread(
                target=self._copy_back, args=(second,), name="a2a-handoff-checkpoint", daemon=True
            ),
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Prepared | Statement) -> asyncio.Future[Any]:
        """Queue a write. The future has its result when it is durable."""
        if self._stopping:
            raise StoreUnavailable(f"The store {self._file.path} is closed.")
        future = self._loop.create_future()
        self.line.join()
        self._jobs.put(Job(work, future))
        return future

    def refuse(self) -> None:
        """Take nothing more in."""
        self._stopping = True
        self._jobs.put(None)

    def join(self) -> None:
        """Wait until all that was taken in is written, then leave an empty log. Call ``refuse`` first."""
        writer, copier = self._threads
        writer.join()
        self._copies.put(False)
        copier.join()
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            _log.warning("The log of the store stays until the next start: %s", self._file.fault(error))

    def forget(self, ids: Iterable[str]) -> None:
        """Handoffs that a statement removes: their versions are not what is kept in memory any more."""
        for handoff_id in ids:
            self._versions.pop(handoff_id, None)

    # --- the writer's thread ---------------------------------------------------------------------

    def _write_all(self) -> None:
        while jobs := self._take():
            if self._copying and self._unsaved > BEHIND_MAX_BYTES:
                self._copy_over.wait()
            if self._copied is not None:
                if self._copied > LOG_PAGES_MAX:
                    self._checkpoint(self._connection)
                self._unsaved, self._copying, self._copied = 0, False, None
            began = time.monotonic()
            results = self._write(jobs)
            self._last, self._last_took_s = len(jobs), time.monotonic() - began
            if self._unsaved >= CHECKPOINT_BYTES and not self._copying:
                self._copying = True
                self._copy_over.clear()
                self._copies.put(True)
            # A loop that is closed has nobody left to answer.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._answer, jobs, results)

    def _take(self) -> list[_Job]:
        """Everything that waits, at least one; nothing at the end."""
        jobs: list[_Job] = []
        job = self._jobs.get()
        if self._last >= CROWD:
            time.sleep(min(self._last_took_s, GATHER_MAX_S))
        while job is not None:
            jobs.append(job)
            if len(jobs) == COMMITS_MAX:
                return jobs
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs
        if jobs:
            self._jobs.put(None)
        return jobs

    def _write(self, jobs: Sequence[_Job]) -> list[object]:
        """The results, an exception for what failed."""
        try:
            results = self._transact(jobs)
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a caller sent
            self._versions.clear()
            if isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError:
                self.failed = True
                return [self._file.fault(error) for _ in jobs]
            if len(jobs) == 1:
                return [error]
            return [self._write([job])[0] for job in jobs]
        self.failed = False
        return results

    def _transact(self, jobs: Sequence[_Job]) -> list[object]:
        connection = self._connection
        changes = connection.total_changes
        position = self._position
        size = 0
        results: list[object] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for commits, run in itertools.groupby(jobs, lambda job: isinstance(job.work, Prepared)):
                if commits:
                    prepared = [cast("Prepared", job.work) for job in run]
                    batch = Batch(
                        self._known(prepared), position=position, owner=self._owner, lease_s=self._lease_s
                    )
                    results += map(batch.answer, prepared)
                    self._put(batch)
                    position = batch.position
                    size += batch.size
                else:
                    results += [cast("Statement", job.work)(connection) for job in run]
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._position = position
        self._unsaved += size + ROW_BYTES * (connection.total_changes - changes)
        return results

    def _known(self, commits: Sequence[Prepared]) -> Known:
        """Look up what the commits touch."""
        if len(self._versions) > VERSIONS_MAX:
            self._versions.clear()
        seen = touched(commits)
        # Not a difference of sets: that would walk through all the versions, for each batch.
        unknown = [(one,) for one in seen.handoffs if one not in self._versions]
        self._versions.update(self._rows(_FIND_VERSIONS, unknown, _CLOSE))
        known = Known(
            versions=self._versions,
            chains=dict(self._rows(_FIND_CHAINS, [(one,) for one in seen.chains], _CLOSE)),
            requests={row[:3]: row[3:] for row in self._rows(_FIND_REQUESTS, seen.requests, _CLOSE)},
            aliases={row[:3]: row[3] for row in self._rows(_FIND_ALIASES, seen.aliases, _CLOSE)},
        )
        if seen.agents:
            counted = {row[:2]: row[2] for row in self._rows(_FIND_HELD, seen.agents, _OF_HOLDER)}
            known.held = {agent: counted.get(agent, 0) for agent in seen.agents}
            ids = [(one,) for one in seen.handoffs]
            known.occupied = {row[0]: row[1:] for row in self._rows(_FIND_OCCUPIED, ids, _CLOSE)}
        return known

    def _put(self, batch: Batch) -> None:
        voids = batch.void_handoffs
        self._rows(_PUT_EVENTS, batch.events)
        self._rows(_PUT_HANDOFFS, batch.handoffs.values(), _OR_UPDATE_HANDOFF)
        self._rows(_PUT_CHAINS, batch.chains)
        self._rows(_PUT_REQUESTS, batch.requests)
        self._rows(_PUT_ALIASES, batch.aliases)
        self._rows(_PUT_WEBHOOKS, batch.webhooks)
        self._rows(_VOID_HANDOFFS, [(one,) for one in voids], _CLOSE)
        self._rows(_VOID_KINDS, [one for one in batch.void_kinds if one[0] not in voids], _CLOSE)
        self._rows(_VOID_KEYS, [one for one in batch.void_keys if one[0] not in voids], _CLOSE)
        self._rows(_PUT_WORK, batch.work)

    def _rows(self, head: str, rows: Iterable[Sequence[Any]], tail: str = "") -> list[Any]:
        """Run ``head VALUES (...), (...) tail`` over all rows, and fetch what comes back.

        One statement if the rows are few, else in powers of two: so there are few of them, and each
        stays prepared.
        """
        rest = list(rows)
        found: list[Any] = []
        while rest:
            count = len(rest)
            if count > ROWS_FEW:
                count = min(1 << (count.bit_length() - 1), ROWS_MAX)
            part, rest = rest[:count], rest[count:]
            statement = _statement(head, len(part[0]), count, tail)
            found += self._connection.execute(statement, [*itertools.chain.from_iterable(part)]).fetchall()
        return found

    # --- the event loop's thread -----------------------------------------------------------------

    def _answer(self, jobs: Sequence[_Job], results: Sequence[object]) -> None:
        self.line.leave(len(jobs))
        claimed = answer(jobs, results)
        if claimed and not self._stopping:
            given = self.submit(lambda connection: release(connection, self._owner, claimed))
            # If that fails too, the lease ends or the next start frees them.
            given.add_done_callback(lambda done: done.cancelled() or done.exception())

    # --- the checkpoint's thread -----------------------------------------------------------------

    def _copy_back(self, connection: sqlite3.Connection) -> None:
        while self._copies.get():
            self._copied = self._checkpoint(connection)
            self._copy_over.set()
        connection.close()

    def _checkpoint(self, connection: sqlite3.Connection) -> int:
        """Copy the log into the database as far as nobody is in the way; the pages that it has."""
        try:
            _, pages, _ = connection.execute(_CHECKPOINT).fetchone()
        except sqlite3.Error as error:
            _log.warning("The log of the store grows: %s", self._file.fault(error))
            return 0
        return pages


@cache
def _statement(head: str, width: int, count: int, tail: str) -> str:
    row = f"({','.join('?' * width)})"
    return f"{head} VALUES {','.join([row] * count)} {tail}"
