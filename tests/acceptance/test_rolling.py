"""Three brokers on one PostgreSQL under load: each is restarted, or killed, and nothing is lost or done twice.

``ROLLING_ROUNDS=n`` makes it longer; ``KILL_SEED=n`` plays the same moments again.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.test_kill_under_load import SETTINGS, Load, Staff
from tests.support.replicas import processes

REPLICAS = 3
ROUNDS = int(os.environ.get("ROLLING_ROUNDS", "1"))


@pytest.mark.parametrize("end", ["restarted", "killed"])
def test_brokers_that_end_in_turn_under_load_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, end: str
) -> None:
    seed = int(os.environ.get("KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    with ExitStack() as stack, processes(tmp_path, REPLICAS, **SETTINGS) as brokers:
        staff = Staff(stack)
        staff.register(brokers[0])
        load = Load(*brokers, seed=seed)
        with load.under_way():
            for _ in range(ROUNDS):
                for broker in brokers:
                    threading.Event().wait(chance.uniform(0.3, 1.0))
                    if end == "restarted":
                        assert broker.stop() == 0
                    else:
                        broker.kill()
                        # Long enough for the others to see that it is gone.
                        threading.Event().wait(chance.choice((0.1, 5.0)))
                    broker.start()
        handoffs = load.settled()
        states = Counter(h["state"] for h in handoffs)
        print(f"{len(load.tasks)} tasks, {states}")
        logs = {h["handoff_id"]: brokers[1].events(h["handoff_id"]) for h in handoffs}
        for broker in brokers:
            assert broker.handoff(handoffs[0]["handoff_id"]) == brokers[0].handoff(handoffs[0]["handoff_id"])
    assert len(load.tasks) > REPLICAS
    staff.lost_and_repeated_nothing(load, handoffs, logs)
    if end == "restarted":
        # Whoever ends in order has finished, or given back, what it had.
        assert set(states) <= {"completed", "handed_off"}, states
