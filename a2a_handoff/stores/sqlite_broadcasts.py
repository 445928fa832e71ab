"""The table of broadcasts on SQLite: put one in, drop what is old, read on from a position.

Not here: who hears what (``broadcasts``).
"""

from __future__ import annotations

import sqlite3

from msgspec.structs import replace

from a2a_handoff.ports import Broadcast, BroadcastPage

_COLUMNS = "id, tenant, workspace, channel, sender, message, data, at, expires_at"
_EXPIRE = "DELETE FROM broadcasts INDEXED BY broadcasts_by_expiry WHERE expires_at <= ?"
_PUT = f"INSERT INTO broadcasts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant
_TRIM = """
DELETE FROM broadcasts INDEXED BY broadcasts_by_tenant
WHERE tenant = :tenant AND position <= (
    SELECT position FROM broadcasts INDEXED BY broadcasts_by_tenant
    WHERE tenant = :tenant ORDER BY position DESC LIMIT 1 OFFSET :keep
)
"""
_READ = f"""
SELECT position, {_COLUMNS} FROM broadcasts INDEXED BY broadcasts_by_tenant
WHERE tenant = ? AND position > ? AND workspace = ? AND expires_at > ? ORDER BY position LIMIT ?
"""  # noqa: S608 - a constant
_END = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'broadcasts'"


def put(connection: sqlite3.Connection, broadcast: Broadcast, keep: int) -> Broadcast:
    """Put a broadcast in, and take out what is old. Gives it with its position."""
    b = broadcast
    connection.execute(_EXPIRE, (b.at,))
    row = (b.id, b.tenant, b.workspace, b.channel, b.sender, b.message, b.data, b.at, b.expires_at)
    position = connection.execute(_PUT, row).lastrowid or 0
    connection.execute(_TRIM, {"tenant": b.tenant, "keep": keep})
    return replace(b, position=position)


def page(
    connection: sqlite3.Connection, tenant: str, workspace: str, *, after: int, now: float, limit: int
) -> BroadcastPage:
    """Read on from a position. The end is read first: what comes meanwhile is read next time."""
    (end,) = connection.execute(_END).fetchone()
    rows = connection.execute(_READ, (tenant, after, workspace, now, limit)).fetchall()
    return BroadcastPage(broadcasts=tuple(map(_broadcast, rows)), end=end)


def _broadcast(row: tuple[int, str, str, str, str, str, str, bytes, float, float]) -> Broadcast:
    position, broadcast_id, tenant, workspace, channel, sender, message, data, at, expires_at = row
    return Broadcast(
        id=broadcast_id,
        tenant=tenant,
        workspace=workspace,
        channel=channel,
        sender=sender,
        message=message,
        data=data,
        at=at,
        expires_at=expires_at,
        position=position,
    )
