"""A batch of commits on PostgreSQL: one statement looks up what it touches, one writes it.

Rules: both run in a transaction that holds the row of positions, so what was looked up is still so when it is
written, whoever else writes. Each table gets its rows as arrays, one for each column: the statements are
always the same and stay prepared.
Not here: which commits are refused (``batch``), the transaction (``postgres_writer``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from a2a_handoff.stores import postgres_replicas
from a2a_handoff.stores.batch import Batch, Known, Touched
from a2a_handoff.stores.postgres_server import Session

_LOOK = """
SELECT 0, '', '', '', '', '', events FROM positions
UNION ALL
SELECT 1, id, '', '', '', '', version FROM handoffs WHERE id = ANY ($1::text[])
UNION ALL
SELECT 2, correlation_id, tenant, '', '', '', 0 FROM chains WHERE correlation_id = ANY ($2::text[])
UNION ALL
SELECT 3, r.tenant, r.sender, r.key, r.handoff_id, r.digest, 0
FROM unnest($3::text[], $4::text[], $5::text[]) AS t (tenant, sender, key)
JOIN request_keys r USING (tenant, sender, key)
UNION ALL
SELECT 4, a.tenant, a.owner, a.alias, a.handoff_id, '', 0
FROM unnest($6::text[], $7::text[], $8::text[]) AS t (tenant, owner, alias)
JOIN aliases a USING (tenant, owner, alias)
"""

# Asked only if an offer needs a slot. The rows of ``positions`` hold for these too.
_LOOK_HELD = """
SELECT '', t.tenant, t.agent, (
    SELECT count(*) FROM handoffs AS h
    WHERE h.open AND h.tenant = t.tenant AND h.holder = t.agent AND h.state <> 'handed_off'
) FROM unnest($1::text[], $2::text[]) AS t (tenant, agent)
UNION ALL
SELECT id, tenant, holder, 0 FROM handoffs
WHERE id = ANY ($3::text[]) AND open AND holder <> '' AND state <> 'handed_off'
"""

# Work that is put in replaces what is there, so it is no part of what is deleted: one statement changes a row
# once. Columns of a handoff that never change are left alone.
_WRITE = """
WITH put_events AS (
    INSERT INTO events (position, handoff_id, seq, type, body, writer)
    SELECT position, handoff_id, seq, type, body, $54::int
    FROM unnest($1::bigint[], $2::text[], $3::int[], $4::text[], $5::bytea[])
      AS t (position, handoff_id, seq, type, body)
), put_handoffs AS (
    INSERT INTO handoffs (id, tenant, sender, correlation_id, context_id, created_at, updated_at, version,
                          state, open, holder, face, snapshot)
    SELECT id, tenant, sender, correlation_id, context_id, created_at, updated_at, version,
           state, open = 1, holder, face, snapshot
    FROM unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::float8[], $12::float8[],
                $13::int[], $14::text[], $15::int[], $16::text[], $17::text[], $18::bytea[])
      AS t (id, tenant, sender, correlation_id, context_id, created_at, updated_at, version,
            state, open, holder, face, snapshot)
    ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, version = excluded.version,
        state = excluded.state, open = excluded.open, holder = excluded.holder, snapshot = excluded.snapshot
), put_chains AS (
    INSERT INTO chains (correlation_id, tenant, trace_id, first_handoff_id, started_at)
    SELECT * FROM unnest($19::text[], $20::text[], $21::text[], $22::text[], $23::float8[])
), put_requests AS (
    INSERT INTO request_keys (tenant, sender, key, digest, handoff_id)
    SELECT * FROM unnest($24::text[], $25::text[], $26::text[], $27::text[], $28::text[])
), put_aliases AS (
    INSERT INTO aliases (tenant, owner, alias, handoff_id)
    SELECT * FROM unnest($29::text[], $30::text[], $31::text[], $32::text[])
), put_webhooks AS (
    INSERT INTO webhooks (handoff_id, id, edition, body)
    SELECT * FROM unnest($33::text[], $34::text[], $35::text[], $36::bytea[])
    ON CONFLICT (handoff_id, id) DO UPDATE SET edition = excluded.edition, body = excluded.body
), new_work AS (
    SELECT * FROM unnest($37::text[], $38::text[], $39::int[], $40::text[], $41::float8[], $42::float8[],
                         $43::text[], $44::int[], $45::int[])
      AS t (handoff_id, kind, attempt, ref, due_at, wake_at, owner, claims, orphaned)
), void AS (
    SELECT handoff_id, kind, attempt, ref FROM work WHERE handoff_id = ANY ($46::text[]) AND kind <> 'webhook'
    UNION
    SELECT w.handoff_id, w.kind, w.attempt, w.ref
    FROM unnest($47::text[], $48::text[]) AS t (handoff_id, kind) JOIN work w USING (handoff_id, kind)
    UNION
    SELECT * FROM unnest($49::text[], $50::text[], $51::int[], $52::text[])
    EXCEPT
    SELECT handoff_id, kind, attempt, ref FROM new_work
), drop_work AS (
    DELETE FROM work USING void
    WHERE (work.handoff_id, work.kind, work.attempt, work.ref)
        = (void.handoff_id, void.kind, void.attempt, void.ref)
), put_work AS (
    INSERT INTO work (handoff_id, kind, attempt, ref, due_at, wake_at, owner, claims, orphaned)
    SELECT handoff_id, kind, attempt, ref, due_at, wake_at, owner, claims, orphaned <> 0 FROM new_work
    ON CONFLICT (handoff_id, kind, attempt, ref) DO UPDATE SET due_at = excluded.due_at,
        wake_at = excluded.wake_at, owner = excluded.owner, claims = excluded.claims,
        orphaned = excluded.orphaned
), put_turn AS (
    INSERT INTO marks (name, position) VALUES ($55, $56::bigint)
    ON CONFLICT (name) DO UPDATE SET position = excluded.position
)
UPDATE positions SET events = $53 RETURNING pg_current_xact_id()::text
"""


async def look(session: Session, touched: Touched) -> tuple[Known, int]:
    """What is stored of all that a batch touches, and the position of the newest event."""
    known = Known()
    position = 0
    rows = await session.rows(
        _LOOK,
        list(touched.handoffs),
        list(touched.chains),
        *_columns(touched.requests, 3),
        *_columns(touched.aliases, 3),
    )
    for what, *texts, number in rows:
        a, b, c, d, e = texts
        match what:
            case 0:
                position = number
            case 1:
                known.versions[a] = number
            case 2:
                known.chains[a] = b
            case 3:
                known.requests[a, b, c] = (d, e)
            case _:
                known.aliases[a, b, c] = d
    if touched.agents:
        for handoff_id, tenant, agent_id, count in await session.rows(
            _LOOK_HELD, *_columns(touched.agents, 2), list(touched.handoffs)
        ):
            if handoff_id:
                known.occupied[handoff_id] = (tenant, agent_id)
            else:
                known.held[tenant, agent_id] = count
    return known, position


async def write(session: Session, batch: Batch, writer: int, turn: int) -> str:
    """Write the rows of a batch as the broker with the number ``writer``, and which of its turns it is.

    Gives the number of the transaction, by which the server knows it as long as it runs.
    """
    # The last one that was set within the batch is the one that stays.
    webhooks = {row[:2]: row for row in batch.webhooks}
    ((number,),) = await session.rows(
        _WRITE,
        *_columns(batch.events, 5),
        *_columns(batch.handoffs.values(), 13),
        *_columns(batch.chains, 5),
        *_columns(batch.requests, 5),
        *_columns(batch.aliases, 4),
        *_columns(webhooks.values(), 4),
        *_columns(batch.work, 9),
        list(batch.void_handoffs),
        *_columns(batch.void_kinds, 2),
        *_columns(batch.void_keys, 4),
        batch.position,
        writer,
        postgres_replicas.turn_mark(writer),
        turn,
    )
    return number


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as columns; ``width`` empty ones without rows."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
