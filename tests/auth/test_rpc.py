"""gRPC asks the same gate: the token stands in the metadata, the tenant in the message."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as v10
from a2a.types import a2a_pb2_grpc as v10_grpc
from google.protobuf import json_format

from tests.support.bearers import SECRET, bearer
from tests.support.running import WAIT_S, Broker, broker, send_params

_VERSION = ("a2a-version", "1.0")


class Line:
    """A broker, and a channel to it."""

    def __init__(self, b: Broker, channel: grpc.Channel) -> None:
        self.b = b
        self._stub = v10_grpc.A2AServiceStub(channel)

    def call(self, method: str, message: Any, headers: dict[str, str]) -> Any:
        metadata = [_VERSION, *((name.lower(), value) for name, value in headers.items())]
        return getattr(self._stub, method)(message, metadata=metadata, timeout=WAIT_S)

    def refusal(self, method: str, message: Any, headers: dict[str, str]) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.call(method, message, headers)
        return caught.value.code(), caught.value.details() or ""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Generator[Line]:
    folder: Path = tmp_path_factory.mktemp("rpc")
    with broker(folder, auth_secret=SECRET, auth_leeway=0, grpc_port=0) as b:
        for tenant in ("acme", "other"):
            headers = bearer(f"maker-of-{tenant}", tenant=tenant)
            body = {"agent_id": f"maker-of-{tenant}"}
            assert b.http.post("/api/agents", json=body, headers=headers).is_success
        with grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel:
            yield Line(b, channel)


def _message(**more: Any) -> Any:
    context = {"source_agent": "shop", "target_agent": "maker-of-acme"}
    return json_format.ParseDict(send_params(context=context, **more), v10.SendMessageRequest())


_SHOP = {"tenant": "acme"}


def test_a_call_without_a_token_is_unauthenticated(line: Line) -> None:
    code, _ = line.refusal("GetTask", v10.GetTaskRequest(id="x"), {})
    assert code is grpc.StatusCode.UNAUTHENTICATED


def test_a_call_beyond_the_scopes_is_denied_and_says_which(line: Line) -> None:
    code, text = line.refusal("SendMessage", _message(), bearer("shop", tenant="acme", scope="handoff:work"))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "handoff:send" in text


def test_a_call_that_names_another_tenant_is_denied(line: Line) -> None:
    request = v10.ListTasksRequest(tenant="acme")
    spy = bearer("spy", tenant="other", scope="handoff:admin")
    assert line.refusal("ListTasks", request, spy)[0] is grpc.StatusCode.PERMISSION_DENIED
    assert line.call("ListTasks", request, bearer("shop", **_SHOP)).total_size >= 0


def test_a_strangers_task_is_not_found(line: Line) -> None:
    made = line.call("SendMessage", _message(wait=False), bearer("shop", **_SHOP)).task.id
    assert line.call("GetTask", v10.GetTaskRequest(id=made), bearer("shop", **_SHOP)).id == made
    for who in (bearer("spy", tenant="other", scope="handoff:admin"), bearer("spy", tenant="acme")):
        for method, request in (
            ("GetTask", v10.GetTaskRequest(id=made)),
            ("CancelTask", v10.CancelTaskRequest(id=made)),
        ):
            assert line.refusal(method, request, who)[0] is grpc.StatusCode.NOT_FOUND
        assert list(line.call("ListTasks", v10.ListTasksRequest(), who).tasks) == []


def test_the_extended_card_has_the_agents_of_the_tenant(line: Line) -> None:
    card = line.call("GetExtendedAgentCard", v10.GetExtendedAgentCardRequest(), bearer("shop", **_SHOP))
    (extension,) = card.capabilities.extensions
    agents = json_format.MessageToDict(extension.params)["agents"]
    assert [agent["agentId"] for agent in agents] == ["maker-of-acme"]


def test_a_stream_ends_when_its_token_does(line: Line) -> None:
    answers = line.call("SendStreamingMessage", _message(), bearer("shop", tenant="acme", lasts_s=1.0))
    with pytest.raises(grpc.RpcError) as caught:
        list(answers)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
