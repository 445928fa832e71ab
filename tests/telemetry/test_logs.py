"""Log lines are joined to traces and keep secrets."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, use_span

from a2a_handoff.telemetry import configure_logging
from a2a_handoff.telemetry.logs import JsonFormatter, TextFormatter, redacted


def record(message="hello %s", *args, exc_info=None, **extra):
    made = logging.getLogger("a2a_handoff.x").makeRecord(
        "a2a_handoff.x", logging.WARNING, __file__, 1, message, args or ("you",), exc_info, extra=extra
    )
    made.created = 1_750_000_000.125
    return made


def test_a_line_is_one_json_object_with_the_published_fields():
    line = JsonFormatter().format(record(handoff_id="h1", agent="agent-b", trace_id="1" * 32, tenant="acme"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2025-06-15T15:06:40.125+00:00",
        "level": "warning",
        "logger": "a2a_handoff.x",
        "message": "hello you",
        "trace_id": "1" * 32,
        "handoff_id": "h1",
        "agent": "agent-b",
        "tenant": "acme",
    }


def test_c057_ids_of_the_current_span_are_32_and_16_digits_with_their_zeros():
    with use_span(NonRecordingSpan(SpanContext(0xABCD, 0xBEEF, is_remote=False))):
        line = json.loads(JsonFormatter().format(record()))
    assert (line["trace_id"], line["span_id"]) == ("0" * 28 + "abcd", "0" * 12 + "beef")


def test_what_else_a_caller_attaches_is_not_shown():
    assert "sekrit" not in JsonFormatter().format(record(body="sekrit", headers={"authorization": "sekrit"}))


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer sekrit-sekrit",
        "{'authorization': 'Bearer sekrit'}",
        "sent Bearer 0sekrit",
        "authorization: basic c2Vrcml0OnNla3JpdA==sekrit",
        "got eyJhbGciOiJIUzI1NiJ9.sekrit.sekrit",
        "GET /x?access_token=sekrit&y=1",
        "postgresql://user:sekrit@db/x is down",
        "api_key=sekrit password=sekrit",
    ],
)
def test_credentials_are_blotted_out(text):
    assert "sekrit" not in redacted(text)
    assert "[REDACTED]" in redacted(text)
    assert "sekrit" not in TextFormatter().format(record("%s", text))


def test_ordinary_text_stays():
    text = "The basic idea of bearer agents: token counts, a secret ballot, 12:30@noon"
    assert redacted(text) == text


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_an_exception_is_shown_without_its_secrets(formatter):
    try:
        raise ValueError("no route to postgresql://user:sekrit@db/x")
    except ValueError:
        line = formatter.format(record(exc_info=sys.exc_info()))
    assert "ValueError" in line
    assert "sekrit" not in line


def run(level, style, code):
    script = (
        "import logging\nfrom a2a_handoff.telemetry import configure_logging\n"
        f"configure_logging({level!r}, {style!r})\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_logging_goes_to_stderr_once_and_libraries_are_heard_when_they_warn():
    code = (
        "configure_logging('info', 'json')\n"
        "logging.getLogger('a2a_handoff.x').info('ours')\n"
        "logging.getLogger('a2a_handoff.x').debug('too fine')\n"
        "logging.getLogger('urllib3').info('chatter')\n"
        "logging.getLogger('urllib3').warning('trouble')\n"
    )
    lines = [json.loads(line) for line in run("info", "json", code)]
    assert [line["message"] for line in lines] == ["ours", "trouble"]


def test_at_debug_everything_is_heard():
    lines = run("debug", "text", "logging.getLogger('urllib3').debug('chatter')\n")
    assert any("chatter" in line for line in lines)


def test_an_unknown_level_is_refused():
    with pytest.raises(KeyError):
        configure_logging("loud", "json")
