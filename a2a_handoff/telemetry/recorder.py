"""Spans and metrics of what was committed, made off the path of the requests.

Duty: ``Telemetry``: take notes on the hot path, turn them into spans and measurements in a thread.
Rules: a note costs a microsecond, never waits and never fails; what cannot be kept is counted. Metrics
are counted by the replica that committed; spans are the same bytes whoever derives them.
Not here: what the spans are (``core.spans``), how they leave (``exporting``).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Scope

from a2a_handoff import __version__
from a2a_handoff.config import Settings
from a2a_handoff.core.errors import Code
from a2a_handoff.core.events import HandoffRequested
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.spans import spans_of
from a2a_handoff.core.tracing import SpanRef
from a2a_handoff.ports import Change, Recorded
from a2a_handoff.telemetry.exporting import (
    SCHEMA_URL,
    SCOPE,
    CollectorSender,
    ConsoleSender,
    Services,
    SpanQueue,
)
from a2a_handoff.telemetry.instruments import LOSSES, OTHER, Instruments, Measurement, QueueReading, measure
from a2a_handoff.telemetry.options import Options, read_options
from a2a_handoff.telemetry.served import Served, instrumented, measure_served, span_of_served, superseded

#: The mark in the store up to which spans have left.
SPANS_MARK = "spans"

_LOG = logging.getLogger("a2a_handoff.telemetry")
_NOWHERE = Context()
#: How long notes gather before the thread works on them; so many wait at most.
_GATHER_S = 0.02
_NOTES_MAX = 5_000
#: How long the thread keeps the interpreter at a time.
_TURN_S = 0.001
_REJECTIONS = {
    Code.INVALID_PARAMS: "invalid_context",
    Code.INVALID_CONTEXT: "invalid_context",
    Code.CONTEXT_REQUIRED: "invalid_context",
    Code.CONTEXT_TOO_LARGE: "invalid_context",
    Code.UNAUTHENTICATED: "unauthorized",
    Code.FORBIDDEN: "unauthorized",
    Code.MAX_HOPS_EXCEEDED: "max_hops_exceeded",
    Code.CYCLE_DETECTED: "cycle_detected",
}


class _Refused(msgspec.Struct, frozen=True):
    error_type: str
    tenant: str
    sender: str


class Telemetry:
    """Records what happened; implements ``ports.Recorder``."""

    def __init__(
        self,
        settings: Settings,
        *,
        known_agent: Callable[[str, str], bool] | None = None,
        queue: Callable[[], Iterable[QueueReading]] | None = None,
    ) -> None:
        """Read the ``OTEL_*`` variables and start the threads that are needed.

        ``known_agent`` tells whether (tenant, agent id) is registered: others share one label. ``queue``
        reads the open handoffs by state; it is called when metrics are read, from the thread that
        reads them.
        """
        self.options: Options = read_options(os.environ)
        self._ratio = settings.trace_ratio
        self._inbound: Literal["continue", "restart", "drop"] = settings.trace_inbound
        self.known_agent: Callable[[str, str], bool] = known_agent or _nobody
        self.queue: Callable[[], Iterable[QueueReading]] = queue or tuple
        self._notes: deque[Change | Served | _Refused] = deque()
        self._dropped: dict[str, int] = dict.fromkeys(LOSSES, 0)
        self._lost = threading.Lock()
        self._working = threading.Lock()
        self._awake = threading.Event()
        self._stopped = False
        resource = Resource.create(
            {"service.name": self.options.service_name, "service.version": __version__}
        )
        self._spans = self._open_spans(_of_traces(resource))
        self._resource = resource
        self._registry = CollectorRegistry()
        self._meters = MeterProvider(self._readers(), resource, shutdown_on_exit=False)
        meter = self._meters.get_meter(SCOPE, __version__, SCHEMA_URL)
        self._instruments = Instruments(meter, queue=self._read_queue, dropped=lambda: self.dropped)
        self._thread = threading.Thread(target=self._run, name="a2a-handoff-telemetry", daemon=True)
        if self.options.enabled:
            self._thread.start()

    # --- the hot path ----------------------------------------------------------------------------

    def record(self, change: Change) -> None:
        """Note a committed change."""
        if isinstance(change.recorded[0].event, HandoffRequested):
            superseded()
        self._note(change)

    def rejected(self, code: Code, *, tenant: str, sender: str) -> None:
        """Note a request for a handoff that was refused, nothing stored."""
        self._note(_Refused(_REJECTIONS.get(code, OTHER), tenant, sender))

    def request_span(self, served: Served) -> None:
        """Note a request that did not pass ``asgi``."""
        self._note(served)

    def _note(self, note: Change | Served | _Refused) -> None:
        if not self.options.enabled:
            return
        if len(self._notes) >= _NOTES_MAX or self._stopped:
            self._lose("recorder_full", 1)
            return
        self._notes.append(note)
        if not self._awake.is_set():
            self._awake.set()

    def asgi(
        self,
        app: ASGIApp,
        *,
        routes: Sequence[BaseRoute] | None = None,
        trusts: Callable[[Scope], bool] | None = None,
    ) -> ASGIApp:
        """``app`` with a server span and a measurement for every request.

        For routes that are not hot: it costs some 300 microseconds a request. ``routes`` are those of
        the app if it does not tell them itself. ``trusts`` says whether the trace of a caller may be
        continued; without it every caller's is, if the setting ``trace_inbound`` allows.
        """
        if not self.options.enabled:
            return app
        return instrumented(
            app,
            routes=getattr(app, "routes", ()) if routes is None else routes,
            resource=self._resource,
            ratio=self._ratio,
            inbound=self._inbound,
            trusts=trusts or (lambda _scope: True),
            note=self._note,
        )

    # --- reading ---------------------------------------------------------------------------------

    @property
    def dropped(self) -> dict[str, int]:
        """What was lost since the start, by reason."""
        with self._lost:
            return dict(self._dropped)

    @property
    def exported_position(self) -> int | None:
        """The position in the log up to which spans have left; ``None`` if none are exported.

        It does not move while the collector is down. See ``replay``.
        """
        return None if self._spans is None else self._spans.exported_position

    def render_metrics(self) -> tuple[bytes, str]:
        """The metrics in Prometheus' text format, and its content type.

        Everything noted before is in it. May take milliseconds: call it from a thread.
        """
        self._work()
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    # --- after a crash ---------------------------------------------------------------------------

    def replay(self, history: Iterable[Recorded], *, after: int, new_chain: bool) -> int:
        """Export again the spans of one handoff that a dead replica may not have sent.

        ``history`` is the handoff's log from its first event; spans of events up to the position
        ``after`` are left out. ``new_chain``: it is the first handoff of its chain. Gives the number of
        spans queued. When every handoff was replayed, ``replayed`` says up to where.

        The mark ``SPANS_MARK`` in the store (one for each replica) is set to ``exported_position`` from
        time to time, and at the end. It trails: spans leave after the commit, and the mark moves after
        they left. So after a crash the events behind the mark are replayed, and some spans are sent
        twice. They are the same bytes; a collector that drops duplicates shows them once. Metrics are
        not replayed: the replica that committed counted them, or they are lost with it.
        """
        if self._spans is None:
            return 0
        sent = 0
        before: Handoff | None = None
        for recorded in history:
            state = evolve(before, recorded.event)
            if recorded.position > after:
                spans = spans_of(before, recorded.event, state, new_chain=new_chain)
                self._spans.put(spans)
                sent += len(spans)
            before = state
        return sent

    def replayed(self, position: int) -> None:
        """Everything up to ``position`` was replayed: once it has left, ``exported_position`` is there."""
        if self._spans is not None:
            self._spans.put((), position)

    # --- the end ---------------------------------------------------------------------------------

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Work off every note and send every span. False if it took longer than ``timeout_s``."""
        self._work()
        return self._spans is None or self._spans.flush(timeout_s)

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """Work off what was noted, send what can be sent, and stop, in ``timeout_s`` seconds at most."""
        if self._stopped:
            return
        deadline = time.monotonic() + timeout_s
        self._work()
        self._stopped = True
        self._awake.set()
        # The SDK's last push of metrics may hang longer than we may wait.
        pushing = threading.Thread(target=self._meters.shutdown, name="a2a-handoff-metrics", daemon=True)
        pushing.start()
        if self._spans is not None:
            self._spans.shutdown(max(0.0, deadline - time.monotonic()))
        pushing.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic()))

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            self._awake.wait()
            time.sleep(_GATHER_S)
            self._awake.clear()
            self._work()

    def _work(self) -> None:
        """Turn every note into spans and measurements; the event loop gets a turn every millisecond."""
        with self._working:
            turn_ends = time.perf_counter() + _TURN_S
            while self._notes:
                note = self._notes.popleft()
                try:
                    self._turn(note)
                except Exception:  # noqa: BLE001 - one change that cannot be told must not end the telling
                    _LOG.exception("A change could not be recorded.")
                    self._lose("recorder_full", 1)
                if time.perf_counter() > turn_ends:
                    time.sleep(0)
                    turn_ends = time.perf_counter() + _TURN_S

    def _turn(self, note: Change | Served | _Refused) -> None:
        match note:
            case Change():
                self._change(note)
            case Served():
                self._measure(measure_served(note), _NOWHERE)
                span = span_of_served(note, self._ratio, self._inbound) if self._spans else None
                if span and self._spans:
                    self._spans.put((span,))
            case _Refused(error_type=error_type, tenant=tenant, sender=sender):
                labels = {"handoff.source.agent.name": self._label(tenant, sender), "error.type": error_type}
                self._instruments.record(Measurement("handoff.rejections", 1, {**labels}), _NOWHERE)

    def _change(self, change: Change) -> None:
        before = change.before
        context = self._exemplar(change.after)
        last = change.recorded[-1]
        for recorded in change.recorded:
            event = recorded.event
            after = change.after if recorded is last else evolve(before, event)
            self._measure(measure(before, event, after, self._label), context)
            if self._spans is not None:
                self._spans.put(spans_of(before, event, after, new_chain=change.new_chain), recorded.position)
            before = after

    def _measure(self, measurements: Iterable[Measurement], context: Context) -> None:
        for measurement in measurements:
            self._instruments.record(measurement, context)

    def _read_queue(self) -> Iterable[QueueReading]:
        return self.queue()

    def _label(self, tenant: str, agent_id: str) -> str:
        return agent_id if self.known_agent(tenant, agent_id) else OTHER

    def _exemplar(self, handoff: Handoff) -> Context:
        """A context in which the handoff's span is the current one.

        Only where metrics are pushed: Prometheus' text format has no place for exemplars.
        """
        if self._spans is None or not self.options.push_metrics or not handoff.trace.sampled:
            return _NOWHERE
        return span_context(SpanRef(trace_id=handoff.trace.trace_id, span_id=handoff.trace.hop_span_id))

    def _lose(self, reason: str, count: int) -> None:
        with self._lost:
            self._dropped[reason] += count

    # --- what the environment asks for -----------------------------------------------------------

    def _open_spans(self, resource: Resource) -> SpanQueue | None:
        services = Services(resource)
        match self.options.traces:
            case "otlp":
                sender = CollectorSender(services, OTLPSpanExporter())
            case "console":
                sender = ConsoleSender(services)
            case _:
                return None
        return SpanQueue(
            sender,
            limit=self.options.queue,
            batch=self.options.batch,
            delay_s=self.options.delay_s,
            on_lost=self._lose,
        )

    def _readers(self) -> list[MetricReader]:
        readers: list[MetricReader] = []
        if self.options.prometheus:
            readers.append(PrometheusMetricReader(scope_info_enabled=False, registry=self._registry))
        if self.options.push_metrics:
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
        return readers


def _nobody(_tenant: str, _agent_id: str) -> bool:
    return False


def span_context(ref: SpanRef) -> Context:
    """A context in which a span from elsewhere is the current one."""
    span = SpanContext(int(ref.trace_id, 16), int(ref.span_id, 16), False, TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(span), _NOWHERE)


def _of_traces(resource: Resource) -> Resource:
    """Without the instance, unless the operator named it: another replica must send the same bytes."""
    if "service.instance.id" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return resource
    kept = {key: value for key, value in resource.attributes.items() if key != "service.instance.id"}
    return Resource(kept, resource.schema_url)
