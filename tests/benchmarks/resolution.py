"""How the time of one resolution grows with the number of agents.

Run by hand: ``python -m tests.benchmarks.resolution``. Times depend on the machine; the ratios between
10, 1,000 and 10,000 agents say whether the index works.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from a2a_handoff.core.agents import Agent, AgentView, Binding, Generation, Interface, Skill
from a2a_handoff.core.context import HandoffContext, Package, Requirements, Signals
from a2a_handoff.core.matching import resolve
from a2a_handoff.core.question import Question
from a2a_handoff.core.roster import Roster
from a2a_handoff.core.rules import shipped

SIZES = (10, 1_000, 10_000)


def agents(count: int) -> Roster:
    """``count`` agents: all can ``canRead``, about ten of each thousand more and one in ten by skill."""
    views: dict[str, AgentView] = {}
    for number in range(count):
        agent = Agent(
            agent_id=f"agent-{number:05}",
            tenant="t",
            capabilities=frozenset(
                {"canRead", *(("canBrowse",) if number % max(count // 10, 1) == 0 else ())}
            ),
            skills=(Skill(id=f"skill-{number % 100}", tags=("text", f"tag-{number % 7}")),),
            input_modes=("text/plain",),
            interfaces=(
                Interface(url=f"http://a{number}.test", binding=Binding.JSONRPC, generation=Generation.V1_0),
            ),
        )
        views[agent.agent_id] = AgentView(agent=agent)
    return Roster.of(views.values())


def question(**asked: str | tuple[str, ...]) -> Question:
    signals = Signals(intent=str(asked.pop("intent", "")))
    target = str(asked.pop("target_agent", ""))
    context = HandoffContext(
        correlation_id="c", source_agent="me", conversation_summary="s", user_intent="i", target_agent=target
    )
    package = Package(context=context, requirements=msgspec.convert(asked, Requirements), signals=signals)
    return Question(tenant="t", package=package, sender="me", input_modes=("text/plain",), spread="h1")


def microseconds(call: Callable[[], object]) -> float:
    """The best mean of five rounds of at least 20 ms each."""
    call()
    best = float("inf")
    for _ in range(5):
        calls, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < 0.02:
            call()
            calls += 1
        best = min(best, spent / calls)
    return best * 1e6


def of_ten_capable(roster: Roster) -> float:
    """Microseconds to find the best of ten agents that can do something, whatever the others are."""
    asked, rules = question(capabilities=("canBrowse",)), shipped()
    return microseconds(lambda: resolve(asked, roster, rules))


def main() -> None:
    asks = {
        "named target": question(target_agent="agent-00003"),
        "ten capable": question(capabilities=("canBrowse",)),
        "one in a hundred, by skill": question(skill="skill-7"),
        "everybody": question(capabilities=("canRead",)),
        "nobody, near misses looked for": question(capabilities=("can-Browse", "canRead")),
    }
    rules = shipped()
    rosters = {size: agents(size) for size in SIZES}
    print(f"{'question':34}" + "".join(f"{f'{size:,} agents':>16}" for size in SIZES) + "   ratio")
    for name, asked in asks.items():
        times = [microseconds(lambda r=roster, q=asked: resolve(q, r, rules)) for roster in rosters.values()]
        print(
            f"{name:34}"
            + "".join(f"{spent:>13,.0f} µs" for spent in times)
            + f"   {times[-1] / times[0]:.1f}"
        )
    resolution = resolve(asks["ten capable"], rosters[10_000], rules)
    print(f"\na decision among 10,000 agents takes {len(msgspec.json.encode(resolution)):,} bytes in the log")


if __name__ == "__main__":
    main()
