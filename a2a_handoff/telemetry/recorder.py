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
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal

import msgspec
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Scope

from a2a_handoff import __version__
from a2a_handoff.config import Settings
from a2a_handoff.core.errors import Code
from a2a_handoff.core.events import State
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.spans import spans_of
from a2a_handoff.ports import Change, Late, Notified, Recorded, Usage
from a2a_handoff.telemetry.exporting import (
    SCHEMA_URL,
    SCOPE,
    CollectorSender,
    ConsoleSender,
    Services,
    SpanQueue,
)
from a2a_handoff.telemetry.instruments import (
    INSTRUMENTS,
    LOSSES,
    OTHER,
    Measurement,
    NatsReading,
    QueueReading,
    WorkReading,
    measure,
)
from a2a_handoff.telemetry.metrics import MetricPush, Prometheus, otlp_metrics
from a2a_handoff.telemetry.narration import narrate
from a2a_handoff.telemetry.options import Options, read_options
from a2a_handoff.telemetry.served import Served, instrumented, measure_served, span_of_served, superseded
from a2a_handoff.telemetry.tally import Tally

#: The mark in the store up to which spans have left.
SPANS_MARK = "spans"

_LOG = logging.getLogger("a2a_handoff.telemetry")
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


_RESULT = "handoff.webhook.result"


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
        work: Callable[[], WorkReading] | None = None,
        store: Callable[[], Usage] = Usage,
        nats: Callable[[], NatsReading | None] | None = None,
        clock_ahead_s: Callable[[], float] = float,
    ) -> None:
        """Read the ``OTEL_*`` variables and start the threads that are needed.

        ``known_agent`` tells whether (tenant, agent id) is registered: others share one label. ``queue``
        reads the open handoffs by state, ``work`` what is late, ``store`` how busy that is, ``nats`` how NATS
        does, if it is used, ``clock_ahead_s`` how far the broker's time is ahead of the machine's; they are
        called when metrics are read, from the thread that reads them.
        """
        self.options: Options = read_options(os.environ)
        self._ratio = settings.trace_ratio
        self._inbound: Literal["continue", "restart", "drop"] = settings.trace_inbound
        self.known_agent: Callable[[str, str], bool] = known_agent or _nobody
        self.queue: Callable[[], Iterable[QueueReading]] = queue or tuple
        self.work: Callable[[], WorkReading] = work or _no_work
        self.store = store
        self.nats: Callable[[], NatsReading | None] = nats or _no_nats
        self.clock_ahead_s = clock_ahead_s
        self._notes: deque[Change | Served | Notified | _Refused] = deque()
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
        self._tally = Tally(INSTRUMENTS)
        self._prometheus = Prometheus(self._tally, resource)
        self._started_at = time.time()
        self._push = self._open_push()
        self._thread = threading.Thread(target=self._run, name="a2a-handoff-telemetry", daemon=True)
        if self.options.enabled:
            self._thread.start()

    # --- the hot path ----------------------------------------------------------------------------

    def record(self, change: Change) -> None:
        """Note a committed change."""
        if change.before is None and change.after.trace.server is not None:
            superseded()
        self._note(change)

    def rejected(self, code: Code, *, tenant: str, sender: str) -> None:
        """Note a request for a handoff that was refused, nothing stored."""
        self._note(_Refused(_REJECTIONS.get(code, OTHER), tenant, sender))

    def notified(self, result: Notified) -> None:
        """Note what became of a notification of a webhook."""
        self._note(result)

    def request_span(self, served: Served) -> None:
        """Note a request that did not pass ``asgi``."""
        self._note(served)

    def _note(self, note: Change | Served | Notified | _Refused) -> None:
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
        trusts: Callable[[Scope], Awaitable[bool]] | None = None,
    ) -> ASGIApp:
        """``app`` with a server span and a measurement for every request.

        For routes that are not hot: it costs some 250 microseconds a request. ``routes`` are those of
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
            trusts=trusts or _everybody,
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

    def render_metrics(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics in Prometheus' text format, and its content type.

        ``accept`` is the header of the request: who takes OpenMetrics gets exemplars too. Everything
        noted before is in it. May take milliseconds: call it from a thread.
        """
        if not self.options.prometheus:
            return b"", CONTENT_TYPE_PLAIN_0_0_4
        self._work()
        with self._working:
            self._observe()
            return self._prometheus.render(accept)

    # --- after a crash ---------------------------------------------------------------------------

    def replay(
        self,
        history: Iterable[Recorded],
        *,
        after: int,
        new_chain: bool,
        only: frozenset[int] | None = None,
    ) -> int:
        """Export again the spans of one handoff that a dead replica may not have sent.

        ``history`` is the handoff's log from its first event; spans of events up to the position
        ``after`` are left out, and all but those of ``only``, if given. ``new_chain``: it is the first
        handoff of its chain. Gives the number of spans queued. When every handoff was replayed,
        ``replayed`` says up to where.

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
            if recorded.position > after and (only is None or recorded.position in only):
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
        if self._push is not None:
            self._push.finish()
        if self._spans is not None:
            self._spans.shutdown(max(0.0, deadline - time.monotonic()))
        if self._push is not None:
            self._push.shutdown(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - time.monotonic()))

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        """As long as notes come, look for them without being woken: that would cost more than a note."""
        while not self._stopped:
            self._awake.wait()
            time.sleep(_GATHER_S)
            if not self._notes:
                self._awake.clear()
            # What was noted before it was clear has woken nobody.
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

    def _turn(self, note: Change | Served | Notified | _Refused) -> None:
        match note:
            case Change():
                self._change(note)
            case Served():
                self._add(measure_served(note))
                span = span_of_served(note, self._ratio, self._inbound) if self._spans else None
                if span and self._spans:
                    self._spans.put((span,))
            case Notified():
                self._add((Measurement("handoff.webhook.notifications", 1, {_RESULT: note.value}),))
            case _Refused(error_type=error_type, tenant=tenant, sender=sender):
                labels = {"handoff.source.agent.name": self._label(tenant, sender), "error.type": error_type}
                self._add((Measurement("handoff.rejections", 1, {**labels}),))

    def _change(self, change: Change) -> None:
        before = change.before
        trace = change.after.trace
        shown = self._spans is not None and trace.sampled
        last = change.recorded[-1]
        for recorded in change.recorded:
            event = recorded.event
            after = change.after if recorded is last else evolve(before, event)
            narrate(event, after)
            span = (trace.trace_id, trace.hop_span_id, event.at) if shown else None
            self._add(measure(before, event, after, self._label), span)
            if self._spans is not None:
                self._spans.put(spans_of(before, event, after, new_chain=change.new_chain), recorded.position)
            before = after

    def _add(self, measurements: Iterable[Measurement], span: tuple[str, str, float] | None = None) -> None:
        for measurement in measurements:
            self._tally.add(measurement, span)

    def _observe(self) -> None:
        """Read what is not added up. A state without handoffs is 0: no series means no broker."""
        given = {reading.state: reading for reading in self.queue()}
        open_states = [given.get(s, QueueReading(s, 0, 0.0)) for s in State if not s.terminal]
        self._tally.observe("handoff.queue.size", [(r.size, (r.state,)) for r in open_states])
        self._tally.observe("handoff.queue.oldest_age", [(r.oldest_age_s, (r.state,)) for r in open_states])
        work = self.work()
        late = [(work.late.get(why, (0, 0.0)), (why.value,)) for why in Late]
        self._tally.observe("handoff.work.late", [(count, labels) for (count, _), labels in late])
        self._tally.observe("handoff.work.late_age", [(age_s, labels) for (_, age_s), labels in late])
        self._tally.observe("handoff.work.lease_age", [(work.lease_age_s, ())])
        self._observe_store(self.store())
        nats = self.nats()
        if nats is not None:
            self._tally.observe("handoff.nats.connected", [(nats.connected, ())])
            hints = [(count, (result,)) for result, count in nats.hints.items()]
            self._tally.observe("handoff.wakeup.hints", hints)
            if nats.events is not None:
                published, lag_s = nats.events
                self._tally.observe("handoff.events.published", [(published, ())])
                self._tally.observe("handoff.events.lag", [(lag_s, ())])
        self._tally.observe("handoff.clock.ahead", [(self.clock_ahead_s(), ())])
        lost = [(count, (reason,)) for reason, count in self.dropped.items()]
        self._tally.observe("handoff.telemetry.dropped", lost)

    def _observe_store(self, usage: Usage) -> None:
        connections = [(usage.used, ("used",)), (usage.idle, ("idle",))]
        self._tally.observe("handoff.store.connections", connections)
        for name, value in (
            ("connections.limit", usage.limit),
            ("reads.waiting", usage.reads_waiting),
            ("reads.wait_time", usage.read_wait_s),
            ("writes.waiting", usage.writes_waiting),
            ("writes.oldest_age", usage.oldest_write_s),
        ):
            self._tally.observe(f"handoff.store.{name}", [(value, ())])

    def _label(self, tenant: str, agent_id: str) -> str:
        return agent_id if self.known_agent(tenant, agent_id) else OTHER

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

    def _open_push(self) -> MetricPush | None:
        if not self.options.push_metrics:
            return None
        scope = InstrumentationScope(SCOPE, __version__, SCHEMA_URL)

        def read() -> MetricsData:
            self._work()
            with self._working:
                self._observe()
                return otlp_metrics(self._tally, self._resource, scope, started_at=self._started_at)

        return MetricPush(read, OTLPMetricExporter(), interval_s=self.options.push_every_s)


def _nobody(_tenant: str, _agent_id: str) -> bool:
    return False


def _no_work() -> WorkReading:
    return WorkReading({}, 0.0)


def _no_nats() -> None:
    return None


def _of_traces(resource: Resource) -> Resource:
    """Without the instance, unless the operator named it: another replica must send the same bytes."""
    if "service.instance.id" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return resource
    kept = {key: value for key, value in resource.attributes.items() if key != "service.instance.id"}
    return Resource(kept, resource.schema_url)


async def _everybody(_scope: Scope) -> bool:
    return True
