"""Clients of other makers talk to a running broker with an agent of its own behind it.

Each client is a script of ``foreign`` that runs in an environment of its own (``tests/support/foreign.py``), takes the
same steps with its own types, and says what it saw: it sends, reads, streams, answers a question, follows a task,
cancels one, sets, reads, lists and removes webhooks, and asks for a task that there is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import foreign
from tests.support.agents import Agent, Answer, Call, card
from tests.support.hooks import hook
from tests.support.running import running
from tests.support.served import Served, served

SECRET = "secret"

SEEN: dict[str, Any] = {
    "name": "a2a-handoff",
    "sent": {"state": "completed", "text": "one two"},
    "read": "completed",
    "streamed": ["submitted", "working", "one ", "two", "completed"],
    "asked": {"state": "input_required", "text": "which one?"},
    "answered": {"state": "completed", "text": "you said blue"},
    "followed": ["input_required", "working", "you said red", "completed"],
    "canceled": "canceled",
    "ended": "canceled",
    "webhook": True,
    "webhooks": ["hook"],
}


class Clerk:
    """The script of an agent that does what the message says: echo, ask, wait."""

    def __init__(self) -> None:
        self._canceled: dict[str, asyncio.Event] = {}

    async def __call__(self, agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            task_id = call.params["id"]
            self._canceled.pop(task_id).set()
            return agent.task("CANCELED", task_id=task_id)
        known = call.message.get("taskId", "")
        return self._answered(agent, known, call.text) if known else self._begun(agent, call.text)

    async def _begun(self, agent: Agent, text: str) -> AsyncIterator[dict[str, Any]]:
        task = agent.task("WORKING")
        yield {"task": task}
        match text:
            case "ask":
                yield agent.status(task, "INPUT_REQUIRED", "which one?")
            case "wait":
                stopped = self._canceled.setdefault(task["id"], asyncio.Event())
                await asyncio.wait_for(stopped.wait(), foreign.RUN_S)
                yield agent.status(task, "CANCELED")
            case _:
                yield agent.artifact(task, "text", "one ", last=False)
                yield agent.artifact(task, "text", "two", append=True)
                yield agent.status(task, "COMPLETED", "done")

    async def _answered(self, agent: Agent, task_id: str, text: str) -> AsyncIterator[dict[str, Any]]:
        task = agent.tasks[task_id]
        yield {"task": dict(task)}
        yield agent.status(task, "WORKING")
        yield agent.artifact(task, "text", f"you said {text}")
        yield agent.status(task, "COMPLETED", "done")


@contextmanager
def opened(folder: Path, **settings: Any) -> Generator[Served]:
    """A broker process, and the agent that gets what asks for nobody."""
    with running(Agent(Clerk())) as url, served(folder, forked=True, **settings) as broker:
        broker.register("default_agent", card=card(url, streaming=True))
        yield broker


@pytest.fixture
def house(tmp_path: Path) -> Generator[Served]:
    """A broker that speaks every binding."""
    with opened(tmp_path, grpc_port=0) as broker:
        yield broker


def acts(house: Served, kit: str, script: str, *arguments: str) -> dict[str, Any]:
    """Run a client; what it saw. Its webhook is told the end of the task that it watches."""
    with hook() as told:
        report: dict[str, Any] = foreign.run(kit, script, house.url, *arguments, told.url)
        pushed = report.pop("pushed")
        last = told.until("COMPLETED")[-1]
        assert pushed.encode() in last.body
        assert SECRET in (
            last.headers.get("x-a2a-notification-token", ""),
            last.headers.get("authorization", ""),
        )
    return report


def without(*steps: str) -> dict[str, Any]:
    """What a client sees that cannot take some of the steps."""
    return {step: seen for step, seen in SEEN.items() if step not in steps}


@pytest.mark.parametrize(
    ("binding", "version"),
    [(binding, version) for version in ("1.0", "0.3") for binding in ("JSONRPC", "HTTP+JSON", "GRPC")],
)
def test_the_javascript_sdk_takes_every_step(house: Served, binding: str, version: str) -> None:
    report = acts(house, foreign.JAVASCRIPT, "javascript_client.mjs", binding, version)
    assert "TaskNotFoundError" in report.pop("refused")
    assert report == SEEN


@pytest.mark.parametrize(("binding", "refusal"), [("JSONRPC", "-32001"), ("HTTP+JSON", "404")])
def test_the_python_sdk_of_0_3_takes_its_steps(house: Served, binding: str, refusal: str) -> None:
    report = acts(house, "sdk_0_3", "sdk_0_3_client.py", binding)
    assert refusal in report.pop("refused")
    assert report == without("webhooks")


def test_the_python_sdk_of_0_2_takes_its_steps(house: Served) -> None:
    report = acts(house, "sdk_0_2", "sdk_0_2_client.py")
    assert report.pop("refused") == -32001
    assert report == without("webhooks", "followed")


def test_a_client_of_the_first_generation_takes_its_steps(house: Served) -> None:
    report = acts(house, "first_generation", "first_generation_client.py")
    assert report.pop("refused") == -32001
    assert report.pop("own id")
    assert report == without("webhooks")


def test_a_client_of_fasta2a_that_names_no_request_sends_and_polls(house: Served) -> None:
    report = foreign.run("fasta2a_0_2", "fasta2a_client.py", house.url)
    assert report == {"state": "completed", "text": "one two"}


def test_an_agent_of_agent_framework_sends_streams_and_answers_a_question(house: Served) -> None:
    assert foreign.run("agent_framework", "agent_framework_client.py", house.url) == {
        "sent": "one two",
        "streamed": "one two",
        "asked": "which one?",
        "answered": "you said blue",
    }


def test_a_remote_agent_of_google_adk_hears_the_whole_stream(tmp_path: Path) -> None:
    # It takes no card whose addresses have different ports, as that of gRPC has.
    with opened(tmp_path, grpc_port=0, grpc_in_card=False) as broker:
        report = foreign.run("google_adk", "google_adk_client.py", broker.url)
    assert report["errors"] == []
    assert "".join(report["heard"]).endswith("one twodone")
