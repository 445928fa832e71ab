"""One agent of the demo as a process: ``python -m a2a_handoff.demo.agent NAME --port N --broker URL``.

Duty: serve a behaviour as an A2A agent, with a2a-sdk and uvicorn as any agent would, and register it.
Not here: what the agent does (``agents``).
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from a2a.client.card_resolver import parse_agent_card
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from starlette.applications import Starlette

from a2a_handoff.demo.agents import BEHAVIOURS, DemoExecutor
from a2a_handoff.demo.cards import Card, at_port, cards_folder, port_of, read_card
from a2a_handoff.demo.leash import die_with_parent
from a2a_handoff.kit import HandoffReceiver
from a2a_handoff.kit.client import BrokerClient
from a2a_handoff.kit.executor import HandoffExecutor

_TRIES = 100
_BETWEEN_TRIES_S = 0.1


def build(name: str, card: Card, broker: str = "") -> Starlette:
    """The A2A application of one agent. It registers with ``broker`` once it runs."""
    behaviour, decide = BEHAVIOURS[name]
    agent_card = parse_agent_card(card)
    handler = DefaultRequestHandler(
        agent_executor=HandoffExecutor(DemoExecutor(behaviour), HandoffReceiver(name, decide=decide)),
        task_store=InMemoryTaskStore(),
        agent_card=agent_card,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        registering = asyncio.ensure_future(register(name, card, broker)) if broker else None
        yield
        if registering is not None:
            registering.cancel()
        await handler.aclose()

    return Starlette(
        routes=[*create_agent_card_routes(agent_card), *create_jsonrpc_routes(handler, "/")],
        lifespan=lifespan,
    )


async def register(name: str, card: Card, broker: str) -> None:
    """Register with the broker; it may start later than the agent."""
    async with BrokerClient(broker, agent_id=name) as client:
        for _ in range(_TRIES):
            try:
                await client.register({"agent_id": name, "card": card})
            except httpx.TransportError:
                await asyncio.sleep(_BETWEEN_TRIES_S)
            except httpx.HTTPStatusError as error:
                print(f"{name}: the broker refused the registration: {error}", file=sys.stderr)
                return
            else:
                return
    print(f"{name}: no broker at {broker}", file=sys.stderr)


def serve(name: str, card: Card, broker: str, bound: socket.socket) -> None:
    """Serve one agent on a bound socket, whose port its card names, until it is told to stop."""
    # Without it nobody could listen here for a minute after the end. Not before it listens: somebody else
    # could then take the port.
    bound.listen()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    config = uvicorn.Config(build(name, card, broker), log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[bound])


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m a2a_handoff.demo.agent", description=__doc__)
    parser.add_argument("name", choices=sorted(BEHAVIOURS))
    parser.add_argument("--port", type=int, default=0, help="default: the port of the agent's card")
    parser.add_argument("--broker", default="", help="where to register; default: nowhere")
    parser.add_argument("--cards", type=Path, default=None, help="folder of the cards")
    parser.add_argument("--leash", action="store_true", help="end when standard input ends")
    options = parser.parse_args()
    if options.leash:
        die_with_parent()
    card = read_card(options.cards or cards_folder(), options.name)
    port = options.port or port_of(card)
    try:
        bound = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = f"cannot listen on port {port} ({error.strerror}); name another with --port"
        parser.exit(1, f"{options.name}: {why}\n")
    print(f"{options.name} listens at http://127.0.0.1:{port}", flush=True)
    with bound:
        serve(options.name, at_port(card, port), options.broker, bound)


if __name__ == "__main__":
    main()
