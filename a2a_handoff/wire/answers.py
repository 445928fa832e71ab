"""What a target said, as one ``Update``.

Duty: read the result of a send, get or cancel, or one event of a stream, of any generation and
binding. What kind of object it is, is told by its fields, so a server that wraps differently is
understood too.
Rules: everything in the update is A2A 1.0 JSON; what came as 1.0 stays byte for byte. The history is
the target's business and ignored. What cannot be read raises ``AgentError`` (``invalid_response``).
Sources: A2A 1.0 sections 3.2 and 4.1 to 4.2; the 0.3 schema and proto; ``a2a.json`` of 0.1.
Not here: envelopes and errors (``client.faults``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import Binding, Generation
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Outcome, Output, OutputKind
from a2a_handoff.core.tracing import parse_traceparent
from a2a_handoff.ports import AgentError, RemoteState, Sent, Update
from a2a_handoff.wire import proto03, shapes


class _Status(msgspec.Struct):
    state: str | None = None
    message: Raw = Raw(b"")


class _Said(msgspec.Struct, rename="camel"):
    """Every field by which an answer is told apart, of whatever kind it is."""

    task: Raw = Raw(b"")
    message: Raw = Raw(b"")
    status_update: Raw = Raw(b"")
    artifact_update: Raw = Raw(b"")
    kind: str | None = None
    id: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    session_id: str | None = None
    message_id: str | None = None
    status: _Status | None = None
    artifact: Raw = Raw(b"")
    artifacts: list[Raw] | None = None
    append: bool | None = None
    last_chunk: bool | None = None
    parts: Raw = Raw(b"")
    content: Raw = Raw(b"")
    metadata: Raw = Raw(b"")


class _Part(msgspec.Struct, rename="camel"):
    """The types of a part (A2A 1.0 section 4.1.6). Nobody could write what has others anew."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, Raw] | None = None


class _Named(msgspec.Struct, rename="camel"):
    """A message or an artifact: what the broker needs to know of it, and the types of the rest."""

    artifact_id: str | None = None
    message_id: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    role: str | None = None
    name: str | None = None
    description: str | None = None
    parts: list[_Part] | None = None
    extensions: list[str] | None = None
    reference_task_ids: list[str] | None = None
    metadata: Raw = Raw(b"")


class _Traced(msgspec.Struct):
    traceparent: str | None = None


_NOTHING: Final = Raw(b"")
_URI: Final = EXTENSION_URI.encode()

_said = msgspec.json.Decoder(_Said)
_named = msgspec.json.Decoder(_Named)
_traced = msgspec.json.Decoder(_Traced)
_by_key = msgspec.json.Decoder(dict[str, Raw])


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How one generation on one binding writes the things that differ."""

    message: Callable[[bytes], bytes]
    artifact: Callable[[bytes], bytes]
    state: Callable[[str], RemoteState]
    first: bool = False


def _dialect(generation: Generation) -> _Dialect:
    return _Dialect(
        message=lambda body: shapes.message_in(body, generation),
        artifact=lambda body: shapes.artifact_in(body, generation),
        state=lambda word: shapes.state_in(word, generation),
        first=generation is Generation.V0_1,
    )


_DIALECTS: Final = {generation: _dialect(generation) for generation in Generation}
_PROTO03: Final = _Dialect(proto03.message_in, proto03.artifact_in, proto03.state_in)


def update_of(
    body: bytes, generation: Generation, binding: Binding, *, event: bool = False, unnamed: int = 0
) -> Update:
    """Read one answer, or one ``event`` of a stream.

    Only the first generation needs to be told which: its status event looks like a task. ``unnamed`` is how
    many artifacts without an id the stream began before: they get ids by their order (``unnamed_id``).
    """
    proto = generation is Generation.V0_3 and binding is not Binding.JSONRPC
    dialect = _PROTO03 if proto else _DIALECTS[generation]
    try:
        said = _said.decode(body)
        if inner := _given(said.task):
            return _task(_said.decode(inner), dialect)
        if inner := _given(said.status_update):
            return _status_event(_said.decode(inner), dialect)
        if inner := _given(said.artifact_update):
            return _artifact_event(_said.decode(inner), dialect, unnamed)
        if _given(said.artifact):
            return _artifact_event(said, dialect, unnamed)
        if said.status is not None:
            return _status_event(said, dialect) if _is_event(said, dialect, event) else _task(said, dialect)
        if inner := _given(said.message):
            return _reply(inner, dialect)
        if said.message_id is not None or _given(said.parts) or _given(said.content):
            return _reply(body, dialect)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, HandoffError):
        raise _invalid("the answer is not A2A") from None
    raise _invalid("the answer is neither task, message nor event")


def unnamed_id(number: int) -> str:
    """The id of the artifact that is the ``number``-th of its task without one (from 1)."""
    return f"artifact-{number}"


def returned_traceparent(metadata: bytes) -> str:
    """The ``traceparent`` in metadata, at its top or in our extension's object; empty if none."""
    if b'"traceparent"' not in metadata:
        return ""
    try:
        found = _traced.decode(metadata).traceparent
        if found is None:
            ours = _by_key.decode(metadata).get(EXTENSION_URI, Raw(b"{}"))
            found = _traced.decode(ours).traceparent
    except msgspec.DecodeError:
        return ""
    return found if found is not None and parse_traceparent(found) is not None else ""


def _is_event(said: _Said, dialect: _Dialect, event: bool) -> bool:
    if said.kind is not None:
        return said.kind == "status-update"
    if dialect.first:
        return event and said.artifacts is None and said.session_id is None
    return said.id is None


def _task(said: _Said, dialect: _Dialect) -> Update:
    outputs: list[Output] = []
    unnamed = 0
    for artifact in said.artifacts or ():
        output = _output(dialect.artifact(bytes(artifact)), append=False, last=True, number=unnamed + 1)
        unnamed += output.artifact_id == unnamed_id(unnamed + 1)
        outputs.append(output)
    return _update(said, dialect, tuple(outputs), snapshot=True)


def _status_event(said: _Said, dialect: _Dialect) -> Update:
    return _update(said, dialect, (), snapshot=False)


def _artifact_event(said: _Said, dialect: _Dialect, unnamed: int) -> Update:
    raw = bytes(said.artifact)
    append, last = bool(said.append), bool(said.last_chunk)
    if dialect.first:
        append, last = shapes.chunk_flags(raw)
    number = max(unnamed, 1) if append else unnamed + 1
    output = _output(dialect.artifact(raw), append=append, last=last, number=number)
    return _update(said, dialect, (output,), snapshot=False)


def _update(said: _Said, dialect: _Dialect, outputs: tuple[Output, ...], *, snapshot: bool) -> Update:
    status = said.status or _Status()
    raw = _given(status.message)
    message = dialect.message(raw) if raw else b""
    metadata = _metadata(_read(message).metadata if message else _NOTHING, said.metadata)
    return Update(
        remote_task_id=said.task_id or said.id or "",
        remote_context_id=said.context_id or said.session_id or "",
        state=dialect.state(status.state) if status.state else None,
        message=message,
        outputs=outputs,
        metadata=metadata,
        snapshot=snapshot,
        traceparent=returned_traceparent(metadata),
    )


def _reply(raw: bytes, dialect: _Dialect) -> Update:
    message = dialect.message(raw)
    named = _read(message)
    metadata = _metadata(named.metadata)
    return Update(
        remote_task_id=named.task_id or "",
        remote_context_id=named.context_id or "",
        message=message,
        metadata=metadata,
        reply=True,
        traceparent=returned_traceparent(metadata),
    )


def _output(artifact: bytes, *, append: bool, last: bool, number: int) -> Output:
    artifact_id = _read(artifact).artifact_id
    if not artifact_id:
        artifact_id = unnamed_id(number)
        artifact = shapes.pack({**shapes.fields_of(artifact), "artifactId": artifact_id})
    return Output(kind=OutputKind.ARTIFACT, body=artifact, append=append, last=last, artifact_id=artifact_id)


def _read(body: bytes) -> _Named:
    """A message or an artifact. Raises ``AgentError`` or ``msgspec.DecodeError`` on a wrong type."""
    named = _named.decode(body)
    if _given(named.metadata)[:1] not in (b"", b"{"):
        raise _invalid("metadata is no object")
    return named


def _metadata(*places: Raw) -> bytes:
    """Of several metadata objects the first that speaks our extension, else the first there is."""
    first = b""
    for place in places:
        metadata = bytes(place)
        if metadata[:1] != b"{":
            continue
        if _URI in metadata:
            return metadata
        first = first or metadata
    return first


def _given(raw: Raw) -> bytes:
    """The value; empty if the field is not there or null."""
    value = bytes(raw)
    return b"" if value == b"null" else value


def _invalid(detail: str) -> AgentError:
    return AgentError(Outcome.INVALID_RESPONSE, detail, sent=Sent.YES)
