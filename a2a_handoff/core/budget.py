"""The token budget: what of a package may travel, and what is cut when it is too much.

Duty: keep the tokens of ``conversation_summary`` plus the compact JSON of ``key_facts`` within a
limit: the broker's for every package, the target's own if that is smaller.
Rules, in this order:

1. More bytes than the hard cap in the newest segment and the facts is refused, counting nothing.
2. Every token is at least one byte, so a package of no more bytes than the limit is not counted.
3. Older hops' segments go first, oldest first, as few as will do. That needs nobody's leave: each is
   in the snapshot of its own hop.
4. What is still too much is the sender's own. It is refused with the count; with ``trim`` facts are
   left out, the largest first, until they fit beside the beginning of the newest segment, and then
   the segment is cut at its end, sentence by sentence. Its beginning (the first sentence, of that at
   most 400 characters) always stays.
5. A drop manifest lists all that was left out. Nothing is ever summarised.

Not here: counting (``count`` comes in), caching counts (``tokens``), the caps of the other fields
(``wire.context``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

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
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.text import SENTENCE_MARKS, clip, sentence_ends

#: More sentences than this in the newest segment earn a warning.
SENTENCES_ADVISED = 10

#: What of the newest segment's first sentence is never cut, in characters.
BEGINNING_CHARS = 400

#: Most names in one line of a drop manifest, and their longest.
_NAMES_MAX = 50
_NAME_CHARS_MAX = 100

Count = Callable[[str], int]

_LIMITS = Limits()

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A context within its limit.

    ``tokens`` is the count of what is left, 0 if it was not needed. ``dropped`` is the manifest: the
    earlier hops' lines, then this one's. ``warnings`` say the same to people.
    """

    context: HandoffContext
    tokens: int = 0
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()


def compact(raw: bytes) -> str:
    """JSON as it came, without the white space between its tokens."""
    return msgspec.json.format(raw, indent=-1).decode()


def fit(
    context: HandoffContext,
    *,
    count: Count,
    limit: int = TOKEN_BUDGET,
    overflow: Overflow = Overflow.REFUSE,
    profile: Profile = Profile.RICH,
    earlier: Sequence[Dropped] = (),
    tokenizer: str = "",
    limits: Limits | None = None,
) -> Fit:
    """Bring a context within ``limit`` tokens, by the rules above.

    ``context`` holds the joined summary; ``earlier`` is the manifest of the hops before, by which
    segments are numbered. ``profile`` minimal leaves every older segment out, whatever the limit.
    ``tokenizer`` names what counts, for the error. Raises ``HandoffError`` (``context_too_large``)
    with the count and the limit in its facts.
    """
    bytes_max = (limits or _LIMITS).summary_and_facts_bytes
    *older, own = [each for each in segments(context.conversation_summary) if each.strip()] or [""]
    as_written = _size(context.conversation_summary) + len(context.key_facts)
    if as_written <= min(limit, bytes_max) and (not older or profile is Profile.RICH):
        return Fit(context=context, dropped=tuple(earlier), warnings=_advice(own))  # rule 2, as for most
    facts = compact(context.key_facts)
    if (size := _size(own) + _size(facts)) > bytes_max:
        raise _too_large("bytes", size, bytes_max)

    if profile is Profile.MINIMAL:
        drop = len(older)
    else:
        drop = _older_to_drop(older, own, facts, count=count, limit=limit, bytes_max=bytes_max)
    lines: list[Dropped] = []
    if drop:
        gone = sum(line.count for line in earlier if line.unit == "segment")
        lines.append(_segments_line(older[:drop], first=gone + 1))
    summary = HOP_SEPARATOR.join([*older[drop:], own])
    facts_raw = context.key_facts
    tokens = _total(summary, facts, count, limit)

    if tokens > limit:
        if overflow is Overflow.REFUSE:
            raise _too_large("tokens", tokens, limit, tokenizer)
        beginning = own[: _beginning(own)]
        facts_raw, facts_line = _cut_facts(facts_raw, limit - count(beginning), count)
        facts = compact(facts_raw)
        summary, summary_line = _cut_segment(own, limit - count(facts), count)
        tokens = _total(summary, facts, count, limit)
        if tokens > limit:
            raise _too_large("tokens", tokens, limit, tokenizer)
        lines += [line for line in (facts_line, summary_line) if line]

    if lines:
        context = replace(context, conversation_summary=summary, key_facts=facts_raw)
    return Fit(
        context=context,
        tokens=tokens,
        dropped=(*earlier, *lines),
        warnings=(*_advice(own), *map(describe, lines)),
    )


def describe(line: Dropped) -> str:
    """One line of a drop manifest in words."""
    plural = "" if line.count == 1 else "s"
    return f"{line.part}: {line.count} {line.unit}{plural} ({line.bytes} bytes) left out"


def _total(summary: str, facts: str, count: Count, limit: int) -> int:
    """Tokens of both, or 0 if their bytes alone are within the limit (rule 2)."""
    if _size(summary) + _size(facts) <= limit:
        return 0
    return count(summary) + count(facts)


def _older_to_drop(
    older: list[str], own: str, facts: str, *, count: Count, limit: int, bytes_max: int
) -> int:
    """How many of the oldest segments must go; all of them if even that is not enough.

    Found by bisection: a hostile summary of thousands of segments costs a dozen counts.
    """
    separator = len(HOP_SEPARATOR)
    sizes = [_size(each) + separator for each in older]
    kept = list(accumulate(reversed(sizes), initial=_size(own) + _size(facts)))[::-1]

    def fits(drop: int) -> bool:
        if kept[drop] > bytes_max:
            return False
        return _total(HOP_SEPARATOR.join([*older[drop:], own]), facts, count, limit) <= limit

    return bisect_left(range(len(older)), True, key=fits)


def _segments_line(gone: list[str], *, first: int) -> Dropped:
    return Dropped(
        part="conversation_summary",
        unit="segment",
        count=len(gone),
        bytes=_size(HOP_SEPARATOR.join(gone)),
        names=tuple(str(first + index) for index in range(min(len(gone), _NAMES_MAX))),
    )


def _beginning(own: str) -> int:
    """How much of the newest segment is never cut, in characters."""
    ends = sentence_ends(own)
    return len(clip(own[: ends[0]], BEGINNING_CHARS)) if ends else 0


def _cut_facts(raw: bytes, room: int, count: Count) -> tuple[bytes, Dropped | None]:
    """Leave out the largest members, as few as will do; of two of one size the later."""
    before = count(compact(raw))
    if before <= room:
        return raw, None
    members = _MEMBERS.decode(raw)
    rank = {
        name: (_size(name) + len(compact(bytes(value))), index)
        for index, (name, value) in enumerate(members.items())
    }
    order = sorted(members, key=rank.__getitem__, reverse=True)

    def rest(drop: int) -> bytes:
        gone = set(order[:drop])
        return msgspec.json.encode({name: value for name, value in members.items() if name not in gone})

    def fits(drop: int) -> bool:
        return count(compact(rest(drop))) <= room

    if not order:
        return raw, None
    drop = bisect_left(range(len(order)), True, lo=1, key=fits)
    after = rest(drop)
    return after, Dropped(
        part="key_facts",
        unit="member",
        count=drop,
        bytes=_size(compact(raw)) - _size(compact(after)),
        tokens=before - count(compact(after)),
        names=tuple(name[:_NAME_CHARS_MAX] for name in order[:drop][:_NAMES_MAX]),
    )


def _cut_segment(own: str, room: int, count: Count) -> tuple[str, Dropped | None]:
    """Cut at the end, sentence by sentence, down to the beginning."""
    before = count(own)
    if before <= room:
        return own, None
    start = _beginning(own)
    ends = sentence_ends(own)
    stops = [end for end in reversed(ends[:-1]) if end > start] + [start]

    def fits(stop: int) -> bool:
        return count(own[:stop].rstrip()) <= room

    stop = stops[min(bisect_left(stops, True, key=fits), len(stops) - 1)]
    after = own[:stop].rstrip()
    whole = sum(1 for end in ends if end <= stop)
    return after, Dropped(
        part="conversation_summary",
        unit="sentence",
        count=len(ends) - whole,
        bytes=_size(own) - _size(after),
        tokens=before - count(after),
        names=tuple(str(number) for number in range(whole + 1, len(ends) + 1))[:_NAMES_MAX],
    )


def _advice(own: str) -> tuple[str, ...]:
    if sum(map(own.count, SENTENCE_MARKS)) <= SENTENCES_ADVISED:
        return ()
    found = len(sentence_ends(own))
    if found <= SENTENCES_ADVISED:
        return ()
    return (f"conversation_summary: the newest segment has {found} sentences; 5 to {SENTENCES_ADVISED} do",)


def _size(text: str) -> int:
    return len(text.encode())


def _too_large(unit: str, found: int, limit: int, tokenizer: str = "") -> HandoffError:
    facts = {unit: str(found), "limit": str(limit)}
    if tokenizer:
        facts["tokenizer"] = tokenizer
    trim = "" if unit == "bytes" else ", or ask for context_overflow: trim"
    return HandoffError(
        Code.CONTEXT_TOO_LARGE,
        f"conversation_summary and key_facts take {found} {unit}, at most {limit} are allowed. "
        f"Shorten them, or move the rest to transcript{trim}.",
        violations=(Violation("conversation_summary", f"takes {found} {unit} together with key_facts"),),
        facts=facts,
    )
