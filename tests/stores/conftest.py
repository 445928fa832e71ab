"""Every store behind one face: ``disk`` keeps what is durable, and opens stores on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from a2a_handoff.ports import Store
from a2a_handoff.stores import SqliteStore
from a2a_handoff.stores.postgres import PostgresStore
from tests.support.memory_store import MemoryData, MemoryStore
from tests.support.postgres import Postgres, postgres_server

LEASE_S = 30.0


class Disk:
    """What outlives a store."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self.store = make

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Store]:
        store = self.store()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def run(self, *bodies: Callable[[Store], Awaitable[None]]) -> None:
        """Run each body on a store of its own, one after the other: a restart lies between."""

        async def main() -> None:
            for body in bodies:
                async with self.opened() as store:
                    await body(store)

        asyncio.run(main())


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Disk]:
    if request.param == "memory":
        data = MemoryData()
        yield Disk(lambda: MemoryStore(data, lease_s=LEASE_S))
    elif request.param == "postgres":
        server = postgres_server()
        name = server.migrated()
        yield Disk(lambda: PostgresStore(server.url(name), lease_s=LEASE_S))
        server.drop(name)
    else:
        yield Disk(lambda: SqliteStore(tmp_path / "store.db", lease_s=LEASE_S))


@pytest.fixture
def server() -> Postgres:
    return postgres_server()


@pytest.fixture
def database(server: Postgres) -> Generator[str]:
    name = server.migrated()
    yield name
    server.drop(name)


@pytest.fixture
def empty(server: Postgres) -> Generator[str]:
    """A database without tables."""
    name = server.fresh()
    yield name
    server.drop(name)
