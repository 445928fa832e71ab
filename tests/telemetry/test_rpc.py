"""One trace through the broker where calls come and go by gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import json_format

from tests.support.otlp_receiver import OtlpReceiver
from tests.support.running import WAIT_S, Broker, broker, handoff_context
from tests.support.sdk_agent import SdkAgent, sdk_agent
from tests.telemetry.story import CALLER

SERVICE = "lf.a2a.v1.A2AService"
TRACE = CALLER.split("-")[1]


@pytest.fixture(scope="module")
def sdk() -> Iterator[SdkAgent]:
    with sdk_agent() as agent:
        yield agent


@pytest.fixture
def traced(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sdk: SdkAgent
) -> Iterator[Broker]:
    """A broker that exports to ``receiver``, with one agent that speaks gRPC."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with broker(tmp_path, grpc_port=0) as b:
        url = f"127.0.0.1:{sdk.grpc_port}"
        card = {
            "name": "remote", "description": "By gRPC.", "version": "1", "capabilities": {"streaming": True},
            "supportedInterfaces": [{"url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0"}],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
        }  # fmt: skip
        b.register("remote", card=card)
        yield b


def request() -> a2a_pb2.SendMessageRequest:
    body = {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo"}]},
        "metadata": {"handoff_context": handoff_context(target_agent="remote")},
    }
    return json_format.ParseDict(body, a2a_pb2.SendMessageRequest())


def test_a_trace_goes_through_grpc_on_both_sides(
    traced: Broker, receiver: OtlpReceiver, sdk: SdkAgent
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{traced.app.grpc_port}") as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        metadata = (("traceparent", CALLER), ("tracestate", "vendor=1"))
        task = stub.SendMessage(request(), metadata=metadata, timeout=WAIT_S).task
    assert task.status.state == a2a_pb2.TASK_STATE_COMPLETED
    assert traced.app.telemetry.flush()
    spans = receiver.trace(TRACE)
    by_name = {span.name: span for span in spans}
    server = by_name[f"{SERVICE}/SendMessage"]
    assert (
        server.attributes.items()
        >= {
            "rpc.system.name": "grpc",
            "rpc.method": f"{SERVICE}/SendMessage",
            "a2a.method.name": "SendMessage",
            "a2a.protocol.version": "1.0",
            "a2a.task.id": task.id,
        }.items()
    )
    assert not [name for name in server.attributes if name.startswith("http.")]
    *_, call = [one for one in sdk.metadata if one[":path"].endswith("SendStreamingMessage")]
    invoked = {f"00-{TRACE}-{span.span_id}-01" for span in spans if span.name == "invoke_agent remote"}
    assert call["traceparent"] in invoked
    assert call["tracestate"] == "vendor=1"


def test_what_only_reads_has_a_span_with_its_status_and_is_measured(
    traced: Broker, receiver: OtlpReceiver
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{traced.app.grpc_port}") as channel:
        with pytest.raises(grpc.RpcError):
            a2a_pb2_grpc.A2AServiceStub(channel).GetTask(
                a2a_pb2.GetTaskRequest(id="nobody"), metadata=(("traceparent", CALLER),)
            )
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/x.Y/Z")(b"")
    known, unknown = f"{SERVICE}/GetTask", "grpc"
    spans = receiver.wait_for(lambda found: {known, unknown} <= {span.name for span in found})
    by_name = {span.name: span for span in spans}
    assert by_name[known].trace_id == TRACE
    assert by_name[known].attributes["rpc.response.status_code"] == "NOT_FOUND"
    assert "error.type" not in by_name[known].attributes
    assert by_name[unknown].attributes["rpc.method"] == "_OTHER"
    assert by_name[unknown].attributes["error.type"] == "UNIMPLEMENTED"
    page = traced.http.get("/metrics").text
    assert (
        f'rpc_server_call_duration_seconds_count{{error_type="",rpc_method="{known}",rpc_response_status_code="NOT_FOUND",'
        'rpc_system_name="grpc"} 1.0' in page
    ), [line for line in page.splitlines() if line.startswith("rpc_server_call_duration_seconds_count")]
