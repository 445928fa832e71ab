"""Bad JSON-RPC: every method of every generation, every field, every byte."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_handoff.core.agents import Generation
from a2a_handoff.wire.requests import METHODS, Operation
from tests.fuzz.conftest import Watched, events_of, json_of
from tests.fuzz.mutations import mangled, spoilt
from tests.support.running import handoff_context

FUZZ = settings.get_profile("fuzz")
V1_0, V0_3, V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1

CONTEXT = handoff_context(
    target_agent="worker",
    correlation_id="chain-1",
    handoff_reason="specialization",
    task_progress={"step": 1, "total": 3, "completed": ["a"]},
    user_preferences={"language": "en"},
    context_ref="ref-1",
    hop_count=0,
    handoff_chain=["triage"],
    requirements={
        "agent_type": "", "capabilities": ["canWork"], "skill": "", "domain": "", "tags": [], "platform": "",
        "input_modes": ["text/plain"], "output_modes": [],
    },
    signals={
        "intent": "billing", "sentiment_score": 0.9, "complexity_score": 2, "risk_level": 1, "language": "en",
        "completion_estimate": 0.1,
    },
    mode="delegate",
    priority="normal",
    fallback=["worker"],
    replay_safe=False,
    deadline="2099-01-01T00:00:00Z",
    wait_for_agent=0,
    parent_handoff_id="",
    context_overflow="refuse",
    context_profile="rich",
    transcript=[{"role": "user", "text": "hello"}],
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
)  # fmt: skip

PARTS = [
    {"text": "hello", "metadata": {"a": 1}},
    {"data": {"n": [1, 2.5, None]}, "mediaType": "application/json"},
]
OLD_PARTS = [
    {"kind": "text", "text": "hello", "metadata": {"a": 1}},
    {"kind": "data", "data": {"n": [1, 2.5, None]}},
]
FIRST_PARTS = [{"type": "text", "text": "hello"}, {"type": "data", "data": {"n": 1}, "metadata": {}}]
MESSAGE = {
    "messageId": "m-1", "role": "ROLE_USER", "parts": PARTS, "contextId": "c-1", "metadata": {"k": "v"},
    "extensions": ["urn:a2a-handoff:handoff:v1"], "referenceTaskIds": ["r-1"],
}  # fmt: skip
PUSH = {"url": "http://127.0.0.1:1/x", "token": "t", "id": "p"}
FIRST = {"id": "alias-1", "sessionId": "s-1", "historyLength": 2, "acceptedOutputModes": ["text/plain"]}


def params_of(operation: Operation, generation: Generation, task_id: str) -> dict[str, Any]:
    """Valid params, every field of them."""
    beside = {"metadata": {"handoff_context": CONTEXT, "more": [1]}}
    match operation:
        case Operation.SEND | Operation.STREAM if generation is V1_0:
            settings = {
                "acceptedOutputModes": ["text/plain"], "historyLength": 3, "returnImmediately": True,
                "taskPushNotificationConfig": PUSH | {"authentication": {"scheme": "Bearer", "credentials": "c"}},
            }  # fmt: skip
            return {"tenant": "", "message": MESSAGE, "configuration": settings, **beside}
        case Operation.SEND | Operation.STREAM if generation is V0_3:
            settings = {
                "acceptedOutputModes": ["text/plain"], "historyLength": 3, "blocking": False,
                "pushNotificationConfig": PUSH | {"authentication": {"schemes": ["Bearer"], "credentials": "c"}},
            }  # fmt: skip
            message = MESSAGE | {"kind": "message", "role": "user", "parts": OLD_PARTS}
            return {"message": message, "configuration": settings, **beside}
        case Operation.SEND | Operation.STREAM:
            message = {"role": "user", "parts": FIRST_PARTS, "metadata": {"k": "v"}}
            return FIRST | {"message": message, "pushNotification": PUSH, **beside}
        case Operation.GET:
            return {"id": task_id, "historyLength": 2, "metadata": {}}
        case Operation.LIST:
            return {
                "contextId": "c-1", "pageSize": 10, "pageToken": "WzEuNSwiYSJd", "historyLength": 1,
                "status": "TASK_STATE_COMPLETED" if generation is V1_0 else "completed",
                "statusTimestampAfter": "2020-01-01T00:00:00Z", "includeArtifacts": True,
            }  # fmt: skip
        case Operation.CANCEL | Operation.SUBSCRIBE:
            return {"id": task_id, "metadata": {"a": 1}}
        case Operation.SET_PUSH if generation is V1_0:
            return PUSH | {"taskId": task_id, "authentication": {"scheme": "Bearer", "credentials": "c"}}
        case Operation.SET_PUSH:
            config = PUSH | {"authentication": {"schemes": ["Bearer"], "credentials": "c"}}
            return {"taskId" if generation is V0_3 else "id": task_id, "pushNotificationConfig": config}
        case Operation.GET_PUSH | Operation.DELETE_PUSH | Operation.LIST_PUSH:
            both = {"taskId": task_id, "id": "p"} if generation is V1_0 else {"id": task_id}
            return both | {"pushNotificationConfigId": "p", "pageSize": 2}
        case Operation.EXTENDED_CARD:
            return {"tenant": ""}


def envelope(generation: Generation, method: str, params: Any, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def post(watched: Watched, body: bytes, generation: Generation = V1_0) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    if generation is V1_0:
        headers["A2A-Version"] = "1.0"
    return watched.http.post("/", content=body, headers=headers)


def check_one(answer: Any) -> bool:
    """One answer of JSON-RPC: exactly one of result and error, an error with its details. True if refused."""
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) != ("error" in answer)
    assert "id" in answer
    if "result" in answer:
        return False
    error = answer["error"]
    assert isinstance(error["code"], int)
    assert error["code"] != -32603, error
    assert error["message"]
    details = error["data"]
    reason = details["reason"] if isinstance(details, dict) else details[0]["reason"]
    assert reason == reason.upper()
    return True


def check(watched: Watched, body: bytes, generation: Generation) -> None:
    """Send it; the answer is one of the protocol, and a refusal has changed nothing."""
    before = watched.state()
    answer = post(watched, body, generation)
    assert answer.status_code in (200, 413), answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        events = events_of(answer)
        refused = [check_one(event) for event in events] == [True]
        assert events
    else:
        assert answer.headers["content-type"] == "application/json"
        refused = check_one(json_of(answer))
    if refused:
        assert watched.state() == before
    watched.is_well()


@pytest.mark.parametrize(("generation", "method"), METHODS, ids=str)
def test_a_spoilt_call_of_any_method_is_answered_in_its_protocol_or_does_its_work(
    watched: Watched, generation: Generation, method: str
) -> None:
    operation = METHODS[generation, method]
    valid = envelope(generation, method, params_of(operation, generation, watched.task_id))

    @settings(FUZZ)
    @given(spoilt(valid))
    def attack(body: bytes) -> None:
        check(watched, body, generation)

    attack()


def _contexts() -> Any:
    fields = [spoilt({name: value} | _needed(name), most=1) for name, value in CONTEXT.items()]
    return st.one_of(*fields, spoilt(CONTEXT))


def _needed(name: str) -> dict[str, Any]:
    base = handoff_context(target_agent="worker")
    return {other: value for other, value in base.items() if other != name}


@settings(FUZZ, max_examples=FUZZ.max_examples * 4)
@given(context=_contexts(), place=st.integers(0, 3))
def attack_context(watched: Watched, context: bytes, place: int) -> None:
    inside = (
        b'{"handoff_context":%b}' % context
        if place in (0, 1)
        else b'{"urn:a2a-handoff:handoff:v1":%b}' % context
    )
    in_message = place % 2 == 1
    message = json.dumps({"messageId": "c-m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}).encode()
    if in_message:
        message = message[:-1] + b',"metadata":%b}' % inside
    more = b"" if in_message else b',"metadata":%b' % inside
    params = b'{"configuration":{"returnImmediately":true},"message":%b%b}' % (message, more)
    check(watched, b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":%b}' % params, V1_0)


def test_a_spoilt_context_is_refused_at_its_place_or_understood(watched: Watched) -> None:
    attack_context(watched)


@settings(FUZZ)
@given(
    st.one_of(st.binary(max_size=200), mangled(json.dumps(envelope(V1_0, "GetTask", {"id": "x"})).encode()))
)
def attack_bytes(watched: Watched, body: bytes) -> None:
    check(watched, body, V1_0)


def test_any_bytes_at_all_get_an_answer_of_json_rpc(watched: Watched) -> None:
    attack_bytes(watched)
