"""How a log line looks.

Duty: one JSON object per line (or plain text for a terminal), joined to traces by trace and handoff ids.
Rules: of what callers attach with ``extra`` only the published fields are shown; credentials in the
text of a message or an exception are blotted out.
Not here: which events are logged, lines that go to a collector (``log_export``).
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Literal

from opentelemetry import trace

#: Fields that a call may add with ``extra={…}``, in the order in which they are shown.
FIELDS = ("trace_id", "span_id", "handoff_id", "correlation_id", "agent", "tenant")

_SECRETS = (
    (re.compile(r"(?i)\b(authorization\W{1,4})\w+\s+[^\s,'\"]+"), r"\1[REDACTED]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*\d|\S{20})[\w.~+/=-]{6,}"), r"\1 [REDACTED]"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), "[REDACTED]"),
    (re.compile(r"(?i)\b(\w*token|api[_-]?key|secret|password|signature)=[^\s&\"']+"), r"\1=[REDACTED]"),
    (re.compile(r"(\w+://)[^\s/@]+:[^\s/@]+@"), r"\1[REDACTED]@"),
)  # fmt: skip


def redacted(text: str) -> str:
    """The text without bearer tokens, JWTs, credentials in URLs and ``password=…`` pairs."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def joined(record: logging.LogRecord) -> dict[str, str]:
    """The published fields of a record; ids of the current span if it names none."""
    fields = {name: str(value) for name in FIELDS if (value := getattr(record, name, None))}
    if "trace_id" not in fields:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            fields = {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}", **fields}
    return fields


class JsonFormatter(logging.Formatter):
    """``{"time", "level", "logger", "message", trace_id, …, "exception"}`` on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            **joined(record),
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """The same for human eyes."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback of an exception after it."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        tail = "".join(f" {name}={value}" for name, value in joined(record).items())
        line = f"{at} {record.levelname:<7} {record.name}: {redacted(record.getMessage())}{tail}"
        if record.exc_info:
            line += "\n" + redacted(self.formatException(record.exc_info))
        return line


def configure_logging(level: str, style: Literal["text", "json"]) -> None:
    """Send every log line of the process to stderr in one style, and nothing twice.

    Libraries below ``warning`` are heard only at level ``debug``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    wanted = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(wanted if wanted <= logging.DEBUG else max(wanted, logging.WARNING))
    logging.getLogger("a2a_handoff").setLevel(wanted)
    logging.captureWarnings(capture=True)
