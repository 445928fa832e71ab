"""The standard variables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from a2a_handoff.telemetry.options import DEFAULTS, Options, read_options


def test_without_variables_nothing_is_exported_and_prometheus_may_scrape():
    assert read_options({}) == DEFAULTS == Options()
    assert DEFAULTS.traces == ""
    assert DEFAULTS.prometheus


@pytest.mark.parametrize(
    ("environ", "traces"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
    ],
)
def test_where_spans_go(environ, traces):
    assert read_options(environ).traces == traces


@pytest.mark.parametrize(
    ("value", "prometheus", "push"),
    [("", True, False), ("prometheus", True, False), ("otlp", False, True), ("none", False, False), ("otlp,prometheus", True, True)],
)  # fmt: skip
def test_how_metrics_leave(value, prometheus, push):
    options = read_options({"OTEL_METRICS_EXPORTER": value})
    assert (options.prometheus, options.push_metrics) == (prometheus, push)


def test_a_disabled_sdk_switches_everything_off():
    options = read_options({"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"})
    assert not options.enabled
    assert options.traces == ""
    assert not options.prometheus


def test_the_queue_takes_the_variables_of_the_batch_processor():
    options = read_options(
        {
            "OTEL_BSP_MAX_QUEUE_SIZE": "100",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "250",
        }
    )
    assert (options.queue, options.batch, options.delay_s) == (100, 100, 0.25)


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_BSP_MAX_QUEUE_SIZE": "many"},
        {"OTEL_BSP_SCHEDULE_DELAY": "-1"},
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_METRICS_EXPORTER": "statsd"},
    ],
)
def test_a_value_that_cannot_be_used_is_warned_of_by_name(environ, caplog):
    ((name, value),) = environ.items()
    read_options(environ)
    assert name in caplog.text
    assert value in caplog.text


def test_grpc_is_told_not_to_be_spoken(caplog):
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert read_options(environ).traces == "otlp"
    assert "http/protobuf" in caplog.text


def test_the_sdk_of_a2a_is_quiet_whoever_imports_it_first():
    code = "import a2a_handoff, os; print(os.environ['OTEL_INSTRUMENTATION_A2A_SDK_ENABLED'])"
    env = {"PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=env, cwd="."
    )
    assert done.stdout.strip() == "false"
