"""What each agent of the demo does with a task: it answers, or hands on to a skill or an ability."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.demo.agent import build
from a2a_handoff.demo.agents import BEHAVIOURS
from a2a_handoff.demo.cards import at_port, cards_folder, port_of, read_card
from a2a_handoff.demo.processes import Processes
from a2a_handoff.demo.processes import bound_socket as held_socket
from a2a_handoff.demo.runner import AGENTS, DOWN
from a2a_handoff.kit.client import BrokerClient, Step
from tests.support.running import bound_socket, running

HELD: dict[str, Any] = {
    "source_agent": "triage-agent",
    "user_intent": "wants help",
    "conversation_summary": "asked",
    "key_facts": {},
    "handoff_chain": ["user", "triage-agent"],
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


def agent(name: str) -> Starlette:
    return build(name, read_card(cards_folder(), name))


def ask(name: str, text: str, **context: Any) -> list[Step]:
    """Every step that the agent answers with."""

    async def body() -> list[Step]:
        async with BrokerClient(url) as client:
            return await asyncio.wait_for(client.send(text, {**HELD, **context}), 20)

    with running(agent(name)) as url:
        return asyncio.run(body())


def directive(steps: list[Step]) -> dict[str, Any]:
    return steps[-1].metadata[EXTENSION_URI]["handoff"]


def test_triage_answers_small_talk_itself() -> None:
    last = ask("triage-agent", "Hello there")[-1]
    assert last.state == "COMPLETED"
    assert "handoff" not in last.metadata.get(EXTENSION_URI, {})


@pytest.mark.parametrize(
    ("text", "asked_for"),
    [
        ("My invoice INV-7 of March is wrong", {"requirements": {"domain": "billing"}}),
        ("What does https://example.com/ say?", {"requirements": {"capabilities": ["canBrowse"]}}),
        ("I want a second opinion", {"target_agent": "second-opinion"}),
    ],
)
def test_triage_hands_on_what_others_know(text: str, asked_for: dict[str, Any]) -> None:
    told = directive(ask("triage-agent", text))
    assert told.items() >= asked_for.items()
    assert told["traceparent"] == HELD["traceparent"]
    if "INV-7" in text:
        assert told["key_facts"] == {"invoice": "INV-7", "month": "March"}


def test_billing_asks_for_what_it_was_not_told_and_says_why() -> None:
    last = ask("billing_agent", "refund please")[-1]
    assert last.waiting
    assert "the number of the invoice" in last.text


def test_billing_leaves_code_to_an_agent_that_edits_files_and_knows_nothing_of_tracing() -> None:
    steps = ask("billing_agent", "mend the template", key_facts={"invoice": "INV-7"})
    told = directive(steps)
    assert told["requirements"] == {"capabilities": ["canEditFiles"]}
    assert "traceparent" not in told
    assert [step.append for step in steps if step.artifact_name == "findings"] == [False, True, True]


def test_an_agent_without_an_opinion_points_back_at_where_the_task_came_from() -> None:
    assert directive(ask("second-opinion", "what do you think?"))["target_agent"] == "triage-agent"


def test_the_senior_declines_while_it_is_busy() -> None:
    steps = ask("senior_agent", "offer", offer={**HELD, "offer_id": "o1", "key_facts": {"senior_busy": True}})
    assert steps[-1].metadata[EXTENSION_URI]["declined"]["reason"] == "in the middle of an incident"


def test_every_agent_of_the_demo_has_a_card_that_can_be_moved() -> None:
    assert set(AGENTS) == set(BEHAVIOURS)
    for name in (*AGENTS, DOWN):
        card = read_card(cards_folder(), name)
        moved = at_port(card, 1234)
        assert port_of(moved) == 1234
        assert port_of(card) != 1234
        assert {**moved, "supportedInterfaces": None} == {**card, "supportedInterfaces": None}


def test_an_agent_whose_port_is_taken_says_so_in_one_line() -> None:
    with bound_socket() as taken:
        taken.listen()
        command = [sys.executable, "-m", "a2a_handoff.demo.agent", "billing_agent", "--port"]
        done = subprocess.run(
            [*command, str(taken.getsockname()[1])], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("billing_agent: cannot listen on port")
    assert done.stderr.count("\n") == 1


def test_a_port_that_the_demo_has_used_can_be_taken_at_once(tmp_path: Path) -> None:
    """Connections that the agent closed keep its port for a minute, unless it said that they shall not."""
    with held_socket() as bound, Processes(tmp_path) as processes:
        port = bound.getsockname()[1]
        card = at_port(read_card(cards_folder(), "billing_agent"), port)
        processes.start_agent("billing_agent", card, "", bound)
        asyncio.run(processes.ready())
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(
                b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            while client.recv(65_536):
                pass
    socket.create_server(("127.0.0.1", port)).close()
