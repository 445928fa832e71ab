"""JSON of A2A as protobuf and back: what survives, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.types import a2a_pb2
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.wire.grpc_status import Named, named_by, status_of
from a2a_handoff.wire.methods import Operation
from a2a_handoff.wire.protobuf import RPCS, Rpc, Unwritable, json_of, params_of, protobuf_of, rpc_of
from a2a_handoff.wire.requests import read_params, read_proto_params

EXACT = 2**53
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
#: -0.0 is a double of its own, and equal to 0.
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-EXACT, EXACT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)


@given(VALUES)
def test_data_comes_back_as_it_was(data: Any) -> None:
    body = json.dumps({"data": data}).encode()
    back = json_of(a2a_pb2.Part, protobuf_of(a2a_pb2.Part, body))
    assert json.loads(back) == {"data": data}
    assert json_of(a2a_pb2.Part, protobuf_of(a2a_pb2.Part, back)) == back


@given(st.integers(-EXACT, EXACT))
def test_a_whole_number_is_written_as_one(number: int) -> None:
    body = b'{"data":%d}' % number
    assert json_of(a2a_pb2.Part, protobuf_of(a2a_pb2.Part, body)) == body


@pytest.mark.parametrize(
    ("given_", "back"), [("1.0", "1"), ("1e3", "1000"), ("0.1", "0.1"), ("1e300", "1e300"), ("-0.0", "-0.0")]
)
def test_numbers_are_written_as_people_do(given_: str, back: str) -> None:
    written = json_of(a2a_pb2.Part, protobuf_of(a2a_pb2.Part, f'{{"data":{given_}}}'.encode()))
    assert json.loads(written) == {"data": float(given_)}
    if back != "-0.0":
        assert written == f'{{"data":{back}}}'.encode()


@given(st.binary(max_size=1_024))
def test_the_bytes_of_a_file_stay_the_same(raw: bytes) -> None:
    part = a2a_pb2.Part(raw=raw, filename="f")
    again = protobuf_of(a2a_pb2.Part, json_of(a2a_pb2.Part, part.SerializeToString()))
    assert a2a_pb2.Part.FromString(again) == part


def refusal_of(rpc: Rpc, body: bytes) -> Code | None:
    """Why a request is refused; ``None`` if it is not."""
    try:
        params = params_of(rpc, body)
        if rpc.generation is Generation.V0_3:
            read_proto_params(rpc.operation, params)
        else:
            read_params(rpc.operation, rpc.generation, params)
    except HandoffError as error:
        return error.code
    return None


@given(st.binary(max_size=200), st.sampled_from(sorted(RPCS)))
def test_any_bytes_are_params_or_refused(body: bytes, path: str) -> None:
    assert refusal_of(RPCS[path], body) in (None, Code.INVALID_PARAMS, Code.INVALID_CONTEXT)


@pytest.mark.parametrize("rpc", RPCS.values(), ids=lambda rpc: rpc.path)
def test_every_method_has_an_operation_and_is_found_by_it(rpc: Rpc) -> None:
    assert rpc_of(rpc.generation, rpc.operation) is rpc
    assert rpc.path.startswith("/lf.a2a.v1." if rpc.generation is Generation.V1_0 else "/a2a.v1.")


def test_1_0_has_every_operation_and_0_3_all_but_listing() -> None:
    found = {
        generation: {rpc.operation for rpc in RPCS.values() if rpc.generation is generation}
        for generation in (Generation.V1_0, Generation.V0_3)
    }
    assert found[Generation.V1_0] == set(Operation)
    assert found[Generation.V0_3] == set(Operation) - {Operation.LIST}


@pytest.mark.parametrize(
    "body",
    [
        b'{"text":"a","url":"b"}',
        b'{"text":5}',
        b'{"data":1e999}',
        b'{"data":' + b"9" * 400 + b"}",
        b'{"data":' + b'{"a":' * 40 + b"1" + b"}" * 41,
        b'{"metadata":[]}',
        b'{"text":"\\ud800"}',
        b"",
    ],
)
def test_what_protobuf_cannot_carry_is_refused(body: bytes) -> None:
    with pytest.raises(Unwritable):
        protobuf_of(a2a_pb2.Part, body)


def test_members_that_a_message_does_not_have_are_left_out() -> None:
    part = a2a_pb2.Part.FromString(protobuf_of(a2a_pb2.Part, b'{"text":"a","kind":"text","x":{"y":1}}'))
    assert part == a2a_pb2.Part(text="a")


def test_the_details_of_an_error_are_cut_to_what_a_client_takes() -> None:
    violations = tuple(Violation(f"field[{n}]", "x" * 100) for n in range(200))
    facts = {f"fact-{n}": "y" * 100 for n in range(100)}
    for error in (
        HandoffError(Code.INVALID_PARAMS, "m" * 9_000, violations=violations),
        HandoffError(Code.INVALID_PARAMS, "m", violations=violations, facts=facts),
        HandoffError(Code.UNAVAILABLE, "m", violations=violations[:1], retry_after_s=3),
    ):
        status = status_of(error, 3)
        assert len(status) <= 4_096
        assert named_by(status).reason == error.code.value.upper()
    assert named_by(status_of(HandoffError(Code.UNAVAILABLE, retry_after_s=3), 14)).retry_after_s == 3


@given(st.binary(max_size=100))
def test_details_of_others_are_read_or_name_nothing(status: bytes) -> None:
    assert isinstance(named_by(status), Named)
