"""How often one caller may call; without the setting, as often as it likes."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from tests.support.bearers import SECRET, bearer, token
from tests.support.running import Broker, broker
from tests.support.sockets import socket_of

BURST = 3
_MCP = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    """One request a second in the long run, three at once."""
    with broker(tmp_path, auth_secret=SECRET, grpc_port=0, max_rate=1, max_burst=BURST) as made:
        yield made


def rpc(b: Broker, who: str) -> tuple[int, str, str]:
    body = {"jsonrpc": "2.0", "id": "mine", "method": "GetTask", "params": {"id": "x"}}
    answer = b.http.post("/", json=body, headers={"A2A-Version": "1.0"} | bearer(who))
    said = answer.json()["error"]
    return answer.status_code, said["data"][0]["reason"], answer.headers.get("retry-after", "")


def test_who_calls_too_often_is_told_when_to_come_again_and_others_do_not_feel_it(b: Broker) -> None:
    began = time.monotonic()
    told = [rpc(b, "shop") for _ in range(20)]
    took = time.monotonic() - began
    fine, late = [one for one in told if one[0] == 200], [one for one in told if one[0] == 429]
    assert {one[1] for one in fine} == {"TASK_NOT_FOUND"}
    assert BURST <= len(fine) <= BURST + took + 1
    assert len(fine) + len(late) == 20
    assert set(late) == {(429, "RATE_LIMITED", "1")}
    assert rpc(b, "other")[0] == 200


def _spend(b: Broker) -> dict[str, str]:
    """Make a caller use up what it may, and a good deal more; its header."""
    headers = bearer("shop")
    b.app.quotas._limiter.limit("default/shop", cost=BURST)  # type: ignore[union-attr]
    return headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/tasks/x"), ("GET", "/v1/tasks/x"), ("POST", "/tasks/get"), ("GET", "/api/handoffs"),
        ("POST", "/mcp"), ("GET", "/ws"),
    ],
)  # fmt: skip
def test_it_holds_on_every_path(b: Broker, method: str, path: str) -> None:
    headers = _spend(b) | (_MCP if path == "/mcp" else {})
    if path == "/ws":
        headers |= {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }  # fmt: skip
    answer = b.http.request(method, path, headers=headers, json={"id": "x"} if method == "POST" else None)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_it_holds_over_grpc(b: Broker) -> None:
    _spend(b)
    with grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refusal:
            stub.GetTask(
                a2a_pb2.GetTaskRequest(id="x"),
                metadata=(("authorization", f"Bearer {token('shop')}"),),
                timeout=10,
            )
    error: Any = refusal.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_frames_count_and_the_socket_stays(tmp_path: Path) -> None:
    with (
        broker(tmp_path, max_rate=1, max_burst=10) as b,
        socket_of(b, "cursor", platform="x") as socket,
    ):
        answers = [socket.ask("ping") for _ in range(15)]
        refused = [answer for answer in answers if answer["type"] == "error"]
        assert refused
        assert {answer["problem"]["code"] for answer in refused} == {"rate_limited"}
        assert answers[0]["type"] == "pong"


def test_a_tool_counts_once_whatever_it_asks_of_the_broker(b: Broker) -> None:
    call = {"name": "list_agents", "arguments": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    answer = b.http.post("/mcp", json=body, headers=_MCP | bearer("shop"))
    assert "rate_limited" not in answer.text
    before = b.app.quotas._limiter.peek("default/shop")  # type: ignore[union-attr]
    assert before.remaining >= BURST - 1


def test_without_the_setting_nobody_counts(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        assert not b.app.quotas.rated
        assert b.app._a2a._gate is b.app._gate
        assert all(b.http.get("/api/agents").status_code == 200 for _ in range(300))
