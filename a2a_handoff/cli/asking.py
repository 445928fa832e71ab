"""The commands that ask a running broker one question and show the answer.

Duty: which path answers what, and which drawing fits the answer. With ``as_json`` the answer goes out
as it came.
Not here: HTTP (``remote``), drawing (``show``), sending tasks (``send``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel
from rich.console import Console

from a2a_handoff.cli import show
from a2a_handoff.cli.outcome import FAILED
from a2a_handoff.cli.place import Place
from a2a_handoff.cli.remote import Broker
from a2a_handoff.cli.send import Wishes, request_body
from a2a_handoff.transports.mcp.calls import segment
from a2a_handoff.wire.native.outbound import (
    AgentOut,
    AgentPage,
    ChainOut,
    EventPage,
    HandoffOut,
    HandoffPage,
    ResolutionOut,
)

_M = TypeVar("_M", bound=BaseModel)


def agents(place: Place, *, as_json: bool) -> None:
    """``GET /api/agents``."""
    _ask(place, "/api/agents", AgentPage, show.agents, as_json=as_json)


def agent(place: Place, agent_id: str, *, as_json: bool) -> None:
    """``GET /api/agents/{id}``."""
    _ask(place, f"/api/agents/{segment(agent_id)}", AgentOut, show.agent, as_json=as_json)


def handoffs(
    place: Place,
    *,
    states: Sequence[str],
    agent: str,
    correlation_id: str,
    limit: int,
    cursor: str,
    as_json: bool,
) -> None:
    """``GET /api/handoffs``; several states are one parameter, with commas."""
    said = {"state": ",".join(states), "agent": agent, "correlation_id": correlation_id, "cursor": cursor}
    params = {"limit": str(limit)} | {name: value for name, value in said.items() if value}
    _ask(place, "/api/handoffs", HandoffPage, show.handoffs, params, as_json=as_json)


def handoff(place: Place, handoff_id: str, *, as_json: bool) -> None:
    """``GET /api/handoffs/{id}``."""
    _ask(place, f"/api/handoffs/{segment(handoff_id)}", HandoffOut, show.handoff, as_json=as_json)


def events(place: Place, handoff_id: str, *, after: int, as_json: bool) -> None:
    """``GET /api/handoffs/{id}/events``."""
    path = f"/api/handoffs/{segment(handoff_id)}/events"
    _ask(place, path, EventPage, show.events, {"after": str(after)}, as_json=as_json)


def chain(place: Place, correlation_id: str, *, as_json: bool) -> None:
    """``GET /api/chains/{correlation_id}``."""
    _ask(place, f"/api/chains/{segment(correlation_id)}", ChainOut, show.chain, as_json=as_json)


def resolution(place: Place, text: str, wishes: Wishes, *, as_json: bool) -> int:
    """``POST /api/resolve``; the exit code is 0 if somebody would get it, now or later."""
    with Broker(place) as broker:
        body = broker.post("/api/resolve", request_body(text, wishes))
        answer = broker.read(ResolutionOut, body)
    _tell(body, answer, show.resolution, as_json=as_json)
    return 0 if answer.candidates or answer.wait else FAILED


def _ask(
    place: Place,
    path: str,
    model: type[_M],
    draw: Callable[[_M, Console], None],
    params: Mapping[str, str] | None = None,
    *,
    as_json: bool,
) -> None:
    with Broker(place) as broker:
        body = broker.get(path, params)
        answer = broker.read(model, body)
    _tell(body, answer, draw, as_json=as_json)


def _tell(body: bytes, answer: _M, draw: Callable[[_M, Console], None], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(body.decode() + "\n")
        sys.stdout.flush()
    else:
        draw(answer, show.console())
