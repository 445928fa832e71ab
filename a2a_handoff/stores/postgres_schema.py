"""The schema on PostgreSQL: bring it up to date, by one broker at a time.

Rules: all steps are one transaction under a lock that ends with it, so brokers may start at the same moment
on an empty database, and one that dies leaves the schema as it was. The tables stand in the first schema of
the session's search path.
"""

from __future__ import annotations

from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.stores.migrations import scripts
from a2a_handoff.stores.postgres_server import Session

# "a2ao", as the application id of a database file.
_LOCK = f"SELECT pg_advisory_xact_lock({0x6132616F})"
#: Seconds for a step, and to wait while another broker makes it: a large table takes long.
STEP_S = 3600.0
_PATIENTLY = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"
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


async def behind(session: Session) -> int:
    """How many steps the schema lacks; nothing is changed."""
    ((ours, _, _),) = await session.rows(_FOUND)
    ((version,),) = await session.rows("SELECT version FROM a2a_handoff_schema") if ours else [(0,)]
    return len(scripts("postgres")) - version


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
    ((version,),) = await session.rows("SELECT version FROM a2a_handoff_schema") if ours else [(0,)]
    steps = scripts("postgres")
    if version > len(steps):
        raise StoreUnavailable(
            f"The store {name} has schema {version}, this version knows {len(steps)}: "
            "upgrade a2a-handoff, or restore the backup made before its upgrade."
        )
    for number, script in enumerate(steps[version:], start=version + 1):
        await session.run(script, timeout_s=STEP_S)
        await session.rows("UPDATE a2a_handoff_schema SET version = $1", number)
