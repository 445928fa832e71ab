"""Rules, dashboard and signal table speak of metrics that there are, with labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from a2a_handoff.core.events import Outcome, State
from a2a_handoff.core.spans import TASK_STATES
from a2a_handoff.ports import Late, Notified
from a2a_handoff.telemetry.instruments import INSTRUMENTS, LOSSES, InstrumentRow
from tests.otel.rules import OTEL, name_of, rules

DASHBOARD = OTEL / "grafana/dashboards/handoffs.json"

#: Labels that a scrape adds, and the edge of a bucket.
ADDED = {"job", "instance", "le"}

#: What a label may say, where that is ours to decide.
VALUES = {
    "handoff_state": {state.value for state in State},
    "handoff_engaged": {"true", "false"},
    "handoff_attempt_kind": {"initial", "retry"},
    "a2a_task_state": set(TASK_STATES.values()),
    "error_type": {outcome.value for outcome in Outcome} | {""},
    "handoff_drop_reason": set(LOSSES),
    "handoff_wakeup_result": {"sent", "heard", "dropped", "overrun"},
    "handoff_work_state": {late.value for late in Late},
    "handoff_connection_state": {"used", "idle"},
    "handoff_webhook_result": {result.value for result in Notified},
}

_SUFFIXES = {"histogram": ("_bucket", "_count", "_sum")}
_SELECTOR = re.compile(r"\b((?:handoff|http)_\w+)(\{[^}]*\})")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_BY = re.compile(r"by \(([^)]*)\) \((?:\w+\()*((?:handoff|http)_\w+)")


def exposed() -> dict[str, InstrumentRow]:
    """Every name on ``/metrics`` with its instrument."""
    return {row.prometheus + suffix: row for row in INSTRUMENTS for suffix in _SUFFIXES.get(row.type, ("",))}


def panels() -> list[Any]:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]


def expressions() -> Iterator[tuple[str, str]]:
    """Where an expression stands, and the expression."""
    for rule in rules():
        yield name_of(rule), rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace('job=~"$job"', 'job=~".+"')


EVERY = [pytest.param(expr, id=f"{number}-{where}") for number, (where, expr) in enumerate(expressions())]


def labels_of(row: InstrumentRow) -> set[str]:
    return {attribute.replace(".", "_") for attribute in row.attributes} | ADDED


@pytest.mark.parametrize("expr", EVERY)
def test_an_expression_uses_metrics_and_labels_that_there_are(expr: str) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert set(re.findall(r"\bhandoff:[\w:]+", expr)) <= recorded
    known = exposed()
    plain = re.sub(r"by \([^)]*\)", "", expr)
    assert set(re.findall(r"\b(?:handoff|http)_\w+", re.sub(r"\{[^}]*\}", "", plain))) <= known.keys()
    for metric, matchers in _SELECTOR.findall(plain):
        for label, operator, value in _MATCHER.findall(matchers):
            assert label in labels_of(known[metric]), (metric, label)
            if operator in ("=", "!=") and label in VALUES:
                assert value in VALUES[label], (label, value)
    for groups, metric in _BY.findall(expr):
        assert {group.strip() for group in groups.split(",")} <= labels_of(known[metric])


def test_three_seconds_is_an_edge_of_the_buckets_of_transitions() -> None:
    row = next(row for row in INSTRUMENTS if row.name == "handoff.transition.duration")
    assert 3 in row.buckets


def test_the_signals_in_the_table_are_all_that_there_are() -> None:
    page = (OTEL / "README.md").read_text(encoding="utf-8")
    table = page.partition("## Signals")[2].partition("\n## ")[0]
    metrics = set(re.findall(r"^\| `((?:handoff|http|rpc)_\w+)` \|", table, re.MULTILINE))
    assert metrics == {row.prometheus for row in INSTRUMENTS}
    recorded = set(re.findall(r"^\| `(handoff:[\w:]+)` \|", table, re.MULTILINE))
    assert recorded == {rule["record"] for rule in rules() if "record" in rule}


def test_every_cause_on_the_page_of_alerts_is_one_that_there_is() -> None:
    page = (OTEL.parent / "docs/how-to/alerts.md").read_text(encoding="utf-8")
    causes = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`\w+`[^|]*)\|", page, re.MULTILINE)]
    assert {cause for row in causes for cause in row} <= {outcome.value for outcome in Outcome}
    assert len(causes) > 3
    panels_named = set(re.findall(r"\*([A-Z][^*]+)\*", page)) - {"Handoffs"}
    assert panels_named <= {panel["title"] for panel in panels()}


# --- the dashboard -------------------------------------------------------------------------------


def test_the_panels_have_their_place_and_say_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_panel_reads_from_a_source_that_is_provided() -> None:
    text = (OTEL / "grafana/provisioning/datasources/datasources.yml").read_text(encoding="utf-8")
    sources = {source["uid"] for source in yaml.safe_load(text)["datasources"]}
    dashboard = DASHBOARD.read_text(encoding="utf-8")
    assert set(re.findall(r'"uid": "(?!a2a-handoff)([^"]+)"', dashboard)) <= sources
    assert set(re.findall(r"datasourceUid: (\w+)", text)) <= sources


def test_every_alarm_can_be_seen_on_the_dashboard() -> None:
    shown = " ".join(
        expr for where, expr in expressions() if where not in {name_of(rule) for rule in rules()}
    )
    for rule in rules():
        if "alert" in rule and (used := re.match(r"handoff:\S+", rule["expr"])):
            assert used[0] in shown, rule["alert"]


def test_prometheus_can_read_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool, so nothing was parsed (Debian: apt-get install prometheus)")
    found = [
        {"record": f"panel:{number}", "expr": expr.replace("$job", ".+")}
        for number, (_, expr) in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": found}]}), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
