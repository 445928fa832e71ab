"""What an agent's error means for the handoff.

Duty: from HTTP status, JSON-RPC error, HTTP+JSON error or gRPC status to ``AgentError``.
Rules: 429 and 503 mean that nothing was started; the statuses of gRPC like them only if the agent's own
details are with them, for the library makes the same ones when a connection breaks. 502 and 504 leave it
open; any other error is an answer. Codes of the first generation from -32006 on mean other things than in
1.0. The agent's own words are never kept.
Sources: A2A 1.0 section 5.4; RFC 9110 sections 10.2.3 and 15; ``a2a.json`` of 0.1.
Not here: failures of the connection (``http``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import Binding, Generation
from a2a_handoff.core.errors import ERRORS, HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Sent
from a2a_handoff.wire.envelope import open_object

_RETRY_AFTER_MAX_S = 86_400.0

#: The agent refused the call before it did anything: the request is not for it, or not like this.
_REFUSALS: Final = frozenset(
    {-32700, -32600, -32601, -32602, -32002, -32003, -32004, -32005, -32007, -32008, -32009}
)

#: Codes that mean something else in the first generation.
_FIRST: Mapping[int, Outcome] = MappingProxyType(
    {
        -32006: Outcome.TARGET_REJECTED,
        -32007: Outcome.TARGET_AUTH,
        -32008: Outcome.TARGET_AUTH,
        -32009: Outcome.TARGET_REJECTED,
        -32010: Outcome.TARGET_UNAVAILABLE,
    }
)

#: Errors of HTTP+JSON name a reason (``google.rpc.ErrorInfo``); 0.3 servers name an error class.
_REASONS: Mapping[str, int] = MappingProxyType(
    {code.value.upper(): row.jsonrpc for code, row in ERRORS.items()}
    | {"".join(code.value.title().split("_")) + "Error": row.jsonrpc for code, row in ERRORS.items()}
)

#: By these the agent itself says that it did not take the request.
_NOT_STARTED: Final = frozenset({"RATE_LIMITED", "UNAVAILABLE"})

#: Statuses of gRPC that the library makes when it lost the connection, or that leave open what was done.
_UNCERTAIN: Final = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED", "ABORTED"})

#: What statuses of gRPC without details mean (A2A 1.0 section 5.4).
_STATUSES: Mapping[str, int] = MappingProxyType(
    {"NOT_FOUND": -32001, "INVALID_ARGUMENT": -32602, "UNIMPLEMENTED": -32601, "FAILED_PRECONDITION": -32004}
)

_REST_ERROR: Final = re.compile(rb'\s*\{\s*"(?:error|type)"')


class _RpcError(msgspec.Struct):
    code: int | None = None


class _Envelope(msgspec.Struct):
    result: Raw = Raw(b"")
    error: _RpcError | None = None


class _Detail(msgspec.Struct):
    reason: str = ""


class _RestStatus(msgspec.Struct):
    details: list[_Detail] | None = None


class _RestError(msgspec.Struct):
    error: _RestStatus | None = None
    type: str = ""


_envelope = msgspec.json.Decoder(_Envelope)
_rest_error = msgspec.json.Decoder(_RestError)


def result_of(body: bytes, binding: Binding, generation: Generation) -> bytes:
    """The result in an answer with a good status, or in one stream event.

    Raises ``AgentError``: the error that is in it, or ``invalid_response`` if it is neither.
    """
    if binding is Binding.GRPC:
        return body  # of our own making, out of a message
    try:
        open_object(body)
    except HandoffError:
        raise invalid("the answer is not JSON that can be passed on") from None
    if binding is Binding.HTTP_JSON:
        if _REST_ERROR.match(body) and (fault := _rest_fault(body, generation)):
            raise fault
        return body
    try:
        envelope = _envelope.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise invalid("the answer is not JSON-RPC") from None
    if envelope.error is not None:
        raise rpc_fault(envelope.error.code, generation)
    result = bytes(envelope.result)
    if result in (b"", b"null"):
        raise invalid("the answer has no result")
    return result


def status_fault(
    status: int, retry_after: str, body: bytes, binding: Binding, generation: Generation, *, now: float
) -> AgentError:
    """The fault behind an HTTP status that is not a success. ``now`` is in epoch seconds."""
    detail = f"HTTP {status}"
    if status in (429, 503):
        return AgentError(
            Outcome.TARGET_UNAVAILABLE,
            detail,
            sent=Sent.NO,
            again=True,
            retry_after_s=retry_after_s(retry_after, now=now),
        )
    if status in (502, 504):
        return AgentError(Outcome.TARGET_UNAVAILABLE, detail, sent=Sent.MAYBE, again=True)
    if status in (401, 403):
        return AgentError(Outcome.TARGET_AUTH, detail, sent=Sent.YES)
    if 300 <= status < 400:
        return invalid(f"{detail}: redirects are not followed")
    fault = _rest_fault(body, generation) if binding is Binding.HTTP_JSON else _rpc_fault(body, generation)
    if fault is not None:
        return fault
    if status >= 500:
        return AgentError(Outcome.TARGET_FAILED, detail, sent=Sent.YES)
    return invalid(detail)


def rpc_status_fault(
    name: str, text: str, reason: str, retry_after_s: float | None, generation: Generation
) -> AgentError:
    """The fault behind a gRPC status. ``reason`` is what the agent's own details name, or empty.

    A status without details may have been made by the library here, by a proxy, or by the agent.
    """
    detail = f"gRPC {name}"
    if reason in _NOT_STARTED:
        wait_s = None if retry_after_s is None else min(retry_after_s, _RETRY_AFTER_MAX_S)
        return AgentError(Outcome.TARGET_UNAVAILABLE, detail, sent=Sent.NO, again=True, retry_after_s=wait_s)
    # Servers of 0.3 have no details, and name an error class before their words.
    code = _REASONS.get(reason or text.partition(":")[0])
    if code is not None:
        return rpc_fault(code, generation, protocol="gRPC")
    if name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return AgentError(Outcome.TARGET_AUTH, detail, sent=Sent.YES)
    if "CLIENT: Received message larger" in text:
        return invalid("an answer that is too large")
    if "SERVER: Received message larger" in text:
        return AgentError(Outcome.TARGET_REJECTED, detail, sent=Sent.YES)
    if name in _UNCERTAIN or "RST_STREAM" in text or "Stream removed" in text:
        return AgentError(Outcome.TARGET_UNAVAILABLE, detail, sent=Sent.MAYBE, again=True)
    if name == "DEADLINE_EXCEEDED":
        return AgentError(Outcome.TIMEOUT, detail, sent=Sent.MAYBE, again=True)
    return rpc_fault(_STATUSES.get(name), generation, protocol=detail)


def rpc_fault(code: int | None, generation: Generation, *, protocol: str = "JSON-RPC") -> AgentError:
    """The fault behind an error code; ``None`` is an error that did not say."""
    detail = f"{protocol} error" if code is None else f"{protocol} error {code}"
    outcome = Outcome.TARGET_REJECTED if code in _REFUSALS else Outcome.TARGET_FAILED
    if generation is Generation.V0_1 and code is not None:
        outcome = _FIRST.get(code, outcome)
    limited = outcome is Outcome.TARGET_UNAVAILABLE
    return AgentError(
        outcome, detail, sent=Sent.NO if limited else Sent.YES, again=limited, jsonrpc_code=code
    )


def invalid(detail: str) -> AgentError:
    """An answer that is not A2A."""
    return AgentError(Outcome.INVALID_RESPONSE, detail, sent=Sent.YES)


def retry_after_s(header: str, *, now: float) -> float | None:
    """Seconds of a ``Retry-After`` header (RFC 9110 section 10.2.3); ``None`` without a valid one.

    At most a day: a longer wait is not for a handoff.
    """
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _RETRY_AFTER_MAX_S)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _RETRY_AFTER_MAX_S)


def _rpc_fault(body: bytes, generation: Generation) -> AgentError | None:
    """Servers of the first generation send JSON-RPC errors with status 400."""
    try:
        envelope = _envelope.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return None if envelope.error is None else rpc_fault(envelope.error.code, generation)


def _rest_fault(body: bytes, generation: Generation) -> AgentError | None:
    try:
        answer = _rest_error.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    names = [answer.type]
    if answer.error is not None:
        names += [detail.reason for detail in answer.error.details or ()]
    elif not answer.type:
        return None
    code = next((_REASONS[name] for name in names if name in _REASONS), None)
    return rpc_fault(code, generation, protocol="HTTP+JSON")
