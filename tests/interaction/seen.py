"""What a test sends and what comes back, the same for every surface.

Duty: the small interface of a surface, ``Ask`` that goes in, ``Seen``, ``Heard`` and ``Refused`` that come out.
Not here: how a surface writes and reads them (``dialects``, ``wires``, ``natives``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tests.support.running import Broker, handoff_context


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A task as a surface shows it. ``state`` is the word of 1.0 in lower case, such as ``completed``."""

    id: str
    state: str
    said: str
    data: list[dict[str, Any]]
    artifacts: list[str]
    history: list[str]
    context_id: str
    ours: dict[str, Any]

    @property
    def handoff_id(self) -> str:
        """The broker's own name for the task."""
        return self.ours.get("handoff_id", self.id)

    @property
    def attempts(self) -> list[tuple[str, str | None]]:
        """Each attempt: who was asked, and what came of it."""
        return [(attempt["agent_id"], attempt["outcome"]) for attempt in self.ours["attempts"]]

    @property
    def reasons(self) -> list[str]:
        """What each attempt came to nothing by, in words."""
        return [attempt.get("reason", attempt.get("detail", "")) for attempt in self.ours["attempts"]]


@dataclass(frozen=True, kw_only=True)
class Heard:
    """An event of a stream: ``task``, ``status`` or ``artifact``. ``last`` is an artifact's last chunk."""

    kind: str
    task_id: str
    state: str = ""
    said: str = ""
    data: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    artifact: str = ""
    append: bool = False
    last: bool = False
    task: Seen | None = None
    handoff_id: str = ""


class Refused(Exception):
    """The call was refused. ``code`` is the surface's own, ``violations`` are by field."""

    def __init__(
        self,
        reason: str,
        code: int,
        message: str,
        violations: Mapping[str, str],
        facts: Mapping[str, str],
        details: list[dict[str, Any]] | None = None,
    ) -> None:
        self.reason, self.code, self.message = reason, code, message
        self.violations, self.facts = violations, facts
        self.details = details or []
        """As they came, each with its ``@type``."""
        super().__init__(f"{reason} {code}: {message} {dict(violations)}")


class Page(NamedTuple):
    """A page of a listing."""

    tasks: list[Seen]
    next: str
    total: int


@dataclass(frozen=True, kw_only=True)
class Config:
    """A push configuration as a surface shows it. ``scheme`` is the first one."""

    task: str
    id: str
    url: str
    token: str
    scheme: str
    credentials: str


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a test wants to send."""

    text: str = "hello"
    wait: bool = True
    task: str = ""
    message_id: str = ""
    context: Mapping[str, Any] | None = None
    context_id: str = ""
    history: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: str = ""
    push: str = ""
    """The URL of a webhook."""


class Surface(Protocol):
    """What a test can do. ``to`` names the agents to try, in order; ``context`` what differs in it."""

    broker: Broker
    name: str
    codes: str
    returned: str
    """How a task is shown that nobody took."""

    def send(self, text: str = "hello", **more: Any) -> Seen: ...

    def start(self, text: str = "hello", **more: Any) -> Seen:
        """A task under way, without waiting for anything but that it exists."""
        ...

    def stream(self, text: str = "hello", **more: Any) -> Iterator[Heard]: ...

    def get(self, task_id: str, *, history: int | None = None) -> Seen: ...

    def list(self, *, context: str = "", state: str = "", size: int = 0, token: str = "") -> Page: ...

    def cancel(self, task_id: str) -> Seen: ...

    def subscribe(self, task_id: str) -> Iterator[Heard]: ...

    def reply(self, task: Seen, text: str, **more: Any) -> Seen: ...


def ask_of(text: str, *, to: tuple[str, ...] = (), context: Any = None, **more: Any) -> Ask:
    """What ``send`` and its siblings were given, as one value. ``context=False`` sends none."""
    if context is False:
        return Ask(text=text, **more)
    named: dict[str, Any] = {"target_agent": to[0]} if to else {}
    if len(to) > 1:
        named["fallback"] = list(to[1:])
    return Ask(text=text, context=handoff_context(**(named | (context or {}))), **more)


def written(body: Any, facts: str) -> bytes:
    """The body, with ``key_facts`` exactly as given, which no JSON library would write so."""
    text = json.dumps(body)
    if facts:
        at = text.index('"key_facts": ') + len('"key_facts": ')
        text = text[:at] + facts + text[json.JSONDecoder().raw_decode(text, at)[1] :]
    return text.encode()


def artifact_heard(artifact: dict[str, Any], task_id: str, append: bool, last: bool) -> Heard:
    return Heard(kind="artifact", task_id=task_id, artifact=words_of(artifact)[0], append=append, last=last)


def words_of(body: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The text of a message or an artifact, and its data parts."""
    parts = body.get("parts", body.get("content", []))
    data = [part["data"] for part in parts if "data" in part]
    return "".join(part.get("text", "") for part in parts), [one.get("data", one) for one in data]
