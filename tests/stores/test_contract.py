"""What every store must do; each test runs on all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from a2a_handoff import ports
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Generation
from a2a_handoff.core.context import Mode
from a2a_handoff.core.events import Drop, Schedule, State, WorkKind
from a2a_handoff.core.tracing import trace_id_of
from a2a_handoff.ports import (
    SECRET_BYTES,
    Broadcast,
    BroadcastPage,
    Chain,
    ChainTaken,
    Commit,
    DuplicateRequest,
    HandoffQuery,
    HandoffWrite,
    RequestKey,
    Store,
    StoreUnavailable,
    VersionConflict,
    Webhook,
    WebhookState,
    Work,
    WorkKey,
)
from tests.stores.conftest import LEASE_S, Disk
from tests.support.builders import (
    NOW,
    acknowledged_event,
    commit_of,
    completed_event,
    first_write,
    make_agent,
    make_handoff,
    next_write,
    offered_event,
    output_event,
)

DELIVER = Schedule(kind=WorkKind.DELIVER, due_at=NOW, attempt=1)
DEADLINE = Schedule(kind=WorkKind.DEADLINE, due_at=NOW + 3600)


def key_of(action: Schedule, handoff_id: str = "h-1") -> WorkKey:
    return WorkKey(handoff_id=handoff_id, kind=action.kind, attempt=action.attempt, ref=action.ref)


def request_key(key: str = "k-1", *, handoff_id: str = "h-1", **fields: str) -> RequestKey:
    values = {"tenant": "default", "sender": "sender", "digest": "d-1"} | fields
    return RequestKey(key=key, handoff_id=handoff_id, **values)


async def everything(store: Store) -> list[Any]:
    """All that can be seen of a store without changing it."""
    return [
        await store.read_log(),
        await store.list_handoffs(HandoffQuery(tenant="default")),
        await store.list_handoffs(HandoffQuery(tenant="other")),
        await store.queue(),
        await store.in_flight(),
        await store.next_due(),
        await store.list_agents(),
    ]


# --- the log and the newest state ----------------------------------------------------------------


def test_a_committed_handoff_is_read_back_as_it_was_written(disk: Disk) -> None:
    write = first_write("h-1", offered_event())

    async def body(store: Store) -> None:
        committed = await store.commit(commit_of(write))
        assert [(one.handoff_id, one.seq, one.position) for one in committed.recorded] == [
            ("h-1", 1, 1),
            ("h-1", 2, 2),
        ]
        assert tuple(one.event for one in committed.recorded) == write.events
        assert await store.load_handoff("h-1") == write.handoff
        assert await store.read_events("h-1") == list(committed.recorded)

    disk.run(body)


def test_commits_are_written_in_the_order_of_the_calls_whenever_they_are_awaited(disk: Disk) -> None:
    first = first_write("h-1")

    async def body(store: Store) -> None:
        one = store.commit(commit_of(first))
        two = store.commit(commit_of(next_write(first.handoff, offered_event())))
        assert [recorded.position for recorded in (await two).recorded] == [2]
        assert [recorded.position for recorded in (await one).recorded] == [1]

    disk.run(body)


def test_the_log_ends_where_its_newest_event_is(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.log_end() == 0
        await store.commit(commit_of(first_write("h-1", offered_event())))
        assert await store.log_end() == 2

    disk.run(body)


def test_an_unknown_handoff_is_none_and_has_no_events(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.load_handoff("h-none") is None
        assert await store.read_events("h-none") == []
        assert await store.read_log() == []

    disk.run(body)


def test_a_restart_keeps_everything(disk: Disk) -> None:
    seen: list[Any] = []

    async def before(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", actions=(DEADLINE,)), request_key=request_key()))
        await store.commit(commit_of(first_write("h-2", offered_event())))
        await store.put_agent(make_agent())
        seen.extend(await everything(store))

    async def after(store: Store) -> None:
        assert await everything(store) == seen
        committed = await store.commit(commit_of(first_write("h-3")))
        assert committed.recorded[0].position == 4

    disk.run(before, after)


def test_positions_count_all_events_in_commit_order_without_gaps(disk: Disk) -> None:
    async def body(store: Store) -> None:
        one, two = first_write("h-1"), first_write("h-2")
        await store.commit(commit_of(one))
        await store.commit(commit_of(two))
        with pytest.raises(VersionConflict):
            await store.commit(commit_of(first_write("h-2")))
        await store.commit(
            commit_of(next_write(two.handoff, offered_event()), next_write(one.handoff, offered_event()))
        )
        log = await store.read_log()
        assert [(one.position, one.handoff_id, one.seq) for one in log] == [
            (1, "h-1", 1),
            (2, "h-2", 1),
            (3, "h-2", 2),
            (4, "h-1", 2),
        ]

    disk.run(body)


def test_logs_are_read_in_pages_after_a_cursor(disk: Disk) -> None:
    write = first_write("h-1", offered_event(), acknowledged_event(), output_event(), completed_event())

    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-0")))
        await store.commit(commit_of(write))
        assert [one.seq for one in await store.read_events("h-1", after=2, limit=2)] == [3, 4]
        assert [one.seq for one in await store.read_events("h-1", after=4)] == [5]
        assert await store.read_events("h-1", after=5) == []
        assert [one.position for one in await store.read_log(after=2, limit=3)] == [3, 4, 5]
        assert await store.read_log(after=6) == []

    disk.run(body)


def test_one_commit_may_write_the_same_handoff_twice(disk: Disk) -> None:
    first = first_write("h-1")
    second = next_write(first.handoff, offered_event())

    async def body(store: Store) -> None:
        committed = await store.commit(commit_of(first, second))
        assert [one.seq for one in committed.recorded] == [1, 2]
        assert await store.load_handoff("h-1") == second.handoff

    disk.run(body)


def test_text_of_every_kind_comes_back_code_point_for_code_point(disk: Disk) -> None:
    odd = "订单 🧪\u200d🦰 مرحبا 'quoted' \"double\" nul\0end %s ?1"

    async def body(store: Store) -> None:
        write = first_write("h-1", offered_event(odd), sender=odd, correlation_id=odd, context_id=odd)
        await store.commit(
            commit_of(
                write,
                request_key=request_key(odd, sender=odd),
                alias=odd,
                alias_owner=odd,
            )
        )
        assert await store.load_handoff("h-1") == write.handoff
        assert await store.find_request("default", odd, odd) == request_key(odd, sender=odd)
        assert await store.find_alias("default", odd, odd) == "h-1"
        assert await store.chain_handoffs("default", odd) == [write.handoff]
        assert await store.in_flight() == {("default", odd): 1}
        page = await store.list_handoffs(HandoffQuery(tenant="default", sender=odd, context_id=odd))
        assert page.handoffs == (write.handoff,)
        with pytest.raises(DuplicateRequest):
            await store.commit(commit_of(first_write("h-2"), request_key=request_key(odd, sender=odd)))
        with pytest.raises(ChainTaken):
            await store.commit(commit_of(first_write("h-2", correlation_id=odd, tenant="other")))

    disk.run(body)


# --- conflicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_commit_on_another_version_than_the_stored_one_is_a_conflict(disk: Disk, expected: int) -> None:
    first = first_write("h-1", offered_event())

    async def body(store: Store) -> None:
        await store.commit(commit_of(first))
        wrong = replace(
            next_write(replace(first.handoff, version=expected), acknowledged_event()),
            expected_version=expected,
        )
        with pytest.raises(VersionConflict):
            await store.commit(commit_of(wrong))
        assert await store.load_handoff("h-1") == first.handoff

    disk.run(body)


def test_a_change_of_a_handoff_that_does_not_exist_is_a_conflict(disk: Disk) -> None:
    async def body(store: Store) -> None:
        with pytest.raises(VersionConflict):
            await store.commit(commit_of(next_write(make_handoff("h-1"), offered_event())))

    disk.run(body)


def test_a_refused_commit_leaves_nothing_behind(disk: Disk) -> None:
    first = first_write("h-1", actions=(DEADLINE,))

    async def body(store: Store) -> None:
        await store.commit(commit_of(first))
        before = await everything(store)
        refused = commit_of(
            first_write("h-2", actions=(DELIVER,)),
            next_write(replace(first.handoff, version=5), offered_event()),
            settled=(key_of(DEADLINE),),
            request_key=request_key("k-2", handoff_id="h-2"),
            alias="alias-2",
        )
        with pytest.raises(VersionConflict):
            await store.commit(refused)
        assert await everything(store) == before
        assert await store.find_request("default", "sender", "k-2") is None
        assert await store.find_alias("default", "", "alias-2") is None
        assert await store.find_chain("default", "chain-of-h-2") is None
        assert await store.claim_work(now=NOW + 9999, limit=10) == [
            Work(key=key_of(DEADLINE), due_at=DEADLINE.due_at)
        ]

    disk.run(body)


def test_of_two_writers_on_one_version_exactly_one_wins(disk: Disk) -> None:
    first = first_write("h-1", offered_event())

    async def body(store: Store) -> None:
        await store.commit(commit_of(first))
        ends = [completed_event(), ev.HandoffCanceled(at=NOW, confirmed=True)]
        results = await asyncio.gather(
            *[store.commit(commit_of(next_write(first.handoff, end))) for end in ends * 10],
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == ["Committed"] + ["VersionConflict"] * 19
        assert len(await store.read_events("h-1")) == 3

    disk.run(body)


def test_a_write_whose_version_is_not_its_number_of_events_is_refused(disk: Disk) -> None:
    write = first_write("h-1")

    async def body(store: Store) -> None:
        for wrong in (
            replace(write, expected_version=1),
            replace(write, events=()),
            HandoffWrite(handoff=replace(write.handoff, version=0), events=(), expected_version=0),
        ):
            with pytest.raises(ValueError, match="version"):
                await store.commit(commit_of(wrong))
        assert await store.read_log() == []

    disk.run(body)


# --- idempotency ---------------------------------------------------------------------------------


def test_a_request_key_used_before_gives_the_first_handoff_and_digest(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.find_request("default", "sender", "k-1") is None
        await store.commit(commit_of(first_write("h-1"), request_key=request_key()))
        again = request_key(handoff_id="h-2", digest="d-2")
        with pytest.raises(DuplicateRequest) as raised:
            await store.commit(commit_of(first_write("h-2"), request_key=again))
        assert (raised.value.handoff_id, raised.value.digest) == ("h-1", "d-1")
        assert await store.load_handoff("h-2") is None
        assert await store.find_request("default", "sender", "k-1") == request_key()

    disk.run(body)


@pytest.mark.parametrize("other", [{"tenant": "other"}, {"sender": "another"}])
def test_request_keys_of_other_senders_and_tenants_are_independent(disk: Disk, other: dict[str, Any]) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1"), request_key=request_key()))
        theirs = request_key(handoff_id="h-2", **other)
        await store.commit(commit_of(first_write("h-2", **other), request_key=theirs))
        assert await store.find_request(theirs.tenant, theirs.sender, "k-1") == theirs

    disk.run(body)


def test_of_many_equal_requests_at_once_one_makes_a_handoff_and_all_learn_which(disk: Disk) -> None:
    async def body(store: Store) -> None:
        results = await asyncio.gather(
            *[
                store.commit(commit_of(first_write(f"h-{n}"), request_key=request_key(handoff_id=f"h-{n}")))
                for n in range(20)
            ],
            return_exceptions=True,
        )
        duplicates = [result for result in results if isinstance(result, DuplicateRequest)]
        assert len(duplicates) == 19
        (log,) = await store.read_log()
        assert {duplicate.handoff_id for duplicate in duplicates} == {log.handoff_id}

    disk.run(body)


def test_a_duplicate_is_told_before_a_conflict(disk: Disk) -> None:
    async def body(store: Store) -> None:
        commit = commit_of(first_write("h-1"), request_key=request_key())
        await store.commit(commit)
        with pytest.raises(DuplicateRequest):
            await store.commit(commit)

    disk.run(body)


def test_an_alias_leads_its_owner_to_the_new_handoff(disk: Disk) -> None:
    child = first_write("h-2", correlation_id="chain-of-h-1")

    async def body(store: Store) -> None:
        parent = first_write("h-1")
        await store.commit(commit_of(parent))
        attach = ev.ChildAttached(at=NOW, child_id="h-2", mode=Mode.DELEGATE, target_open=True)
        await store.commit(
            commit_of(next_write(parent.handoff, attach), child, alias="task-1", alias_owner="me")
        )
        assert await store.find_alias("default", "me", "task-1") == "h-2"
        assert await store.find_alias("default", "you", "task-1") is None
        assert await store.find_alias("other", "me", "task-1") is None

    disk.run(body)


def test_an_alias_that_is_taken_is_a_duplicate_without_digest(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1"), alias="task-1", alias_owner="me"))
        with pytest.raises(DuplicateRequest) as raised:
            await store.commit(commit_of(first_write("h-2"), alias="task-1", alias_owner="me"))
        assert (raised.value.handoff_id, raised.value.digest) == ("h-1", "")
        assert await store.load_handoff("h-2") is None
        await store.commit(commit_of(first_write("h-3"), alias="task-1", alias_owner="you"))

    disk.run(body)


def test_an_alias_without_a_new_handoff_is_refused(disk: Disk) -> None:
    first = first_write("h-1")

    async def body(store: Store) -> None:
        await store.commit(commit_of(first))
        with pytest.raises(ValueError, match="alias"):
            await store.commit(commit_of(next_write(first.handoff, offered_event()), alias="task-1"))

    disk.run(body)


# --- chains --------------------------------------------------------------------------------------


def test_the_first_handoff_of_a_correlation_id_starts_the_chain(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.find_chain("default", "order-42") is None
        first = await store.commit(commit_of(first_write("h-1", correlation_id="order-42")))
        second = await store.commit(commit_of(first_write("h-2", correlation_id="order-42", at=NOW + 5)))
        assert first.new_chains == {"h-1"}
        assert second.new_chains == frozenset()
        assert await store.find_chain("default", "order-42") == Chain(
            tenant="default",
            correlation_id="order-42",
            trace_id=trace_id_of("order-42"),
            first_handoff_id="h-1",
            started_at=NOW,
        )

    disk.run(body)


def test_two_handoffs_of_a_new_chain_in_one_commit_start_it_once(disk: Disk) -> None:
    async def body(store: Store) -> None:
        committed = await store.commit(
            commit_of(first_write("h-1", correlation_id="c"), first_write("h-2", correlation_id="c"))
        )
        assert committed.new_chains == {"h-1"}

    disk.run(body)


def test_the_chain_of_another_tenant_is_taken(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", correlation_id="order-42")))
        with pytest.raises(ChainTaken):
            await store.commit(commit_of(first_write("h-2", correlation_id="order-42", tenant="other")))
        assert await store.load_handoff("h-2") is None
        with pytest.raises(ChainTaken):
            await store.find_chain("other", "order-42")
        assert await store.chain_handoffs("other", "order-42") == []

    disk.run(body)


def test_one_commit_cannot_start_a_chain_for_two_tenants(disk: Disk) -> None:
    async def body(store: Store) -> None:
        with pytest.raises(ChainTaken):
            await store.commit(
                commit_of(
                    first_write("h-1", correlation_id="c"),
                    first_write("h-2", correlation_id="c", tenant="other"),
                )
            )
        assert await store.read_log() == []

    disk.run(body)


def test_the_handoffs_of_a_chain_come_oldest_first(disk: Disk) -> None:
    late = first_write("h-a", correlation_id="order-42", at=NOW + 9)
    early = first_write("h-b", correlation_id="order-42", at=NOW)

    async def body(store: Store) -> None:
        await store.commit(commit_of(late))
        await store.commit(commit_of(early))
        await store.commit(commit_of(first_write("h-c")))
        assert await store.chain_handoffs("default", "order-42") == [early.handoff, late.handoff]
        assert await store.chain_handoffs("default", "order-43") == []

    disk.run(body)


# --- work ----------------------------------------------------------------------------------------


def test_work_that_is_due_comes_back_claimed_with_the_commit(disk: Disk) -> None:
    async def body(store: Store) -> None:
        committed = await store.commit(commit_of(first_write("h-1", actions=(DEADLINE, DELIVER))))
        assert committed.claimed == (Work(key=key_of(DELIVER), due_at=NOW),)
        assert await store.claim_work(now=NOW, limit=10) == []
        assert await store.next_due() == DEADLINE.due_at

    disk.run(body)


def test_due_work_is_claimed_once_oldest_first_up_to_the_limit(disk: Disk) -> None:
    actions = [Schedule(kind=WorkKind.FORWARD, due_at=NOW + n, ref=f"m-{n}") for n in (3, 1, 2, 4)]

    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", actions=actions)))
        assert await store.next_due() == NOW + 1
        assert await store.claim_work(now=NOW + 0.5, limit=10) == []
        first = await store.claim_work(now=NOW + 3, limit=2)
        assert [(work.key.ref, work.due_at, work.claims, work.orphaned) for work in first] == [
            ("m-1", NOW + 1, 1, False),
            ("m-2", NOW + 2, 1, False),
        ]
        assert [work.key.ref for work in await store.claim_work(now=NOW + 3, limit=2)] == ["m-3"]
        assert await store.claim_work(now=NOW + 3, limit=2) == []
        assert await store.next_due() == NOW + 4

    disk.run(body)


def test_no_work_is_never_due(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.next_due() is None
        assert await store.claim_work(now=NOW, limit=10) == []

    disk.run(body)


def test_settled_work_is_gone(disk: Disk) -> None:
    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(DELIVER, DEADLINE))
        await store.commit(commit_of(write))
        await store.commit(Commit(writes=(), now=NOW, settled=(key_of(DELIVER), key_of(DELIVER))))
        assert await store.claim_work(now=NOW + 9999, limit=10) == [
            Work(key=key_of(DEADLINE), due_at=DEADLINE.due_at)
        ]

    disk.run(body)


def test_settling_comes_before_scheduling_the_same_work_again(disk: Disk) -> None:
    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(DELIVER,))
        await store.commit(commit_of(write))
        again = replace(DELIVER, due_at=NOW + 2)
        await store.commit(
            commit_of(
                next_write(write.handoff, offered_event(), actions=(again,)), settled=(key_of(DELIVER),)
            )
        )
        assert await store.claim_work(now=NOW + 1, limit=10) == []
        assert await store.claim_work(now=NOW + 2, limit=10) == [Work(key=key_of(DELIVER), due_at=NOW + 2)]

    disk.run(body)


def test_scheduling_anew_replaces_what_was_pending_and_who_held_it(disk: Disk) -> None:
    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(DELIVER, DEADLINE))
        await store.commit(commit_of(write))
        later = (replace(DELIVER, due_at=NOW + 7), replace(DEADLINE, due_at=NOW + 8))
        second = next_write(write.handoff, offered_event(), actions=later)
        assert (await store.commit(commit_of(second))).claimed == ()
        assert await store.next_due() == NOW + 7
        works = await store.claim_work(now=NOW + 8, limit=10)
        assert [(work.key.kind, work.due_at, work.claims) for work in works] == [
            (WorkKind.DELIVER, NOW + 7, 1),
            (WorkKind.DEADLINE, NOW + 8, 1),
        ]

    disk.run(body)


def test_dropping_kinds_leaves_the_others_and_other_handoffs(disk: Disk) -> None:
    lapse = Schedule(kind=WorkKind.OFFER_LAPSE, due_at=NOW + 1, attempt=1)

    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(DELIVER, lapse, replace(lapse, attempt=2), DEADLINE))
        await store.commit(commit_of(write, first_write("h-2", actions=(lapse,))))
        drop = Drop(kinds=frozenset({WorkKind.DELIVER, WorkKind.OFFER_LAPSE}))
        await store.commit(commit_of(next_write(write.handoff, offered_event(), actions=(drop,))))
        works = await store.claim_work(now=NOW + 9999, limit=10)
        assert {work.key for work in works} == {key_of(DEADLINE), key_of(lapse, "h-2")}

    disk.run(body)


def test_dropping_without_kinds_drops_all_of_that_handoff(disk: Disk) -> None:
    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(DELIVER, DEADLINE))
        await store.commit(commit_of(write, first_write("h-2", actions=(DEADLINE,))))
        await store.commit(commit_of(next_write(write.handoff, offered_event(), actions=(Drop(),))))
        works = await store.claim_work(now=NOW + 9999, limit=10)
        assert [work.key for work in works] == [key_of(DEADLINE, "h-2")]

    disk.run(body)


def test_actions_take_effect_in_their_order(disk: Disk) -> None:
    resolve = Schedule(kind=WorkKind.RESOLVE, due_at=NOW)

    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(DELIVER, DEADLINE))
        await store.commit(commit_of(write))
        actions = (resolve, Drop(), DEADLINE, DELIVER, Drop(kinds=frozenset({WorkKind.DELIVER})))
        committed = await store.commit(commit_of(next_write(write.handoff, offered_event(), actions=actions)))
        assert committed.claimed == ()
        works = await store.claim_work(now=NOW + 9999, limit=10)
        assert [work.key for work in works] == [key_of(DEADLINE)]

    disk.run(body)


def test_work_whose_lease_has_ended_is_claimed_again_as_orphaned(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
        assert await store.claim_work(now=NOW + LEASE_S - 1, limit=10) == []
        assert await store.claim_work(now=NOW + LEASE_S, limit=10) == [
            Work(key=key_of(DELIVER), due_at=NOW, claims=2, orphaned=True)
        ]

    disk.run(body)


def test_renewed_leases_hold_on(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", actions=(DELIVER, DEADLINE))))
        await store.renew_leases(now=NOW + 20)
        assert await store.claim_work(now=NOW + 20 + LEASE_S - 1, limit=10) == []
        assert len(await store.claim_work(now=NOW + 20 + LEASE_S, limit=10)) == 1
        assert await store.next_due() == DEADLINE.due_at

    disk.run(body)


def test_released_work_is_due_again_when_it_says(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", actions=(DELIVER,))))
        await store.release_work(key_of(DELIVER), due_at=NOW + 5)
        assert await store.next_due() == NOW + 5
        assert await store.claim_work(now=NOW + 4, limit=10) == []
        assert await store.claim_work(now=NOW + 5, limit=10) == [
            Work(key=key_of(DELIVER), due_at=NOW + 5, claims=2)
        ]

    disk.run(body)


def test_releasing_what_is_not_held_changes_nothing(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", actions=(DEADLINE,))))
        await store.release_work(key_of(DEADLINE), due_at=NOW)
        await store.release_work(key_of(DELIVER), due_at=NOW)
        assert await store.next_due() == DEADLINE.due_at
        assert await store.claim_work(now=NOW, limit=10) == []

    disk.run(body)


def test_work_of_a_dead_process_is_free_at_once_and_marked_as_orphaned(disk: Disk) -> None:
    async def dies(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", actions=(DELIVER, DEADLINE))))
        assert await store.next_due() == DEADLINE.due_at

    async def takes_over(store: Store) -> None:
        assert await store.next_due() == NOW
        assert await store.claim_work(now=DEADLINE.due_at, limit=10) == [
            Work(key=key_of(DELIVER), due_at=NOW, claims=2, orphaned=True),
            Work(key=key_of(DEADLINE), due_at=DEADLINE.due_at),
        ]

    disk.run(dies, takes_over)


def test_work_stays_orphaned_until_it_is_scheduled_anew(disk: Disk) -> None:
    write = first_write("h-1", actions=(DELIVER,))
    orphan = Work(key=key_of(DELIVER), due_at=NOW, claims=2, orphaned=True)

    async def dies(store: Store) -> None:
        await store.commit(commit_of(write))

    async def takes_over(store: Store) -> None:
        assert await store.claim_work(now=NOW, limit=10) == [orphan]
        await store.release_work(orphan.key, due_at=NOW + 1)
        again = replace(orphan, due_at=NOW + 1, claims=3)
        assert await store.claim_work(now=NOW + 1, limit=10) == [again]
        anew = next_write(write.handoff, offered_event(), actions=(DELIVER,))
        committed = await store.commit(commit_of(anew, settled=(orphan.key,)))
        assert committed.claimed == (Work(key=key_of(DELIVER), due_at=NOW),)

    disk.run(dies, takes_over)


def test_work_may_take_the_place_of_other_work_without_an_event(disk: Disk) -> None:
    write = first_write("h-1", actions=(DELIVER,))
    probe = Schedule(kind=WorkKind.PROBE, due_at=NOW, attempt=1)

    async def swaps(store: Store) -> None:
        await store.commit(commit_of(write))
        swapped = replace(write, events=(), expected_version=1, actions=(probe,))
        committed = await store.commit(commit_of(swapped, settled=(key_of(DELIVER),)))
        assert committed.recorded == ()
        assert committed.claimed == (Work(key=key_of(probe), due_at=NOW),)
        assert await store.load_handoff("h-1") == write.handoff
        with pytest.raises(VersionConflict):
            await store.commit(
                commit_of(replace(swapped, expected_version=2, handoff=replace(write.handoff, version=2)))
            )

    async def finds_it(store: Store) -> None:
        assert [work.key for work in await store.claim_work(now=NOW, limit=10)] == [key_of(probe)]

    disk.run(swaps, finds_it)


# --- listings ------------------------------------------------------------------------------------


def populate() -> list[HandoffWrite]:
    """Twelve handoffs of two tenants, in all sorts of states."""
    writes: list[HandoffWrite] = []
    for n in range(12):
        events: list[ev.Event] = []
        if n % 4 > 0:
            events.append(offered_event("billing" if n % 2 else "legal", at=NOW + n))
        if n % 4 > 1:
            events.append(acknowledged_event("billing" if n % 2 else "legal", at=NOW + n))
        if n % 4 > 2:
            events.append(completed_event(at=NOW + n))
        writes.append(
            first_write(
                f"h-{n:02}",
                *events,
                at=NOW + n,
                tenant="other" if n == 5 else "default",
                sender=("anna", "bert", "billing")[n % 3],
                context_id=f"context-{n % 2}",
                face="legal" if n % 4 == 2 else "",
                correlation_id=f"chain-{n // 2}" if n // 2 != 2 else "",
            )
        )
    return writes


def query_of(filters: dict[str, Any]) -> HandoffQuery:
    values: dict[str, Any] = {"tenant": "default", **filters}
    return HandoffQuery(**values)


QUERIES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [11, 10, 9, 8, 7, 6, 4, 3, 2, 1, 0]),
    ({"tenant": "other"}, [5]),
    ({"tenant": "nobody"}, []),
    ({"sender": "anna"}, [9, 6, 3, 0]),
    ({"holder": "billing"}, [9, 1]),
    ({"holder": "legal"}, [10, 6, 2]),
    ({"face": "legal"}, [10, 6, 2]),
    ({"face": "legal", "sender": "anna"}, [6]),
    ({"face": "legal", "agent": "bert"}, [10]),
    ({"face": "billing"}, []),
    ({"agent": "billing"}, [11, 9, 8, 2, 1]),
    ({"agent": "billing", "sender": "bert"}, [1]),
    ({"agent": "billing", "holder": "legal"}, [2]),
    ({"agent": "billing", "context_id": "context-1"}, [11, 9, 1]),
    ({"states": frozenset({State.OFFERED})}, [9, 1]),
    ({"states": frozenset({State.COMPLETED, State.REQUESTED})}, [11, 8, 7, 4, 3, 0]),
    ({"states": frozenset({State.ESCALATED})}, []),
    ({"states": frozenset({State.REQUESTED, State.OFFERED})}, [9, 8, 4, 1, 0]),
    ({"holder": "billing", "states": frozenset({State.OFFERED})}, [9, 1]),
    ({"holder": "billing", "states": frozenset({State.COMPLETED})}, []),
    ({"correlation_id": "chain-0"}, [1, 0]),
    ({"correlation_id": "chain-0", "sender": "bert"}, [1]),
    ({"correlation_id": "chain-0", "tenant": "other"}, []),
    ({"context_id": "context-1"}, [11, 9, 7, 3, 1]),
    ({"context_id": "context-1", "sender": "bert", "states": frozenset({State.COMPLETED})}, [7]),
    ({"updated_after": NOW + 10}, [11, 10]),
    ({"updated_after": NOW + 10.5, "sender": "anna"}, []),
    ({"limit": 3, "sender": "anna"}, [9, 6, 3]),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    QUERIES,
    ids=[",".join(filters) + f"-{i}" for i, (filters, _) in enumerate(QUERIES)],
)
def test_a_listing_holds_what_meets_all_filters_newest_first(
    disk: Disk, filters: dict[str, Any], expected: list[int]
) -> None:
    async def body(store: Store) -> None:
        writes = populate()
        await store.commit(commit_of(*writes))
        query = query_of(filters)
        page = await store.list_handoffs(query)
        assert [handoff.id for handoff in page.handoffs] == [f"h-{n:02}" for n in expected]
        assert all(writes[n].handoff in page.handoffs for n in expected)
        whole = await store.list_handoffs(replace(query, limit=100))
        assert page.total == len(whole.handoffs)
        assert whole.next is None

    disk.run(body)


ENDS: tuple[tuple[ev.Event, ...], ...] = (
    (acknowledged_event("billing"), completed_event()),
    (ev.HandoffFailed(at=NOW, attempt=1, outcome=ev.Outcome.TARGET_FAILED, detail=""),),
    (ev.HandoffReturned(at=NOW, outcome=ev.Outcome.TIMEOUT, detail=""),),
    (ev.HandoffCanceled(at=NOW, confirmed=True),),
    (ev.HandoffExpired(at=NOW, detail=""),),
    (),
)


@pytest.mark.parametrize("agent", ["", "anna", "billing"])
def test_a_listing_by_several_states_is_that_of_each_put_together(disk: Disk, agent: str) -> None:
    async def body(store: Store) -> None:
        writes = [
            first_write(
                f"h-{n:02}",
                offered_event("billing", at=NOW + n),
                *(replace(end, at=NOW + n) for end in ENDS[n % 6]),
                at=NOW + n,
                sender=("anna", "bert")[n % 2],
            )
            for n in range(24)
        ]
        await store.commit(commit_of(*writes))
        made = [write.handoff for write in reversed(writes)]
        for count in (1, 2, 3):
            for states in map(frozenset, combinations(sorted({h.state for h in made}), count)):
                wanted = [h.id for h in made if h.state in states and agent in ("", h.sender, h.holder)]
                query = HandoffQuery(tenant="default", agent=agent, states=states, limit=3)
                seen: list[str] = []
                page = await store.list_handoffs(query)
                while True:
                    assert page.total == len(wanted)
                    seen += [h.id for h in page.handoffs]
                    if page.next is None:
                        break
                    page = await store.list_handoffs(replace(query, before=page.next))
                assert seen == wanted

    disk.run(body)


@pytest.mark.parametrize(
    "filters", [{}, {"agent": "billing"}, {"sender": "anna"}, {"context_id": "context-0"}]
)
def test_pages_follow_each_other_without_gap_or_repeat(disk: Disk, filters: dict[str, Any]) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(*populate()))
        # The same moment for several: the id decides.
        await store.commit(
            commit_of(
                *[first_write(f"i-{n}", at=NOW, sender="anna", context_id="context-0") for n in range(4)]
            )
        )
        query = HandoffQuery(tenant="default", **filters)
        whole = await store.list_handoffs(query)
        seen: list[str] = []
        before = None
        while True:
            page = await store.list_handoffs(replace(query, limit=2, before=before))
            assert page.total == whole.total
            seen += [handoff.id for handoff in page.handoffs]
            before = page.next
            if before is None:
                break
        assert seen == [handoff.id for handoff in whole.handoffs]

    disk.run(body)


def test_an_agent_that_holds_what_it_sent_is_listed_and_counted_once(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1", offered_event("billing"), sender="billing")))
        page = await store.list_handoffs(HandoffQuery(tenant="default", agent="billing"))
        assert ([handoff.id for handoff in page.handoffs], page.total) == (["h-1"], 1)

    disk.run(body)


def test_a_page_that_ends_the_listing_has_no_next(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(first_write("h-1"), first_write("h-2")))
        page = await store.list_handoffs(HandoffQuery(tenant="default", limit=2))
        assert (len(page.handoffs), page.next, page.total) == (2, None, 2)
        page = await store.list_handoffs(HandoffQuery(tenant="default", limit=1))
        assert page.next == (NOW, "h-2")

    disk.run(body)


def test_a_handoff_moves_to_the_top_when_it_changes(disk: Disk) -> None:
    first, second = first_write("h-1"), first_write("h-2", at=NOW + 1)

    async def body(store: Store) -> None:
        await store.commit(commit_of(first, second))
        await store.commit(commit_of(next_write(first.handoff, offered_event(at=NOW + 2))))
        page = await store.list_handoffs(HandoffQuery(tenant="default"))
        assert [handoff.id for handoff in page.handoffs] == ["h-1", "h-2"]
        assert page.handoffs[0].state is State.OFFERED

    disk.run(body)


def test_open_handoffs_of_a_state_come_oldest_first_from_all_tenants(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.commit(commit_of(*reversed(populate())))
        assert [handoff.id for handoff in await store.list_open(State.OFFERED)] == ["h-01", "h-05", "h-09"]
        assert await store.list_open(State.ESCALATED) == []
        assert await store.list_open(State.COMPLETED) == []

    disk.run(body)


def test_the_queue_counts_open_handoffs_by_state_with_the_oldest_change(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.queue() == {}
        await store.commit(commit_of(*populate()))
        assert await store.queue() == {
            State.REQUESTED: (3, NOW),
            State.OFFERED: (3, NOW + 1),
            State.ACKNOWLEDGED: (3, NOW + 2),
        }

    disk.run(body)


def test_in_flight_counts_what_an_agent_was_offered_or_holds(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.in_flight() == {}
        await store.commit(commit_of(*populate()))
        assert await store.in_flight() == {
            ("default", "billing"): 2,
            ("default", "legal"): 3,
            ("other", "billing"): 1,
        }
        assert await store.in_flight("other") == {("other", "billing"): 1}
        assert await store.in_flight("nobody") == {}

    disk.run(body)


def test_a_handoff_that_was_handed_on_is_not_in_flight_with_its_former_holder(disk: Disk) -> None:
    write = first_write("h-1", offered_event(), acknowledged_event())

    async def body(store: Store) -> None:
        await store.commit(commit_of(write))
        assert await store.in_flight() == {("default", "billing"): 1}
        await store.commit(commit_of(next_write(write.handoff, ev.HandedOff(at=NOW, child_id="h-2"))))
        assert await store.in_flight() == {}
        assert await store.queue() == {State.HANDED_OFF: (1, NOW)}

    disk.run(body)


# --- agents and marks ----------------------------------------------------------------------------


def test_agents_are_put_replaced_listed_and_deleted_by_tenant(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.list_agents() == []
        assert await store.put_agent(make_agent("b")) is True
        assert await store.put_agent(make_agent("a", tenant="other", card=b'{"name":"\xc3\xa4"}')) is True
        assert await store.put_agent(make_agent("a")) is True
        anew = make_agent("b", capabilities=frozenset({"canBrowse"}), token_budget=900)
        assert await store.put_agent(anew) is False
        assert await store.list_agents() == [
            make_agent("a"),
            anew,
            make_agent("a", tenant="other", card=b'{"name":"\xc3\xa4"}'),
        ]
        assert await store.delete_agent("default", "a") is True
        assert await store.delete_agent("default", "a") is False
        assert [(agent.tenant, agent.agent_id) for agent in await store.list_agents()] == [
            ("default", "b"),
            ("other", "a"),
        ]

    disk.run(body)


def test_marks_are_set_and_moved_by_name(disk: Disk) -> None:
    async def body(store: Store) -> None:
        assert await store.get_mark("spans") is None
        await store.set_mark("spans", 7)
        await store.set_mark("metrics", 3)
        await store.set_mark("spans", 9)
        assert (await store.get_mark("spans"), await store.get_mark("metrics")) == (9, 3)

    disk.run(body)


def test_a_secret_is_made_once_whoever_asks_and_outlives_its_maker(disk: Disk) -> None:
    found: set[bytes] = set()

    async def asks(store: Store) -> None:
        found.update(await asyncio.gather(*[store.secret("callbacks") for _ in range(5)]))
        assert await store.secret("another") not in found

    disk.run(asks, asks)
    assert [len(secret) for secret in found] == [SECRET_BYTES]


# --- webhooks ------------------------------------------------------------------------------------


def webhook(webhook_id: str = "w-1", *, handoff_id: str = "h-1", edition: str = "", **fields: Any) -> Webhook:
    values: dict[str, Any] = {
        "task_id": handoff_id,
        "generation": Generation.V1_0,
        "url": f"https://hooks.test/{webhook_id}",
        "token": "t",
        "created_at": NOW,
    }
    return Webhook(handoff_id=handoff_id, id=webhook_id, edition=edition or webhook_id, **(values | fields))


def notify(edition: str = "w-1", *, due_at: float = NOW) -> Schedule:
    return Schedule(kind=WorkKind.WEBHOOK, due_at=due_at, ref=edition)


def test_a_webhook_and_its_work_come_with_the_commit_that_they_are_in(disk: Disk) -> None:
    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(notify(),))
        committed = await store.commit(commit_of(write, webhooks=(webhook(),)))
        assert [work.key for work in committed.claimed] == [key_of(notify())]
        assert await store.list_webhooks("h-1") == [webhook()]
        with pytest.raises(VersionConflict):
            await store.commit(commit_of(write, webhooks=(webhook("w-2"),)))

    async def again(store: Store) -> None:
        assert await store.list_webhooks("h-1") == [webhook()]
        assert await store.list_webhooks("h-2") == []

    disk.run(body, again)


def test_webhooks_are_listed_by_id_and_set_again_in_their_place(disk: Disk) -> None:
    async def body(store: Store) -> None:
        write = first_write("h-1")
        await store.commit(commit_of(write, webhooks=(webhook("w-2"), webhook("w-1"))))
        anew = webhook("w-2", edition="other", url="https://hooks.test/new")
        await store.commit(commit_of(next_write(write.handoff, offered_event()), webhooks=(anew,)))
        assert await store.list_webhooks("h-1") == [webhook("w-1"), anew]

    disk.run(body)


def test_what_a_webhook_was_told_is_kept_for_that_edition_only(disk: Disk) -> None:
    told = webhook(
        told={"h-1": 3, "h-2": 1}, delivered=3, failures=1, failing_since=NOW, last_at=NOW, status=503,
        error="HTTP 503", state=WebhookState.GIVEN_UP,
    )  # fmt: skip

    async def body(store: Store) -> None:
        assert await store.save_webhook(told) is False
        await store.commit(commit_of(first_write("h-1"), webhooks=(webhook(),)))
        assert await store.save_webhook(told) is True
        assert await store.save_webhook(replace(told, edition="older", delivered=9)) is False

    async def again(store: Store) -> None:
        assert await store.list_webhooks("h-1") == [told]

    disk.run(body, again)


def test_a_webhook_goes_with_its_work_and_no_other(disk: Disk) -> None:
    async def body(store: Store) -> None:
        write = first_write("h-1", actions=(notify(), notify("w-2"), DEADLINE))
        await store.commit(commit_of(write, webhooks=(webhook(), webhook("w-2"))))
        assert await store.delete_webhook("h-1", "w-1") is True
        assert await store.delete_webhook("h-1", "w-1") is False
        assert await store.list_webhooks("h-1") == [webhook("w-2")]
        works = await store.claim_work(now=NOW + 9999, limit=10)
        assert {work.key for work in works} == {key_of(notify("w-2")), key_of(DEADLINE)}

    disk.run(body)


def test_the_work_of_a_webhook_outlives_its_handoff(disk: Disk) -> None:
    async def body(store: Store) -> None:
        later = notify("w-2", due_at=NOW + 60)
        write = first_write("h-1", actions=(later, DEADLINE))
        await store.commit(commit_of(write, webhooks=(webhook(),)))
        actions = (notify(), DELIVER, Drop())
        committed = await store.commit(commit_of(next_write(write.handoff, offered_event(), actions=actions)))
        assert [work.key for work in committed.claimed] == [key_of(notify())]
        works = await store.claim_work(now=NOW + 60, limit=10)
        assert {work.key for work in works} == {key_of(notify()), key_of(later)}

    disk.run(body)


# --- broadcasts ----------------------------------------------------------------------------------


def broadcast(broadcast_id: str, **fields: Any) -> Broadcast:
    values: dict[str, Any] = {
        "tenant": "default",
        "workspace": "default",
        "channel": "general",
        "sender": "cowork",
        "message": f"this is {broadcast_id}",
        "at": NOW,
        "expires_at": NOW + 60,
    }
    return Broadcast(id=broadcast_id, **(values | fields))


async def told(store: Store, *, workspace: str = "default", now: float = NOW, **more: Any) -> list[str]:
    page = await store.read_broadcasts("default", workspace, now=now, **more)
    return [one.id for one in page.broadcasts]


def test_broadcasts_are_read_back_oldest_first_from_a_position_on(disk: Disk) -> None:
    async def before(store: Store) -> None:
        assert await store.read_broadcasts("default", "default", now=NOW) == BroadcastPage(
            broadcasts=(), end=0
        )
        data = b'{"n":12345678901234567890,"f":1.10}'
        first = await store.add_broadcast(broadcast("b-1", data=data, message="Grüße"), keep=10)
        assert first == broadcast("b-1", data=data, message="Grüße", position=first.position)
        second = await store.add_broadcast(broadcast("b-2"), keep=10)
        assert 0 < first.position < second.position
        page = await store.read_broadcasts("default", "default", now=NOW)
        assert page == BroadcastPage(broadcasts=(first, second), end=second.position)

    async def after(store: Store) -> None:
        (first, _) = (await store.read_broadcasts("default", "default", now=NOW)).broadcasts
        assert await told(store, after=first.position) == ["b-2"]
        assert await told(store, limit=1) == ["b-1"]

    disk.run(before, after)


def test_a_broadcast_is_heard_in_its_own_workspace_and_tenant(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.add_broadcast(broadcast("b-1"), keep=10)
        await store.add_broadcast(broadcast("b-2", workspace="lab"), keep=10)
        await store.add_broadcast(broadcast("b-3", tenant="other"), keep=10)
        assert await told(store) == ["b-1"]
        assert await told(store, workspace="lab") == ["b-2"]
        assert (await store.read_broadcasts("default", "lab", now=NOW)).end == 3

    disk.run(body)


def test_broadcasts_that_expired_are_not_read_and_the_next_one_takes_them_out(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.add_broadcast(broadcast("b-1", expires_at=NOW + 5), keep=10)
        await store.add_broadcast(broadcast("b-2"), keep=10)
        assert await told(store, now=NOW + 4.9) == ["b-1", "b-2"]
        assert await told(store, now=NOW + 5) == ["b-2"]
        await store.add_broadcast(broadcast("b-3", at=NOW + 5, expires_at=NOW + 65), keep=10)
        assert await told(store, now=NOW) == ["b-2", "b-3"]

    disk.run(body)


def test_a_tenant_keeps_its_newest_broadcasts_and_no_position_is_given_twice(disk: Disk) -> None:
    async def body(store: Store) -> None:
        await store.add_broadcast(broadcast("other", tenant="other"), keep=2)
        for number in range(1, 5):
            await store.add_broadcast(broadcast(f"b-{number}", workspace="default"), keep=2)
        assert await told(store) == ["b-3", "b-4"]
        assert len((await store.read_broadcasts("other", "default", now=NOW)).broadcasts) == 1
        await store.add_broadcast(broadcast("b-5", at=NOW + 100, expires_at=NOW + 200), keep=2)
        page = await store.read_broadcasts("default", "default", now=NOW + 100)
        assert [(one.id, one.position) for one in page.broadcasts] == [("b-5", 6)]

    async def later(store: Store) -> None:
        last = await store.add_broadcast(broadcast("b-6", at=NOW + 300, expires_at=NOW + 400), keep=2)
        assert last.position == 7

    disk.run(body, later)


# --- availability --------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "commit": lambda store: store.commit(commit_of(first_write("h-1"))),
    "load_handoff": lambda store: store.load_handoff("h-1"),
    "read_events": lambda store: store.read_events("h-1"),
    "read_log": lambda store: store.read_log(),
    "log_end": lambda store: store.log_end(),
    "list_handoffs": lambda store: store.list_handoffs(HandoffQuery(tenant="default")),
    "list_open": lambda store: store.list_open(State.REQUESTED),
    "find_request": lambda store: store.find_request("default", "sender", "k"),
    "find_alias": lambda store: store.find_alias("default", "sender", "a"),
    "find_chain": lambda store: store.find_chain("default", "c"),
    "chain_handoffs": lambda store: store.chain_handoffs("default", "c"),
    "claim_work": lambda store: store.claim_work(now=NOW, limit=1),
    "release_work": lambda store: store.release_work(key_of(DELIVER), due_at=NOW),
    "next_due": lambda store: store.next_due(),
    "renew_leases": lambda store: store.renew_leases(now=NOW),
    "queue": lambda store: store.queue(),
    "late": lambda store: store.late(now=NOW),
    "in_flight": lambda store: store.in_flight(),
    "put_agent": lambda store: store.put_agent(make_agent()),
    "list_agents": lambda store: store.list_agents(),
    "delete_agent": lambda store: store.delete_agent("default", "billing"),
    "add_broadcast": lambda store: store.add_broadcast(broadcast("b-1"), keep=10),
    "read_broadcasts": lambda store: store.read_broadcasts("default", "default", now=NOW),
    "list_webhooks": lambda store: store.list_webhooks("h-1"),
    "save_webhook": lambda store: store.save_webhook(webhook()),
    "delete_webhook": lambda store: store.delete_webhook("h-1", "w-1"),
    "get_mark": lambda store: store.get_mark("spans"),
    "set_mark": lambda store: store.set_mark("spans", 1),
    "secret": lambda store: store.secret("callbacks"),
    "prune": lambda store: store.prune(before=NOW, limit=1),
}


def test_every_method_of_a_store_is_covered() -> None:
    methods = {name for name in vars(Store) if not name.startswith("_")}
    assert methods == {*CALLS, "open", "close", "usage"}


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_is_not_open_is_unavailable(disk: Disk, call: str) -> None:
    async def main() -> None:
        store = disk.store()
        with pytest.raises(StoreUnavailable):
            await CALLS[call](store)
        await store.open()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await CALLS[call](store)

    asyncio.run(main())


def test_closing_twice_does_no_harm(disk: Disk) -> None:
    async def main() -> None:
        store = disk.store()
        await store.close()
        await store.open()
        await store.close()
        await store.close()

    asyncio.run(main())


def test_a_total_is_exact_up_to_its_limit_and_never_more(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "TOTAL_MAX", 3)

    async def body(store: Store) -> None:
        for number in range(5):
            await store.commit(commit_of(first_write(f"h-{number}", sender="me" if number < 2 else "you")))
            page = await store.list_handoffs(HandoffQuery(tenant="default", limit=1))
            assert (len(page.handoffs), page.total) == (1, min(number + 1, 3))
        for query, total in (
            (HandoffQuery(tenant="default", limit=9, sender="me"), 2),
            (HandoffQuery(tenant="default", limit=9, sender="you"), 3),
            (HandoffQuery(tenant="default", limit=9, agent="me"), 2),
        ):
            assert (await store.list_handoffs(query)).total == total

    disk.run(body)
