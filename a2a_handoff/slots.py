"""What an offer needs of an agent that takes only so many tasks at a time.

Duty: whose slots a commit names, and what a decision knows of those that have none.
Rules: the store alone says who is full; what this process counts only ranks. An agent that is full is offered
something by name, or if everybody is full who could be asked, and the commit says so.
Not here: who is asked then (``core.machine``), counting (the stores).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.commands import Command
from a2a_handoff.core.events import Event, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import Slot, SlotConflict
from a2a_handoff.registry import Registry


class Need(NamedTuple):
    """The ``slots`` of a commit, and whether it goes ``beyond`` them."""

    slots: tuple[Slot, ...] = ()
    beyond: bool = False

    def learnt(self, full: frozenset[str], conflict: SlotConflict) -> frozenset[str]:
        """Who is full, now that the store was asked about some."""
        return full.difference(slot.agent_id for slot in self.slots) | conflict.full


def needed(registry: Registry, steps: Sequence[tuple[Event, Handoff]], full: frozenset[str]) -> Need:
    """What a change needs, decided with the knowledge of who is ``full``.

    Nothing without an offer, and for an agent that has no limit or that the sender names.
    """
    if not any(isinstance(event, ev.HandoffOffered) for event, _ in steps):
        return Need()
    h = steps[-1][1]
    agent_id = h.occupies  # none, if the offer is over already
    chosen = _slot(registry, h, agent_id)
    if chosen is None or h.names(agent_id):
        return Need()
    # An escalation goes to supervisors, who are no candidates.
    others = frozenset[str]() if h.state is State.ESCALATED else registry.eligible(h)
    untried = sorted(others.difference(attempt.agent_id for attempt in h.attempts))
    slots = (chosen, *filter(None, (_slot(registry, h, other) for other in untried)))
    return Need(slots, beyond=agent_id in full)


def _slot(registry: Registry, h: Handoff, agent_id: str) -> Slot | None:
    agent = registry.get(h.tenant, agent_id)
    if agent is None or agent.max_concurrency is None:
        return None
    return Slot(tenant=h.tenant, agent_id=agent_id, limit=agent.max_concurrency)


def informed(
    decide: Callable[[Handoff], Sequence[Command]], full: frozenset[str]
) -> Callable[[Handoff], Sequence[Command]]:
    """The same commands, of somebody who knows who is full."""
    if not full:
        return decide

    def knowing(h: Handoff) -> Sequence[Command]:
        return [
            replace(command, means=replace(command.means, full=full))
            if isinstance(command, cmd.Offering)
            else command
            for command in decide(h)
        ]

    return knowing
