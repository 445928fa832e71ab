"""The newest events of the handoffs that are under way, kept at hand.

Duty: spare streams, waiting callers and the dispatcher a read of the store for what was committed a
moment ago, here.
Rules: bounded in number and in bytes; only a cache: whoever falls behind it reads the store from its
cursor on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import get_args

from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import Recorded

#: Wakes those who follow the whole log.
LOG_TOPIC = "log"

#: What an event takes in memory beside its payload, roughly.
_EVENT_BYTES = 1_000

#: The payloads of each kind of event, but for outputs. The package of a request is in its metadata too.
_PAYLOADS: dict[type[Event], tuple[str, ...]] = {
    kind: tuple(name for name in ("message", "request_metadata") if name in kind.__struct_fields__)
    for kind in get_args(Event)
}


class _Log:
    """The newest events of one handoff, and how much they weigh."""

    __slots__ = ("events", "size")

    def __init__(self) -> None:
        self.events: deque[Recorded] = deque()
        self.size = 0

    def append(self, item: Recorded) -> None:
        self.events.append(item)
        self.size += _weight(item.event)

    def drop_oldest(self) -> None:
        self.size -= _weight(self.events.popleft().event)


class Feed:
    """The last ``events_per_handoff`` events of the last ``handoffs`` handoffs, ``bytes_max`` of all."""

    def __init__(
        self, *, handoffs: int = 4096, events_per_handoff: int = 128, bytes_max: int = 256 << 20
    ) -> None:
        self._handoffs = handoffs
        self._events = events_per_handoff
        self._bytes_max = bytes_max
        self._size = 0
        self._logs: OrderedDict[str, _Log] = OrderedDict()
        self._states: OrderedDict[str, Handoff] = OrderedDict()

    def add(self, recorded: Sequence[Recorded], states: Iterable[Handoff]) -> None:
        """Take in what was committed, and the states after it. A gap to what is kept drops the older part.

        What another broker committed may be heard of after what was built upon it here: it is known then.
        """
        for item in recorded:
            log = self._logs.get(item.handoff_id)
            if log is not None and log.events and log.events[-1].seq >= item.seq:
                self._logs.move_to_end(item.handoff_id)
                continue
            if log is not None and log.events and log.events[-1].seq + 1 != item.seq:
                self._drop(item.handoff_id)
                log = None
            if log is None:
                log = self._logs[item.handoff_id] = _Log()
            self._size -= log.size
            log.append(item)
            while len(log.events) > self._events or log.size > self._bytes_max:
                log.drop_oldest()
            self._size += log.size
            self._logs.move_to_end(item.handoff_id)
        for handoff in states:
            known = self._states.get(handoff.id)
            if known is None or known.version <= handoff.version:
                self._states[handoff.id] = handoff
            self._states.move_to_end(handoff.id)
        while len(self._logs) > self._handoffs or self._size > self._bytes_max:
            self._drop(next(iter(self._logs)))
        while len(self._states) > self._handoffs:
            self._states.popitem(last=False)

    def state(self, handoff_id: str) -> Handoff | None:
        """The state after the newest commit of this process; another replica may have gone on since."""
        return self._states.get(handoff_id)

    def after(self, handoff_id: str, seq: int) -> list[Recorded] | None:
        """The events after ``seq``, or ``None`` if the feed does not reach back that far."""
        log = self._logs.get(handoff_id)
        if log is None or not log.events or log.events[0].seq > seq + 1:
            return None
        return [item for item in log.events if item.seq > seq]

    def first(self, handoff_id: str) -> Event | None:
        """The event that a handoff began with, or ``None`` if the feed does not have it any more."""
        log = self._logs.get(handoff_id)
        return log.events[0].event if log is not None and log.events and log.events[0].seq == 1 else None

    def forget(self, handoff_id: str) -> None:
        """Drop a handoff whose log is owned by another writer now."""
        self._drop(handoff_id)
        self._states.pop(handoff_id, None)

    def _drop(self, handoff_id: str) -> None:
        log = self._logs.pop(handoff_id, None)
        if log is not None:
            self._size -= log.size


def _weight(event: Event) -> int:
    """How many bytes an event takes, as far as its sender decides that."""
    size = _EVENT_BYTES
    for name in _PAYLOADS[type(event)]:
        size += len(getattr(event, name))
    for output in getattr(event, "outputs", ()):
        size += len(output.body)
    return size
