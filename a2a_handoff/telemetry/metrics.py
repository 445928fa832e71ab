"""How metrics leave: as Prometheus' text, or pushed by OTLP.

Duty: render a ``Tally`` for a scrape, with exemplars where the format has them; push it from a thread.
Sources: OpenMetrics 1.0; OpenTelemetry's mapping to Prometheus (dots become underscores).
Not here: adding up (``tally``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Exemplar as OtelExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    DataT,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as TextExemplar

from a2a_handoff.core.spans import AttributeValue
from a2a_handoff.telemetry.outage import Outage
from a2a_handoff.telemetry.tally import Exemplar, Labels, Point, Series, Tally

_LOG = logging.getLogger("a2a_handoff.telemetry")
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_OPENMETRICS = "application/openmetrics-text"


# --- Prometheus ----------------------------------------------------------------------------------


class _Collector(Collector):
    def __init__(self, tally: Tally, resource: Resource) -> None:
        self._tally = tally
        self._about = {_name(k): str(v) for k, v in resource.attributes.items()}

    def collect(self) -> Iterator[Family]:
        yield InfoMetricFamily("target", "The process that is measured.", value=self._about)
        for series in self._tally:
            yield _family(series)


class Prometheus:
    """The tally as text."""

    def __init__(self, tally: Tally, resource: Resource) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(tally, resource))

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type: OpenMetrics, with exemplars, for who accepts it."""
        if _OPENMETRICS in accept:
            text = cast("bytes", openmetrics.generate_latest(self._registry))  # pyright: ignore[reportUnknownMemberType]
            return text, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


def _family(series: Series) -> Family:
    row = series.row
    labels = [_name(attribute) for attribute in row.attributes]
    if row.type == "histogram":
        histogram = HistogramMetricFamily(row.prometheus, row.meaning, labels=labels)
        edges = [*(repr(float(edge)) for edge in row.buckets), "+Inf"]
        for values, point in series.points.items():
            below = 0
            buckets: list[tuple[str, float, TextExemplar | None]] = []
            for edge, count, exemplar in zip(edges, point.counts, point.exemplars, strict=True):
                below += count
                buckets.append((edge, below, _text_exemplar(exemplar)))
            histogram.add_metric(_texts(values), buckets, point.total)  # pyright: ignore[reportArgumentType]
        return histogram
    family = (CounterMetricFamily if row.type == "counter" else GaugeMetricFamily)(
        row.prometheus, row.meaning, labels=labels
    )
    for values, point in series.points.items():
        family.add_metric(_texts(values), point.total)
    return family


def _text_exemplar(exemplar: Exemplar | None) -> TextExemplar | None:
    if exemplar is None:
        return None
    ids = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
    return TextExemplar(ids, exemplar.value, exemplar.at)  # pyright: ignore[reportArgumentType]


def _texts(values: Labels) -> list[str]:
    return [_text(value) for value in values]


def _text(value: AttributeValue | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name(attribute: str) -> str:
    return attribute.replace(".", "_")


# --- OTLP ----------------------------------------------------------------------------------------


class MetricPush:
    """Pushes the tally every so often, cumulative, and once more at the end."""

    def __init__(
        self, read: Callable[[], MetricsData], exporter: OTLPMetricExporter, *, interval_s: float
    ) -> None:
        self._read = read
        self._exporter = exporter
        self._interval_s = interval_s
        self._outage = Outage(
            "The collector does not take metrics; they are pushed again with the next.",
            "The collector takes metrics again.",
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="a2a-handoff-metrics", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Begin the last push."""
        self._stop.set()

    def shutdown(self, timeout_s: float) -> None:
        """Wait for the last push, for at most ``timeout_s`` seconds."""
        self.finish()
        self._thread.join(timeout_s)
        self._exporter.shutdown()  # pyright: ignore[reportUnknownMemberType]

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._push()
        self._push()

    def _push(self) -> None:
        try:
            with self._outage.listening():
                result = self._exporter.export(  # pyright: ignore[reportUnknownMemberType]
                    self._read()
                )
        except Exception:  # noqa: BLE001 - the next push may well do
            _LOG.exception("Metrics could not be pushed.")
            return
        self._outage.note(ok=result is MetricExportResult.SUCCESS)


def otlp_metrics(
    tally: Tally, resource: Resource, scope: InstrumentationScope, *, started_at: float
) -> MetricsData:
    """The tally as OpenTelemetry's exporter takes it."""
    since, now = int(started_at * 1e9), time.time_ns()
    metrics = [
        Metric(series.row.name, series.row.meaning, series.row.unit, _data(series, since, now))
        for series in tally
        if series.points
    ]
    scoped = [ScopeMetrics(scope, metrics, scope.schema_url or "")]
    return MetricsData([ResourceMetrics(resource, scoped, resource.schema_url)])


def _data(series: Series, since: int, now: int) -> DataT:
    row = series.row
    if row.type == "histogram":
        return Histogram(
            [
                HistogramDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=since,
                    time_unix_nano=now,
                    count=point.count,
                    sum=point.total,
                    bucket_counts=list(point.counts),
                    explicit_bounds=row.buckets,
                    min=point.smallest,
                    max=point.largest,
                    exemplars=[_otel_exemplar(e) for e in point.exemplars if e is not None],
                )
                for attributes, point in _points(series)
            ],
            _CUMULATIVE,
        )
    points = [
        NumberDataPoint(attributes, since, now, point.total, []) for attributes, point in _points(series)
    ]
    match row.type:
        case "gauge":
            return Gauge(points)
        case kind:
            return Sum(points, _CUMULATIVE, is_monotonic=kind == "counter")


def _points(series: Series) -> Iterable[tuple[Mapping[str, AttributeValue], Point]]:
    for labels, point in series.points.items():
        names = zip(series.row.attributes, labels, strict=True)
        yield {name: value for name, value in names if value is not None}, point


def _otel_exemplar(exemplar: Exemplar) -> OtelExemplar:
    return OtelExemplar(
        {}, exemplar.value, int(exemplar.at * 1e9), int(exemplar.span_id, 16), int(exemplar.trace_id, 16)
    )
