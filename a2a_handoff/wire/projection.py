"""The A2A task that a handoff is seen as, and what a follower of it is told.

Duty: fold a handoff's events into a task; name the stream events of one event.
Rules: a task is a projection and can be made again at any time, with the same ids. A status message
enters the history when something else takes its place; what the broker itself says does not. Once a
task was working it is not shown as submitted again. An artifact of one piece stays byte for byte.
Sources: A2A 1.0 sections 3.1.2, 3.7, 4.1 and 4.2.
Not here: JSON of tasks and events (``tasks``), what the broker says (``notices``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from a2a_handoff.core import events as ev
from a2a_handoff.core.context import CONTEXT_KEY, EXTENSION_URI
from a2a_handoff.core.events import Event, Output, OutputKind, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire import notices
from a2a_handoff.wire.fields import members_of
from a2a_handoff.wire.shapes import fields_of, pack

#: The A2A state of each state of a handoff. A handed-off one shows that of its leaf.
TASK_STATES: Final[Mapping[State, RemoteState]] = MappingProxyType(
    {
        State.REQUESTED: RemoteState.SUBMITTED,
        State.OFFERED: RemoteState.SUBMITTED,
        State.ESCALATED: RemoteState.SUBMITTED,
        State.ACKNOWLEDGED: RemoteState.WORKING,
        State.HANDED_OFF: RemoteState.WORKING,
        State.INPUT_REQUIRED: RemoteState.INPUT_REQUIRED,
        State.AUTH_REQUIRED: RemoteState.AUTH_REQUIRED,
        State.COMPLETED: RemoteState.COMPLETED,
        State.FAILED: RemoteState.FAILED,
        State.CANCELED: RemoteState.CANCELED,
        State.RETURNED: RemoteState.REJECTED,
        State.EXPIRED: RemoteState.FAILED,
    }
)


class _Named(msgspec.Struct):
    """As much of an artifact as tells it from others."""

    artifactId: str = ""  # noqa: N815 - the wire's name


_named = msgspec.json.Decoder(_Named)
_array = msgspec.json.Decoder(list[Raw])


def artifact_id(body: bytes) -> str:
    """The id of a 1.0 artifact; empty for one without."""
    try:
        return _named.decode(body).artifactId
    except msgspec.ValidationError:
        return ""


def states_of(state: RemoteState) -> frozenset[State]:
    """The states of handoffs that are shown as ``state``, for a listing."""
    return frozenset(own for own, shown in TASK_STATES.items() if shown is state)


def task_state(h: Handoff) -> RemoteState:
    """The A2A state of a handoff. Once it was working it is not submitted again."""
    state = TASK_STATES[h.state]
    return RemoteState.WORKING if state is RemoteState.SUBMITTED and h.acked_at is not None else state


# --- what is shown -------------------------------------------------------------------------------


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task as A2A shows it; messages and artifacts are 1.0 JSON.

    ``timestamp`` is in epoch seconds. ``metadata`` is a JSON object. ``language`` is the one in which
    the broker speaks to the caller.
    """

    id: str
    context_id: str
    state: RemoteState
    timestamp: float
    status_message: bytes = b""
    artifacts: tuple[bytes, ...] = ()
    history: tuple[bytes, ...] = ()
    metadata: bytes = b"{}"
    language: str = notices.ENGLISH

    def continued_by(self, leaf: TaskView) -> TaskView:
        """The task of a handoff that was handed on, with what the leaf of its chain adds.

        The leaf's first message is the one that it was handed on with, and not the caller's.
        """
        handed_on = self.state is RemoteState.WORKING
        state = leaf.state if handed_on else self.state
        own = {artifact_id(body): body for body in self.artifacts}
        added = {artifact_id(body): body for body in leaf.artifacts}
        said = (self.status_message,) if handed_on and self.status_message and leaf.status_message else ()
        return replace(
            self,
            state=RemoteState.WORKING if state is RemoteState.SUBMITTED else state,
            timestamp=max(self.timestamp, leaf.timestamp),
            status_message=leaf.status_message or self.status_message,
            artifacts=tuple((own | added).values()),
            history=(*self.history, *said, *leaf.history[1:]),
            metadata=_with_leaf(self.metadata, leaf.metadata),
        )


class StatusUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task changed, or the target said something. ``timestamp`` is in epoch seconds."""

    task_id: str
    context_id: str
    state: RemoteState
    timestamp: float
    message: bytes = b""


class ArtifactUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact, or a chunk of one (A2A 1.0 section 4.2.2)."""

    task_id: str
    context_id: str
    artifact: bytes
    append: bool = False
    last_chunk: bool = True


TaskEvent = TaskView | StatusUpdate | ArtifactUpdate


# --- from the log --------------------------------------------------------------------------------


class _Fold:
    """Collects what is said in a handoff, event by event."""

    def __init__(self) -> None:
        self.history: list[bytes] = []
        self.chunks: dict[str, list[bytes]] = {}
        self.metadata: bytes = b""
        self.warnings: tuple[str, ...] = ()
        self.language = notices.ENGLISH
        self._said = b""

    @property
    def said(self) -> bytes:
        """The target's last word; empty once it was answered, or is that of a former target."""
        return self._said

    def take(self, event: Event) -> None:
        match event:
            case ev.HandoffRequested():
                self.history.append(event.message)
                self.metadata = event.request_metadata
                self.warnings = event.package.warnings
                self.language = notices.language_of(event.package.context.user_preferences)
            case ev.OutputRecorded():
                self._outputs(event.outputs)
            case ev.ReplyReceived():
                self._say(b"")
                self.history.append(event.message)
            case ev.CallerAsked() | ev.HandoffCompleted() | ev.HandoffFailed():
                self._outputs(event.outputs)
                self._say(event.message)
            case ev.HandoffOffered() | ev.HandoffCanceled() | ev.HandoffReturned() | ev.HandoffExpired():
                self._say(b"")
            case _:
                pass

    def _outputs(self, outputs: tuple[Output, ...]) -> None:
        for output in outputs:
            if output.kind is not OutputKind.ARTIFACT:
                if output.body:
                    self._say(output.body)
                continue
            name = output.artifact_id or artifact_id(output.body)
            if output.append:
                self.chunks.setdefault(name, []).append(output.body)
            else:
                self.chunks[name] = [output.body]

    def _say(self, message: bytes) -> None:
        if self._said and self._said != message:
            self.history.append(self._said)
        self._said = message


def fold(handoff: Handoff, events: Iterable[Event]) -> TaskView:
    """The task that the events of a handoff lead to. ``handoff`` is its state after them."""
    folded = _Fold()
    for event in events:
        folded.take(event)
    return _view(handoff, folded)


class TaskFold:
    """A task as its log unfolds: that of its handoff, then of each that it was handed on to."""

    def __init__(self) -> None:
        self._path: list[tuple[Handoff, _Fold]] = []

    def take(self, event: Event, after: Handoff) -> None:
        """Take one event in. A handoff that was handed on and goes on itself leaves the other behind."""
        depth = next((n for n, (handoff, _) in enumerate(self._path) if handoff.id == after.id), None)
        folded = _Fold() if depth is None else self._path[depth][1]
        folded.take(event)
        if depth is not None:
            del self._path[depth:]
        self._path.append((after, folded))

    def view(self) -> TaskView:
        """The task after the events so far, of which there must be one."""
        *above, task = (_view(handoff, folded) for handoff, folded in self._path)
        for upper in reversed(above):
            task = upper.continued_by(task)
        return task


def _view(handoff: Handoff, folded: _Fold) -> TaskView:
    return TaskView(
        id=handoff.id,
        context_id=handoff.context_id,
        state=task_state(handoff),
        timestamp=handoff.updated_at,
        status_message=_status_message(handoff, folded),
        artifacts=tuple(_joined(chunks) for chunks in folded.chunks.values()),
        history=tuple(folded.history),
        metadata=_metadata(handoff, folded),
        language=folded.language,
    )


def _status_message(h: Handoff, folded: _Fold) -> bytes:
    """The target's last word; where there is none, what the broker has to say of the state."""
    event = _event_of(h)
    if folded.said or not event:
        return folded.said
    return notices.notice(h, event, folded.language)


def _event_of(h: Handoff) -> str:
    """The system event that tells how a handoff stands; empty if its state says it all."""
    match h.state:
        case State.OFFERED | State.ESCALATED if h.uncertain:
            return notices.OVERDUE
        case State.OFFERED:
            return notices.STARTED
        case State.ESCALATED:
            return notices.STARTED if h.holder else ""
        case State.ACKNOWLEDGED:
            return notices.CONFIRMED
        case State.RETURNED:
            return notices.RETURNED
        case State.EXPIRED:
            return notices.EXPIRED
        case State.FAILED:
            return notices.FAILED
        case _:
            return ""


def _joined(chunks: list[bytes]) -> bytes:
    """One artifact of its chunks: the first one's fields, what later ones add, all parts."""
    if len(chunks) == 1:
        return chunks[0]
    fields: dict[str, Raw] = {}
    parts: list[Raw] = []
    for chunk in chunks:
        found = fields_of(chunk)
        with contextlib.suppress(KeyError, msgspec.ValidationError):
            parts.extend(_array.decode(found["parts"]))
        fields = found | fields
    fields["parts"] = Raw(pack(parts))
    return pack(fields)


def _metadata(h: Handoff, folded: _Fold) -> bytes:
    """What the caller wrote beside the message, and how the handoff stands."""
    ours: dict[str, Any] = {
        "handoff_id": h.id,
        "correlation_id": h.correlation_id,
        "trace_id": h.trace.trace_id,
        "state": h.state,
        "hop_count": h.hop_count,
        "handoff_chain": h.path,
        "attempts": notices.attempts_of(h),
    }
    if folded.warnings:
        ours["warnings"] = folded.warnings
    given = (members_of(folded.metadata) or {}) if folded.metadata else {}
    kept = {name: value for name, value in given.items() if name not in (CONTEXT_KEY, EXTENSION_URI)}
    return pack({**kept, EXTENSION_URI: ours})


def _with_leaf(metadata: bytes, leaf: bytes) -> bytes:
    """The account of the leaf below our own."""
    members = fields_of(metadata)
    ours = fields_of(members[EXTENSION_URI]) | {"leaf": fields_of(leaf)[EXTENSION_URI]}
    return pack(members | {EXTENSION_URI: Raw(pack(ours))})


def stream_events(
    before: Handoff | None, event: Event, after: Handoff, *, language: str = notices.ENGLISH
) -> list[StatusUpdate | ArtifactUpdate]:
    """What a follower of the task is told of one event; empty for what concerns the broker alone."""
    told: list[StatusUpdate | ArtifactUpdate] = []
    match event:
        case ev.HandoffOffered():
            told.append(_status(after, notices.notice(after, notices.STARTED, language)))
        case ev.DeliveryUncertain() if after.owner == "source":
            told.append(_status(after, notices.notice(after, notices.OVERDUE, language)))
        case ev.HandoffAcknowledged():
            told.append(_status(after, notices.notice(after, notices.CONFIRMED, language)))
        case ev.OutputRecorded() | ev.ChildAttached() | ev.ReplyReceived():
            if before is not None and task_state(before) is not task_state(after):
                told.append(_status(after))  # it had asked, and goes on
            if isinstance(event, ev.OutputRecorded):
                told.extend(_outputs(after, event.outputs))
        case ev.CallerAsked() | ev.HandoffCompleted():
            told.extend(_outputs(after, event.outputs))
            told.append(_status(after, event.message))
        case ev.HandoffFailed():
            told.extend(_outputs(after, event.outputs))
            told.append(_status(after, event.message or notices.notice(after, notices.FAILED, language)))
        case ev.HandoffCanceled():
            told.append(_status(after))
        case ev.HandoffReturned():
            told.append(_status(after, notices.notice(after, notices.RETURNED, language)))
        case ev.HandoffExpired():
            told.append(_status(after, notices.notice(after, notices.EXPIRED, language)))
        case _:
            pass
    return told


def _outputs(h: Handoff, outputs: tuple[Output, ...]) -> list[StatusUpdate | ArtifactUpdate]:
    return [
        ArtifactUpdate(
            task_id=h.id,
            context_id=h.context_id,
            artifact=output.body,
            append=output.append,
            last_chunk=output.last,
        )
        if output.kind is OutputKind.ARTIFACT
        else _status(h, output.body)
        for output in outputs
    ]


def _status(h: Handoff, message: bytes = b"") -> StatusUpdate:
    return StatusUpdate(
        task_id=h.id,
        context_id=h.context_id,
        state=task_state(h),
        timestamp=h.updated_at,
        message=message,
    )
