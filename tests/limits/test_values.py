"""A message may have so many values and no more, on every surface, whatever it does with them.

Ten megabytes of small values would hold up everybody for seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import json_format

from a2a_handoff.wire.protobuf import RPCS
from tests.support.agents import Agent, card, completes
from tests.support.running import Broker, broker, handoff_context, running, send_params
from tests.support.sockets import socket_of

MOST = 1_000
ENOUGH = 20_000
_CONTEXT = handoff_context(target_agent="worker")
_MCP = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("values")
    with running(Agent(completes)) as url, broker(folder, max_values=MOST, grpc_port=0) as made:
        made.register("worker", card=card(url, capabilities={"canWork": True}))
        yield made


def count_of(tree: Any) -> int:
    """How many values there are, each empty list or object twice."""
    match tree:
        case dict():
            return 1 + sum(map(count_of, tree.values())) + (not tree)
        case list():
            return 1 + sum(map(count_of, tree)) + (not tree)
        case _:
            return 1


def filled(tree: Any, place: list[Any], count: int) -> bytes:
    """A body with ``count`` values; ``place`` is a list in it that can take some."""
    place.append(0)
    place.extend([0] * (count - count_of(tree)))
    assert count_of(tree) == count
    return json.dumps(tree).encode()


# --- bodies of each surface, and a list in them that may be of any length -------------------------


def _sent(**message: Any) -> tuple[dict[str, Any], list[Any]]:
    facts: list[Any] = []
    context = {**_CONTEXT, "key_facts": {"many": facts}}
    return send_params("go", metadata={"handoff_context": context}, message=message), facts


def _rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "mine", "method": method, "params": params}


def jsonrpc() -> tuple[dict[str, Any], list[Any]]:
    params, place = _sent()
    return _rpc("SendMessage", params), place


def jsonrpc_0_3() -> tuple[dict[str, Any], list[Any]]:
    params, place = _sent(role="user", kind="message", parts=[{"kind": "text", "text": "go"}])
    return _rpc("message/send", params), place


def http_json_0_3() -> tuple[dict[str, Any], list[Any]]:
    params, place = _sent(content=[{"text": "go"}])
    del params["message"]["parts"]
    return {"request": params["message"], "metadata": params["metadata"]}, place


def first() -> tuple[dict[str, Any], list[Any]]:
    facts: list[Any] = []
    params = {
        "id": f"order-{id(facts)}",
        "message": {"role": "user", "parts": [{"type": "text", "text": "go"}]},
        "metadata": {"handoff_context": {**_CONTEXT, "key_facts": {"many": facts}}},
    }
    return params, facts


def first_enveloped() -> tuple[dict[str, Any], list[Any]]:
    params, place = first()
    return _rpc("tasks/send", params), place


def handoff() -> tuple[dict[str, Any], list[Any]]:
    facts: list[Any] = []
    return {"task": "go", "targetAgent": "worker", "source_agent": "a", "context": {"many": facts}}, facts


def agent() -> tuple[dict[str, Any], list[Any]]:
    facts: list[Any] = []
    return {"agent_id": "puller", "platform": "x", "metadata": {"many": facts}}, facts


def tool() -> tuple[dict[str, Any], list[Any]]:
    facts: list[Any] = []
    arguments = {"targetAgent": "worker", "task": "go", "context": {"many": facts}}
    return _rpc("tools/call", {"name": "create_handoff", "arguments": arguments}), facts


Make = Callable[[], tuple[dict[str, Any], list[Any]]]
OVER_HTTP: list[tuple[str, Make, dict[str, str]]] = [
    ("/", jsonrpc, {"A2A-Version": "1.0"}),
    ("/", jsonrpc_0_3, {}),
    ("/", first_enveloped, {}),
    ("/agents/worker/", jsonrpc, {"A2A-Version": "1.0"}),
    ("/message:send", _sent, {}),
    ("/v1/message:send", http_json_0_3, {}),
    ("/tasks/send", first, {}),
    ("/tasks/send", first_enveloped, {}),
    ("/api/handoffs", handoff, {}),
    ("/api/agents", agent, {}),
    ("/mcp", tool, _MCP),
]
each = pytest.mark.parametrize(
    ("path", "make", "headers"), OVER_HTTP, ids=[f"{path} {make.__name__}" for path, make, _ in OVER_HTTP]
)


def _post(b: Broker, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return b.http.post(path, content=body, headers={"Content-Type": "application/json"} | headers)


@each
def test_as_many_values_as_there_may_be_are_taken(
    b: Broker, path: str, make: Make, headers: dict[str, str]
) -> None:
    # A tool asks for more of the broker than stands in its call.
    spare = 20 if make is tool else 0
    answer = _post(b, path, filled(*make(), MOST - spare), headers)
    assert answer.is_success, answer.text
    assert b'"error"' not in answer.content


@each
def test_one_more_is_refused_in_the_words_of_the_protocol(
    b: Broker, path: str, make: Make, headers: dict[str, str]
) -> None:
    tree, place = make()
    answer = _post(b, path, filled(tree, place, MOST + 1), headers)
    assert answer.status_code == 413
    said = answer.json()
    fault = {"field": "", "description": f"has more than {MOST} values"}
    if answer.headers["content-type"] == "application/problem+json":
        assert (said["code"], said["errors"]) == ("payload_too_large", [fault])
        assert said["facts"] == {"limit_values": str(MOST)}
        return
    if "jsonrpc" in tree:
        assert (said["id"], said["error"]["code"]) == ("mine", -32602)
    error = said["error"]
    details = error.get("details") or error["data"]
    details = details if isinstance(details, dict) else {k: v for one in details for k, v in one.items()}
    assert details["reason"] == "PAYLOAD_TOO_LARGE"
    assert details["metadata"] == {"limit_values": str(MOST)}
    assert details["fieldViolations"] == [fault]
    assert str(MOST) in error["message"]


@pytest.mark.parametrize("text", ["a, b, [c], {d}, ", '\\"quoted\\", ', "\\\\", '\\\\\\", '])
def test_what_stands_in_a_text_is_not_counted(b: Broker, text: str) -> None:
    params = send_params(text * MOST, metadata={"handoff_context": _CONTEXT})
    answer = _post(b, "/", json.dumps(_rpc("SendMessage", params)).encode(), {"A2A-Version": "1.0"})
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("small", ["0", '""', "[]", "{}", '","', "[[0]]", '{"a":[]}', '"\\""'])
def test_ten_megabytes_of_small_values_are_refused(b: Broker, small: str) -> None:
    count = 10_000_000 // (len(small) + 1)
    body = b'{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":[%b]}}'
    body %= b",".join([small.encode()] * count)
    answer = _post(b, "/", body, {"A2A-Version": "1.0"})
    assert (answer.status_code, answer.json()["id"]) == (413, 7)


def test_a_frame_is_refused_under_its_id_and_the_socket_stays(b: Broker) -> None:
    with socket_of(b, "fetcher", platform="x") as socket:
        tree, place = handoff()
        frame = {"type": "create", "id": 5, "handoff": tree}
        socket.connection.send(filled(frame, place, MOST + 1).decode())
        refused = socket.next("error")
        assert (refused["id"], refused["problem"]["code"]) == (5, "payload_too_large")
        assert refused["problem"]["facts"] == {"limit_values": str(MOST)}
        place.pop()
        socket.connection.send(json.dumps(frame))
        assert socket.next("ok")["id"] == 5


def test_a_callback_is_refused_too(b: Broker) -> None:
    """Its token is looked at first: who has none is told nothing of the body."""
    answer = _post(b, "/callbacks/x/1", b'{"a":[%b0]}' % (b"0," * ENOUGH), {})
    assert answer.status_code == 404


# --- gRPC ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/lf.a2a.v1.A2AService/SendMessage", "/a2a.v1.A2AService/SendMessage"])
@pytest.mark.parametrize(
    "many",
    [[0] * ENOUGH, [""] * ENOUGH, [{}] * ENOUGH, [[0]] * ENOUGH, {str(n): None for n in range(ENOUGH)}],
    ids=["numbers", "texts", "objects", "lists", "members"],
)
def test_a_message_of_grpc_has_the_same_limit(b: Broker, path: str, many: Any) -> None:
    rpc = RPCS[path]
    with grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel:
        call = channel.unary_unary(path)
        with pytest.raises(grpc.RpcError) as refusal:
            call(_message(rpc.request, path, many).SerializeToString(), timeout=30)
        error: Any = refusal.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(MOST) in error.details()
        answer = rpc.answer()
        answer.ParseFromString(call(_message(rpc.request, path, [0] * 100).SerializeToString(), timeout=30))
        assert json_format.MessageToDict(answer)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def _message(kind: type[Any], path: str, many: Any) -> Any:
    context = {**_CONTEXT, "key_facts": {"few": 1}}
    params = send_params("go", metadata={"handoff_context": context}, message={"metadata": {"many": many}})
    if "lf." not in path:
        message = params.pop("message")
        params["request"] = message
        message["content"] = message.pop("parts")
    return json_format.ParseDict(params, kind(), ignore_unknown_fields=False)
