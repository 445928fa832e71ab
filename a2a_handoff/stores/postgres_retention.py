"""Old chains leave a PostgreSQL store.

Rules: a chain goes whole or not at all, once every handoff of it has ended and nothing is left to do for it.
Call it in a transaction that has its turn at the row of positions, so that nobody adds to a chain that goes.
Not here: how old is old (``housekeeping``).
"""

from __future__ import annotations

from a2a_handoff.stores.postgres_server import Session

# The tenants are found by jumps over the index, so that nothing younger than ``before`` is looked at.
_OLD = """
WITH RECURSIVE tenants(name) AS (
    SELECT min(tenant) FROM handoffs
    UNION ALL
    SELECT (SELECT min(tenant) FROM handoffs WHERE tenant > name) FROM tenants WHERE name IS NOT NULL
)
SELECT DISTINCT old.correlation_id
FROM tenants JOIN handoffs AS old ON old.tenant = name AND old.updated_at < $1
WHERE NOT EXISTS (
    SELECT FROM handoffs AS other
    WHERE other.correlation_id = old.correlation_id AND (
        other.open OR other.updated_at >= $1 OR EXISTS (SELECT FROM work WHERE work.handoff_id = other.id)
    )
)
LIMIT $2
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
    chains = [chain for (chain,) in await session.rows(_OLD, before, limit)]
    if not chains:
        return []
    ids = [handoff_id for (handoff_id,) in await session.rows(_HANDOFFS, chains)]
    for statement in _GONE:
        await session.count(statement, ids)
    await session.count(_GONE_CHAINS, chains)
    return ids
