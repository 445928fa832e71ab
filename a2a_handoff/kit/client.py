"""A small client for a broker: send a task with its context, follow it, ask who would get it.

Duty: A2A 1.0 with a2a-sdk's client, our context in the metadata, and the few calls of the native
REST surface that an agent needs.
Rules: one client for many tasks; it keeps its connections. Errors are those of a2a-sdk
(``a2a.utils.errors.A2AError``) and, for REST, ``httpx.HTTPStatusError``.
Not here: serving (``receiver``, ``executor``).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import httpx
from a2a.client import ClientCallContext, ClientConfig, ClientFactory
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol
from google.protobuf.json_format import MessageToDict

from a2a_handoff.core.context import CONTEXT_KEY, EXTENSION_URI
from a2a_handoff.kit.incoming import Json, whole_numbers

_ENDED = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
_WAITING = ("INPUT_REQUIRED", "AUTH_REQUIRED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that the broker told of a task.

    ``state`` is the A2A state without its prefix (``WORKING``, ``COMPLETED``), empty if the step
    does not speak of it. ``text`` is what was said in words, of an artifact its text parts.
    ``event`` is the system event (``handoff_started`` and so on), ``artifact_id`` and ``append`` belong to
    a chunk of an artifact. ``raw`` is the step as A2A JSON.
    """

    task_id: str = ""
    context_id: str = ""
    state: str = ""
    text: str = ""
    event: Json = field(default_factory=dict[str, Any])
    artifact_id: str = ""
    artifact_name: str = ""
    append: bool = False
    metadata: Json = field(default_factory=dict[str, Any])
    raw: Json = field(default_factory=dict[str, Any])

    @property
    def ended(self) -> bool:
        """Whether the task is over."""
        return self.state in _ENDED

    @property
    def waiting(self) -> bool:
        """Whether the agent waits for the caller."""
        return self.state in _WAITING


class BrokerClient:
    """A broker, seen by one sender.

    ``agent_id`` is put into contexts as ``source_agent``; with authentication it must be the
    subject of ``token``. ``idle_s`` is how long a stream may be silent, ``None`` for ever.
    """

    def __init__(self, url: str, *, agent_id: str = "", token: str = "", idle_s: float | None = None) -> None:
        self.url = url.rstrip("/")
        self.agent_id = agent_id
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.AsyncClient(
            headers=headers, timeout=httpx.Timeout(10, read=idle_s), trust_env=False
        )
        interface = AgentInterface(
            url=f"{self.url}/",
            protocol_binding=TransportProtocol.JSONRPC,
            protocol_version=PROTOCOL_VERSION_1_0,
        )
        card = AgentCard(
            name="broker",
            supported_interfaces=[interface],
            capabilities=AgentCapabilities(streaming=True),
        )
        self._a2a = ClientFactory(ClientConfig(httpx_client=self._http)).create(card)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._a2a.close()
        await self._http.aclose()

    async def stream(
        self,
        text: str,
        context: Json | None = None,
        *,
        message_id: str = "",
        task_id: str = "",
        traceparent: str = "",
    ) -> AsyncGenerator[Step, None]:
        """Send a task and tell each step of it, until it ends or the agent waits for the caller.

        ``context`` is a handoff_context; without one the broker makes a minimal one of the text.
        The same ``message_id`` again is the same task. ``task_id`` continues a task that waits.
        ``traceparent`` puts the chain into the caller's trace.
        """
        request = SendMessageRequest(message=self._message(text, context, message_id, task_id))
        if context is not None:
            request.metadata.update({CONTEXT_KEY: self._own(context)})
        parameters = {"A2A-Extensions": EXTENSION_URI}
        if traceparent:
            parameters["traceparent"] = traceparent
        call = ClientCallContext(service_parameters=parameters)
        async for answer in self._a2a.send_message(request, context=call):
            yield step_of(answer)

    async def send(self, text: str, context: Json | None = None, *, message_id: str = "") -> list[Step]:
        """Send a task and wait for its end: all its steps."""
        async with aclosing(self.stream(text, context, message_id=message_id)) as steps:
            return [step async for step in steps]

    async def follow(self, task_id: str) -> AsyncGenerator[Step, None]:
        """Follow a task that is under way, from its present state on."""
        async for answer in self._a2a.subscribe(SubscribeToTaskRequest(id=task_id)):
            yield step_of(answer)

    async def get(self, task_id: str) -> Task:
        """The task as it stands."""
        return await self._a2a.get_task(GetTaskRequest(id=task_id))

    async def cancel(self, task_id: str) -> Task:
        """Stop the task."""
        return await self._a2a.cancel_task(CancelTaskRequest(id=task_id))

    async def resolve(self, context: Json) -> dict[str, Any]:
        """Which agent would get this, and why the others would not. Nothing is sent."""
        return await self._rest("POST", "/api/resolve", self._own(context))

    async def register(self, registration: Json) -> dict[str, Any]:
        """Register an agent: ``agent_id`` and a ``card`` or ``card_url``, or neither for a pull agent."""
        return await self._rest("POST", "/api/agents", registration)

    async def chain(self, correlation_id: str) -> dict[str, Any]:
        """All handoffs of a chain."""
        return await self._rest("GET", f"/api/chains/{quote(correlation_id, safe='')}")

    async def events(self, handoff_id: str, *, after: int = 0) -> list[dict[str, Any]]:
        """The log of one handoff as CloudEvents, from ``seq`` ``after`` + 1 on; one page."""
        page = await self._rest("GET", f"/api/handoffs/{handoff_id}/events?after={after}")
        return cast("list[dict[str, Any]]", page["events"])

    async def _rest(self, method: str, path: str, body: Json | None = None) -> dict[str, Any]:
        response = await self._http.request(method, f"{self.url}{path}", json=body, timeout=10)
        response.raise_for_status()
        return cast("dict[str, Any]", response.json())

    def _own(self, context: Json) -> dict[str, Any]:
        return {"source_agent": self.agent_id, **context} if self.agent_id else dict(context)

    def _message(self, text: str, context: Json | None, message_id: str, task_id: str) -> Message:
        message = Message(
            message_id=message_id or str(uuid.uuid4()),
            task_id=task_id,
            role=Role.ROLE_USER,
            parts=[Part(text=text)],
        )
        if context is not None:
            message.metadata.update({EXTENSION_URI: self._own(context)})
            message.extensions.append(EXTENSION_URI)
        return message


def step_of(answer: StreamResponse) -> Step:
    """One event of a stream, or a whole answer, as a step."""
    raw = cast("dict[str, Any]", whole_numbers(MessageToDict(answer)))
    empty: dict[str, Any] = {}
    body: dict[str, Any] = next(iter(raw.values()), empty)
    status: dict[str, Any] = body.get("status", {})
    message: dict[str, Any] = body if "message" in raw else status.get("message", {})
    artifact: dict[str, Any] = body.get("artifact", {})
    parts: list[dict[str, Any]] = artifact.get("parts") or message.get("parts", [])
    events = [
        part["data"]
        for part in parts
        if isinstance(part.get("data"), dict) and part["data"].get("type") == "system_event"
    ]
    return Step(
        task_id=body.get("id") or body.get("taskId", ""),
        context_id=body.get("contextId", ""),
        state=str(status.get("state", "")).removeprefix("TASK_STATE_"),
        text="".join(part.get("text", "") for part in parts),
        event=events[0] if events else {},
        artifact_id=artifact.get("artifactId", ""),
        artifact_name=artifact.get("name", ""),
        append=bool(body.get("append", False)),
        metadata=message.get("metadata") or body.get("metadata", {}),
        raw=raw,
    )
