"""Every alert fires on bad traffic and is silent on good, in a real Prometheus that scrapes a real broker."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents import Agent, Answer, Call, card, said
from tests.support.prometheus import Prometheus, prometheus
from tests.support.running import handoff_context, kept_port, running, send_params
from tests.support.served import served
from tests.support.wire import eventually

FIVE = {
    "HandoffContextLoss",
    "HandoffRetriesHigh",
    "HandoffSuccessRateLow",
    "HandoffTaskCompletionLow",
    "HandoffTransitionSlow",
}
ABSENT = {"HandoffMetricsAbsent"}
#: As much good traffic as any alert wants to see.
ENOUGH = "handoff:handoffs:increase10m >= 20 and handoff:tasks:increase1h >= 20"
WITHIN_S = 90.0
#: Seconds between two tasks.
PACE_S = 0.1
_ECHOED = ("user_intent", "key_facts", "task_progress", "user_preferences", "conversation_summary")


class Moody:
    """An agent that answers offers. In a bad mood it is slow, forgets the context, fails, and gives back."""

    def __init__(self) -> None:
        self.bad = False
        self._offers = itertools.count()
        self._tasks = itertools.count()

    async def __call__(self, agent: Agent, call: Call) -> Answer:
        if "offer" in call.ours:
            offer = call.ours["offer"]
            echo = {name: offer[name] for name in _ECHOED if name in offer}
            if self.bad:
                echo |= {"key_facts": {}, "user_intent": ""}
                await asyncio.sleep(3.4 if next(self._offers) % 3 == 0 else 0)
            return {"message": said("ready", ready={"offer_id": offer["offer_id"], "receipt": echo})}
        match next(self._tasks) % 4 if self.bad else None:
            case 0:
                return {"task": agent.task("FAILED", "broken")}
            case 1:
                return {"message": said("no more", release={"reason": "cannot"})}
            case _:
                return {"task": agent.task("COMPLETED", "done")}


@contextmanager
def traffic(url: str, mood: Moody) -> Generator[None]:
    """A task every so often; in a bad mood each fifth is for an agent that is down."""
    over = threading.Event()

    async def send(http: httpx.AsyncClient, number: int) -> None:
        target = "dead" if mood.bad and number % 5 == 0 else "worker"
        params = send_params(f"m-{number}", context=handoff_context(target_agent=target))
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        await http.post("/", json=body, headers={"A2A-Version": "1.0"})

    async def run() -> None:
        async with (
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http,
            asyncio.TaskGroup() as tasks,
        ):
            for number in itertools.count():
                tasks.create_task(send(http, number))
                if await asyncio.to_thread(over.wait, PACE_S):
                    return

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def fires(watch: Prometheus, expected: set[str]) -> None:
    try:
        eventually(lambda: watch.firing() == expected, within_s=WITHIN_S)
    except AssertionError:
        assert watch.firing() == expected


@pytest.mark.timeout(400)
def test_each_alert_fires_on_bad_traffic_and_clears_on_good(tmp_path: Path) -> None:
    mood = Moody()
    with (
        served(tmp_path, retry_delay=0.05) as b,
        running(Agent(mood)) as worker,
        prometheus(tmp_path, f"127.0.0.1:{b.port}") as watch,
    ):
        b.register("worker", card=card(worker, speaks=True))
        b.register("dead", card=card(f"http://127.0.0.1:{kept_port()}", speaks=True))
        with traffic(b.url, mood):
            eventually(lambda: watch.value(ENOUGH), within_s=WITHIN_S)
            fires(watch, set())
            mood.bad = True
            fires(watch, FIVE)
            mood.bad = False
            fires(watch, set())
        b.stop()
        fires(watch, ABSENT)
        assert [rule["name"] for rule in watch.rules() if rule["health"] != "ok"] == []
