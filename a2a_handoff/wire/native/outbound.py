"""What goes out on the native surfaces: agents, handoffs, chains, events, decisions, errors.

Duty: one model for each answer. Times are RFC 3339 in UTC; payloads stay byte for byte.
Not here: from core objects to these (``views``).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from a2a_handoff.wire.native.raw import RawJson, RawObject


class Outbound(BaseModel):
    """An answer. A reader takes no notice of fields that it does not know."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class SkillOut(Outbound):
    """A skill of the agent's card."""

    id: str
    name: str = ""
    tags: list[str] = []


class InterfaceOut(Outbound):
    """One way to reach a push agent."""

    url: str
    binding: str = Field(description="JSONRPC, HTTP+JSON or GRPC.")
    protocol_version: str = Field(description="1.0, 0.3 or 0.1.")


class CardSignatureOut(Outbound):
    """What the signatures of a card are worth."""

    status: str = Field(
        default="unchecked",
        description="verified, unverified (no known key), unsigned, or unchecked (nobody looked).",
    )
    key_id: str = Field(default="", description="The key that verified it.")
    key_from: str = Field(default="", description="Where that key is from: card_keys, or an address.")
    detail: str = Field(default="", description="Why none is verified.")


class AgentOut(Outbound):
    """An agent and how it is doing."""

    agent_id: str
    name: str = ""
    version: str = ""
    platform: str = ""
    workspace: str = "default"
    instance_id: str = ""
    session_number: int = 0
    role: str = "agent"
    status: str = Field(default="online", description="online, idle, busy, draining or offline.")
    present: bool = Field(default=True, description="Whether it would be offered a handoff now.")
    readiness: str = Field(
        default="pull", description="How it says that it is ready: offer, probe, pull or person."
    )
    capabilities: dict[str, bool | list[str]] = Field(
        default_factory=dict, description="What it can do in effect; domains is a list."
    )
    skills: list[SkillOut] = []
    interfaces: list[InterfaceOut] = []
    in_flight: int = 0
    max_concurrency: int | None = None
    lease_s: float = 0.0
    broadcasts: bool = Field(default=True, description="Whether it hears what its workspace is told.")
    response_s: float | None = Field(default=None, description="Smoothed time to ACK; null before the first.")
    success_rate: float = Field(default=1.0, description="Completed / (completed + failed).")
    received: int = 0
    completed: int = 0
    failed: int = 0
    last_heard_at: str | None = None
    registered_at: str | None = None
    card_url: str = ""
    card_problem: str = Field(
        default="", description="Why the card cannot be used for delivery; empty if it can."
    )
    card_notice: str = Field(
        default="", description="Why a newer card of its is not taken; empty if the newest is in force."
    )
    card_signature: CardSignatureOut = Field(default_factory=CardSignatureOut)
    metadata: RawObject | None = None


class AgentPage(Outbound):
    """``GET /api/agents``."""

    agents: list[AgentOut]
    total: int


class AttemptOut(Outbound):
    """One offer to one agent."""

    number: int = Field(description="From 1 within the handoff.")
    agent_id: str
    offer_id: str = ""
    instance_id: str = Field(default="", description="Which process of the agent accepted it, if it said.")
    readiness: str = ""
    role: str = "agent"
    deliveries: int = 1
    offered_at: str | None = None
    acked_at: str | None = None
    ended_at: str | None = None
    outcome: str | None = Field(default=None, description="How it ended badly; null while it holds.")
    detail: str = ""


class CandidateOut(Outbound):
    """An agent that may take it, in the order to be tried."""

    agent_id: str
    readiness: str = ""
    role: str = "agent"
    reasons: list[str] = Field(default_factory=list, description="Why it stands where it stands.")


class PassedOverOut(Outbound):
    """An agent that may not take it."""

    agent_id: str
    reason: str
    near: bool = Field(default=False, description="A near miss.")


class ResolutionOut(Outbound):
    """A routing decision, explained. ``POST /api/resolve`` makes none."""

    candidates: list[CandidateOut] = []
    passed_over: list[PassedOverOut] = []
    rule: str = Field(default="", description="The routing rule that matched.")
    reason: str | None = Field(default=None, description="Why there are no candidates.")
    more: int = Field(default=0, description="Agents that were passed over and are not listed.")
    wait: bool = Field(default=False, description="Agents match, none is present: it would wait.")
    warnings: list[str] = []


class ChildOut(Outbound):
    """A handoff that the target of this one made."""

    handoff_id: str
    mode: str
    state: str | None = None


class HandoffOut(Outbound):
    """One handoff as it stands. Times are RFC 3339 in UTC."""

    handoff_id: str
    correlation_id: str
    trace_id: str
    trace_url: str = Field(default="", description="The chain in Jaeger; empty if no Jaeger is set.")
    state: str
    status: str = Field(
        description="The state in the older words: pending, accepted, completed, failed, cancelled."
    )
    owner: str = Field(description="Who is responsible: source, target, leaf or nobody.")
    source_agent: str = ""
    target_agent: str = Field(default="", description="The agent that was asked for by name.")
    assigned_to: str = Field(default="", description="The agent that was offered it or holds it.")
    task: str = ""
    mode: str = "transfer"
    priority: str = "normal"
    reason: str = Field(default="", description="Why it changes hands.")
    hop_count: int = 0
    handoff_chain: list[str] = []
    parent_handoff_id: str = ""
    children: list[ChildOut] = []
    leaf_id: str = Field(
        default="", description="The handoff that carries the task now, if it was handed on."
    )
    attempts: list[AttemptOut] = []
    candidates: list[CandidateOut] = []
    passed_over: list[PassedOverOut] = []
    cancel_requested: bool = Field(
        default=False, description="It is to be canceled: its holder stops, and says so with release."
    )
    outcome: str | None = Field(default=None, description="Why it was returned, failed or expired.")
    detail: str = ""
    deadline: str | None = None
    waiting_until: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    accepted_at: str | None = None
    ended_at: str | None = None
    context_ref: str = ""
    context_score: float | None = Field(default=None, description="1 when nothing of the context was lost.")
    tokens: int | None = Field(default=None, description="Tokens of summary and key facts.")
    tokenizer: str = ""
    synthesized: bool = Field(default=False, description="The message came without a context.")
    warnings: list[str] = []
    message: RawObject | None = Field(default=None, description="The task's message (A2A 1.0).")
    context: RawObject | None = Field(
        default=None,
        description="The context as it was sent; in an inbox and after accept as it is delivered.",
    )
    result: RawJson | None = Field(default=None, description="The text or the data of the result.")
    artifacts: list[RawObject] = []
    status_message: RawObject | None = Field(default=None, description="What the target said last (A2A 1.0).")


class BroadcastOut(Outbound):
    """A message to every agent of a workspace."""

    broadcast_id: str
    channel: str
    message: str
    data: RawObject | None = None
    source_agent: str = Field(default="", description="Who said it; empty if nobody said.")
    workspace: str
    created_at: str
    expires_at: str = Field(description="Until when it is kept for agents that come later.")


class DrainOut(Outbound):
    """How far a broker is on its way out of service."""

    stage: str = Field(
        description="serving, leaving (not ready, all as before), draining, or drained: nothing is under way."
    )
    under_way: int = Field(description="Pieces of work that this broker is at.")


class BroadcastPage(Outbound):
    """``GET /api/broadcasts``, oldest first."""

    broadcasts: list[BroadcastOut]
    next_cursor: str = Field(description="Pass as after, also if there was nothing.")
    resync: bool = Field(
        default=False, description="The cursor meant nothing here: this starts from the beginning."
    )


class NewsOut(Outbound):
    """A watch that came back with broadcasts and no offer."""

    broadcasts: list[BroadcastOut] = Field(default=[], description="What the workspace was told.")
    cursor: str = Field(description="Pass as after; also in the header A2A-Handoff-Cursor.")
    resync: bool = Field(
        default=False, description="The cursor meant nothing here: everything is shown again."
    )


class OfferOut(HandoffOut, NewsOut):
    """A watch that came back with an offered handoff, its context as the target gets it."""

    attempt: int = Field(description="Names this offer in accept and in all that follows.")
    offer_id: str = Field(description="The same when the offer is announced again.")


class HandoffPage(Outbound):
    """``GET /api/handoffs``, newest update first."""

    handoffs: list[HandoffOut]
    next_cursor: str | None = None
    total: int = Field(description="How many match, whatever the cursor; exact up to 10,000, never more.")


class WebhookOut(Outbound):
    """Where the sender of a handoff is told of it, and how that goes. Its secrets are not shown."""

    id: str
    url: str
    protocol_version: str = Field(description="In which A2A it is told: 1.0, 0.3 or 0.1.")
    state: str = Field(description="active, done (it was told the last event) or given_up.")
    delivered: int = Field(description="Notifications that it took.")
    failures: int = Field(description="Tries since then that it did not take.")
    status: int | None = Field(default=None, description="HTTP status of the last answer; null without one.")
    error: str = Field(default="", description="Why the last try failed; empty if it did not.")
    created_at: str | None = None
    last_at: str | None = Field(default=None, description="When it was last called.")
    failing_since: str | None = None


class WebhookPage(Outbound):
    """``GET /api/handoffs/{handoff_id}/webhooks``, the oldest first."""

    webhooks: list[WebhookOut]


class ChainOut(Outbound):
    """All handoffs of one correlation id, oldest first."""

    correlation_id: str
    trace_id: str
    trace_url: str = ""
    state: str = Field(description="That of the handoff that carries the task.")
    owner: str = Field(default="", description="The agent that is responsible; empty when it is over.")
    hops: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    handoffs: list[HandoffOut]


class EventOut(Outbound):
    """An event of the log as a CloudEvent (CloudEvents 1.0, JSON format)."""

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(description="{handoff id}/{seq}.")
    source: str = Field(description="The broker.")
    type: str = Field(description="a2a-handoff.<event>, such as a2a-handoff.handoff_acknowledged.")
    subject: str = Field(description="The handoff id.")
    time: str
    datacontenttype: Literal["application/json"] = "application/json"
    seq: int = Field(description="From 1 within the handoff, without gaps.")
    position: int = Field(description="The place in the whole log: the cursor of a tail.")
    correlationid: str = Field(
        default="", description="The chain. CloudEvents spell attributes without underscores."
    )
    traceid: str = Field(default="", description="The trace of the chain.")
    traceurl: str = Field(default="", description="The chain in Jaeger; empty if no Jaeger is set.")
    data: RawObject


class AgentEventOut(Outbound):
    """A change of an agent as a CloudEvent (CloudEvents 1.0, JSON format)."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str = Field(description="The broker.")
    type: str = Field(
        description="a2a-handoff. and agent_listed, agent_registered, agent_updated, "
        "agent_status_changed or agent_removed."
    )
    subject: str = Field(description="The agent id.")
    time: str
    datacontenttype: Literal["application/json"] = "application/json"
    data: AgentOut | None = Field(default=None, description="The agent as it is now; null if it is gone.")


class EventPage(Outbound):
    """``GET /api/handoffs/{id}/events``, oldest first."""

    events: list[EventOut]
    next_cursor: int | None = Field(default=None, description="Pass as after; null at the end of the log.")


class ViolationOut(Outbound):
    """One fault at one place."""

    field: str
    description: str


class Problem(Outbound):
    """An error (RFC 9457, ``application/problem+json``)."""

    type: str = Field(description="urn:a2a-handoff:error:<code>.")
    title: str
    status: int
    detail: str = Field(description="What was wrong and what to do.")
    code: str
    retryable: bool = Field(default=False, description="The same request may succeed later.")
    instance: str = Field(default="", description="The path that was called.")
    errors: list[ViolationOut] = Field(default_factory=list[ViolationOut], description="Every wrong field.")
    facts: dict[str, str] = Field(default_factory=dict, description="Counts, paths and ids, for programs.")
