"""What the broker says to a target about one attempt.

Duty: the offer and its answer; beginning a conversation about the task, about a follow-up, or about how
things stand after one was cut.
Not here: when to talk (``dispatcher``), what comes of it (``talk``), how it travels (``client``).
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from msgspec.structs import replace

from a2a_handoff.broker import HandoffBroker
from a2a_handoff.callbacks import Callbacks
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Agent, Generation
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.core.score import context_score
from a2a_handoff.core.tracing import shows_itself
from a2a_handoff.ledger import Ledger
from a2a_handoff.ports import (
    AgentClient,
    AgentError,
    Clock,
    Delivery,
    HandoffQuery,
    RemoteState,
    Sent,
    Update,
    WorkKey,
)
from a2a_handoff.registry import Registry
from a2a_handoff.talk import Talk, Talks
from a2a_handoff.wire.delivery import (
    child_delivery,
    delivered_context,
    offer_delivery,
    reply_delivery,
    task_delivery,
)
from a2a_handoff.wire.directive import Verb, read_directive
from a2a_handoff.wire.tasks import task_json

_CONTEXT_PAGE = 20


class OfferAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent said to an explicit offer. ``traced``: it answered within our trace."""

    ready: bool
    reason: str = ""
    context_score: float | None = None
    traced: bool = False


class Exchange:
    """Talks to targets on behalf of the dispatcher."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        broker: HandoffBroker,
        registry: Registry,
        client: AgentClient,
        callbacks: Callbacks,
        clock: Clock,
    ) -> None:
        self.ledger = ledger
        self.broker = broker
        self.journal = broker.journal
        self.registry = registry
        self.client = client
        self.callbacks = callbacks
        self.clock = clock
        self.talks = Talks(ledger=ledger, broker=broker, registry=registry, client=client, clock=clock)

    def busy(self, handoff_id: str) -> bool:
        """Whether a conversation about this handoff is under way in this process."""
        return self.talks.reader(handoff_id) is not None

    # --- the offer -------------------------------------------------------------------------------

    async def offer(self, h: Handoff, attempt: Attempt, agent: Agent) -> OfferAnswer:
        """Ask whether the agent is ready. Raises ``AgentError``; silence is one too."""
        event = await self.journal.request_of(h.id)
        delivery = offer_delivery(
            event, h, attempt, agent, self.broker.count, message_id=f"{attempt.offer_id}:{attempt.deliveries}"
        )
        try:
            async with (
                asyncio.timeout(h.policy.ack_wait_s),
                contextlib.aclosing(
                    self.client.send(agent, delivery, first_wait_s=h.policy.ack_wait_s)
                ) as answers,
            ):
                async for update in answers:
                    return self._read_offer(event, h, attempt, agent, update)
        except TimeoutError:
            raise AgentError(
                Outcome.TIMEOUT, "no answer to the offer in time", sent=Sent.MAYBE, again=True
            ) from None
        raise AgentError(Outcome.INVALID_RESPONSE, "no answer to the offer", sent=Sent.YES)

    def _read_offer(
        self, event: ev.HandoffRequested, h: Handoff, attempt: Attempt, agent: Agent, update: Update
    ) -> OfferAnswer:
        sent = delivered_context(event, agent, self.broker.count)
        try:
            said = read_directive(update.metadata, now=self.clock.now(), parent=sent)
        except HandoffError as error:
            raise AgentError(Outcome.INVALID_RESPONSE, error.message, sent=Sent.YES) from error
        if said is not None and said.verb is Verb.READY and said.offer_id in ("", attempt.offer_id):
            return OfferAnswer(
                ready=True,
                context_score=context_score(sent, said.receipt) if said.receipt else None,
                traced=shows_itself(update.traceparent, trace_id=h.trace.trace_id, invoked=attempt.span_id),
            )
        if said is not None and said.verb is Verb.DECLINED:
            return OfferAnswer(ready=False, reason=said.reason)
        if update.state is RemoteState.REJECTED:
            return OfferAnswer(ready=False, reason="the agent rejected the offer")
        raise AgentError(Outcome.INVALID_RESPONSE, "it answered the offer with something else", sent=Sent.YES)

    # --- the task --------------------------------------------------------------------------------

    async def prepare(self, h: Handoff, attempt: Attempt, agent: Agent) -> Delivery:
        """The task as the agent will get it. Nothing is sent yet: what goes wrong here is in no doubt."""
        event = await self.journal.request_of(h.id)
        delivery = task_delivery(event, h, attempt, agent, self.broker.count)
        return replace(
            delivery,
            remote_context_id=await self._known_context(event, h, agent),
            callback=self.callbacks.of(h.id, attempt, agent),
        )

    async def deliver(
        self,
        key: WorkKey,
        h: Handoff,
        attempt: Attempt,
        agent: Agent,
        delivery: Delivery,
        *,
        resent: bool,
    ) -> None:
        """Send the task and see the conversation through. ``resent``: it may have been sent before."""
        event = await self.journal.request_of(h.id)
        answers = self.client.send(agent, delivery, first_wait_s=None)
        talk = Talk(
            talks=self.talks,
            key=key,
            handoff=h,
            attempt=attempt,
            agent=agent,
            event=event,
            resent=resent,
            calls_back=delivery.callback is not None,
        )
        self.talks.become_reader(talk)
        await talk.run(answers)

    async def _known_context(self, event: ev.HandoffRequested, h: Handoff, agent: Agent) -> str:
        """The context that this agent made for the one that the caller goes on in; empty if none."""
        if b'"contextId"' not in event.message:
            return ""  # the caller began a new one
        query = HandoffQuery(tenant=h.tenant, sender=h.sender, context_id=h.context_id, limit=_CONTEXT_PAGE)
        for past in (await self.ledger.store.list_handoffs(query)).handoffs:
            for attempt in reversed(past.attempts):
                if attempt.agent_id == agent.agent_id and attempt.remote.context_id:
                    return attempt.remote.context_id
        return ""

    async def forward(self, key: WorkKey, h: Handoff, attempt: Attempt, agent: Agent) -> None:
        """Pass on a reply of the caller, or word of a child, under the target's own task id.

        Raises ``AgentError`` if the target cannot have got it.
        """
        event = await self.journal.request_of(h.id)
        if key.ref.startswith("child:"):
            child = await self.journal.load(key.ref.split(":")[1])
            view = await self.journal.view(child)
            delivery = child_delivery(h, attempt, child, task_json(view, Generation.V1_0))
        else:
            message = await self.journal.reply_of(h.id, key.ref)
            delivery = reply_delivery(h, attempt, message)
        delivery = replace(delivery, callback=self.callbacks.of(h.id, attempt, agent))
        answers = self.client.send(agent, delivery, first_wait_s=None)
        talk = Talk(
            talks=self.talks,
            key=key,
            handoff=h,
            attempt=attempt,
            agent=agent,
            event=event,
            follow_up=True,
            calls_back=delivery.callback is not None,
        )
        self.talks.become_reader(talk)
        await talk.run(answers)

    async def reconcile(self, key: WorkKey, h: Handoff, attempt: Attempt, agent: Agent) -> bool:
        """Ask the target how its task stands, and follow it if it goes on and does not call back.

        True if the conversation came to an end; ``key`` is settled then. Raises ``AgentError``.
        """
        talk = await self._question(key, h, attempt, agent)
        if not self.talks.become_reader(talk):
            return False
        try:
            ended = await talk.ask_on()
        finally:
            self.talks.leave(talk)
        if ended and talk.calls_back:
            self.callbacks.missed(agent)
        return ended

    async def called_back(
        self, key: WorkKey, h: Handoff, attempt: Attempt, agent: Agent, said: Update
    ) -> None:
        """The target called. What it says of the end is its word; anything else is a hint to ask it.

        Notifications may come twice, late and in any order, so nothing but the end and the words with it is
        taken from one, and both only once. ``key`` is settled with the end. Raises ``AgentError`` if the
        target could not be asked.
        """
        self.callbacks.heard(agent)
        talk = await self._question(key, h, attempt, agent)
        reading = self.talks.become_reader(talk)
        try:
            if is_end(said):
                await talk.take([said])
            elif reading:
                await self._look(talk, said)
            elif reader := self.talks.reader(h.id):
                reader.hinted = True
                if _over(said):
                    await self._look(talk, said)
        finally:
            self.talks.leave(talk)

    async def _look(self, talk: Talk, said: Update) -> None:
        """Ask the target, which has more to say than one notification, and may say it in vain."""
        if not talk.attempt.remote.task_id:
            if not said.remote_task_id:
                return
            # The answer to the delivery was lost, or is still to come: now the task has a name.
            taken = replace(said, message=b"", outputs=(), metadata=b"", state=RemoteState.WORKING)
            await talk.take([taken])
        elif said.message and said.state is RemoteState.WORKING and not talk.handoff.state.asks:
            await talk.take([replace(said, snapshot=True)])
        try:
            if await talk.ask_on():
                return
        except AgentError:
            if not _over(said):
                raise
        if _over(said):
            await talk.take([said])

    async def _question(self, key: WorkKey, h: Handoff, attempt: Attempt, agent: Agent) -> Talk:
        return Talk(
            talks=self.talks,
            key=key,
            handoff=h,
            attempt=attempt,
            agent=agent,
            event=await self.journal.request_of(h.id),
            asking=True,
            calls_back=self.callbacks.wanted_of(agent),
        )


def is_end(said: Update) -> bool:
    """Whether a notification has all of the end of a task in it: the task itself, or a reply in its place."""
    return said.reply or (said.snapshot and _over(said))


def _over(said: Update) -> bool:
    return said.state is not None and said.state.terminal
