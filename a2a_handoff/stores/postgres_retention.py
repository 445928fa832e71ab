"""Old chains leave a PostgreSQL store.

Rules: a chain goes whole or not at all, once every handoff of it has ended and nothing is left to do for it.
Call it in a transaction that has its turn at the row of positions, so that nobody adds to a chain that goes.
Not here: how old is old (``housekeeping``).
"""

from __future__ import annotations

from a2a_handoff.stores.postgres_server import Session

# The tenants are found by jumps over the index, and of each one the oldest handoffs, so that nothing younger
# than ``before`` is looked at. A condition that is selected stays one: of NOT EXISTS alone the planner makes
# a join, and reads all handoffs for it.
_OLD = """
WITH RECURSIVE tenants(name) AS (
    SELECT min(tenant) FROM handoffs
    UNION ALL
    SELECT (SELECT min(tenant) FROM handoffs WHERE tenant > name) FROM tenants WHERE name IS NOT NULL
)
SELECT old.correlation_id FROM tenants CROSS JOIN LATERAL (
    SELECT correlation_id FROM handoffs AS one
    WHERE one.tenant = tenants.name AND one.updated_at < $1 AND NOT (SELECT EXISTS (
        SELECT FROM handoffs AS other
        WHERE other.correlation_id = one.correlation_id AND (
            other.open OR other.updated_at >= $1
            OR (SELECT EXISTS (SELECT FROM work WHERE work.handoff_id = other.id))
        )
    ))
    ORDER BY one.updated_at, one.id LIMIT $2
) AS old LIMIT $2
"""
_HANDOFFS = "SELECT id FROM handoffs WHERE correlation_id = ANY($1)"
_GONE = (
    "DELETE FROM events WHERE handoff_id = ANY($1)",
    "DELETE FROM request_keys WHERE handoff_id = ANY($1)",
    "DELETE FROM aliases WHERE handoff_id = ANY($1)",
    "DELETE FROM handoffs WHERE id = ANY($1)",
)
_GONE_CHAINS = "DELETE FROM chains WHERE correlation_id = ANY($1)"


async def prune(session: Session, *, before: float, limit: int) -> list[str]:
    """Remove at most ``limit`` chains that were last changed before ``before``. The ids of their handoffs."""
    chains = list(dict.fromkeys(chain for (chain,) in await session.rows(_OLD, before, limit)))
    if not chains:
        return []
    ids = [handoff_id for (handoff_id,) in await session.rows(_HANDOFFS, chains)]
    for statement in _GONE:
        await session.count(statement, ids)
    await session.count(_GONE_CHAINS, chains)
    return ids
