"""How a store is used at this moment, for the operator's metrics.

Duty: who waits for a connection to read with, and which writes wait to be durable.
Rules: counted where it happens, for a fraction of a microsecond; read from any thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque


class Readers:
    """Reads, and the connections that they take turns at. Safe for threads."""

    def __init__(self) -> None:
        self.waiting = 0
        self.busy = 0
        self.waited_s = 0.0
        """Seconds that reads waited for a connection, all together."""
        self._lock = threading.Lock()

    def came(self) -> float:
        """A read waits from now on; the moment, for ``began`` or ``left``."""
        with self._lock:
            self.waiting += 1
        return time.monotonic()

    def began(self, since: float) -> None:
        """A read has its connection; ``done`` gives that back."""
        with self._lock:
            self.waiting -= 1
            self.waited_s += time.monotonic() - since
            self.busy += 1

    def left(self, since: float) -> None:
        """A read waits no more, and has got none."""
        with self._lock:
            self.waiting -= 1
            self.waited_s += time.monotonic() - since

    def done(self) -> None:
        """A read is over."""
        with self._lock:
            self.busy -= 1


class Line:
    """Writes that are taken in and not durable yet, in their order. One thread changes it."""

    def __init__(self) -> None:
        self._since: deque[float] = deque()

    def join(self) -> None:
        """Another one is taken in."""
        self._since.append(time.monotonic())

    def leave(self, count: int) -> None:
        """The first ``count`` have their answer."""
        for _ in range(count):
            self._since.popleft()

    def refuse(self, count: int) -> None:
        """The last ``count`` have theirs before the others: they will not be written."""
        for _ in range(count):
            self._since.pop()

    def __len__(self) -> int:
        return len(self._since)

    @property
    def oldest_s(self) -> float:
        """For how many seconds the first one has waited; 0 if none waits."""
        try:
            return time.monotonic() - self._since[0]
        except IndexError:  # also if it left just now
            return 0.0
