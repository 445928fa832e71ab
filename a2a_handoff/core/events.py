"""Events and actions: what happened to a handoff, and what is to be done about it.

Events are facts in the past tense, committed to the log, and the only truth. Actions are intended
effects: work for the dispatcher, written in the same transaction as the event that caused them.
What events follow from are ``commands``.

They are msgspec structs, not dataclasses: a handoff is copied at every event, and a struct's copy
costs half a microsecond where that of a dataclass of its size costs twenty.

Raw JSON travels as ``bytes`` in the shape of A2A 1.0 and is never re-encoded here.
Times are epoch seconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from a2a_handoff.core.agents import Readiness, Role
from a2a_handoff.core.context import Mode, Package
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.tracing import HopTrace


class State(StrEnum):
    """Where a handoff stands. The names of REST; A2A task states are in ``TASK_STATES``."""

    REQUESTED = "requested"
    OFFERED = "offered"
    ACKNOWLEDGED = "acknowledged"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    HANDED_OFF = "handed_off"
    ESCALATED = "escalated"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    RETURNED = "returned"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Terminal is final: no event follows that changes the state."""
        return self in TERMINAL

    @property
    def asks(self) -> bool:
        """The target waits for the caller."""
        return self in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELED, State.RETURNED, State.EXPIRED})


class Outcome(StrEnum):
    """How an attempt or a handoff ended badly; the value of ``error.type`` on spans and metrics."""

    NO_CAPABLE_AGENT = "no_capable_agent"
    TARGET_UNAVAILABLE = "target_unavailable"
    TARGET_REJECTED = "target_rejected"
    TARGET_FAILED = "target_failed"
    TARGET_AUTH = "target_auth"
    INVALID_RESPONSE = "invalid_response"
    TIMEOUT = "timeout"
    RELEASED = "released"
    RESCINDED = "rescinded"
    EXPIRED = "expired"
    CANCELED = "canceled"
    CYCLE_DETECTED = "cycle_detected"
    MAX_HOPS_EXCEEDED = "max_hops_exceeded"
    SELF_ONLY = "self_only"


# --- values inside events and commands -----------------------------------------------------------


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent that may take the handoff, in the order to be tried.

    ``reasons`` says why it stands where it stands.
    """

    agent_id: str
    readiness: Readiness
    role: Role = Role.AGENT
    reasons: tuple[str, ...] = ()


class PassedOver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent that may not take it, and why. ``near`` marks a near miss worth showing."""

    agent_id: str
    reason: str
    near: bool = False


class Resolution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A routing decision, frozen into the log.

    ``rule`` names the routing rule that matched, if one did. ``reason`` says why there are no
    candidates. ``wait``: agents match but none is present, so waiting makes sense. ``more`` counts
    the agents that were passed over and are not listed.
    """

    candidates: tuple[Candidate, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    more: int = 0
    rule: str = ""
    reason: Outcome | None = None
    wait: bool = False
    started_at: float = 0.0


class OutputKind(StrEnum):
    """What a target said: a status message, an artifact (or a chunk of one), a plain message."""

    STATUS = "status"
    ARTIFACT = "artifact"
    MESSAGE = "message"


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that the target said, as A2A 1.0 JSON.

    For ``artifact`` ``body`` is the artifact; ``append`` and ``last`` are its chunk flags (A2A 1.0
    section 4.2.2). For ``status`` and ``message`` ``body`` is the message, or empty.
    """

    kind: OutputKind
    body: bytes = b""
    append: bool = False
    last: bool = True
    artifact_id: str = ""


class Remote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target's own names for the task. Empty where the target never told."""

    task_id: str = ""
    context_id: str = ""


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What the core needs to make the next offer and cannot make itself.

    ``eligible`` are the agents that could be offered the handoff right now; the frozen order is
    filtered by it. ``full`` are agents that have as many tasks as they take at a time, by the store.
    Ids are new, ``jitter`` is in [0, 1).
    """

    offer_id: str
    span_id: str
    jitter: float = 0.0
    eligible: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    supervisors: tuple[Candidate, ...] = ()


class ParentRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The handoff that this one continues. ``escalated``: the chain had its one escalation."""

    handoff_id: str
    mode: Mode
    deadline_at: float
    escalated: bool = False


# --- events --------------------------------------------------------------------------------------


class HandoffRequested(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The handoff exists, durable, and belongs to its sender."""

    at: float
    handoff_id: str
    tenant: str
    sender: str
    context_id: str
    message: bytes
    message_id: str
    request_metadata: bytes
    extensions: tuple[str, ...]
    package: Package
    resolution: Resolution
    policy: Policy
    trace: HopTrace
    deadline_at: float
    parent: ParentRef | None = None
    workspace: str = ""
    input_modes: tuple[str, ...] = ()
    accepted_output_modes: tuple[str, ...] = ()
    surface: str = ""
    face: str = ""
    returns_to: str = ""


class ResolutionRequested(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every candidate was tried (or none is present): candidates are looked for anew."""

    at: float
    reason: str


class CandidatesResolved(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The new order of candidates."""

    at: float
    resolution: Resolution


class AgentAwaited(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Agents match but none is present: wait until one comes, at most until ``until``."""

    at: float
    until: float


class HandoffOffered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attempt ``attempt`` is out. The offer id stays the same over redeliveries to that agent."""

    at: float
    attempt: int
    agent_id: str
    offer_id: str
    span_id: str
    readiness: Readiness
    role: Role = Role.AGENT
    ack_due_at: float = 0.0


class RedeliveryScheduled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The same agent is asked again at ``due_at``. ``delivery`` counts from 2."""

    at: float
    attempt: int
    delivery: int
    outcome: Outcome
    detail: str
    due_at: float


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attempt is over without a result; the task is with its sender again."""

    at: float
    attempt: int
    agent_id: str
    outcome: Outcome
    detail: str = ""
    rescind: bool = False


class DeliveryUncertain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the target works on it is not known; the broker asks it until the deadline."""

    at: float
    attempt: int
    detail: str


class HandoffAcknowledged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target is ready; from here on it owns the task and the source is on standby."""

    at: float
    attempt: int
    agent_id: str
    remote: Remote = msgspec.field(default_factory=Remote)
    context_score: float | None = None
    synthetic_span: bool = True
    instance_id: str = ""
    lease_s: float | None = None


class RemoteLearnt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target's names for the task became known (or changed) after the ACK."""

    at: float
    attempt: int
    remote: Remote


class OutputRecorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target said something. Once this is in the log nothing is replayed."""

    at: float
    attempt: int
    outputs: tuple[Output, ...]


class CallerAsked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target waits for the caller; every timer but the deadline is paused."""

    at: float
    attempt: int
    auth: bool
    message: bytes
    outputs: tuple[Output, ...] = ()


class ReplyReceived(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A follow-up message of the caller, to be passed to the target."""

    at: float
    message: bytes
    message_id: str


class ChildAttached(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target hands on (``transfer``) or asks for help (``delegate``) with a child handoff."""

    at: float
    child_id: str
    mode: Mode
    target_open: bool
    by_call: bool = False
    context_score: float | None = None


class HandedOff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The child was acknowledged: it carries the task from here on."""

    at: float
    child_id: str


class ChildAsked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A child that the target made by a directive asks; the target is told."""

    at: float
    child_id: str


class ChildEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A child ended without ending this handoff."""

    at: float
    child_id: str
    state: State


class HandoffEscalated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No agent took it: a supervisor or a person is asked."""

    at: float
    outcome: Outcome
    detail: str


class CancelRequested(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caller wants it stopped; the target is told."""

    at: float
    by: str
    reason: str


class HandoffCanceled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terminal. ``confirmed``: the target said so, or there was none."""

    at: float
    confirmed: bool


class HandoffCompleted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terminal. ``message`` is the final status message, ``outputs`` what came with it.

    ``by_child``: the result is the leaf's, which has it in its own log.
    """

    at: float
    attempt: int
    message: bytes = b""
    outputs: tuple[Output, ...] = ()
    by_child: str = ""


class HandoffFailed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terminal. The target accepted the task and failed it."""

    at: float
    attempt: int
    outcome: Outcome
    detail: str
    message: bytes = b""
    outputs: tuple[Output, ...] = ()
    by_child: str = ""


class HandoffReturned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terminal. The task is with its sender again; the attempts say why."""

    at: float
    outcome: Outcome
    detail: str
    by_child: str = ""


class HandoffExpired(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terminal. The deadline passed."""

    at: float
    detail: str
    by_child: str = ""


class LateResultRecorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A result after the switch or the end: kept for the record, never applied."""

    at: float
    attempt: int
    agent_id: str
    state: State
    message: bytes = b""
    outputs: tuple[Output, ...] = ()


Event = (
    HandoffRequested
    | ResolutionRequested
    | CandidatesResolved
    | AgentAwaited
    | HandoffOffered
    | RedeliveryScheduled
    | AttemptEnded
    | DeliveryUncertain
    | HandoffAcknowledged
    | RemoteLearnt
    | OutputRecorded
    | CallerAsked
    | ReplyReceived
    | ChildAttached
    | HandedOff
    | ChildAsked
    | ChildEnded
    | HandoffEscalated
    | CancelRequested
    | HandoffCanceled
    | HandoffCompleted
    | HandoffFailed
    | HandoffReturned
    | HandoffExpired
    | LateResultRecorded
)


# --- actions -------------------------------------------------------------------------------------


class WorkKind(StrEnum):
    """What the dispatcher can do for a handoff; at most one of a kind and attempt is pending.

    ``WEBHOOK`` is to tell a webhook what becomes of a task, up to its last event: it outlives the handoff.
    """

    PROBE = "probe"
    DELIVER = "deliver"
    OFFER_LAPSE = "offer_lapse"
    RESOLVE = "resolve"
    WAIT_OVER = "wait_over"
    FORWARD = "forward"
    RECONCILE = "reconcile"
    CANCEL = "cancel"
    CANCEL_DUE = "cancel_due"
    RESCIND = "rescind"
    CANCEL_CHILD = "cancel_child"
    LEASE = "lease"
    DEADLINE = "deadline"
    WEBHOOK = "webhook"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Do ``kind`` at ``due_at`` (epoch seconds). ``attempt`` and ``ref`` say for what."""

    kind: WorkKind
    due_at: float
    attempt: int = 0
    ref: str = ""


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """Pending work of these kinds is void. An empty set means every kind but ``WEBHOOK``."""

    kinds: frozenset[WorkKind] = frozenset()


Action = Schedule | Drop
