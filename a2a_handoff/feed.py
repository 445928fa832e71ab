"""The newest events of the handoffs that are under way, kept at hand.

Duty: spare streams and waiting callers a read of the store for what was committed a moment ago.
Rules: bounded; only a cache: whoever falls behind it reads the store from its cursor on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from a2a_handoff.ports import Recorded


class Feed:
    """The last ``events_per_handoff`` events of the last ``handoffs`` handoffs."""

    def __init__(self, *, handoffs: int = 4096, events_per_handoff: int = 128) -> None:
        self._handoffs = handoffs
        self._events = events_per_handoff
        self._logs: OrderedDict[str, deque[Recorded]] = OrderedDict()

    def add(self, recorded: Sequence[Recorded]) -> None:
        """Take in what was committed. A gap to what is kept drops the older part."""
        for item in recorded:
            log = self._logs.get(item.handoff_id)
            if log is None:
                log = self._logs[item.handoff_id] = deque(maxlen=self._events)
            elif log and log[-1].seq + 1 != item.seq:
                log.clear()
            log.append(item)
            self._logs.move_to_end(item.handoff_id)
        while len(self._logs) > self._handoffs:
            self._logs.popitem(last=False)

    def after(self, handoff_id: str, seq: int) -> list[Recorded] | None:
        """The events after ``seq``, or ``None`` if the feed does not reach back that far."""
        log = self._logs.get(handoff_id)
        if not log or log[0].seq > seq + 1:
            return None
        return [item for item in log if item.seq > seq]

    def forget(self, handoff_id: str) -> None:
        """Drop a handoff whose log is owned by another writer now."""
        self._logs.pop(handoff_id, None)
