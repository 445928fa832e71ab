"""How errors look on the wire, held against the SDK's own tables and clients."""

import json

import pytest
from a2a.compat.v0_3.types import JSONRPCErrorResponse
from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    A2A_ERROR_REASONS,
    A2A_REASON_TO_ERROR,
    JSON_RPC_ERROR_CODE_MAP,
)
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import ERRORS, Code, HandoffError, Violation
from a2a_handoff.wire import faults

EVERY_CODE = pytest.mark.parametrize("code", list(Code), ids=lambda code: code.value)
EVERY_GENERATION = pytest.mark.parametrize("generation", list(Generation), ids=lambda g: g.value)


def _full(code: Code) -> HandoffError:
    """An error that says everything an error can say."""
    return HandoffError(
        code,
        violations=(Violation("message.parts[0]", "must be an object"),),
        facts={"taskId": "t-1"},
        retry_after_s=1.2,
    )


def _rpc(error: HandoffError, generation: Generation) -> dict:
    return json.loads(faults.error_object(error, generation))


@EVERY_CODE
@EVERY_GENERATION
def test_every_code_has_a_jsonrpc_shape_in_every_generation(code: Code, generation: Generation) -> None:
    answer = json.loads(faults.jsonrpc(_full(code), generation, b'"r-1"').body)
    assert set(answer) == {"jsonrpc", "id", "error"}
    assert answer["id"] == "r-1"
    error = answer["error"]
    assert set(error) == {"code", "message", "data"}
    assert error["code"] in range(-32099, -31999) or error["code"] in range(-32700, -32599)
    assert error["message"]
    if generation is Generation.V0_1:
        assert error["data"]["reason"] == code.value.upper()
        assert error["data"]["fieldViolations"][0]["field"] == "message.parts[0]"
    else:
        kinds = [detail["@type"].rpartition(".")[2] for detail in error["data"]]
        assert kinds == ["ErrorInfo", "BadRequest", "RetryInfo"]
    JSONRPCErrorResponse.model_validate(answer)


@EVERY_CODE
def test_every_code_has_details_that_parse_as_google_rpc(code: Code) -> None:
    info, request, retry = faults.details(_full(code))
    for detail, kind in (
        (info, error_details_pb2.ErrorInfo),
        (request, error_details_pb2.BadRequest),
        (retry, error_details_pb2.RetryInfo),
    ):
        assert detail["@type"] == f"type.googleapis.com/google.rpc.{kind.__name__}"
        ParseDict({name: value for name, value in detail.items() if name != "@type"}, kind())


@EVERY_CODE
def test_no_code_of_1_0_that_means_something_else_reaches_the_first_generation(code: Code) -> None:
    assert _rpc(HandoffError(code), Generation.V0_1)["code"] not in range(-32009, -32005)


def test_codes_unknown_to_the_first_generation_become_its_nearest() -> None:
    codes = {
        code: _rpc(HandoffError(code), Generation.V0_1)["code"]
        for code in (
            Code.INVALID_AGENT_RESPONSE,
            Code.EXTENDED_CARD_NOT_CONFIGURED,
            Code.EXTENSION_SUPPORT_REQUIRED,
            Code.VERSION_NOT_SUPPORTED,
            Code.TASK_NOT_FOUND,
        )
    }
    assert list(codes.values()) == [-32603, -32004, -32004, -32004, -32001]


def test_the_a2a_errors_are_those_of_the_sdk() -> None:
    for kind, reason in A2A_ERROR_REASONS.items():
        if reason == "INTERNAL_ERROR":
            continue
        error = HandoffError(Code(reason.lower()))
        assert error.row.jsonrpc == JSON_RPC_ERROR_CODE_MAP[kind]
        mapping = A2A_ERROR_MAPPING[kind]
        assert error.row.a2a_http == mapping.http_code
        info = faults.details(error)[0]
        assert (info["reason"], info["domain"]) == (reason, "a2a-protocol.org")
        assert A2A_REASON_TO_ERROR[info["reason"]] is kind


def test_our_own_errors_have_our_own_domain() -> None:
    info = faults.details(HandoffError(Code.CYCLE_DETECTED, facts={"path": "a,b"}))[0]
    assert (info["reason"], info["domain"], info["metadata"]) == (
        "CYCLE_DETECTED",
        "a2a-handoff",
        {"path": "a,b"},
    )


@EVERY_CODE
@EVERY_GENERATION
def test_every_code_has_an_http_json_shape(code: Code, generation: Generation) -> None:
    refusal = faults.a2a_http(_full(code), generation)
    assert refusal.status == ERRORS[code].a2a_http
    assert ("Retry-After", "2") in refusal.headers
    error = json.loads(refusal.body)["error"]
    if generation is not Generation.V0_1:
        assert error["code"] == refusal.status
        assert error["status"] == ERRORS[code].grpc
        assert error["details"][0]["reason"] == code.value.upper()


def test_0_3_over_http_names_the_error_where_its_clients_look() -> None:
    for kind in JSON_RPC_ERROR_CODE_MAP:
        name = kind.__name__
        code = {
            "JSONParseError": Code.PARSE_ERROR,
            "InternalError": Code.INTERNAL,
            "ExtendedAgentCardNotConfiguredError": Code.EXTENDED_CARD_NOT_CONFIGURED,
        }.get(name) or Code(A2A_ERROR_REASONS[kind].lower())
        body = json.loads(faults.a2a_http(HandoffError(code), Generation.V0_3).body)
        assert body["type"] == name
        assert body["code"] == ERRORS[code].jsonrpc
        assert body["message"]


@EVERY_CODE
def test_every_code_has_problem_details(code: Code) -> None:
    refusal = faults.problem(_full(code), "/api/handoffs")
    body = json.loads(refusal.body)
    assert refusal.media_type == "application/problem+json"
    assert refusal.status == body["status"] == ERRORS[code].http
    assert body["type"] == f"urn:a2a-handoff:error:{code.value}"
    assert body["title"]
    assert body["detail"]
    assert body["instance"] == "/api/handoffs"
    assert body["errors"] == [{"field": "message.parts[0]", "description": "must be an object"}]
    assert body["facts"] == {"taskId": "t-1"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.TASK_NOT_FOUND, 200),
        (Code.INVALID_PARAMS, 200),
        (Code.PARSE_ERROR, 200),
        (Code.UNAUTHENTICATED, 401),
        (Code.FORBIDDEN, 403),
        (Code.PAYLOAD_TOO_LARGE, 413),
        (Code.RATE_LIMITED, 429),
        (Code.UNAVAILABLE, 503),
    ],
)
def test_jsonrpc_answers_with_200_but_for_what_http_itself_must_say(code: Code, status: int) -> None:
    refusal = faults.jsonrpc(HandoffError(code), Generation.V1_0)
    assert refusal.status == status
    assert json.loads(refusal.body)["id"] is None


def test_who_is_limited_is_always_told_when_to_come_back() -> None:
    headers = faults.jsonrpc(HandoffError(Code.RATE_LIMITED), Generation.V1_0).headers
    assert headers == (("Retry-After", "1"),)
    assert faults.problem(HandoffError(Code.INVALID_PARAMS)).headers == ()


def test_who_is_not_known_is_told_how_to_authenticate() -> None:
    assert ("WWW-Authenticate", "Bearer") in faults.problem(HandoffError(Code.UNAUTHENTICATED)).headers
