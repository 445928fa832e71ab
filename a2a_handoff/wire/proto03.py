"""The JSON that 0.3 uses on HTTP+JSON, which is not the JSON that 0.3 uses on JSON-RPC.

Duty: convert messages, artifacts and states between A2A 1.0 JSON and the ProtoJSON of ``a2a.proto``
0.3, by way of the 0.3 shape of JSON-RPC (``shapes``).
Rules: ``content`` is ``parts``, file and data parts are nested once more, enums have their full names.
Reading accepts the JSON-RPC shape too: servers exist that send it. File bytes are base64 of the bytes,
once, as ProtoJSON says.
Source: ``specification/grpc/a2a.proto`` of 0.3.0.
Not here: paths and statuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import Generation
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire import shapes
from a2a_handoff.wire.shapes import fields_of, pack

_FILE_IN: Mapping[str, str] = MappingProxyType({"fileWithUri": "uri", "fileWithBytes": "bytes"})
_FILE_OUT: Mapping[str, str] = MappingProxyType({"uri": "fileWithUri", "bytes": "fileWithBytes"})
_ROLES_OUT: Mapping[bytes, Raw] = MappingProxyType(
    {b'"user"': Raw(b'"ROLE_USER"'), b'"agent"': Raw(b'"ROLE_AGENT"')}
)

_array = msgspec.json.Decoder(list[Raw])


def message_in(body: bytes) -> bytes:
    """A message as 1.0. Raises ``HandoffError`` (``invalid_params``) if it is not an object."""
    fields = fields_of(body)
    content = fields.pop("content", None)
    if content is not None and _is(content, b"["):
        fields["parts"] = content
    return shapes.message_in(_parts_in(fields), Generation.V0_3)


def artifact_in(body: bytes) -> bytes:
    """An artifact as 1.0. Raises ``HandoffError`` (``invalid_params``) if it is not an object."""
    return shapes.artifact_in(_parts_in(fields_of(body)), Generation.V0_3)


def message_out(body: bytes) -> bytes:
    """A 1.0 message in the shape of the 0.3 proto."""
    fields = fields_of(shapes.message_out(body, Generation.V0_3))
    del fields["kind"]
    fields["role"] = _ROLES_OUT.get(bytes(fields.get("role", b"")), _ROLES_OUT[b'"agent"'])
    parts = fields.pop("parts", Raw(b"[]"))
    fields["content"] = Raw(pack([_part_out(part) for part in _array.decode(parts)]))
    return pack(fields)


def state_in(word: str) -> RemoteState:
    """The state behind a name of the 0.3 proto or a 0.3 word; the proto writes CANCELLED."""
    if word == "TASK_STATE_CANCELLED":
        return RemoteState.CANCELED
    if word.startswith("TASK_STATE_"):
        return shapes.state_in(word, Generation.V1_0)
    return shapes.state_in(word, Generation.V0_3)


def _parts_in(fields: dict[str, Raw]) -> bytes:
    parts = fields.get("parts")
    if parts is not None and _is(parts, b"["):
        fields["parts"] = Raw(pack([_part_in(part) for part in _array.decode(parts)]))
    return pack(fields)


def _part_in(raw: Raw) -> Raw:
    if not _is(raw, b"{"):
        return raw
    fields = fields_of(raw)
    if "kind" in fields:
        return raw
    file, data = fields.get("file"), fields.get("data")
    if file is not None and _is(file, b"{"):
        fields["file"] = Raw(pack({_FILE_IN.get(k, k): v for k, v in fields_of(file).items()}))
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


def _is(raw: Raw, first: bytes) -> bool:
    return memoryview(raw)[0] in first
