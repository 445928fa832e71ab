"""The agents that tests hire: each with a name and an address of its own, on one server."""

from __future__ import annotations

import itertools
from typing import Any

from tests.support.agents import Agent, Script, card, completes
from tests.support.puppet import Puppet, follow_the_test
from tests.support.running import Broker

_NUMBERS = itertools.count(1)


class Street:
    """An ASGI application of many agents, each at an address of its own."""

    def __init__(self) -> None:
        self.url = ""
        self._agents: dict[str, Agent] = {}
        self._gate = Agent(completes)

    def settle(self, agent: Agent) -> str:
        """Give an agent an address."""
        path = f"/{len(self._agents) + 1}/"
        self._agents[path] = agent
        return self.url + path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Where there is no agent there is a card: the broker looks whether the server answers."""
        await self._agents.get(scope["path"], self._gate)(scope, receive, send)


class Staff:
    """Registers agents under names of their own."""

    def __init__(self, broker: Broker, street: Street) -> None:
        self._broker, self._street = broker, street
        self._puppets: list[Puppet] = []

    def hire(self, script: Script, stem: str = "worker", **more: Any) -> tuple[str, Agent]:
        """An agent that does as its script says. ``more`` is for its card."""
        return self._register(Agent(script), stem, **more)

    def puppet(self, stem: str = "puppet", **more: Any) -> tuple[str, Puppet]:
        """An agent that does what the test says."""
        agent = Puppet(follow_the_test)
        self._puppets.append(agent)
        name, _ = self._register(agent, stem, **more)
        return name, agent

    def _register(self, agent: Agent, stem: str, *, demands: str = "", **more: Any) -> tuple[str, Any]:
        """``demands`` is an extension without which the agent does nothing."""
        name = f"{stem}-{next(_NUMBERS)}"
        made = card(self._street.settle(agent), **more)
        if demands:
            made["capabilities"]["extensions"].append({"uri": demands, "required": True})
        self._broker.register(name, card=made)
        return name, agent

    def dismiss(self) -> None:
        """Let go of every call that waits."""
        for agent in self._puppets:
            agent.release()
