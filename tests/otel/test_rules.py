"""The rules call when they should and only then, and a change of one of them is noticed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from a2a_handoff.telemetry.instruments import FORMULAS
from tests.otel.rules import OTEL, Rule, concerned, mutants, name_of, rules

ALERTS = [rule for rule in rules() if "alert" in rule]

#: Which alert watches which of the published formulas, and which rule computes it.
WATCHED = {
    "Success rate": ("HandoffSuccessRateLow", "handoff:success:ratio_rate10m"),
    "Context loss score": ("HandoffContextLoss", "handoff:context_score:mean10m"),
    "Transition latency": ("HandoffTransitionSlow", "handoff:transition_seconds:p95_10m"),
    "Retry frequency": ("HandoffRetriesHigh", "handoff:retry:ratio_rate10m"),
    "Task completion after handoff": ("HandoffTaskCompletionLow", "handoff:task_completion:ratio_rate1h"),
}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool, so the rules were not tried (Debian: apt-get install prometheus)")
    return found


def run(promtool: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    # A database in memory for each test of promtool: it is thrown away, and a disk would make it slow.
    folder = {"TMPDIR": "/dev/shm"} if Path("/dev/shm").is_dir() else {}
    return subprocess.run(
        [promtool, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | folder | {"GOMAXPROCS": "1"},
    )


def test_prometheus_takes_the_configuration_and_the_rules(promtool: str) -> None:
    for args in (("check", "rules", OTEL / "rules.yml"), ("check", "config", OTEL / "prometheus.yml")):
        done = run(promtool, *args)
        assert done.returncode == 0, done.stdout + done.stderr


def test_bad_traffic_calls_good_little_and_no_traffic_do_not(promtool: str) -> None:
    done = run(promtool, "test", "rules", OTEL / "rules_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", rules(), ids=name_of)
def test_a_changed_rule_is_noticed(rule: Rule, promtool: str, tmp_path: Path) -> None:
    needed, tests = concerned(rule)
    for number, test in enumerate(tests):
        (tmp_path / f"test-{number}.yml").write_text(yaml.safe_dump(test), encoding="utf-8")

    def is_noticed(changed: Rule) -> bool:
        chosen = [changed if other == rule else other for other in needed]
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            groups = {"groups": [{"name": "a2a-handoff", "rules": chosen}]}
            (Path(folder) / "rules.yml").write_text(yaml.safe_dump(groups), encoding="utf-8")
            for file in sorted(tmp_path.glob("test-*.yml")):  # most changes fail in the first
                tried = Path(shutil.copy(file, folder))
                if run(promtool, "test", "rules", tried).returncode != 0:
                    return True
        return False

    assert not is_noticed(rule), "the rule itself has to pass"
    changes = list(mutants(rule))
    with ThreadPoolExecutor(os.cpu_count()) as several:
        noticed = list(several.map(is_noticed, (changed for _, changed in changes)))
    assert [what for (what, _), seen in zip(changes, noticed, strict=True) if not seen] == []


def test_every_alert_is_tried_both_ways() -> None:
    tests = yaml.safe_load((OTEL / "rules_test.yml").read_text(encoding="utf-8"))["tests"]
    tried = [case for test in tests for case in test.get("alert_rule_test", ())]
    for alert in ALERTS:
        expected = [bool(case["exp_alerts"]) for case in tried if case["alertname"] == name_of(alert)]
        assert {True, False} <= set(expected), name_of(alert)


# --- what is published ---------------------------------------------------------------------------


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_the_rules_compute_the_published_formulas_for_each_job(formula: tuple[str, str, str, str]) -> None:
    name, published = formula[:2]
    recorded = next(rule["expr"] for rule in rules() if rule.get("record") == WATCHED[name][1])
    assert plain(recorded) == plain(published)


def plain(expr: str) -> str:
    """An expression without its jobs and blanks. A missing numerator is 0, however that is written."""
    expr = re.sub(r"or\s+0 \* sum by \(job\) \(rate\(\w+\[\w+\]\)\)", "or vector(0)", expr)
    expr = expr.replace("by (job, le)", "by (le)").replace(" by (job)", "")
    return re.sub(r"\s", "", expr)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_the_thresholds_are_the_published_ones(formula: tuple[str, str, str, str]) -> None:
    alert, record = WATCHED[formula[0]]
    expr = next(rule["expr"] for rule in ALERTS if name_of(rule) == alert)
    found = re.match(rf"{record} ([<>]) ([\d.]+) and on \(job\) \S+ >= 20$", expr)
    assert found, expr
    sign, number, unit = formula[2].partition(" ")[0], *formula[2].partition(" ")[2].partition(" ")[::2]
    assert (found[1], float(found[2])) == (sign, float(number) / (100 if unit == "%" else 1))


def test_the_table_of_alerts_is_that_of_the_rules() -> None:
    page = (OTEL / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(Handoff\w+)` \| `([^`]+)` \| (\d+ min) \| (\w+) \|", page, re.MULTILINE)
    assert rows == [
        (
            alert["alert"],
            alert["expr"].partition(" and on ")[0],
            alert["for"].replace("m", " min"),
            alert["labels"]["severity"],
        )
        for alert in ALERTS
    ]


def test_every_alert_leads_to_what_to_do() -> None:
    for alert in ALERTS:
        page, _, section = alert["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (OTEL.parent / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert section in {heading.lower() for heading in headings}, section
