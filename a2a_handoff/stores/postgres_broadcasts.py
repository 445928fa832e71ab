"""The table of broadcasts on PostgreSQL: put one in, drop what is old, read on from a position.

Rules: whoever puts one in holds the row of positions (``postgres_writer``).
Not here: who hears what (``broadcasts``).
"""

from __future__ import annotations

from msgspec.structs import replace

from a2a_handoff.ports import Broadcast, BroadcastPage
from a2a_handoff.stores.postgres_server import Session

_EXPIRE = "DELETE FROM broadcasts WHERE expires_at <= $1"
_NEXT = "UPDATE positions SET broadcasts = broadcasts + 1 RETURNING broadcasts"
_PUT = """
INSERT INTO broadcasts (position, id, tenant, workspace, channel, sender, message, data, at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_TRIM = """
DELETE FROM broadcasts WHERE tenant = $1 AND position <= (
    SELECT position FROM broadcasts WHERE tenant = $1 ORDER BY position DESC LIMIT 1 OFFSET $2
)
"""
# One statement sees one moment: nothing below the end is missing.
_READ = """
SELECT ends.broadcasts, page.* FROM positions AS ends LEFT JOIN (
    SELECT position, id, tenant, workspace, channel, sender, message, data, at, expires_at FROM broadcasts
    WHERE tenant = $1 AND position > $2 AND workspace = $3 AND expires_at > $4 ORDER BY position LIMIT $5
) AS page ON true ORDER BY page.position
"""


async def put(session: Session, broadcast: Broadcast, keep: int) -> Broadcast:
    """Put a broadcast in, and take out what is old. Gives it with its position."""
    b = broadcast
    await session.count(_EXPIRE, b.at)
    ((position,),) = await session.rows(_NEXT)
    row = (b.id, b.tenant, b.workspace, b.channel, b.sender, b.message, b.data, b.at, b.expires_at)
    await session.count(_PUT, position, *row)
    await session.count(_TRIM, b.tenant, keep)
    return replace(b, position=position)


async def page(
    session: Session, tenant: str, workspace: str, *, after: int, now: float, limit: int
) -> BroadcastPage:
    """Read on from a position."""
    rows = await session.rows(_READ, tenant, after, workspace, now, limit)
    found = tuple(
        Broadcast(
            position=position,
            id=broadcast_id,
            tenant=owner,
            workspace=place,
            channel=channel,
            sender=sender,
            message=message,
            data=data,
            at=at,
            expires_at=expires_at,
        )
        for _, position, broadcast_id, owner, place, channel, sender, message, data, at, expires_at in rows
        if position is not None
    )
    return BroadcastPage(broadcasts=found, end=rows[0][0])
