"""The JSON of tasks and of their streams, in each generation.

Duty: write task views, pages of them and stream events; frame server-sent events.
Rules: messages and artifacts go out byte for byte in 1.0, but for the task and context ids in messages:
the caller's stand there, not the target's.
Sources: A2A 1.0 sections 3.1.4, 3.2.3, 3.2.4, 5.6.1 and 9.4; the 0.3 schema; ``a2a.json`` of 0.1; WHATWG
HTML section 9.2 (server-sent events).
Not here: what a task and its events are (``projection``), parts and messages (``shapes``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from a2a_handoff.core.agents import Generation
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire.fields import write_instant
from a2a_handoff.wire.projection import (
    ArtifactUpdate,
    StatusUpdate,
    TaskEvent,
    TaskView,
    artifact_id,
    fold,
    states_of,
    stream_events,
)
from a2a_handoff.wire.shapes import artifact_out, fields_of, message_out, pack, state_out

__all__ = [
    "ArtifactUpdate",
    "StatusUpdate",
    "StreamWriter",
    "TaskEvent",
    "TaskView",
    "fold",
    "list_json",
    "sse",
    "states_of",
    "stream_events",
    "task_json",
    "task_result",
]

_V1_0, _V0_3, _V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1

_BY_AGENT: Final = b'"ROLE_AGENT"'


def task_json(view: TaskView, generation: Generation, *, history_length: int | None = None) -> bytes:
    """A Task. ``history_length`` is what the caller asked for, ``None`` for nothing.

    1.0: nothing means all, 0 means none. 0.3: both mean all. First generation: both mean none.
    """
    task: dict[str, Any] = {"kind": "task"} if generation is _V0_3 else {}
    task["id"] = view.id
    task["sessionId" if generation is _V0_1 else "contextId"] = view.context_id
    task["status"] = _status_json(
        view.state, view.status_message, view.timestamp, view.id, view.context_id, generation
    )
    if view.artifacts:
        task["artifacts"] = [
            Raw(artifact_out(body, generation, index=index)) for index, body in enumerate(view.artifacts)
        ]
    history = _recent(view.history, generation, history_length)
    if history:
        task["history"] = [Raw(_message_json(body, view.id, view.context_id, generation)) for body in history]
    task["metadata"] = Raw(view.metadata)
    return pack(task)


def task_result(
    view: TaskView, generation: Generation, *, history_length: int | None = None, sent: bool = False
) -> bytes:
    """The result of an operation that gives a task. 1.0 wraps it if it answers a message (``sent``)."""
    task = task_json(view, generation, history_length=history_length)
    return b'{"task":%b}' % task if sent and generation is _V1_0 else task


def list_json(
    tasks: Iterable[TaskView],
    generation: Generation,
    *,
    next_page_token: str,
    page_size: int,
    total_size: int,
    history_length: int | None = None,
) -> bytes:
    """A page of tasks. The token is there on the last page too, and empty (A2A 1.0 section 3.1.4)."""
    return pack(
        {
            "tasks": [Raw(task_json(view, generation, history_length=history_length)) for view in tasks],
            "nextPageToken": next_page_token,
            "pageSize": page_size,
            "totalSize": total_size,
        }
    )


class StreamWriter:
    """Writes the events of one stream.

    It keeps two things for the stream's length: that the task was working, since what a leaf is offered
    must not take it back, and the number of each artifact. The first generation wants the number; and a
    chunk of an artifact that has none yet begins it, or the client would have nothing to append it to.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._working = False
        self._numbers: dict[str, int] = {}

    def write(self, event: TaskEvent) -> list[bytes]:
        """The JSON of one event: in 1.0 a StreamResponse, before that the event itself.

        It is one, but for a task in the first generation, which has no event for it: there it is a
        status, and each artifact so far.
        """
        match event:
            case TaskView():
                return self._task(event)
            case StatusUpdate():
                return [self._status(event)]
            case ArtifactUpdate():
                return [self._artifact(event)]

    def _task(self, view: TaskView) -> list[bytes]:
        state = self._shown(view.state)
        if self._generation is not _V0_1:
            for body in view.artifacts:
                self._number(artifact_id(body))
            task = task_json(replace(view, state=state), self._generation)
            return [b'{"task":%b}' % task if self._generation is _V1_0 else task]
        artifacts = [
            self._artifact(ArtifactUpdate(task_id=view.id, context_id=view.context_id, artifact=body))
            for body in view.artifacts
        ]
        status = _status_json(state, view.status_message, view.timestamp, view.id, view.context_id, _V0_1)
        update = {"id": view.id, "status": status, "final": _final(state), "metadata": Raw(view.metadata)}
        return [*artifacts, pack(update)] if _final(state) else [pack(update), *artifacts]

    def _status(self, event: StatusUpdate) -> bytes:
        generation = self._generation
        state = self._shown(event.state)
        status = _status_json(
            state, event.message, event.timestamp, event.task_id, event.context_id, generation
        )
        if generation is _V0_1:
            return pack({"id": event.task_id, "status": status, "final": _final(state)})
        update: dict[str, Any] = {
            "taskId": event.task_id,
            "contextId": event.context_id,
            "status": status,
        }
        if generation is _V1_0:
            return pack({"statusUpdate": update})
        return pack({"kind": "status-update"} | update | {"final": _final(state)})

    def _artifact(self, event: ArtifactUpdate) -> bytes:
        generation = self._generation
        name = artifact_id(event.artifact)
        append = event.append and name in self._numbers
        number = self._number(name)
        if generation is _V0_1:
            chunk = artifact_out(
                event.artifact, _V0_1, index=number, append=append, last_chunk=event.last_chunk
            )
            return pack({"id": event.task_id, "artifact": Raw(chunk)})
        update: dict[str, Any] = {
            "taskId": event.task_id,
            "contextId": event.context_id,
            "artifact": Raw(artifact_out(event.artifact, generation)),
            "append": append,
            "lastChunk": event.last_chunk,
        }
        if generation is _V1_0:
            return pack({"artifactUpdate": update})
        return pack({"kind": "artifact-update"} | update)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _shown(self, state: RemoteState) -> RemoteState:
        if state is RemoteState.SUBMITTED:
            return RemoteState.WORKING if self._working else state
        self._working = True
        return state


def sse(data: bytes) -> bytes:
    """One server-sent event with one ``data`` line, ended by LF.

    JSON that is passed on as written may have line breaks between its tokens, and, in strings, the
    separators that some clients take for line breaks.
    """
    for separator, instead in _SEPARATORS:
        if separator in data:
            data = data.replace(separator, instead)
    return b"data: %b\n\n" % data


_SEPARATORS: Final = (
    (b"\n", b" "),
    (b"\r", b" "),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
    ("\u0085".encode(), b"\\u0085"),
)


def _status_json(
    state: RemoteState,
    message: bytes,
    timestamp: float,
    task_id: str,
    context_id: str,
    generation: Generation,
) -> dict[str, Any]:
    status: dict[str, Any] = {"state": state_out(state, generation)}
    if message:
        status["message"] = Raw(_message_json(message, task_id, context_id, generation))
    status["timestamp"] = write_instant(timestamp)
    return status


def _message_json(body: bytes, task_id: str, context_id: str, generation: Generation) -> bytes:
    """A message of the task. Ids that the target put into it are its own; the caller's stand there.

    What an agent says names its context always (``Message`` in ``a2a.proto``).
    """
    known = b'"taskId"' in body or b'"contextId"' in body
    if not known and _BY_AGENT in body and body.startswith(b"{"):
        body = b'{"contextId":%b,"taskId":%b,%b' % (pack(context_id), pack(task_id), body[1:])
    elif known:
        fields = fields_of(body)
        by_agent = bytes(fields.get("role", b"")) == _BY_AGENT
        for name, value in (("taskId", task_id), ("contextId", context_id)):
            if by_agent or name in fields:
                fields[name] = Raw(pack(value))
        body = pack(fields)
    return message_out(body, generation)


def _recent(
    history: tuple[bytes, ...], generation: Generation, history_length: int | None
) -> tuple[bytes, ...]:
    if not history_length:
        nothing_means_all = generation is not _V0_1 and (history_length is None or generation is _V0_3)
        return history if nothing_means_all else ()
    return history[-history_length:]


def _final(state: RemoteState) -> bool:
    """Whether the stream ends here: at the end of the task, or where the caller must speak."""
    return state.terminal or state.asks
