"""The order of an inbox."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from a2a_handoff.core.context import Priority
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.inbox import AGEING_S, in_order
from tests.support.builders import NOW, make_handoff, offered_event


def _offered(name: str, priority: Priority = Priority.NORMAL, *, at: float = NOW) -> Handoff:
    return replace(make_handoff(name, offered_event(at=at)), priority=priority)


def _names(*handoffs: Handoff) -> list[str]:
    return [handoff.id for handoff in in_order(handoffs)]


def test_what_is_more_urgent_comes_first() -> None:
    given_ = [_offered(p.value, p) for p in (Priority.LOW, Priority.URGENT, Priority.NORMAL, Priority.HIGH)]
    assert _names(*given_) == ["urgent", "high", "normal", "low"]


def test_of_one_priority_what_was_offered_first_comes_first() -> None:
    assert _names(_offered("later", at=NOW + 1), _offered("sooner")) == ["sooner", "later"]


def test_what_waits_long_enough_overtakes_what_is_more_urgent() -> None:
    old = _offered("old", Priority.LOW)
    assert _names(old, _offered("new", Priority.NORMAL, at=NOW + AGEING_S - 1)) == ["new", "old"]
    assert _names(old, _offered("new", Priority.NORMAL, at=NOW + AGEING_S + 1)) == ["old", "new"]


@given(st.lists(st.tuples(st.sampled_from(Priority), st.floats(0, 10_000)), max_size=20), st.randoms())
def test_the_order_does_not_depend_on_how_they_came(
    offers: list[tuple[Priority, float]], chance: object
) -> None:
    handoffs = [_offered(f"h-{n}", p, at=NOW + at) for n, (p, at) in enumerate(offers)]
    shuffled = handoffs[:]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _names(*handoffs) == _names(*shuffled)
