"""Work that is done once, however often it is delivered.

Duty: run a piece of work once for its key, keep what it said, and let every later delivery of the
same key see all of it, from the first word on.
Rules: memory is bounded in runs and in bytes; the oldest finished runs are forgotten first, one that
is still going on never. For one event loop; not for threads.
Not here: what the work is, and what its words are (the type ``T``).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Run(Generic[T]):
    """One piece of work and everything that it has said so far."""

    def __init__(self, size: Callable[[T], int], finished: Callable[[], None]) -> None:
        self._size = size
        self._finished = finished
        self._said: list[T] = []
        self._news = asyncio.Event()
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self.followers = 0
        self.over = False
        self.bytes = 0

    @property
    def said(self) -> tuple[T, ...]:
        """The words so far."""
        return tuple(self._said)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin. Called once, by ``Runs.join``."""
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._done)

    def say(self, item: T) -> None:
        """Add a word; every follower gets it. After the end it is kept for later deliveries too."""
        self._said.append(item)
        self.bytes += self._size(item)
        self._wake()

    def stop(self) -> None:
        """End the work now. Followers end after what was said."""
        if self._task is not None:
            self._task.cancel()
        self._end(None)

    async def follow(self) -> AsyncGenerator[T, None]:
        """Everything said, from the first word, until the work ends. Raises what the work raised.

        A follower that leaves does not end the work: its connection may just be gone.
        """
        self.followers += 1
        heard = 0
        try:
            while True:
                while heard < len(self._said):
                    heard += 1
                    yield self._said[heard - 1]
                if self.over:
                    if self._failure is not None:
                        raise self._failure
                    return
                await self._news.wait()
        finally:
            self.followers -= 1

    def _done(self, task: asyncio.Task[None]) -> None:
        self._end(None if task.cancelled() else task.exception())

    def _end(self, failure: BaseException | None) -> None:
        if not self.over:
            self.over = True
            self._failure = failure
            self._finished()
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Runs(Generic[T]):
    """The runs that are remembered, oldest first.

    ``runs_max`` and ``bytes_max`` bound the finished ones; ``size`` gives the bytes of one word.
    """

    def __init__(self, size: Callable[[T], int], *, runs_max: int, bytes_max: int) -> None:
        self._size = size
        self._runs_max = runs_max
        self._bytes_max = bytes_max
        self._runs: OrderedDict[Hashable, Run[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def in_flight(self) -> int:
        """Runs that have not ended."""
        return sum(not run.over for run in self._runs.values())

    def get(self, key: Hashable) -> Run[T] | None:
        """The run of ``key``, if it is remembered."""
        return self._runs.get(key)

    def join(self, key: Hashable, work: Callable[[Run[T]], Coroutine[Any, Any, None]]) -> Run[T]:
        """The run of ``key``, started with ``work`` if this is the first delivery."""
        run = self._runs.get(key)
        if run is None:
            run = Run[T](self._size, self._forget)
            self._runs[key] = run
            run.start(work(run))
            self._forget()
        return run

    def _forget(self) -> None:
        surplus = len(self._runs) - self._runs_max
        held = sum(run.bytes for run in self._runs.values())
        for key in [key for key, run in self._runs.items() if run.over]:
            if surplus <= 0 and held <= self._bytes_max:
                return
            surplus -= 1
            held -= self._runs.pop(key).bytes
