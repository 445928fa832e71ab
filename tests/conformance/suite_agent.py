"""The agent that stands behind the broker while a conformance suite talks to the broker.

The suite tells it what to do by how the ``messageId`` begins, so that id must pass through the broker unchanged.
``opens`` is the agent for suites that expect a task to stay open.
Not here: running a suite (``suite``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.support.agents import Agent, Answer, Call, said

Part = dict[str, Any]
Task = dict[str, Any]
Step = Callable[[Agent, Task], dict[str, Any]]

_FILE = {"filename": "output.txt", "mediaType": "text/plain"}
_LONG_S = 4.0


def _artifact(part: Part, *, append: bool = False, last: bool = True) -> Step:
    def step(agent: Agent, task: Task) -> dict[str, Any]:
        update = agent.artifact(task, "output", "", append=append, last=last)
        update["artifactUpdate"]["artifact"]["parts"] = [part]
        return update

    return step


def _is(state: str, text: str = "") -> Step:
    return lambda agent, task: agent.status(task, state, text)


_WORKS, _DONE = _is("WORKING"), _is("COMPLETED")


def _streams(*parts: Part) -> tuple[Step, ...]:
    return (_WORKS, *(_artifact(part) for part in parts), _DONE)


#: What it does, by how the message id begins; the first that fits.
ACTS: dict[str, tuple[Step, ...]] = {
    "tck-complete-task": (_is("COMPLETED", "Hello from TCK"),),
    "tck-artifact-text": (_artifact({"text": "Generated text content"}), _DONE),
    "tck-artifact-file-url": (_artifact({"url": "https://example.com/output.txt"} | _FILE), _DONE),
    "tck-artifact-file": (_artifact({"raw": "dGNr"} | _FILE), _DONE),
    "tck-artifact-data": (_artifact({"data": {"key": "value", "count": 42}}), _DONE),
    "tck-input-required": (_is("INPUT_REQUIRED"),),
    "tck-reject-task": (_is("REJECTED", "rejected"),),
    "tck-stream-001": _streams({"text": "Stream hello from TCK"}),
    "tck-stream-002": (_DONE,),
    "tck-stream-003": _streams({"text": "Stream task lifecycle"}),
    "tck-stream-ordering-001": _streams({"text": "Ordered output"}),
    "tck-stream-artifact-text": _streams({"text": "Streamed text content"}),
    "tck-stream-artifact-file": _streams({"raw": "dGNr"} | _FILE),
    "tck-stream-artifact-chunked": (
        _WORKS,
        _artifact({"text": "chunk-1 "}, last=False),
        _artifact({"text": "chunk-2"}, append=True),
        _DONE,
    ),
}
_OTHERWISE: tuple[Step, ...] = (_is("COMPLETED", "done"),)


def _begun(agent: Agent, call: Call) -> Task:
    """The task of the message, which a follow-up names."""
    known = call.message.get("taskId", "")
    return agent.tasks[known] if known else agent.task("SUBMITTED")


def _canceled(agent: Agent, call: Call) -> Answer:
    return agent.task("CANCELED", task_id=call.params["id"])


async def acts(agent: Agent, call: Call) -> Answer:
    """Do what the message id says, as a stream."""
    if call.method == "CancelTask":
        return _canceled(agent, call)
    name = call.message["messageId"]
    if name.startswith("tck-message-response"):
        return {"message": said("Direct message response")}
    steps = next((steps for prefix, steps in ACTS.items() if name.startswith(prefix)), _OTHERWISE)

    async def events() -> AsyncIterator[dict[str, Any]]:
        task = _begun(agent, call)
        yield {"task": dict(task)}
        if name.startswith("test-resubscribe-message-id"):
            yield _WORKS(agent, task)
            await asyncio.sleep(_LONG_S)
        for step in steps:
            yield step(agent, task)

    return events()


async def opens(agent: Agent, call: Call) -> Answer:
    """Work, then ask; every task stays open until it is canceled."""
    if call.method == "CancelTask":
        return _canceled(agent, call)

    async def events() -> AsyncIterator[dict[str, Any]]:
        task = _begun(agent, call)
        yield {"task": dict(task)}
        yield _WORKS(agent, task)
        await asyncio.sleep(_LONG_S if "resubscribe" in call.message["messageId"] else 0.2)
        yield agent.status(task, "INPUT_REQUIRED", "What else?")

    return events()
