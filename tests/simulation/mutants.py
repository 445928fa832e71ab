"""Faults that somebody could make in the service, each tried against the seeded schedules.

``python -m tests.simulation.mutants`` plants one after the other in a copy of the package and says which were
found. Exit code 1 if one was not. Faults in the core are planted by ``test_exploration``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = 1_500

#: Where, what stands there, and what would stand there instead.
FAULTS = {
    "sending again proves that nothing has begun": (
        "talk.py",
        "elif not_started and self.resent:",
        "elif not_started and self.resent and False:",
    ),
    "a crash leaves no doubt": ("errands.py", "return work.orphaned or work.key in", "return work.key in"),
    "silence means that it has not begun": (
        "talk.py",
        "not_started = error.sent is Sent.NO or",
        "not_started = error.sent is not Sent.YES or",
    ),
    "work is dropped when the store is away": (
        "dispatcher.py",
        "        except StoreUnavailable:\n            await self._claims.put_back(key, 1.0)\n        except WorkLost",
        "        except StoreUnavailable:\n            await self._claims.settle(key)\n        except WorkLost",
    ),
    "a cut stream is the end": (
        "talk.py",
        'await self._change(self._unsure("the stream ended before the task"), settle=True)',
        "await self._change(settle=True)",
    ),
    "what is asked about is not followed": (
        "errands.py",
        "        if not finished:\n            await self._put_back(work.key, h.policy.reconcile_every_s)\n",
        "        if not finished:\n            await self._settle(work.key)\n",
    ),
    "the deadline is noted and not obeyed": ("errands.py", "(cmd.Expire(),)", "()"),
    "a cancel is noted and not obeyed": (
        "errands.py",
        "(cmd.ConfirmCancel(confirmed=False),)",
        "()",
    ),
    "a refused offer is forgotten": (
        "errands.py",
        "        if not answer.ready:\n            await self._change(",
        "        if not answer.ready:\n            await self._settle(work.key)\n            return None\n            await self._change(",
    ),
    "what is written for a caller who hung up is told to nobody": (
        "ledger.py",
        "            self._tell(commit, done.result(), befores)",
        "            pass",
    ),
    "claimed work is begun twice": (
        "dispatcher.py",
        "        for work in works:\n            if self._claims.stopping",
        "        for work in (*works, *works):\n            if self._claims.stopping",
    ),
    "an agent takes what it is given, however much": (
        "slots.py",
        "    if chosen is None or h.names(agent_id):",
        "    if True:",
    ),
}


def planted(fault: str, folder: Path) -> None:
    """A copy of the package with one fault, and the tests beside it."""
    name, right, wrong = FAULTS[fault]
    shutil.copytree(
        ROOT / "a2a_handoff", folder / "a2a_handoff", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "tests").symlink_to(ROOT / "tests")
    source = folder / "a2a_handoff" / name
    text = source.read_text()
    if text.count(right) != 1:
        raise SystemExit(f"{fault}: what it is to change stands {text.count(right)} times in {name}")
    source.write_text(text.replace(right, wrong))


def found_by(fault: str, folder: Path, *, seeds: int) -> int:
    """How many schedules fail with the fault, of as many as there are ``seeds``."""
    planted(fault, folder)
    ran = subprocess.run(
        (sys.executable, "-m", "tests.simulation", "--seeds", str(seeds)),
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    counted = re.search(r"(\d+) failed", ran.stdout)
    if counted is None:
        raise AssertionError(ran.stdout + ran.stderr)
    return int(counted[1])


def main() -> int:
    """Plant each, and tell."""
    missed = 0
    for fault in FAULTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = found_by(fault, Path(folder), seeds=SEEDS)
        missed += not found
        verdict = f"found by {found} of {SEEDS:,} schedules" if found else "NOT FOUND"
        print(f"{fault}: {verdict}, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
