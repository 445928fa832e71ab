"""Webhooks: an ASGI application that keeps what it is told, and answers as its script says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.running import running
from tests.support.wire import eventually

ENDS = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")


@dataclass(frozen=True)
class Told:
    """One notification."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["x-a2a-notification-id"]

    @property
    def kind(self) -> str:
        """The member of a 1.0 notification; ``task`` for one of the older generations."""
        return "task" if "status" in self.json else next(iter(self.json))

    @property
    def state(self) -> str:
        """The state that it tells, without its prefix and in upper case; empty for an artifact."""
        body = self.json if "status" in self.json else next(iter(self.json.values()))
        word: str = body.get("status", {}).get("state", "")
        return word.removeprefix("TASK_STATE_").upper().replace("-", "_")

    @property
    def text(self) -> str:
        """The text of an artifact."""
        artifact = self.json.get("artifactUpdate", {}).get("artifact", {})
        return "".join(part.get("text", "") for part in artifact.get("parts", []))

    def __str__(self) -> str:
        return self.text or self.state


@dataclass
class Answer:
    """How a call is answered. ``headers`` are added."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Script = Callable[[Told], Awaitable[Answer | None]]


async def _takes(_: Told) -> Answer | None:
    return None


@dataclass
class Hook:
    """A receiver. ``told`` is what it took, ``refused`` what it answered otherwise; both in order."""

    script: Script = _takes
    told: list[Told] = field(default_factory=list[Told])
    refused: list[Told] = field(default_factory=list[Told])
    url: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        one = Told(scope["path"], headers, body)
        assert scope["method"] == "POST"
        answer = await self.script(one) or Answer()
        (self.told if answer.status < 300 else self.refused).append(one)
        lines = [(b"content-length", b"0")]
        lines += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": b""})

    def of(self, task_id: str) -> list[Told]:
        """What it was told of one task."""
        return [one for one in list(self.told) if task_id.encode() in one.body]

    def until(self, *states: str, count: int = 1, within_s: float = 10.0) -> list[Told]:
        """What it took, once ``count`` notifications of one of the states have come; by default an end."""
        wanted = states or ENDS

        def come() -> list[Told]:
            told = list(self.told)
            return told if sum(one.state in wanted for one in told) >= count else []

        found: list[Told] = eventually(come, within_s=within_s)
        return found

    @property
    def words(self) -> list[str]:
        """What it was told, each as a word: the text of an artifact or the state of the task."""
        return [str(one) for one in list(self.told)]


def answers(*statuses: int, then: int = 200) -> Script:
    """Answers with each status in turn, then always with the last one."""
    rest = list(statuses)

    async def script(_: Told) -> Answer:
        return Answer(rest.pop(0) if rest else then)

    return script


class Shut:
    """A script that answers nothing until it is opened; for a slow receiver."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.called = threading.Event()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, _: Told) -> Answer | None:
        self.called.set()
        await asyncio.to_thread(self._open.wait, 10.0)
        return None


@contextmanager
def hook(script: Script = _takes, *, port: int = 0) -> Generator[Hook]:
    """A running receiver."""
    made = Hook(script)
    with running(made, port=port) as made.url:
        yield made
