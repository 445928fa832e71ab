"""Log lines to the collector by OTLP, beside those on stderr, if the environment asks for it.

Duty: ``OTEL_LOGS_EXPORTER=otlp`` (OpenTelemetry environment variable specification) sends each line with its
severity, its trace and span, and the published fields, blotted out as on stderr.
Rules: writing a line never waits; the queue is bounded and what does not fit is dropped; the end takes no
longer than it was given. Lines about the sending itself are not sent: they would make the next ones.
Where to, and with which headers and certificates, is read by OpenTelemetry's exporter.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Generator

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from a2a_handoff import __version__
from a2a_handoff.telemetry.logs import joined, redacted
from a2a_handoff.telemetry.options import read_options

#: Loggers that speak while lines are sent.
_OF_THE_SENDING = ("opentelemetry", "urllib3", "requests")
_STOP_S = 2.0
_SEVERITIES = {
    logging.DEBUG: SeverityNumber.DEBUG,
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
    logging.CRITICAL: SeverityNumber.FATAL,
}


@contextlib.contextmanager
def exported_logs() -> Generator[None]:
    """Every log line of the process goes to the collector too, until the block ends."""
    options = read_options(os.environ)
    if not options.logs:
        yield
        return
    resource = Resource.create({"service.name": options.service_name, "service.version": __version__})
    exporter = OTLPLogExporter()
    processor = BatchLogRecordProcessor(exporter)
    provider = LoggerProvider(resource, shutdown_on_exit=False)
    provider.add_log_record_processor(processor)
    handler = _Exporting(provider)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        # It has no bound of its own: a collector that never answers would hold up the end of the process.
        last = threading.Thread(target=processor.shutdown, name="a2a-handoff-logs-end", daemon=True)
        last.start()
        last.join(_STOP_S)
        if last.is_alive():
            exporter.shutdown()  # ends its trying again


class _Exporting(logging.Handler):
    def __init__(self, provider: LoggerProvider) -> None:
        super().__init__()
        self._provider = provider

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line."""
        if record.name.partition(".")[0] in _OF_THE_SENDING:
            return
        fields = joined(record)
        trace_id, span_id = fields.pop("trace_id", ""), fields.pop("span_id", "")
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception.type"] = record.exc_info[0].__qualname__
            formatted = logging.Formatter().formatException(record.exc_info)
            fields["exception.stacktrace"] = redacted(formatted)
        self._provider.get_logger(record.name, __version__).emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                context=_context(trace_id, span_id),
                severity_text=record.levelname,
                severity_number=_SEVERITIES.get(record.levelno, SeverityNumber.UNSPECIFIED),
                body=redacted(record.getMessage()),
                attributes=fields,
            )
        )


def _context(trace_id: str, span_id: str) -> Context:
    """The span that a line belongs to; none if its ids are not ones."""
    try:
        span = SpanContext(int(trace_id, 16), int(span_id or "0", 16), is_remote=False)
    except ValueError:
        return Context()
    return set_span_in_context(NonRecordingSpan(span), Context())
