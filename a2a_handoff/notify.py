"""Wake-up hints: *look again*.

Duty: wake those who wait for a handoff, an inbox or the registry. A hint may be lost; who waits
reads the store with a cursor and loses nothing.
Not here: what happened. That is in the log.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class _Waiter:
    """One waiter of its topics, from when it is entered until it is left.

    ``asyncio.Event`` and ``asyncio.timeout`` would do the same at three times the cost, and every blocking
    call waits here.
    """

    __slots__ = ("_future", "_topics", "_waiters", "_woken")

    def __init__(self, waiters: dict[str, set[_Waiter]], topics: tuple[str, ...]) -> None:
        self._waiters = waiters
        self._topics = topics
        self._woken = False
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        for topic in self._topics:
            self._waiters.setdefault(topic, set()).add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for topic in self._topics:
            others = self._waiters[topic]
            others.discard(self)
            if not others:
                del self._waiters[topic]

    def wake(self) -> None:
        self._woken = True
        self._end()

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, *, timeout_s: float) -> bool:
        """Wait for a publish since the last wait. False after ``timeout_s`` seconds."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            alarm = loop.call_later(timeout_s, self._end)
            try:
                await self._future
            finally:
                alarm.cancel()
                self._future = None
        woken, self._woken = self._woken, False
        return woken


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
        for topic in self._waiters:
            self.publish(topic)

    def listen(self, *topics: str) -> _Waiter:
        """Listen to all of ``topics`` from when the context is entered until it ends."""
        return _Waiter(self._waiters, topics)
