"""What is particular to the store on PostgreSQL: group commit, and several writers."""

from __future__ import annotations

import asyncio
from functools import reduce
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest
from msgspec.structs import replace as changed

from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.ports import (
    ChainTaken,
    Committed,
    DuplicateRequest,
    RequestKey,
    VersionConflict,
)
from a2a_handoff.stores import postgres_work as work_table
from a2a_handoff.stores.migrations import scripts
from a2a_handoff.stores.postgres import PostgresStore
from tests.stores.on_postgres import DELIVER, WAIT_S, opened, soon, whole_log
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
from tests.support.postgres import Postgres, postgres_server


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
