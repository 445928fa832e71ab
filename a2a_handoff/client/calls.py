"""The request of each operation, in each generation and binding.

Duty: from an interface of an agent and what is to be done to one HTTP request.
Rules: parts, metadata and data go out byte for byte where the generation allows it. Ids of the
caller's world never leave: a first message carries no task and no context id, a follow-up those that
the target made. The first generation wants ids made by us: the message's id is taken, so that a retry
names the same task.
Sources: A2A 1.0 sections 3.6, 9, 11 and 14.2; 0.3 sections 3.2 and 7; ``a2a.json`` of 0.1.
Not here: sending (``http``), reading answers (``wire.answers``).
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec import Raw

from a2a_handoff.client.http import Call
from a2a_handoff.core.agents import Agent, Binding, Generation, Interface
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Delivery, Sent
from a2a_handoff.wire import proto03, shapes
from a2a_handoff.wire.card_reader import SPOKEN
from a2a_handoff.wire.methods import METHODS, Operation
from a2a_handoff.wire.shapes import fields_of, pack

#: The names of the operations in JSON-RPC.
_METHODS: Final = {(generation, operation): method for (generation, method), operation in METHODS.items()}

_SPOKEN: Final = frozenset(
    (binding, generation)
    for binding in SPOKEN
    for generation in Generation
    if binding is Binding.JSONRPC or generation is not Generation.V0_1
)

_JSON = ("Content-Type", "application/json")
_ANSWER = ("Accept", "application/json, application/a2a+json")
_STREAM = ("Accept", "text/event-stream, application/json, application/a2a+json")

_URI: Final = EXTENSION_URI.encode()

_text = msgspec.json.Decoder(str)


def interface_of(agent: Agent) -> Interface:
    """The first interface, in the card's order, that we speak. Raises ``AgentError`` if none is."""
    for interface in agent.interfaces:
        if (interface.binding, interface.generation) in _SPOKEN:
            return interface
    raise AgentError(Outcome.TARGET_UNAVAILABLE, "no interface that the broker speaks", sent=Sent.NO)


def send(interface: Interface, agent: Agent, delivery: Delivery) -> Call:
    """Deliver a message; as a stream if the agent can, else, or if it is to call back, without waiting.

    Raises ``AgentError`` if the delivery's message is not a JSON object.
    """
    generation = interface.generation
    stream = agent.streaming and delivery.callback is None
    try:
        fields = fields_of(delivery.message)
        message_id = _text.decode(fields["messageId"])
    except (HandoffError, KeyError, msgspec.DecodeError):
        raise AgentError(Outcome.INVALID_RESPONSE, "the message has no id", sent=Sent.NO) from None
    message = _message(fields, interface, delivery)
    params: dict[str, Any] = {}
    if generation is Generation.V0_1:
        params["id"] = delivery.remote_task_id or message_id
        params["sessionId"] = delivery.remote_context_id or params["id"]
    params["message"] = Raw(message)
    modes = list(delivery.accepted_output_modes)
    if generation is Generation.V0_1:
        if modes:
            params["acceptedOutputModes"] = modes
        params |= _called_back(interface, delivery)
    else:
        configuration: dict[str, Any] = {"acceptedOutputModes": modes} if modes else {}
        configuration |= _called_back(interface, delivery)
        if not stream:
            configuration |= (
                {"returnImmediately": True} if generation is Generation.V1_0 else {"blocking": False}
            )
        if configuration:
            params["configuration"] = configuration
    if delivery.metadata:
        params["metadata"] = Raw(delivery.metadata)
    return _call(
        interface,
        Operation.STREAM if stream else Operation.SEND,
        params,
        path="/message:stream" if stream else "/message:send",
        headers=_headers(generation, delivery, _activated(agent, delivery)),
        stream=stream,
    )


def _called_back(interface: Interface, delivery: Delivery) -> dict[str, Any]:
    """The push configuration that asks an agent to call us, under the name that it has in its dialect.

    The token stands in it twice, since some agents send only the one or the other.
    """
    callback = delivery.callback
    if callback is None:
        return {}
    generation = interface.generation
    scheme = {"scheme": "Bearer"} if generation is Generation.V1_0 else {"schemes": ["Bearer"]}
    config = {
        "url": callback.url,
        "token": callback.token,
        "authentication": scheme | {"credentials": callback.token},
    }
    if generation is Generation.V1_0:
        return {"taskPushNotificationConfig": config}
    named = generation is Generation.V0_3 and interface.binding is Binding.JSONRPC
    return {"pushNotificationConfig" if named else "pushNotification": config}


def get(interface: Interface, task_id: str) -> Call:
    """Read a task. History is not asked for where that can be said."""
    generation = interface.generation
    params: dict[str, Any] = {"id": task_id}
    query = ""
    if generation is Generation.V1_0:
        params["historyLength"] = 0
        query = "historyLength=0"
    if interface.binding is Binding.HTTP_JSON:
        url = _url(interface, f"/tasks/{quote(task_id, safe='')}", query)
        return Call(method="GET", url=url, headers=(_ANSWER, *_version(generation)), repeatable=True)
    return _call(interface, Operation.GET, params, repeatable=True)


def cancel(interface: Interface, task_id: str, *, traceparent: str) -> Call:
    """Ask the target to stop."""
    generation = interface.generation
    delivery = Delivery(message=b"", traceparent=traceparent)
    in_path = interface.binding is Binding.HTTP_JSON
    return _call(
        interface,
        Operation.CANCEL,
        {} if in_path else {"id": task_id},
        path=f"/tasks/{quote(task_id, safe='')}:cancel",
        headers=_headers(generation, delivery, ()),
        repeatable=True,
    )


def subscribe(interface: Interface, task_id: str) -> Call:
    """Follow a task that is under way."""
    generation = interface.generation
    if interface.binding is Binding.HTTP_JSON:
        # POST in the specification of 1.0, GET in the protos of both; servers take both.
        url = _url(interface, f"/tasks/{quote(task_id, safe='')}:subscribe")
        method = "POST" if generation is Generation.V1_0 else "GET"
        headers = (_STREAM, *_version(generation))
        return Call(method=method, url=url, headers=headers, stream=True, repeatable=True)
    params = {"id": task_id}
    return _call(interface, Operation.SUBSCRIBE, params, stream=True, repeatable=True)


def _message(fields: dict[str, Raw], interface: Interface, delivery: Delivery) -> bytes:
    fields.pop("taskId", None)
    fields.pop("contextId", None)
    if delivery.remote_task_id:
        fields["taskId"] = Raw(pack(delivery.remote_task_id))
    if delivery.remote_context_id:
        fields["contextId"] = Raw(pack(delivery.remote_context_id))
    message = pack(fields)
    if interface.generation is Generation.V0_3 and interface.binding is not Binding.JSONRPC:
        return proto03.message_out(message)
    return shapes.message_out(message, interface.generation)


def _call(
    interface: Interface,
    operation: Operation,
    params: dict[str, Any],
    *,
    path: str = "",
    headers: tuple[tuple[str, str], ...] | None = None,
    stream: bool = False,
    repeatable: bool = False,
) -> Call:
    """A POST with the params: in an envelope, or as the body at ``path``; or an RPC of that operation."""
    if headers is None:
        headers = _version(interface.generation)
    if interface.binding is Binding.GRPC:
        return _rpc(interface, operation, params, headers)
    headers = (_JSON, _STREAM if stream else _ANSWER, *headers)
    if interface.binding is Binding.HTTP_JSON:
        url, body = _url(interface, path), params
    else:
        if interface.tenant and interface.generation is Generation.V1_0:
            params["tenant"] = interface.tenant
        method = _METHODS[interface.generation, operation]
        url, body = interface.url, {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
    return Call(
        method="POST", url=url, headers=headers, body=pack(body), stream=stream, repeatable=repeatable
    )


def _rpc(
    interface: Interface, operation: Operation, params: dict[str, Any], headers: tuple[tuple[str, str], ...]
) -> Call:
    if interface.generation is Generation.V0_3 and "id" in params:
        params = {"name": f"tasks/{params['id']}"}
    elif interface.tenant and interface.generation is Generation.V1_0:
        params["tenant"] = interface.tenant
    return Call(method=operation.value, url=interface.url, headers=headers, body=pack(params))


def _url(interface: Interface, path: str, query: str = "") -> str:
    """The address of an HTTP+JSON operation. The tenant is a path segment (1.0 section 11.3)."""
    parts = urlsplit(interface.url)
    base = parts.path.rstrip("/")
    if interface.generation is Generation.V0_3:
        base = base.removesuffix("/v1") + "/v1"
    elif interface.tenant:
        base = f"{base}/{quote(interface.tenant, safe='')}"
    query = "&".join(filter(None, (parts.query, query)))
    return urlunsplit((parts.scheme, parts.netloc, base + path, query, ""))


def _headers(
    generation: Generation, delivery: Delivery, extensions: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    headers = list(_version(generation))
    if extensions:
        value = ", ".join(extensions)
        headers.append(("A2A-Extensions", value))
        if generation is not Generation.V1_0:
            headers.append(("X-A2A-Extensions", value))
    for name, value in (("traceparent", delivery.traceparent), ("tracestate", delivery.tracestate)):
        if value and _is_field_value(value):
            headers.append((name, value))
    return tuple(headers)


def _version(generation: Generation) -> tuple[tuple[str, str], ...]:
    return () if generation is Generation.V0_1 else (("A2A-Version", generation.value),)


def _activated(agent: Agent, delivery: Delivery) -> tuple[str, ...]:
    """What the sender named, what the agent demands, and our own extension if the card declares it.

    Whose sender does not speak what it demands is not asked in the first place.
    """
    declared = agent.speaks_handoff or _URI in agent.card
    return tuple(
        uri
        for uri in dict.fromkeys((*delivery.extensions, *agent.required_extensions))
        if (uri != EXTENSION_URI or declared) and _is_field_value(uri) and "," not in uri
    )


def _is_field_value(text: str) -> bool:
    """Visible ASCII and inner spaces (RFC 9110 section 5.5): nothing that could break out of a header."""
    return text.isascii() and text.isprintable() and text == text.strip()
