"""Wake-ups within one process.

Duty: wake those who wait for a handoff, an inbox or the registry.
Rules: a hint that was published here is never lost here. Where hints may come from elsewhere and be lost on
their way, ``look_s`` has everybody look from time to time without one.
Not here: what happened. That is in the log.
"""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import Self


class _Waiter:
    """One waiter of its topics, from when it is entered until it is left.

    ``asyncio.Event`` and ``asyncio.timeout`` would do the same at three times the cost, and every blocking
    call waits here.
    """

    __slots__ = ("_future", "_notifier", "_topics", "_woken")

    def __init__(self, notifier: LocalNotifier, topics: tuple[str, ...]) -> None:
        self._notifier = notifier
        self._topics = topics
        self._woken = False
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        waiters = self._notifier.waiters
        for topic in self._topics:
            waiters.setdefault(topic, set()).add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waiters = self._notifier.waiters
        for topic in self._topics:
            others = waiters[topic]
            others.discard(self)
            if not others:
                del waiters[topic]

    def wake(self) -> None:
        self._woken = True
        self._end()

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, *, timeout_s: float) -> bool:
        """Wait for a publish since the last wait, or until it is time to look without one.

        False after ``timeout_s`` seconds.
        """
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            look_s = self._notifier.look_s
            if look_s is not None:
                look_s *= 1 - random.random() / 2  # those who were woken together do not look together
            if look_s is not None and look_s < timeout_s:
                alarm = loop.call_later(look_s, self.wake)
            else:
                alarm = loop.call_later(timeout_s, self._end)
            try:
                await self._future
            finally:
                alarm.cancel()
                self._future = None
        woken, self._woken = self._woken, False
        return woken


class LocalNotifier:
    """Wake-ups within one process.

    ``look_s``: after so many seconds at most a waiter is woken without a hint. ``None``: never, for nothing
    happens outside of this process.
    """

    def __init__(self, *, look_s: float | None = None) -> None:
        self.waiters: dict[str, set[_Waiter]] = {}
        self.look_s = look_s

    def publish(self, topic: str) -> None:
        """Wake everybody who listens to ``topic``."""
        self.wake(topic)

    def tell(self, topic: str) -> None:
        """Nobody else is there to be woken."""

    def wake(self, topic: str) -> None:
        """Wake everybody here who listens to ``topic``."""
        for waiter in self.waiters.get(topic, ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake everybody here: something that concerns all has changed, such as that the process stops."""
        for topic in self.waiters:
            self.wake(topic)

    def listen(self, *topics: str) -> _Waiter:
        """Listen to all of ``topics`` from when the context is entered until it ends."""
        return _Waiter(self, topics)
