"""The handoff broker: the one service that every surface calls.

Duty: each thing that a caller may want of a handoff, with its checks of ownership and idempotency.
Rules: surfaces hold no logic; a caller sees only handoffs of its tenant that it sent, holds or held, and
what it may not see does not exist. Waiting and streaming are reads of the log; a caller that goes away
changes nothing.
Not here: HTTP and JSON-RPC (``transports``), calling agents (``dispatcher``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from a2a_handoff.broadcasts import Broadcasts
from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import fold
from a2a_handoff.core.context import Mode, Package
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.events import State
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.core.score import context_score
from a2a_handoff.core.tracing import shows_itself
from a2a_handoff.inbox import Inbox
from a2a_handoff.intake import Call, Desk, Incoming, Intake
from a2a_handoff.journal import Journal
from a2a_handoff.ledger import Ledger
from a2a_handoff.ports import (
    ANONYMOUS,
    Chain,
    ChainTaken,
    Clock,
    DuplicateRequest,
    HandoffPage,
    HandoffQuery,
    Principal,
    Recorded,
    Scope,
    Store,
    Webhook,
    WorkKey,
)
from a2a_handoff.registry import Registry, speaks_for_itself
from a2a_handoff.rollcall import RollCall
from a2a_handoff.webhooks import Webhooks, named
from a2a_handoff.wire.content import digest_of, same_content, under_id
from a2a_handoff.wire.delivery import package_json


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message: the handoff it is in, and from where on to wait.

    ``since`` are versions by handoff id (see ``Journal.wait``). ``created``: it began this handoff.
    ``replayed``: it had been taken before.
    """

    handoff: Handoff
    since: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    created: bool = False
    replayed: bool = False


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """As whom an agent acts on a handoff, and on which state of it.

    ``attempt`` 0 is the agent's current one. ``instance_id`` is which process of the agent it is, empty if
    it has one only. ``versions``: the handoff must be at one of them; empty: at any.
    """

    agent_id: str = ""
    attempt: int = 0
    instance_id: str = ""
    versions: frozenset[int] = frozenset()


class HandoffBroker:
    """Creates handoffs, moves them on, and tells how they stand."""

    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        desk: Desk,
        registry: Registry,
        journal: Journal,
        inbox: Inbox,
        broadcasts: Broadcasts,
        rollcall: RollCall,
        webhooks: Webhooks,
        clock: Clock,
    ) -> None:
        self.registry = registry
        self.desk = desk
        self.journal = journal
        self.inbox = inbox
        self.broadcasts = broadcasts
        self.rollcall = rollcall
        self.webhooks = webhooks
        self._store = store
        self._ledger = ledger
        self._clock = clock

    # --- messages --------------------------------------------------------------------------------

    async def send(
        self, principal: Principal, incoming: Incoming, *, webhook: Webhook | None = None
    ) -> Accepted:
        """Take a message: a new task, or the next word in one that is open.

        ``webhook`` is a prepared one that is to be told of it; of a message that was taken before it is
        not.

        Raises ``HandoffError``: what intake and the guards refuse, ``task_not_found`` for a task id that
        the broker did not make, ``unsupported_operation`` for a task that has ended,
        ``idempotency_conflict`` for a message id that was used with other content.
        """
        principal.require(Scope.SEND)
        if self.journal.closing:
            raise HandoffError(Code.UNAVAILABLE, "The broker is stopping; try another one.", retry_after_s=5)
        task_id = incoming.task_id
        if not task_id and incoming.alias:
            known = await self.aliased(principal, incoming.alias)
            if known is not None and await self._same_request(known.id, incoming):
                return await self._replayed(known.id)
            task_id = known.id if known is not None else ""
        if task_id:
            return await self._continue(principal, task_id, incoming, webhook)
        try:
            if incoming.refusal is not None:
                raise incoming.refusal
            intake = await self.desk.take(principal, incoming)
            await self._acknowledged_by_call(intake, incoming)
            handoff = await self._ledger.create(
                intake.request,
                reroute=intake.reroute,
                key=intake.key,
                alias=incoming.alias,
                alias_owner=principal.name or ANONYMOUS,
                attach=intake.attach,
                webhooks=() if webhook is None else (_told_of(webhook, intake, incoming),),
            )
        except DuplicateRequest as duplicate:
            return await self._repeat(duplicate, incoming)
        except ChainTaken:
            raise HandoffError(
                Code.INVALID_CONTEXT, "This correlation_id cannot be used; choose a new one."
            ) from None
        except HandoffError as refusal:
            # What was taken before is answered as then, also if it would be refused now.
            earlier = None
            if refusal.code not in (Code.UNAVAILABLE, Code.FORBIDDEN):
                key = self.desk.key_of(principal, incoming)
                earlier = await self._store.find_request(principal.tenant, *key)
            if earlier is None:
                raise
            return await self._repeat(DuplicateRequest(earlier.handoff_id, earlier.digest), incoming)
        self.registry.presence.called(principal, handoff.sender)
        return Accepted(handoff=handoff, created=True)

    async def _acknowledged_by_call(self, intake: Intake, incoming: Incoming) -> None:
        """An agent that calls about a task is at work on it, whether or not it has said *ready*."""
        parent, attach = intake.request.parent, intake.attach
        if parent is None or attach is None:
            return
        trace_id, agent_id = intake.request.trace.trace_id, attach.agent_id

        def acknowledge(h: Handoff) -> tuple[cmd.Command, ...]:
            if h.attempt is None or h.attempt.acked_at is not None:
                return ()
            traced = shows_itself(incoming.traceparent, trace_id=trace_id, invoked=h.attempt.span_id)
            return (cmd.Acknowledge(agent_id=agent_id, synthetic_span=not traced),)

        await self._ledger.change(parent.handoff_id, acknowledge)

    async def _repeat(self, first: DuplicateRequest, incoming: Incoming) -> Accepted:
        """A message that was taken before. Raises ``idempotency_conflict`` if its content is another."""
        if first.digest != incoming.digest and not await self._same_request(first.handoff_id, incoming):
            raise HandoffError(
                Code.IDEMPOTENCY_CONFLICT,
                f"Message id {(incoming.key or incoming.message_id)!r} was used before with other content.",
                facts={"task_id": first.handoff_id},
            ) from None
        return await self._replayed(first.handoff_id)

    async def _replayed(self, handoff_id: str) -> Accepted:
        handoff = await self.journal.load(handoff_id)
        return Accepted(handoff=handoff, since=await self.journal.versions(handoff), replayed=True)

    async def _same_request(self, handoff_id: str, incoming: Incoming) -> bool:
        first = await self.journal.request_of(handoff_id)
        return same_content(first.message, first.request_metadata, incoming.message, incoming.metadata)

    async def _continue(
        self, principal: Principal, task_id: str, incoming: Incoming, webhook: Webhook | None
    ) -> Accepted:
        handoff = await self.own(principal, task_id)
        _check_context(handoff, incoming)
        since = await self.journal.versions(handoff)
        leaf = await self._leaf(handoff)
        message, message_id = incoming.message, incoming.message_id
        if message_id in leaf.replies:
            # The first generation has no message ids, so its ids are made of the content: the same
            # words are a repeat, unless the target has asked again since.
            if not incoming.alias or not leaf.state.asks:
                return Accepted(handoff=handoff, since=since, replayed=True)
            message_id = f"{message_id}-{len(leaf.replies)}"
            message = under_id(message, message_id)
        reply = cmd.Reply(message=message, message_id=message_id)
        after = await self._ledger.change(leaf.id, lambda _: (reply,))
        if webhook is not None:
            await self.webhooks.add(handoff, webhook, task_id=incoming.alias or handoff.id, since=since)
        root = after if leaf.id == handoff.id else handoff
        return Accepted(handoff=root, since={**since, leaf.id: after.version})

    async def _leaf(self, handoff: Handoff) -> Handoff:
        """The handoff that carries the task now. Chains are at most six long."""
        while handoff.state is State.HANDED_OFF:
            handoff = await self.journal.load(handoff.leaf_id)
        return handoff

    # --- reading ---------------------------------------------------------------------------------

    async def get(self, principal: Principal, handoff_id: str) -> Handoff:
        """One handoff. Raises ``task_not_found``, also for what the caller may not see."""
        handoff = await self._store.load_handoff(handoff_id)
        if handoff is None or not self._may_see(principal, handoff):
            raise _not_found(handoff_id)
        return handoff

    async def own(self, principal: Principal, handoff_id: str) -> Handoff:
        """One handoff of the caller's. Raises ``task_not_found``, also for what the caller only works on."""
        handoff = await self.get(principal, handoff_id)
        name = self.registry.spelled(principal.tenant, principal.name)
        if not principal.unrestricted and name not in (handoff.sender, handoff.returns_to):
            raise _not_found(handoff_id)
        return handoff

    async def aliased(self, principal: Principal, task_id: str) -> Handoff | None:
        """The handoff behind a task id that the caller made itself (first generation)."""
        owner = principal.name or ANONYMOUS
        handoff_id = await self._store.find_alias(principal.tenant, owner, task_id)
        return None if handoff_id is None else await self.get(principal, handoff_id)

    def now(self) -> float:
        """Epoch seconds."""
        return self._clock.now()

    def new_id(self) -> str:
        """A new id, for what a caller left unnamed."""
        return self._clock.new_id()

    @property
    def tokenizer(self) -> str:
        """What counts the tokens of contexts."""
        return self.desk.counter.name

    async def list(self, principal: Principal, query: HandoffQuery) -> HandoffPage:
        """A page of handoffs. Who is not ``unrestricted`` sees those that it sent or holds."""
        if not principal.unrestricted:
            if fold(query.agent) not in ("", fold(principal.name)):
                return HandoffPage(handoffs=(), next=None, total=0)
            query = replace(query, agent=principal.name)
        named = {
            name: self.registry.spelled(principal.tenant, value)
            for name in ("sender", "agent", "holder")
            if (value := getattr(query, name))
        }
        return await self._store.list_handoffs(replace(query, **named) if named else query)

    async def events(
        self,
        principal: Principal,
        handoff_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        timeout_s: float = 0,
    ) -> tuple[Handoff, list[Recorded], bool]:
        """A handoff and its log, from a cursor on; true if it goes on after this page.

        If there is nothing yet it is waited for, at most ``timeout_s`` seconds. Its end is the last event.
        """
        handoff = await self.get(principal, handoff_id)
        return handoff, *await self.journal.read(handoff, after=after, limit=limit, timeout_s=timeout_s)

    async def tail_from(self, after: int | None) -> tuple[int, bool]:
        """Where a tail of the log begins that was read up to ``after``: there, or at its end.

        True if ``after`` lies beyond the end, so that what the reader knows is not of this log.
        """
        end = await self._store.log_end()
        return (end, after is not None) if after is None or after > end else (after, False)

    async def tail(
        self, principal: Principal, after: int, *, quiet_s: float
    ) -> AsyncGenerator[tuple[Recorded, Handoff] | None]:
        """The events after a position that the caller may see, then those to come (see ``Journal.tail``)."""
        async with aclosing(self.journal.tail(after, quiet_s=quiet_s)) as log:
            async for item in log:
                if item is None or self._may_see(principal, item[1]):
                    yield item

    async def package_of(self, handoff: Handoff) -> bytes:
        """The context package as the agent gets it that was offered the handoff, or holds it.

        Empty if nobody is.
        """
        attempt, agent = handoff.attempt, self.registry.get(handoff.tenant, handoff.holder)
        if attempt is None or agent is None:
            return b""
        first = await self.journal.request_of(handoff.id)
        return package_json(first, handoff, attempt, agent, self.count)

    async def chain(self, principal: Principal, correlation_id: str) -> tuple[Chain, list[Handoff]]:
        """A chain and its handoffs, oldest first. Raises ``not_found``."""
        try:
            chain = await self._store.find_chain(principal.tenant, correlation_id)
        except ChainTaken:
            chain = None
        handoffs = [] if chain is None else await self._store.chain_handoffs(chain.tenant, correlation_id)
        visible = [handoff for handoff in handoffs if self._may_see(principal, handoff)]
        if chain is None or not visible:
            raise HandoffError(Code.NOT_FOUND, f"There is no chain {correlation_id[:64]!r} of yours.")
        return chain, visible

    async def snapshot(
        self, principal: Principal, correlation_id: str, hop: int
    ) -> tuple[Handoff, ev.HandoffRequested]:
        """The context of one hop as it was requested: immutable, the newest of that hop."""
        _, handoffs = await self.chain(principal, correlation_id)
        at_hop = [h for h in handoffs if h.hops_before + 1 == hop]
        if not at_hop:
            raise HandoffError(Code.NOT_FOUND, f"Chain {correlation_id[:64]!r} has no hop {hop}.")
        return at_hop[-1], await self.journal.request_of(at_hop[-1].id)

    async def explain(self, principal: Principal, incoming: Incoming) -> ev.Resolution:
        """Who would get it, and why the others not, without doing it."""
        if incoming.refusal is not None:
            raise incoming.refusal
        sender, _ = self.desk.key_of(principal, incoming)
        return self.desk.resolve(principal, sender, incoming.package, incoming, spread=incoming.message_id)

    # --- acting ----------------------------------------------------------------------------------

    async def cancel(
        self,
        principal: Principal,
        handoff_id: str,
        reason: str = "",
        *,
        versions: frozenset[int] = frozenset(),
    ) -> Handoff:
        """Ask for the end of a handoff, at its leaf. Idempotent while it is under way.

        Raises ``task_not_cancelable`` if it has ended, ``precondition_failed`` at another version.
        """
        principal.require(Scope.SEND)
        handoff = await self.own(principal, handoff_id)
        command = cmd.Cancel(by=principal.name or handoff.sender, reason=reason)
        return await self._ledger.change(handoff.id, lambda h: (_at(h, versions, command),))

    async def accept(
        self, principal: Principal, handoff_id: str, claim: Claim, *, receipt: bytes = b""
    ) -> Handoff:
        """A pull agent takes the offer: this is its ACK. ``receipt`` is evidence for the loss score.

        Of several processes of one agent the first has it: another gets ``stale_attempt``.
        """
        actor = self._actor(principal, claim)
        handoff = await self._hear(principal, handoff_id, actor)
        score = None
        if receipt:
            first = await self.journal.request_of(handoff_id)
            score = context_score(first.package.context, receipt)
        agent = self.registry.get(handoff.tenant, actor or handoff.holder)
        command = cmd.Acknowledge(
            agent_id=actor,
            attempt=claim.attempt,
            context_score=score,
            instance_id=claim.instance_id,
            lease_s=None if agent is None else agent.lease_s,
        )
        return await self._ledger.change(handoff_id, lambda h: (_at(h, claim.versions, command),))

    async def decline(self, principal: Principal, handoff_id: str, claim: Claim, reason: str) -> Handoff:
        """A pull agent will not take the offer; the next candidate is asked."""
        actor = self._actor(principal, claim)
        await self._hear(principal, handoff_id, actor)

        def decide(h: Handoff) -> tuple[cmd.Command]:
            decline = cmd.Decline(agent_id=actor, attempt=claim.attempt, reason=reason, means=self.means(h))
            return (_at(h, claim.versions, decline),)

        return await self._ledger.change(handoff_id, decide)

    async def progress(
        self, principal: Principal, handoff_id: str, claim: Claim, outputs: Sequence[ev.Output]
    ) -> Handoff:
        """The holder tells what it has so far."""
        command = cmd.Progress(
            agent_id=self._actor(principal, claim), attempt=claim.attempt, outputs=tuple(outputs)
        )
        return await self._act(principal, handoff_id, claim, command)

    async def ask(
        self,
        principal: Principal,
        handoff_id: str,
        claim: Claim,
        *,
        auth: bool = False,
        message: bytes = b"",
        outputs: Sequence[ev.Output] = (),
    ) -> Handoff:
        """The holder needs input, or a credential, from the caller."""
        command = cmd.AskCaller(
            agent_id=self._actor(principal, claim),
            attempt=claim.attempt,
            auth=auth,
            message=message,
            outputs=tuple(outputs),
        )
        return await self._act(principal, handoff_id, claim, command)

    async def complete(
        self,
        principal: Principal,
        handoff_id: str,
        claim: Claim,
        *,
        message: bytes = b"",
        outputs: Sequence[ev.Output] = (),
    ) -> Handoff:
        """The holder finished. A repeat is answered as the first time.

        Raises ``stale_attempt`` or ``handoff_ended`` for a late result, which is kept all the same.
        """
        command = cmd.Complete(
            agent_id=self._actor(principal, claim),
            attempt=claim.attempt,
            message=message,
            outputs=tuple(outputs),
        )
        return await self._finish(principal, handoff_id, claim, command)

    async def fail(self, principal: Principal, handoff_id: str, claim: Claim, detail: str) -> Handoff:
        """The holder failed the task."""
        command = cmd.Fail(agent_id=self._actor(principal, claim), attempt=claim.attempt, detail=detail)
        return await self._finish(principal, handoff_id, claim, command)

    async def release(self, principal: Principal, handoff_id: str, claim: Claim, reason: str) -> Handoff:
        """The holder gives the task back to its sender."""
        command = cmd.Release(agent_id=self._actor(principal, claim), attempt=claim.attempt, reason=reason)
        return await self._act(principal, handoff_id, claim, command)

    async def _act(
        self,
        principal: Principal,
        handoff_id: str,
        claim: Claim,
        command: cmd.Progress | cmd.AskCaller | cmd.Release,
    ) -> Handoff:
        await self._hear(principal, handoff_id, command.agent_id)
        return await self._ledger.change(handoff_id, lambda h: (_at(h, claim.versions, command),))

    async def _finish(
        self, principal: Principal, handoff_id: str, claim: Claim, command: cmd.Complete | cmd.Fail
    ) -> Handoff:
        before = await self._hear(principal, handoff_id, command.agent_id)
        after = await self._ledger.change(handoff_id, lambda h: (_at(h, claim.versions, command),))
        wanted = State.COMPLETED if isinstance(command, cmd.Complete) else State.FAILED
        if after.state is wanted:
            return after
        if before.state.terminal:
            raise HandoffError(
                Code.HANDOFF_ENDED, f"The handoff has ended as {after.state}; the result was kept aside."
            )
        raise HandoffError(
            Code.STALE_ATTEMPT, "The task is with somebody else now; the result was kept aside."
        )

    async def _hear(self, principal: Principal, handoff_id: str, actor: str) -> Handoff:
        """The handoff that an agent acts on; that it acts is a sign of life. Without a name: the holder."""
        handoff = await self.get(principal, handoff_id)
        self.registry.presence.called(principal, actor or handoff.holder)
        return handoff

    def _actor(self, principal: Principal, claim: Claim) -> str:
        """Who acts: the authenticated agent, or the one that an open broker is told."""
        principal.require(Scope.WORK)
        own = self.registry.spelled(principal.tenant, principal.name)
        agent_id = self.registry.spelled(principal.tenant, claim.agent_id)
        if agent_id and agent_id != own and not speaks_for_itself(principal, agent_id):
            raise HandoffError(Code.FORBIDDEN, f"You are {own!r}, not {agent_id!r}.")
        return agent_id or own

    # --- for the dispatcher ----------------------------------------------------------------------

    async def hand_on(
        self,
        parent: Handoff,
        attempt: Attempt,
        package: Package,
        said: bytes,
        *,
        target_open: bool,
        settled: tuple[WorkKey, ...] = (),
    ) -> Handoff:
        """The target hands its task on by a directive: the same message, with a new context.

        ``said`` is the directive as it came: read again before its handoff has ended it is that one.
        ``settled`` work is done with it. Raises ``HandoffError`` if a guard refuses it; nothing is stored
        then.
        """
        first = await self.journal.request_of(parent.id)
        mode = package.options.mode or Mode.TRANSFER
        if mode is Mode.DELEGATE and not target_open:
            mode = Mode.TRANSFER  # there is nobody left to give the result to
        ended = sum(child.state is not None for child in parent.children)
        key = f"{parent.id}:{attempt.number}:{ended}:{digest_of(said, b'')[:16]}"
        incoming = Incoming(
            message=first.message,
            message_id=first.message_id,
            package=package,
            arrival=Call(),
            digest="",
            key=key,
            metadata=first.request_metadata,
            extensions=first.extensions,
            input_modes=first.input_modes,
            accepted_output_modes=first.accepted_output_modes,
            surface="directive",
        )
        holder = Principal(name=attempt.agent_id, tenant=parent.tenant, trusted=True, authenticated=True)
        intake = await self.desk.take(
            holder,
            incoming,
            parent=parent,
            mode=mode,
            attempt=attempt.number,
            said=said,
            target_open=target_open,
        )
        known = await self._store.find_request(parent.tenant, intake.key.sender, key)
        if known is not None:
            if settled:
                await self._ledger.settle(*settled)
            return await self.journal.load(known.handoff_id)
        return await self._ledger.create(
            intake.request,
            reroute=intake.reroute,
            key=intake.key,
            attach=intake.attach,
            settled=settled,
        )

    async def resolve_again(self, handoff: Handoff) -> ev.Resolution:
        """Who could take a handoff now that the first choice did not."""
        first = await self.journal.request_of(handoff.id)
        return self.desk.resolve_again(handoff, first)

    async def waiting(self) -> list[Handoff]:
        """Handoffs that wait for an agent to come."""
        return [h for h in await self._store.list_open(State.REQUESTED) if h.waiting_until is not None]

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        return self.desk.counter.count(text)

    def means(self, handoff: Handoff) -> ev.Means:
        """New ids, and who could be offered the handoff right now."""
        return ev.Means(
            offer_id=self._clock.new_id(),
            span_id=self._clock.new_span_id(),
            jitter=self._clock.jitter(),
            eligible=self.registry.eligible(handoff),
            supervisors=self.registry.supervisors(handoff),
        )

    def _may_see(self, principal: Principal, handoff: Handoff) -> bool:
        """Who is not ``unrestricted`` sees what it sent, was offered or held."""
        if handoff.tenant != principal.tenant:
            return False
        if principal.unrestricted:
            return True
        name = self.registry.spelled(principal.tenant, principal.name)
        return name in (handoff.sender, handoff.returns_to) or any(
            attempt.agent_id == name for attempt in handoff.attempts
        )


def _check_context(handoff: Handoff, incoming: Incoming) -> None:
    """A message is of the context of its task (A2A 1.0 section 3.4.3).

    A session of the first generation binds nothing.
    """
    if incoming.context_id in ("", handoff.context_id) or incoming.alias:
        return
    raise HandoffError(
        Code.INVALID_PARAMS,
        "The message names a task and the context of another one.",
        violations=(Violation("message.contextId", "must be that of the task, or left out"),),
    )


def _not_found(handoff_id: str) -> HandoffError:
    return HandoffError(Code.TASK_NOT_FOUND, f"There is no task {handoff_id[:64]!r} of yours.")


def _told_of(webhook: Webhook, intake: Intake, incoming: Incoming) -> Webhook:
    """A webhook of a new handoff, to be told of it from its first event on."""
    handoff_id = intake.request.handoff_id
    return named(webhook, handoff_id=handoff_id, task_id=incoming.alias or handoff_id)


def _at(handoff: Handoff, versions: frozenset[int], command: cmd.Command) -> cmd.Command:
    """The command, if the handoff is as its giver saw it."""
    if versions and handoff.version not in versions:
        raise HandoffError(
            Code.PRECONDITION_FAILED,
            f"The handoff is at version {handoff.version} now; read it again.",
            facts={"version": str(handoff.version)},
        )
    return command
