"""Real servers in threads of the test process: the broker, and any ASGI application.

Everything listens on loopback, port 0. ``with running(app) as url`` and ``with broker(...) as b``.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import secrets
import socket
import tempfile
import threading
from collections.abc import Awaitable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import httpx
import uvicorn

from a2a_handoff.app import Application
from a2a_handoff.clock import SystemClock
from a2a_handoff.config import Settings
from a2a_handoff.notify import LocalNotifier
from a2a_handoff.ports import Clock
from a2a_handoff.server import protocols
from a2a_handoff.wire.native.views import event_name

_T = TypeVar("_T")
WAIT_S = 10.0
_NUMBERS = itertools.count(1)


class Ahead(SystemClock):
    """The machine's clock, but that what expires by silence can be made to expire at once.

    ``seconds`` is how far its monotonic time is ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[_T], timeout_s: float = 30.0) -> _T:
        async def whole() -> _T:
            return await work

        return asyncio.run_coroutine_threadsafe(whole(), self.loop).result(timeout_s)

    def close(self) -> None:
        self.run(_cancel_rest())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


async def _cancel_rest() -> None:
    """End what a library left running in this loop, such as sse-starlette its watcher."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=WAIT_S)


def bound_socket(port: int = 0) -> socket.socket:
    # Only a socket that says TCP gets TCP_NODELAY from asyncio; without, each answer takes 40 ms more.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


#: Ports that are given out, each locked for as long as this process lives.
_KEPT: dict[int, IO[str]] = {}


def kept_port() -> int:
    """A port that nobody listens on, for a server that comes and goes, or for none.

    Nobody else is given it, in this process or in another, and clients, who get theirs from 32768 on, do not
    take it while the server is away.
    """
    while True:
        port = secrets.randbelow(10_000) + 20_000
        if port in _KEPT:
            continue
        lock = (Path(tempfile.gettempdir()) / f"a2a-handoff-port-{port}").open("w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            bound_socket(port).close()
        except OSError:
            lock.close()
            continue
        _KEPT[port] = lock
        return port


class _Quiet(uvicorn.Server):
    """uvicorn in a thread that is not the main one, saying when it is up."""

    up: asyncio.Event

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


async def _start(app: Any, bound: socket.socket, **options: Any) -> tuple[_Quiet, asyncio.Task[None]]:
    chosen: dict[str, Any] = {"http": "httptools", "ws": "none"} | options
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        **chosen,
    )
    server = _Quiet(config)
    server.up = asyncio.Event()
    task = asyncio.create_task(server.serve(sockets=[bound]))
    await asyncio.wait_for(server.up.wait(), WAIT_S)
    return server, task


@contextmanager
def running(app: Any, *, port: int = 0) -> Generator[str]:
    """An ASGI application at an address of its own."""
    loop = Loop()
    bound = bound_socket(port)
    server, task = loop.run(_start(app, bound))
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:

        async def stop() -> None:
            server.should_exit = True
            await asyncio.wait_for(task, WAIT_S)

        loop.run(stop())
        bound.close()
        loop.close()


@dataclass
class Broker:
    """A running broker and a client of it."""

    url: str
    app: Application
    loop: Loop
    http: httpx.Client

    def rpc(
        self, method: str, params: Any, *, version: str = "1.0", request_id: Any = 1, **headers: str
    ) -> Any:
        """A JSON-RPC call; the whole answer."""
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        named = {"A2A-Version": version} if version else {}
        answer = self.http.post("/", json=body, headers=named | headers)
        return answer.json()

    def send(self, text: str = "hello", *, wait: bool = True, **more: Any) -> Any:
        """SendMessage of 1.0; the task. ``context`` and ``message`` go over the defaults."""
        result = self.rpc("SendMessage", send_params(text, wait=wait, **more))
        assert "result" in result, result
        return result["result"]["task"]

    def events(self, text: str = "hello", **more: Any) -> Iterator[Any]:
        """SendStreamingMessage of 1.0: every result of the stream."""
        body = {
            "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": send_params(text, **more),
        }  # fmt: skip
        with self.http.stream("POST", "/", json=body, headers={"A2A-Version": "1.0"}) as answer:
            yield from (json.loads(data) for data in sse_data(answer.iter_lines()))

    def handoff(self, handoff_id: str) -> Any:
        return self.http.get(f"/api/handoffs/{handoff_id}").json()

    def log(self, handoff_id: str) -> list[str]:
        """The kinds of the handoff's events."""
        page = self.http.get(f"/api/handoffs/{handoff_id}/events").json()
        return [event["type"].removeprefix("a2a-handoff.") for event in page["events"]]

    def until(self, handoff_id: str, *states: str, timeout_s: float = WAIT_S) -> Any:
        """Follow a handoff until it is in one of the states; fails after ``timeout_s``."""
        journal = self.app.service.journal

        async def follow() -> None:
            async for step in journal.follow(handoff_id):
                if step is not None and step.after.id == handoff_id and step.after.state.value in states:
                    return

        self.loop.run(asyncio.wait_for(follow(), timeout_s), timeout_s + 1)
        return self.handoff(handoff_id)

    def logged(self, handoff_id: str, kind: str, count: int = 1, *, timeout_s: float = WAIT_S) -> None:
        """Wait until the log has ``count`` events of a kind; fails after ``timeout_s``."""
        journal = self.app.service.journal

        async def follow() -> None:
            found = 0
            async for step in journal.follow(handoff_id):
                found += step is not None and step.after.id == handoff_id and event_name(step.event) == kind
                if found == count:
                    return

        self.loop.run(asyncio.wait_for(follow(), timeout_s), timeout_s + 1)

    @property
    def waiters(self) -> Mapping[str, Collection[object]]:
        """Who waits for wake-ups, by topic."""
        notifier = self.app.service.notifier
        assert isinstance(notifier, LocalNotifier)
        return notifier.waiters

    def register(self, agent_id: str, **body: Any) -> Any:
        answer = self.http.post("/api/agents", json={"agent_id": agent_id, **body})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()


def send_params(
    text: str = "hello",
    *,
    wait: bool = True,
    context: dict[str, Any] | None = None,
    message: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    configuration: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Params of SendMessage (1.0)."""
    base = {"messageId": f"m-{next(_NUMBERS)}", "role": "ROLE_USER", "parts": [{"text": text}]}
    params: dict[str, Any] = {"message": base | (message or {})}
    chosen = dict(configuration or {})
    if not wait:
        chosen["returnImmediately"] = True
    if chosen:
        params["configuration"] = chosen
    beside = dict(metadata or {})
    if context is not None:
        beside["handoff_context"] = handoff_context(**context)
    if beside:
        params["metadata"] = beside
    return params


def handoff_context(**more: Any) -> dict[str, Any]:
    """A context that is right, and what differs."""
    return {
        "source_agent": "triage",
        "conversation_summary": "The customer disputes an invoice.",
        "user_intent": "Correct the invoice of March.",
        "key_facts": {"invoice": "INV-7", "amount": 42},
    } | more


def sse_data(lines: Iterator[str]) -> Iterator[str]:
    """The data of server-sent events."""
    for line in lines:
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


@contextmanager
def broker(folder: Path, *, port: int = 0, clock: Clock | None = None, **settings: Any) -> Generator[Broker]:
    """A broker on a store in ``folder``, without any agents, with short waits."""
    cards = folder / "cards"
    cards.mkdir(exist_ok=True)
    chosen: dict[str, Any] = {
        "store": f"sqlite:///{folder / 'broker.db'}",
        "cards": cards,
        "ack_wait": 1.0,
        "retry_delay": 0.05,
        "cancel_wait": 1.0,
        "grace": 4.0,
    } | settings
    loop = Loop()
    bound = bound_socket(port)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    application = loop.run(_application(Settings(**chosen), url, clock))
    server, task = loop.run(_start(application, bound, **protocols(application.settings)))
    with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
        try:
            yield Broker(url=url, app=application, loop=loop, http=client)
        finally:

            async def stop() -> None:
                application.begin_stop()
                server.should_exit = True
                await asyncio.wait_for(task, WAIT_S)
                await application.stop()

            loop.run(stop())
            bound.close()
            loop.close()


async def _application(settings: Settings, url: str, clock: Clock | None) -> Application:
    application = Application(settings, clock=clock)
    await application.start(url=url)
    return application
