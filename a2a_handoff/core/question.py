"""What is asked of the roster, and whether an agent has it.

Duty: the question of a handoff, its requirements as facets, and what an agent lacks of them.
Not here: who may be asked and in which order (``matching``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from a2a_handoff.core.agents import Role, fold
from a2a_handoff.core.context import Package, Requirements
from a2a_handoff.core.errors import Violation
from a2a_handoff.core.roster import Entry, Facet, Kind, media_type

#: Requirements come again and again, and the same agents lack the same of them.
_REMEMBERED_MAX = 256
_LACKING_MAX = 4_096

#: Words for what an agent is, and the capability that they mean.
AGENT_TYPES = {"browser": "canBrowse", "code": "canEditFiles"}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the roster for one package.

    ``workspace`` empty means that of the sender if it is registered, else ``default``. ``input_modes``
    are the media types of the message, ``output_modes`` what the caller can read, ``extensions`` what
    it speaks. ``text`` is what the message says: it never routes, it only helps to suggest. ``tried``
    agents were asked before and are not asked again. ``full`` ones have as many tasks as they take at a
    time, whatever their views say. ``spread`` (the handoff's id, say) decides between agents that are equal.
    """

    tenant: str
    package: Package
    sender: str = ""
    workspace: str = ""
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    text: str = ""
    tried: tuple[str, ...] = ()
    full: frozenset[str] = frozenset()
    spread: str = ""


# --- what is asked -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """Requirements as facets, all of which an agent must have.

    ``shown`` are their names as the sender wrote them, ``had`` says that all of them are there.
    ``tags`` rank; if nothing else is asked for, one of them must be there. ``evidence``: the facets
    alone are a reason to choose an agent.
    """

    facets: tuple[Facet, ...]
    shown: dict[Facet, str]
    had: str
    tags: tuple[Facet, ...]
    skill: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    evidence: bool

    def name(self, facet: Facet) -> str:
        """A facet as an explanation names it: ``capability canBrowse``."""
        return _name(facet, self.shown)


def _name(facet: Facet, shown: Mapping[Facet, str]) -> str:
    return f"{facet.kind.value} {shown[facet]}"


def is_evidence(facet: Facet) -> bool:
    """Whether to have it is a reason to be chosen: to be an agent of the workspace is none."""
    return facet.kind not in (Kind.ROLE, Kind.WORKSPACE)


@lru_cache(maxsize=_REMEMBERED_MAX)
def ask_of(requirements: Requirements, workspace: str, *, any_role: bool = False) -> Ask:
    """Requirements within a workspace. ``any_role``: people and supervisors too."""
    facets = {Facet(Kind.WORKSPACE, workspace): workspace}
    if not any_role:
        facets[Facet(Kind.ROLE, Role.AGENT.value)] = Role.AGENT.value
    for name in requirements.capabilities:
        facets[Facet(Kind.CAPABILITY, fold(name))] = name
    for kind, name in (
        (Kind.SKILL, requirements.skill),
        (Kind.DOMAIN, requirements.domain),
        (Kind.PLATFORM, requirements.platform),
    ):
        if name:
            facets[Facet(kind, fold(name))] = name
    tags = {Facet(Kind.TAG, fold(name)): name for name in requirements.tags}
    had = [_name(facet, facets) for facet in facets if is_evidence(facet) and facet.kind is not Kind.SKILL]
    return Ask(
        facets=tuple(facets),
        shown={**facets, **tags},
        had=f"has {', '.join(had)}" if had else "",
        tags=tuple(tags),
        skill=fold(requirements.skill),
        input_modes=requirements.input_modes,
        output_modes=requirements.output_modes,
        evidence=any(map(is_evidence, facets)),
    )


@lru_cache(maxsize=_REMEMBERED_MAX)
def blanks(requirements: Requirements) -> tuple[Violation, ...]:
    """Names that are there and empty: they ask for nothing and must not match everybody."""
    lists = {
        "capabilities": requirements.capabilities,
        "tags": requirements.tags,
        "input_modes": requirements.input_modes,
        "output_modes": requirements.output_modes,
    }
    return tuple(
        Violation(f"requirements.{name}[{index}]", "is empty")
        for name, items in lists.items()
        for index, item in enumerate(items)
        if not item.strip()
    )


def joined(asked: Requirements, ruled: Requirements) -> Requirements:
    """What the sender asks for and what a rule adds to it; the sender's own word goes first."""
    return Requirements(
        agent_type=asked.agent_type or ruled.agent_type,
        capabilities=(*asked.capabilities, *ruled.capabilities),
        skill=asked.skill or ruled.skill,
        domain=asked.domain or ruled.domain,
        tags=(*asked.tags, *ruled.tags),
        platform=asked.platform or ruled.platform,
        input_modes=(*asked.input_modes, *ruled.input_modes),
        output_modes=(*asked.output_modes, *ruled.output_modes),
    )


# --- what an agent has ---------------------------------------------------------------------------


@lru_cache(maxsize=_LACKING_MAX)
def lacking(entry: Entry, ask: Ask) -> str:
    """What an agent lacks of what is asked for; empty if nothing."""
    missing = [facet for facet in ask.facets if facet not in entry.facets]
    if not missing:
        if ask.evidence or not ask.tags or any(tag in entry.facets for tag in ask.tags):
            return ""
        return f"has none of the tags {', '.join(ask.shown[tag] for tag in ask.tags)}"
    if missing[0].kind is Kind.ROLE:
        return f"is a {entry.agent.role.value}: escalations go there"
    if missing[0].kind is Kind.WORKSPACE:
        return f"is in workspace {entry.agent.workspace}, not {ask.shown[missing[0]]}"
    return f"lacks {', '.join(ask.name(facet) for facet in missing)}"


# --- media types ---------------------------------------------------------------------------------


def _takes(offered: frozenset[str], wanted: str) -> bool:
    if wanted in offered:
        return True
    wanted = media_type(wanted)
    kind = wanted.partition("/")[0]
    return wanted in offered or "*/*" in offered or f"{kind}/*" in offered


def mode_fault(entry: Entry, ask: Ask | None, question: Question) -> str:
    """Why an agent cannot read the message or write what is wanted; empty if it can, or says nothing.

    The modes of the skill that is asked for go over those of the card (A2A 1.0 section 4.4.5).
    """
    required_in = ask.input_modes if ask else ()
    required_out = ask.output_modes if ask else ()
    reads, writes = entry.reads, entry.writes
    if ask and ask.skill in entry.skill_ids:
        skills = [skill for skill in entry.agent.skills if fold(skill.id) == ask.skill]
        reads = frozenset(media_type(mode) for skill in skills for mode in skill.input_modes) or reads
        writes = frozenset(media_type(mode) for skill in skills for mode in skill.output_modes) or writes
    if reads:
        for mode in (*required_in, *question.input_modes):
            if not _takes(reads, mode):
                return f"does not take {mode}"
    if writes:
        for mode in required_out:
            if not _takes(writes, mode):
                return f"does not give {mode}"
        wanted = frozenset(map(media_type, question.output_modes))
        if (
            wanted
            and not any(_takes(wanted, mode) for mode in writes)
            and not any(_takes(writes, mode) for mode in wanted)
        ):
            return f"gives none of {', '.join(question.output_modes)}"
    says = (reads or not required_in) and (writes or not required_out)
    if ask and not ask.evidence and not ask.tags and not says:
        return "does not say which media types it takes"
    return ""
