"""What callers were told, what agents did and what the log says, held against each other."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from a2a_handoff.ledger import IDLE_S
from a2a_handoff.stores import open_store
from a2a_handoff.stores.verification import verify
from tests.acceptance.test_kill_under_load import Load, every_handoff, text_of
from tests.chaos.agents import WORDS, Staffer, read_diary
from tests.chaos.storm import Outage
from tests.support.served import ENDS, Served, kind_of

#: For so long a broker that stands still holds its work, in seconds: the setting ``work_lease`` of a campaign.
LEASE_S = 3.0
#: Seconds in which somebody could write an end, after the deadline, and did not. Who should have may stand still:
#: the lease has to end, another broker has to look, which it does every ``IDLE_S``, and the machine is busy.
LATE_S = LEASE_S + IDLE_S + 2.0
#: After an outage, in seconds: brokers look for the database, and try again what they could not do, once a second.
RECOVERY_S = 2.0
#: Kinds of tasks that may be done twice; all others have ``replay_safe: false``.
HARMLESS = "harmless"
FAULTS_MAX = 30


@dataclass(slots=True)
class Verdict:
    """What was found. ``faults`` empty: nothing was lost, nothing done twice."""

    tasks: int = 0
    handoffs: int = 0
    effects: int = 0
    told: int = 0
    late: int = 0
    """Tasks that callers could not hand over before their own deadline."""
    latest_s: float = 0.0
    """How long after its deadline the last end came, without the time in which nobody could write it."""
    states: Counter[str] = field(default_factory=Counter[str])
    log: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Every event, by id, as a broker shows it."""
    faults: list[str] = field(default_factory=list[str])

    def hold(self, true: bool, fault: str) -> None:
        """Note a fault unless that is true."""
        if not true:
            self.faults.append(fault)

    def lines(self) -> list[str]:
        rest = len(self.faults) - FAULTS_MAX
        return [
            (
                f"{self.tasks} tasks, {self.handoffs} handoffs, {len(self.log)} events, {self.effects} effects"
                f", {self.told} told in the stream"
                f"; {self.late} came too late, the latest end {self.latest_s:.1f} s after its deadline"
            ),
            ", ".join(f"{state} {count}" for state, count in sorted(self.states.items())),
            f"{len(self.faults)} faults",
            *(f"  {fault}" for fault in self.faults[:FAULTS_MAX]),
            *([f"  and {rest} more"] if rest > 0 else []),
        ]


def judge(
    load: Load, brokers: Iterable[Served], staff: Mapping[str, Staffer], outages: Iterable[Outage]
) -> Verdict:
    """While the brokers run, and all handoffs have ended. ``outages``: when nobody could write."""
    verdict = Verdict(tasks=len(load.tasks))
    for fault in load.faults:
        # Who finds nobody until its own deadline has passed is told so.
        late = "deadline is in the past" in fault
        verdict.late += late
        verdict.hold(late, fault)
    gaps = joined(outages)
    first, *others = brokers
    began = time.time()
    handoffs = {h["handoff_id"]: h for h in every_handoff(first)}
    told = {task_id: (kind, message_id) for message_id, (kind, task_id) in load.tasks.items()}
    for task_id in told.keys() - handoffs.keys():
        found = first.http.get(f"/api/handoffs/{task_id}")
        verdict.hold(found.is_success, f"{task_id} was promised and is not there")
        if found.is_success:
            handoffs[task_id] = found.json()
            # Who moves to the front while a listing is read page by page, as with a late result, is on no page.
            moved = _seconds(handoffs[task_id]["updated_at"]) >= began
            verdict.hold(moved, f"{task_id} is on no page of the listing, and has not moved")
    for task_id in handoffs.keys() - told.keys():
        verdict.faults.append(f"{task_id} is there and nobody was told")
    verdict.handoffs = len(handoffs)
    verdict.states = Counter(f"{told.get(i, ('',))[0]} {h['state']}" for i, h in handoffs.items())

    runs = effects_of(staff.values(), {message: task_id for message, (_, task_id) in load.tasks.items()})
    verdict.effects = sum(len(done) for done in runs.values())
    for task_id in runs.keys() - handoffs.keys():
        verdict.faults.append(f"{task_id} was done and is not there")
    for task_id, handoff in handoffs.items():
        kind = told.get(task_id, ("", ""))[0]
        log = first.events(task_id)
        verdict.log |= {event["id"]: event for event in log}
        late_s = _late_s(handoff, gaps)
        verdict.latest_s = max(verdict.latest_s, late_s)
        for fault in _faults(kind, handoff, log, runs[task_id], late_s):
            verdict.faults.append(f"{task_id} {kind} {handoff['state']}: {fault}: {story(log)}")
        shown = first.handoff(task_id)
        for broker in others:
            same = broker.handoff(task_id) == shown
            verdict.hold(same, f"{task_id} is not the same at {broker.url}")
        verdict.hold(first.task(task_id)["id"] == task_id, f"{task_id} cannot be read")
    return verdict


def effects_of(staff: Iterable[Staffer], task_ids: Mapping[str, str]) -> dict[str, list[str]]:
    """Who has done each task, an entry for each time. Agents name tasks by their text or their id."""
    runs: dict[str, list[str]] = defaultdict(list)
    for agent in staff:
        for entry in read_diary(agent.diary):
            if errand := entry.get("errand"):
                runs[task_ids.get(errand, errand)].append(agent.name)
    return runs


def _faults(
    kind: str,
    handoff: dict[str, Any],
    log: list[dict[str, Any]],
    done: list[str],
    late_s: float,
) -> Iterable[str]:
    state = handoff["state"]
    if state not in ENDS:
        yield "it did not end"
        return
    if [e["seq"] for e in log] != list(range(1, len(log) + 1)):
        yield "its log has holes"
    if [kind_of(e) for e in log if kind_of(e).removeprefix("handoff_") in ENDS] != [f"handoff_{state}"]:
        yield "its log does not say how it ended"
    if late_s > LATE_S:
        yield f"it ended {late_s:.1f} s late"
    offered = {e["data"]["agent_id"] for e in log if kind_of(e) == "handoff_offered"}
    if not offered >= set(done):
        yield f"done by {done}, and offered to {sorted(offered)}"
    if kind != HARMLESS:
        if len(done) > 1:
            yield f"done by {done}"
        if state == "returned" and done:
            yield f"came back, but was done by {done}"
    if state == "completed" and not done:
        yield "nobody did it"
    if state == "completed" and kind == "talker" and text_of(log) != "".join(WORDS):
        yield f"its artifact is {text_of(log)!r}"
    if state not in ("completed", "expired", "returned"):
        yield "no agent ends a task like that"


def _late_s(handoff: Mapping[str, Any], gaps: Sequence[Outage]) -> float:
    if not handoff["ended_at"]:
        return 0.0
    return idle(_seconds(handoff["deadline"]), _seconds(handoff["ended_at"]), gaps)


def story(log: Iterable[Mapping[str, Any]]) -> str:
    """What the log says, with the seconds since its beginning."""
    began = 0.0
    words: list[str] = []
    for event in log:
        at = _seconds(event["time"])
        began = began or at
        words.append(f"{at - began:.1f} {kind_of(event)}")
    return ", ".join(words)


def joined(outages: Iterable[Outage], recovery_s: float = RECOVERY_S) -> list[Outage]:
    """In order and apart from each other, each with the time that it takes to recover from it."""
    found: list[Outage] = []
    for since, until in sorted(outages):
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until + recovery_s))
        else:
            found.append((since, until + recovery_s))
    return found


def idle(since: float, until: float, gaps: Sequence[Outage]) -> float:
    """Seconds between two moments in which somebody could write. ``gaps`` are ``joined``."""
    away = sum(max(0.0, min(until, gone_until) - max(since, gone)) for gone, gone_until in gaps)
    return max(0.0, until - since) - away


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


def replay(store_url: str) -> tuple[list[str], list[str]]:
    """What is wrong in the store itself: every state has to be what its log gives. And the ids of all events."""

    async def run() -> tuple[list[str], list[str]]:
        store = open_store(store_url)
        await store.open()
        try:
            ids: list[str] = []
            after = 0
            while page := await store.read_log(after=after):
                ids += [f"{recorded.handoff_id}/{recorded.seq}" for recorded in page]
                after = page[-1].position
            return (await verify(store)).faults, ids
        finally:
            await store.close()

    return asyncio.run(run())
