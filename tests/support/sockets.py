"""A client of the WebSocket: the ``websockets`` library, with bounded waits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.support.running import WAIT_S, Broker


@dataclass
class Socket:
    """One socket, and the frames that it got and nobody asked for yet."""

    connection: ClientConnection
    cursor: str = ""
    frames: list[dict[str, Any]] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)

    def send(self, kind: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"type": kind, **fields}))

    def receive(self, timeout: float = WAIT_S) -> dict[str, Any]:
        """The next frame, whatever it is."""
        if self.frames:
            return self.frames.pop(0)
        return self._read(timeout)

    def next(self, *kinds: str, timeout: float = WAIT_S) -> dict[str, Any]:
        """The next frame of one of these kinds; those before it stay."""
        for number, kept in enumerate(self.frames):
            if kept["type"] in kinds:
                return self.frames.pop(number)
        while True:
            frame = self._read(timeout)
            if frame["type"] in kinds:
                return frame
            self.frames.append(frame)

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Send a frame; its answer, ``ok`` or ``error``."""
        number = next(self.numbers)
        self.send(kind, id=number, **fields)
        answer = self.next("ok", "error", "pong", "welcome")
        assert answer.get("id") == number, answer
        return answer

    def do(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The same, and it must be obeyed."""
        answer = self.ask(kind, **fields)
        assert answer["type"] != "error", answer
        return answer

    def hello(self, agent_id: str, **fields: Any) -> dict[str, Any]:
        return self.do("hello", agent_id=agent_id, **fields)

    def quiet(self) -> list[str]:
        """The kinds of the frames that came before the answer to a ping that is sent now."""
        self.do("ping")
        kinds = [frame["type"] for frame in self.frames]
        self.frames.clear()
        return kinds

    def closed(self, timeout: float = WAIT_S) -> tuple[int, list[dict[str, Any]]]:
        """Read until the broker closes: the code, and the frames that came before."""
        while (closed := self._closed_after(timeout)) is None:
            pass
        return closed, self.frames

    def _closed_after(self, timeout: float) -> int | None:
        """Read one frame; the code of the close if there is none any more."""
        try:
            self.frames.append(self._read(timeout))
        except ConnectionClosed as over:
            if over.rcvd is None:
                raise
            return over.rcvd.code
        return None

    def _read(self, timeout: float) -> dict[str, Any]:
        frame = json.loads(self.connection.recv(timeout))
        self.cursor = frame.get("cursor", self.cursor)
        return frame


@contextmanager
def socket_of(b: Broker | str, agent_id: str = "", **hello: Any) -> Generator[Socket]:
    """An open socket; with an agent after its hello."""
    url = b if isinstance(b, str) else b.url
    with connect(
        url.replace("http", "ws", 1) + "/ws", proxy=None, max_size=None, close_timeout=1
    ) as connection:
        socket = Socket(connection)
        if agent_id:
            socket.hello(agent_id, **hello)
        yield socket
