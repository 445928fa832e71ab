"""Reading a handoff: what arrived with a message, typed, whatever state it is in.

Duty: find the context package in a message, an offer or a request, and give it names and types.
Rules: reading never fails. A field that is missing or of the wrong type takes its default, unknown
fields stay in ``raw``: an agent should answer a task that it understands in part.
Not here: answering (``receiver``), and checking what a sender wrote, which the broker did before.
Source: docs/reference/extension.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from a2a_handoff.core.context import CONTEXT_KEY, EXTENSION_URI, HOP_SEPARATOR
from a2a_handoff.core.events import State
from a2a_handoff.wire.context import DIRECTIVES

Json = Mapping[str, Any]

_EXACT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingHandoff:
    """The context package as the target sees it.

    ``offer`` tells an offer (answer *ready* or *declined*) from the task itself. ``handoff_chain``
    is the path of the agents that held the task, ``hop_count`` its depth. ``attempt`` counts the
    offers of this handoff; ``offer_id`` stays the same over redeliveries to one agent and is empty
    if no broker sent this. ``ack_wait_s`` is how long the broker waits for an answer to the offer,
    in seconds. ``raw`` is the package with every field that came.
    """

    correlation_id: str = ""
    source_agent: str = ""
    target_agent: str = ""
    handoff_reason: str = ""
    conversation_summary: str = ""
    user_intent: str = ""
    key_facts: Json = field(default_factory=dict[str, Any])
    task_progress: Json = field(default_factory=dict[str, Any])
    user_preferences: Json = field(default_factory=dict[str, Any])
    context_ref: str = ""
    hop_count: int = 0
    handoff_chain: tuple[str, ...] = ()
    handoff_id: str = ""
    offer_id: str = ""
    attempt: int = 0
    ack_wait_s: float | None = None
    traceparent: str = ""
    offer: bool = False
    raw: Json = field(default_factory=dict[str, Any])

    @property
    def summaries(self) -> tuple[str, ...]:
        """The segments of the summary, one for each hop that wrote one, oldest first."""
        return tuple(part for part in self.conversation_summary.split(HOP_SEPARATOR) if part.strip())

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers that keep the chain's trace whole on calls that serve this task."""
        return {"traceparent": self.traceparent} if self.traceparent else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How a handoff ended that this agent had made as ``delegate``: it goes on with its own task.

    ``state`` is the broker's word (``completed``, ``returned`` and so on); the result is in the
    parts of the message. If ``asks`` is true it has not ended: the agent that helps has a question, which
    is answered by a message to the broker with ``handoff_id`` as its task id.
    """

    handoff_id: str
    state: str
    reason: str = ""

    @property
    def asks(self) -> bool:
        """Whether the helper waits for an answer of this agent."""
        return self.state in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)


def read_incoming(message: Json, request_metadata: Json | None = None) -> IncomingHandoff | None:
    """The handoff that came with a message, or ``None`` if it came without one.

    ``message`` is an A2A message as JSON, ``request_metadata`` the metadata of the request around
    it. The message's own package wins over the request's.
    """
    for metadata in (_object(message.get("metadata")), _object(request_metadata)):
        extension = _object(metadata.get(EXTENSION_URI))
        offer = _object(extension.get("offer"))
        if offer:
            return _typed(offer, offer=True)
        for package in (extension, _object(metadata.get(CONTEXT_KEY))):
            if package.keys() - DIRECTIVES:
                return _typed(package, offer=False)
    return None


def read_rescinded(message: Json) -> str:
    """The id of the offer that this message makes void, empty if it makes none void."""
    return _text(_note(message, "rescinded"), "offer_id")


def read_child_end(message: Json) -> ChildEnd | None:
    """The end of a delegated handoff, or its question, if this message tells of one."""
    child = _note(message, "child")
    if not child:
        return None
    return ChildEnd(
        handoff_id=_text(child, "handoff_id"), state=_text(child, "state"), reason=_text(child, "reason")
    )


def whole_numbers(value: Any) -> Any:
    """The same JSON with ``3.0`` as ``3``.

    a2a-sdk carries metadata in a protobuf Struct, which has floating point numbers only; an
    invoice number should not come out as ``4711.0``.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: whole_numbers(member) for name, member in members.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in cast("list[Any]", value)]
    return value


def _typed(package: Json, *, offer: bool) -> IncomingHandoff:
    raw: dict[str, Any] = whole_numbers(package)
    return IncomingHandoff(
        correlation_id=_text(raw, "correlation_id"),
        source_agent=_text(raw, "source_agent"),
        target_agent=_text(raw, "target_agent"),
        handoff_reason=_text(raw, "handoff_reason"),
        conversation_summary=_text(raw, "conversation_summary"),
        user_intent=_text(raw, "user_intent"),
        key_facts=_object(raw.get("key_facts")),
        task_progress=_object(raw.get("task_progress")),
        user_preferences=_object(raw.get("user_preferences")),
        context_ref=_text(raw, "context_ref"),
        hop_count=_count(raw, "hop_count"),
        handoff_chain=_names(raw.get("handoff_chain")),
        handoff_id=_text(raw, "handoff_id"),
        offer_id=_text(raw, "offer_id"),
        attempt=_count(raw, "attempt"),
        ack_wait_s=_seconds(raw.get("ack_wait_s")),
        traceparent=_text(raw, "traceparent"),
        offer=offer,
        raw=raw,
    )


def _note(message: Json, name: str) -> dict[str, Any]:
    return _object(_object(_object(message.get("metadata")).get(EXTENSION_URI)).get(name))


def _object(value: Any) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _text(package: Json, name: str) -> str:
    value = package.get(name)
    return value if isinstance(value, str) else ""


def _count(package: Json, name: str) -> int:
    value = package.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(item for item in cast("list[Any]", value) if isinstance(item, str))
