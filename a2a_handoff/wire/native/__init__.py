"""The JSON shapes of the native surfaces: ``/api``, WebSocket and MCP.

``inbound`` and ``outbound`` have one pydantic model for each shape, which is also its OpenAPI schema;
``views`` makes the outbound ones from core objects; ``raw`` reads and writes bodies.
"""

from a2a_handoff.wire.native.inbound import ActionIn, AgentIn, BroadcastIn, HandoffIn, HeartbeatIn
from a2a_handoff.wire.native.outbound import (
    AgentOut,
    AgentPage,
    AttemptOut,
    BroadcastOut,
    BroadcastPage,
    ChainOut,
    DrainOut,
    EventOut,
    EventPage,
    HandoffOut,
    HandoffPage,
    NewsOut,
    OfferOut,
    Problem,
    ResolutionOut,
    WebhookOut,
    WebhookPage,
)
from a2a_handoff.wire.native.raw import decode, encode

__all__ = [
    "ActionIn",
    "AgentIn",
    "AgentOut",
    "AgentPage",
    "AttemptOut",
    "BroadcastIn",
    "BroadcastOut",
    "BroadcastPage",
    "ChainOut",
    "DrainOut",
    "EventOut",
    "EventPage",
    "HandoffIn",
    "HandoffOut",
    "HandoffPage",
    "HeartbeatIn",
    "NewsOut",
    "OfferOut",
    "Problem",
    "ResolutionOut",
    "WebhookOut",
    "WebhookPage",
    "decode",
    "encode",
]
