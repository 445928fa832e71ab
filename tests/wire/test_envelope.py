"""The JSON-RPC envelope: what is let in, and how each refusal is answered."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.wire.envelope import (
    DEPTH_MAX,
    ID_BYTES_MAX,
    EnvelopeError,
    answer,
    open_envelope,
    open_object,
)


def _body(request_id: str = '"r-1"', params: str = '{"x":1.10}', method: str = '"SendMessage"') -> bytes:
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":{method},"params":{params}}}'.encode()


def _refusal(body: bytes) -> tuple[Code, bytes]:
    with pytest.raises(EnvelopeError) as refused:
        open_envelope(body)
    return refused.value.code, refused.value.request_id


def test_a_request_is_opened_and_its_params_stay_as_written() -> None:
    call = open_envelope(_body(params='{"x":1.10, "y":[1 ,2]}'))
    assert (call.id, call.method, call.notification) == (b'"r-1"', "SendMessage", False)
    assert bytes(call.params) == b'{"x":1.10, "y":[1 ,2]}'


@pytest.mark.parametrize(
    "request_id", ['"a"', "1", "-3", "1.5", "1.50", "1e3", "null", '"\\u00e9"', '"é"', "12345678901234567890"]
)
def test_an_id_is_echoed_byte_for_byte(request_id: str) -> None:
    call = open_envelope(_body(request_id))
    assert call.id == request_id.encode()
    assert not call.notification
    assert answer(call.id, b"{}") == b'{"jsonrpc":"2.0","id":%b,"result":{}}' % request_id.encode()


@pytest.mark.parametrize("request_id", ['{"a":1}', "[1]", "true", "false", json.dumps("x" * 5000)])
def test_an_id_of_another_kind_is_refused_and_answered_under_null(request_id: str) -> None:
    assert _refusal(_body(request_id)) == (Code.INVALID_REQUEST, b"null")


def test_the_longest_id_is_accepted() -> None:
    longest = json.dumps("x" * (ID_BYTES_MAX - 2))
    assert open_envelope(_body(longest)).id == longest.encode()
    assert _refusal(_body(json.dumps("x" * (ID_BYTES_MAX - 1)))) == (Code.INVALID_REQUEST, b"null")


def test_a_request_without_id_is_a_notification() -> None:
    call = open_envelope(b'{"jsonrpc":"2.0","method":"SendMessage"}')
    assert call.notification
    assert (call.id, bytes(call.params)) == (b"null", b"{}")


@pytest.mark.parametrize("body", [b"[]", b"[1]", b" [" + _body() + b"," + _body("2") + b"]"])
def test_a_batch_is_refused_whole(body: bytes) -> None:
    assert _refusal(body) == (Code.INVALID_REQUEST, b"null")


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b'{"jsonrpc":"1.0","id":"7","method":"m"}', Code.INVALID_REQUEST, b'"7"'),
        (b'{"jsonrpc":2.0,"id":7,"method":"m"}', Code.INVALID_REQUEST, b"7"),
        (b'{"id":7,"method":"m"}', Code.INVALID_REQUEST, b"7"),
        (b'{"jsonrpc":"2.0","id":7}', Code.INVALID_REQUEST, b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', Code.INVALID_REQUEST, b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":""}', Code.INVALID_REQUEST, b"7"),
        (_body(method=json.dumps("m" * 300)), Code.INVALID_REQUEST, b'"r-1"'),
        (_body(params="[1]"), Code.INVALID_PARAMS, b'"r-1"'),
        (_body(params='"x"'), Code.INVALID_REQUEST, b'"r-1"'),
        (_body(params="5"), Code.INVALID_REQUEST, b'"r-1"'),
        (b"5", Code.INVALID_REQUEST, b"null"),
        (b'"x"', Code.INVALID_REQUEST, b"null"),
        (b"null", Code.INVALID_REQUEST, b"null"),
    ],
)
def test_a_wrong_envelope_is_refused_under_its_id(body: bytes, code: Code, request_id: bytes) -> None:
    assert _refusal(body) == (code, request_id)


@pytest.mark.parametrize("params", ["null", "{}"])
def test_params_may_be_left_out(params: str) -> None:
    assert bytes(open_envelope(_body(params=params)).params) == b"{}"


@pytest.mark.parametrize(
    "params",
    [
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":-Infinity}',
        '{"a":01}',
        '{"a":1.}',
        "{'a':1}",
        '{"a":1,}',
        '{"a":"\\ud800"}',
        '{"a":{"b":["\\udc00 tail"]}}',
        '{"a":"\\ud83d\\ud83d"}',
        '{"\\ud800 key":1}',
        '{"a":"\x01"}',
        '{"a":tru}',
        '{"a":1',
    ],
)
def test_what_is_not_json_is_refused(params: str) -> None:
    assert _refusal(_body(params=params)) == (Code.PARSE_ERROR, b"null")


@pytest.mark.parametrize(
    "junk", [b"", b"\xef\xbb\xbf{}", b"\xff\xfe", b"x" * 10, _body() + b"x", b'{"jsonrpc":"2.0"']
)
def test_junk_is_refused(junk: bytes) -> None:
    assert _refusal(junk) == (Code.PARSE_ERROR, b"null")


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_bytes_that_are_not_utf_8_are_refused_even_where_nobody_reads(text: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":{"b":"%b"}}}' % text
    assert _refusal(body) == (Code.PARSE_ERROR, b"null")


def test_unicode_is_let_through() -> None:
    text = "订单 🧪‍🦰 مرحبا"
    call = open_envelope(_body(params=json.dumps({"a": text}, ensure_ascii=False)))
    assert json.loads(bytes(call.params)) == {"a": text}
    pair = open_envelope(_body(params='{"a":"\\ud83e\\uddea"}'))
    assert bytes(pair.params) == b'{"a":"\\ud83e\\uddea"}'


@pytest.mark.parametrize(
    "number", ["1e999", "-1e400", "1E+309", "9" * 400, "123456789e301", "1" + "0" * 250 + "e99"]
)
def test_a_number_that_no_double_holds_is_refused_under_the_id(number: str) -> None:
    assert _refusal(_body(params=f'{{"a":[{number}]}}')) == (Code.INVALID_PARAMS, b'"r-1"')
    with pytest.raises(HandoffError) as refused:
        open_object(f'{{"a":{number}}}'.encode())
    assert refused.value.code is Code.INVALID_PARAMS
    assert number[:20] in refused.value.violations[0].description


@pytest.mark.parametrize(
    "value",
    [
        "1e308",
        "1e-999",
        "12345678901234567890",
        '"1e999"',
        '"\\"1e999"',
        '"\\\\", "1e999"',
        "9" * 200,
        "1e+0005",
    ],
)
def test_other_numbers_and_texts_are_let_through(value: str) -> None:
    params = f'{{"a":[{value}]}}'
    assert bytes(open_envelope(_body(params=params)).params) == params.encode()


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"k":', "}"), ('["\\"[",', "]")])
def test_nesting_is_bounded(opening: str, closing: str) -> None:
    inside = DEPTH_MAX - 2  # the envelope and params are two levels
    deepest = '{"a":' + opening * inside + "1" + closing * inside + "}"
    assert open_envelope(_body(params=deepest)).method == "SendMessage"
    assert _refusal(_body(params=f'{{"a":{deepest}}}')) == (Code.PARSE_ERROR, b"null")


def test_width_is_not_depth_and_brackets_in_texts_do_not_count() -> None:
    wide = json.dumps({"a": [[{}] for _ in range(500)], "b": "[" * 500 + '\\"{' * 90 + "\\\\"})
    assert open_envelope(_body(params=wide)).method == "SendMessage"


@pytest.mark.parametrize(
    "junk", [b"[" * 200_000, b'{"a":' * 200_000, b"]" * 70 + b"[" * 70, b'{"a":"' + b"[" * 100]
)
def test_hostile_nesting_is_refused_without_recursion(junk: bytes) -> None:
    assert _refusal(junk)[0] in (Code.PARSE_ERROR, Code.INVALID_REQUEST)


def test_the_worst_nesting_of_a_megabyte_is_refused_quickly() -> None:
    comb = b"[[]," * 250_000 + b"1" + b"]" * 250_000
    started = time.perf_counter()
    assert _refusal(comb)[0] is Code.PARSE_ERROR
    assert time.perf_counter() - started < 5


def test_of_duplicate_members_the_last_counts() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b","params":{"x":1,"x":2}}'
    call = open_envelope(body)
    assert (call.id, call.method, bytes(call.params)) == (b"2", "b", b'{"x":1,"x":2}')


def test_a_body_without_envelope_must_be_an_object() -> None:
    assert bytes(open_object(b"")) == b"{}"
    assert bytes(open_object(b' {"a": 1.10}\n')) == b'{"a": 1.10}'
    for junk in (b"[]", b"5", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a":NaN}'):
        with pytest.raises(HandoffError) as refused:
            open_object(junk)
        assert refused.value.code is Code.PARSE_ERROR


def _count(tree: Any) -> int:
    """How many values there are, each empty list or object twice."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else None
    return 1 if inner is None else 1 + sum(map(_count, inner)) + (not tree)


@given(
    st.deferred(lambda: st.dictionaries(st.text(',[{"\\x', max_size=9), _tricky, max_size=4)), st.booleans()
)
@example({"a": "\\", '"': ['\\"', ",", "[]", "{}", '""', ""]}, True)
def test_values_are_counted_wherever_they_stand_and_nothing_in_strings_is(
    tree: dict[str, Any], ascii_only: bool
) -> None:
    body, count = json.dumps(tree, ensure_ascii=ascii_only).encode(), _count(tree)
    assert bytes(open_object(body, count)) == body
    if count > 1:
        with pytest.raises(HandoffError) as refused:
            open_object(body, count - 1)
        assert refused.value.code is Code.PAYLOAD_TOO_LARGE
        assert refused.value.facts == {"limit_values": str(count - 1)}


def test_too_many_values_are_refused_under_the_id_of_the_request() -> None:
    many = "[" + ",".join(["0"] * 50) + "]"
    for body, request_id in (
        (_body(params=f'{{"a":{many}}}'), b'"r-1"'),
        (_body(params=f'{{"a":{many}')[:-1], b"null"),  # no JSON, which nobody looked at
        (_body(request_id=many), b"null"),
        (b"[" * 100_000, b"null"),
    ):
        with pytest.raises(EnvelopeError) as refused:
            open_envelope(body, 20)
        assert (refused.value.code, refused.value.request_id) == (Code.PAYLOAD_TOO_LARGE, request_id)


@given(st.binary(max_size=200))
@example(b'{"jsonrpc":"2.0","id":"\\')
def test_nothing_but_an_envelope_error_comes_out_of_any_bytes(body: bytes) -> None:
    try:
        open_envelope(body)
    except EnvelopeError as error:
        json.loads(error.request_id)


_tricky = st.recursive(
    st.none() | st.integers() | st.text(',[{"\\x\u00e4', max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\,x'), inner, max_size=3),
    max_leaves=20,
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(
    st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "x"]), _json | st.just("2.0")),
    st.booleans(),
)
def test_any_json_is_opened_as_the_standard_library_reads_it(
    request: dict[str, Any], ascii_only: bool
) -> None:
    body = json.dumps(request, ensure_ascii=ascii_only).encode(errors="replace")
    try:
        call = open_envelope(body)
    except EnvelopeError:
        return
    assert call.method == request["method"]
    assert json.loads(call.id) == request.get("id")
    assert call.notification == ("id" not in request)
    assert json.loads(bytes(call.params)) == (request.get("params") or {})
