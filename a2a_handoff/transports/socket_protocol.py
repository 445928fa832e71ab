"""A WebSocket as uvicorn speaks it, with the bounds that it lacks.

Duty: to notice a client that has gone without a word, or that does not read; to say why a socket is closed,
and to be done with it in a bounded time.
Rules: a client is asked for a sign of life every ``ping_s`` seconds; one that does not answer in as long is
gone. More than the transport takes at once waits for the client, and one that takes nothing of it for
``ping_s`` seconds reads too slowly. Whoever closes waits a bounded time for the other side; then the
connection is cut, whatever was not read.
Sources: RFC 6455 sections 5.5 and 7.
Not here: what is said over a socket (``websocket``).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from a2a_handoff.wire.native.frames import frame

#: Seconds that a closed socket waits for the other side to close as well.
LINGER_S = 2.0
#: The close code of a client that reads too slowly (RFC 6455 section 7.4.2: private use).
LAGGING = 4429
#: Pieces that one message may come in: empty ones count for no bytes, and have to be kept all the same.
PIECES_MAX = 10_000
#: What the kernel keeps of what is on its way: a ping that stands behind megabytes comes too late.
_KERNEL_BYTES = 262_144
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
#: Close code and last words of a broker that stops, or leaves.
RESTARTS = 1012
STOPS = "The broker stops. Come back with the cursor; what you sent and was not answered, send again."
_NO_TEXT = 1007
_TOO_LARGE = 1009
_GONE = 1011


class BoundedSocket(WebSocketsSansIOProtocol):
    """One connection. ``ping_s``: see above."""

    def __init__(self, *args: Any, ping_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ping_interval = self.ping_timeout = self._ping_s = ping_s
        self._full: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._pong: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client comes over from HTTP."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)

    # --- reading too slowly ----------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More is on its way than the client takes at once."""
        super().pause_writing()
        self._waiting = self.transport.get_write_buffer_size()
        if self._full is None:
            self._full = self.loop.call_later(self._ping_s, self._look)

    def resume_writing(self) -> None:
        """The client took it."""
        super().resume_writing()
        if self._full is not None:
            self._full.cancel()
            self._full = None
        if self._pong and not self.close_sent:
            self.transport.write(self._pong.pop())

    def handle_ping(self) -> None:
        """Pings of a client that does not read: the last one is answered, when it reads on.

        RFC 6455 section 5.5.3 leaves the others to us; their answers would pile up.
        """
        if self._full is None or self.conn.close_sent is not None:
            super().handle_ping()
        elif pongs := self.conn.data_to_send():
            self._pong = pongs[-1:]

    def _look(self) -> None:
        """Whether the client took anything since the last look."""
        waiting = self.transport.get_write_buffer_size()
        if waiting < self._waiting:
            self._waiting = waiting
            self._full = self.loop.call_later(self._ping_s, self._look)
            return
        self._full = None
        detail = f"Nothing was read for {self._ping_s:g} seconds. Come back with the cursor."
        self._end(LAGGING, "lagging", frame("lagging", detail=detail), linger_s=self._ping_s)

    # --- gone without a word ---------------------------------------------------------------------

    def keepalive_timeout(self) -> None:
        """The ping was not answered; it may stand behind what the client is still reading."""
        if self._full is not None:
            self.pong_timer = self.loop.call_later(self._ping_s, self.keepalive_timeout)
            return
        self.pong_timer = None
        self._end(_GONE, "no answer to a ping")

    # --- the end ---------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """The server stops: the client is told, and comes back to the next one."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            return
        self._end(RESTARTS, "the broker stops", frame("closing", code=RESTARTS, detail=STOPS))

    def handle_parser_exception(self) -> None:
        """What came is no WebSocket, or too much of one; what else comes is not read."""
        if not self.close_sent and self.conn.close_sent is not None:
            self._closed(self.conn.close_sent.code, self.conn.close_sent.reason)

    def handle_close(self, event: Frame) -> None:
        """The client closes, or has heard that we do."""
        super().handle_close(event)
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def _end(self, code: int, reason: str, last_word: bytes = b"", *, linger_s: float = LINGER_S) -> None:
        """Say it, and let the surface know that the socket is closed."""
        if self.close_sent or self.transport.is_closing():
            return
        if last_word:
            self.conn.send_text(last_word)
        self.conn.send_close(code, reason)
        self._closed(code, reason, linger_s=linger_s)

    def _closed(self, code: int, reason: str, *, linger_s: float = LINGER_S) -> None:
        self.stop_keepalive()
        self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(linger_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if self._full is not None:
            self._full.cancel()
            self._full = None
        super().connection_lost(exc)

    # --- the beginning, and what is written ------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; the first are the whole request."""
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()

    def handle_cont(self, event: Frame) -> None:
        """Another piece of a message."""
        if len(self.frames) >= PIECES_MAX:
            self._end(_TOO_LARGE, f"a message has at most {PIECES_MAX} pieces")
        if self.close_sent:
            self.frames = []
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """A whole message came. A text that is no text ends the socket (RFC 6455 section 8.1)."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self._end(_NO_TEXT, "a text must be UTF-8")
                return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        """As ASGI has it. ``OSError`` once the socket is closed, whoever closed it."""
        await self.writable.wait()
        if self.close_sent:
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.close" and self.close_timer is not None:
            self.close_timer.cancel()
            self.close_timer = self.loop.call_later(LINGER_S, self.transport.abort)
