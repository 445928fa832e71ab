"""Agents of the simulated world, and the network on which the broker reaches them.

An agent outlives every crash of the broker, remembers its tasks, and counts how often it began each handoff.
The network delays, loses requests, loses answers, cuts streams; what it does is drawn from the world's chance.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from a2a_handoff.core.agents import Agent as Registered
from a2a_handoff.core.events import Outcome, Output, OutputKind
from a2a_handoff.ports import AgentError, Delivery, RemoteState, Sent, Update
from tests.support.agents import URI

_GONE = -32001


@dataclass
class Weather:
    """How bad things are: chances from 0 to 1, and the longest delay in seconds. ``full`` is the disk."""

    lost: float = 0.1
    unanswered: float = 0.1
    cut: float = 0.1
    busy: float = 0.05
    full: float = 0.002
    delay_s: float = 4.0

    @classmethod
    def fair(cls) -> Weather:
        return cls(lost=0.0, unanswered=0.0, cut=0.0, busy=0.0, full=0.0, delay_s=0.01)


@dataclass
class RemoteTask:
    """A task as its agent has it."""

    id: str
    handoff_id: str
    state: RemoteState = RemoteState.WORKING
    outputs: list[Output] = field(default_factory=list[Output])
    metadata: bytes = b""
    ended_at: float | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def update(self, *, snapshot: bool = False, outputs: tuple[Output, ...] = ()) -> Update:
        said = tuple(self.outputs) if snapshot else outputs
        return Update(
            remote_task_id=self.id,
            state=self.state,
            message=b'{"messageId":"s","role":"ROLE_AGENT","parts":[{"text":"x"}]}' if self.metadata else b"",
            metadata=self.metadata,
            outputs=said,
            snapshot=snapshot,
        )

    def change(self, state: RemoteState) -> None:
        self.state = state
        if state.terminal:
            self.ended_at = asyncio.get_running_loop().time()
        self.changed.set()
        self.changed = asyncio.Event()


class PushAgent:
    """Works on what it gets; sometimes it hands on. ``polite``: it answers offers, and does what it got twice once."""

    def __init__(self, name: str, chance: random.Random, *, polite: bool) -> None:
        self.name = name
        self.polite = polite
        self.begun: Counter[str] = Counter()
        self.tasks: dict[str, RemoteTask] = {}
        self.willing = 0.8
        self.others = ("plain", "polite", "polite-2", "puller")
        self._chance = chance
        self._by_offer: dict[str, RemoteTask] = {}
        self._work: set[asyncio.Task[None]] = set()

    def offered(self, ours: dict[str, Any]) -> Update:
        """Its word on an offer."""
        ready = self._chance.random() < self.willing
        word = {"ready" if ready else "declined": {"offer_id": ours["offer_id"]}}
        return Update(reply=True, message=b"{}", metadata=json.dumps({URI: word}).encode())

    def take(self, ours: dict[str, Any]) -> RemoteTask:
        """Begin to work, or go on with what it has."""
        offer_id = ours["offer_id"]
        if self.polite and offer_id in self._by_offer:
            return self._by_offer[offer_id]
        task = RemoteTask(id=f"{self.name}-{len(self.tasks)}", handoff_id=ours["handoff_id"])
        self.tasks[task.id] = self._by_offer[offer_id] = task
        if not self.polite and self._chance.random() > self.willing:
            task.state = RemoteState.REJECTED
            return task
        self.begun[task.handoff_id] += 1
        work = asyncio.get_running_loop().create_task(self._do(task))
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        return task

    async def _do(self, task: RemoteTask) -> None:
        for number in range(self._chance.randrange(3)):
            await asyncio.sleep(self._chance.uniform(0, 8))
            if task.state.terminal:
                return
            body = json.dumps({"artifactId": f"a-{number}", "parts": [{"text": "x"}]}).encode()
            task.outputs.append(
                Output(kind=OutputKind.ARTIFACT, body=body, last=True, artifact_id=f"a-{number}")
            )
            task.change(RemoteState.WORKING)
        await asyncio.sleep(self._chance.uniform(0, 12))
        if task.state.terminal:
            return
        fate = self._chance.random()
        if fate > 0.8:
            onward = {"target_agent": self._chance.choice(self.others), "user_intent": "Finish it."}
            task.metadata = json.dumps({URI: {"handoff": onward}}).encode()
        task.change(RemoteState.FAILED if fate < 0.1 else RemoteState.COMPLETED)


class Network:
    """``ports.AgentClient``: the way from one life of the broker to all agents."""

    def __init__(self, agents: dict[str, PushAgent], weather: Weather, chance: random.Random) -> None:
        self._agents = agents
        self._chance = chance
        self.weather = weather

    async def _way(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, self.weather.delay_s))

    async def _there(self) -> None:
        """The request is on its way. Raises ``AgentError`` if it does not arrive."""
        await self._way()
        if self._chance.random() < self.weather.lost:
            raise AgentError(Outcome.TARGET_UNAVAILABLE, "not connected", sent=Sent.NO, again=True)
        if self._chance.random() < self.weather.busy:
            raise AgentError(
                Outcome.TARGET_UNAVAILABLE, "status 503", sent=Sent.NO, again=True, retry_after_s=1.0
            )

    async def _back(self) -> None:
        """The answer is on its way. Raises ``AgentError`` if it is lost."""
        await self._way()
        if self._chance.random() < self.weather.unanswered:
            raise AgentError(Outcome.TIMEOUT, "no answer", sent=Sent.MAYBE)

    async def probe(self, agent: Registered, *, timeout_s: float) -> None:
        await self._there()

    async def send(
        self, agent: Registered, delivery: Delivery, *, first_wait_s: float | None
    ) -> AsyncGenerator[Update]:
        target = self._agents[agent.agent_id]
        ours = json.loads(delivery.message)["metadata"][URI]
        await self._there()
        if "offer" in ours:
            answer = target.offered(ours["offer"])
            await self._back()
            yield answer
            return
        if "rescind" in ours or "rescinded" in ours:
            return
        task = target.take(ours)
        await self._back()
        async for update in self._follow(task):
            yield update

    async def _follow(self, task: RemoteTask) -> AsyncGenerator[Update]:
        told = len(task.outputs)
        yield task.update(snapshot=True)
        while not task.state.terminal:
            changed = task.changed
            if told == len(task.outputs):
                await changed.wait()
            if self._chance.random() < self.weather.cut:
                return
            fresh, told = tuple(task.outputs[told:]), len(task.outputs)
            yield task.update(outputs=fresh)

    def _find(self, agent: Registered, remote_task_id: str) -> RemoteTask:
        task = self._agents[agent.agent_id].tasks.get(remote_task_id)
        if task is None:
            raise AgentError(Outcome.TARGET_FAILED, "no such task", sent=Sent.YES, jsonrpc_code=_GONE)
        return task

    async def get(self, agent: Registered, remote_task_id: str) -> Update:
        await self._there()
        update = self._find(agent, remote_task_id).update(snapshot=True)
        await self._back()
        return update

    async def subscribe(self, agent: Registered, remote_task_id: str) -> AsyncGenerator[Update]:
        await self._there()
        async for update in self._follow(self._find(agent, remote_task_id)):
            yield update

    async def cancel(self, agent: Registered, remote_task_id: str, *, traceparent: str = "") -> Update:
        await self._there()
        task = self._find(agent, remote_task_id)
        if not task.state.terminal:
            task.change(RemoteState.CANCELED)
        await self._back()
        return task.update()

    async def close(self) -> None:
        pass
