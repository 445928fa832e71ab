"""Whatever is done to a store, the durable ones and the store in memory tell the same story."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from a2a_handoff.core import events as ev
from a2a_handoff.core.events import Action, Drop, Schedule, State, WorkKind
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import (
    ChainTaken,
    Commit,
    DuplicateRequest,
    HandoffQuery,
    HandoffWrite,
    RequestKey,
    Slot,
    SlotConflict,
    Store,
    VersionConflict,
    WorkKey,
)
from a2a_handoff.stores import SqliteStore
from a2a_handoff.stores.postgres import PostgresStore
from tests.support.builders import (
    NOW,
    acknowledged_event,
    completed_event,
    first_write,
    make_handoff,
    next_write,
    offered_event,
    output_event,
)
from tests.support.memory_store import MemoryData, MemoryStore
from tests.support.postgres import postgres_server

IDS = st.sampled_from(["h-1", "h-2", "h-3", "h-4"])
NAMES = st.sampled_from(["anna", "bert"])
TENANTS = st.sampled_from(["default", "default", "other"])
CHAINS = st.sampled_from(["", "", "c-1", "c-2"])
KINDS = st.sampled_from([WorkKind.DELIVER, WorkKind.FORWARD, WorkKind.DEADLINE])
SOON = st.integers(-2, 60).map(lambda s: NOW + s)
ACTIONS: st.SearchStrategy[list[Action]] = st.lists(
    st.one_of(
        st.builds(
            Schedule, kind=KINDS, due_at=SOON, attempt=st.integers(0, 1), ref=st.sampled_from(["", "m"])
        ),
        st.builds(Drop, kinds=st.frozensets(KINDS, max_size=2)),
    ),
    max_size=3,
)
KEYS = st.builds(
    WorkKey, handoff_id=IDS, kind=KINDS, attempt=st.integers(0, 1), ref=st.sampled_from(["", "m"])
)
EVENTS = st.sampled_from(
    [
        offered_event("anna", at=NOW + 1),
        offered_event("bert", at=NOW + 2),
        output_event(at=NOW + 3),
        completed_event(at=NOW + 4),
        ev.HandedOff(at=NOW + 5, child_id="h-1"),
    ]
)
QUERIES = st.builds(
    HandoffQuery,
    tenant=TENANTS,
    sender=st.sampled_from(["", "anna"]),
    agent=st.sampled_from(["", "", "bert"]),
    holder=st.sampled_from(["", "", "anna"]),
    face=st.sampled_from(["", "", "anna"]),
    states=st.frozensets(st.sampled_from([State.REQUESTED, State.OFFERED, State.COMPLETED]), max_size=2),
    correlation_id=st.sampled_from(["", "", "c-1"]),
    context_id=st.sampled_from(["", "", "context-1"]),
    updated_after=st.none() | SOON,
    before=st.none() | st.tuples(SOON, IDS),
    limit=st.integers(1, 3),
)
SLOTS = st.lists(
    st.builds(Slot, tenant=st.just("default"), agent_id=NAMES, limit=st.integers(1, 2)), max_size=2
)
REFUSALS = (VersionConflict, DuplicateRequest, ChainTaken, SlotConflict)


class Stores(RuleBasedStateMachine):
    """The same calls on both stores, the same answers from both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.data = MemoryData()
        self.now = NOW
        self.stores: tuple[Store, Store]
        self.open()

    def durable(self) -> Store:
        """The store that is compared, on what it left behind."""
        return SqliteStore(Path(self.folder.name) / "store.db")

    def open(self) -> None:
        self.stores = (self.durable(), MemoryStore(self.data))
        for store in self.stores:
            self.runner.run(store.open())

    def close(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())

    def teardown(self) -> None:
        self.close()
        self.runner.close()
        self.folder.cleanup()

    def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """The answer of both, or the refusal."""

        async def ask(store: Store) -> Any:
            try:
                return await call(store)
            except REFUSALS as refusal:
                return type(refusal), vars(refusal)

        durable, memory = [self.runner.run(ask(store)) for store in self.stores]
        assert durable == memory
        return memory

    def stored(self, handoff_id: str) -> Handoff:
        return self.data.handoffs.get(handoff_id) or make_handoff(handoff_id)

    @rule(
        handoff_id=IDS,
        events=st.lists(EVENTS, max_size=1),
        actions=ACTIONS,
        tenant=TENANTS,
        sender=NAMES,
        chain=CHAINS,
        key=st.sampled_from(["", "k-1", "k-2"]),
        alias=st.sampled_from(["", "", "a-1"]),
        settled=st.lists(KEYS, max_size=1),
        slots=SLOTS,
    )
    def create(
        self,
        handoff_id: str,
        events: list[Any],
        actions: list[Action],
        tenant: str,
        sender: str,
        chain: str,
        key: str,
        alias: str,
        settled: list[WorkKey],
        slots: list[Slot],
    ) -> None:
        write = first_write(
            handoff_id,
            *events,
            actions=actions,
            tenant=tenant,
            sender=sender,
            correlation_id=chain,
            at=self.now,
        )
        request = RequestKey(tenant=tenant, sender=sender, key=key, digest=chain, handoff_id=handoff_id)
        self.commit([write], settled, request if key else None, alias, slots)

    @rule(
        changes=st.lists(
            st.tuples(IDS, st.lists(EVENTS, min_size=1, max_size=2), ACTIONS), min_size=1, max_size=2
        ),
        settled=st.lists(KEYS, max_size=2),
        slots=SLOTS,
    )
    def change(
        self,
        changes: list[tuple[str, list[Any], list[Action]]],
        settled: list[WorkKey],
        slots: list[Slot],
    ) -> None:
        writes: list[HandoffWrite] = []
        latest: dict[str, Handoff] = {}
        for handoff_id, events, actions in changes:
            before = latest.get(handoff_id) or self.stored(handoff_id)
            offer = () if before.attempts else (offered_event("anna", at=NOW + 1), acknowledged_event("anna"))
            writes.append(next_write(before, *offer, *events, actions=actions))
            latest[handoff_id] = writes[-1].handoff
        self.commit(writes, settled, None, "", slots)

    def commit(
        self,
        writes: list[HandoffWrite],
        settled: list[WorkKey],
        key: RequestKey | None,
        alias: str,
        slots: list[Slot],
    ) -> None:
        commit = Commit(
            writes=tuple(writes),
            now=self.now,
            settled=tuple(settled),
            slots=tuple(slots),
            beyond=len(slots) == 2,
            request_key=key,
            alias=alias,
            alias_owner="owner" if alias else "",
        )
        self.both(lambda store: store.commit(commit))

    @rule(seconds=st.sampled_from([0.0, 1.0, 7.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        self.both(lambda store: store.claim_work(now=self.now, limit=limit))

    @rule(key=KEYS, later=st.sampled_from([0.0, 5.0]))
    def release(self, key: WorkKey, later: float) -> None:
        self.both(lambda store: store.release_work(key, due_at=self.now + later))

    @rule()
    def renew(self) -> None:
        self.both(lambda store: store.renew_leases(now=self.now))

    @rule()
    def restart(self) -> None:
        self.close()
        self.open()

    @rule(query=QUERIES)
    def list_page(self, query: HandoffQuery) -> None:
        self.both(lambda store: store.list_handoffs(query))

    @rule(handoff_id=IDS, after=st.integers(0, 3), tenant=TENANTS, sender=NAMES)
    def look(self, handoff_id: str, after: int, tenant: str, sender: str) -> None:
        self.both(lambda store: store.load_handoff(handoff_id))
        self.both(lambda store: store.read_events(handoff_id, after=after, limit=2))
        self.both(lambda store: store.read_log(after=after, limit=3))
        self.both(lambda store: store.find_request(tenant, sender, "k-1"))
        self.both(lambda store: store.find_alias(tenant, "owner", "a-1"))
        self.both(lambda store: store.find_chain(tenant, "c-1"))
        self.both(lambda store: store.chain_handoffs(tenant, "c-1"))
        self.both(lambda store: store.in_flight(tenant))
        self.both(lambda store: store.list_open(State.OFFERED))

    @invariant()
    def same_counts(self) -> None:
        self.both(lambda store: store.next_due())
        self.both(lambda store: store.queue())
        self.both(lambda store: store.late(now=self.now))
        self.both(lambda store: store.in_flight())


class PostgresStores(Stores):
    """The same on a database of its own for each story."""

    def __init__(self) -> None:
        self.url = ""
        super().__init__()

    def durable(self) -> Store:
        server = postgres_server()
        self.url = self.url or server.url(server.migrated())
        return PostgresStore(self.url)


TestStores = Stores.TestCase
TestPostgresStores = PostgresStores.TestCase
TestStores.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# Each story makes a database, and a restart connects anew: fewer of them are told.
TestPostgresStores.settings = settings(TestStores.settings, max_examples=8)
