"""Routing rules: which agent, or what kind of agent, a handoff goes to by its content.

Duty: read rules from TOML text, refuse wrong ones with their place, and say which of them match.
Rules: they are ordered data, the first match wins. ``when`` is CEL (github.com/google/cel-spec), so
a rule terminates, touches nothing and cannot run code. A name or type that is wrong is found at load;
a key that a context lacks makes the rule not match. A rule that does not match because of such an
error says so in its ``Verdict``.
Not here: whether the target is there (``matching``), which file the text comes from (``app``).
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import msgspec
from cel_expr_python import cel  # pyright: ignore[reportMissingTypeStubs]  # it has cel.pyi, but no py.typed
from msgspec import structs

from a2a_handoff.core.context import HandoffContext, Requirements, Signals

RULES_MAX = 200
WHEN_MAX = 4_096

#: The rules that come with the broker. A score that was not measured counts as 1.0 for sentiment and
#: as 0 for the others, so that no rule fires on what nobody said.
SHIPPED = """\
default = "default_agent"

[[rule]]
name = "billing"
when = "intent == 'billing'"
target = "billing_agent"

[[rule]]
name = "unhappy"
when = "sentiment < 0.3"
target = "escalation_agent"

[[rule]]
name = "complex"
when = "complexity > 8"
target = "senior_agent"

[[rule]]
name = "arabic"
when = "language == 'ar'"
target = "arabic_specialist"
"""

_TEXT: tuple[str, ...] = (
    "intent", "language", "user_intent", "handoff_reason", "source_agent", "workspace",
    "skill", "domain",
)  # fmt: skip
_NUMBER: tuple[str, ...] = (
    "sentiment", "sentiment_score", "complexity", "complexity_score", "risk", "risk_level",
    "completion", "completion_estimate", "hop_count",
)  # fmt: skip
_LIST: tuple[str, ...] = ("capabilities", "tags")
_MAP: tuple[str, ...] = ("key_facts", "user_preferences", "task_progress")

#: Every name that ``when`` may use.
NAMES: tuple[str, ...] = (*_TEXT, *_NUMBER, *_LIST, *_MAP)

#: Names whose values are short and can be compared: what a condition says of them may be remembered.
_SHORT = frozenset({*_TEXT, *_NUMBER}) - {"user_intent"}
_REMEMBERED_MAX = 1_024

# The hook is for time: without it a number such as 1e308 takes a thousand times longer.
_decode = msgspec.json.Decoder(float_hook=float).decode
_USES_MAPS = re.compile(rf"\b(?:{'|'.join(_MAP)})\b")
_PLACE = re.compile(r"<input>:(\d+):(\d+): (.*?)(?: \(in container ''\))?\n")
_CEL_PREFIX = re.compile(r"^[A-Z_]+: (?:ERROR: )?")


class RulesError(ValueError):
    """The rules cannot be used. ``faults`` has one line for each fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("routing rules: " + "; ".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Send to ``target``, or to whom ``requirements`` match, when ``when`` is true."""

    name: str
    when: str
    target: str = ""
    requirements: Requirements | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule says of one context. ``problem``: why its condition has no value, if so."""

    rule: Rule
    matched: bool
    problem: str = ""


class _Condition:
    """The condition of one rule.

    What it said of names and numbers is remembered, as far as it looks at nothing else: to ask CEL takes
    thirty times as long.
    """

    __slots__ = ("_expression", "_names", "_said", "rule")

    def __init__(self, rule: Rule) -> None:
        """Raises ``ValueError`` if ``when`` is no condition."""
        self.rule = rule
        self._expression = _compile(rule.when)
        self._names = tuple(name for name in NAMES if re.search(rf"\b{name}\b", rule.when))
        self._said: dict[tuple[object, ...], Verdict] | None = {} if _SHORT.issuperset(self._names) else None

    def verdict(self, values: Mapping[str, Any]) -> Verdict:
        """What it says of ``values``."""
        said = self._said
        if said is None:
            return self._ask(values)
        key = tuple([values[name] for name in self._names])
        verdict = said.get(key)
        if verdict is None:
            if len(said) >= _REMEMBERED_MAX:
                said.clear()
            verdict = said[key] = self._ask(values)
        return verdict

    def _ask(self, values: Mapping[str, Any]) -> Verdict:
        result = self._expression.eval(_environment().Activation(values))
        value = result.value()
        # An error is a value like any other here: only the literal True is a match.
        problem = _reason(str(value)) if result.type() == cel.Type.ERROR else ""
        return Verdict(rule=self.rule, matched=value is True, problem=problem)


class RoutingRules:
    """Ordered rules, and the agent for what no rule matches (empty: nobody)."""

    def __init__(self, rules: tuple[Rule, ...] = (), default: str = "") -> None:
        """Raises ``RulesError``."""
        faults: list[str] = []
        conditions: list[_Condition] = []
        for number, rule in enumerate(rules, 1):
            try:
                conditions.append(_Condition(rule))
            except ValueError as error:
                faults.append(f"rule {number} ({rule.name}): {error}")
        if faults:
            raise RulesError(tuple(faults))
        self.default = default
        self._conditions = tuple(conditions)
        self._uses_maps = any(_USES_MAPS.search(rule.when) for rule in rules)

    @classmethod
    def load(cls, text: str) -> RoutingRules:
        """Rules from TOML: ``default = "…"`` and ``[[rule]]`` tables.

        A table has ``when``, one of ``target`` and ``requirements``, and may have a ``name``. Raises
        ``RulesError`` with every fault found.
        """
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RulesError((f"not TOML: {error}",)) from None
        faults: list[str] = []
        rules = _rules_of(document, faults)
        default = document.get("default", "")
        if not isinstance(default, str):
            faults.append("default: must be the id of an agent")
        faults.extend(
            f"{key}: unknown; known are default and rule"
            for key in sorted(document.keys() - {"default", "rule"})
        )
        if faults:
            raise RulesError(tuple(faults))
        return cls(rules, default)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in their order."""
        return tuple(condition.rule for condition in self._conditions)

    def matching(self, values: Mapping[str, Any]) -> Iterator[Rule]:
        """The rules that match ``values`` (see ``values_of``), in order."""
        return (verdict.rule for verdict in self.verdicts(values) if verdict.matched)

    def verdicts(self, values: Mapping[str, Any]) -> Iterator[Verdict]:
        """What every rule says of ``values``, in order; a rule is tried only when asked for."""
        return (condition.verdict(values) for condition in self._conditions)

    def values_of(
        self,
        signals: Signals,
        requirements: Requirements,
        context: HandoffContext | None = None,
        *,
        workspace: str = "",
    ) -> dict[str, Any]:
        """What the names in ``when`` stand for. JSON objects are read only if a rule uses them."""
        sentiment = 1.0 if signals.sentiment_score is None else signals.sentiment_score
        complexity = signals.complexity_score or 0.0
        risk = signals.risk_level or 0.0
        completion = signals.completion_estimate or 0.0
        values: dict[str, Any] = {
            "intent": signals.intent,
            "language": signals.language,
            "user_intent": context.user_intent if context else "",
            "handoff_reason": context.handoff_reason.value if context else "",
            "source_agent": context.source_agent if context else "",
            "workspace": workspace,
            "skill": requirements.skill,
            "domain": requirements.domain,
            "sentiment": sentiment,
            "sentiment_score": sentiment,
            "complexity": complexity,
            "complexity_score": complexity,
            "risk": risk,
            "risk_level": risk,
            "completion": completion,
            "completion_estimate": completion,
            "hop_count": context.hop_count if context else 0,
            "capabilities": list(requirements.capabilities),
            "tags": list(requirements.tags),
        }
        for name in _MAP:
            read = context is not None and self._uses_maps
            values[name] = _decode(cast("bytes", getattr(context, name))) if read else {}
        return values


@lru_cache(maxsize=1)
def shipped() -> RoutingRules:
    """The rules that come with the broker."""
    return RoutingRules.load(SHIPPED)


# --- CEL -----------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _environment(integers: tuple[str, ...] | None = None) -> cel.Env:
    """The names and their types: numbers are doubles but for ``integers``; ``None``: of either kind."""
    variables = dict.fromkeys(_TEXT, cel.Type.STRING)
    variables |= dict.fromkeys(_NUMBER, cel.Type.DYN if integers is None else cel.Type.DOUBLE)
    variables |= dict.fromkeys(integers or (), cel.Type.INT)
    variables |= dict.fromkeys(_LIST, cel.Type.List(cel.Type.STRING))
    variables |= dict.fromkeys(_MAP, cel.Type.Map(cel.Type.STRING, cel.Type.DYN))
    return cel.NewEnv(variables=variables)


def _compile(when: str) -> cel.Expression:
    """Check the types, then compile for numbers of either kind. Raises ``ValueError``.

    CEL's checker does not compare a double with the integer 8, its runtime does. People write both 8
    and 8.0, so each number is checked as a double and as an integer; one of them must do.
    """
    if len(when) > WHEN_MAX:
        raise ValueError(f"when: is longer than {WHEN_MAX} characters")
    used = [name for name in _NUMBER if re.search(rf"\b{name}\b", when)]
    first = ""
    for count in range(len(used) + 1):
        for integers in itertools.combinations(used, count):
            try:
                checked = _environment(integers).compile(when)
            except RuntimeError as error:
                first = first or _reason(str(error))
                continue
            if checked.return_type() != cel.Type.BOOL:
                raise ValueError(f"when: gives {checked.return_type().name()}, must give BOOL")
            return _environment().compile(when)
    raise ValueError(f"when: {first}")


def _reason(text: str) -> str:
    """The library's error as one line: place, fault and, for an unknown name, the known ones."""
    place = _PLACE.search(text)
    if place is None:
        return " ".join(_CEL_PREFIX.sub("", text).split())
    line, column, fault = place.groups()
    hint = ""
    if fault.startswith("undeclared"):
        hint = f"; known names are {', '.join(NAMES)}"
    elif "(double, int)" in fault or "(int, double)" in fault:
        hint = "; write 8.0 for 8"
    return f"line {line}, column {column}: {fault}{hint}"


# --- TOML ----------------------------------------------------------------------------------------

_RULE_KEYS = frozenset({"name", "when", "target", "requirements"})
_REQUIREMENTS = {field.name: field.type for field in structs.fields(Requirements)}


def _rules_of(document: Mapping[str, Any], faults: list[str]) -> tuple[Rule, ...]:
    tables = document.get("rule", [])
    if not isinstance(tables, list) or len(cast("list[Any]", tables)) > RULES_MAX:
        faults.append(f"rule: must be [[rule]] tables, at most {RULES_MAX}")
        return ()
    rules: list[Rule] = []
    for number, table in enumerate(cast("list[Any]", tables), 1):
        where = f"rule {number}"
        if not isinstance(table, dict):
            faults.append(f"{where}: must be a table")
            continue
        table = cast("dict[str, Any]", table)
        name = table.get("name", where)
        if isinstance(name, str) and name.strip() and name != where:
            where = f"{where} ({name})"
        before = len(faults)
        faults.extend(
            f"{where}: {key} is unknown; known are {', '.join(sorted(_RULE_KEYS))}"
            for key in sorted(table.keys() - _RULE_KEYS)
        )
        faults.extend(
            f"{where}: {key} must be text, not empty"
            for key in ("name", "when", "target")
            if (key in table or key == "when")
            and not (isinstance(table.get(key), str) and table[key].strip())
        )
        if ("target" in table) == ("requirements" in table):
            faults.append(f"{where}: needs one of target and requirements")
        requirements = (
            _requirements_of(table["requirements"], where, faults) if "requirements" in table else None
        )
        if len(faults) == before:
            rules.append(
                Rule(name=name, when=table["when"], target=table.get("target", ""), requirements=requirements)
            )
    names = [rule.name for rule in rules]
    faults.extend(
        f"the name {name} is used twice" for name in sorted({n for n in names if names.count(n) > 1})
    )
    return tuple(rules)


def _requirements_of(table: Any, where: str, faults: list[str]) -> Requirements | None:
    if not isinstance(table, dict) or not table:
        faults.append(f"{where}: requirements must be a table, not empty")
        return None
    values: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", table).items():
        if key not in _REQUIREMENTS:
            faults.append(
                f"{where}: requirements.{key} is unknown; known are {', '.join(sorted(_REQUIREMENTS))}"
            )
        elif _REQUIREMENTS[key] is str:
            if not isinstance(value, str) or not value.strip():
                faults.append(f"{where}: requirements.{key} must be text, not empty")
            values[key] = value
        else:
            items = cast("list[Any]", value) if isinstance(value, list) else []
            if not items or not all(isinstance(item, str) and item.strip() for item in items):
                faults.append(f"{where}: requirements.{key} must be a list of texts, not empty")
            values[key] = tuple(items)
    return Requirements(**values)
