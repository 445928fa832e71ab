"""What a receiver says first: names the source, shows what it knows, asks only what is open."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.kit.introduction import (
    ENGLISH,
    FACTS_SHOWN,
    FRENCH,
    PHRASES,
    introduce,
    is_answered,
    phrases_for,
    questions,
)

CONTEXT: dict[str, Any] = {
    "source_agent": "triage_agent",
    "user_intent": "Get the invoice of March",
    "key_facts": {"month": "March", "customer": {"name": "Zoé"}, "amount": 0, "note": None},
    "task_progress": {"step": 2, "total": 5},
    "user_preferences": {},
}
NEEDED = {"month": "the month", "customer_number": "your customer number"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_the_introduction_names_the_source_shows_what_is_known_and_asks_what_is_missing() -> None:
    said = introduce(CONTEXT, needed=NEEDED)
    assert said.text == (
        "I am taking over your request from triage_agent. "
        "I see what you need: Get the invoice of March. "
        "I already know: month: March ; customer name: Zoé ; amount: 0. "
        "Step 2 of 5 has been reached. "
        "I need your customer number, because it is not in the file yet."
    )
    assert [question.fact for question in said.questions] == ["customer_number"]


def test_a_french_speaker_is_answered_in_french() -> None:
    said = introduce(
        {**CONTEXT, "user_preferences": {"language": "fr-FR"}},
        needed={"numero_client": "votre numéro client"},
    )
    assert said.text.startswith(
        "Je prends en charge votre demande depuis triage_agent. Je vois votre demande : "
    )
    assert said.text.endswith(
        "J'ai besoin de votre numéro client, car cette information n'est pas encore dans le dossier."
    )


@pytest.mark.parametrize(
    "name",
    ["fr", "FR", "fr-FR", "fr_CA.UTF-8", "French", "français", "Français (France)", "fran\u0063\u0327ais"],
)
def test_french_goes_by_many_names(name: str) -> None:
    assert phrases_for({"Language": name}) is FRENCH
    assert introduce({}, language=name).text == FRENCH.taking_over_unnamed


@pytest.mark.parametrize(
    "preferences",
    [
        None,
        [],
        {},
        {"language": None},
        {"language": 3},
        {"language": ""},
        {"lang": "العربية"},
        {"locale": "de-DE"},
    ],
)
def test_a_language_that_is_not_spoken_falls_back_to_english(preferences: object) -> None:
    assert phrases_for(preferences) is ENGLISH


def test_every_language_fills_in_every_phrase() -> None:
    for phrases in PHRASES.values():
        assert "{source}" in phrases.taking_over
        assert "{intent}" in phrases.intent
        assert "{facts}" in phrases.facts
        assert "{label}" in phrases.question
        assert "{step}" in phrases.progress
        assert "{total}" in phrases.progress


@pytest.mark.parametrize(
    ("fact", "facts"),
    [
        ("customer_number", {"customer_number": "42"}),
        ("customer_number", {"customerNumber": 42}),
        ("customer_number", {"Customer Number": 0}),
        ("customer_number", {"customer": {"number": False}}),
        ("customer.number", {"order": {"customer": {"number": "42"}}}),
        ("number", {"customers": [{"number": "42"}]}),
        ("订单", {"订单": "X-1"}),
        ("address", {"address": {"city": "Köln"}}),
    ],
)
def test_a_fact_that_is_there_is_not_asked_for(fact: str, facts: dict[str, Any]) -> None:
    assert is_answered(fact, facts)
    assert questions({fact: "it"}, facts) == ()


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"customer_number": None},
        {"customer_number": "  "},
        {"customer_number": []},
        {"customer_number": {"value": None}},
        {"customer": "number"},
        {"customer_numbers_seen": "42"},
        {"other": {"number": "42"}},
    ],
)
def test_a_fact_without_a_value_is_asked_for_and_the_question_says_why(facts: dict[str, Any]) -> None:
    (question,) = questions({"customer_number": "your customer number"}, facts)
    assert question.text == "I need your customer number, because it is not in the file yet."


def test_questions_keep_their_order_and_a_blank_label_is_replaced_by_the_name() -> None:
    asked = questions({"b": "", "a": "the a"}, {})
    assert [(question.fact, question.text) for question in asked] == [
        ("b", "I need b, because it is not in the file yet."),
        ("a", "I need the a, because it is not in the file yet."),
    ]


def test_only_some_facts_are_said_back_and_each_is_kept_short() -> None:
    facts = {f"fact{number}": "x" * 500 for number in range(20)}
    text = introduce({"key_facts": facts}).text
    assert text.count("fact") == FACTS_SHOWN
    assert len(text) < 700


def test_the_author_chooses_which_facts_are_said_back() -> None:
    facts = {"secret": "s", "customer": {"id": "C-1", "name": "Zoé"}, "month": "May"}
    assert "secret" not in introduce({"key_facts": facts}, show=["month", "customer"]).text
    assert introduce({"key_facts": facts}, show=["month", "customer"]).text.endswith(
        "I already know: month: May ; customer id: C-1 ; customer name: Zoé."
    )
    assert introduce({"key_facts": facts}, show=[]).text == ENGLISH.taking_over_unnamed


def test_facts_of_every_type_are_readable() -> None:
    facts = {"a": True, "b": 3.0, "c": 1.5, "d": [1, "two", None, [9]]}
    assert "a: yes ; b: 3 ; c: 1.5 ; d: 1, two." in introduce({"key_facts": facts}).text


def test_right_to_left_text_cannot_change_the_direction_of_the_rest() -> None:
    text = introduce(
        {
            "user_intent": "\u0641\u0627\u062a\u0648\u0631\u0629 \u202e\u0645\u0627\u0631\u0633\n\x00",
            "key_facts": {"שם": "דוד"},
        }
    ).text
    assert "\u202e" not in text
    assert "\n" not in text
    assert text.count("\u2068") == text.count("\u2069") == 3


def test_emoji_and_their_joiners_stay_whole() -> None:
    assert "订单 🧪‍🦰" in introduce({"user_intent": "订单 🧪‍🦰"}).text


@pytest.mark.parametrize(
    "progress",
    [
        None,
        [],
        {},
        {"step": 2},
        {"step": "2", "total": 5},
        {"step": 9, "total": 5},
        {"step": True, "total": 1},
    ],
)
def test_progress_that_makes_no_sense_is_not_mentioned(progress: object) -> None:
    assert introduce({"task_progress": progress}).text == ENGLISH.taking_over_unnamed


@given(json_values, st.dictionaries(st.text(), st.text(), max_size=3))
def test_no_package_breaks_it_and_it_stays_on_one_line(value: object, needed: dict[str, str]) -> None:
    context = dict.fromkeys(CONTEXT, value)
    said = introduce(context, needed=needed)
    assert "\n" not in said.text
    assert len(said.text) < 4000
    assert json.dumps(said.text)


@given(st.dictionaries(st.text(min_size=1), json_values, max_size=5), st.lists(st.text(), max_size=4))
def test_what_is_answered_is_never_asked(facts: dict[str, Any], names: list[str]) -> None:
    asked = {question.fact for question in questions(dict.fromkeys([*names, *facts], "it"), facts)}
    assert all(is_answered(name, facts) != (name in asked) for name in [*names, *facts])
