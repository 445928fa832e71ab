"""The pages about the context say what the code does."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from a2a_handoff.core.budget import BEGINNING_CHARS, SENTENCES_ADVISED
from a2a_handoff.core.context import (
    TOKEN_BUDGET,
    Limits,
    Mode,
    Overflow,
    Priority,
    Profile,
    Reason,
    Requirements,
    Signals,
)
from a2a_handoff.core.score import WEIGHTS
from a2a_handoff.core.text import NAME_CHARS_MAX
from a2a_handoff.tokens import BpeCounter
from a2a_handoff.wire.context_reader import _LEFT_BEHIND, STAMPS, _Context
from tests.benchmarks.context_profiles import rows, table

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "handoff-context.md").read_text(encoding="utf-8")
TRADEOFF = (DOCS / "explanation" / "context-tradeoff.md").read_text(encoding="utf-8")


def test_the_reference_names_every_field() -> None:
    inner = [field.name for each in (Requirements, Signals) for field in structs.fields(each)]
    names = {*_Context.__struct_fields__, *STAMPS, *_LEFT_BEHIND, *inner}
    assert [name for name in names if f"`{name}`" not in REFERENCE] == []


def test_the_reference_names_every_word_that_a_field_may_have() -> None:
    words = [word.value for words in (Mode, Overflow, Priority, Profile, Reason) for word in words]
    assert [word for word in words if f"`{word}`" not in REFERENCE] == []


def test_the_reference_states_every_limit() -> None:
    limits = [getattr(Limits(), field.name) for field in structs.fields(Limits)]
    numbers = [NAME_CHARS_MAX, BEGINNING_CHARS, SENTENCES_ADVISED, TOKEN_BUDGET, *limits]
    said = [f"{number:,.0f}" for number in numbers if number != Limits().deadline_s]
    assert [number for number in said if number not in REFERENCE] == []
    assert Limits().deadline_s == 7 * 86_400
    assert "7 days" in REFERENCE


def test_the_reference_states_the_weights_of_the_score() -> None:
    assert [part for part, weight in WEIGHTS.items() if f"| `{part}` | {weight:.2f} |" not in REFERENCE] == []


def test_the_reference_names_the_tokenizer() -> None:
    assert f"`{BpeCounter().name}`" in REFERENCE


def test_the_figures_of_the_trade_off_are_those_of_the_benchmark() -> None:
    assert "\n".join(table(rows(BpeCounter()))) in TRADEOFF
