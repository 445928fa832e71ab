"""An agent that does not stream, answers at once, and calls back: in each generation of A2A.

The test sets how its one task stands, and lets it call. Every call of the broker is kept in ``calls``.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.running import running

_STATES_OLD = {"CANCELED": "canceled", "REJECTED": "rejected"}
_SENDS = {"1.0": "SendMessage", "0.3": "message/send", "0.1": "tasks/send"}
_GETS = {"1.0": "GetTask", "0.3": "tasks/get", "0.1": "tasks/get"}


@dataclass
class CallingAgent:
    """Its one task, as its generation writes it. ``refuses`` is the code with which a callback is refused.

    ``broken``: GetTask is answered with an error. ``mute``: a message is not answered before
    ``speak`` is set. ``keeps``: what GetTask shows, in place of the task.
    """

    generation: str = "1.0"
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    task: dict[str, Any] = field(default_factory=dict)
    refuses: int = 0
    broken: bool = False
    mute: bool = False
    keeps: dict[str, Any] | None = None
    url: str = ""
    speak: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.stand("WORKING")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The params of the calls of a kind: ``send`` or ``get``."""
        method = (_SENDS if kind == "send" else _GETS)[self.generation]
        return [params for name, params in self.calls if name == method]

    @property
    def card(self) -> dict[str, Any]:
        """Its card. It says that it can call back, and that it cannot stream."""
        can = {"streaming": False, "pushNotifications": True}
        skills = [{"id": "work", "name": "work", "description": "work", "tags": ["x"]}]
        modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
        base: dict[str, Any] = {
            "name": "Calling",
            "description": "d",
            "version": "1",
            "skills": skills,
        } | modes
        if self.generation == "1.0":
            interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            return base | {"supportedInterfaces": [interface], "capabilities": can}
        if self.generation == "0.3":
            where = {"url": self.url, "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
            return base | where | {"capabilities": can}
        return base | {
            "url": self.url,
            "capabilities": can | {"stateTransitionHistory": False},
            "authentication": None,
        }

    # --- the task --------------------------------------------------------------------------------

    def text(self, text: str) -> dict[str, Any]:
        return {
            "1.0": {"text": text},
            "0.3": {"kind": "text", "text": text},
            "0.1": {"type": "text", "text": text},
        }[self.generation]

    def stand(self, state: str, said: str = "", **artifacts: str) -> None:
        """How the task stands now: its state, the status message, and the text of each artifact."""
        word = f"TASK_STATE_{state}" if self.generation == "1.0" else state.lower().replace("_", "-")
        status: dict[str, Any] = {"state": word}
        if said:
            role = "ROLE_AGENT" if self.generation == "1.0" else "agent"
            status["message"] = {"role": role, "parts": [self.text(said)]}
            if self.generation != "0.1":
                status["message"]["messageId"] = f"a-{said}"
            if self.generation == "0.3":
                status["message"]["kind"] = "message"
        made = [
            {"name": name, "parts": [self.text(text)]}
            | ({"index": index} if self.generation == "0.1" else {"artifactId": name})
            for index, (name, text) in enumerate(artifacts.items())
        ]
        task_id = self.task.get("id", "r-1")
        context = {"sessionId" if self.generation == "0.1" else "contextId": "rc-1"}
        kind = {"kind": "task"} if self.generation == "0.3" else {}
        self.task = (
            {"id": task_id} | context | kind | {"status": status} | ({"artifacts": made} if made else {})
        )

    # --- calling back ----------------------------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """What it was told of where to call."""
        params = self.of("send")[-1]
        if self.generation == "0.1":
            return params["pushNotification"]
        name = "taskPushNotificationConfig" if self.generation == "1.0" else "pushNotificationConfig"
        return params["configuration"][name]

    def notice(self, kind: str = "task") -> Any:
        """What it would say: the whole ``task``, or only its ``status``, as its generation does."""
        if self.generation != "1.0":
            return self.task
        if kind == "task":
            return {"task": self.task}
        about = {"taskId": self.task["id"], "contextId": "rc-1"}
        if kind == "status":
            return {"statusUpdate": about | {"status": self.task["status"]}}
        artifact = self.task["artifacts"][-1]
        return {"artifactUpdate": about | {"artifact": artifact, "append": False, "lastChunk": True}}

    def call(self, body: Any = None, *, bearer: bool = False, **headers: str) -> httpx.Response:
        """Call back; with what ``notice`` says, unless told otherwise."""
        token = self.config["token"]
        proof = {"Authorization": f"Bearer {token}"} if bearer else {"X-A2A-Notification-Token": token}
        content = json.dumps(self.notice() if body is None else body)
        with httpx.Client(trust_env=False, timeout=30) as client:
            return client.post(self.config["url"], content=content, headers=proof | headers)

    # --- its server ------------------------------------------------------------------------------

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer: dict[str, Any] = {"name": "calling"}
        if scope["method"] == "POST":
            request = json.loads(body)
            self.calls.append((request["method"], request["params"]))
            if self.mute and request["method"] == _SENDS[self.generation]:
                await asyncio.to_thread(self.speak.wait)
            answer = {"jsonrpc": "2.0", "id": request["id"]} | self._answer(
                request["method"], request["params"]
            )
        content_type = (b"content-type", b"application/json")
        await send({"type": "http.response.start", "status": 200, "headers": [content_type]})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == _SENDS[self.generation]:
            wanted = "pushNotification" in json.dumps(params)
            if self.refuses and ("PushNotificationConfig" in json.dumps(params) or wanted):
                return {"error": {"code": self.refuses, "message": "no"}}
            if self.generation == "0.1":
                self.task["id"] = params["id"]
            return {"result": {"task": self.task} if self.generation == "1.0" else self.task}
        if method == _GETS[self.generation] and not self.broken:
            return {"result": self.task if self.keeps is None else self.keeps}
        return {"error": {"code": -32603, "message": "broken"}}


@contextmanager
def calling_agent(generation: str = "1.0") -> Generator[CallingAgent]:
    """A running agent."""
    agent = CallingAgent(generation)
    with running(agent) as url:
        agent.url = url
        try:
            yield agent
        finally:
            agent.speak.set()
