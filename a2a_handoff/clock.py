"""The wall clock and the source of chance of a running broker.

Everything else gets time, ids and jitter from here, through ``ports.Clock``, so that a simulation can
put its own in.
"""

from __future__ import annotations

import random
import time


class SystemClock:
    """The machine's clock and random numbers."""

    def __init__(self) -> None:
        self._chance = random.Random()
        self._last_ms = 0
        self._sequence = 0

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

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
