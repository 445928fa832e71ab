"""CPU of the outbound side for each call, beside aiohttp doing only the HTTP of it. Run by hand.

    python -m tests.benchmarks.client [seconds for each measurement]

aiohttp is not a dependency: its lines are left out where it is not installed. The agent is a process of
its own, so that only the client's CPU counts. A request has 3.4 KB, an answer 1 KB, a stream 50 events.
Read ratios, not absolute numbers, and on a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from multiprocessing.connection import Connection
from typing import Any

from a2a_handoff.client import A2AClient
from a2a_handoff.client.http import Call, Http
from a2a_handoff.core.agents import Agent, Binding, Generation, Interface
from a2a_handoff.ports import Delivery
from a2a_handoff.security.urls import OutboundPolicy

MESSAGE = json.dumps(
    {
        "messageId": "m-1",
        "role": "ROLE_USER",
        "parts": [{"text": "x" * 1500}, {"text": "y" * 1500}, {"data": {"n": list(range(50))}}],
    }
).encode()
TASK = {
    "id": "t-1",
    "contextId": "c-1",
    "status": {"state": "TASK_STATE_COMPLETED"},
    "artifacts": [{"artifactId": "a", "parts": [{"text": "z" * 850}]}],
}
ANSWER = json.dumps({"jsonrpc": "2.0", "id": "1", "result": {"task": TASK}}).encode()
CHUNK = {"artifactId": "a", "parts": [{"text": "w" * 100}]}
EVENTS = [{"artifactUpdate": {"taskId": "t-1", "artifact": CHUNK, "append": n > 0}} for n in range(49)]
EVENTS.append({"statusUpdate": {"taskId": "t-1", "status": {"state": "TASK_STATE_COMPLETED"}}})
STREAM = [
    b"data: " + json.dumps({"jsonrpc": "2.0", "id": "1", "result": event}).encode() + b"\n\n"
    for event in EVENTS
]

_UNARY_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class _Agent(asyncio.Protocol):
    """Answers as soon as a body is complete; as cheap as it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) if found else 0
        if not found or len(body) < length:
            return
        self.buffer = body[length:]
        assert isinstance(self.transport, asyncio.Transport)
        if head.startswith(b"POST /stream"):
            self.transport.write(_STREAM_HEAD)
            self.say(0)
        else:
            self.transport.write(_UNARY_HEAD + ANSWER)

    def say(self, number: int) -> None:
        """One event for each turn of the loop: agents do not speak in one breath."""
        assert isinstance(self.transport, asyncio.Transport)
        if number == len(STREAM):
            self.transport.write(b"0\r\n\r\n")
            return
        self.transport.write(b"%x\r\n%b\r\n" % (len(STREAM[number]), STREAM[number]))
        asyncio.get_running_loop().call_soon(self.say, number + 1)


def serve(pipe: Connection) -> None:
    """The agent's process."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Agent, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(one: Callable[[], Awaitable[None]], *, callers: int, seconds: float) -> tuple[float, float]:
    """CPU microseconds for each call, and calls for each second."""
    done = 0
    until = time.monotonic() + 0.3

    async def caller() -> None:
        nonlocal done
        while time.monotonic() < until:
            await one()
            done += 1

    await asyncio.gather(*(caller() for _ in range(callers)))  # warm up
    done, until = 0, time.monotonic() + seconds
    cpu, began = _cpu(), time.monotonic()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return (_cpu() - cpu) / done * 1e6, done / (time.monotonic() - began)


async def compare(port: int, seconds: float) -> None:
    """Print one line for each client, number of callers and kind of call."""
    url = f"http://127.0.0.1:{port}"
    policy = OutboundPolicy(allow_private=True)
    client, http = A2AClient(policy), Http(policy, connect_s=3)
    delivery = Delivery(message=MESSAGE)
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {}}).encode() + MESSAGE

    def ours(path: str, *, streaming: bool) -> Callable[[], Awaitable[None]]:
        interface = Interface(url=url + path, binding=Binding.JSONRPC, generation=Generation.V1_0)
        agent = Agent(agent_id="a", tenant="t", interfaces=(interface,), streaming=streaming)

        async def one() -> None:
            async with aclosing(client.send(agent, delivery, first_wait_s=None)) as updates:
                async for _ in updates:
                    pass

        return one

    async def transport() -> None:
        call = Call(method="POST", url=url + "/", headers=(("Content-Type", "application/json"),), body=body)
        async with http.exchange(call, wait_s=None) as answer:
            await answer.read(limit=1_000_000, wait_s=None)

    kinds: list[tuple[str, str, Callable[[], Awaitable[None]]]] = [
        ("unary", "A2AClient", ours("/", streaming=False)),
        ("unary", "only its transport", transport),
        ("stream of 50", "A2AClient", ours("/stream", streaming=True)),
    ]
    session: Any = None
    if importlib.util.find_spec("aiohttp") is not None:
        aiohttp = importlib.import_module("aiohttp")
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

        async def plain() -> None:
            async with session.post(url + "/", data=body) as answer:
                await answer.read()

        async def plain_stream() -> None:
            async with session.post(url + "/stream", data=body) as answer:
                async for _ in answer.content.iter_any():
                    pass

        kinds += [
            ("unary", "aiohttp, HTTP alone", plain),
            ("stream of 50", "aiohttp, bytes alone", plain_stream),
        ]
    for callers in (1, 16, 64):
        for kind, name, one in [*kinds, *reversed(kinds)]:
            cpu, rate = await measure(one, callers=callers, seconds=seconds)
            print(f"{callers:>3} callers  {kind:<13} {name:<21} {cpu:8.0f} µs CPU  {rate:8.0f}/s")
    await client.close()
    await http.close()
    if session is not None:
        await session.close()


def main() -> None:
    """Start the agent and compare."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    here, there = multiprocessing.Pipe()
    agent = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    agent.start()
    asyncio.run(compare(here.recv(), seconds))
    agent.terminate()


if __name__ == "__main__":
    main()
