"""The barest broker there could be: it answers whoever waits, and keeps nothing.

``python -m tests.benchmarks.bare PORT``. The same uvicorn, loop and parsers as the broker's, answers of about
the same size, and the same paths, so that the same clients wait at both: a request with ``?agent=`` and a
socket that said hello get an offer as soon as ``POST /api/handoffs`` names their agent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import uvicorn

_OFFER = json.dumps(
    {"type": "offer", "handoff_id": "x" * 36, "context": {"facts": "y" * 3_500}}, separators=(",", ":")
)
_events: dict[str, asyncio.Event] = {}


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """The application."""
    await (_socket if scope["type"] == "websocket" else _request)(scope, receive, send)


async def _socket(scope: Any, receive: Any, send: Any) -> None:
    del scope
    await receive()
    await send({"type": "websocket.accept"})
    hello = json.loads((await receive())["text"])
    event = _events.setdefault(hello["agent_id"], asyncio.Event())
    await send({"type": "websocket.send", "text": '{"type":"welcome"}'})
    while True:
        await event.wait()
        event.clear()
        await send({"type": "websocket.send", "text": _OFFER})


async def _request(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    asked = scope["query_string"].decode().partition("&")[0]
    if asked:
        event = _events.setdefault(asked.removeprefix("agent="), asyncio.Event())
        await event.wait()
        event.clear()
        answer, status = _OFFER.encode(), 200
    else:
        _events[json.loads(body)["target_agent"]].set()
        answer, status = _OFFER[:2_000].encode(), 201
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    """Serve."""
    uvicorn.run(
        bare,
        port=int(sys.argv[1]),
        http="httptools",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,  # it would wait for those who wait
    )


if __name__ == "__main__":
    main()
