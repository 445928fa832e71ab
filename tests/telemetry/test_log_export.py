"""Log lines reach a collector that takes them, and one that does not holds nobody up."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from a2a_handoff.telemetry import exported_logs
from tests.support.otlp_receiver import OtlpReceiver

_LOG = logging.getLogger("a2a_handoff.x")


def ship(monkeypatch: pytest.MonkeyPatch, endpoint: str, **more: str) -> None:
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    for name, value in more.items():
        monkeypatch.setenv(name, value)


def lines(receiver: OtlpReceiver) -> list[LogRecord]:
    return [
        record
        for request in receiver.logs
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def attributes(record: LogRecord) -> dict[str, Any]:
    return {pair.key: pair.value.string_value for pair in record.attributes}


def test_a_line_arrives_with_its_trace_and_without_its_secrets(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, receiver.endpoint)
    with exported_logs():
        ids = {"trace_id": "0a" * 16, "span_id": "0b" * 8, "handoff_id": "h1", "tenant": "acme"}
        _LOG.warning("password=%s", "sekrit", extra={**ids, "body": "private"})
    (line,) = lines(receiver)
    assert line.body.string_value == "password=[REDACTED]"
    assert (line.severity_text, line.trace_id.hex(), line.span_id.hex()) == ("WARNING", "0a" * 16, "0b" * 8)
    assert attributes(line) == {"handoff_id": "h1", "tenant": "acme"}
    (resource,) = receiver.logs[0].resource_logs
    named = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert named["service.name"] == "a2a-handoff"


def test_an_exception_is_told_with_its_type_and_its_stack(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, receiver.endpoint)
    with exported_logs():
        try:
            raise LookupError("token=abc123")
        except LookupError:
            _LOG.exception("it failed")
    (line,) = lines(receiver)
    told = attributes(line)
    assert told["exception.type"] == "LookupError"
    assert "token=[REDACTED]" in told["exception.stacktrace"]
    assert "abc123" not in told["exception.stacktrace"]


def test_nothing_is_sent_unless_it_is_asked_for(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    with exported_logs():
        _LOG.warning("for stderr alone")
    assert receiver.logs == []


def test_lines_about_the_sending_are_not_sent(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, receiver.endpoint)
    with exported_logs():
        logging.getLogger("opentelemetry.exporter").warning("failed to export")
        logging.getLogger("urllib3.connectionpool").warning("retrying")
    assert lines(receiver) == []


def test_a_collector_that_is_away_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, "http://127.0.0.1:9")
    began = time.monotonic()
    with exported_logs():
        for number in range(5_000):
            _LOG.warning("line %d", number)
        logged = time.monotonic()
    assert logged - began < 5
    assert time.monotonic() - logged < 5
