"""Whether a store holds together: every state is what its log gives, and the log has no holes.

Duty: read the whole log once, handoff by handoff, on any store, also while brokers write to it.
Not here: whether the files of a database are sound (the database's own check).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.ports import Recorded, Store

_PAGE = 1000
#: Faults that are kept in words; the others are counted.
FAULTS_MAX = 20


@dataclass(slots=True)
class Findings:
    """What was read, and what is wrong. ``faults`` are the first of ``wrong`` in words."""

    handoffs: int = 0
    events: int = 0
    wrong: int = 0
    faults: list[str] = field(default_factory=list[str])

    def note(self, fault: str) -> None:
        """One more fault."""
        self.wrong += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)


async def verify(store: Store) -> Findings:
    """Read everything that is older than the call. Raises ``StoreUnavailable``."""
    found = Findings()
    ends: dict[str, int] = {}  # of the logs that are met again further on
    async for recorded in _log(store, await store.log_end()):
        found.events += 1
        handoff_id = recorded.handoff_id
        if handoff_id not in ends:
            found.handoffs += 1
            ends[handoff_id] = await _verify_one(store, handoff_id, found)
        if recorded.seq >= ends[handoff_id]:
            del ends[handoff_id]
    return found


async def _log(store: Store, end: int) -> AsyncIterator[Recorded]:
    after = 0
    while page := await store.read_log(after=after, limit=_PAGE):
        for recorded in page:
            if recorded.position > end:
                return
            yield recorded
        after = page[-1].position


async def _verify_one(store: Store, handoff_id: str, found: Findings) -> int:
    """The number of its last event."""
    # The state first: the log may have grown by the time that it is read, and is then as long at least.
    kept = await store.load_handoff(handoff_id)
    version = 0 if kept is None else kept.version
    state: Handoff | None = None
    after = 0
    whole = True
    while page := await store.read_events(handoff_id, after=after):
        for recorded in page:
            if whole and recorded.seq != after + 1:
                found.note(f"the log of handoff {handoff_id} has no event {after + 1}")
                whole = False
            after = recorded.seq
            if whole and after <= version:
                state = evolve(state, recorded.event)
    if kept is None:
        if after:  # else it was removed meanwhile
            found.note(f"handoff {handoff_id} has a log and no state")
    elif after < kept.version:
        found.note(f"the log of handoff {handoff_id} ends at event {after}, its state is at {kept.version}")
    elif whole and state != kept:
        found.note(f"the state of handoff {handoff_id} is not what its log gives")
    return after
