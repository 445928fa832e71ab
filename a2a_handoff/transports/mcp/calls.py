"""The one way from the tools to the broker: its REST surface.

Duty: who calls, a request, its answer, and every refusal as one exception that a model can act on.
Rules: the same for a broker in this process and for one elsewhere, which differ in the transport of the HTTP
client that is given. What the caller may do is judged by the broker, from the credentials that go along.
Not here: what is asked (``tools``, ``watching``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

import httpx
import msgspec
from pydantic import ValidationError

from a2a_handoff.core.agents import PLATFORM_CAPABILITIES, fold
from a2a_handoff.core.errors import ERRORS, Code, Violation
from a2a_handoff.wire.native.outbound import Problem

ANSWER_S = 30.0

#: The code of a broker that cannot be reached; the other codes are the broker's own.
UNREACHABLE = "unreachable"

_CURSOR = "A2A-Handoff-Cursor"
_AGAIN_S = 0.5
#: A call that changes something is made so often before it is given up.
_TRIES = 3


class Refused(Exception):
    """The broker refused, or cannot be reached. ``str`` of it says everything, with what to do."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        violations: tuple[Violation, ...] = (),
        facts: Mapping[str, str] | None = None,
        retryable: bool = False,
    ) -> None:
        self.code = code
        self.message = message
        self.violations = violations
        self.facts = dict(facts or {})
        self.retryable = retryable
        super().__init__(message)

    @property
    def remedy(self) -> str:
        """What to do, as the table of errors has it; empty if that says nothing."""
        if self.code in (UNREACHABLE, Code.INTERNAL.value):
            return ""
        return next((row.remedy for code, row in ERRORS.items() if code.value == self.code), "")

    def __str__(self) -> str:
        lines = [f"{self.message} ({self.code})"]
        lines += [f"- {fault.field}: {fault.description}" for fault in self.violations]
        lines += [f"- {name}: {value}" for name, value in self.facts.items()]
        if self.remedy and self.remedy not in self.message:
            lines.append(self.remedy)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer. ``body`` is ``None`` if it has none; ``cursor`` is that of a watch."""

    status: int
    body: Any = None
    cursor: str = ""


async def _silent(done: float, total: float, message: str) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The agent that calls a tool, as its connection says, and what goes along with the call.

    ``tenant`` is the one that its address names, if it names one.
    ``platform`` is empty if the id of the agent says it. ``instance_id`` is which process of the agent it is.
    ``capabilities`` are switches over those of the platform. ``headers`` carry credentials and trace context.
    ``report`` tells progress: seconds waited, seconds at most, in words.
    """

    agent_id: str
    tenant: str = ""
    platform: str = ""
    workspace: str = ""
    instance_id: str = ""
    capabilities: Mapping[str, bool] = field(default_factory=dict[str, bool])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    report: Callable[[float, float, str], Awaitable[None]] = _silent

    def registration(self) -> dict[str, Any]:
        """The body that registers this agent."""
        known = fold(self.agent_id) in PLATFORM_CAPABILITIES
        return {
            "agent_id": self.agent_id,
            "platform": self.platform or (self.agent_id if known else ""),
            "workspace": self.workspace,
            "instance_id": self.instance_id,
            "capabilities": dict(self.capabilities),
        }


class Calls:
    """Calls of a broker. ``explain`` says in words why one failed on the way.

    ``patient``: the broker may come back while a call waits. Else it is in this process and goes with it.
    """

    def __init__(
        self, http: httpx.AsyncClient, *, explain: Callable[[httpx.HTTPError], str], patient: bool
    ) -> None:
        self._http = http
        self._explain = explain
        self.patient = patient

    async def get(
        self, caller: Caller, path: str, params: Mapping[str, Any] | None = None, *, wait_s: float = ANSWER_S
    ) -> Answer:
        """A question. Raises ``Refused``."""
        said = {name: value for name, value in (params or {}).items() if value not in ("", None)}
        return await self._call(caller, "GET", path, params=said, wait_s=wait_s)

    async def post(
        self, caller: Caller, path: str, body: Mapping[str, Any], *, tries: int = _TRIES
    ) -> Answer:
        """An act that the broker takes once, however often it is made.

        Made again if the connection broke. Raises ``Refused``.
        """
        headers = {"Content-Type": "application/json"}
        try:
            content = msgspec.json.encode(body)
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise Refused(Code.INVALID_PARAMS.value, "The arguments cannot be written as JSON.") from None
        for _ in range(tries - 1 if self.patient else 0):
            try:
                return await self._call(caller, "POST", path, content=content, headers=headers)
            except Refused as refused:
                if refused.code != UNREACHABLE:
                    raise
                await asyncio.sleep(_AGAIN_S)
        return await self._call(caller, "POST", path, content=content, headers=headers)

    async def present(self, caller: Caller, agent_id: str) -> dict[str, Any]:
        """Give a sign of life; one's own agent is registered if nobody knows it. The agent as it is.

        Raises ``Refused``.
        """
        try:
            answer = await self.post(caller, f"/api/agents/{segment(agent_id)}/heartbeat", {}, tries=1)
        except Refused as refused:
            if refused.code != Code.AGENT_NOT_FOUND.value or fold(agent_id) != fold(caller.agent_id):
                raise
            return await self.register(caller)
        return answer.body

    async def register(self, caller: Caller) -> dict[str, Any]:
        """Register the caller's agent; the agent as it is. Raises ``Refused``."""
        return (await self.post(caller, "/api/agents", caller.registration(), tries=1)).body

    async def _call(
        self,
        caller: Caller,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        wait_s: float = ANSWER_S,
        **more: Any,
    ) -> Answer:
        sent = {**caller.headers, **(headers or {})}
        path = f"/{caller.tenant}{path}" if caller.tenant else path
        try:
            response = await self._http.request(method, path, headers=sent, timeout=wait_s, **more)
        except httpx.HTTPError as error:
            raise Refused(UNREACHABLE, self._explain(error), retryable=True) from None
        body = _json(response)
        if response.is_success:
            return Answer(response.status_code, body, response.headers.get(_CURSOR, ""))
        raise _refusal(response.status_code, body)


def segment(name: str) -> str:
    """An id as one segment of a path; dots alone would be read as the way up (RFC 3986 section 5.2.4)."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _json(response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(
            UNREACHABLE, f"The answer {response.status_code} is not a broker's: check the address."
        ) from None


def _refusal(status: int, body: object) -> Refused:
    """Problem details (RFC 9457) as an exception."""
    try:
        problem = Problem.model_validate(cast("dict[str, Any]", body if isinstance(body, dict) else {}))
    except ValidationError:
        return Refused(UNREACHABLE, f"The answer {status} is not a broker's: check the address.")
    return Refused(
        problem.code,
        problem.detail or problem.title,
        violations=tuple(Violation(fault.field, fault.description) for fault in problem.errors),
        facts=problem.facts,
        retryable=problem.retryable,
    )
