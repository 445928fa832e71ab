"""An agent of the first A2A generation (release 0.1), as its sample server behaved.

JSON-RPC on one URL; the client makes the task's id and session; fields that are not set are sent as
null; errors have HTTP status 400; a second message under the same id is a follow-up.
What it does is told by the text of the message: ``echo``, ``ask``, ``slow``, ``half``, ``fail``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.streams import listening

CARD: dict[str, Any] = {
    "name": "First",
    "description": None,
    "url": "",
    "provider": None,
    "version": "0.1",
    "documentationUrl": None,
    "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": False},
    "authentication": None,
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [{"id": "echo", "name": "Echo", "description": None, "tags": None, "examples": None}],
}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "metadata": None}


def _message(text: str) -> dict[str, Any]:
    return {"role": "agent", "parts": [_text(text)], "metadata": {"from": "agent"}}


def _status(state: str, text: str = "") -> dict[str, Any]:
    message = _message(text) if text else None
    return {"state": state, "message": message, "timestamp": "2025-04-10T12:00:00.000001"}


def _artifact(parts: list[dict[str, Any]], index: int = 0, **flags: Any) -> dict[str, Any]:
    flags = {"append": None, "lastChunk": None} | flags
    return {"name": "answer", "description": None, "parts": parts, "metadata": None, "index": index} | flags


class RpcError(Exception):
    """An error to answer with."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass
class FirstGenerationAgent:
    """The state of the server. ``release`` lets the slow tasks finish."""

    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    release: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def events(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Work on a message, event by event; the task is kept up to date."""
        task = self.tasks.setdefault(
            params["id"],
            {
                "id": params["id"],
                "sessionId": params["sessionId"],
                "status": _status("submitted"),
                "artifacts": None,
                "history": [],
                "metadata": None,
            },
        )
        if task["status"]["state"] in ("completed", "canceled", "failed"):
            raise RpcError(-32009, "Invalid task state")
        text = next((part["text"] for part in params["message"]["parts"] if part["type"] == "text"), "")
        asked = task["status"]["state"] == "input-required"
        task["history"].append(params["message"])
        yield self._set(task, _status("working"))
        if asked:
            yield self._add(task, _artifact([_text(f"got {text}")]))
            yield self._set(task, _status("completed", "thank you"))
        elif text == "ask":
            yield self._set(task, _status("input-required", "which one?"))
        elif text == "fail":
            yield self._set(task, _status("failed", "it broke"))
        else:
            if text == "slow":
                await self.release.wait()
            yield self._add(task, _artifact([_text("one ")], append=False, lastChunk=False))
            if text == "half":
                await self.release.wait()
            yield self._add(task, _artifact([_text("two")], append=True, lastChunk=True))
            yield self._add(task, _artifact(params["message"]["parts"], index=1))
            yield self._set(task, _status("completed", "done"))

    def _set(self, task: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        if task["status"]["state"] == "canceled":
            status = task["status"]
        task["status"] = status
        final = status["state"] not in ("submitted", "working")
        return {"id": task["id"], "status": status, "final": final, "metadata": None}

    def _add(self, task: dict[str, Any], artifact: dict[str, Any]) -> dict[str, Any]:
        artifacts = task["artifacts"] = task["artifacts"] or []
        if artifact["append"]:
            known = next(a for a in artifacts if a["index"] == artifact["index"])
            known["parts"] = known["parts"] + artifact["parts"]
        else:
            artifacts.append(artifact | {"append": None, "lastChunk": None})
        return {"id": task["id"], "artifact": artifact, "metadata": None}

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a method that does not stream."""
        if method == "tasks/send":
            async for _ in self.events(params):
                pass
        task = self.tasks.get(params["id"])
        if task is None:
            raise RpcError(-32001, "Task not found")
        if method == "tasks/cancel":
            if task["status"]["state"] in ("completed", "canceled", "failed"):
                raise RpcError(-32002, "Task cannot be canceled")
            self._set(task, _status("canceled"))
        return task

    async def stream(self, method: str, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The events of a method that streams."""
        if method == "tasks/sendSubscribe":
            async for event in self.events(params):
                yield event
            return
        task = self.tasks.get(params["id"])
        if task is None:
            raise RpcError(-32001, "Task not found")
        await self.release.wait()
        yield self._set(task, _status("completed", "done"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on one connection."""
        with suppress(OSError, EOFError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split(" ")
            length = next((h.partition(":")[2] for h in head if h.lower().startswith("content-length")), "0")
            body = await reader.readexactly(int(length))
            if method == "GET":
                card = CARD | {"url": self.url}
                found = path == "/.well-known/agent.json"
                writer.write(_http(200, card) if found else _http(404, {"detail": "Not Found"}))
            else:
                await self._rpc(json.loads(body), writer)
            await writer.drain()
        writer.close()

    async def _rpc(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.requests.append(request)
        envelope = {"jsonrpc": "2.0", "id": request["id"], "error": None}
        try:
            if request["method"] in ("tasks/sendSubscribe", "tasks/resubscribe"):
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                )
                async for event in self.stream(request["method"], request["params"]):
                    writer.write(b"data: " + json.dumps(envelope | {"result": event}).encode() + b"\r\n\r\n")
                    await writer.drain()
            elif request["method"] in ("tasks/send", "tasks/get", "tasks/cancel"):
                result = await self.answer(request["method"], request["params"])
                writer.write(_http(200, envelope | {"result": result}))
            else:
                raise RpcError(-32601, "Method not found")
        except RpcError as error:
            fault = {"code": error.code, "message": str(error), "data": None}
            writer.write(_http(400, envelope | {"result": None, "error": fault}))


def _http(status: int, body: Any) -> bytes:
    payload = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload


@asynccontextmanager
async def first_generation_agent() -> AsyncGenerator[FirstGenerationAgent]:
    """A running agent on a port of its own."""
    agent = FirstGenerationAgent()
    async with listening(agent.serve) as agent.port:
        try:
            yield agent
        finally:
            agent.release.set()
