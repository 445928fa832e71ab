"""The demo from the first process to the last.

Duty: start the broker and the agents, play the scenes, say where to look next, clean up.
Rules: nothing is left behind: no process, no file, no port. The exit code is 0 only if every scene
proved what it shows.
Not here: the scenes (``scenes``), the processes (``processes``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import tempfile
import time
from pathlib import Path

from a2a_handoff.demo.cards import Card, at_port, cards_folder, port_of, read_card
from a2a_handoff.demo.processes import ChildFailed, Processes, bound_socket
from a2a_handoff.demo.show import Show

AGENTS = ("triage-agent", "billing_agent", "senior_agent", "code-editor", "browser-agent", "second-opinion")

#: Registered by its card, and nothing listens there.
DOWN = "arabic_specialist"

#: Short waits: the demo shows what happens, not how long an operator would wait for it.
_BROKER_ENV = {
    "A2A_HANDOFF_HOST": "127.0.0.1",
    "A2A_HANDOFF_ACK_WAIT": "3",
    "A2A_HANDOFF_RETRY_DELAY": "0.2",
    "TIKTOKEN_CACHE_DIR": "",  # else the vocabulary is copied to a folder that stays
}

_NEXT = """Where to look next:
  the trace of scene 1 is {trace_id}; set OTEL_EXPORTER_OTLP_ENDPOINT to see it in Jaeger
  your own agent: docs/tutorial/first-handoff.md; the wire: docs/reference/extension.md"""

_KEPT = """
Everything keeps running until Ctrl-C. Try:
  export A2A_HANDOFF_URL={url}
  a2a-handoff agents list
  a2a-handoff chain {correlation_id}
  a2a-handoff resolve --capability canBrowse "What does the page say?"
  a2a-handoff send --domain billing --fact invoice=INV-1990 "Please refund INV-1990."
  curl -s {url}/api/chains/{correlation_id}"""


async def play(*, keep: bool, show: Show) -> int:
    """Run the demo. 0 if everything happened, 1 and the missed step if not."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="a2a-handoff-demo-")))
        processes = stack.enter_context(Processes(folder))
        try:
            show.note("starting the broker and the agents ...")
            sockets, cards = _place(folder / "agent_cards", stack)
            url = _start_broker(processes, folder)
            # Imported now: a2a-sdk takes seconds, and broker and agents need it at the same time.
            from a2a_handoff.demo.scenes import play_all  # noqa: PLC0415

            for agent in AGENTS:
                processes.start_agent(agent, cards[agent], url, sockets[agent])
            await processes.ready()
        except (ChildFailed, FileNotFoundError) as error:
            show.missed(str(error))
            return 1
        show.note(f"broker at {url}, {len(AGENTS)} agents; ready after {time.monotonic() - began:.1f} s")
        first = await play_all(url, show)
        if first is None:
            show.note(processes.words_of("broker"))
            return 1
        show.note(f"\nEvery scene proved what it shows, in {time.monotonic() - began:.1f} s.")
        show.note(_NEXT.format(**first))
        if keep:
            show.note(_KEPT.format(url=url, **first))
            await asyncio.Event().wait()
    return 0


def _place(folder: Path, stack: contextlib.ExitStack) -> tuple[dict[str, socket.socket], dict[str, Card]]:
    """Take a port for every agent, and write its card for that port into the folder.

    The one that is down has its port taken too, so that nobody answers there.
    """
    source = cards_folder()
    folder.mkdir()
    sockets: dict[str, socket.socket] = {}
    cards: dict[str, Card] = {}
    for agent in (*AGENTS, DOWN):
        card = read_card(source, agent)
        sockets[agent] = stack.enter_context(bound_socket(port_of(card)))
        cards[agent] = at_port(card, sockets[agent].getsockname()[1])
        (folder / f"{agent}.json").write_text(json.dumps(cards[agent]), encoding="utf-8")
    return sockets, cards


def _start_broker(processes: Processes, folder: Path) -> str:
    """Start the broker with those cards; its address."""
    with bound_socket() as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {
        **{name: value for name, value in os.environ.items() if not name.startswith("A2A_HANDOFF_")},
        **_BROKER_ENV,
        "A2A_HANDOFF_PORT": str(port),
        "A2A_HANDOFF_STORE": f"sqlite:///{folder / 'demo.db'}",
        "A2A_HANDOFF_CARDS": str(folder / "agent_cards"),
    }
    processes.start_broker(url, settings)
    return url
