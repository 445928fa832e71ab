"""The log as a stream of NATS, for programs that follow it: ``ports.EventStream`` on JetStream.

Duty: find the stream or make it, see where it ends, append to it.
Rules: subjects are ``{prefix}.{workspace}.{event}``. What is safe in a subject stands there as it is, the
rest is percent-encoded, and what is long is cut and told apart by a hash. A message's id is its event's, so
that the stream drops what comes twice. Every message says after which sequence it comes, so that two
publishers cannot mix; those of a page are sent without waiting for one another. A stream that is there is
used as it is.
Sources: NATS ADR-4 (headers), ADR-22 and JetStream's model (publish acknowledgements, expected sequences);
CloudEvents 1.0, NATS protocol binding, structured mode.
Not here: the connection (``link``), what is told and from where on (``outbox``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast
from urllib.parse import quote

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RawStreamMsg, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from a2a_handoff.notify.link import NatsClient, NatsLink
from a2a_handoff.ports import Appended, Entry, StreamEnd, StreamUnavailable

#: Where in which log a message's event stands.
LOG_HEADER = "A2A-Handoff-Log"
POSITION_HEADER = "A2A-Handoff-Position"
#: Seconds for the stream to answer.
ANSWER_S = 5.0
#: For so long the stream remembers ids of messages, in seconds.
DUPLICATES_S = 120.0

#: Bytes of a message beside its body: headers, which a server counts as part of it.
_AROUND_BYTES = 4_096
_BODY_DEFAULT = 1 << 19
_TOKEN_CHARS = 96
#: JetStream's error code for a message that does not come after the sequence that it names.
_WRONG_SEQUENCE = 10_071
_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Which stream, and how it is made if it is not there.

    ``age_s`` and ``size`` (bytes) bound what it keeps, 0 for no bound; ``replicas`` is on how many servers.
    """

    name: str
    prefix: str
    age_s: float = 0.0
    size: int = 0
    replicas: int = 1

    @property
    def subjects(self) -> str:
        """All subjects of events."""
        return f"{self.prefix}.*.*"


class _Fault(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    """What JetStream answers to a message."""

    seq: int = 0
    duplicate: bool = False
    error: _Fault | None = None


_acks = msgspec.json.Decoder(_Ack)


class NatsStream:
    """The stream."""

    def __init__(self, link: NatsLink, plan: StreamPlan) -> None:
        self._link = link
        self._plan = plan
        self._message_max = 0
        self._listening: NatsClient | None = None
        self._inbox = ""
        self._waiting: dict[str, asyncio.Future[_Ack]] = {}

    @property
    def body_max(self) -> int:
        """The largest body that goes into a message."""
        client = self._link.client
        limit = _BODY_DEFAULT if client is None else client.max_payload - _AROUND_BYTES
        return min(limit, self._message_max - _AROUND_BYTES) if self._message_max > 0 else limit

    # --- reading ---------------------------------------------------------------------------------

    async def end(self) -> StreamEnd:
        """Where the stream ends; makes it if it is not there. Raises ``StreamUnavailable``."""
        stream = JetStreamContext(self._client(), timeout=ANSWER_S)
        try:
            info = await self._find(stream)
            self._check(info)
            sequence = info.state.last_seq
            try:
                last = await stream.get_last_msg(self._plan.name, self._plan.subjects)
            except NotFoundError:
                return StreamEnd(sequence=sequence)
        except (Error, OSError, TimeoutError) as error:
            raise StreamUnavailable(_words(error)) from error
        return _end_of(last, sequence)

    async def _find(self, stream: JetStreamContext) -> StreamInfo:
        plan = self._plan
        try:
            return await stream.stream_info(plan.name)
        except NotFoundError:
            return await stream.add_stream(  # pyright: ignore[reportUnknownMemberType] - of more options
                StreamConfig(
                    name=plan.name,
                    description="What happens to handoffs, as CloudEvents",
                    subjects=[plan.subjects],
                    storage=StorageType.FILE,
                    retention=RetentionPolicy.LIMITS,
                    discard=DiscardPolicy.OLD,
                    max_age=plan.age_s or None,
                    max_bytes=plan.size or -1,
                    num_replicas=plan.replicas,
                    duplicate_window=min(DUPLICATES_S, plan.age_s or DUPLICATES_S),
                    allow_direct=True,
                )
            )

    def _check(self, info: StreamInfo) -> None:
        """A stream that others write to as well has no order that could be kept."""
        plan = self._plan
        self._message_max = info.config.max_msg_size or 0
        if set(info.config.subjects or ()) - {plan.subjects, f"{plan.prefix}.>"} or not info.config.subjects:
            raise StreamUnavailable(f"the stream {plan.name} must have the one subject {plan.subjects}")

    # --- writing ---------------------------------------------------------------------------------

    async def append(self, entries: Sequence[Entry], *, after: int) -> Appended:
        """Send all of ``entries``, then see how many were taken. Raises ``StreamUnavailable``."""
        client = self._client()
        self._waiting = {}
        try:
            async with asyncio.timeout(ANSWER_S + len(entries) / 100):
                await self._listen(client)
                for number, entry in enumerate(entries):
                    await self._send(client, entry, after + number)
                acks = await asyncio.gather(*self._waiting.values())
        except (Error, OSError, TimeoutError) as error:
            raise StreamUnavailable(_words(error)) from error
        finally:
            for future in self._waiting.values():
                future.cancel()
        taken = next((number for number, ack in enumerate(acks) if ack.error is not None), len(acks))
        fault = None if taken == len(acks) else acks[taken].error
        if fault is not None and fault.err_code != _WRONG_SEQUENCE and not taken:
            raise StreamUnavailable(fault.description or "the stream takes nothing")
        return Appended(taken=taken, sequence=after + sum(not ack.duplicate for ack in acks[:taken]))

    async def _send(self, client: NatsClient, entry: Entry, after: int) -> None:
        reply = f"{self._inbox}.{after}"
        self._waiting[reply] = asyncio.get_running_loop().create_future()
        headers = {
            "Nats-Msg-Id": entry.id,
            "Nats-Expected-Stream": self._plan.name,
            "Nats-Expected-Last-Sequence": str(after),
            "Content-Type": _CONTENT_TYPE,
            LOG_HEADER: entry.log,
            POSITION_HEADER: str(entry.position),
            "traceparent": entry.traceparent,
        }
        if entry.tracestate:
            headers["tracestate"] = entry.tracestate
        await client.publish(self.subject(entry), entry.body, reply, headers)

    def subject(self, entry: Entry) -> str:
        """Where an entry is told."""
        return f"{self._plan.prefix}.{'/'.join(map(token, entry.place))}.{token(entry.name)}"

    async def _listen(self, client: NatsClient) -> None:
        """Hear acknowledgements on this connection."""
        if self._listening is not client:
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._hear)  # pyright: ignore[reportUnknownMemberType] - of a future
            self._listening = client

    async def _hear(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject)
        if waiting is None or waiting.done():
            return
        try:
            waiting.set_result(_acks.decode(message.data))
        except msgspec.DecodeError:
            waiting.set_exception(Error("nobody takes it: is JetStream on, and the stream there?"))

    def _client(self) -> NatsClient:
        client = self._link.client
        if client is None:
            raise StreamUnavailable("NATS is away")
        return client


def token(text: str) -> str:
    """A name as one token of a subject: distinct names are distinct tokens, and none is a wildcard.

    ``~`` and ``/`` are percent-encoded in names; so a hash after the one, or a name after the other, is no
    part of a name.
    """
    safe = "".join(char if char not in ".~" else f"%{ord(char):02X}" for char in quote(text, safe=""))
    if len(safe) <= _TOKEN_CHARS:
        return safe or "%"
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{safe[:_TOKEN_CHARS]}~{digest}"


def _end_of(last: RawStreamMsg, sequence: int) -> StreamEnd:
    headers = cast("dict[str, Any]", last.headers or {})  # pyright: ignore[reportUnknownMemberType]
    position = str(headers.get(POSITION_HEADER, ""))
    at = last.seq or 0
    return StreamEnd(
        sequence=max(sequence, at),
        log=str(headers.get(LOG_HEADER, "")),
        position=int(position) if position.isdecimal() else 0,
        whole=at >= sequence,
    )


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the stream does not answer"
    return str(error).removeprefix("nats: ") or type(error).__name__
