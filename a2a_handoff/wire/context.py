"""``handoff_context`` between JSON and the core.

Duty: find the package in a request, read it, make one for a message that has none, and write the one
that a target receives.
Rules: a package may stand in four places; copies must say the same. What is wrong is refused with one
violation for each fault. Facts, progress, preferences and every member beyond the twelve travel byte
for byte, but for those that a broker stamps on each package (``STAMPS``).
Sources: docs/reference/handoff-context.md; A2A 1.0 section 4.6 (where an extension's data stands).
Not here: the token budget (``core.budget``), joining summaries (``core.context``), what a target says
about a handoff (``directive``), the native REST shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from a2a_handoff.core.context import (
    CONTEXT_KEY,
    EXTENSION_URI,
    Dropped,
    HandoffContext,
    HandoffOptions,
    Limits,
    Mode,
    Overflow,
    Package,
    Priority,
    Profile,
    Reason,
    Requirements,
    Signals,
)
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.policy import MAX_HOPS_CAP
from a2a_handoff.core.text import NAME_CHARS_MAX, clip, clip_bytes, is_blank
from a2a_handoff.core.tracing import parse_traceparent
from a2a_handoff.wire.fields import Fields, members_of, same_json

#: The fields that every delivered package has.
CONTEXT_FIELDS = (
    "correlation_id",
    "source_agent",
    "target_agent",
    "handoff_reason",
    "conversation_summary",
    "user_intent",
    "key_facts",
    "task_progress",
    "user_preferences",
    "context_ref",
    "hop_count",
    "handoff_chain",
)

#: What a broker writes anew into each package: never passed on as it came.
STAMPS = frozenset(
    {
        "handoff_id",
        "offer_id",
        "attempt",
        "ack_wait_s",
        "traceparent",
        "deadline",
        "synthesized",
        "context_dropped",
        "warnings",
    }
)

#: What our extension's metadata carries besides a package; an object of these alone is no package.
DIRECTIVES = frozenset({"offer", "ready", "declined", "receipt", "handoff", "release"})

# ``parent_handoff_id`` stays behind too: a target that hands on a copy of its package would name its
# own parent as that of the next hop.
_LEFT_BEHIND = frozenset({*CONTEXT_FIELDS, *STAMPS, "transcript", "parent_handoff_id"})

_REQUIREMENTS = Requirements.__dataclass_fields__.keys()
_SIGNALS = Signals.__dataclass_fields__.keys()
_LIMITS = Limits()

#: A correlation id that stands for *none*: zeros are no trace id (W3C Trace Context section 3.2.2.3).
_NIL_IDS = frozenset({"0" * 32, "00000000-0000-0000-0000-000000000000"})

#: How much of a plain message becomes the intent (characters) and the summary (bytes: no count needed).
_INTENT_CHARS = 500
_SUMMARY_BYTES = 1_900


def read_package(
    params_metadata: Mapping[str, Raw] | None,
    message_metadata: Mapping[str, Raw] | None,
    *,
    now: float,
    limits: Limits = _LIMITS,
) -> Package | None:
    """The package of a request, ``None`` if it has none.

    ``now`` is in epoch seconds, for the deadline. The token budget is not checked yet. Raises
    ``HandoffError`` (``invalid_context``) with every fault, or if copies disagree.
    """
    found = _find(params_metadata or {}, message_metadata or {})
    if not found:
        return None
    (path, raw), *copies = found
    for other, copy in copies:
        if not same_json(bytes(raw), bytes(copy)):
            raise HandoffError(
                Code.INVALID_CONTEXT,
                f"Two handoff contexts disagree: {path} and {other}. Send one, or the same twice.",
                violations=(Violation(other, f"differs from {path}"),),
            )
    return read_context(raw, path=path, now=now, limits=limits)


def read_context(
    raw: Raw | bytes,
    *,
    path: str,
    now: float,
    limits: Limits = _LIMITS,
    parent: HandoffContext | None = None,
) -> Package:
    """Read one package that stands at ``path``.

    With ``parent`` it is an update of that context: intent, summary, facts, progress, preferences and
    correlation id are the parent's where they are absent. Raises ``HandoffError``
    (``invalid_context``) with every fault.
    """
    faults: list[Violation] = []
    warnings: list[str] = []
    members = members_of(raw)
    if members is None:
        raise _invalid([Violation(path, "must be an object")])
    fields = Fields(members, path, faults)
    package = Package(
        context=_context(fields, members, limits, parent),
        requirements=_requirements(fields, limits),
        signals=_signals(fields, warnings),
        options=_options(fields, now, limits, warnings),
        warnings=tuple(warnings),
    )
    if faults:
        raise _invalid(faults)
    return package


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the broker adds to a package for one delivery. Empty members are not written.

    ``deadline_at`` is the handoff's own deadline in epoch seconds, ``ack_wait_s`` how long the answer
    to an offer is awaited. ``dropped`` is the manifest of what this target does not receive.
    """

    handoff_id: str = ""
    offer_id: str = ""
    attempt: int = 0
    ack_wait_s: float | None = None
    traceparent: str = ""
    deadline_at: float | None = None
    dropped: Sequence[Dropped] = field(default=())
    warnings: Sequence[str] = field(default=())


def write_context(package: Package, stamp: Stamp, context: HandoffContext | None = None) -> bytes:
    """The JSON object that a target receives.

    The twelve fields come first, then what else the sender wrote, then ``stamp``. ``context`` stands
    in for the package's own: cut to the target's limit, with target and path.
    """
    context = context or package.context
    extra = {} if context.extra == b"{}" else members_of(context.extra) or {}
    ours = {name: value for name, value in _ours(package).items() if name not in extra}
    stamps: dict[str, Any] = {
        "handoff_id": stamp.handoff_id,
        "offer_id": stamp.offer_id,
        "attempt": stamp.attempt,
        "ack_wait_s": stamp.ack_wait_s,
        "traceparent": stamp.traceparent,
        "deadline": None if stamp.deadline_at is None else write_instant(stamp.deadline_at),
        "synthesized": package.synthesized,
        "context_dropped": [_written(line) for line in stamp.dropped],
        "warnings": list(stamp.warnings),
    }
    return msgspec.json.encode(
        {
            "correlation_id": context.correlation_id,
            "source_agent": context.source_agent,
            "target_agent": context.target_agent,
            "handoff_reason": context.handoff_reason,
            "conversation_summary": context.conversation_summary,
            "user_intent": context.user_intent,
            "key_facts": Raw(context.key_facts),
            "task_progress": Raw(context.task_progress),
            "user_preferences": Raw(context.user_preferences),
            "context_ref": context.context_ref,
            "hop_count": context.hop_count,
            "handoff_chain": context.handoff_chain,
            **extra,
            **ours,
            **{name: value for name, value in stamps.items() if value},
        }
    )


def write_instant(at: float) -> str:
    """Epoch seconds as RFC 3339 in UTC with milliseconds (A2A 1.0 section 5.6.1)."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Part(msgspec.Struct):
    """As much of an A2A part as a summary needs."""

    text: str | None = None


class _Message(msgspec.Struct):
    parts: list[_Part] = msgspec.field(default_factory=list[_Part])


_MESSAGE = msgspec.json.Decoder(_Message)


def synthesize(
    message: bytes, *, source_agent: str, target_agent: str = "", correlation_id: str = ""
) -> Package:
    """A minimal package for a message that came without one; it is marked ``synthesized``.

    ``message`` is A2A 1.0 JSON. Its text becomes the summary (at most 1,900 bytes) and the intent (at
    most 500 characters); a message without text is described by its parts.
    """
    try:
        parts = _MESSAGE.decode(message).parts
    except (msgspec.DecodeError, UnicodeDecodeError):
        parts = []
    text = "\n".join(part.text for part in parts if part.text)
    if is_blank(text):
        text = f"A message without text ({len(parts)} part{'' if len(parts) == 1 else 's'})."
    return Package(
        context=HandoffContext(
            correlation_id=correlation_id,
            source_agent=source_agent,
            target_agent=target_agent,
            conversation_summary=clip_bytes(text, _SUMMARY_BYTES),
            user_intent=clip(text, _INTENT_CHARS),
        ),
        synthesized=True,
    )


# --- reading -------------------------------------------------------------------------------------


def _find(params: Mapping[str, Raw], message: Mapping[str, Raw]) -> list[tuple[str, Raw]]:
    """Every place that has a package, with its path."""
    places = (
        (f"metadata.{CONTEXT_KEY}", params.get(CONTEXT_KEY)),
        (f'metadata["{EXTENSION_URI}"]', params.get(EXTENSION_URI)),
        (f'message.metadata["{EXTENSION_URI}"]', message.get(EXTENSION_URI)),
        (f"message.metadata.{CONTEXT_KEY}", message.get(CONTEXT_KEY)),
    )
    return [
        (path, raw)
        for path, raw in places
        if raw is not None and bytes(raw) != b"null" and not (path.endswith("]") and _is_directive(raw))
    ]


def _is_directive(raw: Raw) -> bool:
    members = members_of(raw)
    return bool(members) and members.keys() <= DIRECTIVES


def _context(
    fields: Fields, members: Mapping[str, Raw], limits: Limits, parent: HandoffContext | None
) -> HandoffContext:
    needed = parent is None
    base = parent or HandoffContext(
        correlation_id="", source_agent="", conversation_summary="", user_intent=""
    )
    correlation_id = fields.name("correlation_id")
    summary = fields.text("conversation_summary", required=needed, bytes_max=limits.summary_bytes)
    intent = fields.text("user_intent", required=needed, bytes_max=limits.intent_bytes)
    facts = fields.raw_object("key_facts", required=needed, bytes_max=limits.summary_and_facts_bytes)
    progress = fields.raw_object("task_progress", bytes_max=limits.task_progress_bytes)
    preferences = fields.raw_object("user_preferences", bytes_max=limits.user_preferences_bytes)
    return HandoffContext(
        correlation_id=("" if correlation_id in _NIL_IDS else correlation_id) or base.correlation_id,
        source_agent=fields.name("source_agent"),
        target_agent=fields.name("target_agent"),
        handoff_reason=fields.choice("handoff_reason", Reason) or Reason.SPECIALIZATION,
        conversation_summary=summary or base.conversation_summary,
        user_intent=intent or base.user_intent,
        key_facts=facts or base.key_facts,
        task_progress=progress or base.task_progress,
        user_preferences=preferences or base.user_preferences,
        context_ref=fields.name("context_ref", chars_max=limits.reference_chars),
        hop_count=fields.integer("hop_count", 0, MAX_HOPS_CAP) or 0,
        handoff_chain=fields.names("handoff_chain", items_max=limits.list_items),
        extra=_extra(fields, members, limits),
    )


def _extra(fields: Fields, members: Mapping[str, Raw], limits: Limits) -> bytes:
    kept = {name: raw for name, raw in members.items() if name not in _LEFT_BEHIND}
    if not kept:
        return b"{}"
    written = msgspec.json.encode(kept)
    if len(written) > limits.extra_bytes:
        largest = max(kept, key=lambda name: len(bytes(kept[name])))
        fields.fault(
            largest[:NAME_CHARS_MAX],
            f"is too large: all members beyond the twelve may take {limits.extra_bytes} bytes",
        )
    return written


def _requirements(fields: Fields, limits: Limits) -> Requirements:
    inner = fields.object("requirements")
    if inner is None:
        return Requirements()
    for name in inner.unknown(_REQUIREMENTS):
        inner.fault(name, f"is not known; requirements are {', '.join(_REQUIREMENTS)}")
    return Requirements(
        agent_type=inner.name("agent_type"),
        capabilities=inner.names("capabilities", items_max=limits.list_items),
        skill=inner.name("skill"),
        domain=inner.name("domain"),
        tags=inner.names("tags", items_max=limits.list_items),
        platform=inner.name("platform"),
        input_modes=inner.names("input_modes", items_max=limits.list_items),
        output_modes=inner.names("output_modes", items_max=limits.list_items),
    )


def _signals(fields: Fields, warnings: list[str]) -> Signals:
    inner = fields.object("signals")
    if inner is None:
        return Signals()
    if inner.unknown(_SIGNALS):
        warnings.append(f"signals: only {', '.join(_SIGNALS)} are used; others are passed on")
    return Signals(
        intent=inner.name("intent"),
        sentiment_score=inner.number("sentiment_score"),
        complexity_score=inner.number("complexity_score"),
        risk_level=inner.number("risk_level"),
        language=inner.name("language"),
        completion_estimate=inner.number("completion_estimate", 0, 1),
    )


def _options(fields: Fields, now: float, limits: Limits, warnings: list[str]) -> HandoffOptions:
    traceparent = fields.name("traceparent")
    if traceparent and parse_traceparent(traceparent) is None:
        warnings.append("traceparent: not valid (W3C Trace Context), ignored")
        traceparent = ""
    return HandoffOptions(
        mode=fields.choice("mode", Mode),
        priority=fields.choice("priority", Priority) or Priority.NORMAL,
        fallback=fields.names("fallback", items_max=limits.list_items),
        replay_safe=fields.flag("replay_safe") or False,
        deadline_at=_deadline(fields, now, limits, warnings),
        wait_for_agent_s=fields.number("wait_for_agent", 0, limits.wait_for_agent_s),
        parent_handoff_id=fields.name("parent_handoff_id"),
        context_overflow=fields.choice("context_overflow", Overflow) or Overflow.REFUSE,
        context_profile=fields.choice("context_profile", Profile) or Profile.RICH,
        transcript=fields.raw("transcript", bytes_max=limits.transcript_bytes),
        traceparent=traceparent,
    )


def _deadline(fields: Fields, now: float, limits: Limits, warnings: list[str]) -> float | None:
    at = fields.instant("deadline")
    if at is None:
        return None
    if at <= now:
        fields.fault("deadline", "is in the past")
    if at > now + limits.deadline_s:
        at = now + limits.deadline_s
        warnings.append(f"deadline: brought forward to {write_instant(at)}, the latest allowed")
    return at


def _invalid(faults: list[Violation]) -> HandoffError:
    first = faults[0]
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return HandoffError(
        Code.INVALID_CONTEXT,
        f"The handoff context is wrong: {first.field} {first.description}{more}.",
        violations=tuple(faults),
    )


# --- writing -------------------------------------------------------------------------------------


def _ours(package: Package) -> dict[str, Any]:
    """What is asked of the target, for packages that did not come as JSON."""
    options = package.options
    written: dict[str, Any] = {
        "requirements": _set(package.requirements, _REQUIREMENTS),
        "signals": _set(package.signals, _SIGNALS),
        "mode": options.mode,
        "priority": "" if options.priority is Priority.NORMAL else options.priority,
        "fallback": options.fallback,
        "replay_safe": options.replay_safe,
    }
    return {name: value for name, value in written.items() if value}


def _set(values: Requirements | Signals, names: Iterable[str]) -> dict[str, Any]:
    read = {name: getattr(values, name) for name in names}
    return {name: value for name, value in read.items() if value not in ("", (), None)}


def _written(line: Dropped) -> dict[str, Any]:
    return {
        "part": line.part,
        "unit": line.unit,
        "count": line.count,
        "bytes": line.bytes,
        "tokens": line.tokens,
        "names": line.names,
    }
