"""Brokers that share one PostgreSQL: who they are, who is gone, and what they tell each other.

Rules: a broker holds a lock named after it as long as it is connected (``postgres_work``), and has a number,
which stands beside each event that it writes. Nothing here waits for another broker longer than a row takes.
Not here: the work that they share (``postgres_work``), wake-ups (``postgres_hints``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from a2a_handoff.core.agents import Status
from a2a_handoff.ports import AgentChanges, Departed, Ends, Recorded, Sign
from a2a_handoff.stores import postgres_work
from a2a_handoff.stores.codec import decode_agent, decode_event
from a2a_handoff.stores.postgres_server import Session

#: What is noted in a transaction that has not ended yet is read the next time, if it takes no longer.
_OVERLAP_S = 2.0

_JOIN = """
WITH turn AS (UPDATE positions SET replicas = replicas + 1 RETURNING replicas)
INSERT INTO replicas (id, owner) SELECT replicas, $1 FROM turn
ON CONFLICT (owner) DO UPDATE SET heir = 0 RETURNING id
"""
_REJOIN = """
INSERT INTO replicas (id, owner) VALUES ($2, $1) ON CONFLICT (owner) DO UPDATE SET heir = 0
"""
# One that has begun so long ago and is gone is in no doubt any more.
_OLD_TURNS = """
DELETE FROM marks WHERE name LIKE 'turn/%' AND split_part(name, '/', 2)::int < $1::int - 1000
    AND split_part(name, '/', 2)::int NOT IN (SELECT id FROM replicas)
"""
# Nothing of the two is done, and no number taken, in a transaction that has changed nothing.
_NOTE_TURN = """
INSERT INTO marks (name, position)
SELECT $1, $2::bigint WHERE pg_current_xact_id_if_assigned() IS NOT NULL
ON CONFLICT (name) DO UPDATE SET position = excluded.position
RETURNING pg_current_xact_id_if_assigned()::text
"""
# One snapshot shows both: what runs in it has noted nothing that it shows.
_LAST_TURN = """
SELECT CASE WHEN EXISTS (
    SELECT FROM pg_snapshot_xip(pg_current_snapshot()) AS running WHERE running = $2::text::xid8
) THEN NULL ELSE coalesce((SELECT position FROM marks WHERE name = $1), 0) END
"""
_LEAVE = "DELETE FROM replicas WHERE id = $1 AND spans IS NULL"
_ENDS = "SELECT events, broadcasts, agents FROM positions"
_CHANGED = "SELECT body, revision FROM agents WHERE revision > $1 ORDER BY revision"
_GONE = "SELECT tenant, agent_id, revision FROM agents_gone WHERE revision > $1 ORDER BY revision"
_DELETE_AGENT = """
WITH there AS (DELETE FROM agents WHERE tenant = $1 AND agent_id = $2 RETURNING 1)
SELECT count(*) FROM there
"""
# One that the store does not have may stand in the card folders of the brokers.
_FORGET_AGENT = """
INSERT INTO agents_gone (tenant, agent_id, at) VALUES ($1, $2, extract(epoch FROM now()))
ON CONFLICT (tenant, agent_id) DO UPDATE SET at = excluded.at
"""

_NOTE = """
INSERT INTO presence (tenant, agent_id, writer, heard_at, gone, said_at, status, in_flight, noted_at)
SELECT tenant, agent_id, $7, now.s - age, gone = 1, CASE WHEN said_age < 0 THEN 0 ELSE now.s - said_age END,
       status, in_flight, now.s
FROM unnest($1::text[], $2::text[], $3::float8[], $4::int[], $5::float8[], $6::text[], $8::int[])
  AS t (tenant, agent_id, age, gone, said_age, status, in_flight),
  (SELECT extract(epoch FROM clock_timestamp())::float8 AS s) AS now
ON CONFLICT (tenant, agent_id, writer) DO UPDATE SET heard_at = excluded.heard_at, gone = excluded.gone,
    said_at = greatest(presence.said_at, excluded.said_at), status = excluded.status,
    in_flight = excluded.in_flight, noted_at = excluded.noted_at
"""
_SIGNS = """
SELECT tenant, agent_id, now.s - heard_at, gone, CASE WHEN said_at = 0 THEN -1 ELSE now.s - said_at END,
       status, in_flight
FROM presence, (SELECT extract(epoch FROM clock_timestamp())::float8 AS s) AS now
WHERE noted_at > $1 AND writer <> $2
"""
_OLD_SIGNS = "DELETE FROM presence WHERE noted_at < extract(epoch FROM now()) - 86400"
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"

_ABSENT = f"SELECT owner FROM replicas WHERE NOT {postgres_work.connected('owner')}"  # noqa: S608 - a constant
_NOBODY = "DELETE FROM replicas WHERE owner = ANY ($1::text[]) AND spans IS NULL RETURNING id, spans"
# Whose heir has died too is left to somebody else.
_INHERIT = f"""
WITH left_behind AS (
    SELECT id FROM replicas WHERE owner = ANY ($1::text[]) AND heir NOT IN (
        SELECT r.id FROM replicas AS r WHERE r.id <> $2 AND {postgres_work.connected("r.owner")}
    )
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE replicas SET heir = $2 FROM left_behind WHERE replicas.id = left_behind.id
RETURNING replicas.id, replicas.spans
"""  # noqa: S608 - a constant
_SPANS = "UPDATE replicas SET spans = $2 WHERE id = $1"
_DONE = "DELETE FROM replicas WHERE id = $1"

_OTHERS = """
SELECT handoff_id, seq, position, type, body FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY position) - octet_length(body) AS before FROM (
        SELECT * FROM events WHERE position > $1 AND position <= $2 AND writer <> $3
        ORDER BY position LIMIT $4
    ) AS few
) AS sized WHERE before < $5 ORDER BY position
"""
_WRITTEN = """
SELECT handoff_id, seq, position, type, body FROM events
WHERE position > $1 AND writer = $2 ORDER BY position LIMIT $3
"""


async def join(session: Session, owner: str) -> int:
    """The number of a broker."""
    ((number,),) = await session.rows(_JOIN, owner)
    await session.count(_OLD_TURNS, number)
    return number


async def rejoin(session: Session, owner: str, replica: int) -> None:
    """A broker is back, which the others may have held for gone meanwhile."""
    await session.count(_REJOIN, owner, replica)


async def leave(session: Session, replica: int) -> None:
    """A broker ends. If spans of it are missing it stays known."""
    await session.count(_LEAVE, replica)


async def ends(session: Session) -> Ends:
    """How far everything is that brokers follow."""
    ((events, broadcasts, agents),) = await session.rows(_ENDS)
    return Ends(events=events, broadcasts=broadcasts, agents=agents)


# --- turns ---------------------------------------------------------------------------------------


def turn_mark(replica: int) -> str:
    """The mark that holds the last turn of a broker that was committed."""
    return f"turn/{replica}"


async def note_turn(session: Session, replica: int, turn: int) -> str | None:
    """Note whose turn it is in the transaction, if that has changed anything; its number then."""
    rows = await session.rows(_NOTE_TURN, turn_mark(replica), turn)
    return rows[0][0] if rows else None


async def last_turn(session: Session, replica: int, number: str) -> int | None:
    """The last turn of a broker that was committed, 0 for none; ``None`` as long as its transaction runs.

    ``number`` is that of its last transaction. ``session`` has written since then (``rejoin``), so that the
    snapshot reaches beyond every number that the server still knows.
    """
    ((turn,),) = await session.rows(_LAST_TURN, turn_mark(replica), number)
    return turn


# --- the log -------------------------------------------------------------------------------------


async def others(
    session: Session, replica: int, *, after: int, upto: int, limit: int, most: int
) -> list[Recorded]:
    """What all but one broker wrote between two positions, ``most`` bytes of it or a little more."""
    return recorded(await session.rows(_OTHERS, after, upto, replica, limit, most))


async def written(session: Session, replica: int, *, after: int, limit: int) -> list[Recorded]:
    """What one broker wrote after a position."""
    return recorded(await session.rows(_WRITTEN, after, replica, limit))


def recorded(rows: list[tuple[Any, ...]]) -> list[Recorded]:
    """Rows of the log."""
    return [
        Recorded(handoff_id=handoff_id, seq=seq, position=position, event=decode_event(kind, body))
        for handoff_id, seq, position, kind, body in rows
    ]


# --- agents --------------------------------------------------------------------------------------


async def agents(session: Session, *, after: int) -> AgentChanges:
    """What became of agents after a revision.

    Those that are gone are read first: one that comes back meanwhile is in both, and there.
    """
    gone = await session.rows(_GONE, after)
    rows = await session.rows(_CHANGED, after)
    back = [decode_agent(body) for body, _ in rows]
    return AgentChanges(
        agents=tuple(back),
        gone=tuple((tenant, agent_id) for tenant, agent_id, _ in gone),
        revision=max((after, *(row[-1] for row in rows), *(row[-1] for row in gone))),
    )


async def delete_agent(session: Session, tenant: str, agent_id: str) -> bool:
    """Remove a registration, for every broker. False if there was none."""
    ((count,),) = await session.rows(_DELETE_AGENT, tenant, agent_id)
    if not count:
        await session.count(_FORGET_AGENT, tenant, agent_id)
    return bool(count)


async def note(session: Session, replica: int, signs: Sequence[Sign]) -> None:
    """Tell of signs of life."""
    if signs:
        await session.count(
            _NOTE,
            [sign.tenant for sign in signs],
            [sign.agent_id for sign in signs],
            [sign.age_s for sign in signs],
            [int(sign.gone) for sign in signs],
            [-1.0 if sign.said_age_s is None else sign.said_age_s for sign in signs],
            [sign.status.value for sign in signs],
            replica,
            [sign.in_flight for sign in signs],
        )


async def signs(session: Session, replica: int, *, after: float) -> tuple[list[Sign], float]:
    """What others told since a moment, and the moment to go on from."""
    moment = await now(session)
    rows = await session.rows(_SIGNS, after - _OVERLAP_S, replica)
    found = [
        Sign(
            tenant=tenant,
            agent_id=agent_id,
            age_s=age,
            gone=gone,
            said_age_s=None if said_age < 0 else said_age,
            status=Status(status),
            in_flight=in_flight,
        )
        for tenant, agent_id, age, gone, said_age, status, in_flight in rows
    ]
    return found, moment


async def now(session: Session) -> float:
    """The server's clock, epoch seconds."""
    ((moment,),) = await session.rows(_NOW)
    return moment


# --- the dead ------------------------------------------------------------------------------------


async def absent(session: Session) -> frozenset[str]:
    """The known brokers that are not connected."""
    return frozenset(owner for (owner,) in await session.rows(_ABSENT))


async def bury(session: Session, owners: Collection[str], replica: int) -> list[Departed]:
    """Free what dead brokers hold. Those that had no spans, or whose spans ``replica`` is to send."""
    dead = list(owners)
    await postgres_work.free(session, dead)
    rows = await session.rows(_NOBODY, dead)
    rows += await session.rows(_INHERIT, dead, replica)
    await session.count(_OLD_SIGNS)
    return [Departed(replica=number, spans=spans) for number, spans in rows]


async def note_spans(session: Session, replica: int, position: int | None) -> None:
    """Up to where the spans of a broker have left; ``None``: it is done with."""
    if position is None:
        await session.count(_DONE, replica)
    else:
        await session.count(_SPANS, replica, position)
