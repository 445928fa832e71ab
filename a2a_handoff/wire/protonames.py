"""Names of the proto in JSON of 1.0, which parsers of ProtoJSON take beside the names of its JSON.

Duty: ``task_id`` for ``taskId``, and so on.
Rules: only names that A2A has are changed, so that what is passed on stays as it came; a member that is
there under both names keeps that of the JSON. Good clients write none of these, and pay nothing for those
who do.
Source: ProtoJSON format, "JSON options"; A2A 1.0 section 5.5.
Not here: the proto of 0.3, which differs in more than names (``proto03``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.wire.fields import members_of

#: The name in the proto of 1.0 -> the name in its JSON.
JSON_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message_id": "messageId",
        "context_id": "contextId",
        "task_id": "taskId",
        "reference_task_ids": "referenceTaskIds",
        "media_type": "mediaType",
        "accepted_output_modes": "acceptedOutputModes",
        "history_length": "historyLength",
        "return_immediately": "returnImmediately",
        "task_push_notification_config": "taskPushNotificationConfig",
        "page_size": "pageSize",
        "page_token": "pageToken",
        "status_timestamp_after": "statusTimestampAfter",
        "include_artifacts": "includeArtifacts",
    }
)
#: Looking a name up here takes a twentieth of the time that the mapping takes.
_PROTO_NAMES: Final = frozenset(JSON_NAMES)
_objects = msgspec.json.Decoder(list[dict[str, Raw]])
_ENCODE: Final = msgspec.json.Encoder().encode


def json_names(members: dict[str, Raw]) -> dict[str, Raw]:
    """The members under the names of the JSON; the same mapping if they have these already."""
    if _PROTO_NAMES.isdisjoint(members):
        return members
    named = {JSON_NAMES.get(name, name): value for name, value in members.items()}
    return named | {name: value for name, value in members.items() if name not in JSON_NAMES}


def json_name(name: str) -> str:
    """The name of the JSON for one of either kind."""
    return JSON_NAMES.get(name, name)


def message_names(body: bytes) -> bytes:
    """A message and its parts under the names of the JSON; as it came if it has these already."""
    members = members_of(body) or {}
    named = json_names(members)
    try:
        parts = _objects.decode(named.get("parts", b"[]"))
    except msgspec.DecodeError:
        return body
    renamed = [json_names(part) for part in parts]
    if any(new is not old for new, old in zip(renamed, parts, strict=True)):
        named = {**named, "parts": Raw(_ENCODE(renamed))}
    return body if named is members else _ENCODE(named)
