"""A collector that is down: told once, and once when it is back.

Duty: keep what OpenTelemetry's exporters would log for every batch and every retry, and say it once.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

_LOG = logging.getLogger("a2a_handoff.telemetry")
_TALKERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)


class Outage(logging.Filter):
    """Whether a collector takes what it is sent."""

    def __init__(self, begins: str, ends: str) -> None:
        super().__init__()
        self._begins = begins
        self._ends = ends
        self._heard = ""
        self.on = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """Let the exporters say nothing themselves meanwhile."""
        for name in _TALKERS:
            logging.getLogger(name).addFilter(self)
        try:
            yield
        finally:
            for name in _TALKERS:
                logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep what an exporter says, and let it go no further."""
        self._heard = record.getMessage()
        return False

    def note(self, *, ok: bool) -> None:
        """Note whether something arrived; a change is told."""
        if ok and self.on:
            _LOG.info(self._ends)
        elif not ok and not self.on:
            _LOG.warning("%s %s", self._begins, self._heard)
        self.on = not ok
