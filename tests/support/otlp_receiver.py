"""A trace collector in the test's own process: OTLP over HTTP, protobuf, on a free port.

Collects spans by trace and answers the questions that tests ask of a trace: has it one root, are there
orphans, what does its tree look like. ``status`` may be set to play a collector in trouble.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


@dataclass(frozen=True)
class Span:
    """A span as it arrived. Ids are lower-case hex, times nanoseconds; ``raw`` are its bytes."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    service: str
    scope: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    links: tuple[tuple[str, str, dict[str, Any]], ...]
    failed: bool
    parent_remote: bool
    resource: dict[str, Any]
    raw: bytes = field(repr=False)


class OtlpReceiver:
    """Use it as a context manager: ``with OtlpReceiver() as receiver: … receiver.endpoint``."""

    def __init__(self) -> None:
        self.status = 200
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []
        self._spans: list[Span] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                status = receiver._take(self.path, body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base calls it so
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """An exporter that goes away in the middle is no error of the receiver."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _take(self, path: str, body: bytes) -> int:
        with self._changed:
            if path == "/v1/traces" and self.status == 200:
                self._spans.extend(_spans(body))
            elif path == "/v1/metrics":
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
            elif path == "/v1/logs":
                self.logs.append(ExportLogsServiceRequest.FromString(body))
            self._changed.notify_all()
            return self.status

    # --- what arrived ----------------------------------------------------------------------------

    @property
    def spans(self) -> list[Span]:
        """Every span, in the order of arrival."""
        with self._changed:
            return list(self._spans)

    def clear(self) -> None:
        with self._changed:
            self._spans.clear()

    def add(self, spans: Iterable[Span]) -> None:
        """Spans that arrived before ``clear``."""
        with self._changed:
            self._spans[:0] = spans

    def wait_for(self, condition: Callable[[list[Span]], bool], *, timeout_s: float = 5.0) -> list[Span]:
        """The spans, once ``condition`` holds for them; fails after ``timeout_s``."""
        with self._changed:
            met = self._changed.wait_for(lambda: condition(self._spans), timeout_s)
            assert met, f"within {timeout_s} s only these spans arrived: {[s.name for s in self._spans]}"
            return list(self._spans)

    def wait_for_spans(self, count: int, *, timeout_s: float = 5.0) -> list[Span]:
        return self.wait_for(lambda spans: len(spans) >= count, timeout_s=timeout_s)

    # --- what a trace looks like -----------------------------------------------------------------

    def trace(self, trace_id: str) -> list[Span]:
        """The spans of a trace, each once, the earliest first."""
        unique = {span.span_id: span for span in self.spans if span.trace_id == trace_id}
        return sorted(unique.values(), key=lambda span: (span.start, span.span_id))

    def one_root(self, trace_id: str) -> Span:
        """The root of the trace: the one span without a parent; fails if there are more, or none."""
        roots = [span for span in self.trace(trace_id) if not span.parent_id]
        assert len(roots) == 1, f"roots of {trace_id}: {[span.name for span in roots]}"
        return roots[0]

    def orphans(self, trace_id: str, *, known: frozenset[str] = frozenset()) -> list[Span]:
        """Spans whose parent never arrived. ``known`` are ids of spans that others export."""
        spans = self.trace(trace_id)
        ids = {span.span_id for span in spans} | known
        return [span for span in spans if span.parent_id and span.parent_id not in ids]

    def tree(self, trace_id: str) -> list[str]:
        """The trace as indented lines ``[service] name (kind)``, children by start time."""
        spans = self.trace(trace_id)
        ids = {span.span_id for span in spans}
        return [
            f"{'  ' * depth}[{span.service}] {span.name} ({span.kind})"
            for top in spans
            if top.parent_id not in ids
            for depth, span in _walk(top, spans)
        ]

    def edges(self, trace_id: str) -> set[tuple[str, str]]:
        """Which service called which, as Jaeger's dependency graph has it."""
        by_id = {span.span_id: span for span in self.trace(trace_id)}
        pairs = ((by_id[s.parent_id], s) for s in by_id.values() if s.parent_id in by_id)
        return {(above.service, below.service) for above, below in pairs if above.service != below.service}


def _walk(span: Span, spans: list[Span], depth: int = 0) -> Iterator[tuple[int, Span]]:
    yield depth, span
    for child in spans:
        if child.parent_id == span.span_id:
            yield from _walk(child, spans, depth + 1)


def _spans(body: bytes) -> Iterator[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield Span(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    kind=_KINDS[span.kind],
                    service=resource.get("service.name", ""),
                    scope=scope_spans.scope.name,
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    attributes=_attributes(span.attributes),
                    events=tuple((e.name, _attributes(e.attributes)) for e in span.events),
                    links=tuple(
                        (k.trace_id.hex(), k.span_id.hex(), _attributes(k.attributes)) for k in span.links
                    ),
                    failed=span.status.code == span.status.STATUS_CODE_ERROR,
                    parent_remote=bool(span.flags & 0x200),
                    resource=resource,
                    raw=span.SerializeToString(deterministic=True),
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, which) if which else None


@contextmanager
def closed_port() -> Generator[str]:
    """An endpoint that refuses connections."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = server.server_address[1]
    server.server_close()
    yield f"http://127.0.0.1:{port}"


@contextmanager
def black_hole() -> Generator[str]:
    """An endpoint that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
