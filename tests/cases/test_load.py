"""Known faults of load and leaks: c078, c079, c081 and c082 of docs/reference/cases.md."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw_server import Request, answer, rpc
from tests.support.agents import Agent, Answer, Call, card, completes
from tests.support.puller import hand_off, puller
from tests.support.running import WAIT_S, Broker, broker, running, send_params
from tests.support.served import Served, served
from tests.support.wire import Caller, Gate, eventually, raw, streaming_body

CAN = {"requirements": {"capabilities": ["canWork"]}}
CLOSE = "A2A-Version: 1.0\r\nConnection: close\r\n"


def _register(b: Broker | Served, url: str, **more: Any) -> None:
    modes = {"defaultInputModes": ["text/plain", "application/zip"]}
    b.register("worker", card=card(url, capabilities={"canWork": True}, **more) | modes)


# --- c078: who does not read ----------------------------------------------------------------------

CHUNK = "x" * 8_000
#: Beyond the first the newest events are all that is kept at hand; what comes after must not add to it.
CHUNKS_BEFORE, CHUNKS = 12_000, 20_000


def _memory(pid: int) -> int:
    """The bytes of memory that a process has now, as the kernel says."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux tells it")
def test_c078_what_a_client_does_not_read_is_not_held_for_it_and_is_there_when_it_reads(
    tmp_path: Path,
) -> None:
    """A stream reads the log at its client's pace: there is no queue that could grow, or drop the end."""
    gates = half, rest, streamed, end = Gate(), Gate(), Gate(), Gate()

    async def flood(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            for number in range(CHUNKS):
                if number == CHUNKS_BEFORE:
                    half.open()
                    await rest.wait(60)
                yield agent.artifact(task, "text", f"{number} {CHUNK}", append=number > 0)
                if number % 20 == 0:
                    await asyncio.sleep(0)
            streamed.open()
            await end.wait(60)
            yield agent.status(task, "COMPLETED", "done")

        return events()

    with (
        running(Agent(flood)) as url,
        served(tmp_path, send_timeout=600) as b,
        Caller(b.url) as slow,
        Caller(b.url) as slower,
    ):
        _register(b, url, streaming=True)
        try:
            slow.post("/", streaming_body(context=CAN), headers=CLOSE)
            slow.until(b"TASK_STATE_WORKING")
            slower.get("/api/events?after=0")
            asyncio.run(half.wait(60))
            before = _memory(b.pid)
            rest.open()
            asyncio.run(streamed.wait(60))
            grown = _memory(b.pid) - before
        finally:
            for gate in gates:
                gate.open()
        unread = (CHUNKS - CHUNKS_BEFORE) * len(CHUNK)
        assert grown < unread / 2, f"{grown} bytes more for {unread} that nobody read"
        numbers: list[int] = []
        last = b""
        for line in slow.lines():
            if found := re.search(rb'"text": ?"(\d+) x', line):
                numbers.append(int(found[1]))
            last = line if line.startswith(b"data:") else last
    assert numbers == list(range(CHUNKS))
    assert b"TASK_STATE_COMPLETED" in last


# --- c079: bodies that say nothing, or a lie, of their length --------------------------------------

LIMIT = 65_536
PATHS = (
    "/",
    "/agents/worker/",
    "/message:send",
    "/v1/message:send",
    "/tasks/send",
    "/api/handoffs",
    "/api/agents",
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("small")
    with running(Agent(completes)) as url, broker(folder, max_body=LIMIT, arrival=1.0) as b:
        _register(b, url)
        yield b


def _talk(b: Broker, path: str, length: str, *pieces: bytes) -> bytes:
    """What comes back for a head and the pieces of its body, until the broker closes."""
    host, port = b.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as line:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
        got = b""
        try:
            line.sendall(head.encode())
            for piece in pieces:
                line.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is refused before all of it was sent
        try:
            while piece := line.recv(65_536):
                got += piece
        except ConnectionResetError:
            pass
        return got


@pytest.mark.parametrize("path", PATHS)
def test_c079_a_body_without_a_length_is_counted_as_it_comes(small: Broker, path: str) -> None:
    chunk = b"2000\r\n" + b"y" * 0x2000 + b"\r\n"
    got = _talk(small, path, "Transfer-Encoding: chunked\r\nConnection: close", *[chunk] * 12, b"0\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 "), got[:200]
    told = json.loads(body)
    assert f"{LIMIT} bytes" in json.dumps(told)
    assert ("jsonrpc" in told) == path.endswith("/")


@pytest.mark.parametrize("path", PATHS)
def test_c079_a_length_over_the_limit_is_refused_before_the_body_comes(small: Broker, path: str) -> None:
    got = _talk(small, path, f"Content-Length: {LIMIT + 1}\r\nConnection: close", b"y" * 100)
    assert got.startswith(b"HTTP/1.1 413 "), got[:200]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("length", "body", "status"),
    [("Content-Length: abc", b"{}", b"400"), ("Content-Length: 100", b"{", b"408")],
    ids=["no number", "never whole"],
)
def test_c079_a_length_that_is_none_or_that_nothing_comes_of_ends_the_connection(
    small: Broker, path: str, length: str, body: bytes, status: bytes
) -> None:
    assert _talk(small, path, length, body).startswith(b"HTTP/1.1 " + status)


# --- c081: stopping while everything is open -------------------------------------------------------


async def _never(agent: Agent, call: Call) -> Answer:
    async def events() -> AsyncIterator[dict[str, Any]]:
        yield {"task": agent.task("WORKING", task_id=f"t-{call.message.get('messageId', '')}")}
        await asyncio.sleep(600)

    return events()


def test_c081_open_connections_do_not_keep_the_broker_from_stopping(tmp_path: Path) -> None:
    """Those who wait are answered, streams end without an end of their task, and a start goes on."""
    with running(Agent(_never)) as url, served(tmp_path, grace=4) as b, ExitStack() as stack:
        _register(b, url, streaming=True)
        names = [f"editor-{n}" for n in range(10)]
        for name in names:
            b.register(name)
        pool = stack.enter_context(ThreadPoolExecutor(10))
        streams = [stack.enter_context(Caller(b.url)) for _ in range(5)]
        for stream in streams:
            stream.post("/", streaming_body(context=CAN), headers=CLOSE)
            stream.until(b"TASK_STATE_WORKING")
        tails = [stack.enter_context(Caller(b.url)) for _ in range(10)]
        for number, tail in enumerate(tails):
            tail.get("/api/events?after=0" if number % 2 else "/api/events/agents")
            tail.until(b"data:")
        watches = [stack.enter_context(Caller(b.url)) for _ in names]
        for watch, name in zip(watches, names, strict=True):
            watch.get(f"/api/handoffs/watch?agent={name}&timeout=300")
        answers = [pool.submit(watch.rest) for watch in watches]
        eventually(lambda: _present(b, names))
        before = {h["handoff_id"]: h["state"] for h in b.http.get("/api/handoffs").json()["handoffs"]}
        assert list(before.values()) == ["acknowledged"] * 5
        assert b.stop() == 0
        assert [a.result(WAIT_S).partition(b"\r\n")[0] for a in answers] == [b"HTTP/1.1 204 No Content"] * 10
        for stream in (*streams, *tails):
            assert not re.search(rb"TASK_STATE_(COMPLETED|FAILED|CANCELED|REJECTED)", stream.rest())
        assert "Traceback" not in b.words
        b.start()
        assert {h: b.handoff(h)["state"] for h in before} == before


def _present(b: Served, names: list[str]) -> bool:
    """Whether the broker holds the polls of all: who waits is present, whatever time passes."""
    agents = b.http.get("/api/agents").json()["agents"]
    return {a["agent_id"] for a in agents if a["present"]} >= set(names)


# --- c082: large files and empty answers -----------------------------------------------------------


@pytest.mark.parametrize("size", [1_000_000, 7_700_000])
def test_c082_a_file_below_the_limit_arrives_byte_for_byte_on_both_ways(tmp_path: Path, size: int) -> None:
    """Of 10 MiB, base64 leaves 7.8 MB for the bytes of a file."""
    there = base64.b64encode(os.urandom(size)).decode()
    back = base64.b64encode(os.urandom(size)).decode()

    async def script(agent: Agent, call: Call) -> Answer:
        part = {"raw": back, "mediaType": "application/zip"}
        artifacts = [{"artifactId": "file", "parts": [part]}]
        return {"task": agent.task("COMPLETED", "done", artifacts=artifacts)}

    agent = Agent(script)
    part = {"raw": there, "mediaType": "application/zip", "filename": "a.zip"}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [part]}
    with running(agent) as url, broker(tmp_path) as b, puller(b, "editor") as editor:
        _register(b, url)
        task = b.send(message=message, context=CAN)
        assert agent.calls[0].message["parts"] == [part]
        assert task["artifacts"][0]["parts"][0]["raw"] == back
        made = hand_off(b, target_agent="editor", message=message, user_intent="i", conversation_summary="s")
        assert editor.watch().json()["message"]["parts"] == [part]
        artifact = {"artifactId": "file", "parts": [{"raw": back}]}
        editor.do("complete", made["handoff_id"], artifacts=[artifact])
        assert b.handoff(made["handoff_id"])["artifacts"][0]["parts"] == [{"raw": back}]


@pytest.mark.parametrize("path", [*PATHS, "/api/handoffs/x/complete"])
def test_c082_above_the_limit_every_surface_names_the_same_one(small: Broker, path: str) -> None:
    fits = json.dumps({"x": ""}).encode()
    for size, refused in ((LIMIT, False), (LIMIT + 1, True)):
        body = fits[:-2] + b"y" * (size - len(fits)) + fits[-2:]
        answer = small.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code == 413) == refused, answer.text[:200]
        assert (f"{LIMIT} bytes" in answer.text) == refused


@pytest.mark.parametrize(
    "task",
    [
        {"status": {"state": "TASK_STATE_COMPLETED"}},
        {"status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": []},
        {
            "status": {
                "state": "TASK_STATE_COMPLETED",
                "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []},
            }
        },
        {"status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [{"artifactId": "a", "parts": []}]},
    ],
    ids=["nothing", "no artifacts", "a message of no parts", "an artifact of no parts"],
)
def test_c082_an_empty_answer_of_a_target_is_an_answer(tmp_path: Path, task: dict[str, Any]) -> None:
    async def says(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(rpc({"task": {"id": "t-1", "contextId": "c-1"} | task})))
        await writer.drain()

    with raw(SendMessage=says) as server, broker(tmp_path) as b:
        _register(b, server.url)
        done = b.rpc("SendMessage", send_params(context=CAN))["result"]["task"]
        shown = b.handoff(done["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (shown["state"], shown["result"]) == ("completed", None)
