"""Reading one ``handoff_context``: from JSON to the core's values.

Duty: types, sizes, names, enumerations and times of every member; what is missing.
Rules: what is wrong is refused with one violation for each fault. Facts, progress, preferences and every
member beyond the twelve are kept byte for byte, but for those that a broker stamps on each package.
Sources: docs/reference/handoff-context.md.
Not here: where a package stands in a request, and writing one (``context``); the token budget
(``core.budget``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Raw

from a2a_handoff.core.context import (
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
from a2a_handoff.core.text import NAME_CHARS_MAX, is_blank, name_fault
from a2a_handoff.core.tracing import parse_traceparent
from a2a_handoff.wire.fields import (
    Instant,
    add_fault,
    check_names,
    member_path,
    members_of,
    read_record,
    unknown_members,
    write_instant,
)

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

# ``parent_handoff_id`` stays behind too: a target that hands on a copy of its package would name its
# own parent as that of the next hop.
_LEFT_BEHIND = frozenset({*CONTEXT_FIELDS, *STAMPS, "transcript", "parent_handoff_id"})

_REQUIREMENTS = Requirements.__struct_fields__
_SIGNALS = Signals.__struct_fields__
_NOTHING = HandoffContext(correlation_id="", source_agent="", conversation_summary="", user_intent="")

_NAMES = (
    "correlation_id",
    "source_agent",
    "target_agent",
    "handoff_chain",
    "fallback",
    "parent_handoff_id",
    "traceparent",
)

#: A correlation id that stands for *none*: zeros are no trace id (W3C Trace Context section 3.2.2.3).
_NIL_IDS = frozenset({"0" * 32, "00000000-0000-0000-0000-000000000000"})


class Overdue(HandoffError):
    """The deadline has passed, and nothing else is wrong with the ``package``.

    A repeat of a message that was taken in time is no fault.
    """

    def __init__(self, error: HandoffError, package: Package) -> None:
        super().__init__(error.code, error.message, violations=error.violations)
        self.package = package


def read_context(
    raw: Raw | bytes,
    *,
    path: str,
    now: float,
    limits: Limits | None = None,
    parent: HandoffContext | None = None,
) -> Package:
    """Read one package that stands at ``path``.

    With ``parent`` it is an update of that context: intent, summary, facts, progress, preferences and
    correlation id are the parent's where they are absent. Raises ``HandoffError``
    (``invalid_context``) with every fault, ``Overdue`` if the deadline is the only one.
    """
    members = members_of(raw)
    if members is None:
        raise invalid([Violation(path, "must be an object")])
    reading = _Reading(path=path, now=now, limits=limits or Limits())
    read = read_record(_Context, raw, path, reading.faults)
    reading.check(read, members, required=parent is None)
    package = Package(
        context=reading.context(read, members, parent),
        requirements=read.requirements,
        signals=read.signals,
        options=reading.options(read),
        warnings=tuple(reading.warnings),
    )
    if reading.faults:
        error = invalid(reading.faults)
        raise Overdue(error, package) if reading.overdue and len(reading.faults) == 1 else error
    return package


class _Context(msgspec.Struct):
    """The members that are read, by their names on the wire."""

    correlation_id: str = ""
    source_agent: str = ""
    target_agent: str = ""
    handoff_reason: Reason = Reason.SPECIALIZATION
    conversation_summary: str = ""
    user_intent: str = ""
    key_facts: Raw = Raw(b"")
    task_progress: Raw = Raw(b"")
    user_preferences: Raw = Raw(b"")
    context_ref: str = ""
    # A float that is whole, because senders on protobuf ``Struct`` have no integers.
    hop_count: Annotated[float, msgspec.Meta(ge=0, le=MAX_HOPS_CAP, multiple_of=1)] = 0
    handoff_chain: tuple[str, ...] = ()
    requirements: Requirements = Requirements()
    signals: Signals = Signals()
    mode: Mode | None = None
    priority: Priority = Priority.NORMAL
    fallback: tuple[str, ...] = ()
    replay_safe: bool = False
    deadline: Instant | None = None
    wait_for_agent: float | None = None
    parent_handoff_id: str = ""
    context_overflow: Overflow = Overflow.REFUSE
    context_profile: Profile = Profile.RICH
    transcript: Raw = Raw(b"")
    traceparent: str = ""


class _Reading:
    """Judges what was read from one place and makes the core's values of it."""

    def __init__(self, *, path: str, now: float, limits: Limits) -> None:
        self._path = path
        self._now = now
        self._limits = limits
        self.faults: list[Violation] = []
        self.overdue = False
        self.warnings: list[str] = []

    def _fault(self, name: str, description: str) -> None:
        add_fault(self.faults, member_path(self._path, name), description)

    def check(self, read: _Context, members: Mapping[str, Raw], *, required: bool) -> None:
        """Note what has the right type and is wrong for all that."""
        limits = self._limits
        for name in _NAMES:
            if value := getattr(read, name):
                self._names(name, value)
        if fault := name_fault(read.context_ref, chars_max=limits.reference_chars):
            self._fault("context_ref", fault)
        self._text("conversation_summary", read.conversation_summary, limits.summary_bytes)
        self._text("user_intent", read.user_intent, limits.intent_bytes)
        self._object("key_facts", read.key_facts, limits.summary_and_facts_bytes)
        self._object("task_progress", read.task_progress, limits.task_progress_bytes)
        self._object("user_preferences", read.user_preferences, limits.user_preferences_bytes)
        if len(bytes(read.transcript)) > limits.transcript_bytes:
            self._fault("transcript", f"must be at most {limits.transcript_bytes} bytes of JSON")
        if not 0 <= (read.wait_for_agent or 0) <= limits.wait_for_agent_s:
            self._fault("wait_for_agent", f"must be a number from 0 to {limits.wait_for_agent_s:g}")
        if "requirements" in members:
            self._asked(read.requirements, members["requirements"])
        if "signals" in members:
            self._measured(read.signals, members["signals"])
        if required:
            self._required(read, members)

    def _required(self, read: _Context, members: Mapping[str, Raw]) -> None:
        for name in ("conversation_summary", "user_intent"):
            if _absent(members, name):
                self._fault(name, "is missing")
            elif is_blank(getattr(read, name)) and bytes(members[name]).startswith(b'"'):
                self._fault(name, "must not be blank")
        if _absent(members, "key_facts"):
            self._fault("key_facts", "is missing; {} is enough")

    def _names(self, name: str, values: str | tuple[str, ...]) -> None:
        check_names(self.faults, member_path(self._path, name), values, items_max=self._limits.list_items)

    def _text(self, name: str, value: str, bytes_max: int) -> None:
        if len(value) * 4 > bytes_max and len(value.encode()) > bytes_max:
            self._fault(name, f"must be at most {bytes_max} bytes of UTF-8")

    def _object(self, name: str, value: Raw, bytes_max: int) -> None:
        raw = bytes(value)
        if len(raw) > bytes_max:
            self._fault(name, f"must be at most {bytes_max} bytes of JSON")
        if raw and raw != b"null" and not raw.startswith(b"{"):
            self._fault(name, "must be an object")

    def _asked(self, asked: Requirements, raw: Raw) -> None:
        for name in unknown_members(Requirements, raw):
            self._fault(f"requirements.{name}", "is not known; a requirement is never passed over")
        for name in _REQUIREMENTS:
            if value := getattr(asked, name):
                self._names(f"requirements.{name}", value)

    def _measured(self, measured: Signals, raw: Raw) -> None:
        if unknown_members(Signals, raw):
            self.warnings.append(f"signals: only {', '.join(_SIGNALS)} are used; others are passed on")
        for name in ("intent", "language"):
            self._names(f"signals.{name}", getattr(measured, name))
        if not 0 <= (measured.completion_estimate or 0) <= 1:
            self._fault("signals.completion_estimate", "must be a number from 0 to 1")

    def context(
        self, read: _Context, members: Mapping[str, Raw], parent: HandoffContext | None
    ) -> HandoffContext:
        """The twelve fields, and what else travels on."""
        base = parent or _NOTHING
        correlation_id = "" if read.correlation_id in _NIL_IDS else read.correlation_id
        return HandoffContext(
            correlation_id=correlation_id or base.correlation_id,
            source_agent=read.source_agent,
            target_agent=read.target_agent,
            handoff_reason=read.handoff_reason,
            conversation_summary=read.conversation_summary or base.conversation_summary,
            user_intent=read.user_intent or base.user_intent,
            key_facts=_given(read.key_facts) or base.key_facts,
            task_progress=_given(read.task_progress) or base.task_progress,
            user_preferences=_given(read.user_preferences) or base.user_preferences,
            context_ref=read.context_ref,
            hop_count=int(read.hop_count),
            handoff_chain=read.handoff_chain,
            extra=self._extra(members),
        )

    def _extra(self, members: Mapping[str, Raw]) -> bytes:
        kept = {name: raw for name, raw in members.items() if name not in _LEFT_BEHIND}
        if not kept:
            return b"{}"
        written = msgspec.json.encode(kept)
        if len(written) > self._limits.extra_bytes:
            largest = max(kept, key=lambda name: len(bytes(kept[name])))
            self._fault(
                largest[:NAME_CHARS_MAX],
                f"is too large: all members beyond the twelve may take {self._limits.extra_bytes} bytes",
            )
        return written

    def options(self, read: _Context) -> HandoffOptions:
        """What is asked of the broker."""
        traceparent = read.traceparent
        if traceparent and parse_traceparent(traceparent) is None:
            self.warnings.append("traceparent: not valid (W3C Trace Context), ignored")
            traceparent = ""
        return HandoffOptions(
            mode=read.mode,
            priority=read.priority,
            fallback=read.fallback,
            replay_safe=read.replay_safe,
            deadline_at=None if read.deadline is None else self._deadline(read.deadline.timestamp()),
            wait_for_agent_s=read.wait_for_agent,
            parent_handoff_id=read.parent_handoff_id,
            context_overflow=read.context_overflow,
            context_profile=read.context_profile,
            transcript=_given(read.transcript),
            traceparent=traceparent,
        )

    def _deadline(self, at: float) -> float:
        latest = self._now + self._limits.deadline_s
        if at <= self._now:
            self.overdue = True
            self._fault("deadline", "is in the past")
        if at > latest:
            self.warnings.append(f"deadline: brought forward to {write_instant(latest)}, the latest allowed")
        return min(at, latest)


def _given(raw: Raw) -> bytes:
    value = bytes(raw)
    return b"" if value == b"null" else value


def _absent(members: Mapping[str, Raw], name: str) -> bool:
    return name not in members or bytes(members[name]) == b"null"


def invalid(faults: Sequence[Violation]) -> HandoffError:
    """The error that lists ``faults``, of which there is at least one."""
    first = faults[0]
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return HandoffError(
        Code.INVALID_CONTEXT,
        f"The handoff context is wrong: {first.field} {first.description}{more}.",
        violations=tuple(faults),
    )
