"""The store: durable truth, and what is written to it and read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from a2a_handoff.core.agents import Agent, Generation
from a2a_handoff.core.events import Drop, Event, Schedule, State, WorkKind
from a2a_handoff.core.handoff import Handoff


class HandoffWrite(msgspec.Struct, frozen=True, kw_only=True):
    """New events of one handoff and the state they lead to.

    ``expected_version`` is the number of events that the log must hold before (0: the handoff must
    not exist). ``actions`` become work items, in order.
    """

    handoff: Handoff
    events: tuple[Event, ...]
    expected_version: int
    actions: tuple[Schedule | Drop, ...] = ()


class RequestKey(msgspec.Struct, frozen=True, kw_only=True):
    """Makes a request idempotent: unique by (tenant, sender, key). ``digest`` is of the content."""

    tenant: str
    sender: str
    key: str
    digest: str
    handoff_id: str


class WorkKey(msgspec.Struct, frozen=True, kw_only=True):
    """Names one work item: at most one of a kind and attempt is pending for a handoff."""

    handoff_id: str
    kind: WorkKind
    attempt: int = 0
    ref: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed work item. ``claims`` counts how often it was claimed (1: the first time).

    ``orphaned``: the replica that had claimed it before is gone, so it may have begun the effect.
    """

    key: WorkKey
    due_at: float
    claims: int = 1
    orphaned: bool = False


class WebhookState(StrEnum):
    """How a webhook stands."""

    ACTIVE = "active"
    DONE = "done"
    """It was told the last event of its task."""
    GIVEN_UP = "given_up"
    """It refused for good, or did not take a notification for too long. It is told nothing more."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client wants to be told of a task (A2A 1.0 section 4.3), and how far it was told.

    ``id`` is the client's name for it, ``edition`` ours: a webhook that is set again has another one.
    ``task_id`` is the task's name that the client knows. ``told``: up to which version of which handoff
    of the chain; ``taken``: how many notifications of the event after that it took already. ``delivered``
    counts all that it took, ``failures`` the tries in a row that it did not, since ``failing_since``.
    ``status`` is that of the last answer, 0 without one; ``error`` is safe to show. Times are epoch
    seconds, 0 for never. ``token`` and ``credentials`` are secrets.
    """

    handoff_id: str
    id: str
    edition: str
    task_id: str
    generation: Generation
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    created_at: float = 0.0
    state: WebhookState = WebhookState.ACTIVE
    told: dict[str, int] = {}
    taken: int = 0
    delivered: int = 0
    failures: int = 0
    failing_since: float = 0.0
    last_at: float = 0.0
    status: int = 0
    error: str = ""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A place among the tasks that an agent takes at a time, of which it has ``limit`` (1 or more)."""

    tenant: str
    agent_id: str
    limit: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction. Either all of it is durable when ``Store.commit`` returns, or none.

    ``settled`` are work items that are done: they are deleted. New work of the writes that is due
    now is claimed by this replica in the same transaction and comes back in ``Committed.claimed``.
    ``alias`` is a client-made task id; it is its maker's own: (tenant, ``alias_owner``, alias).
    ``webhooks`` take the place of those with the same handoff and id.

    ``slots`` are those of the agents that may be offered the handoff, the chosen one first. An agent is full
    if it was offered, or holds, as many open handoffs as its limit; one that it has handed on is no more its
    own. The commit is refused if the chosen one is full; or, ``beyond`` the limit, unless all of them are.
    """

    writes: tuple[HandoffWrite, ...]
    now: float
    settled: tuple[WorkKey, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    slots: tuple[Slot, ...] = ()
    beyond: bool = False
    request_key: RequestKey | None = None
    alias: str = ""
    alias_owner: str = ""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the log. ``seq`` counts from 1 within the handoff, ``position`` over all."""

    handoff_id: str
    seq: int
    position: int
    event: Event


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit brought about. ``new_chains`` are handoffs that started a chain with it."""

    recorded: tuple[Recorded, ...]
    claimed: tuple[Work, ...] = ()
    new_chains: frozenset[str] = frozenset()


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """All handoffs of one correlation id. It belongs to the tenant that started it."""

    tenant: str
    correlation_id: str
    trace_id: str
    first_handoff_id: str
    started_at: float


class HandoffQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a listing; newest first. Empty fields filter nothing.

    ``sender`` limits to what that principal sent, ``agent`` to what involves that agent as sender
    or holder, ``face`` to what came in by the face of that agent. ``before`` is the cursor: the
    ``(updated_at, id)`` of the last row seen.
    """

    tenant: str
    sender: str = ""
    agent: str = ""
    holder: str = ""
    face: str = ""
    states: frozenset[State] = frozenset()
    correlation_id: str = ""
    context_id: str = ""
    updated_after: float | None = None
    before: tuple[float, str] | None = None
    limit: int = 50


#: Totals of listings are exact up to here; what is more is told as this many. To count a million takes long.
TOTAL_MAX = 10_000


class HandoffPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a listing. ``total`` counts the rows that match the filters, up to ``TOTAL_MAX``."""

    handoffs: tuple[Handoff, ...]
    next: tuple[float, str] | None
    total: int


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """A message to every agent of a workspace. ``data`` is raw JSON, or empty.

    ``position`` counts all broadcasts that were ever stored and is never used twice; 0 before it is.
    """

    id: str
    tenant: str
    workspace: str
    channel: str
    sender: str
    message: str
    at: float
    expires_at: float
    data: bytes = b""
    position: int = 0


class BroadcastPage(msgspec.Struct, frozen=True, kw_only=True):
    """Broadcasts, oldest first. ``end`` is the highest position that was ever given, 0 if none."""

    broadcasts: tuple[Broadcast, ...]
    end: int


class Late(StrEnum):
    """Why work that could be claimed is nobody's."""

    DUE = "due"
    """Nobody has claimed it since it was due."""
    LAPSED = "lapsed"
    """Who had claimed it did not keep it, and nobody has taken it over since."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a store is at this moment, in this process.

    Of ``limit`` connections that may read, ``used`` are at it and ``idle`` are open. ``read_wait_s`` are the
    seconds that reads have waited for one since the start, all together. Writes wait from the call until
    they are durable; ``oldest_write_s`` is for how long the first one has.
    """

    limit: int = 0
    used: int = 0
    idle: int = 0
    reads_waiting: int = 0
    read_wait_s: float = 0.0
    writes_waiting: int = 0
    oldest_write_s: float = 0.0


class VersionConflict(Exception):
    """Another writer was faster: load the handoff again and decide anew."""


class DuplicateRequest(Exception):
    """The request key is taken. ``handoff_id`` and ``digest`` are those of the first use."""

    def __init__(self, handoff_id: str, digest: str) -> None:
        self.handoff_id = handoff_id
        self.digest = digest
        super().__init__(handoff_id)


class ChainTaken(Exception):
    """The correlation id belongs to another tenant."""


class SlotConflict(Exception):
    """Other agents are full than an offer supposes: decide anew. ``full`` are those of its ``slots``."""

    def __init__(self, full: frozenset[str]) -> None:
        self.full = full
        super().__init__(", ".join(sorted(full)))


class StoreUnavailable(Exception):
    """The store cannot write or read now (disk full, connection lost). Nothing was stored."""


#: A page of the log holds little more than this, however many events that is: readers are many.
PAGE_BYTES = 1 << 20
SECRET_BYTES = 32


class Store(Protocol):
    """Durable truth. Every method may raise ``StoreUnavailable``."""

    async def open(self) -> None:
        """Open, migrate, and free the leases of a dead predecessor."""
        ...

    async def close(self) -> None:
        """Write what was accepted, then close."""
        ...

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Write one transaction; durable when the answer comes.

        Raises ``DuplicateRequest``, ``ChainTaken``, ``VersionConflict``, ``SlotConflict``.
        """
        ...

    async def load_handoff(self, handoff_id: str) -> Handoff | None:
        """The newest state of one handoff."""
        ...

    async def read_events(self, handoff_id: str, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """The log of one handoff from ``seq`` ``after`` + 1 on; nothing at its end.

        A page is shorter than ``limit`` if its events are large: it ends with the one that reaches
        ``PAGE_BYTES``.
        """
        ...

    async def read_log(self, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """The whole log in commit order from ``position`` ``after`` + 1 on; pages as of ``read_events``."""
        ...

    async def log_end(self) -> int:
        """The position of the newest event in the log, 0 if there is none."""
        ...

    async def list_handoffs(self, query: HandoffQuery) -> HandoffPage:
        """A page of handoffs, newest update first."""
        ...

    async def list_open(self, state: State) -> list[Handoff]:
        """Every handoff of every tenant in one open state, oldest first."""
        ...

    async def find_request(self, tenant: str, sender: str, key: str) -> RequestKey | None:
        """The first use of a request key."""
        ...

    async def find_alias(self, tenant: str, owner: str, alias: str) -> str | None:
        """The handoff id behind a client-made task id."""
        ...

    async def find_chain(self, tenant: str, correlation_id: str) -> Chain | None:
        """The chain of a correlation id in this tenant. Raises ``ChainTaken`` if another owns it."""
        ...

    async def chain_handoffs(self, tenant: str, correlation_id: str) -> list[Handoff]:
        """All handoffs of a chain, oldest first."""
        ...

    async def claim_work(self, *, now: float, limit: int) -> list[Work]:
        """Claim due work that nobody holds, oldest first, under this replica's lease."""
        ...

    async def release_work(self, key: WorkKey, *, due_at: float) -> None:
        """Give claimed work back, to be done again at ``due_at``."""
        ...

    async def next_due(self) -> float | None:
        """When the earliest unclaimed work is due."""
        ...

    async def renew_leases(self, *, now: float) -> None:
        """Keep this replica's claims."""
        ...

    async def queue(self) -> dict[State, tuple[int, float]]:
        """Open handoffs of all tenants by state: how many, and when the oldest was last changed."""
        ...

    async def late(self, *, now: float) -> dict[Late, tuple[int, float]]:
        """Work that could be claimed: how many items, and since when the oldest could; nothing of none."""
        ...

    def usage(self) -> Usage:
        """How busy the store is. From any thread, also when it is closed."""
        ...

    async def in_flight(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """Open handoffs by (tenant, agent id) that the agent was offered or holds."""
        ...

    async def put_agent(self, agent: Agent) -> bool:
        """Insert or replace a registration. True if it is new."""
        ...

    async def list_agents(self) -> list[Agent]:
        """Every registration of every tenant."""
        ...

    async def delete_agent(self, tenant: str, agent_id: str) -> bool:
        """Remove a registration. False if there was none."""
        ...

    async def add_broadcast(self, broadcast: Broadcast, *, keep: int) -> Broadcast:
        """Store a broadcast, and give it its position.

        What had expired by then goes, and of its tenant all but the newest ``keep``.
        """
        ...

    async def read_broadcasts(
        self, tenant: str, workspace: str, *, after: int = 0, now: float, limit: int = 100
    ) -> BroadcastPage:
        """What a workspace was told after position ``after`` and has not expired ``now``."""
        ...

    async def list_webhooks(self, handoff_id: str) -> list[Webhook]:
        """The webhooks of a handoff, by id."""
        ...

    async def save_webhook(self, webhook: Webhook) -> bool:
        """Keep how far a webhook was told. False if this edition of it is not there any more."""
        ...

    async def delete_webhook(self, handoff_id: str, webhook_id: str) -> bool:
        """Remove a webhook and its work. False if there was none."""
        ...

    async def get_mark(self, name: str) -> int | None:
        """A named position in the log, such as how far spans were exported."""
        ...

    async def set_mark(self, name: str, position: int) -> None:
        """Move a named position."""
        ...

    async def secret(self, name: str) -> bytes:
        """A random secret of ``SECRET_BYTES``: made when it is first asked for, the same ever after."""
        ...

    async def prune(self, *, before: float, limit: int) -> Sequence[str]:
        """Remove chains that were last changed before ``before``, at most ``limit`` of them, whole.

        With their logs, contexts and keys. Those with a handoff that is open, or with work left to do, stay.
        Gives the ids of the handoffs that went; none: there is nothing more to remove now.
        """
        ...
