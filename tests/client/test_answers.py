"""One answer of an agent, in every shape that it may have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_handoff.client import A2AClient, WellKnownCardFetcher
from a2a_handoff.core.agents import Binding, Generation
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentClient, AgentError, CardFetcher, RemoteState, Update, UrlPolicy
from a2a_handoff.security.urls import OutboundPolicy
from a2a_handoff.wire import proto03
from a2a_handoff.wire.answers import returned_traceparent, update_of

V1, V03, V01 = Generation.V1_0, Generation.V0_3, Generation.V0_1
RPC, REST = Binding.JSONRPC, Binding.HTTP_JSON


def read(said: Any, generation: Generation = V1, binding: Binding = RPC, *, event: bool = False) -> Update:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return update_of(body, generation, binding, event=event)


def test_the_adapters_are_what_the_ports_ask_for() -> None:
    policy: UrlPolicy = OutboundPolicy()
    client: AgentClient = A2AClient(policy)
    cards: CardFetcher = WellKnownCardFetcher(policy)
    assert client is not cards


# --- which object it is --------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_task_is_understood_with_and_without_its_wrapper(wrapped: bool) -> None:
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
    update = read({"task": task} if wrapped else task)
    assert (update.remote_task_id, update.remote_context_id) == ("t", "c")
    assert (update.state, update.snapshot, update.reply) == (RemoteState.WORKING, True, False)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_message_is_understood_with_and_without_its_wrapper(wrapped: bool) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}], "taskId": "t"}
    update = read({"message": message} if wrapped else message)
    assert (update.reply, update.state, update.snapshot) == (True, None, False)
    assert update.remote_task_id == "t"
    assert json.loads(update.message) == message


def test_a_status_update_carries_state_and_message() -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}], "metadata": {"a": 1}}
    status = {"state": "TASK_STATE_FAILED", "message": message}
    update = read({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}, event=True)
    assert (update.state, update.snapshot) == (RemoteState.FAILED, False)
    assert json.loads(update.message) == message
    assert json.loads(update.metadata) == {"a": 1}


def test_an_artifact_update_says_nothing_of_the_state() -> None:
    artifact = {"artifactId": "a", "parts": []}
    update = read({"artifactUpdate": {"taskId": "t", "artifact": artifact, "lastChunk": True}}, event=True)
    (output,) = update.outputs
    assert (output.artifact_id, output.append, output.last) == ("a", False, True)
    assert (update.state, update.snapshot) == (None, False)


def test_0_3_events_are_told_by_their_kind() -> None:
    status = {"kind": "status-update", "taskId": "t", "contextId": "c", "status": {"state": "auth-required"}}
    update = read(status, V03, event=True)
    assert (update.state, update.snapshot) == (RemoteState.AUTH_REQUIRED, False)
    part = {"kind": "text", "text": "x"}
    artifact = {"kind": "artifact-update", "taskId": "t", "artifact": {"artifactId": "a", "parts": [part]}}
    update = read(artifact | {"append": True}, V03, event=True)
    assert update.outputs[0].append
    assert json.loads(update.outputs[0].body) == {"artifactId": "a", "parts": [{"text": "x"}]}
    task = read(
        {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "canceled"}}, V03, event=True
    )
    assert (task.state, task.snapshot) == (RemoteState.CANCELED, True)
    message = {"kind": "message", "messageId": "m", "role": "agent", "parts": [part]}
    assert json.loads(read(message, V03).message) == {
        "messageId": "m",
        "role": "ROLE_AGENT",
        "parts": [{"text": "x"}],
    }


def test_in_the_first_generation_a_status_event_looks_like_a_task() -> None:
    said = {"id": "t", "status": {"state": "working", "message": None}, "final": False, "metadata": None}
    assert not read(said, V01, event=True).snapshot
    assert read(said, V01).snapshot
    whole = said | {"sessionId": "s", "artifacts": None, "history": None}
    assert read(whole, V01, event=True).snapshot
    assert read(whole, V01).remote_context_id == "s"


def test_words_that_nobody_knows_are_no_state_to_act_on() -> None:
    assert read({"id": "t", "status": {"state": "unknown"}}, V01).state is RemoteState.UNSPECIFIED
    assert read({"id": "t", "status": {"state": "TASK_STATE_NEW"}}).state is RemoteState.UNSPECIFIED
    assert read({"id": "t", "status": {}}).state is None


# --- 0.3 over HTTP+JSON --------------------------------------------------------------------------

PROTO_MESSAGE = {
    "messageId": "m",
    "role": "ROLE_AGENT",
    "content": [
        {"text": "x", "metadata": {"a": 1}},
        {"data": {"data": {"n": 1}}},
        {"file": {"fileWithUri": "https://x", "mimeType": "x/y"}},
        {"file": {"fileWithBytes": "QUJD", "name": "f"}},
    ],
}
PARTS = [
    {"text": "x", "metadata": {"a": 1}},
    {"data": {"n": 1}},
    {"url": "https://x", "mediaType": "x/y"},
    {"raw": "QUJD", "filename": "f"},
]


def test_the_proto_shape_of_0_3_is_read() -> None:
    task = {
        "id": "t",
        "contextId": "c",
        "status": {"state": "TASK_STATE_CANCELLED", "message": PROTO_MESSAGE},
        "artifacts": [{"artifactId": "a", "parts": PROTO_MESSAGE["content"]}],
    }
    update = read({"task": task}, V03, REST)
    assert update.state is RemoteState.CANCELED
    assert json.loads(update.message)["parts"] == PARTS
    assert json.loads(update.message)["role"] == "ROLE_AGENT"
    assert json.loads(update.outputs[0].body)["parts"] == PARTS
    assert read({"message": PROTO_MESSAGE}, V03, REST).reply


def test_servers_that_send_the_jsonrpc_shape_on_http_json_are_read_too() -> None:
    parts = [
        {"kind": "text", "text": "x", "metadata": {"a": 1}},
        {"kind": "data", "data": {"data": {"n": 1}}},
        {"kind": "file", "file": {"bytes": "QUJD", "name": "f"}},
    ]
    said = {"kind": "message", "messageId": "m", "role": "agent", "parts": parts}
    message = json.loads(read(said, V03, REST).message)
    assert message["parts"] == [PARTS[0], {"data": {"data": {"n": 1}}}, PARTS[3]]
    assert message["role"] == "ROLE_AGENT"
    assert (
        read({"kind": "task", "id": "t", "status": {"state": "working"}}, V03, REST).state
        is RemoteState.WORKING
    )


def test_the_proto_shape_comes_back_as_it_went() -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": PARTS}
    sent = proto03.message_out(json.dumps(message).encode())
    assert json.loads(sent) == PROTO_MESSAGE
    assert json.loads(proto03.message_in(sent)) == message


# --- what is passed on ---------------------------------------------------------------------------


def test_1_0_answers_stay_byte_for_byte() -> None:
    artifact = b'{ "artifactId":"a", "parts":[{"data":{"hop":1,"big":12345678901234567890,"f":1.10}}] }'
    message = b'{ "messageId" : "m" , "parts" : [ ] }'
    task = b'{"id":"t","status":{"state":"TASK_STATE_WORKING","message":%b},"artifacts":[%b]}' % (
        message,
        artifact,
    )
    update = read(task)
    assert update.message == message
    assert update.outputs[0].body == artifact


def test_nulls_and_history_are_passed_over() -> None:
    update = read(
        {
            "id": "t",
            "contextId": None,
            "status": {"state": "TASK_STATE_COMPLETED", "message": None},
            "artifacts": None,
            "history": "not even a list",
            "metadata": None,
        }
    )
    assert (update.message, update.outputs, update.metadata) == (b"", (), b"")


def test_metadata_that_speaks_our_extension_comes_before_other_metadata() -> None:
    ours = {EXTENSION_URI: {"release": {"reason": "no"}}}
    other = {"a": 1}

    def metadata(of_message: Any, of_task: Any) -> Any:
        message = {"messageId": "m", "parts": [], "metadata": of_message}
        status = {"state": "TASK_STATE_WORKING", "message": message}
        return json.loads(read({"id": "t", "status": status, "metadata": of_task}).metadata or b"null")

    assert metadata(other, {"b": 2}) == other
    assert metadata(other, ours) == ours
    assert metadata(ours, {EXTENSION_URI: {}}) == ours
    assert metadata(None, other) == other
    assert metadata(None, "text") is None
    with pytest.raises(AgentError):
        metadata("text", None)


def test_a_traceparent_is_believed_only_if_it_is_one() -> None:
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert returned_traceparent(json.dumps({"traceparent": good}).encode()) == good
    assert returned_traceparent(json.dumps({EXTENSION_URI: {"traceparent": good}}).encode()) == good
    assert returned_traceparent(json.dumps({"x": {"traceparent": good}}).encode()) == ""
    assert returned_traceparent(json.dumps({EXTENSION_URI: "traceparent"}).encode()) == ""
    assert returned_traceparent(b'{"traceparent":"00-' + b"0" * 32 + b'-b7ad6b7169203331-01"}') == ""
    assert returned_traceparent(b"") == ""


@pytest.mark.parametrize("generation", Generation)
@pytest.mark.parametrize(
    "said",
    [
        {"hello": 1},
        [],
        {"id": 7, "status": {}},
        {"id": "t", "status": []},
        {"id": "t", "status": {"state": 7}},
        {"id": "t", "status": {"message": "text"}},
        {"id": "t", "status": {}, "artifacts": {}},
        {"id": "t", "status": {}, "artifacts": ["text"]},
        {"artifact": "text"},
        b"nonsense",
        b"",
    ],
)
def test_everything_else_is_an_invalid_response(said: Any, generation: Generation) -> None:
    for binding in (RPC, REST):
        with pytest.raises(AgentError) as caught:
            read(said, generation, binding, event=True)
        assert caught.value.outcome is Outcome.INVALID_RESPONSE


def test_artifacts_without_ids_get_them_by_their_order() -> None:
    made = [{"parts": [{"text": "one"}]}, {"artifactId": "a", "parts": []}, {"parts": [{"text": "two"}]}]
    task = read({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": made})
    assert [output.artifact_id for output in task.outputs] == ["artifact-1", "a", "artifact-2"]
    assert json.loads(task.outputs[2].body) == {"artifactId": "artifact-2", "parts": [{"text": "two"}]}
    event = json.dumps({"artifactUpdate": {"taskId": "t", "artifact": made[0], "append": True}}).encode()
    for begun, name in ((0, "artifact-1"), (1, "artifact-1"), (2, "artifact-2")):
        (output,) = update_of(event, V1, RPC, event=True, unnamed=begun).outputs
        assert (output.artifact_id, output.append) == (name, True)
