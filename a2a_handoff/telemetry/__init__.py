"""Spans, metrics and log lines; the only importer of OpenTelemetry.

The rest of the broker commits events and calls ``Telemetry``; it knows no tracer and no meter.
"""

from a2a_handoff.telemetry.instruments import NatsReading, QueueReading, WorkReading
from a2a_handoff.telemetry.log_export import exported_logs
from a2a_handoff.telemetry.logs import configure_logging
from a2a_handoff.telemetry.recorder import SPANS_MARK, Telemetry
from a2a_handoff.telemetry.served import Served, relate

__all__ = [
    "SPANS_MARK",
    "NatsReading",
    "QueueReading",
    "Served",
    "Telemetry",
    "WorkReading",
    "configure_logging",
    "exported_logs",
    "relate",
]
