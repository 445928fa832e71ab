"""The correlation id is the trace context: derivation of trace ids, root span ids and parents.

Duty: rules R1 to R4 and R7 of tracing, as pure functions over strings.
Sources: W3C Trace Context level 1; level 2 for why only 56 bits of the id decide on sampling.
Not here: making span ids (they come in as values), exporting (``telemetry``).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import StrEnum

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VERBATIM_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16
DEFAULT_TENANT = "default"


class ParentSource(StrEnum):
    """Where the parent of a hop's span was found (attribute ``handoff.parent.source``)."""

    PROPAGATED = "propagated"
    STORED = "stored"
    ROOT = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRef:
    """A span somewhere: 32 and 16 lower-case hex digits, zeros kept."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The W3C header. The random flag (0x02) is never set: callers may choose the id."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpan:
    """The span of the request that created the handoff, built after the commit.

    ``parent_span_id`` is empty for a span without parent.
    """

    span: SpanRef
    parent_span_id: str
    started_at: float
    method: str
    route: str
    rpc_method: str = ""
    protocol_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HopTrace:
    """Everything that the spans of one hop need and that chance decided.

    ``root_parent``: the chain continues a caller's trace, so its root span hangs below this one.
    ``parent_span_id`` is the parent of the hop's span. ``links`` point to the caller's own trace.
    ``tracestate`` is the caller's, passed on (W3C Trace Context section 3.3).
    """

    trace_id: str
    sampled: bool
    hop_span_id: str
    route_span_id: str
    parent_span_id: str
    parent_source: ParentSource
    server: ServerSpan | None = None
    root_parent: SpanRef | None = None
    links: tuple[SpanRef, ...] = field(default=())
    tracestate: str = ""

    @property
    def root_span_id(self) -> str:
        """The id of the chain's root span."""
        return root_span_id(self.trace_id)


def trace_id_of(correlation_id: str, tenant: str = DEFAULT_TENANT) -> str:
    """The trace id of a chain (R1): 32 lower-case hex digits, never all zeros.

    In the default tenant a canonical UUID of version 4 or 7, and a plain W3C trace id, are taken
    verbatim. Everything else is hashed, so that any business id finds its trace, on every replica.
    """
    if tenant == DEFAULT_TENANT:
        lowered = correlation_id.lower()
        if _VERBATIM_UUID.fullmatch(lowered) and _UUID.fullmatch(correlation_id):
            return lowered.replace("-", "")
        if _TRACE_ID.fullmatch(correlation_id) and correlation_id != _NO_TRACE:
            return correlation_id
    key = correlation_id.lower() if _UUID.fullmatch(correlation_id) else correlation_id
    scope = "" if tenant == DEFAULT_TENANT else tenant
    digest = hashlib.sha256(
        b"handoff/trace/v1\0" + scope.encode() + b"\0" + key.encode(errors="surrogatepass")
    ).hexdigest()[:32]
    return digest if digest != _NO_TRACE else "0" * 31 + "1"


def root_span_id(trace_id: str) -> str:
    """The span id of a chain's root (R2), derived so that every process knows it."""
    digest = hashlib.sha256(b"handoff/root-span/v1\0" + bytes.fromhex(trace_id)).hexdigest()[:16]
    return digest if digest != _NO_SPAN else "0" * 15 + "1"


def keeps(trace_id: str, ratio: float) -> bool:
    """Whether a chain is sampled (R7).

    Only the 56 low bits count: the version and variant bits of a UUID are not random and would
    make a plain TraceIdRatioBased sampler drop every derived id (W3C Trace Context level 2).
    """
    return int(trace_id[-14:], 16) < round(ratio * (1 << 56))


def parse_traceparent(header: str) -> SpanRef | None:
    """Read a ``traceparent`` header; ``None`` if it is not valid (W3C section 3.2)."""
    match = _TRACEPARENT.fullmatch(header.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return SpanRef(trace_id=trace_id, span_id=span_id, sampled=bool(int(flags, 16) & 1))
