"""Who the agents are, and who may take a handoff.

Duty: register and remove agents; read the folder of example cards; answer the questions of routing from
memory.
Rules: every agent of every tenant is in memory, the store is asked at start and on a change. A card is
judged when it is registered or read again, and nowhere else. A card whose signature was verified is not
replaced by one whose signature is not. Agents of the card folder are not stored; the folder is read at each
start.
Not here: how agents are doing (``presence``), reading cards again (``card_refresh``), matching itself
(``core.matching``), what a card means (``wire.cards``), fetching (``client``).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from a2a_handoff.card_refresh import REFRESH_EVERY_S, CardRefresh
from a2a_handoff.core.agents import (
    PRESENCE_WINDOW_S,
    Agent,
    AgentView,
    Breaker,
    Readiness,
    Registration,
    Signature,
    Status,
    Trust,
    fold,
)
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Candidate, Resolution
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.matching import DEFAULT_WORKSPACE, PASSED_OVER_MAX, absence, resolve, supervisors
from a2a_handoff.core.question import Question
from a2a_handoff.core.roster import Facet, Roster
from a2a_handoff.core.rules import RoutingRules, shipped
from a2a_handoff.ports import (
    CardFetcher,
    CardVerifier,
    Clock,
    Notifier,
    Principal,
    Scope,
    SharedStore,
    Store,
    StoreUnavailable,
)
from a2a_handoff.presence import AGENTS_TOPIC, Presence
from a2a_handoff.wire.cards import DEFAULT_LEASE_S, agent_of, canonical_url, check

#: Announced to the other brokers on the store when it has something new: events, agents, broadcasts.
NEWS_TOPIC = "news"

AGENTS_MAX = 20_000

_LOG = logging.getLogger("a2a_handoff.registry")
_AUDIT = logging.getLogger("a2a_handoff.audit")
_UNCHECKED = Signature()


_NOT_VERIFIED = "has a card without a verified signature, which this broker requires: register it again"


def speaks_for_itself(principal: Principal, agent_id: str) -> bool:
    """Who may change a registration: the agent, an admin, and everybody on an open broker.

    The log of the broker tells what an admin does for another: that of a handoff has the agent.
    """
    if fold(principal.name) == fold(agent_id):
        return True
    if principal.authenticated and principal.unrestricted:
        _AUDIT.info(
            "%s acts for %s",
            principal.name,
            agent_id,
            extra={"tenant": principal.tenant, "principal": principal.name, "agent": agent_id},
        )
    return principal.unrestricted


class Registry:
    """The agents of all tenants. ``speaks_for_itself`` guards every registration.

    ``presence_s``: how long a pull agent is present after a call. ``breaker``: how agents that do not
    answer are kept from work. ``refresh_s``: how often cards that have an address are read again.
    ``verifier`` judges signatures; without one nobody looks at them.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        notifier: Notifier,
        fetcher: CardFetcher,
        rules: RoutingRules | None = None,
        presence_s: float = PRESENCE_WINDOW_S,
        lease_s: float = DEFAULT_LEASE_S,
        refresh_s: float = REFRESH_EVERY_S,
        breaker: Breaker | None = None,
        verifier: CardVerifier | None = None,
    ) -> None:
        self._store = store
        self._shared = store if isinstance(store, SharedStore) else None
        self._revision = -1
        self._clock = clock
        self._notifier = notifier
        self._fetcher = fetcher
        self._rules = rules or shipped()
        self._lease_s = lease_s
        self._verifier = verifier
        self._changing = asyncio.Lock()
        self.presence = Presence(
            self.get,
            clock=clock,
            notifier=notifier,
            presence_s=presence_s,
            breaker=breaker,
            shared=self._shared is not None,
        )
        self._roster = Roster(self.presence.view)
        self.cards = CardRefresh(
            self._roster,
            fetcher=fetcher,
            verify=self._verify,
            put=self._replace,
            presence=self.presence,
            clock=clock,
            lease_s=lease_s,
            every_s=refresh_s,
        )

    # --- life ------------------------------------------------------------------------------------

    async def load(self, folder: Path | None = None, *, tenant: str = "default") -> None:
        """Read the stored agents, then the cards of ``folder`` for ``tenant``: a file goes over the store.

        A file that is no good card is left out, and the log says why. Raises ``StoreUnavailable``.
        """
        if self._shared is None:
            stored = await self._store.list_agents()
        else:
            changes = await self._shared.read_agents(after=-1)
            stored, self._revision = changes.agents, changes.revision
        for agent in stored:
            self._roster.put(self._judged_again(agent))
        if folder is not None:
            for name, body in await asyncio.to_thread(_files_of, folder):
                self._load_file(name, body, tenant)
        await self.recount()
        self.cards.start()

    def _judged_again(self, agent: Agent) -> Agent:
        """A stored agent under the rules of now: they may demand a signature that it was taken without."""
        required = self._verifier is not None and self._verifier.required
        unsigned = bool(agent.card) and agent.signature.trust is not Trust.VERIFIED
        if required and unsigned:
            return replace(agent, card_problem=_NOT_VERIFIED)
        return replace(agent, card_problem="") if agent.card_problem == _NOT_VERIFIED else agent

    async def recount(self) -> None:
        """Count by the store what each agent has. Raises ``StoreUnavailable``."""
        self.presence.recount(await self._store.in_flight())

    def _load_file(self, name: str, body: bytes, tenant: str) -> None:
        said = Registration(agent_id=name, card=body)
        try:
            agent, _ = agent_of(said, tenant=tenant, now=self._clock.now(), lease_s=self._lease_s)
        except HandoffError as error:
            faults = check(body.decode(errors="replace"))
            where = [f"{f.line}:{f.column} {f.path} {f.message}" for f in faults if f.severity == "error"]
            _LOG.warning("card %s.json is left out: %s", name, "; ".join(where) or error.message)
            return
        self._roster.put(agent)

    async def close(self) -> None:
        """Stop refreshing cards."""
        await self.cards.close()

    # --- registrations ---------------------------------------------------------------------------

    async def register(self, principal: Principal, said: Registration) -> tuple[AgentView, bool]:
        """Register an agent, or replace its registration; its vitals stay. True if it is new.

        The card is fetched if only its address is given, and its signatures are judged. Without an id the
        address of the agent, then the name of the card, says which agent it is. Raises ``HandoffError``:
        ``invalid_agent``, ``card_unavailable``, ``payload_too_large``, ``forbidden``, ``rate_limited``,
        ``unavailable``.
        """
        principal.require(Scope.WORK)
        if principal.authenticated and not said.agent_id and not principal.unrestricted:
            said = replace(said, agent_id=principal.name)
        tenant = principal.tenant
        found_at, etag = said.card_url, ""
        fetched = bool(said.card_url and not said.card)
        if fetched:
            card = await self._fetcher.fetch(said.card_url)
            said, found_at, etag = replace(said, card=card.body), card.url, card.etag
        signature = await self._verify(said.card)
        now = self._clock.now()
        agent, warnings = agent_of(
            said,
            tenant=tenant,
            now=now,
            lease_s=self._lease_s,
            found_at=found_at,
            etag=etag,
            signature=signature,
        )
        for warning in warnings:
            _LOG.info("card of %s: %s", agent.agent_id, warning)
        async with self._changing:
            agent, known = self._identify(agent, named=bool(said.agent_id))
            if not speaks_for_itself(principal, agent.agent_id):
                raise HandoffError(Code.FORBIDDEN, f"You may not change the agent {agent.agent_id!r}.")
            if known is None and len(self._roster) >= AGENTS_MAX:
                raise HandoffError(
                    Code.RATE_LIMITED, f"The broker holds {AGENTS_MAX} agents and takes no more."
                )
            new = await self._put(agent) and known is None
        # An open broker does not know who calls: only a pull agent, which nobody else would register,
        # and an address that has just answered are signs of life.
        itself = principal.name and fold(principal.name) == fold(agent.agent_id)
        self.presence.registered(agent, alive=bool(fetched or itself or not agent.interfaces))
        self._notifier.tell(NEWS_TOPIC)
        return self.presence.view(agent), new

    def _identify(self, agent: Agent, *, named: bool) -> tuple[Agent, Agent | None]:
        """The agent under the id that it is known by, and its registration so far."""
        entry = self._roster.find(agent.tenant, agent.agent_id)
        if not named:
            same = self._at_endpoint(agent)
            if same is not None:
                entry = self._roster.find(agent.tenant, same.agent_id)
            elif entry is not None and agent.interfaces:
                # Another agent of that name: the address tells them apart, in every replica alike.
                digest = hashlib.sha256(_endpoint(agent).encode()).hexdigest()[:8]
                agent = replace(agent, agent_id=f"{agent.agent_id}-{digest}")
                entry = self._roster.find(agent.tenant, agent.agent_id)
        if entry is None:
            return agent, None
        known = entry.agent
        return replace(agent, agent_id=known.agent_id, registered_at=known.registered_at), known

    def _at_endpoint(self, agent: Agent) -> Agent | None:
        endpoint = _endpoint(agent)
        if not endpoint:
            return None
        agents = (entry.agent for entry in self._roster.entries(agent.tenant).values())
        return next((known for known in agents if _endpoint(known) == endpoint), None)

    async def _put(self, agent: Agent) -> bool:
        """Store and index. False if the store had it already."""
        entry = self._roster.find(agent.tenant, agent.agent_id)
        if entry is not None and entry.agent == agent:
            return False  # other brokers too, or they will
        try:
            new = await self._store.put_agent(agent)
        except StoreUnavailable as error:
            raise HandoffError(Code.UNAVAILABLE, retry_after_s=1.0) from error
        self._roster.put(agent)
        return new

    async def deregister(self, principal: Principal, agent_id: str, *, instance_id: str = "") -> None:
        """Remove an agent; what it holds goes on. Raises ``agent_not_found``, ``forbidden``.

        With ``instance_id`` only if that process registered it last: else ``wrong_state``. One that comes
        from the card folder is back after the next start.
        """
        await self.find(principal.tenant, agent_id)
        async with self._changing:
            agent = self._own(principal, agent_id)
            if instance_id and instance_id != agent.instance_id:
                raise HandoffError(
                    Code.WRONG_STATE,
                    f"{agent.agent_id} was registered by another process since; it stays registered.",
                )
            try:
                await self._store.delete_agent(agent.tenant, agent.agent_id)
            except StoreUnavailable as error:
                raise HandoffError(Code.UNAVAILABLE, retry_after_s=1.0) from error
            self._roster.drop(agent.tenant, agent.agent_id)
            self.presence.forget(agent.tenant, agent.agent_id)
        self._notifier.wake(AGENTS_TOPIC)
        self._notifier.tell(NEWS_TOPIC)

    @property
    def revision(self) -> int:
        """Up to which change of agents this broker knows what others did."""
        return self._revision

    async def catch_up(self) -> None:
        """Learn what other brokers on the store did to agents. Raises ``StoreUnavailable``."""
        if self._shared is None:
            return
        async with self._changing:
            changes = await self._shared.read_agents(after=self._revision)
            self._revision = changes.revision
            judged = map(self._judged_again, changes.agents)
            fresh = [agent for agent in judged if self.get(agent.tenant, agent.agent_id) != agent]
            gone = [key for key in changes.gone if self._roster.drop(*key) is not None]
            for agent in fresh:
                self._roster.put(agent)
            for key in gone:
                self.presence.forget(*key)
        if fresh:
            self.presence.arrived()
        elif gone:
            self._notifier.wake(AGENTS_TOPIC)

    async def find(self, tenant: str, agent_id: str) -> Agent | None:
        """An agent by its id, which another broker may have registered a moment ago."""
        agent = self.get(tenant, agent_id)
        if agent is None and agent_id:
            with contextlib.suppress(StoreUnavailable):
                await self.catch_up()
            agent = self.get(tenant, agent_id)
        return agent

    async def heartbeat(
        self, principal: Principal, agent_id: str, status: Status, in_flight: int | None = None
    ) -> AgentView:
        """What an agent says of itself. Raises ``agent_not_found``: register anew; ``forbidden``."""
        await self.find(principal.tenant, agent_id)
        agent = self._own(principal, agent_id)
        return self.presence.beat(agent, status, in_flight)

    def _own(self, principal: Principal, agent_id: str) -> Agent:
        principal.require(Scope.WORK)
        agent = self.get(principal.tenant, agent_id)
        if agent is None:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {agent_id[:64]!r}.")
        if not speaks_for_itself(principal, agent.agent_id):
            raise HandoffError(Code.FORBIDDEN, f"You may not speak for the agent {agent.agent_id!r}.")
        return agent

    # --- cards -----------------------------------------------------------------------------------

    async def _verify(self, card: bytes) -> Signature:
        if self._verifier is None or not card:
            return _UNCHECKED
        return await self._verifier.verify(card)

    async def _replace(self, agent: Agent, by: Agent) -> bool:
        """Put another record in the place of one. False if it was registered anew meanwhile."""
        async with self._changing:
            entry = self._roster.find(agent.tenant, agent.agent_id)
            if entry is None or entry.agent is not agent:
                return False
            await self._put(by)
        self._notifier.wake(AGENTS_TOPIC)
        return True

    # --- who there is ----------------------------------------------------------------------------

    def get(self, tenant: str, agent_id: str) -> Agent | None:
        """An agent by its id."""
        entry = self._roster.find(tenant, agent_id)
        return entry.agent if entry else None

    def spelled(self, tenant: str, name: str) -> str:
        """A name as it is registered, however it was spelled; a name that is not, as it is."""
        agent = self.get(tenant, name)
        return name if agent is None else agent.agent_id

    def agents(self, tenant: str) -> list[Agent]:
        """Every agent of a tenant, by id."""
        entries = self._roster.entries(tenant)
        return [entries[key].agent for key in self._roster.keys(tenant)]

    def view(self, tenant: str, agent_id: str) -> AgentView | None:
        """An agent and how it is doing."""
        agent = self.get(tenant, agent_id)
        return self.presence.view(agent) if agent else None

    def views(self, tenant: str, facets: Iterable[Facet] = ()) -> list[AgentView]:
        """Every agent of a tenant that has all of ``facets``, and how it is doing, by id."""
        entries = self._roster.entries(tenant)
        return [self.presence.view(entries[key].agent) for key in sorted(self._roster.having(tenant, facets))]

    # --- routing ---------------------------------------------------------------------------------

    def resolve(self, question: Question, *, passed_over_max: int = PASSED_OVER_MAX) -> Resolution:
        """Who may take it, in order, and why the others not. Raises ``invalid_context``."""
        return resolve(question, self._roster, self._rules, passed_over_max=passed_over_max)

    def eligible(self, handoff: Handoff) -> frozenset[str]:
        """Which of the frozen candidates could be offered the handoff right now."""
        return frozenset(
            candidate.agent_id
            for candidate in handoff.candidates
            if self._can_be_asked(handoff.tenant, candidate.agent_id, named=handoff.names(candidate.agent_id))
        )

    def _can_be_asked(self, tenant: str, agent_id: str, *, named: bool) -> bool:
        view = self.view(tenant, agent_id)
        if view is None or view.agent.card_problem or view.status is Status.DRAINING:
            return False
        if not absence(view) or view.agent.readiness is Readiness.PERSON:
            return True
        # The inbox of a named pull agent waits, and an open breaker is a guess.
        return named and (view.agent.readiness is Readiness.PULL or view.breaker_open)

    def supervisors(self, handoff: Handoff) -> tuple[Candidate, ...]:
        """To whom a handoff is escalated, best first; nobody who had it before."""
        sender = self.get(handoff.tenant, handoff.sender)
        workspace = handoff.workspace or (sender.workspace if sender else DEFAULT_WORKSPACE)
        exclude = (handoff.sender, *handoff.path)
        return supervisors(self._roster, handoff.tenant, workspace=workspace, exclude=exclude)


def _files_of(folder: Path) -> list[tuple[str, bytes]]:
    """The cards of a folder by agent id; none if there is no folder."""
    return [(path.stem, path.read_bytes()) for path in sorted(folder.glob("*.json")) if path.is_file()]


def _endpoint(agent: Agent) -> str:
    """What makes two registrations one agent: the preferred address, and the tenant behind it."""
    if not agent.interfaces:
        return ""
    first = agent.interfaces[0]
    return f"{canonical_url(first.url)} {first.tenant}"
