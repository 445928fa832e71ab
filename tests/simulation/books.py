"""The measurements of a simulated broker, held against its log: each event is counted once, and what a crash took.

Only what a dying process had committed and not told any more may be missing: a commit is counted by whoever made it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from a2a_handoff.core import events as ev
from a2a_handoff.core.handoff import Handoff, evolve, requested
from a2a_handoff.ports import Change, Notified, Recorded
from a2a_handoff.telemetry.instruments import measure
from tests.support.memory_store import MemoryData


class Books:
    """``ports.Recorder`` over crashes, and what must be true of what it was told."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data
        self._told: Counter[int] = Counter()
        self._lost: set[int] = set()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def record(self, change: Change) -> None:
        before = change.before
        for recorded in change.recorded:
            after = evolve(before, recorded.event)
            self._told[recorded.position] += 1
            for measurement in measure(before, recorded.event, after, lambda _tenant, agent: agent):
                self._counts[after.id][measurement.instrument] += 1
            before = after

    def notified(self, result: Notified) -> None:
        pass

    def crashed(self) -> None:
        """The process is gone: what it had not told by now nobody will."""
        self._lost |= {one.position for one in self._data.log} - self._told.keys()

    def check(self, broken: Callable[[str, str], object]) -> None:
        """When all is over and told."""
        logs: defaultdict[str, list[Recorded]] = defaultdict(list)
        for one in self._data.log:
            logs[one.handoff_id].append(one)
            expected = 0 if one.position in self._lost else 1
            if self._told[one.position] != expected:
                broken(one.handoff_id, f"event {one.seq} was told {self._told[one.position]} times")
        for handoff_id, log in logs.items():
            if self._lost.isdisjoint(one.position for one in log):
                counted, expected = dict(self._counts[handoff_id]), _counts([one.event for one in log])
                counted.pop("handoff.transition.duration", None)  # of agents alone, not of people
                counted.pop("handoff.context.score", None)
                if counted != expected:
                    broken(handoff_id, f"its log says {expected}, measured was {counted}")


def _counts(log: Sequence[ev.Event]) -> dict[str, int]:
    """How often each instrument measures a handoff that has ended, by the published formulas."""
    first = log[0]
    assert isinstance(first, ev.HandoffRequested)
    h: Handoff = requested(first)
    for event in log[1:]:
        h = evolve(h, event)
    acknowledged = any(isinstance(event, ev.HandoffAcknowledged) for event in log)
    decided = acknowledged or h.outcome is not None or h.state is ev.State.COMPLETED
    found = {
        "handoff.hops": 1,
        "handoff.dispatch.attempts": sum(
            isinstance(event, ev.HandoffOffered | ev.RedeliveryScheduled) for event in log
        ),
        "handoff.duration": int(decided),
        "handoff.outcomes": int(h.state.terminal),
        "handoff.task.duration": int(h.state.terminal and h.acked_at is not None),
    }
    return {name: count for name, count in found.items() if count}
