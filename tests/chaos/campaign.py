"""One campaign: brokers, agents and senders, a storm over them, and what is left of it."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.acceptance.test_kill_under_load import Load
from tests.chaos.agents import NAMES, Staffer
from tests.chaos.judging import HARMLESS, LEASE_S, Verdict, joined, judge, replay
from tests.chaos.plants import PLANTS
from tests.chaos.storm import Broker, Database, Habit, Outage, Storm, Victim
from tests.chaos.telling import Reader, told, untrue
from tests.support.nats import Nats, nats_server
from tests.support.postgres import postgres_server
from tests.support.running import kept_port
from tests.support.served import Served
from tests.support.wire import eventually

SETTINGS: dict[str, Any] = {
    "ack_wait": 2,
    "pull_ack_wait": 5,
    "retry_delay": 0.2,
    "reconcile_every": 0.5,
    "work_lease": LEASE_S,
    "presence": 5,
    "agents": 20,
}
OPEN = ("requested", "offered", "acknowledged", "input_required", "auth_required", "handed_off", "escalated")
STREAM = "events"
BROKERS = Habit((2.0, 8.0), 0.7)
AGENTS = Habit((3.0, 12.0), 0.7)
DATABASE = Habit((6.0, 20.0), 0.6)
HINTS = Habit((4.0, 15.0), 0.6)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    ``store``: ``sqlite`` or ``postgres``. ``hurry`` shortens the calm between blows. ``plants`` names faults of
    the brokers (``plants``).
    """

    store: str
    seed: int
    seconds: float
    deadline_s: float = 30.0
    pace_s: float = 0.15
    hurry: float = 1.0
    plants: tuple[str, ...] = ()

    def plant(self) -> None:
        """Called in the process of a broker."""
        for name in self.plants:
            PLANTS[name]()


class Errands(Load):
    """One kind of task for each agent, and one that may be done twice and has somebody to fall back to."""

    kinds = ("plain", "worker", "talker", "polite", "puller", "socket", HARMLESS)

    def __init__(self, *brokers: Served, plan: Plan) -> None:
        super().__init__(*brokers, seed=plan.seed, pace_s=plan.pace_s)
        self._deadline_s = plan.deadline_s

    def context(self, kind: str) -> dict[str, Any]:
        until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self._deadline_s)
        context: dict[str, Any] = {"target_agent": kind, "deadline": until.isoformat()}
        if kind == HARMLESS:
            context |= {"target_agent": "plain", "replay_safe": True, "fallback": ["spare", "worker"]}
        return context


@dataclass(frozen=True, slots=True)
class Report:
    """What happened and what was found. ``outages`` are those of everybody who could have written."""

    storm: Storm
    verdict: Verdict
    outages: Sequence[Outage] = ()

    @property
    def blows(self) -> Counter[str]:
        return self.storm.blows

    def __str__(self) -> str:
        blows = ", ".join(f"{what} {count}" for what, count in sorted(self.blows.items()))
        away = [until - since for since, until in self.outages]
        return "\n".join(
            (
                f"{self.blows.total()} blows: {blows}; {self.storm.missed} missed",
                f"nobody could write {len(away)} times, {sum(away):.0f} s in all, {max(away, default=0):.1f} s at most",
                *self.verdict.lines(),
            )
        )


def run(folder: Path, plan: Plan) -> Report:
    """The whole of it. Everything that was started has ended afterwards.

    What brokers said, agents noted and the log has (``log.jsonl``) is then in ``folder``.
    """
    with _scene(folder, plan) as scene:
        brokers = scene.brokers
        staff = {name: Staffer(name, folder, [b.url for b in brokers]) for name in NAMES}
        victims: dict[str, tuple[Victim, Habit]] = {
            **scene.around,
            **{f"broker-{n}": (Broker(b), BROKERS) for n, b in enumerate(brokers, start=1)},
            **{name: (agent, AGENTS) for name, agent in staff.items()},
        }
        hurried = {name: (victim, _sooner(habit, plan.hurry)) for name, (victim, habit) in victims.items()}
        storm, load = Storm(hurried, plan.seed), Errands(*brokers, plan=plan)
        reader = Reader(scene.nats.url, STREAM) if scene.nats else None
        try:
            for agent in staff.values():
                agent.register(brokers[0])
                agent.start()
            with reader.reading() if reader else nullcontext():
                with load.under_way(), storm.raging():
                    threading.Event().wait(plan.seconds)
                if storm.faults:
                    return Report(storm, Verdict(faults=storm.faults))
                unsettled = _settle(brokers[0], plan.deadline_s)
                outages = storm.outages([n for n in victims if n.startswith("broker-")], ["postgres"])
                verdict = judge(load, brokers, staff, outages)
                verdict.hold(not unsettled, f"{unsettled} handoffs did not end")
                heard = told(scene.nats.url, STREAM, least=len(verdict.log)) if scene.nats else []
                verdict.told = len(heard)
                if reader and heard:
                    reader.catch_up(heard[-1].id)
        finally:
            for agent in staff.values():
                agent.kill()
        for broker in brokers:
            verdict.hold(broker.stop() == 0, f"{broker.url} did not end in order")
            verdict.hold("Traceback" not in broker.words, f"{broker.url} says {_trace(broker.words)}")
        faults, log = replay(scene.store)
        verdict.faults += faults
        if reader:
            verdict.faults += untrue(heard, log, verdict.log)
            verdict.faults += reader.untrue(log, verdict.log)
        with (folder / "log.jsonl").open("w", encoding="utf-8") as book:
            book.writelines(f"{json.dumps(event)}\n" for event in verdict.log.values())
    return Report(storm, verdict, joined(outages, 0.0))


def _sooner(habit: Habit, hurry: float) -> Habit:
    least, most = habit.calm
    return Habit((least / hurry, most / hurry), habit.kills)


def _trace(words: str) -> str:
    return words[max(words.find("Traceback"), 0) :][:1_500]


def _settle(b: Served, deadline_s: float) -> int:
    """Wait until nothing is under way any more. How many handoffs still are."""
    query = {"state": ",".join(OPEN), "limit": 1}

    def open_ones() -> int:
        return b.http.get("/api/handoffs", params=query).json()["total"]

    with suppress(AssertionError):
        eventually(lambda: open_ones() == 0, within_s=deadline_s + 30)
    return open_ones()


@dataclass(frozen=True, slots=True)
class Scene:
    """The brokers, what is around them, the URL of their store, and the server of their stream."""

    brokers: list[Served]
    around: dict[str, tuple[Victim, Habit]]
    store: str
    nats: Nats | None


@contextmanager
def _scene(folder: Path, plan: Plan) -> Generator[Scene]:
    with ExitStack() as stack:
        around: dict[str, tuple[Victim, Habit]] = {}
        settings = SETTINGS
        store = f"sqlite:///{folder / 'broker.db'}"
        count = 1
        nats: Nats | None = None
        if plan.store == "postgres":
            server = postgres_server()
            database = server.migrated()
            stack.callback(server.drop, database)
            store, count = server.url(database), 3
            nats = stack.enter_context(nats_server(_made(folder / "nats")))
            settings = SETTINGS | {"nats": nats.url, "nats_stream": STREAM}
            around["postgres"] = (Database(server, Random(f"{plan.seed}:postgres:which")), DATABASE)
            around["nats"] = (nats, HINTS)
        brokers = [
            Served(
                _made(folder / str(n)),
                {},
                {**settings, "store": store, "port": kept_port()},
                forked=True,
                before=plan.plant if plan.plants else None,
            )
            for n in range(count)
        ]
        for broker in brokers:
            stack.callback(broker.close)
            broker.start()
        yield Scene(brokers, around, store, nats)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
