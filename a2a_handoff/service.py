"""The broker behind all surfaces: its parts on given ports, and the order in which they start and stop.

Duty: put registry, ledger, inboxes and dispatcher together over a store, a way to agents and a clock.
Rules: no part knows which store or which network it has; the real ones are chosen in ``app``, others in the
simulation.
Not here: surfaces, telemetry, the server (``app``).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path

from a2a_handoff import chores
from a2a_handoff.broadcasts import Broadcasts
from a2a_handoff.broker import HandoffBroker
from a2a_handoff.bulletin import Bulletin
from a2a_handoff.callbacks import Callbacks
from a2a_handoff.config import Settings
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.rules import RoutingRules
from a2a_handoff.courier import Courier, Patience
from a2a_handoff.dispatcher import Dispatcher
from a2a_handoff.drain import Drain
from a2a_handoff.feed import Feed
from a2a_handoff.housekeeping import Housekeeping
from a2a_handoff.inbox import Inbox
from a2a_handoff.intake import Desk
from a2a_handoff.journal import Journal
from a2a_handoff.ledger import Ledger
from a2a_handoff.notify import LocalNotifier
from a2a_handoff.outbox import Outbox
from a2a_handoff.ports import (
    AgentClient,
    CardFetcher,
    CardVerifier,
    Clock,
    EventStream,
    HookClient,
    Notifier,
    Recorder,
    SharedStore,
    Store,
    StoreUnavailable,
    TokenCounter,
    UrlPolicy,
)
from a2a_handoff.presence import ARRIVALS_TOPIC
from a2a_handoff.registry import Registry
from a2a_handoff.replicas import Replicas
from a2a_handoff.rollcall import RollCall
from a2a_handoff.webhooks import Webhooks

_LOG = logging.getLogger("a2a_handoff")
_STORE_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the service stands on."""

    store: Store
    client: AgentClient
    hooks: HookClient
    fetcher: CardFetcher
    policy: UrlPolicy
    recorder: Recorder
    counter: TokenCounter
    clock: Clock
    rules: RoutingRules | None = None
    verifier: CardVerifier | None = None
    notifier: Notifier = field(default_factory=LocalNotifier)
    stream: EventStream | None = None


class Service:
    """All parts of one broker. They are public: surfaces and telemetry take what they need."""

    def __init__(self, settings: Settings, ports: Ports) -> None:
        store, clock = ports.store, ports.clock
        shared = store if isinstance(store, SharedStore) else None
        self.store = store
        self.notifier = notifier = ports.notifier
        self.registry = registry = Registry(
            store=store,
            clock=clock,
            notifier=notifier,
            fetcher=ports.fetcher,
            rules=ports.rules,
            presence_s=settings.presence,
            lease_s=settings.lease,
            refresh_s=settings.card_refresh,
            verifier=ports.verifier,
        )
        feed = Feed()
        self.journal = journal = Journal(store=store, feed=feed, notifier=notifier)
        self.ledger = ledger = Ledger(
            store=store,
            registry=registry,
            notifier=notifier,
            recorder=ports.recorder,
            clock=clock,
            feed=feed,
            shared=shared is not None,
        )
        self.broadcasts = Broadcasts(
            store=store, registry=registry, notifier=notifier, clock=clock, keep_s=settings.broadcast_keep
        )
        self.inbox = Inbox(
            store=store, registry=registry, broadcasts=self.broadcasts, notifier=notifier, clock=clock
        )
        self.rollcall = RollCall(registry=registry, notifier=notifier, clock=clock)
        self.bulletin = Bulletin(store=store, journal=journal, registry=registry, notifier=notifier)
        self.webhooks = Webhooks(
            store=store,
            ledger=ledger,
            journal=journal,
            policy=ports.policy,
            clock=clock,
            most=settings.webhooks,
        )
        self.broker = HandoffBroker(
            store=store,
            ledger=ledger,
            desk=Desk(store=store, registry=registry, clock=clock, counter=ports.counter, settings=settings),
            registry=registry,
            journal=journal,
            inbox=self.inbox,
            broadcasts=self.broadcasts,
            rollcall=self.rollcall,
            webhooks=self.webhooks,
            clock=clock,
        )
        self.callbacks = Callbacks(store=store, clock=clock, url=settings.public_url, mode=settings.callbacks)
        self.dispatcher = Dispatcher(
            store=store,
            ledger=ledger,
            broker=self.broker,
            registry=registry,
            client=ports.client,
            callbacks=self.callbacks,
            courier=Courier(
                store=store,
                journal=journal,
                client=ports.hooks,
                recorder=ports.recorder,
                clock=clock,
                patience=_patience(settings),
            ),
            notifier=notifier,
            clock=clock,
            renew_every_s=settings.work_lease / 3,
        )
        self.drain = Drain(
            journal=journal,
            inbox=self.inbox,
            rollcall=self.rollcall,
            bulletin=self.bulletin,
            dispatcher=self.dispatcher,
            notifier=notifier,
        )
        self.replicas = (
            None
            if shared is None
            else Replicas(
                store=shared,
                ledger=ledger,
                registry=registry,
                notifier=notifier,
                presence_s=settings.presence,
            )
        )
        self.housekeeping = Housekeeping(
            store=store, feed=feed, notifier=notifier, clock=clock, keep_s=settings.retention
        )
        self.outbox = None
        if ports.stream is not None:
            self.outbox = Outbox(
                store=store,
                journal=journal,
                registry=registry,
                notifier=notifier,
                stream=ports.stream,
                clock=clock,
                tenant=settings.default_tenant,
                trace_url=settings.trace_url,
            )
        self._chores: list[asyncio.Task[None]] = []

    async def open(self, cards: Path | None, *, tenant: str) -> None:
        """Open the store and load the agents. Raises ``StoreUnavailable`` and ``HandoffError``."""
        await self.store.open()
        if self.replicas is not None:
            await self.replicas.open()
        await self.registry.load(cards, tenant=tenant)
        await self.broadcasts.open()
        await self.callbacks.open()
        if self.outbox is not None:
            await self.outbox.open(str(self.broadcasts.epoch))

    def start(self) -> None:
        """Go on with what is unfinished. The store must be open."""
        if self.replicas is not None:
            self.replicas.start()
        self.dispatcher.start()
        if self.outbox is not None:
            self.outbox.start()
        self._chores = [
            chores.begin(self._greet_arrivals, "arrivals"),
            chores.begin(self.housekeeping.run, "housekeeping"),
        ]

    def begin_stop(self) -> None:
        """Refuse new work and let those who wait go; what runs goes on."""
        self.drain.stop()

    async def stop(self, *, grace_s: float) -> None:
        """Give what runs ``grace_s`` seconds, then let go of it. The store stays open."""
        await chores.end(self._chores)
        await self.bulletin.close()
        await self.dispatcher.stop(grace_s=grace_s)
        if self.outbox is not None:
            await self.outbox.stop()
        if self.replicas is not None:
            await self.replicas.close()
        await self.registry.close()

    async def _greet_arrivals(self) -> None:
        """An agent that comes may take what waits for somebody."""
        with self.notifier.listen(ARRIVALS_TOPIC) as arrivals:
            while True:
                if not await arrivals.wait(timeout_s=3600.0):
                    continue
                try:
                    await self.dispatcher.agent_arrived()
                except (StoreUnavailable, HandoffError) as error:
                    _LOG.warning("cannot look for waiting handoffs now: %s", error)
                    await asyncio.sleep(_STORE_AGAIN_S)
                    self.notifier.wake(ARRIVALS_TOPIC)


def _patience(settings: Settings) -> Patience:
    return Patience(
        timeout_s=settings.webhook_timeout,
        retry_s=settings.webhook_retry_delay,
        retry_max_s=settings.webhook_retry_max,
        give_up_s=settings.webhook_give_up,
    )
