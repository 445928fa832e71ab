"""One request at ``/mcp`` and its answer, which its client may cancel.

Duty: give the package ``mcp`` a request that was read, and end it when its client says so in another
request.
Rules: there are no sessions, so a cancel is known by what the client says of itself in both requests, the
credentials, the query of the address, the host, and by the id. Who shares all of these could cancel for
another, who calls again and has lost nothing. What is canceled looks to the package as if the connection
had ended. Source: MCP 2025-06-18, section Cancellation; later clients close the request instead.
Not here: bounds (``surface``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from a2a_handoff.transports.asgi import App, Message, Receive, Scope, Send, answer, headers_of

_CANCEL = "notifications/cancelled"

Key = tuple[object, ...]


class _Params(msgspec.Struct, frozen=True):
    requestId: int | str | None = None  # noqa: N815 - the name of MCP


class _Said(msgspec.Struct, frozen=True):
    method: str = ""
    id: int | str | None = None
    params: _Params = _Params()


_decode = msgspec.json.Decoder(_Said).decode


class Exchanges:
    """The requests that are being answered, and how to end them."""

    def __init__(self) -> None:
        self._running: dict[Key, set[asyncio.Event]] = {}

    async def answer(self, app: App, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Have ``app`` answer a request whose body was read."""
        said = _Said()
        with contextlib.suppress(msgspec.DecodeError):  # what is wrong with it the package says
            said = _decode(body)
        if said.method == _CANCEL:
            for canceled in self._running.get(_key(scope, said.params.requestId), ()):
                canceled.set()
        with self._known(_key(scope, said.id)) as canceled:
            exchange = _Exchange(body, receive, send, canceled)
            await app(scope, exchange.receive, exchange.send)
            await exchange.finish()

    @contextmanager
    def _known(self, key: Key) -> Generator[asyncio.Event]:
        canceled = asyncio.Event()
        same = self._running.setdefault(key, set())
        same.add(canceled)
        try:
            yield canceled
        finally:
            same.discard(canceled)
            if not same:
                del self._running[key]


def _key(scope: Scope, request_id: int | str | None) -> Key:
    client = scope.get("client") or ("",)
    credentials = headers_of(scope).get(b"authorization", b"")
    return client[0], credentials, scope.get("query_string", b""), request_id


class _Exchange:
    """The two directions of one request."""

    def __init__(self, body: bytes, receive: Receive, send: Send, canceled: asyncio.Event) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._send = send
        self._canceled = canceled
        self._started = self._ended = False

    async def receive(self) -> Message:
        """The body that was read; then the end of the connection, or of the client's patience."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        ends = [asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._canceled.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self._canceled.is_set():
                return await ends[0]  # pyright: ignore[reportReturnType] - the first one is a message
        finally:
            for end in ends:
                end.cancel()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """A part of the answer."""
        self._started = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """End the answer of what was canceled: the package thinks that nobody reads it."""
        if not self._canceled.is_set() or self._ended:
            return
        if self._started:
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await answer(self._send, 202, b"")
