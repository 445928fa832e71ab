"""A collector in trouble is no trouble of the broker's."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import cast

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from a2a_handoff.core import commands as cmd
from a2a_handoff.core.spans import SpanRecord
from a2a_handoff.telemetry.exporting import SpanQueue
from a2a_handoff.telemetry.metrics import MetricPush
from tests.support.otlp_receiver import black_hole, closed_port
from tests.telemetry.story import Story


def two_hundred() -> Story:
    story = Story()
    for _ in range(200):
        h = story.request("agent-b")
        story.ack(h)
        story.do(h, cmd.Complete())
    return story


@pytest.mark.parametrize("trouble", ["closed port", "black hole", "503 for ever"])
def test_c061_recording_never_waits_there_is_one_warning_and_the_end_is_bounded(
    make, receiver, caplog, trouble
):
    receiver.status = 503
    with closed_port() as closed, black_hole() as hole:
        endpoint = {"closed port": closed, "black hole": hole, "503 for ever": receiver.endpoint}[trouble]
        telemetry = make(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
                "OTEL_BSP_SCHEDULE_DELAY": "10",
            }
        )
        story = two_hundred()
        slowest = 0.0
        for change in story.changes:
            started = time.perf_counter()
            telemetry.record(change)
            slowest = max(slowest, time.perf_counter() - started)
        assert slowest < 0.25
        telemetry.flush(5)
        started = time.monotonic()
        telemetry.shutdown(5)
        assert time.monotonic() - started < 5.5
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "collector does not take spans" in warnings[0].message
    assert sum(telemetry.dropped.values()) == len(story.spans)


def test_c061_a_black_hole_does_not_keep_the_process_from_ending(make):
    with black_hole() as hole:
        telemetry = make({"OTEL_EXPORTER_OTLP_ENDPOINT": hole, "OTEL_BSP_SCHEDULE_DELAY": "10"})
        story = two_hundred()
        for change in story.changes:
            telemetry.record(change)
        started = time.monotonic()
        telemetry.shutdown(0.5)
        assert time.monotonic() - started < 2
    assert telemetry.dropped["shutdown"] > 0


def test_c061_tracing_resumes_when_the_collector_returns(exporting, receiver, caplog):
    caplog.set_level(logging.INFO, "a2a_handoff.telemetry")
    story = two_hundred()
    receiver.status = 400
    for change in story.changes[:300]:
        exporting.record(change)
    assert exporting.flush()
    assert receiver.spans == []
    receiver.status = 200
    for change in story.changes[300:]:
        exporting.record(change)
    assert exporting.flush()
    assert receiver.spans
    lost = exporting.dropped["export_failed"]
    assert lost + len(receiver.spans) == len(story.spans)
    told = [r.message for r in caplog.records if r.name == "a2a_handoff.telemetry"]
    assert len(told) == 2
    assert "takes spans again" in told[1]


def a_span():
    story = Story()
    story.request("agent-b")
    return story.spans[0]


def test_c061_metrics_that_cannot_be_pushed_are_warned_of_once_and_hold_nothing_up(make, caplog):
    with closed_port() as closed:
        telemetry = make(
            {
                "OTEL_METRICS_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_ENDPOINT": closed,
                "OTEL_TRACES_EXPORTER": "none",
                "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1",
                "OTEL_METRIC_EXPORT_INTERVAL": "20",
            }
        )
        telemetry.record(two_hundred().changes[0])
        deadline = time.monotonic() + 5
        while telemetry._push._outage.on is False and time.monotonic() < deadline:
            telemetry._push._stop.wait(0.02)
        started = time.monotonic()
        telemetry.shutdown(5)
        assert time.monotonic() - started < 5.5
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "does not take metrics" in warnings[0]


class Stuck:
    """A sender that holds what it got until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.got: list[int] = []

    def send(self, spans) -> bool:
        self.go.wait(5)
        self.got.append(len(spans))
        return True

    def abort(self) -> None:
        self.go.set()


def test_the_queue_is_bounded_and_counts_what_does_not_fit():
    lost: list[tuple[str, int]] = []
    stuck = Stuck()
    queue = SpanQueue(stuck, limit=100, batch=10, delay_s=0.01, on_lost=lambda why, n: lost.append((why, n)))
    span = a_span()
    for _ in range(500):
        queue.put((span,))
    assert {why for why, _ in lost} == {"queue_full"}
    assert 500 - len(lost) <= 120
    stuck.go.set()
    assert queue.flush(5)
    queue.shutdown(5)
    assert sum(stuck.got) + len(lost) == 500
    assert max(stuck.got) <= 10


def test_a_sender_that_is_stuck_at_the_end_is_left_behind():
    lost: list[tuple[str, int]] = []
    stuck = Stuck()
    queue = SpanQueue(stuck, limit=100, batch=10, delay_s=0.01, on_lost=lambda why, n: lost.append((why, n)))
    span = a_span()
    for _ in range(50):
        queue.put((span,))
    started = time.monotonic()
    queue.shutdown(0.2)
    assert time.monotonic() - started < 1.5
    assert sum(n for why, n in lost if why == "shutdown") >= 30


class _Chokes:
    """A sender that cannot write its first batch."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def send(self, spans: Sequence[SpanRecord]) -> bool:
        self.batches.append(len(spans))
        if len(self.batches) == 1:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return True

    def abort(self) -> None:
        """Nothing waits here."""


def test_a_span_that_cannot_be_written_does_not_end_the_sending(caplog):
    lost: list[tuple[str, int]] = []
    sender = _Chokes()
    queue = SpanQueue(sender, limit=100, batch=1, delay_s=0.01, on_lost=lambda *what: lost.append(what))
    (first, second, *_) = two_hundred().spans
    for span in (first, second):
        queue.put((span,))
        assert queue.flush(5)
    queue.shutdown(5)
    assert sender.batches == [1, 1]
    assert lost == [("export_failed", 1)]
    assert "could not be written" in caplog.text


def test_metrics_that_cannot_be_read_once_are_pushed_the_next_time(caplog):
    read, pushed = iter([RuntimeError("no"), MetricsData([])]), threading.Event()

    class Takes:
        def export(self, _data: MetricsData) -> MetricExportResult:
            pushed.set()
            return MetricExportResult.SUCCESS

        def shutdown(self) -> None:
            """Nothing to close."""

    def give() -> MetricsData:
        found = next(read, MetricsData([]))
        if isinstance(found, Exception):
            raise found
        return found

    push = MetricPush(give, cast("OTLPMetricExporter", Takes()), interval_s=0.01)
    assert pushed.wait(5)
    push.shutdown(5)
    assert "could not be pushed" in caplog.text
