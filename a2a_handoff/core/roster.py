"""The agents of every tenant, indexed by what they can do.

Duty: find the agents that have a set of facets without looking at the others, and the names that were
perhaps meant. Names are compared folded (``agents.fold``).
Rules: the answers depend on which agents are in it, never on the order in which they came. What
changes with every handoff (load, presence) is not indexed: ``view`` is asked for it.
Not here: what is asked for and how it is ranked (``matching``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from a2a_handoff.core.agents import Agent, AgentView, fold, skeleton

_DOMAIN_TAG = "domain:"


class Kind(StrEnum):
    """The kinds of facets. The value is how an explanation names one."""

    ID = "id"
    ROLE = "role"
    WORKSPACE = "workspace"
    PLATFORM = "platform"
    CAPABILITY = "capability"
    SKILL = "skill"
    DOMAIN = "domain"
    TAG = "tag"


class Facet(NamedTuple):
    """One thing that is true of an agent. ``name`` is folded, but for workspaces, which are exact."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One agent and its facets.

    ``key`` is its folded id, ``chance`` a number that follows from it.
    ``reads`` and ``writes`` are media types; empty if the agent does not say.
    """

    agent: Agent
    key: str
    chance: int
    facets: frozenset[Facet]
    skill_ids: frozenset[str]
    reads: frozenset[str]
    writes: frozenset[str]


def entry_of(agent: Agent) -> Entry:
    """The facets of an agent.

    A capability is had if it is declared, or is the id or a tag of a skill. A skill is had by its id,
    or by a tag. A domain is had if it is declared, or is a tag, with or without ``domain:`` before it.
    """
    skill_ids = frozenset(fold(skill.id) for skill in agent.skills)
    tags = {fold(tag) for skill in agent.skills for tag in skill.tags}
    domains = {fold(domain) for domain in agent.domains} | tags
    domains |= {fold(tag.removeprefix(_DOMAIN_TAG)) for tag in tags if tag.startswith(_DOMAIN_TAG)}
    key = fold(agent.agent_id)
    facets = {
        Facet(Kind.ID, key),
        Facet(Kind.ROLE, agent.role.value),
        Facet(Kind.WORKSPACE, agent.workspace),
    }
    if agent.platform:
        facets.add(Facet(Kind.PLATFORM, fold(agent.platform)))
    for kind, names in (
        (Kind.CAPABILITY, {fold(name) for name in agent.capabilities} | skill_ids | tags),
        (Kind.SKILL, skill_ids | tags),
        (Kind.DOMAIN, domains),
        (Kind.TAG, tags),
    ):
        facets.update(Facet(kind, name) for name in names if name)
    return Entry(
        agent,
        key,
        number_of(key),
        frozenset(facets),
        skill_ids,
        reads=_modes(agent.input_modes, (skill.input_modes for skill in agent.skills)),
        writes=_modes(agent.output_modes, (skill.output_modes for skill in agent.skills)),
    )


def number_of(text: str) -> int:
    """64 bits that depend on every character and are the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _modes(of_card: tuple[str, ...], of_skills: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """All modes that an agent has in some skill; a skill without its own has those of the card."""
    found = {mode for modes in of_skills for mode in (modes or of_card)}
    return frozenset(map(media_type, found or of_card))


#: Words of the older generations for kinds of content.
_MODE_WORDS = {
    "text": "text/plain",
    "data": "application/json",
    "json": "application/json",
    "file": "*/*",
    "*": "*/*",
}


def media_type(text: str) -> str:
    """A media type for comparison: lower case, without parameters (RFC 9110 section 8.3.1)."""
    essence = text.partition(";")[0].strip().lower()
    return _MODE_WORDS.get(essence, essence)


class _Tenant:
    """The index of one tenant."""

    __slots__ = ("entries", "keys", "names", "postings")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []
        self.postings: dict[Facet, set[str]] = {}
        self.names: dict[tuple[Kind, str], set[str]] = {}

    def add(self, entry: Entry) -> None:
        self.entries[entry.key] = entry
        insort(self.keys, entry.key)
        for facet in entry.facets:
            keys = self.postings.get(facet)
            if keys is None:
                keys = self.postings[facet] = set()
                self.names.setdefault((facet.kind, skeleton(facet.name)), set()).add(facet.name)
            keys.add(entry.key)

    def remove(self, key: str) -> Entry | None:
        entry = self.entries.pop(key, None)
        if entry is None:
            return None
        del self.keys[bisect_left(self.keys, key)]
        for facet in entry.facets:
            keys = self.postings[facet]
            keys.discard(key)
            if not keys:
                del self.postings[facet]
                alike = (facet.kind, skeleton(facet.name))
                self.names[alike].discard(facet.name)
                if not self.names[alike]:
                    del self.names[alike]
        return entry


class Roster:
    """All agents, by tenant. ``view`` tells the state of an agent at the moment it is asked."""

    def __init__(self, view: Callable[[Agent], AgentView]) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._view = view

    @classmethod
    def of(cls, views: Iterable[AgentView]) -> Roster:
        """A roster of agents whose state is known and stays."""
        known = {(view.agent.tenant, view.agent.agent_id): view for view in views}
        roster = cls(lambda agent: known[agent.tenant, agent.agent_id])
        for view in known.values():
            roster.put(view.agent)
        return roster

    def put(self, agent: Agent) -> None:
        """Add an agent, or replace the one of the same id."""
        tenant = self._tenants.setdefault(agent.tenant, _Tenant())
        entry = entry_of(agent)
        tenant.remove(entry.key)
        tenant.add(entry)

    def drop(self, tenant: str, agent_id: str) -> Agent | None:
        """Remove an agent."""
        found = self._tenants[tenant].remove(fold(agent_id)) if tenant in self._tenants else None
        return found.agent if found else None

    def find(self, tenant: str, agent_id: str) -> Entry | None:
        """The agent of that id."""
        return self.entries(tenant).get(fold(agent_id))

    def entries(self, tenant: str) -> Mapping[str, Entry]:
        """The agents of a tenant by folded id. Valid until the roster changes."""
        index = self._tenants.get(tenant)
        return index.entries if index else {}

    def view(self, entry: Entry) -> AgentView:
        """The state of an agent now."""
        return self._view(entry.agent)

    def keys(self, tenant: str) -> Sequence[str]:
        """Every folded id of a tenant, sorted. Valid until the roster changes."""
        index = self._tenants.get(tenant)
        return index.keys if index else ()

    def having(self, tenant: str, facets: Iterable[Facet]) -> set[str]:
        """The folded ids of the agents that have every one of ``facets``."""
        index = self._tenants.get(tenant)
        if index is None:
            return set()
        sets: list[set[str]] = []
        for facet in facets:
            keys = index.postings.get(facet)
            if keys is None:
                return set()
            sets.append(keys)
        sets.sort(key=len)
        return sets[0].intersection(*sets[1:]) if sets else set(index.keys)

    def similar(self, tenant: str, facet: Facet) -> list[str]:
        """Names of that kind that differ from ``facet`` in accents or punctuation only, sorted."""
        index = self._tenants.get(tenant)
        if index is None:
            return []
        alike = skeleton(facet.name)
        names = index.names.get((facet.kind, alike), ()) if alike else ()
        return sorted(name for name in names if name != facet.name)

    def __iter__(self) -> Iterator[Entry]:
        """Every agent, by tenant and folded id."""
        for _, index in sorted(self._tenants.items()):
            yield from (index.entries[key] for key in index.keys)

    def __len__(self) -> int:
        return sum(len(index.keys) for index in self._tenants.values())
