"""Wake-up hints: *look again*.

Duty: wake those who wait for a handoff, an inbox or the registry. A hint may be lost; who waits
reads the store with a cursor and loses nothing.
Not here: what happened. That is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class _Waiter:
    """One waiter of one topic."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, *, timeout_s: float) -> bool:
        """Wait for a publish since the last wait. False after ``timeout_s`` seconds."""
        if not self._event.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


class LocalNotifier:
    """Wake-ups within one process."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[_Waiter]] = {}

    def publish(self, topic: str) -> None:
        """Wake everybody who listens to ``topic``."""
        for waiter in self._waiters.get(topic, ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake everybody: something that concerns all has changed, such as that the process stops."""
        for topic in list(self._waiters):
            self.publish(topic)

    @contextmanager
    def listen(self, topic: str) -> Generator[_Waiter]:
        """Listen from now until the context ends."""
        waiter = _Waiter()
        waiters = self._waiters.setdefault(topic, set())
        waiters.add(waiter)
        try:
            yield waiter
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(topic, None)
