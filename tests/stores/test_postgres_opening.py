"""How a store on PostgreSQL is opened, and what is said if it cannot be."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import quote

import pytest

from a2a_handoff.ports import (
    StoreUnavailable,
)
from a2a_handoff.stores import (
    open_store,
)
from a2a_handoff.stores.migrations import SINCE_MARK, scripts
from a2a_handoff.stores.postgres import PostgresStore
from tests.stores.on_postgres import opened
from tests.support.builders import (
    commit_of,
    first_write,
    offered_event,
)
from tests.support.postgres import PASSWORD, Postgres


def open_and_fail(url: str) -> str:
    async def main() -> str:
        with pytest.raises(StoreUnavailable) as raised:
            await PostgresStore(url).open()
        return str(raised.value)

    return asyncio.run(main())


def test_a_wrong_password_is_said_and_not_shown(server: Postgres, empty: str) -> None:
    place = f"127.0.0.1:{server.port}/{empty}"
    message = open_and_fail(f"postgresql://guarded:{quote('pass/wrong?@2', safe='')}@{place}")
    assert message.startswith(f"The store postgresql://{place} refuses the user or its password: check both")
    assert "wrong" not in message
    message = open_and_fail(f"postgresql://guarded@{place}?password=alsosecret")
    assert "refuses the user" in message
    assert "alsosecret" not in message

    # The tables go where the user may make some.
    server.sql("GRANT ALL ON SCHEMA public TO guarded", database=empty)

    async def right() -> None:
        async with opened(f"postgresql://guarded:{quote(PASSWORD, safe='')}@{place}") as (store,):
            await store.commit(commit_of(first_write("h-1")))

    asyncio.run(right())


def test_a_database_that_is_not_there_is_named(server: Postgres) -> None:
    assert "/nowhere is not there: create the database" in open_and_fail(server.url("nowhere"))


def test_a_user_without_rights_is_told_what_it_lacks(server: Postgres, empty: str) -> None:
    url = f"postgresql://guarded:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/{empty}"
    server.sql("REVOKE ALL ON SCHEMA public FROM public", database=empty)
    assert "set the user's search_path" in open_and_fail(url)
    server.sql("GRANT USAGE ON SCHEMA public TO guarded", database=empty)
    assert "gives its user too few rights: make the user the owner" in open_and_fail(url)


def test_a_server_that_does_not_run_cannot_be_reached(server: Postgres) -> None:
    message = open_and_fail("postgresql://user:sekrit@127.0.0.1:1/x")
    assert message.startswith("The store postgresql://127.0.0.1:1/x cannot be reached: check that the server")
    assert "sekrit" not in message


@pytest.mark.parametrize("url", ["postgresql://user:sekrit@host:port/x", "postgresql://user:sekrit@[::/x"])
def test_a_url_that_makes_no_sense_is_refused_without_its_password(server: Postgres, url: str) -> None:
    assert "sekrit" not in open_and_fail(url)


def test_the_database_of_another_program_is_refused(server: Postgres, empty: str) -> None:
    server.sql("CREATE TABLE bookmarks (url text)", database=empty)
    message = open_and_fail(server.url(empty))
    assert (
        "has tables of another program in its schema public: give the broker a database of its own" in message
    )


def test_a_database_of_a_newer_version_is_refused_with_what_to_do(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database)):
            pass

    asyncio.run(main())
    server.sql("UPDATE a2a_handoff_schema SET version = 99", database=database)
    known = len(scripts("postgres"))
    for statement in (
        "UPDATE marks SET position = $2 WHERE name = $1",
        "DELETE FROM marks WHERE name = $1 AND $2 > 0",
    ):
        server.sql(statement, SINCE_MARK, known + 1, database=database)
        message = open_and_fail(server.url(database))
        assert f"has schema 99, this version knows {known}: upgrade a2a-handoff" in message


def test_a_database_of_a_newer_version_that_says_so_is_used_as_it_is(server: Postgres, database: str) -> None:
    async def use() -> None:
        async with opened(server.url(database)) as (store,):
            await store.commit(commit_of(first_write(f"h-{await store.log_end()}", offered_event())))

    asyncio.run(use())
    server.sql("UPDATE a2a_handoff_schema SET version = 99", database=database)
    asyncio.run(use())
    assert server.sql("SELECT version FROM a2a_handoff_schema", database=database) == [(99,)]
    assert server.sql("SELECT count(*) FROM handoffs", database=database) == [(2,)]


def test_a_database_with_another_encoding_is_refused(server: Postgres) -> None:
    name = server.fresh() + "_latin"
    server.sql(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0")
    assert "keeps texts as LATIN1: create the database with ENCODING 'UTF8'" in open_and_fail(
        server.url(name)
    )


def test_without_its_driver_the_store_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("a2a_handoff.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreUnavailable, match=r"pip install 'a2a-handoff\[postgres\]'"):
        open_store("postgresql://user:sekrit@host/x")
