"""Wake-ups between all brokers on one store, over NATS.

Duty: tell the other brokers what is published here, and wake here whom they tell of.
Rules: nothing waits for NATS, a commit least of all: what is to be told is noted, and a task of its own sends
what has gathered, each topic once. A hint may be lost on the way, or not sent at all while NATS is away: so
everybody who waits looks without one, every ``LOOK_S`` seconds at the latest, and every ``AWAY_LOOK_S`` while
there is no connection. Our own hints do not come back to us. What a hint says is believed of nobody: whoever
is woken reads the store.
Not here: the connection (``link``), waiting (``local``).
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error

from a2a_handoff import chores
from a2a_handoff.notify.link import NatsClient, NatsLink
from a2a_handoff.notify.local import LocalNotifier
from a2a_handoff.ports import Listener

#: Seconds after which a waiter looks without a hint: while hints come, and while none can.
LOOK_S = 15.0
AWAY_LOOK_S = 2.0
#: More topics than these are told as one hint for everything.
PENDING_MAX = 10_000
#: How long hints gather after some were sent, in seconds, and how many go together.
_GATHER_S = 0.002
_TOGETHER = 1_000
#: Wakes everybody.
_EVERYTHING = ""

_topics = msgspec.json.Decoder(list[str])


class NatsNotifier:
    """Wake-ups in this process and in all others with the same ``prefix``."""

    def __init__(
        self, link: NatsLink, *, prefix: str, look_s: float = LOOK_S, away_look_s: float = AWAY_LOOK_S
    ) -> None:
        self._link = link
        self._subject = wake_subject(prefix)
        self._looks_s = (away_look_s, look_s)
        self._local = LocalNotifier(look_s=away_look_s)
        self._pending: dict[str, None] = {}
        self._some = asyncio.Event()
        self._chores: list[asyncio.Task[None]] = []
        self._sent = self._heard = self._dropped = 0
        link.on_up = self._subscribe
        link.on_change = self._adapt

    def start(self) -> None:
        """Begin to connect and to send. Waits for nothing."""
        self._link.start()
        self._chores = [chores.begin(self._send, "wake-ups")]

    async def close(self) -> None:
        """Send nothing more, and close the connection."""
        await chores.end(self._chores)
        await self._link.close()

    @property
    def connected(self) -> bool:
        """Whether the others can be told and heard now."""
        return self._link.connected

    @property
    def hints(self) -> dict[str, int]:
        """What became of hints since the start. ``dropped`` could not be sent, ``overrun`` not be read."""
        return {
            "sent": self._sent,
            "heard": self._heard,
            "dropped": self._dropped,
            "overrun": self._link.overrun,
        }

    # --- ports.Notifier --------------------------------------------------------------------------

    def publish(self, topic: str) -> None:
        """Wake everybody who listens to ``topic``, here and in every other broker."""
        self._local.wake(topic)
        self.tell(topic)

    def tell(self, topic: str) -> None:
        """Wake everybody in the other brokers who listens to ``topic``."""
        if len(self._pending) < PENDING_MAX:
            self._pending[topic] = None
        else:
            self._pending = {_EVERYTHING: None}
        self._some.set()

    def wake(self, topic: str) -> None:
        """Wake everybody here who listens to ``topic``."""
        self._local.wake(topic)

    def wake_all(self) -> None:
        """Wake everybody here."""
        self._local.wake_all()

    def listen(self, *topics: str) -> AbstractContextManager[Listener]:
        """Listen to all of ``topics`` from when the context is entered until it ends."""
        return self._local.listen(*topics)

    # --- over NATS -------------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            topics, self._pending = list(self._pending), {}
            for start in range(0, len(topics), _TOGETHER):
                await self._tell(topics[start : start + _TOGETHER])
            await asyncio.sleep(_GATHER_S)

    async def _tell(self, topics: list[str]) -> None:
        client = self._link.client
        try:
            if client is None:
                raise Error  # nats-py would keep it for a connection that does not come back
            await client.publish(self._subject, msgspec.json.encode(topics))
        except (Error, OSError):
            self._dropped += len(topics)
        else:
            self._sent += len(topics)

    async def _subscribe(self, client: NatsClient) -> None:
        await client.subscribe(self._subject, cb=self._hear)  # pyright: ignore[reportUnknownMemberType] - of a future

    async def _hear(self, message: Msg) -> None:
        try:
            topics = _topics.decode(message.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # nobody's word is trusted, and this is not even one
        self._heard += len(topics)
        for topic in topics:
            if topic == _EVERYTHING:
                self._local.wake_all()
            else:
                self._local.wake(topic)

    def _adapt(self) -> None:
        """The connection came or went: until everybody has looked, hints may have been missed."""
        self._local.look_s = self._looks_s[self._link.connected]
        self._local.wake_all()


def wake_subject(prefix: str) -> str:
    """Where the brokers of one deployment tell each other. No wildcard over ``prefix`` covers it."""
    return f"{prefix}-wake"
