"""The handoff as it stands: what replaying its log gives.

Duty: the aggregate's control state and ``evolve``. It holds no payload: messages and artifacts are in
the log alone, so that a long stream does not rewrite what it has said.
Not here: what may happen next (``machine``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from a2a_handoff.core.agents import Readiness, Role
from a2a_handoff.core.context import Mode, Priority, Requirements
from a2a_handoff.core.events import Candidate, Outcome, ParentRef, PassedOver, Remote, State
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.tracing import HopTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One offer to one agent. ``outcome`` is ``None`` while it is the current one, or holds."""

    number: int
    agent_id: str
    offer_id: str
    span_id: str
    readiness: Readiness
    role: Role = Role.AGENT
    offered_at: float = 0.0
    deliveries: int = 1
    acked_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    detail: str = ""
    remote: Remote = field(default_factory=Remote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A handoff that the target of this one made."""

    handoff_id: str
    mode: Mode
    target_open: bool
    state: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """One transfer of responsibility for one task. ``version`` is the number of its events."""

    id: str
    version: int
    tenant: str
    sender: str
    correlation_id: str
    context_id: str
    message_id: str
    state: State
    policy: Policy
    trace: HopTrace
    created_at: float
    updated_at: float
    deadline_at: float
    hop_count: int = 0
    path: tuple[str, ...] = ()
    parent: ParentRef | None = None
    mode: Mode = Mode.TRANSFER
    reason: str = ""
    priority: Priority = Priority.NORMAL
    replay_safe: bool = False
    requirements: Requirements = field(default_factory=Requirements)
    target_agent: str = ""
    returns_to: str = ""
    candidates: tuple[Candidate, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    resolutions: int = 1
    attempts: tuple[Attempt, ...] = ()
    escalated: bool = False
    uncertain: bool = False
    output_started: bool = False
    cancel_requested: bool = False
    waiting_until: float | None = None
    children: tuple[Child, ...] = ()
    leaf_id: str = ""
    replies: tuple[str, ...] = ()
    context_score: float | None = None
    outcome: Outcome | None = None
    detail: str = ""
    ended_at: float | None = None
    acked_at: float | None = None

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, whether or not it has ended."""
        return self.attempts[-1] if self.attempts else None

    @property
    def holder(self) -> str:
        """The agent that was offered the task or holds it; empty if nobody."""
        attempt = self.attempt
        if attempt is None or attempt.outcome is not None or self.state.terminal:
            return ""
        return attempt.agent_id

    @property
    def owner(self) -> str:
        """Who is responsible now: ``source``, ``target``, ``leaf`` or ``nobody``."""
        match self.state:
            case State.REQUESTED | State.OFFERED | State.ESCALATED | State.RETURNED | State.EXPIRED:
                return "source"
            case State.ACKNOWLEDGED | State.INPUT_REQUIRED | State.AUTH_REQUIRED:
                return "target"
            case State.HANDED_OFF:
                return "leaf"
            case State.COMPLETED | State.FAILED | State.CANCELED:
                return "nobody"
