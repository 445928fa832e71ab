"""The composition root: which parts make a broker, and in what order they start and stop.

Duty: put service, surfaces and telemetry together, give every path to its surface.
Not here: anything that the parts do, the process that serves them (``server``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from a2a_handoff import __version__, chores
from a2a_handoff.admission import gate_of, resource_metadata
from a2a_handoff.client import A2AClient, WebhookClient, WellKnownCardFetcher
from a2a_handoff.clock import TOLD_S, SystemClock
from a2a_handoff.config import ConfigurationError, Settings
from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import State
from a2a_handoff.core.rules import RoutingRules, RulesError, shipped
from a2a_handoff.notify import LocalNotifier
from a2a_handoff.notify.chosen import nats_link, nats_notifier, nats_stream
from a2a_handoff.notify.relayed import RelayedNotifier
from a2a_handoff.ports import Clock, Gate, Late, Principal, StoreUnavailable, Usage
from a2a_handoff.ports import Scope as Allowed
from a2a_handoff.security.principals import TENANT, within
from a2a_handoff.security.quotas import Quotas, RatedGate
from a2a_handoff.security.sites import Sites
from a2a_handoff.security.urls import OutboundPolicy
from a2a_handoff.service import Ports, Service
from a2a_handoff.spanmark import SpanMark
from a2a_handoff.stores import hints_of, open_store
from a2a_handoff.telemetry import NatsReading, QueueReading, Telemetry, WorkReading, relate
from a2a_handoff.tokens import BpeCounter
from a2a_handoff.transports.a2a import A2ASurface
from a2a_handoff.transports.asgi import (
    TENANT_KEY,
    App,
    Bounds,
    Receive,
    Scope,
    Send,
    headers_of,
    tenant_of,
    text_header,
)
from a2a_handoff.transports.asyncapi import document as asyncapi
from a2a_handoff.transports.callbacks import PATH as CALLBACKS
from a2a_handoff.transports.callbacks import CallbackSurface
from a2a_handoff.transports.calls import NativeCalls
from a2a_handoff.transports.cards import FACE_CARD, CardPages
from a2a_handoff.transports.legacy import PATHS, LegacySurface
from a2a_handoff.transports.live import LiveSurface
from a2a_handoff.transports.mcp.surface import McpSurface
from a2a_handoff.transports.native import on_refusal
from a2a_handoff.transports.operations import Operations
from a2a_handoff.transports.rendering import refuse
from a2a_handoff.transports.rest import RestSurface
from a2a_handoff.transports.routes import routes as native_routes
from a2a_handoff.transports.websocket import SocketSurface, refuse_handshake
from a2a_handoff.trust import judge_of, seal_of
from a2a_handoff.wire import faults

if TYPE_CHECKING:
    from a2a_handoff.transports.grpc import GrpcSurface

_LOG = logging.getLogger("a2a_handoff")
_QUEUE_EVERY_S = 2.0
#: Seconds that a probe waits for the store.
_STORE_ANSWERS_S = 2.0
#: What is ready says this too while NATS is away.
_WITHOUT_STREAM = "degraded: events do not reach their stream now; none is lost\n"
_WITHOUT_NATS = "degraded: NATS is away, so what happens in other brokers is seen a little later\n"
_CLOCK_SET_BACK = "degraded: the clock of this machine was set back; the broker lets it catch up\n"
_RPC_PATHS = ("/", "/a2a", "/a2a/")
_CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
#: RFC 9728 section 3.1: of the broker, and of the resource ``/mcp`` (MCP, section Authorization).
_RESOURCE_PATHS = (
    "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp",
)  # fmt: skip
_KEYS_PATH = "/.well-known/jwks.json"
#: First steps of paths that there are also below ``/{tenant}`` (A2A 1.0 section 11.3.1 and beyond).
_IN_TENANTS = frozenset(
    {
        "a2a", "agents", "ai-api", "api", "card", "extendedAgentCard", "mcp", "message:send",
        "message:stream", "tasks", "v1", "ws", ".well-known",
    }
)  # fmt: skip
_ROOTS = _IN_TENANTS | {
    "", "asyncapi.json", "callbacks", "console", "healthz", "metrics", "openapi.json", "readyz",
}  # fmt: skip
_OPEN_STATES = tuple(state for state in State if not state.terminal)
_REFUSALS = {HandoffError: on_refusal, HTTPException: on_refusal, 500: on_refusal}


class Application:
    """A broker with all its parts. An ASGI application between ``start`` and ``stop``.

    ``clock`` stands in for the machine's.
    """

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        policy = OutboundPolicy(allow_private=settings.private_addresses)
        self.telemetry = Telemetry(
            settings,
            known_agent=self._is_registered,
            queue=self._read_queue,
            work=self._read_work,
            store=self._read_store,
            nats=self._read_nats,
            clock_ahead_s=self.clock.ahead_s,
        )
        link = nats_link(settings)
        self._nats = None if link is None else nats_notifier(settings, link)
        hints = None if self._nats else hints_of(settings.store)
        self._relayed = RelayedNotifier(hints) if hints else None
        self._counter = BpeCounter()
        self._client = A2AClient(policy, idle_s=settings.stream_idle, now=self.clock.now)
        self._hooks = WebhookClient(policy, now=self.clock.now)
        self._judge = judge_of(settings, policy, self.clock)
        self.service = service = Service(
            settings,
            Ports(
                store=open_store(settings.store, lease_s=settings.work_lease),
                client=self._client,
                hooks=self._hooks,
                fetcher=WellKnownCardFetcher(policy),
                verifier=self._judge,
                policy=policy,
                recorder=self.telemetry,
                counter=self._counter,
                clock=self.clock,
                rules=_rules(settings),
                notifier=self._nats or self._relayed or LocalNotifier(),
                stream=None if link is None else nats_stream(settings, link),
            ),
        )
        self.store, self.registry, self.broker = service.store, service.registry, service.broker
        self._mark = SpanMark(
            store=service.store,
            journal=service.journal,
            telemetry=self.telemetry,
            notifier=service.notifier,
        )
        if service.replicas is not None:
            service.replicas.on_departed = self._mark.inherit
        self._gate = gate = gate_of(settings, policy, self.clock)
        self.quotas = quotas = Quotas(
            streams_max=settings.max_streams,
            streams_each=settings.max_streams_each,
            rate=settings.max_rate,
            burst=settings.max_burst,
        )
        rated = RatedGate(gate, quotas) if quotas.rated else gate
        self._cards = CardPages(
            self.registry,
            caller=self._caller,
            closed=gate.closed,
            seal=seal_of(settings),
            default_tenant=settings.default_tenant,
        )
        bounds = Bounds.of(settings)
        operations = Operations(
            self.broker,
            quotas=quotas,
            keepalive_s=settings.keepalive,
            extended_card=self._cards.extended,
        )
        self._sites = Sites(loopback=settings.loopback, public_url=settings.public_url)
        self._a2a = A2ASurface(
            operations, gate=rated, telemetry=self.telemetry, clock=self.clock, bounds=bounds
        )
        self._legacy = LegacySurface(
            operations, gate=rated, telemetry=self.telemetry, clock=self.clock, bounds=bounds
        )
        self._grpc = _grpc_surface(
            operations, gate=rated, telemetry=self.telemetry, clock=self.clock, settings=settings
        )
        calls = NativeCalls(self.broker, settings=settings)
        rest = RestSurface(self.broker, calls, service.drain, settings=settings)
        live = LiveSurface(self.broker, calls, quotas, settings=settings)
        self._sockets = SocketSurface(
            self.broker,
            calls,
            service.bulletin,
            gate=rated,
            quotas=quotas,
            telemetry=self.telemetry,
            clock=self.clock,
            settings=settings,
        )
        self._native = native_routes(rest, live, rated)
        # What comes from within this process was counted where it came in.
        inside = self._native if rated is gate else native_routes(rest, live, gate)
        self._inside = Starlette(routes=inside, exception_handlers=_REFUSALS)
        self._callbacks = CallbackSurface(
            service.callbacks, service.dispatcher.hearing, relate=relate, bounds=bounds
        )
        self._mcp = McpSurface(self._within, gate=rated, bounds=bounds)
        self._cold = self._cold_app()
        self._queue: tuple[QueueReading, ...] = ()
        self._late: dict[Late, tuple[int, float]] = {}
        self._chores: list[asyncio.Task[None]] = []
        self.url = settings.public_url
        self.grpc_port = 0
        self.ready = False

    # --- life ------------------------------------------------------------------------------------

    async def start(self, *, url: str) -> None:
        """Open the store, load the agents, go on with what is unfinished.

        ``url`` is where callers reach the broker. Raises ``StoreUnavailable`` and ``HandoffError``.
        """
        self.url = self._cards.url = self.settings.public_url or url
        await self.service.open(self.settings.cards, tenant=self.settings.default_tenant)
        self._tell_agents()
        for others in (self._nats, self._relayed):
            if others is not None:
                others.start()
        await asyncio.to_thread(self._counter.load)
        await self._mark.begin()
        self.service.start()
        self._gate.open()
        self._chores = [
            chores.begin(self._mark.keep, "span-mark"),
            chores.begin(self._measure_queue, "queue"),
        ]
        if self._grpc is not None:
            try:
                self.grpc_port = await self._grpc.start()
            except OSError as error:
                raise ConfigurationError(str(error)) from error
            self._cards.grpc = self.settings.grpc_shown(self.grpc_port)
        self.ready = True

    def _tell_agents(self) -> None:
        count = len(self.registry.agents(self.settings.default_tenant))
        if count:
            _LOG.info("%d agents are registered", count)
        else:
            _LOG.info(
                "no agents so far: put AgentCards into %s, or register agents at %s/api/agents",
                self.settings.cards.absolute(),
                self.url,
            )

    def begin_stop(self) -> None:
        """Refuse new work and let those who wait go; what runs goes on."""
        self.ready = False
        self.service.begin_stop()
        if self._grpc is not None:
            self._grpc.begin_stop()

    async def stop(self) -> None:
        """Finish or let go of what runs, then close everything. What is let go goes on after a start."""
        self.begin_stop()
        await chores.end(self._chores)
        if self._grpc is not None:
            await self._grpc.stop()
        await self._mcp.close()
        await self.service.stop(grace_s=self.settings.grace / 2)
        await self._gate.close()
        await self._client.close()
        await self._hooks.close()
        if self._judge is not None:
            await self._judge.close()
        for others in (self._nats, self._relayed):
            if others is not None:
                await others.close()
        await asyncio.to_thread(self.telemetry.shutdown, self.settings.grace / 4)
        await self._mark.end()
        await self.store.close()

    # --- telemetry -------------------------------------------------------------------------------

    def _is_registered(self, tenant: str, agent_id: str) -> bool:
        return self.registry.get(tenant, agent_id) is not None

    def _read_queue(self) -> tuple[QueueReading, ...]:
        return self._queue

    def _read_work(self) -> WorkReading:
        return WorkReading(self._late, self.service.dispatcher.lease_age_s)

    def _read_store(self) -> Usage:
        return self.store.usage()

    def _read_nats(self) -> NatsReading | None:
        if self._nats is None:
            return None
        outbox = self.service.outbox
        events = None if outbox is None else (outbox.published, outbox.lag_s)
        return NatsReading(self._nats.connected, self._nats.hints, events)

    async def _measure_queue(self) -> None:
        with self.service.notifier.listen("queue") as never:
            while True:
                with contextlib.suppress(StoreUnavailable):
                    counted = await self.store.queue()
                    late = await self.store.late(now=self.clock.now())
                    now = self.clock.now()
                    self._late = {why: _reading(late[why], now) for why in late}
                    self._queue = tuple(
                        QueueReading(state.value, *_reading(counted.get(state), now))
                        for state in _OPEN_STATES
                    )
                await never.wait(timeout_s=_QUEUE_EVERY_S)

    async def _trusts(self, scope: Scope) -> bool:
        """Whether a caller of a cold route may have its trace continued."""
        if b"traceparent" not in headers_of(scope):
            return False
        if self._callbacks.lets_in(scope):
            return True
        try:
            return (await self._caller(scope)).trusted
        except HandoffError:
            return False

    async def _caller(self, scope: Scope) -> Principal:
        """Who calls, in the tenant that the path names."""
        authorization = text_header(headers_of(scope), b"authorization")
        return within(await self._gate.admit(authorization), tenant_of(scope))

    # --- paths -----------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Task paths go straight to their surface; the others through Starlette."""
        if fault := self._sites.fault(scope.get("headers", ())):
            await self._turn_away(scope, send, fault)
            return
        if scope["path"] not in _RPC_PATHS:
            scope = _without_tenant(scope)
        if scope["type"] != "http":
            await self._sockets(scope, receive, send)
            return
        path: str = scope["path"]
        face = ""
        if path.startswith("/agents/"):
            face, _, rest = path[len("/agents/") :].partition("/")
            path = "/" + rest
            if not rest.startswith(".well-known/") and not await self._has_face(scope, face):
                path = ""
        surface = self._surface(scope["method"], path, face)
        if surface is None:
            await self._cold(scope, receive, send)
            return
        try:
            await surface(scope, receive, send)
        except Exception:
            _LOG.exception("a request failed", extra={"path": scope["path"]})
            raise

    async def _within(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The native surface for calls that come from within this process."""
        await self._inside(_without_tenant(scope), receive, send)

    async def _has_face(self, scope: Scope, agent_id: str) -> bool:
        """Whether there is such an agent for the caller; who may not call at all is told by the surface."""
        try:
            caller = await self._caller(scope)
        except HandoffError:
            return True
        return await self.registry.find(caller.tenant, agent_id) is not None

    async def _turn_away(self, scope: Scope, send: Send, fault: str) -> None:
        if scope["type"] == "websocket":
            await refuse_handshake(scope, send, HandoffError(Code.FORBIDDEN, fault))
            return
        await refuse(send, faults.problem(HandoffError(Code.FORBIDDEN, fault), scope["path"]))

    def _surface(self, method: str, path: str, face: str) -> App | None:
        if method == "POST" and path in _RPC_PATHS:
            return lambda scope, receive, send: self._a2a.jsonrpc(scope, receive, send, face=face)
        if method == "POST" and path in PATHS:
            return lambda scope, receive, send: self._legacy(scope, receive, send, path=path, face=face)
        generation = Generation.V1_0
        if path.startswith("/v1/"):
            generation, path = Generation.V0_3, path[3:]
        if path.startswith(("/message:", "/tasks")) or path in ("/extendedAgentCard", "/card"):
            return lambda scope, receive, send: self._a2a.rest(
                scope, receive, send, path=path, generation=generation, face=face
            )
        return None

    def _cold_app(self) -> App:
        routes = [
            Route("/", self._front_page, methods=["GET"]),
            # Calls do not come here; these are known so that a refusal of other methods can name them.
            *(Route(path, self._front_page, methods=["POST"]) for path in _RPC_PATHS),
            *(Route(path, self._cards.card, methods=["GET"]) for path in _CARD_PATHS),
            Route(_KEYS_PATH, self._cards.keys, methods=["GET"]),
            *(Route(path, self._resource, methods=["GET"]) for path in _RESOURCE_PATHS),
            *(
                Route(f"/agents/{{agent_id}}{path}", self._cards.face_card, methods=["GET"])
                for path in (*_CARD_PATHS, FACE_CARD)
            ),
            *self._native,
            Route("/agents/{agent_id}", self._no_face, methods=["GET", "POST", "DELETE"]),
            Route("/agents/{agent_id}/{rest:path}", self._no_face, methods=["GET", "POST", "DELETE"]),
            Route("/mcp", self._mcp),
            Route(CALLBACKS, self._callbacks.take, methods=["POST"]),
            Route("/asyncapi.json", self._asyncapi, methods=["GET"]),
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/readyz", self._readyz, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers=_REFUSALS,
        )
        return self.telemetry.asgi(app, routes=routes, trusts=self._trusts)

    async def _front_page(self, request: Request) -> Response:
        """Where to go from here."""
        del request
        paths = {
            "agent_card": _CARD_PATHS[0],
            "agents": "/api/agents",
            "openapi": "/openapi.json",
            "mcp": "/mcp",
        }
        links = {name: self.url + path for name, path in paths.items()}
        return JSONResponse({"name": "a2a-handoff", "version": __version__} | links)

    async def _resource(self, request: Request) -> Response:
        """Where a client gets a token for this broker, if there is such a place."""
        path: str = request.scope["path"]
        found = resource_metadata(self.settings, self.url + path.removeprefix(_RESOURCE_PATHS[0]))
        if found is None:
            raise HandoffError(Code.NOT_FOUND)
        return JSONResponse(found)

    async def _asyncapi(self, request: Request) -> Response:
        """The description of the WebSocket."""
        del request
        return Response(asyncapi(), media_type="application/json")

    async def _no_face(self, request: Request) -> Response:
        """A path below the address of an agent that is not there, or one that it does not have."""
        agent_id = request.path_params["agent_id"]
        caller = await self._caller(request.scope)
        if self.registry.get(caller.tenant, agent_id) is None:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {agent_id[:64]!r}.")
        raise HandoffError(Code.NOT_FOUND)

    async def _healthz(self, request: Request) -> Response:
        del request
        return Response("ok\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        del request
        if not self.ready:
            return Response("stopping\n", status_code=503, media_type="text/plain")
        if self.service.drain.begun:
            return Response(f"{self.service.drain.stage}\n", status_code=503, media_type="text/plain")
        try:
            await asyncio.wait_for(self.store.log_end(), _STORE_ANSWERS_S)
        except (StoreUnavailable, TimeoutError):
            return Response("the store does not answer\n", status_code=503, media_type="text/plain")
        return Response("".join(("ready\n", *self._degraded())), media_type="text/plain")

    def _degraded(self) -> Iterator[str]:
        """What a broker that is ready goes without for now."""
        if self._nats is not None and not self._nats.connected:
            yield _WITHOUT_NATS
        if self.service.outbox is not None and self.service.outbox.trouble:
            yield _WITHOUT_STREAM
        if self.clock.ahead_s() > TOLD_S:
            yield _CLOCK_SET_BACK

    async def _metrics(self, request: Request) -> Response:
        if self.settings.auth_metrics:
            caller = await self._caller(request.scope)
            caller.require(Allowed.METRICS)
        accept = request.headers.get("accept", "")
        body, content_type = await asyncio.to_thread(self.telemetry.render_metrics, accept)
        return Response(body, headers={"content-type": content_type})


def _without_tenant(scope: Scope) -> Scope:
    """A request for a path below ``/{tenant}`` as one for the path itself, in that tenant."""
    path: str = scope["path"]
    tenant, _, rest = path[1:].partition("/")
    if tenant in _ROOTS or rest.partition("/")[0] not in _IN_TENANTS or not TENANT.fullmatch(tenant):
        return scope
    return {**scope, "path": f"/{rest}", "raw_path": None, TENANT_KEY: tenant}


def _grpc_surface(
    operations: Operations, *, gate: Gate, telemetry: Telemetry, clock: Clock, settings: Settings
) -> GrpcSurface | None:
    if settings.grpc_port is None:
        return None
    try:
        from a2a_handoff.transports.grpc import GrpcSurface  # noqa: PLC0415 - its library is an extra
    except ImportError:
        raise ConfigurationError("grpc_port needs the extra grpc: pip install 'a2a-handoff[grpc]'") from None
    return GrpcSurface(operations, gate=gate, telemetry=telemetry, clock=clock, settings=settings)


def _rules(settings: Settings) -> RoutingRules:
    if settings.rules is None:
        return shipped()
    try:
        return RoutingRules.load(settings.rules.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"rules: cannot read {settings.rules}: {error.strerror}") from error
    except RulesError as error:
        raise ConfigurationError(f"rules: {settings.rules}: {error}") from error


def _reading(counted: tuple[int, float] | None, now: float) -> tuple[int, float]:
    """How many there are, and the age of the oldest in seconds."""
    if counted is None:
        return 0, 0.0
    count, oldest_at = counted
    return count, max(0.0, now - oldest_at)


__all__ = ["Application", "ConfigurationError"]
