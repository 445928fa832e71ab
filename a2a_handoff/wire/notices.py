"""What the broker itself says in a task: system events as status messages.

Duty: the message of each system event, with a short text in the caller's language and the same as data;
the account of attempts and reasons that a task carries.
Rules: ids are derived, so that a message is the same wherever and whenever it is made. Texts exist in
English and French; any other language gets English.
Source: docs/reference/extension.md.
Not here: which event is told to whom (``tasks``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.wire.fields import write_instant
from a2a_handoff.wire.shapes import pack

STARTED: Final = "handoff_started"
OVERDUE: Final = "ack_overdue"
CONFIRMED: Final = "handoff_confirmed"
RETURNED: Final = "handoff_returned"
EXPIRED: Final = "handoff_expired"
FAILED: Final = "handoff_failed"

#: Told along with the others: whether the source is responsible or may stand by.
STANDBY: Final = "source_standby"
ACTIVE: Final = "source_active"

ENGLISH: Final = "en"

#: How many of the agents that could not be asked are listed, and how many of those that nearly could are
#: named in the text, which is all that a plain client shows.
_PASSED_OVER_MAX: Final = 20
_NEAR_MAX: Final = 3

_TEXTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        STARTED: {"en": "Handing the task to {agent}.", "fr": "Transfert de la tâche à {agent}."},
        OVERDUE: {
            "en": "{agent} was sent the task and has not answered yet; you stay responsible.",
            "fr": "{agent} a reçu la tâche et n'a pas encore répondu ; vous en restez responsable.",
        },
        CONFIRMED: {"en": "{agent} has taken over.", "fr": "{agent} a pris le relais."},
        RETURNED: {
            "en": "The task is back with you: {reason}.",
            "fr": "La tâche vous revient : {reason}.",
        },
        EXPIRED: {
            "en": "The deadline passed, the task is back with you: {reason}.",
            "fr": "Le délai est dépassé, la tâche vous revient : {reason}.",
        },
        FAILED: {
            "en": "{agent} could not finish the task: {reason}.",
            "fr": "{agent} n'a pas pu finir la tâche : {reason}.",
        },
    }
)


class _Preferences(msgspec.Struct):
    language: str = ""


#: Told once for each attempt.
_OF_AN_ATTEMPT: Final = frozenset({STARTED, OVERDUE, CONFIRMED})

_preferences = msgspec.json.Decoder(_Preferences)


def language_of(user_preferences: bytes) -> str:
    """The language to speak, from ``user_preferences.language`` (BCP 47; only its first part counts)."""
    try:
        named = _preferences.decode(user_preferences).language
    except msgspec.DecodeError:
        return ENGLISH
    primary = named.replace("_", "-").partition("-")[0].lower()
    return primary if primary in _TEXTS[STARTED] else ENGLISH


def notice(h: Handoff, event: str, language: str) -> bytes:
    """The status message of a system event of a handoff, as A2A 1.0 JSON."""
    current = h.attempt
    agent = current.agent_id if current is not None else ""
    reason = ", ".join(filter(None, (h.outcome.value if h.outcome else "", h.detail)))
    text = _TEXTS[event][language].format(agent=agent, reason=reason)
    data: dict[str, Any] = {"type": "system_event", "event": event, "handoff_id": h.id}
    if agent:
        data["target_agent"] = agent
    if event in (RETURNED, EXPIRED):
        account = attempts_of(h)
        near = [f"{each.agent_id}: {each.reason}" for each in h.passed_over if each.near]
        text = "\n".join((text, *(_line(attempt) for attempt in h.attempts), *near[:_NEAR_MAX]))
        passed_over = [
            {"agent_id": each.agent_id, "reason": each.reason} for each in h.passed_over[:_PASSED_OVER_MAX]
        ]
        data |= {"outcome": h.outcome, "attempts": account, "passed_over": passed_over}
    data["message"] = text
    parts: list[dict[str, Any]] = [{"text": text}, {"data": data}]
    if source := _source_event(h, event):
        parts.append(
            {
                "data": {
                    "type": "system_event",
                    "event": source,
                    "handoff_id": h.id,
                    "source_agent": h.sender,
                    "message": text,
                }
            }
        )
    number = current.number if current is not None and event in _OF_AN_ATTEMPT else 0
    return pack(
        {
            "messageId": f"{h.id}:{event}:{number}" if number else f"{h.id}:{event}",
            "taskId": h.id,
            "contextId": h.context_id,
            "role": "ROLE_AGENT",
            "parts": parts,
        }
    )


def _source_event(h: Handoff, event: str) -> str:
    """What the event means for the source; empty if nothing changes for it."""
    match event:
        case "handoff_confirmed":
            return STANDBY
        case "handoff_returned" | "handoff_expired":
            return ACTIVE
        case "handoff_started" if any(attempt.acked_at is not None for attempt in h.attempts[:-1]):
            return ACTIVE  # an agent had it and could not be sent the task
        case _:
            return ""


def attempts_of(h: Handoff) -> list[dict[str, Any]]:
    """Every attempt with its outcome and reason. The current one has neither yet."""
    return [
        {
            "attempt": attempt.number,
            "agent_id": attempt.agent_id,
            "deliveries": attempt.deliveries,
            "offered_at": write_instant(attempt.offered_at),
            "acknowledged_at": None if attempt.acked_at is None else write_instant(attempt.acked_at),
            "ended_at": None if attempt.ended_at is None else write_instant(attempt.ended_at),
            "outcome": attempt.outcome,
            "reason": attempt.detail,
        }
        for attempt in h.attempts
    ]


def _line(attempt: Attempt) -> str:
    outcome = attempt.outcome.value if attempt.outcome else "-"
    reason = f" ({attempt.detail})" if attempt.detail else ""
    return f"{attempt.number}. {attempt.agent_id}: {outcome}{reason}"
