"""The reference page says what the code does."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from a2a_handoff.config import Settings
from a2a_handoff.core import commands as cmd
from a2a_handoff.core.errors import Code
from a2a_handoff.core.events import Outcome
from a2a_handoff.core.spans import GRPC
from a2a_handoff.ports import Notified
from a2a_handoff.telemetry import NatsReading, Served, Telemetry
from a2a_handoff.telemetry.instruments import FORMULAS, INSTRUMENTS, LOSSES
from a2a_handoff.telemetry.logs import FIELDS
from tests.telemetry.story import T0, Story
from tests.telemetry.tables import PAGE, tables, written


def test_the_tables_of_the_page_are_those_of_the_code():
    assert written(PAGE.read_text()) == PAGE.read_text(), "run python -m tests.telemetry.tables --write"


@pytest.mark.parametrize("outcome", Outcome)
def test_every_error_type_is_named(outcome):
    assert f"`{outcome.value}`" in PAGE.read_text()


@pytest.mark.parametrize("name", [*FIELDS, "handoff_telemetry_dropped_total"])
def test_every_log_field_is_named(name):
    assert f"`{name}`" in PAGE.read_text()


@pytest.mark.parametrize("reason", LOSSES)
def test_every_reason_for_a_loss_is_named(reason):
    assert f"`{reason}`" in tables()["instruments"]


@pytest.mark.parametrize("setting", re.findall(r"`(trace_\w+|log_\w+|grace)\b", PAGE.read_text()))
def test_every_setting_that_the_page_names_exists(setting):
    assert setting in Settings.model_fields or setting == "trace_id"


def busy(telemetry: Telemetry) -> dict[str, set[str]]:
    """The names on /metrics, with the labels each one has, after a bit of everything."""
    story = Story()
    h = story.request("agent-b")
    story.ack(h, score=0.5)
    story.do(h, cmd.Release())
    story.request()
    for change in story.changes:
        telemetry.record(change)
    telemetry.rejected(Code.CYCLE_DETECTED, tenant="default", sender="agent-a")
    telemetry.notified(Notified.TAKEN)
    telemetry.request_span(
        Served(
            started_at=T0, ended_at=T0 + 1, method="GET", route="/x", status=500, outcome="client_disconnect"
        )
    )
    telemetry.request_span(
        Served(
            started_at=T0, ended_at=T0 + 1, method=GRPC, route="a.S/M", status=0, grpc_status="INTERNAL",
            outcome="client_disconnect",
        )
    )  # fmt: skip
    telemetry.nats = lambda: NatsReading(connected=True, hints={"sent": 1}, events=(1, 0.5))
    families = text_string_to_metric_families(telemetry.render_metrics()[0].decode())
    return {s.name: set(s.labels) for f in families for s in f.samples}


def test_metrics_have_the_published_names_and_labels(make):
    shown = busy(make())
    for row in INSTRUMENTS:
        name = f"{row.prometheus}_count" if row.type == "histogram" else row.prometheus
        assert shown[name] <= {attribute.replace(".", "_") for attribute in row.attributes}, name
    published = {row.prometheus for row in INSTRUMENTS}
    bare = {re.sub(r"_(count|sum|bucket|created)$", "", name) for name in shown}
    assert bare - {"target_info"} == published


def test_every_formula_uses_metrics_that_exist_with_labels_that_they_have(make):
    shown = busy(make())
    for row in FORMULAS:
        for name, labels in re.findall(r"(handoff_\w+)(?:\{([^}]*)\})?", row.formula):
            if name not in shown:
                assert re.search(rf'\b{name}="', row.formula), name
                continue
            for label in re.findall(r"(\w+)[!=]", labels):
                assert label in shown[name], (name, label)


def test_the_threshold_of_the_transition_is_an_edge_of_its_buckets():
    (row,) = [row for row in INSTRUMENTS if row.name == "handoff.transition.duration"]
    assert 3 in row.buckets
