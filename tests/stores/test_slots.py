"""Slots of agents that take so many tasks at a time; each test runs on all stores."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from a2a_handoff.core import events as ev
from a2a_handoff.core.events import Event, Outcome, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import Commit, Committed, Slot, SlotConflict, Store, VersionConflict
from tests.stores.conftest import Disk
from tests.support.builders import (
    NOW,
    acknowledged_event,
    commit_of,
    completed_event,
    first_write,
    next_write,
    offered_event,
)


def slot(agent_id: str = "billing", limit: int = 1, tenant: str = "default") -> Slot:
    return Slot(tenant=tenant, agent_id=agent_id, limit=limit)


def offer(number: int, *slots: Slot, agent_id: str = "billing", tenant: str = "default") -> Commit:
    """A new handoff that is offered to an agent, which needs a slot."""
    write = first_write(f"h-{number}", offered_event(agent_id), tenant=tenant)
    return commit_of(write, slots=slots or (slot(agent_id, tenant=tenant),))


async def full(store: Store, commit: Commit) -> set[str]:
    """Who is full, if that is why a commit is refused."""
    try:
        await store.commit(commit)
    except SlotConflict as refusal:
        return set(refusal.full)
    return set()


def test_an_offer_beyond_the_limit_is_refused_and_leaves_no_trace(disk: Disk) -> None:
    async def body(store: Store) -> None:
        for number in range(3):
            await store.commit(offer(number, slot(limit=3)))
        before = await store.read_log()
        with pytest.raises(SlotConflict) as refusal:
            await store.commit(offer(4, slot(limit=3)))
        assert refusal.value.full == {"billing"}
        assert await store.load_handoff("h-4") is None
        assert await store.read_log() == before
        assert await full(store, offer(4, slot(limit=4))) == set()

    disk.run(body)


def test_slots_are_taken_after_a_restart_as_before(disk: Disk) -> None:
    async def taking(store: Store) -> None:
        await store.commit(offer(1))

    async def asking(store: Store) -> None:
        assert await full(store, offer(2)) == {"billing"}

    disk.run(taking, asking)


def test_of_offers_that_come_together_as_many_are_taken_as_there_are_slots(disk: Disk) -> None:
    async def body(store: Store) -> None:
        commits = [store.commit(offer(number, slot(limit=2))) for number in range(6)]
        answers = await asyncio.gather(*commits, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Committed] * 2 + [SlotConflict] * 4
        assert await store.in_flight() == {("default", "billing"): 2}

    disk.run(body)


def test_a_slot_that_one_commit_frees_is_there_for_the_next_one(disk: Disk) -> None:
    async def body(store: Store) -> None:
        first = offer(1)
        await store.commit(first)
        h = first.writes[0].handoff
        done = store.commit(commit_of(next_write(h, acknowledged_event(), completed_event())))
        second, third = store.commit(offer(2)), store.commit(offer(3))
        answers = await asyncio.gather(done, second, third, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Committed, Committed, SlotConflict]

    disk.run(body)


ENDED = ev.AttemptEnded(at=NOW, attempt=1, agent_id="billing", outcome=Outcome.TARGET_REJECTED)
PARTINGS: dict[str, tuple[Event, ...]] = {
    "completed": (acknowledged_event(), completed_event()),
    "declined": (ENDED,),
    "moved on": (ENDED, offered_event("legal", attempt=2)),
    "handed on": (acknowledged_event(), ev.HandedOff(at=NOW, child_id="h-9")),
    "expired": (ev.HandoffExpired(at=NOW, detail="the deadline passed"),),
    "canceled": (ev.HandoffCanceled(at=NOW, confirmed=True),),
}


@pytest.mark.parametrize("parting", PARTINGS)
def test_a_handoff_that_is_the_agents_no_more_frees_its_slot(disk: Disk, parting: str) -> None:
    async def body(store: Store) -> None:
        first = offer(1)
        await store.commit(first)
        assert await full(store, offer(2)) == {"billing"}
        await store.commit(commit_of(next_write(first.writes[0].handoff, *PARTINGS[parting])))
        assert await full(store, offer(2)) == set()
        assert await full(store, offer(3)) == {"billing"}

    disk.run(body)


STAYS: dict[State, tuple[Event, ...]] = {
    State.OFFERED: (),
    State.ACKNOWLEDGED: (acknowledged_event(),),
    State.INPUT_REQUIRED: (
        acknowledged_event(),
        ev.CallerAsked(at=NOW, attempt=1, auth=False, message=b"{}"),
    ),
    State.AUTH_REQUIRED: (acknowledged_event(), ev.CallerAsked(at=NOW, attempt=1, auth=True, message=b"{}")),
    State.ESCALATED: (
        ENDED,
        ev.HandoffEscalated(at=NOW, outcome=Outcome.TARGET_REJECTED, detail=""),
        offered_event("billing", attempt=2),
    ),
}


@pytest.mark.parametrize("state", STAYS)
def test_an_open_handoff_takes_a_slot_in_every_state(disk: Disk, state: State) -> None:
    write = first_write("h-1", offered_event(), *STAYS[state])
    assert write.handoff.state is state

    async def body(store: Store) -> None:
        await store.commit(commit_of(write))
        assert await full(store, offer(2)) == {"billing"}

    disk.run(body)


def test_the_limit_is_that_of_the_offer(disk: Disk) -> None:
    async def body(store: Store) -> None:
        for number in range(3):
            await store.commit(offer(number, slot(limit=3)))
        assert await full(store, offer(4, slot(limit=2))) == {"billing"}
        assert await full(store, offer(4, slot(limit=5))) == set()

    disk.run(body)


def test_an_offer_that_asks_for_no_slot_is_taken_and_takes_one(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(offer(1))
        await store.commit(replace(offer(2), slots=()))
        assert await store.in_flight() == {("default", "billing"): 2}
        assert await full(store, offer(3, slot(limit=2))) == {"billing"}

    disk.run(body)


def test_slots_are_those_of_one_agent_of_one_tenant(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(offer(1))
        assert await full(store, offer(2, tenant="other")) == set()
        assert await full(store, offer(3, agent_id="legal")) == set()
        assert await full(store, offer(4, agent_id="Billing")) == set()

    disk.run(body)


def test_a_refusal_says_who_else_is_full_and_only_the_first_is_a_reason(disk: Disk) -> None:
    async def body(store: Store) -> None:
        for number, agent_id in enumerate(("billing", "legal")):
            await store.commit(offer(number, agent_id=agent_id))
        asked = (slot("billing"), slot("legal"), slot("tax"))
        assert await full(store, offer(5, *asked)) == {"billing", "legal"}
        assert await full(store, offer(5, slot("tax"), slot("legal"), agent_id="tax")) == set()

    disk.run(body)


def test_an_offer_beyond_all_limits_is_refused_if_somebody_has_a_slot(disk: Disk) -> None:
    asked = (slot("billing"), slot("legal"))

    async def body(store: Store) -> None:
        await store.commit(offer(1, agent_id="billing"))
        assert await full(store, replace(offer(2, *asked), beyond=True)) == {"billing"}
        assert await store.load_handoff("h-2") is None
        await store.commit(offer(3, agent_id="legal"))
        await store.commit(replace(offer(2, *asked), beyond=True))
        assert await store.in_flight() == {("default", "billing"): 2, ("default", "legal"): 1}

    disk.run(body)


def test_a_change_decided_on_an_old_state_is_refused_for_that(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(offer(1))
        waiting: Handoff = first_write("h-2").handoff
        await store.commit(commit_of(first_write("h-2")))
        await store.commit(commit_of(next_write(waiting, ev.CancelRequested(at=NOW, by="sender", reason=""))))
        with pytest.raises(VersionConflict):
            await store.commit(commit_of(next_write(waiting, offered_event()), slots=(slot(),)))

    disk.run(body)
