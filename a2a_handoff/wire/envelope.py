"""The JSON-RPC 2.0 envelope, and what every JSON body must be before anybody reads it.

Duty: vet a body (UTF-8, nesting, numbers, how many values), open the envelope, close the answer.
Rules: ids are echoed byte for byte. A batch is refused whole, so that no half of it is done. Of
duplicate members the last one counts (RFC 8259 section 4 leaves that open); inside what is passed on
unread all of them stay. Lone surrogate escapes, NaN and Infinity are not JSON here. Vetting costs
about as much as the one decode that it goes before.
Sources: JSON-RPC 2.0, RFC 8259.
Not here: methods and their params (``requests``), how errors look (``faults``), body size limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.errors import Code, HandoffError, Violation

#: Objects and arrays inside each other.
DEPTH_MAX: Final = 64

#: Bytes of a request id as written, and characters of a method's name.
ID_BYTES_MAX: Final = 1_024
METHOD_CHARS_MAX: Final = 256

NO_ID: Final = b"null"
_NOTHING: Final = Raw(b"")
_NO_PARAMS: Final = Raw(b"{}")

#: One pass that shows at once how many brackets there are and whether a number may be too large.
_FOLD: Final = bytes.maketrans(b"[]123456789E", b"{}000000000e")
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'"[]{}'))
_TOO_DEEP: Final = b"{" * (DEPTH_MAX + 1)

#: What a value stands after, and the quotes that begin and end strings.
_NOT_SEPARATORS: Final = bytes(set(range(256)) - set(b'",[{'))

#: A step down and a step up, as signed bytes.
_STEPS: Final = bytes.maketrans(b"{}", b"\x01\xff")

_LONG_DIGITS: Final = b"0" * 200

#: What no double may hold. Possessive, so that a run of digits is looked at once, however long it is.
_HUGE: Final = re.compile(
    rb"(?<![0-9.eE+-])-?(?:[0-9.]++[eE]\+?[0-9]{3,}+|[0-9]{200,}+[0-9.]*+(?:[eE][+-]?[0-9]++)?)"
)


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    jsonrpc: Raw = _NOTHING
    id: Raw = _NOTHING
    method: Raw = _NOTHING
    params: Raw = _NOTHING


_envelope = msgspec.json.Decoder(_Envelope)
_method = msgspec.json.Decoder(str)
_object = msgspec.json.Decoder(dict[str, Raw])


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """An opened envelope.

    ``id`` is the request id as written, ``null`` for a notification. A notification would change
    something without an answer, so whoever finds nothing else wrong refuses it. ``params`` is a JSON
    object as written, ``{}`` if there are none.
    """

    id: bytes
    method: str
    params: Raw
    notification: bool = False


class EnvelopeError(HandoffError):
    """A refused envelope, with the id to answer under: ``null`` where none can be told."""

    def __init__(
        self,
        code: Code,
        message: str,
        request_id: bytes = NO_ID,
        *,
        violations: tuple[Violation, ...] = (),
        facts: Mapping[str, str] | None = None,
    ) -> None:
        self.request_id = request_id
        super().__init__(code, message, violations=violations, facts=facts)


def open_envelope(body: bytes, values_max: int | None = None) -> Call:
    """Read a JSON-RPC request.

    Raises ``EnvelopeError``: ``parse_error`` if the body is not JSON, ``invalid_request`` if it is not
    one request, ``invalid_params`` if params are not an object or a number overflows a double,
    ``payload_too_large`` if there are more than ``values_max`` values.
    """
    if values_max is not None and _has_more(body, values_max):
        error = too_many(values_max)
        raise EnvelopeError(
            error.code, error.message, _id_in(body), violations=error.violations, facts=error.facts
        )
    try:
        folded = _fold(body)
        _vet_text(body, folded)
        envelope = _envelope.decode(body)
    except msgspec.ValidationError:
        raise EnvelopeError(Code.INVALID_REQUEST, _not_one_request(body)) from None
    except (msgspec.DecodeError, RecursionError):
        raise EnvelopeError(Code.PARSE_ERROR, "The body is not JSON.") from None
    except HandoffError as error:
        raise EnvelopeError(error.code, error.message) from None
    request_id = _request_id(envelope.id)
    if envelope.jsonrpc != Raw(b'"2.0"'):
        raise EnvelopeError(Code.INVALID_REQUEST, 'jsonrpc must be "2.0".', request_id)
    method = _text(envelope.method)
    if not 0 < len(method) <= METHOD_CHARS_MAX:
        message = f"method must be a string of 1 to {METHOD_CHARS_MAX} characters."
        raise EnvelopeError(Code.INVALID_REQUEST, message, request_id)
    try:
        _vet_numbers(body, folded)
    except HandoffError as error:
        raise EnvelopeError(error.code, error.message, request_id, violations=error.violations) from None
    return Call(
        id=request_id,
        method=method,
        params=_params(envelope.params, request_id),
        notification=envelope.id == _NOTHING,
    )


def answer(request_id: bytes, result: bytes) -> bytes:
    """A JSON-RPC success. ``result`` is JSON."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)


def open_object(body: bytes, values_max: int | None = None) -> Raw:
    """Vet a body that is a JSON object without an envelope, as HTTP+JSON has it; empty means ``{}``.

    Raises ``HandoffError``: ``parse_error`` if it is not a JSON object, ``invalid_params`` if a number
    overflows a double, ``payload_too_large`` if there are more than ``values_max`` values.
    """
    if not body:
        return _NO_PARAMS
    if values_max is not None and _has_more(body, values_max):
        raise too_many(values_max)
    folded = _fold(body)
    _vet_text(body, folded)
    try:
        _object.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise HandoffError(Code.PARSE_ERROR, "The body is not a JSON object.") from None
    _vet_numbers(body, folded)
    return Raw(body.strip())


def has_envelope(body: bytes) -> bool:
    """Whether what may be a bare object, or nothing good, is meant as a JSON-RPC request."""
    try:
        return "jsonrpc" in _object.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False


# --- vetting -------------------------------------------------------------------------------------


def _fold(body: bytes) -> bytes:
    # To leave something out makes the pass twice as long.
    return body.translate(_FOLD, b"+") if b"+" in body else body.translate(_FOLD)


def _vet_text(body: bytes, folded: bytes) -> None:
    """UTF-8 and nesting, which the decoder does not check in what it skips."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            raise HandoffError(Code.PARSE_ERROR, "The body is not UTF-8.") from None
    if folded.count(b"{") > DEPTH_MAX and _too_deep(body):
        message = f"The body is not JSON, or nested deeper than {DEPTH_MAX}."
        raise HandoffError(Code.PARSE_ERROR, message)


def _too_deep(body: bytes) -> bool:
    """Whether brackets are nested deeper than ``DEPTH_MAX``, in time that grows with the body's length."""
    skeleton = _without_strings(_without_escapes(body).translate(_FOLD, _NOT_STRUCTURE))
    if _TOO_DEEP in skeleton:
        return True
    return max(accumulate(memoryview(skeleton.translate(_STEPS)).cast("b")), default=0) > DEPTH_MAX


def too_many(values_max: int) -> HandoffError:
    """A message has more values than it may."""
    return HandoffError(
        Code.PAYLOAD_TOO_LARGE,
        f"The message has more than {values_max} values. Send fewer, or pass large content by URL.",
        violations=(Violation("", f"has more than {values_max} values"),),
        facts={"limit_values": str(values_max)},
    )


def _has_more(body: bytes, values_max: int) -> bool:
    """Whether there are too many values: what a body costs grows with them more than with its bytes.

    A value stands after a comma or an opening bracket, or is the whole, so these are counted; an empty
    list counts twice. That is quick, but counts those in strings too, so only what is over the limit by
    it, as a long text may be, is counted again without its strings. It comes before all other vetting,
    which takes longer.
    """
    if len(body) <= values_max or _separators(body) < values_max:
        return False
    skeleton = _without_escapes(body).translate(None, _NOT_SEPARATORS)
    # Each string is a value or a name: with twice as many there is no need to look between them.
    return skeleton.count(b'"') > 4 * values_max or _separators(_without_strings(skeleton)) >= values_max


def _separators(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _without_strings(skeleton: bytes) -> bytes:
    """What of a body without escapes stands outside its strings, most of which have nothing in them."""
    skeleton = skeleton.replace(b'""', b"")
    return b"".join(skeleton.split(b'"')[::2]) if b'"' in skeleton else skeleton


def _vet_numbers(body: bytes, folded: bytes) -> None:
    """Numbers that no double can hold: other parsers make Infinity of them, which is not JSON.

    Only a three-digit exponent or a very long run of digits can be one, and few bodies have those.
    """
    if b"0e000" not in folded and _LONG_DIGITS not in folded:
        return
    numbers = set(_HUGE.findall(b" ".join(_without_escapes(body).split(b'"')[::2])))
    if not any(map(math.isinf, map(float, numbers))):
        return
    shown = next(number for number in numbers if math.isinf(float(number)))[:20].decode()
    raise HandoffError(
        Code.INVALID_PARAMS,
        "A number is outside the range of a double.",
        violations=(Violation("", f"the number {shown} is outside the range of a double"),),
    )


def _without_escapes(body: bytes) -> bytes:
    """With no escaped quote left, so that quotes begin and end strings."""
    if b"\\" not in body:
        return body
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")


# --- members -------------------------------------------------------------------------------------


def _request_id(raw: Raw) -> bytes:
    written = bytes(raw)
    if not written:
        return NO_ID
    if written != b"null" and written[0] not in b'"-0123456789':
        raise EnvelopeError(Code.INVALID_REQUEST, "id must be a string, a number or null.")
    if len(written) > ID_BYTES_MAX:
        raise EnvelopeError(Code.INVALID_REQUEST, f"id may have at most {ID_BYTES_MAX} bytes.")
    return written


def _id_in(body: bytes) -> bytes:
    """The id in a body that is not read for another reason; ``null`` if none can be told."""
    try:
        return _request_id(_envelope.decode(body).id)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, HandoffError):
        return NO_ID


def _params(raw: Raw, request_id: bytes) -> Raw:
    first = bytes(memoryview(raw)[:1])
    if first in (b"", b"n"):
        return _NO_PARAMS
    if first == b"[":
        raise EnvelopeError(Code.INVALID_PARAMS, "params must be an object.", request_id)
    if first != b"{":
        raise EnvelopeError(Code.INVALID_REQUEST, "params must be an object.", request_id)
    return raw


def _text(raw: Raw) -> str:
    try:
        return _method.decode(raw)
    except msgspec.DecodeError:
        return ""


def _not_one_request(body: bytes) -> str:
    if body.lstrip().startswith(b"["):
        return "Batches are not accepted: send one request at a time."
    return "The body is not a JSON-RPC request object."
