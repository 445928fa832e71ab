"""The context package that travels with a handoff.

Duty: the package and what the sender asks for beside it.
Not here: reading it from JSON (``wire.context``), counting tokens (a port).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

#: Separates the segments of ``conversation_summary``, one per hop.
HOP_SEPARATOR = "\n---hop---\n"

#: Most tokens of summary and facts together; exactly this many pass.
TOKEN_BUDGET = 2_000


class Reason(StrEnum):
    """Why a task changes hands (``handoff_reason``)."""

    CAPABILITY_BOUNDARY = "capability_boundary"
    SPECIALIZATION = "specialization"
    ESCALATION = "escalation"
    LOAD_BALANCING = "load_balancing"


class Mode(StrEnum):
    """``transfer``: the target takes the task over. ``delegate``: the caller stays its owner."""

    TRANSFER = "transfer"
    DELEGATE = "delegate"


class Priority(StrEnum):
    """Orders inboxes; waiting work ages upwards."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What the target must be able to do. Empty fields ask for nothing."""

    agent_type: str = ""
    capabilities: tuple[str, ...] = ()
    skill: str = ""
    domain: str = ""
    tags: tuple[str, ...] = ()
    platform: str = ""
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing at all is asked for."""
        return self == Requirements()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What the sender measured of the conversation; ``None`` is *not measured*."""

    intent: str = ""
    sentiment_score: float | None = None
    complexity_score: float | None = None
    risk_level: float | None = None
    language: str = ""
    completion_estimate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffContext:
    """The twelve fields that every target receives.

    ``key_facts``, ``task_progress`` and ``user_preferences`` are JSON objects as they came, byte for
    byte: the broker never changes a number or a null in them. ``handoff_chain`` is the path of the
    agents that held the task, the sender last until the target is appended at delivery.
    """

    correlation_id: str
    source_agent: str
    conversation_summary: str
    user_intent: str
    target_agent: str = ""
    handoff_reason: Reason = Reason.SPECIALIZATION
    key_facts: bytes = b"{}"
    task_progress: bytes = b"{}"
    user_preferences: bytes = b"{}"
    context_ref: str = ""
    hop_count: int = 0
    handoff_chain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffOptions:
    """What the sender asks of the broker, beside the context itself.

    Times are epoch seconds (``deadline_at``) or durations in seconds. ``None`` takes the setting.
    ``replay_safe``: running the task twice does no harm. ``transcript`` is raw JSON, stored and not
    sent on. ``traceparent`` is the sender's own span (W3C Trace Context).
    """

    mode: Mode | None = None
    priority: Priority = Priority.NORMAL
    fallback: tuple[str, ...] = ()
    replay_safe: bool = False
    deadline_at: float | None = None
    wait_for_agent_s: float | None = None
    parent_handoff_id: str = ""
    context_overflow: str = "refuse"
    context_profile: str = "rich"
    transcript: bytes = b""
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A parsed ``handoff_context``: the context, what is asked of the target and of the broker.

    ``synthesized``: the message came without one and the broker made a minimal one from it.
    ``warnings`` go back to the caller with the answer.
    """

    context: HandoffContext
    requirements: Requirements = field(default_factory=Requirements)
    signals: Signals = field(default_factory=Signals)
    options: HandoffOptions = field(default_factory=HandoffOptions)
    synthesized: bool = False
    tokens: int = 0
    warnings: tuple[str, ...] = ()


def join_summaries(existing: str, segment: str) -> str:
    """Append a hop's segment. Segments are joined, never summarised again: that loses signal."""
    if not existing:
        return segment
    if not segment:
        return existing
    return f"{existing}{HOP_SEPARATOR}{segment}"
