"""The token budget: what passes uncounted, what is refused, and in what order the rest is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.budget import BEGINNING_CHARS, Count, Fit, compact, describe, fit
from a2a_handoff.core.context import (
    HOP_SEPARATOR,
    TOKEN_BUDGET,
    Dropped,
    HandoffContext,
    Limits,
    Overflow,
    Profile,
    segments,
)
from a2a_handoff.core.errors import Code, HandoffError

FACTS_EMPTY = 2  # bytes, and by ``letters`` tokens, of the JSON ``{}``


def letters(text: str) -> int:
    """A tokenizer of the worst kind: a token for each byte."""
    return len(text.encode())


class Counted:
    """A tokenizer of four bytes a token that says how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        return -(-len(text.encode()) // 4)


def context(summary: str, facts: Any = None, raw: bytes = b"") -> HandoffContext:
    return HandoffContext(
        correlation_id="c",
        source_agent="a",
        user_intent="i",
        conversation_summary=summary,
        key_facts=raw or json.dumps(facts or {}).encode(),
    )


def refused(package: HandoffContext, *, count: Count = letters, **options: Any) -> HandoffError:
    with pytest.raises(HandoffError) as error:
        fit(package, count=count, **options)
    assert error.value.code is Code.CONTEXT_TOO_LARGE
    return error.value


# --- the limit -----------------------------------------------------------------------------------


def test_two_thousand_bytes_need_no_count() -> None:
    counted = Counted()
    assert fit(context("x" * (TOKEN_BUDGET - FACTS_EMPTY)), count=counted).tokens == 0
    assert counted.calls == 0


def test_exactly_the_budget_passes_and_one_token_more_is_refused() -> None:
    exact = context("x" * (4 * TOKEN_BUDGET - 4), raw=b"{}")
    over = context("x" * (4 * TOKEN_BUDGET), raw=b"{}")
    assert fit(exact, count=Counted()) == Fit(context=exact, tokens=TOKEN_BUDGET)
    error = refused(over, count=Counted(), tokenizer="test/4")
    assert error.facts == {"tokens": "2001", "limit": "2000", "tokenizer": "test/4"}
    assert "2001 tokens" in error.message


def test_white_space_between_the_tokens_of_facts_is_not_counted() -> None:
    spaced = b'{ "a" :\n' + b" " * 5000 + b'"b c" }'
    assert compact(spaced) == '{"a":"b c"}'
    assert fit(context("x", raw=spaced), count=letters).tokens == 0


def test_numbers_and_escapes_of_facts_are_kept_as_they_came() -> None:
    raw = b'{"big": 12345678901234567890, "f": 1.10, "e": 1e999, "u": "\\u00e9"}'
    assert compact(raw) == '{"big":12345678901234567890,"f":1.10,"e":1e999,"u":"\\u00e9"}'


def test_the_byte_cap_comes_before_any_count_and_cannot_be_trimmed_away() -> None:
    counted = Counted()
    limits = Limits()
    error = refused(
        context("x" * limits.summary_and_facts_bytes), count=counted, overflow=Overflow.TRIM, limits=limits
    )
    assert counted.calls == 0
    assert error.facts["bytes"] == str(limits.summary_and_facts_bytes + FACTS_EMPTY)
    assert "trim" not in error.message


# --- older segments ------------------------------------------------------------------------------


def test_older_segments_go_first_and_no_more_of_them_than_needed() -> None:
    joined = HOP_SEPARATOR.join(["a" * 900, "b" * 900, "c" * 900])
    found = fit(context(joined), count=letters)
    assert segments(found.context.conversation_summary) == ["b" * 900, "c" * 900]
    assert found.dropped == (
        Dropped(part="conversation_summary", unit="segment", count=1, bytes=900, names=("1",)),
    )
    assert found.warnings == ("conversation_summary: 1 segment (900 bytes) left out",)


def test_segments_are_numbered_over_the_whole_chain() -> None:
    first = fit(context(HOP_SEPARATOR.join(["a" * 900, "b" * 900, "c" * 900])), count=letters)
    joined = first.context.conversation_summary + HOP_SEPARATOR + "d" * 900
    second = fit(context(joined), count=letters, earlier=first.dropped)
    assert [line.names for line in second.dropped] == [("1",), ("2",)]
    assert len(second.warnings) == 1


def test_a_newest_segment_that_is_too_large_itself_is_refused() -> None:
    error = refused(context(HOP_SEPARATOR.join(["a", "b" * 2001])))
    assert error.facts["tokens"] == str(2001 + FACTS_EMPTY)


def test_thousands_of_tiny_segments_cost_a_handful_of_counts() -> None:
    counted = Counted()
    joined = HOP_SEPARATOR.join(["segment"] * 3_000)
    found = fit(context(joined), count=counted)
    assert counted.calls < 40
    assert 0 < found.tokens <= TOKEN_BUDGET
    assert len(found.dropped[0].names) == 50
    assert found.dropped[0].count == 3_000 - len(segments(found.context.conversation_summary))


def test_older_segments_beyond_the_byte_cap_are_left_out_uncounted() -> None:
    joined = HOP_SEPARATOR.join(["a" * 200_000, "b"])
    counted = Counted()
    assert fit(context(joined), count=counted).context.conversation_summary == "b"
    assert counted.calls == 0


def test_the_minimal_profile_sends_the_newest_segment_only() -> None:
    found = fit(context("old\n---hop---\nnew", {"k": 1}), count=letters, profile=Profile.MINIMAL)
    assert found.context.conversation_summary == "new"
    assert found.context.key_facts == b'{"k": 1}'
    assert [line.names for line in found.dropped] == [("1",)]


def test_a_target_with_a_smaller_limit_gets_less() -> None:
    package = context("a" * 40 + HOP_SEPARATOR + "b" * 40)
    assert fit(package, count=letters).context is package
    assert fit(package, count=letters, limit=50).context.conversation_summary == "b" * 40


# --- trimming ------------------------------------------------------------------------------------


def test_sentences_are_cut_from_the_end_of_the_newest_segment() -> None:
    sentences = [f"Sentence number {number} says something." for number in range(100)]
    found = fit(context(" ".join(sentences), {"k": "v"}), count=letters, overflow=Overflow.TRIM, limit=500)
    kept = found.context.conversation_summary
    assert " ".join(sentences).startswith(kept)
    assert kept.endswith("something.")
    assert found.context.key_facts == b'{"k": "v"}'
    (line,) = found.dropped
    assert (line.unit, line.count + kept.count("Sentence")) == ("sentence", 100)
    assert line.names[0] == str(kept.count("Sentence") + 1)
    assert 440 < letters(kept) + letters(compact(found.context.key_facts)) <= 500


def test_the_largest_facts_go_before_the_beginning_of_the_summary_does() -> None:
    facts = {"small": 1, "huge": "h" * 3000, "large": "l" * 1000, "also": True}
    found = fit(context("The beginning. And more. And more."), count=letters, overflow=Overflow.TRIM)
    assert not found.dropped
    found = fit(context("The beginning. And more.", facts), count=letters, overflow=Overflow.TRIM, limit=1200)
    assert json.loads(found.context.key_facts) == {"small": 1, "large": "l" * 1000, "also": True}
    assert found.context.conversation_summary == "The beginning. And more."
    (line,) = found.dropped
    assert (line.part, line.unit, line.names, line.count) == ("key_facts", "member", ("huge",), 1)


def test_what_is_left_of_the_facts_stays_byte_for_byte() -> None:
    raw = b'{"keep": 1.10, "huge": "' + b"h" * 3000 + b'", "n": 12345678901234567890}'
    found = fit(context("x", raw=raw), count=letters, overflow=Overflow.TRIM)
    assert found.context.key_facts == b'{"keep":1.10,"n":12345678901234567890}'


def test_of_two_facts_of_one_size_the_later_goes() -> None:
    facts = {"a": "x" * 1000, "b": "x" * 1000}
    found = fit(context("s", facts), count=letters, overflow=Overflow.TRIM)
    assert found.dropped[0].names == ("b",)


def test_a_single_endless_sentence_keeps_its_beginning() -> None:
    found = fit(context("word " * 2000, {"k": 1}), count=letters, overflow=Overflow.TRIM)
    assert BEGINNING_CHARS // 2 < len(found.context.conversation_summary) <= BEGINNING_CHARS
    assert json.loads(found.context.key_facts) == {"k": 1}


def test_older_segments_are_gone_before_anything_of_the_sender_is_cut() -> None:
    package = context(HOP_SEPARATOR.join(["old one.", "First. " + "Second. " * 400]))
    found = fit(package, count=letters, overflow=Overflow.TRIM)
    assert [line.unit for line in found.dropped] == ["segment", "sentence"]
    assert found.context.conversation_summary.startswith("First.")


def test_a_limit_below_the_beginning_is_refused_even_with_trim() -> None:
    error = refused(context("Much too long for this."), overflow=Overflow.TRIM, limit=10)
    assert error.facts["limit"] == "10"


def test_long_names_in_the_manifest_are_shortened() -> None:
    facts = {f"{number:03}" + "n" * 500: "x" for number in range(100)}
    found = fit(context("s", facts), count=letters, overflow=Overflow.TRIM)
    (line,) = found.dropped
    assert len(line.names) == 50
    assert line.count > 90
    assert max(map(len, line.names)) == 100


# --- advice --------------------------------------------------------------------------------------


def test_more_than_ten_sentences_earn_a_warning() -> None:
    assert fit(context("One more. " * 10), count=letters).warnings == ()
    (warning,) = fit(context("One more. " * 11), count=letters).warnings
    assert "11 sentences" in warning


def test_a_manifest_line_reads_as_a_sentence() -> None:
    line = Dropped(part="key_facts", unit="member", count=2, bytes=30)
    assert describe(line) == "key_facts: 2 members (30 bytes) left out"


# --- laws ----------------------------------------------------------------------------------------

texts = st.text(alphabet="ab .!?\né订🧪", min_size=1, max_size=300).filter(str.strip)
summaries = st.lists(texts, min_size=1, max_size=5).map(HOP_SEPARATOR.join)
facts = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=60), max_size=8)


@given(summaries, facts, st.integers(1, 600), st.sampled_from(Profile))
def test_a_trimmed_package_is_within_its_limit_or_refused(
    summary: str, known: dict[str, Any], limit: int, profile: Profile
) -> None:
    package = context(summary, known)
    try:
        found = fit(package, count=letters, limit=limit, overflow=Overflow.TRIM, profile=profile)
    except HandoffError:
        return
    size = letters(found.context.conversation_summary) + letters(compact(found.context.key_facts))
    assert size <= limit
    assert found.tokens in (0, size)
    assert found.context.conversation_summary.strip()
    assert json.loads(found.context.key_facts).items() <= known.items()
    again = fit(found.context, count=letters, limit=limit, overflow=Overflow.TRIM, profile=profile)
    assert again.context == found.context
    assert not again.dropped


@given(summaries, facts, st.integers(1, 600))
def test_without_leave_nothing_of_the_sender_is_cut(summary: str, known: dict[str, Any], limit: int) -> None:
    package = context(summary, known)
    try:
        found = fit(package, count=letters, limit=limit)
    except HandoffError:
        return
    assert found.context.key_facts == package.key_facts
    newest = [each for each in segments(summary) if each.strip()][-1]
    assert newest in found.context.conversation_summary


@given(summaries, facts, st.integers(1, 600))
def test_only_what_is_over_the_limit_by_itself_is_refused(
    summary: str, known: dict[str, Any], limit: int
) -> None:
    newest = [each for each in segments(summary) if each.strip()][-1]
    own = letters(newest) + letters(compact(json.dumps(known).encode()))
    if own <= limit:
        assert fit(context(summary, known), count=letters, limit=limit)
    else:
        assert refused(context(summary, known), limit=limit).facts["tokens"] == str(own)
