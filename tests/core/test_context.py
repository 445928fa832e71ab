"""Joining the summaries of a chain, and the text rules that names and sentences follow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.context import HOP_SEPARATOR, join_summaries, joined_summary, segments
from a2a_handoff.core.text import (
    clip,
    clip_bytes,
    folded,
    is_blank,
    name_fault,
    sentence_ends,
    sentences,
    words,
)

segment = st.text(min_size=1).filter(lambda text: text.strip() and HOP_SEPARATOR.strip("\n") not in text)
summary = st.lists(segment, min_size=1, max_size=5).map(HOP_SEPARATOR.join)


# --- summaries -----------------------------------------------------------------------------------


def test_a_segment_is_appended_behind_the_separator_of_hops() -> None:
    assert join_summaries("first", "second") == "first\n---hop---\nsecond"
    assert joined_summary("first", "second") == "first\n---hop---\nsecond"


def test_a_sender_may_send_the_whole_joined_summary() -> None:
    assert joined_summary("first", "first\n---hop---\nsecond") == "first\n---hop---\nsecond"


def test_a_sender_that_was_given_only_the_newest_segments_may_build_on_those() -> None:
    joined = joined_summary("first\n---hop---\nsecond", "second\n---hop---\nthird")
    assert joined == "first\n---hop---\nsecond\n---hop---\nthird"


def test_a_sender_that_was_given_a_cut_segment_may_build_on_that_one() -> None:
    joined = joined_summary("One. Two.", "One.\n---hop---\nThree.", delivered="One.")
    assert joined == "One. Two.\n---hop---\nThree."
    assert joined_summary("One. Two.", "One.", delivered="One.") == "One. Two."


def test_a_sender_that_repeats_what_it_was_given_adds_nothing() -> None:
    existing = "first\n---hop---\nsecond"
    assert joined_summary(existing, existing) == existing
    assert joined_summary(existing, "second") == existing
    assert joined_summary(existing, f"{existing}{HOP_SEPARATOR}  ") == existing
    assert joined_summary(existing, " \n") == existing


def test_a_summary_that_merely_begins_with_the_same_words_is_a_segment_of_its_own() -> None:
    assert joined_summary("Paid", "Paid twice") == "Paid\n---hop---\nPaid twice"


def test_the_first_hop_has_nothing_to_join() -> None:
    assert joined_summary("", "first") == "first"


@given(summary, summary, st.one_of(st.just(""), summary))
def test_joining_twice_changes_nothing(existing: str, received: str, delivered: str) -> None:
    once = joined_summary(existing, received, delivered=delivered)
    assert joined_summary(existing, once, delivered=delivered) == once


@given(summary, segment)
def test_whole_summary_and_own_segment_come_to_the_same(existing: str, own: str) -> None:
    whole = join_summaries(existing, own)
    assert joined_summary(existing, whole) == whole
    if own != segments(existing)[-1]:
        assert joined_summary(existing, own) == whole


@given(summary, summary)
def test_nothing_that_was_said_is_ever_lost(existing: str, received: str) -> None:
    joined = segments(joined_summary(existing, received))
    assert joined[: len(segments(existing))] == segments(existing)
    assert set(segments(received)) <= set(joined)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "order-42",
        "订单-1",
        "<script>",
        "a=1 tenant=victim",
        "../../",
        "🧪\u200d🦰",
        "00000000-0000-4000-8000-00000000abcd",
        "x" * 200,
    ],
)
def test_any_script_and_punctuation_makes_a_name(name: str) -> None:
    assert name_fault(name) == ""


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("x\r\nSet-Cookie: a=1", "control character"),
        ("a\x00b", "control character"),
        ("a\x7f", "control character"),
        ("a\x85b", "control character"),
        ("a\u2028b", "control character"),
        ("a\u202eb", "control character"),
        ("a\u2066b", "control character"),
        ("\ufeffa", "control character"),
        ("a\ud800", "control character"),
        ("x" * 201, "longer than 200"),
        (" a", "white space"),
        ("a\u00a0", "white space"),
    ],
)
def test_what_could_break_a_line_is_no_name(name: str, fault: str) -> None:
    assert fault in name_fault(name)


@given(st.text())
def test_a_name_is_one_line_that_header_and_log_show_as_it_is(name: str) -> None:
    if not name_fault(name):
        assert len(name.splitlines()) <= 1
        assert name.strip() == name
        assert name.encode().decode() == name


# --- blank, sentences, words ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u200b", " \u2060 \ufeff", "\u00ad\u3164"])
def test_text_that_shows_nothing_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["0", ".", "🧪\u200d🦰", " \u200bx"])
def test_text_that_shows_something_is_not_blank(text: str) -> None:
    assert not is_blank(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("It costs 3.50 euro. Paid.", ["It costs 3.50 euro.", "Paid."]),
        ("1. first\n2. second", ["1. first", "2. second"]),
        ("你好。再见\uff01", ["你好。", "再见\uff01"]),
        ("هل دفعت؟ نعم.", ["هل دفعت؟", "نعم."]),
        ("Wait... what?!", ["Wait...", "what?!"]),
        ("no mark at the end", ["no mark at the end"]),
        ("Done. 🧪", ["Done. 🧪"]),
        ("42", ["42"]),
        ("", []),
        ("  \n ", []),
    ],
)
def test_sentences_are_found_in_many_scripts(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text())
def test_sentences_cover_the_text(text: str) -> None:
    ends = sentence_ends(text)
    assert ends == sorted(set(ends))
    assert not text[ends[-1] if ends else 0 :].strip()
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["." * 65_536, ".'" * 32_768, "?!" * 32_768, "\n" * 65_536, ". " * 32_768])
def test_hostile_punctuation_costs_no_more_than_plain_text(text: str) -> None:
    started = time.process_time()
    sentence_ends(text)
    assert time.process_time() - started < 2


def test_words_fold_case_and_count_each_character_of_scripts_without_spaces() -> None:
    assert words("Straße STRASSE, don't") == ["strasse", "strasse", "don", "t"]
    assert words("订单 42") == ["订", "单", "42"]
    assert words("e\u0301") == words("\u00e9")


@given(st.text())
def test_folding_twice_changes_nothing_more_than_once(text: str) -> None:
    assert " ".join(folded(text).split()) == folded(text)


# --- cutting -------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 50))
def test_a_clipped_text_is_a_beginning_within_the_limit(text: str, limit: int) -> None:
    short = clip(text, limit)
    assert len(short) <= limit or short == text
    assert text.startswith(short)


@given(st.text(), st.integers(0, 50))
def test_a_text_clipped_by_bytes_has_whole_characters(text: str, limit: int) -> None:
    short = clip_bytes(text, limit)
    assert text.startswith(short)
    assert len(short.encode()) <= limit


def test_words_are_not_cut_when_a_space_is_near() -> None:
    assert clip("the quick brown fox", 12) == "the quick"
    assert clip("x" * 20, 12) == "x" * 12
