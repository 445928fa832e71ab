"""Does the work that commits made due, and reports what came of it as commands.

Duty: claim work under a lease, call agents, keep the time. One handler for each kind of work.
Rules: an effect happens after the commit that intends it, and its outcome is a command like any other.
A handler may run twice (a crash, a lost lease); what it tells the machine is fenced by the attempt.
Work is settled in the same commit as its outcome.
Not here: what an outcome means (``core.machine``), how agents are called (``client``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from a2a_handoff import chores
from a2a_handoff.broker import HandoffBroker
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Agent, Readiness
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Command, Outcome, State, WorkKind
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.exchange import Exchange
from a2a_handoff.ledger import IDLE_S, WORK_TOPIC, Ledger
from a2a_handoff.ports import (
    AgentClient,
    AgentError,
    Clock,
    Listener,
    Notifier,
    RemoteState,
    Sent,
    Store,
    StoreUnavailable,
    Work,
    WorkKey,
)
from a2a_handoff.registry import Registry
from a2a_handoff.talk import closable
from a2a_handoff.wire.delivery import rescind_delivery

_LOG = logging.getLogger("a2a_handoff.dispatcher")

_CLAIM = 256
_RENEW_EVERY_S = 10.0
_MISSES = 3
_HEARD_FROM_S = 5.0
_STORE_AGAIN_S = 1.0
_FORWARD_AGAIN_S = 0.5
_FORWARD_AGAIN_MAX_S = 8.0
_FAULT_AGAIN_S = 5.0
_FAULT_AGAIN_MAX_S = 300.0
_RETRIES_MAX = 10
_CONVERSATIONS = frozenset({WorkKind.DELIVER, WorkKind.FORWARD, WorkKind.RECONCILE})

Handler = Callable[[Work, Handoff], Awaitable[None]]


class Dispatcher:
    """Runs the work of this replica."""

    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        broker: HandoffBroker,
        registry: Registry,
        client: AgentClient,
        notifier: Notifier,
        clock: Clock,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._broker = broker
        self._registry = registry
        self._client = client
        self._notifier = notifier
        self._clock = clock
        self._exchange = Exchange(ledger=ledger, broker=broker, registry=registry, client=client, clock=clock)
        self._tasks: dict[asyncio.Task[None], WorkKey] = {}
        self._talks: dict[str, set[asyncio.Task[None]]] = {}
        self._begun: dict[str, set[WorkKey]] = {}
        self._misses: dict[str, int] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._handlers: dict[WorkKind, Handler] = {
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
        }
        ledger.on_work = self.take
        ledger.on_over = self._over

    # --- running ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start claiming. The store must be open."""
        self._loops = [
            chores.begin(self._claim_forever, "claim"),
            chores.begin(self._renew_forever, "renew-leases"),
        ]

    async def stop(self, *, grace_s: float) -> None:
        """Claim nothing more, give running deliveries ``grace_s`` seconds, then let go of them.

        What is let go is claimed again after the restart and reconciled with its agent.
        """
        self._stopping = True
        await chores.end(self._loops)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:
            # A commit that was under way still brings work, which is put back.
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def take(self, works: Sequence[Work]) -> None:
        """Begin claimed work. Tasks are referenced until they end: the loop keeps weak ones only.

        While the broker stops nothing begins. The work is put back, for what is only held looks to the
        next process as if it had begun.
        """
        for work in works:
            self._spawn(work.key, self._put_back(work.key, 0.0) if self._stopping else self._run(work))

    def _spawn(self, key: WorkKey, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks[task] = key
        if key.kind in _CONVERSATIONS:
            self._talks.setdefault(key.handoff_id, set()).add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        key = self._tasks.pop(task)
        talks = self._talks.get(key.handoff_id)
        if talks is not None:
            talks.discard(task)
            if not talks:
                del self._talks[key.handoff_id]
        if task.cancelled() and key.kind is WorkKind.FORWARD and not self._stopping:
            # Its attempt is over, the message of the caller is not: it is for whoever takes the task next.
            self._spawn(key, self._put_back(key, 0.0))

    def _over(self, handoff_id: str) -> None:
        """The attempt is over: stop talking to its agent, unless it was this talk that ended it.

        Whoever committed the end holds the handoff's lock, so no other task is inside a commit of it.
        """
        self._begun.pop(handoff_id, None)
        self._misses.pop(handoff_id, None)
        current = asyncio.current_task()
        for task in self._talks.get(handoff_id, ()):
            if task is not current:
                task.cancel()

    async def _claim_forever(self) -> None:
        with self._notifier.listen(WORK_TOPIC) as listener:
            while True:
                try:
                    works = await self._store.claim_work(now=self._clock.now(), limit=_CLAIM)
                    if works:
                        self.take(works)
                    if len(works) < _CLAIM:
                        await self._sleep(listener)
                except StoreUnavailable as error:
                    _LOG.warning("cannot claim work now: %s", error)
                    await listener.wait(timeout_s=1.0)

    async def _sleep(self, listener: Listener) -> None:
        due_at = await self._store.next_due()
        wait_s = IDLE_S if due_at is None else due_at - self._clock.now()
        if wait_s > 0:
            await listener.wait(timeout_s=min(wait_s, IDLE_S))

    async def _renew_forever(self) -> None:
        with self._notifier.listen("renew-leases") as never:
            while True:
                await never.wait(timeout_s=_RENEW_EVERY_S)
                with contextlib.suppress(StoreUnavailable):
                    await self._store.renew_leases(now=self._clock.now())

    async def _run(self, work: Work) -> None:
        """One piece of work, to the end. Nothing that it meets may stop the others."""
        key = work.key
        try:
            handoff = await self._broker.journal.recall(key.handoff_id)
            await self._handlers[key.kind](work, handoff)
        except HandoffError as error:
            if error.code is Code.UNAVAILABLE:
                await self._put_back(key, 1.0)
                return
            await self._void(key, error)
        except StoreUnavailable:
            await self._put_back(key, 1.0)
        except Exception:  # noqa: BLE001 - a fault of ours in one handoff must not stop the others
            _LOG.exception("work %s failed", key.kind, extra={"handoff_id": key.handoff_id})
            await self._put_back(key, _grown(_FAULT_AGAIN_S, work.claims, _FAULT_AGAIN_MAX_S))

    async def _void(self, key: WorkKey, error: HandoffError) -> None:
        """Settle what the handoff, having moved on, has no use for.

        A conversation about the current attempt is no such thing: nobody else would go on with it.
        """
        try:
            h = await self._broker.journal.load(key.handoff_id)
        except (HandoffError, StoreUnavailable):
            await self._put_back(key, 1.0)
            return
        current = h.attempt is not None and h.attempt.outcome is None and h.attempt.number == key.attempt
        over = h.state.terminal or h.state is State.HANDED_OFF
        if key.kind in _CONVERSATIONS and current and not over:
            _LOG.error("%s was refused: %s", key.kind, error, extra={"handoff_id": h.id})
            await self._put_back(key, h.policy.reconcile_every_s)
            return
        await self._settle(key)

    async def _put_back(self, key: WorkKey, in_s: float) -> None:
        """Give work back, however long the store cannot write: held and not done it would never be done."""
        while True:
            try:
                await self._store.release_work(key, due_at=self._clock.now() + in_s)
            except StoreUnavailable:
                if self._stopping:
                    return
                await asyncio.sleep(_STORE_AGAIN_S)
                continue
            self._notifier.publish(WORK_TOPIC)
            return

    async def _settle(self, key: WorkKey) -> None:
        try:
            await self._ledger.settle(key)
        except (StoreUnavailable, HandoffError):
            await self._put_back(key, 1.0)

    async def _change(self, work: Work, decide: Callable[[Handoff], Sequence[Command]]) -> Handoff:
        return await self._ledger.change(work.key.handoff_id, decide, settled=(work.key,))

    # --- delivery --------------------------------------------------------------------------------

    async def _deliver(self, work: Work, h: Handoff) -> None:
        attempt = h.attempt
        if attempt is None or attempt.number != work.key.attempt or attempt.outcome is not None:
            await self._settle(work.key)
            return
        agent = self._registry.get(h.tenant, attempt.agent_id)
        if self._has_begun(work) and await self._begun_before(work, h, attempt, agent):
            return
        if agent is None or agent.card_problem:
            detail = "the agent is not registered any more" if agent is None else agent.card_problem
            await self._failed(work, attempt, Outcome.TARGET_UNAVAILABLE, detail, again=False)
            return
        if attempt.readiness is Readiness.OFFER and attempt.acked_at is None:
            ready = await self._ready(work, h, attempt, agent)
            if ready is None:
                return
            h, attempt = ready
        elif attempt.readiness is Readiness.PROBE and not self._registry.heard_within(
            h.tenant, agent.agent_id, _HEARD_FROM_S
        ):
            try:
                await self._client.probe(agent, timeout_s=h.policy.ack_wait_s)
            except AgentError as error:
                await self._failed(work, attempt, error.outcome, error.detail, again=True)
                return
            self._registry.heard_from(h.tenant, agent.agent_id)
        self._begin(work)
        await self._exchange.deliver(work.key, h, attempt, agent)
        self._accounted(work)

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
                ev.DeliveryUnsure(
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
        self._registry.heard_from(h.tenant, agent.agent_id)
        if not answer.ready:
            await self._change(
                work,
                lambda now: (
                    ev.Decline(
                        agent_id=agent.agent_id,
                        attempt=attempt.number,
                        reason=answer.reason,
                        means=self._broker.means(now),
                    ),
                ),
            )
            return None
        ack = ev.Acknowledge(
            agent_id=agent.agent_id,
            attempt=attempt.number,
            context_score=answer.context_score,
            synthetic_span=not answer.traced,
        )
        after = await self._ledger.change(h.id, lambda _: (ack,))
        if after.cancel_requested:
            await self._change(work, lambda _: (ev.ConfirmCancel(confirmed=True),))
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
                ev.DeliveryFailed(
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
        """Pass a follow-up message of the caller on, or tell the target how its child ended."""
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
        agent = self._registry.get(h.tenant, attempt.agent_id)
        if agent is None:
            await self._put_back(work.key, h.policy.reconcile_every_s)
            return
        if self._has_begun(work) and not await self._still_asks(h, attempt, agent):
            await self._reconcile(work, h)  # it may have it: what becomes of it?
            return
        self._begin(work)
        try:
            await self._exchange.forward(work.key, h, attempt, agent)
        except AgentError as error:
            _LOG.info("a message was not passed on: %s", error, extra={"handoff_id": h.id})
            wait_s = h.policy.retry_delay(min(work.claims, _RETRIES_MAX), self._clock.jitter())
            wait_s = max(wait_s, min(error.retry_after_s or 0.0, h.policy.retry_delay_max_s))
            await self._put_back(work.key, wait_s)
        self._accounted(work)

    async def _wait_to_forward(self, work: Work) -> None:
        await self._put_back(work.key, _grown(_FORWARD_AGAIN_S, work.claims, _FORWARD_AGAIN_MAX_S))

    async def _still_asks(self, h: Handoff, attempt: Attempt, agent: Agent) -> bool:
        """Whether the target waits for the caller, so that what was said last did not reach it."""
        try:
            update = await self._client.get(agent, attempt.remote.task_id)
        except AgentError:
            return False
        self._registry.heard_from(h.tenant, agent.agent_id)
        return update.state in (RemoteState.INPUT_REQUIRED, RemoteState.AUTH_REQUIRED)

    async def _forward_to_leaf(self, work: Work, h: Handoff) -> None:
        """The target handed on before it got the message: that goes to whoever has the task now."""
        if not work.key.ref.startswith("child:"):
            message = await self._broker.journal.reply_of(h.id, work.key.ref)
            await self._tell(h.leaf_id, ev.Reply(message=message, message_id=work.key.ref))
        await self._settle(work.key)

    async def _reconcile(self, work: Work, h: Handoff) -> None:
        """Ask the target how its task stands: it is uncertain, or its stream was cut."""
        attempt = h.attempt
        if attempt is None or attempt.outcome is not None or h.state.terminal:
            await self._settle(work.key)
            return
        if h.state.asks and not h.uncertain:
            await self._settle(work.key)  # the target waits for the caller, and so does the broker
            return
        agent = self._registry.get(h.tenant, attempt.agent_id)
        if agent is None or not attempt.remote.task_id or self._exchange.busy(h.id):
            await self._put_back(work.key, h.policy.reconcile_every_s)
            return
        try:
            finished = await self._exchange.reconcile(work.key, h, attempt, agent)
        except AgentError as error:
            await self._missed(work, h, attempt, error)
            return
        self._misses.pop(h.id, None)
        if not finished:
            await self._put_back(work.key, h.policy.reconcile_every_s)

    async def _missed(self, work: Work, h: Handoff, attempt: Attempt, error: AgentError) -> None:
        if error.jsonrpc_code == -32001:
            detail = "the target no longer knows the task"
            fail = ev.Fail(attempt=attempt.number, agent_id=attempt.agent_id, detail=detail)
            await self._change(work, lambda _: (fail,))
            return
        misses = self._misses[h.id] = self._misses.get(h.id, 0) + 1
        if misses == _MISSES:
            await self._ledger.change(
                h.id,
                lambda now: (
                    ev.TargetLost(attempt=attempt.number, detail=error.detail, means=self._broker.means(now)),
                ),
            )
        await self._put_back(work.key, h.policy.reconcile_every_s)

    async def _rescind(self, work: Work, h: Handoff) -> None:
        """Tell an agent that its offer is void. A courtesy: once, and whatever comes of it."""
        attempt = next((a for a in h.attempts if a.number == work.key.attempt), None)
        agent = None if attempt is None else self._registry.get(h.tenant, attempt.agent_id)
        if attempt is not None and agent is not None and agent.interfaces:
            with contextlib.suppress(AgentError, TimeoutError):
                async with asyncio.timeout(h.policy.ack_wait_s):
                    if attempt.remote.task_id:
                        await self._client.cancel(agent, attempt.remote.task_id)
                    elif attempt.readiness is Readiness.OFFER:
                        message = rescind_delivery(h, attempt, message_id=self._clock.new_id())
                        async with contextlib.aclosing(
                            closable(self._client.send(agent, message, first_wait_s=h.policy.ack_wait_s))
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
        agent = self._registry.get(h.tenant, attempt.agent_id)
        if agent is None or not attempt.remote.task_id:
            await self._settle(work.key)  # the ACK, if it comes, makes this work anew
            return
        try:
            async with asyncio.timeout(h.policy.cancel_wait_s):
                update = await self._client.cancel(agent, attempt.remote.task_id)
        except (AgentError, TimeoutError) as error:
            _LOG.info("cancel was not confirmed: %s", error, extra={"handoff_id": h.id})
            await self._settle(work.key)
            return
        if h.state.terminal or update.state is not RemoteState.CANCELED:
            await self._settle(work.key)
            return
        await self._change(work, lambda _: (ev.ConfirmCancel(confirmed=True),))

    async def _cancel_due(self, work: Work, h: Handoff) -> None:
        del h
        await self._change(work, lambda _: (ev.ConfirmCancel(confirmed=False),))

    async def _cancel_child(self, work: Work, h: Handoff) -> None:
        await self._tell(work.key.ref, ev.Cancel(by=h.holder or h.sender, reason="the parent handoff ended"))
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
        await self._change(work, lambda now: (ev.OfferLapsed(attempt=number, means=self._broker.means(now)),))

    async def _resolve(self, work: Work, h: Handoff) -> None:
        resolution = await self._broker.resolve_again(h)
        await self._change(
            work, lambda now: (ev.Resolved(resolution=resolution, means=self._broker.means(now)),)
        )

    async def _wait_over(self, work: Work, h: Handoff) -> None:
        del h
        await self._change(work, lambda now: (ev.WaitOver(means=self._broker.means(now)),))

    async def _deadline(self, work: Work, h: Handoff) -> None:
        del h
        await self._change(work, lambda _: (ev.Expire(),))

    async def _lease(self, work: Work, h: Handoff) -> None:
        """A pull agent holds the task as long as it is heard from; while the caller is asked, anyhow."""
        attempt = h.attempt
        over = attempt is None or attempt.outcome is not None or attempt.number != work.key.attempt
        if attempt is None or over or h.state.terminal:
            await self._settle(work.key)
            return
        agent = self._registry.get(h.tenant, attempt.agent_id)
        lease_s = h.policy.lease_s if agent is None else agent.lease_s
        left_s = lease_s
        if not h.state.asks:
            left_s -= self._registry.silent_s(h.tenant, attempt.agent_id)
        if left_s > 0:
            await self._put_back(work.key, left_s)
            return
        await self._ledger.change(
            h.id,
            lambda now: (
                ev.TargetLost(
                    attempt=attempt.number, detail="its lease ran out", means=self._broker.means(now)
                ),
            ),
        )
        await self._put_back(work.key, lease_s)

    # --- agents that arrive ----------------------------------------------------------------------

    async def agent_arrived(self) -> None:
        """Look again for the handoffs that wait for somebody to take them.

        Raises ``StoreUnavailable`` and ``HandoffError`` (``unavailable``): not all were looked at.
        """
        for handoff in await self._broker.waiting():
            resolution = await self._broker.resolve_again(handoff)
            if not resolution.candidates:
                continue
            try:
                await self._ledger.change(
                    handoff.id,
                    lambda h, found=resolution: (ev.Resolved(resolution=found, means=self._broker.means(h)),),
                )
            except HandoffError as error:
                if error.code is Code.UNAVAILABLE:
                    raise


def _grown(first_s: float, tries: int, most_s: float) -> float:
    """Twice as long after every try, within bounds."""
    return min(first_s * 2 ** min(tries - 1, _RETRIES_MAX), most_s)
