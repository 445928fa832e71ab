"""A store on PostgreSQL whose server, or the way to it, fails."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest
from msgspec.structs import replace as changed

from a2a_handoff.ports import (
    StoreUnavailable,
)
from a2a_handoff.stores import (
    postgres,
    postgres_replicas,
)
from a2a_handoff.stores.postgres import PostgresStore
from a2a_handoff.stores.postgres_server import SETTINGS
from tests.stores.on_postgres import DELIVER, WAIT_S, opened, soon
from tests.support.builders import (
    NOW,
    commit_of,
    completed_event,
    first_write,
    next_write,
    offered_event,
)
from tests.support.postgres import Postgres, Wire


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
