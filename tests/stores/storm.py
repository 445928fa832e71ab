"""A process that commits until it is killed, and says of each commit that it was acknowledged.

Started by ``test_crash``: ``python -m tests.stores.storm FILE``. Each commit changes two handoffs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from a2a_handoff.core.events import Drop, Schedule, WorkKind
from a2a_handoff.stores import SqliteStore
from tests.support.builders import (
    NOW,
    acknowledged_event,
    commit_of,
    first_write,
    next_write,
    offered_event,
    output_event,
)

TASKS = 16
OUTPUTS = 5


async def life(store: SqliteStore, name: str) -> None:
    """Two handoffs that always go the same way, from the request to the last output."""
    deadline = Schedule(kind=WorkKind.DEADLINE, due_at=NOW + 3600)
    writes = [first_write(f"{name}-{twin}", offered_event(), actions=(deadline,)) for twin in "ab"]
    steps = [acknowledged_event(), *[output_event(b'"%d"' % n * 500) for n in range(OUTPUTS)]]
    for step in [None, *steps]:
        if step is not None:
            writes = [next_write(write.handoff, step, actions=(Drop(), deadline)) for write in writes]
        await store.commit(commit_of(*writes))
        # One write call for a line: it is out whole, or not at all.
        os.write(1, f"{name} {writes[0].handoff.version}\n".encode())


async def main(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()

    async def forever(task: int) -> None:
        number = 0
        while True:
            await life(store, f"{os.getpid()}-{task}-{number}")
            number += 1

    await asyncio.gather(*[forever(task) for task in range(TASKS)])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
