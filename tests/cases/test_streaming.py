"""Known faults of streams and disconnects: c031 to c040 of docs/reference/cases.md."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_handoff.ports import StoreUnavailable
from tests.client.raw_server import SSE_HEAD, Request, answer, chunk, event, reset, rpc, says, status, working
from tests.support.agents import Agent, Answer, Call, card, completes
from tests.support.running import WAIT_S, Broker, broker, kept_port, running, sse_data
from tests.support.wire import Caller, Gate, calls, eventually, metric, raw, streaming_body, tells

CAN = {"requirements": {"capabilities": ["canWork"]}}


def _register(b: Broker, name: str, url: str, **more: Any) -> None:
    b.register(name, card=card(url, capabilities={"canWork": True}, **more))


def _only(b: Broker) -> Any:
    """The one handoff there is, once it is there."""
    found = eventually(lambda: b.http.get("/api/handoffs").json()["handoffs"])
    assert len(found) == 1
    return found[0]


def _results(events: list[Any], kind: str) -> list[Any]:
    return [e["result"][kind] for e in events if kind in e.get("result", {})]


def _texts(events: list[Any]) -> list[str]:
    """The texts of all artifact events, in order."""
    return [p["text"] for a in _results(events, "artifactUpdate") for p in a["artifact"]["parts"]]


def _last_state(events: list[Any]) -> str:
    return _results(events, "statusUpdate")[-1]["status"]["state"]


# --- c031: the client resets its connection ------------------------------------------------------


@pytest.mark.parametrize(
    ("before_the_end", "cut_at"),
    [(True, b"\r\n\r\n"), (True, b"data: {"), (False, b"TASK_STATE_COMPLETED")],
    ids=["after the headers", "in the first event", "in the last event"],
)
def test_c031_a_client_that_resets_its_stream_fails_nothing(
    tmp_path: Path, before_the_end: bool, cut_at: bytes
) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            await gate.wait()
            yield agent.artifact(task, "text", "all of it")
            yield agent.status(task, "COMPLETED", "done")

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "streamer", url, streaming=True)
        with Caller(b.url) as caller:
            caller.post("/", streaming_body(context=CAN))
            if not before_the_end:
                gate.open()
            caller.until(cut_at)
            caller.reset()
        if before_the_end:
            eventually(lambda: metric(b.http.get("/metrics").text, "handoff_client_disconnects_total") == 1)
            gate.open()
        handoff_id = _only(b)["handoff_id"]
        done = b.until(handoff_id, "completed")
        log = b.log(handoff_id)
        metrics = eventually(
            lambda: (
                (text := b.http.get("/metrics").text)
                and metric(text, "handoff_outcomes_total", handoff_state="completed")
                and text
            )
        )
    assert done["artifacts"][0]["parts"] == [{"text": "all of it"}]
    assert not {"handoff_failed", "handoff_canceled", "cancel_requested"} & set(log)
    assert metric(metrics, "handoff_outcomes_total") == 1
    assert [call.method for call in agent.calls] == ["SendStreamingMessage"]


# --- c032: events that are cut anywhere ----------------------------------------------------------


def test_c032_events_in_any_cut_are_decoded_once_and_go_out_as_one_line_each(tmp_path: Path) -> None:
    pretty = json.dumps(rpc(chunk("several lines", append=False)), indent=1).encode()
    several = b"".join(b"data: " + line + b"\n" for line in pretty.split(b"\n")) + b"\n"
    emoji = event(chunk("😀 caf\u00e9 \u2028"))
    both = event(chunk("third")) + event(chunk("fourth"))
    end = event(status("TASK_STATE_COMPLETED"))
    every_byte = [emoji[at : at + 1] for at in range(len(emoji))]
    agent = raw(SendStreamingMessage=says(SSE_HEAD, event(working()), several, *every_byte, both, end))
    with agent as server, broker(tmp_path) as b:
        _register(b, "cutter", server.url, streaming=True)
        with Caller(b.url) as caller:
            caller.post("/", streaming_body(context=CAN), headers="A2A-Version: 1.0\r\nConnection: close\r\n")
            body = caller.rest().partition(b"\r\n\r\n")[2]
        task = b.handoff(_only(b)["handoff_id"])
    lines = [line for line in body.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data:")]
    events = [json.loads(line.removeprefix(b"data:")) for line in lines]
    assert body.count(b"data:") == len(lines)
    assert _texts(events) == ["several lines", "😀 caf\u00e9 \u2028", "third", "fourth"]
    assert _last_state(events) == "TASK_STATE_COMPLETED"
    assert [p["text"] for p in task["artifacts"][0]["parts"]] == _texts(events)


# --- c033: silent work ---------------------------------------------------------------------------


@pytest.mark.parametrize("blocking_only", [False, True], ids=["it is polled", "it answers only at the end"])
def test_c033_a_silent_agent_drops_no_stream(tmp_path: Path, blocking_only: bool) -> None:
    """Scaled down: the keep-alive is 0.05 s instead of 15, the agent's work longer than every other wait."""
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if blocking_only:
            await gate.wait()
            return await completes(agent, call)
        task = agent.task("WORKING")

        async def finish() -> None:
            await gate.wait()
            agent.task("COMPLETED", "done", task_id=task["id"])

        finishing.append(asyncio.ensure_future(finish()))
        return {"task": dict(task)}

    finishing: list[asyncio.Future[None]] = []
    agent = Agent(script)
    # The idle limit of a stream (1 s) does not bound the wait for an answer that is no stream.
    with running(agent) as url, broker(tmp_path, keepalive=0.05, ack_wait=0.2, stream_idle=1) as b:
        _register(b, "silent", url)
        with Caller(b.url) as caller:
            began = time.monotonic()
            caller.post("/", streaming_body(context=CAN), headers="A2A-Version: 1.0\r\nConnection: close\r\n")
            caller.until(b'data: {"jsonrpc":"2.0","id":"wire","result":{"task":')
            first_s = time.monotonic() - began
            while time.monotonic() - began < 1.5:
                caller.read = b""
                caller.until(b": keep-alive\n\n")
            gate.open()
            rest = caller.rest()
    events = [json.loads(line) for line in sse_data(iter(rest.decode().splitlines()))]
    assert first_s < 1.0
    assert _last_state(events) == "TASK_STATE_COMPLETED"
    states = [update["status"]["state"] for update in _results(events, "statusUpdate")]
    assert states.count("TASK_STATE_COMPLETED") == 1
    assert len(agent.of("SendMessage")) == 1


# --- c034: an HTTP status in place of a stream ---------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "state", "outcome", "words", "deliveries"),
    [
        (answer({"error": "who are you"}, 401), "returned", "target_auth", "HTTP 401", 1),
        (answer(b"", 302, headers="Location: {elsewhere}\r\n"), "failed", "invalid_response", "HTTP 302", 1),
        (answer(b"<html>hello</html>", 200, "text/html"), "failed", "invalid_response", "not JSON", 1),
        (answer(b"<html>hello</html>", 502, "text/html"), "acknowledged", "", "", 1),
    ],
    ids=["401", "302", "html", "502"],
)
def test_c034_a_status_in_place_of_a_stream_is_named_as_what_it_is(
    tmp_path: Path, bad: bytes, state: str, outcome: str, words: str, deliveries: int
) -> None:
    """A 502 says nothing about what the target has begun: it is asked, and never gets the task again."""
    other = Agent(completes)
    with running(other) as elsewhere:
        agent = raw(SendStreamingMessage=says(bad.replace(b"{elsewhere}", elsewhere.encode())))
        with agent as server, broker(tmp_path) as b:
            _register(b, "odd", server.url, streaming=True)
            if state == "acknowledged":
                task = b.send(context=CAN, wait=False)
                eventually(lambda: "delivery_uncertain" in b.log(task["id"]))
                assert b.handoff(task["id"])["state"] == "offered"
            else:
                events = list(b.events(context=CAN))
                handoff = b.handoff(_only(b)["handoff_id"])
                assert (handoff["state"], handoff["outcome"]) == (state, outcome)
                final = _results(events, "statusUpdate")[-1]["status"]
                assert outcome in final["message"]["parts"][0]["text"]
                assert words in final["message"]["parts"][0]["text"]
                assert handoff["attempts"][0]["deliveries"] == deliveries
            assert len(calls(server, "SendStreamingMessage")) == deliveries
    assert other.calls == []


def test_c034_a_503_is_asked_again_when_it_said(tmp_path: Path) -> None:
    times: list[float] = []

    async def stream(request: Request, writer: asyncio.StreamWriter) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            await says(answer(b"", 503, headers="Retry-After: 1\r\n"))(request, writer)
        else:
            await says(SSE_HEAD, event(working()), event(status("TASK_STATE_COMPLETED")))(request, writer)

    with raw(SendStreamingMessage=stream) as server, broker(tmp_path, retry_delay=0) as b:
        _register(b, "busy", server.url, streaming=True)
        task = b.send(context=CAN)
        (attempt,) = b.handoff(task["id"])["attempts"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert attempt["deliveries"] == 2
    assert times[1] - times[0] >= 1.0


# --- c035: the broker is killed in the middle of a stream ----------------------------------------


@pytest.mark.parametrize("streaming", [True, False], ids=["it streams", "it is polled"])
def test_c035_after_a_kill_the_target_is_asked_and_never_sent_the_task_again(
    tmp_path: Path, streaming: bool
) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "SubscribeToTask":
            return {"error": {"code": -32004, "message": "it has ended"}}
        task = agent.task("WORKING")
        if not streaming:
            return {"task": task}

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": task}
            yield agent.artifact(task, "text", "first half, ", last=False)
            await gate.wait()

        return events()

    agent = Agent(script)
    port = kept_port()
    with running(agent) as url:
        killed = _served(tmp_path, port)
        with closing(httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)) as http:
            made = http.post(
                "/api/agents",
                json={
                    "agent_id": "steady",
                    "card": card(url, streaming=streaming, capabilities={"canWork": True}),
                },
            )
            assert made.status_code == 201
            with Caller(f"http://127.0.0.1:{port}") as caller:
                caller.post("/", streaming_body(context=CAN))
                caller.until(b"first half" if streaming else b"TASK_STATE_WORKING")
            handoff_id = http.get("/api/handoffs").json()["handoffs"][0]["handoff_id"]
            killed.kill()
            killed.wait(WAIT_S)
        gate.open()
        whole = {"artifactId": "text", "parts": [{"text": "first half, second half"}]}
        agent.task("COMPLETED", "done", task_id="r-1", artifacts=[whole])
        again = _served(tmp_path, port)
        try:
            with closing(httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)) as http:
                done = eventually(
                    lambda: (
                        (h := http.get(f"/api/handoffs/{handoff_id}").json())["state"] == "completed" and h
                    )
                )
        finally:
            again.send_signal(signal.SIGTERM)
            assert again.wait(WAIT_S) == 0
    assert done["artifacts"] == [whole]
    assert [c.method for c in agent.calls if c.method.startswith("Send")] == [
        "SendStreamingMessage" if streaming else "SendMessage"
    ]


def _served(folder: Path, port: int) -> subprocess.Popen[str]:
    """The broker as a process of its own, once it is ready."""
    (folder / "cards").mkdir(exist_ok=True)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("A2A_HANDOFF_")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from a2a_handoff.cli import main; raise SystemExit(main())", "serve"],
        text=True,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        env=environ
        | {
            "A2A_HANDOFF_PORT": str(port),
            "A2A_HANDOFF_STORE": f"sqlite:///{folder / 'broker.db'}",
            "A2A_HANDOFF_CARDS": str(folder / "cards"),
        },
    )
    assert process.stdout is not None
    with process.stdout:
        assert "ready" in process.stdout.readline()
    return process


# --- c036: chunks that fit nothing ---------------------------------------------------------------


def _artifact(name: str, text: str, *, append: bool, last: bool = False) -> dict[str, Any]:
    artifact = {"artifactId": name, "parts": [{"text": text}]}
    return {
        "artifactUpdate": {
            "taskId": "t-1",
            "contextId": "c-1",
            "artifact": artifact,
            "append": append,
            "lastChunk": last,
        }
    }


def test_c036_no_chunk_is_lost_whatever_it_is_appended_to(tmp_path: Path) -> None:
    chunks = [
        _artifact("a1", "never begun, ", append=True),
        _artifact("a2", "two, ", append=False),
        _artifact("a1", "one, ", append=True, last=True),
        _artifact("a2", "two again", append=True, last=True),
        _artifact("a1", "after its last", append=True),
    ]
    agent = raw(
        SendStreamingMessage=says(
            SSE_HEAD, event(working()), *map(event, chunks), event(status("TASK_STATE_COMPLETED"))
        )
    )
    with agent as server, broker(tmp_path) as b:
        _register(b, "loose", server.url, streaming=True)
        events = list(b.events(context=CAN))
        task = b.rpc("GetTask", {"id": events[0]["result"]["task"]["id"]})["result"]
    assert _texts(events) == ["never begun, ", "two, ", "one, ", "two again", "after its last"]
    assert [(a["artifactId"], [p["text"] for p in a["parts"]]) for a in task["artifacts"]] == [
        ("a1", ["never begun, ", "one, ", "after its last"]),
        ("a2", ["two, ", "two again"]),
    ]
    # A client that drops what is appended to nothing must not lose it either (A2A 1.0 section 4.2.2).
    assert [a["append"] for a in _results(events, "artifactUpdate")] == [False, False, True, True, True]


# --- c037: two tasks in one context --------------------------------------------------------------


def test_c037_two_streams_of_one_context_hold_their_own_task_only(tmp_path: Path) -> None:
    """The target even mixes the events of both tasks into both of its streams."""
    both = Gate()
    names = {"one": "r-1", "two": "r-2"}

    async def script(agent: Agent, call: Call) -> Answer:
        mine = agent.task("WORKING", task_id=names[call.text])
        if len(agent.tasks) == 2:
            both.open()

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": mine}
            await both.wait()
            for text in ("one", "two"):
                task = agent.tasks[names[text]]
                yield agent.artifact(task, "text", f"{text} first ", last=False)
            for text in ("two", "one"):
                task = agent.tasks[names[text]]
                yield agent.artifact(task, "text", f"{text} last", append=True)
            other = next(text for text in names if text != call.text)
            yield agent.status(agent.tasks[names[other]], "FAILED", "that of the other")
            yield agent.status(mine, "COMPLETED", f"done {call.text}")

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "shared", url, streaming=True)
        seen: dict[str, list[Any]] = {}
        with Caller(b.url) as first, Caller(b.url) as second:
            for text, caller in (("one", first), ("two", second)):
                headers = "A2A-Version: 1.0\r\nConnection: close\r\n"
                caller.post(
                    "/", streaming_body(text, context=CAN, message={"contextId": "ctx"}), headers=headers
                )
            for text, caller in (("one", first), ("two", second)):
                lines = caller.rest().decode().splitlines()
                seen[text] = [json.loads(data) for data in sse_data(iter(lines))]
    ids = {text: events[0]["result"]["task"]["id"] for text, events in seen.items()}
    assert ids["one"] != ids["two"]
    for text, events in seen.items():
        updates = _results(events, "statusUpdate") + _results(events, "artifactUpdate")
        assert {u["taskId"] for u in updates} == {ids[text]}
        assert {u["contextId"] for u in updates} == {"ctx"}
        assert _texts(events) == [f"{text} first ", f"{text} last"]
        last = _results(events, "statusUpdate")[-1]["status"]
        assert last["state"] == "TASK_STATE_COMPLETED"
        assert last["message"]["parts"] == [{"text": f"done {text}"}]


# --- c038: callers that hang up at once ----------------------------------------------------------


@pytest.mark.parametrize("close", [False, True], ids=["keep-alive", "close"])
def test_c038_handoffs_of_callers_that_hang_up_at_once_are_all_done(
    tmp_path: Path, close: bool, caplog: pytest.LogCaptureFixture
) -> None:
    count = 250
    headers = "Connection: close\r\n" if close else ""
    with running(Agent(completes)) as url, broker(tmp_path) as b, caplog.at_level(logging.WARNING):
        _register(b, "worker", url)
        for number in range(count):
            body = {
                "source_agent": "triage",
                "task": f"job {number}",
                "requirements": CAN["requirements"],
            }
            with Caller(b.url) as caller:
                caller.post("/api/handoffs", json.dumps(body).encode(), headers=headers)
                assert caller.until(b"\r\n").startswith(b"HTTP/1.1 201")
        eventually(
            lambda: b.http.get("/api/handoffs", params={"state": "completed"}).json()["total"] == count,
            within_s=30,
        )
        assert b.http.get("/api/handoffs").json()["total"] == count
    assert caplog.records == []


@pytest.mark.parametrize("path", ["/api/handoffs", "/"])
def test_c038_a_caller_that_hangs_up_inside_its_request_leaves_no_trace(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as b, caplog.at_level(logging.WARNING):
        for _ in range(5):
            with Caller(b.url) as caller:
                caller.post(path, b'{"cut": ', length=100)
                caller.reset()
        assert b.http.get("/readyz").status_code == 200
        assert b.http.get("/api/handoffs").json()["total"] == 0
    assert caplog.records == []


# --- c039: a fault after the stream began --------------------------------------------------------


async def _dies_after_two(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(SSE_HEAD + event(working()) + event(chunk("one ", append=False)) + event(chunk("two")))
    await writer.drain()
    reset(writer)


def _stream(b: Broker, path: str, context: dict[str, Any]) -> tuple[httpx.Response, list[Any]]:
    """The answer and its events, over JSON-RPC (``/``) or HTTP+JSON."""
    call = json.loads(streaming_body(context=context))
    with b.http.stream(
        "POST", path, json=call if path == "/" else call["params"], headers={"A2A-Version": "1.0"}
    ) as response:
        body = "".join(response.iter_text())
    lines = body.splitlines()
    assert all(line.startswith(("data:", ":")) or not line for line in lines), body
    events = [json.loads(data) for data in sse_data(iter(lines))]
    if path == "/":
        assert {e["id"] for e in events} == {"wire"}
        return response, events
    return response, [{"result": e} for e in events]


@pytest.mark.parametrize("path", ["/", "/message:stream"])
def test_c039_a_target_that_forgot_the_task_fails_it_inside_the_stream(tmp_path: Path, path: str) -> None:
    async def forgot(_: Request, writer: asyncio.StreamWriter) -> None:
        error = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32001, "message": "no such task"}}
        writer.write(answer(error))
        await writer.drain()

    with raw(SendStreamingMessage=_dies_after_two, GetTask=forgot) as server, broker(tmp_path) as b:
        _register(b, "mortal", server.url, streaming=True)
        response, events = _stream(b, path, CAN)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert _texts(events) == ["one ", "two"]
    assert _last_state(events) == "TASK_STATE_FAILED"
    assert len(calls(server, "SendStreamingMessage")) == 1


@pytest.mark.parametrize("path", ["/", "/message:stream"])
def test_c039_a_target_that_is_gone_ends_the_stream_at_the_deadline(tmp_path: Path, path: str) -> None:
    """It may have finished: the task is not failed before its time, and given to nobody else."""
    other = Agent(completes)
    with (
        raw(SendStreamingMessage=_dies_after_two, GetTask=_dies_after_two) as server,
        running(other) as url,
        broker(tmp_path, deadline=1.5, reconcile_every=0.1) as b,
    ):
        _register(b, "mortal", server.url, streaming=True)
        _register(b, "other", url)
        response, events = _stream(b, path, {"target_agent": "mortal", "fallback": ["other"]})
        handoff = b.handoff(_only(b)["handoff_id"])
    assert response.status_code == 200
    assert _last_state(events) == "TASK_STATE_FAILED"
    assert handoff["state"] == "expired"
    assert other.of("SendMessage") == []
    assert len(calls(server, "SendStreamingMessage")) == 1


@pytest.mark.parametrize("path", ["/", "/message:stream"])
def test_c039_a_store_that_cannot_be_read_ends_the_stream_with_one_error_event(
    tmp_path: Path, path: str
) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            await gate.wait()
            yield agent.status(task, "COMPLETED", "done")

        return events()

    with running(Agent(script)) as url, broker(tmp_path) as b:
        _register(b, "streamer", url, streaming=True)
        call = json.loads(streaming_body(context=CAN))
        body = call if path == "/" else call["params"]
        with b.http.stream("POST", path, json=body, headers={"A2A-Version": "1.0"}) as response:
            lines = response.iter_lines()
            for line in lines:
                if "TASK_STATE_WORKING" in line:
                    break
            _make_unreadable(b)
            rest = [line for line in lines if line]
        gate.open()
    (last,) = rest
    error = json.loads(last.removeprefix("data:"))
    if path == "/":
        assert error["id"] == "wire"
        assert error["error"]["code"] == -32061
    else:
        assert error["error"]["code"] == 503
    assert "sqlite" not in last.lower()


def _make_unreadable(b: Broker) -> None:
    """From now on the store fails every read of the log, and nothing of it is at hand."""

    async def broken(*_: Any, **__: Any) -> list[Any]:
        raise StoreUnavailable("the disk is on fire: sqlite said so")

    async def breaking() -> None:
        b.app.store.read_events = broken  # type: ignore[method-assign]
        feed = b.app.service.journal._feed
        feed.after = lambda *_: None  # type: ignore[method-assign]
        b.app.service.notifier.wake_all()

    b.loop.run(breaking())


# --- c040: the last event lacks its end ----------------------------------------------------------


@pytest.mark.parametrize("tail", [b"\n", b"", b"\r\n"], ids=["one newline", "none", "CRLF"])
def test_c040_a_last_event_without_its_blank_line_counts(tmp_path: Path, tail: bytes) -> None:
    end = event(status("TASK_STATE_COMPLETED")).rstrip(b"\n") + tail
    with (
        raw(
            SendStreamingMessage=says(SSE_HEAD, event(working()), event(chunk("all", append=False)), end)
        ) as server,
        broker(tmp_path) as b,
    ):
        _register(b, "hasty", server.url, streaming=True)
        events = list(b.events(context=CAN))
        (attempt,) = b.handoff(events[0]["result"]["task"]["id"])["attempts"]
    assert _texts(events) == ["all"]
    assert _last_state(events) == "TASK_STATE_COMPLETED"
    assert (attempt["deliveries"], attempt["outcome"]) == (1, None)
    assert len(calls(server, "SendStreamingMessage")) == 1


def test_c040_half_an_event_counts_for_nothing_and_the_target_is_asked(tmp_path: Path) -> None:
    whole = event(status("TASK_STATE_COMPLETED"))
    artifact = chunk("all", append=False)["artifactUpdate"]["artifact"]
    with (
        raw(
            SendStreamingMessage=says(
                SSE_HEAD, event(working()), event(chunk("all", append=False)), whole[: len(whole) // 2]
            ),
            GetTask=tells("COMPLETED", artifacts=[artifact]),
        ) as server,
        broker(tmp_path) as b,
    ):
        _register(b, "hasty", server.url, streaming=True)
        events = list(b.events(context=CAN))
        log = b.log(events[0]["result"]["task"]["id"])
    assert _texts(events) == ["all"]
    assert _last_state(events) == "TASK_STATE_COMPLETED"
    assert "delivery_uncertain" in log
    assert len(calls(server, "SendStreamingMessage")) == 1
    assert len(calls(server, "GetTask")) == 1
