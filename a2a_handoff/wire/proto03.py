"""The JSON that 0.3 uses on HTTP+JSON, which is not the JSON that 0.3 uses on JSON-RPC.

Duty: convert messages, artifacts and states between A2A 1.0 JSON and the ProtoJSON of ``a2a.proto``
0.3, and params and answers between the latter and the 0.3 shape of JSON-RPC (``shapes``).
Rules: ``content`` is ``parts``, file and data parts are nested once more, enums have their full names,
names may be written as in the proto (``message_id``). Reading accepts the JSON-RPC shape too: clients and
servers exist that send it. File bytes are base64 of the bytes, once, as ProtoJSON says. Metadata and data
stay byte for byte.
Source: ``specification/grpc/a2a.proto`` of 0.3.0.
Not here: paths and statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import Generation
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire import shapes
from a2a_handoff.wire.protonames import JSON_NAMES
from a2a_handoff.wire.shapes import fields_of, pack

_FILE_IN: Mapping[str, str] = MappingProxyType({"fileWithUri": "uri", "fileWithBytes": "bytes"})
_FILE_OUT: Mapping[str, str] = MappingProxyType({"uri": "fileWithUri", "bytes": "fileWithBytes"})
_ROLES_OUT: Mapping[bytes, Raw] = MappingProxyType(
    {b'"user"': Raw(b'"ROLE_USER"'), b'"agent"': Raw(b'"ROLE_AGENT"')}
)

#: Names of the proto, which parsers of ProtoJSON take beside those of its JSON: those of 1.0 and of 0.3.
_JSON_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **JSON_NAMES,
        "file_with_uri": "fileWithUri",
        "file_with_bytes": "fileWithBytes",
        "mime_type": "mimeType",
        "config_id": "configId",
        "push_notification": "pushNotificationConfig",
        "pushNotification": "pushNotificationConfig",
        "push_notification_config": "pushNotificationConfig",
    }
)

_FALSE: Final = Raw(b"false")
_array = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)


# --- requests ------------------------------------------------------------------------------------


def params_in(params: Raw) -> Raw:
    """Params of any operation in the shape of JSON-RPC. What has that shape comes back as it was.

    A message in the shape of the proto brings its default with it: a configuration that does not say
    ``blocking`` says no. Raises ``HandoffError`` (``invalid_params``) if it is not an object.
    """
    fields = _named(fields_of(params))
    if "request" in fields:
        fields["message"] = fields.pop("request")
    if _holds(fields, "config", b"{"):
        fields |= _named(fields_of(fields.pop("config")))
    if "configId" in fields and _holds(fields, "pushNotificationConfig", b"{"):
        config = fields_of(fields["pushNotificationConfig"])
        fields["pushNotificationConfig"] = Raw(pack({"id": fields["configId"]} | config))
    if _holds(fields, "configuration", b"{"):
        fields["configuration"] = Raw(pack(_named(fields_of(fields["configuration"]))))
    if _holds(fields, "message", b"{"):
        message = _named(fields_of(fields["message"]))
        if is_proto(message) and _holds(fields, "configuration", b"{"):
            configuration = fields_of(fields["configuration"])
            fields["configuration"] = Raw(pack({"blocking": _FALSE} | configuration))
        fields["message"] = Raw(_parts_in(_content_in(message)))
    if _holds(fields, "status", b'"'):
        word = _WORDS_IN.get(_text.decode(fields["status"]))
        if word is not None:
            fields["status"] = Raw(pack(word))
    return Raw(pack(fields))


def is_proto(message: Mapping[str, Raw]) -> bool:
    """Whether the members of a message are those of the proto, and not of the JSON-RPC shape."""
    return _holds(message, "content", b"[") and "parts" not in message


def path_out(path: str) -> str:
    """The path of a fault in the names of a caller that writes the shape of the proto."""
    for ours, theirs in (
        ("message.parts", "message.content"),
        ("configuration.pushNotificationConfig", "configuration.pushNotification"),
    ):
        if path.startswith(ours):
            return theirs + path.removeprefix(ours)
    return path


# --- answers -------------------------------------------------------------------------------------


def result_out(body: bytes, *, sent: bool = False) -> bytes:
    """The result of an operation, from the shape of JSON-RPC. ``sent``: it answers a message.

    It is a task, a page of tasks, a push configuration, all of these of a task, or null for a deletion.
    """
    if sent:
        return event_out(body)
    if body == b"null":
        return b"{}"
    if body.startswith(b"["):
        return pack({"configs": _each(Raw(body), _push_out)})
    fields = fields_of(body)
    if "pushNotificationConfig" in fields:
        return bytes(_push_out(Raw(body)))
    if "tasks" in fields:
        fields["tasks"] = _each(fields["tasks"], _task_out)
        return pack(fields)
    return bytes(_task_out(Raw(body)))


def event_out(body: bytes) -> bytes:
    """An event of a stream, from the shape of JSON-RPC: wrapped in the name of its kind."""
    name, write = _KINDS[_text.decode(fields_of(body)["kind"])]
    return pack({name: write(Raw(body))})


def _task_out(raw: Raw) -> Raw:
    fields = fields_of(raw)
    fields.pop("kind", None)
    fields["status"] = _status_out(fields["status"])
    for name, write in (("artifacts", _artifact_out), ("history", _message_out)):
        if name in fields:
            fields[name] = _each(fields[name], write)
    return Raw(pack(fields))


def _push_out(raw: Raw) -> Raw:
    """In the proto a push configuration has a name, with the id of its task."""
    fields = fields_of(raw)
    config = fields["pushNotificationConfig"]
    task_id, config_id = (_text.decode(one) for one in (fields["taskId"], fields_of(config)["id"]))
    name = f"tasks/{task_id}/pushNotificationConfigs/{config_id}"
    return Raw(pack({"name": name, "pushNotificationConfig": config}))


def _status_update_out(raw: Raw) -> Raw:
    fields = fields_of(raw)
    del fields["kind"]
    fields["status"] = _status_out(fields["status"])
    return Raw(pack(fields))


def _artifact_update_out(raw: Raw) -> Raw:
    fields = fields_of(raw)
    del fields["kind"]
    fields["artifact"] = _artifact_out(fields["artifact"])
    return Raw(pack(fields))


def _status_out(raw: Raw) -> Raw:
    fields = fields_of(raw)
    fields["state"] = Raw(pack(_WORDS_OUT[_text.decode(fields["state"])]))
    if "message" in fields:
        fields["message"] = _message_out(fields["message"])
    return Raw(pack(fields))


def _artifact_out(raw: Raw) -> Raw:
    fields = fields_of(raw)
    if _holds(fields, "parts", b"["):
        fields["parts"] = _each(fields["parts"], _part_out)
    return Raw(pack(fields))


def _message_out(raw: Raw) -> Raw:
    fields = fields_of(raw)
    fields.pop("kind", None)
    fields["role"] = _ROLES_OUT.get(bytes(fields.get("role", b"")), _ROLES_OUT[b'"agent"'])
    parts = fields.pop("parts", Raw(b"[]"))
    fields["content"] = _each(parts, _part_out)
    return Raw(pack(fields))


_KINDS: Final[Mapping[str, tuple[str, Callable[[Raw], Raw]]]] = MappingProxyType(
    {
        "task": ("task", _task_out),
        "message": ("message", _message_out),
        "status-update": ("statusUpdate", _status_update_out),
        "artifact-update": ("artifactUpdate", _artifact_update_out),
    }
)


# --- messages, artifacts and states --------------------------------------------------------------


def message_in(body: bytes) -> bytes:
    """A message as 1.0. Raises ``HandoffError`` (``invalid_params``) if it is not an object."""
    return shapes.message_in(_parts_in(_content_in(_named(fields_of(body)))), Generation.V0_3)


def artifact_in(body: bytes) -> bytes:
    """An artifact as 1.0. Raises ``HandoffError`` (``invalid_params``) if it is not an object."""
    return shapes.artifact_in(_parts_in(fields_of(body)), Generation.V0_3)


def message_out(body: bytes) -> bytes:
    """A 1.0 message in the shape of the 0.3 proto."""
    return bytes(_message_out(Raw(shapes.message_out(body, Generation.V0_3))))


def state_in(word: str) -> RemoteState:
    """The state behind a name of the 0.3 proto or a 0.3 word; the proto writes CANCELLED."""
    if word.startswith("TASK_STATE_"):
        return shapes.state_in(_WORDS_IN.get(word, ""), Generation.V0_3)
    return shapes.state_in(word, Generation.V0_3)


#: The words of 0.3 for states, and their names in the proto.
_WORDS_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        word: "TASK_STATE_CANCELLED" if state is RemoteState.CANCELED else state.value
        for word, state in shapes.STATES[Generation.V0_3].items()
    }
)
_WORDS_IN: Final[Mapping[str, str]] = MappingProxyType(
    {name: word for word, name in _WORDS_OUT.items()} | {RemoteState.CANCELED.value: "canceled"}
)


def _named(fields: Mapping[str, Raw]) -> dict[str, Raw]:
    return {_JSON_NAMES.get(name, name): value for name, value in fields.items()}


def _content_in(message: dict[str, Raw]) -> dict[str, Raw]:
    """With ``parts`` in place of ``content``."""
    if _holds(message, "content", b"["):
        message["parts"] = message.pop("content")
    return message


def _parts_in(fields: dict[str, Raw]) -> bytes:
    if _holds(fields, "parts", b"["):
        fields["parts"] = _each(fields["parts"], _part_in)
    return pack(fields)


def _part_in(raw: Raw) -> Raw:
    if not _is(raw, b"{"):
        return raw
    fields = fields_of(raw)
    if "kind" in fields:
        return raw
    file, data = fields.get("file"), fields.get("data")
    if file is not None and _is(file, b"{"):
        named = _named(fields_of(file))
        fields["file"] = Raw(pack({_FILE_IN.get(k, k): v for k, v in named.items()}))
    elif data is not None and _is(data, b"{"):
        fields["data"] = fields_of(data).get("data", data)
    return Raw(pack(fields))


def _part_out(raw: Raw) -> Raw:
    fields = fields_of(raw)
    fields.pop("kind", None)
    if "file" in fields:
        file = fields_of(fields["file"])
        fields["file"] = Raw(pack({_FILE_OUT.get(k, k): v for k, v in file.items()}))
    elif "data" in fields:
        fields["data"] = Raw(pack({"data": fields["data"]}))
    return Raw(pack(fields))


def _each(items: Raw, write: Callable[[Raw], Raw]) -> Raw:
    return Raw(pack([write(item) for item in _array.decode(items)]))


def _holds(fields: Mapping[str, Raw], name: str, first: bytes) -> bool:
    """Whether a member is there and begins with one of these bytes, which tells its type."""
    value = fields.get(name)
    return value is not None and _is(value, first)


def _is(raw: Raw, first: bytes) -> bool:
    return memoryview(raw)[0] in first
