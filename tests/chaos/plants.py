"""Faults for the brokers of a campaign, to see that its judge finds them: ``python -m tests.chaos --plant NAME``.

Each is a function that runs in the process of a broker before its command does.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from a2a_handoff.client.agents import A2AClient
from a2a_handoff.core.agents import Agent
from a2a_handoff.errands import Errands
from a2a_handoff.notify.jetstream import NatsClient
from a2a_handoff.ports import Commit, Committed, Delivery, Update
from a2a_handoff.stores.postgres import PostgresStore

_FORGET = """
WITH a AS (DELETE FROM work WHERE handoff_id = $1), b AS (DELETE FROM events WHERE handoff_id = $1)
DELETE FROM handoffs WHERE id = $1
"""
_FENCES = ("Nats-Msg-Id", "Nats-Expected-Last-Sequence")


def _put(owner: type[object], name: str, planted: object) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, planted)


def forgets() -> None:
    """One task in four is gone as soon as its sender was told that it is safe (PostgreSQL)."""
    commit = PostgresStore.commit

    def forgetful(store: Any, written: Commit) -> asyncio.Future[Committed]:
        future = commit(store, written)
        key = written.request_key
        if key is not None and zlib.crc32(key.key.encode()) % 4 == 0:
            forget = store._write(lambda session: session.count(_FORGET, key.handoff_id))
            future.add_done_callback(lambda _: asyncio.ensure_future(forget))
        return future

    _put(PostgresStore, "commit", forgetful)


def sends_twice() -> None:
    """Every task is sent again when its agent has answered."""
    send = A2AClient.send

    async def insistent(
        client: A2AClient, agent: Agent, delivery: Delivery, *, first_wait_s: float | None
    ) -> AsyncGenerator[Update]:
        found: list[Update] = []
        for _ in range(2):
            async with aclosing(send(client, agent, delivery, first_wait_s=first_wait_s)) as updates:
                found = [update async for update in updates]
        for update in found:
            yield update

    _put(A2AClient, "send", insistent)


def has_no_doubts() -> None:
    """What a dead broker may have sent counts as not sent."""
    _put(Errands, "_has_begun", lambda _errands, _work: False)  # pyright: ignore[reportUnknownLambdaType]


def tells_without_order() -> None:
    """An event is appended to the stream whatever stands before it (NATS)."""
    publish = NatsClient.publish

    async def careless(
        client: NatsClient, subject: str, payload: bytes = b"", reply: str = "", headers: Any = None
    ) -> None:
        kept = {name: value for name, value in (headers or {}).items() if name not in _FENCES}
        await publish(client, subject, payload, reply, kept or None)

    _put(NatsClient, "publish", careless)


PLANTS = {plant.__name__: plant for plant in (forgets, sends_twice, has_no_doubts, tells_without_order)}
