"""``python -m tests.chaos --minutes 10 --seed N --store sqlite|postgres``: exit code 1 if anything was found."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path


def main() -> int:
    """Run one campaign and print what it did and found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--plant", action="append", default=[], help="a fault for the brokers, see plants.py")
    parser.add_argument(
        "--keep", type=Path, help="a folder for what brokers said, agents noted and the log has"
    )
    chosen = parser.parse_args()
    from tests.chaos.campaign import Plan, run

    print(f"seed {chosen.seed}, store {chosen.store}, {chosen.minutes:g} minutes", flush=True)
    with ExitStack() as stack:
        folder = chosen.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="a2a-handoff-chaos-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(chosen.store, chosen.seed, chosen.minutes * 60, plants=tuple(chosen.plant))
        report = run(folder, plan)
    print(report)
    return 1 if report.verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
