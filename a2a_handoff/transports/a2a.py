"""A2A over JSON-RPC and HTTP+JSON: generations 1.0 and 0.3, and the first one's JSON-RPC methods.

Duty: paths, headers, envelopes and streams of the two bindings.
Rules: raw ASGI, because routing and request objects would cost more than the handoff. One operation
table for all generations (``wire.requests``); what differs is how it is written.
Sources: A2A 1.0 sections 9 (JSON-RPC) and 11 (HTTP+JSON); the 0.3 specification sections 3.2 and 5.
Not here: what an operation does (``operations``).
"""

from __future__ import annotations

from urllib.parse import parse_qsl

import msgspec

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.intake import Call as Arrival
from a2a_handoff.ports import Clock, Gate, Principal
from a2a_handoff.security.principals import within
from a2a_handoff.telemetry import Served, Telemetry
from a2a_handoff.transports.asgi import (
    Bounds,
    ClientGone,
    Receive,
    Scope,
    Send,
    activated,
    answer,
    departure,
    headers_of,
    named_extensions,
    read_body,
    stream,
    tenant_of,
    text_header,
)
from a2a_handoff.transports.operations import Asker, Operations
from a2a_handoff.transports.rendering import events_of, refusal_of, refuse, result_of
from a2a_handoff.wire import faults, proto03
from a2a_handoff.wire.envelope import NO_ID, EnvelopeError, open_envelope, open_object
from a2a_handoff.wire.envelope import answer as rpc_answer
from a2a_handoff.wire.requests import (
    Asked,
    CancelParams,
    GetParams,
    Operation,
    Params,
    SubscribeParams,
    fill,
    from_query,
    negotiate,
    read,
    read_params,
    read_proto_params,
)

_V1, _V03, _V01 = Generation.V1_0, Generation.V0_3, Generation.V0_1


class _Route(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP+JSON operation, and the ids that stood in its path."""

    operation: Operation
    template: str
    task_id: str = ""
    config_id: str = ""


class A2ASurface:
    """Answers A2A requests."""

    def __init__(
        self,
        operations: Operations,
        *,
        gate: Gate,
        telemetry: Telemetry,
        clock: Clock,
        bounds: Bounds,
    ) -> None:
        self._ops = operations
        self._gate = gate
        self._telemetry = telemetry
        self._clock = clock
        self._bounds = bounds

    # --- JSON-RPC --------------------------------------------------------------------------------

    async def jsonrpc(self, scope: Scope, receive: Receive, send: Send, *, face: str = "") -> None:
        """``POST`` to the address of the broker's card, or of an agent's face."""
        note = _Note(started_at=self._clock.now(), method="POST", route="/agents/{agent_id}" if face else "/")
        headers = headers_of(scope)
        generation, request_id = _V1, NO_ID
        try:
            body = await read_body(receive, headers, self._bounds.size)
            call = open_envelope(body, self._bounds.values)
            request_id = call.id
            generation = negotiate(text_header(headers, b"a2a-version"), _query_version(scope))
            caller = await self._admit(headers, scope)
            asked = read(call, generation)
            generation, note.operation = asked.generation, call.method
            note.creates = asked.operation in (Operation.SEND, Operation.STREAM)
            caller = within(caller, asked.params.tenant)
            note.asker = asker = self._asker(caller, headers, receive, generation, note, face=face)
            if asked.shared and await self._made_by_client(asker, asked):
                generation = _V01
            if asked.operation in (Operation.STREAM, Operation.SUBSCRIBE):
                with self._ops.held(asker):
                    events = await self._ops.open(asker, asked.params)
                    written = events_of(events, generation, request_id)
                    note.left = not await stream(receive, send, written, headers=_echo(asker, generation))
                return
            result = await result_of(self._ops, asker, asked.operation, asked.params, generation)
            await answer(send, 200, rpc_answer(request_id, result), headers=_echo(asker, generation))
        except ClientGone:
            note.left = True
        except HandoffError as error:
            if isinstance(error, EnvelopeError):
                request_id = error.request_id
            await self._refuse(send, faults.jsonrpc(error, generation, request_id), error, note)
        except Exception as fault:  # noqa: BLE001 - a fault of ours is answered in the caller's protocol
            error = refusal_of(fault)
            await self._refuse(send, faults.jsonrpc(error, generation, request_id), error, note)
        finally:
            self._telemetry.request_span(note.served(self._clock.now(), generation))

    # --- HTTP+JSON -------------------------------------------------------------------------------

    async def rest(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        path: str,
        generation: Generation,
        face: str = "",
    ) -> None:
        """A path of the HTTP+JSON binding, without the prefixes of version and face."""
        note = _Note(started_at=self._clock.now(), method=scope["method"], route="")
        headers = headers_of(scope)
        try:
            _check_version(headers, scope, generation)
            route = _route(scope["method"], path, generation)
            note.operation = route.operation.value
            note.creates = route.operation in (Operation.SEND, Operation.STREAM)
            note.route = ("/agents/{agent_id}" if face else "") + route.template
            caller = await self._admit(headers, scope)
            body = await read_body(receive, headers, self._bounds.size)
            _check_content_type(headers, body)
            params = _rest_params(scope, body, self._bounds, route, generation)
            caller = within(caller, params.tenant)
            note.asker = asker = self._asker(caller, headers, receive, generation, note, face=face)
            if route.operation in (Operation.STREAM, Operation.SUBSCRIBE):
                shaped = proto03.event_out if generation is _V03 else None
                with self._ops.held(asker):
                    events = await self._ops.open(asker, params)
                    written = events_of(events, generation, None, shaped=shaped)
                    note.left = not await stream(receive, send, written, headers=_echo(asker, generation))
                return
            result = await result_of(self._ops, asker, route.operation, params, generation)
            if generation is _V03 and route.operation is not Operation.EXTENDED_CARD:
                result = proto03.result_out(result, sent=route.operation is Operation.SEND)
            media_type = b"application/a2a+json" if generation is _V1 else b"application/json"
            await answer(send, 200, result, content_type=media_type, headers=_echo(asker, generation))
        except ClientGone:
            note.left = True
        except HandoffError as error:
            await self._refuse(send, faults.a2a_http(error, generation), error, note)
        except Exception as fault:  # noqa: BLE001 - a fault of ours is answered in the caller's protocol
            error = refusal_of(fault)
            await self._refuse(send, faults.a2a_http(error, generation), error, note)
        finally:
            self._telemetry.request_span(note.served(self._clock.now(), generation))

    # --- both ------------------------------------------------------------------------------------

    async def _refuse(self, send: Send, refusal: faults.Refusal, error: HandoffError, note: _Note) -> None:
        note.status = refusal.status
        if note.asker is not None and note.creates:
            principal = note.asker.principal
            self._telemetry.rejected(error.code, tenant=principal.tenant, sender=principal.name)
        await refuse(send, refusal)

    async def _made_by_client(self, asker: Asker, asked: Asked) -> bool:
        params = asked.params
        if isinstance(params, (GetParams, CancelParams, SubscribeParams)):
            return await self._ops.made_by_client(asker, params.task_id)
        return False

    async def _admit(self, headers: dict[bytes, bytes], scope: Scope) -> Principal:
        """Who calls, in the tenant that the path names."""
        caller = await self._gate.admit(text_header(headers, b"authorization"))
        return within(caller, tenant_of(scope))

    def _asker(
        self,
        caller: Principal,
        headers: dict[bytes, bytes],
        receive: Receive,
        generation: Generation,
        note: _Note,
        *,
        face: str,
    ) -> Asker:
        return Asker(
            principal=caller,
            generation=generation,
            call=Arrival(
                method=note.method,
                route=note.route,
                rpc_method=note.operation,
                protocol_version=generation.value,
                started_at=note.started_at,
            ),
            surface=f"a2a-{generation.value}",
            face=face,
            traceparent=text_header(headers, b"traceparent"),
            tracestate=text_header(headers, b"tracestate"),
            extensions=named_extensions(headers),
            key=text_header(headers, b"idempotency-key"),
            gone=departure(receive),
        )


class _Note(msgspec.Struct, kw_only=True):
    """What the span of a request will say. ``creates``: a refusal of it is one of a handoff."""

    started_at: float
    method: str
    route: str
    operation: str = ""
    creates: bool = False
    status: int = 200
    left: bool = False
    asker: Asker | None = None

    def served(self, ended_at: float, generation: Generation) -> Served:
        asker = self.asker
        return Served(
            started_at=self.started_at,
            ended_at=ended_at,
            method=self.method,
            route=self.route,
            status=self.status,
            rpc_method=self.operation,
            protocol_version=generation.value,
            task_id="" if asker is None else asker.task_id,
            traceparent=asker.traceparent if asker is not None and asker.principal.trusted else "",
            outcome="client_disconnect" if self.left else "",
            committed=asker is not None and asker.committed,
        )


def _query_version(scope: Scope) -> str | None:
    if not scope["query_string"]:
        return None
    return dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("A2A-Version")


def _check_version(headers: dict[bytes, bytes], scope: Scope, generation: Generation) -> None:
    """The paths are those of a version; a caller that names another one is told so (section 3.6.2)."""
    named = text_header(headers, b"a2a-version") or _query_version(scope)
    if named and negotiate(named, None) is not generation:
        raise HandoffError(
            Code.VERSION_NOT_SUPPORTED,
            "These paths are those of A2A 1.0; version 0.3 has its own below /v1."
            if generation is _V1
            else "These paths are those of A2A 0.3; version 1.0 has the same without /v1.",
            facts={"requestedVersion": named[:32], "supportedVersions": generation.value},
        )


def _rest_params(scope: Scope, body: bytes, bounds: Bounds, route: _Route, generation: Generation) -> Params:
    if scope["method"] in ("GET", "DELETE"):
        raw = from_query(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    else:
        raw = open_object(body, bounds.values)
    members: dict[str, str] = {}
    if route.task_id:
        if "pushNotificationConfigs" in route.template:
            members["taskId"] = route.task_id
        if generation is _V03 or not members:
            members["id"] = route.task_id
    if route.config_id:
        members["id" if generation is _V1 else "pushNotificationConfigId"] = route.config_id
    params = fill(raw, **members) if members else raw
    if generation is _V03:
        return read_proto_params(route.operation, params)
    return read_params(route.operation, generation, params)


def _check_content_type(headers: dict[bytes, bytes], body: bytes) -> None:
    stated = text_header(headers, b"content-type").split(";")[0].strip().lower()
    if body and stated not in ("", "application/json", "application/a2a+json"):
        raise HandoffError(
            Code.CONTENT_TYPE_NOT_SUPPORTED, f"{stated[:64]!r} is not read here; send application/a2a+json."
        )


def _echo(asker: Asker, generation: Generation) -> list[tuple[bytes, bytes]]:
    """The extensions that were activated, under the name that the generation has for it."""
    return activated(asker.extensions, b"x-a2a-extensions" if generation is _V03 else b"a2a-extensions")


# --- paths ---------------------------------------------------------------------------------------

_COLLECTION = {
    ("POST", "message:send"): _Route(operation=Operation.SEND, template="/message:send"),
    ("POST", "message:stream"): _Route(operation=Operation.STREAM, template="/message:stream"),
    ("GET", "tasks"): _Route(operation=Operation.LIST, template="/tasks"),
    ("GET", "extendedAgentCard"): _Route(operation=Operation.EXTENDED_CARD, template="/extendedAgentCard"),
    ("GET", "card"): _Route(operation=Operation.EXTENDED_CARD, template="/card"),
}
_ON_TASK = {
    ("POST", "cancel"): Operation.CANCEL,
    ("POST", "subscribe"): Operation.SUBSCRIBE,
    ("GET", "subscribe"): Operation.SUBSCRIBE,
}
_VERBS = frozenset(verb for _, verb in _ON_TASK)
_ON_CONFIGS = {"POST": Operation.SET_PUSH, "GET": Operation.LIST_PUSH}
_ON_CONFIG = {"GET": Operation.GET_PUSH, "DELETE": Operation.DELETE_PUSH}


_METHODS = ("DELETE", "GET", "POST")


def _route(method: str, path: str, generation: Generation) -> _Route:
    """The operation of a path (A2A 1.0 section 11.3). Raises ``not_found`` and ``method_not_allowed``."""
    prefix = "/v1" if generation is _V03 else ""
    steps = path.strip("/").split("/")
    found = _find(method, steps)
    if found is None:
        allowed = ", ".join(other for other in _METHODS if _find(other, steps) is not None)
        if allowed:
            raise HandoffError(Code.METHOD_NOT_ALLOWED, facts={faults.ALLOW: allowed})
        raise HandoffError(Code.NOT_FOUND)
    return _Route(
        operation=found.operation,
        template=prefix + found.template,
        task_id=found.task_id,
        config_id=found.config_id,
    )


def _find(method: str, steps: list[str]) -> _Route | None:
    if len(steps) == 1:
        return _COLLECTION.get((method, steps[0]))
    return _task_route(method, steps[1:]) if steps[0] == "tasks" else None


def _task_route(method: str, steps: list[str]) -> _Route | None:
    task_id = steps[0]
    if len(steps) == 1:
        named, _, verb = task_id.rpartition(":")
        if named and verb in _VERBS:
            operation = _ON_TASK.get((method, verb))
            if operation is None:
                return None
            return _Route(operation=operation, template=f"/tasks/{{id}}:{verb}", task_id=named)
        if method != "GET":
            return None
        return _Route(operation=Operation.GET, template="/tasks/{id}", task_id=task_id)
    if steps[1] != "pushNotificationConfigs" or len(steps) > 3:
        return None
    template = "/tasks/{id}/pushNotificationConfigs"
    if len(steps) == 2:
        operation = _ON_CONFIGS.get(method)
        return _Route(operation=operation, template=template, task_id=task_id) if operation else None
    operation = _ON_CONFIG.get(method)
    if operation is None:
        return None
    return _Route(
        operation=operation,
        template=f"{template}/{{config_id}}",
        task_id=task_id,
        config_id=steps[2],
    )
