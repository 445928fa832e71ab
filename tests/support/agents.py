"""Scripted agents that speak A2A 1.0 over JSON-RPC, in a few lines of raw ASGI.

An agent is a function from a call to what it answers: a task, a message, an error, or a stream of events.
Every call is kept in ``calls``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

URI = "urn:a2a-handoff:handoff:v1"


@dataclass
class Call:
    """One JSON-RPC call as the agent got it."""

    method: str
    params: dict[str, Any]
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return self.params.get("message", {})

    @property
    def text(self) -> str:
        return " ".join(part["text"] for part in self.message.get("parts", []) if "text" in part)

    @property
    def ours(self) -> dict[str, Any]:
        """Our extension's data in the message."""
        return self.message.get("metadata", {}).get(URI, {})


Answer = dict[str, Any] | AsyncIterator[dict[str, Any]]
Script = Callable[["Agent", Call], Awaitable[Answer]]


@dataclass
class Agent:
    """An ASGI application that behaves as its script says."""

    script: Script
    calls: list[Call] = field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: Any = field(default_factory=lambda: itertools.count(1))

    def of(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    def task(
        self, state: str = "COMPLETED", text: str = "", *, task_id: str = "", **more: Any
    ) -> dict[str, Any]:
        """A task of this agent, kept for GetTask."""
        task_id = task_id or f"r-{next(self.ids)}"
        status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
        if text:
            status["message"] = said(text)
        task = {"id": task_id, "contextId": f"rc-{task_id}", "status": status} | more
        self.tasks[task_id] = task
        return task

    def status(self, task: dict[str, Any], state: str, text: str = "", **metadata: Any) -> dict[str, Any]:
        """A status event of a task."""
        status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
        if text or metadata:
            status["message"] = said(text or "…", **metadata)
        task["status"] = status
        return {"statusUpdate": {"taskId": task["id"], "contextId": task["contextId"], "status": status}}

    def artifact(
        self, task: dict[str, Any], artifact_id: str, text: str, *, append: bool = False, last: bool = True
    ) -> dict[str, Any]:
        """An artifact event of a task."""
        artifact = {"artifactId": artifact_id, "parts": [{"text": text}]}
        return {
            "artifactUpdate": {
                "taskId": task["id"],
                "contextId": task["contextId"],
                "artifact": artifact,
                "append": append,
                "lastChunk": last,
            }
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["method"] == "GET":
            await _json(send, 200, {"name": "scripted"})
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        request = json.loads(body)
        call = Call(request["method"], request.get("params", {}), headers, body)
        self.calls.append(call)
        if call.method == "GetTask":
            await self._reply(send, request["id"], self._get(call))
            return
        answer = await self.script(self, call)
        if isinstance(answer, dict):
            await self._reply(send, request["id"], answer)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        async for event in answer:
            data = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": event})
            await send(
                {"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True}
            )
        await send({"type": "http.response.body", "body": b""})

    def _get(self, call: Call) -> dict[str, Any]:
        task = self.tasks.get(call.params["id"])
        if task is None:
            return {"error": {"code": -32001, "message": "no such task"}}
        return task

    async def _reply(self, send: Any, request_id: Any, answer: dict[str, Any]) -> None:
        envelope: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id}
        if "error" in answer:
            envelope["error"] = answer["error"]
        else:
            envelope["result"] = answer
        await _json(send, 200, envelope)


async def _json(send: Any, status: int, body: Any) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json")],
        }
    )
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def said(text: str, **metadata: Any) -> dict[str, Any]:
    """A message of an agent."""
    message: dict[str, Any] = {
        "messageId": f"a-{text[:20]}",
        "role": "ROLE_AGENT",
        "parts": [{"text": text}],
    }
    if metadata:
        message["metadata"] = {URI: metadata}
        message["extensions"] = [URI]
    return message


def card(
    url: str,
    *,
    streaming: bool = False,
    speaks: bool = False,
    name: str = "Scripted",
    skills: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
    **params: Any,
) -> dict[str, Any]:
    """An AgentCard (1.0). ``params`` are those of our extension."""
    extension = {"uri": URI, "required": False, "params": {"offers": speaks} | params}
    return {
        "name": name,
        "description": "A scripted agent.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": streaming, "extensions": [extension] if speaks or params else []},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {"id": skill, "name": skill, "description": skill, "tags": list(tags) or ["x"]}
            for skill in skills or ("work",)
        ],
    }


# --- scripts -------------------------------------------------------------------------------------


async def completes(agent: Agent, call: Call) -> Answer:
    """Answers at once with a finished task."""
    artifact = {"artifactId": "answer", "parts": [{"text": f"done: {call.text}"}]}
    return {"task": agent.task("COMPLETED", "done", artifacts=[artifact])}


async def rejects(agent: Agent, call: Call) -> Answer:
    """Will not do it."""
    return {"task": agent.task("REJECTED", "not mine")}


async def asks(agent: Agent, call: Call) -> Answer:
    """Asks once, then completes."""
    task_id = call.message.get("taskId", "")
    if not task_id:
        return {"task": agent.task("INPUT_REQUIRED", "Which one?")}
    return {"task": agent.task("COMPLETED", f"thanks for {call.text}", task_id=task_id)}


async def hangs(agent: Agent, call: Call) -> Answer:
    """Takes the request and never answers."""
    await asyncio.Event().wait()
    raise AssertionError


def streams(*words: str) -> Script:
    """Streams a chunk for each word, then completes."""

    async def script(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            for number, word in enumerate(words):
                yield agent.artifact(task, "text", word, append=number > 0, last=number == len(words) - 1)
            yield agent.status(task, "COMPLETED", "done")

        return events()

    return script


def hands_on(**directive: Any) -> Script:
    """Hands the task on by a directive, with its own task completed."""

    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task("COMPLETED")
        task["status"]["message"] = said("handing on", handoff=directive)
        return {"task": task}

    return script
