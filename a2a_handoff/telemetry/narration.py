"""What happens to handoffs, as log lines.

Duty: a line for each event of the log; at ``info`` for those that an operator is asked about later (an
attempt that failed, an escalation, a handoff that did not end well), at ``debug`` for the others.
Rules: written off the path of requests, by whoever recorded the change. Names and codes only: no context, no
word of a caller or an agent.
Not here: how a line looks (``logs``).
"""

from __future__ import annotations

import logging

from a2a_handoff.core import events as ev
from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff

_LOG = logging.getLogger("a2a_handoff.handoffs")


def ids_of(handoff: Handoff) -> dict[str, str]:
    """What a line about a handoff is found by: pass it as ``extra``."""
    attempt = handoff.attempt
    return {
        "trace_id": handoff.trace.trace_id,
        "span_id": handoff.trace.hop_span_id,
        "handoff_id": handoff.id,
        "correlation_id": handoff.correlation_id,
        "agent": attempt.agent_id if attempt is not None else "",
        "tenant": handoff.tenant,
    }


def narrate(event: Event, after: Handoff) -> None:
    """Write the line of an event, if its level is wanted."""
    match event:
        case ev.AttemptEnded(agent_id=agent, attempt=attempt, outcome=outcome):
            level, told = logging.INFO, f"attempt {attempt} ended: {agent} {outcome.value}"
        case ev.DeliveryUncertain(attempt=attempt):
            level, told = (
                logging.INFO,
                f"attempt {attempt} is uncertain: the agent is asked until the deadline",
            )
        case ev.HandoffEscalated(outcome=outcome):
            level, told = logging.INFO, f"escalated: {outcome.value}"
        case ev.HandoffReturned(outcome=outcome) | ev.HandoffFailed(outcome=outcome):
            level, told = logging.INFO, f"{after.state.value}: {outcome.value}"
        case ev.HandoffExpired():
            level, told = logging.INFO, "expired: the deadline passed"
        case _:
            level, told = logging.DEBUG, type(event).__name__
    if _LOG.isEnabledFor(level):
        _LOG.log(level, "handoff of %s: %s", after.sender, told, extra=ids_of(after))
