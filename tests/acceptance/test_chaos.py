"""A short campaign on each store. ``python -m tests.chaos --minutes 10`` is the long one; ``KILL_SEED=n`` repeats."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.chaos.campaign import Plan, run

SECONDS = 12.0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_processes_that_are_killed_and_stopped_at_random_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, store: str
) -> None:
    seed = int(os.environ.get("KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    print(f"KILL_SEED={seed}")
    report = run(tmp_path, Plan(store, seed, SECONDS, deadline_s=10, pace_s=0.1, hurry=2.0))
    print(report)
    assert report.verdict.faults == []
    assert report.blows
    assert report.verdict.tasks


@pytest.mark.timeout(240)
def test_a_campaign_finds_what_is_lost_done_twice_and_told_twice(tmp_path: Path) -> None:
    plants = ("forgets", "sends_twice", "tells_without_order")
    report = run(tmp_path, Plan("postgres", 1, 4.0, deadline_s=5, pace_s=0.1, hurry=0.1, plants=plants))
    print(report)
    for fault in (r"was promised and is not there", r"done by \['(\w+)', '\1'", r"was told \d times"):
        assert any(re.search(fault, found) for found in report.verdict.faults), fault
