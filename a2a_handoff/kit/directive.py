"""What an agent says of a handoff: ready, declined, receipt, handing on, giving back.

Duty: build the payloads of our extension. Each function gives the inner object; ``in_metadata``
puts it where it belongs, under the extension's URI in the metadata of a message.
Rules: only what the sender means is written; the broker fills the rest of the next hop's context
(chain, hop count, older summaries) from its own log.
Not here: sending. With a2a-sdk, ``executor`` does it; elsewhere any JSON writer will.
Source: docs/reference/extension.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from a2a_handoff.core.context import EXTENSION_URI, Mode, Reason
from a2a_handoff.kit.incoming import IncomingHandoff, Json

#: The parts of a context that a receipt echoes, as evidence that they arrived.
RECEIPT_FIELDS = (
    "user_intent",
    "key_facts",
    "task_progress",
    "user_preferences",
    "conversation_summary",
)

#: Longer reasons are cut: a reason is shown to people and kept with every attempt.
REASON_CHARS_MAX = 500


def in_metadata(*payloads: Json) -> dict[str, Any]:
    """The ``metadata`` of a message that carries the payloads."""
    merged: dict[str, Any] = {}
    for payload in payloads:
        merged.update(payload)
    return {EXTENSION_URI: merged}


def ready(offer: IncomingHandoff, receipt: Json | None = None) -> dict[str, Any]:
    """The answer *yes* to an offer. The receipt says what of the context arrived."""
    answer: dict[str, Any] = {"offer_id": offer.offer_id}
    if receipt is not None:
        answer["receipt"] = dict(receipt)
    return {"ready": answer}


def declined(offer: IncomingHandoff, reason: str) -> dict[str, Any]:
    """The answer *no* to an offer; the broker asks the next agent at once."""
    return {"declined": {"offer_id": offer.offer_id, "reason": reason[:REASON_CHARS_MAX]}}


def receipt(incoming: IncomingHandoff) -> dict[str, Any]:
    """An echo of the context, which lets the broker measure how much of it arrived.

    Echo what the agent really uses: an agent whose prompt leaves out the preferences should leave
    them out here too.
    """
    return {name: incoming.raw[name] for name in RECEIPT_FIELDS if name in incoming.raw}


def handoff(
    goto: str = "",
    *,
    summary: str,
    base: IncomingHandoff | None = None,
    update: Json | None = None,
    intent: str = "",
    reason: Reason = Reason.SPECIALIZATION,
    mode: Mode = Mode.TRANSFER,
    skill: str = "",
    capabilities: Iterable[str] = (),
    domain: str = "",
    fallback: Iterable[str] = (),
    progress: Json | None = None,
    preferences: Json | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Hand the task on: to the agent ``goto``, or to whoever has what is asked for.

    Works as ``Command(goto, update)`` in LangGraph: ``update`` is merged over the facts of ``base``,
    the handoff that this agent holds. ``summary`` is this agent's own segment; the broker joins it
    to the older ones, which are not to be repeated or shortened here. Intent, progress and
    preferences are those of ``base`` unless given. ``more`` are further fields of the context, such
    as ``priority`` or ``deadline``.

    Raises:
        ValueError: Neither a target nor anything required, or no summary, or no intent.
    """
    requirements: dict[str, Any] = {}
    if skill:
        requirements["skill"] = skill
    if names := list(capabilities):
        requirements["capabilities"] = names
    if domain:
        requirements["domain"] = domain
    if not goto and not requirements and "requirements" not in more:
        raise ValueError("name a target agent, a skill, a capability or a domain")
    base = base or IncomingHandoff()
    directive: dict[str, Any] = {
        "handoff_reason": Reason(reason).value,
        "conversation_summary": summary,
        "user_intent": intent or base.user_intent,
        "key_facts": {**base.key_facts, **(update or {})},
        "task_progress": dict(base.task_progress if progress is None else progress),
        "user_preferences": dict(base.user_preferences if preferences is None else preferences),
        "mode": Mode(mode).value,
    }
    if not summary.strip() or not directive["user_intent"].strip():
        raise ValueError("a handoff needs a summary and an intent")
    optional: dict[str, Any] = {
        "target_agent": goto,
        "requirements": requirements,
        "fallback": list(fallback),
        "correlation_id": base.correlation_id,
        "traceparent": base.traceparent,
        **more,
    }
    directive.update({name: value for name, value in optional.items() if value not in ("", {}, [])})
    return {"handoff": directive}


def release(reason: str) -> dict[str, Any]:
    """Give the task back to its sender, with the reason."""
    return {"release": {"reason": reason[:REASON_CHARS_MAX]}}
