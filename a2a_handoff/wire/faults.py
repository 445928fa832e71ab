"""How an error looks on the wire: JSON-RPC, A2A HTTP+JSON and problem details.

Duty: from a ``HandoffError`` to the body, status and headers of each surface and generation.
Rules: nothing is shown that is not in the error: no stack, no SQL, no upstream body. On JSON-RPC the
HTTP status is 200, but for what the HTTP layer itself must say (401, 403, 413, 429, 503).
Sources: A2A 1.0 sections 5.4, 9.5 and 11.6, RFC 9457 (problem details), RFC 9110 (Retry-After,
WWW-Authenticate), AIP-193, ``a2a.json`` of 0.1.
Not here: the table of errors (``core.errors``), gRPC status.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.wire.shapes import pack

A2A_DOMAIN: Final = "a2a-protocol.org"
OWN_DOMAIN: Final = "a2a-handoff"
JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"

#: Names each error in problem details (RFC 9457 section 3.1.1).
PROBLEM_TYPE: Final = "urn:a2a-handoff:error:"

#: The fact that lists the methods of a path (RFC 9110 section 10.2.1).
ALLOW: Final = "allow"

#: Seconds that a caller is asked to wait when the error does not say.
DEFAULT_RETRY_AFTER_S: Final = 1

_A2A_CODES: Final = frozenset(
    {
        Code.PARSE_ERROR,
        Code.INVALID_REQUEST,
        Code.METHOD_NOT_FOUND,
        Code.INVALID_PARAMS,
        Code.INTERNAL,
        Code.TASK_NOT_FOUND,
        Code.TASK_NOT_CANCELABLE,
        Code.PUSH_NOTIFICATION_NOT_SUPPORTED,
        Code.UNSUPPORTED_OPERATION,
        Code.CONTENT_TYPE_NOT_SUPPORTED,
        Code.INVALID_AGENT_RESPONSE,
        Code.EXTENDED_CARD_NOT_CONFIGURED,
        Code.EXTENSION_SUPPORT_REQUIRED,
        Code.VERSION_NOT_SUPPORTED,
    }
)

#: -32006 to -32009 mean other things in the first generation (streaming, authentication, authorisation
#: and task state), so 1.0's never get through.
_FIRST_CODES: Final[Mapping[int, int]] = MappingProxyType(
    {-32006: -32603, -32007: -32004, -32008: -32004, -32009: -32004}
)

#: Statuses that proxies and HTTP clients act on; JSON-RPC keeps them.
_HTTP_STATUSES: Final = frozenset({401, 403, 413, 429, 503})

#: The names by which clients of 0.3 over HTTP know an error.
_OLD_NAMES: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.PARSE_ERROR: "JSONParseError",
        Code.INTERNAL: "InternalError",
        Code.EXTENDED_CARD_NOT_CONFIGURED: "ExtendedAgentCardNotConfiguredError",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An HTTP answer that carries an error."""

    status: int
    media_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def reason(code: Code) -> str:
    """The error's name on every surface (A2A 1.0 section 11.6): upper case, such as TASK_NOT_FOUND."""
    return code.value.upper()


def details(error: HandoffError) -> list[dict[str, Any]]:
    """The typed details of an error (A2A 1.0 section 3.3.2), most important first."""
    found: list[dict[str, Any]] = [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason(error.code),
            "domain": A2A_DOMAIN if error.code in _A2A_CODES else OWN_DOMAIN,
            "metadata": dict(error.facts),
        }
    ]
    if error.violations:
        found.append(
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": _violations(error),
            }
        )
    wait = retry_after_s(error)
    if wait is not None:
        found.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait}s"})
    return found


def retry_after_s(error: HandoffError) -> int | None:
    """Whole seconds to wait before the same request may succeed, at least 1; ``None`` for never."""
    if error.retry_after_s is not None:
        return max(1, math.ceil(error.retry_after_s))
    waits = error.code in (Code.RATE_LIMITED, Code.UNAVAILABLE)
    return DEFAULT_RETRY_AFTER_S if waits else None


def error_object(error: HandoffError, generation: Generation) -> bytes:
    """The JSON-RPC error object.

    ``data`` is the array of typed details; in the first generation, whose schema wants an object, it
    is the details merged into one.
    """
    code = error.row.jsonrpc
    data: Any = details(error)
    if generation is Generation.V0_1:
        code = _FIRST_CODES.get(code, code)
        data = {name: value for detail in data for name, value in detail.items() if name != "@type"}
    return pack({"code": code, "message": error.message, "data": data})


def jsonrpc(error: HandoffError, generation: Generation, request_id: bytes = b"null") -> Refusal:
    """The whole JSON-RPC answer. ``request_id`` is the id as it came, ``null`` if it is not known."""
    status = error.row.http if error.row.http in _HTTP_STATUSES else 200
    body = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, error_object(error, generation))
    return Refusal(status=status, media_type=JSON, body=body, headers=_headers(error))


def a2a_http(error: HandoffError, generation: Generation) -> Refusal:
    """The answer of the A2A HTTP+JSON binding: google.rpc.Status in ``error`` (section 11.6).

    Generation 0.3 also has ``type``, ``code`` (that of JSON-RPC) and ``message`` at the top, where the
    Python and the JavaScript SDK of that generation look. The first generation over plain HTTP gets the
    JSON-RPC error object in ``error``.
    """
    row = error.row
    if generation is Generation.V0_1:
        body = b'{"error":%b}' % error_object(error, generation)
        return Refusal(status=row.a2a_http, media_type=JSON, body=body, headers=_headers(error))
    answer: dict[str, Any] = {
        "error": {
            "code": row.a2a_http,
            "status": row.grpc,
            "message": error.message,
            "details": details(error),
        }
    }
    if generation is Generation.V0_3:
        answer |= {"type": _old_name(error.code), "code": row.jsonrpc, "message": error.message}
    return Refusal(status=row.a2a_http, media_type=JSON, body=pack(answer), headers=_headers(error))


def problem(error: HandoffError, instance: str = "") -> Refusal:
    """The answer of the native surfaces: problem details (RFC 9457). ``instance`` is the path."""
    row = error.row
    answer: dict[str, Any] = {
        "type": PROBLEM_TYPE + error.code.value,
        "title": row.meaning,
        "status": row.http,
        "detail": error.message,
        "code": error.code.value,
        "retryable": row.retryable,
    }
    if instance:
        answer["instance"] = instance
    if error.violations:
        answer["errors"] = _violations(error)
    if error.facts:
        answer["facts"] = dict(error.facts)
    return Refusal(status=row.http, media_type=PROBLEM_JSON, body=pack(answer), headers=_headers(error))


def _violations(error: HandoffError) -> list[dict[str, str]]:
    return [{"field": fault.field, "description": fault.description} for fault in error.violations]


def _headers(error: HandoffError) -> tuple[tuple[str, str], ...]:
    wait = retry_after_s(error)
    headers = () if wait is None else (("Retry-After", str(wait)),)
    if ALLOW in error.facts:
        return (*headers, ("Allow", error.facts[ALLOW]))
    challenge = _challenge(error)
    return (*headers, ("WWW-Authenticate", challenge)) if challenge else headers


def _challenge(error: HandoffError) -> str:
    """How to get in (RFC 6750 section 3); empty if that is not what is wrong."""
    if error.code is Code.UNAUTHENTICATED:
        return 'Bearer error="invalid_token"' if error.facts else "Bearer"
    if error.code is Code.FORBIDDEN and "scope" in error.facts:
        return f'Bearer error="insufficient_scope", scope="{error.facts["scope"]}"'
    return ""


def _old_name(code: Code) -> str:
    words = "".join(word.capitalize() for word in code.value.split("_"))
    return _OLD_NAMES.get(code, f"{words}Error")
