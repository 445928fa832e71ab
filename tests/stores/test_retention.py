"""Old chains leave every store whole, and nothing that is needed leaves with them."""

from __future__ import annotations

import pytest

from a2a_handoff.core.events import Event, Schedule, WorkKind
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import HandoffQuery, RequestKey, Store, VersionConflict
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

DAY = 86_400.0
OLD = NOW - 30 * DAY


def ending(at: float) -> tuple[Event, ...]:
    return offered_event(at=at), acknowledged_event(at=at), completed_event(at=at)


async def done(
    store: Store, handoff_id: str, chain: str = "", *, at: float = OLD, tenant: str = "default"
) -> Handoff:
    """A handoff that ended at ``at``, with a key and an alias."""
    write = first_write(handoff_id, correlation_id=chain or f"c-{handoff_id}", at=at, tenant=tenant)
    key = RequestKey(tenant=tenant, sender="sender", key=f"k-{handoff_id}", digest="d", handoff_id=handoff_id)
    await store.commit(commit_of(write, request_key=key, alias=f"a-{handoff_id}", alias_owner="me", now=at))
    after = next_write(write.handoff, *ending(at))
    await store.commit(commit_of(after, now=at))
    return after.handoff


async def young(store: Store) -> None:
    """What a living store has: something that just happened."""
    await done(store, "young", at=NOW)


def test_an_old_chain_goes_with_all_that_belongs_to_it(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await done(store, "h-1", "order-42")
        await done(store, "h-2", "order-42")
        await young(store)
        assert sorted(await store.prune(before=NOW - DAY, limit=10)) == ["h-1", "h-2"]
        assert await store.load_handoff("h-1") is None
        assert await store.read_events("h-2") == []
        assert await store.find_chain("default", "order-42") is None
        assert await store.find_request("default", "sender", "k-h-1") is None
        assert await store.find_alias("default", "me", "a-h-1") is None
        assert {one.handoff_id for one in await store.read_log()} == {"young"}
        page = await store.list_handoffs(HandoffQuery(tenant="default"))
        assert ([h.id for h in page.handoffs], page.total) == (["young"], 1)
        assert list(await store.prune(before=NOW - DAY, limit=10)) == []

    disk.run(body)


def test_what_is_young_or_open_or_has_work_left_stays_and_keeps_its_chain(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await done(store, "h-1", "half-young")
        await done(store, "h-2", "half-young", at=NOW)
        await done(store, "h-3", "half-open")
        await store.commit(commit_of(first_write("h-4", correlation_id="half-open", at=OLD), now=OLD))
        told = await done(store, "h-5", "to-be-told")
        retry = Schedule(kind=WorkKind.WEBHOOK, due_at=NOW, ref="edition")
        await store.commit(commit_of(next_write(told, actions=(retry,)), now=OLD))
        await young(store)
        assert list(await store.prune(before=NOW - DAY, limit=10)) == []
        for number in range(1, 6):
            assert await store.load_handoff(f"h-{number}") is not None

    disk.run(body)


def test_it_goes_in_steps_and_over_all_tenants(disk: Disk) -> None:
    async def body(store: Store) -> None:
        for tenant in ("acme", "default", "zoo"):
            for number in range(3):
                await done(store, f"{tenant}-{number}", tenant=tenant, at=OLD + number)
        await young(store)
        steps: list[int] = []
        while gone := await store.prune(before=NOW - DAY, limit=4):
            steps.append(len(gone))
        assert steps == [4, 4, 1]

    disk.run(body)


def test_the_log_goes_on_where_it_was_after_everything_old_is_gone_and_over_a_restart(disk: Disk) -> None:
    async def before(store: Store) -> None:
        await done(store, "h-1")
        await done(store, "h-2", at=OLD + 1)
        await store.prune(before=NOW, limit=10)

    async def after(store: Store) -> None:
        committed = await store.commit(commit_of(first_write("h-3")))
        assert committed.recorded[0].position == 9, "four events each, and none is numbered twice"

    disk.run(before, after)


def test_a_late_change_of_what_is_gone_is_refused(disk: Disk) -> None:
    async def body(store: Store) -> None:
        old = await done(store, "h-1")
        await young(store)
        await store.prune(before=NOW - DAY, limit=10)
        with pytest.raises(VersionConflict):
            await store.commit(commit_of(next_write(old, completed_event(at=NOW))))
        assert await store.load_handoff("h-1") is None
        await done(store, "h-1", at=NOW)  # the key is free again

    disk.run(body)
