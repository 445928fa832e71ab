"""Time and chance, as the service sees them."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall-clock time and chance; the only sources of both."""

    def now(self) -> float:
        """Epoch seconds. They do not go back, unless the machine's clock is set back by much."""
        ...

    def ahead_s(self) -> float:
        """Seconds that ``now`` is ahead of the machine's clock, which was set back; else 0."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations within the process."""
        ...

    def new_id(self) -> str:
        """A new UUIDv7 (RFC 9562), canonical; ids of one process sort by time."""
        ...

    def new_span_id(self) -> str:
        """16 random lower-case hex digits, not all zeros."""
        ...

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        ...
