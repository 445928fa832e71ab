"""Every error a caller can meet, in one table.

Duty: name the errors, and say once how each one looks on JSON-RPC, HTTP and gRPC.
Rules: a message says what was wrong, where, and what to do; it never carries SQL, paths or stacks.
Not here: rendering (``wire``), and the outcomes of attempts (``events.Outcome``), which are facts
in the log and not errors of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Code(StrEnum):
    """Stable names of the errors. They appear on every surface as ``reason`` (upper case)."""

    # JSON-RPC 2.0 section 5.1
    PARSE_ERROR = "parse_error"
    INVALID_REQUEST = "invalid_request"
    METHOD_NOT_FOUND = "method_not_found"
    INVALID_PARAMS = "invalid_params"
    INTERNAL = "internal"
    # A2A 1.0 section 5.4
    TASK_NOT_FOUND = "task_not_found"
    TASK_NOT_CANCELABLE = "task_not_cancelable"
    PUSH_NOTIFICATION_NOT_SUPPORTED = "push_notification_not_supported"
    UNSUPPORTED_OPERATION = "unsupported_operation"
    CONTENT_TYPE_NOT_SUPPORTED = "content_type_not_supported"
    INVALID_AGENT_RESPONSE = "invalid_agent_response"
    EXTENDED_CARD_NOT_CONFIGURED = "extended_agent_card_not_configured"
    EXTENSION_SUPPORT_REQUIRED = "extension_support_required"
    VERSION_NOT_SUPPORTED = "version_not_supported"
    # Handoffs
    INVALID_CONTEXT = "invalid_context"
    CONTEXT_TOO_LARGE = "context_too_large"
    CONTEXT_REQUIRED = "context_required"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    MAX_HOPS_EXCEEDED = "max_hops_exceeded"
    CYCLE_DETECTED = "cycle_detected"
    HANDOFF_NOT_NEEDED = "handoff_not_needed"
    PARENT_AMBIGUOUS = "parent_ambiguous"
    STALE_ATTEMPT = "stale_attempt"
    NOT_THE_HOLDER = "not_the_holder"
    HANDOFF_ENDED = "handoff_ended"
    WRONG_STATE = "wrong_state"
    PRECONDITION_FAILED = "precondition_failed"
    SNAPSHOT_CONFLICT = "snapshot_conflict"
    # Agents
    AGENT_NOT_FOUND = "agent_not_found"
    INVALID_AGENT = "invalid_agent"
    CARD_UNAVAILABLE = "card_unavailable"
    # The service
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """How one error looks on each protocol.

    ``jsonrpc`` is the JSON-RPC error code, ``http`` the status of the native REST surface,
    ``a2a_http`` the status of the A2A HTTP+JSON binding, ``grpc`` the canonical status name.
    ``retryable`` tells whether the same request may succeed later without change.
    """

    jsonrpc: int
    http: int
    grpc: str
    meaning: str
    remedy: str
    a2a_http: int = 0
    retryable: bool = False


def _row(
    jsonrpc: int,
    http: int,
    grpc: str,
    meaning: str,
    remedy: str,
    *,
    a2a_http: int | None = None,
    retryable: bool = False,
) -> ErrorRow:
    return ErrorRow(jsonrpc, http, grpc, meaning, remedy, http if a2a_http is None else a2a_http, retryable)


#: Codes from -32050 on are ours: JSON-RPC leaves -32000 to -32099 to servers, A2A 1.0 uses -32001 to
#: -32009 of them.
ERRORS: Mapping[Code, ErrorRow] = MappingProxyType(
    {
        Code.PARSE_ERROR: _row(
            -32700, 400, "INVALID_ARGUMENT", "The body is not JSON.", "Send one JSON object in UTF-8."
        ),
        Code.INVALID_REQUEST: _row(
            -32600,
            400,
            "INVALID_ARGUMENT",
            "The envelope is not a JSON-RPC 2.0 request.",
            "Send jsonrpc, id, method and params; batches are not accepted.",
        ),
        Code.METHOD_NOT_FOUND: _row(
            -32601, 404, "UNIMPLEMENTED", "No such method.", "Use a method of the A2A version you name."
        ),
        Code.INVALID_PARAMS: _row(
            -32602, 400, "INVALID_ARGUMENT", "A parameter is missing or wrong.", "Mend the named fields."
        ),
        Code.INTERNAL: _row(
            -32603, 500, "INTERNAL", "The broker failed.", "Report it with the trace id.", retryable=True
        ),
        Code.TASK_NOT_FOUND: _row(
            -32001, 404, "NOT_FOUND", "No such task, or not yours.", "Check the task id."
        ),
        Code.TASK_NOT_CANCELABLE: _row(
            -32002,
            409,
            "FAILED_PRECONDITION",
            "The task has ended.",
            "Read the task; it cannot be canceled any more.",
            a2a_http=400,
        ),
        Code.PUSH_NOTIFICATION_NOT_SUPPORTED: _row(
            -32003,
            400,
            "FAILED_PRECONDITION",
            "Push notifications are not offered here.",
            "Subscribe to the task or poll it.",
        ),
        Code.UNSUPPORTED_OPERATION: _row(
            -32004,
            400,
            "FAILED_PRECONDITION",
            "The operation does not fit the task.",
            "Start a new task; one that has ended takes no more messages.",
        ),
        Code.CONTENT_TYPE_NOT_SUPPORTED: _row(
            -32005,
            415,
            "INVALID_ARGUMENT",
            "The content type is not accepted.",
            "Send application/json.",
            a2a_http=400,
        ),
        Code.INVALID_AGENT_RESPONSE: _row(
            -32006,
            502,
            "INTERNAL",
            "The agent's answer is not A2A.",
            "Tell the agent's owner.",
            a2a_http=500,
        ),
        Code.EXTENDED_CARD_NOT_CONFIGURED: _row(
            -32007,
            400,
            "FAILED_PRECONDITION",
            "There is no extended card.",
            "Use the public card.",
        ),
        Code.EXTENSION_SUPPORT_REQUIRED: _row(
            -32008,
            400,
            "FAILED_PRECONDITION",
            "The target demands an extension.",
            "Name it in A2A-Extensions.",
        ),
        Code.VERSION_NOT_SUPPORTED: _row(
            -32009,
            400,
            "FAILED_PRECONDITION",
            "That protocol version is not spoken here.",
            "Send A2A-Version 1.0 or 0.3.",
        ),
        Code.INVALID_CONTEXT: _row(
            -32602,
            422,
            "INVALID_ARGUMENT",
            "The handoff context is wrong.",
            "Mend the named fields.",
            a2a_http=400,
        ),
        Code.CONTEXT_TOO_LARGE: _row(
            -32602,
            422,
            "INVALID_ARGUMENT",
            "Summary and facts are over the token budget.",
            "Shorten them, move the rest to transcript, or ask for context_overflow: trim.",
            a2a_http=400,
        ),
        Code.CONTEXT_REQUIRED: _row(
            -32602,
            422,
            "INVALID_ARGUMENT",
            "A later hop needs a handoff context.",
            "Send metadata.handoff_context with summary, intent and facts.",
            a2a_http=400,
        ),
        Code.IDEMPOTENCY_CONFLICT: _row(
            -32602,
            409,
            "ALREADY_EXISTS",
            "The same key was used for other content.",
            "Use a new message id or Idempotency-Key for new content.",
        ),
        Code.MAX_HOPS_EXCEEDED: _row(
            -32050,
            409,
            "FAILED_PRECONDITION",
            "The chain has no hops left.",
            "Finish the task, give it back, or escalate to a person.",
        ),
        Code.CYCLE_DETECTED: _row(
            -32051,
            409,
            "FAILED_PRECONDITION",
            "The target is already on the chain.",
            "Give the task back with release, or choose another target.",
        ),
        Code.HANDOFF_NOT_NEEDED: _row(
            -32052,
            409,
            "FAILED_PRECONDITION",
            "The sender can finish the task itself.",
            "Finish it, or state the missing capability.",
        ),
        Code.PARENT_AMBIGUOUS: _row(
            -32602,
            409,
            "FAILED_PRECONDITION",
            "Several open handoffs of the chain are yours.",
            "Name one with parent_handoff_id.",
        ),
        Code.STALE_ATTEMPT: _row(
            -32053,
            409,
            "ABORTED",
            "That attempt has been superseded.",
            "Stop working on it; the task is with somebody else.",
        ),
        Code.NOT_THE_HOLDER: _row(
            -32054,
            403,
            "PERMISSION_DENIED",
            "Another agent holds this handoff.",
            "Act on your own handoffs only.",
        ),
        Code.HANDOFF_ENDED: _row(
            -32055,
            409,
            "FAILED_PRECONDITION",
            "The handoff has ended.",
            "Read it; terminal states are final.",
        ),
        Code.WRONG_STATE: _row(
            -32056,
            409,
            "FAILED_PRECONDITION",
            "The handoff is in a state that does not allow this.",
            "Read its state, then choose another action.",
        ),
        Code.PRECONDITION_FAILED: _row(
            -32062,
            412,
            "ABORTED",
            "The handoff has changed since it was read.",
            "Read it again, then choose anew.",
        ),
        Code.SNAPSHOT_CONFLICT: _row(
            -32602,
            409,
            "ALREADY_EXISTS",
            "A different snapshot exists for this hop.",
            "Snapshots are immutable; start a new hop.",
        ),
        Code.AGENT_NOT_FOUND: _row(
            -32057, 404, "NOT_FOUND", "No such agent.", "List the agents and use one of their ids."
        ),
        Code.INVALID_AGENT: _row(
            -32602,
            422,
            "INVALID_ARGUMENT",
            "The registration or its card is wrong.",
            "Mend the named fields.",
            a2a_http=400,
        ),
        Code.CARD_UNAVAILABLE: _row(
            -32602,
            422,
            "INVALID_ARGUMENT",
            "No card could be had from that address.",
            "See what a2a-handoff agents check says of the address, or register the card inline.",
            a2a_http=400,
        ),
        Code.NOT_FOUND: _row(-32601, 404, "NOT_FOUND", "Nothing is here.", "Check the path and the id."),
        Code.METHOD_NOT_ALLOWED: _row(
            -32601, 405, "UNIMPLEMENTED", "The path does not have this method.", "See /openapi.json."
        ),
        Code.UNAUTHENTICATED: _row(
            -32058, 401, "UNAUTHENTICATED", "Who you are is not known.", "Send a valid bearer token."
        ),
        Code.FORBIDDEN: _row(
            -32059, 403, "PERMISSION_DENIED", "You may not do this.", "Ask for the scope that allows it."
        ),
        Code.PAYLOAD_TOO_LARGE: _row(
            -32602,
            413,
            "RESOURCE_EXHAUSTED",
            "The body is over the limit of its size, or of how many values it has.",
            "Send less, or pass large content by URL.",
        ),
        Code.RATE_LIMITED: _row(
            -32060,
            429,
            "RESOURCE_EXHAUSTED",
            "Too many requests, or too much of yours is open.",
            "Wait for Retry-After.",
            retryable=True,
        ),
        Code.UNAVAILABLE: _row(
            -32061,
            503,
            "UNAVAILABLE",
            "The broker cannot take work now.",
            "Try again after Retry-After.",
            retryable=True,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault at one place. ``field`` is a path such as ``message.parts[0].text``."""

    field: str
    description: str


class HandoffError(Exception):
    """A refused call: nothing was changed by it.

    ``message`` tells the caller what was wrong and what to do, ``violations`` names every wrong
    field, ``facts`` carries machine-readable details (counts, paths of a cycle, existing ids).
    """

    def __init__(
        self,
        code: Code,
        message: str = "",
        *,
        violations: tuple[Violation, ...] = (),
        facts: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        row = ERRORS[code]
        self.code = code
        self.message = message or f"{row.meaning} {row.remedy}"
        self.violations = violations
        self.facts: Mapping[str, str] = MappingProxyType(dict(facts or {}))
        self.retry_after_s = retry_after_s
        super().__init__(f"{code.value}: {self.message}")

    @property
    def row(self) -> ErrorRow:
        """The error's line in the table."""
        return ERRORS[self.code]
