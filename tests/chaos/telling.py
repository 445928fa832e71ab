"""What the stream of events told programs elsewhere, held against the log.

One program reads along all the time (``Reader``), as ``docs/how-to/follow-events-with-nats.md`` shows it; another one
reads the stream from its first message on, when all is over (``told``).
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig

from a2a_handoff.notify.link import NatsClient
from tests.notify.follower import Heard, events
from tests.support.wire import eventually

#: So long after the last blow the stream may lack something of the log, in seconds.
CATCH_UP_S = 60.0
_RECENT = 100


class Reader:
    """Takes one event after the other, notes it and then acknowledges it, over all deaths of NATS."""

    def __init__(self, url: str, stream: str) -> None:
        self._url = url
        self._stream = stream
        self._over = threading.Event()
        self.ids: list[str] = []
        """What it took, in order. What it could not acknowledge comes again."""

    @contextmanager
    def reading(self) -> Generator[None]:
        thread = threading.Thread(target=lambda: asyncio.run(self._read()))
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(CATCH_UP_S)

    def catch_up(self, last: str) -> None:
        """Wait until it has noted an event, for so long as the stream itself may take."""
        with suppress(AssertionError):
            eventually(lambda: last in self.ids[-_RECENT:], within_s=CATCH_UP_S)

    async def _read(self) -> None:
        while not self._over.is_set():
            with suppress(Error, OSError, TimeoutError):
                await self._read_on()
            await asyncio.sleep(0.1)

    async def _read_on(self) -> None:
        client = NatsClient()
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1, ack_wait=5)
        try:
            await client.connect(self._url, allow_reconnect=False, connect_timeout=2, error_cb=_nothing)
            consumer = await client.jetstream().pull_subscribe(
                ">", durable="reader", stream=self._stream, config=config
            )
            while not self._over.is_set() and not client.is_closed:
                with suppress(TimeoutError):
                    for message in await consumer.fetch(1, timeout=1):
                        self.ids.append(json.loads(message.data)["id"])
                        await message.ack()
        finally:
            await client.abandon()

    def untrue(self, log: Sequence[str], known: Iterable[str]) -> Iterable[str]:
        """What is wrong with what it took; as in ``untrue``. An event may come again, but none late."""
        first = list(dict.fromkeys(self.ids))
        if first != list(log[: len(first)]):
            at = next(n for n, one in enumerate(first) if one != [*log, ""][n])
            yield f"a program that read along got {first[at]}, where the log has {[*log, ''][at]!r}"
        if missing := set(known) - set(first):
            yield f"a program that read along did not get {len(missing)} events, such as {min(missing)}"


async def _nothing(_error: Exception) -> None:
    pass


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
