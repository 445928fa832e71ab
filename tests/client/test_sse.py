"""Server-sent events, cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.client.sse import EventParser
from a2a_handoff.ports import AgentError

EMOJI = "🧪🦰 订单 مرحبا".encode()


def parse(*chunks: bytes, limit: int = 10_000) -> list[bytes]:
    parser = EventParser(limit)
    found = list(itertools.chain.from_iterable(parser.feed(chunk) for chunk in chunks))
    left = parser.end()
    return [*found, left] if left else found


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_of_the_standard_ends_a_line(end: bytes) -> None:
    text = end.join([b"data: one", b"data: two", b"", b"data: three", b"", b""])
    assert parse(text) == [b"one\ntwo", b"three"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_stream_means_the_same_however_it_is_cut_in_two(end: bytes) -> None:
    text = end.join([b": hello", b"event: x", b"data: " + EMOJI, b"data:" + EMOJI, b"", b"data: 2", b"", b""])
    for cut in range(len(text) + 1):
        assert parse(text[:cut], text[cut:]) == [EMOJI + b"\n" + EMOJI, b"2"]


LINES = st.lists(
    st.sampled_from(
        [b"data: {}", b"data:a", b"data", b"data: ", b": c", b"id: 1", b"", EMOJI, b"data: " + EMOJI]
    )
)


@given(LINES, st.sampled_from([b"\n", b"\r", b"\r\n"]), st.lists(st.integers(0, 200)), st.booleans())
def test_a_stream_means_the_same_however_often_it_is_cut(
    lines: list[bytes], end: bytes, cuts: list[int], last: bool
) -> None:
    text = end.join(lines) + (end if last else b"")
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert parse(*pieces) == parse(text)


def test_one_space_after_the_colon_is_not_part_of_the_data() -> None:
    assert parse(b"data:  two spaces\n\ndata:none\n\n") == [b" two spaces", b"none"]


def test_comments_and_other_fields_say_nothing() -> None:
    assert parse(b": ping\n\nid: 7\nevent: message\nretry: 5\n\ndata: x\nid: 8\n\n") == [b"x"]


def test_a_byte_order_mark_at_the_very_beginning_is_skipped() -> None:
    assert parse(b"\xef\xbb", b"\xbfdata: x\n\ndata: \xef\xbb\xbf\n\n") == [b"x", b"\xef\xbb\xbf"]


@pytest.mark.parametrize("tail", [b"", b"\n", b"\r", b"\r\n"])
def test_the_last_event_may_lack_its_blank_line(tail: bytes) -> None:
    assert parse(b"data: 1\n\ndata: 2" + tail) == [b"1", b"2"]


def test_an_event_over_the_limit_is_refused_before_it_is_whole() -> None:
    parser = EventParser(100)
    assert parser.feed(b"data: " + b"x" * 90 + b"\n\n") == [b"x" * 90]
    parser.feed(b"data: " + b"x" * 60 + b"\n")
    with pytest.raises(AgentError):
        parser.feed(b"data: " + b"x" * 60)


def test_the_limit_is_for_one_event_and_not_for_the_stream() -> None:
    parser = EventParser(100)
    assert sum(len(parser.feed(b"data: " + b"x" * 80 + b"\n\n")) for _ in range(50)) == 50
    for _ in range(50):
        assert parser.feed(b": " + b"keep-alive" * 5 + b"\n") == []
