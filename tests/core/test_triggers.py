"""Whether to hand off: the order of the rules, their strict thresholds, and odd measurements."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from a2a_handoff.core.context import Reason, Requirements, Signals
from a2a_handoff.core.triggers import NOT_NEEDED, advise_task, should_handoff

EVERYTHING: dict[str, Any] = {
    "requirements": Requirements(capabilities=("canBrowse", "canEditFiles")),
    "capabilities": ["canEditFiles"],
    "signals": Signals(risk_level=9, complexity_score=9, sentiment_score=0.1, completion_estimate=0.9),
    "in_flight": 3,
    "max_concurrency": 3,
}


def test_a_missing_capability_comes_before_everything_else() -> None:
    advice = should_handoff(**EVERYTHING)
    assert (advice.handoff, advice.reason) == (True, Reason.CAPABILITY_BOUNDARY)
    assert advice.detail == "missing: canBrowse"


def test_escalation_comes_before_load() -> None:
    measured = {name: value for name, value in EVERYTHING.items() if name != "requirements"}
    advice = should_handoff(**measured)
    assert (advice.handoff, advice.reason) == (True, Reason.ESCALATION)


def test_load_comes_before_the_estimate() -> None:
    advice = should_handoff(signals=Signals(completion_estimate=0.9), in_flight=3, max_concurrency=3)
    assert (advice.handoff, advice.reason) == (True, Reason.LOAD_BALANCING)


def test_an_agent_that_can_finish_the_task_is_advised_to() -> None:
    advice = should_handoff(signals=Signals(completion_estimate=0.8), in_flight=2, max_concurrency=3)
    assert (advice.handoff, advice.reason, advice.not_needed) == (False, NOT_NEEDED, True)


def test_an_agent_that_says_it_cannot_is_advised_to_find_a_specialist() -> None:
    advice = should_handoff(signals=Signals(completion_estimate=0.79))
    assert (advice.handoff, advice.reason) == (True, Reason.SPECIALIZATION)


def test_without_any_measurement_no_trigger_holds() -> None:
    advice = should_handoff()
    assert (advice.handoff, advice.reason, advice.not_needed) == (False, "", False)


@pytest.mark.parametrize(
    ("name", "at", "beyond"),
    [("risk_level", 7, 7.01), ("complexity_score", 8, 8.01), ("sentiment_score", 0.3, 0.29)],
)
def test_the_thresholds_of_escalation_are_strict(name: str, at: float, beyond: float) -> None:
    assert not should_handoff(signals=replace(Signals(), **{name: at})).handoff
    advice = should_handoff(signals=replace(Signals(), **{name: beyond}))
    assert advice.reason is Reason.ESCALATION
    assert name in advice.detail


def test_what_is_not_a_number_was_not_measured() -> None:
    signals = Signals(
        risk_level=math.nan, complexity_score=math.nan, sentiment_score=math.nan, completion_estimate=math.nan
    )
    assert should_handoff(signals=signals) == should_handoff()


def test_infinite_risk_is_over_the_threshold() -> None:
    assert should_handoff(signals=Signals(risk_level=math.inf)).reason is Reason.ESCALATION


def test_no_limit_means_never_too_many() -> None:
    assert not should_handoff(in_flight=10_000).handoff
    assert should_handoff(in_flight=0, max_concurrency=0).handoff


@pytest.mark.parametrize(
    ("task", "capabilities", "expected"),
    [
        ({"required_capabilities": ["sql"]}, [], (True, Reason.CAPABILITY_BOUNDARY)),
        ({"required_capabilities": ["sql"], "risk_level": 8}, ["sql"], (True, Reason.ESCALATION)),
        ({"risk_level": 7}, [], (False, None)),
        ({"complexity_score": 8.5}, [], (True, Reason.ESCALATION)),
        ({"sentiment_score": 0}, [], (True, Reason.ESCALATION)),
        ({"completion_estimate": 0.95}, [], (False, None)),
        ({"required_capabilities": None, "risk_level": None}, [], (False, None)),
        ({"risk_level": "9", "sentiment_score": False}, [], (False, None)),
        ({}, ["sql"], (False, None)),
    ],
)
def test_a_plain_mapping_gets_the_same_advice(
    task: dict[str, Any], capabilities: list[str], expected: tuple[bool, Reason | None]
) -> None:
    assert advise_task(task, capabilities) == expected


numbers = st.none() | st.floats() | st.integers(-20, 20)


@given(numbers, numbers, numbers, numbers, st.integers(0, 5), st.none() | st.integers(0, 5))
def test_advice_to_hand_off_always_has_a_reason(
    risk: float | None,
    complexity: float | None,
    sentiment: float | None,
    completion: float | None,
    in_flight: int,
    limit: int | None,
) -> None:
    advice = should_handoff(
        signals=Signals(
            risk_level=risk,
            complexity_score=complexity,
            sentiment_score=sentiment,
            completion_estimate=completion,
        ),
        in_flight=in_flight,
        max_concurrency=limit,
    )
    assert advice.handoff == (advice.reason in list(Reason))
    assert advice.detail
