"""The ProtoJSON of 0.3: params read, answers written, held against the protos of the SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict
from msgspec import Raw

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire import proto03
from a2a_handoff.wire.requests import ListParams, Operation, SendParams, read_proto_params
from a2a_handoff.wire.tasks import (
    ArtifactUpdate,
    StatusUpdate,
    StreamWriter,
    TaskView,
    list_json,
    task_result,
)

V03 = Generation.V0_3
MESSAGE = {
    "messageId": "m",
    "role": "ROLE_USER",
    "content": [
        {"text": "a", "metadata": {"n": 1.0}},
        {"data": {"data": {"x": [None, True]}}},
        {"file": {"fileWithUri": "https://x.test/y", "mimeType": "x/y", "name": "f"}},
        {"file": {"fileWithBytes": "AP/+", "mimeType": "x/y"}},
    ],
    "taskId": "t",
    "contextId": "c",
    "extensions": ["urn:x"],
}
CANONICAL = {
    "messageId": "m",
    "role": "ROLE_USER",
    "parts": [
        {"text": "a", "metadata": {"n": 1.0}},
        {"data": {"x": [None, True]}},
        {"url": "https://x.test/y", "mediaType": "x/y", "filename": "f"},
        {"raw": "AP/+", "mediaType": "x/y"},
    ],
    "taskId": "t",
    "contextId": "c",
    "extensions": ["urn:x"],
}


def view(**more: Any) -> TaskView:
    said = {"messageId": "s", "role": "ROLE_AGENT", "parts": [{"text": "said"}]}
    return TaskView(
        id="t",
        context_id="c",
        state=more.pop("state", RemoteState.CANCELED),
        timestamp=1.0,
        status_message=json.dumps(said).encode(),
        artifacts=(json.dumps({"artifactId": "a", "parts": CANONICAL["parts"]}).encode(),),
        history=(json.dumps(CANONICAL).encode(),),
        metadata=b'{"content":[{"kind":"text"}]}',
        **more,
    )


def send(params: dict[str, Any]) -> SendParams:
    found = read_proto_params(Operation.SEND, json.dumps(params).encode())
    assert isinstance(found, SendParams)
    return found


@pytest.mark.parametrize("own_names", [False, True])
def test_params_are_read_by_the_names_of_the_proto_and_by_those_of_its_json(own_names: bool) -> None:
    config = {
        "acceptedOutputModes": ["x/y"],
        "historyLength": 3,
        "pushNotification": {"url": "https://x.test/hook", "authentication": {"schemes": ["bearer"]}},
    }
    proto = ParseDict({"message": MESSAGE, "configuration": config}, pb.SendMessageRequest())
    found = send(MessageToDict(proto, preserving_proto_field_name=own_names))
    assert json.loads(found.message) == CANONICAL
    assert (found.accepted_output_modes, found.history_length) == (("x/y",), 3)
    assert json.loads(found.push)["authentication"] == {"scheme": "bearer"}


@pytest.mark.parametrize(
    ("configuration", "at_once"),
    [(None, False), ({}, True), ({"historyLength": 1}, True), ({"blocking": True}, False)],
)
def test_in_a_proto_a_configuration_without_a_word_does_not_block(configuration: Any, at_once: bool) -> None:
    given = {} if configuration is None else {"configuration": configuration}
    assert send({"message": MESSAGE, **given}).return_immediately is at_once
    plain = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "a"}]}
    assert send({"message": plain, "configuration": {}}).return_immediately is False


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"content": [{"text": 1}]}, "message.content[0].text"),
        ({"content": [{}]}, "message.content[0]"),
        ({"content": []}, "message.content"),
        ({"parts": [{"kind": "text", "text": 1}]}, "message.parts[0].text"),
        ({}, "message.parts"),
    ],
)
def test_a_fault_is_named_as_it_was_written(message: dict[str, Any], field: str) -> None:
    with pytest.raises(HandoffError) as caught:
        send({"message": {"messageId": "m", "role": "ROLE_USER"} | message})
    assert field in [fault.field for fault in caught.value.violations]


def test_a_task_its_page_and_its_events_are_messages_of_the_proto() -> None:
    task = ParseDict(json.loads(proto03.result_out(task_result(view(), V03))), pb.Task())
    assert task.status.state == pb.TASK_STATE_CANCELLED
    assert task.status.update.content[0].text == "said"
    assert task.status.update.role == pb.ROLE_AGENT
    assert MessageToDict(task.history[0]) == MESSAGE
    assert MessageToDict(task.artifacts[0])["parts"] == MESSAGE["content"]
    assert MessageToDict(task.metadata) == {"content": [{"kind": "text"}]}
    sent = proto03.result_out(task_result(view(), V03, sent=True), sent=True)
    assert ParseDict(json.loads(sent), pb.SendMessageResponse()).task == task
    page = list_json([view(), view()], V03, next_page_token="n", page_size=2, total_size=9)
    shown = json.loads(proto03.result_out(page))
    assert [ParseDict(one, pb.Task()) for one in shown.pop("tasks")] == [task, task]
    assert shown == {"nextPageToken": "n", "pageSize": 2, "totalSize": 9}


def test_events_are_wrapped_in_the_name_of_their_kind() -> None:
    writer = StreamWriter(V03)
    artifact = json.dumps({"artifactId": "b", "parts": CANONICAL["parts"]}).encode()
    told = [
        view(state=RemoteState.WORKING),
        ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=False, last_chunk=True),
        StatusUpdate(task_id="t", context_id="c", state=RemoteState.COMPLETED, timestamp=2.0),
    ]
    written = [proto03.event_out(body) for event in told for body in writer.write(event)]
    events = [ParseDict(json.loads(body), pb.StreamResponse()) for body in written]
    assert [event.WhichOneof("payload") for event in events] == ["task", "artifact_update", "status_update"]
    assert events[1].artifact_update.last_chunk
    assert MessageToDict(events[1].artifact_update.artifact)["parts"] == MESSAGE["content"]
    assert events[2].status_update.final
    assert events[2].status_update.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("word", ["TASK_STATE_CANCELLED", "TASK_STATE_CANCELED", "canceled"])
def test_states_have_their_names_of_the_proto_and_of_0_3(word: str) -> None:
    found = read_proto_params(Operation.LIST, json.dumps({"status": word}).encode())
    assert isinstance(found, ListParams)
    assert found.status is RemoteState.CANCELED
    assert proto03.state_in(word) is RemoteState.CANCELED


def test_what_is_passed_on_stays_byte_for_byte() -> None:
    body = (
        b'{"message":{"messageId":"m","role":"ROLE_USER","metadata":{"message_id": 1.10},'
        b'"content":[{"data":{"data":{"mime_type":12345678901234567890,"f":1.10}}}]}}'
    )
    message = read_proto_params(Operation.SEND, Raw(body))
    assert isinstance(message, SendParams)
    assert b'{"mime_type":12345678901234567890,"f":1.10}' in message.message
    assert b'{"message_id": 1.10}' in message.message
