"""One HTTP call: vetted, pinned, bounded, and always closed.

Duty: the only user of pyreqwest. Sends a request to the address that the URL policy vetted, reads the
answer within time and size limits, and says of every failure whether the request can have arrived.
Rules: *not sent* is only what the library calls ``client error (Connect)``: a server that reads the
body and closes raises a connect error too. Redirects are never followed, proxies never used, bodies
never decompressed (a small body could become a huge one). Pinning to an address belongs to a pyreqwest
client, so there is one client for each (origin, address). ``detail`` never carries text of the other
side.
Not here: what is in a request or an answer (``calls``, ``wire.answers``).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    BodyDecodeError,
    BuilderError,
    ConnectTimeoutError,
    DecodeError,
    DetailedPyreqwestError,
    PyreqwestError,
)
from pyreqwest.http import Url
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response

from a2a_handoff import __version__
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Sent, UrlPolicy

_T = TypeVar("_T")

_USER_AGENT: Final = f"a2a-handoff/{__version__}"

#: Idle connections are closed sooner than common servers do it (uvicorn and Node after 5 s): a
#: request on a connection that is just being closed would be *perhaps sent*.
_KEEP_IDLE = timedelta(seconds=4)

#: A peer that is gone is noticed within about a minute, however long its answer may take.
_KEEPALIVE = timedelta(seconds=30)
_KEEPALIVE_INTERVAL = timedelta(seconds=10)
_KEEPALIVE_RETRIES = 3

_LOST: Final = "connection lost"

#: Most clients kept; one costs about 160 KB. Those in use do not count.
_LANES_MAX = 256


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    ``stream``: the answer may be a stream, so nothing of it is held back. ``repeatable``: sending it
    twice does no harm, so a kept connection that turns out to be closed is no failure.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    stream: bool = False
    repeatable: bool = False


@dataclass(slots=True)
class _Lane:
    """A pyreqwest client pinned to one address of one origin, and how many use it now."""

    client: Client
    users: int = 0


class Http:
    """Makes calls, with connections kept for the next one.

    ``connect_s`` bounds connecting, TLS included, in seconds. ``extra_ca_pem`` is trusted beside the
    public authorities; raises ``ValueError`` if a certificate in it is broken.
    """

    def __init__(self, policy: UrlPolicy, *, connect_s: float, extra_ca_pem: bytes = b"") -> None:
        self._policy = policy
        self._connect = timedelta(seconds=connect_s)
        self._extra_ca_pem = extra_ca_pem
        self._lanes: OrderedDict[tuple[str, str], _Lane] = OrderedDict()
        self._open: set[Exchange] = set()
        self._closed = False
        if extra_ca_pem:
            _trusting(ClientBuilder(), extra_ca_pem).build()  # fails now, and not at the first call

    def exchange(self, call: Call, *, wait_s: float | None, whole_s: float | None = None) -> Exchange:
        """A call, to be entered. ``wait_s`` bounds the wait for the head of the answer.

        ``whole_s`` is longer than the call may take in all. The library goes on with a request that was
        given up before its answer began, and keeps its connection, until this time at most.
        """
        return Exchange(self, call, wait_s, whole_s)

    async def close(self) -> None:
        """Break off what is under way and close every connection."""
        self._closed = True
        for exchange in tuple(self._open):
            exchange.abort()
        lanes = list(self._lanes.values())
        self._lanes.clear()
        for lane in lanes:
            await lane.client.close()

    async def enter(self, exchange: Exchange, url: str) -> tuple[_Lane, Url]:
        """Vet the URL and take a lane to it. Raises ``AgentError``: nothing was sent."""
        try:
            target = Url.parse(url)
            # What is vetted is what this parser made of it: a second parser could be fooled.
            address = await self._policy.vet(str(target))
        except (HandoffError, ValueError):
            raise AgentError(
                Outcome.TARGET_UNAVAILABLE, "address unknown or not allowed", sent=Sent.NO, again=True
            ) from None
        if self._closed:
            raise _closing(Sent.NO)
        key = (target.origin_ascii, address)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(self._build(target, address))
        self._lanes.move_to_end(key)
        lane.users += 1
        self._open.add(exchange)
        self._thin_out()
        return lane, target

    def leave(self, exchange: Exchange, lane: _Lane) -> None:
        """Give a lane back."""
        lane.users -= 1
        self._open.discard(exchange)

    def _build(self, target: Url, address: str) -> Client:
        builder = (
            ClientBuilder()
            .no_proxy()
            .follow_redirects(enable=False)
            .referer(enable=False)
            .gzip(enable=False)
            .brotli(enable=False)
            .zstd(enable=False)
            .deflate(enable=False)
            .user_agent(_USER_AGENT)
            .connect_timeout(self._connect)
            .pool_idle_timeout(_KEEP_IDLE)
            .tcp_keepalive(_KEEPALIVE)
            .tcp_keepalive_interval(_KEEPALIVE_INTERVAL)
            .tcp_keepalive_retries(_KEEPALIVE_RETRIES)
            .resolve(target.host_str or "", address, target.port_or_known_default or 0)
        )
        return _trusting(builder, self._extra_ca_pem).build()

    def _thin_out(self) -> None:
        """Let go of the lane that was idle longest; its connections close themselves."""
        if len(self._lanes) > _LANES_MAX:
            idle = next((key for key, lane in self._lanes.items() if lane.users == 0), None)
            if idle is not None:
                del self._lanes[idle]


class Answer(Protocol):
    """The answer to a call, however it travelled. Every method raises ``AgentError``."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def streams(self) -> bool:
        """Whether it is a stream."""
        ...

    def header(self, name: str) -> str:
        """The first value of a header."""
        ...

    async def read(self, *, limit: int, wait_s: float | None) -> bytes:
        """All of it."""
        ...

    async def chunk(self, *, wait_s: float | None) -> bytes | None:
        """The next piece of it."""
        ...


class Exchange:
    """One call under way and its answer. Enter it to send; leaving it closes the answer.

    Not read to its end, the connection is closed with it. Every method raises ``AgentError``.
    """

    def __init__(self, http: Http, call: Call, wait_s: float | None, whole_s: float | None) -> None:
        self._http = http
        self._call = call
        self._wait_s = wait_s
        self._whole_s = whole_s
        self._lane: _Lane | None = None
        self._request: StreamRequest | None = None
        self._response: Response | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Task[object] | None = None
        self._deadline: float | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._expired = False
        self._aborted = False

    async def __aenter__(self) -> Self:
        self._lane, target = await self._http.enter(self, self._call.url)
        try:
            try:
                await self._send(self._lane, target)
            except AgentError as error:
                if not (self._call.repeatable and error.detail == _LOST):
                    raise
                await self._send(self._lane, target)
        except BaseException:
            self._release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._request is not None:
                await self._request.__aexit__(None, None, None)
        finally:
            self._release()

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status if self._response is not None else 0

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of server-sent events."""
        return self.status == 200 and self.header("content-type").startswith("text/event-stream")

    def header(self, name: str) -> str:
        """The first value of a header; empty if it is not there or not text."""
        try:
            value = self._response.get_header(name) if self._response is not None else None
        except ValueError:  # bytes that are not text
            return ""
        return value or ""

    async def read(self, *, limit: int, wait_s: float | None) -> bytes:
        """The whole body, within ``wait_s``. More than ``limit`` bytes are an invalid response."""
        length = self.header("content-length")
        whole = int(length) if length.isdecimal() else None
        if whole is not None and whole > limit:
            raise _too_large(limit)
        until = None if wait_s is None else self._loop.time() + wait_s
        pieces: list[bytes] = []
        size = 0
        while size != whole:
            piece = await self._piece(limit + 1 - size, until)
            if piece is None:
                break
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def chunk(self, *, wait_s: float | None) -> bytes | None:
        """The next bytes of the body as they come, ``None`` at its end."""
        if self._response is None:
            return None
        piece = await self._bounded(self._response.body_reader.read_chunk, wait_s)
        return None if piece is None else bytes(piece)

    def abort(self) -> None:
        """Make the wait that is under way, and every later one, fail."""
        self._aborted = True
        self._give_up()

    def _release(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._lane is not None:
            self._http.leave(self, self._lane)

    async def _piece(self, amount: int, until: float | None) -> bytes | None:
        if self._response is None:
            return None
        reader = self._response.body_reader
        left_s = None if until is None else until - self._loop.time()
        piece = await self._bounded(lambda: reader.read(amount), left_s)
        return None if piece is None else bytes(piece)

    async def _send(self, lane: _Lane, target: Url) -> None:
        request = self._prepare(lane, target)
        self._response = await self._bounded(request.__aenter__, self._wait_s)
        self._request = request

    def _prepare(self, lane: _Lane, target: Url) -> StreamRequest:
        try:
            builder = lane.client.request(self._call.method, target).headers(self._call.headers)
            if self._call.body:
                builder = builder.body_bytes(self._call.body)
            if self._whole_s is not None:
                builder = builder.timeout(timedelta(seconds=self._whole_s))
            if self._call.stream:
                # With the default the head of the answer is held back until some body came.
                builder = builder.streamed_read_buffer_limit(0)
            return builder.build_streamed()
        except PyreqwestError as error:
            raise _fault_of(error) from None

    async def _bounded(self, step: Callable[[], Awaitable[_T]], wait_s: float | None) -> _T:
        """Await one step of the library, and make its failures ours.

        As ``asyncio.timeout`` does it, but with one alarm for all the steps of a call, which is set
        anew only when it goes off: a stream has thousands of steps.
        """
        if self._aborted:
            raise _closing(Sent.MAYBE)
        task = self._waiting = asyncio.current_task()
        self._expired = False
        self._set_alarm(wait_s)
        cancels = task.cancelling() if task is not None else 0
        try:
            return await step()
        except PyreqwestError as error:
            raise _fault_of(error) from None
        except asyncio.CancelledError:
            if not self._expired or task is None or task.uncancel() > cancels:
                raise
            raise (_closing(Sent.MAYBE) if self._aborted else _silent()) from None
        finally:
            self._waiting = None

    def _set_alarm(self, wait_s: float | None) -> None:
        self._deadline = None if wait_s is None else self._loop.time() + wait_s
        if self._deadline is None or (self._alarm is not None and self._alarm.when() <= self._deadline):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._waiting is None or self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._alarm = self._loop.call_at(self._deadline, self._ring)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self._waiting is not None and not self._expired:
            self._expired = True
            self._waiting.cancel()


def _trusting(builder: ClientBuilder, ca_pem: bytes) -> ClientBuilder:
    return builder.add_root_certificate_pem(ca_pem) if ca_pem else builder


def _fault_of(error: PyreqwestError) -> AgentError:
    causes = _causes(error)
    if "client error (Connect)" in causes:
        if any("certificate" in cause or "tls" in cause.lower() for cause in causes):
            detail = "TLS failed"
        elif isinstance(error, ConnectTimeoutError):
            detail = "no connection in time"
        else:
            detail = "not connected"
        return AgentError(Outcome.TARGET_UNAVAILABLE, detail, sent=Sent.NO, again=True)
    if isinstance(error, BuilderError):
        return AgentError(Outcome.TARGET_UNAVAILABLE, "not a request that HTTP can carry", sent=Sent.NO)
    if isinstance(error, DecodeError) and not isinstance(error, BodyDecodeError):
        return AgentError(Outcome.INVALID_RESPONSE, "the answer is not HTTP", sent=Sent.YES)
    return AgentError(Outcome.TARGET_UNAVAILABLE, _LOST, sent=Sent.MAYBE, again=True)


def _causes(error: PyreqwestError) -> list[str]:
    if not isinstance(error, DetailedPyreqwestError):
        return []
    return [cause["message"] for cause in error.details["causes"] or ()]


def _silent() -> AgentError:
    return AgentError(Outcome.TIMEOUT, "no answer in time", sent=Sent.MAYBE, again=True)


def _too_large(limit: int) -> AgentError:
    return AgentError(Outcome.INVALID_RESPONSE, f"answer over {limit} bytes", sent=Sent.YES)


def _closing(sent: Sent) -> AgentError:
    return AgentError(Outcome.TARGET_UNAVAILABLE, "the broker is closing", sent=sent, again=True)
