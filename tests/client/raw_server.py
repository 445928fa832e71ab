"""A server that does exactly what a test tells it, down to the bytes, and the makers that go with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from a2a_handoff.client import A2AClient
from a2a_handoff.core.agents import Agent, Binding, Generation, Interface
from a2a_handoff.ports import AgentError, Delivery, Update
from a2a_handoff.security.urls import OutboundPolicy
from tests.support.streams import listening

T = TypeVar("T")

MESSAGE = b'{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}'
TASK_DONE = {"task": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}}


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def params(self) -> Any:
        return self.json["params"]


Handler = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawServer:
    port: int = 0
    scheme: str = "http"
    requests: list[Request] = field(default_factory=list[Request])
    open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/a2a"


@asynccontextmanager
async def raw_server(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawServer]:
    """Reads requests and lets ``handler`` write what it likes; the connection is closed after it."""
    server = RawServer(scheme="https" if tls else "http")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.open.add(writer)
        try:
            request = await read_request(reader)
            server.requests.append(request)
            work = asyncio.ensure_future(handler(request, writer))
            gone = asyncio.ensure_future(reader.read(1))  # the client closed, or sent more
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            for step in (work, gone):
                step.cancel()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await step
        finally:
            server.open.discard(writer)

    async with listening(serve, tls) as server.port:
        yield server


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


def answer(body: bytes | Any, status: int = 200, kind: str = "application/json", headers: str = "") -> bytes:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = f"Content-Type: {kind}\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n{headers}"
    head = f"HTTP/1.1 {status} X\r\n{headers}\r\n"
    return head.encode("latin-1") + payload


def rpc(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "1", "result": result}


def says(*pieces: bytes) -> Handler:
    """A handler that writes these pieces, each on its own, and closes."""

    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return handler


SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def event(result: Any) -> bytes:
    return b"data: " + json.dumps(rpc(result), ensure_ascii=False).encode() + b"\n\n"


def working(task_id: str = "t-1") -> dict[str, Any]:
    return {"task": {"id": task_id, "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}}


def status(state: str, task_id: str = "t-1") -> dict[str, Any]:
    return {"statusUpdate": {"taskId": task_id, "contextId": "c-1", "status": {"state": state}}}


def chunk(text: str, *, append: bool = True) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": artifact, "append": append}}


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a TCP reset."""
    sock = cast("socket.socket", writer.get_extra_info("socket"))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    cast("asyncio.Transport", writer.transport).abort()


async def for_ever(_: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return cast("int", sock.getsockname()[1])


def agent_at(
    url: str,
    *,
    streaming: bool = False,
    binding: Binding = Binding.JSONRPC,
    generation: Generation = Generation.V1_0,
    tenant: str = "",
    **more: Any,
) -> Agent:
    interface = Interface(url=url, binding=binding, generation=generation, tenant=tenant)
    return Agent(agent_id="a", tenant="default", interfaces=(interface,), streaming=streaming, **more)


def delivery(message: bytes = MESSAGE, **more: Any) -> Delivery:
    return Delivery(message=message, **more)


@asynccontextmanager
async def client(**settings: Any) -> AsyncGenerator[A2AClient]:
    """A client whose waits are short enough for tests."""
    policy = settings.pop("policy", None) or OutboundPolicy(allow_private=True)
    settings = {"poll_min_s": 0.01, "poll_max_s": 0.05} | settings
    made = A2AClient(policy, **settings)
    try:
        yield made
    finally:
        await made.close()


async def collect(
    made: A2AClient, agent: Agent, sent: Delivery | None = None, first_wait_s: float | None = 10.0
) -> list[Update]:
    updates = made.send(agent, sent or delivery(), first_wait_s=first_wait_s)
    async with aclosing(updates):
        return [update async for update in updates]


async def fault_of(
    handler: Handler, *, streaming: bool = False, first_wait_s: float | None = 10.0, **settings: Any
) -> AgentError:
    """The error with which a send to such a server ends."""
    async with raw_server(handler) as server, client(**settings) as made:
        with pytest.raises(AgentError) as caught:
            await collect(made, agent_at(server.url, streaming=streaming), first_wait_s=first_wait_s)
    return caught.value


def run(body: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(body, 30))


def open_sockets() -> int:
    """Sockets of this process."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith("socket:")
    return count


async def until(condition: Callable[[], bool], *, within_s: float = 5.0) -> None:
    """Wait for something that happens elsewhere."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - it happens in another process or library
            await asyncio.sleep(0.01)
