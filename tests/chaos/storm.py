"""Who is hit, when and how: each victim has a thread and a chance of its own, made from the seed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tests.support.postgres import Postgres
from tests.support.served import Served

#: Longest time that anything is down or stands still, in seconds, before it is started or goes on.
DOWN_S = 4.0
#: Longest time that a start takes on a machine that has much else to do.
START_S = 120.0


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


class Storm:
    """Blows until it is over. ``blows`` counts by victim and kind, ``faults`` says what did not come back."""

    def __init__(self, victims: Mapping[str, tuple[Victim, Habit]], seed: int) -> None:
        self._victims = victims
        self._seed = seed
        self._over = threading.Event()
        self.blows: Counter[str] = Counter()
        self.downs: list[tuple[str, float, float]] = []
        """Who was down or stood still, from when to when (seconds since 1970)."""
        self.faults: list[str] = []

    def outages(self, together: Sequence[str], alone: Sequence[str]) -> list[tuple[float, float]]:
        """When all of ``together`` were down at once, or one of ``alone`` was."""
        found = [(since, until) for name, since, until in self.downs if name in alone]
        common = [(0.0, float("inf"))]
        for name in together:
            downs = [(since, until) for victim, since, until in self.downs if victim == name]
            both = ((max(a, c), min(b, d)) for a, b in common for c, d in downs)
            common = [(since, until) for since, until in both if since < until]
        return found + common

    @contextmanager
    def raging(self) -> Generator[None]:
        """It begins and ends; afterwards everything runs."""
        threads = [threading.Thread(target=self._hit, args=(name,)) for name in self._victims]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(START_S + DOWN_S)

    def _hit(self, name: str) -> None:
        victim, habit = self._victims[name]
        chance = random.Random(f"{self._seed}:{name}")
        try:
            while not self._over.wait(chance.uniform(*habit.calm)):
                kills, down = chance.random() < habit.kills, chance.uniform(0, 1)
                since = time.time()
                if kills:
                    victim.kill()
                    self._over.wait(down)
                    victim.start()
                else:
                    victim.freeze()
                    self._over.wait(down * DOWN_S)
                    victim.thaw()
                self.downs.append((name, since, time.time()))
                self.blows[f"{name} {'killed' if kills else 'stopped'}"] += 1
        except Exception as error:  # noqa: BLE001 - a thread's fault is a finding
            self.faults.append(f"{name}: {error!r}")
