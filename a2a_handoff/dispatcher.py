"""Sees that the work is done that commits made due.

Duty: claim work under a lease, run each piece in a task of its own, end what an attempt's end makes void.
Rules: an effect happens after the commit that intends it. Nothing that one piece of work meets may stop
the others. What is held and not done is put back.
Not here: what the work is (``errands``), how agents are called (``client``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from a2a_handoff import chores
from a2a_handoff.broker import HandoffBroker
from a2a_handoff.callbacks import Callbacks
from a2a_handoff.claims import Claims
from a2a_handoff.core import commands as cmd
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import State, WorkKind
from a2a_handoff.courier import Courier
from a2a_handoff.errands import Errands, grown
from a2a_handoff.exchange import Exchange
from a2a_handoff.hearing import Hearing
from a2a_handoff.ledger import IDLE_S, WORK_TOPIC, Ledger, WorkLost
from a2a_handoff.ports import (
    AgentClient,
    Clock,
    Listener,
    Notifier,
    Store,
    StoreUnavailable,
    Work,
    WorkKey,
)
from a2a_handoff.registry import Registry

_LOG = logging.getLogger("a2a_handoff.dispatcher")

_CLAIM = 256
_FAULT_AGAIN_S = 5.0
_FAULT_AGAIN_MAX_S = 300.0
#: So often a task that cannot be sent for a fault of ours is tried.
_FAULTS_MAX = 3
_CONVERSATIONS = frozenset({WorkKind.DELIVER, WorkKind.FORWARD, WorkKind.RECONCILE})


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
        callbacks: Callbacks,
        courier: Courier,
        notifier: Notifier,
        clock: Clock,
        renew_every_s: float = 10.0,
    ) -> None:
        """``renew_every_s``: how often claims are renewed, a third of the time that one holds."""
        self._store = store
        self._ledger = ledger
        self._broker = broker
        self._notifier = notifier
        self._clock = clock
        self._renew_every_s = renew_every_s
        self._renewed_at: float | None = None
        self._claims = Claims(store=store, ledger=ledger, notifier=notifier, clock=clock)
        exchange = Exchange(
            ledger=ledger, broker=broker, registry=registry, client=client, callbacks=callbacks, clock=clock
        )
        self._errands = Errands(
            claims=self._claims,
            ledger=ledger,
            broker=broker,
            registry=registry,
            client=client,
            exchange=exchange,
            courier=courier,
            clock=clock,
        )
        #: Takes what agents say of themselves.
        self.hearing = Hearing(
            ledger=ledger,
            journal=broker.journal,
            registry=registry,
            exchange=exchange,
            spawn=self._spawn,
            alive=self._errands.answered,
            clock=clock,
        )
        self._tasks: dict[asyncio.Task[None], WorkKey] = {}
        self._talks: dict[str, set[asyncio.Task[None]]] = {}
        self._loops: list[asyncio.Task[None]] = []
        ledger.on_work = self.take
        ledger.on_over = self._over

    # --- running ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start claiming. The store must be open."""
        self._renewed_at = self._clock.monotonic()
        self._loops = [
            chores.begin(self._claim_forever, "claim"),
            chores.begin(self._renew_forever, "renew-leases"),
        ]

    async def stop(self, *, grace_s: float) -> None:
        """Claim nothing more, give running deliveries ``grace_s`` seconds, then let go of them.

        What is let go is claimed again after the restart and reconciled with its agent.
        """
        self._claims.stopping = True
        await chores.end(self._loops)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:
            # A commit that was under way still brings work, which is put back.
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def lease_age_s(self) -> float:
        """For how many seconds the claims of this broker have not been renewed; 0 before it starts."""
        return 0.0 if self._renewed_at is None else self._clock.monotonic() - self._renewed_at

    @property
    def running(self) -> int:
        """How many pieces of work are under way."""
        return len(self._tasks)

    def pause(self) -> None:
        """Begin nothing more: what is due is for other brokers, or for later. What runs goes on."""
        self._claims.paused = True

    def resume(self) -> None:
        """Begin what is due again."""
        self._claims.paused = False
        self._notifier.wake(WORK_TOPIC)

    def take(self, works: Sequence[Work], at: float, *, known: bool = True) -> None:
        """Begin work that was claimed at a time. Tasks are kept until they end: the loop has weak ones.

        ``known``: the state that it follows from was committed here. While the broker stops or drains nothing
        begins. The work is put back, for what is only held looks to the next process as if it had begun.
        """
        for work in works:
            if self._claims.stopping or self._claims.paused:
                self._spawn(work.key, self._claims.put_back(work.key, 0.0))
            else:
                self._claims.took(work.key, at)
                self._spawn(work.key, self._run(work, known=known))

    def _spawn(self, key: WorkKey, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks[task] = key
        if key.kind in _CONVERSATIONS:
            self._talks.setdefault(key.handoff_id, set()).add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        key = self._tasks.pop(task)
        self._claims.let_go(key)
        talks = self._talks.get(key.handoff_id)
        if talks is not None:
            talks.discard(task)
            if not talks:
                del self._talks[key.handoff_id]
        if task.cancelled() and key.kind is WorkKind.FORWARD and not self._claims.stopping:
            # Its attempt is over, the message of the caller is not: it is for whoever takes the task next.
            self._spawn(key, self._claims.put_back(key, 0.0))

    def _over(self, handoff_id: str) -> None:
        """The attempt is over: stop talking to its agent, unless it was this talk that ended it.

        Whoever committed the end holds the handoff's lock, so no other task is inside a commit of it.
        """
        self._errands.forget(handoff_id)
        current = asyncio.current_task()
        for task in self._talks.get(handoff_id, ()):
            if task is not current:
                task.cancel()

    async def _claim_forever(self) -> None:
        with self._notifier.listen(WORK_TOPIC) as listener:
            while True:
                if self._claims.paused:
                    await listener.wait(timeout_s=IDLE_S)
                    continue
                try:
                    now = self._clock.now()
                    works = await self._store.claim_work(now=now, limit=_CLAIM)
                    if works:
                        self.take(works, now, known=False)
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
                await never.wait(timeout_s=self._renew_every_s)
                with contextlib.suppress(StoreUnavailable):
                    await self._store.renew_leases(now=self._clock.now())
                    self._renewed_at = self._clock.monotonic()

    async def _run(self, work: Work, *, known: bool) -> None:
        """One piece of work, to the end. Nothing that it meets may stop the others."""
        key, journal = work.key, self._broker.journal
        try:
            handoff = await (journal.recall if known else journal.load)(key.handoff_id)
            try:
                await self._errands.do(work, handoff)
            except (HandoffError, StoreUnavailable, WorkLost):
                raise
            except Exception:
                if work.claims < _FAULTS_MAX or not await self._errands.give_up(work, handoff):
                    raise
                _LOG.exception("work %s was given up", key.kind, extra={"handoff_id": key.handoff_id})
        except HandoffError as error:
            if error.code is Code.UNAVAILABLE:
                await self._claims.put_back(key, 1.0)
                return
            await self._void(key, error)
        except StoreUnavailable:
            await self._claims.put_back(key, 1.0)
        except WorkLost:
            _LOG.warning("%s is another broker's now", key.kind, extra={"handoff_id": key.handoff_id})
        except Exception:  # noqa: BLE001 - a fault of ours in one handoff must not stop the others
            _LOG.exception("work %s failed", key.kind, extra={"handoff_id": key.handoff_id})
            await self._claims.put_back(key, grown(_FAULT_AGAIN_S, work.claims, _FAULT_AGAIN_MAX_S))

    async def _void(self, key: WorkKey, error: HandoffError) -> None:
        """Settle what the handoff, having moved on, has no use for.

        A conversation about the current attempt is no such thing: nobody else would go on with it.
        """
        try:
            h = await self._broker.journal.load(key.handoff_id)
        except (HandoffError, StoreUnavailable):
            await self._claims.put_back(key, 1.0)
            return
        open_ = h.attempt is not None and h.attempt.outcome is None and h.state is not State.HANDED_OFF
        # A message of the caller is for whoever has the task, whose attempt it may not have begun with.
        about_it = key.kind is WorkKind.FORWARD or (h.attempt is not None and h.attempt.number == key.attempt)
        if key.kind in _CONVERSATIONS and open_ and about_it and not h.state.terminal:
            _LOG.error("%s was refused: %s", key.kind, error, extra={"handoff_id": h.id})
            await self._claims.put_back(key, h.policy.reconcile_every_s)
            return
        await self._claims.settle(key)

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
                    lambda h, found=resolution: (
                        cmd.Resolved(resolution=found, means=self._broker.means(h)),
                    ),
                )
            except HandoffError as error:
                if error.code is Code.UNAVAILABLE:
                    raise
