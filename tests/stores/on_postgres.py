"""Stores on PostgreSQL as brokers open them, for the tests of what is particular to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from a2a_handoff.core.events import Schedule, WorkKind
from a2a_handoff.ports import Recorded
from a2a_handoff.stores.postgres import PostgresStore
from tests.support.builders import NOW

DELIVER = Schedule(kind=WorkKind.DELIVER, due_at=NOW, attempt=1)
WAIT_S = 20.0


@asynccontextmanager
async def opened(url: str, count: int = 1) -> AsyncGenerator[list[PostgresStore]]:
    """Stores of as many brokers, opened at the same moment."""
    stores = [PostgresStore(url) for _ in range(count)]
    try:
        await asyncio.gather(*[store.open() for store in stores])
        yield stores
    finally:
        await asyncio.gather(*[store.close() for store in stores])


async def soon(condition: Callable[[], Awaitable[Any]]) -> Any:
    """What a condition gives once it gives something."""
    for _ in range(int(WAIT_S / 0.02)):
        if found := await condition():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {WAIT_S} s")


async def whole_log(store: PostgresStore) -> list[Recorded]:
    found: list[Recorded] = []
    while page := await store.read_log(after=len(found)):
        found += page
    return found
