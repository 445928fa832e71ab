"""``make simulate``: schedules by seed on every core, and the life cycle explored with large casts.

``python -m tests.simulation --seeds 20000`` tries the seeds from ``--first`` on and prints each that fails, with
the log of the handoff; ``--seed 37`` replays one. Exit code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.exploration import Broken as Impossible
from tests.simulation.exploration import explore
from tests.simulation.test_exploration import CASTS, LARGE
from tests.simulation.world import simulate

_CHUNK = 100


def run(seeds: range) -> tuple[Counter[str], list[str]]:
    """Try them. What there was, and the faults."""
    seen: Counter[str] = Counter()
    faults: list[str] = []
    for seed in seeds:
        try:
            world = simulate(seed)
        except Exception:  # noqa: BLE001 - whatever it is, it is a fault of this seed
            faults.append(f"seed {seed}:\n{traceback.format_exc(limit=-3)}")
            continue
        seen["crashes"] += world.crashes
        seen.update(handoff.state.value for handoff in world.data.handoffs.values())
    return seen, faults


def main() -> int:
    """Do it, and tell."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many schedules")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one only")
    parser.add_argument("--explore", action="store_true", help="explore the large casts as well")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        chosen.first, chosen.seeds = chosen.seed, 1
    last = chosen.first + chosen.seeds
    chunks = [range(at, min(at + _CHUNK, last)) for at in range(chosen.first, last, _CHUNK)]
    began = time.monotonic()
    seen: Counter[str] = Counter()
    faults: list[str] = []
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for some, wrong in pool.map(run, chunks):
            seen += some
            faults += wrong
            for fault in wrong:
                print(fault, flush=True)
    took = time.monotonic() - began
    print(f"{chosen.seeds:,} schedules in {took:.0f} s, {len(faults)} failed: {dict(seen)}", flush=True)
    for name, cast in (CASTS | LARGE).items() if chosen.explore else ():
        try:
            found = explore(cast)
        except Impossible as broken:
            faults.append(str(broken))
            print(f"{name}: {broken}", flush=True)
        else:
            print(f"{name}: {found.states:,} states, {found.steps:,} steps", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
