"""Agents that wait for their work, one class for each way to wait, as cheap as they can be.

What is measured is the broker, so these read no more of an answer than they must. They know nothing of what
is measured: see ``wakeup``, ``rate`` and ``sockets``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from tests.benchmarks.load import Connection
from tests.benchmarks.servers import cpu_s

#: Seconds that a request waits at most; the broker's own limit is 300.
WAIT_S = 290
_AT_ONCE = 100

_T = TypeVar("_T")
_P = TypeVar("_P", bound=asyncio.Protocol)


class Waiter(Protocol):
    """An agent that waits."""

    def next(self) -> asyncio.Future[bytes]:
        """The next offer, whole, as it comes."""
        ...

    def close(self) -> None:
        """Wait no more."""
        ...


class Asking:
    """Waits by a request that is answered when there is something."""

    def __init__(self, connection: Connection, request: bytes) -> None:
        self._connection = connection
        self._request = request

    def next(self) -> asyncio.Future[bytes]:
        """Ask, again after each answer."""
        return self._connection.ask(self._request)

    def close(self) -> None:
        """Cut the connection."""
        self._connection.close()


class Socket(asyncio.Protocol):
    """The least that is a WebSocket client: it masks with zeros, reads text frames, answers pings."""

    def __init__(self, hello: bytes) -> None:
        self._hello = hello
        self._buffer = bytearray()
        self._open = False
        self._come: deque[bytes] = deque()
        self._wanted: asyncio.Future[bytes] | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self.welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next(self) -> asyncio.Future[bytes]:
        """The next offer that was not given out; one call at a time."""
        self._wanted = asyncio.get_running_loop().create_future()
        self._give()
        return self._wanted

    def ask(self, frame: Any) -> asyncio.Future[bytes]:
        """Send a frame; what it is answered. One at a time."""
        self._answer = asyncio.get_running_loop().create_future()
        self._write(1, json.dumps(frame).encode())
        return self._answer

    def close(self) -> None:
        """Cut the connection."""
        self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # that of uvloop is none by name
        key = base64.b64encode(random.randbytes(16)).decode()
        self.transport.write(
            f"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        for waits in (self.welcome, self._wanted, self._answer):
            if waits is not None and not waits.done():
                waits.set_exception(exc or ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            del self._buffer[: end + 4]
            self._open = True
            self._write(1, self._hello)
        while (frame := self._frame()) is not None:
            self._take(*frame)

    def _take(self, kind: int, body: bytes) -> None:
        if kind == 9:
            self._write(10, body)
        elif body.startswith(b'{"type":"offer"'):
            self._come.append(body)
            self._give()
        elif body.startswith(b'{"type":"welcome"'):
            self.welcome.set_result(None)
        elif body.startswith((b'{"type":"ok"', b'{"type":"error"')) and self._answer is not None:
            self._answer.set_result(body)

    def _give(self) -> None:
        if self._come and self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(self._come.popleft())

    def _frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size > 125:
            start += 2 if size == 126 else 8
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start])
        if len(buffer) < start + size:
            return None
        frame = buffer[0] & 15, bytes(buffer[start : start + size])
        del buffer[: start + size]
        return frame

    def _write(self, kind: int, body: bytes) -> None:
        size = bytes([128 | len(body)]) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2)
        self.transport.write(bytes([128 | kind]) + size + bytes(4) + body)


# --- how to open them ----------------------------------------------------------------------------


def request(path: str, body: Any = None) -> bytes:
    """A whole HTTP request: POST with a body, else GET."""
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if body is None:
        return head.encode() + b"\r\n"
    content = json.dumps(body).encode()
    head += "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def connect(url: str) -> Connection:
    """A connection for requests, one after the other."""
    _, connection = await _create(Connection, url)
    return connection


def watch(agent: str) -> bytes:
    """``GET /api/handoffs/watch``."""
    return request(f"/api/handoffs/watch?agent={agent}&timeout={WAIT_S}")


async def poll(url: str, agent: str) -> Asking:
    """Long polls."""
    return Asking(await connect(url), watch(agent))


async def socket(url: str, agent: str, *, events: bool = False) -> Socket:
    """``/ws``. ``events``: it hears its workspace."""
    hello = json.dumps({"type": "hello", "agent_id": agent, "events": events}).encode()
    _, opened = await _create(lambda: Socket(hello), url)
    await opened.welcome
    return opened


async def tool(url: str, agent: str) -> Asking:
    """``watch_handoffs`` at ``/mcp``, shown an offer before it accepts it, as by the other ways."""
    arguments = {"timeout": WAIT_S, "autoAccept": False}
    call = {"name": "watch_handoffs", "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return Asking(await connect(url), request(f"/mcp?agent={agent}", body))


class Surface(NamedTuple):
    """A way to wait. Who was woken waits again after ``back_s`` seconds at the latest."""

    name: str
    open: Callable[[str, str], Awaitable[Waiter]]
    back_s: float


POLL = Surface("long poll", poll, 0.005)
SOCKET = Surface("WebSocket", socket, 0.005)
MCP = Surface("MCP", tool, 0.1)


async def opened(surface: Surface, url: str, agents: Iterable[str]) -> list[Waiter]:
    """Agents that wait in one way."""
    return await each(agents, lambda agent: surface.open(url, agent))


async def register(url: str, agents: Iterable[str]) -> None:
    """Make agents known that fetch their work."""

    async def one(agent: str) -> None:
        connection = await connect(url)
        await connection.ask(request("/api/agents", {"agent_id": agent, "platform": "x"}))
        connection.close()

    await each(agents, one)


async def each(agents: Iterable[str], do: Callable[[str], Awaitable[_T]]) -> list[_T]:
    """Do something for every agent, for some of them at once."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(agent: str) -> _T:
        async with gate:
            return await do(agent)

    return await asyncio.gather(*map(one, agents))


async def quiet(pid: int) -> None:
    """Until a process does next to nothing: whoever was to wait at it waits."""
    while True:
        before = cpu_s(pid)
        await asyncio.sleep(0.5)
        if cpu_s(pid) - before < 0.1:
            return


async def _create(make: Callable[[], _P], url: str) -> tuple[Any, _P]:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    return await loop.create_connection(make, parts.hostname or "127.0.0.1", parts.port or 80)
