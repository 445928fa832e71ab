"""What is particular to the store on PostgreSQL: several writers, faults of the server, the plans of its queries."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from functools import reduce
from itertools import product
from typing import Any, cast
from urllib.parse import quote

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest
from msgspec.structs import replace as changed

from a2a_handoff.core.events import Schedule, State, WorkKind
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.ports import (
    ChainTaken,
    Committed,
    DuplicateRequest,
    HandoffQuery,
    Recorded,
    RequestKey,
    StoreUnavailable,
    VersionConflict,
)
from a2a_handoff.stores import (
    open_store,
    postgres,
    postgres_batch,
    postgres_broadcasts,
    postgres_replicas,
    postgres_retention,
    postgres_webhooks,
)
from a2a_handoff.stores import postgres_work as work_table
from a2a_handoff.stores.migrations import SINCE_MARK, scripts
from a2a_handoff.stores.postgres import PostgresStore
from a2a_handoff.stores.postgres_listing import page_statement
from a2a_handoff.stores.postgres_server import SETTINGS
from tests.stores.test_contract import broadcast
from tests.support.builders import (
    NOW,
    acknowledged_event,
    commit_of,
    completed_event,
    first_write,
    make_agent,
    next_write,
    offered_event,
    output_event,
)
from tests.support.postgres import PASSWORD, Postgres, Wire, postgres_server

DELIVER = Schedule(kind=WorkKind.DELIVER, due_at=NOW, attempt=1)
WAIT_S = 20.0


@pytest.fixture
def server() -> Postgres:
    return postgres_server()


@pytest.fixture
def database(server: Postgres) -> Generator[str]:
    name = server.migrated()
    yield name
    server.drop(name)


@pytest.fixture
def empty(server: Postgres) -> Generator[str]:
    """A database without tables."""
    name = server.fresh()
    yield name
    server.drop(name)


@asynccontextmanager
async def opened(url: str, count: int = 1) -> AsyncGenerator[list[PostgresStore]]:
    """Stores of as many brokers, opened at the same moment."""
    stores = [PostgresStore(url) for _ in range(count)]
    try:
        await asyncio.gather(*[store.open() for store in stores])
        yield stores
    finally:
        await asyncio.gather(*[store.close() for store in stores])


async def soon(condition: Callable[[], Awaitable[Any]]) -> Any:
    """What a condition gives once it gives something."""
    for _ in range(int(WAIT_S / 0.02)):
        if found := await condition():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {WAIT_S} s")


async def whole_log(store: PostgresStore) -> list[Recorded]:
    found: list[Recorded] = []
    while page := await store.read_log(after=len(found)):
        found += page
    return found


def test_a_machine_without_postgresql_skips_its_tests_unless_it_must_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.postgres._shared", lambda: None)
    monkeypatch.delenv("TEST_SERVICES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        postgres_server()
    monkeypatch.setenv("TEST_SERVICES", "required")
    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"):
        postgres_server()


# --- group commit --------------------------------------------------------------------------------


def test_what_waits_is_committed_together_and_a_refused_commit_fails_alone(
    server: Postgres, database: str
) -> None:
    key = RequestKey(tenant="default", sender="sender", key="k", digest="d", handoff_id="h-1")
    first = first_write("h-1", actions=(DELIVER,))
    commits = [
        commit_of(first, request_key=key, alias="a", alias_owner="o"),
        commit_of(first_write("h-2"), request_key=key),
        commit_of(first_write("h-3", correlation_id="chain-of-h-1", tenant="other")),
        commit_of(first_write("h-1")),
        commit_of(next_write(first.handoff, offered_event())),
        commit_of(first_write("h-4"), alias="a", alias_owner="o"),
        commit_of(first_write("h-5", correlation_id="chain-of-h-1")),
    ]

    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            results = [store.commit(commit) for commit in commits]
            claims = asyncio.ensure_future(store.claim_work(now=NOW + 30, limit=5))
            answers = await asyncio.gather(*results, return_exceptions=True)
            assert [type(answer) for answer in answers] == [
                Committed,
                DuplicateRequest,
                ChainTaken,
                VersionConflict,
                Committed,
                DuplicateRequest,
                Committed,
            ]
            assert [work.claims for work in await claims] == [2]
            assert [(one.handoff_id, one.seq) for one in await store.read_log()] == [
                ("h-1", 1),
                ("h-1", 2),
                ("h-5", 1),
            ]

    asyncio.run(main())
    assert server.sql("SELECT count(DISTINCT xmin::text) FROM events", database=database) == [(1,)]


@pytest.mark.parametrize(
    "poison",
    [
        commit_of(first_write("p", actions=(changed(DELIVER, attempt=2**70),))),
        commit_of(
            first_write("p"),
            request_key=RequestKey(tenant="t", sender="s", key="\ud800", digest="", handoff_id="p"),
        ),
    ],
    ids=["too big", "not text"],
)
def test_a_value_that_cannot_be_stored_fails_its_own_commit_only(
    server: Postgres, database: str, poison: Any
) -> None:
    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            good = store.commit(commit_of(first_write("h-1")))
            bad = store.commit(poison)
            agent = asyncio.ensure_future(store.put_agent(make_agent()))
            last = store.commit(commit_of(first_write("h-2")))
            with pytest.raises(asyncpg.DataError):
                await bad
            assert [one.position for one in (*(await good).recorded, *(await last).recorded)] == [1, 2]
            assert await agent is True
            assert await store.load_handoff("p") is None

    asyncio.run(main())


def test_more_commits_than_one_transaction_takes_are_written_in_order(
    server: Postgres, database: str
) -> None:
    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            outputs = [output_event(b'"%d"' % n) for n in range(777)]
            write = first_write("h-1", *outputs)
            await asyncio.gather(
                *[store.commit(commit_of(first_write(f"i-{n}", actions=(DELIVER,)))) for n in range(600)],
                store.commit(commit_of(write)),
            )
            assert [one.event for one in await store.read_events("h-1")] == list(write.events)
            log = await whole_log(store)
            assert [one.position for one in log] == list(range(1, 1379))
            assert [one.handoff_id for one in log[:600]] == [f"i-{n}" for n in range(600)]

    asyncio.run(main())


def test_a_caller_who_is_gone_gives_back_what_was_claimed_for_it(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            commit = store.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
            commit.cancel()
            # Whatever is written from now on comes after the claims were given back.
            await store.set_mark("turn", 1)
            await store.set_mark("turn", 2)
            (work,) = await store.claim_work(now=NOW, limit=5)
            assert (work.key.handoff_id, work.claims) == ("h-1", 2)

    asyncio.run(main())


def test_closing_writes_what_was_accepted(server: Postgres, database: str) -> None:
    async def main() -> None:
        store = PostgresStore(server.url(database))
        await store.open()
        accepted = [store.commit(commit_of(first_write(f"h-{n}"))) for n in range(50)]
        await store.close()
        assert len(await asyncio.gather(*accepted)) == 50
        async with opened(server.url(database)) as (again,):
            assert len(await again.read_log()) == 50

    asyncio.run(main())


# --- several brokers -----------------------------------------------------------------------------


def test_c070_brokers_that_start_at_the_same_moment_make_one_schema(server: Postgres, empty: str) -> None:
    async def main() -> None:
        async with opened(server.url(empty), 5) as stores:
            await asyncio.gather(
                *[store.commit(commit_of(first_write(f"h-{n}"))) for n, store in enumerate(stores)]
            )
            assert [one.position for one in await stores[0].read_log()] == [1, 2, 3, 4, 5]

    asyncio.run(main())
    assert server.sql("SELECT version FROM a2a_handoff_schema", database=empty) == [
        (len(scripts("postgres")),)
    ]


def test_of_many_writers_one_wins_and_the_log_has_its_events_alone(server: Postgres, database: str) -> None:
    """Brokers that know nothing of each other change the same handoffs at once."""

    async def change(store: PostgresStore, handoff_id: str, step: Any) -> bool:
        before = await store.load_handoff(handoff_id)
        assert before is not None
        if before.state.terminal:
            return False
        try:
            await store.commit(commit_of(next_write(before, step)))
        except VersionConflict:
            return await change(store, handoff_id, step)
        return True

    async def main() -> None:
        async with opened(server.url(database), 3) as stores:
            ids = [f"h-{n}" for n in range(20)]
            writes = [first_write(one, offered_event(), acknowledged_event()) for one in ids]
            await stores[0].commit(commit_of(*writes))
            ends = [completed_event(b'{"parts":[{"text":"%d"}]}' % n) for n in range(3)]
            outputs = [change(store, one, output_event()) for one in ids for store in stores]
            finals = [change(store, one, end) for one in ids for store, end in zip(stores, ends, strict=True)]
            won = (await asyncio.gather(*outputs, *finals))[len(outputs) :]
            assert [won[n : n + 3].count(True) for n in range(0, len(won), 3)] == [1] * len(ids)
            log = await whole_log(stores[1])
            assert [one.position for one in log] == list(range(1, len(log) + 1))
            for one in ids:
                events = [entry for entry in log if entry.handoff_id == one]
                assert [entry.seq for entry in events] == list(range(1, len(events) + 1))
                told = cast("Handoff", reduce(evolve, [entry.event for entry in events], None))
                assert told == await stores[2].load_handoff(one)

    asyncio.run(main())


@pytest.mark.parametrize("what", ["request key", "alias", "chain", "handoff"])
def test_what_is_taken_once_is_taken_for_every_broker(server: Postgres, database: str, what: str) -> None:
    def commit(n: int) -> Any:
        key = RequestKey(tenant="default", sender="sender", key="k", digest="d", handoff_id=f"h-{n}")
        match what:
            case "request key":
                return commit_of(first_write(f"h-{n}"), request_key=key)
            case "alias":
                return commit_of(first_write(f"h-{n}"), alias="a", alias_owner="o")
            case "chain":
                return commit_of(first_write(f"h-{n}", correlation_id="c", tenant=f"t-{n}"))
            case _:
                return commit_of(first_write("h", correlation_id="c"))

    async def main() -> None:
        async with opened(server.url(database), 4) as stores:
            answers = await asyncio.gather(
                *[store.commit(commit(n)) for n, store in enumerate(stores)], return_exceptions=True
            )
            assert [type(one) for one in answers].count(Committed) == 1
            refused = {type(one) for one in answers} - {Committed}
            assert refused == {{"chain": ChainTaken, "handoff": VersionConflict}.get(what, DuplicateRequest)}
            assert len(await stores[0].read_log()) == 1

    asyncio.run(main())


def test_a_reader_never_passes_a_position_that_becomes_visible_later(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database), 3) as stores:
            done = asyncio.Event()

            async def write(store: PostgresStore, name: int) -> None:
                for n in range(60):
                    commits = [commit_of(first_write(f"{name}-{n}-{m}", offered_event())) for m in range(3)]
                    await asyncio.gather(*map(store.commit, commits))

            async def read(store: PostgresStore) -> list[int]:
                seen: list[int] = []
                while True:
                    last = done.is_set()
                    page = await store.read_log(after=seen[-1] if seen else 0)
                    seen += [one.position for one in page]
                    assert not seen or await store.log_end() >= seen[-1]
                    if last and not page:
                        return seen

            reading = [asyncio.create_task(read(store)) for store in stores]
            await asyncio.gather(*[write(store, n) for n, store in enumerate(stores)])
            done.set()
            for seen in await asyncio.gather(*reading):
                assert seen == list(range(1, 3 * 60 * 3 * 2 + 1))

    asyncio.run(main())


def test_positions_of_broadcasts_grow_over_all_brokers(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database), 3) as stores:
            stored = await asyncio.gather(
                *[
                    store.add_broadcast(broadcast(f"b-{n}-{m}"), keep=100)
                    for m in range(5)
                    for n, store in enumerate(stores)
                ]
            )
            assert sorted(one.position for one in stored) == list(range(1, 16))

    asyncio.run(main())


def test_brokers_claim_different_work_and_no_claim_waits_for_a_commit(
    server: Postgres, database: str
) -> None:
    async def main() -> None:
        async with opened(server.url(database), 3) as stores:
            later = changed(DELIVER, due_at=NOW + 1)
            await stores[0].commit(commit_of(*[first_write(f"h-{n}", actions=(later,)) for n in range(100)]))
            holder: Any = await asyncpg.connect(server.url(database))
            await holder.execute("BEGIN; SELECT FROM positions FOR UPDATE")
            await holder.execute("SELECT FROM work WHERE handoff_id < 'h-2' FOR UPDATE")
            rows = await holder.fetch("SELECT handoff_id FROM work WHERE handoff_id < 'h-2'")
            held = [row["handoff_id"] for row in rows]
            async with asyncio.timeout(WAIT_S):
                claimed = await asyncio.gather(
                    *[store.claim_work(now=NOW + 1, limit=10) for store in stores for _ in range(5)]
                )
            await holder.close()
            ids = [work.key.handoff_id for works in claimed for work in works]
            assert len(ids) == len(set(ids)) == 100 - len(held)
            assert not set(ids) & set(held)

    asyncio.run(main())


def test_c072_a_broker_that_starts_frees_the_work_of_the_dead_and_not_of_the_living(
    server: Postgres, database: str
) -> None:
    async def main() -> None:
        async with opened(server.url(database), 2) as (living, dying):
            await living.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
            await dying.commit(commit_of(first_write("h-2", actions=(DELIVER,))))
            assert dying._writer is not None
            # As after a kill: its connections are gone, its lease is in the table.
            dying._writer._task.cancel()
            dying._writer._session.drop()
            await dying._server.close_pool()
            dying._writer = None
            async with opened(server.url(database)) as (third,):
                assert third._writer is not None
                writing = third._writer._session

                async def freed() -> bool:
                    # The server notices a moment later that a connection is gone.
                    await work_table.free_dead(writing)
                    return await third.next_due() is not None

                await soon(freed)
                (work,) = await third.claim_work(now=NOW, limit=5)
                assert (work.key.handoff_id, work.orphaned) == ("h-2", True)

    asyncio.run(main())


def test_work_whose_lease_has_ended_goes_to_another_broker(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database), 2) as (slow, quick):
            await slow.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
            await slow.renew_leases(now=NOW + 20)
            assert await quick.claim_work(now=NOW + 49, limit=5) == []
            (work,) = await quick.claim_work(now=NOW + 50, limit=5)
            assert work.orphaned
            # The first one does not hold it any more.
            await slow.release_work(work.key, due_at=NOW)
            await slow.renew_leases(now=NOW + 90)
            assert await quick.next_due() is None
            (work,) = await slow.claim_work(now=NOW + 80, limit=5)
            assert work.claims == 3

    asyncio.run(main())


# --- opening -------------------------------------------------------------------------------------


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


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_a_store_goes_on_by_itself_after_its_server_was_away(
    server: Postgres, database: str, number: signal.Signals
) -> None:
    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            write = first_write("h-1", actions=(DELIVER,))
            await store.commit(commit_of(write))
            await asyncio.to_thread(server.stop, number)
            for _ in range(3):
                with pytest.raises(StoreUnavailable) as raised:
                    await store.commit(commit_of(first_write("h-2")))
                assert f"{server.port}/{database}" in str(raised.value)
                with pytest.raises(StoreUnavailable):
                    await store.load_handoff("h-1")
            await asyncio.to_thread(server.start)

            async def committed() -> bool:
                try:
                    await store.commit(commit_of(first_write("h-2")))
                except StoreUnavailable:
                    return False
                return True

            await soon(committed)
            assert await store.load_handoff("h-1") == write.handoff
            assert [one.position for one in await store.read_log()] == [1, 2]
            # It still holds what it held.
            assert await store.claim_work(now=NOW + 29, limit=5) == []
            async with opened(server.url(database)) as (other,):
                assert await other.claim_work(now=NOW + 29, limit=5) == []

    asyncio.run(main())


@pytest.mark.parametrize("forward", [True, False], ids=["it arrived", "it did not"])
def test_what_became_of_a_commit_whose_answer_was_lost_is_found_out(
    server: Postgres, database: str, forward: bool
) -> None:
    async def main() -> None:
        wire = Wire(server.port, forward=forward, after=b"HandoffRequested")
        async with wire as port, opened(f"postgresql://broker@127.0.0.1:{port}/{database}") as (store,):
            first, second = [
                store.commit(commit_of(first_write(one, actions=(DELIVER,)))) for one in ("h-1", "h-2")
            ]
            async with asyncio.timeout(WAIT_S):
                if forward:
                    assert [one.position for one in (await first).recorded] == [1]
                    assert [one.key.handoff_id for one in (await second).claimed] == ["h-2"]
                else:
                    for lost in (first, second):
                        with pytest.raises(StoreUnavailable, match="nothing was stored"):
                            await lost
                assert wire.cuts == 1
                committed = await store.commit(commit_of(first_write("h-3")))
                assert committed.recorded[0].position == (3 if forward else 1)
                assert (await store.load_handoff("h-1") is not None) is forward

    asyncio.run(main())


@pytest.mark.parametrize("committed", [True, False])
def test_how_far_a_broker_is_cannot_be_told_as_long_as_its_last_transaction_runs(
    server: Postgres, database: str, committed: bool
) -> None:
    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            sessions = [await store._server.connect() for _ in range(2)]
            old, new = sessions
            assert await postgres_replicas.note_turn(old, 7, 1) is None  # nothing was changed
            await old.run("BEGIN; SELECT FROM positions FOR UPDATE")
            number = await postgres_replicas.note_turn(old, 7, 2)
            assert number is not None
            await postgres_replicas.rejoin(new, "another", 7)
            assert await postgres_replicas.last_turn(new, 7, number) is None
            await old.run("COMMIT" if committed else "ROLLBACK")
            assert await postgres_replicas.last_turn(new, 7, number) == (2 if committed else 0)
            # One that the server does not know, as after a crash.
            assert await postgres_replicas.last_turn(new, 7, f"{number}000") == (2 if committed else 0)
            for session in sessions:
                await session.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("after", "act"),
    [
        (b"HandoffRequested", lambda store: store.commit(commit_of(first_write("h-2")))),
        (b"RETURNING work.handoff_id", lambda store: store.claim_work(now=NOW + 2, limit=5)),
    ],
    ids=["a commit", "a claim"],
)
@pytest.mark.parametrize("given_anew", [True, False], ids=["given anew", "not yet"])
def test_a_transaction_that_a_crash_of_the_server_undid_is_not_taken_for_the_next_one_of_its_number(
    server: Postgres,
    database: str,
    after: bytes,
    act: Callable[[PostgresStore], Awaitable[object]],
    given_anew: bool,
) -> None:
    crashes: list[str] = []

    def crash() -> None:
        running = "SELECT backend_xid::text FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
        ((number,),) = server.sql(running)
        server.kill()
        server.start()
        if given_anew:
            taken = "INSERT INTO marks VALUES ('next', 1) RETURNING pg_current_xact_id()::text"
            # The broker may be back first, and have the number itself.
            ((given,),) = server.sql(taken, database=database)
            assert int(number) <= int(given) <= int(number) + 5
        crashes.append(number)

    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            await store.commit(commit_of(first_write("h-1", actions=(changed(DELIVER, due_at=NOW + 1),))))
        wire = Wire(server.port, forward=False, after=after, meanwhile=crash)
        async with wire as port, opened(f"postgresql://broker@127.0.0.1:{port}/{database}") as (store,):
            async with asyncio.timeout(WAIT_S):
                with pytest.raises(StoreUnavailable, match="nothing was stored"):
                    await act(store)
        assert len(crashes) == 1

    asyncio.run(main())


def test_how_far_brokers_were_that_are_long_gone_is_forgotten(server: Postgres, database: str) -> None:
    async def main() -> None:
        async with opened(server.url(database)):
            pass

    there = "INSERT INTO marks VALUES ('turn/11', 5), ('turn/12', 5), ('turn/4500', 5)"
    server.sql(there, database=database)
    server.sql(
        "INSERT INTO replicas (id, owner, spans) VALUES (12, 'of whom something is left', 7)",
        database=database,
    )
    server.sql("UPDATE positions SET replicas = 5000", database=database)
    asyncio.run(main())
    names = {
        name for (name,) in server.sql("SELECT name FROM marks WHERE name LIKE 'turn/%'", database=database)
    }
    assert names - {"turn/5001"} == {"turn/12", "turn/4500"}


def test_a_connection_whose_server_said_that_it_ends_is_the_stores_fault_and_another_is_taken(
    server: Postgres, database: str
) -> None:
    async def main() -> None:
        wire = Wire(server.port, forward=True, after=b"nothing that is ever said")
        async with wire as port, opened(f"postgresql://broker@127.0.0.1:{port}/{database}") as (store,):
            await store.commit(commit_of(first_write("h-1")))
            assert await store.load_handoff("h-1") is not None
            await wire.end(port)
            for act in (store.load_handoff("h-1"), store.commit(commit_of(first_write("h-2")))):
                with pytest.raises(StoreUnavailable):
                    await act
            wire.cut()
            assert await soon(lambda: _there(store, "h-1"))
            assert await soon(lambda: _stored(store, "h-3"))

    async def _there(store: PostgresStore, handoff_id: str) -> bool:
        try:
            return await store.load_handoff(handoff_id) is not None
        except StoreUnavailable:
            return False

    async def _stored(store: PostgresStore, handoff_id: str) -> bool:
        try:
            return bool((await store.commit(commit_of(first_write(handoff_id)))).recorded)
        except StoreUnavailable:
            return False

    asyncio.run(main())


def test_work_that_was_claimed_for_callers_who_gave_up_in_doubt_is_free_again(
    server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_handoff.stores.postgres_writer.DOUBT_S", 0.0)

    async def main() -> None:
        wire = Wire(server.port, forward=True, after=b"HandoffRequested")
        async with wire as port, opened(f"postgresql://broker@127.0.0.1:{port}/{database}") as (store,):
            with pytest.raises(StoreUnavailable, match="whether the last writes are stored will be seen"):
                await store.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
            works = await soon(lambda: claimed(store))
            assert [work.key.handoff_id for work in works] == ["h-1"]

    async def claimed(store: PostgresStore) -> list[Any]:
        try:
            return list(await store.claim_work(now=NOW, limit=5))
        except StoreUnavailable:
            return []

    asyncio.run(main())


def test_a_transaction_that_holds_everybody_up_is_reported_and_others_go_on_after_it(
    server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "lock_timeout", "100ms")

    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            holder: Any = await asyncpg.connect(server.url(database))
            await holder.execute("BEGIN; SELECT FROM positions FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="is held by a transaction of another program"):
                await store.commit(commit_of(first_write("h-1")))
            await holder.close()
            await store.commit(commit_of(first_write("h-1")))

    asyncio.run(main())


def test_a_broker_that_freezes_within_a_transaction_loses_its_turn(
    server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "idle_in_transaction_session_timeout", "100ms")

    async def main() -> None:
        async with opened(server.url(database), 2) as (frozen, other):
            assert frozen._writer is not None
            await frozen._writer._session.run("BEGIN; SELECT FROM positions FOR UPDATE")
            async with asyncio.timeout(WAIT_S):
                await other.commit(commit_of(first_write("h-1")))

    asyncio.run(main())


def test_c073_readers_share_few_connections_and_read_while_the_writer_waits(
    server: Postgres, database: str
) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a2a-handoff' AND datname = $1"

    async def main() -> None:
        async with opened(server.url(database)) as (store,):
            write = first_write("h-1", offered_event())
            await store.commit(commit_of(write))
            holder: Any = await asyncpg.connect(server.url(database))
            await holder.execute("BEGIN; SELECT FROM positions FOR UPDATE")
            end = store.commit(commit_of(next_write(write.handoff, completed_event())))
            found = await asyncio.gather(*[store.load_handoff("h-1") for _ in range(200)])
            assert found == [write.handoff] * 200
            assert not end.done()
            assert await holder.fetchval(count, database) <= 1 + postgres.READERS
            await holder.close()
            await end

    asyncio.run(main())


# --- plans ---------------------------------------------------------------------------------------

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
