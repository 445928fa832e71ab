"""An agent that cannot listen on a port: it registers, waits for work by long poll, and does it over REST."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.running import WAIT_S, Broker

CURSOR = "a2a-handoff-cursor"
RESYNC = "a2a-handoff-resync"


@dataclass
class Puller:
    """The agent, with connections of its own."""

    broker: Broker
    name: str
    http: httpx.Client
    threads: ThreadPoolExecutor
    instance: str = ""

    def watch(self, timeout: float = 0, **params: Any) -> httpx.Response:
        """Wait for the next offer. ``agent`` is this one if the test names no other."""
        asked = {"agent": self.name, "timeout": timeout} | params
        return self.http.get("/api/handoffs/watch", params=asked)

    def watching(self, timeout: float = 30, **params: Any) -> Future[httpx.Response]:
        """The same in the background; comes back when the broker waits."""
        before = self.waits()
        watch = self.threads.submit(self.watch, timeout, **params)
        self.until_waits(before + 1, or_else=watch)
        return watch

    def waits(self) -> int:
        """How many watches of this agent the broker holds."""
        return len(self.broker.app.service.inbox._seats.get(f"inbox:default:{self.name}", ()))

    def until_waits(self, count: int, *, or_else: Future[Any] | None = None) -> None:
        """Return when the broker holds so many watches of this agent; fails after a while."""

        async def wait() -> None:
            async with asyncio.timeout(WAIT_S):
                while self.waits() != count and not (or_else and or_else.done()):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.005)

        self.broker.loop.run(wait())

    def pending(self) -> list[dict[str, Any]]:
        answer = self.http.get("/api/handoffs/pending", params={"target": self.name})
        assert answer.status_code == 200, answer.text
        return answer.json()["handoffs"]

    def act(
        self, verb: str, handoff_id: str, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        """accept, decline, progress, complete, fail or release."""
        said = {"agent_id": self.name} | ({"instance_id": self.instance} if self.instance else {}) | body
        return self.http.post(f"/api/handoffs/{handoff_id}/{verb}", json=said, headers=headers)

    def do(self, verb: str, handoff_id: str, **body: Any) -> dict[str, Any]:
        """The same, and it must be taken."""
        answer = self.act(verb, handoff_id, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def puller(b: Broker, name: str, *, instance: str = "", **registration: Any) -> Generator[Puller]:
    """A registered agent that fetches its work."""
    said = registration | ({"instance_id": instance} if instance else {})
    b.register(name, **said)
    with (
        httpx.Client(base_url=b.url, timeout=60, trust_env=False) as client,
        ThreadPoolExecutor(8, thread_name_prefix=name) as threads,
    ):
        yield Puller(broker=b, name=name, http=client, threads=threads, instance=instance)


def hand_off(b: Broker, **body: Any) -> dict[str, Any]:
    """A new handoff over REST."""
    answer = b.http.post("/api/handoffs", json={"task": "do it"} | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def in_threads(*calls: Any) -> list[Any]:
    """What each call gives; all begin at the same moment."""
    gate = threading.Barrier(len(calls))

    def run(call: Any) -> Any:
        gate.wait(WAIT_S)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
