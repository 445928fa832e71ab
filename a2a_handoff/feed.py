"""The newest events of the handoffs that are under way, kept at hand.

Duty: spare streams, waiting callers and the dispatcher a read of the store for what was committed a
moment ago, here.
Rules: bounded; only a cache: whoever falls behind it reads the store from its cursor on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import Recorded


class Feed:
    """The last ``events_per_handoff`` events of the last ``handoffs`` handoffs."""

    def __init__(self, *, handoffs: int = 4096, events_per_handoff: int = 128) -> None:
        self._handoffs = handoffs
        self._events = events_per_handoff
        self._logs: OrderedDict[str, deque[Recorded]] = OrderedDict()
        self._states: OrderedDict[str, Handoff] = OrderedDict()

    def add(self, recorded: Sequence[Recorded], states: Iterable[Handoff]) -> None:
        """Take in what was committed, and the states after it. A gap to what is kept drops the older part."""
        for item in recorded:
            log = self._logs.get(item.handoff_id)
            if log is None:
                log = self._logs[item.handoff_id] = deque(maxlen=self._events)
            elif log and log[-1].seq + 1 != item.seq:
                log.clear()
            log.append(item)
            self._logs.move_to_end(item.handoff_id)
        for handoff in states:
            self._states[handoff.id] = handoff
            self._states.move_to_end(handoff.id)
        while len(self._logs) > self._handoffs:
            self._logs.popitem(last=False)
        while len(self._states) > self._handoffs:
            self._states.popitem(last=False)

    def state(self, handoff_id: str) -> Handoff | None:
        """The state after the newest commit of this process; another replica may have gone on since."""
        return self._states.get(handoff_id)

    def after(self, handoff_id: str, seq: int) -> list[Recorded] | None:
        """The events after ``seq``, or ``None`` if the feed does not reach back that far."""
        log = self._logs.get(handoff_id)
        if not log or log[0].seq > seq + 1:
            return None
        return [item for item in log if item.seq > seq]

    def forget(self, handoff_id: str) -> None:
        """Drop a handoff whose log is owned by another writer now."""
        self._logs.pop(handoff_id, None)
        self._states.pop(handoff_id, None)
