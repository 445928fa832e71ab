"""The PostgreSQL server of the brokers: how a session with it begins, and what its faults mean.

Duty: connect, check that the server can hold a store, put faults in words.
Rules: messages are for the operator; they name server and database, never a password or what the server
said about a row, and say what to do. asyncpg is seen here alone.
Not here: what is read and written, and the schema (``postgres_schema``).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from a2a_handoff.config.settings import hide_password
from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.stores.usage import Readers

try:
    import asyncpg as driver  # pyright: ignore[reportMissingTypeStubs] - it has none
except ImportError:
    raise StoreUnavailable(
        "A store on PostgreSQL needs the extra postgres: pip install 'a2a-handoff[postgres]'."
    ) from None

asyncpg: Any = driver

#: The first PostgreSQL that still gets fixes and has all that is used here.
POSTGRES_MIN = 14
#: Seconds to wait for a connection.
CONNECT_S = 5.0
#: Seconds to wait for the answer to one statement.
ANSWER_S = 30.0
#: Seconds after which the server gives up on a statement, on a lock, and on a writer that says nothing in the
#: middle of a transaction: it may be frozen, or its machine gone, and the other brokers wait for it.
SETTINGS = {
    "application_name": "a2a-handoff",
    "statement_timeout": "25s",
    "lock_timeout": "15s",
    "idle_in_transaction_session_timeout": "10s",
    # Every query here is right with its index and wrong without. A plan that was made while a table was small
    # would read all of it for as long as it takes until somebody counts it anew.
    "enable_seqscan": "off",
    "jit": "off",
}

#: The first class of SQLSTATE that fits (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_REMEDIES = {
    "28": "refuses the user or its password: check both in the setting store",
    "3D000": "is not there: create the database, or correct its name in the setting store",
    "42501": "gives its user too few rights: make the user the owner of the database",
    "53100": "has no room left on its disk: free some; the broker goes on by itself",
    "53300": "takes no more connections: raise max_connections, or stop who holds them",
    "53": "has too few resources; the broker goes on by itself",
    "57P": "is starting or stopping; the broker goes on by itself",
    "57014": "did not answer in time; the broker goes on by itself",
    "55P03": "is held by a transaction of another program: end that transaction",
    "25006": "may only be read: name the primary server",
    "25P03": "lost patience with the broker, which stood still; it goes on by itself",
    "58": "has trouble with its disk: see the server's log",
    "XX": "is damaged: see the server's log, restore a backup",
    "08": "cannot be reached: check that the server runs and takes connections; the broker goes on by itself",
}
#: What asyncpg raises about a connection that is gone, or soon: one whose server has said that it ends,
#: and which is not closed yet, refuses statements with InternalClientError.
_LOST: tuple[type[Exception], ...] = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_FAULTS: tuple[type[Exception], ...] = (asyncpg.PostgresError, *_LOST)
_VALUES_AT_FAULT = ("22", "23")
# PostgreSQL has no NUL in texts. What stands for it is no character of any text that means something.
_ESCAPE = "\ufdd0"
_NUL = f"{_ESCAPE}0"
_ITSELF = f"{_ESCAPE}1"

_log = logging.getLogger(__name__)


class Session:
    """One connection. Texts go in and come back with every code point that they have."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._connection.is_closed()

    def on_loss(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` when the connection goes."""

        def lost(_: object) -> None:
            tell()

        self._connection.add_termination_listener(lost)

    async def listen(self, channel: str, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with what other sessions notify on a channel."""
        own: int = self._connection.get_server_pid()

        def heard(_: object, sender: int, __: str, payload: str) -> None:
            if sender != own:
                tell(payload)

        await self._connection.add_listener(channel, heard)

    async def run(self, script: str, *, timeout_s: float = ANSWER_S) -> None:
        """Run statements without values, whose rows nobody needs."""
        await self._connection.execute(script, timeout=timeout_s)

    async def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement and give its rows."""
        found = await self._connection.fetch(statement, *map(_inward, values))
        return [tuple(map(_outward, row)) for row in found]

    async def count(self, statement: str, *values: object) -> int:
        """Run one statement and say how many rows it changed."""
        status: str = await self._connection.execute(statement, *map(_inward, values))
        return int(status.rpartition(" ")[2])

    async def close(self) -> None:
        """Say goodbye."""
        try:
            await self._connection.close(timeout=CONNECT_S)
        except _FAULTS:
            self.drop()

    def drop(self) -> None:
        """Close without a word: whatever was under way is void, or in doubt."""
        self._connection.terminate()


class Server:
    """The server and the database that ``url`` names."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: Any = None
        self.reads = Readers()
        """Who reads, and who waits for a connection to do so."""
        self.name = (
            "postgresql://" + hide_password(url).partition("?")[0].rpartition("@")[2].rpartition("://")[2]
        )

    async def connect(self, *, name: str = "") -> Session:
        """A session that writes, by which others see that it is there. Raises ``StoreUnavailable``."""
        try:
            connection = await asyncpg.connect(
                self._url,
                timeout=CONNECT_S,
                command_timeout=ANSWER_S,
                server_settings=SETTINGS
                | {"plan_cache_mode": "force_generic_plan"}
                | ({"application_name": name} if name else {}),
            )
        except Exception as error:  # noqa: BLE001 - wrong URLs and dying servers have many ways to fail
            raise self.fault(error) from None
        session = Session(connection)
        try:
            await self._check(session)
        except BaseException as error:
            session.drop()
            if isinstance(error, Exception):
                raise self.fault(error) from error
            raise
        return session

    async def _check(self, session: Session) -> None:
        ((version, encoding, standby, durable, synced),) = await session.rows(
            "SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding'),"
            " pg_is_in_recovery(), current_setting('synchronous_commit') <> 'off',"
            " current_setting('fsync')::boolean"
        )
        if version < POSTGRES_MIN:
            raise StoreUnavailable(
                f"The store {self.name} is PostgreSQL {version}, which is too old: "
                f"upgrade the server to {POSTGRES_MIN} or newer."
            )
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"The store {self.name} keeps texts as {encoding}: create the database with ENCODING 'UTF8'."
            )
        if standby:
            raise StoreUnavailable(f"The store {self.name} may only be read: name the primary server.")
        if not durable:
            # A caller who was answered relies on it.
            await session.run("SET synchronous_commit = on")
        if not synced:
            _log.warning(
                "The store %s runs with fsync = off: what was confirmed may be lost when the power fails.",
                self.name,
            )

    async def open_pool(self, size: int) -> None:
        """Be ready to read, over at most ``size`` connections. Raises ``StoreUnavailable``."""
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=0,
                max_size=size,
                reset=_as_it_is,
                timeout=CONNECT_S,
                command_timeout=ANSWER_S,
                server_settings=SETTINGS,
            )
        except _FAULTS as error:
            raise self.fault(error) from None

    @property
    def opened(self) -> int:
        """How many connections that read are there."""
        pool = self._pool
        return 0 if pool is None else pool.get_size()

    async def close_pool(self) -> None:
        """Read no more. Whoever reads just now gets its answer."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Session]:
        """A session to read with, for the time of a query. Faults of that are ``StoreUnavailable`` too."""
        if self._pool is None:
            raise StoreUnavailable(f"The store {self.name} is not open.")
        try:
            async with self._connection(self._pool) as connection:
                yield Session(connection)
        except _FAULTS as error:
            raise self.fault(error) from error

    @asynccontextmanager
    async def _connection(self, pool: Any) -> AsyncGenerator[Any]:
        since = self.reads.came()
        try:
            connection = await pool.acquire(timeout=ANSWER_S)
        except BaseException:
            self.reads.left(since)
            raise
        self.reads.began(since)
        try:
            yield connection
        finally:
            self.reads.done()
            await pool.release(connection)

    @staticmethod
    def is_ours(error: BaseException) -> bool:
        """Whether the server, or the way to it, is at fault, or the values that it was given."""
        return isinstance(error, _FAULTS)

    @staticmethod
    def values_at_fault(error: BaseException) -> bool:
        """Whether the same statement with other values would have been done."""
        return str(getattr(error, "sqlstate", None) or "").startswith(_VALUES_AT_FAULT)

    def fault(self, error: BaseException) -> StoreUnavailable:
        """Say what happened and what to do about it."""
        if isinstance(error, StoreUnavailable):
            return error
        state = str(getattr(error, "sqlstate", None) or "")
        if isinstance(error, TimeoutError):
            state = "57014"
        elif not state and isinstance(error, _LOST):
            state = "08000"
        fits = [prefix for prefix in _REMEDIES if state.startswith(prefix)]
        remedy = _REMEDIES[max(fits, key=len)] if fits else "failed"
        return StoreUnavailable(f"The store {self.name} {remedy} ({type(error).__name__}).")


async def _as_it_is(connection: Any) -> None:
    """Nothing that a reader does leaves a trace in its session."""


def _inward(value: object) -> object:
    if isinstance(value, str):
        return _escaped(value)
    if isinstance(value, list):
        return _all_escaped(cast("Sequence[object]", value))
    return value


def _all_escaped(values: Iterable[object]) -> list[object]:
    return [_escaped(one) if isinstance(one, str) else one for one in values]


def _escaped(text: str) -> str:
    if "\0" in text or _ESCAPE in text:
        return text.replace(_ESCAPE, _ITSELF).replace("\0", _NUL)
    return text


def _outward(value: Any) -> Any:
    if isinstance(value, str) and _ESCAPE in value:
        return value.replace(_NUL, "\0").replace(_ITSELF, _ESCAPE)
    return value
