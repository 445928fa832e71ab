"""A process is killed in the middle of a storm of commits; what it leaves behind is whole."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import cast

import pytest

from a2a_handoff.core.events import WorkKind
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.ports import Recorded
from a2a_handoff.stores import SqliteStore
from tests.support.builders import NOW

ROOT = Path(__file__).parents[2]


def storm_until_killed(path: Path, acknowledged: int) -> dict[str, int]:
    """Run a storm, kill it after so many acknowledgements; the highest one of each name."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.stores.storm", str(path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(acknowledged)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines()
    assert process.returncode == -signal.SIGKILL
    versions: dict[str, int] = {}
    for line in lines:
        name, version = line.split()
        versions[name.decode()] = max(versions.get(name.decode(), 0), int(version))
    return versions


@pytest.mark.parametrize("acknowledged", [1, 40, 700])
def test_after_a_kill_every_commit_is_there_or_none_of_it(tmp_path: Path, acknowledged: int) -> None:
    path = tmp_path / "store.db"
    acks: dict[str, int] = {}
    for _ in range(2):
        acks |= storm_until_killed(path, acknowledged)

    async def look() -> None:
        store = SqliteStore(path)
        await store.open()
        logs: dict[str, list[Recorded]] = {}
        after = 0
        while log := await store.read_log(after=after):
            assert [one.position for one in log] == list(range(after + 1, after + 1 + len(log)))
            after += len(log)
            for one in log:
                logs.setdefault(one.handoff_id, []).append(one)
        for handoff_id, events in logs.items():
            assert [one.seq for one in events] == list(range(1, len(events) + 1))
            handoff = await store.load_handoff(handoff_id)
            assert handoff == cast("Handoff", reduce(evolve, [one.event for one in events], None))
            # Both twins of a commit are there, or none.
            twin = handoff_id[:-1] + ("b" if handoff_id.endswith("a") else "a")
            assert len(logs[twin]) == len(events)
        for name, version in acks.items():
            assert len(logs[f"{name}-a"]) >= version
        works = await store.claim_work(now=NOW + 3600, limit=100_000)
        assert {work.key.handoff_id for work in works} == set(logs)
        assert {work.key.kind for work in works} == {WorkKind.DEADLINE}
        await store.close()

    asyncio.run(look())
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
