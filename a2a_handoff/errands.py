"""What each kind of work is: deliver, ask, cancel, keep the time.

Duty: one handler for each kind of work. It calls agents, and reports what came of it as commands.
Rules: a handler may run twice (a crash, a lost lease); what it tells the machine is fenced by the attempt.
Work is settled in the same commit as its outcome. What may have been sent is asked about, not sent again.
Not here: when work is done (``dispatcher``), what an outcome means (``core.machine``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from a2a_handoff.broker import HandoffBroker
from a2a_handoff.claims import Claims
from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Agent, Readiness
from a2a_handoff.core.commands import Command
from a2a_handoff.core.errors import ERRORS, Code, HandoffError
from a2a_handoff.core.events import Outcome, State, WorkKind
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.courier import Courier
from a2a_handoff.exchange import Exchange
from a2a_handoff.ledger import Ledger, WorkLost
from a2a_handoff.ports import (
    AgentClient,
    AgentError,
    Clock,
    RemoteState,
    Sent,
    Work,
    WorkKey,
)
from a2a_handoff.registry import Registry
from a2a_handoff.wire.delivery import rescind_delivery, traceparent_of

_LOG = logging.getLogger("a2a_handoff.dispatcher")

_HEARD_FROM_S = 5.0
_FORWARD_AGAIN_S = 0.5
_FORWARD_AGAIN_MAX_S = 8.0
_RETRIES_MAX = 10
_SENDING = frozenset({WorkKind.DELIVER, WorkKind.PROBE})

Handler = Callable[[Work, Handoff], Awaitable[None]]


class Errands:
    """Does one piece of work at a time, each by the handler of its kind."""

    def __init__(
        self,
        *,
        claims: Claims,
        ledger: Ledger,
        broker: HandoffBroker,
        registry: Registry,
        client: AgentClient,
        exchange: Exchange,
        courier: Courier,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._broker = broker
        self._registry = registry
        self._client = client
        self._courier = courier
        self._clock = clock
        self._claims = claims
        ledger.holds = claims.still_ours
        self._put_back = claims.put_back
        self._settle = claims.settle
        self._exchange = exchange
        self._begun: dict[str, set[WorkKey]] = {}
        self._misses: dict[str, int] = {}
        self._handlers: dict[WorkKind, Handler] = {
            WorkKind.PROBE: self._probe,
            WorkKind.DELIVER: self._deliver,
            WorkKind.OFFER_LAPSE: self._offer_lapse,
            WorkKind.RESOLVE: self._resolve,
            WorkKind.WAIT_OVER: self._wait_over,
            WorkKind.FORWARD: self._forward,
            WorkKind.RECONCILE: self._reconcile,
            WorkKind.CANCEL: self._cancel,
            WorkKind.CANCEL_DUE: self._cancel_due,
            WorkKind.RESCIND: self._rescind,
            WorkKind.CANCEL_CHILD: self._cancel_child,
            WorkKind.LEASE: self._lease,
            WorkKind.DEADLINE: self._deadline,
            WorkKind.WEBHOOK: self._webhook,
        }

    async def do(self, work: Work, h: Handoff) -> None:
        """One piece of work, to its end.

        Raises ``HandoffError`` if the handoff has no use for it (any more), and ``StoreUnavailable``.
        """
        await self._handlers[work.key.kind](work, h)

    def forget(self, handoff_id: str) -> None:
        """The attempt is over: nothing that was out for it counts any more."""
        self._begun.pop(handoff_id, None)
        self._misses.pop(handoff_id, None)

    def answered(self, handoff_id: str) -> None:
        """The target said something of itself: that it did not answer before does not count any more."""
        self._misses.pop(handoff_id, None)

    async def _change(self, work: Work, decide: Callable[[Handoff], Sequence[Command]]) -> Handoff:
        return await self._ledger.change(work.key.handoff_id, decide, settled=(work.key,))

    # --- delivery --------------------------------------------------------------------------------

    async def _deliver(self, work: Work, h: Handoff) -> None:
        attempt = h.attempt
        if attempt is None or attempt.number != work.key.attempt or attempt.outcome is not None:
            await self._settle(work.key)
            return
        agent = await self._agent(h, attempt)
        resent = self._has_begun(work) or h.uncertain
        if resent and await self._begun_before(work, h, attempt, agent):
            return
        agent = await self._reachable(work, attempt, agent)
        if agent is None:
            return
        if attempt.readiness is Readiness.OFFER and attempt.acked_at is None:
            ready = await self._ready(work, h, attempt, agent)
            if ready is None:
                return
            h, attempt = ready
        elif attempt.readiness is Readiness.PROBE and not self._registry.presence.heard_within(
            h.tenant, agent.agent_id, _HEARD_FROM_S
        ):
            # Work of its own: after a crash meanwhile it is plain that nothing was sent.
            await self._ledger.swap(work.key, self._now(WorkKind.PROBE, attempt))
            return
        delivery = await self._exchange.prepare(h, attempt, agent)
        if not await self._claims.still_ours(work.key):
            raise WorkLost
        self._begin(work)
        await self._exchange.deliver(work.key, h, attempt, agent, delivery, resent=resent)
        self._accounted(work)

    async def give_up(self, work: Work, h: Handoff) -> bool:
        """A fault of ours keeps a task from being sent at all: it goes on to the next agent, or back.

        False if that is not what happened.
        """
        attempt = h.attempt
        if work.key.kind not in _SENDING or attempt is None or self._has_begun(work):
            return False
        detail = "the broker could not send it"
        await self._failed(work, attempt, Outcome.TARGET_UNAVAILABLE, detail, again=False)
        return True

    async def _probe(self, work: Work, h: Handoff) -> None:
        """Look whether a plain agent that was not heard from answers at all, before it gets the task."""
        attempt = h.attempt
        if attempt is None or attempt.number != work.key.attempt or attempt.outcome is not None:
            await self._settle(work.key)
            return
        agent = await self._reachable(work, attempt, await self._agent(h, attempt))
        if agent is None:
            return
        try:
            await self._client.probe(agent, timeout_s=h.policy.ack_wait_s)
        except AgentError as error:
            await self._failed(work, attempt, error.outcome, error.detail, again=True)
            return
        self._registry.presence.heard_from(h.tenant, agent.agent_id)
        await self._ledger.swap(work.key, self._now(WorkKind.DELIVER, attempt))

    def _now(self, kind: WorkKind, attempt: Attempt) -> ev.Schedule:
        return ev.Schedule(kind=kind, due_at=self._clock.now(), attempt=attempt.number)

    async def _reachable(self, work: Work, attempt: Attempt, agent: Agent | None) -> Agent | None:
        """The agent, if there is one that can be called; else the attempt has failed."""
        if agent is not None and not agent.card_problem:
            return agent
        detail = "the agent is not registered any more" if agent is None else agent.card_problem
        await self._failed(work, attempt, Outcome.TARGET_UNAVAILABLE, detail, again=False)
        return None

    def _has_begun(self, work: Work) -> bool:
        """Whether a dead process, or a try of this one that failed, may have sent it already."""
        return work.orphaned or work.key in self._begun.get(work.key.handoff_id, ())

    def _begin(self, work: Work) -> None:
        self._begun.setdefault(work.key.handoff_id, set()).add(work.key)

    def _accounted(self, work: Work) -> None:
        """What came of it is durable: if the same work comes again, it is to be done again."""
        keys = self._begun.get(work.key.handoff_id)
        if keys is not None:
            keys.discard(work.key)
            if not keys:
                del self._begun[work.key.handoff_id]

    async def _begun_before(self, work: Work, h: Handoff, attempt: Attempt, agent: Agent | None) -> bool:
        """What to do with a delivery that had begun and has no end. True if it is taken care of.

        A receiver of our extension deduplicates, so it simply gets the task again. A plain agent may
        be at work on it: if it told its task id it is asked, else only time can tell.
        """
        if attempt.readiness is Readiness.OFFER and not attempt.remote.task_id and agent is not None:
            return False
        if attempt.acked_at is not None and attempt.remote.task_id:
            await self._reconcile(work, h)
            return True
        await self._change(
            work,
            lambda now: (
                cmd.DeliveryUnsure(
                    attempt=attempt.number,
                    detail="the delivery was interrupted",
                    means=self._broker.means(now),
                ),
            ),
        )
        return True

    async def _ready(
        self, work: Work, h: Handoff, attempt: Attempt, agent: Agent
    ) -> tuple[Handoff, Attempt] | None:
        """Make the offer and commit the answer. How things stand if the agent is to get the task."""
        try:
            answer = await self._exchange.offer(h, attempt, agent)
        except AgentError as error:
            # An offer starts no work, so silence is as good as a refused connection here.
            if error.outcome is Outcome.TARGET_AUTH:
                await self._failed(work, attempt, error.outcome, error.detail, again=False)
            else:
                retry = error.sent is not Sent.YES or error.again
                await self._failed(
                    work, attempt, error.outcome, error.detail, again=retry, retry_after_s=error.retry_after_s
                )
            return None
        self._registry.presence.heard_from(h.tenant, agent.agent_id)
        if not answer.ready:
            await self._change(
                work,
                lambda now: (
                    cmd.Decline(
                        agent_id=agent.agent_id,
                        attempt=attempt.number,
                        reason=answer.reason,
                        means=self._broker.means(now),
                    ),
                ),
            )
            return None
        ack = cmd.Acknowledge(
            agent_id=agent.agent_id,
            attempt=attempt.number,
            context_score=answer.context_score,
            synthetic_span=not answer.traced,
        )
        after = await self._ledger.change(h.id, lambda _: (ack,), held=(work.key,))
        if after.cancel_requested:
            await self._change(work, lambda _: (cmd.ConfirmCancel(confirmed=True),))
            return None
        current = after.attempt
        return None if current is None else (after, current)

    async def _failed(
        self,
        work: Work,
        attempt: Attempt,
        outcome: Outcome,
        detail: str,
        *,
        again: bool,
        retry_after_s: float | None = None,
    ) -> None:
        await self._change(
            work,
            lambda h: (
                cmd.DeliveryFailed(
                    attempt=attempt.number,
                    outcome=outcome,
                    detail=detail,
                    again=again,
                    retry_after_s=retry_after_s,
                    means=self._broker.means(h),
                ),
            ),
        )

    async def _forward(self, work: Work, h: Handoff) -> None:
        """Pass a follow-up message of the caller on, or tell the target of its child."""
        attempt = h.attempt
        of_child = work.key.ref.startswith("child:")
        if h.state.terminal or (of_child and (attempt is None or attempt.number != work.key.attempt)):
            await self._settle(work.key)
            return
        if h.state is State.HANDED_OFF:
            await self._forward_to_leaf(work, h)
            return
        if attempt is None or attempt.outcome is not None or attempt.acked_at is None:
            await self._wait_to_forward(work)  # nobody has the task so far
            return
        if attempt.readiness in (Readiness.PULL, Readiness.PERSON):
            await self._settle(work.key)  # it reads the log itself
            return
        if not attempt.remote.task_id:
            await self._wait_to_forward(work)
            return
        agent = await self._agent(h, attempt)
        if agent is None:
            await self._put_back(work.key, h.policy.reconcile_every_s)
            return
        if self._has_begun(work) and not await self._still_asks(h, attempt, agent):
            await self._reconcile(work, h)  # it may have it: what becomes of it?
            return
        if not await self._claims.still_ours(work.key):
            raise WorkLost
        self._begin(work)
        try:
            await self._exchange.forward(work.key, h, attempt, agent)
        except AgentError as error:
            _LOG.info("a message was not passed on: %s", error, extra={"handoff_id": h.id})
            wait_s = h.policy.retry_delay(min(work.claims, _RETRIES_MAX), self._clock.jitter())
            wait_s = max(wait_s, min(error.retry_after_s or 0.0, h.policy.retry_delay_max_s))
            await self._put_back(work.key, wait_s)
        self._accounted(work)

    async def _agent(self, h: Handoff, attempt: Attempt) -> Agent | None:
        """The agent of an attempt, though another broker registered it a moment ago."""
        return await self._registry.find(h.tenant, attempt.agent_id)

    async def _wait_to_forward(self, work: Work) -> None:
        await self._put_back(work.key, grown(_FORWARD_AGAIN_S, work.claims, _FORWARD_AGAIN_MAX_S))

    async def _still_asks(self, h: Handoff, attempt: Attempt, agent: Agent) -> bool:
        """Whether the target waits for the caller, so that what was said last did not reach it."""
        try:
            update = await self._client.get(agent, attempt.remote.task_id)
        except AgentError:
            return False
        self._registry.presence.heard_from(h.tenant, agent.agent_id)
        return update.state is not None and update.state.asks

    async def _forward_to_leaf(self, work: Work, h: Handoff) -> None:
        """The target handed on before it got the message: that goes to whoever has the task now."""
        if not work.key.ref.startswith("child:"):
            message = await self._broker.journal.reply_of(h.id, work.key.ref)
            await self._tell(h.leaf_id, cmd.Reply(message=message, message_id=work.key.ref))
        await self._settle(work.key)

    async def _reconcile(self, work: Work, h: Handoff) -> None:
        """Ask the target how its task stands: it is uncertain, or its stream was cut."""
        attempt = h.attempt
        if attempt is None or attempt.outcome is not None or h.state.terminal:
            await self._settle(work.key)
            return
        if h.state.asks and not h.uncertain and await self._pauses(work, h, attempt):
            return
        if attempt.readiness is Readiness.OFFER and not attempt.remote.task_id and h.uncertain:
            await self._resend(work, h, attempt)
            return
        if not attempt.remote.task_id or self._exchange.busy(h.id):
            await self._put_back(work.key, h.policy.reconcile_every_s)
            return
        agent = await self._agent(h, attempt)
        try:
            if agent is None:
                raise AgentError(Outcome.TARGET_UNAVAILABLE, "it is not registered any more", sent=Sent.NO)
            finished = await self._exchange.reconcile(work.key, h, attempt, agent)
        except AgentError as error:
            await self._missed(work, h, attempt, error)
            return
        self._misses.pop(h.id, None)
        if not finished:
            await self._put_back(work.key, h.policy.reconcile_every_s)

    async def _pauses(self, work: Work, h: Handoff, attempt: Attempt) -> bool:
        """Whether there is nothing to do while the target waits.

        For the caller's word the broker waits as well. What it has to be authorised for it may hear of by
        another way (A2A 1.0 section 7.6), and then nobody tells the broker.
        """
        if h.state is State.INPUT_REQUIRED:
            await self._settle(work.key)
            return True
        agent = await self._agent(h, attempt)
        if agent is None or not attempt.remote.task_id or not await self._still_asks(h, attempt, agent):
            return False
        self._misses.pop(h.id, None)
        await self._put_back(work.key, h.policy.reconcile_every_s)
        return True

    async def _resend(self, work: Work, h: Handoff, attempt: Attempt) -> None:
        """Send the task once more to an agent that knows by the offer id whether it has it."""
        if self._exchange.busy(h.id):
            await self._put_back(work.key, h.policy.reconcile_every_s)
            return
        later = self._clock.now() + h.policy.reconcile_every_s
        again = ev.Schedule(kind=WorkKind.RECONCILE, due_at=later, attempt=attempt.number)
        await self._ledger.swap(work.key, self._now(WorkKind.DELIVER, attempt), again)

    async def _missed(self, work: Work, h: Handoff, attempt: Attempt, error: AgentError) -> None:
        if error.jsonrpc_code == ERRORS[Code.TASK_NOT_FOUND].jsonrpc:
            detail = "the target no longer knows the task"
            fail = cmd.Fail(attempt=attempt.number, agent_id=attempt.agent_id, detail=detail)
            await self._change(work, lambda _: (fail,))
            return
        misses = self._misses[h.id] = self._misses.get(h.id, 0) + 1
        if misses * h.policy.reconcile_every_s >= h.policy.lost_after_s:
            await self._ledger.change(
                h.id,
                lambda now: (
                    cmd.TargetLost(
                        attempt=attempt.number, detail=error.detail, means=self._broker.means(now)
                    ),
                ),
            )
        await self._put_back(work.key, h.policy.reconcile_every_s)

    async def _rescind(self, work: Work, h: Handoff) -> None:
        """Tell an agent that its offer is void. A courtesy: once, and whatever comes of it."""
        attempt = next((a for a in h.attempts if a.number == work.key.attempt), None)
        agent = None if attempt is None else await self._agent(h, attempt)
        if attempt is not None and agent is not None and agent.interfaces:
            with contextlib.suppress(AgentError, TimeoutError):
                async with asyncio.timeout(h.policy.ack_wait_s):
                    if attempt.remote.task_id:
                        await self._client.cancel(
                            agent, attempt.remote.task_id, traceparent=traceparent_of(h, attempt)
                        )
                    elif attempt.readiness is Readiness.OFFER:
                        message = rescind_delivery(h, attempt, message_id=self._clock.new_id())
                        async with contextlib.aclosing(
                            self._client.send(agent, message, first_wait_s=h.policy.ack_wait_s)
                        ) as answers:
                            async for _ in answers:
                                break
        await self._settle(work.key)

    # --- canceling -------------------------------------------------------------------------------

    async def _cancel(self, work: Work, h: Handoff) -> None:
        """Tell the target to stop; it is final when it confirms, or ``cancel_wait`` is over."""
        attempt = next((a for a in h.attempts if a.number == work.key.attempt), None)
        if attempt is None or attempt.readiness in (Readiness.PULL, Readiness.PERSON):
            await self._settle(work.key)
            return
        agent = await self._agent(h, attempt)
        if agent is None or not attempt.remote.task_id:
            await self._settle(work.key)  # the ACK, if it comes, makes this work anew
            return
        try:
            async with asyncio.timeout(h.policy.cancel_wait_s):
                traceparent = traceparent_of(h, attempt)
                update = await self._client.cancel(agent, attempt.remote.task_id, traceparent=traceparent)
        except (AgentError, TimeoutError) as error:
            _LOG.info("cancel was not confirmed: %s", error, extra={"handoff_id": h.id})
            await self._settle(work.key)
            return
        if h.state.terminal or update.state is not RemoteState.CANCELED:
            await self._settle(work.key)
            return
        await self._change(work, lambda _: (cmd.ConfirmCancel(confirmed=True),))

    async def _cancel_due(self, work: Work, h: Handoff) -> None:
        del h
        await self._change(work, lambda _: (cmd.ConfirmCancel(confirmed=False),))

    async def _cancel_child(self, work: Work, h: Handoff) -> None:
        await self._tell(work.key.ref, cmd.Cancel(by=h.holder or h.sender, reason="the parent handoff ended"))
        await self._settle(work.key)

    async def _tell(self, handoff_id: str, command: Command) -> None:
        """Give a command to another handoff. Whether that has a use for it is its own affair."""
        try:
            await self._ledger.change(handoff_id, lambda _: (command,))
        except HandoffError as error:
            if error.code is Code.UNAVAILABLE:
                raise

    # --- time ------------------------------------------------------------------------------------

    async def _offer_lapse(self, work: Work, h: Handoff) -> None:
        del h
        number = work.key.attempt
        await self._change(
            work, lambda now: (cmd.OfferLapsed(attempt=number, means=self._broker.means(now)),)
        )

    async def _resolve(self, work: Work, h: Handoff) -> None:
        resolution = await self._broker.resolve_again(h)
        await self._change(
            work, lambda now: (cmd.Resolved(resolution=resolution, means=self._broker.means(now)),)
        )

    async def _wait_over(self, work: Work, h: Handoff) -> None:
        del h
        await self._change(work, lambda now: (cmd.WaitOver(means=self._broker.means(now)),))

    async def _deadline(self, work: Work, h: Handoff) -> None:
        del h
        await self._change(work, lambda _: (cmd.Expire(),))

    async def _lease(self, work: Work, h: Handoff) -> None:
        """A pull agent holds the task as long as it is heard from; while the caller is asked, anyhow."""
        attempt = h.attempt
        over = attempt is None or attempt.outcome is not None or attempt.number != work.key.attempt
        if attempt is None or over or h.state.terminal:
            await self._settle(work.key)
            return
        agent = await self._agent(h, attempt)
        lease_s = h.policy.lease_s if agent is None else agent.lease_s
        left_s = lease_s
        if not h.state.asks:
            left_s -= self._registry.presence.silent_s(h.tenant, attempt.agent_id)
        if left_s > 0:
            await self._put_back(work.key, left_s)
            return
        await self._ledger.change(
            h.id,
            lambda now: (
                cmd.TargetLost(
                    attempt=attempt.number, detail="its lease ran out", means=self._broker.means(now)
                ),
            ),
        )
        await self._put_back(work.key, lease_s)

    async def _webhook(self, work: Work, h: Handoff) -> None:
        if self._courier.is_at(work.key.ref):
            return  # the lease had lapsed while this process was at it, and is its own again
        again_s = await self._courier.run(h.id, work.key.ref)
        if again_s is None:
            await self._settle(work.key)
        else:
            await self._put_back(work.key, again_s)


def grown(first_s: float, tries: int, most_s: float) -> float:
    """Twice as long after every try, within bounds."""
    return min(first_s * 2 ** min(tries - 1, _RETRIES_MAX), most_s)
