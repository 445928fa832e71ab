"""Which rows the statements of the store on PostgreSQL read."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import product
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none

from a2a_handoff.core.events import State
from a2a_handoff.ports import (
    HandoffQuery,
)
from a2a_handoff.stores import (
    postgres,
    postgres_batch,
    postgres_broadcasts,
    postgres_retention,
    postgres_webhooks,
)
from a2a_handoff.stores import postgres_work as work_table
from a2a_handoff.stores.postgres_listing import page_statement
from tests.stores.on_postgres import opened
from tests.support.postgres import Postgres

TABLES = ("handoffs", "events", "work", "chains", "request_keys", "aliases", "broadcasts", "webhooks")
FILL = """
INSERT INTO handoffs SELECT 'h-' || n, CASE WHEN n % 5 = 0 THEN 'other' ELSE 'default' END, 's-' || n % 499, 'c-' || n / 4, 'x-' || n / 3, n, n, 3,
    CASE WHEN n % 51 = 0 THEN 'offered' WHEN n % 53 = 0 THEN 'failed' ELSE 'completed' END, n % 51 = 0,
    CASE WHEN n % 51 = 0 THEN 'a-' || n % 100 ELSE '' END, CASE WHEN n % 9 = 0 THEN 'f-' || n % 40 ELSE '' END,
    decode(repeat('ab', 300), 'hex') FROM generate_series(1, 20000) AS n;
INSERT INTO events SELECT n, 'h-' || n / 3, n % 3 + 1, 'T', decode(repeat('ab', 300), 'hex')
    FROM generate_series(3, 60002) AS n;
INSERT INTO chains SELECT 'c-' || n, 'default', 't', 'h', n FROM generate_series(1, 5000) AS n;
INSERT INTO request_keys SELECT 'default', 's-' || n % 500, 'k-' || n, 'd', 'h-' || n
    FROM generate_series(1, 20000) AS n;
INSERT INTO aliases SELECT 'default', 's-' || n % 500, 'k-' || n, 'h-' || n FROM generate_series(1, 20000) AS n;
INSERT INTO work SELECT 'h-' || n, 'deadline', 0, '', n, n, CASE WHEN n % 40 = 0 THEN 'o-' || n % 3 ELSE '' END, 0, false
    FROM generate_series(1, 20000) AS n;
INSERT INTO broadcasts SELECT n, 'b', 'default', 'w-' || n % 3, '', '', '', '', n, n FROM generate_series(1, 9000) AS n;
INSERT INTO webhooks SELECT 'h-' || n, 'w', 'e', '' FROM generate_series(1, 9000) AS n;
"""
FEW = frozenset({State.OFFERED, State.FAILED, State.RETURNED})
QUERIES = [
    HandoffQuery(
        tenant="default", sender=sender, agent=agent, holder=holder, face=face, states=states,
        correlation_id=correlation_id, context_id=context_id, updated_after=updated_after, before=before,
    )
    for sender, agent, holder, face, states, correlation_id, context_id, updated_after, before in product(
        ("", "s-7"), ("", "a-50"), ("", "a-50"), ("", "f-9"),
        (frozenset[State](), frozenset({State.OFFERED, State.COMPLETED}), FEW),
        ("", "c-7"), ("", "x-7"), (None, 19000.0), (None, (15000.0, "h-1")),
    )
]  # fmt: skip
KEY4: list[Any] = [["h-1", "h-2"], ["deadline"] * 2, [0, 0], ["", ""]]
#: All but what is done once, at a start: to free what dead brokers held, which may be much of the table.
STATEMENTS: list[tuple[str, list[Any]]] = [
    (postgres._HANDOFF, ["h-1"]),
    (postgres._EVENTS_OF, ["h-1", 0, 500, 1 << 20]),
    (postgres._LOG, [1000, 500, 1 << 20]),
    (postgres._OPEN, ["offered"]),
    (postgres._CHAIN_HANDOFFS, ["c-7", "default"]),
    (postgres._QUEUE, []),
    (postgres._IN_FLIGHT, ["handed_off", None]),
    (postgres._REQUEST, ["default", "s-1", "k-1"]),
    (postgres._ALIAS, ["default", "s-1", "k-1"]),
    (postgres._CHAIN, ["c-7"]),
    (work_table.NEXT_DUE, []),
    (work_table._LATE, [500.0]),
    (work_table._CLAIM, ["o-1", 5.0, 5.0, 100, ["deliver", "offer", "reconcile"]]),
    (work_table._RELEASE, ["o-1", *KEY4, [1.0, 1.0]]),
    (work_table._RENEW, ["o-1", 5.0]),
    (postgres_broadcasts._READ, ["default", 8000, "w-1", 1.0, 100]),
    (postgres_broadcasts._EXPIRE, [5.0]),
    (postgres_broadcasts._TRIM, ["default", 1000]),
    (postgres_webhooks._LIST, ["h-1"]),
    (postgres_webhooks._SAVE, [b"", "h-1", "w", "e"]),
    (postgres_webhooks._DELETE, ["h-1", "w", "webhook"]),
    (
        postgres_batch._LOOK,
        [["h-1"], ["c-7"], ["default"], ["s-1"], ["k-1"], ["default"], ["s-1"], ["k-1"]],
    ),
    (postgres_batch._LOOK_HELD, [["default"], ["a-1"], ["h-1", "h-2"]]),
]


def scans(plan: str) -> list[str]:
    return [line for line in plan.splitlines() for table in TABLES if f"Seq Scan on {table}" in line]


def test_no_query_reads_a_whole_table(server: Postgres, database: str) -> None:
    """With the planner's own choice, on tables that are filled and counted."""

    async def main() -> None:
        async with opened(server.url(database)):
            pass
        connection: Any = await asyncpg.connect(server.url(database))
        try:
            await connection.execute(FILL)
            await connection.execute("VACUUM ANALYZE")

            async def plan(statement: str, values: list[Any]) -> str:
                return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *values))

            for statement, values in STATEMENTS:
                text = await plan(statement, values)
                assert scans(text) == [], text
            for query in QUERIES:
                text = await plan(*page_statement(query))
                assert scans(text) == [], (query, text)
            plain = await plan(
                *page_statement(HandoffQuery(tenant="default", states=frozenset({State.COMPLETED})))
            )
            assert re.search(r"Index Only Scan using handoffs_by_(update|sender)", plain), plain
        finally:
            await connection.close()

    asyncio.run(main())


def rows_read(node: dict[str, Any]) -> float:
    """The rows that a page touched, without those that its total counted."""
    below = [
        rows_read(child) for child in node.get("Plans", ()) if child["Parent Relationship"] != "InitPlan"
    ]
    if below:
        return sum(below)
    return (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]


def test_a_page_reads_few_rows_whatever_narrows_it(server: Postgres, database: str) -> None:
    """An index that is walked through to its end is no better than the table."""

    async def main() -> None:
        async with opened(server.url(database)):
            pass
        connection: Any = await asyncpg.connect(server.url(database))
        try:
            await connection.execute(FILL)
            await connection.execute("VACUUM ANALYZE")
            for query in (
                HandoffQuery(tenant="default"),
                HandoffQuery(tenant="default", before=(3000.0, "h-1")),
                HandoffQuery(tenant="default", sender="s-7"),
                HandoffQuery(tenant="default", context_id="x-7"),
                HandoffQuery(tenant="default", correlation_id="c-7"),
                HandoffQuery(tenant="default", holder="a-50"),
                HandoffQuery(tenant="default", agent="s-7"),
                HandoffQuery(tenant="default", agent="a-50"),
                HandoffQuery(tenant="default", face="f-9"),
                HandoffQuery(tenant="default", states=frozenset({State.FAILED})),
                HandoffQuery(tenant="default", states=frozenset({State.RETURNED})),
                HandoffQuery(tenant="default", states=frozenset({State.REQUESTED})),
                HandoffQuery(tenant="default", states=frozenset({State.FAILED, State.RETURNED})),
                HandoffQuery(tenant="default", states=frozenset({State.EXPIRED}), sender="s-7"),
                HandoffQuery(tenant="default", states=frozenset({State.REQUESTED}), agent="s-7"),
            ):
                statement, values = page_statement(query)
                explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                (plan,) = json.loads(await connection.fetchval(explain, *values))
                assert rows_read(plan["Plan"]) <= 4 * query.limit, (query, plan)
        finally:
            await connection.close()

    asyncio.run(main())


def test_old_chains_are_found_without_reading_the_others(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database)):
            pass
        connection: Any = await asyncpg.connect(server.url(database))
        try:
            await connection.execute(FILL)
            await connection.execute("DELETE FROM work")
            await connection.execute("VACUUM ANALYZE")
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {postgres_retention._OLD}"
            for before in (100.0, 10_000.0, 19_000.0):
                (plan,) = json.loads(await connection.fetchval(explain, before, 20))
                assert plan["Plan"]["Actual Rows"] == 20
                assert rows_read(plan["Plan"]) <= 400, plan
        finally:
            await connection.close()

    asyncio.run(main())


def test_webhooks_go_with_their_task(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database)):
            pass

    asyncio.run(main())
    server.sql(FILL.split(";", maxsplit=1)[0], database=database)
    server.sql("INSERT INTO webhooks VALUES ('h-1', 'w', 'e', ''), ('h-2', 'w', 'e', '')", database=database)
    server.sql("DELETE FROM handoffs WHERE id = 'h-1'", database=database)
    assert server.sql("SELECT handoff_id FROM webhooks", database=database) == [("h-2",)]
