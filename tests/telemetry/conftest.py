"""Telemetry under test reads no ``OTEL_*`` variable of the machine, and stops with its test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from a2a_handoff.config import Settings
from a2a_handoff.telemetry import Telemetry
from tests.support.otlp_receiver import OtlpReceiver


@pytest.fixture(autouse=True)
def _no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_") and name != "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED":
            monkeypatch.delenv(name)
    # Kept by the middleware for the whole process; put back here so that no test depends on order.
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


Make = Callable[..., Telemetry]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a ``Telemetry``: the variables of the environment, then the arguments of the class."""
    made: list[Telemetry] = []

    def one(env: dict[str, str] | None = None, *, settings: Settings | None = None, **kwargs) -> Telemetry:
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        kwargs.setdefault("known_agent", lambda _tenant, _agent: True)
        telemetry = Telemetry(settings or Settings(), **kwargs)
        made.append(telemetry)
        return telemetry

    yield one
    for telemetry in made:
        telemetry.shutdown(1.0)


@pytest.fixture
def exporting(receiver: OtlpReceiver, make: Make) -> Telemetry:
    """A ``Telemetry`` that exports to ``receiver``."""
    return make({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "20"})
