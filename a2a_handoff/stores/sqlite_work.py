"""The table of work on SQLite: claim, give back, keep, and take over from a dead process.

Rules: an item is held while its owner is set and its lease has not ended. ``wake_at`` is when somebody
may claim it: when it is due, or if it is held, when the lease ends; so one index serves all. What was
held before by somebody who is gone stays marked as orphaned until it is settled or scheduled anew,
through every release: its effect may have begun.
Not here: scheduling and settling, which belong to a commit (``batch``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from a2a_handoff.core.events import WorkKind
from a2a_handoff.ports import Late, Work, WorkKey

_FREE_ALL = "UPDATE work SET owner = '', wake_at = due_at, orphaned = 1 WHERE owner <> ''"

_CLAIM = """
UPDATE work
SET owner = :owner, wake_at = :until, claims = claims + 1, orphaned = orphaned OR owner <> ''
WHERE (handoff_id, kind, attempt, ref) IN (
    SELECT handoff_id, kind, attempt, ref FROM work INDEXED BY work_by_wake
    WHERE wake_at <= :now ORDER BY wake_at, handoff_id, kind, attempt, ref LIMIT :limit
)
RETURNING handoff_id, kind, attempt, ref, due_at, claims, orphaned
"""

_RELEASE = """
UPDATE work SET owner = '', wake_at = :due_at, due_at = :due_at
WHERE handoff_id = :handoff_id AND kind = :kind AND attempt = :attempt AND ref = :ref AND owner = :owner
"""

# What is held wakes within one lease from now, so nothing beyond needs a look.
_RENEW = "UPDATE work INDEXED BY work_by_wake SET wake_at = :until WHERE wake_at <= :until AND owner = :owner"

_NEXT_DUE = "SELECT wake_at FROM work INDEXED BY work_by_wake WHERE owner = '' ORDER BY wake_at LIMIT 1"


_LATE = """
SELECT owner <> '', count(*), min(wake_at) FROM work INDEXED BY work_by_wake WHERE wake_at <= ? GROUP BY 1
"""


def free_all(connection: sqlite3.Connection) -> None:
    """Free every item: whoever held it is dead, since this process holds the lock of the file."""
    connection.execute(_FREE_ALL)


def claim(connection: sqlite3.Connection, owner: str, *, now: float, until: float, limit: int) -> list[Work]:
    """Claim what is due and free, or whose lease has ended; oldest due first."""
    rows = connection.execute(_CLAIM, {"owner": owner, "until": until, "now": now, "limit": limit}).fetchall()
    # RETURNING has no order of its own.
    rows.sort(key=lambda row: (row[4], *row[:4]))
    return [
        Work(
            key=WorkKey(handoff_id=handoff_id, kind=WorkKind(kind), attempt=attempt, ref=ref),
            due_at=due_at,
            claims=claims,
            orphaned=bool(orphaned),
        )
        for handoff_id, kind, attempt, ref, due_at, claims, orphaned in rows
    ]


def release(connection: sqlite3.Connection, owner: str, items: Iterable[Work]) -> None:
    """Free what ``owner`` holds of these, to be due as they say."""
    connection.executemany(
        _RELEASE,
        [
            {
                "due_at": one.due_at,
                "handoff_id": one.key.handoff_id,
                "kind": str(one.key.kind),
                "attempt": one.key.attempt,
                "ref": one.key.ref,
                "owner": owner,
            }
            for one in items
        ],
    )


def renew(connection: sqlite3.Connection, owner: str, *, until: float) -> None:
    """Keep all that ``owner`` holds until then."""
    connection.execute(_RENEW, {"until": until, "owner": owner})


def next_due(connection: sqlite3.Connection) -> float | None:
    """When the earliest free item is due."""
    row = connection.execute(_NEXT_DUE).fetchone()
    return None if row is None else row[0]


def late(connection: sqlite3.Connection, *, now: float) -> dict[Late, tuple[int, float]]:
    """What could be claimed and is nobody's: how much, and since when the oldest could."""
    rows = connection.execute(_LATE, (now,)).fetchall()
    return {Late.LAPSED if held else Late.DUE: (count, oldest) for held, count, oldest in rows}
