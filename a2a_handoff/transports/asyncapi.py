"""The AsyncAPI 3.0 document of the WebSocket, made from the models of its frames.

Source: AsyncAPI 3.0.0; schemas are those of the pydantic models.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic.json_schema import models_json_schema

from a2a_handoff import __version__
from a2a_handoff.transports.websocket import PATH
from a2a_handoff.wire.native import frames

_SCHEMA = "#/components/schemas/{model}"
_CURSOR = "lc8AAmNuQu83N88AAB_LoPQhrgCQAw"
_ID = "01a22e9a-fb90-7000-aef9-8c2656771579"
_HANDOFF: Mapping[str, Any] = MappingProxyType(
    {
        "handoff_id": _ID,
        "correlation_id": "c-1",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "state": "offered",
        "status": "pending",
        "owner": "source",
        "source_agent": "cowork",
        "assigned_to": "cursor",
        "task": "Review a.py",
    }
)
_BROADCAST: Mapping[str, Any] = MappingProxyType(
    {
        "broadcast_id": "01a22e9a-fbab-7000-a763-ffbb6d5662f2",
        "channel": "urgent",
        "message": "main is red",
        "source_agent": "cowork",
        "workspace": "default",
        "created_at": "2026-01-01T00:00:00.000Z",
        "expires_at": "2026-01-02T00:00:00.000Z",
    }
)
_TOLD: Mapping[str, Any] = MappingProxyType({"position": 3, "cursor": _CURSOR})
_HERE: Mapping[str, Any] = MappingProxyType({"handoff_id": _ID, "attempt": 1, **_TOLD})

#: One example of each kind of frame, but for its ``type``.
EXAMPLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "hello": {"id": 1, "agent_id": "cursor", "platform": "cursor", "instance_id": "w-1", "events": True},
        "accept": {"id": 2, "handoff_id": _ID, "attempt": 1},
        "decline": {"id": 2, "handoff_id": _ID, "reason": "not my language"},
        "progress": {"id": 3, "handoff_id": _ID, "message": "two of five files read"},
        "complete": {"id": 4, "handoff_id": _ID, "result": {"comments": ["looks good"]}},
        "fail": {"id": 4, "handoff_id": _ID, "reason": "the file is not there"},
        "release": {"id": 4, "handoff_id": _ID, "reason": "the window closes"},
        "cancel": {"id": 4, "handoff_id": _ID, "reason": "not needed any more"},
        "create": {"id": 5, "handoff": {"targetAgent": "cowork", "task": "Run the browser tests."}},
        "broadcast": {"id": 6, "channel": "urgent", "message": "main is red"},
        "heartbeat": {"id": 7, "status": "busy", "in_flight": 2},
        "ping": {"id": "p-1"},
        "token": {"id": 8, "token": "eyJhbGciOi…"},
        "welcome": {
            "id": 1,
            "agent": {"agent_id": "cursor"},
            "new": True,
            "cursor": _CURSOR,
            "ping_s": 8,
            "max_frame": 10_485_760,
        },
        "ok": {"id": 2, "handoff": _HANDOFF | {"state": "acknowledged", "status": "accepted"}},
        "error": {
            "id": 2,
            "problem": {
                "type": "urn:a2a-handoff:error:stale_attempt",
                "title": "The attempt is over.",
                "status": 409,
                "detail": "The task is with somebody else now.",
                "code": "stale_attempt",
            },
        },
        "pong": {"id": "p-1"},
        "offer": {**_HANDOFF, "attempt": 1, "offer_id": "o-1", "cursor": _CURSOR},
        "told": _BROADCAST | {"cursor": _CURSOR},
        "taken": {**_HERE, "instance_id": "w-1"},
        "rescinded": {**_HERE, "reason": "timeout", "detail": "not accepted in time"},
        "cancel_requested": {**_HERE, "reason": "not needed any more"},
        "reply": {
            **_HERE,
            "message": {"messageId": "m-2", "role": "ROLE_USER", "parts": [{"text": "The first."}]},
        },
        "event": {
            **_TOLD,
            "event": "handoff:completed",
            "data": {"handoffId": _ID, "result": {"comments": ["looks good"]}},
        },
        "resync": {"cursor": _CURSOR, "detail": "The cursor means nothing here: every offer starts anew."},
        "lagging": {"detail": "Nothing was read for 8 seconds. Come back with the cursor."},
        "closing": {"code": 1012, "detail": "The broker stops. Come back with the cursor."},
    }
)


@cache
def document() -> bytes:
    """The document as JSON."""
    sent, got = frames.FROM_CLIENT, frames.FROM_BROKER
    refs, schema = models_json_schema(
        [
            *((model, "validation") for model in dict.fromkeys(sent.values())),
            *((model, "serialization") for model in dict.fromkeys(got.values())),
        ],
        ref_template=_SCHEMA,
    )
    messages: dict[str, Any] = {}
    for kind, model in sent.items():
        messages[f"send_{kind}"] = _message(kind, kind, model, refs[model, "validation"])
    for kind, model in got.items():
        example = "told" if kind == "broadcast" else kind
        messages[f"receive_{kind}"] = _message(kind, example, model, refs[model, "serialization"])
    channel = {"$ref": "#/channels/socket"}
    return msgspec.json.encode(
        {
            "asyncapi": "3.0.0",
            "info": {
                "title": "a2a-handoff",
                "version": __version__,
                "description": "Work for agents that cannot listen on a port, over one WebSocket. "
                "docs/reference/websocket.md says what the schemas do not.",
                "license": {"name": "Apache-2.0"},
            },
            "defaultContentType": "application/json",
            "channels": {
                "socket": {
                    "address": PATH,
                    "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                    "bindings": {"ws": {"method": "GET", "bindingVersion": "0.1.0"}},
                }
            },
            "operations": {
                "fromAgent": _operation("receive", channel, [n for n in messages if n.startswith("send_")]),
                "toAgent": _operation("send", channel, [n for n in messages if n.startswith("receive_")]),
            },
            "components": {"messages": messages, "schemas": schema.get("$defs", {})},
        }
    )


def _message(kind: str, example: str, model: type[Any], schema: Any) -> dict[str, Any]:
    return {
        "name": kind,
        "summary": (model.__doc__ or "").split("\n\n", maxsplit=1)[0].replace("\n", " "),
        "payload": {"allOf": [schema, {"properties": {"type": {"const": kind}}, "required": ["type"]}]},
        "examples": [{"payload": {"type": kind, **EXAMPLES[example]}}],
    }


def _operation(action: str, channel: dict[str, str], names: list[str]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": channel,
        "messages": [{"$ref": f"#/channels/socket/messages/{name}"} for name in names],
    }
