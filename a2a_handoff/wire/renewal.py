"""What a newer card makes of an agent.

Duty: the agent as it would be if its registration had met the newer card; what of it changed, and why a card
is not taken, in words.
Rules: what a registration said over the old card stays said over the new one. A card whose signature was
verified is not replaced by one whose signature is not.
Not here: when a card is read again, and what happens then (``registry``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from a2a_handoff.core.agents import Agent, Registration, Signature, Trust
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.text import clip
from a2a_handoff.wire.cards import agent_of

_NOTICE_CHARS_MAX = 500
_TOLD = (
    "name", "version", "skills", "interfaces", "capabilities", "input_modes", "output_modes", "signature",
)  # fmt: skip


def renewed(
    agent: Agent, card: bytes, signature: Signature, *, lease_s: float, found_at: str, etag: str
) -> Agent:
    """``agent`` with another card, which was found at ``found_at``.

    Raises ``HandoffError`` (``invalid_agent``).
    """
    if agent.signature.trust is Trust.VERIFIED and signature.trust is not Trust.VERIFIED:
        text = f"its signature is {signature.trust.value}, and that of the card before was verified"
        raise HandoffError(Code.INVALID_AGENT, violations=(Violation("card.signatures", text),))
    old, new = (
        agent_of(
            Registration(agent_id=agent.agent_id, card=body),
            tenant=agent.tenant,
            now=agent.registered_at,
            lease_s=lease_s,
            found_at=found_at,
            etag=etag,
            signature=judged,
        )[0]
        for body, judged in ((agent.card, agent.signature), (card, signature))
    )
    return replace(_rebased(agent, old, new), card_notice="")


def _rebased(agent: Agent, old: Agent, new: Agent) -> Agent:
    """``agent`` as it would be if its registration had met the ``new`` card instead of the ``old``."""

    def pick(*names: str) -> dict[str, object]:
        return {n: getattr(new, n) for n in names if getattr(agent, n) == getattr(old, n)}

    return replace(
        agent,
        **pick("platform", "role", "workspace", "max_concurrency", "token_budget", "lease_s"),
        capabilities=(new.capabilities | (agent.capabilities - old.capabilities))
        - (old.capabilities - agent.capabilities),
        domains=_without(agent.domains, old.domains, new.domains),
        name=new.name,
        version=new.version,
        skills=new.skills,
        input_modes=new.input_modes,
        output_modes=new.output_modes,
        interfaces=new.interfaces,
        streaming=new.streaming,
        push_notifications=new.push_notifications,
        speaks_handoff=new.speaks_handoff,
        required_extensions=new.required_extensions,
        card=new.card,
        card_url=new.card_url,
        card_etag=new.card_etag,
        card_problem=new.card_problem,
        signature=new.signature,
    )


def _without(said: Iterable[str], old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    gone = {*old} - {*new}
    return tuple(dict.fromkeys((*(name for name in said if name not in gone), *new)))


def notice(error: HandoffError, *, changed: bool) -> str:
    """Why a newer card was not taken, or the one that there is would not be any more."""
    faults = "; ".join(f"{v.field} {v.description}" for v in error.violations) or error.message
    if changed:
        text = f"its card has changed and is not taken, the one before stays in force: {faults}"
    else:
        text = f"its card would not be taken any more, and stays in force: {faults}"
    return clip(text, _NOTICE_CHARS_MAX)


def changes(old: Agent, new: Agent) -> str:
    """The facts of a card that are others now, for people."""
    told = ", ".join(name for name in _TOLD if getattr(old, name) != getattr(new, name))
    return told or "nothing that counts here"
