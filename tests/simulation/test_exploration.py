"""The life cycle of one handoff, explored whole, and the exploration tried on planted faults.

The large casts are explored by ``make simulate``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from a2a_handoff.core.agents import Readiness
from a2a_handoff.core.context import Mode
from a2a_handoff.core.events import State
from a2a_handoff.core.policy import Policy
from tests.simulation.exploration import Broken, Cast, explore

ROOT = Path(__file__).parents[2]
_PROBE, _OFFER, _PULL = Readiness.PROBE, Readiness.OFFER, Readiness.PULL
_PUSHED = (("a", _PROBE), ("b", _OFFER))
_MIXED = (("a", _OFFER), ("b", _PULL))

CASTS = {
    "three that are sent to, of whom two may be asked": Cast((*_PUSHED, ("c", _PROBE))),
    "one that fetches, one that is sent to": Cast((("a", _PULL), ("b", _PROBE))),
    "running twice does no harm": Cast(_PUSHED, replay_safe=True),
    "a supervisor": Cast(_PUSHED, supervisor=True),
    "a supervisor of two that fetch": Cast((("a", _PULL), ("b", _PULL)), supervisor=True),
    "a conversation": Cast(_PUSHED, converses=True),
    "handing on": Cast(_PUSHED, hands_on=Mode.TRANSFER),
    "handing on, staying open": Cast(_MIXED, hands_on=Mode.TRANSFER, target_open=True),
    "asking for help": Cast(_MIXED, hands_on=Mode.DELEGATE, target_open=True),
}
LARGE = {
    "three agents": Cast((("a", _OFFER), ("b", _PROBE), ("c", _PULL)), policy=Policy(agents=3)),
    "three, running twice does no harm": Cast(
        (("a", _OFFER), ("b", _PROBE), ("c", _PULL)), policy=Policy(agents=3), replay_safe=True
    ),
    "everything": Cast(
        _MIXED,
        supervisor=True,
        replay_safe=True,
        hands_on=Mode.TRANSFER,
        target_open=True,
        converses=True,
    ),
}


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_whatever_happens_in_whatever_order_the_rules_hold(cast: Cast) -> None:
    explored = explore(cast)
    print(f"{explored.states} states, {explored.steps} steps, {dict(explored.ends)}")
    ends = {State.COMPLETED, State.FAILED, State.CANCELED, State.EXPIRED, State.RETURNED}
    assert set(explored.ends) == ends


#: Faults that somebody could make: where, what stands there, and what would stand there instead.
FAULTS = {
    "what is unsure is given away": (
        "machine",
        "    if h.replay_safe and not h.output_started and",
        "    if not h.output_started and",
    ),
    "output is forgotten": (
        "machine",
        "if h.replay_safe and not h.output_started and",
        "if h.replay_safe and",
    ),
    "redeliveries have no bound": (
        "machine",
        "if c.again and attempt.deliveries < h.policy.deliveries",
        "if c.again",
    ),
    "agents have no bound": ("machine", "if len(tried) >= h.policy.agents", "if len(tried) >= 99"),
    "an agent is asked again": ("machine", "if c.agent_id not in tried and", "if"),
    "a task that is to stop moves on": (
        "machine",
        "    if h.cancel_requested:\n        return (*ended, ev.HandoffCanceled(at=now, confirmed=True))\n",
        "",
    ),
    "a late result ends it again": (
        "machine",
        "if h.state.terminal or h.state is State.HANDED_OFF:\n        return _late",
        "if h.state is State.HANDED_OFF:\n        return _late",
    ),
    "old attempts may speak": (
        "machine",
        "    if number and number != attempt.number:",
        "    if number > 99:",
    ),
    "an ACK is not needed": (
        "machine",
        "    if attempt.acked_at is not None:\n        return ()\n    return (ev.H",
        "    if attempt:\n        return ()\n    return (ev.H",
    ),
    "the deadline is not scheduled": (
        "actions",
        "return (Schedule(kind=WorkKind.DEADLINE, due_at=deadline_at),)",
        "return ()",
    ),
    "a retry is not scheduled": (
        "actions",
        "return (Schedule(kind=kind, due_at=due_at, attempt=attempt),)",
        "return ()",
    ),
    "work survives the end": ("actions", "out: list[Action] = [Drop()]", "out: list[Action] = []"),
    "a cancel has no end": (
        "actions",
        "out.append(Schedule(kind=WorkKind.CANCEL_DUE, due_at=at + h.policy.cancel_wait_s))",
        "pass",
    ),
    "an unsure target is never asked": (
        "actions",
        "return (Schedule(kind=WorkKind.RECONCILE, due_at=due_at, attempt=attempt),)",
        "return ()",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    """The exploration runs over a copy of the core with one line changed."""
    module, right, wrong = FAULTS[fault]
    core = tmp_path / "a2a_handoff" / "core"
    core.mkdir(parents=True)
    for source in (ROOT / "a2a_handoff" / "core").glob("*.py"):
        text = source.read_text()
        if source.stem == module:
            assert text.count(right) == 1, (
                f"what the fault is to change stands there {text.count(right)} times"
            )
            text = text.replace(right, wrong)
        (core / source.name).write_text(text)
    (core.parent / "__init__.py").write_text("")
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("simulation", "support"):
        (tests / name).symlink_to(ROOT / "tests" / name)
    found = subprocess.run(
        (sys.executable, "-m", "tests.simulation.test_exploration"),
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert found.returncode == 1, found.stdout + found.stderr
    assert "BROKEN" in found.stdout, found.stdout + found.stderr


def main() -> int:
    """Explore the small casts, and say what is broken."""
    for name, cast in CASTS.items():
        try:
            explore(cast)
        except Broken as broken:
            print(f"{name}: BROKEN: {broken}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
