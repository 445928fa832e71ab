"""The broker in a world of chance, seed by seed. ``make simulate SEEDS=n`` tries more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.simulation.mutants import FAULTS, ROOT, found_by
from tests.simulation.time import NothingWillHappen, VirtualLoop
from tests.simulation.world import Broken, World, simulate

CHUNK = 100


@pytest.mark.parametrize("first", range(1, 6 * CHUNK, CHUNK))
def test_nothing_is_lost_or_done_twice(first: int) -> None:
    """The message of a failure has the seed and the log; ``python -m tests.simulation --seed n`` replays it."""
    crashes = ended = 0
    for seed in range(first, first + CHUNK):
        world = simulate(seed)
        crashes += world.crashes
        ended += len(world.data.handoffs)
    assert crashes > CHUNK / 5, "the broker hardly ever died: this proves little"
    assert ended > CHUNK


def test_a_seed_is_the_same_schedule_each_time() -> None:
    def log(world: World) -> list[str]:
        return [repr(one) for one in world.data.log]

    assert log(simulate(37)) == log(simulate(37))


@pytest.mark.parametrize(
    "fault",
    [
        "a crash leaves no doubt",
        "silence means that it has not begun",
        "a cut stream is the end",
        "the deadline is noted and not obeyed",
        "an agent takes what it is given, however much",
    ],
)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    """The other faults need more schedules: ``python -m tests.simulation.mutants``."""
    assert found_by(fault, tmp_path, seeds=CHUNK) > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_can_still_be_planted(fault: str) -> None:
    name, right, wrong = FAULTS[fault]
    assert (ROOT / "a2a_handoff" / name).read_text(encoding="utf-8").count(right) == 1
    assert right != wrong


def test_the_world_notices_what_is_begun_twice() -> None:
    async def begin() -> None:
        world = World(1, loop)
        await world.replay(handoffs=3)
        done = next(h for h in world.data.handoffs.values() if not h.replay_safe and h.acked_at is not None)
        world.begun_by_pull[done.id] = 2
        with pytest.raises(Broken, match="was begun"):
            world.check_end()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(begin())
    finally:
        loop.close()


def test_a_world_in_which_everybody_waits_for_ever_is_noticed() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    loop = VirtualLoop()
    try:
        with pytest.raises(NothingWillHappen):
            loop.run_until_complete(forever())
    finally:
        loop.close()
