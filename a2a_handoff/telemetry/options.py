"""The standard ``OTEL_*`` variables that the broker reads itself.

Duty: whether spans and metrics are exported, how they are queued, and who they say they come from.
Where to and with which headers, certificates and compression is read by OpenTelemetry's exporters.
Sources: OpenTelemetry environment variable specification; OTLP exporter configuration.
Not here: what is sampled (the setting ``trace_ratio``: a ratio sampler of the SDK would tear chains).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_LOG = logging.getLogger("a2a_handoff.telemetry")

SERVICE_NAME = "a2a-handoff"

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the environment asks for.

    ``traces``: where spans go, empty for nowhere. ``prometheus`` and ``push_metrics``: how metrics leave,
    pushed every ``push_every_s`` seconds. ``queue`` bounds the spans that wait for the collector,
    ``batch`` those sent at once, ``delay_s`` how long a span waits for others. ``logs``: log lines are
    sent too.
    """

    enabled: bool = True
    traces: Literal["otlp", "console", ""] = ""
    prometheus: bool = True
    push_metrics: bool = False
    push_every_s: float = 60.0
    service_name: str = SERVICE_NAME
    queue: int = 20_000
    batch: int = 512
    delay_s: float = 1.0
    logs: bool = False


DEFAULTS = Options()


def read_options(environ: Mapping[str, str]) -> Options:
    """Read the variables. A value that cannot be used is warned of and not obeyed."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Options(enabled=False, prometheus=False)
    traces = _traces(environ)
    metrics = _words(environ.get("OTEL_METRICS_EXPORTER", "")) or {"prometheus"}
    for name in sorted(metrics - {"prometheus", "otlp", "none"}):
        _LOG.warning("OTEL_METRICS_EXPORTER=%s is not supported; use prometheus, otlp or none.", name)
    logs = _words(environ.get("OTEL_LOGS_EXPORTER", ""))
    for name in sorted(logs - {"otlp", "none"}):
        _LOG.warning("OTEL_LOGS_EXPORTER=%s is not supported; use otlp or none.", name)
    queue = _number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", DEFAULTS.queue)
    return Options(
        traces=traces,
        prometheus="prometheus" in metrics,
        push_metrics="otlp" in metrics,
        push_every_s=_number(environ, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        service_name=environ.get("OTEL_SERVICE_NAME", "").strip() or SERVICE_NAME,
        queue=queue,
        batch=min(queue, _number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", DEFAULTS.batch)),
        delay_s=_number(environ, "OTEL_BSP_SCHEDULE_DELAY", round(DEFAULTS.delay_s * 1000)) / 1000,
        logs="otlp" in logs,
    )


def _traces(environ: Mapping[str, str]) -> Literal["otlp", "console", ""]:
    asked = _words(environ.get("OTEL_TRACES_EXPORTER", ""))
    if not asked:
        asked = {"otlp"} if any(environ.get(name, "").strip() for name in _ENDPOINTS) else {"none"}
    if "otlp" in asked:
        protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
        if protocol.strip() != "http/protobuf":
            _LOG.warning("OTLP over %s is not supported; spans are sent as http/protobuf.", protocol)
        return "otlp"
    if "console" in asked:
        return "console"
    for name in sorted(asked - {"none"}):
        _LOG.warning("OTEL_TRACES_EXPORTER=%s is not supported; use otlp, console or none.", name)
    return ""


def _words(value: str) -> set[str]:
    return {word.strip().lower() for word in value.split(",") if word.strip()}


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name, "").strip()
    if not value:
        return default
    if value.isdecimal() and int(value) > 0:
        return int(value)
    _LOG.warning("%s=%s is not a positive number; %d is used.", name, value, default)
    return default
