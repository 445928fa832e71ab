"""What a caller asks for: the params of every method of every generation as one typed request.

Duty: read and check the params of an operation.
Rules: the generations differ in tables, not in code paths. Every fault is named at its place, in the
caller's own names; wrong types are never coerced (``"false"`` is not false). A null is an unset field,
an unknown field is ignored. What is passed on (messages, metadata) stays byte for byte. Params are
structs, because every request pays for them.
Sources: A2A 1.0 sections 3.1, 3.2, 3.6 and 9.4; the 0.3 schema; ``a2a.json`` of 0.1.
Not here: the envelope, which method it is (``methods``), the message itself (``messages``), the handoff
context in the metadata (``context``), who may do it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire import proto03
from a2a_handoff.wire.cursor import seal, unseal
from a2a_handoff.wire.envelope import NO_ID, Call, has_envelope, open_envelope, open_object
from a2a_handoff.wire.fields import members_of
from a2a_handoff.wire.members import ID_CHARS_MAX, Members
from a2a_handoff.wire.messages import read_message
from a2a_handoff.wire.methods import METHODS, SHARED_METHODS, Operation, negotiate, resolve
from a2a_handoff.wire.protonames import json_name, json_names
from a2a_handoff.wire.shapes import STATES, fields_of, pack, push_in

__all__ = [
    "METHODS",
    "Asked",
    "CancelParams",
    "CardParams",
    "GetParams",
    "ListParams",
    "Operation",
    "Params",
    "PushParams",
    "SendParams",
    "SubscribeParams",
    "fill",
    "from_query",
    "negotiate",
    "open_first_generation",
    "page_token",
    "push_url_field",
    "read",
    "read_params",
    "read_proto_params",
]

URL_BYTES_MAX: Final = 2_048
SECRET_BYTES_MAX: Final = 8_192
#: The largest ``int32``, the type of all counts in A2A 1.0.
COUNT_MAX: Final = 2**31 - 1
PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 100
PAGE_TOKEN_BYTES_MAX: Final = 1_024
#: How much of a message's text is kept at hand.
TEXT_CHARS_MAX: Final = 4_000

_V1_0, _V0_3, _V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1

#: Where the id of the task and that of the configuration stand in params about push configurations.
_PUSH_NAMES: Final[Mapping[Generation, tuple[str, str]]] = MappingProxyType(
    {_V1_0: ("taskId", "id"), _V0_3: ("id", "pushNotificationConfigId"), _V0_1: ("id", "")}
)
_PUSH_MEMBERS: Final[Mapping[Generation, str]] = MappingProxyType(
    {_V1_0: "taskPushNotificationConfig", _V0_3: "pushNotificationConfig", _V0_1: "pushNotification"}
)

#: What can be sent in a header as it is, and the name of an authentication scheme (RFC 9110 sections 5.5
#: and 11.1).
_HEADER_TEXT: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_SCHEME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_NO_SCHEME: Final = "must be the name of an authentication scheme, such as Bearer"

#: Query parameters that are not strings (A2A 1.0 section 11.5).
_QUERY_COUNTS: Final = frozenset({"historyLength", "pageSize"})
_QUERY_FLAGS: Final = frozenset({"includeArtifacts"})


# --- what is asked for ---------------------------------------------------------------------------


class SendParams(msgspec.Struct, frozen=True, kw_only=True):
    """A message. ``message`` is A2A 1.0 JSON, whatever generation it came in.

    ``metadata`` and ``message_metadata`` are those of the request and of the message, member by member
    as written; ``request_metadata`` is the former whole, or empty. ``alias`` is a task id that the
    client made (first generation), ``context_id`` its session then. ``history_length`` is ``None`` if
    nothing was said of it. ``push`` is a 1.0 push configuration, or empty. ``text`` is the beginning of
    the message's text, ``input_modes`` the media types of its parts as far as they are known.
    """

    message: bytes
    message_id: str
    task_id: str = ""
    context_id: str = ""
    alias: str = ""
    text: str = ""
    input_modes: tuple[str, ...] = ()
    metadata: Mapping[str, Raw] = msgspec.field(default_factory=dict[str, Raw])
    message_metadata: Mapping[str, Raw] = msgspec.field(default_factory=dict[str, Raw])
    request_metadata: bytes = b""
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()
    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    return_immediately: bool = False
    push: bytes = b""
    tenant: str = ""


class GetParams(msgspec.Struct, frozen=True, kw_only=True):
    """One task. ``history_length`` is ``None`` if nothing was said of it."""

    task_id: str
    history_length: int | None = None
    tenant: str = ""


class ListParams(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks. ``before`` is the cursor of the page token, ``updated_after`` epoch seconds."""

    page_size: int = PAGE_SIZE_DEFAULT
    before: tuple[float, str] | None = None
    context_id: str = ""
    status: RemoteState | None = None
    updated_after: float | None = None
    history_length: int | None = None
    include_artifacts: bool = False
    tenant: str = ""


class CancelParams(msgspec.Struct, frozen=True, kw_only=True):
    """Stop a task. ``metadata`` is the request's, as written, or empty."""

    task_id: str
    metadata: bytes = b""
    tenant: str = ""


class SubscribeParams(msgspec.Struct, frozen=True, kw_only=True):
    """Follow a task."""

    task_id: str
    tenant: str = ""


class PushParams(msgspec.Struct, frozen=True, kw_only=True):
    """Set, get, list or delete push configurations of a task.

    ``config`` is a 1.0 configuration, when one is set. An empty ``config_id`` asks for the first.
    """

    task_id: str
    config_id: str = ""
    config: bytes = b""
    tenant: str = ""


class CardParams(msgspec.Struct, frozen=True, kw_only=True):
    """The extended card."""

    tenant: str = ""


Params = SendParams | GetParams | ListParams | CancelParams | SubscribeParams | PushParams | CardParams


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request of any generation.

    ``shared``: the method is one of both older generations, so a task id that its client made means
    the first one, whose shapes the answer then has.
    """

    operation: Operation
    generation: Generation
    params: Params
    shared: bool = False


# --- reading -------------------------------------------------------------------------------------


def read(call: Call, negotiated: Generation) -> Asked:
    """The typed request of an opened envelope.

    Raises ``HandoffError``: see ``resolve`` and ``read_params``; ``invalid_request`` for a notification
    that has no other fault.
    """
    operation, generation = resolve(call.method, negotiated)
    params = read_params(operation, generation, call.params)
    if call.notification:
        raise HandoffError(Code.INVALID_REQUEST, "id is missing: notifications are not accepted.")
    shared = call.method in SHARED_METHODS
    return Asked(operation=operation, generation=generation, params=params, shared=shared)


def read_params(operation: Operation, generation: Generation, params: Raw | bytes) -> Params:
    """Read the params of one operation.

    Raises ``HandoffError`` (``invalid_params``) with one violation for each fault.
    """
    members = fields_of(params)
    fields = Members(json_names(members) if generation is _V1_0 else members, "", [])
    found = _READERS[operation](fields, generation, bytes(params))
    if fields.faults:
        # The first of several faults of one field says why; the others follow from it.
        first = {fault.field: fault for fault in reversed(fields.faults)}
        raise _invalid(tuple(reversed(first.values())))
    return found


def read_proto_params(operation: Operation, params: Raw | bytes) -> Params:
    """Read the params of 0.3 over HTTP+JSON, where they are the ProtoJSON of its proto.

    Raises as ``read_params`` does, with the names of the proto if that is what was written.
    """
    written = proto03.params_in(Raw(params))
    try:
        return read_params(operation, _V0_3, written)
    except HandoffError as error:
        fields = fields_of(params)
        message = members_of(fields.get("message") or fields.get("request") or Raw(b"{}")) or {}
        if not error.violations or not proto03.is_proto(message):
            raise
        raise _invalid(
            tuple(Violation(proto03.path_out(fault.field), fault.description) for fault in error.violations)
        ) from None


def _invalid(violations: tuple[Violation, ...]) -> HandoffError:
    named = f"{violations[0].field} {violations[0].description}"
    return HandoffError(Code.INVALID_PARAMS, f"Invalid parameters: {named}.", violations=violations)


# --- bodies without an envelope ------------------------------------------------------------------


def open_first_generation(body: bytes, method: str, values_max: int | None = None) -> tuple[Call, bool]:
    """A call by plain HTTP, as ``POST /tasks/send`` has it: bare params, or an envelope all the same.

    The second value tells whether it was bare, so that the answer is bare too.

    Raises ``HandoffError``, an ``EnvelopeError`` where there is an envelope.
    """
    try:
        params = open_object(body, values_max)
    except HandoffError:
        # Where there is an envelope, the same is said under its id.
        if has_envelope(body):
            open_envelope(body, values_max)
        raise
    if "jsonrpc" in fields_of(params):
        return open_envelope(body), False
    return Call(id=NO_ID, method=method, params=params), True


def from_query(items: Iterable[tuple[str, str]]) -> Raw:
    """Query parameters as params (section 11.5); of several with one name the last counts.

    What should be a number or a flag and is not stays a string, and is found to be wrong later.
    """
    members: dict[str, object] = {}
    for written, value in items:
        name = json_name(written)
        if name in _QUERY_COUNTS and re.fullmatch(r"-?[0-9]{1,18}", value):
            members[name] = int(value)
        elif name in _QUERY_FLAGS and value in ("true", "false"):
            members[name] = value == "true"
        else:
            members[name] = value
    return Raw(pack(members))


def fill(params: Raw | bytes, **members: str) -> Raw:
    """Params with members that stood in the path, which go over those of the body."""
    return Raw(pack({**fields_of(params), **members}))


def page_token(cursor: tuple[float, str] | None) -> str:
    """The page token of a cursor; empty for the last page."""
    return "" if cursor is None else seal(pack(cursor))


def push_url_field(params: PushParams | SendParams, generation: Generation) -> str:
    """Where the URL of a push configuration stands in params that have one."""
    if isinstance(params, PushParams):
        return "url" if generation is _V1_0 else "pushNotificationConfig.url"
    holder = "" if generation is _V0_1 else "configuration."
    return f"{holder}{_PUSH_MEMBERS[generation]}.url"


# --- readers -------------------------------------------------------------------------------------


_cursor = msgspec.json.Decoder(tuple[float, str])


def _send(fields: Members, generation: Generation, _params: bytes) -> SendParams:
    first = generation is _V0_1
    alias = fields.id("id", required=True) if first else ""
    session = fields.id("sessionId") if first else ""
    settings = fields if first else (fields.child("configuration") or Members({}, "", []))
    metadata = fields.object("metadata")
    written, message = read_message(fields, alias, generation)
    return SendParams(
        message=written,
        message_id=message.messageId or "",
        task_id="" if first else message.taskId or "",
        context_id=session if first else message.contextId or "",
        alias=alias,
        text=message.text[:TEXT_CHARS_MAX],
        input_modes=message.modes,
        metadata=(members_of(metadata) or {}) if metadata else {},
        message_metadata=message.metadata_members,
        request_metadata=metadata,
        extensions=message.extensions or (),
        reference_task_ids=message.referenceTaskIds or (),
        accepted_output_modes=settings.texts("acceptedOutputModes"),
        history_length=settings.count("historyLength", 0, COUNT_MAX),
        return_immediately=_returns_at_once(settings, generation),
        push=_nested_push(settings, _PUSH_MEMBERS[generation], generation),
        tenant=_tenant(fields, generation),
    )


def _returns_at_once(settings: Members, generation: Generation) -> bool:
    """0.3 asks the other way round; without a word both block, and so does the first generation."""
    match generation:
        case Generation.V1_0:
            return settings.flag("returnImmediately") is True
        case Generation.V0_3:
            return settings.flag("blocking") is False
        case Generation.V0_1:
            return False


def _get(fields: Members, generation: Generation, _params: bytes) -> GetParams:
    return GetParams(
        task_id=fields.id("id", required=True),
        history_length=fields.count("historyLength", 0, COUNT_MAX),
        tenant=_tenant(fields, generation),
    )


def _list(fields: Members, generation: Generation, _params: bytes) -> ListParams:
    page_size = fields.count("pageSize", 1, PAGE_SIZE_MAX)
    return ListParams(
        page_size=PAGE_SIZE_DEFAULT if page_size is None else page_size,
        before=_before(fields),
        context_id=fields.id("contextId"),
        status=_status(fields, generation),
        updated_after=fields.instant("statusTimestampAfter"),
        history_length=fields.count("historyLength", 0, COUNT_MAX),
        include_artifacts=fields.flag("includeArtifacts") is True,
        tenant=_tenant(fields, generation),
    )


def _before(fields: Members) -> tuple[float, str] | None:
    token = fields.text("pageToken", bytes_max=PAGE_TOKEN_BYTES_MAX)
    if not token:
        return None
    try:
        return _cursor.decode(unseal(token))
    except (ValueError, msgspec.DecodeError):
        fields.fault("pageToken", "is not a token that this service gave")
        return None


def _status(fields: Members, generation: Generation) -> RemoteState | None:
    words = STATES[generation]
    word = fields.text("status", bytes_max=ID_CHARS_MAX)
    state = words.get(word, RemoteState.UNSPECIFIED)
    if word and word not in words:
        known = ", ".join(name for name, one in words.items() if one is not RemoteState.UNSPECIFIED)
        fields.fault("status", f"must be one of {known}")
    return None if state is RemoteState.UNSPECIFIED else state


def _cancel(fields: Members, generation: Generation, _params: bytes) -> CancelParams:
    return CancelParams(
        task_id=fields.id("id", required=True),
        metadata=fields.object("metadata"),
        tenant=_tenant(fields, generation),
    )


def _subscribe(fields: Members, generation: Generation, _params: bytes) -> SubscribeParams:
    return SubscribeParams(task_id=fields.id("id", required=True), tenant=_tenant(fields, generation))


def _set_push(fields: Members, generation: Generation, params: bytes) -> PushParams:
    task_id = fields.id("id" if generation is _V0_1 else "taskId", required=True)
    if generation is _V1_0:
        config = _push(fields, params, generation, task_id)
    else:
        config = _nested_push(fields, "pushNotificationConfig", generation, task_id, required=True)
    config_id = Members(members_of(config) or {}, "", []).text("id")
    return PushParams(task_id=task_id, config_id=config_id, config=config, tenant=_tenant(fields, generation))


def _nested_push(
    fields: Members, name: str, generation: Generation, task_id: str = "", *, required: bool = False
) -> bytes:
    """The configuration that stands in ``name``, as 1.0; empty if there is none."""
    written = fields.raw(name)
    inner = fields.child(name)
    if inner is not None:
        return _push(inner, written, generation, task_id)
    if required and not written:
        fields.fault(name, "is required")
    return b""


def _push(fields: Members, written: bytes, generation: Generation, task_id: str) -> bytes:
    """A push configuration, checked, as 1.0."""
    fields.text("url", required=True, bytes_max=URL_BYTES_MAX)
    _header_text(fields, "token")
    fields.id("id")
    authentication = fields.child("authentication")
    if authentication is not None:
        _header_text(authentication, "credentials")
        if generation is _V1_0:
            scheme = authentication.text("scheme", required=True, bytes_max=ID_CHARS_MAX)
            if scheme and not _SCHEME.fullmatch(scheme):
                authentication.fault("scheme", _NO_SCHEME)
        elif not all(map(_SCHEME.fullmatch, authentication.texts("schemes"))):
            authentication.fault("schemes", _NO_SCHEME)
    return push_in(written, generation, task_id=task_id)


def _header_text(fields: Members, name: str) -> None:
    value = fields.text(name, bytes_max=SECRET_BYTES_MAX)
    if value and not _HEADER_TEXT.fullmatch(value):
        fields.fault(name, "must be printable ASCII, since it is sent in a header")


def _get_push(fields: Members, generation: Generation, _params: bytes) -> PushParams:
    return _push_ids(fields, generation, required=generation is _V1_0)


def _list_push(fields: Members, generation: Generation, _params: bytes) -> PushParams:
    task, _ = _PUSH_NAMES[generation]
    return PushParams(task_id=fields.id(task, required=True), tenant=_tenant(fields, generation))


def _delete_push(fields: Members, generation: Generation, _params: bytes) -> PushParams:
    return _push_ids(fields, generation, required=True)


def _push_ids(fields: Members, generation: Generation, *, required: bool) -> PushParams:
    task, config = _PUSH_NAMES[generation]
    return PushParams(
        task_id=fields.id(task, required=True),
        config_id=fields.id(config, required=required) if config else "",
        tenant=_tenant(fields, generation),
    )


def _card(fields: Members, generation: Generation, _params: bytes) -> CardParams:
    return CardParams(tenant=_tenant(fields, generation))


def _tenant(fields: Members, generation: Generation) -> str:
    return fields.id("tenant") if generation is _V1_0 else ""


_READERS: Final[Mapping[Operation, Callable[[Members, Generation, bytes], Params]]] = MappingProxyType(
    {
        Operation.SEND: _send,
        Operation.STREAM: _send,
        Operation.GET: _get,
        Operation.LIST: _list,
        Operation.CANCEL: _cancel,
        Operation.SUBSCRIBE: _subscribe,
        Operation.SET_PUSH: _set_push,
        Operation.GET_PUSH: _get_push,
        Operation.LIST_PUSH: _list_push,
        Operation.DELETE_PUSH: _delete_push,
        Operation.EXTENDED_CARD: _card,
    }
)
