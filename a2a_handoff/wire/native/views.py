"""From core objects to the answers of the native surfaces.

Duty: one function for each answer, and the words and cursors that only exist there.
Not here: finding the objects, and whether the caller may see them (``broker``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, cast

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import AgentView
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.events import Candidate, HandoffRequested, PassedOver, Resolution, State
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.ports import Broadcast, Chain, Recorded, Webhook
from a2a_handoff.wire.cursor import seal, unseal
from a2a_handoff.wire.fields import write_instant
from a2a_handoff.wire.native import outbound as out
from a2a_handoff.wire.native.raw import raw

#: The states in the words of the older shapes. Their clients wait for an end that they know, so what
#: came back or ran out of time is failed.
STATUS_WORDS: Mapping[State, str] = {
    State.REQUESTED: "pending",
    State.OFFERED: "pending",
    State.ESCALATED: "pending",
    State.ACKNOWLEDGED: "accepted",
    State.INPUT_REQUIRED: "accepted",
    State.AUTH_REQUIRED: "accepted",
    State.HANDED_OFF: "accepted",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.RETURNED: "failed",
    State.EXPIRED: "failed",
    State.CANCELED: "cancelled",
}


#: What came back has no result, whatever was said on the way.
_WITHOUT_RESULT = frozenset({State.RETURNED, State.EXPIRED, State.CANCELED})


def agent_out(view: AgentView) -> out.AgentOut:
    """An agent with its load and presence."""
    agent = view.agent
    capabilities: dict[str, bool | list[str]] = dict.fromkeys(sorted(agent.capabilities), True)
    capabilities["domains"] = list(agent.domains)
    return out.AgentOut(
        agent_id=agent.agent_id,
        name=agent.name,
        version=agent.version,
        platform=agent.platform,
        workspace=agent.workspace,
        instance_id=agent.instance_id,
        session_number=agent.session_number,
        role=agent.role.value,
        status=view.status.value,
        present=view.present,
        readiness=agent.readiness.value,
        capabilities=capabilities,
        skills=[out.SkillOut(id=s.id, name=s.name, tags=list(s.tags)) for s in agent.skills],
        interfaces=[
            out.InterfaceOut(url=i.url, binding=i.binding.value, protocol_version=i.generation.value)
            for i in agent.interfaces
        ],
        in_flight=view.in_flight,
        max_concurrency=agent.max_concurrency,
        lease_s=agent.lease_s,
        broadcasts=agent.broadcasts,
        response_s=view.response_s,
        success_rate=view.success_rate,
        received=view.received,
        completed=view.completed,
        failed=view.failed,
        last_heard_at=_when(view.last_heard_at),
        registered_at=_when(agent.registered_at),
        card_url=agent.card_url,
        card_problem=agent.card_problem,
        card_notice=agent.card_notice,
        card_signature=out.CardSignatureOut(
            status=agent.signature.trust.value,
            key_id=agent.signature.key_id,
            key_from=agent.signature.key_from,
            detail=agent.signature.detail,
        ),
        metadata=Raw(agent.metadata),
    )


def handoff_out(
    handoff: Handoff,
    requested: HandoffRequested | None = None,
    *,
    trace_url: str = "",
    tokenizer: str = "",
    status_message: bytes = b"",
    artifacts: Sequence[bytes] = (),
    package: bytes = b"",
) -> out.HandoffOut:
    """A handoff. With the event that requested it, its message and context are shown as well.

    ``artifacts`` are whole ones (chunks joined), ``status_message`` is what the target said last.
    ``package`` is the context as the target gets it, shown in place of the one that was stored.
    """
    h = handoff
    attempt = h.attempt
    shown: dict[str, Any] = {}
    if requested is not None:
        stored = requested.package
        shown = {
            "task": stored.context.user_intent,
            "context_ref": stored.context.context_ref,
            "tokens": stored.tokens,
            "tokenizer": tokenizer,
            "synthesized": stored.synthesized,
            "warnings": list(stored.warnings),
            "message": Raw(requested.message),
            "context": Raw(package) if package else _json(stored.context),
        }
    return out.HandoffOut(
        handoff_id=h.id,
        correlation_id=h.correlation_id,
        trace_id=h.trace.trace_id,
        trace_url=trace_url,
        state=h.state.value,
        status=STATUS_WORDS[h.state],
        owner=h.owner,
        source_agent=h.sender,
        target_agent=h.target_agent,
        assigned_to=h.holder or (attempt.agent_id if attempt and h.acked_at is not None else ""),
        mode=h.mode.value,
        priority=h.priority.value,
        reason=h.reason,
        hop_count=h.hop_count,
        handoff_chain=list(h.path),
        parent_handoff_id=h.parent.handoff_id if h.parent else "",
        children=[
            out.ChildOut(handoff_id=c.handoff_id, mode=c.mode.value, state=c.state.value if c.state else None)
            for c in h.children
        ],
        leaf_id=h.leaf_id,
        attempts=[_attempt(each) for each in h.attempts],
        candidates=_candidates(h.candidates),
        passed_over=_passed_over(h.passed_over),
        cancel_requested=h.cancel_requested,
        outcome=h.outcome.value if h.outcome else None,
        detail=h.detail,
        deadline=_when(h.deadline_at),
        waiting_until=_when(h.waiting_until),
        created_at=_when(h.created_at),
        updated_at=_when(h.updated_at),
        accepted_at=_when(h.acked_at),
        ended_at=_when(h.ended_at),
        context_score=h.context_score,
        result=result_out(h, status_message, artifacts),
        artifacts=[Raw(artifact) for artifact in artifacts],
        status_message=Raw(status_message) if status_message else None,
        **shown,
    )


def result_out(handoff: Handoff, status_message: bytes, artifacts: Sequence[bytes]) -> Raw | None:
    """The text or the data of what came of a handoff so far; ``None`` if there is nothing to show."""
    if handoff.state in _WITHOUT_RESULT:
        return None
    # Before the end, what was said last may be the broker's word.
    said = status_message if handoff.state is State.COMPLETED else b""
    return _result(said, artifacts)


def offer_out(shown: out.HandoffOut, handoff: Handoff, news: out.NewsOut) -> out.OfferOut:
    """An offer, and what came along with it."""
    attempt = handoff.attempts[-1]
    fields = {name: getattr(shown, name) for name in out.HandoffOut.model_fields}
    fields |= {name: getattr(news, name) for name in out.NewsOut.model_fields}
    return out.OfferOut(**fields, attempt=attempt.number, offer_id=attempt.offer_id)


def news_out(broadcasts: Iterable[Broadcast], *, cursor: str, resync: bool) -> out.NewsOut:
    """What a watch came back with beside an offer."""
    return out.NewsOut(broadcasts=[broadcast_out(b) for b in broadcasts], cursor=cursor, resync=resync)


def webhook_out(webhook: Webhook) -> out.WebhookOut:
    """A webhook as its owner sees how it goes."""
    return out.WebhookOut(
        id=webhook.id,
        url=webhook.url,
        protocol_version=webhook.generation,
        state=webhook.state,
        delivered=webhook.delivered,
        failures=webhook.failures,
        status=webhook.status or None,
        error=webhook.error,
        created_at=_when(webhook.created_at),
        last_at=_when(webhook.last_at),
        failing_since=_when(webhook.failing_since),
    )


def broadcast_out(broadcast: Broadcast) -> out.BroadcastOut:
    """A broadcast."""
    b = broadcast
    return out.BroadcastOut(
        broadcast_id=b.id,
        channel=b.channel,
        message=b.message,
        data=Raw(b.data) if b.data else None,
        source_agent=b.sender,
        workspace=b.workspace,
        created_at=_when(b.at) or "",
        expires_at=_when(b.expires_at) or "",
    )


def chain_out(chain: Chain, handoffs: Sequence[out.HandoffOut], *, trace_url: str = "") -> out.ChainOut:
    """A chain, with its handoffs oldest first. ``handoffs`` must not be empty."""
    by_id = {h.handoff_id: h for h in handoffs}
    carrier = by_id.get(chain.first_handoff_id, handoffs[0])
    for _ in handoffs:
        if carrier.state != State.HANDED_OFF or carrier.leaf_id not in by_id:
            break
        carrier = by_id[carrier.leaf_id]
    owners = {"source": carrier.source_agent, "target": carrier.assigned_to}
    return out.ChainOut(
        correlation_id=chain.correlation_id,
        trace_id=chain.trace_id,
        trace_url=trace_url,
        state=carrier.state,
        owner=owners.get(carrier.owner, ""),
        hops=max(h.hop_count for h in handoffs),
        started_at=_when(chain.started_at),
        ended_at=carrier.ended_at,
        handoffs=list(handoffs),
    )


def resolution_out(resolution: Resolution, *, warnings: Iterable[str] = ()) -> out.ResolutionOut:
    """A routing decision."""
    return out.ResolutionOut(
        candidates=_candidates(resolution.candidates),
        passed_over=_passed_over(resolution.passed_over),
        rule=resolution.rule,
        reason=resolution.reason.value if resolution.reason else None,
        more=resolution.more,
        wait=resolution.wait,
        warnings=list(warnings),
    )


def event_out(recorded: Recorded, handoff: Handoff, *, trace_url: str = "") -> out.EventOut:
    """An event of the log as a CloudEvent. ``handoff`` is the one that it happened to."""
    event = recorded.event
    data = _plain(event)
    del data["at"]
    if isinstance(event, HandoffRequested):
        data["package"]["options"].pop("transcript", None)
    return out.EventOut(
        id=f"{recorded.handoff_id}/{recorded.seq}",
        source="/api/handoffs",
        type=f"a2a-handoff.{event_name(event)}",
        subject=recorded.handoff_id,
        time=_when(event.at) or "",
        seq=recorded.seq,
        position=recorded.position,
        correlationid=handoff.correlation_id,
        traceid=handoff.trace.trace_id,
        traceurl=trace_url,
        data=raw(data),
    )


def event_reference(event: out.EventOut) -> bytes:
    """A CloudEvent without its data, where those are too large: ``dataref`` leads to them.

    Source: the dataref extension of CloudEvents 1.0.
    """
    where = f"/api/handoffs/{event.subject}/events?after={event.seq - 1}&limit=1"
    return msgspec.json.encode(event.model_dump(exclude={"data"}) | {"dataref": where})


def agent_event_out(
    news: str, agent_id: str, view: AgentView | None, *, at: float, event_id: str
) -> out.AgentEventOut:
    """A change of an agent as a CloudEvent; ``None`` is one that is gone."""
    return out.AgentEventOut(
        id=event_id,
        source="/api/agents",
        type=f"a2a-handoff.{news}",
        subject=agent_id,
        time=_when(at) or "",
        data=None if view is None else agent_out(view),
    )


def event_name(event: object) -> str:
    """An event's name in snake case, such as ``handoff_acknowledged``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()


# --- cursors -------------------------------------------------------------------------------------


def cursor_of(next_row: tuple[float, str] | None) -> str | None:
    """The cursor after a page of handoffs, opaque to the caller."""
    if next_row is None:
        return None
    return seal(msgspec.json.encode(next_row))


def read_cursor(cursor: str) -> tuple[float, str] | None:
    """What ``cursor_of`` wrote. Raises ``HandoffError`` (``invalid_params``) for anything else."""
    if not cursor:
        return None
    try:
        return msgspec.json.decode(unseal(cursor), type=tuple[float, str])
    except (ValueError, msgspec.DecodeError):
        raise HandoffError(
            Code.INVALID_PARAMS,
            "That is no cursor of this listing. Start again without one.",
            violations=(Violation("cursor", "is not one that a page of this listing gave"),),
        ) from None


# --- parts ---------------------------------------------------------------------------------------


def _attempt(attempt: Attempt) -> out.AttemptOut:
    return out.AttemptOut(
        number=attempt.number,
        agent_id=attempt.agent_id,
        offer_id=attempt.offer_id,
        instance_id=attempt.instance_id,
        readiness=attempt.readiness.value,
        role=attempt.role.value,
        deliveries=attempt.deliveries,
        offered_at=_when(attempt.offered_at),
        acked_at=_when(attempt.acked_at),
        ended_at=_when(attempt.ended_at),
        outcome=attempt.outcome.value if attempt.outcome else None,
        detail=attempt.detail,
    )


def _candidates(candidates: Iterable[Candidate]) -> list[out.CandidateOut]:
    return [
        out.CandidateOut(
            agent_id=c.agent_id, readiness=c.readiness.value, role=c.role.value, reasons=list(c.reasons)
        )
        for c in candidates
    ]


def _passed_over(agents: Iterable[PassedOver]) -> list[out.PassedOverOut]:
    return [out.PassedOverOut(agent_id=p.agent_id, reason=p.reason, near=p.near) for p in agents]


class _Part(msgspec.Struct):
    text: str | None = None
    data: Raw = Raw()


class _Parts(msgspec.Struct):
    parts: list[_Part] = []


def _result(message: bytes, artifacts: Sequence[bytes]) -> Raw | None:
    """The last artifact that is text alone or one piece of data, else all text that was given."""
    said = [*artifacts, *([message] if message else [])]
    try:
        parts = [msgspec.json.decode(each, type=_Parts).parts for each in said]
    except msgspec.DecodeError:
        return None
    for alone in reversed(parts[: len(artifacts)]):
        if len(alone) == 1 and bytes(alone[0].data):
            return alone[0].data
        if alone and all(part.text is not None for part in alone):
            return raw(_joined(alone))
    text = "\n".join(filter(None, map(_joined, parts)))
    return raw(text) if text else None


def _joined(parts: list[_Part]) -> str:
    """The text of parts, nothing between them: they may be the chunks of a stream, cut anywhere."""
    return "".join(part.text or "" for part in parts)


def _when(at: float | None) -> str | None:
    """Epoch seconds as RFC 3339 in UTC with milliseconds; ``None`` for never."""
    return write_instant(at) if at else None


def _json(value: object) -> Raw:
    return raw(_plain(value))


def _plain(value: Any) -> Any:
    """A core value as JSON can hold it; bytes are JSON already, empty ones are nothing."""
    match value:
        case bytes():
            return Raw(value) if value else None
        case Enum():
            return value.value
        case msgspec.Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case tuple():
            return [_plain(each) for each in cast("tuple[Any, ...]", value)]
        case frozenset():
            return sorted(_plain(each) for each in cast("frozenset[Any]", value))
        case _:
            return value
