"""In which order an agent is shown what it was offered.

Rules: more urgent first, and of one priority what was offered first. Each step of priority is worth
``AGEING_S`` seconds of waiting, so that nothing waits for ever behind what is more urgent.
"""

from __future__ import annotations

from collections.abc import Iterable

from a2a_handoff.core.context import Priority
from a2a_handoff.core.handoff import Handoff

#: How much sooner each step of priority makes an offer count as made.
AGEING_S = 300.0

_STEPS = {priority: step for step, priority in enumerate(Priority)}


def in_order(offered: Iterable[Handoff]) -> list[Handoff]:
    """Handoffs whose newest attempt is out with one agent, the one to take first first."""
    return sorted(offered, key=lambda h: (h.attempts[-1].offered_at - AGEING_S * _STEPS[h.priority], h.id))
