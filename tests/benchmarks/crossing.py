"""How soon what one broker commits is seen at another, next to the barest delivery by the same carrier.

Run by hand: ``python -m tests.benchmarks.crossing`` (PostgreSQL has to be installed; a server is started for it, and
NATS). Two brokers are on one PostgreSQL and tell each other by LISTEN and NOTIFY, or over NATS. The clock runs from the
first byte of ``POST /api/handoffs`` at the first broker until an agent that waits at the second one has the offer, by
a long poll or a WebSocket, or a reader of its event stream the first event. Besides the crossing that is the whole
durable handoff, so the same is measured with everything at one broker. A bare delivery is one message of the same carrier
between two connections of one process. Rounds alternate. Fails above ``RATIO_MAX`` bare deliveries: a broker
that looked for news every 50 ms would need more than twice that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import nats
from nats.aio.msg import Msg
from rich.console import Console
from rich.table import Table

from tests.benchmarks import servers
from tests.benchmarks.waiting import POLL, SOCKET, Surface, connect, opened, register, request
from tests.benchmarks.wakeup import Side, at
from tests.support.nats import nats_server
from tests.support.postgres import Postgres, programs

RATIO_MAX = 30.0
_WARM_UP = 20
_AGENT = "agent-0"
_WAIT_S = 10.0

Bare = Callable[[], Awaitable[float]]


class Reader(asyncio.Protocol):
    """Reads ``GET /api/events`` as bytes, and looks for the first event of a handoff."""

    def __init__(self) -> None:
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted: asyncio.Future[bytes] | None = None

    def next(self) -> asyncio.Future[bytes]:
        """The next handoff that begins."""
        self._wanted = asyncio.get_running_loop().create_future()
        return self._wanted

    def close(self) -> None:
        """Cut the connection."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(
            b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        )

    def connection_lost(self, exc: Exception | None) -> None:
        for waits in (self.up, self._wanted):
            if waits is not None and not waits.done():
                waits.set_exception(exc or ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        if not self.up.done():
            self.up.set_result(None)
        elif (
            self._wanted is not None and not self._wanted.done() and b"a2a-handoff.handoff_requested" in data
        ):
            self._wanted.set_result(data)


async def read_events(url: str, _agent: str) -> Reader:
    """A reader of the event stream of a broker."""
    place = urlsplit(url)
    _, reader = await asyncio.get_running_loop().create_connection(
        Reader, place.hostname or "", place.port or 80
    )
    await reader.up
    return reader


SURFACES = (POLL, SOCKET, Surface("event stream", read_events, 0.005))


@contextlib.asynccontextmanager
async def by_postgres(url: str) -> AsyncGenerator[Bare]:
    """A notification from one connection to another."""
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none

    sender: Any = await asyncpg.connect(url)
    receiver: Any = await asyncpg.connect(url)
    came = asyncio.Event()
    await receiver.add_listener("bare", lambda *_: came.set())

    async def deliver() -> float:
        came.clear()
        began = time.perf_counter()
        await sender.execute("SELECT pg_notify('bare', 'x')")
        await asyncio.wait_for(came.wait(), _WAIT_S)
        return time.perf_counter() - began

    yield deliver
    await sender.close()
    await receiver.close()


@contextlib.asynccontextmanager
async def by_nats(url: str) -> AsyncGenerator[Bare]:
    """A message from one connection to another."""
    sender, receiver = await nats.connect(url), await nats.connect(url)
    came = asyncio.Event()

    async def take(_: Msg) -> None:
        came.set()

    await receiver.subscribe("bare", cb=take)
    await receiver.flush()

    async def deliver() -> float:
        came.clear()
        began = time.perf_counter()
        await sender.publish("bare", b"x")
        await sender.flush()
        await asyncio.wait_for(came.wait(), _WAIT_S)
        return time.perf_counter() - began

    yield deliver
    await sender.close()
    await receiver.close()


async def measure(
    bare: Bare, here: str, there: str, surface: Surface, rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of a bare delivery, of a handoff that is heard of at its own broker, and at the other one."""
    await register(here, [_AGENT])
    plain: list[float] = []
    found: dict[str, list[float]] = {here: [], there: []}
    for turn in range(rounds + _WARM_UP):
        plain.append(await bare())
        for url in (here, there) if turn % 2 else (there, here):
            # Only one waits at a time: an offer goes to whoever asks first.
            side = Side(await opened(surface, url, [_AGENT]), await connect(here))
            await asyncio.sleep(surface.back_s)
            heard, answer = await asyncio.wait_for(side.wake(0), _WAIT_S)
            found[url].append(heard.woken)
            await side.close()
            await _complete(here, answer)
    return plain[_WARM_UP:], found[here][_WARM_UP:], found[there][_WARM_UP:]


async def _complete(url: str, answer: bytes) -> None:
    connection = await connect(url)
    handoff_id = answer.split(b'"handoff_id":"', 1)[1].split(b'"', 1)[0].decode()
    await connection.ask(
        request(f"/api/handoffs/{handoff_id}/complete", {"agent_id": _AGENT, "result": "done"})
    )
    connection.close()


async def _all(
    carrier: Callable[[], contextlib.AbstractAsyncContextManager[Bare]],
    here: str,
    there: str,
    rounds: int,
    name: str,
    shown: Table,
) -> float:
    worst = 0.0
    async with carrier() as bare:
        for surface in SURFACES:
            plain, near, far = await measure(bare, here, there, surface, rounds)
            ratio = at(far, 0.5) / at(plain, 0.5)
            worst = max(worst, ratio)
            values = (at(plain, 0.5), at(near, 0.5), at(far, 0.5), at(far, 0.99))
            below = "yes" if at(far, 0.5) < 50 else "no"
            shown.add_row(name, surface.name, *(f"{value:.2f}" for value in values), f"{ratio:.1f}", below)
    return worst


def main() -> int:
    """Measure both carriers, and print. The exit code: 1 if a crossing costs too many bare deliveries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    chosen = parser.parse_args()
    found = programs()
    if found is None:
        raise SystemExit("PostgreSQL is not installed.")
    shown = Table(title="From POST at one broker until it is heard of at the other, ms")
    for head in (
        "carrier",
        "heard by",
        "bare p50",
        "one broker p50",
        "crossing p50",
        "p99",
        "ratio",
        "< 50 ms",
    ):
        shown.add_column(head, justify="right")
    worst = 0.0
    with contextlib.ExitStack() as up:
        folder = Path(up.enter_context(tempfile.TemporaryDirectory()))
        server = Postgres(found, durable=True)
        up.callback(server.remove)
        server.start()
        (folder / "nats").mkdir()
        hints = up.enter_context(nats_server(folder / "nats"))
        for name, more in (("LISTEN/NOTIFY", {}), ("NATS", {"A2A_HANDOFF_NATS": hints.url})):
            store = server.url(server.fresh())
            env = {"A2A_HANDOFF_STORE": store, "A2A_HANDOFF_PULL_ACK_WAIT": "600"} | more
            with (
                servers.broker(folder / f"{name[:4]}-1", env=env) as (here, _),
                servers.broker(folder / f"{name[:4]}-2", env=env) as (there, _),
            ):
                carrier = (lambda: by_nats(hints.url)) if more else (lambda url=store: by_postgres(url))
                worst = max(worst, asyncio.run(_all(carrier, here, there, chosen.rounds, name, shown)))
    Console(width=140).print(shown)
    if worst > RATIO_MAX:
        print(f"a crossing costs {worst:.0f} bare deliveries, more than {RATIO_MAX:.0f}")
    return int(worst > RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())
