"""Params of every method and generation, held against the SDK's own request types."""

import json
from typing import Any, get_args

import pytest
from a2a.compat.v0_3 import types as v03
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import a2a_pb2 as v10
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.text import name_fault
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire.envelope import EnvelopeError, open_envelope
from a2a_handoff.wire.fields import FAULTS_MAX
from a2a_handoff.wire.members import ID_CHARS_MAX, LIST_ITEMS_MAX
from a2a_handoff.wire.methods import METHODS, SHARED_METHODS, Operation, negotiate, resolve
from a2a_handoff.wire.requests import (
    COUNT_MAX,
    TEXT_CHARS_MAX,
    CancelParams,
    CardParams,
    GetParams,
    ListParams,
    PushParams,
    SendParams,
    SubscribeParams,
    fill,
    from_query,
    open_first_generation,
    page_token,
    read,
    read_params,
)
from a2a_handoff.wire.shapes import message_faults

V1_0, V0_3, V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1

NEW = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
OLD = {"kind": "message", "messageId": "m-1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
FIRST = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
MESSAGES = {V1_0: NEW, V0_3: OLD, V0_1: FIRST}


def _params(operation: Operation, generation: Generation, params: Any) -> Any:
    return read_params(operation, generation, json.dumps(params).encode())


def _send(params: dict[str, Any], generation: Generation = V1_0) -> SendParams:
    given = {"message": MESSAGES[generation]} | ({"id": "t-1"} if generation is V0_1 else {}) | params
    return _params(Operation.SEND, generation, given)


def _faults(operation: Operation, generation: Generation, params: Any) -> dict[str, str]:
    with pytest.raises(HandoffError) as refused:
        _params(operation, generation, params)
    assert refused.value.code is Code.INVALID_PARAMS
    assert len({fault.field for fault in refused.value.violations}) == len(refused.value.violations)
    return {fault.field: fault.description for fault in refused.value.violations}


def _call(method: str, params: str = "{}", *, request_id: str = '"id":1,') -> Any:
    return open_envelope(f'{{"jsonrpc":"2.0",{request_id}"method":"{method}","params":{params}}}'.encode())


# --- versions and methods --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "query", "generation"),
    [
        (None, None, V0_3),
        ("", None, V0_3),
        (" ", "", V0_3),
        ("0.3", None, V0_3),
        ("0.3.0", None, V0_3),
        ("1.0", None, V1_0),
        ("1.0.3", None, V1_0),
        (" 1.0 ", None, V1_0),
        (None, "1.0", V1_0),
        ("", "1.0", V1_0),
        ("0.3", "1.0", V0_3),
    ],
)
def test_the_version_is_negotiated(header: str | None, query: str | None, generation: Generation) -> None:
    assert negotiate(header, query) is generation


@pytest.mark.parametrize(
    "version",
    ["1.5", "0.5", "2.0", "99.0", "1", "v1.0", "1.0, 0.3", "1.0.3.4", "0.1", "\u0661.\u0660", "x" * 500],
)
def test_any_other_version_is_refused_with_the_list_of_those_spoken(version: str) -> None:
    with pytest.raises(HandoffError) as refused:
        negotiate(version, None)
    assert refused.value.code is Code.VERSION_NOT_SUPPORTED
    assert refused.value.facts["supportedVersions"] == "1.0, 0.3"
    assert len(refused.value.message) < 200


def test_every_method_of_the_sdk_is_served() -> None:
    served = {method for generation, method in METHODS if generation is V1_0}
    assert served == set(JsonRpcDispatcher.METHOD_TO_MODEL)
    old = {
        kind.model_fields["method"].default
        for kind in get_args(v03.A2ARequest.model_fields["root"].annotation)
    }
    assert {method for generation, method in METHODS if generation is V0_3} == old | {"tasks/list"}


def test_methods_of_the_first_generation_need_no_version() -> None:
    assert resolve("tasks/send", V0_3) == (Operation.SEND, V0_1)
    assert resolve("tasks/sendSubscribe", V0_3) == (Operation.STREAM, V0_1)
    assert resolve("tasks/pushNotification/set", V0_3) == (Operation.SET_PUSH, V0_1)
    assert resolve("tasks/get", V0_3) == (Operation.GET, V0_3)
    assert {"tasks/get", "tasks/cancel", "tasks/resubscribe"} == SHARED_METHODS


@pytest.mark.parametrize(
    ("method", "negotiated", "code"),
    [
        ("SendMessage", V0_3, Code.VERSION_NOT_SUPPORTED),
        ("message/send", V1_0, Code.VERSION_NOT_SUPPORTED),
        ("tasks/send", V1_0, Code.VERSION_NOT_SUPPORTED),
        ("nonexistent/method", V1_0, Code.METHOD_NOT_FOUND),
        ("nonexistent/method", V0_3, Code.METHOD_NOT_FOUND),
        ("sendmessage", V1_0, Code.METHOD_NOT_FOUND),
    ],
)
def test_a_method_of_another_version_and_an_unknown_one_are_told_apart(
    method: str, negotiated: Generation, code: Code
) -> None:
    with pytest.raises(HandoffError) as refused:
        resolve(method, negotiated)
    assert refused.value.code is code


def test_a_notification_is_refused_after_what_else_is_wrong_with_it() -> None:
    for method, params, code in (
        ("nope", "{}", Code.METHOD_NOT_FOUND),
        ("message/send", '{"":"x"}', Code.INVALID_PARAMS),
        ("tasks/get", '{"id":"t"}', Code.INVALID_REQUEST),
    ):
        with pytest.raises(HandoffError) as refused:
            read(_call(method, params, request_id=""), V0_3)
        assert refused.value.code is code


def test_shared_methods_are_marked() -> None:
    assert read(_call("tasks/get", '{"id":"t"}'), V0_3).shared
    assert not read(_call("GetTask", '{"id":"t"}'), V1_0).shared
    asked = read(_call("tasks/send", json.dumps({"id": "t", "message": FIRST})), V0_3)
    assert (asked.operation, asked.generation, asked.shared) == (Operation.SEND, V0_1, False)


# --- messages --------------------------------------------------------------------------------------


def test_a_message_of_1_0_is_read_whole() -> None:
    params = _send(
        {
            "tenant": "acme",
            "message": NEW
            | {
                "taskId": "t-1",
                "contextId": "c-1",
                "extensions": ["urn:x"],
                "referenceTaskIds": ["t-0"],
                "metadata": {"handoff_context": {}},
            },
            "configuration": {
                "acceptedOutputModes": ["text/plain"],
                "historyLength": 3,
                "returnImmediately": True,
                "taskPushNotificationConfig": {"url": "https://h.example"},
            },
            "metadata": {"hop": 1, "f": 1.5},
        }
    )
    assert (params.message_id, params.task_id, params.context_id) == ("m-1", "t-1", "c-1")
    assert (params.extensions, params.reference_task_ids) == (("urn:x",), ("t-0",))
    assert (params.accepted_output_modes, params.history_length) == (("text/plain",), 3)
    assert params.return_immediately
    assert json.loads(params.push) == {"url": "https://h.example"}
    assert (params.tenant, params.alias, params.text) == ("acme", "", "hi")
    assert bytes(params.metadata["f"]) == b"1.5"
    assert bytes(params.message_metadata["handoff_context"]) == b"{}"
    assert json.loads(params.request_metadata) == {"hop": 1, "f": 1.5}


def test_what_is_passed_on_stays_byte_for_byte() -> None:
    message = b'{"messageId":"m","role":"ROLE_USER", "parts":[{"data":{"f":1.10 ,"n":null}}],"metadata":{"big":12345678901234567890}}'
    body = b'{"message":%b,"metadata":{"f":1.10, "zero":0}}' % message
    params = read_params(Operation.SEND, V1_0, body)
    assert isinstance(params, SendParams)
    assert params.message == message
    assert params.request_metadata == b'{"f":1.10, "zero":0}'


@pytest.mark.parametrize("generation", list(Generation))
def test_the_canonical_message_of_every_generation_is_one_of_the_sdk(generation: Generation) -> None:
    params = _send({}, generation)
    message = ParseDict(json.loads(params.message), v10.Message())
    assert message.parts[0].text == params.text == "hi"
    assert message.message_id == params.message_id
    assert not params.return_immediately
    assert params.history_length is None


def test_the_sdk_parses_what_we_accept() -> None:
    given = {"message": NEW, "configuration": {"historyLength": 0, "returnImmediately": False}, "tenant": "t"}
    ParseDict(given, v10.SendMessageRequest())
    v03.MessageSendParams.model_validate({"message": OLD, "configuration": {"blocking": True}})
    assert _send(given).history_length == 0


@pytest.mark.parametrize(
    ("generation", "configuration", "at_once"),
    [
        (V1_0, {"returnImmediately": True}, True),
        (V1_0, {"returnImmediately": False}, False),
        (V1_0, {"returnImmediately": None}, False),
        (V1_0, {"blocking": False}, False),
        (V0_3, {"blocking": False}, True),
        (V0_3, {"blocking": True}, False),
        (V0_3, {"blocking": None}, False),
        (V0_3, {}, False),
    ],
)
def test_1_0_and_0_3_ask_the_opposite_question(
    generation: Generation, configuration: dict[str, Any], at_once: bool
) -> None:
    assert _send({"configuration": configuration}, generation).return_immediately is at_once


@pytest.mark.parametrize("wrong", ["false", 1, 0, [], {}])
def test_a_flag_is_never_coerced(wrong: Any) -> None:
    params = {"message": NEW, "configuration": {"returnImmediately": wrong}}
    assert _faults(Operation.SEND, V1_0, params) == {
        "configuration.returnImmediately": "must be true or false"
    }
    params = {"message": OLD, "configuration": {"blocking": wrong}}
    assert set(_faults(Operation.SEND, V0_3, params)) == {"configuration.blocking"}


@pytest.mark.parametrize("wrong", [-1, "2", 1.5, True, COUNT_MAX + 1, 1e300, [], {}])
def test_a_history_length_is_a_whole_number(wrong: Any) -> None:
    params = {"message": NEW, "configuration": {"historyLength": wrong}}
    assert set(_faults(Operation.SEND, V1_0, params)) == {"configuration.historyLength"}
    assert set(_faults(Operation.GET, V0_3, {"id": "t", "historyLength": wrong})) == {"historyLength"}


@pytest.mark.parametrize(
    ("right", "length"), [(0, 0), (2.0, 2), (1e9, 10**9), (COUNT_MAX, COUNT_MAX), (None, None)]
)
def test_a_number_without_fraction_is_a_whole_number(right: Any, length: int | None) -> None:
    assert _params(Operation.GET, V1_0, {"id": "t", "historyLength": right}).history_length == length


def test_every_fault_is_named_at_its_place() -> None:
    params = {
        "tenant": 5,
        "message": {
            "messageId": " ",
            "role": "ROLE_BOSS",
            "parts": [7, {"text": "a"}, {"url": 1}],
            "taskId": "x" * 300,
        },
        "configuration": {
            "returnImmediately": "no",
            "historyLength": -1,
            "acceptedOutputModes": "text",
            "taskPushNotificationConfig": {"authentication": {}},
        },
        "metadata": [],
    }
    assert set(_faults(Operation.SEND, V1_0, params)) == {
        "tenant",
        "message.messageId",
        "message.role",
        "message.parts[0]",
        "message.parts[2].url",
        "message.taskId",
        "configuration.returnImmediately",
        "configuration.historyLength",
        "configuration.acceptedOutputModes",
        "configuration.taskPushNotificationConfig.url",
        "configuration.taskPushNotificationConfig.authentication.scheme",
        "metadata",
    }


@pytest.mark.parametrize(
    ("generation", "params", "fields"),
    [
        (V1_0, {}, {"message"}),
        (V1_0, {"message": None}, {"message"}),
        (V1_0, {"message": "hi"}, {"message"}),
        (V1_0, {"message": {}}, {"message.messageId", "message.role", "message.parts"}),
        (V1_0, {"message": NEW | {"parts": []}}, {"message.parts"}),
        (V1_0, {"message": NEW | {"parts": "invalid"}}, {"message.parts"}),
        (V1_0, {"message": NEW | {"role": "user"}}, {"message.role"}),
        (V1_0, {"message": NEW | {"messageId": ""}}, {"message.messageId"}),
        (V1_0, {"message": NEW | {"messageId": 5}}, {"message.messageId"}),
        (V1_0, {"message": NEW | {"messageId": "a\nb"}}, {"message.messageId"}),
        (V1_0, {"message": NEW | {"messageId": "m" * (ID_CHARS_MAX + 1)}}, {"message.messageId"}),
        (V1_0, {"message": NEW | {"contextId": "a\u0000b"}}, {"message.contextId"}),
        (V1_0, {"message": NEW | {"extensions": ["e"] * (LIST_ITEMS_MAX + 1)}}, {"message.extensions"}),
        (V1_0, {"message": NEW, "configuration": []}, {"configuration"}),
        (V0_3, {"message": {name: OLD[name] for name in ("kind", "role", "parts")}}, {"message.messageId"}),
        (V0_3, {"message": OLD | {"role": "ROLE_BOSS"}}, {"message.role"}),
        (V0_3, {"message": OLD | {"parts": [{"kind": "video"}]}}, {"message.parts[0]"}),
        (
            V0_3,
            {"message": OLD | {"parts": [{"kind": "file", "file": {"bytes": 5}}]}},
            {"message.parts[0].file.bytes"},
        ),
        (
            V0_3,
            {"message": OLD, "configuration": {"pushNotificationConfig": {"url": 5}}},
            {"configuration.pushNotificationConfig.url"},
        ),
        (V0_1, {"message": FIRST}, {"id"}),
        (V0_1, {"id": "t", "message": {"role": "user"}}, {"message.parts"}),
        (
            V0_1,
            {"id": 5, "sessionId": [], "historyLength": -1, "message": FIRST},
            {"id", "sessionId", "historyLength"},
        ),
        (V0_1, {"id": "t", "message": FIRST, "pushNotification": {"url": ""}}, {"pushNotification.url"}),
    ],
)
def test_a_wrong_message_is_refused(generation: Generation, params: dict[str, Any], fields: set[str]) -> None:
    assert set(_faults(Operation.SEND, generation, params)) == fields


def test_the_longest_id_is_accepted_and_so_are_other_scripts() -> None:
    longest = "é" * ID_CHARS_MAX
    assert _send({"message": NEW | {"messageId": longest}}).message_id == longest


def test_many_faults_are_not_all_listed() -> None:
    assert len(_faults(Operation.SEND, V1_0, {"message": NEW | {"parts": [5] * 1000}})) == FAULTS_MAX


def test_nulls_are_unset_fields_and_unknown_fields_are_ignored() -> None:
    params = _send(
        {
            "tenant": None,
            "message": NEW | {"taskId": None, "contextId": None, "metadata": None, "extensions": None},
            "configuration": {
                "historyLength": None,
                "acceptedOutputModes": None,
                "taskPushNotificationConfig": None,
                "x": 1,
            },
            "metadata": None,
            "unknown": {"y": 1},
        }
    )
    assert params == _send(
        {"message": NEW | {"taskId": None, "contextId": None, "metadata": None, "extensions": None}}
    )
    assert _send({"configuration": None}) == _send({})


def test_the_text_is_kept_at_hand_and_the_media_types_are_known() -> None:
    parts = [
        {"text": "a"},
        {"text": "b", "mediaType": "text/markdown"},
        {"data": {}},
        {"url": "u"},
        {"raw": "AA==", "mediaType": "image/png"},
    ]
    params = _send({"message": NEW | {"parts": parts}})
    assert params.text == "a\nb"
    assert params.input_modes == ("text/plain", "text/markdown", "application/json", "image/png")
    assert len(_send({"message": NEW | {"parts": [{"text": "x" * 9999}]}}).text) == TEXT_CHARS_MAX


# --- the first generation --------------------------------------------------------------------------


def test_the_first_generation_makes_its_own_task_ids() -> None:
    params = _send(
        {"sessionId": "s-1", "acceptedOutputModes": ["text"], "historyLength": 2, "metadata": {"k": 1}}, V0_1
    )
    assert (params.alias, params.task_id, params.context_id) == ("t-1", "", "s-1")
    assert (params.accepted_output_modes, params.history_length) == (("text",), 2)
    assert json.loads(params.request_metadata) == {"k": 1}


def test_a_repeat_in_the_first_generation_has_the_same_message_id_and_other_content_another() -> None:
    first, again = _send({}, V0_1), _send({}, V0_1)
    assert first.message_id == again.message_id
    assert _send({"id": "t-2"}, V0_1).message_id != first.message_id
    other = FIRST | {"parts": [{"type": "text", "text": "ho"}]}
    assert _send({"message": other}, V0_1).message_id != first.message_id


def test_old_clients_with_nulls_and_push_configurations_are_read() -> None:
    params = _send(
        {
            "message": FIRST | {"metadata": None},
            "pushNotification": {
                "url": "https://h.example",
                "token": None,
                "authentication": {"schemes": ["Bearer"], "credentials": None},
            },
            "historyLength": None,
            "metadata": None,
        },
        V0_1,
    )
    assert json.loads(params.push) == {"url": "https://h.example", "authentication": {"scheme": "Bearer"}}


def test_python_a2a_tasks_are_read() -> None:
    message = {
        "content": {"text": "Hi", "type": "text"},
        "role": "user",
        "message_id": "m-9",
        "conversation_id": "c",
    }
    params = _send({"sessionId": "s", "status": {"state": "submitted"}, "message": message}, V0_1)
    assert (params.text, params.message_id) == ("Hi", "m-9")


def test_a_body_may_be_bare_params_or_an_envelope() -> None:
    bare = json.dumps({"id": "t", "message": FIRST}).encode()
    call, is_bare = open_first_generation(bare, "tasks/send")
    assert (call.method, bytes(call.params), is_bare, call.notification) == ("tasks/send", bare, True, False)
    wrapped = b'{"jsonrpc":"2.0","id":7,"method":"tasks/send","params":%b}' % bare
    call, is_bare = open_first_generation(wrapped, "tasks/send")
    assert (call.id, call.method, bytes(call.params), is_bare) == (b"7", "tasks/send", bare, False)
    with pytest.raises(EnvelopeError):
        open_first_generation(b'{"jsonrpc":"2.0","id":7}', "tasks/send")
    with pytest.raises(HandoffError) as refused:
        open_first_generation(b"[]", "tasks/send")
    assert refused.value.code is Code.PARSE_ERROR


# --- the other operations --------------------------------------------------------------------------


@pytest.mark.parametrize("generation", list(Generation))
def test_tasks_are_named_by_id(generation: Generation) -> None:
    assert _params(Operation.GET, generation, {"id": "t"}) == GetParams(task_id="t")
    assert _params(Operation.CANCEL, generation, {"id": "t", "metadata": {"a": 1}}) == CancelParams(
        task_id="t", metadata=b'{"a": 1}'
    )
    assert _params(Operation.SUBSCRIBE, generation, {"id": "t"}) == SubscribeParams(task_id="t")
    for operation in (Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE):
        for wrong in ({}, {"id": ""}, {"id": None}, {"id": 5}, {"id": "x" * 300}, {"id": "a\r\nb"}):
            assert set(_faults(operation, generation, wrong)) == {"id"}


def test_the_tenant_belongs_to_1_0() -> None:
    assert _params(Operation.GET, V1_0, {"id": "t", "tenant": "acme"}).tenant == "acme"
    assert _params(Operation.GET, V0_3, {"id": "t", "tenant": 5}).tenant == ""
    assert _params(Operation.EXTENDED_CARD, V1_0, {"tenant": "acme"}) == CardParams(tenant="acme")


def test_a_listing_is_read() -> None:
    given = {
        "contextId": "c",
        "status": "TASK_STATE_WORKING",
        "pageSize": 10,
        "pageToken": page_token((1.25, "h-1")),
        "historyLength": 0,
        "includeArtifacts": True,
        "statusTimestampAfter": "2030-01-01T05:30:00+05:30",
    }
    ParseDict(given, v10.ListTasksRequest())
    assert _params(Operation.LIST, V1_0, given) == ListParams(
        page_size=10,
        before=(1.25, "h-1"),
        context_id="c",
        status=RemoteState.WORKING,
        updated_after=1893456000.0,
        history_length=0,
        include_artifacts=True,
    )
    assert _params(Operation.LIST, V1_0, {}) == ListParams(page_size=50)
    assert _params(Operation.LIST, V1_0, {"status": "TASK_STATE_UNSPECIFIED"}).status is None
    assert _params(Operation.LIST, V0_3, {"status": "input-required"}).status is RemoteState.INPUT_REQUIRED


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("pageSize", value) for value in (0, -1, 101, 150, "10", 1.5)),
        *(("pageToken", value) for value in ("x", "!!", "e30", "WzFd", "x" * 2000, 5)),
        *(("status", value) for value in ("TASK_STATE_RUNNING", "working", 2)),
        *(
            ("statusTimestampAfter", value)
            for value in ("yesterday", "2030-01-01T00:00:00", "2030-02-30T00:00:00Z", 5)
        ),
        ("includeArtifacts", "true"),
        ("historyLength", -5),
        ("contextId", 5),
    ],
)
def test_a_wrong_filter_is_refused(name: str, wrong: Any) -> None:
    assert set(_faults(Operation.LIST, V1_0, {name: wrong})) == {name}


def test_the_faults_of_a_listing_say_what_is_allowed() -> None:
    faults = _faults(
        Operation.LIST, V1_0, {"pageSize": 150, "historyLength": -5, "status": "TASK_STATE_RUNNING"}
    )
    assert faults["pageSize"] == "must be an integer from 1 to 100"
    assert "TASK_STATE_AUTH_REQUIRED" in faults["status"]
    assert "UNSPECIFIED" not in faults["status"]


@given(st.floats(min_value=0, max_value=4e9), st.text(max_size=40))
def test_a_page_token_comes_back_as_its_cursor(at: float, handoff_id: str) -> None:
    token = page_token((at, handoff_id))
    assert _params(Operation.LIST, V1_0, {"pageToken": token}).before == (at, handoff_id)
    assert page_token(None) == ""


PUSH_NEW = {
    "taskId": "t",
    "id": "p",
    "url": "https://h.example",
    "token": "k",
    "authentication": {"scheme": "Bearer", "credentials": "c"},
}
PUSH_OLD = {
    "id": "p",
    "url": "https://h.example",
    "token": "k",
    "authentication": {"schemes": ["Bearer"], "credentials": "c"},
}


def test_push_configurations_of_every_generation_become_one() -> None:
    for generation, config in (
        (V1_0, PUSH_NEW),
        (V0_3, {"taskId": "t", "pushNotificationConfig": PUSH_OLD}),
        (V0_1, {"id": "t", "pushNotificationConfig": PUSH_OLD}),
    ):
        params = _params(Operation.SET_PUSH, generation, config)
        assert (params.task_id, params.config_id) == ("t", "p")
        assert ParseDict(json.loads(params.config), v10.TaskPushNotificationConfig()) == ParseDict(
            PUSH_NEW, v10.TaskPushNotificationConfig()
        )


@pytest.mark.parametrize(
    ("operation", "generation", "given", "expected"),
    [
        (Operation.GET_PUSH, V1_0, {"taskId": "t", "id": "p"}, PushParams(task_id="t", config_id="p")),
        (
            Operation.GET_PUSH,
            V0_3,
            {"id": "t", "pushNotificationConfigId": "p"},
            PushParams(task_id="t", config_id="p"),
        ),
        (Operation.GET_PUSH, V0_3, {"id": "t"}, PushParams(task_id="t")),
        (Operation.GET_PUSH, V0_1, {"id": "t"}, PushParams(task_id="t")),
        (Operation.LIST_PUSH, V1_0, {"taskId": "t", "pageSize": 5}, PushParams(task_id="t")),
        (Operation.LIST_PUSH, V0_3, {"id": "t"}, PushParams(task_id="t")),
        (Operation.DELETE_PUSH, V1_0, {"taskId": "t", "id": "p"}, PushParams(task_id="t", config_id="p")),
        (
            Operation.DELETE_PUSH,
            V0_3,
            {"id": "t", "pushNotificationConfigId": "p"},
            PushParams(task_id="t", config_id="p"),
        ),
    ],
)
def test_push_configurations_are_found(
    operation: Operation, generation: Generation, given: dict[str, Any], expected: PushParams
) -> None:
    assert _params(operation, generation, given) == expected


@pytest.mark.parametrize(
    ("operation", "generation", "given", "fields"),
    [
        (Operation.SET_PUSH, V1_0, {}, {"taskId", "url"}),
        (
            Operation.SET_PUSH,
            V1_0,
            {"taskId": "t", "url": "x" * 3000, "authentication": []},
            {"url", "authentication"},
        ),
        (Operation.SET_PUSH, V0_3, {"taskId": "t"}, {"pushNotificationConfig"}),
        (
            Operation.SET_PUSH,
            V0_3,
            {"pushNotificationConfig": {"url": 1, "authentication": {"schemes": "x"}}},
            {"taskId", "pushNotificationConfig.url", "pushNotificationConfig.authentication.schemes"},
        ),
        (Operation.SET_PUSH, V0_1, {"pushNotificationConfig": 5}, {"id", "pushNotificationConfig"}),
        (Operation.GET_PUSH, V1_0, {"taskId": "t"}, {"id"}),
        (Operation.DELETE_PUSH, V0_3, {"id": "t"}, {"pushNotificationConfigId"}),
        (Operation.LIST_PUSH, V1_0, {}, {"taskId"}),
    ],
)
def test_wrong_push_params_are_refused(
    operation: Operation, generation: Generation, given: dict[str, Any], fields: set[str]
) -> None:
    assert set(_faults(operation, generation, given)) == fields


def test_query_parameters_are_params() -> None:
    query = [("pageSize", "10"), ("includeArtifacts", "true"), ("contextId", "5"), ("historyLength", "0")]
    assert read_params(Operation.LIST, V1_0, from_query(query)) == ListParams(
        page_size=10, include_artifacts=True, context_id="5", history_length=0
    )
    named = [("page_size", "10"), ("include_artifacts", "true"), ("context_id", "5"), ("history_length", "0")]
    assert from_query(named) == from_query(query)
    for name, value in (
        ("historyLength", "null"),
        ("pageSize", "ten"),
        ("includeArtifacts", "TRUE"),
        ("pageSize", "9" * 30),
    ):
        with pytest.raises(HandoffError) as refused:
            read_params(Operation.LIST, V1_0, from_query([(name, value)]))
        assert [fault.field for fault in refused.value.violations] == [name]


def test_what_stands_in_the_path_goes_over_the_body() -> None:
    params = read_params(Operation.SET_PUSH, V1_0, fill(b'{"taskId":"x","url":"u"}', taskId="t"))
    assert isinstance(params, PushParams)
    assert (params.task_id, json.loads(params.config)) == ("t", {"taskId": "t", "url": "u"})


# --- for any params --------------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
_names = st.sampled_from(
    [
        "id",
        "taskId",
        "sessionId",
        "contextId",
        "message",
        "configuration",
        "metadata",
        "tenant",
        "status",
        "pageSize",
        "pageToken",
        "url",
        "token",
        "authentication",
        "pushNotificationConfig",
        "pushNotification",
        "historyLength",
        "statusTimestampAfter",
    ]
)
_message = st.dictionaries(
    st.sampled_from(["messageId", "role", "parts", "content", "kind", "metadata", "extensions"]),
    _json
    | st.sampled_from(["ROLE_USER", "user"])
    | st.just([{"kind": "text", "text": "hi"}, {"text": "hi"}]),
)
_configuration = st.dictionaries(
    st.sampled_from(["historyLength", "returnImmediately", "blocking", "pushNotificationConfig"]), _json
)


@given(
    st.sampled_from(sorted(METHODS)),
    st.dictionaries(_names, _json | _message | _configuration, max_size=6)
    | st.fixed_dictionaries({"message": _message, "configuration": _configuration, "id": st.text()}),
)
def test_nothing_but_a_handoff_error_comes_out_of_any_params(
    method: tuple[Generation, str], params: dict[str, Any]
) -> None:
    generation, name = method
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": name, "params": params}).encode()
    try:
        asked = read(open_envelope(body), V1_0 if generation is V1_0 else V0_3)
    except HandoffError:
        return
    if isinstance(asked.params, SendParams):
        ParseDict(json.loads(asked.params.message), v10.Message(), ignore_unknown_fields=True)


@given(
    _message.filter(bool)
    | st.fixed_dictionaries(
        {"messageId": st.text(max_size=3), "role": st.just("ROLE_USER"), "parts": st.just([{"text": "x"}])},
        optional={"contextId": _json, "metadata": _json, "extensions": _json, "referenceTaskIds": _json},
    )
    | st.fixed_dictionaries(
        {"messageId": st.just("m"), "role": st.just("ROLE_USER")},
        optional={
            "parts": st.lists(
                st.dictionaries(
                    st.sampled_from(["text", "raw", "url", "data", "metadata", "filename", "mediaType"]),
                    _json,
                ),
                max_size=2,
            )
        },
    )
)
def test_a_message_is_refused_exactly_if_a_fault_of_it_can_be_named(message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    faults = {f"message.{fault.field}" for fault in message_faults(body)}
    for name in ("messageId", "contextId", "taskId"):
        value = message.get(name)
        if isinstance(value, str) and name_fault(value, chars_max=ID_CHARS_MAX):
            faults.add(f"message.{name}")
    assert _named_faults(b'{"message":%b}' % body) == faults


def _named_faults(params: bytes) -> set[str]:
    try:
        read_params(Operation.SEND, V1_0, params)
    except HandoffError as error:
        return {fault.field for fault in error.violations}
    return set()


# --- names of the proto --------------------------------------------------------------------------


def test_names_of_the_proto_are_read_as_protojson_does() -> None:
    written = {
        "message_id": "m-1",
        "task_id": "t-1",
        "context_id": "c-1",
        "role": "ROLE_USER",
        "parts": [{"text": "hi", "media_type": "text/markdown"}],
        "reference_task_ids": ["t-0"],
    }
    configuration = {
        "return_immediately": True,
        "history_length": 2,
        "task_push_notification_config": {"url": "https://x.test/hook"},
    }
    read = _send({"message": written, "configuration": configuration})
    assert (read.message_id, read.task_id, read.context_id) == ("m-1", "t-1", "c-1")
    assert (read.reference_task_ids, read.input_modes) == (("t-0",), ("text/markdown",))
    assert (read.return_immediately, read.history_length) == (True, 2)
    assert json.loads(read.push)["url"] == "https://x.test/hook"
    assert ParseDict(json.loads(read.message), v10.Message()).message_id == "m-1"
    push = {"task_id": "t-1", "id": "c-1", "url": "https://x.test/hook"}
    for operation in (Operation.SET_PUSH, Operation.GET_PUSH, Operation.LIST_PUSH, Operation.DELETE_PUSH):
        assert _params(operation, V1_0, push).task_id == "t-1"
    listing = {"page_size": 7, "context_id": "c-1", "include_artifacts": True, "history_length": 0}
    page = _params(Operation.LIST, V1_0, listing)
    assert (page.page_size, page.context_id, page.include_artifacts, page.history_length) == (
        7,
        "c-1",
        True,
        0,
    )


def test_the_name_of_the_json_wins_and_names_that_a2a_does_not_have_are_not_touched() -> None:
    both = {"task_id": "no", "taskId": "t-1", "id": "c", "url": "https://x.test/hook"}
    assert _params(Operation.SET_PUSH, V1_0, both).task_id == "t-1"
    message = {
        "message_id": "m-1",
        "role": "ROLE_USER",
        "parts": [{"text": "hi"}],
        "metadata": {"task_id": 1},
    }
    read = _send({"message": message | {"my_own": 1}})
    assert json.loads(read.message) == {
        "messageId": "m-1",
        "role": "ROLE_USER",
        "parts": [{"text": "hi"}],
        "metadata": {"task_id": 1},
        "my_own": 1,
    }
