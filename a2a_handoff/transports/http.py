"""HTTP/1.1 as uvicorn speaks it, with the bounds that it lacks.

Duty: how large the head of a request may be, how long a request may take to arrive whole, and how long an
answer may lie unread; that head and body of an answer go out together.
Rules: what is too large or too late is told so if it can be (431, 408), and its connection is closed.
Only waiting for the client counts: an answer, a stream too, takes as long as it takes, but a client that
reads none of what waits for it is cut off. uvicorn lets who writes wait for the client, without an end.
Sources: RFC 9110 section 15.5.9 (408), RFC 6585 section 5 (431).
Not here: the size of a body, which its reader bounds (``asgi``, ``native``).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: What a header costs beside its bytes: a flood of empty ones is a flood.
_HEADER_COST = 32

_Bytes = bytes | bytearray | memoryview


class _Answers(asyncio.Transport):
    """What answers are written to: a head waits for its body until the end of this turn of the loop.

    So an answer is one piece for the kernel, and for its reader.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._head: _Bytes = b""

    def write(self, data: _Bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif bytes(data[:5]) == b"HTTP/":
            self._head = data
            self._loop.call_soon(self._send_head)
        else:
            self._transport.write(data)

    def _send_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._send_head()
        self._transport.close()


class BoundedHttp(HttpToolsProtocol):
    """One connection.

    ``head_max`` bounds the bytes of the request line and the headers, ``arrival_s`` the seconds from the
    first byte of a request, or from the end of the answer before, to its last byte; ``send_timeout_s`` the
    seconds for which a client may take nothing of what waits for it.
    """

    def __init__(
        self, *args: Any, head_max: int, arrival_s: float, send_timeout_s: float, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._head_max = head_max
        self._arrival_s = arrival_s
        self._send_timeout_s = send_timeout_s
        self._unread = 0
        self._full: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head = 0
        self._unparsed = 0
        self._began = False
        self._too_large = False
        self._since = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._answers: _Answers

    # --- the head --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        self._began = False
        super().data_received(data)
        if self._in_head and not self._began and not self.transport.is_closing():
            # A header without an end stays in the parser, which tells nothing of it.
            self._unparsed += len(data)
            if self._unparsed > self._head_max:
                self._refuse_head()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = self._began = True
        self._head = self._unparsed = 0
        self._since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._grow(len(name) + len(value) + _HEADER_COST)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        super().on_headers_complete()
        if self.cycle and self.cycle.transport is self.transport:
            self.cycle.transport = self._answers

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > self._head_max:
            self._too_large = True
            raise ValueError  # ends the parsing; the refusal follows

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or is too much of it."""
        if self._too_large:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        self._refuse(b"431 Request Header Fields Too Large", f"A head has at most {self._head_max} bytes.")

    # --- time ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects."""
        super().connection_made(transport)
        self._answers = _Answers(transport, self.loop)
        self._since = self.loop.time()
        self._alarm = self.loop.call_later(self._arrival_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._let_be()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """The connection goes over to another protocol, with bounds of its own."""
        self._let_be()
        super().handle_websocket_upgrade()

    def _let_be(self) -> None:
        for alarm in (self._alarm, self._full):
            if alarm is not None:
                alarm.cancel()

    def on_response_complete(self) -> None:
        """The answer is on its way; the next request may come."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        """Whether the client owes us bytes, and for too long. One alarm serves a connection all its life."""
        if self.transport.is_closing():
            return
        # Between requests uvicorn has an alarm of its own, until the next byte comes.
        idle = not self.cycle or (self.cycle.response_complete and self.timeout_keep_alive_task is None)
        left_s = self._arrival_s
        if idle or self._awaits_body():
            left_s += self._since - self.loop.time()
        if left_s > 0:
            self._alarm = self.loop.call_later(left_s, self._look)
        elif self._in_head or self._awaits_body():
            self._refuse(b"408 Request Timeout", f"A request has {self._arrival_s:g} seconds to arrive.")
        else:
            self.transport.close()

    # --- reading too slowly ----------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More is on its way than the client takes at once."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._full = self.loop.call_later(self._send_timeout_s, self._look_unread)

    def resume_writing(self) -> None:
        """The client took it."""
        super().resume_writing()
        if self._full is not None:
            self._full.cancel()
            self._full = None

    def _look_unread(self) -> None:
        """Whether the client took anything since the last look. What nobody reads cannot be told anybody."""
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread:
            self._unread = unread
            self._full = self.loop.call_later(self._send_timeout_s, self._look_unread)
        else:
            self._full = None
            self.transport.abort()

    # --- refusing --------------------------------------------------------------------------------

    def _awaits_body(self) -> bool:
        return bool(self.cycle) and self.cycle.more_body and not self.cycle.response_started

    def _refuse(self, status: bytes, text: str) -> None:
        """Say why, unless an answer is under way, and close."""
        if not self.cycle or self.cycle.response_complete or not self.cycle.response_started:
            body = text.encode()
            self.transport.write(
                b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b" % (status, len(body), body)
            )
        self.transport.close()
