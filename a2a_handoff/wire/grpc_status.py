"""How an error looks on gRPC, both ways.

Duty: from a ``HandoffError`` to the ``google.rpc.Status`` of the trailers; from the agent's to what it names.
Rules: a client takes 8 kB of metadata, so long details are cut: wrong fields from the last, then whole ones.
Sources: A2A 1.0 section 10.6, AIP-193.
Not here: what an error is on HTTP (``faults``), what it means for a handoff (``client.faults``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs] - it has none

from a2a_handoff.core.errors import HandoffError
from a2a_handoff.wire.faults import details

#: The trailer that carries it.
TRAILER: Final = "grpc-status-details-bin"

#: There are other metadata than these, and base64 makes them larger.
_BYTES_MAX: Final = 4_096
_MESSAGE_CHARS_MAX: Final = 1_024


def message_of(error: HandoffError) -> str:
    """The text of a status, as long as one may be."""
    return error.message[:_MESSAGE_CHARS_MAX]


def status_of(error: HandoffError, number: int) -> bytes:
    """The details of an error under the ``number`` of its status."""
    shown = details(error)
    while True:
        status = {"code": number, "message": message_of(error), "details": shown}
        written = ParseDict(status, status_pb2.Status()).SerializeToString()
        if len(written) <= _BYTES_MAX or not _shortened(shown):
            return written


def _shortened(shown: list[dict[str, Any]]) -> bool:
    for detail in shown:
        violations = cast("list[Any]", detail.get("fieldViolations", []))
        if len(violations) > 1:
            del violations[len(violations) // 2 :]
            return True
    if len(shown) > 1:
        shown.pop()
        return True
    had_facts = bool(shown[0]["metadata"])
    shown[0]["metadata"] = {}
    return had_facts


class Named(NamedTuple):
    """What details name: the reason, empty if none, and the seconds to wait."""

    reason: str = ""
    retry_after_s: float | None = None


def named_by(status: bytes) -> Named:
    """Read the details of a status; what cannot be read names nothing."""
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    try:
        for detail in status_pb2.Status.FromString(status).details:
            detail.Unpack(info)
            detail.Unpack(retry)
    except DecodeError:
        return Named()
    wait_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return Named(info.reason, wait_s if wait_s > 0 else None)
