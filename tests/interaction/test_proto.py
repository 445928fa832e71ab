"""Answers of 1.0 are the ProtoJSON of its proto (sections 5.5 to 5.7), and the card says where they come from."""

from __future__ import annotations

import re
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.api import field_behavior_pb2
from google.protobuf import json_format
from google.protobuf.message import Message

from tests.interaction.manifest import proves
from tests.interaction.rpcs import refusal
from tests.interaction.seen import Surface, ask_of
from tests.interaction.staff import Staff
from tests.interaction.wires import wire
from tests.support.agents import asks, completes, streams
from tests.support.running import WAIT_S, Broker

#: A page may be the last, and have no tasks.
_MAY_BE_EMPTY = "lf.a2a.v1.ListTasksResponse."
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")


def conforms(body: Any, message: Message) -> None:
    """Fails if the JSON has a member, a word or a time that the proto does not write so.

    What the proto requires must be there, and not empty; so must the context of what an agent says.
    """
    parsed = json_format.ParseDict(body, message)
    _required(parsed)
    _within(body, json_format.MessageToDict(parsed, always_print_fields_with_no_presence=True), "")


#: What a field's options are asked for; its stubs are those of another version of protobuf.
_BEHAVIOUR: Any = field_behavior_pb2.field_behavior


def _required(message: Any) -> None:
    if isinstance(message, a2a_pb2.Message) and message.role == a2a_pb2.ROLE_AGENT:
        assert message.context_id, message
    for field in message.DESCRIPTOR.fields:
        value, single = getattr(message, field.name), field.message_type is not None and not field.is_repeated
        if field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[_BEHAVIOUR]:
            there = message.HasField(field.name) if single else bool(value)
            assert there or field.full_name.startswith(_MAY_BE_EMPTY), field.full_name
        if field.message_type is None or field.message_type.full_name.startswith("google."):
            continue
        for one in (value,) if single and message.HasField(field.name) else () if single else value:
            _required(one)


def _within(body: Any, proto: Any, at: str) -> None:
    if at.endswith(".timestamp"):
        assert _INSTANT.fullmatch(body), f"{at}: {body}"
    elif isinstance(body, dict):
        assert body.keys() <= proto.keys(), f"{at}: {sorted(body.keys() - proto.keys())}"
        for name, value in body.items():
            _within(value, proto[name], f"{at}.{name}")
    elif isinstance(body, list):
        assert len(body) == len(proto), at
        for one, other in zip(body, proto, strict=True):
            _within(one, other, f"{at}[]")
    else:
        assert body == proto, f"{at}: {body!r} is not {proto!r}"


@proves("shapes.proto")
def test_every_answer_is_what_the_proto_says(surface: Surface, staff: Staff) -> None:
    way = wire(surface)
    (asker, _), (streamer, _) = staff.hire(asks), staff.hire(streams("one ", "two"), streaming=True)
    asked = way.call("send", way.dialect.params(way.aim(ask_of("paint it", to=(asker,)))), {}, "")
    conforms(asked, a2a_pb2.SendMessageResponse())
    task = asked["task"]["id"]
    conforms(way.call("get", {"id": task}, {}, ""), a2a_pb2.Task())
    for more in ({}, {"includeArtifacts": True}):
        conforms(way.call("list", {"pageSize": 3, **more}, {}, ""), a2a_pb2.ListTasksResponse())
    secrets = {"token": "tok", "authentication": {"scheme": "Bearer", "credentials": "s3cret"}}
    config = {"taskId": task, "id": "hook", "url": "http://127.0.0.1:9/hook", **secrets}
    conforms(way.call("set_push", dict(config), {}, ""), a2a_pb2.TaskPushNotificationConfig())
    named = {"taskId": task, "id": "hook"}
    conforms(way.call("get_push", dict(named), {}, ""), a2a_pb2.TaskPushNotificationConfig())
    page = way.call("list_push", {"taskId": task}, {}, "")
    conforms(page, a2a_pb2.ListTaskPushNotificationConfigsResponse())
    way.call("delete_push", dict(named), {}, "")
    conforms(way.call("cancel", {"id": task}, {}, ""), a2a_pb2.Task())
    events = list(way.follow("stream", way.dialect.params(way.aim(ask_of("count", to=(streamer,)))), {}, ""))
    assert {kind for event in events for kind in event} == {"task", "statusUpdate", "artifactUpdate"}
    for event in events:
        conforms(event, a2a_pb2.StreamResponse())


@proves("card.interfaces")
def test_the_card_declares_everything_that_is_spoken_each_where_it_answers(
    house: Broker, staff: Staff
) -> None:
    worker, _ = staff.hire(completes)
    everything = {(one, version) for one in ("JSONRPC", "HTTP+JSON", "GRPC") for version in ("1.0", "0.3")}
    for card, spoken in (
        ("/.well-known/agent-card.json", everything),
        # A face is a tenant over gRPC, and messages of 0.3 have none.
        (f"/agents/{worker}/agent-card.json", everything - {("GRPC", "0.3")}),
    ):
        found: list[tuple[str, str]] = []
        for interface in house.http.get(card).json()["supportedInterfaces"]:
            binding, version = interface["protocolBinding"], interface["protocolVersion"]
            tenant = interface.get("tenant", "")
            assert _asked(house, binding, version, interface["url"], tenant) == "TASK_NOT_FOUND", interface
            found.append((binding, version))
        assert sorted(found) == sorted(spoken)


def _asked(house: Broker, binding: str, version: str, url: str, tenant: str) -> str:
    """What becomes of a question for a task that there is not, by its reason."""
    named = {"A2A-Version": version}
    if binding == "JSONRPC":
        method = "GetTask" if version == "1.0" else "tasks/get"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "nobody"}}
        return house.http.post(url, json=body, headers=named).json()["error"]["data"][0]["reason"]
    if binding == "HTTP+JSON":
        path = "/tasks/nobody" if version == "1.0" else "/v1/tasks/nobody"
        answer = house.http.get(url.rstrip("/") + path, headers=named)
        return answer.json()["error"]["details"][0]["reason"]
    with grpc.insecure_channel(url) as channel:
        stub: Any = (a2a_pb2_grpc if version == "1.0" else a2a_v0_3_pb2_grpc).A2AServiceStub(channel)
        asked: Any = (
            a2a_pb2.GetTaskRequest(id="nobody", tenant=tenant)
            if version == "1.0"
            else a2a_v0_3_pb2.GetTaskRequest(name="tasks/nobody")
        )
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetTask(asked, timeout=WAIT_S)
    return refusal(caught.value).reason
