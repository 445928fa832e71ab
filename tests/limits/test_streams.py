"""How many streams, sockets and waits may be open: of one caller, and of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import json_format
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.agents import Agent, card, hangs
from tests.support.bearers import SECRET, bearer, token
from tests.support.running import Broker, broker, handoff_context, running, send_params
from tests.support.wire import eventually

_V1 = {"A2A-Version": "1.0"}
_METADATA = {"handoff_context": handoff_context(source_agent="shop", target_agent="worker")}
_MCP = {"Accept": "application/json, text/event-stream"}

Refusal = tuple[str, int, str]
"""Code, status and Retry-After of an answer."""


@contextmanager
def house(folder: Path, **settings: Any) -> Generator[Broker]:
    """A broker with an agent that does not come to an end; who calls must say who it is."""
    with (
        running(Agent(hangs)) as url,
        broker(folder, auth_secret=SECRET, grpc_port=0, **settings) as made,
    ):
        for name, more in (("worker", {"card": card(url, streaming=True)}), ("shop", {"platform": "x"})):
            body = {"agent_id": name, **more}
            assert made.http.post("/api/agents", json=body, headers=bearer(name)).is_success
        yield made


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    with house(tmp_path_factory.mktemp("each"), max_streams_each=1) as made:
        yield made


@contextmanager
def opened(b: Broker, who: str) -> Generator[None]:
    """One stream of a caller's, for as long as this lasts; then it is forgotten."""
    with b.http.stream("GET", "/api/events", headers=bearer(who)) as answer:
        assert answer.status_code == 200, answer.read()
        came = answer.iter_raw()  # which would be closed if it were forgotten
        next(came)
        yield
    eventually(lambda: not b.app.quotas._open["default", who])


# --- every surface that streams or waits -----------------------------------------------------------


def _rpc(b: Broker, method: str, params: Any, who: str) -> Refusal:
    body = {"jsonrpc": "2.0", "id": "mine", "method": method, "params": params}
    with b.http.stream("POST", "/", json=body, headers=_V1 | bearer(who)) as answer:
        said = json.loads(answer.read())
        assert said["id"] == "mine"
        assert said["error"]["code"] in (-32060, -32061)
        return _reason(said["error"]["data"]), answer.status_code, answer.headers["retry-after"]


def _reason(details: Any) -> str:
    return next(one["reason"] for one in details if "reason" in one).lower()


def streams_over_jsonrpc(b: Broker, who: str) -> Refusal:
    return _rpc(b, "SendStreamingMessage", send_params(metadata=_METADATA), who)


def waits_over_jsonrpc(b: Broker, who: str) -> Refusal:
    return _rpc(b, "SendMessage", send_params(metadata=_METADATA), who)


def streams_over_http_json(b: Broker, who: str) -> Refusal:
    params = send_params(metadata=_METADATA)
    with b.http.stream("POST", "/message:stream", json=params, headers=bearer(who)) as answer:
        said = json.loads(answer.read())
        return _reason(said["error"]["details"]), answer.status_code, answer.headers["retry-after"]


def streams_of_the_first_generation(b: Broker, who: str) -> Refusal:
    params = {
        "id": "order-1",
        "message": {"role": "user", "parts": [{"type": "text", "text": "go"}]},
        "metadata": _METADATA,
    }
    with b.http.stream("POST", "/tasks/sendSubscribe", json=params, headers=bearer(who)) as answer:
        said = json.loads(answer.read())
        return said["error"]["data"]["reason"].lower(), answer.status_code, answer.headers["retry-after"]


def _problem(b: Broker, path: str, who: str, **params: str) -> Refusal:
    with b.http.stream("GET", path, params=params, headers=bearer(who)) as answer:
        return json.loads(answer.read())["code"], answer.status_code, answer.headers["retry-after"]


def tails_the_log(b: Broker, who: str) -> Refusal:
    return _problem(b, "/api/events", who)


def follows_the_agents(b: Broker, who: str) -> Refusal:
    return _problem(b, "/api/events/agents", who)


def polls_its_inbox(b: Broker, who: str) -> Refusal:
    return _problem(b, "/api/handoffs/watch", who, agent=who, timeout="30")


def waits_for_an_event(b: Broker, who: str) -> Refusal:
    params = send_params(
        wait=False,
        metadata=_METADATA | {"handoff_context": _METADATA["handoff_context"] | {"source_agent": who}},
    )
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    task = b.http.post("/", json=body, headers=_V1 | bearer(who)).json()["result"]["task"]["id"]
    return _problem(b, f"/api/handoffs/{task}/events", who, after="1000", timeout="30")


def has_a_socket(b: Broker, who: str) -> Refusal:
    url = b.url.replace("http", "ws", 1) + "/ws"
    with pytest.raises(InvalidStatus) as refusal:
        connect(url, proxy=None, additional_headers=bearer(who)).close()
    answer = refusal.value.response
    return json.loads(answer.body or b"")["code"], answer.status_code, answer.headers["retry-after"]


def streams_over_grpc(b: Broker, who: str) -> Refusal:
    request = json_format.ParseDict(send_params(metadata=_METADATA), a2a_pb2.SendMessageRequest())
    with grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel:
        call = a2a_pb2_grpc.A2AServiceStub(channel).SendStreamingMessage
        with pytest.raises(grpc.RpcError) as refusal:
            list(call(request, metadata=(("authorization", f"Bearer {token(who)}"),), timeout=10))
    error: Any = refusal.value
    code = {grpc.StatusCode.RESOURCE_EXHAUSTED: 429, grpc.StatusCode.UNAVAILABLE: 503}[error.code()]
    (status,) = (value for name, value in error.trailing_metadata() if name == "grpc-status-details-bin")
    assert b"RetryInfo" in status
    reason = b"RATE_LIMITED" if code == 429 else b"UNAVAILABLE"
    assert reason in status
    return reason.decode().lower(), code, "5"


EVERY = (
    streams_over_jsonrpc, waits_over_jsonrpc, streams_over_http_json, streams_of_the_first_generation,
    tails_the_log, follows_the_agents, polls_its_inbox, waits_for_an_event, has_a_socket, streams_over_grpc,
)  # fmt: skip
each = pytest.mark.parametrize("one_more", EVERY, ids=lambda way: way.__name__)
OneMore = Callable[[Broker, str], Refusal]


@each
def test_who_has_as_much_open_as_it_may_gets_no_more_and_nothing_is_stored(
    b: Broker, one_more: OneMore
) -> None:
    with opened(b, "shop"):
        if one_more is waits_for_an_event:
            assert one_more(b, "shop") == ("rate_limited", 429, "5")
            return
        before = b.http.get("/api/handoffs", headers=bearer("shop")).json()["total"]
        assert one_more(b, "shop") == ("rate_limited", 429, "5")
        assert b.http.get("/api/handoffs", headers=bearer("shop")).json()["total"] == before


@each
def test_where_as_much_is_open_as_may_be_nobody_gets_more(tmp_path: Path, one_more: OneMore) -> None:
    with house(tmp_path, max_streams=1) as b, opened(b, "worker"):
        assert one_more(b, "shop") == ("unavailable", 503, "5")


def test_others_do_not_feel_it_and_who_closes_one_may_open_another(b: Broker) -> None:
    for _ in range(2):
        with opened(b, "shop"), opened(b, "worker"), opened(b, "third"):
            assert tails_the_log(b, "shop")[1] == 429


def test_what_does_not_wait_does_not_count(b: Broker) -> None:
    with opened(b, "shop"):
        headers = bearer("shop")
        assert b.http.get("/api/handoffs/watch?agent=shop&timeout=0", headers=headers).status_code == 204
        params = send_params(wait=False, metadata=_METADATA)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        task = b.http.post("/", json=body, headers=_V1 | headers).json()["result"]["task"]["id"]
        assert b.http.get(f"/api/handoffs/{task}/events", headers=headers).status_code == 200


def test_a_tool_of_mcp_that_waits_counts(b: Broker) -> None:
    with opened(b, "shop"):
        arguments = {"agentId": "shop", "timeout": 20}
        call = {"name": "watch_handoffs", "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        answer = b.http.post("/mcp", json=body, headers=_MCP | bearer("shop"))
        assert "rate_limited" in answer.text


def test_without_authentication_nobody_is_told_apart(tmp_path: Path) -> None:
    with broker(tmp_path, max_streams=3, max_streams_each=1) as b:
        with _anonymous(b), _anonymous(b), _anonymous(b), b.http.stream("GET", "/api/events") as refused:
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        eventually(lambda: not b.app.quotas._open["default", ""])
        with _anonymous(b):
            pass


@contextmanager
def _anonymous(b: Broker) -> Generator[None]:
    with b.http.stream("GET", "/api/events") as answer:
        assert answer.status_code == 200
        came = answer.iter_raw()  # which would be closed if it were forgotten
        next(came)
        yield
