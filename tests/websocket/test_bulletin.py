"""Following the log as a workspace and as an agent: at one's own pace, without a gap."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from a2a_handoff import bulletin
from a2a_handoff.bulletin import Reading
from tests.support.puller import hand_off
from tests.support.running import WAIT_S, Broker


async def _read(reading: Reading, count: int) -> list[Any]:
    """The next frames, one after the other as a socket takes them."""
    found: list[Any] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            for item in await reading.next():
                reading.position = item.position
                found.append(json.loads(item.body))
    return found


def _created(b: Broker, count: int) -> list[str]:
    return [hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"] for _ in range(count)]


def test_who_falls_behind_what_is_kept_reads_the_log_and_misses_nothing(
    b: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulletin, "KEPT_MAX", 5)
    b.register("cursor")
    held = AsyncExitStack()
    follow = b.app._sockets.bulletin.follow("default", "other", workspace="default", after=None)
    reading, beyond = b.loop.run(held.enter_async_context(follow))
    assert not beyond
    made = _created(b, 30)
    frames = b.loop.run(_read(reading, 60))
    assert [f["data"]["handoffId"] for f in frames if f["event"] == "handoff:created"] == made
    assert [f["data"]["handoffId"] for f in frames if f["event"] == "handoff:offered"] == made
    positions = [f["position"] for f in frames]
    assert positions == sorted(set(positions))
    more = _created(b, 1)
    assert {f["data"]["handoffId"] for f in b.loop.run(_read(reading, 2))} == set(more)
    b.loop.run(held.aclose())
    assert not b.app._sockets.bulletin._chores


def test_an_event_of_the_log_comes_with_its_handoff_as_it_is_then_or_later(b: Broker) -> None:
    """Though the log has it before this process has heard of it: a result was told as none."""
    b.register("cursor", platform="x")
    (made,) = _created(b, 1)
    feed, journal = b.app.service.journal._feed, b.app.service.journal
    before = feed.state(made)
    assert before is not None
    for verb, more in (("accept", {}), ("complete", {"result": "fine"})):
        said = {"agent_id": "cursor"} | more
        assert b.http.post(f"/api/handoffs/{made}/{verb}", json=said).is_success
    b.loop.loop.call_soon_threadsafe(feed._states.__setitem__, made, before)
    page = [(recorded.seq, handoff) for recorded, handoff in b.loop.run(journal.page(0))]
    assert [seq for seq, handoff in page if handoff.version < seq] == []
    assert page[-1][1].state.value == "completed"


def test_who_was_away_for_too_long_is_told_so_and_goes_on_from_now(
    b: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulletin, "BEHIND_MAX", 10)
    b.register("cursor")
    _created(b, 10)

    async def begun(after: int) -> tuple[int, bool]:
        async with b.app._sockets.bulletin.follow("default", "x", workspace=None, after=after) as (
            reading,
            beyond,
        ):
            return reading.position, beyond

    end = b.loop.run(b.app.store.log_end())
    assert b.loop.run(begun(end - 10)) == (end - 10, False)
    for lost in (0, end - 11, end + 1):
        assert b.loop.run(begun(lost)) == (end, True)


def test_who_is_told_nothing_still_moves_on(b: Broker) -> None:
    """So the cursor of an agent that only gets offers does not fall back further and further."""
    b.register("cursor")

    async def moved() -> int:
        async with b.app._sockets.bulletin.follow("default", "x", workspace=None, after=None) as (reading, _):
            await asyncio.to_thread(_created, b, 3)
            end = await b.app.store.log_end()
            async with asyncio.timeout(WAIT_S):
                while b.app._sockets.bulletin.position < end:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.005)
            reading.settle()
            return reading.position - end

    assert b.loop.run(moved()) == 0
