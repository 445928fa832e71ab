"""What idle WebSockets cost the broker: memory for each, CPU for all, and how soon an offer reaches one of them.

Run by hand: ``python -m tests.benchmarks.sockets``. Every socket is another agent, registered before, so that
what an agent costs is not counted with its socket. The clients answer pings and do nothing else. Memory is
resident memory of the broker's process; CPU is its user and system time, in percent of one core. An offer
takes from the first byte of ``POST /api/handoffs`` to the last byte of the frame.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import uvloop

from tests.benchmarks.wakeup import free_port, until_it_listens

_TICKS = os.sysconf("SC_CLK_TCK")
_AT_ONCE = 100


class Client(asyncio.Protocol):
    """The least that is a WebSocket client: it masks with zeros, reads text frames, answers pings."""

    def __init__(self, hello: bytes) -> None:
        self._hello = hello
        self._buffer = bytearray()
        self._open = False
        self.welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.offer: asyncio.Future[float] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # that of uvloop is none by name
        key = base64.b64encode(random.randbytes(16)).decode()
        self.transport.write(
            f"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionError("closed before welcome"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            del self._buffer[: end + 4]
            self._open = True
            self._write(1, self._hello)
        while (frame := self._frame()) is not None:
            kind, body = frame
            if kind == 9:
                self._write(10, body)
            elif body.startswith(b'{"type":"welcome"') and not self.welcome.done():
                self.welcome.set_result(None)
            elif body.startswith(b'{"type":"offer"') and self.offer is not None:
                self.offer.set_result(time.perf_counter())

    def _frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size > 125:
            wide = 2 if size == 126 else 8
            start += wide
            size = int.from_bytes(buffer[2:start])
        if len(buffer) < start + size:
            return None
        frame = buffer[0] & 15, bytes(buffer[start : start + size])
        del buffer[: start + size]
        return frame

    def _write(self, kind: int, body: bytes) -> None:
        size = bytes([128 | len(body)]) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2)
        self.transport.write(bytes([128 | kind]) + size + bytes(4) + body)


@contextmanager
def broker(folder: Path) -> Generator[tuple[int, int]]:
    """The broker as a process: its port and its process id."""
    port = free_port()
    settings = {
        "PORT": port,
        "STORE": f"sqlite:///{folder}/broker.db",
        "CARDS": folder,
        "LOG_LEVEL": "warning",
    }
    env = {k: v for k, v in os.environ.items() if not k.startswith(("A2A_HANDOFF_", "OTEL_"))}
    env |= {f"A2A_HANDOFF_{name}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "a2a_handoff", "serve"], env=env, stdout=subprocess.DEVNULL
    )
    try:
        until_it_listens(port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def resident_kb(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def call(port: int, path: str, body: Any) -> Any:
    """One POST over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def measure(port: int, pid: int, count: int, idle_s: float, rounds: int, *, events: bool) -> None:
    """Register, connect, wait, wake; print what it took."""
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_AT_ONCE)

    async def register(number: int) -> None:
        async with gate:
            await call(port, "/api/agents", {"agent_id": f"agent-{number}", "platform": "x"})

    async def connect(number: int) -> Client:
        hello = json.dumps({"type": "hello", "agent_id": f"agent-{number}", "events": events}).encode()
        async with gate:
            _, client = await loop.create_connection(lambda: Client(hello), "127.0.0.1", port)
            await client.welcome
            return client

    await asyncio.gather(*(register(number) for number in range(count)))
    await asyncio.sleep(3)
    before = resident_kb(pid)
    began = time.perf_counter()
    clients = await asyncio.gather(*(connect(number) for number in range(count)))
    took = time.perf_counter() - began
    await asyncio.sleep(10)
    after = resident_kb(pid)
    print(f"{count} sockets: opened in {took:.1f} s, {count / took:.0f} a second")
    print(f"memory: {before / 1024:.0f} MB before, {after / 1024:.0f} MB with them, "
          f"{(after - before) / count:.1f} kB for each")  # fmt: skip
    cpu, clock = cpu_s(pid), time.perf_counter()
    await asyncio.sleep(idle_s)
    share = (cpu_s(pid) - cpu) / (time.perf_counter() - clock)
    print(f"idle for {idle_s:g} s: {100 * share:.1f} % of one core")
    waits: list[float] = []
    for _ in range(rounds):
        number = random.randrange(count)
        clients[number].offer = shown = loop.create_future()
        began = time.perf_counter()
        body = {"task": "do it", "target_agent": f"agent-{number}", "source_agent": "x"}
        made = await call(port, "/api/handoffs", body)
        waits.append(await shown - began)
        clients[number].offer = None
        done = {"agent_id": f"agent-{number}", "result": "done"}
        await call(port, f"/api/handoffs/{made['handoff_id']}/complete", done)
        await asyncio.sleep(0.005)
    waits.sort()
    print(f"an offer reaches one of them after {1000 * waits[len(waits) // 2]:.2f} ms (median), "
          f"{1000 * waits[int(len(waits) * 0.99)]:.2f} ms (99 %)")  # fmt: skip


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sockets", type=int, default=10_000)
    options.add_argument("--idle", type=float, default=60.0, metavar="SECONDS")
    options.add_argument("--rounds", type=int, default=300)
    options.add_argument("--events", action="store_true", help="every socket hears its workspace")
    chosen = options.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        broker(Path(folder)) as (port, pid),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(measure(port, pid, chosen.sockets, chosen.idle, chosen.rounds, events=chosen.events))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
