"""Several brokers on one PostgreSQL: each in a thread of the test process, or in a process of its own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.postgres import postgres_server
from tests.support.running import Broker, broker
from tests.support.served import Served, served

#: Of processes: who is gone is missed soon.
SETTINGS: dict[str, Any] = {"reconcile_every": 0.5, "work_lease": 2, "retry_delay": 0.2}


@contextmanager
def processes(folder: Path, count: int, **more: Any) -> Generator[list[Served]]:
    """So many broker processes on one database."""
    server = postgres_server()
    database = server.migrated()
    settings = SETTINGS | more
    env = settings.pop("env", {})
    with ExitStack() as stack:
        stack.callback(server.drop, database)
        brokers: list[Served] = []
        for number in range(count):
            (place := folder / str(number)).mkdir()
            brokers.append(
                stack.enter_context(
                    served(place, store=server.url(database), forked=True, env=env, **settings)
                )
            )
        yield brokers
        for broker in brokers:
            assert "Traceback" not in broker.words, broker.words


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
