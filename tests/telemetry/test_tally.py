"""Adding up, and how it is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from a2a_handoff.core.spans import Attributes
from a2a_handoff.telemetry.instruments import INSTRUMENTS, InstrumentRow, Measurement
from a2a_handoff.telemetry.metrics import Prometheus
from a2a_handoff.telemetry.tally import OVERFLOW, SERIES_MAX, Tally

TIMES = InstrumentRow("x.time", "histogram", "s", ("who", "well"), "A time.", "x_time_seconds", (1, 3, 10))
COUNT = InstrumentRow("x.count", "counter", "{x}", ("who",), "A count.", "x_count_total")
RESOURCE = Resource({"service.name": "x"})


def samples(tally, *, accept=""):
    body, content_type = Prometheus(tally, RESOURCE).render(accept)
    parse = parse_openmetrics if "openmetrics" in content_type else parse_text
    return {
        (s.name, *sorted(s.labels.items())): s for family in parse(body.decode()) for s in family.samples
    }  # fmt: skip


def test_a_value_on_an_edge_is_within_it():
    tally = Tally((TIMES,))
    tally.add(Measurement("x.time", 3, {"who": "a"}))
    found = {s.labels["le"]: s.value for k, s in samples(tally).items() if k[0] == "x_time_seconds_bucket"}
    assert found == {"1.0": 0, "3.0": 1, "10.0": 1, "+Inf": 1}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_a_histogram_counts_every_value_once_and_sums_them(values):
    tally = Tally((TIMES,))
    for value in values:
        tally.add(Measurement("x.time", value, {}))
    found = samples(tally)
    labels = (("well", ""), ("who", ""))
    assert found["x_time_seconds_count", *labels].value == len(values)
    assert found["x_time_seconds_sum", *labels].value == pytest.approx(sum(values))
    below_three = found["x_time_seconds_bucket", ("le", "3.0"), *labels].value
    assert below_three == sum(1 for value in values if value <= 3)


def test_labels_that_are_not_given_are_empty_and_truth_is_a_word():
    tally = Tally((TIMES,))
    tally.add(Measurement("x.time", 1, {"well": True}))
    assert ("x_time_seconds_count", ("well", "true"), ("who", "")) in samples(tally)


def test_time_that_runs_backwards_counts_as_none():
    tally = Tally((TIMES,))
    tally.add(Measurement("x.time", -5, {}))
    assert samples(tally)["x_time_seconds_sum", ("well", ""), ("who", "")].value == 0


def test_more_label_sets_than_the_limit_share_one_series_and_nothing_is_lost():
    tally = Tally((COUNT,))
    for number in range(SERIES_MAX + 500):
        tally.add(Measurement("x.count", 1, {"who": f"agent-{number}"}))
    found = {k: s.value for k, s in samples(tally).items() if k[0] == "x_count_total"}
    assert len(found) == SERIES_MAX + 1
    assert found["x_count_total", ("who", OVERFLOW)] == 500
    assert sum(found.values()) == SERIES_MAX + 500


def test_too_many_agents_are_added_up_by_outcome_so_that_a_success_stays_one():
    row = next(row for row in INSTRUMENTS if row.name == "handoff.duration")
    tally = Tally((row,))
    for number in range(SERIES_MAX + 30):
        agents: Attributes = {"handoff.source.agent.name": "a", "handoff.target.agent.name": f"t-{number}"}
        failed = {"error.type": "timeout"} if number % 3 == 0 else {}
        tally.add(Measurement("handoff.duration", 1, agents | failed))
    over = {
        dict(k[1:])["error_type"]: s.value
        for k, s in samples(tally).items()
        if k[0] == "handoff_duration_seconds_count" and ("handoff_target_agent_name", OVERFLOW) in k
    }
    assert over == {"": 20, "timeout": 10}


def test_exemplars_are_there_for_who_accepts_openmetrics():
    tally = Tally((TIMES,))
    tally.add(Measurement("x.time", 2, {"who": "a"}), ("1" * 32, "2" * 16, 1_750_000_000.0))
    found = samples(tally, accept="application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2")
    exemplar = found["x_time_seconds_bucket", ("le", "3.0"), ("well", ""), ("who", "a")].exemplar
    assert exemplar is not None
    assert exemplar.labels == {"trace_id": "1" * 32, "span_id": "2" * 16}
    assert exemplar.value == 2
    assert all(s.exemplar is None for s in samples(tally).values())


def test_what_is_read_replaces_what_was_read_before():
    gauge = InstrumentRow("x.size", "updowncounter", "{x}", ("who",), "A size.", "x_size")
    tally = Tally((gauge,))
    tally.observe("x.size", [(3, ("a",)), (4, ("b",))])
    tally.observe("x.size", [(1, ("a",))])
    assert {k: s.value for k, s in samples(tally).items() if k[0] == "x_size"} == {
        ("x_size", ("who", "a")): 1
    }


def test_a_label_cannot_break_out_of_its_line():
    tally = Tally((COUNT,))
    tally.add(Measurement("x.count", 1, {"who": 'a"} 1\nevil{x="'}))
    assert ("x_count_total", ("who", 'a"} 1\nevil{x="')) in samples(tally)


@pytest.mark.parametrize("row", INSTRUMENTS, ids=lambda row: row.name)
def test_names_on_metrics_follow_from_the_names_of_the_instruments(row):
    suffix = {"s": "_seconds"}.get(row.unit, "") + ("_total" if row.type == "counter" else "")
    assert row.prometheus == row.name.replace(".", "_") + suffix
