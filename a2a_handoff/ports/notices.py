"""Wake-ups, which are hints, and the log for programs elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec


class Listener(Protocol):
    """One waiter of its topics. A publish between two waits is not missed."""

    async def wait(self, *, timeout_s: float) -> bool:
        """Wait until it is time to look again: after a publish, or from time to time where one may be lost.

        False after ``timeout_s`` seconds.
        """
        ...


class Notifier(Protocol):
    """Says *look again*. A lost notification costs latency, never an event."""

    def publish(self, topic: str) -> None:
        """Wake everybody who listens to ``topic``, in every broker on the store. Never blocks or fails."""
        ...

    def tell(self, topic: str) -> None:
        """Wake everybody in the other brokers who listens to ``topic``. Never blocks or fails."""
        ...

    def wake(self, topic: str) -> None:
        """Wake everybody in this process who listens to ``topic``."""
        ...

    def wake_all(self) -> None:
        """Wake everybody in this process, whatever they listen to."""
        ...

    def listen(self, *topics: str) -> AbstractContextManager[Listener]:
        """Listen to all of ``topics`` from now until the context ends."""
        ...


class Hints(Protocol):
    """Carries wake-ups between brokers on one store. What is lost costs latency."""

    def start(self, hear: Callable[[str], None]) -> None:
        """Begin, and call ``hear`` with each topic that another broker sends. Waits for nothing."""
        ...

    def send(self, topic: str) -> None:
        """Send a topic to the other brokers. Never blocks, never fails."""
        ...

    async def close(self) -> None:
        """Send what waits, and end."""
        ...


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the log as others are told it. ``id`` is the same however often it is told.

    ``place`` is the workspace, after the tenant if that is not the usual one; ``name`` that of the event.
    ``body`` is a CloudEvent as JSON. ``log`` names the log that it stands in at ``position``.
    """

    id: str
    log: str
    position: int
    place: tuple[str, ...]
    name: str
    body: bytes
    traceparent: str
    tracestate: str = ""


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream ends. ``sequence`` counts all that was ever in it.

    The last entry that is in it stands at ``position`` of ``log``, 0 and empty if there is none. ``whole``:
    it is the last that was ever in it, nothing after it was removed.
    """

    sequence: int
    log: str = ""
    position: int = 0
    whole: bool = False


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the entries are in the stream, counted from the first, and where it ends now."""

    taken: int
    sequence: int


class StreamUnavailable(Exception):
    """The stream cannot be read or written now, for a reason that is fit to be logged.

    What was to be appended may be in it or not.
    """


class EventStream(Protocol):
    """The log told to programs elsewhere, in order. Every method may raise ``StreamUnavailable``."""

    @property
    def body_max(self) -> int:
        """The largest body that it takes, in bytes."""
        ...

    async def end(self) -> StreamEnd:
        """Where it ends."""
        ...

    async def append(self, entries: Sequence[Entry], *, after: int) -> Appended:
        """Append in this order. Each goes in only right after the one before, the first after ``after``."""
        ...
