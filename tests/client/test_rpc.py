"""Agents that speak gRPC: what goes to them, what their statuses mean, and what counts as not sent."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v03
from a2a.types import a2a_pb2 as v10
from google.protobuf import duration_pb2, json_format
from google.rpc import error_details_pb2, status_pb2

from a2a_handoff.core.agents import Agent, Binding, Generation
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, RemoteState, Sent
from a2a_handoff.security.urls import OutboundPolicy
from tests.client.raw_server import agent_at, client, collect, delivery, run
from tests.support.otlp_receiver import black_hole
from tests.support.running import WAIT_S, bound_socket, kept_port

SERVICE_10, SERVICE_03 = "/lf.a2a.v1.A2AService/", "/a2a.v1.A2AService/"
STREAMS = ("SendStreamingMessage", "SubscribeToTask", "TaskSubscription")
Script = Callable[["Rpcs", str, bytes, grpc.ServicerContext], Iterator[bytes]]


@dataclass
class Rpcs(grpc.GenericRpcHandler):
    """A server that does what ``script`` says, in bytes."""

    script: Script
    port: int = 0
    calls: list[tuple[str, bytes, dict[str, Any]]] = field(default_factory=list[Any])
    server: Any = None
    left: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        details = handler_call_details

        def stream(body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            self.calls.append((details.method, body, dict(context.invocation_metadata())))
            context.add_callback(self.left.set)
            self.arrived.set()
            yield from self.script(self, details.method, body, context)

        def unary(body: bytes, context: grpc.ServicerContext) -> bytes:
            return next(stream(body, context))

        if details.method.rpartition("/")[2] in STREAMS:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)


@contextmanager
def rpcs(script: Script, *, port: int = 0, pem: Path | None = None) -> Generator[Rpcs]:
    made = Rpcs(script)
    server = grpc.server(ThreadPoolExecutor(8), handlers=[made])
    if pem is None:
        made.port = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        key, _, certificate = pem.read_bytes().partition(b"-----BEGIN CERTIFICATE")
        pair = (key, b"-----BEGIN CERTIFICATE" + certificate)
        made.port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    made.server = server
    try:
        yield made
    finally:
        server.stop(0).wait(WAIT_S)


def grpc_agent(url: str, *, generation: Generation = Generation.V1_0, **more: Any) -> Agent:
    return agent_at(url, binding=Binding.GRPC, generation=generation, **more)


def done(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """The task is done."""
    task = {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}
    if path.startswith(SERVICE_03):
        kind: Any = v03.SendMessageResponse if path.endswith("/SendMessage") else v03.Task
    else:
        kind = v10.SendMessageResponse if path.endswith("/SendMessage") else v10.Task
    wrapped = {"task": task} if path.endswith("/SendMessage") else task
    yield json_format.ParseDict(wrapped, kind()).SerializeToString()


def status_event(state: str) -> bytes:
    update = {"taskId": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}"}}
    return json_format.ParseDict({"statusUpdate": update}, v10.StreamResponse()).SerializeToString()


def fails(code: grpc.StatusCode, text: str = "no", *, reason: str = "", wait_s: int = 0) -> Script:
    """Answers with a status."""

    def script(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        if reason:
            status = status_pb2.Status(code=code.value[0], message=text)
            status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="x"))
            if wait_s:
                wait = duration_pb2.Duration(seconds=wait_s)
                status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=wait))
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, text)
        yield b""

    return script


def fault(agent: Agent, *, first_wait_s: float | None = WAIT_S, **settings: Any) -> AgentError:
    """The error with which a send ends."""

    async def body() -> AgentError:
        async with client(**settings) as made:
            with pytest.raises(AgentError) as caught:
                await collect(made, agent, first_wait_s=first_wait_s)
            return caught.value

    return run(body())


def unsent(error: AgentError, detail: str, *, again: bool = True) -> None:
    assert (error.outcome, error.detail) == (Outcome.TARGET_UNAVAILABLE, detail)
    assert (error.sent, error.again) == (Sent.NO, again)


# --- what is not sent ----------------------------------------------------------------------------


def test_where_nobody_listens_nothing_is_sent() -> None:
    unsent(fault(grpc_agent(f"127.0.0.1:{kept_port()}")), "not connected")


def test_an_agent_that_comes_back_is_reached_at_once() -> None:
    async def body() -> None:
        port = kept_port()
        async with client() as made:
            for _ in range(5):
                with pytest.raises(AgentError):
                    await collect(made, grpc_agent(f"127.0.0.1:{port}"))
            with rpcs(done, port=port) as server:
                assert len(await collect(made, grpc_agent(server.url))) == 1

    run(body())


def test_where_nobody_answers_nothing_is_sent() -> None:
    with black_hole() as hole:
        url = hole.removeprefix("http://")
        unsent(fault(grpc_agent(url), connect_s=0.3), "no connection in time")


def test_a_server_that_hangs_up_at_once_got_nothing() -> None:
    with bound_socket() as listener:
        listener.listen()

        def hang_up() -> None:
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        try:
            error = fault(grpc_agent(f"127.0.0.1:{listener.getsockname()[1]}"), connect_s=1.0)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    assert error.sent is Sent.NO


@pytest.mark.parametrize("url", ["https://127.0.0.1:{port}", "grpcs://127.0.0.1:{port}/"])
def test_tls_to_a_server_without_it_sends_nothing(url: str) -> None:
    with rpcs(done) as server:
        unsent(fault(grpc_agent(url.format(port=server.port)), connect_s=1.0), "not connected")
        assert server.calls == []


def test_tls_is_checked_against_the_name_and_not_the_address(server_pem: Path, authority_pem: bytes) -> None:
    async def resolver(name: str) -> list[str]:
        return ["127.0.0.1"]

    async def body() -> None:
        policy = OutboundPolicy(allow_private=True, resolver=resolver)
        with rpcs(done, pem=server_pem) as server:
            async with client(policy=policy, extra_ca_pem=authority_pem) as made:
                for scheme in ("https", "grpcs"):
                    agent = grpc_agent(f"{scheme}://agent.test:{server.port}")
                    assert len(await collect(made, agent)) == 1
                with pytest.raises(AgentError) as caught:
                    await collect(made, grpc_agent(f"https://other.test:{server.port}"))
                unsent(caught.value, "not connected")
            async with client(policy=policy) as made:  # which does not know the authority
                with pytest.raises(AgentError) as caught:
                    await collect(made, grpc_agent(f"https://agent.test:{server.port}"))
                unsent(caught.value, "not connected")
            assert len(server.calls) == 2

    run(body())


@pytest.mark.parametrize("url", ["{url}", "http://{url}/", "grpc://{url}", "localhost:{port}"])
def test_an_address_that_may_not_be_called_is_not_called(url: str) -> None:
    with rpcs(done) as server:
        agent = grpc_agent(url.format(url=server.url, port=server.port))
        unsent(fault(agent, policy=OutboundPolicy()), "address unknown or not allowed")
        assert server.calls == []
        assert run(_one(agent)).state is RemoteState.COMPLETED


async def _one(agent: Agent) -> Any:
    async with client() as made:
        (update,) = await collect(made, agent)
        return update


@pytest.mark.parametrize(
    "url", ["", ":50051", "x y:1", "user@127.0.0.1:1", "dns:///127.0.0.1:1", "unix:/x", "[::1", "a:b:c"]
)
def test_what_is_no_address_of_grpc_is_an_unavailable_target(url: str) -> None:
    error = fault(grpc_agent(url), connect_s=0.5)
    assert (error.outcome, error.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.NO)


def test_what_protobuf_cannot_carry_is_not_sent() -> None:
    deep: Any = 1
    for _ in range(45):
        deep = {"a": deep}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": deep}]}

    async def body() -> None:
        with rpcs(done) as server:
            async with client() as made:
                with pytest.raises(AgentError) as caught:
                    await collect(made, grpc_agent(server.url), delivery(json.dumps(message).encode()))
                unsent(caught.value, "not a request that protobuf can carry", again=False)
            assert server.calls == []

    run(body())


# --- statuses ------------------------------------------------------------------------------------

_CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("script", "outcome", "sent", "again", "code"),
    [
        (fails(_CODE.UNAVAILABLE), Outcome.TARGET_UNAVAILABLE, Sent.MAYBE, True, None),
        (fails(_CODE.UNAVAILABLE, reason="UNAVAILABLE"), Outcome.TARGET_UNAVAILABLE, Sent.NO, True, None),
        (fails(_CODE.RESOURCE_EXHAUSTED), Outcome.TARGET_UNAVAILABLE, Sent.MAYBE, True, None),
        (fails(_CODE.RESOURCE_EXHAUSTED, reason="RATE_LIMITED"), Outcome.TARGET_UNAVAILABLE, Sent.NO, True, None),
        (fails(_CODE.CANCELLED), Outcome.TARGET_UNAVAILABLE, Sent.MAYBE, True, None),
        (fails(_CODE.ABORTED), Outcome.TARGET_UNAVAILABLE, Sent.MAYBE, True, None),
        (fails(_CODE.DEADLINE_EXCEEDED), Outcome.TIMEOUT, Sent.MAYBE, True, None),
        (fails(_CODE.UNAUTHENTICATED), Outcome.TARGET_AUTH, Sent.YES, False, None),
        (fails(_CODE.PERMISSION_DENIED), Outcome.TARGET_AUTH, Sent.YES, False, None),
        (fails(_CODE.INTERNAL), Outcome.TARGET_FAILED, Sent.YES, False, None),
        (fails(_CODE.INTERNAL, "Received RST_STREAM with error code 2"), Outcome.TARGET_UNAVAILABLE, Sent.MAYBE, True, None),
        (fails(_CODE.UNKNOWN), Outcome.TARGET_FAILED, Sent.YES, False, None),
        (fails(_CODE.DATA_LOSS), Outcome.TARGET_FAILED, Sent.YES, False, None),
        (fails(_CODE.NOT_FOUND), Outcome.TARGET_FAILED, Sent.YES, False, -32001),
        (fails(_CODE.NOT_FOUND, "TaskNotFoundError: gone"), Outcome.TARGET_FAILED, Sent.YES, False, -32001),
        (fails(_CODE.UNIMPLEMENTED), Outcome.TARGET_REJECTED, Sent.YES, False, -32601),
        (fails(_CODE.INVALID_ARGUMENT), Outcome.TARGET_REJECTED, Sent.YES, False, -32602),
        (fails(_CODE.FAILED_PRECONDITION), Outcome.TARGET_REJECTED, Sent.YES, False, -32004),
        (fails(_CODE.FAILED_PRECONDITION, reason="VERSION_NOT_SUPPORTED"), Outcome.TARGET_REJECTED, Sent.YES, False, -32009),
        (fails(_CODE.INTERNAL, reason="INVALID_AGENT_RESPONSE"), Outcome.TARGET_FAILED, Sent.YES, False, -32006),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streaming", [False, True])
def test_what_a_status_means(
    script: Script, outcome: Outcome, sent: Sent, again: bool, code: int | None, streaming: bool
) -> None:
    with rpcs(script) as server:
        error = fault(grpc_agent(server.url, streaming=streaming))
    assert (error.outcome, error.sent, error.again, error.jsonrpc_code) == (outcome, sent, again, code)
    assert "no" not in error.detail.split()
    assert "gone" not in error.detail


def test_an_agent_that_is_busy_says_how_long_to_wait() -> None:
    with rpcs(fails(_CODE.UNAVAILABLE, reason="UNAVAILABLE", wait_s=7)) as server:
        assert fault(grpc_agent(server.url)).retry_after_s == 7
    with rpcs(fails(_CODE.UNAVAILABLE, reason="UNAVAILABLE", wait_s=10**9)) as server:
        assert fault(grpc_agent(server.url)).retry_after_s == 86_400


def test_details_that_are_none_say_nothing() -> None:
    def script(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        context.abort(_CODE.UNAVAILABLE, "x")
        yield b""

    with rpcs(script) as server:
        assert fault(grpc_agent(server.url)).sent is Sent.MAYBE


def test_an_agent_that_dies_with_the_request_may_have_got_it() -> None:
    release = threading.Event()

    def script(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        rpc.server.stop(0)
        release.wait(WAIT_S)
        yield b""

    for streaming in (False, True):
        with rpcs(script) as server:
            try:
                error = fault(grpc_agent(server.url, streaming=streaming))
            finally:
                release.set()
        assert error.sent is Sent.MAYBE
        release.clear()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_silent_agent_may_have_got_it_and_its_call_is_ended(streaming: bool) -> None:
    never = threading.Event()

    def script(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        never.wait(WAIT_S)
        yield b""

    with rpcs(script) as server:
        error = fault(grpc_agent(server.url, streaming=streaming), first_wait_s=0.2, connect_s=0.2)
        assert (error.outcome, error.sent) == (Outcome.TIMEOUT, Sent.MAYBE)
        assert server.left.wait(WAIT_S)
        never.set()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("body", [b"\xff\xff", b"\x0a\x05ab"])
def test_bytes_that_are_no_answer_are_an_invalid_response(body: bytes, streaming: bool) -> None:
    with rpcs(lambda rpc, path, _body, context: iter((body,))) as server:
        error = fault(grpc_agent(server.url, streaming=streaming))
    assert (error.outcome, error.sent) == (Outcome.INVALID_RESPONSE, Sent.YES)


def test_an_answer_over_the_limit_is_an_invalid_response() -> None:
    with rpcs(lambda rpc, path, body, context: iter((b"\x00" * 5_000,))) as server:
        error = fault(grpc_agent(server.url), max_bytes=4_096)
    assert (error.outcome, error.sent) == (Outcome.INVALID_RESPONSE, Sent.YES)


# --- streams -------------------------------------------------------------------------------------


def test_a_stream_that_breaks_after_something_was_said_just_ends() -> None:
    def script(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield status_event("WORKING")
        context.abort(_CODE.UNAVAILABLE, "x")

    async def body() -> None:
        with rpcs(script) as server:
            async with client() as made:
                (update,) = await collect(made, grpc_agent(server.url, streaming=True))
                assert update.state is RemoteState.WORKING

    run(body())


def test_a_stream_that_ends_before_it_began_leaves_it_open_what_was_done() -> None:
    with rpcs(lambda rpc, path, body, context: iter(())) as server:
        error = fault(grpc_agent(server.url, streaming=True))
    assert (error.outcome, error.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.MAYBE)


def test_a_stream_ends_with_its_task_and_leaving_it_ends_the_call() -> None:
    def script(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield status_event("WORKING")
        yield status_event("COMPLETED")
        threading.Event().wait(0.5)
        yield status_event("FAILED")

    async def body() -> None:
        with rpcs(script) as server:
            async with client() as made:
                agent = grpc_agent(server.url, streaming=True)
                states = [update.state for update in await collect(made, agent)]
                assert states == [RemoteState.WORKING, RemoteState.COMPLETED]
                assert await asyncio.to_thread(server.left.wait, WAIT_S)
                server.left.clear()
                async with aclosing(made.send(agent, delivery(), first_wait_s=WAIT_S)) as updates:
                    await anext(updates)
                assert await asyncio.to_thread(server.left.wait, WAIT_S)

    run(body())


def test_closing_the_client_ends_what_is_under_way() -> None:
    never = threading.Event()

    def script(rpc: Rpcs, path: str, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield status_event("WORKING")
        never.wait(WAIT_S)

    async def body() -> None:
        with rpcs(script) as server:
            async with client() as made:
                agent = grpc_agent(server.url, streaming=True)
                updates = made.send(agent, delivery(), first_wait_s=WAIT_S)
                await anext(updates)
                waiting = asyncio.ensure_future(anext(updates, None))
                await asyncio.sleep(0)
                await made.close()
                assert await waiting is None
                with pytest.raises(AgentError) as caught:
                    await collect(made, agent)
                unsent(caught.value, "the broker is closing")
            never.set()

    run(body())


def test_one_connection_serves_many_calls() -> None:
    async def body() -> None:
        with rpcs(done) as server:
            async with client() as made:
                agent = grpc_agent(server.url)
                await asyncio.gather(*(collect(made, agent) for _ in range(20)))
            assert len(server.calls) == 20

    run(body())


# --- what is sent --------------------------------------------------------------------------------

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_request_of_1_0_has_its_metadata_and_the_tenant_of_the_interface() -> None:
    raw = base64.b64encode(bytes(range(256))).decode()
    message = {
        "messageId": "m", "role": "ROLE_USER", "parts": [{"raw": raw}, {"data": {"n": 1}}],
        "taskId": "of-the-caller", "contextId": "of-the-caller",
    }  # fmt: skip

    async def body() -> None:
        with rpcs(done) as server:
            async with client() as made:
                agent = grpc_agent(server.url, tenant="acme")
                sent = delivery(
                    json.dumps(message).encode(), metadata=b'{"k":[1,2]}', traceparent=TRACE, tracestate="a=1",
                    extensions=("urn:x",), accepted_output_modes=("text/plain",),
                )  # fmt: skip
                await collect(made, agent, sent)
                await made.get(agent, "t-1")
                await made.cancel(agent, "t-1", traceparent=TRACE)
            (path, first, metadata), (_, second, _), (_, third, again) = server.calls
        assert path == f"{SERVICE_10}SendMessage"
        request = v10.SendMessageRequest.FromString(first)
        assert (request.tenant, request.message.message_id) == ("acme", "m")
        assert (request.message.task_id, request.message.context_id) == ("", "")
        assert request.message.parts[0].raw == bytes(range(256))
        assert json_format.MessageToDict(request.metadata) == {"k": [1, 2]}
        assert list(request.configuration.accepted_output_modes) == ["text/plain"]
        assert request.configuration.return_immediately
        assert (metadata["a2a-version"], metadata["traceparent"], metadata["tracestate"]) == (
            "1.0",
            TRACE,
            "a=1",
        )
        assert metadata["a2a-extensions"] == "urn:x"
        assert metadata["user-agent"].startswith("a2a-handoff/")
        asked = v10.GetTaskRequest.FromString(second)
        assert (asked.id, asked.tenant, asked.history_length) == ("t-1", "acme", 0)
        assert asked.HasField("history_length")
        stopped = v10.CancelTaskRequest.FromString(third)
        assert (stopped.id, stopped.tenant, again["traceparent"]) == ("t-1", "acme", TRACE)

    run(body())


def test_a_request_of_0_3_has_its_shapes_and_names() -> None:
    raw = base64.b64encode(bytes(range(256))).decode()
    message = {
        "messageId": "m",
        "role": "ROLE_USER",
        "parts": [{"raw": raw, "filename": "f"}, {"data": {"n": 1}}],
    }

    async def body() -> None:
        with rpcs(done) as server:
            async with client() as made:
                agent = grpc_agent(server.url, generation=Generation.V0_3)
                sent = delivery(json.dumps(message).encode(), extensions=("urn:x",))
                (update,) = await collect(made, agent, sent)
                assert (update.state, update.remote_task_id) == (RemoteState.COMPLETED, "t-1")
                await made.get(agent, "t-1")
                await made.cancel(agent, "t-1")
            (path, first, metadata), (_, second, _), (_, third, _) = server.calls
        assert path == f"{SERVICE_03}SendMessage"
        request = v03.SendMessageRequest.FromString(first)
        assert request.request.content[0].file.file_with_bytes == bytes(range(256))
        assert json_format.MessageToDict(request.request.content[1].data.data) == {"n": 1}
        assert (metadata["a2a-version"], metadata["x-a2a-extensions"]) == ("0.3", "urn:x")
        assert v03.GetTaskRequest.FromString(second).name == "tasks/t-1"
        assert v03.CancelTaskRequest.FromString(third).name == "tasks/t-1"

    run(body())


def test_numbers_of_an_answer_come_back_as_they_were() -> None:
    data = {"one": 1, "half": 0.5, "big": 2**53, "minus": -3, "list": [0, {"n": 7}], "none": None}
    task = {
        "id": "t-1", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [{"data": data}]}],
    }  # fmt: skip
    answer = json_format.ParseDict({"task": task}, v10.SendMessageResponse()).SerializeToString()
    with rpcs(lambda rpc, path, body, context: iter((answer,))) as server:
        update = run(_one(grpc_agent(server.url)))
    (output,) = update.outputs
    assert json.loads(output.body)["parts"] == [{"data": data}]
    assert b'"one":1}' in output.body


def test_a_probe_is_a_connection() -> None:
    async def body() -> None:
        with rpcs(done) as server:
            async with client() as made:
                await made.probe(grpc_agent(server.url, card_url="http://127.0.0.1:1/"), timeout_s=WAIT_S)
                with pytest.raises(AgentError) as caught:
                    await made.probe(grpc_agent(f"127.0.0.1:{kept_port()}"), timeout_s=1)
                unsent(caught.value, "not connected")
            assert server.calls == []

    run(body())
