"""Old chains leave a SQLite store.

Rules: a chain goes whole or not at all, once every handoff of it has ended and nothing is left to do for it.
The chain of the newest event stays: positions in the log are never given twice. Call it in a transaction of
the writer.
Not here: how old is old (``housekeeping``).
"""

from __future__ import annotations

import json
import sqlite3

# The tenants are found by jumps over the index, so that nothing younger than ``before`` is looked at.
_OLD = """
WITH RECURSIVE tenants(name) AS (
    SELECT min(tenant) FROM handoffs
    UNION ALL
    SELECT (SELECT min(tenant) FROM handoffs WHERE tenant > name) FROM tenants WHERE name IS NOT NULL
), newest(chain) AS (
    SELECT correlation_id FROM handoffs
    WHERE id = (SELECT handoff_id FROM events ORDER BY position DESC LIMIT 1)
)
SELECT DISTINCT old.correlation_id
FROM tenants JOIN handoffs AS old INDEXED BY handoffs_by_update ON old.tenant = name AND old.updated_at < ?1
WHERE old.correlation_id NOT IN newest AND NOT EXISTS (
    SELECT 1 FROM handoffs AS other INDEXED BY handoffs_by_chain
    WHERE other.correlation_id = old.correlation_id AND (
        other.open = 1 OR other.updated_at >= ?1
        OR EXISTS (SELECT 1 FROM work WHERE work.handoff_id = other.id)
    )
)
LIMIT ?2
"""
_HANDOFFS = (
    "SELECT id FROM handoffs INDEXED BY handoffs_by_chain"
    " WHERE correlation_id IN (SELECT value FROM json_each(?))"
)
_GONE = tuple(
    f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))"  # noqa: S608 - names of ours
    for table, column in (
        ("events", "handoff_id"), ("request_keys", "handoff_id"), ("aliases", "handoff_id"),
        ("handoffs", "id"),
    )
)  # fmt: skip
_GONE_CHAINS = "DELETE FROM chains WHERE correlation_id IN (SELECT value FROM json_each(?))"


def prune(connection: sqlite3.Connection, *, before: float, limit: int) -> list[str]:
    """Remove at most ``limit`` chains that were last changed before ``before``. The ids of their handoffs."""
    chains = json.dumps([chain for (chain,) in connection.execute(_OLD, (before, limit)).fetchall()])
    ids = [handoff_id for (handoff_id,) in connection.execute(_HANDOFFS, (chains,)).fetchall()]
    named = json.dumps(ids)
    for statement in _GONE:
        connection.execute(statement, (named,))
    connection.execute(_GONE_CHAINS, (chains,))
    return ids
