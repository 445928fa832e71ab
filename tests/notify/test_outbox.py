"""Where the outbox goes on from, and which of several publishes: on a stream in memory that can be spoilt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from a2a_handoff.feed import LOG_TOPIC, Feed
from a2a_handoff.journal import Journal
from a2a_handoff.outbox import EVENTS_MARK, Outbox
from a2a_handoff.ports import Appended, Entry, StreamEnd, StreamUnavailable
from tests.inbox.world import World

WAIT_S = 10.0


class MemoryStream:
    """``ports.EventStream`` as a list. ``shut`` refuses everything."""

    body_max = 1 << 20

    def __init__(self) -> None:
        self.kept: list[tuple[int, Entry]] = []
        self.sequence = 0
        self.shut = False
        self.looks = 0

    async def end(self) -> StreamEnd:
        await asyncio.sleep(0)
        self.looks += 1
        if self.shut:
            raise StreamUnavailable("shut")
        if not self.kept:
            return StreamEnd(sequence=self.sequence)
        at, last = self.kept[-1]
        return StreamEnd(
            sequence=self.sequence, log=last.log, position=last.position, whole=at == self.sequence
        )

    async def append(self, entries: Sequence[Entry], *, after: int) -> Appended:
        await asyncio.sleep(0)
        if self.shut:
            raise StreamUnavailable("shut")
        if after != self.sequence:
            return Appended(taken=0, sequence=after)
        for entry in entries:
            self.sequence += 1
            self.kept.append((self.sequence, entry))
        return Appended(taken=len(entries), sequence=self.sequence)

    @property
    def positions(self) -> list[int]:
        return [entry.position for _, entry in self.kept]


@asynccontextmanager
async def _outbox(world: World, stream: MemoryStream, *, log: str = "1") -> AsyncGenerator[Outbox]:
    outbox = Outbox(
        store=world.store,
        journal=Journal(store=world.store, feed=Feed(), notifier=world.notifier),
        registry=world.registry,
        notifier=world.notifier,
        stream=stream,
        clock=world.clock,
        tenant="default",
        trace_url=lambda _trace_id: "",
        standby_s=0.05,
    )
    await outbox.open(log)
    outbox.start()
    try:
        yield outbox
    finally:
        await outbox.stop()


async def _write(world: World, *names: str) -> None:
    """Two events for each name."""
    for name in names:
        await world.offer(name)
    world.notifier.publish(LOG_TOPIC)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what it waits for tells nobody
            await asyncio.sleep(0.005)


def _play(scene: Callable[[World, MemoryStream], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scene(await World().open(), MemoryStream())

    asyncio.run(asyncio.wait_for(whole(), 3 * WAIT_S))


def test_of_several_one_publishes_and_another_goes_on_when_that_one_stops() -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream) as other, _outbox(world, stream) as one:
            await _write(world, "a", "b")
            await _until(lambda: len(stream.kept) == 4)
            first, second = (one, other) if one.published else (other, one)
            assert second.published == 0
            await _write(world, "c")
            await _until(lambda: first.published == 6)
            await first.stop()
            await _write(world, "d")
            await _until(lambda: len(stream.kept) == 8)
            assert second.published == 2
        assert stream.positions == [1, 2, 3, 4, 5, 6, 7, 8]

    _play(scene)


def test_who_stands_by_leaves_alone_what_another_one_keeps_up() -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream) as one, _outbox(world, stream) as other:
            for number in range(20):
                await _write(world, f"h-{number}")
                looks = stream.looks
                await _until(lambda looks=looks: stream.looks > looks + 1)
            await _until(lambda: len(stream.kept) == 40)
            assert sorted((one.published, other.published)) == [0, 40]

    _play(scene)


def test_what_the_log_has_when_a_broker_stops_is_told_before_it_ends() -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream):
            await _write(world, "a")
            await _until(lambda: len(stream.kept) == 2)
            await _write(world, "b", "c")
        assert stream.positions == [1, 2, 3, 4, 5, 6]
        looks = stream.looks
        async with _outbox(world, stream):
            await _until(lambda: stream.looks > looks)
            stream.shut = True  # nobody waits for a stream that takes nothing
            await _write(world, "d")
        assert len(stream.kept) == 6

    _play(scene)


def test_what_could_not_be_told_is_told_later_and_its_age_is_known() -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream) as outbox:
            await _write(world, "a")
            await _until(lambda: len(stream.kept) == 2)
            stream.shut = True
            await _write(world, "b")
            world.clock.ahead = 30.0
            await _until(lambda: outbox.trouble)
            assert outbox.trouble == "shut"
            assert outbox.lag_s == pytest.approx(30.0, abs=1.0)
            stream.shut = False
            await _until(lambda: len(stream.kept) == 4 and not outbox.trouble)
            await _until(lambda: outbox.lag_s == 0)

    _play(scene)


def test_where_the_end_of_the_stream_was_removed_the_mark_says_where_to_go_on() -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream):
            await _write(world, "a")
            await _until(lambda: len(stream.kept) == 2)
        await world.store.set_mark(EVENTS_MARK, 2)
        stream.kept.pop()
        async with _outbox(world, stream):
            await _write(world, "b")
            await _until(lambda: len(stream.kept) == 3)
        assert stream.positions == [1, 3, 4]

    _play(scene)


def test_what_the_stream_lost_is_told_again() -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream):
            await _write(world, "a", "b")
            await _until(lambda: len(stream.kept) == 4)
        await world.store.set_mark(EVENTS_MARK, 4)
        del stream.kept[2:]
        stream.sequence = 2  # as after a crash of its machine: it does not know that there was more
        async with _outbox(world, stream):
            await _until(lambda: len(stream.kept) == 4)
        assert stream.positions == [1, 2, 3, 4]

    _play(scene)


def test_a_store_from_an_older_copy_goes_on_telling(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream):
            await _write(world, "a", "b", "c")
            await _until(lambda: len(stream.kept) == 6)
        older = await World().open()
        await _write(older, "a")
        await older.store.set_mark(EVENTS_MARK, 2)
        async with _outbox(older, stream):
            await _write(older, "new")
            await _until(lambda: len(stream.kept) == 8)
        assert stream.positions[-2:] == [3, 4]

    with caplog.at_level(logging.WARNING, "a2a_handoff.outbox"):
        _play(scene)
    assert "is the store an older copy?" in caplog.text


def test_the_end_of_another_log_says_nothing_about_this_one() -> None:
    async def scene(world: World, stream: MemoryStream) -> None:
        async with _outbox(world, stream, log="1"):
            await _write(world, "a", "b")
            await _until(lambda: len(stream.kept) == 4)
        fresh = await World().open()
        async with _outbox(fresh, stream, log="2"):
            await _write(fresh, "x")
            await _until(lambda: len(stream.kept) == 6)
        assert stream.positions == [1, 2, 3, 4, 1, 2]

    _play(scene)
