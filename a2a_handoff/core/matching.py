"""Who may take a handoff, in which order, and why the others may not.

Duty: ``resolve`` answers one question about routing, without a side effect; ``supervisors`` answers to
whom it is escalated.
Rules, in this order. A named target skips capability and ranking, not the guards against loops. Then
the routing rules. Then hard filters, each with a reason, and a ranking with reasons. Without anything
that matches nobody is guessed. The same question about the same agents has the same answer, whatever
the order of registration, on every replica; exact ties are spread by the question's ``spread``.
Not here: what is asked (``question``), the order (``ranking``), the index (``roster``), load and
presence (``registry``), the guards (``machine``).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from a2a_handoff.core.agents import (
    PLATFORM_CAPABILITIES,
    Agent,
    AgentView,
    Readiness,
    Role,
    Status,
    fold,
    missing_extensions,
)
from a2a_handoff.core.context import Requirements, Signals
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.events import Candidate, Outcome, PassedOver, Resolution
from a2a_handoff.core.question import (
    AGENT_TYPES,
    Ask,
    Question,
    ask_of,
    blanks,
    is_evidence,
    joined,
    lacking,
    mode_fault,
)
from a2a_handoff.core.ranking import Rank, rank, standing
from a2a_handoff.core.roster import Entry, Facet, Kind, Roster, number_of
from a2a_handoff.core.rules import RoutingRules

_T = TypeVar("_T")

#: A resolution lists this many candidates and this many of the agents passed over.
CANDIDATES_MAX = 10
PASSED_OVER_MAX = 50

DEFAULT_RULE = "default"
DEFAULT_WORKSPACE = "default"

#: Of a message's text, the first characters are looked at for a suggestion.
_TEXT_MAX = 2_000
_PUNCTUATION = ".,;:!?\"'()[]{}<>"


def resolve(
    question: Question,
    agents: Roster | Sequence[AgentView],
    rules: RoutingRules,
    *,
    passed_over_max: int = PASSED_OVER_MAX,
) -> Resolution:
    """Answer ``question``. Raises ``HandoffError`` (``invalid_context``) if it asks for nothing.

    Without candidates ``reason`` says why: ``self_only`` and ``cycle_detected`` if only the sender or
    only earlier agents could, ``target_unavailable`` if those that could do not answer (with ``wait``
    if one of them fetches its work and may come back), else ``no_capable_agent``.
    """
    roster = agents if isinstance(agents, Roster) else Roster.of(agents)
    return _Resolver(question, roster, rules, passed_over_max).run()


def supervisors(
    roster: Roster, tenant: str, *, workspace: str = "", exclude: Iterable[str] = ()
) -> tuple[Candidate, ...]:
    """To whom a handoff is escalated, best first: supervisors, then people, who need not be present.

    Those of ``workspace`` if it has any, else those of the tenant. ``exclude`` is the path.
    """
    agents = roster.entries(tenant)
    excluded = {fold(name) for name in exclude}
    found: list[tuple[tuple[bool, bool, int, str], AgentView]] = []
    for role in (Role.SUPERVISOR, Role.HUMAN):
        for key in roster.having(tenant, (Facet(Kind.ROLE, role.value),)):
            view = roster.view(agents[key])
            waits = view.agent.readiness is Readiness.PERSON and view.status is not Status.DRAINING
            if key not in excluded and not view.agent.card_problem and (waits or not absence(view)):
                rank = (role is Role.HUMAN, bool(absence(view)), view.in_flight, key)
                found.append((rank, view))
    near = [item for item in found if item[1].agent.workspace == workspace]
    best = sorted(near or found, key=lambda item: item[0])
    return tuple(_candidate(view, (f"is a {view.agent.role.value}",)) for _, view in best)


def absence(view: AgentView) -> str:
    """Why an agent cannot be offered work at this moment; empty if it can."""
    if view.status is Status.DRAINING:
        return "is draining: it takes no new work"
    if view.breaker_open:
        return "did not answer lately; its circuit breaker is open"
    if not view.present:
        return "is absent: it was not heard from lately"
    return "is offline" if view.status is Status.OFFLINE else ""


# --- the answer ----------------------------------------------------------------------------------


class _Resolver:
    """One question on its way to its answer. It collects who was passed over, and why."""

    def __init__(self, question: Question, roster: Roster, rules: RoutingRules, listed: int) -> None:
        self._q = question
        self._roster = roster
        self._rules = rules
        self._listed = listed
        self._package = question.package
        self._sender = fold(question.sender)
        sender = roster.find(question.tenant, question.sender)
        self._workspace = question.workspace or (sender.agent.workspace if sender else DEFAULT_WORKSPACE)
        self._chain = question.package.context.handoff_chain
        self._path = {fold(name) for name in self._chain}
        self._agents = roster.entries(question.tenant)
        self._salt = number_of(question.spread) if question.spread else 0
        self._tried = {fold(name) for name in question.tried}
        self._full = {fold(name) for name in question.full}
        self._ask: Ask | None = None
        self._mode_faults: dict[tuple[frozenset[str], frozenset[str], Ask | None], str] = {}
        self._passed: dict[str, tuple[str, str, bool]] = {}
        self._blocked: set[Outcome] = set()
        self._waits = False

    def run(self) -> Resolution:
        """Named target, rules, capabilities, default: the first that has somebody."""
        package = self._package
        violations = blanks(package.requirements)
        if violations:
            raise _invalid(violations)
        target, requirements = self._read_type(
            package.context.target_agent, package.requirements, "requirements"
        )
        if target:
            return self._named(target, requirements)
        values = self._rules.values_of(
            package.signals, requirements, package.context, workspace=self._workspace
        )
        for rule in self._rules.matching(values):
            found = self._ruled(rule.target, rule.requirements, requirements, rule.name)
            if found:
                others = () if requirements.empty else self._match(requirements)
                return self._answer((*found, *self._fallback(), *others), rule=rule.name)
        if not requirements.empty:
            return self._answer((*self._match(requirements), *self._fallback()))
        return self._default(requirements)

    def _read_type(self, target: str, requirements: Requirements, where: str) -> tuple[str, Requirements]:
        """``agent_type``: a word for a capability, an agent, or a platform."""
        word = requirements.agent_type.strip()
        if not word:
            return target, requirements
        plain = replace(requirements, agent_type="")
        capability = AGENT_TYPES.get(fold(word))
        if capability:
            return target, replace(plain, capabilities=(*plain.capabilities, capability))
        if self._agents.get(fold(word)):
            return target or word, plain
        platform = Facet(Kind.PLATFORM, fold(word))
        if fold(word) in PLATFORM_CAPABILITIES or self._roster.having(self._q.tenant, (platform,)):
            return target, replace(plain, platform=plain.platform or word)
        known = ", ".join((*AGENT_TYPES, *PLATFORM_CAPABILITIES))
        text = f"is neither a type ({known}) nor the id or the platform of a registered agent"
        raise _invalid((Violation(f"{where}.agent_type", text),))

    # --- a named target ---

    def _named(self, target: str, requirements: Requirements) -> Resolution:
        """The named agent, then the sender's fallbacks, then whoever else could do it."""
        key = fold(target)
        if key in self._path or key == self._sender:
            self._pass(target, self._on_the_path(target), Outcome.CYCLE_DETECTED)
            return self._answer(())
        first: tuple[Candidate, ...] = ()
        last: tuple[Candidate, ...] = ()
        entry = self._agents.get(fold(target))
        if entry is None:
            self._pass_unknown(target)
        else:
            view = self._roster.view(entry)
            problem = absence(view)
            inbox = view.agent.readiness in (Readiness.PULL, Readiness.PERSON)
            demand = self._demand(view.agent)
            barred = view.agent.card_problem or demand
            if key in self._tried or barred or view.status is Status.DRAINING:
                reason = barred or problem or "was tried already"
                self._pass(view.agent.agent_id, reason, Outcome.TARGET_UNAVAILABLE, near=True)
            elif not problem or view.agent.readiness is Readiness.PERSON:
                first = (_candidate(view, ("named by the sender",)),)
            elif inbox:
                # Its inbox keeps the offer: ahead of others unless the sender says what it needs.
                waiting = (_candidate(view, ("named by the sender", f"{problem}, its inbox waits")),)
                first, last = ((), waiting) if not requirements.empty else (waiting, ())
            elif view.status is Status.OFFLINE:
                self._pass(view.agent.agent_id, problem, Outcome.TARGET_UNAVAILABLE, near=True)
            else:
                # The breaker is a guess. If nobody else can be asked, the named agent is.
                last = (_candidate(view, ("named by the sender", problem)),)
        others = () if requirements.empty else self._match(requirements)
        alternatives = (*self._fallback(), *others) if first else (*others, *self._fallback())
        return self._answer((*first, *alternatives, *last))

    def _fallback(self) -> tuple[Candidate, ...]:
        """The agents that the sender names as second choice, in its order."""
        found: list[Candidate] = []
        for name in self._package.options.fallback:
            entry = self._agents.get(fold(name))
            if entry is None:
                self._pass_unknown(name)
                continue
            view = self._roster.view(entry)
            if not self._barred(entry) and not self._absent(view):
                found.append(_candidate(view, ("named as fallback by the sender",)))
        return tuple(found)

    # --- rules ---

    def _ruled(
        self, target: str, ruled: Requirements | None, asked: Requirements, name: str
    ) -> tuple[Candidate, ...]:
        """Whom one matching rule sends to; nobody if its target is not there."""
        if ruled is not None:
            target, asked = self._read_type("", joined(asked, ruled), f"rule.{name}.requirements")
        if not target:
            return self._match(asked)
        entry = self._agents.get(fold(target))
        if entry is None:
            self._pass(target, f"is the target of rule '{name}' and not registered", near=True)
            return ()
        ask = ask_of(asked, self._workspace, any_role=True)
        fault = lacking(entry, ask)
        if fault:
            self._pass(entry.agent.agent_id, fault, near=True)
            return ()
        view = self._roster.view(entry)
        if self._barred(entry, ask) or self._absent(view):
            return ()
        return (_candidate(view, (f"target of rule '{name}'",)),)

    def _default(self, requirements: Requirements) -> Resolution:
        """Nothing was asked for and no rule matched."""
        options = self._package.options
        found = self._fallback()
        if found:
            return self._answer(found)
        if not self._package.synthesized and not options.fallback and self._package.signals == Signals():
            text = "names no target_agent, no requirements and no signals: say who or what is needed"
            raise _invalid((Violation("handoff_context", text),))
        target = self._rules.default
        if target:
            found = self._ruled(target, None, requirements, DEFAULT_RULE)
        if found:
            return self._answer(found, rule=DEFAULT_RULE)
        if target:
            name, reason, near = self._passed[fold(target)]
            said = f"{reason}: name a target_agent or requirements in metadata.handoff_context"
            self._passed[fold(target)] = (name, said, near)
        self._suggest()
        return self._answer(())

    def _suggest(self) -> None:
        """Agents that the text of the message names a skill of. Nobody is chosen for that."""
        words = self._q.text[:_TEXT_MAX].split()
        names = {fold(word.strip(_PUNCTUATION)) for word in words}
        for name in sorted(names):
            for entry in self._some((Facet(Kind.SKILL, name), Facet(Kind.WORKSPACE, self._workspace))):
                text = f"was not asked for; the message speaks of its skill {name}: name it in requirements"
                self._pass(entry.agent.agent_id, text, near=True)

    # --- capabilities ---

    def _match(self, requirements: Requirements) -> tuple[Candidate, ...]:
        """Everybody who has all that is asked for and may be asked, best first."""
        ask = self._ask = ask_of(requirements, self._workspace)
        matching = self._roster.having(self._q.tenant, ask.facets)
        if not ask.evidence and ask.tags:
            matching &= set[str]().union(*(self._roster.having(self._q.tenant, (tag,)) for tag in ask.tags))
        ranked = self._ranked(matching, ask)
        best = _first(CANDIDATES_MAX, ranked, of=len(matching), key=lambda item: item[0])
        if not best:
            self._near_misses(ask)
        return tuple(_candidate(view, standing(entry, view, ask)) for _, entry, view in best)

    def _ranked(self, matching: Iterable[str], ask: Ask) -> Iterator[tuple[Rank, Entry, AgentView]]:
        """Those that may be asked. One at a time: a list of thousands costs more than their ranks."""
        view_of = self._roster.view
        for key in matching:
            entry = self._agents[key]
            view = view_of(entry)
            full = key in self._full
            if full and entry.agent.max_concurrency is not None:
                view = replace(view, in_flight=max(view.in_flight, entry.agent.max_concurrency))
            if not self._barred(entry, ask) and not self._absent(view):
                yield rank(entry, view, ask, self._salt, known_full=full), entry, view

    # --- hard filters ---

    def _barred(self, entry: Entry, ask: Ask | None = None) -> bool:
        """Whether an agent that has what it takes may not be asked, at whatever time."""
        agent = entry.agent
        outcome = None
        if entry.key == self._sender:
            reason, outcome = "is the sender itself", Outcome.SELF_ONLY
        elif entry.key in self._path:
            reason, outcome = self._on_the_path(agent.agent_id), Outcome.CYCLE_DETECTED
        elif entry.key in self._tried:
            reason, outcome = "was tried already", Outcome.TARGET_UNAVAILABLE
        elif agent.card_problem:
            reason, outcome = agent.card_problem, Outcome.TARGET_UNAVAILABLE
        else:
            reason = self._demand(agent) or self._mode_fault(entry, ask)
        if reason:
            self._pass(agent.agent_id, reason, outcome, near=True)
        return bool(reason)

    def _demand(self, agent: Agent) -> str:
        """An extension that the agent demands (A2A 1.0 section 4.6) and the sender did not name."""
        missing = missing_extensions(agent, self._q.extensions)
        return f"demands the extension {missing[0]}, which the sender does not speak" if missing else ""

    def _mode_fault(self, entry: Entry, ask: Ask | None) -> str:
        if ask and ask.skill in entry.skill_ids:
            return mode_fault(entry, ask, self._q)
        modes = (entry.reads, entry.writes, ask)
        if modes not in self._mode_faults:
            self._mode_faults[modes] = mode_fault(entry, ask, self._q)
        return self._mode_faults[modes]

    def _absent(self, view: AgentView) -> bool:
        """Whether an agent cannot be asked now. One that fetches its work may be waited for."""
        reason = absence(view)
        drains = view.status is Status.DRAINING
        if not reason or (view.agent.readiness is Readiness.PERSON and not drains):
            return False
        self._pass(view.agent.agent_id, reason, Outcome.TARGET_UNAVAILABLE, near=True)
        self._waits |= view.agent.readiness is Readiness.PULL and not drains
        return True

    # --- who was passed over ---

    def _pass(
        self, agent_id: str, reason: str, outcome: Outcome | None = None, *, near: bool = False
    ) -> None:
        self._passed.setdefault(fold(agent_id), (agent_id, reason, near))
        if outcome:
            self._blocked.add(outcome)

    def _pass_unknown(self, name: str) -> None:
        similar = self._roster.similar(self._q.tenant, Facet(Kind.ID, fold(name)))
        meant = [self._agents[key].agent.agent_id for key in similar[:1]]
        hint = f"; did you mean {meant[0]}?" if meant else ""
        self._pass(name, f"is not registered{hint}", near=True)

    def _on_the_path(self, agent_id: str) -> str:
        return f"is on the path already: {' > '.join((*self._chain, agent_id))}"

    def _near_misses(self, ask: Ask) -> None:
        """Agents that lack one thing only, or have it under a name that differs in accents."""
        asked = (*ask.facets, *(() if ask.evidence else ask.tags))
        for facet in asked:
            others = [other for other in asked if other is not facet]
            for name in self._roster.similar(self._q.tenant, facet):
                meant = Facet(facet.kind, name)
                for entry in self._some((*others, meant)):
                    text = f"lacks {ask.name(facet)}; did you mean {_spelling(entry, meant)}?"
                    self._pass(entry.agent.agent_id, text, near=True)
            if any(is_evidence(other) for other in others):
                for entry in self._some(others):
                    self._pass(entry.agent.agent_id, lacking(entry, ask), near=True)

    def _some(self, facets: Sequence[Facet]) -> list[Entry]:
        keys = heapq.nsmallest(self._listed, self._roster.having(self._q.tenant, facets))
        return [self._agents[key] for key in keys]

    def _answer(self, candidates: Iterable[Candidate], *, rule: str = "") -> Resolution:
        by_key: dict[str, Candidate] = {}
        for candidate in candidates:
            by_key.setdefault(fold(candidate.agent_id), candidate)
        chosen = dict(itertools.islice(by_key.items(), CANDIDATES_MAX))
        for key in chosen:
            self._passed.pop(key, None)
        passed, more = self._list_passed(chosen)
        reason = None
        if not chosen:
            reason = next((o for o in _WHY if o in self._blocked), Outcome.NO_CAPABLE_AGENT)
        return Resolution(
            candidates=tuple(chosen.values()),
            passed_over=passed,
            more=more,
            rule=rule,
            reason=reason,
            wait=not chosen and self._waits,
        )

    def _list_passed(self, chosen: Collection[str]) -> tuple[tuple[PassedOver, ...], int]:
        """Near misses first, then the others by id; and how many are left out.

        Agents that were not looked at (somebody was named, or a rule decided) are not listed.
        """
        passed = self._passed
        noted = _first(
            self._listed, passed.items(), of=len(passed), key=lambda item: (not item[1][2], item[0])
        )
        listed = [PassedOver(agent_id=a, reason=reason, near=near) for _, (a, reason, near) in noted]
        if self._ask is None:
            return tuple(listed), len(self._passed) - len(listed)
        keys = self._roster.keys(self._q.tenant)
        rest = (key for key in keys if key not in self._passed and key not in chosen)
        for key in itertools.islice(rest, self._listed - len(listed)):
            entry = self._agents[key]
            text = lacking(entry, self._ask) or f"matches, and ranks below the first {CANDIDATES_MAX}"
            listed.append(PassedOver(agent_id=entry.agent.agent_id, reason=text))
        unknown = sum(1 for key in self._passed if key not in self._agents)
        return tuple(listed), len(keys) + unknown - len(chosen) - len(listed)


#: Why nobody is left, the most telling first.
_WHY = (Outcome.TARGET_UNAVAILABLE, Outcome.CYCLE_DETECTED, Outcome.SELF_ONLY)


def _first(limit: int, items: Iterable[_T], *, of: int, key: Callable[[_T], Any]) -> list[_T]:
    """The first ``limit`` in order, ``of`` so many. Mostly they are few, and then sorting takes less."""
    return sorted(items, key=key) if of <= limit else heapq.nsmallest(limit, items, key=key)


def _invalid(violations: tuple[Violation, ...]) -> HandoffError:
    text = "; ".join(f"{v.field} {v.description}" for v in violations)
    return HandoffError(Code.INVALID_CONTEXT, f"The handoff cannot be routed: {text}.", violations=violations)


# --- what an agent has ---------------------------------------------------------------------------


def _spelling(entry: Entry, facet: Facet) -> str:
    """A folded name as the agent writes it."""
    agent = entry.agent
    names = (*agent.capabilities, *agent.domains, agent.platform, *(skill.id for skill in agent.skills))
    tags = (tag for skill in agent.skills for tag in skill.tags)
    return next((name for name in (*names, *tags) if fold(name) == facet.name), facet.name)


def _candidate(view: AgentView, reasons: tuple[str, ...]) -> Candidate:
    agent = view.agent
    return Candidate(agent_id=agent.agent_id, readiness=agent.readiness, role=agent.role, reasons=reasons)
