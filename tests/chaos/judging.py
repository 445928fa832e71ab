"""What callers were told, what agents did and what the log says, held against each other."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from a2a_handoff.stores import open_store
from a2a_handoff.stores.verification import verify
from tests.acceptance.test_kill_under_load import Load, every_handoff, text_of
from tests.chaos.agents import WORDS, Staffer, read_diary
from tests.support.served import ENDS, Served, kind_of

#: An end may be late by as long as nobody was there to write it, and by this.
LATE_S = 10.0
#: Kinds of tasks that may be done twice; all others have ``replay_safe: false``.
HARMLESS = "harmless"
FAULTS_MAX = 30


@dataclass(slots=True)
class Verdict:
    """What was found. ``faults`` empty: nothing was lost, nothing done twice."""

    tasks: int = 0
    handoffs: int = 0
    events: int = 0
    effects: int = 0
    states: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def hold(self, true: bool, fault: str) -> None:
        """Note a fault unless that is true."""
        if not true:
            self.faults.append(fault)

    def lines(self) -> list[str]:
        rest = len(self.faults) - FAULTS_MAX
        return [
            f"{self.tasks} tasks, {self.handoffs} handoffs, {self.events} events, {self.effects} effects",
            " ".join(f"{state}: {count}" for state, count in sorted(self.states.items())),
            f"{len(self.faults)} faults",
            *(f"  {fault}" for fault in self.faults[:FAULTS_MAX]),
            *([f"  and {rest} more"] if rest > 0 else []),
        ]


Outage = tuple[float, float]


def judge(
    load: Load, brokers: Iterable[Served], staff: Mapping[str, Staffer], outages: Iterable[Outage]
) -> Verdict:
    """While the brokers run, and all handoffs have ended. ``outages``: when nobody could write."""
    verdict = Verdict(tasks=len(load.tasks))
    for fault in load.faults:
        # Who finds nobody until its own deadline has passed is told so.
        verdict.hold("deadline is in the past" in fault, fault)
    gaps = sorted(outages)
    first, *others = brokers
    handoffs = {h["handoff_id"]: h for h in every_handoff(first)}
    told = {task_id: (kind, message_id) for message_id, (kind, task_id) in load.tasks.items()}
    for task_id in told.keys() - handoffs.keys():
        # A result that came too late makes a handoff the newest, which pages that are read now do not show.
        if first.http.get(f"/api/handoffs/{task_id}").is_success:
            handoffs[task_id] = first.handoff(task_id)
    verdict.hold(told.keys() == handoffs.keys(), f"not told or not there: {told.keys() ^ handoffs.keys()}")
    verdict.handoffs = len(handoffs)
    verdict.states = Counter(h["state"] for h in handoffs.values())

    runs = effects_of(staff.values(), {message: task_id for message, (_, task_id) in load.tasks.items()})
    verdict.effects = sum(len(done) for done in runs.values())
    for task_id in runs.keys() - handoffs.keys():
        verdict.faults.append(f"{task_id} was done and is not there")
    for task_id, handoff in handoffs.items():
        kind = told.get(task_id, ("", ""))[0]
        log = first.events(task_id)
        verdict.events += len(log)
        for fault in _faults(kind, handoff, log, runs[task_id], gaps):
            verdict.faults.append(
                f"{task_id} {kind} {handoff['state']}: {fault}: {[kind_of(e) for e in log]}"
            )
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
    gaps: Iterable[Outage],
) -> Iterable[str]:
    state = handoff["state"]
    if [e["seq"] for e in log] != list(range(1, len(log) + 1)):
        yield "its log has holes"
    if [kind_of(e) for e in log if kind_of(e).removeprefix("handoff_") in ENDS] != [f"handoff_{state}"]:
        yield "its log does not say how it ended"
    latest = _seconds(handoff["deadline"])
    for since, until in gaps:
        if since <= latest + LATE_S:
            latest = max(latest, until)
    if _seconds(handoff["ended_at"]) > latest + LATE_S:
        yield f"it ended {_seconds(handoff['ended_at']) - latest:.1f} s late"
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


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


def replay(store_url: str) -> list[str]:
    """What is wrong in the store itself: every state has to be what its log gives."""

    async def run() -> list[str]:
        store = open_store(store_url)
        await store.open()
        try:
            return (await verify(store)).faults
        finally:
            await store.close()

    return asyncio.run(run())
