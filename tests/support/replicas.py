"""Several brokers on one PostgreSQL, each in a thread of the test process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.postgres import postgres_server
from tests.support.running import Broker, broker


@contextmanager
def replicas(folder: Path, count: int = 2, **settings: Any) -> Generator[list[Broker]]:
    """So many brokers, which have nothing in common but their database."""
    server = postgres_server()
    database = server.migrated()
    with ExitStack() as stack:
        stack.callback(server.drop, database)
        yield [
            stack.enter_context(broker(_made(folder / str(n)), store=server.url(database), **settings))
            for n in range(count)
        ]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
