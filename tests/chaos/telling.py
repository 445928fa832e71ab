"""What the stream of events told programs elsewhere, held against the log.

The stream is read as a new consumer would, from its first message on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from tests.notify.follower import Heard, events

#: So long after the last blow the stream may lack something of the log, in seconds.
CATCH_UP_S = 60.0


def told(url: str, stream: str, *, least: int) -> list[Heard]:
    """All of the stream, once ``least`` messages are in it, or as it is when it does not catch up."""
    with suppress(TimeoutError):
        return events(url, stream=stream, least=least, within_s=CATCH_UP_S)
    return events(url, stream=stream)


def untrue(
    heard: Sequence[Heard], log: Sequence[str], known: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    """What is wrong with a stream.

    ``log``: the ids of all events in their order, read after the stream was. ``known``: those that the stream
    has to have, by id, as the broker shows them.
    """
    ids = [each.id for each in heard]
    yield from (f"{one} was told {count} times" for one, count in Counter(ids).items() if count > 1)
    yield from (f"{one} was not told" for one in known.keys() - set(ids))
    yield from (f"{one} was told and is not in the log" for one in set(ids) - set(log))
    if ids != list(log[: len(ids)]):
        at = next((n for n, (one, other) in enumerate(zip(ids, log, strict=False)) if one != other), len(log))
        yield f"replayed it is not the log: message {at + 1} is {ids[at]}, the log has {[*log, ''][at]!r}"
    for before, after in pairwise(heard):
        if after.sequence != before.sequence + 1:
            yield f"messages {before.sequence + 1} to {after.sequence - 1} are not there any more"
    for each in heard:
        if each.headers.get("Nats-Msg-Id") != each.id:
            yield f"{each.id} is message {each.headers.get('Nats-Msg-Id')!r}"
        if each.event != known.get(each.id, each.event):
            yield f"{each.id} was told otherwise than the log has it"
