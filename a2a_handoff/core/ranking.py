"""In which order those that may take a handoff are asked, and how that is told.

Duty: the rank of one agent for one question, and the same in words.
Rules, in this order: who is full comes last, and who is known to be after who only seems to be; the skill by
its id before a tag; more of the tags; idle, online, busy; load; smoothed time to the ACK; share of successes.
Only exact ties are spread.
Not here: who may be asked at all (``matching``).
"""

from __future__ import annotations

from a2a_handoff.core.agents import AgentView, Status
from a2a_handoff.core.question import Ask
from a2a_handoff.core.roster import Entry, Facet, Kind

#: Compares as the order: smaller is better.
Rank = tuple[int, int, int, int, int, int, int, int, str]

#: Mixes the number of an agent with that of the question, so that ties fall evenly (Knuth, volume 3,
#: section 6.4: multiplicative hashing by the golden ratio).
_ODD = 0x9E37_79B9_7F4A_7C15
_64_BITS = 0xFFFF_FFFF_FFFF_FFFF


def rank(entry: Entry, view: AgentView, ask: Ask, salt: int, *, known_full: bool = False) -> Rank:
    """Where an agent stands. ``salt`` 0 spreads nothing: ties go by id.

    Times count in milliseconds and rates in hundredths: less is noise. An agent that was never timed
    counts as the fastest, so that a new one gets its chance.
    """
    return (
        2 if known_full else int(_full(view)),
        -_skill_fit(entry, ask) if ask.skill else 0,
        -sum(tag in entry.facets for tag in ask.tags) if ask.tags else 0,
        _leisure(view),
        view.in_flight,
        round(view.response_s * 1000) if view.response_s else 0,
        -round(view.success_rate * 100),
        ((entry.chance ^ salt) * _ODD) & _64_BITS if salt else 0,
        entry.key,
    )


def _skill_fit(entry: Entry, ask: Ask) -> int:
    """2: has the skill by its id. 1: only as a tag. 0: no skill is asked for."""
    return (2 if ask.skill in entry.skill_ids else 1) if ask.skill else 0


def _full(view: AgentView) -> bool:
    limit = view.agent.max_concurrency
    return limit is not None and view.in_flight >= limit


def _leisure(view: AgentView) -> int:
    """0 idle, 1 online, 2 busy. Who was given work since it called itself idle is not."""
    if view.status is Status.BUSY:
        return 2
    return 0 if view.status is Status.IDLE and not view.in_flight else 1


def standing(entry: Entry, view: AgentView, ask: Ask) -> tuple[str, ...]:
    """Why a candidate stands where it stands, in the order of the ranking."""
    limit = view.agent.max_concurrency
    reasons = [f"is full: holds {view.in_flight} of {limit}"] if _full(view) else []
    if ask.skill:
        how = "by its id" if _skill_fit(entry, ask) == 2 else "as a tag"
        reasons.append(f"has skill {ask.shown[Facet(Kind.SKILL, ask.skill)]} {how}")
    tags = [ask.shown[tag] for tag in ask.tags if tag in entry.facets]
    if tags:
        reasons.append(f"has {'tag' if len(tags) == 1 else 'tags'} {', '.join(tags)}")
    if ask.had:
        reasons.append(ask.had)
    reasons.append(("idle", "online", "busy")[_leisure(view)])
    reasons.append(f"holds {view.in_flight}" if limit is None else f"holds {view.in_flight} of {limit}")
    if view.response_s is not None:
        reasons.append(f"answers in {view.response_s:.3f} s")
    if view.completed + view.failed:
        reasons.append(f"succeeds in {view.success_rate:.0%}")
    return tuple(reasons)
