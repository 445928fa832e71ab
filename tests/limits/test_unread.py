"""Who does not read is not waited for: its stream ends, and it can go on where it was."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import json_format

from a2a_handoff.core.events import OutputRecorded
from tests.support.agents import Agent, Answer, Call, card
from tests.support.running import WAIT_S, Broker, broker, running
from tests.support.wire import Gate, eventually

#: More than the kernel keeps for a connection.
CHUNKS, CHUNK = 300, "x" * 50_000
SEND_TIMEOUT_S = 1.5


class House:
    """A broker with an agent that says much at once and ends when it is told to."""

    def __init__(self, b: Broker, end: Gate) -> None:
        self.b, self._end = b, end

    def task(self) -> str:
        """A task, under way, whose agent has said all."""
        task = self.b.send(wait=False, context={"target_agent": "worker"})["id"]
        self.b.loop.run(asyncio.wait_for(self._said(task), 60), 61)
        return task

    async def _said(self, task: str) -> None:
        async for step in self.b.app.service.journal.follow(task):
            event = None if step is None else step.event
            outputs = event.outputs if isinstance(event, OutputRecorded) else ()
            if any(output.artifact_id == f"a-{CHUNKS - 1}" for output in outputs):
                return

    def end(self) -> None:
        self._end.open()


@pytest.fixture
def house(tmp_path: Path) -> Generator[House]:
    end = Gate()

    async def floods(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            for number in range(CHUNKS):
                yield agent.artifact(task, f"a-{number}", f"{number} {CHUNK}")
            await end.wait(60)
            yield agent.status(task, "COMPLETED", "done")

        return events()

    with (
        running(Agent(floods)) as url,
        broker(tmp_path, send_timeout=SEND_TIMEOUT_S, keepalive=0.1, grpc_port=0) as b,
    ):
        b.register("worker", card=card(url, streaming=True))
        yield House(b, end)
        end.open()


@contextmanager
def connected(url: str) -> Generator[socket.socket]:
    """A client that takes little at once."""
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        raw.settimeout(WAIT_S)
        raw.connect(("127.0.0.1", urlsplit(url).port))
        yield raw


def _get(path: str, **headers: str) -> bytes:
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{named}\r\n".encode()


def _rest(raw: socket.socket) -> bytes:
    came = b""
    while piece := _piece(raw):
        came += piece
    return came


def _piece(raw: socket.socket) -> bytes:
    try:
        return raw.recv(1_048_576)
    except ConnectionResetError:
        return b""


def _open(b: Broker) -> int:
    return b.app.quotas._open["default", ""]


def test_c078_a_tail_that_is_not_read_ends_and_goes_on_from_the_last_event(house: House) -> None:
    task = house.task()
    log = house.b.http.get(f"/api/handoffs/{task}/events", params={"limit": 1_000}).json()["events"]
    with connected(house.b.url) as raw:
        raw.sendall(_get("/api/events", Last_Event_ID="0"))
        eventually(lambda: _open(house.b) == 1)
        eventually(lambda: _open(house.b) == 0)
        came = _rest(raw)
    assert len(came) < CHUNKS * len(CHUNK)
    seen = [int(number) for number in re.findall(rb"\nid: (\d+)\ndata: .*\n\n", came)]
    with house.b.http.stream("GET", "/api/events", headers={"Last-Event-ID": f"{seen[-1]}"}) as answer:
        lines = answer.iter_lines()
        while len(seen) < len(log):
            line = next(lines)
            if line.startswith("id: "):
                seen.append(int(line.removeprefix("id: ")))
            assert "resync" not in line
    assert seen == sorted(set(seen))
    assert house.b.handoff(task)["state"] == "acknowledged"


def test_a_stream_of_a_task_that_is_not_read_ends_and_its_task_goes_on(house: House) -> None:
    task = house.task()
    params = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    body = json.dumps(params).encode()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(house.b.url) as raw:
        raw.sendall(head.encode() + body)
        eventually(lambda: _open(house.b) == 1)
        eventually(lambda: _open(house.b) == 0)
        came = _rest(raw)
    assert came.startswith(b"HTTP/1.1 200")
    assert len(came) < CHUNKS * len(CHUNK)
    house.end()
    assert house.b.until(task, "completed")["state"] == "completed"


def test_a_whole_answer_that_is_not_read_ends_too(house: House) -> None:
    task = house.task()
    with connected(house.b.url) as raw:
        raw.sendall(_get(f"/api/handoffs/{task}"))
        house.b.loop.run(_idle(3 * SEND_TIMEOUT_S))
        came = _rest(raw)
    assert b"content-length" in came
    assert len(came) < CHUNKS * len(CHUNK)


async def _idle(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_who_reads_slowly_but_reads_gets_all_of_it(house: House) -> None:
    task = house.task()
    with connected(house.b.url) as raw:
        raw.sendall(_get(f"/api/handoffs/{task}", Connection="close"))
        came, began = b"", time.monotonic()
        while piece := raw.recv(65_536):
            came += piece
            house.b.loop.run(_idle(0.01))
    assert time.monotonic() - began > SEND_TIMEOUT_S
    assert len(came) > CHUNKS * len(CHUNK)


def test_a_stream_of_grpc_that_is_not_read_ends_and_says_so_when_it_is_read_on(house: House) -> None:
    task = house.task()
    large = [
        ("grpc.max_receive_message_length", -1),
        # Else the client makes ever more room, by what it measures, and may take all without reading it.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 65_536),
    ]
    with grpc.insecure_channel(f"127.0.0.1:{house.b.app.grpc_port}", large) as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        events = stub.SubscribeToTask(a2a_pb2.SubscribeToTaskRequest(id=task), timeout=60)
        eventually(lambda: _open(house.b) == 1)
        eventually(lambda: _open(house.b) == 0)
        with pytest.raises(grpc.RpcError) as refusal:
            list(events)
        error: Any = refusal.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "Subscribe to the task" in error.details()
        house.end()
        house.b.until(task, "completed")
        again = stub.GetTask(a2a_pb2.GetTaskRequest(id=task), timeout=WAIT_S)
        assert json_format.MessageToDict(again)["status"]["state"] == "TASK_STATE_COMPLETED"
