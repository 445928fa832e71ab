"""A reader of the log of all handoffs: the server-sent events of ``/api/events``."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.running import WAIT_S


class Event:
    """One server-sent event."""

    def __init__(self, lines: list[str]) -> None:
        fields = [line.partition(":") for line in lines]
        self.name = "".join(value.strip() for name, _, value in fields if name == "event")
        self.position = int(next(value for name, _, value in fields if name == "id"))
        self.data: dict[str, Any] = json.loads(next(value for name, _, value in fields if name == "data"))


@contextmanager
def tail(http: httpx.Client, after: int | None = None, **headers: str) -> Generator[Iterator[Event]]:
    """Follow the log; the broker has begun to answer when this returns."""
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    with http.stream("GET", "/api/events", headers=headers, timeout=WAIT_S) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events_of(answer.iter_lines())


def events_of(lines: Iterator[str]) -> Iterator[Event]:
    """The events that lines make; comments are none."""
    block: list[str] = []
    for line in lines:
        if line:
            block.append(line)
        elif any(field.startswith("data:") for field in block):
            yield Event(block)
            block = []
        else:
            block = []
