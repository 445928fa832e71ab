"""The schema on PostgreSQL: bring it up to date, by one broker at a time.

Rules: all steps are one transaction under a lock that ends with it, so brokers may start at the same moment
on an empty database, and one that dies leaves the schema as it was. The tables stand in the first schema of
the session's search path.
"""

from __future__ import annotations

from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.stores import migrations
from a2a_handoff.stores.postgres_server import Session

# "a2ao", as the application id of a database file.
_LOCK = f"SELECT pg_advisory_xact_lock({0x6132616F})"
#: Seconds for a step, and to wait while another broker makes it: a large table takes long.
STEP_S = 3600.0
_PATIENTLY = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"
_VERSION = "SELECT version, (SELECT position FROM marks WHERE name = $1) FROM a2a_handoff_schema"
_SET_SINCE = """
INSERT INTO marks (name, position) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET position = excluded.position
"""
_FOUND = """
SELECT to_regclass('a2a_handoff_schema') IS NOT NULL,
       (SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()), current_schema()
"""


async def migrate(session: Session, name: str) -> None:
    """Bring the schema up to date. Raises ``StoreUnavailable`` if it is another program's, or newer."""
    await session.run(f"BEGIN; {_PATIENTLY}; {_LOCK}", timeout_s=STEP_S)
    try:
        await _migrate(session, name)
    except BaseException:
        if not session.closed:
            await session.run("ROLLBACK")
        raise
    await session.run("COMMIT")


async def behind(session: Session, name: str) -> int:
    """How many steps the schema lacks, below zero if it is a newer one that may be used; nothing is changed.

    Raises ``StoreUnavailable`` if its schema may not be used.
    """
    ((ours, _, _),) = await session.rows(_FOUND)
    return migrations.behind("postgres", name, *(await _version(session) if ours else (0, None)))


async def _migrate(session: Session, name: str) -> None:
    ((ours, tables, schema),) = await session.rows(_FOUND)
    if schema is None:
        raise StoreUnavailable(
            f"The store {name} has no schema to put tables into: set the user's search_path."
        )
    if tables and not ours:
        raise StoreUnavailable(
            f"The store {name} has tables of another program in its schema {schema}: "
            "give the broker a database of its own."
        )
    found = await _version(session) if ours else (0, None)
    for number, script in migrations.missing("postgres", name, *found):
        await session.run(script, timeout_s=STEP_S)
        await session.rows("UPDATE a2a_handoff_schema SET version = $1", number)
        await session.rows(_SET_SINCE, migrations.SINCE_MARK, migrations.USABLE_SINCE["postgres"])


async def _version(session: Session) -> tuple[int, int | None]:
    """The schema, and since which one it may be used as it is, if the database says so."""
    ((version, since),) = await session.rows(_VERSION, migrations.SINCE_MARK)
    return version, since
