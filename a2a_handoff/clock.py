"""The wall clock and the source of chance of a running broker.

Duty: everything else gets time, ids and jitter from here, through ``ports.Clock``, so that a simulation can
put its own in.
Rules: time does not go back. A machine's clock that is set back by minutes is given time to catch up: timers
and leases stand in the store as times, and would wait until those come again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

#: Seconds that the broker's time runs ahead of a clock that was set back, at most. What is more is no
#: correction (ntpd refuses it, too): the clock was quite wrong before, and is followed at once.
AHEAD_MAX_S = 1000.0
#: A change of the clock, in seconds, that is worth a line in the log.
TOLD_S = 1.0

_LOG = logging.getLogger("a2a_handoff.clock")


class SteadyTime:
    """Epoch seconds of a wall clock that may be set, which do not go back when it is.

    While ``wall`` is behind what was said already, time passes half as fast as by ``monotonic``, so that
    nothing waits longer than twice its time. A clock that is set forward is followed at once.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        # In one piece: a thread that is interrupted here leaves what was true at one moment.
        self._last = (wall(), monotonic(), 0.0)

    def now(self) -> float:
        """Epoch seconds."""
        last_wall, last_monotonic, ahead = self._last
        wall, monotonic = self._wall(), self._monotonic()
        passed = monotonic - last_monotonic
        set_by = wall - last_wall - passed
        ahead -= set_by + passed / 2
        if not 0.0 < ahead <= AHEAD_MAX_S:
            ahead = 0.0
        self._last = (wall, monotonic, ahead)
        if not -TOLD_S <= set_by <= TOLD_S:
            _tell(set_by, ahead)
        return wall + ahead

    def ahead_s(self) -> float:
        """Seconds that ``now`` is ahead of the wall clock, which was set back; else 0."""
        self.now()
        return self._last[2]


def _tell(set_by: float, ahead: float) -> None:
    if set_by > 0:
        _LOG.warning("the clock of this machine was set forward by %.1f s: what is due is done now", set_by)
    elif ahead:
        _LOG.warning(
            "the clock of this machine was set back by %.1f s: it is given time to catch up with the broker, "
            "which is %.1f s ahead",
            -set_by,
            ahead,
        )
    else:
        _LOG.error(
            "the clock of this machine was set back by %.1f s: what is to be done at a time waits for that",
            -set_by,
        )


class SystemClock(SteadyTime):
    """The machine's clock and random numbers."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(wall, monotonic)
        self._chance = random.Random()
        self._last_ms = 0
        self._sequence = 0

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def new_id(self) -> str:
        """A UUIDv7 (RFC 9562 section 5.7); the ids of this process sort in the order they were made.

        The 12 bits after the time count within one millisecond (section 6.2, method 1); a clock
        that is set back keeps the last time.
        """
        now_ms = time.time_ns() // 1_000_000
        if now_ms > self._last_ms:
            self._last_ms, self._sequence = now_ms, 0
        else:
            self._sequence += 1
            if self._sequence > 0xFFF:
                self._last_ms, self._sequence = self._last_ms + 1, 0
        now_ms, tail = self._last_ms, self._chance.getrandbits(62) | 0b10 << 62
        return (
            f"{now_ms >> 16:08x}-{now_ms & 0xFFFF:04x}-7{self._sequence:03x}"
            f"-{tail >> 48:04x}-{tail & 0xFFFF_FFFF_FFFF:012x}"
        )

    def new_span_id(self) -> str:
        """Eight random bytes in hex; all zeros is not a span id (W3C Trace Context section 3.2.2.4)."""
        return f"{self._chance.getrandbits(64) or 1:016x}"

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        return self._chance.random()
