"""Sending spans to the collector, without letting its troubles in.

Duty: queue finished spans, send them in batches from a thread of their own, count what is lost.
Rules: queueing never waits; the queue is bounded; an outage is warned of once and its end told once;
shutdown takes no longer than it was given.
Not here: deriving spans (``core.spans``), what is lost before they exist (``recorder``).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from a2a_handoff import __version__
from a2a_handoff.core import spans as core
from a2a_handoff.core.spans import SpanRecord
from a2a_handoff.telemetry.otlp import encode_request, encode_resource, encode_scope, nanoseconds
from a2a_handoff.telemetry.outage import Outage

_LOG = logging.getLogger("a2a_handoff.telemetry")

SCOPE = "a2a_handoff"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

_KINDS = {
    core.SpanKind.INTERNAL: SpanKind.INTERNAL,
    core.SpanKind.SERVER: SpanKind.SERVER,
    core.SpanKind.CLIENT: SpanKind.CLIENT,
}


class Sender(Protocol):
    """Takes spans away. ``send`` may block; it says whether they arrived, and never raises."""

    def send(self, spans: Sequence[SpanRecord]) -> bool:
        """Send a batch."""
        ...

    def abort(self) -> None:
        """Give up a ``send`` that is waiting to try again."""
        ...


class Services:
    """The resources that spans come from: the broker, and one for each agent that says nothing."""

    _LIMIT = 4096

    def __init__(self, broker: Resource) -> None:
        self._broker = broker
        self._known: dict[str, Resource] = {"": broker}
        self._encoded: dict[str, bytes] = {"": encode_resource(_plain(broker))}

    def resource(self, service: str) -> Resource:
        """The resource of a service; empty for the broker."""
        known = self._known.get(service)
        if known is None:
            ours = {k: v for k, v in self._broker.attributes.items() if not k.startswith("service.")}
            known = Resource({**ours, "service.name": service}, self._broker.schema_url)
            if len(self._known) >= self._LIMIT:
                self._known = {"": self._broker}
            self._known[service] = known
        return known

    def encoded(self, services: set[str]) -> Mapping[str, bytes]:
        """The resources of ``services`` as OTLP bytes."""
        if len(self._encoded) >= self._LIMIT:
            self._encoded = {"": self._encoded[""]}
        for service in services - self._encoded.keys():
            self._encoded[service] = encode_resource(_plain(self.resource(service)))
        return self._encoded


def _plain(resource: Resource) -> core.Attributes:
    return {
        key: value for key, value in resource.attributes.items() if isinstance(value, (str, bool, int, float))
    }


class CollectorSender:
    """Sends by OTLP over HTTP, with OpenTelemetry's own client and settings."""

    def __init__(self, services: Services, exporter: OTLPSpanExporter) -> None:
        self._services = services
        self._exporter = exporter
        self._scope = encode_scope(SCOPE, __version__)
        # The exporter's HTTP client takes encoded bytes. It is not a published name: without it the
        # slow way through the SDK's encoder is right all the same.
        self._client = getattr(exporter, "_client", None)

    def send(self, spans: Sequence[SpanRecord]) -> bool:
        """Send a batch, trying again for as long as ``OTEL_EXPORTER_OTLP_TIMEOUT`` says."""
        if self._client is None:
            return _export(self._exporter, spans, self._services)
        resources = self._services.encoded({span.service for span in spans})
        body = encode_request(spans, resources, self._scope, SCHEMA_URL)
        return bool(self._client.export(body).success)

    def abort(self) -> None:
        """Stop trying."""
        self._exporter.shutdown()


class ConsoleSender:
    """Prints spans, for a look at them without a collector."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._exporter = ConsoleSpanExporter(out=sys.stdout)

    def send(self, spans: Sequence[SpanRecord]) -> bool:
        """Print a batch."""
        return _export(self._exporter, spans, self._services)

    def abort(self) -> None:
        """Nothing waits here."""


def _export(exporter: SpanExporter, spans: Sequence[SpanRecord], services: Services) -> bool:
    return exporter.export([readable(span, services) for span in spans]) is SpanExportResult.SUCCESS


def readable(span: SpanRecord, services: Services) -> ReadableSpan:
    """The span as the SDK knows it."""
    parent = _context(span.trace_id, span.parent_span_id, remote=span.parent_remote)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=parent if span.parent_span_id else None,
        resource=services.resource(span.service),
        attributes=span.attributes,
        events=[Event(e.name, e.attributes, nanoseconds(e.at)) for e in span.events],
        links=[Link(_context(k.trace_id, k.span_id, remote=True), k.attributes) for k in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
        start_time=nanoseconds(span.start),
        end_time=nanoseconds(span.end),
        instrumentation_scope=InstrumentationScope(SCOPE, __version__, SCHEMA_URL),
    )


def _context(trace_id: str, span_id: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id or "0", 16), remote, TraceFlags(TraceFlags.SAMPLED))


class SpanQueue:
    """The queue in front of a sender, and the thread between them."""

    def __init__(
        self,
        sender: Sender,
        *,
        limit: int,
        batch: int,
        delay_s: float,
        on_lost: Callable[[str, int], None],
    ) -> None:
        self._sender = sender
        self._limit = limit
        self._batch = batch
        self._delay_s = delay_s
        self._on_lost = on_lost
        self._entries: deque[tuple[int, Sequence[SpanRecord]]] = deque()
        self._waiting = 0
        self._sending = False
        self._outage = Outage(
            "The trace collector does not take spans; they are dropped and counted until it does.",
            "The trace collector takes spans again.",
        )
        self._stopped = False
        self._hurry = False
        self._changed = threading.Condition()
        self.exported_position = 0
        """The position in the log up to which spans have left, or need not."""
        self._thread = threading.Thread(target=self._run, name="a2a-handoff-spans", daemon=True)
        self._thread.start()

    def put(self, spans: Sequence[SpanRecord], position: int = 0) -> None:
        """Queue the spans of an event. ``position`` is that of the event in the log, 0 for none."""
        with self._changed:
            if self._stopped or self._waiting + len(spans) > self._limit:
                lost = len(spans)
            else:
                lost = 0
                self._entries.append((position, spans))
                self._waiting += len(spans)
                if self._waiting >= self._batch:
                    self._changed.notify_all()
        if lost:
            self._on_lost("queue_full", lost)

    def flush(self, timeout_s: float) -> bool:
        """Send what waits. False if it took longer."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            while self._entries or self._sending:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def shutdown(self, timeout_s: float) -> None:
        """Send what waits, for at most ``timeout_s`` seconds; the rest is counted as lost."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if not self._outage.on:
            self._thread.join(timeout_s)
        with self._outage.listening():
            self._sender.abort()
        with self._changed:
            lost, self._waiting = self._waiting, 0
            self._entries.clear()
        if lost:
            self._on_lost("shutdown", lost)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._stopped and not self._hurry and self._waiting < self._batch:
                    self._changed.wait(self._delay_s)
                position, spans = self._take()
                if not self._entries:
                    self._hurry = False
                self._sending = True
                stopped = self._stopped
            self._send(position, spans)
            with self._changed:
                self._sending = False
                self._changed.notify_all()
                if stopped and not self._entries:
                    return

    def _take(self) -> tuple[int, list[SpanRecord]]:
        position, spans = 0, list[SpanRecord]()
        while self._entries and len(spans) < self._batch:
            at, some = self._entries.popleft()
            position = at or position
            spans.extend(some)
        self._waiting -= len(spans)
        return position, spans

    def _send(self, position: int, spans: Sequence[SpanRecord]) -> None:
        if spans:
            try:
                with self._outage.listening():
                    sent = self._sender.send(spans)
                self._outage.note(ok=sent)
            except Exception:  # noqa: BLE001 - a span that cannot be written must not end the sending of others
                _LOG.exception("Spans could not be written; they are dropped and counted.")
                sent = False
            if not sent:
                self._on_lost("export_failed", len(spans))
        if not self._outage.on:
            self.exported_position = max(self.exported_position, position)
