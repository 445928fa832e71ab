"""Both ends of the wire, down to the bytes: an agent that misbehaves, and a caller that hangs up.

The agent runs in a thread of its own and answers each method with a handler of ``tests.client.raw_server``;
the caller is a bare socket, which can be reset at any byte.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, Self
from urllib.parse import urlsplit

from tests.client.raw_server import Handler, RawServer, Request, answer, raw_server, rpc
from tests.support.running import WAIT_S, Loop, send_params


@contextmanager
def raw(**methods: Handler) -> Generator[RawServer]:
    """An agent that answers each JSON-RPC method with its own handler, and everything else with a card."""

    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        chosen = methods.get(request.json["method"]) if request.method == "POST" else None
        if chosen is None:
            writer.write(answer({"name": "raw"}))
            await writer.drain()
            return
        await chosen(request, writer)

    loop = Loop()
    server = raw_server(handler)
    try:
        yield loop.run(server.__aenter__())
    finally:
        loop.run(server.__aexit__(None, None, None))
        loop.close()


def calls(server: RawServer, method: str) -> list[Request]:
    """The calls of one JSON-RPC method that an agent got."""
    posts = [request for request in list(server.requests) if request.method == "POST"]
    return [request for request in posts if request.json["method"] == method]


def tells(state: str, task_id: str = "t-1", **more: Any) -> Handler:
    """A handler that answers with a task (for GetTask)."""

    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        task = {"id": task_id, "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}"}} | more
        writer.write(answer(rpc(task)))
        await writer.drain()

    return handler


class Gate:
    """Something that a script waits for and a test opens."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    async def wait(self, within_s: float = WAIT_S) -> None:
        assert await asyncio.to_thread(self._open.wait, within_s), "nobody opened the gate"


def eventually(condition: Callable[[], Any], *, within_s: float = WAIT_S) -> Any:
    """What a condition gives once it gives something; for what happens in another thread."""
    pause = threading.Event()
    for _ in range(int(within_s / 0.02)):
        found = condition()
        if found:
            return found
        pause.wait(0.02)
    raise AssertionError(f"not within {within_s} s")


def streaming_body(text: str = "hello", *, method: str = "SendStreamingMessage", **more: Any) -> bytes:
    """A JSON-RPC call of 1.0 as bytes."""
    call = {"jsonrpc": "2.0", "id": "wire", "method": method, "params": send_params(text, **more)}
    return json.dumps(call).encode()


class Caller:
    """A client of the broker on a bare socket."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).hostname or ""
        self._socket = socket.create_connection((self._host, urlsplit(url).port or 80), timeout=WAIT_S)
        self.read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def post(
        self, path: str, body: bytes, *, headers: str = "A2A-Version: 1.0\r\n", length: int | None = None
    ) -> None:
        """Send a request. ``length`` is what it says of its body, if not the truth."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body) if length is None else length}\r\n{headers}\r\n"
        )
        self._socket.sendall(head.encode() + body)

    def get(self, path: str) -> None:
        """Ask for something; the connection is closed after the answer."""
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n\r\n".encode()
        )

    def until(self, wanted: bytes) -> bytes:
        """Read byte by byte until ``wanted`` came; all that was read so far."""
        while wanted not in self.read:
            piece = self._socket.recv(1)
            assert piece, f"closed before {wanted!r}: {self.read!r}"
            self.read += piece
        return self.read

    def rest(self) -> bytes:
        """Everything until the server closes."""
        while piece := self._socket.recv(65536):
            self.read += piece
        return self.read

    def lines(self) -> Iterator[bytes]:
        """Every line until the server closes, none of them kept."""
        with self._socket.makefile("rb") as reading:
            yield from reading

    def reset(self) -> None:
        """Close with RST, as a process does that dies."""
        with closing(self._socket):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of a metric that have these labels, in Prometheus' text format."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in wanted))
