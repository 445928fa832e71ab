"""A broker that is known by its address, and an agent that calls it back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.calling import CallingAgent, calling_agent
from tests.support.running import Broker, broker, kept_port
from tests.support.wire import eventually


@contextmanager
def served(folder: Path, generation: str = "1.0", **settings: Any) -> Generator[tuple[Broker, CallingAgent]]:
    """A broker that is known by its address, and an agent that calls back."""
    port = kept_port()
    known: dict[str, Any] = {"public_url": f"http://127.0.0.1:{port}"} | settings
    with calling_agent(generation) as agent, broker(folder, port=port, **known) as b:
        b.register("caller", card=agent.card)
        yield b, agent


def begun(b: Broker, agent: CallingAgent, text: str = "work") -> str:
    """A task that the agent has and is at work on; nobody waits for it any more."""
    task = b.send(text, wait=False, context={"target_agent": "caller"})
    b.until(task["id"], "acknowledged")
    idle(b)
    return task["id"]


def idle(b: Broker) -> None:
    """Wait until no conversation with an agent is under way."""
    eventually(lambda: not b.app.service.dispatcher._talks)
