"""The correlation id is the trace context: derivation of trace ids, root span ids and parents.

Duty: which trace a chain is, what a hop's span hangs below, what is sampled; pure functions over
strings. ``plan_hop`` is the one rule for parents.
Rules: every process finds the same trace from the same correlation id; nothing hangs below a span
that nobody exports; a caller may continue its own trace only if it is trusted.
Sources: W3C Trace Context level 1 (7.2 on denial of service by sampled flags); level 2 for why only 56
bits of the id decide on sampling.
Not here: making span ids (they come in as values), deriving spans (``spans``), exporting
(``telemetry``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VERBATIM_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE = re.compile(r"[\x20-\x7e\t]*")
_TRACESTATE_MAX = 512
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16
DEFAULT_TENANT = "default"


class ParentSource(StrEnum):
    """Where the parent of a hop's span was found (attribute ``handoff.parent.source``)."""

    PROPAGATED = "propagated"
    STORED = "stored"
    ROOT = "root"


class SpanRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A span somewhere: 32 and 16 lower-case hex digits, zeros kept."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The W3C header. The random flag (0x02) is never set: callers may choose the id."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


class ServerSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The span of the request that created the handoff, built after the commit.

    It lies in the chain's trace, or in the caller's own if that is another one. It ends with the
    commit: what is answered later is not known then, so it carries no status.
    """

    span: SpanRef
    parent_span_id: str
    started_at: float
    method: str
    route: str
    rpc_method: str = ""
    protocol_version: str = ""


class Arrival(Protocol):
    """The request that brought a handoff. ``route`` is a template, never a path.

    ``started_at`` is 0 if there was none: a directive creates a handoff without a request.
    """

    @property
    def method(self) -> str:
        """The HTTP method."""
        ...

    @property
    def route(self) -> str:
        """The template of the path."""
        ...

    @property
    def rpc_method(self) -> str:
        """The A2A method; empty if it is not A2A."""
        ...

    @property
    def protocol_version(self) -> str:
        """The A2A version; empty if it is not A2A."""
        ...

    @property
    def started_at(self) -> float:
        """Epoch seconds."""
        ...


class InboundTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller said of traces: two ``traceparent`` values as they came, empty if there was none.

    ``http`` is the header, ``tracestate`` belongs to it; ``context`` is ``handoff_context.traceparent``.
    ``policy``: continue the caller's trace if it is ``trusted``, else as ``restart``; ``restart`` a trace
    of our own that links to it; ``drop`` it.
    """

    http: str = ""
    context: str = ""
    tracestate: str = ""
    trusted: bool = False
    policy: Literal["continue", "restart", "drop"] = "continue"


class HopTrace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    links: tuple[SpanRef, ...] = ()
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


def derived_span_id(span_id: str, label: str) -> str:
    """A further span id, made from one in the log, so that every replica makes the same one."""
    digest = hashlib.sha256(b"handoff/span/v1\0" + label.encode() + b"\0" + bytes.fromhex(span_id))
    made = digest.hexdigest()[:16]
    return made if made != _NO_SPAN else "0" * 15 + "1"


def agent_span_id(invoked: str) -> str:
    """The span that stands for an agent at work, made from the one that it was invoked under."""
    return derived_span_id(invoked, "agent")


def shows_itself(traceparent: str, *, trace_id: str, invoked: str) -> bool:
    """Whether an agent answered within the trace, by a span of its own.

    ``invoked`` is the span that it was invoked under. An agent that knows nothing of tracing may pass
    that on as it came.
    """
    ref = parse_traceparent(traceparent) if traceparent else None
    return ref is not None and ref.trace_id == trace_id and ref.span_id != invoked


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


def parse_tracestate(header: str) -> str:
    """A ``tracestate`` fit to be passed on; empty if it is not (W3C section 3.3)."""
    return header.strip() if len(header) <= _TRACESTATE_MAX and _TRACESTATE.fullmatch(header) else ""


def plan_hop(
    *,
    correlation_id: str,
    tenant: str,
    new_correlation_id: str,
    inbound: InboundTrace,
    call: Arrival,
    new_span_id: Callable[[], str],
    stored: SpanRef | None = None,
    known_chain: bool = False,
    ratio: float = 1.0,
) -> tuple[HopTrace, str]:
    """Where a new hop stands in its chain's trace, and the correlation id that it goes by.

    Without a correlation id a trusted, sampled caller's trace is continued: the chain is named after
    it and its root hangs below the caller's span. Else the chain gets the new id.

    The parent is the first of: a trusted, sampled span of the chain's own trace that the caller named
    (the context's before the header's); ``stored``, the span of the sending agent's hop; the root. An
    agent that only passes on the span that it was invoked under named none: ``stored`` stands for it. The
    server span of the request stands in between. If the caller's span is in another trace, the server
    span stays in that one, and hop and server span link to each other.

    ``stored.sampled`` is the chain's decision and holds; ``ratio`` decides for a chain without one.
    """
    policy = inbound.policy if inbound.trusted or inbound.policy == "drop" else "restart"
    header = _sampled(inbound.http)
    heard: tuple[SpanRef, ...] = ()
    if policy != "drop" and (inbound.context or inbound.http):
        heard = tuple(filter(None, (_sampled(inbound.context), header)))
    if correlation_id in ("", _NO_TRACE):
        # A name that does not lead back to the caller's trace would split the chain.
        named = [ref.trace_id for ref in heard if trace_id_of(ref.trace_id, tenant) == ref.trace_id]
        correlation_id = named[0] if named and policy == "continue" else new_correlation_id

    trace_id = stored.trace_id if stored else trace_id_of(correlation_id, tenant)
    sampled = stored.sampled if stored else keeps(trace_id, ratio)
    root = root_span_id(trace_id)
    stands_in = stored.span_id if stored else ""
    inside: SpanRef | None = None
    outside: tuple[SpanRef, ...] = ()
    if heard:
        ours = [ref for ref in heard if ref.trace_id == trace_id and policy == "continue"]
        inside = next((ref for ref in ours if agent_span_id(ref.span_id) != stands_in), None)
        outside = tuple(ref for ref in heard if ref.trace_id != trace_id)
    if inside is not None:
        parent, source = inside.span_id, ParentSource.PROPAGATED
    elif stored is not None:
        parent, source = stored.span_id, ParentSource.STORED
    else:
        parent, source = root, ParentSource.ROOT

    hop, route = new_span_id(), new_span_id()
    server: ServerSpan | None = None
    if call.started_at:
        if inside is None and outside and policy == "continue":
            theirs = outside[-1]
            server = _server_span(call, replace(theirs, span_id=new_span_id()), theirs.span_id)
            outside = (server.span, *outside)
        else:
            own = SpanRef(trace_id=trace_id, span_id=new_span_id(), sampled=sampled)
            server = _server_span(call, own, parent)
            parent = own.span_id

    return HopTrace(
        trace_id=trace_id,
        sampled=sampled,
        hop_span_id=hop,
        route_span_id=route,
        parent_span_id=parent,
        parent_source=source,
        server=server,
        root_parent=inside if not known_chain and inside and inside.span_id != root else None,
        links=_one_per_trace(outside),
        tracestate=parse_tracestate(inbound.tracestate)
        if inside and header and inside.trace_id == header.trace_id
        else "",
    ), correlation_id


def _sampled(traceparent: str) -> SpanRef | None:
    """A span that the caller named; ``None`` unless it is exported: it would leave an orphan."""
    ref = parse_traceparent(traceparent) if traceparent else None
    return ref if ref is not None and ref.sampled else None


def _server_span(call: Arrival, span: SpanRef, parent_span_id: str) -> ServerSpan:
    return ServerSpan(
        span=span,
        parent_span_id=parent_span_id,
        started_at=call.started_at,
        method=call.method,
        route=call.route,
        rpc_method=call.rpc_method,
        protocol_version=call.protocol_version,
    )


def _one_per_trace(refs: tuple[SpanRef, ...]) -> tuple[SpanRef, ...]:
    """One link is enough to reach a trace."""
    first: dict[str, SpanRef] = {}
    for ref in refs:
        first.setdefault(ref.trace_id, ref)
    return tuple(first.values())
