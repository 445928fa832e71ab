"""A token that ends while its bearer waits ends the waiting, and nothing else (c094)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from a2a_handoff.core.errors import HandoffError
from a2a_handoff.ports import Principal
from a2a_handoff.transports.asgi import Message
from a2a_handoff.transports.expiry import lasting
from tests.support.bearers import SECRET, bearer, token
from tests.support.running import Broker, broker, send_params, sse_data
from tests.support.sockets import Socket

#: Seconds that the short-lived tokens are good for; there is no leeway here.
_SHORT = 1.0
_V1 = {"A2A-Version": "1.0"}


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("expiry")
    with broker(folder, auth_secret=SECRET, auth_leeway=0, keepalive=0.2, pull_ack_wait=600) as running:
        for name in ("editor", "painter"):
            assert running.http.post("/api/agents", json={"agent_id": name}, headers=bearer(name)).is_success
        yield running


def _offer(b: Broker, target: str) -> str:
    body = {"task": "do it", "target_agent": target}
    return b.http.post("/api/handoffs", json=body, headers=bearer("shop")).json()["handoff_id"]


def test_c094_a_long_poll_is_answered_with_401(b: Broker) -> None:
    answer = b.http.get(
        "/api/handoffs/watch?agent=editor&timeout=20", headers=bearer("editor", lasts_s=_SHORT)
    )
    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]


def test_a_blocking_send_is_answered_with_401_and_its_task_goes_on(b: Broker) -> None:
    params = send_params(
        context={"source_agent": "shop", "target_agent": "painter", "correlation_id": "waits"}
    )
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    answer = b.http.post("/", json=body, headers=bearer("shop", lasts_s=_SHORT) | _V1)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, -32058)
    seen = b.http.get("/api/handoffs?correlation_id=waits", headers=bearer("shop")).json()["handoffs"]
    assert [each["state"] for each in seen] == ["offered"]


@pytest.mark.parametrize("path", ["/api/events", "/api/events/agents"])
def test_a_tail_ends_with_an_error(b: Broker, path: str) -> None:
    with b.http.stream("GET", path, headers=bearer("editor", lasts_s=_SHORT)) as answer:
        lines = list(answer.iter_lines())
    assert "event: error" in lines
    assert json.loads(list(sse_data(iter(lines)))[-1])["code"] == "unauthenticated"


def test_a_stream_ends_with_an_error(b: Broker) -> None:
    params = send_params(context={"source_agent": "shop", "target_agent": "painter"})
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
    with b.http.stream("POST", "/", json=body, headers=bearer("shop", lasts_s=_SHORT) | _V1) as answer:
        events = [json.loads(data) for data in sse_data(answer.iter_lines())]
    assert "task" in events[0]["result"]
    assert events[-1]["error"]["code"] == -32058


# --- sockets -------------------------------------------------------------------------------------


def _socket(b: Broker, headers: dict[str, str] | None = None, **more: Any) -> Any:
    return connect(b.url.replace("http", "ws") + "/ws", additional_headers=headers, proxy=None, **more)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}])
def test_c094_a_socket_without_a_good_token_is_never_open(b: Broker, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus) as caught:
        _socket(b, headers)
    assert caught.value.response.status_code == 401
    assert "www-authenticate" in caught.value.response.headers


def test_a_socket_needs_the_scope_of_an_agent(b: Broker) -> None:
    with pytest.raises(InvalidStatus) as caught:
        _socket(b, bearer("editor", scope="handoff:send"))
    assert caught.value.response.status_code == 403


def test_a_page_shows_its_token_as_a_protocol(b: Broker) -> None:
    protocols = ["a2a-handoff", f"bearer.{token('editor')}"]
    with _socket(b, subprotocols=protocols) as connection:
        assert connection.subprotocol == "a2a-handoff"
        assert Socket(connection).hello("editor")["type"] == "welcome"


def test_a_socket_says_hello_as_its_own_agent_only(b: Broker) -> None:
    with _socket(b, bearer("editor")) as connection:
        answer = Socket(connection).ask("hello", agent_id="painter")
        assert answer["problem"]["code"] in ("agent_not_found", "forbidden")


def test_c094_an_expired_socket_closes_and_what_it_was_offered_stays(b: Broker) -> None:
    with _socket(b, bearer("editor", lasts_s=_SHORT)) as connection:
        socket = Socket(connection)
        socket.hello("editor")
        code, frames = socket.closed()
    assert code == 4401
    assert frames[-1]["type"] == "closing"
    made = _offer(b, "editor")
    with _socket(b, bearer("editor")) as connection:
        socket = Socket(connection)
        socket.hello("editor")
        assert socket.next("offer")["handoff_id"] == made
        socket.do("decline", handoff_id=made, reason="enough")


def test_c094_a_new_token_keeps_a_socket_open_and_one_of_another_does_not(b: Broker) -> None:
    with _socket(b, bearer("painter", lasts_s=_SHORT)) as connection:
        socket = Socket(connection)
        socket.hello("painter")
        for bad in (token("editor"), token("painter", tenant="acme"), "nonsense"):
            assert socket.ask("token", token=bad)["type"] == "error"
        socket.do("token", token=token("painter", lasts_s=2 * _SHORT))
        code, frames = socket.closed()
        assert code == 4401
        assert "ok" not in [frame["type"] for frame in frames]


def test_c094_frames_that_are_there_already_are_not_obeyed_after_the_end(b: Broker) -> None:
    ends_at = time.time() + _SHORT
    sent: list[Message] = []
    late: list[Message] = []

    async def receive() -> dict[str, Any]:
        """A client whose next frame is always there."""
        if not sent:
            return {"type": "websocket.connect"}
        if len(sent) == 1:
            return {"type": "websocket.receive", "text": '{"type":"hello","agent_id":"editor"}'}
        if time.time() > ends_at + _SHORT:
            return {"type": "websocket.disconnect", "code": 1005}
        return {"type": "websocket.receive", "text": '{"type":"ping"}'}

    async def send(message: Message) -> None:
        sent.append(message)
        if '"pong"' in message.get("text", "") and time.time() > ends_at + 0.5:
            late.append(message)

    headers = [(b"authorization", bearer("editor", exp=ends_at)["Authorization"].encode())]
    scope = {"type": "websocket", "path": "/ws", "headers": headers, "subprotocols": [], "method": "GET"}
    b.loop.run(b.app(scope, receive, send))
    # One may have been begun in time; without the check they go on until the client leaves.
    assert len(late) <= 1
    assert sent[-1]["code"] == 4401


def test_a_stream_whose_events_are_there_already_ends_too() -> None:
    async def events() -> AsyncGenerator[int]:
        for number in range(1_000_000):
            yield number

    async def story() -> int:
        who = Principal(name="editor", authenticated=True, expires_at=100.1)
        return len([number async for number in lasting(who, 100.0, events())])

    with pytest.raises(HandoffError) as caught:
        asyncio.run(story())
    assert caught.value.facts["token"] == "expired"
