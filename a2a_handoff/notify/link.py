"""One connection to NATS, kept up for ever.

Duty: connect, see that the server still answers, and connect anew, after waits that grow up to
``AGAIN_MAX_S``.
Rules: nobody waits for NATS. Whatever becomes of the connection, it is given up and made anew from nothing;
that it is away is told once, and once that it is back. Each attempt goes to the next of the servers, and
reads the credentials again. Where TLS is asked for, nothing is sent without it.
Source: the NATS client protocol.
Not here: what is said over it (``nats``).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast
from urllib.parse import SplitResult, unquote, urlsplit

from nats.aio.client import Client
from nats.errors import Error, SlowConsumerError

from a2a_handoff import chores

_LOG = logging.getLogger("a2a_handoff.nats")

#: How often the server is asked whether it is there, and how long it may take to say so, in seconds.
ASK_EVERY_S = 2.0
ANSWER_S = 3.0
#: Seconds for one attempt to connect.
CONNECT_S = 5.0
#: The wait before the next attempt: the first, and the longest.
AGAIN_S = 0.1
AGAIN_MAX_S = 5.0
_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where NATS is and how to get in.

    ``servers`` are URLs, with a user and a password or a token in them where that is asked for; ``creds`` is
    a file of a user's JWT and seed. ``ca`` are certificates to trust in place of the machine's, ``cert`` and
    ``key`` our own.
    """

    servers: tuple[str, ...]
    creds: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def tls(self) -> ssl.SSLContext:
        """How TLS is spoken. Raises ``OSError`` if a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


class NatsClient(Client):
    """nats-py's client, for one connection that is never taken up again by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.wants_tls = False
        self.closed = asyncio.Event()

    def _connect_command(self) -> bytes:
        # nats-py takes ``tls://`` for a wish: from a server that does not offer TLS it hides nothing.
        if self.wants_tls and not self._server_info.get("tls_required"):
            raise Error("the server does not speak TLS")
        return super()._connect_command()

    async def _process_pong(self) -> None:
        # nats-py stops reading when it is answered for which nobody waits any more.
        waiting = cast("list[asyncio.Future[bool]]", self._pongs)  # pyright: ignore[reportUnknownMemberType]
        if waiting and waiting[0].done():
            waiting[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def note_closed(self) -> None:
        """Called by nats-py."""
        self.closed.set()

    async def abandon(self) -> None:
        """Close the connection, also to a server that reads nothing."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.close(), _CLOSE_S)
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


class NatsLink:
    """The connection. ``client`` is ``None`` while there is none."""

    def __init__(
        self, access: Access, *, name: str, ask_every_s: float = ASK_EVERY_S, answer_s: float = ANSWER_S
    ) -> None:
        self._access = access
        self._name = name
        self._ask_every_s = ask_every_s
        self._answer_s = answer_s
        self._chores: list[asyncio.Task[None]] = []
        self._told_away = False
        self.client: NatsClient | None = None
        self.overrun = 0
        """Messages that came too fast to be read, and were dropped."""
        self.on_up: Callable[[NatsClient], Awaitable[None]] = _nothing
        """Called when there is a connection, before it is shown as ``client``."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when ``client`` has changed."""

    @property
    def connected(self) -> bool:
        """Whether the server answered a moment ago."""
        return self.client is not None

    def start(self) -> None:
        """Begin to connect. Waits for nothing."""
        self._chores = [chores.begin(self._keep, "nats")]

    async def close(self) -> None:
        """Close the connection, and make no other."""
        await chores.end(self._chores)

    async def _keep(self) -> None:
        servers = itertools.cycle(self._access.servers)
        waits = 0
        while True:
            client = NatsClient()
            try:
                await self._connect(client, next(servers))
                waits = 0
                self._say_back()
                self._show(client)
                await self._watch(client)
                self._say_away("the connection was closed")
            except Exception as error:  # noqa: BLE001 - whatever it is: hints are not worth a fault
                self._say_away(_why(error, client))
            finally:
                self._show(None)
                await client.abandon()
            wait_s = min(AGAIN_S * 2**waits, AGAIN_MAX_S)
            waits = min(waits + 1, 10)
            await asyncio.sleep(wait_s * (1 + random.random()) / 2)

    async def _connect(self, client: NatsClient, server: str) -> None:
        access = self._access
        place = urlsplit(server)
        client.wants_tls = place.scheme == "tls"
        tls = access.tls() if client.wants_tls or access.ca or access.cert else None
        async with asyncio.timeout(CONNECT_S):
            await client.connect(
                [f"{place.scheme}://{place.netloc.rpartition('@')[2]}"],
                name=self._name,
                error_cb=self._note,
                closed_cb=client.note_closed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=int(CONNECT_S),
                flush_timeout=self._answer_s,
                no_echo=True,
                tls=tls,
                **_word(place),
                user_credentials=None if access.creds is None else str(access.creds),
            )
            await self.on_up(client)
            await client.flush()

    async def _watch(self, client: NatsClient) -> None:
        """Come back when the server is gone, or says nothing."""
        while not client.is_closed:
            async with asyncio.timeout(self._answer_s):
                await client.flush()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client.closed.wait(), self._ask_every_s)

    async def _note(self, error: Exception) -> None:
        """What nats-py would log."""
        if isinstance(error, SlowConsumerError):
            self.overrun += 1

    def _show(self, client: NatsClient | None) -> None:
        if self.client is not client:
            self.client = client
            self.on_change()

    def _say_away(self, why: str) -> None:
        if not self._told_away:
            _LOG.warning("NATS is away: %s. What waits for other brokers looks by itself meanwhile.", why)
        self._told_away = True

    def _say_back(self) -> None:
        if self._told_away:
            _LOG.info("NATS is back")
        self._told_away = False


async def _nothing(_client: NatsClient) -> None:
    pass


class _Word(TypedDict, total=False):
    user: str
    password: str
    token: str


def _word(place: SplitResult) -> _Word:
    """The user and the password, or the token, of an address; nats-py would take them as they are written."""
    if place.username is None:
        return {}
    if place.password is None:
        return {"token": unquote(place.username)}
    return {"user": unquote(place.username), "password": unquote(place.password)}


def _why(error: Exception, client: NatsClient) -> str:
    """The cause in words. nats-py's own last error says more than what it raises in the end."""
    cause = client.last_error or error
    if isinstance(cause, TimeoutError):
        return "it does not answer"
    return str(cause).removeprefix("nats: ") or type(cause).__name__
