"""The context package that travels with a handoff.

Duty: the package, what the sender asks for beside it, and how summaries of several hops are joined.
Not here: reading it from JSON (``wire.context``), the token budget (``budget``), counting tokens (a
port), how much of it arrived (``score``).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

#: Names our extension in cards, in ``message.extensions`` and as the key of its metadata.
EXTENSION_URI = "urn:a2a-handoff:handoff:v1"

#: The name of the package in the metadata of a request.
CONTEXT_KEY = "handoff_context"

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


class Overflow(StrEnum):
    """What becomes of a package whose newest segment and facts are over the token budget."""

    REFUSE = "refuse"
    TRIM = "trim"


class Profile(StrEnum):
    """How much of the summary the target receives.

    ``rich``: every segment that fits the budget. ``minimal``: the newest segment only. Facts,
    progress, preferences and intent travel in both; without them questions are asked twice.
    """

    RICH = "rich"
    MINIMAL = "minimal"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that each part of a package may take; over it the package is refused.

    ``summary_bytes`` bounds the joined summary of all hops, ``summary_and_facts_bytes`` its newest
    segment together with the facts. ``deadline_s`` is an exception: a later deadline is brought
    forward, with a warning.
    """

    intent_bytes: int = 8_192
    summary_bytes: int = 262_144
    summary_and_facts_bytes: int = 65_536
    task_progress_bytes: int = 16_384
    user_preferences_bytes: int = 16_384
    extra_bytes: int = 32_768
    transcript_bytes: int = 1_048_576
    reference_chars: int = 1_000
    list_items: int = 64
    deadline_s: float = 604_800.0
    wait_for_agent_s: float = 604_800.0


class Dropped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a drop manifest: what of a package the target does not receive.

    ``part`` is a field of the package, ``unit`` what was left out of it: ``segment``, ``sentence`` or
    ``member``. ``names`` are numbers of segments in the chain and of sentences in the segment (from
    1), or names of facts; at most 50, while ``count`` counts all. ``tokens`` is 0 if not counted.
    """

    part: str
    unit: str
    count: int
    bytes: int
    tokens: int = 0
    names: tuple[str, ...] = ()


class Requirements(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class Signals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the sender measured of the conversation; ``None`` is *not measured*."""

    intent: str = ""
    sentiment_score: float | None = None
    complexity_score: float | None = None
    risk_level: float | None = None
    language: str = ""
    completion_estimate: float | None = None


class HandoffContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The twelve fields that every target receives.

    ``key_facts``, ``task_progress`` and ``user_preferences`` are JSON objects as they came, byte for
    byte: the broker never changes a number or a null in them. ``handoff_chain`` is the path of the
    agents that held the task, the sender last until the target is appended at delivery. ``extra`` is
    a JSON object of every other member that travels on to the target as it came: what the sender
    asks for, and what this broker does not know.
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
    extra: bytes = b"{}"


class HandoffOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    context_overflow: Overflow = Overflow.REFUSE
    context_profile: Profile = Profile.RICH
    transcript: bytes = b""
    traceparent: str = ""


class Package(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parsed ``handoff_context``: the context, what is asked of the target and of the broker.

    ``synthesized``: the message came without one and the broker made a minimal one from it.
    ``tokens`` is the count of summary and facts, 0 if their bytes alone show that they fit.
    ``dropped`` is the drop manifest of the chain so far. ``warnings`` go back to the caller with the
    answer.
    """

    context: HandoffContext
    requirements: Requirements = Requirements()
    signals: Signals = Signals()
    options: HandoffOptions = HandoffOptions()
    synthesized: bool = False
    tokens: int = 0
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()


def segments(summary: str) -> list[str]:
    """The segments of a joined summary, oldest first."""
    return summary.split(HOP_SEPARATOR)


def join_summaries(existing: str, segment: str) -> str:
    """Append a hop's segment. Segments are joined, never summarised again: that loses signal."""
    if not existing:
        return segment
    if not segment:
        return existing
    return f"{existing}{HOP_SEPARATOR}{segment}"


def joined_summary(existing: str, received: str, *, delivered: str = "") -> str:
    """The summary of a later hop, whether its sender sent all of it or its own segment alone.

    ``existing`` is the parent's joined summary as it was stored. The sender may have been given less:
    without its oldest segments, or, in ``delivered``, with the newest one cut. A ``received`` that
    begins with what it was given, as whole segments, is taken as already joined; one that is no more
    than that adds nothing; everything else is a segment of its own. Doing it twice changes nothing.
    """
    if not existing:
        return received
    known, new = segments(existing), segments(received)
    given = segments(delivered) if delivered else known
    for start in range(len(known)):
        if known[start:] == new[: len(known) - start]:
            new = new[len(known) - start :]
            break
    else:
        if given == new[: len(given)]:
            new = new[len(given) :]
    own = HOP_SEPARATOR.join(new)
    return join_summaries(existing, own) if own.strip() else existing
