"""What a store says of itself: work that is late, who waits for a connection, writes that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from a2a_handoff.core.events import Schedule, WorkKind
from a2a_handoff.ports import Late, Store, Usage, WorkKey
from a2a_handoff.stores import SqliteStore
from a2a_handoff.stores.postgres import READERS, PostgresStore
from a2a_handoff.stores.usage import Line
from tests.stores.conftest import LEASE_S, Disk
from tests.support.builders import NOW, commit_of, first_write
from tests.support.running import WAIT_S

durable = pytest.mark.parametrize("disk", ["sqlite", "postgres"], indirect=True)


def test_late_is_what_could_be_claimed_and_is_not(disk: Disk) -> None:
    """``DELIVER`` is claimed by the commit, and then not kept; the timers are nobody's."""
    works = (
        Schedule(kind=WorkKind.DELIVER, due_at=NOW, attempt=1),
        Schedule(kind=WorkKind.DEADLINE, due_at=NOW + 7),
        Schedule(kind=WorkKind.WAIT_OVER, due_at=NOW + 5),
    )

    async def body(store: Store) -> None:
        assert await store.late(now=NOW + 100) == {}
        await store.commit(commit_of(first_write("h-1", actions=works)))
        assert await store.late(now=NOW + 4) == {}
        assert await store.late(now=NOW + 6) == {Late.DUE: (1, NOW + 5)}
        lapsed = {Late.DUE: (2, NOW + 5), Late.LAPSED: (1, NOW + LEASE_S)}
        assert await store.late(now=NOW + LEASE_S) == lapsed
        await store.renew_leases(now=NOW + 10)
        assert await store.late(now=NOW + LEASE_S) == {Late.DUE: (2, NOW + 5)}
        await store.claim_work(now=NOW + 6, limit=10)
        assert await store.late(now=NOW + 8) == {Late.DUE: (1, NOW + 7)}
        key = WorkKey(handoff_id="h-1", kind=WorkKind.DEADLINE)
        await store.commit(commit_of(settled=(key,), now=NOW + 8))
        assert await store.late(now=NOW + 8) == {}

    disk.run(body)


async def until(store: Store, fits: Callable[[Usage], bool]) -> Usage:
    async with asyncio.timeout(WAIT_S):
        while not fits(usage := store.usage()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    return usage


@durable
def test_reads_that_find_no_connection_wait_and_their_time_is_counted(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert isinstance(store, SqliteStore | PostgresStore)
        go = threading.Event()

        async def occupy() -> None:
            if isinstance(store, SqliteStore):
                await store._read(lambda _: go.wait(WAIT_S))
            else:
                async with store._server.reading():
                    await asyncio.to_thread(go.wait, WAIT_S)

        fresh = store.usage()
        assert (fresh.limit, fresh.used, fresh.reads_waiting, fresh.read_wait_s) == (READERS, 0, 0, 0.0)
        busy = [asyncio.create_task(occupy()) for _ in range(READERS)]
        await until(store, lambda usage: usage.used == READERS)
        waiting = [asyncio.create_task(store.load_handoff("h-1")) for _ in range(3)]
        usage = await until(store, lambda usage: usage.reads_waiting == 3)
        assert usage.idle == 0
        waiting.pop().cancel()
        await until(store, lambda usage: usage.reads_waiting == 2)
        go.set()
        await asyncio.gather(*busy, *waiting)
        usage = await until(store, lambda usage: usage.used == 0)
        assert (usage.idle, usage.reads_waiting) == (READERS, 0)
        assert usage.read_wait_s > 0

    disk.run(body)


@durable
def test_writes_wait_from_the_call_until_they_are_durable(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert (store.usage().writes_waiting, store.usage().oldest_write_s) == (0, 0.0)
        writes = [store.commit(commit_of(first_write(f"h-{number}"))) for number in range(5)]
        # Nobody has had a turn since: not even one that is written already has its answer.
        usage = store.usage()
        assert usage.writes_waiting == 5
        assert usage.oldest_write_s > 0
        await asyncio.gather(*writes)
        usage = store.usage()
        assert (usage.writes_waiting, usage.oldest_write_s) == (0, 0.0)

    disk.run(body)


@durable
def test_a_store_that_is_closed_is_used_by_nobody(disk: Disk) -> None:
    async def main() -> None:
        store = disk.store()
        assert store.usage() == Usage(limit=READERS)
        await store.open()
        await store.load_handoff("h-1")
        await store.close()
        usage = store.usage()
        assert (usage.used, usage.idle, usage.reads_waiting, usage.writes_waiting) == (0, 0, 0, 0)

    asyncio.run(main())


def test_who_is_refused_leaves_the_line_from_its_end() -> None:
    line = Line()
    for _ in range(3):
        line.join()
    first = line.oldest_s
    line.refuse(2)
    assert (len(line), line.oldest_s >= first) == (1, True)
    line.leave(1)
    assert (len(line), line.oldest_s) == (0, 0.0)
