"""One call over gRPC: vetted, pinned, bounded, and always closed.

Duty: the only user of grpcio on the way out. Makes of a ``Call`` an RPC to the address that the URL policy
vetted, gives the answer as ``http.Exchange`` does, and says of every failure whether the request can have
arrived.
Rules: the connection is made before anything is sent, so *not sent* is what failed until then, and what the
library says later of a lost connection is *perhaps sent*, however it calls it. Nothing is retried below us,
no proxy is used, no name is resolved but by the policy. ``detail`` never carries text of the other side.
Sources: A2A 1.0 section 10; ``a2a.proto`` of 0.3; the status codes of gRPC and who makes them.
Not here: what is in a request (``calls``), messages (``wire.protobuf``), what a status means (``faults``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit

import certifi
import grpc
import grpc.aio

from a2a_handoff import __version__
from a2a_handoff.client.faults import invalid, rpc_status_fault
from a2a_handoff.client.http import Call
from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Sent, UrlPolicy
from a2a_handoff.wire.grpc_status import TRAILER, Named, named_by
from a2a_handoff.wire.methods import Operation
from a2a_handoff.wire.protobuf import Rpc, Unwritable, aside, json_of, protobuf_of, rpc_of

_T = TypeVar("_T")

#: Most channels kept. Those in use do not count.
_LANES_MAX: Final = 256
_TLS_PORT: Final = 443
_STATE: Final = grpc.ChannelConnectivity


@dataclass(slots=True)
class _Lane:
    """A channel to one address of one origin, and how many use it now. ``dropped``: closed after the last."""

    channel: grpc.aio.Channel
    users: int = 0
    dropped: bool = False


class GrpcLines:
    """Makes calls, over connections that are kept for the next one.

    ``connect_s`` bounds connecting, TLS included; ``max_bytes`` is the most of one message of an answer.
    ``extra_ca_pem`` is trusted beside the public authorities.
    """

    def __init__(
        self, policy: UrlPolicy, *, connect_s: float, max_bytes: int, extra_ca_pem: bytes = b""
    ) -> None:
        self._policy = policy
        self._connect_s = connect_s
        self._max_bytes = max_bytes
        self._roots = Path(certifi.where()).read_bytes() + extra_ca_pem if extra_ca_pem else None
        self._lanes: OrderedDict[tuple[bool, str, str], _Lane] = OrderedDict()
        self.closed = False

    def exchange(self, call: Call, generation: Generation, *, wait_s: float | None) -> GrpcExchange:
        """A call, to be entered. ``wait_s`` bounds the wait for an answer that is one message."""
        return GrpcExchange(self, call, rpc_of(generation, Operation(call.method)), wait_s)

    async def connect(self, url: str, *, wait_s: float) -> None:
        """See whether somebody is there. Raises ``AgentError``: nothing was sent."""
        async with self.lane(url, wait_s=wait_s):
            return

    async def close(self) -> None:
        """Break off what is under way and close every connection."""
        self.closed = True
        lanes = list(self._lanes.values())
        self._lanes.clear()
        for lane in lanes:
            await lane.channel.close(None)

    @contextlib.asynccontextmanager
    async def lane(self, url: str, *, wait_s: float | None = None) -> AsyncGenerator[grpc.aio.Channel]:
        """A channel that is connected. Raises ``AgentError`` if none can be: nothing was sent."""
        secure, place = _place(url)
        try:
            address = await self._policy.vet(f"{'https' if secure else 'http'}://{place}/")
        except HandoffError:
            raise _unsent("address unknown or not allowed") from None
        if self.closed:
            raise _unsent("the broker is closing")
        key = (secure, place, address)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(self._channel(secure, place, address))
        self._lanes.move_to_end(key)
        lane.users += 1
        try:
            await self._connected(key, lane, self._connect_s if wait_s is None else wait_s)
            yield lane.channel
        finally:
            lane.users -= 1
            if lane.dropped and lane.users == 0:
                await lane.channel.close(None)
            await self._thin_out()

    async def _connected(self, key: tuple[bool, str, str], lane: _Lane, wait_s: float) -> None:
        """Wait for the connection. A channel that failed is let go: it would wait before it tries again."""
        detail = "no connection in time"
        try:
            async with asyncio.timeout(wait_s):
                while (state := lane.channel.get_state(try_to_connect=True)) is not _STATE.READY:
                    if state in (_STATE.TRANSIENT_FAILURE, _STATE.SHUTDOWN):
                        detail = "not connected"
                        break
                    await lane.channel.wait_for_state_change(state)
                else:
                    return
        except TimeoutError:
            pass
        except grpc.aio.UsageError:
            detail = "the broker is closing"
        self._drop(key, lane)
        raise _unsent(detail)

    def _drop(self, key: tuple[bool, str, str], lane: _Lane) -> None:
        lane.dropped = True
        if self._lanes.get(key) is lane:
            del self._lanes[key]

    async def _thin_out(self) -> None:
        """Let go of the lane that was idle longest."""
        if len(self._lanes) > _LANES_MAX:
            idle = next((key for key, lane in self._lanes.items() if lane.users == 0), None)
            if idle is not None:
                await self._lanes.pop(idle).channel.close(None)

    def _channel(self, secure: bool, place: str, address: str) -> grpc.aio.Channel:
        parts = urlsplit(f"//{place}")
        port = parts.port or (_TLS_PORT if secure else 80)
        target = f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}"
        options: list[tuple[str, Any]] = [
            ("grpc.default_authority", place),
            ("grpc.primary_user_agent", f"a2a-handoff/{__version__}"),
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
            # Channels do not share how long they wait after a failure.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if not secure:
            return grpc.aio.insecure_channel(target, options=options)
        options.append(("grpc.ssl_target_name_override", parts.hostname or place))
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(self._roots), options=options)


class GrpcExchange:
    """One RPC under way and its answer, with the same methods as that of HTTP. Leaving it ends the RPC."""

    status = 200

    def __init__(self, lines: GrpcLines, call: Call, rpc: Rpc, wait_s: float | None) -> None:
        self._lines = lines
        self._call = call
        self._rpc = rpc
        self._wait_s = wait_s
        self._exit = contextlib.AsyncExitStack()
        self._running: Any = None
        self._whole = b""
        self._metadata: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        try:
            body = await aside(partial(protobuf_of, self._rpc.request), self._call.body)
        except Unwritable:
            raise AgentError(
                Outcome.TARGET_UNAVAILABLE, "not a request that protobuf can carry", sent=Sent.NO
            ) from None
        try:
            channel = await self._exit.enter_async_context(self._lines.lane(self._call.url))
            metadata = tuple((name.lower(), value) for name, value in self._call.headers)
            make = channel.unary_stream if self._rpc.operation.streams else channel.unary_unary
            self._running = make(self._rpc.path)(body, metadata=metadata)
            if not self.streams:
                self._whole = await self._step(lambda: self._running, self._wait_s)
                self._metadata = _texts(await self._running.initial_metadata())
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream of messages."""
        return self._rpc.operation.streams

    def header(self, name: str) -> str:
        """A value of the initial metadata; empty if it is not there, or not yet."""
        return self._metadata.get(name, "")

    async def read(self, *, limit: int, wait_s: float | None) -> bytes:  # noqa: ARG002 - as of HTTP; it is here already
        """The answer as JSON."""
        return await self._json(self._whole)

    async def chunk(self, *, wait_s: float | None) -> bytes | None:
        """The next message of a stream as JSON, ``None`` at its end."""
        message = await self._step(self._running.read, wait_s)
        return await self._json(message) if isinstance(message, bytes) else None

    async def _leave(self) -> None:
        if self._running is not None:
            self._running.cancel()
        await self._exit.aclose()

    async def _step(self, step: Callable[[], Awaitable[_T]], wait_s: float | None) -> _T:
        """Await one step of the library, and make its failures ours."""
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(wait_s):
                return await step()
        except TimeoutError:
            raise AgentError(Outcome.TIMEOUT, "no answer in time", sent=Sent.MAYBE, again=True) from None
        except grpc.aio.AioRpcError as error:
            details = dict(error.trailing_metadata() or ()).get(TRAILER, b"")
            named = named_by(details) if isinstance(details, bytes) else Named()
            raise rpc_status_fault(
                error.code().name,
                error.details() or "",
                named.reason,
                named.retry_after_s,
                self._rpc.generation,
            ) from None
        except asyncio.CancelledError:
            if not self._lines.closed or task is None or task.cancelling():
                raise
            raise AgentError(
                Outcome.TARGET_UNAVAILABLE, "the broker is closing", sent=Sent.MAYBE, again=True
            ) from None

    async def _json(self, message: bytes) -> bytes:
        try:
            return await aside(partial(json_of, self._rpc.answer), message)
        except Unwritable:
            raise invalid("the answer is not the message of the method") from None


def _place(url: str) -> tuple[bool, str]:
    """Whether it is TLS, and host with port. Without a scheme it is TLS on the port of TLS only."""
    if "://" not in url:
        host, _, port = url.partition("/")[0].rpartition(":")
        return bool(host) and port == str(_TLS_PORT), url.partition("/")[0]
    parts = urlsplit(url)
    return parts.scheme in ("https", "grpcs"), parts.netloc


def _texts(metadata: object) -> dict[str, str]:
    items = cast("list[tuple[str, object]]", metadata or [])
    return {name: value for name, value in items if isinstance(value, str)}


def _unsent(detail: str) -> AgentError:
    return AgentError(Outcome.TARGET_UNAVAILABLE, detail, sent=Sent.NO, again=True)
