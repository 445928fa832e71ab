"""A world without a wall clock: an event loop whose time passes when nobody has anything to do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from a2a_handoff.clock import SteadyTime

EPOCH = 1_800_000_000.0

_T = TypeVar("_T")

#: The process that a task belongs to; what is not of the broker's survives its crash.
process: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """All tasks of one life of the broker."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """A task of this process, whoever asks."""
        before = process.set(self)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            process.reset(before)

    async def kill(self) -> None:
        """Nothing of it runs any more."""
        while self.tasks:
            for task in self.tasks:
                task.cancel()
            await asyncio.wait(self.tasks)


class NothingWillHappen(AssertionError):
    """Everybody waits, and for no time: a deadlock."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Never sleeps and does no input or output."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0
        self._selector = self
        self.set_task_factory(_factory)

    def time(self) -> float:
        return self._passed

    def select(self, timeout: float | None) -> list[Any]:
        """Let the time pass until the next alarm."""
        if timeout is None:
            raise NothingWillHappen
        self._passed += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _factory(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
    owner = process.get()
    if owner is not None:
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)
    return task


class VirtualClock:
    """``ports.Clock`` on a virtual loop. ``skew`` is how wrong the machine's clock goes."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._count = 0
        self.skew = 0.0
        self.restart()

    def restart(self) -> None:
        """A process that starts knows nothing of what the machine's clock said before."""
        self._steady = SteadyTime(lambda: EPOCH + self._loop.time() + self.skew, self._loop.time)

    def now(self) -> float:
        return self._steady.now()

    def ahead_s(self) -> float:
        return self._steady.ahead_s()

    def monotonic(self) -> float:
        return self._loop.time()

    def new_id(self) -> str:
        self._count += 1
        digits = f"{self._count:012x}7{self._chance.getrandbits(12):03x}8{self._chance.getrandbits(60):015x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def new_span_id(self) -> str:
        return f"{self._chance.getrandbits(64) or 1:016x}"

    def jitter(self) -> float:
        return self._chance.random()
