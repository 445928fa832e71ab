"""A2A 1.0 JSON to and from the shapes of the older generations.

Duty: convert messages, artifacts, parts, states, roles and push configurations between the canonical
form inside the broker (A2A 1.0 JSON) and what each generation puts on the wire.
Rules: for 1.0 the same bytes object comes back. Only the fields that differ are touched: metadata,
data payloads and unknown fields stay byte for byte, in their order. A null is an unset field
(ProtoJSON) and is dropped at the level that is converted, never inside metadata or data. Reading is
lenient: what is not understood is left as it came, and ``message_faults`` names it.
Sources: A2A 1.0 section 4.1, the 0.3 schema, ``a2a.json`` of 0.1.
Not here: params of methods (``requests``), tasks and stream events (``tasks``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeGuard

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire.fields import FAULTS_MAX
from a2a_handoff.wire.members import PARTS_MAX, Members

#: What 1.0 can say of a part and the older generations cannot (the media type of a text, say) travels
#: in the part's metadata under this key, and comes back from there.
PART_KEY: Final = "urn:a2a-handoff:part:v1"

#: The flag by which a2a-sdk marks data that is not an object, which 0.3 does not allow.
WRAPPED_KEY: Final = "data_part_compat"

_OLD_STATES: Mapping[str, RemoteState] = MappingProxyType(
    {
        "submitted": RemoteState.SUBMITTED,
        "working": RemoteState.WORKING,
        "input-required": RemoteState.INPUT_REQUIRED,
        "auth-required": RemoteState.AUTH_REQUIRED,
        "completed": RemoteState.COMPLETED,
        "failed": RemoteState.FAILED,
        "canceled": RemoteState.CANCELED,
        "rejected": RemoteState.REJECTED,
        "unknown": RemoteState.UNSPECIFIED,
    }
)

#: The words for task states that a generation understands.
STATES: Mapping[Generation, Mapping[str, RemoteState]] = MappingProxyType(
    {
        Generation.V1_0: MappingProxyType({state.value: state for state in RemoteState}),
        Generation.V0_3: _OLD_STATES,
        Generation.V0_1: _OLD_STATES,
    }
)

_STATE_WORDS: Mapping[RemoteState, str] = MappingProxyType({s: word for word, s in _OLD_STATES.items()})

#: The first generation has no words for these; the true state stands in the task's metadata.
_FIRST_STATES: Mapping[RemoteState, str] = MappingProxyType(
    {RemoteState.REJECTED: "failed", RemoteState.AUTH_REQUIRED: "input-required"}
)

_ROLES_IN: Mapping[bytes, Raw] = MappingProxyType(
    {b'"user"': Raw(b'"ROLE_USER"'), b'"agent"': Raw(b'"ROLE_AGENT"')}
)
_USER, _AGENT = Raw(b'"user"'), Raw(b'"agent"')
_TEXT, _DATA, _FILE = Raw(b'"text"'), Raw(b'"data"'), Raw(b'"file"')
_MESSAGE, _TRUE, _NULL, _EMPTY = Raw(b'"message"'), Raw(b"true"), Raw(b"null"), Raw(b'""')

#: Fields of ``file`` in the older generations, and what they are called in a 1.0 part. The last two
#: are a dialect of the first generation.
_FILE_FIELDS: Mapping[str, str] = MappingProxyType(
    {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType", "data": "raw", "url": "url"}
)
_FILE_NAMES: Mapping[str, str] = MappingProxyType(
    {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
)
_CONTENTS = ("text", "raw", "url", "data")
_FIRST_MESSAGE = frozenset({"role", "parts", "metadata"})
_FIRST_ARTIFACT = frozenset({"name", "description", "parts", "metadata"})

_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)
pack = msgspec.json.Encoder().encode


def fields_of(body: bytes | Raw) -> dict[str, Raw]:
    """The set fields of a JSON object, in their order; nulls are left out. The last duplicate wins.

    Raises ``HandoffError`` (``invalid_params``) if it is not a JSON object.
    """
    try:
        fields = _object.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise HandoffError(Code.INVALID_PARAMS, "A JSON object was expected.") from None
    return _set(fields)


# --- words ---------------------------------------------------------------------------------------


def state_in(word: str, generation: Generation) -> RemoteState:
    """The task state that a word of that generation means; ``UNSPECIFIED`` for an unknown word."""
    return STATES[generation].get(word, RemoteState.UNSPECIFIED)


def state_out(state: RemoteState, generation: Generation) -> str:
    """The word for a task state. The first generation knows neither rejected nor auth-required."""
    if generation is Generation.V1_0:
        return state.value
    if generation is Generation.V0_1 and state in _FIRST_STATES:
        return _FIRST_STATES[state]
    return _STATE_WORDS[state]


# --- parts ---------------------------------------------------------------------------------------


def part_in(body: bytes, generation: Generation) -> bytes:
    """One part as 1.0. A part of no known kind comes back unchanged."""
    if generation is Generation.V1_0:
        return body
    return bytes(_part_in(Raw(body)))


def part_out(body: bytes, generation: Generation) -> bytes:
    """One 1.0 part in the shape of a generation.

    Data that is not an object is wrapped as ``{"value": …}``, as a2a-sdk does; a part that holds
    none of the known contents becomes a data part that holds it whole.
    """
    if generation is Generation.V1_0:
        return body
    return bytes(_part_out(Raw(body), generation))


def _part_in(raw: Raw) -> Raw:
    if not _starts(raw, b"{"):
        return raw
    fields = fields_of(raw)
    kind = _word(fields.get("kind")) or _word(fields.get("type"))
    if kind not in ("text", "data", "file"):
        kind = next((name for name in ("text", "data", "file") if name in fields), "")
    else:
        fields.pop("kind", None)
        fields.pop("type", None)
    if kind == "file" and _starts(fields.get("file"), b"{"):
        fields = _file_in(fields)
    elif kind not in fields:
        return raw
    return _unpack_metadata(fields)


def _file_in(fields: dict[str, Raw]) -> dict[str, Raw]:
    part: dict[str, Raw] = {}
    for name, value in fields.items():
        if name != "file":
            part[name] = value
            continue
        rest: dict[str, Raw] = {}
        for inner, content in fields_of(value).items():
            if inner in _FILE_FIELDS:
                part[_FILE_FIELDS[inner]] = content
            else:
                rest[inner] = content
        if rest:
            part["file"] = Raw(pack(rest))
    return part


def _unpack_metadata(fields: dict[str, Raw]) -> Raw:
    """Take back what ``_part_out`` put into the metadata."""
    metadata = fields.get("metadata")
    if not _starts(metadata, b"{"):
        return Raw(pack(fields))
    known = _object.decode(metadata)
    if PART_KEY not in known and WRAPPED_KEY not in known:
        return Raw(pack(fields))
    extra = known.pop(PART_KEY, None)
    if _starts(extra, b"{"):
        fields.update(fields_of(extra))
    data = fields.get("data")
    if known.get(WRAPPED_KEY) == _TRUE and _starts(data, b"{"):
        del known[WRAPPED_KEY]
        fields["data"] = _object.decode(data).get("value", _NULL)
    if known:
        fields["metadata"] = Raw(pack(known))
    else:
        del fields["metadata"]
    return Raw(pack(fields))


def _part_out(raw: Raw, generation: Generation) -> Raw:
    discriminator = "kind" if generation is Generation.V0_3 else "type"
    fields = _object.decode(raw) if _starts(raw, b"{") else {"data": raw}
    held = _contents(fields)
    if not held:
        fields = {"data": raw}
    elif held[0] in ("raw", "url"):
        return _file_out(_set(fields), discriminator)
    text = held[:1] == ["text"]
    part: dict[str, Raw] = {discriminator: _TEXT if text else _DATA}
    extra: dict[str, Raw] = {}
    for name, value in _set(fields, keep="" if text else "data").items():
        if name in ("filename", "mediaType"):
            extra[name] = value
        else:
            part[name] = value
    notes: dict[str, Raw] = {PART_KEY: Raw(pack(extra))} if extra else {}
    if not text and not _starts(part["data"], b"{"):
        part["data"] = Raw(pack({"value": part["data"]}))
        notes[WRAPPED_KEY] = _TRUE
    if notes:
        metadata = part.get("metadata")
        known = _object.decode(metadata) if _starts(metadata, b"{") else {}
        part["metadata"] = Raw(pack(known | notes))
    return Raw(pack(part))


def _file_out(fields: dict[str, Raw], discriminator: str) -> Raw:
    part: dict[str, Raw] = {discriminator: _FILE}
    file: dict[str, Raw] = {}
    for name, value in fields.items():
        if name in _FILE_NAMES:
            part.setdefault("file", Raw(b"{}"))
            file[_FILE_NAMES[name]] = value
        elif name == "file" and _starts(value, b"{"):
            file.update(fields_of(value))
        else:
            part[name] = value
    part["file"] = Raw(pack(file))
    return Raw(pack(part))


# --- messages ------------------------------------------------------------------------------------


def message_in(body: bytes, generation: Generation, *, message_id: str | None = None) -> bytes:
    """A message as 1.0.

    A message without an id, as in the first generation, gets ``message_id`` (empty: none), or else one
    made of its content, so that the same content has the same id. ``content`` in place of ``parts``
    and ``message_id`` in place of ``messageId`` (python-a2a) are read too.

    Raises ``HandoffError`` (``invalid_params``) if it is not a JSON object.
    """
    if generation is Generation.V1_0:
        return body
    fields = fields_of(body)
    fields.pop("kind", None)
    _accept_content(fields)
    if "messageId" not in fields:
        made = content_id(body) if message_id is None else message_id
        written = fields.pop("message_id", Raw(pack(made)))
        if written != _EMPTY:
            fields = {"messageId": written, **fields}
    if "role" in fields:
        fields["role"] = _ROLES_IN.get(bytes(fields["role"]), fields["role"])
    return _with_parts(fields, None)


def message_out(body: bytes, generation: Generation) -> bytes:
    """A 1.0 message in the shape of a generation. In the first one messages have no ids."""
    if generation is Generation.V1_0:
        return body
    fields = fields_of(body)
    if "role" in fields:
        fields["role"] = _USER if bytes(fields["role"]) == b'"ROLE_USER"' else _AGENT
    if generation is Generation.V0_3:
        fields = {"kind": _MESSAGE} | fields
    else:
        fields = {name: value for name, value in fields.items() if name in _FIRST_MESSAGE}
    return _with_parts(fields, generation)


def content_id(body: bytes, scope: str = "") -> str:
    """A message id made of the content, stable over repeats. ``scope`` sets tasks apart."""
    return hashlib.sha256(scope.encode() + b"\0" + body).hexdigest()[:32]


def _accept_content(fields: dict[str, Raw]) -> None:
    """Read python-a2a's ``content`` as the only part."""
    content = fields.get("content")
    if content is None or "parts" in fields:
        return
    del fields["content"]
    if _starts(content, b'"'):
        part = pack({"text": content})
    elif _word(_object.decode(content).get("type") if _starts(content, b"{") else None) == "text":
        part = bytes(content)
    else:
        part = pack({"data": content})
    fields["parts"] = Raw(b"[" + part + b"]")


def _with_parts(fields: dict[str, Raw], generation: Generation | None) -> bytes:
    """Pack the fields, the parts converted to ``generation`` (``None``: to 1.0)."""
    parts = fields.get("parts")
    if _starts(parts, b"["):
        items = _array.decode(parts)
        converted = [_part_in(p) if generation is None else _part_out(p, generation) for p in items]
        fields["parts"] = Raw(pack(converted))
    return pack(fields)


# --- artifacts -----------------------------------------------------------------------------------


def artifact_in(body: bytes, generation: Generation) -> bytes:
    """An artifact as 1.0.

    The first generation numbers artifacts instead of naming them: number 2 becomes ``artifact-2``.
    Its chunk flags stand inside; ``chunk_flags`` reads them.

    Raises ``HandoffError`` (``invalid_params``) if it is not a JSON object.
    """
    if generation is Generation.V1_0:
        return body
    fields = fields_of(body)
    if generation is Generation.V0_1:
        index = fields.pop("index", None)
        fields.pop("append", None)
        fields.pop("lastChunk", None)
        number = bytes(index).decode() if _starts(index, b"0123456789") else "0"
        fields = {"artifactId": Raw(pack(f"artifact-{number}"))} | fields
    return _with_parts(fields, None)


def artifact_out(
    body: bytes,
    generation: Generation,
    *,
    index: int = 0,
    append: bool | None = None,
    last_chunk: bool | None = None,
) -> bytes:
    """A 1.0 artifact in the shape of a generation.

    ``index`` and the chunk flags count for the first generation only, which has them inside.
    """
    if generation is Generation.V1_0:
        return body
    fields = fields_of(body)
    if generation is Generation.V0_1:
        fields = {name: value for name, value in fields.items() if name in _FIRST_ARTIFACT}
        fields["index"] = Raw(pack(index))
        for name, flag in (("append", append), ("lastChunk", last_chunk)):
            if flag is not None:
                fields[name] = Raw(pack(flag))
    return _with_parts(fields, generation)


def chunk_flags(body: bytes) -> tuple[bool, bool]:
    """``append`` and ``lastChunk`` of a first-generation artifact. An artifact without them is whole."""
    fields = fields_of(body)
    append = bytes(fields.get("append", b"")) == b"true"
    return append, bytes(fields.get("lastChunk", b"")) != b"false"


# --- push configurations -------------------------------------------------------------------------


def push_in(config: bytes, generation: Generation, *, task_id: str = "") -> bytes:
    """A push configuration as a 1.0 ``TaskPushNotificationConfig``.

    Of several authentication schemes the first counts; 1.0 has one.
    """
    fields = fields_of(config)
    if generation is not Generation.V1_0 and _starts(fields.get("authentication"), b"{"):
        auth = fields_of(fields["authentication"])
        schemes = auth.pop("schemes", None)
        names = _array.decode(schemes) if _starts(schemes, b"[") else []
        auth = ({"scheme": names[0]} if names else {}) | auth
        if auth:
            fields["authentication"] = Raw(pack(auth))
        else:
            del fields["authentication"]
    if task_id:
        fields["taskId"] = Raw(pack(task_id))
    return pack(fields)


def push_out(body: bytes, generation: Generation) -> bytes:
    """A 1.0 ``TaskPushNotificationConfig`` in the shape of a generation."""
    if generation is Generation.V1_0:
        return body
    fields = fields_of(body)
    fields.pop("tenant", None)
    task_id = fields.pop("taskId", Raw(b'""'))
    if _starts(fields.get("authentication"), b"{"):
        auth = fields_of(fields["authentication"])
        scheme = auth.pop("scheme", None)
        schemes = Raw(pack([] if scheme is None else [scheme]))
        fields["authentication"] = Raw(pack({"schemes": schemes} | auth))
    name = "taskId" if generation is Generation.V0_3 else "id"
    if generation is Generation.V0_1:
        fields.pop("id", None)
    return pack({name: task_id, "pushNotificationConfig": fields})


# --- checks --------------------------------------------------------------------------------------


def message_faults(body: bytes, generation: Generation = Generation.V1_0) -> tuple[Violation, ...]:
    """What is wrong with a 1.0 message; paths are relative to it, in the names of ``generation``.

    Checked are the fields that A2A 1.0 section 4.1.4 requires and the types of those it knows.
    """
    if not body.lstrip().startswith(b"{"):
        return (Violation("", "must be an object"),)
    message = Members(fields_of(body), "", [])
    message.text("messageId", required=True)
    message.text("contextId")
    message.text("taskId")
    role = message.raw("role")
    if role not in (b'"ROLE_USER"', b'"ROLE_AGENT"'):
        words = "ROLE_USER or ROLE_AGENT" if generation is Generation.V1_0 else "user or agent"
        message.fault("role", f"must be {words}" if role else f"is required: {words}")
    message.texts("extensions")
    message.texts("referenceTaskIds")
    message.object("metadata")
    _check_parts(message, generation)
    return tuple(message.faults)


def artifact_faults(body: bytes, generation: Generation = Generation.V1_0) -> tuple[Violation, ...]:
    """What is wrong with a 1.0 artifact (section 4.1.7); paths are relative to it."""
    if not body.lstrip().startswith(b"{"):
        return (Violation("", "must be an object"),)
    artifact = Members(fields_of(body), "", [])
    artifact.text("artifactId", required=True)
    artifact.text("name")
    artifact.text("description")
    artifact.texts("extensions")
    artifact.object("metadata")
    _check_parts(artifact, generation)
    return tuple(artifact.faults)


def _check_parts(holder: Members, generation: Generation) -> None:
    parts = holder.raw("parts")
    if not parts.startswith(b"["):
        holder.fault("parts", "must be a list" if parts else "is required: at least one part")
        return
    items = _array.decode(parts)
    if not items:
        holder.fault("parts", "must hold at least one part")
    if len(items) > PARTS_MAX:
        holder.fault("parts", f"must hold at most {PARTS_MAX} parts")
        return
    for number, item in enumerate(items):
        if len(holder.faults) >= FAULTS_MAX:
            return
        if _starts(item, b"{"):
            _check_part(holder, f"parts[{number}]", _object.decode(item), generation)
        else:
            holder.fault(f"parts[{number}]", "must be an object")


def _check_part(holder: Members, path: str, fields: dict[str, Raw], generation: Generation) -> None:
    old = generation is not Generation.V1_0
    if len(_contents(fields)) != 1:
        names = "text, file, data" if old else "text, raw, url, data"
        holder.fault(path, f"must hold exactly one of {names}")
    part = Members(fields, "", [])
    for name in ("text", "raw", "url", "filename", "mediaType"):
        part.text(name)
    part.object("metadata")
    for fault in part.faults:
        name = f"file.{_FILE_NAMES[fault.field]}" if old and fault.field in _FILE_NAMES else fault.field
        holder.fault(f"{path}.{name}", fault.description)


def _contents(part: dict[str, Raw]) -> list[str]:
    """Which contents a 1.0 part holds. A null is a value as data, and an unset field elsewhere."""
    return [name for name in _CONTENTS if name in part and (name == "data" or part[name] != _NULL)]


def _set(fields: dict[str, Raw], *, keep: str = "") -> dict[str, Raw]:
    """Without the nulls, but for the field ``keep``."""
    return {name: value for name, value in fields.items() if value != _NULL or name == keep}


def _starts(raw: Raw | None, first: bytes) -> TypeGuard[Raw]:
    """Whether a JSON value begins with one of these bytes, which tells its type (RFC 8259)."""
    return raw is not None and memoryview(raw)[0] in first


def _word(raw: Raw | None) -> str:
    """The string, or empty for anything else."""
    return _text.decode(raw) if _starts(raw, b'"') else ""
