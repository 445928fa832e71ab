"""Server-sent events out of bytes that were cut anywhere.

Duty: the data of each event, joined over its lines. Bytes in, bytes out: nothing is decoded, so a cut
inside a character does no harm.
Rules: LF, CR and CRLF end a line; a blank line ends an event; comments and fields other than ``data``
say nothing here. The size of one event is bounded. What stands at the end of the stream without its
blank line is handed over by ``end``, for the caller to judge whether it is whole.
Source: HTML standard, section 9.2.6.
Not here: time limits (``agents``) and what the data means (``wire.answers``).
"""

from __future__ import annotations

from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Sent

_BOM = b"\xef\xbb\xbf"


class EventParser:
    """Feed it chunks; it gives back the data of the events that are complete.

    ``limit`` is the most bytes of one event. More raise ``AgentError`` (``invalid_response``).
    """

    __slots__ = ("_data", "_limit", "_line", "_new", "_size", "_skip_lf")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._size = 0
        self._skip_lf = False
        self._new = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes of the stream."""
        if not chunk:
            return []
        if self._skip_lf and chunk[0] == 0x0A:
            chunk = chunk[1:]  # the second half of a CRLF that was cut
        self._skip_lf = chunk[-1:] == b"\r"
        events: list[bytes] = []
        for piece in chunk.splitlines(keepends=True):
            self._size += len(piece)
            if self._size > self._limit:
                raise AgentError(Outcome.INVALID_RESPONSE, f"event over {self._limit} bytes", sent=Sent.YES)
            self._line.append(piece)
            if piece[-1] in b"\r\n":
                self._end_line(events)
        return events

    def end(self) -> bytes:
        """What is left when the stream ended: the data of an event without its blank line."""
        left: list[bytes] = []
        self._end_line(left)
        self._end_line(left)
        return left[0] if left else b""

    def _end_line(self, events: list[bytes]) -> None:
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        self._line.clear()
        if self._new:
            line = line.removeprefix(_BOM)
            self._new = False
        line = line.rstrip(b"\r\n")
        if not line:
            if self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
            self._size = 0
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b":"):
            self._size = sum(map(len, self._data))  # a stream of comments is no large event


class Messages:
    """A stream of messages that come whole, where server-sent events would have to be put together."""

    def feed(self, message: bytes) -> tuple[bytes, ...]:
        """What is complete now."""
        return (message,)

    def end(self) -> bytes:
        """What is left at the end."""
        return b""
