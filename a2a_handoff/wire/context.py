"""``handoff_context`` between JSON and the core.

Duty: find the package in a request, make one for a message that has none, and write the one that a
target receives.
Rules: a package may stand in four places; copies must say the same. What a target receives has all
twelve fields; what the broker does not own is in it byte for byte.
Sources: docs/reference/handoff-context.md; A2A 1.0 section 4.6 (where an extension's data stands).
Not here: reading the package's members (``context_reader``), the token budget (``core.budget``),
joining summaries (``core.context``), what a target says about a handoff (``directive``), the native
REST shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from a2a_handoff.core.context import (
    CONTEXT_KEY,
    EXTENSION_URI,
    Dropped,
    HandoffContext,
    Limits,
    Package,
    Priority,
    Requirements,
    Signals,
)
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.text import clip, clip_bytes, is_blank
from a2a_handoff.wire.context_reader import read_context
from a2a_handoff.wire.fields import members_of, same_json, write_instant

#: What our extension's metadata carries besides a package; an object of these alone is no package.
DIRECTIVES = frozenset({"offer", "rescinded", "child", "ready", "declined", "receipt", "handoff", "release"})

#: How much of a plain message becomes the intent (characters) and the summary (bytes: no count needed).
_INTENT_CHARS = 500
_SUMMARY_BYTES = 1_900

#: No package within its limits is longer, unless it is white space.
_COPY_BYTES_MAX = 4_194_304


def read_package(
    params_metadata: Mapping[str, Raw] | None,
    message_metadata: Mapping[str, Raw] | None,
    *,
    now: float,
    limits: Limits | None = None,
) -> Package | None:
    """The package of a request, ``None`` if it has none.

    ``now`` is in epoch seconds, for the deadline. The token budget is not checked yet. Raises
    ``HandoffError`` (``invalid_context``) with every fault, or if copies disagree; see ``read_context``.
    """
    found = _find(params_metadata or {}, message_metadata or {})
    if not found:
        return None
    (path, raw), *copies = found
    package = read_context(raw, path=path, now=now, limits=limits)
    for other, copy in copies:
        # What is read is within its limits; a copy is compared only if it can be, too.
        if len(bytes(copy)) > _COPY_BYTES_MAX or not same_json(bytes(raw), bytes(copy)):
            raise HandoffError(
                Code.INVALID_CONTEXT,
                f"Two handoff contexts disagree: {path} and {other}. Send one, or the same twice.",
                violations=(Violation(other, f"differs from {path}"),),
            )
    return package


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
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
    dropped: Sequence[Dropped] = ()
    warnings: Sequence[str] = ()


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


# --- writing -------------------------------------------------------------------------------------


def _ours(package: Package) -> dict[str, Any]:
    """What is asked of the target, for packages that did not come as JSON."""
    options = package.options
    written: dict[str, Any] = {
        "requirements": _set(package.requirements, Requirements.__struct_fields__),
        "signals": _set(package.signals, Signals.__struct_fields__),
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
