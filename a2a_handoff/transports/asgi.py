"""Reading requests and writing answers, for the surfaces that stand on raw ASGI.

Duty: bodies within their limit, headers, JSON answers, server-sent events.
Sources: ASGI 3.0; WHATWG HTML section 9.2 (server-sent events).
Not here: what is in them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Self

import msgspec

from a2a_handoff.config import Settings
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.errors import Code, HandoffError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Where ``app`` puts the tenant of a path, which it takes off.
TENANT_KEY = "a2a_handoff.tenant"

_JSON = b"application/json"
_KEEPALIVE = b": keep-alive\n\n"


class Bounds(msgspec.Struct, frozen=True):
    """How much a request may bring: bytes of its body, and values of the JSON in it."""

    size: int
    values: int

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the operator wants it."""
        return cls(settings.max_body, settings.max_values)


class ClientGone(Exception):
    """The client closed its connection before it had sent its whole request."""


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers by lower-case name. Of several with one name the first counts."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found.setdefault(name, value)
    return found


def tenant_of(scope: Scope) -> str:
    """The tenant that the path of a request names, empty if it names none."""
    return scope.get(TENANT_KEY, "")


def named_extensions(headers: dict[bytes, bytes]) -> tuple[str, ...]:
    """The extensions that a caller activates (A2A 1.0 section 14.2.2; 0.3 calls the header ``X-…``)."""
    named = text_header(headers, b"a2a-extensions") or text_header(headers, b"x-a2a-extensions")
    return tuple(filter(None, (uri.strip() for uri in named.split(","))))


def activated(extensions: tuple[str, ...], header: bytes = b"a2a-extensions") -> list[tuple[bytes, bytes]]:
    """The header that names what was activated: of extensions of ours there is one."""
    return [(header, EXTENSION_URI.encode())] if EXTENSION_URI in extensions else []


def text_header(headers: dict[bytes, bytes], name: bytes) -> str:
    """One header as text, empty if it is absent (RFC 9110 section 5.5: bytes above 127 are opaque)."""
    return headers.get(name, b"").decode("latin-1")


async def read_body(receive: Receive, headers: dict[bytes, bytes], limit: int) -> bytes:
    """The whole body. Bytes are counted as they come, whatever Content-Length says.

    Raises ``HandoffError`` (``payload_too_large``) and ``ClientGone``.
    """
    stated = headers.get(b"content-length", b"")
    if stated.isdigit() and int(stated) > limit:
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts, size = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> HandoffError:
    return HandoffError(
        Code.PAYLOAD_TOO_LARGE,
        f"The body is larger than {limit} bytes; send less, or pass large content by URL.",
        facts={"limit_bytes": str(limit)},
    )


async def answer(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: bytes = _JSON,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """One whole answer."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", b"%d" % len(body)),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def stream(
    receive: Receive,
    send: Send,
    events: AsyncGenerator[bytes | None],
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> bool:
    """Server-sent events; ``None`` is a keep-alive comment. False if the client went away.

    The generator is closed on every way out. A client that leaves is noticed at once, not at the next
    event: ``send`` alone would not tell.
    """
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                *headers,
            ],
        }
    )
    writing = asyncio.ensure_future(_write(send, events))
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((writing, gone), return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()
            return True
        return False
    finally:
        for task in (writing, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await events.aclose()


async def _write(send: Send, events: AsyncGenerator[bytes | None]) -> None:
    async for event in events:
        body = _KEEPALIVE if event is None else event
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def departure(receive: Receive) -> Callable[[], Awaitable[bool]]:
    """A question to ask while an answer is awaited: has the client gone? Costs nothing until asked."""

    async def gone() -> bool:
        try:
            async with asyncio.timeout(0.001):
                await disconnected(receive)
        except TimeoutError:
            return False
        return True

    return gone


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone. Whatever else it sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass
