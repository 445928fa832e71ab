"""How much one caller, and all of them together, may take of a broker at once.

Duty: count what is open: streams, sockets, waits for an answer or for work.
Rules: who is over a limit is told so before anything is stored, and when to come again. Where nobody has to
say who it is, all callers are one, so that only the limit for all of them holds.
Not here: how often one may call (``rates``), who calls (``principals``, ``bearer``), what stays open
(``transports``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import Principal

#: Seconds after which something may have been closed.
_AGAIN_S = 5.0


class Quotas:
    """Counts for one broker. For the event loop.

    ``streams_max`` is how much may be open in all, ``streams_each`` how much of one principal.
    """

    def __init__(self, *, streams_max: int, streams_each: int) -> None:
        self._streams_max = streams_max
        self._streams_each = streams_each
        self._open: Counter[tuple[str, str]] = Counter()
        self._total = 0

    def open_of(self, tenant: str, name: str) -> int:
        """How much a principal has open."""
        return self._open[tenant, name]

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
