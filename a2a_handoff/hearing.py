"""What agents say of their tasks by calling the broker.

Duty: find out what a notification is about, and let it be folded into the handoff.
Rules: the end of a task is durable before the agent is answered. Anything else is looked into after the
answer, for there are agents that serve nobody while they call. What belongs to an attempt that is over
changes nothing; a result among it is kept aside, once.
Not here: who may call (``callbacks``), how a task goes on (``exchange``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Agent
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import State, WorkKind
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.exchange import Exchange, is_end
from a2a_handoff.journal import Journal
from a2a_handoff.ledger import Ledger
from a2a_handoff.ports import AgentError, Clock, StoreUnavailable, Update, WorkKey
from a2a_handoff.registry import Registry
from a2a_handoff.wire.callbacks import notification_of
from a2a_handoff.wire.delivery import end_of

_LOG = logging.getLogger("a2a_handoff.callbacks")

Spawn = Callable[[WorkKey, Coroutine[Any, Any, None]], None]


class Hearing:
    """Takes notifications.

    ``spawn`` runs what is left to do as a conversation of the dispatcher's; ``alive`` is told of which
    handoff a target spoke.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        journal: Journal,
        registry: Registry,
        exchange: Exchange,
        spawn: Spawn,
        alive: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._registry = registry
        self._exchange = exchange
        self._spawn = spawn
        self._alive = alive
        self._clock = clock

    async def take(self, handoff_id: str, number: int, body: bytes) -> Handoff:
        """A notification of whoever has the token of an attempt. The handoff that it is about.

        Raises ``HandoffError``: ``task_not_found`` if there is no such attempt, ``unavailable``.
        """
        h = await self._journal.load(handoff_id)
        attempt = next((one for one in h.attempts if one.number == number), None)
        agent = None if attempt is None else await self._registry.find(h.tenant, attempt.agent_id)
        if attempt is None or agent is None:
            raise HandoffError(Code.TASK_NOT_FOUND)
        self._registry.presence.heard_from(h.tenant, agent.agent_id)
        said = notification_of(body, agent)
        if attempt is not h.attempt or attempt.outcome is not None or not _held(h):
            await self._late(h, attempt, said)
            return h
        self._alive(h.id)
        said = _about(attempt, said)
        key = WorkKey(handoff_id=h.id, kind=WorkKind.RECONCILE, attempt=number)
        if is_end(said):
            await self._fold(key, h, attempt, agent, said)
        else:
            self._spawn(key, self._quietly(key, h, attempt, agent, said))
        return h

    async def _quietly(self, key: WorkKey, h: Handoff, attempt: Attempt, agent: Agent, said: Update) -> None:
        """Nobody waits for it: if it cannot be done now, the next look at the target comes anyhow."""
        try:
            await self._fold(key, h, attempt, agent, said)
        except (AgentError, HandoffError, StoreUnavailable) as error:
            _LOG.info("a callback was not looked into: %s", error, extra={"handoff_id": h.id})

    async def _fold(self, key: WorkKey, h: Handoff, attempt: Attempt, agent: Agent, said: Update) -> None:
        try:
            await self._exchange.called_back(key, h, attempt, agent, said)
        except HandoffError as error:
            if error.code is Code.UNAVAILABLE:
                raise
            return  # it moved on meanwhile
        after = await self._journal.recall(h.id)
        if h.state.asks and not after.state.asks and _held(after):
            # The target went on by itself: from now on it is looked after again.
            due_at = self._clock.now() + h.policy.reconcile_every_s
            again = ev.Schedule(kind=WorkKind.RECONCILE, due_at=due_at, attempt=attempt.number)
            await self._ledger.swap(key, again)

    async def _late(self, h: Handoff, attempt: Attempt, said: Update) -> None:
        """Keep a result that nobody waits for any more; who handed the task on may well say it is done."""
        command = end_of(attempt, said)
        if not isinstance(command, cmd.Complete | cmd.Fail) or EXTENSION_URI.encode() in said.metadata:
            return
        for recorded in await self._journal.log(h.id, upto=h.version):
            event = recorded.event
            if isinstance(event, ev.LateResultRecorded) and event.attempt == attempt.number:
                return
        await self._ledger.change(h.id, lambda _: (command,))


def _held(h: Handoff) -> bool:
    return not h.state.terminal and h.state is not State.HANDED_OFF


def _about(attempt: Attempt, said: Update) -> Update:
    """What is said of another task, or is a message beside the task, is no more than a hint."""
    known = attempt.remote.task_id
    if known and (said.reply or said.remote_task_id not in ("", known)):
        return Update()
    return said
