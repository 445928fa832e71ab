"""The durable store of one broker process: a SQLite file.

Duty: ``ports.Store`` on SQLite in WAL mode with ``synchronous=FULL``: what was acknowledged survives the
loss of power.
Rules: one process (a lock file sees to it), one writer thread, readers on connections and threads of
their own; nothing blocks the event loop. All calls come from the loop that opened the store.
Not here: what a commit may do (``batch``), when it is written (``sqlite_writer``).
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import uuid
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from a2a_handoff.core.events import State
from a2a_handoff.ports import (
    PAGE_BYTES,
    SECRET_BYTES,
    Broadcast,
    BroadcastPage,
    Chain,
    ChainTaken,
    Commit,
    Committed,
    HandoffPage,
    HandoffQuery,
    Late,
    Recorded,
    RequestKey,
    StoreUnavailable,
    Usage,
    Webhook,
    Work,
    WorkKey,
)
from a2a_handoff.stores import sqlite_broadcasts, sqlite_retention, sqlite_webhooks, sqlite_work
from a2a_handoff.stores.batch import prepare
from a2a_handoff.stores.codec import (
    decode_agent,
    decode_event,
    decode_handoff,
    encode_agent,
)
from a2a_handoff.stores.sqlite_file import DatabaseFile
from a2a_handoff.stores.sqlite_listing import list_page
from a2a_handoff.stores.sqlite_writer import Statement, Writer
from a2a_handoff.stores.usage import Readers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from a2a_handoff.core.agents import Agent
    from a2a_handoff.core.handoff import Handoff

#: Seconds that a claim of work holds without ``renew_leases``.
LEASE_S = 30.0
#: Threads, each with a connection, that read.
READERS = 4

_T = TypeVar("_T")


def _rewrite_version(connection: sqlite3.Connection) -> None:
    """Write what is there already, to see whether that can be done."""
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    connection.execute(f"PRAGMA user_version = {int(version)}")


class SqliteStore:
    """``ports.Store`` on the file ``path``; missing directories are made."""

    def __init__(self, path: Path, *, lease_s: float = LEASE_S, readers: int = READERS) -> None:
        self._file = DatabaseFile(path)
        self._lease_s = lease_s
        self._readers = readers
        self._reads = Readers()
        self._boot_id = uuid.uuid4().hex
        self._writer: Writer | None = None
        self._connections: list[sqlite3.Connection] = []
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        """Lock the file, migrate it, and free the leases of the process that had it before.

        Raises ``StoreUnavailable`` if the file is in use, cannot be written, is not ours, is damaged,
        or was written by a newer version.
        """
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        self._file.lock()
        try:
            connection = self._connect()
            self._file.migrate(connection)
            sqlite_work.free_all(connection)
            for _ in range(self._readers):
                self._idle.put(self._connect(read_only=True))
            writer = Writer(self._file, owner=self._boot_id, lease_s=self._lease_s)
            writer.start(connection, self._loop)
        except BaseException as error:
            self._disconnect()
            if isinstance(error, sqlite3.Error):
                raise self._file.fault(error) from error
            raise
        self._pool = ThreadPoolExecutor(self._readers, thread_name_prefix="a2a-handoff-reader")
        self._writer = writer

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        connection = self._file.connect(read_only=read_only)
        self._connections.append(connection)
        return connection

    def _disconnect(self) -> None:
        # The writer's connection is the first one made and the last one closed.
        while self._connections:
            self._connections.pop().close()
        self._idle = SimpleQueue()
        self._file.unlock()

    async def close(self) -> None:
        """Write what was accepted, copy the log back, close. Calls after it raise ``StoreUnavailable``."""
        writer, pool = self._writer, self._pool
        self._writer = self._pool = None
        if writer is not None and pool is not None:
            writer.refuse()
            await asyncio.to_thread(self._close, writer, pool)

    def _close(self, writer: Writer, pool: ThreadPoolExecutor) -> None:
        pool.shutdown()
        writer.join()
        self._disconnect()

    # --- writing ---------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Write one transaction, together with whatever else waits.

        An alias that is taken raises ``DuplicateRequest`` with an empty digest.
        """
        return self._running().submit(prepare(commit))

    async def claim_work(self, *, now: float, limit: int) -> list[Work]:
        """Claim due work that nobody holds, oldest first, under this process's lease."""
        owner, until = self._boot_id, now + self._lease_s
        return await self._write(
            lambda connection: sqlite_work.claim(connection, owner, now=now, until=until, limit=limit)
        )

    async def release_work(self, key: WorkKey, *, due_at: float) -> None:
        """Give claimed work back. Nothing happens if this process does not hold it."""
        work = Work(key=key, due_at=due_at)
        await self._write(lambda connection: sqlite_work.release(connection, self._boot_id, [work]))

    async def renew_leases(self, *, now: float) -> None:
        """Keep this process's claims."""
        until = now + self._lease_s
        await self._write(lambda connection: sqlite_work.renew(connection, self._boot_id, until=until))

    async def put_agent(self, agent: Agent) -> bool:
        """Insert or replace a registration. True if it is new."""
        row = (agent.tenant, agent.agent_id, encode_agent(agent))

        def put(connection: sqlite3.Connection) -> bool:
            known = connection.execute(
                "UPDATE agents SET body = ?3 WHERE tenant = ?1 AND agent_id = ?2", row
            ).rowcount
            if not known:
                connection.execute("INSERT INTO agents (tenant, agent_id, body) VALUES (?, ?, ?)", row)
            return not known

        return await self._write(put)

    async def delete_agent(self, tenant: str, agent_id: str) -> bool:
        """Remove a registration. False if there was none."""
        statement = "DELETE FROM agents WHERE tenant = ? AND agent_id = ?"
        return await self._write(
            lambda connection: connection.execute(statement, (tenant, agent_id)).rowcount > 0
        )

    async def set_mark(self, name: str, position: int) -> None:
        """Move a named position."""
        statement = "REPLACE INTO marks (name, position) VALUES (?, ?)"
        await self._write(lambda connection: connection.execute(statement, (name, position)).rowcount)

    async def secret(self, name: str) -> bytes:
        """A random secret: made when it is first asked for, the same ever after."""
        fresh = secrets.token_bytes(SECRET_BYTES)

        def keep(connection: sqlite3.Connection) -> bytes:
            connection.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, fresh))
            ((value,),) = connection.execute("SELECT value FROM secrets WHERE name = ?", (name,))
            return value

        return await self._write(keep)

    async def prune(self, *, before: float, limit: int) -> list[str]:
        """Remove chains that were last changed before ``before``, at most ``limit``. The ids that went."""
        writer = self._running()

        def remove(connection: sqlite3.Connection) -> list[str]:
            gone = sqlite_retention.prune(connection, before=before, limit=limit)
            writer.forget(gone)
            return gone

        return await self._write(remove)

    async def add_broadcast(self, broadcast: Broadcast, *, keep: int) -> Broadcast:
        """Store a broadcast; what has expired, and all but the newest ``keep`` of its tenant, goes."""
        return await self._write(lambda connection: sqlite_broadcasts.put(connection, broadcast, keep))

    async def save_webhook(self, webhook: Webhook) -> bool:
        """Keep how far a webhook was told. False if this edition of it is not there any more."""
        return await self._write(lambda connection: sqlite_webhooks.save(connection, webhook))

    async def delete_webhook(self, handoff_id: str, webhook_id: str) -> bool:
        """Remove a webhook and its work. False if there was none."""
        return await self._write(
            lambda connection: sqlite_webhooks.delete(connection, handoff_id, webhook_id)
        )

    def _running(self) -> Writer:
        if self._writer is None:
            raise StoreUnavailable(f"The store {self._file.path} is not open.")
        return self._writer

    async def _write(self, statement: Callable[[sqlite3.Connection], _T]) -> _T:
        work: Statement = statement
        return await self._running().submit(work)

    # --- reading ---------------------------------------------------------------------------------

    async def load_handoff(self, handoff_id: str) -> Handoff | None:
        """The newest state of one handoff."""
        rows = await self._rows("SELECT snapshot FROM handoffs WHERE id = ?", handoff_id)
        return decode_handoff(rows[0][0]) if rows else None

    async def read_events(self, handoff_id: str, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """The log of one handoff from ``seq`` ``after`` + 1 on."""
        return await self._read(
            lambda connection: _recorded(
                connection,
                "SELECT handoff_id, seq, position, type, body FROM events"
                " WHERE handoff_id = ? AND seq > ? ORDER BY seq LIMIT ?",
                (handoff_id, after, limit),
            )
        )

    async def read_log(self, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """The whole log in commit order from ``position`` ``after`` + 1 on."""
        return await self._read(
            lambda connection: _recorded(
                connection,
                "SELECT handoff_id, seq, position, type, body FROM events"
                " WHERE position > ? ORDER BY position LIMIT ?",
                (after, limit),
            )
        )

    async def log_end(self) -> int:
        """The position of the newest event in the log, 0 if there is none.

        After a write that failed another is tried, so a broker that cannot write does not pass for ready.
        """
        if self._writer is not None and self._writer.failed:
            await self._writer.submit(_rewrite_version)
        ((position,),) = await self._rows("SELECT coalesce(max(position), 0) FROM events")
        return position

    async def list_handoffs(self, query: HandoffQuery) -> HandoffPage:
        """A page of handoffs, newest update first. ``updated_after`` includes that very moment."""
        return await self._read(lambda connection: list_page(connection, query))

    async def list_open(self, state: State) -> list[Handoff]:
        """Every handoff of every tenant in one open state, oldest first; none if it is terminal."""
        rows = await self._rows(
            "SELECT snapshot FROM handoffs INDEXED BY handoffs_open"
            " WHERE open = 1 AND state = ? ORDER BY created_at, id",
            state.value,
        )
        return [decode_handoff(row[0]) for row in rows]

    async def find_request(self, tenant: str, sender: str, key: str) -> RequestKey | None:
        """The first use of a request key."""
        rows = await self._rows(
            "SELECT digest, handoff_id FROM request_keys WHERE tenant = ? AND sender = ? AND key = ?",
            tenant,
            sender,
            key,
        )
        if not rows:
            return None
        digest, handoff_id = rows[0]
        return RequestKey(tenant=tenant, sender=sender, key=key, digest=digest, handoff_id=handoff_id)

    async def find_alias(self, tenant: str, owner: str, alias: str) -> str | None:
        """The handoff id behind a client-made task id."""
        rows = await self._rows(
            "SELECT handoff_id FROM aliases WHERE tenant = ? AND owner = ? AND alias = ?",
            tenant,
            owner,
            alias,
        )
        return rows[0][0] if rows else None

    async def find_chain(self, tenant: str, correlation_id: str) -> Chain | None:
        """The chain of a correlation id in this tenant. Raises ``ChainTaken`` if another owns it."""
        rows = await self._rows(
            "SELECT tenant, trace_id, first_handoff_id, started_at FROM chains WHERE correlation_id = ?",
            correlation_id,
        )
        if not rows:
            return None
        owner, trace_id, first, started_at = rows[0]
        if owner != tenant:
            raise ChainTaken(correlation_id)
        return Chain(
            tenant=tenant,
            correlation_id=correlation_id,
            trace_id=trace_id,
            first_handoff_id=first,
            started_at=started_at,
        )

    async def chain_handoffs(self, tenant: str, correlation_id: str) -> list[Handoff]:
        """All handoffs of a chain, oldest first."""
        rows = await self._rows(
            "SELECT snapshot FROM handoffs INDEXED BY handoffs_by_chain"
            " WHERE correlation_id = ? AND tenant = ? ORDER BY created_at, id",
            correlation_id,
            tenant,
        )
        return [decode_handoff(row[0]) for row in rows]

    async def next_due(self) -> float | None:
        """When the earliest unclaimed work is due."""
        return await self._read(sqlite_work.next_due)

    async def late(self, *, now: float) -> dict[Late, tuple[int, float]]:
        """Work that could be claimed: how many items, and since when the oldest could; nothing of none."""
        return await self._read(lambda connection: sqlite_work.late(connection, now=now))

    def usage(self) -> Usage:
        """How busy the store is. From any thread, also when it is closed."""
        reads, writer = self._reads, self._writer
        used = reads.busy
        return Usage(
            limit=self._readers,
            used=used,
            idle=0 if writer is None else self._readers - used,
            reads_waiting=reads.waiting,
            read_wait_s=reads.waited_s,
            writes_waiting=0 if writer is None else len(writer.line),
            oldest_write_s=0.0 if writer is None else writer.line.oldest_s,
        )

    async def queue(self) -> dict[State, tuple[int, float]]:
        """Open handoffs of all tenants by state: how many, and when the oldest was last changed."""
        rows = await self._rows(
            "SELECT state, count(*), min(updated_at) FROM handoffs INDEXED BY handoffs_open"
            " WHERE open = 1 GROUP BY state"
        )
        return {State(state): (count, oldest) for state, count, oldest in rows}

    async def in_flight(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """Open handoffs by (tenant, agent id) that the agent was offered or holds, not those it handed on."""
        rows = await self._rows(
            "SELECT tenant, holder, count(*) FROM handoffs INDEXED BY handoffs_open"
            " WHERE open = 1 AND holder <> '' AND state <> ?1 AND (?2 IS NULL OR tenant = ?2)"
            " GROUP BY tenant, holder",
            State.HANDED_OFF.value,
            tenant,
        )
        return {(owner, holder): count for owner, holder, count in rows}

    async def list_agents(self) -> list[Agent]:
        """Every registration of every tenant, by tenant and id."""
        rows = await self._rows("SELECT body FROM agents ORDER BY tenant, agent_id")
        return [decode_agent(row[0]) for row in rows]

    async def read_broadcasts(
        self, tenant: str, workspace: str, *, after: int = 0, now: float, limit: int = 100
    ) -> BroadcastPage:
        """What a workspace was told after position ``after`` and has not expired ``now``, oldest first."""
        return await self._read(
            lambda connection: sqlite_broadcasts.page(
                connection, tenant, workspace, after=after, now=now, limit=limit
            )
        )

    async def list_webhooks(self, handoff_id: str) -> list[Webhook]:
        """The webhooks of a handoff, by id."""
        return await self._read(lambda connection: sqlite_webhooks.listed(connection, handoff_id))

    async def get_mark(self, name: str) -> int | None:
        """A named position in the log."""
        rows = await self._rows("SELECT position FROM marks WHERE name = ?", name)
        return rows[0][0] if rows else None

    async def _rows(self, statement: str, *values: object) -> list[Any]:
        return await self._read(lambda connection: connection.execute(statement, values).fetchall())

    async def _read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a query on a reader's thread."""
        if self._pool is None:
            raise StoreUnavailable(f"The store {self._file.path} is not open.")
        since = self._reads.came()
        reading = self._pool.submit(self._with_reader, query, since)
        # A caller that is gone before its turn is not served.
        reading.add_done_callback(lambda done: self._reads.left(since) if done.cancelled() else None)
        return await asyncio.wrap_future(reading)

    def _with_reader(self, query: Callable[[sqlite3.Connection], _T], since: float) -> _T:
        # There are as many connections as threads, so one is always idle.
        connection = self._idle.get()
        self._reads.began(since)
        try:
            return query(connection)
        except sqlite3.Error as error:
            raise self._file.fault(error) from error
        finally:
            self._idle.put(connection)
            self._reads.done()


def _recorded(connection: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> list[Recorded]:
    found: list[Recorded] = []
    size = 0
    rows = connection.execute(statement, values)
    for handoff_id, seq, position, kind, body in rows:
        found.append(
            Recorded(handoff_id=handoff_id, seq=seq, position=position, event=decode_event(kind, body))
        )
        size += len(body)
        if size >= PAGE_BYTES:
            break
    rows.close()  # it must not keep the reader in this moment of the log
    return found
