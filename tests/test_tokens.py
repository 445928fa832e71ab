"""Counting tokens offline, with a memory for texts that come again."""

from __future__ import annotations

import socket

import pytest

from a2a_handoff.core.budget import fit
from a2a_handoff.core.context import TOKEN_BUDGET, HandoffContext, Overflow
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.tokens import BpeCounter


@pytest.fixture(scope="module")
def counter() -> BpeCounter:
    return BpeCounter()


def test_the_tokenizer_has_a_name(counter: BpeCounter) -> None:
    assert counter.name == "tiktoken/cl100k_base"


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    counter = BpeCounter()
    counter.load()
    assert counter.count("hello world") == 2


@pytest.mark.parametrize(
    "text", ["", "x", "hello", "x" * 300, "订单 🧪\u200d🦰", " \n" * 500, "\ud800" * 300]
)
def test_a_text_has_no_more_tokens_than_bytes(counter: BpeCounter, text: str) -> None:
    assert counter.count(text) <= len(text.encode(errors="surrogatepass"))


def test_control_tokens_of_a_model_count_as_text(counter: BpeCounter) -> None:
    assert counter.count("<|endoftext|>") > 1


def test_a_text_that_comes_again_is_not_counted_again() -> None:
    counter = BpeCounter()
    text = "The quick brown fox. " * 50
    first = counter.count(text)
    counter._encode = lambda _: []
    assert counter.count(text) == first
    assert counter.count(text + "!") == 0


def test_only_the_newest_counts_are_remembered() -> None:
    counter = BpeCounter(remember=2)
    counter._encode = lambda text: [0] * len(text)
    texts = [letter * 300 for letter in "abc"]
    for text in texts:
        counter.count(text)
    counter._encode = lambda _: []
    assert [counter.count(text) for text in reversed(texts)] == [300, 300, 0]


def test_exactly_the_budget_passes_with_the_real_tokenizer(counter: BpeCounter) -> None:
    def of(words: int) -> HandoffContext:
        return HandoffContext(
            correlation_id="c",
            source_agent="a",
            user_intent="i",
            conversation_summary="fox" + " fox" * (words - 1),
        )

    facts = counter.count("{}")
    assert fit(of(TOKEN_BUDGET - facts), count=counter.count).tokens == TOKEN_BUDGET
    with pytest.raises(HandoffError) as error:
        fit(of(TOKEN_BUDGET - facts + 1), count=counter.count, tokenizer=counter.name)
    assert error.value.facts == {"tokens": "2001", "limit": "2000", "tokenizer": "tiktoken/cl100k_base"}
    trimmed = fit(of(9_000), count=counter.count, overflow=Overflow.TRIM)
    assert trimmed.tokens <= TOKEN_BUDGET
