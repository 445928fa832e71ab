"""The feed of fresh events: what it has is right, and it never has too much."""

from __future__ import annotations

from a2a_handoff.core.events import Event
from a2a_handoff.feed import Feed
from a2a_handoff.ports import Recorded
from tests.support.builders import make_handoff, output_event, requested_event


def _add(feed: Feed, handoff_id: str, *events: Event, after: int = 0) -> None:
    recorded = [
        Recorded(handoff_id=handoff_id, seq=after + n, position=after + n, event=event)
        for n, event in enumerate(events, 1)
    ]
    feed.add(recorded, [make_handoff(handoff_id)])


def _seqs(feed: Feed, handoff_id: str, after: int) -> list[int] | None:
    found = feed.after(handoff_id, after)
    return None if found is None else [item.seq for item in found]


def test_it_has_the_newest_events_and_says_when_it_does_not_reach_back() -> None:
    feed = Feed(events_per_handoff=2)
    _add(feed, "h", requested_event(), output_event(), output_event())
    assert _seqs(feed, "h", 0) is None
    assert _seqs(feed, "h", 1) == [2, 3]
    assert _seqs(feed, "h", 3) == []


def test_a_gap_drops_what_was_before_it() -> None:
    feed = Feed()
    _add(feed, "h", requested_event())
    _add(feed, "h", output_event(), after=4)
    assert _seqs(feed, "h", 0) is None
    assert _seqs(feed, "h", 4) == [5]


def test_the_handoffs_that_nothing_happened_to_for_longest_go_first() -> None:
    feed = Feed(handoffs=2)
    for name in ("a", "b", "a", "c"):
        _add(feed, name, output_event(), after=1)
    assert feed.after("b", 1) is None
    assert feed.state("b") is None
    assert _seqs(feed, "a", 1) == [2]
    assert feed.state("a") is not None


def test_large_events_push_others_out_and_then_each_other() -> None:
    feed = Feed(bytes_max=64_000)
    _add(feed, "small", requested_event())
    _add(feed, "large", requested_event(), *(output_event(b"x" * 20_000) for _ in range(4)))
    assert feed.after("small", 0) is None
    assert _seqs(feed, "large", 0) is None
    assert _seqs(feed, "large", 3) == [4, 5]
    _add(feed, "next", requested_event())
    assert _seqs(feed, "next", 0) == [1]


def test_an_event_that_is_larger_than_everything_is_not_kept() -> None:
    feed = Feed(bytes_max=10_000)
    _add(feed, "h", output_event(b"x" * 20_000))
    assert feed.after("h", 0) is None
    _add(feed, "h", output_event(), after=1)
    assert _seqs(feed, "h", 1) == [2]


def test_what_is_forgotten_weighs_nothing() -> None:
    feed = Feed(bytes_max=50_000)
    for _ in range(10):
        _add(feed, "h", output_event(b"x" * 20_000))
        feed.forget("h")
    _add(feed, "h", output_event(b"x" * 20_000))
    assert _seqs(feed, "h", 0) == [1]
