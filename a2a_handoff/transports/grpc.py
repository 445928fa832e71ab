"""A2A over gRPC: generations 1.0 and 0.3, each under the name of its service.

Duty: the listener, metadata, statuses and streams; from bytes to the params that every surface reads, and
back from the JSON that every surface writes.
Rules: what goes on does not end with a client that leaves: a call that was canceled, or whose deadline
passed, is let go, and its task goes on. Bytes are parsed here and not by the library, which would answer
what is no message without a word of why. Nobody waits for a client that does not read. One handler serves
both kinds of calls: on the wire a unary call is a stream of one message.
Sources: A2A 1.0 section 10; ``a2a.proto`` of 0.3; AIP-193 (``google.rpc.Status`` in the trailers).
Not here: what an operation does (``operations``), messages (``wire.protobuf``). TLS is a proxy's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar, cast

import grpc
import msgspec

from a2a_handoff.config import Settings
from a2a_handoff.core.agents import Generation
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.spans import GRPC
from a2a_handoff.intake import Call as Arrival
from a2a_handoff.ports import Clock, Gate, Principal
from a2a_handoff.security.principals import within
from a2a_handoff.telemetry import Served, Telemetry
from a2a_handoff.transports.operations import Asker, Operations
from a2a_handoff.transports.rendering import refusal_of, result_of
from a2a_handoff.wire import grpc_status, proto03
from a2a_handoff.wire.broker_card import FACE_TENANT
from a2a_handoff.wire.protobuf import RPCS, Rpc, Unwritable, aside, params_of, protobuf_of
from a2a_handoff.wire.requests import Operation, Params, negotiate, read_params, read_proto_params
from a2a_handoff.wire.tasks import StreamWriter

_LOG = logging.getLogger("a2a_handoff.transports")
_T = TypeVar("_T")
_Context = grpc.aio.ServicerContext[bytes, bytes]

_IDLE_CONNECTION_S: Final = 300
_STREAMS_MAX: Final = 1_000
#: How often a client may ask whether the server is there.
_PINGS_EVERY_S: Final = 10
_BAD_HOST: Final = "cannot listen for gRPC on {address}: it is in use, or not an address of this machine"


class GrpcSurface:
    """Serves both generations on one port."""

    def __init__(
        self,
        operations: Operations,
        *,
        gate: Gate,
        telemetry: Telemetry,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._ops = operations
        self._gate = gate
        self._telemetry = telemetry
        self._clock = clock
        self._settings = settings
        self._server: grpc.aio.Server | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; the port. Raises ``OSError`` if that cannot be, with a text for the operator."""
        settings = self._settings
        server = grpc.aio.server(options=_options(settings))
        server.add_generic_rpc_handlers((_Handlers(self),))
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port}"
        try:
            port = server.add_insecure_port(address)
        except RuntimeError:
            raise OSError(_BAD_HOST.format(address=address)) from None
        await server.start()
        self._server = server
        _LOG.info("gRPC is served at %s:%d", host, port)
        return port

    def begin_stop(self) -> None:
        """Take no more calls; those that run have half of the grace to end."""
        if self._server is not None and self._stopping is None:
            self._stopping = asyncio.ensure_future(self._server.stop(self._settings.grace / 2))

    async def stop(self) -> None:
        """Wait until nothing runs any more."""
        self.begin_stop()
        if self._stopping is not None:
            await self._stopping
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.grace / 4)

    # --- one call --------------------------------------------------------------------------------

    async def serve(self, rpc: Rpc | None, _messages: object, context: _Context) -> None:
        """Answer one call; ``rpc`` is ``None`` for a method that there is not."""
        note = _Note(started_at=self._clock.now(), rpc=rpc)
        try:
            if rpc is None:
                raise HandoffError(Code.METHOD_NOT_FOUND)
            metadata = _metadata(context)
            _check_version(rpc, metadata)
            caller = await self._gate.admit(metadata.get("authorization", ""))
            params = await aside(
                partial(_params, rpc, self._settings.max_values), await self._arrived(context)
            )
            note.asker = asker = self._asker(rpc, caller, params.tenant, metadata, note)
            await context.send_initial_metadata(_echo(asker, rpc.generation))
            if rpc.operation.streams:
                with self._ops.held(asker):
                    await self._stream(rpc, asker, params, context)
            else:
                answer = await self._finish(
                    result_of(self._ops, asker, rpc.operation, params, rpc.generation)
                )
                await self._write(context, await aside(partial(_answer, rpc), answer))
        except asyncio.CancelledError:
            note.left = True
            raise
        except HandoffError as error:
            self._refuse(context, error, note)
        except Exception as fault:  # noqa: BLE001 - a fault of ours is answered in the caller's protocol
            self._refuse(context, refusal_of(fault), note)
        finally:
            self._telemetry.request_span(note.served(self._clock.now()))

    async def _stream(self, rpc: Rpc, asker: Asker, params: Params, context: _Context) -> None:
        events = await self._finish(self._ops.open(asker, params))
        writer = StreamWriter(rpc.generation)
        try:
            async for together in events:
                for event in together or ():
                    for body in writer.write(event):
                        shaped = proto03.event_out(body) if rpc.generation is Generation.V0_3 else body
                        await self._write(context, await aside(partial(_written, rpc), shaped))
        finally:
            await events.aclose()

    async def _write(self, context: _Context, message: bytes) -> None:
        """Write a message as soon as the client has room for it.

        Raises ``HandoffError`` (``unavailable``) if it makes none: what it is told then it hears when it
        reads on, and until then the library alone keeps the call.
        """
        limit_s = self._settings.send_timeout
        try:
            async with asyncio.timeout(limit_s):
                await context.write(message)
        except TimeoutError:
            raise HandoffError(
                Code.UNAVAILABLE, f"Nothing was read for {limit_s:g} seconds. Subscribe to the task to go on."
            ) from None

    async def _finish(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for work that goes on when the call is canceled."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even when nobody waits any more

    async def _arrived(self, context: _Context) -> bytes:
        try:
            async with asyncio.timeout(self._settings.arrival):
                message = await cast("Awaitable[object]", context.read())
        except TimeoutError:
            raise HandoffError(Code.INVALID_REQUEST, "The message did not arrive in time.") from None
        if not isinstance(message, bytes):
            raise HandoffError(Code.INVALID_REQUEST, "The call has no message.")
        return message

    def _refuse(self, context: _Context, error: HandoffError, note: _Note) -> None:
        note.status = error.row.grpc
        if note.asker is not None and note.creates:
            principal = note.asker.principal
            self._telemetry.rejected(error.code, tenant=principal.tenant, sender=principal.name)
        code = grpc.StatusCode[error.row.grpc]
        context.set_code(code)
        number: int = cast("tuple[int, str]", code.value)[0]
        context.set_details(grpc_status.message_of(error))
        context.set_trailing_metadata(((grpc_status.TRAILER, grpc_status.status_of(error, number)),))

    def _asker(
        self, rpc: Rpc, caller: Principal, tenant: str, metadata: dict[str, str], note: _Note
    ) -> Asker:
        """Who asks; the tenant of the request is a face, or the one that it is for."""
        face = tenant.removeprefix(FACE_TENANT) if tenant.startswith(FACE_TENANT) else ""
        principal = caller if face else within(caller, tenant)
        if face and self._ops.broker.registry.get(principal.tenant, face) is None:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {face[:64]!r}.")
        named = metadata.get("a2a-extensions") or metadata.get("x-a2a-extensions", "")
        return Asker(
            principal=principal,
            generation=rpc.generation,
            call=Arrival(
                method=GRPC,
                route=note.route,
                rpc_method=rpc.operation.value,
                protocol_version=rpc.generation.value,
                started_at=note.started_at,
            ),
            surface=f"a2a-{rpc.generation.value}",
            face=face,
            traceparent=metadata.get("traceparent", ""),
            tracestate=metadata.get("tracestate", ""),
            extensions=tuple(filter(None, (uri.strip() for uri in named.split(",")))),
            key=metadata.get("idempotency-key", ""),
            gone=note.gone,
        )


class _Handlers(grpc.GenericRpcHandler):
    """Every method of both services; another one is refused in the words of A2A."""

    def __init__(self, surface: GrpcSurface) -> None:
        self._surface = surface

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler of a call. It reads and writes bytes."""
        rpc = RPCS.get(handler_call_details.method)
        serve: Any = partial(self._surface.serve, rpc)
        return grpc.stream_stream_rpc_method_handler(serve)


class _Note(msgspec.Struct, kw_only=True):
    """What the span of a call will say."""

    started_at: float
    rpc: Rpc | None
    status: str = "OK"
    left: bool = False
    asker: Asker | None = None

    @property
    def route(self) -> str:
        return "" if self.rpc is None else self.rpc.path.removeprefix("/")

    @property
    def creates(self) -> bool:
        """Whether a refusal of it is one of a handoff."""
        return self.rpc is not None and self.rpc.operation in (Operation.SEND, Operation.STREAM)

    async def gone(self) -> bool:
        """Whether the client has left."""
        return self.left

    def served(self, ended_at: float) -> Served:
        asker, rpc = self.asker, self.rpc
        return Served(
            started_at=self.started_at,
            ended_at=ended_at,
            method=GRPC,
            route=self.route,
            status=0,
            grpc_status="CANCELLED" if self.left else self.status,
            rpc_method="" if rpc is None else rpc.operation.value,
            protocol_version="" if rpc is None else rpc.generation.value,
            task_id="" if asker is None else asker.task_id,
            traceparent=asker.traceparent if asker is not None and asker.principal.trusted else "",
            outcome="client_disconnect" if self.left else "",
            committed=asker is not None and asker.committed,
        )


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        # A second broker on the same port would take half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_body),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", settings.max_head),
        ("grpc.absolute_max_metadata_size", settings.max_head),
        ("grpc.max_concurrent_streams", _STREAMS_MAX),
        ("grpc.server_handshake_timeout_ms", int(settings.arrival * 1_000)),
        ("grpc.max_connection_idle_ms", _IDLE_CONNECTION_S * 1_000),
        ("grpc.keepalive_time_ms", int(settings.keepalive * 1_000)),
        ("grpc.http2.min_ping_interval_without_data_ms", _PINGS_EVERY_S * 1_000),
    ]


def _metadata(context: _Context) -> dict[str, str]:
    """What is text, by its name; what came several times as one list."""
    found: dict[str, str] = {}
    for name, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _check_version(rpc: Rpc, metadata: dict[str, str]) -> None:
    """The service is that of a version; a caller that names another one is told so."""
    named = metadata.get("a2a-version", "")
    if named and negotiate(named, None) is not rpc.generation:
        raise HandoffError(
            Code.VERSION_NOT_SUPPORTED,
            f"{rpc.path} is a method of A2A {rpc.generation}; send a2a-version {rpc.generation}, or none.",
            facts={"requestedVersion": named[:32], "supportedVersions": rpc.generation.value},
        )


def _params(rpc: Rpc, values_max: int, body: bytes) -> Params:
    params = params_of(rpc, body, values_max)
    if rpc.generation is Generation.V0_3:
        return read_proto_params(rpc.operation, params)
    return read_params(rpc.operation, rpc.generation, params)


def _echo(asker: Asker, generation: Generation) -> tuple[tuple[str, str], ...]:
    """The extensions that were activated (A2A 1.0 section 4.6.4): of ours there is one."""
    if EXTENSION_URI not in asker.extensions:
        return ()
    return (("x-a2a-extensions" if generation is Generation.V0_3 else "a2a-extensions", EXTENSION_URI),)


def _answer(rpc: Rpc, result: bytes) -> bytes:
    if rpc.generation is Generation.V0_3 and rpc.operation is not Operation.EXTENDED_CARD:
        result = proto03.result_out(result, sent=rpc.operation is Operation.SEND)
    return _written(rpc, result)


def _written(rpc: Rpc, body: bytes) -> bytes:
    try:
        return protobuf_of(rpc.answer, body)
    except Unwritable as fault:
        raise HandoffError(
            Code.UNSUPPORTED_OPERATION, f"{fault} Ask over JSON-RPC or HTTP+JSON for it."
        ) from None
