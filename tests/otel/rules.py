"""The rules of ``otel/``, their names, and what they would be if somebody changed them by mistake.

Duty: read ``rules.yml``; make the mutants of a rule; cut rules and tests down to those that concern it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

OTEL = Path(__file__).parents[2] / "otel"

Rule = dict[str, Any]

_OPPOSITE = {"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}
_WINDOWS = {"10m": ("5m", "20m"), "1h": ("30m", "2h")}
_COMPARISONS = {"<": ("<=", ">"), ">": (">=", "<"), ">=": (">", "<=")}
_ARITHMETIC = {"+": "-", "-": "+", "/": "*"}

#: ``0 * …`` is 0 whatever stands behind it: only its being there can be tested.
_ZERO = re.compile(r"\s+or\s+0 \* sum by \(job\) \(rate\(\w+\[\w+\]\)\)")
_GUARD = re.compile(r" and on \(job\) \S+ >= 20")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_NUMBER = re.compile(r"(?<![\w.:\[\"])\d+(?:\.\d+)?(?![\w.\]\":])")
_METRIC = re.compile(r"\b(?:handoff[_:]\w[\w:]*)\b(?!=|!)")


def rules() -> list[Rule]:
    """Every rule, in its order."""
    document = yaml.safe_load((OTEL / "rules.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def name_of(rule: Rule) -> str:
    return rule.get("alert") or rule["record"]


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """What was changed, and the rule as it is then."""
    for what, expr in _expressions(rule["expr"]):
        yield what, rule | {"expr": expr}
    if "alert" in rule:
        minutes = int(rule["for"].removesuffix("m"))
        yield "at once", {key: value for key, value in rule.items() if key != "for"}
        yield "sooner", rule | {"for": f"{minutes // 2}m"}
        yield "later", rule | {"for": f"{minutes * 2}m"}
        yield "another severity", rule | {"labels": {"severity": "info"}}


def _expressions(expr: str) -> Iterator[tuple[str, str]]:
    for part in (_ZERO, _GUARD):
        for match in part.finditer(expr):
            yield f"without {' '.join(match[0].split())}", _replaced(expr, match.span(), "")
    for match in _ZERO.finditer(expr):
        yield "1 * for 0 *", _replaced(expr, match.span(), match[0].replace("0 *", "1 *", 1))
    apart = [match.span() for part in (_ZERO, _MATCHERS) for match in part.finditer(expr)]
    for span, what in _changes(expr):
        if not any(start <= span[0] < end for start, end in apart):
            yield f"{expr[slice(*span)].strip()} -> {what.strip()} at {span[0]}", _replaced(expr, span, what)
    for match in _MATCHERS.finditer(expr):
        for what in _other_matchers(match[1]):
            yield f"{match[0]} -> {what}", _replaced(expr, match.span(), what)


def _changes(expr: str) -> Iterator[tuple[tuple[int, int], str]]:
    """A place in the expression, and what may stand there instead."""
    for match in re.finditer(r"(?<= )(<=|>=|<|>|\+|-|/)(?= )", expr):
        for other in (*_COMPARISONS.get(match[0], ()), *_ARITHMETIC.get(match[0], ())):
            yield match.span(), other
    for match in _NUMBER.finditer(expr):
        for factor in (0.95, 1.05):
            yield match.span(), f"{float(match[0]) * factor:g}"
    for match in re.finditer(r"\[(\w+)\]", expr):
        for other in _WINDOWS[match[1]]:
            yield match.span(1), other
    for match in re.finditer(r"\bsum\b", expr):
        yield match.span(), "max"
    for match in re.finditer(r"by \(job, ", expr):
        yield match.span(), "by ("
    for match in re.finditer(r" by \(job\)", expr):
        yield match.span(), " "
    for match in re.finditer(r"on \(job\)", expr):
        yield match.span(), "on ()"
    for match in _METRIC.finditer(expr):
        yield match.span(), "no_such_metric"


def _other_matchers(matchers: str) -> Iterator[str]:
    found = _MATCHER.findall(matchers)
    for number, (label, operator, value) in enumerate(found):
        others = [f'{label}{_OPPOSITE[operator]}"{value}"', f'{label}{operator}"something else"', ""]
        if operator == "=~":
            others += [f'{label}="{plain}"' for plain in ("3", "3.0")]
        for other in others:
            rest = [f'{a}{b}"{c}"' for a, b, c in (*found[:number], *found[number + 1 :])]
            yield "{" + ",".join(filter(None, (other, *rest))) + "}"


def _replaced(text: str, span: tuple[int, int], other: str) -> str:
    return text[: span[0]] + other + text[span[1] :]


def concerned(rule: Rule) -> tuple[list[Rule], list[dict[str, Any]]]:
    """The rules that make and use what ``rule`` makes, and the tests of these, one for each file."""
    every = {name_of(other): other for other in rules()}
    uses = {name: _names(other["expr"]) & every.keys() for name, other in every.items()}
    used_by = {name: {user for user in uses if name in uses[user]} for name in every}
    above = _reach(name_of(rule), used_by)
    needed = {below for name in above for below in _reach(name, uses)}
    used = {name for needs in needed for name in _names(every[needs]["expr"])}
    document = yaml.safe_load((OTEL / "rules_test.yml").read_text(encoding="utf-8"))
    tests: list[dict[str, Any]] = []
    for test in document["tests"]:
        values = [t for t in test.get("promql_expr_test", ()) if _names(t["expr"]) & above]
        alerts = [t for t in test.get("alert_rule_test", ()) if t["alertname"] in above]
        if values or alerts:
            series = [s for s in test["input_series"] if _names(s["series"]) & used]
            cut = {"input_series": series, "promql_expr_test": values, "alert_rule_test": alerts}
            tests.append(document | {"tests": [test | cut]})
    return [other for name, other in every.items() if name in needed], tests


def _names(expr: str) -> set[str]:
    return set(_METRIC.findall(expr))


def _reach(start: str, edges: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    queue = [start]
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue.extend(edges[name])
    return seen
