"""Server spans of requests that created nothing: reads, errors, sockets.

Duty: the facts of an answered request, its span, its measurements; and the middleware of
OpenTelemetry, set up so that it notes the same facts for the routes that are not hot.
Rules: route templates, never paths; no query, no header, no address; one span per request, however many
chunks it has. Probes make no span, nor do empty polls and heartbeats that nobody traces.
Not here: the server span of a request that created a handoff: it follows from the log (``core.spans``).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.asgi import (  # pyright: ignore[reportMissingTypeStubs]
    OpenTelemetryMiddleware,
)
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.util import types
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from a2a_handoff.core.spans import (
    GRPC,
    Attributes,
    SpanKind,
    SpanLink,
    SpanRecord,
    server_attributes,
    server_name,
)
from a2a_handoff.core.tracing import SpanRef, keeps, parse_traceparent
from a2a_handoff.telemetry.instruments import Measurement

LEFT = "client_disconnect"

_METHODS = frozenset({GRPC, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
#: What agents say every few seconds, and what carries it.
_ROUTINE = frozenset({"/api/agents/{agent_id}/heartbeat", "/callbacks/{handoff_id}/{attempt}", "/mcp"})
#: The statuses of gRPC that are a fault of the server's (OpenTelemetry's conventions for gRPC).
_SERVER_FAULTS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
_NO_CONTENT = 204
_BAD_REQUEST = 400
_SERVER_ERROR = 500
_OUTCOME = "handoff.request.outcome"
_COMMITTED = "handoff.request.committed"
_ABOUT: Attributes = {"handoff.link.type": "attempt"}
_IDS = RandomIdGenerator()


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """An answered request. Times are epoch seconds.

    ``status`` is 0 if there was no answer. Over gRPC the method is ``core.spans.GRPC``, the route is service
    and method, and ``grpc_status`` is the name of the status. ``outcome`` is ``client_disconnect`` if the
    caller left. ``committed``: it created a handoff, whose log has its span. ``traceparent`` is the
    caller's, given only if the caller is trusted; ``ids`` are those of a span that exists already: trace,
    span, parent.
    """

    started_at: float
    ended_at: float
    method: str
    route: str = ""
    status: int = 200
    grpc_status: str = ""
    rpc_method: str = ""
    protocol_version: str = ""
    task_id: str = ""
    traceparent: str = ""
    outcome: Literal["", "client_disconnect"] = ""
    committed: bool = False
    socket: bool = False
    ids: tuple[str, str, str] | None = None
    sampled: bool = True
    links: tuple[SpanRef, ...] = ()


def measure_served(served: Served) -> list[Measurement]:
    """What a request measures. A socket is no request: it lasts as long as its agent lives."""
    if served.socket:
        return []
    if served.method == GRPC:
        return _measure_rpc(served)
    labels: Attributes = {
        "http.request.method": _method(served.method),
        "http.response.status_code": served.status,
    }
    if served.route:
        labels["http.route"] = served.route
    if served.status >= _SERVER_ERROR:
        labels["error.type"] = str(served.status)
    out = [Measurement("http.server.request.duration", served.ended_at - served.started_at, labels)]
    if served.outcome:
        out.append(Measurement("handoff.client.disconnects", 1, {"http.route": served.route}))
    return out


def _measure_rpc(served: Served) -> list[Measurement]:
    labels = server_attributes(method=GRPC, route=served.route)
    labels["rpc.response.status_code"] = served.grpc_status
    if served.grpc_status in _SERVER_FAULTS:
        labels["error.type"] = served.grpc_status
    out = [Measurement("rpc.server.call.duration", served.ended_at - served.started_at, labels)]
    if served.outcome:
        out.append(Measurement("handoff.client.disconnects", 1, {"http.route": served.route}))
    return out


def span_of_served(
    served: Served, ratio: float, inbound: Literal["continue", "restart", "drop"]
) -> SpanRecord | None:
    """The server span of a request; ``None`` if it shall have none."""
    if served.committed or not served.sampled or served.route in _PROBES:
        return None
    parent = parse_traceparent(served.traceparent) if inbound == "continue" else None
    if served.ids is not None:
        trace_id, span_id, parent_id = served.ids
    elif parent is not None:
        if not parent.sampled:
            return None
        trace_id, span_id, parent_id = parent.trace_id, f"{_IDS.generate_span_id():016x}", parent.span_id
    else:
        trace_id, span_id, parent_id = (
            f"{_IDS.generate_trace_id():032x}",
            f"{_IDS.generate_span_id():016x}",
            "",
        )
        if not keeps(trace_id, ratio):
            return None
    if not parent_id and _is_routine(served):
        return None
    method = _method(served.method)
    attributes = server_attributes(
        method=method,
        route=served.route,
        rpc_method=served.rpc_method,
        protocol_version=served.protocol_version,
        task_id=served.task_id,
    )
    if method == GRPC:
        attributes["rpc.response.status_code"] = served.grpc_status
    elif served.status:
        attributes["http.response.status_code"] = served.status
    if served.outcome:
        attributes[_OUTCOME] = served.outcome
    failed = served.grpc_status in _SERVER_FAULTS or served.status >= _SERVER_ERROR
    if failed:
        attributes["error.type"] = served.grpc_status or str(served.status)
    return SpanRecord(
        name=server_name(method, served.route),
        kind=SpanKind.SERVER,
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent_id,
        parent_remote=bool(parent_id),
        start=served.started_at,
        end=max(served.started_at, served.ended_at),
        attributes=attributes,
        links=tuple(SpanLink(link.trace_id, link.span_id, _ABOUT) for link in served.links if link.sampled),
        failed=failed,
    )


def _is_routine(served: Served) -> bool:
    """A poll that found nothing, or a sign of life: each would be a trace of its own, for ever."""
    found_nothing = served.method == "GET" and served.status == _NO_CONTENT
    return found_nothing or (served.route in _ROUTINE and served.status < _BAD_REQUEST)


def _method(method: str) -> str:
    return method if method in _METHODS else "_OTHER"


# --- the middleware ------------------------------------------------------------------------------


def instrumented(
    app: ASGIApp,
    *,
    routes: Sequence[BaseRoute],
    resource: Resource,
    ratio: float,
    inbound: Literal["continue", "restart", "drop"],
    trusts: Callable[[Scope], Awaitable[bool]],
    note: Callable[[Served], None],
) -> ASGIApp:
    """``app`` within OpenTelemetry's ASGI middleware; ``note`` gets every request that it saw."""
    # The middleware reads this once in a process; without it it speaks the old names.
    words = os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "")
    if "http" not in {word.strip() for word in words.split(",")}:
        os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = f"{words},http" if words else "http"
    provider = TracerProvider(sampler=_RequestSampler(ratio), resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(_Noting(note))

    def details(scope: Scope) -> tuple[str, Mapping[str, Any]]:
        method = _method(scope["method"])
        route = route_of(routes, scope)
        extra: dict[str, Any] = {"http.request.method": method}
        if route:
            extra["http.route"] = route
        return server_name(method, route), extra

    middleware = OpenTelemetryMiddleware(
        _watching(app),
        default_span_details=details,
        tracer_provider=provider,
        meter_provider=NoOpMeterProvider(),
        exclude_spans=["receive", "send"],
    )

    async def entry(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not (inbound == "continue" and await trusts(scope)):
            headers = [(k, v) for k, v in scope["headers"] if k not in (b"traceparent", b"tracestate")]
            scope = {**scope, "headers": headers}
        await middleware(scope, receive, send)

    return entry


def route_of(routes: Sequence[BaseRoute], scope: Scope) -> str:
    """The template of the route that will serve a request; empty if there is none."""
    partial = ""
    for route in routes:
        match, child = route.matches(scope)
        if match is Match.NONE:
            continue
        path = str(getattr(route, "path", ""))
        below: Sequence[BaseRoute] | None = getattr(route, "routes", None)
        if below:
            inner = route_of(below, {**scope, **child})
            path = f"{path}{inner}" if inner else ""
        if match is Match.FULL and path:
            return path
        partial = partial or path
    return partial


def superseded() -> None:
    """The current request created a handoff: its span follows from the log, not from here."""
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attribute(_COMMITTED, value=True)


def relate(about: SpanRef) -> None:
    """The current request is about the work of another span."""
    span = trace.get_current_span()
    if span.is_recording():
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if about.sampled else trace.TraceFlags.DEFAULT)
        ids = int(about.trace_id, 16), int(about.span_id, 16)
        span.add_link(trace.SpanContext(*ids, is_remote=False, trace_flags=flags))


def _watching(app: ASGIApp) -> ASGIApp:
    """Notes a caller that leaves before its answer has ended."""

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        span = trace.get_current_span()
        ended = False

        async def hear() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not ended:
                span.set_attribute(_OUTCOME, LEFT)
            return message

        async def say(message: Message) -> None:
            nonlocal ended
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        await app(scope, hear, say)

    return watching


class _RequestSampler(Sampler):
    """Obeys the caller's flag, else the ratio. What is not sampled is recorded too, to be measured."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,  # noqa: ARG002 - as above
        kind: trace.SpanKind | None = None,  # noqa: ARG002 - as above
        attributes: types.Attributes = None,
        links: Sequence[trace.Link] | None = None,  # noqa: ARG002 - as above
        trace_state: trace.TraceState | None = None,  # noqa: ARG002 - as above
    ) -> SamplingResult:
        """Decide."""
        parent = trace.get_current_span(parent_context).get_span_context()
        sampled = parent.trace_flags.sampled if parent.is_valid else keeps(f"{trace_id:032x}", self._ratio)
        return SamplingResult(Decision.RECORD_AND_SAMPLE if sampled else Decision.RECORD_ONLY, attributes)

    def get_description(self) -> str:
        """Its name."""
        return f"RequestSampler{{{self._ratio}}}"


class _Noting(SpanProcessor):
    """Hands on what the middleware saw, without what it should not have noted."""

    def __init__(self, note: Callable[[Served], None]) -> None:
        self._note = note

    def on_end(self, span: ReadableSpan) -> None:
        """Take the facts of a request."""
        context, seen = span.context, span.attributes or {}
        if context is None or span.kind is not trace.SpanKind.SERVER:
            return
        left = seen.get(_OUTCOME) == LEFT
        status = seen.get("http.response.status_code")
        failed = span.status.status_code is trace.StatusCode.ERROR and not left
        unanswered = _SERVER_ERROR if failed else 0
        self._note(
            Served(
                started_at=(span.start_time or 0) / 1e9,
                ended_at=(span.end_time or 0) / 1e9,
                method=str(seen.get("http.request.method", "")),
                route=str(seen.get("http.route", "")),
                status=status if isinstance(status, int) else unanswered,
                outcome=LEFT if left else "",
                committed=bool(seen.get(_COMMITTED)),
                ids=(
                    f"{context.trace_id:032x}",
                    f"{context.span_id:016x}",
                    f"{span.parent.span_id:016x}" if span.parent else "",
                ),
                sampled=context.trace_flags.sampled,
                links=tuple(
                    SpanRef(
                        trace_id=f"{link.context.trace_id:032x}",
                        span_id=f"{link.context.span_id:016x}",
                        sampled=link.context.trace_flags.sampled,
                    )
                    for link in span.links
                ),
            )
        )
