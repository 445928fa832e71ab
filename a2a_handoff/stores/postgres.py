"""The durable store of any number of broker processes: a PostgreSQL database.

Duty: ``ports.Store`` on PostgreSQL: what was acknowledged is as safe as the server keeps it.
Rules: one connection that writes, a few that read; a read has its connection for one statement, never for a
wait. All calls come from the loop that opened the store.
Not here: what a commit may do (``batch``), when it is written (``postgres_writer``).
"""

from __future__ import annotations

import contextlib
import secrets
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from a2a_handoff.core.events import State
from a2a_handoff.ports import (
    PAGE_BYTES,
    SECRET_BYTES,
    AgentChanges,
    Broadcast,
    BroadcastPage,
    Chain,
    ChainTaken,
    Commit,
    Committed,
    Departed,
    Ends,
    HandoffPage,
    HandoffQuery,
    Late,
    Recorded,
    RequestKey,
    Sign,
    StoreUnavailable,
    Usage,
    Webhook,
    Work,
    WorkKey,
)
from a2a_handoff.stores import (
    postgres_broadcasts,
    postgres_replicas,
    postgres_retention,
    postgres_webhooks,
    postgres_work,
)
from a2a_handoff.stores.batch import prepare
from a2a_handoff.stores.codec import decode_agent, decode_handoff, encode_agent
from a2a_handoff.stores.postgres_listing import list_page
from a2a_handoff.stores.postgres_schema import migrate
from a2a_handoff.stores.postgres_server import Server, Session
from a2a_handoff.stores.postgres_writer import Statement, Writer, begin

if TYPE_CHECKING:
    import asyncio

    from a2a_handoff.core.agents import Agent
    from a2a_handoff.core.handoff import Handoff

#: Seconds that a claim of work holds without ``renew_leases``.
LEASE_S = 30.0
#: Connections that read.
READERS = 4

# Large events end a page early: the sizes are known without reading the bodies.
_EVENTS_OF = """
SELECT handoff_id, seq, position, type, body FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before FROM (
        SELECT * FROM events WHERE handoff_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
    ) AS few
) AS sized WHERE before < $4 ORDER BY seq
"""
_LOG = """
SELECT handoff_id, seq, position, type, body FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY position) - octet_length(body) AS before FROM (
        SELECT * FROM events WHERE position > $1 ORDER BY position LIMIT $2
    ) AS few
) AS sized WHERE before < $3 ORDER BY position
"""
_HANDOFF = "SELECT snapshot FROM handoffs WHERE id = $1"
_OPEN = "SELECT snapshot FROM handoffs WHERE open AND state = $1 ORDER BY created_at, id"
_CHAIN_HANDOFFS = (
    "SELECT snapshot FROM handoffs WHERE correlation_id = $1 AND tenant = $2 ORDER BY created_at, id"
)
_QUEUE = "SELECT state, count(*), min(updated_at) FROM handoffs WHERE open GROUP BY state"
_IN_FLIGHT = """
SELECT tenant, holder, count(*) FROM handoffs
WHERE open AND holder <> '' AND state <> $1 AND ($2::text IS NULL OR tenant = $2) GROUP BY tenant, holder
"""
_REQUEST = "SELECT digest, handoff_id FROM request_keys WHERE tenant = $1 AND sender = $2 AND key = $3"
_ALIAS = "SELECT handoff_id FROM aliases WHERE tenant = $1 AND owner = $2 AND alias = $3"
_CHAIN = "SELECT tenant, trace_id, first_handoff_id, started_at FROM chains WHERE correlation_id = $1"
_PUT_AGENT = """
INSERT INTO agents (tenant, agent_id, body) VALUES ($1, $2, $3)
ON CONFLICT (tenant, agent_id) DO UPDATE SET body = excluded.body RETURNING xmax = 0
"""
_SET_MARK = """
INSERT INTO marks (name, position) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET position = excluded.position
"""
_KEPT = """
INSERT INTO secrets (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = secrets.value RETURNING value
"""


class PostgresStore:
    """``ports.SharedStore`` on the database that ``url`` names."""

    def __init__(self, url: str, *, lease_s: float = LEASE_S, readers: int = READERS) -> None:
        self._server = Server(url)
        self._lease_s = lease_s
        self._readers = readers
        self._boot_id = uuid.uuid4().hex
        self._suspects: frozenset[str] = frozenset()
        self.replica = 0
        self._writer: Writer | None = None

    async def open(self) -> None:
        """Connect, migrate, and free the leases of brokers that are gone.

        Raises ``StoreUnavailable`` if the server cannot be reached or used, or if the database is not ours or
        was written by a newer version.
        """
        server = self._server
        session = await begin(server, self._boot_id)
        try:
            await migrate(session, server.name)
            await postgres_work.free_dead(session)
            self.replica = await postgres_replicas.join(session, self._boot_id)
            await server.open_pool(self._readers)
        except BaseException as error:
            session.drop()
            if server.is_ours(error):
                raise server.fault(error) from error
            raise
        self._writer = Writer(
            server, session, owner=self._boot_id, replica=self.replica, lease_s=self._lease_s
        )

    async def close(self) -> None:
        """Write what was accepted, then close. Calls after it raise ``StoreUnavailable``."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(StoreUnavailable):
                await writer.submit(
                    Statement(lambda session: postgres_replicas.leave(session, self.replica), in_turn=False)
                )
            await writer.close()
            await self._server.close_pool()

    # --- writing ---------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Write one transaction, together with whatever else waits.

        An alias that is taken raises ``DuplicateRequest`` with an empty digest.
        """
        return self._running().submit(prepare(commit))

    async def claim_work(self, *, now: float, limit: int) -> list[Work]:
        """Claim due work that nobody holds, oldest first, under this process's lease."""
        owner, until = self._boot_id, now + self._lease_s
        return await self._at_once(
            lambda session: postgres_work.claim(session, owner, now=now, until=until, limit=limit)
        )

    async def release_work(self, key: WorkKey, *, due_at: float) -> None:
        """Give claimed work back. Nothing happens if this process does not hold it."""
        work = Work(key=key, due_at=due_at)
        await self._at_once(lambda session: postgres_work.release(session, self._boot_id, [work]))

    async def renew_leases(self, *, now: float) -> None:
        """Keep this process's claims."""
        until = now + self._lease_s
        await self._at_once(lambda session: postgres_work.renew(session, self._boot_id, until=until))

    async def put_agent(self, agent: Agent) -> bool:
        """Insert or replace a registration. True if it is new."""
        row = (agent.tenant, agent.agent_id, encode_agent(agent))
        ((new,),) = await self._write(lambda session: session.rows(_PUT_AGENT, *row))
        return new

    async def delete_agent(self, tenant: str, agent_id: str) -> bool:
        """Remove a registration. False if there was none."""
        return await self._write(lambda session: postgres_replicas.delete_agent(session, tenant, agent_id))

    async def set_mark(self, name: str, position: int) -> None:
        """Move a named position."""
        await self._write(lambda session: session.count(_SET_MARK, name, position))

    async def secret(self, name: str) -> bytes:
        """A random secret: made when it is first asked for, the same ever after."""
        fresh = secrets.token_bytes(SECRET_BYTES)
        ((value,),) = await self._write(lambda session: session.rows(_KEPT, name, fresh))
        return value

    async def prune(self, *, before: float, limit: int) -> list[str]:
        """Remove chains that were last changed before ``before``, at most ``limit``. The ids that went."""
        return await self._write(
            lambda session: postgres_retention.prune(session, before=before, limit=limit)
        )

    async def add_broadcast(self, broadcast: Broadcast, *, keep: int) -> Broadcast:
        """Store a broadcast; what has expired, and all but the newest ``keep`` of its tenant, goes."""
        return await self._write(lambda session: postgres_broadcasts.put(session, broadcast, keep))

    async def save_webhook(self, webhook: Webhook) -> bool:
        """Keep how far a webhook was told. False if this edition of it is not there any more."""
        return await self._write(lambda session: postgres_webhooks.save(session, webhook))

    async def delete_webhook(self, handoff_id: str, webhook_id: str) -> bool:
        """Remove a webhook and its work. False if there was none."""
        return await self._write(lambda session: postgres_webhooks.delete(session, handoff_id, webhook_id))

    # --- with other brokers ----------------------------------------------------------------------

    async def ends(self) -> Ends:
        """How far everything is that brokers follow."""
        async with self._server.reading() as session:
            return await postgres_replicas.ends(session)

    async def read_others(self, *, after: int, upto: int, limit: int = 1000) -> list[Recorded]:
        """What other brokers wrote into the log after one position, up to another."""
        async with self._server.reading() as session:
            return await postgres_replicas.others(
                session, self.replica, after=after, upto=upto, limit=limit, most=PAGE_BYTES
            )

    async def read_written(self, replica: int, *, after: int, limit: int = 500) -> list[Recorded]:
        """What one broker wrote into the log after a position."""
        async with self._server.reading() as session:
            return await postgres_replicas.written(session, replica, after=after, limit=limit)

    async def read_agents(self, *, after: int) -> AgentChanges:
        """What became of agents after a revision; ``-1`` for all there are."""
        async with self._server.reading() as session:
            return await postgres_replicas.agents(session, after=after)

    async def share_signs(self, signs: Sequence[Sign], *, after: float) -> tuple[list[Sign], float]:
        """Tell the other brokers of signs of life, and learn of those that were told since a moment."""
        if signs:
            await self._at_once(lambda session: postgres_replicas.note(session, self.replica, signs))
        async with self._server.reading() as session:
            return await postgres_replicas.signs(session, self.replica, after=after)

    async def keep_work(self, key: WorkKey, *, now: float) -> bool:
        """Renew one claim. False if it is not this process's any more."""
        owner, until = self._boot_id, now + self._lease_s
        return await self._at_once(lambda session: postgres_work.keep(session, owner, key, until=until))

    async def talked_elsewhere(self, handoff_id: str, *, now: float) -> bool:
        """Whether another broker is at a conversation with the agent that a handoff is with."""
        async with self._server.reading() as session:
            return await postgres_work.talked_elsewhere(session, self._boot_id, handoff_id, now=now)

    async def hand_back(self) -> None:
        """Free all work of this process."""
        await self._at_once(lambda session: postgres_work.free(session, [self._boot_id]))

    async def bury(self) -> list[Departed]:
        """Free the work of brokers that are gone. Those that are new, or whose spans this one is to send."""
        async with self._server.reading() as session:
            absent = await postgres_replicas.absent(session)
        # One that lost its connection a moment ago is about to come back.
        absent -= {self._boot_id}
        dead, self._suspects = absent & self._suspects, absent
        if not dead:
            return []
        return await self._at_once(lambda session: postgres_replicas.bury(session, dead, self.replica))

    async def note_spans(self, replica: int, position: int | None) -> None:
        """Up to where the spans of a broker have left; ``None`` of one that is gone: it is done with."""
        await self._at_once(lambda session: postgres_replicas.note_spans(session, replica, position))

    def _running(self) -> Writer:
        if self._writer is None:
            raise StoreUnavailable(f"The store {self._server.name} is not open.")
        return self._writer

    async def _write(self, statement: Callable[[Session], Awaitable[Any]]) -> Any:
        return await self._running().submit(Statement(statement))

    async def _at_once(self, statement: Callable[[Session], Awaitable[Any]]) -> Any:
        return await self._running().submit(Statement(statement, in_turn=False))

    # --- reading ---------------------------------------------------------------------------------

    async def load_handoff(self, handoff_id: str) -> Handoff | None:
        """The newest state of one handoff."""
        rows = await self._rows(_HANDOFF, handoff_id)
        return decode_handoff(rows[0][0]) if rows else None

    async def read_events(self, handoff_id: str, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """The log of one handoff from ``seq`` ``after`` + 1 on."""
        return postgres_replicas.recorded(await self._rows(_EVENTS_OF, handoff_id, after, limit, PAGE_BYTES))

    async def read_log(self, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """The whole log in commit order from ``position`` ``after`` + 1 on."""
        return postgres_replicas.recorded(await self._rows(_LOG, after, limit, PAGE_BYTES))

    async def log_end(self) -> int:
        """The position of the newest event in the log, 0 if there is none.

        The connection that writes is asked, so a broker that cannot write does not pass for ready.
        """
        ((position,),) = await self._at_once(lambda session: session.rows("SELECT events FROM positions"))
        return position

    async def list_handoffs(self, query: HandoffQuery) -> HandoffPage:
        """A page of handoffs, newest update first. ``updated_after`` includes that very moment."""
        async with self._server.reading() as session:
            return await list_page(session, query)

    async def list_open(self, state: State) -> list[Handoff]:
        """Every handoff of every tenant in one open state, oldest first; none if it is terminal."""
        return [decode_handoff(row[0]) for row in await self._rows(_OPEN, state.value)]

    async def find_request(self, tenant: str, sender: str, key: str) -> RequestKey | None:
        """The first use of a request key."""
        rows = await self._rows(_REQUEST, tenant, sender, key)
        if not rows:
            return None
        digest, handoff_id = rows[0]
        return RequestKey(tenant=tenant, sender=sender, key=key, digest=digest, handoff_id=handoff_id)

    async def find_alias(self, tenant: str, owner: str, alias: str) -> str | None:
        """The handoff id behind a client-made task id."""
        rows = await self._rows(_ALIAS, tenant, owner, alias)
        return rows[0][0] if rows else None

    async def find_chain(self, tenant: str, correlation_id: str) -> Chain | None:
        """The chain of a correlation id in this tenant. Raises ``ChainTaken`` if another owns it."""
        rows = await self._rows(_CHAIN, correlation_id)
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
        return [decode_handoff(row[0]) for row in await self._rows(_CHAIN_HANDOFFS, correlation_id, tenant)]

    async def next_due(self) -> float | None:
        """When the earliest unclaimed work is due."""
        rows = await self._rows(postgres_work.NEXT_DUE)
        return rows[0][0] if rows else None

    async def late(self, *, now: float) -> dict[Late, tuple[int, float]]:
        """Work that could be claimed: how many items, and since when the oldest could; nothing of none."""
        async with self._server.reading() as session:
            return await postgres_work.late(session, now=now)

    def usage(self) -> Usage:
        """How busy the store is. From any thread, also when it is closed."""
        reads, writer = self._server.reads, self._writer
        used, opened = reads.busy, self._server.opened
        return Usage(
            limit=self._readers,
            used=used,
            idle=max(opened - used, 0),
            reads_waiting=reads.waiting,
            read_wait_s=reads.waited_s,
            writes_waiting=0 if writer is None else len(writer.line),
            oldest_write_s=0.0 if writer is None else writer.line.oldest_s,
        )

    async def queue(self) -> dict[State, tuple[int, float]]:
        """Open handoffs of all tenants by state: how many, and when the oldest was last changed."""
        return {State(state): (count, oldest) for state, count, oldest in await self._rows(_QUEUE)}

    async def in_flight(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """Open handoffs by (tenant, agent id) that the agent was offered or holds, not those it handed on."""
        rows = await self._rows(_IN_FLIGHT, State.HANDED_OFF.value, tenant)
        return {(owner, holder): count for owner, holder, count in rows}

    async def list_agents(self) -> list[Agent]:
        """Every registration of every tenant, by tenant and id."""
        rows = await self._rows("SELECT body FROM agents ORDER BY tenant, agent_id")
        return [decode_agent(row[0]) for row in rows]

    async def read_broadcasts(
        self, tenant: str, workspace: str, *, after: int = 0, now: float, limit: int = 100
    ) -> BroadcastPage:
        """What a workspace was told after position ``after`` and has not expired ``now``, oldest first."""
        async with self._server.reading() as session:
            return await postgres_broadcasts.page(
                session, tenant, workspace, after=after, now=now, limit=limit
            )

    async def list_webhooks(self, handoff_id: str) -> list[Webhook]:
        """The webhooks of a handoff, by id."""
        async with self._server.reading() as session:
            return await postgres_webhooks.listed(session, handoff_id)

    async def get_mark(self, name: str) -> int | None:
        """A named position in the log."""
        rows = await self._rows("SELECT position FROM marks WHERE name = $1", name)
        return rows[0][0] if rows else None

    async def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        async with self._server.reading() as session:
            return await session.rows(statement, *values)
