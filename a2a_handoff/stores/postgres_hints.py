"""Wake-ups between brokers over their database: LISTEN and NOTIFY.

Duty: ``ports.Hints`` on one connection of its own, for brokers that have nothing else in common.
Rules: topics gather while one statement is under way, and for ``GATHER_S`` after it, so many cost little and
a single one waits for nothing. Nothing is sent while nobody else listens, which is looked for every
``LOOK_S`` seconds. What is lost while the connection is gone stays so; who waits looks now and then.
Sources: PostgreSQL manual, NOTIFY. Not here: what is truth (``postgres``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from a2a_handoff import chores
from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.stores.postgres_server import Server, Session

GATHER_S = 0.003
LOOK_S = 2.0
_AGAIN_S = 1.0
_NAME = "a2a-handoff hints"
_CHANNEL = "a2a_handoff"
_LISTENING = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid()
"""
_NOTIFY = "SELECT pg_notify($1, topic) FROM unnest($2::text[]) AS t (topic)"

_LOG = logging.getLogger(__name__)


class PostgresHints:
    """Hints over the database that ``url`` names."""

    def __init__(self, url: str) -> None:
        self._server = Server(url)
        self._topics: dict[str, None] = {}
        self._something = asyncio.Event()
        self._hear: Callable[[str], None] = lambda _topic: None
        self._chores: list[asyncio.Task[None]] = []

    def start(self, hear: Callable[[str], None]) -> None:
        """Begin to connect. What is sent before there is a connection waits for it."""
        self._hear = hear
        self._chores = [chores.begin(self._carry, "hints")]

    def send(self, topic: str) -> None:
        """Send a topic to the other brokers."""
        self._topics[topic] = None
        self._something.set()

    async def close(self) -> None:
        """Send what waits, for a moment at most, and end."""
        if self._topics and self._chores:
            await asyncio.wait(self._chores, timeout=10 * GATHER_S)
        await chores.end(self._chores)

    async def _carry(self) -> None:
        try:
            session = await self._server.connect(name=_NAME)
        except StoreUnavailable:
            # The store says so itself.
            await asyncio.sleep(_AGAIN_S)
            return
        try:
            await session.listen(_CHANNEL, self._hear)
            session.on_loss(self._something.set)
            await self._send_all(session)
        except Exception as error:
            if not self._server.is_ours(error):
                raise
            _LOG.info("wake-ups are late: %s", self._server.fault(error))
        finally:
            session.drop()

    async def _send_all(self, session: Session) -> None:
        now = asyncio.get_running_loop().time
        others, look_at = 0, now()
        while not session.closed:
            await self._something.wait()
            self._something.clear()
            if not self._topics or session.closed:
                continue
            topics, self._topics = list(self._topics), {}
            if now() >= look_at:
                ((others,),) = await session.rows(_LISTENING, _NAME)
                look_at = now() + LOOK_S
            if others:
                await session.rows(_NOTIFY, _CHANNEL, topics)
                await asyncio.sleep(GATHER_S)
