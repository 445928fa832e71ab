"""The inbox of an agent that fetches its work: order, waiting, cursors, sharing."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness, Role
from a2a_handoff.core.context import Priority
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.inbox import HOLD_S, SHOWN_MAX
from a2a_handoff.ports import USUAL_SCOPES, Principal
from a2a_handoff.wire.cursor import read_cursor, written
from tests.inbox.world import ANYBODY, World, bounded, offer_of, run, settle
from tests.support.builders import NOW, acknowledged_event

# --- order ---------------------------------------------------------------------------------------


def test_an_inbox_is_ordered_by_priority_and_then_by_age() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        await world.offer("low", priority=Priority.LOW, at=NOW)
        await world.offer("second", at=NOW + 2)
        await world.offer("first", at=NOW + 1)
        await world.offer("urgent", priority=Priority.URGENT, at=NOW + 4)
        await world.offer("high", priority=Priority.HIGH, at=NOW + 3)
        offers = await world.inbox.pending(ANYBODY, "cursor")
        assert [offer.id for offer in offers] == ["urgent", "high", "first", "second", "low"]
        assert offer_of(await world.watch()) == "urgent"

    run(body)


def test_an_inbox_holds_what_is_open_for_its_owner_and_nothing_else() -> None:
    async def body(world: World) -> None:
        await world.register("cursor", "cowork")
        offered = await world.offer("taken")
        await world.write(offered, acknowledged_event("cursor"))
        lapsed = await world.offer("lapsed")
        await world.write(
            lapsed, ev.AttemptEnded(at=NOW, attempt=1, agent_id="cursor", outcome=Outcome.TIMEOUT)
        )
        await world.offer("of another", to="cowork")
        assert await world.inbox.pending(ANYBODY, "cursor") == []
        assert offer_of(await world.watch()) == ""

    run(body)


def test_an_inbox_of_more_than_a_page_is_ordered_as_a_whole() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        await world.offer("the first", at=NOW - 1)
        for number in range(510):
            await world.offer(f"h-{number}", at=NOW + number)
        assert offer_of(await world.watch()) == "the first"
        assert len(await world.inbox.pending(ANYBODY, "cursor")) == 511

    run(body)


def test_a_person_has_an_inbox_like_any_agent() -> None:
    async def body(world: World) -> None:
        await world.register("anna", role=Role.HUMAN)
        await world.offer("h-1", to="anna", readiness=Readiness.PERSON)
        assert offer_of(await world.watch("anna")) == "h-1"

    run(body)


def test_an_offer_that_is_sent_to_an_address_is_listed_and_not_fetched() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        await world.offer("h-1", readiness=Readiness.PROBE)
        assert offer_of(await world.watch()) == ""
        assert [offer.id for offer in await world.inbox.pending(ANYBODY, "cursor")] == ["h-1"]

    run(body)


# --- waiting -------------------------------------------------------------------------------------


def test_a_watch_comes_back_as_soon_as_an_offer_comes() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        watch = world.watching()
        await settle()
        assert not watch.done()
        await world.offer("h-1")
        found = await bounded(watch)
        assert offer_of(found) == "h-1"
        assert not found.resync

    run(body)


def test_an_offer_between_the_look_and_the_wait_is_not_missed() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        for turns in range(12):
            watch = world.watching()
            for _ in range(turns):
                await asyncio.sleep(0)
            offered = await world.offer(f"h-{turns}")
            assert offer_of(await bounded(watch)) == f"h-{turns}"
            await world.write(offered, acknowledged_event("cursor"))

    run(body)


def test_an_offer_stays_until_it_is_accepted() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        offered = await world.offer("h-1")
        watch = world.watching()
        await settle()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert offer_of(await world.watch()) == "h-1"
        assert offer_of(await world.watch()) == "h-1"
        await world.write(offered, acknowledged_event("cursor"))
        assert offer_of(await world.watch()) == ""

    run(body)


def test_a_watch_without_an_offer_ends_with_nothing() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        found = await world.watch(timeout_s=0.01)
        assert (found.offer, found.broadcasts, found.resync) == (None, (), False)

    run(body)


def test_who_waits_is_let_go_when_the_broker_stops() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        watch = world.watching()
        await settle()
        world.inbox.closing = True
        world.notifier.wake_all()
        assert offer_of(await bounded(watch)) == ""

    run(body)


def test_an_agent_is_present_as_long_as_it_watches() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        watch = world.watching()
        await settle()
        world.clock.ahead += 1_000
        view = world.registry.view("default", "cursor")
        assert view is not None
        assert view.present
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        world.clock.ahead += 21
        view = world.registry.view("default", "cursor")
        assert view is not None
        assert not view.present

    run(body)


def test_of_an_agent_that_was_removed_while_it_watched_nothing_is_left_and_a_new_one_is_present() -> None:
    async def body(world: World) -> None:
        for anew in (True, False):
            await world.register("cursor")
            watch = world.watching()
            await settle()
            await world.registry.deregister(ANYBODY, "cursor")
            if anew:
                await world.register("cursor")
                world.clock.ahead += 1_000
                view = world.registry.view("default", "cursor")
                assert view is not None
                assert view.present
                await world.registry.deregister(ANYBODY, "cursor")
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            assert not world.registry.presence._vitals

    run(body)


def test_an_agent_that_nobody_registered_cannot_wait() -> None:
    async def body(world: World) -> None:
        with pytest.raises(HandoffError) as caught:
            await world.watch("nobody")
        assert caught.value.code is Code.AGENT_NOT_FOUND
        assert "POST /api/agents" in caught.value.message
        assert await world.inbox.pending(ANYBODY, "nobody") == []

    run(body)


def test_the_inbox_of_another_does_not_exist() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        await world.offer("h-1")
        stranger = Principal(name="cowork", scopes=USUAL_SCOPES, authenticated=True)
        for look in (
            lambda: world.watch(by=stranger),
            lambda: world.inbox.pending(stranger, "cursor"),
        ):
            with pytest.raises(HandoffError) as caught:
                await look()
            assert caught.value.code is Code.AGENT_NOT_FOUND
        owner = Principal(name="Cursor", scopes=USUAL_SCOPES, authenticated=True)
        assert offer_of(await world.watch(by=owner)) == "h-1"

    run(body)


# --- cursors -------------------------------------------------------------------------------------


def test_with_a_cursor_each_offer_is_shown_once_the_most_urgent_first() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        await world.offer("low", priority=Priority.LOW)
        await world.offer("high", priority=Priority.HIGH)
        first = await world.watch()
        await world.offer("urgent", priority=Priority.URGENT)
        second = await world.watch(after=first.cursor)
        third = await world.watch(after=second.cursor)
        assert [offer_of(found) for found in (first, second, third)] == ["high", "urgent", "low"]
        assert offer_of(await world.watch(after=third.cursor)) == ""

    run(body)


def test_an_empty_answer_gives_the_same_cursor_and_a_repeat_the_same_answer() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        empty = await world.watch()
        assert (await world.watch(after=empty.cursor)).cursor == empty.cursor
        await world.offer("h-1")
        await world.offer("h-2", at=NOW + 1)
        first = await world.watch(after=empty.cursor)
        assert await world.watch(after=empty.cursor) == first
        second = await world.watch(after=first.cursor)
        assert await world.watch(after=first.cursor) == second
        assert (offer_of(first), offer_of(second)) == ("h-1", "h-2")
        assert (await world.watch(after=second.cursor)).cursor == second.cursor

    run(body)


def test_an_offer_that_is_announced_again_is_shown_again() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        offered = await world.offer("h-1")
        first = await world.watch()
        watch = world.watching(after=first.cursor)
        await settle()
        again = ev.RedeliveryScheduled(
            at=NOW, attempt=1, delivery=2, outcome=Outcome.TIMEOUT, detail="", due_at=NOW + 30
        )
        await world.write(offered, again)
        found = await bounded(watch)
        assert offer_of(found) == "h-1"
        assert found.cursor != first.cursor

    run(body)


def test_a_cursor_that_means_nothing_here_is_answered_at_once_with_one_that_does() -> None:
    async def other_store() -> str:
        world = await World().open()
        await world.register("cursor")
        cursor = (await world.watch()).cursor
        await world.registry.close()
        return cursor

    async def body(world: World) -> None:
        await world.register("cursor", "cowork")
        foreign = (await world.watch("cowork")).cursor
        for cursor in (foreign, await other_store()):
            found = await bounded(world.watching(after=cursor))
            assert found.resync
            assert offer_of(found) == ""
            assert not (await world.watch(after=found.cursor)).resync
        await world.offer("h-1")
        found = await bounded(world.watching(after=foreign))
        assert (found.resync, offer_of(found)) == (True, "h-1")

    run(body)


@pytest.mark.parametrize("name", ["epoch", "owner", "position", "log"])
def test_a_cursor_with_a_number_that_no_store_can_hold_is_refused(name: str) -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        given = read_cursor((await world.watch(broadcasts=True)).cursor)
        await world.watch(after=written(replace(given, **{name: 2**63 - 1})), broadcasts=True)
        with pytest.raises(HandoffError) as caught:
            await world.watch(after=written(replace(given, **{name: 2**63})), broadcasts=True)
        assert caught.value.code is Code.INVALID_PARAMS

    run(body)


@pytest.mark.parametrize("cursor", ["999999", "-1", "abc", "0", "%%%", "é", "x" * 5_000, "lAEC", "gA"])
def test_what_is_no_cursor_is_refused_at_its_place(cursor: str) -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        with pytest.raises(HandoffError) as caught:
            await world.watch(after=cursor)
        assert caught.value.code is Code.INVALID_PARAMS
        assert [violation.field for violation in caught.value.violations] == ["after"]

    run(body)


def test_a_cursor_outlives_a_restart() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        await world.offer("h-1")
        first = await world.watch()
        again = await World(data=world.data).open()
        found = await again.watch(after=first.cursor)
        assert (found.resync, offer_of(found), found.cursor) == (False, "", first.cursor)
        assert offer_of(await again.watch()) == "h-1"
        await again.registry.close()

    run(body)


def test_a_cursor_stays_small_who_accepts_nothing_is_shown_the_first_again() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        for number in range(SHOWN_MAX + 6):
            await world.offer(f"h-{number:03}", at=NOW + number)
        cursor, seen = "", list[str]()
        for _ in range(SHOWN_MAX + 7):
            found = await world.watch(after=cursor)
            cursor = found.cursor
            seen.append(offer_of(found))
        assert seen[: SHOWN_MAX + 2] == [*(f"h-{n:03}" for n in range(SHOWN_MAX + 1)), "h-000"]
        assert len(cursor) < 1_000

    run(body)


# --- several that wait for one agent -------------------------------------------------------------


def test_of_two_that_wait_one_is_shown_an_offer_and_the_other_the_next() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        watches = [world.watching(), world.watching()]
        await settle()
        await world.offer("h-1")
        await settle()
        assert sorted(watch.done() for watch in watches) == [False, True]
        await world.offer("h-2", at=NOW + 1)
        found = [offer_of(await bounded(watch)) for watch in watches]
        assert sorted(found) == ["h-1", "h-2"]

    run(body)


def test_two_that_come_at_once_share_what_is_there() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        await world.offer("h-1")
        await world.offer("h-2", at=NOW + 1)
        found = await bounded(asyncio.gather(world.watching(), world.watching()))
        assert sorted(map(offer_of, found)) == ["h-1", "h-2"]

    run(body)


def test_an_offer_that_was_shown_and_not_accepted_goes_to_the_other_as_well() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        watches = [world.watching(), world.watching()]
        await settle()
        await world.offer("h-1")
        await settle()
        world.clock.ahead += HOLD_S
        world.notifier.wake_all()
        assert [offer_of(await bounded(watch)) for watch in watches] == ["h-1", "h-1"]

    run(body)


def test_whoever_waited_in_vain_is_shown_what_another_did_not_accept() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        long = world.watching()
        short = asyncio.create_task(world.inbox.watch(ANYBODY, "cursor", timeout_s=0.2))
        await settle()
        await world.offer("h-1")
        assert [offer_of(await bounded(watch)) for watch in (long, short)] == ["h-1", "h-1"]

    run(body)


def test_who_comes_back_is_shown_the_offer_at_once_whoever_else_waits() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        watches = [world.watching(), world.watching()]
        await settle()
        await world.offer("h-1")
        await settle()
        assert offer_of(await world.watch()) == "h-1"
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    run(body)
