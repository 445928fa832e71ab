"""The demo from the first process to the last.

Duty: start the broker and the agents, play the scenes, say where to look next, clean up.
Rules: nothing is left behind: no process, no file, no port. The exit code is 0 only if every scene
proved what it shows.
Not here: the scenes (``scenes``), the processes (``processes``).
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from a2a_handoff.demo.cards import at_port, cards_folder, port_of, read_card
from a2a_handoff.demo.processes import ChildFailed, Processes, free_port
from a2a_handoff.demo.scenes import SCENES, SENDER, Missed, Stage
from a2a_handoff.demo.show import Show
from a2a_handoff.kit.client import BrokerClient

AGENTS = ("triage-agent", "billing_agent", "senior_agent", "code-editor", "browser-agent", "second-opinion")

#: Registered by its card, and nothing listens there.
DOWN = "arabic_specialist"

_LEASH = "a2a_handoff.demo.leash"
_AGENT = "a2a_handoff.demo.agent"

#: Short waits: the demo shows what happens, not how long an operator would wait for it.
_BROKER_ENV = {
    "A2A_HANDOFF_ACK_WAIT": "1",
    "A2A_HANDOFF_RETRY_DELAY": "0.2",
    "A2A_HANDOFF_HOST": "127.0.0.1",
}


async def play(*, keep: bool, show: Show) -> int:
    """Run the demo. 0 if everything happened, 1 and the missed step if not."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="a2a-handoff-demo-") as name:
        folder = Path(name)
        with Processes(folder) as processes:
            try:
                url = await _start(processes, folder, show)
            except (ChildFailed, FileNotFoundError) as error:
                show.missed(str(error))
                return 1
            show.note(f"broker at {url}, {len(AGENTS)} agents; ready after {time.monotonic() - began:.1f} s")
            failed = await _scenes(url, show)
            if failed:
                return 1
            show.note(f"\nAll {len(SCENES)} scenes proved, in {time.monotonic() - began:.1f} s.")
            if keep:
                _how_to_play(url, show)
                await asyncio.Event().wait()
    return 0


async def _start(processes: Processes, folder: Path, show: Show) -> str:
    """Start everything; the address of the broker."""
    cards = folder / "agent_cards"
    cards.mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    show.note("starting the broker and the agents ...")
    source = cards_folder()
    ports: dict[str, int] = {}
    for agent in (*AGENTS, DOWN):
        card = read_card(source, agent)
        ports[agent] = free_port(port_of(card))
        (cards / f"{agent}.json").write_text(json.dumps(at_port(card, ports[agent])), encoding="utf-8")
    env = {
        **_BROKER_ENV,
        "A2A_HANDOFF_PORT": url.rpartition(":")[2],
        "A2A_HANDOFF_STORE": f"sqlite:///{folder / 'demo.db'}",
        "A2A_HANDOFF_CARDS": str(cards),
    }
    processes.start("broker", _LEASH, "serve", ready_url=f"{url}/readyz", env=env)
    for agent in AGENTS:
        port = ports[agent]
        args = (agent, "--port", str(port), "--broker", url, "--cards", str(cards), "--leash")
        ready_url = f"http://127.0.0.1:{port}/.well-known/agent-card.json"
        processes.start(agent, _AGENT, *args, ready_url=ready_url, env={})
    await processes.ready()
    return url


async def _scenes(url: str, show: Show) -> bool:
    """Play them all. True if one missed a step."""
    async with BrokerClient(url, agent_id=SENDER) as broker:
        stage = Stage(broker, show)
        for scene in SCENES:
            try:
                await scene(stage)
            except (Missed, TimeoutError) as missed:
                what = str(missed) or "its end, in time"
                show.missed(f"scene {scene.__name__} did not show: {what}")
                return True
    return False


def _how_to_play(url: str, show: Show) -> None:
    """Print what to try while everything runs."""
    show.note(f"""
Everything keeps running. Try:
  curl -s {url}/api/agents
  curl -s {url}/.well-known/agent-card.json
Ctrl-C stops all of it.""")
