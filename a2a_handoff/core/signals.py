"""The names of everything that a trace of the broker shows, as data.

Duty: span names, attributes and span events, each with its meaning. The reference page is checked
against these tables, and so is every span that the tests derive.
Rules: names of OpenTelemetry's GenAI and HTTP conventions where there is one, the prefix ``handoff.``
where there is none. No free text, no message bodies, no paths, no queries.
Not here: deriving spans (``spans``), metrics (``telemetry``).
"""

from __future__ import annotations

from typing import NamedTuple


class SpanRow(NamedTuple):
    """One kind of span. ``kind`` is OpenTelemetry's; ``when`` says what it covers."""

    name: str
    kind: str
    when: str


class AttributeRow(NamedTuple):
    """One attribute. ``type`` is OpenTelemetry's; ``on`` names the spans that carry it."""

    name: str
    type: str
    on: str
    meaning: str


class EventRow(NamedTuple):
    """One span event and the span that carries it."""

    name: str
    on: str
    meaning: str


SPANS = (
    SpanRow(
        "handoff_chain",
        "internal",
        "Once per chain, from the first request to its commit. The root, or just below the caller's span if "
        "the chain continues a caller's trace. Its id follows from the trace id.",
    ),
    SpanRow(
        "{method} {http.route}",
        "server",
        "The request. That of a new handoff ends when the handoff is durable; any other when it is answered.",
    ),
    SpanRow("{rpc.method}", "server", "The same for a request over gRPC."),
    SpanRow(
        "handoff {target}",
        "internal",
        "Once per handoff, from acceptance to the target's first word, or to the end if no agent took it "
        "(then without a target if none was asked).",
    ),
    SpanRow("route_handoff", "internal", "Finding the candidates; again if they are looked for anew."),
    SpanRow(
        "invoke_agent {target}",
        "client",
        "Once per attempt, from the offer to the target's acceptance or the end of the attempt. Redeliveries "
        "are events of it. Its id travels to the target in `traceparent`.",
    ),
    SpanRow(
        "invoke_agent {target}",
        "server",
        "The target's work as the broker saw it, from the offer until it ended or handed on, under "
        "`service.name={target}`. Only for a target that never returned the trace id.",
    ),
    SpanRow(
        "handoff_outcome {target}",
        "internal",
        "From acceptance by the target to the end of the handoff, if that came later or was not a success.",
    ),
)

ATTRIBUTES = (
    AttributeRow("handoff.id", "string", "all of a handoff", "The handoff, and the A2A task."),
    AttributeRow(
        "handoff.correlation_id", "string", "all of a handoff", "The chain, as its sender named it."
    ),
    AttributeRow(
        "handoff.source.agent.name", "string", "all of a handoff but the server span", "Who sent it."
    ),
    AttributeRow(
        "handoff.target.agent.name", "string", "handoff, invoke_agent, handoff_outcome", "Who got it."
    ),
    AttributeRow("handoff.reason", "string", "handoff", "`handoff_reason` of the context."),
    AttributeRow("handoff.hop_count", "int", "handoff, handoff_outcome", "Position in the chain."),
    AttributeRow("handoff.chain", "string[]", "handoff", "The agents on the path, at most 16."),
    AttributeRow("handoff.capability", "string[]", "handoff, route_handoff", "Capabilities asked for."),
    AttributeRow(
        "handoff.parent.source", "string", "handoff", "Where the parent was found: propagated, stored, root."
    ),
    AttributeRow("handoff.rule", "string", "route_handoff", "The routing rule that matched."),
    AttributeRow("handoff.candidate.count", "int", "route_handoff", "How many agents may take it."),
    AttributeRow("handoff.context.size", "int", "route_handoff", "Tokens of summary and facts; 0 if few."),
    AttributeRow(
        "handoff.context.score", "double", "handoff, invoke_agent", "Share of the context that arrived."
    ),
    AttributeRow("handoff.attempt.number", "int", "invoke_agent", "The attempt, from 1."),
    AttributeRow("handoff.attempt.kind", "string", "invoke_agent", "initial, or retry from the second on."),
    AttributeRow("handoff.state", "string", "handoff_outcome, invoke_agent (server)", "The state it led to."),
    AttributeRow(
        "handoff.synthetic", "boolean", "invoke_agent (server)", "The broker made it for the agent."
    ),
    AttributeRow(
        "handoff.link.type",
        "string",
        "links",
        "caller: the request's own trace. chain: the handoff it made. attempt: what it calls about.",
    ),
    AttributeRow(
        "handoff.request.outcome", "string", "server", "client_disconnect: the caller left before the end."
    ),
    AttributeRow("gen_ai.operation.name", "string", "invoke_agent", "invoke_agent."),
    AttributeRow("gen_ai.provider.name", "string", "invoke_agent", "a2a."),
    AttributeRow("gen_ai.agent.name", "string", "invoke_agent", "The target."),
    AttributeRow("gen_ai.conversation.id", "string", "handoff, invoke_agent", "The A2A context id."),
    AttributeRow(
        "a2a.task.id", "string", "server, invoke_agent", "The task: ours, or the target's own id for it."
    ),
    AttributeRow(
        "a2a.task.state", "string", "handoff_outcome, invoke_agent (server)", "TASK_STATE_… at the end."
    ),
    AttributeRow("a2a.method.name", "string", "server", "The A2A method."),
    AttributeRow("a2a.protocol.version", "string", "server", "The A2A version."),
    AttributeRow(
        "http.request.method", "string", "server", "The HTTP method; _OTHER if it is not a known one."
    ),
    AttributeRow("http.route", "string", "server", "The template of the path; absent if no route matched."),
    AttributeRow(
        "http.response.status_code", "int", "server", "The status; absent if the span ends with a commit."
    ),
    AttributeRow("rpc.system.name", "string", "server", "grpc, for a request over gRPC."),
    AttributeRow("rpc.method", "string", "server", "Service and method; _OTHER if it is not a known one."),
    AttributeRow(
        "rpc.response.status_code",
        "string",
        "server",
        "The gRPC status; absent if the span ends with a commit.",
    ),
    AttributeRow("error.type", "string", "any", "Why it failed; absent on success."),
)

EVENTS = (
    EventRow("handoff.accepted", "handoff", "The handoff is durable."),
    EventRow("handoff.routed", "handoff", "Its candidates are known."),
    EventRow("handoff.dispatched", "handoff", "An attempt was made."),
    EventRow("handoff.rejected", "handoff", "An attempt ended without acceptance, with `error.type`."),
    EventRow("handoff.retry_scheduled", "invoke_agent", "The same agent is asked again, with the cause."),
    EventRow("handoff.first_message", "handoff", "The target said that it is ready, or something else."),
    EventRow("handoff.completed", "handoff_outcome", "The task is completed."),
    EventRow("handoff.expired", "handoff, handoff_outcome", "The deadline passed."),
    EventRow(
        "handoff.context.truncated", "route_handoff", "Parts of the context were dropped, here or before."
    ),
)
