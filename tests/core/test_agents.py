"""Names, capabilities and the circuit breaker of agents."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.agents import (
    Agent,
    Binding,
    Breaker,
    Generation,
    Interface,
    Readiness,
    Role,
    effective_capabilities,
    fold,
    skeleton,
    smoothed,
)


@given(st.text())
def test_folding_a_name_twice_changes_nothing_more(name: str):
    assert fold(fold(name)) == fold(name)


@given(st.text())
def test_composed_and_decomposed_spellings_are_one_name(name: str):
    assert fold(unicodedata.normalize("NFC", name)) == fold(unicodedata.normalize("NFD", name))


def test_case_does_not_matter_in_any_script():
    assert fold("STRASSE") == fold("straße")
    assert fold("ADHÉSIF.Expert") == fold("adhe\u0301sif.expert")
    assert fold(" billing_agent ") == fold("Billing_Agent")


def test_an_accent_makes_another_name_but_the_same_skeleton():
    assert fold("adhésif") != fold("adhesif")
    assert skeleton("adhésif-expert") == skeleton("ADHESIF_expert")


@pytest.mark.parametrize("platform", ["cowork", "external", "External"])
def test_browser_platforms_can_browse_and_test_pages(platform: str):
    assert effective_capabilities(platform, {}) == {"canBrowse", "canTestUI"}


@pytest.mark.parametrize("platform", ["cursor", "claude-code"])
def test_coding_platforms_can_edit_and_execute(platform: str):
    assert effective_capabilities(platform, {}) == {"canEditFiles", "canExecuteCode"}


def test_what_an_agent_declares_goes_over_its_platform():
    assert effective_capabilities("external", {"canBrowse": False, "canAnalyze": True}) == {
        "canTestUI",
        "canAnalyze",
    }


def test_an_unknown_platform_implies_nothing():
    assert effective_capabilities("toaster", {"canDeploy": True}) == {"canDeploy"}


@pytest.mark.parametrize(
    ("role", "url", "offers", "readiness"),
    [
        (Role.AGENT, "", False, Readiness.PULL),
        (Role.AGENT, "http://a.test", False, Readiness.PROBE),
        (Role.AGENT, "http://a.test", True, Readiness.OFFER),
        (Role.HUMAN, "", False, Readiness.PERSON),
        (Role.SUPERVISOR, "", True, Readiness.PERSON),
        (Role.SUPERVISOR, "http://a.test", True, Readiness.OFFER),
    ],
)
def test_how_an_agent_is_asked_follows_from_what_it_is(
    role: Role, url: str, offers: bool, readiness: Readiness
):
    interfaces = (Interface(url=url, binding=Binding.JSONRPC, generation=Generation.V1_0),) if url else ()
    agent = Agent(agent_id="a", tenant="t", role=role, interfaces=interfaces, speaks_handoff=offers)
    assert agent.readiness is readiness


def test_the_first_response_time_stands_and_later_ones_count_for_a_fifth():
    assert smoothed(None, 2.0) == 2.0
    assert smoothed(2.0, 1.0) == pytest.approx(1.8)


def test_a_breaker_opens_after_two_failures_in_a_row():
    breaker = Breaker().failed(100)
    assert not breaker.open_at(100)
    assert breaker.failed(101).open_at(101)
    assert not breaker.succeeded().failed(101).open_at(101)


def test_an_open_breaker_lets_one_trial_through_after_its_time():
    breaker = Breaker().failed(100).failed(101)
    assert breaker.open_at(115.9)
    assert not breaker.open_at(116)
    trial = breaker.offered(116)
    assert trial.open_at(117)
    assert not trial.succeeded().open_at(117)
    assert trial.failed(118).open_at(132.9)
    assert not trial.failed(118).open_at(133)


def test_an_offer_through_a_closed_breaker_changes_nothing():
    breaker = Breaker().failed(100)
    assert breaker.offered(101) is breaker
