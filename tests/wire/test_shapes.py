"""The shapes of the generations, held against the SDK's types of 1.0 and 0.3 and strict models of 0.1."""

import json
from typing import Any

import pytest
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.types import a2a_pb2 as v10
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire import shapes
from tests.wire import first_generation as v01

V1_0, V0_3, V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1

TEXT = b'{"text":"hi","metadata":{"n":null,"zero":0,"no":false,"empty":""}}'
RAW = b'{"raw":"AAEC","filename":"a.bin","mediaType":"application/x","metadata":{"k":1.10}}'
URL = b'{"url":"https://x.example/a","mediaType":"text/plain"}'
DATA = b'{"data":{"hop":1,"f":1.10,"big":9007199254740993,"huge":12345678901234567890}}'
MESSAGE = (
    b'{"messageId":"m-1","contextId":"c-1","taskId":"t-1","role":"ROLE_USER","parts":['
    + b",".join((TEXT, RAW, URL, DATA))
    + b'],"metadata":{"hop":1,"big":9007199254740993,"f":1.10,"tags":[],"opt":null},'
    b'"extensions":["urn:x"],"referenceTaskIds":["t-0"]}'
)


#: The same without the numbers that the SDK's protobuf types cannot hold.
SMALL_DATA = b'{"data":{"hop":1.5,"list":[1.25,{"x":null}]}}'
SMALL_MESSAGE = MESSAGE.replace(DATA, SMALL_DATA).replace(b'"big":9007199254740993,', b"")


def _v10(body: bytes, kind: Any = v10.Message) -> Any:
    return ParseDict(json.loads(body), kind())


# --- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [TEXT, RAW, URL, SMALL_DATA])
def test_a_part_becomes_what_the_sdk_makes_of_it_in_0_3(part: bytes) -> None:
    sdk = conversions.to_compat_part(_v10(part, v10.Part))
    ours = v03.Part.model_validate_json(shapes.part_out(part, V0_3))
    assert ours == sdk


@pytest.mark.parametrize("generation", [V0_3, V0_1])
@pytest.mark.parametrize("part", [TEXT, RAW, URL, DATA])
def test_a_part_comes_back_byte_for_byte(part: bytes, generation: Generation) -> None:
    assert json.loads(shapes.part_in(shapes.part_out(part, generation), generation)) == json.loads(part)
    out = shapes.part_out(DATA, generation)
    assert b'"f":1.10,"big":9007199254740993,"huge":12345678901234567890' in out


def test_the_discriminator_is_kind_in_0_3_and_type_in_the_first_generation() -> None:
    assert json.loads(shapes.part_out(b'{"text":"x"}', V0_3)) == {"kind": "text", "text": "x"}
    assert json.loads(shapes.part_out(b'{"text":"x"}', V0_1)) == {"type": "text", "text": "x"}
    assert json.loads(shapes.part_out(RAW, V0_1)) == {
        "type": "file",
        "file": {"bytes": "AAEC", "name": "a.bin", "mimeType": "application/x"},
        "metadata": {"k": 1.1},
    }


@pytest.mark.parametrize("data", ["[1, 2]", "5", '"text"', "null", "true"])
@pytest.mark.parametrize("generation", [V0_3, V0_1])
def test_data_that_is_not_an_object_travels_wrapped_as_the_sdk_wraps_it(
    data: str, generation: Generation
) -> None:
    part = b'{"data":%b,"metadata":{"k":1}}' % data.encode()
    out = shapes.part_out(part, generation)
    assert json.loads(out)["data"] == {"value": json.loads(data)}
    assert json.loads(out)["metadata"] == {"k": 1, "data_part_compat": True}
    assert shapes.part_in(out, generation) == part
    assert conversions.to_core_part(v03.Part.model_validate_json(shapes.part_out(part, V0_3))) == _v10(
        part, v10.Part
    )


@pytest.mark.parametrize("generation", [V0_3, V0_1])
def test_what_only_1_0_can_say_of_a_text_travels_in_the_metadata(generation: Generation) -> None:
    part = b'{"text":"# hi","filename":"a.md","mediaType":"text/markdown"}'
    out = json.loads(shapes.part_out(part, generation))
    assert set(out) == {"kind" if generation is V0_3 else "type", "text", "metadata"}
    assert json.loads(shapes.part_in(shapes.part_out(part, generation), generation)) == json.loads(part)


def test_unknown_fields_are_kept_at_every_level() -> None:
    old = b'{"kind":"file","file":{"uri":"u","size": 5},"x":{"y":1.0}}'
    new = shapes.part_in(old, V0_3)
    assert json.loads(new) == {"url": "u", "file": {"size": 5}, "x": {"y": 1.0}}
    assert b'"x":{"y":1.0}' in new
    assert json.loads(shapes.part_out(new, V0_3)) == json.loads(old)


def test_a_part_that_holds_nothing_known_is_passed_on_whole_as_data() -> None:
    out = json.loads(shapes.part_out(b'{"hologram":{"x":1}}', V0_3))
    assert (out["kind"], out["data"]) == ("data", {"hologram": {"x": 1}})
    v03.Part.model_validate(out)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ('{"type":"text","text":"x"}', {"text": "x"}),
        ('{"text":"x"}', {"text": "x"}),
        (
            '{"type":"file","file":{"name":"a","mimeType":"m","data":"AA=="}}',
            {"raw": "AA==", "filename": "a", "mediaType": "m"},
        ),
        ('{"type":"file","file":{"mimeType":"m","url":"u"}}', {"url": "u", "mediaType": "m"}),
        ('{"kind":"text","text":"x","metadata":null}', {"text": "x"}),
        ('{"kind":"file","file":{"bytes":"AA==","uri":null,"name":null}}', {"raw": "AA=="}),
        ('{"kind":"hologram","x":1}', {"kind": "hologram", "x": 1}),
        ('"text"', "text"),
    ],
)
@pytest.mark.parametrize("generation", [V0_3, V0_1])
def test_dialects_are_read(part: str, expected: Any, generation: Generation) -> None:
    assert json.loads(shapes.part_in(part.encode(), generation)) == expected


# --- messages --------------------------------------------------------------------------------------


def test_in_1_0_the_same_bytes_come_back() -> None:
    for convert in (
        shapes.message_in,
        shapes.message_out,
        shapes.part_in,
        shapes.part_out,
        shapes.artifact_in,
        shapes.artifact_out,
        shapes.push_out,
    ):
        assert convert(MESSAGE, V1_0) is MESSAGE


def test_a_message_becomes_what_the_sdk_makes_of_it_in_0_3() -> None:
    sdk = conversions.to_compat_message(_v10(SMALL_MESSAGE))
    assert v03.Message.model_validate_json(shapes.message_out(SMALL_MESSAGE, V0_3)) == sdk


def test_a_message_comes_back_from_0_3_with_every_digit() -> None:
    assert shapes.message_in(shapes.message_out(MESSAGE, V0_3), V0_3) == MESSAGE


def test_a_message_of_the_first_generation_has_no_ids_and_gets_one_of_its_content() -> None:
    out = shapes.message_out(MESSAGE, V0_1)
    v01.Message.model_validate_json(out)
    first, again = (shapes.message_in(out, V0_1) for _ in range(2))
    assert first == again
    assert json.loads(first)["messageId"] != json.loads(shapes.message_in(out + b" ", V0_1))["messageId"]
    assert json.loads(shapes.message_in(out, V0_1, message_id="m-9"))["messageId"] == "m-9"
    assert b'"metadata":{"hop":1,"big":9007199254740993,"f":1.10,"tags":[],"opt":null}' in first
    _v10(first)


def test_nulls_of_unset_fields_are_dropped_and_nulls_of_others_stay() -> None:
    old = (
        b'{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"","metadata":null}],'
        b'"taskId":null,"contextId":null,"metadata":{"opt":null,"nested":{"z":{}}},"extensions":null}'
    )
    assert shapes.message_in(old, V0_3) == (
        b'{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":""}],'
        b'"metadata":{"opt":null,"nested":{"z":{}}}}'
    )


def test_python_a2a_content_is_read_as_the_only_part() -> None:
    for content, part in (
        ('{"type":"text","text":"Hi"}', {"text": "Hi"}),
        ('"Hi"', {"text": "Hi"}),
        ('{"type":"function_call","name":"f"}', {"data": {"type": "function_call", "name": "f"}}),
    ):
        body = b'{"content":%b,"role":"user","message_id":"m-7"}' % content.encode()
        message = json.loads(shapes.message_in(body, V0_1))
        assert message == {"messageId": "m-7", "role": "ROLE_USER", "parts": [part]}


@pytest.mark.parametrize("generation", [V0_3, V0_1])
@pytest.mark.parametrize("body", [b"[]", b"5", b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(body: bytes, generation: Generation) -> None:
    for convert in (shapes.message_in, shapes.artifact_in):
        with pytest.raises(HandoffError) as refused:
            convert(body, generation)
        assert refused.value.code is Code.INVALID_PARAMS


# --- artifacts and push configurations -------------------------------------------------------------


ARTIFACT = b'{"artifactId":"a-1","name":"n","parts":[{"text":"x"},{"data":{"f":1.10}}],"metadata":{"v":1.0}}'


def test_an_artifact_becomes_what_the_sdk_makes_of_it_in_0_3() -> None:
    sdk = conversions.to_compat_artifact(_v10(ARTIFACT, v10.Artifact))
    out = shapes.artifact_out(ARTIFACT, V0_3)
    assert v03.Artifact.model_validate_json(out) == sdk
    assert shapes.artifact_in(out, V0_3) == ARTIFACT


def test_the_first_generation_numbers_artifacts_and_has_the_chunk_flags_inside() -> None:
    out = shapes.artifact_out(ARTIFACT, V0_1, index=2, append=True, last_chunk=False)
    assert v01.Artifact.model_validate_json(out).index == 2
    assert shapes.chunk_flags(out) == (True, False)
    assert shapes.chunk_flags(b'{"parts":[],"append":null}') == (False, True)
    back = json.loads(shapes.artifact_in(out, V0_1))
    assert back == json.loads(ARTIFACT) | {"artifactId": "artifact-2"}


PUSH = b'{"id":"p","taskId":"t","url":"https://h.example","token":"k","authentication":{"scheme":"Bearer","credentials":"c"}}'


def test_push_configurations_travel_nested_in_the_older_generations() -> None:
    out = shapes.push_out(PUSH, V0_3)
    sdk = conversions.to_compat_push_notification_config(_v10(PUSH, v10.TaskPushNotificationConfig))
    assert v03.TaskPushNotificationConfig.model_validate_json(out).push_notification_config == sdk
    first = v01.TaskPushNotificationConfig.model_validate_json(shapes.push_out(PUSH, V0_1))
    assert first.id == "t"
    inner = json.dumps(json.loads(out)["pushNotificationConfig"]).encode()
    assert json.loads(shapes.push_in(inner, V0_3, task_id="t")) == json.loads(PUSH)


def test_of_several_schemes_the_first_counts_and_an_empty_authentication_is_none() -> None:
    two = b'{"url":"u","authentication":{"schemes":["Basic","Bearer"]}}'
    assert json.loads(shapes.push_in(two, V0_1)) == {"url": "u", "authentication": {"scheme": "Basic"}}
    assert json.loads(shapes.push_in(b'{"url":"u","authentication":{}}', V0_1)) == {"url": "u"}


# --- words -----------------------------------------------------------------------------------------


def test_every_state_has_a_word_in_every_generation_that_the_generation_knows() -> None:
    for state in RemoteState:
        assert v10.TaskState.Value(shapes.state_out(state, V1_0)) >= 0
        assert v03.TaskState(shapes.state_out(state, V0_3))
        assert shapes.state_in(shapes.state_out(state, V1_0), V1_0) is state
        assert shapes.state_in(shapes.state_out(state, V0_3), V0_3) is state
        v01.TaskStatus.model_validate(
            {"state": shapes.state_out(state, V0_1), "timestamp": "2030-01-01T00:00:00Z"}
        )
    assert shapes.state_out(RemoteState.REJECTED, V0_1) == "failed"
    assert shapes.state_out(RemoteState.AUTH_REQUIRED, V0_1) == "input-required"
    assert shapes.state_in("waiting", V0_1) is RemoteState.UNSPECIFIED


# --- checks ----------------------------------------------------------------------------------------


def _faults(body: bytes, generation: Generation = V1_0) -> dict[str, str]:
    return {fault.field: fault.description for fault in shapes.message_faults(body, generation)}


def test_a_good_message_has_no_faults() -> None:
    assert _faults(MESSAGE) == {}
    assert shapes.artifact_faults(ARTIFACT) == ()
    assert _faults(b' {"messageId":"m","role":"ROLE_AGENT","parts":[{"data":null}],"taskId":null}') == {}


def test_every_fault_of_a_message_is_named_at_its_place() -> None:
    body = (
        b'{"messageId":" ","taskId":3,"role":"ROLE_BOSS","extensions":[1],"metadata":[],"referenceTaskIds":"x",'
        b'"parts":[3,{},{"text":"a","url":"b"},{"text":5},{"raw":1,"metadata":2}]}'
    )
    assert set(_faults(body)) == {
        "messageId",
        "taskId",
        "role",
        "extensions",
        "metadata",
        "referenceTaskIds",
        "parts[0]",
        "parts[1]",
        "parts[2]",
        "parts[3].text",
        "parts[4].raw",
        "parts[4].metadata",
    }
    assert set(_faults(b"{}")) == {"messageId", "role", "parts"}
    assert set(_faults(b'{"messageId":"m","role":"ROLE_USER","parts":[]}')) == {"parts"}
    assert set(_faults(b"[]")) == {""}
    assert [fault.field for fault in shapes.artifact_faults(b'{"name":1}')] == ["artifactId", "name", "parts"]


def test_faults_speak_the_names_of_the_caller() -> None:
    old = b'{"messageId":"m","role":"boss","parts":[{"kind":"file","file":{"bytes":1,"mimeType":2}},{"kind":"x"}]}'
    faults = _faults(shapes.message_in(old, V0_3), V0_3)
    assert set(faults) == {"role", "parts[0].file.bytes", "parts[0].file.mimeType", "parts[1]"}
    assert faults["role"] == "must be user or agent"
    assert "file" in faults["parts[1]"]


# --- for any message -------------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_metadata = st.dictionaries(st.text(), _json, max_size=3)
_names = st.fixed_dictionaries({}, optional={"filename": st.text(), "mediaType": st.text()})
_contents = st.one_of(
    st.fixed_dictionaries({"text": st.text()}),
    st.fixed_dictionaries({"raw": st.just("AAEC")}),
    st.fixed_dictionaries({"url": st.text()}),
    st.fixed_dictionaries({"data": _json}),
)
_part = st.builds(
    lambda content, names, rest: content | names | rest,
    _contents,
    _names,
    st.fixed_dictionaries({}, optional={"metadata": _metadata.filter(bool)}),
)
_message = st.fixed_dictionaries(
    {
        "messageId": st.text(min_size=1),
        "role": st.sampled_from(["ROLE_USER", "ROLE_AGENT"]),
        "parts": st.lists(_part, min_size=1, max_size=4),
    },
    optional={"metadata": _metadata, "taskId": st.text(), "extensions": st.lists(st.text(), max_size=2)},
)


@given(_message)
def test_any_message_survives_0_3_and_back(message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    out = shapes.message_out(body, V0_3)
    v03.Message.model_validate_json(out)
    assert json.loads(shapes.message_in(out, V0_3)) == message


@given(_message)
def test_any_message_is_a_message_of_the_first_generation(message: dict[str, Any]) -> None:
    out = shapes.message_out(json.dumps(message).encode(), V0_1)
    v01.Message.model_validate_json(out)
    back = json.loads(shapes.message_in(out, V0_1))
    assert back["parts"] == message["parts"]
    assert back.get("metadata") == message.get("metadata")


@given(st.dictionaries(st.sampled_from(["role", "parts", "kind", "metadata", "messageId", "content"]), _json))
def test_nothing_but_a_handoff_error_comes_out_of_any_object(message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    for generation in Generation:
        canonical = shapes.message_in(body, generation)
        shapes.message_faults(canonical, generation)
        shapes.message_out(canonical, generation)
        shapes.artifact_out(shapes.artifact_in(body, generation), generation)
