"""What the broker does with calls of gRPC, good ones and bad ones.

What every surface does is tested in ``tests/interaction``, over gRPC too.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v03
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as v03_grpc
from a2a.types import a2a_pb2 as v10
from a2a.types import a2a_pb2_grpc as v10_grpc
from google.protobuf import json_format, struct_pb2

from a2a_handoff.app import Application, ConfigurationError
from a2a_handoff.config import Settings
from tests.interaction.rpcs import refusal
from tests.interaction.seen import Refused
from tests.support.agents import URI, Agent, card, completes
from tests.support.puppet import Puppet, puppet
from tests.support.running import WAIT_S, Broker, bound_socket, broker, running

SEND = "/lf.a2a.v1.A2AService/SendMessage"
BODY_MAX = 65_536


class Line:
    """A broker with one agent, and a channel to it."""

    def __init__(self, b: Broker, agent: Puppet, channel: grpc.Channel) -> None:
        self.broker, self.agent, self.channel = b, agent, channel
        self.v10 = v10_grpc.A2AServiceStub(channel)
        self.v03 = v03_grpc.A2AServiceStub(channel)

    def raw(self, body: bytes, path: str = SEND, **metadata: str) -> bytes:
        """A call with these bytes; the bytes of the answer."""
        call = self.channel.unary_unary(path)
        return call(
            body, metadata=tuple((k.replace("_", "-"), v) for k, v in metadata.items()), timeout=WAIT_S
        )


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with _line(tmp_path) as made:
        yield made


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Line]:
    """One that does not wait long for what was announced."""
    with _line(tmp_path, arrival=1.0) as made:
        yield made


@contextmanager
def _line(folder: Path, **settings: Any) -> Generator[Line]:
    with puppet() as agent, broker(folder, grpc_port=0, max_body=BODY_MAX, **settings) as b:
        agent.auto["SendMessage"] = lambda call: {
            "task": agent.task("COMPLETED", "done", artifacts=[{"artifactId": "a", "parts": [{"text": "x"}]}])
        }
        b.register("worker", card=card(agent.url))
        with grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel:
            yield Line(b, agent, channel)


def to(agent: str = "worker", **more: Any) -> dict[str, Any]:
    """Metadata of a request with a handoff context."""
    context = {
        "source_agent": "triage", "conversation_summary": "s", "user_intent": "i", "key_facts": {},
        "target_agent": agent,
    }  # fmt: skip
    return {"handoff_context": context | more}


def message(message_id: str, *parts: dict[str, Any], **more: Any) -> v10.SendMessageRequest:
    """A request of 1.0 with a context."""
    body: dict[str, Any] = {
        "message": {"messageId": message_id, "role": "ROLE_USER", "parts": [*parts] or [{"text": "go"}]},
        "metadata": to(),
    }
    return json_format.ParseDict(body | more, v10.SendMessageRequest())


def message_03(message_id: str, *parts: dict[str, Any], **more: Any) -> v03.SendMessageRequest:
    body: dict[str, Any] = {
        "message": {"messageId": message_id, "role": "ROLE_USER", "content": [*parts] or [{"text": "go"}]},
        "metadata": to(),
    }
    return json_format.ParseDict(body | more, v03.SendMessageRequest())


def refused(call: Callable[[], Any]) -> Refused:
    """How a call is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return refusal(caught.value)


def nested(depth: int) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    inner = struct
    for _ in range(depth):
        inner = inner.fields["a"].struct_value
    inner.fields["end"].bool_value = True
    return struct


# --- what is no request --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"\xff", b"\x0a\x05ab", b'{"message": {}}', b"\x00" * 100, message("x").SerializeToString()[:-3]],
    ids=["not-a-field", "cut", "json", "zeros", "cut-later"],
)
def test_bytes_that_are_no_message_are_refused_with_a_reason(line: Line, body: bytes) -> None:
    told = refused(lambda: line.raw(body))
    assert (told.reason, told.code) == ("INVALID_PARAMS", 3)
    assert line.agent.calls == []


def test_text_that_is_not_utf_8_is_refused(line: Line) -> None:
    body = message("id-of-it").SerializeToString().replace(b"id-of-it", b"id-\xff\xfe-it")
    assert refused(lambda: line.raw(body)).reason == "INVALID_PARAMS"


def test_a_struct_that_is_nested_too_deep_is_refused_and_the_broker_goes_on(line: Line) -> None:
    request = message("deep")
    request.metadata.MergeFrom(nested(30))
    assert line.v10.SendMessage(request).task.status.state == v10.TASK_STATE_COMPLETED
    request = message("deeper")
    body = request.SerializeToString()
    for depth in (40, 2_000):
        inner = b""
        for _ in range(depth):  # what no library would write: Struct.fields["a"].struct_value …
            entry = b"\x0a\x01a" + b"\x12" + _bytes(b"\x2a" + _bytes(inner))
            inner = b"\x0a" + _bytes(entry)
        deep = body + b"\x22" + _bytes(inner)
        assert refused(lambda deep=deep: line.raw(deep)).reason == "INVALID_PARAMS"
    assert line.broker.http.get("/readyz").status_code == 200


def _bytes(body: bytes) -> bytes:
    """A length and these bytes."""
    size, head = len(body), b""
    while size > 0x7F:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + body


def test_a_number_that_is_not_finite_is_refused(line: Line) -> None:
    request = message("nan")
    request.metadata.fields["x"].number_value = float("nan")
    told = refused(lambda: line.v10.SendMessage(request))
    assert (told.reason, told.code) == ("INVALID_PARAMS", 3)
    assert "finite" in told.message


def test_a_message_over_the_limit_of_a_body_is_refused_and_the_channel_lives(line: Line) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        line.raw(b"\x00" * (BODY_MAX + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert line.v10.SendMessage(message("small")).task.status.state == v10.TASK_STATE_COMPLETED


def test_a_large_message_of_small_values_holds_nobody_up(tmp_path: Path) -> None:
    lists = struct_pb2.ListValue(values=[struct_pb2.Value(list_value=struct_pb2.ListValue())] * 150_000)
    large = message("large", {"text": "x"}, configuration={"returnImmediately": True})
    large.message.parts.add().data.list_value.CopyFrom(lists)
    small = message("small", configuration={"returnImmediately": True})
    with (
        broker(tmp_path, grpc_port=0) as b,
        grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel,
    ):
        stub = v10_grpc.A2AServiceStub(channel)
        under_way, answered = stub.SendMessage.future(large, timeout=60), 0
        while not under_way.done():
            stub.SendMessage(small, timeout=60)
            answered += 1
        assert under_way.result().task.id
    assert answered > 10


def test_a_compressed_message_counts_with_its_whole_size(line: Line) -> None:
    body = message("bomb", {"text": "a" * (4 * BODY_MAX)}).SerializeToString()
    call = line.channel.unary_unary(SEND)
    with pytest.raises(grpc.RpcError) as caught:
        call(body, compression=grpc.Compression.Gzip, timeout=WAIT_S)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_metadata_over_the_limit_of_a_head_is_refused_and_the_broker_goes_on(line: Line) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        line.raw(message("big-head").SerializeToString(), traceparent="x" * 200_000)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert line.agent.calls == []
    assert line.raw(message("small-head").SerializeToString())


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" * 40, b"\x00" * 5_000]
)
def test_what_is_no_http_2_is_hung_up_on(line: Line, words: bytes) -> None:
    with socket.create_connection(("127.0.0.1", line.broker.app.grpc_port), timeout=WAIT_S) as raw:
        raw.sendall(words)
        while raw.recv(65_536):
            pass
    assert line.raw(message("after-that").SerializeToString())


@pytest.mark.parametrize("words", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], ids=["nothing", "half-a-hello"])
def test_who_connects_and_does_not_come_to_the_point_is_hung_up_on(hasty: Line, words: bytes) -> None:
    with socket.create_connection(("127.0.0.1", hasty.broker.app.grpc_port), timeout=WAIT_S) as raw:
        raw.sendall(words)
        while raw.recv(65_536):
            pass
    assert hasty.raw(message("after-silence").SerializeToString())


def test_a_call_without_a_message_is_refused(line: Line) -> None:
    call = line.channel.stream_unary(SEND)
    assert refused(lambda: call(iter(()), timeout=WAIT_S)).reason == "INVALID_REQUEST"


def test_a_message_that_does_not_arrive_is_not_waited_for(hasty: Line) -> None:
    never = threading.Event()

    def silence() -> Iterator[bytes]:
        never.wait(WAIT_S)
        yield b""

    call = hasty.channel.stream_unary(SEND)
    try:
        told = refused(lambda: call(silence(), timeout=WAIT_S))
    finally:
        never.set()
    assert (told.reason, told.message) == ("INVALID_REQUEST", "The message did not arrive in time.")


@pytest.mark.parametrize(
    "path", ["/lf.a2a.v1.A2AService/Nope", "/a2a.v1.A2AService/ListTasks", "/x", "/a.B/C"]
)
def test_a_method_that_there_is_not_is_named_so(line: Line, path: str) -> None:
    told = refused(lambda: line.raw(b"", path))
    assert (told.reason, told.code) == ("METHOD_NOT_FOUND", 12)


def test_many_faults_fit_into_what_a_client_takes(line: Line) -> None:
    context = {f"{'name' * 20}{n}": n for n in range(60)} | {"key_facts": [], "user_intent": " " * 3}
    request = message("faulty", metadata=to(requirements=context))
    told = refused(lambda: line.v10.SendMessage(request))
    assert told.reason == "INVALID_CONTEXT"
    assert told.violations


def test_every_fault_of_a_request_is_named_by_its_field(line: Line) -> None:
    told = refused(
        lambda: line.v10.SendMessage(v10.SendMessageRequest(message=v10.Message(role="ROLE_USER")))
    )
    assert set(told.violations) == {"message.messageId", "message.parts"}
    old = refused(lambda: line.v03.SendMessage(v03.SendMessageRequest(request=v03.Message(role="ROLE_USER"))))
    assert set(old.violations) == {"message.messageId", "message.content"}


@pytest.mark.parametrize("name", ["", "tasks/", "x", "task/1", "agents/1"])
def test_a_name_of_0_3_that_names_no_task_is_refused(line: Line, name: str) -> None:
    told = refused(lambda: line.v03.GetTask(v03.GetTaskRequest(name=name)))
    assert (told.reason, list(told.violations)) == ("INVALID_PARAMS", ["name"])


# --- versions, extensions, faces -----------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.3", "1.5", "2.0", "9.9", "one"])
def test_the_service_of_1_0_takes_no_other_version(line: Line, version: str) -> None:
    told = refused(lambda: line.raw(message("v").SerializeToString(), a2a_version=version))
    assert (told.reason, told.code) == ("VERSION_NOT_SUPPORTED", 9)
    assert line.agent.calls == []


@pytest.mark.parametrize("version", ["", "1.0", "1.0.1"])
def test_the_service_of_1_0_takes_its_own_version_or_none(line: Line, version: str) -> None:
    named = {"a2a_version": version} if version else {}
    assert line.raw(message("v").SerializeToString(), **named)


def test_the_service_of_0_3_takes_no_other_version(line: Line) -> None:
    path, body = "/a2a.v1.A2AService/SendMessage", message_03("v").SerializeToString()
    assert refused(lambda: line.raw(body, path, a2a_version="1.0")).reason == "VERSION_NOT_SUPPORTED"
    assert line.raw(body, path, a2a_version="0.3")


def test_the_extension_that_is_used_comes_back_in_the_metadata(line: Line) -> None:
    named = f"urn:other, {URI}"
    _, new = line.v10.SendMessage.with_call(message("e"), metadata=[("a2a-extensions", named)])
    _, old = line.v03.SendMessage.with_call(message_03("o"), metadata=[("x-a2a-extensions", named)])
    _, none = line.v10.SendMessage.with_call(message("n"))
    assert ("a2a-extensions", URI) in list(new.initial_metadata())
    assert ("x-a2a-extensions", URI) in list(old.initial_metadata())
    assert not [name for name, _ in none.initial_metadata() if "extensions" in name]


def test_the_card_names_both_services_at_host_and_port(line: Line) -> None:
    found = line.broker.http.get("/.well-known/agent-card.json").json()
    at = f"127.0.0.1:{line.broker.app.grpc_port}"
    assert [i for i in found["supportedInterfaces"] if i["protocolBinding"] == "GRPC"] == [
        {"url": at, "protocolBinding": "GRPC", "protocolVersion": version} for version in ("1.0", "0.3")
    ]
    assert {"url": at, "transport": "GRPC"} in found["additionalInterfaces"]


def test_the_face_of_an_agent_is_its_tenant(line: Line) -> None:
    found = line.broker.http.get("/agents/worker/agent-card.json").json()
    (face,) = [i for i in found["supportedInterfaces"] if i["protocolBinding"] == "GRPC"]
    assert face["tenant"] == "agents/worker"
    request = message("f", tenant=face["tenant"], metadata={})
    task = line.v10.SendMessage(request).task
    assert task.metadata[URI]["attempts"][0]["agent_id"] == "worker"
    listed = line.v10.ListTasks(v10.ListTasksRequest(tenant=face["tenant"]))
    assert [one.id for one in listed.tasks] == [task.id]
    told = refused(lambda: line.v10.SendMessage(message("g", tenant="agents/nobody")))
    assert (told.reason, told.code) == ("AGENT_NOT_FOUND", 5)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"grpc_in_card": False}, []),
        ({"grpc_in_card": False, "grpc_address": "x.test:443"}, []),
        ({"grpc_address": "x.test:443"}, ["x.test:443"] * 2),
        ({"public_url": "https://broker.test/a"}, ["broker.test:{port}"] * 2),
    ],
)
def test_what_the_card_says_of_grpc_can_be_set(
    tmp_path: Path, settings: dict[str, Any], shown: list[str]
) -> None:
    with broker(tmp_path, grpc_port=0, **settings) as b:
        host = {"Host": "broker.test"} if "public_url" in settings else {}
        found = b.http.get("/.well-known/agent-card.json", headers=host).json()
        urls = [i["url"] for i in found["supportedInterfaces"] if i["protocolBinding"] == "GRPC"]
        assert urls == [one.format(port=b.app.grpc_port) for one in shown]


# --- calls that end early ------------------------------------------------------------------------


def test_a_call_that_is_canceled_leaves_its_task_alone(line: Line) -> None:
    del line.agent.auto["SendMessage"]
    call = line.v10.SendMessage.future(message("long"), timeout=WAIT_S)
    turn = line.agent.next("SendMessage")
    assert call.cancel()
    with pytest.raises(grpc.FutureCancelledError):
        call.result()
    turn.answer({"task": line.agent.task("COMPLETED", "done all the same")})
    (handoff,) = line.broker.http.get("/api/handoffs").json()["handoffs"]
    line.broker.until(handoff["handoff_id"], "completed")
    task = line.v10.GetTask(v10.GetTaskRequest(id=handoff["handoff_id"]))
    assert task.status.message.parts[0].text == "done all the same"
    assert not line.agent.of("CancelTask")


def test_a_deadline_of_the_caller_ends_the_call_and_not_the_task(line: Line) -> None:
    del line.agent.auto["SendMessage"]
    with pytest.raises(grpc.RpcError) as caught:
        line.v10.SendMessage(message("short"), timeout=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    line.agent.next("SendMessage").answer({"task": line.agent.task("COMPLETED", "late")})
    again = line.v10.SendMessage(message("short"), timeout=WAIT_S)
    assert again.task.status.state == v10.TASK_STATE_COMPLETED
    assert len(line.agent.of("SendMessage")) == 1


def test_a_stream_that_is_given_up_can_be_taken_up_again(line: Line) -> None:
    del line.agent.auto["SendMessage"]
    events = line.v10.SendStreamingMessage(message("streamed"), timeout=WAIT_S)
    task_id = next(events).task.id
    turn = line.agent.next("SendMessage")
    events.cancel()
    again = line.v10.SubscribeToTask(v10.SubscribeToTaskRequest(id=task_id), timeout=WAIT_S)
    assert next(again).task.id == task_id
    turn.answer({"task": line.agent.task("COMPLETED", "done")})
    *_, last = again
    assert last.status_update.status.state == v10.TASK_STATE_COMPLETED


def test_a_broker_that_stops_lets_go_of_streams_and_takes_no_calls(tmp_path: Path) -> None:
    with puppet() as agent, broker(tmp_path, grpc_port=0) as b:
        b.register("worker", card=card(agent.url))
        with grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel:
            stub = v10_grpc.A2AServiceStub(channel)
            events = stub.SendStreamingMessage(message("streamed"), timeout=WAIT_S)
            task_id = next(events).task.id
            agent.next("SendMessage")
            b.loop.run(_stop(b.app))
            list(events)  # it ends, without an error
            with pytest.raises(grpc.RpcError) as caught:
                stub.GetTask(v10.GetTaskRequest(id=task_id), timeout=WAIT_S)
            # The library cancels a call that comes in the last moment.
            assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def _stop(application: Application) -> None:
    application.begin_stop()


def test_a_port_that_is_taken_is_said_in_a_line(tmp_path: Path) -> None:
    async def start(port: int) -> None:
        application = Application(
            Settings(grpc_port=port, store=f"sqlite:///{tmp_path / 'x.db'}", cards=tmp_path)
        )
        try:
            await application.start(url="http://127.0.0.1:1")
        finally:
            await application.stop()

    with bound_socket() as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen for gRPC on 127.0.0.1:{port}"):
            asyncio.run(start(port))


def test_without_its_library_the_setting_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "a2a_handoff.transports.grpc", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    settings = Settings(grpc_port=0, store=f"sqlite:///{tmp_path / 'x.db'}", cards=tmp_path)
    with pytest.raises(ConfigurationError, match=r"pip install 'a2a-handoff\[grpc\]'"):
        Application(settings)


# --- payloads ------------------------------------------------------------------------------------


def test_the_bytes_of_a_file_are_the_bytes_of_the_file_in_both_generations(line: Line) -> None:
    raw = bytes(range(256))
    line.agent.auto["SendMessage"] = lambda call: {
        "task": line.agent.task("COMPLETED", artifacts=[{"artifactId": "a", "parts": call.message["parts"]}])
    }
    request = message("file")
    request.message.parts.append(v10.Part(raw=raw, filename="f", media_type="x/y"))
    part = line.v10.SendMessage(request).task.artifacts[0].parts[1]
    assert (part.raw, part.filename, part.media_type) == (raw, "f", "x/y")
    old = message_03("file-03")
    file = v03.FilePart(file_with_bytes=raw, name="f", mime_type="x/y")
    old.request.content.append(v03.Part(file=file))
    answered = line.v03.SendMessage(old).task.artifacts[0].parts[1].file
    assert answered == file
    ours = [call.message["parts"][1] for call in line.agent.of("SendMessage")]
    assert ours[0] == ours[1]


def test_whole_numbers_arrive_as_whole_numbers(line: Line) -> None:
    data = {
        "one": 1,
        "half": 0.5,
        "big": 2**53,
        "minus": -3,
        "list": [0, {"n": 7}],
        "none": None,
        "yes": True,
    }
    line.v10.SendMessage(message("numbers", {"data": data}, metadata=to(key_facts={"amount": 42})))
    (call,) = line.agent.of("SendMessage")
    (part,) = call.message["parts"]
    assert part["data"] == data
    assert b'"one":1,' in call.body
    assert b'"amount":42' in call.body.replace(b" ", b"")


def test_the_same_message_again_is_the_same_task_however_its_maps_are_ordered(line: Line) -> None:
    names = [f"name-{n}" for n in range(40)]
    first = line.v10.SendMessage(message("same", {"data": dict.fromkeys(names, 1)})).task
    again = line.v10.SendMessage(message("same", {"data": dict.fromkeys(reversed(names), 1)})).task
    assert first.id == again.id
    assert len(line.agent.of("SendMessage")) == 1


def test_what_protobuf_cannot_carry_is_refused_there_and_read_elsewhere(line: Line) -> None:
    deep: Any = 1
    for _ in range(45):
        deep = {"a": deep}
    line.agent.auto["SendMessage"] = lambda call: {
        "task": line.agent.task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"data": deep}]}])
    }
    task = line.broker.send(context={"target_agent": "worker"})
    assert task["artifacts"][0]["parts"] == [{"data": deep}]
    told = refused(lambda: line.v10.GetTask(v10.GetTaskRequest(id=task["id"])))
    assert (told.reason, told.code) == ("UNSUPPORTED_OPERATION", 9)
    assert "JSON-RPC" in told.message


# --- faults that servers on a2a-sdk have ---------------------------------------------------------


def test_a_follow_up_that_names_only_the_task_stays_in_its_context(line: Line) -> None:
    asking = line.agent
    asking.auto["SendMessage"] = lambda call: (
        {"task": asking.task("COMPLETED", "done", task_id=call.message["taskId"])}
        if "taskId" in call.message
        else asking.asks(asking.task("WORKING"), "which?")
    )
    for stub, make in ((line.v10, message), (line.v03, message_03)):
        first = stub.SendMessage(make(f"first-{make.__name__}")).task
        reply = make(f"reply-{make.__name__}", metadata={})
        (reply.message if isinstance(reply, v10.SendMessageRequest) else reply.request).task_id = first.id
        after = stub.SendMessage(reply).task
        assert (after.id, after.context_id) == (first.id, first.context_id)
        assert after.status.state == v10.TASK_STATE_COMPLETED


def test_0_3_may_ask_for_a_webhook_without_its_id_and_remove_one(line: Line) -> None:
    task = line.v03.SendMessage(message_03("hooked")).task
    config = v03.PushNotificationConfig(id="c", url=f"{line.agent.url}/hook")
    line.v03.CreateTaskPushNotificationConfig(
        v03.CreateTaskPushNotificationConfigRequest(
            parent=f"tasks/{task.id}",
            config_id="c",
            config=v03.TaskPushNotificationConfig(push_notification_config=config),
        )
    )
    name = f"tasks/{task.id}/pushNotificationConfigs"
    first = line.v03.GetTaskPushNotificationConfig(v03.GetTaskPushNotificationConfigRequest(name=name))
    assert (first.name, first.push_notification_config) == (f"{name}/c", config)
    line.v03.DeleteTaskPushNotificationConfig(v03.DeleteTaskPushNotificationConfigRequest(name=f"{name}/c"))
    listed = line.v03.ListTaskPushNotificationConfig(
        v03.ListTaskPushNotificationConfigRequest(parent=f"tasks/{task.id}")
    )
    assert list(listed.configs) == []


def test_a_task_that_is_not_there_is_not_found_by_whatever_asks_for_it(line: Line) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: line.v10.GetTask(v10.GetTaskRequest(id="nobody")),
        lambda: line.v10.CancelTask(v10.CancelTaskRequest(id="nobody")),
        lambda: list(line.v10.SubscribeToTask(v10.SubscribeToTaskRequest(id="nobody"))),
        lambda: line.v03.GetTask(v03.GetTaskRequest(name="tasks/nobody")),
        lambda: line.v03.CancelTask(v03.CancelTaskRequest(name="tasks/nobody")),
        lambda: list(line.v03.TaskSubscription(v03.TaskSubscriptionRequest(name="tasks/nobody"))),
    ]
    for call in calls:
        told = refused(call)
        assert (told.reason, told.code) == ("TASK_NOT_FOUND", 5)


def test_the_extended_card_is_answered_as_over_json(line: Line) -> None:
    calls: list[tuple[str, str, Callable[[], Any]]] = [
        ("1.0", "GetExtendedAgentCard", lambda: line.v10.GetExtendedAgentCard(v10.GetExtendedAgentCardRequest())),
        ("0.3", "agent/getAuthenticatedExtendedCard", lambda: line.v03.GetAgentCard(v03.GetAgentCardRequest())),
    ]  # fmt: skip
    for version, method, call in calls:
        over_json = line.broker.rpc(method, {}, version=version)
        told = refused(call)
        assert told.reason == over_json["error"]["data"][0]["reason"]
        assert told.message == over_json["error"]["message"]


def test_one_agent_gets_what_came_over_grpc_as_what_came_over_http(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path, grpc_port=0) as b:
        b.register("worker", card=card(url))
        with grpc.insecure_channel(f"127.0.0.1:{b.app.grpc_port}") as channel:
            v10_grpc.A2AServiceStub(channel).SendMessage(message("one"))
        b.http.post(
            "/message:send",
            json={
                "message": {"messageId": "one-more", "role": "ROLE_USER", "parts": [{"text": "go"}]},
                "metadata": to(),
            },
        )
    first, second = agent.calls
    assert first.message.keys() == second.message.keys()
    assert first.ours.keys() == second.ours.keys()
    assert first.message["parts"] == second.message["parts"]
