"""``kill -9`` at random moments under load: nothing is lost, nothing done twice, every task ends.

The moments come from a seed, which is printed: ``KILL_SEED=n`` plays them again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.support.agents import Agent, Answer, Call, Script, asks, card, completes, hands_on, said
from tests.support.running import running, send_params
from tests.support.served import ENDS, Served, kind_of, served
from tests.support.wire import eventually

KILLS = 20
BUDGET_S = 35.0
PACE_S = 0.05
DEADLINE_S = 15.0
WORDS = [f"{n} " for n in range(8)]
SETTINGS: dict[str, Any] = {"ack_wait": 5, "retry_delay": 0.2, "reconcile_every": 0.5, "agents": 20}


async def takes_its_time(agent: Agent, call: Call) -> Answer:
    """A plain agent that is at work when the broker dies."""
    await asyncio.sleep(0.05)
    return await completes(agent, call)


async def talks(agent: Agent, call: Call) -> Answer:
    """Streams its words, slowly."""

    async def events() -> AsyncIterator[dict[str, Any]]:
        task = agent.task("WORKING")
        yield {"task": dict(task)}
        parts: list[dict[str, str]] = []
        task["artifacts"] = [{"artifactId": "text", "parts": parts}]
        for number, word in enumerate(WORDS):
            await asyncio.sleep(0.02)
            parts.append({"text": word})
            yield agent.artifact(task, "text", word, append=number > 0, last=number == len(WORDS) - 1)
        yield agent.status(task, "COMPLETED", "done")

    if call.method == "SubscribeToTask":
        return {"task": agent.tasks[call.params["id"]]}
    return events()


class Polite:
    """An agent that answers offers and runs every task once, as its offer id says."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.offers: dict[str, set[tuple[str, int]]] = {}
        self._done: dict[str, Answer] = {}

    async def __call__(self, agent: Agent, call: Call) -> Answer:
        ours = call.ours.get("offer", call.ours)
        offer_id = ours["offer_id"]
        self.offers.setdefault(ours["handoff_id"], set()).add((offer_id, ours["attempt"]))
        await asyncio.sleep(0.02)
        if "offer" in call.ours:
            return {"message": said("ready", ready={"offer_id": offer_id})}
        if offer_id not in self._done:
            self.runs[offer_id] += 1
            self._done[offer_id] = await completes(agent, call)
        return self._done[offer_id]


KINDS = ("plain", "talker", "polite", "first", "asker", "harmless")


class Load:
    """Callers that repeat every message until it is taken, as they should, at whichever of the brokers."""

    kinds = KINDS

    def __init__(self, *brokers: Served, seed: int, pace_s: float = PACE_S) -> None:
        self._brokers = brokers
        self._pace_s = pace_s
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._over = threading.Event()
        self._numbers = itertools.count(1)
        self.tasks: dict[str, tuple[str, str]] = {}
        """Message id: (kind, task id)."""
        self.faults: list[str] = []

    @contextmanager
    def under_way(self, callers: int = 3) -> Generator[None]:
        threads = [threading.Thread(target=self._call) for _ in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(30)
            self._over.set()

    def context(self, kind: str) -> dict[str, Any]:
        context: dict[str, Any] = {"target_agent": kind}
        if kind == "harmless":
            context |= {"replay_safe": True, "fallback": ["spare-1", "spare-2"]}
        elif kind != "polite":
            soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=DEADLINE_S)
            context["deadline"] = soon.isoformat()
        return context

    def _call(self) -> None:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(httpx.Client(base_url=b.url, timeout=10, trust_env=False))
                for b in self._brokers
            ]
            while not self._stop.wait(self._pace_s):
                number = next(self._numbers)
                kind = self._chance.choice(self.kinds)
                self._until_taken(clients, f"m-{number}", kind)
                http = self._chance.choice(clients)
                with suppress(httpx.TransportError):
                    asking = http.get("/api/handoffs", params={"state": "input_required"}).json()
                    self._reply(http, asking.get("handoffs", []))

    def _until_taken(self, clients: list[httpx.Client], message_id: str, kind: str) -> None:
        message = {"messageId": message_id}
        params = send_params(message_id, wait=False, context=self.context(kind), message=message)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        while True:
            try:
                http = self._chance.choice(clients)
                answer = http.post("/", json=body, headers={"A2A-Version": "1.0"}).json()
            except httpx.TransportError:
                if self._over.wait(0.01):
                    return
                continue
            if "result" in answer:
                known = self.tasks.setdefault(message_id, (kind, answer["result"]["task"]["id"]))
                if known[1] != answer["result"]["task"]["id"]:
                    self.faults.append(f"{message_id} is two tasks")
                return
            if answer["error"]["data"][0]["reason"] != "UNAVAILABLE":
                self.faults.append(f"{message_id}: {answer['error']}")
                return

    def _reply(self, http: httpx.Client, handoffs: list[dict[str, Any]]) -> None:
        """Answer what is asked. The broker may die of it, or the task may have ended meanwhile."""
        for handoff in handoffs:
            if handoff["state"] == "input_required":
                task_id = handoff["handoff_id"]
                message = {"taskId": task_id, "messageId": f"reply-to-{task_id}"}
                params = send_params("blue", wait=False, message=message)
                body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
                with suppress(httpx.TransportError):
                    http.post("/", json=body, headers={"A2A-Version": "1.0"})

    def settled(self) -> list[dict[str, Any]]:
        """Every handoff, once all have ended."""

        def over() -> list[dict[str, Any]]:
            found = every_handoff(self._brokers[0])
            self._reply(self._brokers[0].http, found)
            return found if all(h["state"] in ENDS for h in found) else []

        return eventually(over, within_s=DEADLINE_S + 30)


def every_handoff(b: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = b.http.get("/api/handoffs", params={"limit": 500, "cursor": cursor}).json()
        found += page["handoffs"]
        cursor = page["next_cursor"]
        if not cursor:
            return found


class Staff:
    """The agents, and whether anything was lost or done twice."""

    def __init__(self, stack: ExitStack) -> None:
        self.polite = Polite()
        scripts: dict[str, tuple[Script, dict[str, Any]]] = {
            "plain": (takes_its_time, {}),
            "talker": (talks, {"streaming": True}),
            "polite": (self.polite, {"speaks": True}),
            "first": (hands_on(target_agent="polite", user_intent="Finish it."), {}),
            "asker": (asks, {}),
            "harmless": (takes_its_time, {}),
            "spare-1": (takes_its_time, {}),
            "spare-2": (takes_its_time, {}),
        }
        self.agents = {name: Agent(script) for name, (script, _) in scripts.items()}
        self._cards = {
            name: card(stack.enter_context(running(agent)), **scripts[name][1])
            for name, agent in self.agents.items()
        }

    def register(self, b: Served) -> None:
        for name, described in self._cards.items():
            b.register(name, card=described)

    def lost_and_repeated_nothing(
        self, load: Load, handoffs: list[dict[str, Any]], logs: dict[str, list[dict[str, Any]]]
    ) -> None:
        """Hold what was told against what was done. All handoffs have ended."""
        assert load.faults == []
        # Every message is one task, and there is nothing else but what agents handed on.
        roots = {h["handoff_id"]: h for h in handoffs if not h["parent_handoff_id"]}
        assert sorted(roots) == sorted(task_id for _, task_id in load.tasks.values())
        # The log is whole.
        positions = sorted(event["position"] for log in logs.values() for event in log)
        assert positions == list(range(1, len(positions) + 1))
        for log in logs.values():
            assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
            ends = [kind_of(event) for event in log if kind_of(event).removeprefix("handoff_") in ENDS]
            assert len(ends) == 1, [kind_of(event) for event in log]

        # Every task ended as it can: who answers offers has done it.
        for kind, task_id in load.tasks.values():
            state = roots[task_id]["state"]
            assert state in ends_of(kind, logs[task_id]), (kind, [kind_of(event) for event in logs[task_id]])
            if kind == "talker" and state == "completed":
                assert text_of(logs[task_id]) == "".join(WORDS)

        # A plain agent hears of a task once, a reply once; a polite one under one offer id for each attempt.
        for name in ("plain", "talker", "first", "asker"):
            heard = Counter(call.message["messageId"] for call in self.agents[name].calls if call.message)
            assert [message for message, count in heard.items() if count > 1] == [], name
        assert [offer for offer, count in self.polite.runs.items() if count > 1] == []
        assert all(len(offers) == 1 for offers in self.polite.offers.values())


def test_kills_at_random_moments_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    with ExitStack() as stack, served(tmp_path, forked=True, **SETTINGS) as b:
        staff = Staff(stack)
        staff.register(b)
        load = Load(b, seed=seed)
        began, kills = time.monotonic(), 0
        with load.under_way():
            while kills < KILLS and time.monotonic() - began < BUDGET_S:
                threading.Event().wait(chance.uniform(0.05, 0.6))
                b.kill()
                b.start()
                kills += 1
        handoffs = load.settled()
        print(f"{kills} kills, {len(load.tasks)} tasks, {Counter(h['state'] for h in handoffs)}")
        assert "Traceback" not in b.words, b.words
        logs = {h["handoff_id"]: b.events(h["handoff_id"]) for h in handoffs}
    assert len(load.tasks) > kills
    staff.lost_and_repeated_nothing(load, handoffs, logs)


def ends_of(kind: str, log: list[dict[str, Any]]) -> tuple[str, ...]:
    """How a task of this kind may end. One that may run twice comes back once a kill cut off every agent."""
    tried = {event["data"]["agent_id"] for event in log if kind_of(event) == "handoff_offered"}
    if kind == "harmless":
        return ("completed", "returned") if tried >= {"harmless", "spare-1", "spare-2"} else ("completed",)
    return ("completed",) if kind == "polite" else ("completed", "expired")


def text_of(log: list[dict[str, Any]]) -> str:
    """The artifact as one who followed the log has it."""
    text = ""
    for event in log:
        for output in event["data"].get("outputs", []):
            if output["kind"] == "artifact":
                said_now = "".join(part["text"] for part in output["body"]["parts"])
                text = text + said_now if output["append"] else said_now
    return text
