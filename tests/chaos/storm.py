"""Who is hit, when and how: each victim has a thread and a timetable of its own, made from the seed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tests.support.postgres import Postgres
from tests.support.served import Served

#: Longest time, in seconds, after which what was killed is started and what was stopped goes on.
KILLED_S = 1.0
STOPPED_S = 4.0
#: Longest time that a start takes on a machine that has much else to do.
START_S = 120.0


#: From when to when, in seconds since 1970.
Outage = tuple[float, float]


class Victim(Protocol):
    """A process, or a family of them."""

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class Broker:
    """A broker and who starts it again: it may end by itself as long as its database is away."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.kill, self.freeze, self.thaw = served.kill, served.freeze, served.thaw

    def start(self) -> None:
        until = time.monotonic() + START_S
        self.served.begin()
        while not self.served.answers():
            if not self.served.alive:
                self.served.begin()
            assert time.monotonic() < until, f"it does not start: {self.served.words[-2_000:]}"
            threading.Event().wait(0.05)


class Database:
    """PostgreSQL: its first process is killed, or one of its others, after which it recovers by itself."""

    def __init__(self, server: Postgres, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._gone = False
        self.freeze, self.thaw = server.freeze, server.thaw

    def kill(self) -> None:
        which = self._chance.randrange(100)
        self._gone = which < 50
        if self._gone:
            self._server.kill()
        else:
            self._server.kill_one(which)

    def start(self) -> None:
        if self._gone:
            self._server.start()


@dataclass(frozen=True, slots=True)
class Habit:
    """How a kind of victim is hit. ``calm``: seconds between two blows, from and to. ``kills``: their share."""

    calm: tuple[float, float]
    kills: float


@dataclass(frozen=True, slots=True)
class Blow:
    """When after the beginning a victim is hit, whether it is killed, and how long it stays as it then is."""

    at_s: float
    kills: bool
    for_s: float

    @property
    def kind(self) -> str:
        return "killed" if self.kills else "stopped"


def timetable(seed: int, name: str, habit: Habit) -> Iterator[Blow]:
    """All blows that a victim gets under a seed, however long it takes to come back."""
    chance = random.Random(f"{seed}:{name}")
    at_s = 0.0
    while True:
        at_s += chance.uniform(*habit.calm)
        kills = chance.random() < habit.kills
        for_s = chance.uniform(0, KILLED_S if kills else STOPPED_S)
        yield Blow(at_s, kills, for_s)
        at_s += for_s


@dataclass(frozen=True, slots=True)
class Down:
    """A blow that hit: from when to when its victim was down or stood still, in seconds since 1970."""

    name: str
    since: float
    until: float
    blow: Blow


class Storm:
    """Blows until it is over. ``blows`` counts by victim and kind, ``faults`` says what did not come back.

    A blow whose time passes while its victim is still coming back misses it: ``missed`` counts those.
    """

    def __init__(self, victims: Mapping[str, tuple[Victim, Habit]], seed: int) -> None:
        self._victims = victims
        self._seed = seed
        self._over = threading.Event()
        self.blows: Counter[str] = Counter()
        self.missed = 0
        self.downs: list[Down] = []
        self.faults: list[str] = []

    def outages(self, together: Sequence[str], alone: Sequence[str]) -> list[Outage]:
        """When all of ``together`` were down at once, or one of ``alone`` was."""
        found = [(down.since, down.until) for down in self.downs if down.name in alone]
        common = [(0.0, float("inf"))]
        for name in together:
            downs = [(down.since, down.until) for down in self.downs if down.name == name]
            both = ((max(a, c), min(b, d)) for a, b in common for c, d in downs)
            common = [(since, until) for since, until in both if since < until]
        return found + common

    @contextmanager
    def raging(self) -> Generator[None]:
        """It begins and ends; afterwards everything runs."""
        began = time.monotonic()
        threads = [threading.Thread(target=self._hit, args=(name, began)) for name in self._victims]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(START_S + STOPPED_S)

    def _hit(self, name: str, began: float) -> None:
        victim, habit = self._victims[name]
        try:
            for blow in timetable(self._seed, name, habit):
                wait_s = began + blow.at_s - time.monotonic()
                if wait_s < 0:
                    self.missed += 1
                elif self._over.wait(wait_s):
                    return
                else:
                    self._strike(name, victim, blow)
        except Exception as error:  # noqa: BLE001 - a thread's fault is a finding
            self.faults.append(f"{name}: {error!r}")

    def _strike(self, name: str, victim: Victim, blow: Blow) -> None:
        since = time.time()
        begin, end = (victim.kill, victim.start) if blow.kills else (victim.freeze, victim.thaw)
        print(f"{blow.at_s:7.2f} {name} {blow.kind} for {blow.for_s:.2f} s", flush=True)
        begin()
        self._over.wait(blow.for_s)
        end()
        self.downs.append(Down(name, since, time.time(), blow))
        self.blows[f"{name} {blow.kind}"] += 1
