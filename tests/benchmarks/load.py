"""A load generator and the fixed agent of the benchmarks, as processes of their own.

``python -m tests.benchmarks.load agent PORT`` answers every SendMessage with the same task, and streams 50
events to a streaming call. ``… load fire URL CALLERS SECONDS KIND [TARGET]`` keeps CALLERS requests in flight
and prints one JSON line: requests per second, errors, and latencies in milliseconds. TARGET is the agent that
gets them, with the number of the caller for ``{}``; without, capabilities decide.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import httptools
import uvloop

_TEXT = "The customer disputes an invoice of March and wants it corrected before the end of the week. "
_DATA = {
    "invoice": "INV-7",
    "lines": [
        {"line": number, "sku": f"A-{100 + number}", "quantity": number % 7, "cents": 1999, "taxed": True}
        for number in range(40)
    ],
}
STREAM_EVENTS = 50


def message(message_id: str, *, text_only: bool = False) -> dict[str, Any]:
    """A message of about 3.4 KB: two texts and some structured data, or as much text."""
    structured: list[dict[str, Any]] = [{"text": _TEXT}, {"text": _TEXT[:40]}, {"data": _DATA}]
    return {
        "messageId": message_id,
        "role": "ROLE_USER",
        "parts": [{"text": _TEXT * 35}] if text_only else structured,
        "metadata": {"origin": "benchmark", "attempt": 1},
    }


def request_body(
    message_id: str,
    *,
    method: str = "SendMessage",
    handoff: bool = True,
    target: str = "",
    text_only: bool = False,
) -> bytes:
    """A JSON-RPC request; with a handoff context unless it goes to an agent."""
    needed = {"requirements": {"capabilities": ["canStream" if "Stream" in method else "canBench"]}}
    params: dict[str, Any] = {"message": message(message_id, text_only=text_only)}
    if handoff:
        params["metadata"] = {
            "handoff_context": {
                "source_agent": "bench",
                "conversation_summary": "The customer disputes an invoice.",
                "user_intent": "Correct the invoice of March.",
                "key_facts": {"invoice": "INV-7", "amount": 42},
            }
            | ({"target_agent": target} if target else needed)
        }
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


# --- the agent -----------------------------------------------------------------------------------

_TASK = {
    "id": "task-of-the-agent",
    "contextId": "context-of-the-agent",
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00.000Z"},
    "artifacts": [{"artifactId": "a", "parts": [{"text": "The invoice is corrected. " * 24}]}],
}
_REPLY = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"task": _TASK}}).encode()


def _sse(result: Any) -> bytes:
    return b"data: " + json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode() + b"\n\n"


def _stream() -> list[bytes]:
    ids = {"taskId": "t", "contextId": "c"}
    events = [_sse({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}})]
    for number in range(STREAM_EVENTS):
        artifact = {"artifactId": "a", "parts": [{"text": f"chunk {number} " + "x" * 60}]}
        update = ids | {"artifact": artifact, "append": number > 0, "lastChunk": number == STREAM_EVENTS - 1}
        events.append(_sse({"artifactUpdate": update}))
    events.append(_sse({"statusUpdate": ids | {"status": {"state": "TASK_STATE_COMPLETED"}}}))
    return events


_EVENTS = _stream()


async def agent(scope: Any, receive: Any, send: Any) -> None:
    """The fixed agent."""
    body = b""
    while True:
        got = await receive()
        body += got.get("body", b"")
        if not got.get("more_body"):
            break
    if b'"SendStreamingMessage"' in body:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in _EVENTS:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_REPLY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _REPLY})


# --- the load ------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request in flight."""

    def __init__(self) -> None:
        self._parser: Any = None
        self._done: asyncio.Future[bytes] | None = None
        self._body: list[bytes] = []
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("closed"))

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(b"".join(self._body))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._done is not None and not self._done.done():
                self._done.set_exception(error)

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """The body of the answer. Raises ``ConnectionError`` if the other side has closed."""
        if self._transport.is_closing():
            raise ConnectionError("closed")
        self._body = []
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._done

    def close(self) -> None:
        self._transport.close()


async def fire(url: str, callers: int, seconds: float, kind: str, target: str = "") -> dict[str, Any]:
    """Keep ``callers`` requests in flight for ``seconds``; ``kind``: handoff, plain, stream or plain-stream.

    With ``-text`` behind it their messages have no structured data.
    ``target`` is the agent that gets those of one caller, whose number stands for ``{}`` in it.
    """
    parts = urlsplit(url)
    method = "SendStreamingMessage" if "stream" in kind else "SendMessage"
    marker = "0" * 16

    def halves(number: int) -> list[bytes]:
        """The request of a caller, without its message id."""
        handoff = not kind.startswith("plain")
        body = request_body(
            marker,
            method=method,
            handoff=handoff,
            target=target.format(number),
            text_only=kind.endswith("-text"),
        )
        head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            f"A2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        return (head + body).split(marker.encode())

    latencies: list[float] = []
    errors = 0
    ends_at = 0.0
    serial = iter(range(10**9))
    run_id = int(time.time() * 1000) % 10**7

    async def caller(number: int) -> None:
        nonlocal errors
        before, after = halves(number)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            Connection, parts.hostname or "127.0.0.1", parts.port or 80
        )
        while time.perf_counter() < ends_at:
            message_id = b"%07d%09d" % (run_id, next(serial))
            started = time.perf_counter()
            answer = await connection.ask(before + message_id + after)
            latencies.append(time.perf_counter() - started)
            if b"TASK_STATE_COMPLETED" not in answer:
                errors += 1

    ends_at = time.perf_counter() + seconds
    began = time.perf_counter()
    await asyncio.gather(*map(caller, range(callers)))
    took = time.perf_counter() - began
    ordered = sorted(latencies)
    return {
        "rps": len(ordered) / took,
        "errors": errors,
        "p50_ms": 1000 * statistics.median(ordered),
        "p99_ms": 1000 * ordered[int(len(ordered) * 0.99)],
    }


def main(arguments: list[str]) -> None:
    """Run one of the two."""
    if arguments[0] == "agent":
        import uvicorn

        uvicorn.run(
            agent, port=int(arguments[1]), log_config=None, access_log=False, lifespan="off", ws="none"
        )
        return
    url, callers, seconds, kind, *target = arguments[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(fire(url, int(callers), float(seconds), kind, *target))))


if __name__ == "__main__":
    main(sys.argv[1:])
