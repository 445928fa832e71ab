"""The table of work on PostgreSQL: claim, give back, keep, and take over from a dead broker.

Rules: as on SQLite (``sqlite_work``), but there are other brokers. None of these statements waits for a row
that another one holds: it is skipped, since whoever holds it is about to change it; so claims never wait for
commits and no two brokers for each other. A broker holds a lock named after it as long as it is connected;
whoever starts frees the work of those that are not.
Not here: scheduling and settling, which belong to a commit (``batch``).
"""

from __future__ import annotations

from collections.abc import Iterable

from a2a_handoff.core.events import WorkKind
from a2a_handoff.ports import Late, Work, WorkKey
from a2a_handoff.stores.postgres_server import Session

#: The first half of the locks that brokers hold while they live; the other half is a hash of the owner.
_LIVING = 0x61326168
# Shared: after a cut the old session of this very broker may still seem to be there.
_LIVE = f"SELECT pg_advisory_lock_shared({_LIVING}, hashtext($1))"


def connected(owner: str) -> str:
    """The condition that the broker lives whose name is in the column ``owner``."""
    return f"""EXISTS (
        SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
        WHERE locktype = 'advisory' AND datname = current_database() AND granted
          AND classid = {_LIVING} AND objid::bigint = hashtext({owner})::bigint & 4294967295
    )"""


_DEAD = f"""
SELECT held.owner FROM (SELECT DISTINCT owner FROM work WHERE owner <> '') AS held
WHERE NOT {connected("held.owner")}
"""  # noqa: S608 - a constant
_FREE = """
WITH held AS (
    SELECT handoff_id, kind, attempt, ref FROM work WHERE owner = ANY ($1::text[]) AND owner <> ''
    FOR UPDATE SKIP LOCKED
)
UPDATE work SET owner = '', wake_at = due_at, orphaned = true FROM held
WHERE (work.handoff_id, work.kind, work.attempt, work.ref)
    = (held.handoff_id, held.kind, held.attempt, held.ref)
"""
_TALKED_ELSEWHERE = """
SELECT EXISTS (
    SELECT FROM work
    WHERE handoff_id = $1 AND kind IN ('deliver', 'reconcile') AND owner NOT IN ('', $2) AND wake_at > $3
)
"""
_KEEP = """
UPDATE work SET wake_at = $6
WHERE handoff_id = $2 AND kind = $3 AND attempt = $4 AND ref = $5 AND owner = $1
"""

_CLAIM = """
WITH due AS (
    SELECT handoff_id, kind, attempt, ref FROM work
    WHERE wake_at <= $3 AND kind = ANY ($5::text[])
    ORDER BY wake_at, handoff_id, kind, attempt, ref LIMIT $4 FOR UPDATE SKIP LOCKED
)
UPDATE work
SET owner = $1, wake_at = $2, claims = claims + 1, orphaned = orphaned OR owner <> ''
FROM due
WHERE (work.handoff_id, work.kind, work.attempt, work.ref)
    = (due.handoff_id, due.kind, due.attempt, due.ref)
RETURNING work.handoff_id, work.kind, work.attempt, work.ref, work.due_at, work.claims, work.orphaned
"""

_RELEASE = """
WITH held AS (
    SELECT w.handoff_id, w.kind, w.attempt, w.ref, t.due_at
    FROM unnest($2::text[], $3::text[], $4::int[], $5::text[], $6::float8[])
      AS t (handoff_id, kind, attempt, ref, due_at)
    JOIN work w USING (handoff_id, kind, attempt, ref)
    WHERE w.owner = $1 FOR UPDATE OF w SKIP LOCKED
)
UPDATE work SET owner = '', wake_at = held.due_at, due_at = held.due_at FROM held
WHERE (work.handoff_id, work.kind, work.attempt, work.ref)
    = (held.handoff_id, held.kind, held.attempt, held.ref)
"""

_RENEW = """
WITH held AS (
    SELECT handoff_id, kind, attempt, ref FROM work WHERE owner = $1 AND owner <> '' FOR UPDATE SKIP LOCKED
)
UPDATE work SET wake_at = $2 FROM held
WHERE (work.handoff_id, work.kind, work.attempt, work.ref)
    = (held.handoff_id, held.kind, held.attempt, held.ref)
"""

# What a newer version does is left to it.
_KINDS = [str(kind) for kind in WorkKind]

_LATE = "SELECT owner <> '', count(*), min(wake_at) FROM work WHERE wake_at <= $1 GROUP BY 1"
NEXT_DUE = "SELECT wake_at FROM work WHERE owner = '' ORDER BY wake_at LIMIT 1"


async def live(session: Session, owner: str) -> None:
    """Show that ``owner`` lives, as long as this session does."""
    await session.rows(_LIVE, owner)


async def free_dead(session: Session) -> None:
    """Free what is held by brokers that are gone."""
    await free(session, [owner for (owner,) in await session.rows(_DEAD)])


async def free(session: Session, owners: list[str]) -> None:
    """Free what these hold. They may have begun it."""
    if owners:
        await session.count(_FREE, owners)


async def keep(session: Session, owner: str, key: WorkKey, *, until: float) -> bool:
    """Hold one item until then. False if ``owner`` does not have it."""
    return await session.count(_KEEP, owner, key.handoff_id, str(key.kind), key.attempt, key.ref, until) > 0


async def talked_elsewhere(session: Session, owner: str, handoff_id: str, *, now: float) -> bool:
    """Whether somebody else than ``owner`` holds a conversation about a handoff."""
    ((found,),) = await session.rows(_TALKED_ELSEWHERE, handoff_id, owner, now)
    return found


async def claim(session: Session, owner: str, *, now: float, until: float, limit: int) -> list[Work]:
    """Claim what is due and free, or whose lease has ended; oldest due first."""
    rows = await session.rows(_CLAIM, owner, until, now, limit, _KINDS)
    # RETURNING has no order of its own.
    rows.sort(key=lambda row: (row[4], *row[:4]))
    return [
        Work(
            key=WorkKey(handoff_id=handoff_id, kind=WorkKind(kind), attempt=attempt, ref=ref),
            due_at=due_at,
            claims=claims,
            orphaned=orphaned,
        )
        for handoff_id, kind, attempt, ref, due_at, claims, orphaned in rows
    ]


async def release(session: Session, owner: str, items: Iterable[Work]) -> None:
    """Free what ``owner`` holds of these, to be due as they say."""
    found = list(items)
    keys = [one.key for one in found]
    await session.count(
        _RELEASE,
        owner,
        [key.handoff_id for key in keys],
        [str(key.kind) for key in keys],
        [key.attempt for key in keys],
        [key.ref for key in keys],
        [one.due_at for one in found],
    )


async def renew(session: Session, owner: str, *, until: float) -> None:
    """Keep all that ``owner`` holds until then."""
    await session.count(_RENEW, owner, until)


async def late(session: Session, *, now: float) -> dict[Late, tuple[int, float]]:
    """What could be claimed and is nobody's: how much, and since when the oldest could."""
    rows = await session.rows(_LATE, now)
    return {Late.LAPSED if held else Late.DUE: (count, oldest) for held, count, oldest in rows}
