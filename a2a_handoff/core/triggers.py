"""Whether a handoff is worth its cost.

Duty: advice to the sender of a task, from what it measured, in a fixed order:

1. a required capability is missing: ``capability_boundary``
2. risk over 7, complexity over 8 or sentiment under 0.3: ``escalation``
3. as many tasks in flight as the agent may have: ``load_balancing``
4. the agent says it can do the task to 80 % or more: no handoff
5. it says it cannot: ``specialization``
6. it says nothing: no trigger

Rules: the thresholds are strict; what was not measured (absent, or not a number) triggers nothing.
Not here: finding the target (``matching``), refusing what is not needed (``intake``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from a2a_handoff.core.context import Reason, Requirements, Signals

RISK_OVER = 7.0
COMPLEXITY_OVER = 8.0
SENTIMENT_UNDER = 0.3
COMPLETION_ENOUGH = 0.8

#: ``Advice.reason`` if the sender said itself that it can finish the task.
NOT_NEEDED = "handoff_not_needed"


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """``reason`` is a ``Reason`` if ``handoff`` is true, else ``handoff_not_needed`` or empty.

    ``detail`` says what decided, in a few words fit to be shown.
    """

    handoff: bool
    reason: str = ""
    detail: str = "no trigger holds"

    @property
    def not_needed(self) -> bool:
        """The sender said itself that it can finish the task."""
        return self.reason == NOT_NEEDED


def should_handoff(
    *,
    requirements: Requirements | None = None,
    signals: Signals | None = None,
    capabilities: Collection[str] = (),
    in_flight: int = 0,
    max_concurrency: int | None = None,
) -> Advice:
    """Advise an agent that has ``capabilities`` on a task with ``requirements``.

    ``max_concurrency`` ``None`` means no limit. The first rule that holds decides.
    """
    signals = signals or Signals()
    required = requirements.capabilities if requirements else ()
    if missing := [name for name in required if name not in capabilities]:
        return _yes(Reason.CAPABILITY_BOUNDARY, f"missing: {', '.join(missing)}")
    for name, value, over in (
        ("risk_level", signals.risk_level, RISK_OVER),
        ("complexity_score", signals.complexity_score, COMPLEXITY_OVER),
    ):
        if value is not None and value > over:
            return _yes(Reason.ESCALATION, f"{name} {value:g} is over {over:g}")
    sentiment = signals.sentiment_score
    if sentiment is not None and sentiment < SENTIMENT_UNDER:
        return _yes(Reason.ESCALATION, f"sentiment_score {sentiment:g} is under {SENTIMENT_UNDER:g}")
    if max_concurrency is not None and in_flight >= max_concurrency:
        return _yes(Reason.LOAD_BALANCING, f"{in_flight} in flight, {max_concurrency} allowed")
    completion = signals.completion_estimate
    if completion is None or math.isnan(completion):
        return Advice(handoff=False)
    if completion >= COMPLETION_ENOUGH:
        return Advice(
            handoff=False,
            reason=NOT_NEEDED,
            detail=f"completion_estimate {completion:g} is at least {COMPLETION_ENOUGH:g}",
        )
    return _yes(Reason.SPECIALIZATION, f"completion_estimate {completion:g} is under {COMPLETION_ENOUGH:g}")


def advise_task(task: Mapping[str, Any], agent_caps: Collection[str]) -> tuple[bool, Reason | None]:
    """The same advice for a task as a plain mapping, as agents that keep dicts ask for it.

    Reads ``required_capabilities`` and the signals by their names; a signal that is not a number was
    not measured.
    """
    advice = should_handoff(
        requirements=Requirements(capabilities=tuple(task.get("required_capabilities") or ())),
        capabilities=agent_caps,
        signals=Signals(
            risk_level=_number(task.get("risk_level")),
            complexity_score=_number(task.get("complexity_score")),
            sentiment_score=_number(task.get("sentiment_score")),
            completion_estimate=_number(task.get("completion_estimate")),
        ),
    )
    return advice.handoff, Reason(advice.reason) if advice.handoff else None


def _yes(reason: Reason, detail: str) -> Advice:
    return Advice(handoff=True, reason=reason, detail=detail)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
