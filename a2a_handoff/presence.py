"""How the agents are doing: their signs of life, what they have, how their calls end.

Duty: keep the vitals of every agent, wake who waits for one that is there again, and exchange signs of life
with the other brokers on the store.
Rules: all is in memory and follows from what is seen; after a start nothing is known of anybody. An agent
that is gone needs no vitals once nothing is out with it.
Not here: what follows from vitals (``core.vitals``), who the agents are (``registry``), carrying signs
between brokers (``replicas``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

from a2a_handoff.core.agents import (
    HEARD_WINDOW_S,
    PRESENCE_WINDOW_S,
    Agent,
    AgentView,
    Breaker,
    Status,
    fold,
)
from a2a_handoff.core.events import Outcome
from a2a_handoff.core.matching import absence
from a2a_handoff.core.vitals import Vitals
from a2a_handoff.ports import Clock, Notifier, Principal, Sign

#: Published when an agent comes (or comes back) that may take what waits for somebody.
ARRIVALS_TOPIC = "arrivals"

#: Published when an agent comes, changes or goes, by what it says itself: silence says nothing.
AGENTS_TOPIC = "agents"

#: Published when the other brokers on the store are to be told of an agent at once.
SIGNS_TOPIC = "signs"


class Presence:
    """The vitals of all agents.

    ``find`` gives an agent by tenant and id. ``presence_s``: how long a pull agent is present after a call.
    ``breaker``: how agents that do not answer are kept from work. ``shared``: other brokers are told of
    signs of life.
    """

    def __init__(
        self,
        find: Callable[[str, str], Agent | None],
        *,
        clock: Clock,
        notifier: Notifier,
        presence_s: float = PRESENCE_WINDOW_S,
        breaker: Breaker | None = None,
        shared: bool = False,
    ) -> None:
        self._find = find
        self._clock = clock
        self._notifier = notifier
        self._presence_s = presence_s
        self._breaker = breaker
        self._shared = shared
        self._vitals: dict[tuple[str, str], Vitals] = {}
        self._open: set[tuple[str, str]] = set()
        self._signs: dict[tuple[str, str], bool] = {}
        self._soon = False
        self._began_at = clock.monotonic()
        self.on_failed: Callable[[Agent, Outcome], None] = lambda _agent, _outcome: None
        """Set by who reads cards again: how a call to an agent ended that did not end well."""

    def view(self, agent: Agent) -> AgentView:
        """An agent and how it is doing."""
        return self._of(agent.tenant, agent.agent_id).view(agent, self._clock.monotonic())

    def recount(self, counted: Mapping[tuple[str, str], int]) -> None:
        """Take over how many handoffs each agent has; who is not counted has none."""
        for key, vitals in self._vitals.items():
            if key not in counted:
                vitals.held(0)
        for key, count in counted.items():
            self._of(*key).held(count)

    def forget(self, tenant: str, agent_id: str) -> None:
        """An agent is gone: it needs no vitals, once nothing is out with it."""
        vitals = self._vitals.get((tenant, agent_id))
        if vitals is not None and vitals.idle:
            del self._vitals[tenant, agent_id]

    def _of(self, tenant: str, agent_id: str) -> Vitals:
        key = (tenant, agent_id)
        vitals = self._vitals.get(key)
        if vitals is None:
            vitals = self._vitals[key] = Vitals(presence_s=self._presence_s, breaker=self._breaker)
        return vitals

    # --- what agents say and do ------------------------------------------------------------------

    def registered(self, agent: Agent, *, alive: bool) -> None:
        """An agent was registered: it may try again. ``alive``: that was a sign of life of its own."""
        vitals = self._of(agent.tenant, agent.agent_id)
        vitals.returned(self._clock.monotonic())
        self._tell(agent.tenant, agent.agent_id, said=True, soon=True)
        if alive:
            vitals.heard(self._clock.monotonic(), self._clock.now())
        self.arrived()

    def beat(self, agent: Agent, status: Status, in_flight: int | None) -> AgentView:
        """A heartbeat, and what the agent says of itself in it."""
        before = self.view(agent)
        vitals = self._of(agent.tenant, agent.agent_id)
        vitals.heard(self._clock.monotonic(), self._clock.now())
        vitals.beat(self._clock.monotonic(), status, in_flight)
        self._tell(agent.tenant, agent.agent_id, said=True, soon=before.status is not status)
        after = self.view(agent)
        if absence(before) and not absence(after):
            self.arrived()
        elif before.status is not after.status:
            self._notifier.wake(AGENTS_TOPIC)
        return after

    def answered(self, agent: Agent) -> None:
        """The address of its card answered: somebody is there, but nothing new follows for routing."""
        self._of(agent.tenant, agent.agent_id).heard(self._clock.monotonic(), self._clock.now())

    def heard_from(self, tenant: str, agent_id: str) -> None:
        """An agent called, or answered a call. Unknown ids mean nothing."""
        agent = self._find(tenant, agent_id)
        if agent is None:
            return
        was_absent = absence(self.view(agent))
        self._of(tenant, agent.agent_id).heard(self._clock.monotonic(), self._clock.now())
        arrived = bool(was_absent and not absence(self.view(agent)))
        self._tell(tenant, agent.agent_id, soon=arrived)
        if arrived:
            self.arrived()

    def called(self, principal: Principal, agent_id: str) -> None:
        """A caller acts as an agent: a sign of life, if it is that agent.

        An open broker takes its word, but for agents that have an address: that they answer there is
        another question.
        """
        agent = self._find(principal.tenant, agent_id)
        if agent is None:
            return
        if fold(principal.name) == fold(agent.agent_id) if principal.authenticated else not agent.interfaces:
            self.heard_from(agent.tenant, agent.agent_id)

    def silent_s(self, tenant: str, agent_id: str) -> float:
        """For how many seconds nothing was heard of an agent, as far as this process can know."""
        now = self._clock.monotonic()
        vitals = self._vitals.get((tenant, agent_id))
        heard_at = None if vitals is None else vitals.heard_at(now)
        return now - (self._began_at if heard_at is None else heard_at)

    def heard_within(self, tenant: str, agent_id: str, seconds: float = HEARD_WINDOW_S) -> bool:
        """Whether an agent holds a channel open or was heard from at most ``seconds`` ago."""
        vitals = self._vitals.get((tenant, agent_id))
        return vitals is not None and vitals.heard_within(self._clock.monotonic(), seconds)

    @contextmanager
    def connected(self, tenant: str, agent_id: str) -> Generator[None]:
        """The agent holds a socket, a stream or a long poll open: it is present as long as it does."""
        self.heard_from(tenant, agent_id)
        agent = self._find(tenant, agent_id)
        if agent is None:
            yield
            return
        vitals = self._of(tenant, agent.agent_id)
        vitals.opened()
        self._open.add((tenant, agent.agent_id))
        try:
            yield
        finally:
            if not vitals.closed():
                self._open.discard((tenant, agent.agent_id))
            self.heard_from(tenant, agent_id)
            if self._find(tenant, agent_id) is None:
                self.forget(tenant, agent_id)

    def left(self, tenant: str, agent_id: str) -> None:
        """An agent closed its socket as one that goes: it is absent at once, unless another one is open."""
        agent = self._find(tenant, agent_id)
        if agent is not None:
            self._of(tenant, agent.agent_id).left(self._clock.monotonic())
            self._tell(tenant, agent.agent_id, soon=True)
            self._notifier.wake(AGENTS_TOPIC)

    def arrived(self) -> None:
        """Somebody is there, or is another one, who may take what waits."""
        self._notifier.wake(ARRIVALS_TOPIC)
        self._notifier.wake(AGENTS_TOPIC)

    # --- what happens to them --------------------------------------------------------------------

    def note_offered(self, tenant: str, agent_id: str) -> None:
        """An agent was offered a handoff."""
        self._of(tenant, agent_id).offered(self._clock.monotonic())

    def note_acknowledged(self, tenant: str, agent_id: str, *, response_s: float) -> None:
        """An agent took a handoff, ``response_s`` seconds after the offer."""
        self._of(tenant, agent_id).acknowledged(response_s)

    def note_ended(self, tenant: str, agent_id: str, outcome: Outcome | None) -> None:
        """An agent is through with a handoff; ``None``: well."""
        self._of(tenant, agent_id).ended(self._clock.monotonic(), outcome)
        agent = self._find(tenant, agent_id)
        if agent is None:
            self.forget(tenant, agent_id)
        elif outcome is not None:
            self.on_failed(agent, outcome)

    # --- other brokers ---------------------------------------------------------------------------

    def _tell(self, tenant: str, agent_id: str, *, said: bool = False, soon: bool = False) -> None:
        """Have the other brokers told of a sign of life, at the next occasion or ``soon``."""
        if self._shared:
            key = (tenant, agent_id)
            self._signs[key] = said or self._signs.get(key, False)
            if soon and not self._soon:
                self._soon = True
                self._notifier.wake(SIGNS_TOPIC)

    def take_signs(self) -> tuple[list[Sign], bool]:
        """The signs of life that other brokers have not been told of; who holds a channel open gives one.

        True if one of them matters at once.
        """
        now = self._clock.monotonic()
        told, self._signs = dict.fromkeys(self._open, False) | self._signs, {}
        soon, self._soon = self._soon, False
        found: list[Sign] = []
        for (tenant, agent_id), said in told.items():
            vitals = self._of(tenant, agent_id)
            heard_at = vitals.heard_at(now)
            said_at, status, in_flight = vitals.said()
            if heard_at is not None:
                found.append(
                    Sign(
                        tenant=tenant,
                        agent_id=agent_id,
                        age_s=now - heard_at,
                        gone=vitals.gone,
                        said_age_s=now - said_at if said else None,
                        status=status,
                        in_flight=in_flight,
                    )
                )
        return found, soon

    def note_signs(self, signs: Iterable[Sign]) -> None:
        """Signs of life that brokers told each other."""
        now, epoch = self._clock.monotonic(), self._clock.now()
        arrived = changed = False
        for sign in signs:
            agent = self._find(sign.tenant, sign.agent_id)
            if agent is None:
                continue
            before = self.view(agent)
            vitals = self._of(sign.tenant, agent.agent_id)
            vitals.heard_elsewhere(now - sign.age_s, epoch - sign.age_s, gone=sign.gone)
            if sign.said_age_s is not None:
                vitals.said_elsewhere(now - sign.said_age_s, sign.status, sign.in_flight)
            after = self.view(agent)
            arrived = arrived or bool(absence(before) and not absence(after))
            changed = changed or (before.status, before.present) != (after.status, after.present)
        if arrived:
            self.arrived()
        elif changed:
            self._notifier.wake(AGENTS_TOPIC)
