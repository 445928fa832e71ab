"""Every seam of the broker on one page.

The service sees the world only through these protocols. Adapters stand above the service
(``stores``, ``notify``, ``client``, ``security.urls``) and are put in by ``app``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from a2a_handoff.core.agents import Agent, Generation, Signature, Status
from a2a_handoff.core.context import HandoffContext
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Drop, Event, Outcome, Output, Schedule, State, WorkKind
from a2a_handoff.core.handoff import Handoff

# --- time ----------------------------------------------------------------------------------------


class Clock(Protocol):
    """Wall-clock time and chance; the only sources of both."""

    def now(self) -> float:
        """Epoch seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations within the process."""
        ...

    def new_id(self) -> str:
        """A new UUIDv7 (RFC 9562), canonical; ids of one process sort by time."""
        ...

    def new_span_id(self) -> str:
        """16 random lower-case hex digits, not all zeros."""
        ...

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        ...


# --- the store: truth ----------------------------------------------------------------------------


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


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction. Either all of it is durable when ``Store.commit`` returns, or none.

    ``settled`` are work items that are done: they are deleted. New work of the writes that is due
    now is claimed by this replica in the same transaction and comes back in ``Committed.claimed``.
    ``alias`` is a client-made task id; it is its maker's own: (tenant, ``alias_owner``, alias).
    ``webhooks`` take the place of those with the same handoff and id.
    """

    writes: tuple[HandoffWrite, ...]
    now: float
    settled: tuple[WorkKey, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
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

        Raises ``VersionConflict``, ``DuplicateRequest``, ``ChainTaken``.
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


# --- a store that several brokers share ----------------------------------------------------------


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """How far a store has come: the newest position of the log, of broadcasts and of changes of agents."""

    events: int = 0
    broadcasts: int = 0
    agents: int = 0


class AgentChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Registrations that were made or changed, those that are gone as (tenant, id), up to a revision."""

    agents: tuple[Agent, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    revision: int


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life of an agent, as brokers tell each other.

    ``age_s``: so many seconds ago a broker heard from it; ``gone``: that it goes. ``said_age_s``: so long ago
    it said ``status`` and ``in_flight`` of itself there; ``None``: never.
    """

    tenant: str
    agent_id: str
    age_s: float
    gone: bool = False
    said_age_s: float | None = None
    status: Status = Status.ONLINE
    in_flight: int = 0


class Departed(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is gone. ``spans``: up to where its spans have left; ``None`` if it exported none."""

    replica: int
    spans: int | None


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store of several brokers, each with a number of its own, ``replica``."""

    @property
    def replica(self) -> int:
        """The number of this broker, from when it opened the store until it closes it."""
        ...

    async def ends(self) -> Ends:
        """How far everything is that brokers follow."""
        ...

    async def read_others(self, *, after: int, upto: int, limit: int = 1000) -> list[Recorded]:
        """What others wrote into the log after one position, up to another; pages as in ``read_log``."""
        ...

    async def read_agents(self, *, after: int) -> AgentChanges:
        """What became of agents after a revision; ``-1`` for all there are."""
        ...

    async def share_signs(self, signs: Sequence[Sign], *, after: float) -> tuple[list[Sign], float]:
        """Tell the other brokers of signs of life, and learn of those that were told since a moment.

        Gives the moment to go on from, too; it is the store's, 0 to begin with.
        """
        ...

    async def keep_work(self, key: WorkKey, *, now: float) -> bool:
        """Renew one claim. False if it is not this broker's any more."""
        ...

    async def talked_elsewhere(self, handoff_id: str, *, now: float) -> bool:
        """Whether another broker is at a conversation with the agent that a handoff is with."""
        ...

    async def hand_back(self) -> None:
        """Free all work of this broker, which ends."""
        ...

    async def bury(self) -> list[Departed]:
        """Free the work of brokers that are gone. Those that are new, or whose spans this one is to send.

        To be called every few seconds: gone is who was not connected the last time either.
        """
        ...

    async def note_spans(self, replica: int, position: int | None) -> None:
        """Up to where the spans of a broker have left; ``None`` of one that is gone: it is done with."""
        ...

    async def read_written(self, replica: int, *, after: int, limit: int = 500) -> list[Recorded]:
        """What one broker wrote into the log after a position; pages as in ``read_log``."""
        ...


# --- wake-ups: a hint ----------------------------------------------------------------------------


class Listener(Protocol):
    """One waiter of its topics. A publish between two waits is not missed."""

    async def wait(self, *, timeout_s: float) -> bool:
        """Wait until it is time to look again: after a publish, or from time to time where one may be lost.

        False after ``timeout_s`` seconds.
        """
        ...


class Notifier(Protocol):
    """Says *look again*. A lost notification costs latency, never an event."""

    def publish(self, topic: str) -> None:
        """Wake everybody who listens to ``topic``, in every broker on the store. Never blocks or fails."""
        ...

    def tell(self, topic: str) -> None:
        """Wake everybody in the other brokers who listens to ``topic``. Never blocks or fails."""
        ...

    def wake(self, topic: str) -> None:
        """Wake everybody in this process who listens to ``topic``."""
        ...

    def wake_all(self) -> None:
        """Wake everybody in this process, whatever they listen to."""
        ...

    def listen(self, *topics: str) -> AbstractContextManager[Listener]:
        """Listen to all of ``topics`` from now until the context ends."""
        ...


class Hints(Protocol):
    """Carries wake-ups between brokers on one store. What is lost costs latency."""

    def start(self, hear: Callable[[str], None]) -> None:
        """Begin, and call ``hear`` with each topic that another broker sends. Waits for nothing."""
        ...

    def send(self, topic: str) -> None:
        """Send a topic to the other brokers. Never blocks, never fails."""
        ...

    async def close(self) -> None:
        """Send what waits, and end."""
        ...


# --- the log, for programs elsewhere -------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the log as others are told it. ``id`` is the same however often it is told.

    ``place`` is the workspace, after the tenant if that is not the usual one; ``name`` that of the event.
    ``body`` is a CloudEvent as JSON. ``log`` names the log that it stands in at ``position``.
    """

    id: str
    log: str
    position: int
    place: tuple[str, ...]
    name: str
    body: bytes
    traceparent: str
    tracestate: str = ""


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream ends. ``sequence`` counts all that was ever in it.

    The last entry that is in it stands at ``position`` of ``log``, 0 and empty if there is none. ``whole``:
    it is the last that was ever in it, nothing after it was removed.
    """

    sequence: int
    log: str = ""
    position: int = 0
    whole: bool = False


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the entries are in the stream, counted from the first, and where it ends now."""

    taken: int
    sequence: int


class StreamUnavailable(Exception):
    """The stream cannot be read or written now, for a reason that is fit to be logged.

    What was to be appended may be in it or not.
    """


class EventStream(Protocol):
    """The log told to programs elsewhere, in order. Every method may raise ``StreamUnavailable``."""

    @property
    def body_max(self) -> int:
        """The largest body that it takes, in bytes."""
        ...

    async def end(self) -> StreamEnd:
        """Where it ends."""
        ...

    async def append(self, entries: Sequence[Entry], *, after: int) -> Appended:
        """Append in this order. Each goes in only right after the one before, the first after ``after``."""
        ...


# --- what was committed --------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The committed change of one handoff: the states around its new events.

    ``new_chain``: the handoff started its chain with this commit.
    """

    before: Handoff | None
    after: Handoff
    recorded: tuple[Recorded, ...]
    new_chain: bool = False


class Notified(StrEnum):
    """What became of one try to notify a webhook."""

    TAKEN = "taken"
    FAILED = "failed"
    """It is tried again."""
    GIVEN_UP = "given_up"
    """It is not, and neither is what follows."""
    REMOVED = "removed"
    """The webhook said that it is gone."""


class Recorder(Protocol):
    """Makes spans and metrics of what was committed, off the path of the request."""

    def record(self, change: Change) -> None:
        """Note a change. Never blocks, never fails; what cannot be kept is counted as dropped."""
        ...

    def notified(self, result: Notified) -> None:
        """Note what became of a notification. Never blocks, never fails."""
        ...


# --- agents: outbound ----------------------------------------------------------------------------


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent is to call the broker about one attempt, and with what. ``token`` is a secret."""

    url: str
    token: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one agent.

    ``message`` is A2A 1.0 JSON, with our extension's metadata already in it. ``remote`` ids are set
    for a follow-up only: a first message never carries ids that the target did not make. With a
    ``callback`` the agent is asked to say there what becomes of its task.
    """

    message: bytes
    metadata: bytes = b""
    extensions: tuple[str, ...] = ()
    remote_task_id: str = ""
    remote_context_id: str = ""
    accepted_output_modes: tuple[str, ...] = ()
    traceparent: str = ""
    tracestate: str = ""
    callback: Callback | None = None


class RemoteState(StrEnum):
    """A2A task states as a target reports them (A2A 1.0 section 4.1.3)."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"

    @property
    def terminal(self) -> bool:
        """No further state follows."""
        return self in (
            RemoteState.COMPLETED,
            RemoteState.FAILED,
            RemoteState.CANCELED,
            RemoteState.REJECTED,
        )

    @property
    def asks(self) -> bool:
        """The task waits for its caller."""
        return self in (RemoteState.INPUT_REQUIRED, RemoteState.AUTH_REQUIRED)


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What a target said, in one step: part of a stream, or a whole answer.

    ``state`` is ``None`` if the step says nothing of it. ``message`` is the status message (or, with
    ``reply``, the Message that the target answered instead of a Task) as A2A 1.0 JSON.
    ``metadata`` is the raw metadata of the status message, the message or the task, where our
    extension's ``handoff``, ``ready``, ``declined`` and ``receipt`` may be found. ``snapshot``: the
    outputs are all there are so far, not an addition.
    ``traceparent`` is the one that the target sent back, if it did.
    """

    remote_task_id: str = ""
    remote_context_id: str = ""
    state: RemoteState | None = None
    message: bytes = b""
    outputs: tuple[Output, ...] = ()
    metadata: bytes = b""
    reply: bool = False
    snapshot: bool = False
    traceparent: str = ""


class Sent(StrEnum):
    """How sure it is that the target never saw the request."""

    NO = "no"
    """It cannot have started: not connected, TLS failed, refused with 429 or 503 before output."""
    MAYBE = "maybe"
    """It was sent and nothing came back."""
    YES = "yes"
    """It answered, and the answer is an error."""


class AgentError(Exception):
    """A call to an agent failed.

    ``again``: asking the same agent again may help. ``retry_after_s``: when, by its own word.
    ``detail`` is safe to show: a class of fault and a status, never the agent's own text.
    """

    def __init__(
        self,
        outcome: Outcome,
        detail: str,
        *,
        sent: Sent,
        again: bool = False,
        retry_after_s: float | None = None,
        jsonrpc_code: int | None = None,
    ) -> None:
        self.outcome = outcome
        self.detail = detail
        self.sent = sent
        self.again = again
        self.retry_after_s = retry_after_s
        self.jsonrpc_code = jsonrpc_code
        super().__init__(f"{outcome.value}: {detail}")


class AgentClient(Protocol):
    """Talks A2A to agents, in whatever generation and binding their card offers.

    Every method raises ``AgentError`` and nothing else. Generators are to be closed on every way out.
    """

    async def probe(self, agent: Agent, *, timeout_s: float) -> None:
        """See whether the agent is there, by reading its card. Any HTTP answer counts as *there*."""
        ...

    def send(self, agent: Agent, delivery: Delivery, *, first_wait_s: float | None) -> AsyncGenerator[Update]:
        """Deliver a message and yield what comes back until a terminal or interrupted state.

        Streams where the agent can; else sends with ``returnImmediately`` and polls; else waits. With a
        callback it does not stream, and ends after the first answer; an agent that refuses the callback
        gets the message without it.
        ``first_wait_s`` bounds the wait for the first sign of an answer (``None``: none), after that
        only the idle limit holds. Ends without a terminal state if the stream was cut: the caller
        then asks with ``get``.
        """
        ...

    async def get(self, agent: Agent, remote_task_id: str) -> Update:
        """The target's task as it stands, as a snapshot."""
        ...

    def subscribe(self, agent: Agent, remote_task_id: str) -> AsyncGenerator[Update]:
        """Follow a task that is under way; a snapshot first. Falls back to polling ``get``."""
        ...

    async def cancel(self, agent: Agent, remote_task_id: str, *, traceparent: str = "") -> Update:
        """Ask the target to stop."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class FetchedCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card as it was served. ``url`` is where it was found."""

    body: bytes
    url: str
    etag: str = ""


class CardFetcher(Protocol):
    """Reads AgentCards from addresses that callers name."""

    async def fetch(self, url: str) -> FetchedCard:
        """Read a card from the address itself, else from the well-known paths below it.

        The paths are tried at the address, then at its origin, the new name first.

        Raises ``HandoffError`` (``card_unavailable``) with one generic text for every cause.
        """
        ...

    async def fetch_changed(self, url: str, etag: str) -> FetchedCard | None:
        """Read a card again where it was found. ``None``: it is still the one of ``etag``.

        Raises ``HandoffError`` (``card_unavailable``).
        """
        ...


class CardVerifier(Protocol):
    """Judges the signatures of cards, by the keys that the operator trusts."""

    @property
    def required(self) -> bool:
        """Whether only cards with a verified signature are taken."""
        ...

    async def verify(self, card: bytes) -> Signature:
        """What the signatures of a card are worth.

        Raises ``HandoffError`` (``invalid_agent``) with the place of each fault: a signature by a known key
        that does not fit the card and none that does, or, if signatures are required, none that is verified.
        """
        ...


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook answered; ``retry_after_s`` is its own word on when to come again."""

    status: int
    retry_after_s: float | None = None


class HookClient(Protocol):
    """Calls webhooks."""

    async def post(
        self, url: str, headers: tuple[tuple[str, str], ...], body: bytes, *, timeout_s: float
    ) -> HookAnswer:
        """Send one notification. Redirects are not followed, the answer's body is not read.

        Raises ``AgentError`` if no answer came within ``timeout_s`` seconds, or the address may not be
        called.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class UrlPolicy(Protocol):
    """Which addresses the broker may call."""

    async def vet(self, url: str) -> str:
        """Resolve the host once and return the address to connect to.

        Raises ``HandoffError`` (``card_unavailable``) if scheme or address is not allowed.
        """
        ...


# --- context -------------------------------------------------------------------------------------


class TokenCounter(Protocol):
    """Counts tokens offline."""

    @property
    def name(self) -> str:
        """The tokenizer's name, as answers state it."""
        ...

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        ...


class ContextJudge(Protocol):
    """Scores how much of a context arrived; a model may stand in for the published formula."""

    async def score(self, sent: HandoffContext, received: bytes) -> float | None:
        """0 to 1, 1 when nothing was lost; ``None`` without evidence."""
        ...


class Scope(StrEnum):
    """What a token allows. Reading what is one's own needs none of them."""

    SEND = "handoff:send"
    """Hand tasks off, answer their questions, cancel them, set their webhooks."""
    WORK = "handoff:work"
    """Be an agent: register, fetch work, accept it and finish it; tell the workspace something."""
    METRICS = "handoff:metrics"
    """Read ``/metrics``, which counts over all tenants."""
    ADMIN = "handoff:admin"
    """Everything in its tenant: see every handoff there, and act for every agent."""


#: What a token allows that says nothing of scopes.
USUAL_SCOPES = frozenset({Scope.SEND.value, Scope.WORK.value})

#: What who did not say its name is called. No token may bear it.
ANONYMOUS = "anonymous"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls. ``name`` is the agent id (the subject of the token), empty if nobody said.

    ``trusted``: an inbound trace may be continued, and the name was verified or needs no proof.
    ``expires_at``, in epoch seconds, is from when on it is nobody any more.
    """

    name: str = ""
    tenant: str = "default"
    scopes: frozenset[str] = frozenset()
    trusted: bool = False
    authenticated: bool = False
    expires_at: float = math.inf

    @property
    def unrestricted(self) -> bool:
        """Whether it may see and do everything in its tenant: an admin, or whoever an open broker met."""
        return not self.authenticated or Scope.ADMIN in self.scopes

    def require(self, scope: Scope) -> None:
        """Raises ``HandoffError`` (``forbidden``) if its token does not allow something."""
        if self.authenticated and scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise HandoffError(
                Code.FORBIDDEN, f"The token lacks the scope {scope.value}.", facts={"scope": scope.value}
            )


class Gate(Protocol):
    """Says who calls. The same for every surface: it is given what stands in ``Authorization``."""

    @property
    def closed(self) -> bool:
        """Whether callers must say, and prove, who they are."""
        ...

    async def admit(self, authorization: str) -> Principal:
        """Who calls.

        Raises ``HandoffError``: ``unauthenticated``, ``unavailable`` without keys to judge by.
        """
        ...

    def open(self) -> None:
        """Begin to get ready; nobody waits for it."""
        ...

    async def close(self) -> None:
        """End what runs for it."""
        ...


__all__ = [
    "ANONYMOUS",
    "PAGE_BYTES",
    "SECRET_BYTES",
    "USUAL_SCOPES",
    "Agent",
    "AgentChanges",
    "AgentClient",
    "AgentError",
    "Appended",
    "Broadcast",
    "BroadcastPage",
    "Callback",
    "CardFetcher",
    "CardVerifier",
    "Chain",
    "ChainTaken",
    "Change",
    "Clock",
    "Commit",
    "Committed",
    "ContextJudge",
    "Delivery",
    "Departed",
    "DuplicateRequest",
    "Ends",
    "Entry",
    "EventStream",
    "FetchedCard",
    "Gate",
    "Generation",
    "HandoffPage",
    "HandoffQuery",
    "HandoffWrite",
    "Hints",
    "HookAnswer",
    "HookClient",
    "Listener",
    "Notified",
    "Notifier",
    "Principal",
    "Recorded",
    "Recorder",
    "RemoteState",
    "RequestKey",
    "Scope",
    "Sent",
    "SharedStore",
    "Sign",
    "Store",
    "StoreUnavailable",
    "StreamEnd",
    "StreamUnavailable",
    "TokenCounter",
    "Update",
    "UrlPolicy",
    "VersionConflict",
    "Webhook",
    "WebhookState",
    "Work",
    "WorkKey",
]
