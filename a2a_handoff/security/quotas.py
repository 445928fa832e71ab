"""How much one caller, and all of them together, may take of a broker.

Duty: count what is open: streams, sockets, waits for an answer or for work; bound how often one may call.
Rules: who is over a limit is told so before anything is stored, and when to come again. Where nobody has to
say who it is, all callers are one: of what is open only the limit for all of them holds then. Each broker
counts for itself. How often is a library's to say (GCRA, which lets short bursts through).
Not here: who calls (``principals``, ``bearer``), what stays open (``transports``), callers without a good
token, who cost little; to keep them away is a proxy's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from throttled import MemoryStore, RateLimiterType, Throttled, per_sec

from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import Gate, Principal

#: Seconds after which something may have been closed.
_AGAIN_S = 5.0
#: Principals that are known to the limit of requests; one that was forgotten has made none for long.
_KNOWN_MAX = 100_000


class Quotas:
    """Counts for one broker. For the event loop.

    ``streams_max`` is how much may be open in all, ``streams_each`` how much of one principal. ``rate`` is
    how many requests of one principal are taken in a second, in the long run; ``burst`` how many at once.
    """

    def __init__(
        self, *, streams_max: int, streams_each: int, rate: int | None = None, burst: int = 1
    ) -> None:
        self._streams_max = streams_max
        self._streams_each = streams_each
        self._open: Counter[tuple[str, str]] = Counter()
        self._total = 0
        self._limiter = None if rate is None else _limiter(rate, burst)

    @property
    def rated(self) -> bool:
        """Whether it is bounded how often one may call."""
        return self._limiter is not None

    def spend(self, principal: Principal) -> None:
        """A principal makes a request. Raises ``HandoffError`` (``rate_limited``) if it is one too many."""
        if self._limiter is None:
            return
        result = self._limiter.limit(f"{principal.tenant}/{principal.name}")
        if result.limited:
            raise HandoffError(
                Code.RATE_LIMITED,
                f"You make more requests than one caller may. Wait {math.ceil(result.state.retry_after)} s.",
                retry_after_s=result.state.retry_after,
            )

    @contextmanager
    def hold(self, principal: Principal) -> Generator[None]:
        """Something of a caller's is open meanwhile.

        Raises ``HandoffError``: ``rate_limited`` if too much of its own is, ``unavailable`` if too much of
        all callers is.
        """
        key = (principal.tenant, principal.name)
        if principal.authenticated and self._open[key] >= self._streams_each:
            raise HandoffError(
                Code.RATE_LIMITED,
                f"{self._streams_each} streams, sockets and waits of yours are open, and no more may be. "
                "Close one, or poll.",
                facts={"limit_streams": str(self._streams_each)},
                retry_after_s=_AGAIN_S,
            )
        if self._total >= self._streams_max:
            raise HandoffError(
                Code.UNAVAILABLE,
                "The broker has as many streams, sockets and waits open as it may. Try again later, or poll.",
                facts={"limit_streams": str(self._streams_max)},
                retry_after_s=_AGAIN_S,
            )
        self._open[key] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def _limiter(rate: int, burst: int) -> Throttled:
    return Throttled(
        using=RateLimiterType.GCRA.value,
        quota=per_sec(rate, burst=burst),
        store=MemoryStore(options={"MAX_SIZE": _KNOWN_MAX}),
    )


class RatedGate:
    """Lets in whom another gate lets in, as often as it may come."""

    def __init__(self, gate: Gate, quotas: Quotas) -> None:
        self._gate = gate
        self._quotas = quotas

    @property
    def closed(self) -> bool:
        """Whether callers must say, and prove, who they are."""
        return self._gate.closed

    async def admit(self, authorization: str) -> Principal:
        """Who calls. Raises ``HandoffError``: ``rate_limited``, and what the other gate raises."""
        principal = await self._gate.admit(authorization)
        self._quotas.spend(principal)
        return principal

    def open(self) -> None:
        """Begin to get ready."""
        self._gate.open()

    async def close(self) -> None:
        """End what runs for it."""
        await self._gate.close()
