"""An agent whose every answer is given by the test, when the test wants it.

The test takes the calls one by one (``puppet.next``) and answers, streams, or leaves them without an
answer: whatever the broker does meanwhile, the agent stands still. No step of a handoff is hit by chance.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.support.agents import Agent, Answer, Call, said
from tests.support.running import WAIT_S, running

_GONE: ContextVar[threading.Event] = ContextVar("gone")


class Turn:
    """One call that waits for its answer. ``gone``: its caller has hung up."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.gone = _GONE.get()
        self._loop = asyncio.get_running_loop()
        self._words: asyncio.Queue[Any] = asyncio.Queue()

    def answer(self, body: dict[str, Any]) -> None:
        """One whole answer."""
        self._say(("answer", body))

    def event(self, body: dict[str, Any]) -> None:
        """The next event of a stream, which begins with the first."""
        self._say(("event", body))

    def end(self) -> None:
        """The stream ends, or the call without an answer fails."""
        self._say(("end", None))

    def _say(self, word: tuple[str, Any]) -> None:
        # As it is now: the test may change its task before the agent has sent it.
        self._loop.call_soon_threadsafe(self._words.put_nowait, deepcopy(word))

    async def play(self) -> Answer:
        """What the agent answers."""
        kind, body = await self._words.get()
        if kind == "answer":
            return body
        if kind == "end":
            return {"error": {"code": -32603, "message": "the test is over"}}
        return self._events(body)

    async def _events(self, first: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield first
        while True:
            kind, body = await self._words.get()
            if kind == "end":
                return
            yield body


@dataclass
class Puppet(Agent):
    """The agent. ``url`` is where it listens."""

    url: str = ""
    turns: list[Turn] = field(default_factory=list[Turn])
    """Every call so far, those that were taken too."""
    auto: dict[str, Callable[[Call], Answer]] = field(default_factory=dict[str, Any])
    """Methods that are answered at once, and how."""
    _waiting: list[Turn] = field(default_factory=list[Turn])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def next(self, method: str = "", *, timeout_s: float = WAIT_S) -> Turn:
        """The oldest call that was not taken yet and still waits. Fails after ``timeout_s``."""

        def found() -> Turn | None:
            live = (t for t in self._waiting if not t.gone.is_set())
            return next((t for t in live if method in ("", t.call.method)), None)

        with self._changed:
            turn = self._changed.wait_for(found, timeout_s)
            assert turn is not None, (
                f"nobody called {method or 'the agent'}: {[c.method for c in self.calls]}"
            )
            self._waiting.remove(turn)
            return turn

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Listens for the caller's going away while the call is answered."""
        heard: asyncio.Queue[Any] = asyncio.Queue()
        gone = threading.Event()
        _GONE.set(gone)

        async def listen() -> None:
            while not gone.is_set():
                message = await receive()
                heard.put_nowait(message)
                if message["type"] == "http.disconnect":
                    gone.set()

        listening = asyncio.create_task(listen())
        try:
            await super().__call__(scope, heard.get, send)
        finally:
            listening.cancel()

    def asks(self, task: dict[str, Any], text: str) -> dict[str, Any]:
        """The task, now asking the caller; for an answer."""
        task["status"] = {"state": "TASK_STATE_INPUT_REQUIRED", "message": said(text)}
        return {"task": task}

    def release(self) -> None:
        """Let go of every call."""
        with self._changed:
            for turn in self.turns:
                turn.end()


async def follow_the_test(agent: Agent, call: Call) -> Answer:
    """The script of a puppet: wait for the test."""
    assert isinstance(agent, Puppet)
    if call.method in agent.auto:
        return agent.auto[call.method](call)
    turn = Turn(call)
    with agent._changed:
        agent.turns.append(turn)
        agent._waiting.append(turn)
        agent._changed.notify_all()
    return await turn.play()


@contextmanager
def puppet() -> Generator[Puppet]:
    """A running puppet; at the end whatever still waits is let go."""
    agent = Puppet(follow_the_test)
    with running(agent) as url:
        agent.url = url
        try:
            yield agent
        finally:
            agent.release()
