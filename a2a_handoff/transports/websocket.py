"""The WebSocket of agents that cannot listen on a port: offers and news come, commands go, over one socket.

Rules: a thin skin over the inbox, the broadcasts and the calls that REST makes. Frames are JSON objects in
text messages. A frame that is wrong is answered with what is wrong, where, and the socket stays. Nothing is
queued for a client: what comes next is looked for when what came before was written, so a slow one costs no
memory, and whoever comes back with its cursor misses nothing. Frames that carry a cursor are written one at
a time, in the order of their cursors.
Sources: RFC 6455; ASGI 3.0 (WebSocket).
Not here: bytes, pings, reading too slowly (``socket_protocol``), how frames look (``wire.native.frames``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from a2a_handoff.broker import HandoffBroker
from a2a_handoff.bulletin import Bulletin, Reading
from a2a_handoff.config import Settings
from a2a_handoff.core.agents import fold
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.inbox import Found, Seat
from a2a_handoff.ports import Clock, Gate, Principal, StoreUnavailable
from a2a_handoff.ports import Scope as Allowed
from a2a_handoff.security.principals import within
from a2a_handoff.security.quotas import Quotas
from a2a_handoff.telemetry import Served, Telemetry
from a2a_handoff.transports.asgi import Receive, Scope, Send, headers_of, tenant_of, text_header
from a2a_handoff.transports.calls import NativeCalls, Origin
from a2a_handoff.transports.expiry import left_s
from a2a_handoff.transports.rendering import refusal_of
from a2a_handoff.transports.socket_protocol import RESTARTS, STOPS
from a2a_handoff.wire import faults, native
from a2a_handoff.wire.cursor import Cursor, written
from a2a_handoff.wire.envelope import open_object
from a2a_handoff.wire.native import frames, views

PATH = "/ws"
#: The protocol that a client may offer, and before a token the one that carries it: pages in a browser can
#: set no header.
PROTOCOL = "a2a-handoff"
BEARER_PROTOCOL = "bearer."
#: Frames that a client may get wrong before its hello is taken.
GREETINGS_MAX = 5
#: Offers that are looked for at once.
OFFERS_AT_ONCE = 16

#: Close codes of ours, from the range for private use (RFC 6455 section 7.4.2).
NO_HELLO = 4408
NOT_UNDERSTOOD = 4400
EXPIRED = 4401
_FAULT = 1011
_GOODBYES = frozenset({1000, 1001})

_LOG = logging.getLogger("a2a_handoff.transports")
_QUIET_S = 3_600.0
_STORE_AGAIN_S = 1.0


class _Opening(msgspec.Struct):
    type: Raw = Raw()
    id: Raw = Raw()


class SocketSurface:
    """Serves ``/ws``."""

    def __init__(
        self,
        broker: HandoffBroker,
        calls: NativeCalls,
        bulletin: Bulletin,
        *,
        gate: Gate,
        quotas: Quotas,
        telemetry: Telemetry,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self.broker = broker
        self.calls = calls
        self.bulletin = bulletin
        self.settings = settings
        self.gate = gate
        self.quotas = quotas
        self._telemetry = telemetry
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a socket, or refuse it before it is one."""
        started_at, status = self._clock.now(), 101
        headers = headers_of(scope)
        principal: Principal | None = None
        try:
            if scope["path"] != PATH:
                raise HandoffError(Code.NOT_FOUND)
            chosen, authorization = _credentials(headers, scope)
            principal = within(await self.gate.admit(authorization), tenant_of(scope))
            principal.require(Allowed.WORK)
            if self.broker.inbox.closing:
                raise HandoffError(Code.UNAVAILABLE, "The broker is stopping; try another one.")
            with self.quotas.hold(principal):
                await receive()
                await send({"type": "websocket.accept", "subprotocol": chosen})
                await _Socket(self, principal, receive, send).run()
        except HandoffError as error:
            status = error.row.http
            await refuse_handshake(scope, send, error)
        except OSError:
            pass  # the client went while it was written to
        finally:
            trusted = principal is not None and principal.trusted
            self._telemetry.request_span(
                Served(
                    started_at=started_at,
                    ended_at=self._clock.now(),
                    method="GET",
                    route=PATH if scope["path"] == PATH else "",
                    status=status,
                    traceparent=text_header(headers, b"traceparent") if trusted else "",
                    socket=True,
                )
            )


def _credentials(headers: dict[bytes, bytes], scope: Scope) -> tuple[str | None, str]:
    """The protocol that is chosen of those that the client offers, and what proves who it is."""
    offered: list[str] = scope.get("subprotocols") or []
    authorization = text_header(headers, b"authorization")
    token = next((name for name in offered if name.startswith(BEARER_PROTOCOL)), "")
    if token and not authorization:
        authorization = f"Bearer {token.removeprefix(BEARER_PROTOCOL)}"
    return (PROTOCOL if PROTOCOL in offered else None), authorization


async def refuse_handshake(scope: Scope, send: Send, error: HandoffError) -> None:
    """Answer the request for a socket with a problem instead of one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
        return
    refusal = faults.problem(error, scope["path"])
    headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
    headers.append((b"content-type", refusal.media_type.encode()))
    await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": refusal.body})


class _Socket:
    """One open socket. Two tasks follow what it is told, beside the one that reads."""

    __slots__ = (
        "_bearer",
        "_channels",
        "_instance_id",
        "_principal",
        "_reading",
        "_receive",
        "_seat",
        "_send",
        "_sent",
        "_surface",
        "_writing",
    )

    _seat: Seat
    _reading: Reading

    def __init__(self, surface: SocketSurface, principal: Principal, receive: Receive, send: Send) -> None:
        self._surface = surface
        self._bearer = principal.name
        self._principal = principal
        self._receive = receive
        self._send = send
        self._writing = asyncio.Lock()
        self._channels: frozenset[str] | None = None
        self._instance_id = ""
        self._sent = Cursor(epoch=0, owner=0)

    async def run(self) -> None:
        """From the first frame to the last."""
        code: int | None = None
        try:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(self._surface.settings.arrival):
                        welcome = await self._greeted(held)
                except TimeoutError:
                    await self._close(NO_HELLO, "Say hello as soon as the socket is open.")
                    return
                if welcome is None:
                    return
                while welcome:
                    await self._write(welcome.pop(0))
                code = await self._attend()
        finally:
            if code in _GOODBYES:
                agent = self._seat.agent
                self._surface.broker.registry.presence.left(agent.tenant, agent.agent_id)

    # --- hello -----------------------------------------------------------------------------------

    async def _greeted(self, held: AsyncExitStack) -> list[bytes] | None:
        """Wait for a good hello. What to answer; ``None`` if the client went or did not come to it."""
        for _ in range(GREETINGS_MAX):
            body, _ = await self._heard()
            if body is None:
                return None
            opening = _Opening()
            try:
                kind, opening = _open(body, self._surface.settings.max_values)
                if kind == "ping":
                    native.decode(frames.PingFrame, body)
                    await self._write(_answer("pong", opening))
                    continue
                if kind != "hello":
                    raise HandoffError(Code.WRONG_STATE, "Say hello first: which agent is this?")
                return await self._greet(held, native.decode(frames.HelloFrame, body), opening)
            except Exception as fault:  # noqa: BLE001 - a fault of ours is answered as every other
                await held.aclose()
                await self._write(_error(fault, opening))
        await self._close(NOT_UNDERSTOOD, f"{GREETINGS_MAX} frames came and no hello that can be taken.")
        return None

    async def _greet(self, held: AsyncExitStack, hello: frames.HelloFrame, opening: _Opening) -> list[bytes]:
        surface, broker = self._surface, self._surface.broker
        new = False
        agent_id = hello.agent_id or self._principal.name
        if hello.registers:
            view, new = await broker.registry.register(self._principal, hello.registration())
            agent_id = view.agent.agent_id
        await broker.registry.find(self._principal.tenant, agent_id)
        seat = held.enter_context(
            broker.inbox.seat(
                self._principal,
                agent_id,
                after=hello.cursor,
                broadcasts=hello.broadcasts,
                field="cursor",
                most=OFFERS_AT_ONCE,
            )
        )
        agent = seat.agent
        reading, beyond = await held.enter_async_context(
            surface.bulletin.follow(
                agent.tenant,
                agent.agent_id,
                workspace=agent.workspace if hello.events else None,
                after=seat.cursor.log,
            )
        )
        self._seat, self._reading, self._sent = seat, reading, seat.cursor
        self._principal = replace(self._principal, name=agent.agent_id)
        self._instance_id = hello.instance_id
        self._channels = None if hello.channels is None else frozenset(hello.channels)
        view = broker.registry.view(agent.tenant, agent.agent_id)
        welcome = _answer(
            "welcome",
            opening,
            agent=None if view is None else Raw(native.encode(views.agent_out(view))),
            new=new,
            cursor=self._cursor(),
            ping_s=surface.settings.socket_ping,
            max_frame=surface.settings.max_body,
        )
        return [welcome, self._resync("events, cancels and replies")] if beyond else [welcome]

    # --- what comes in ---------------------------------------------------------------------------

    async def _attend(self) -> int:
        """Obey frame after frame until the socket closes. The code that it was closed with."""
        followers = [asyncio.create_task(self._follow(work)) for work in (self._show_offers, self._tell)]
        try:
            while True:
                left = left_s(self._principal, self._surface.broker.now())
                if left == 0:
                    break  # a frame that is there already is not waited for
                limit = asyncio.timeout(left)
                try:
                    async with limit:
                        body, code = await self._heard()
                except TimeoutError:
                    if not limit.expired():
                        raise
                    break
                if body is None:
                    return code
                await self._write(await self._obeyed(body))
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)
        await self._close(EXPIRED, "The token has expired. Come back with a new one and the cursor.")
        return EXPIRED

    async def _heard(self) -> tuple[bytes | None, int]:
        """The next message; without one, the code of the close."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            return None, message.get("code", 1005)
        text: str | None = message.get("text")
        return (message["bytes"] if text is None else text.encode()), 0

    async def _obeyed(self, body: bytes) -> bytes:
        """Do what a frame asks for; the answer."""
        opening = _Opening()
        try:
            kind, opening = _open(body, self._surface.settings.max_values)
            self._surface.quotas.spend(self._principal)
            asked = native.decode(frames.FROM_CLIENT[kind], body)
            return await self._do(asked, opening)
        except Exception as fault:  # noqa: BLE001 - a fault of ours is answered as every other
            return _error(fault, opening)

    async def _do(self, asked: frames.Inbound, opening: _Opening) -> bytes:
        broker, calls, principal = self._surface.broker, self._surface.calls, self._principal
        match asked:
            case frames.ActFrame(type=verb, handoff_id=handoff_id):
                if verb == "accept" and not asked.instance_id:
                    asked = asked.model_copy(update={"instance_id": self._instance_id})
                after = await calls.act(principal, verb, handoff_id, asked)
                shown = native.encode(await calls.out(after, to_holder=verb == "accept"))
                return _answer("ok", opening, handoff=Raw(shown))
            case frames.CreateFrame():
                wanted = native.decode(native.HandoffIn, bytes(asked.handoff))
                if "workspace" not in wanted.model_fields_set:
                    wanted = wanted.model_copy(update={"workspace": self._seat.agent.workspace})
                origin = Origin(surface="websocket", method="GET", route=PATH)
                accepted = await calls.create(principal, wanted, origin)
                shown = native.encode(await calls.out(accepted.handoff))
                return _answer("ok", opening, handoff=Raw(shown), created=not accepted.replayed)
            case frames.SayFrame():
                # Who speaks for itself speaks where it hears, wherever it was registered since.
                here = "" if asked.source_agent else self._seat.agent.workspace
                stored = await broker.broadcasts.send(
                    principal,
                    channel=asked.channel,
                    message=asked.message,
                    data=bytes(asked.data or b""),
                    sender=asked.source_agent,
                    workspace=asked.workspace or here,
                )
                return _answer("ok", opening, broadcast=Raw(native.encode(views.broadcast_out(stored))))
            case frames.BeatFrame(status=status, in_flight=in_flight):
                view = await broker.registry.heartbeat(principal, principal.name, status, in_flight)
                return _answer("ok", opening, agent=Raw(native.encode(views.agent_out(view))))
            case frames.PingFrame():
                return _answer("pong", opening)
            case frames.TokenFrame(token=token):
                self._principal = await self._renewed(token)
                return _answer("ok", opening)
            case _:
                raise HandoffError(Code.WRONG_STATE, f"This socket is that of {principal.name!r} already.")

    async def _renewed(self, token: str) -> Principal:
        """The caller with a new token, which must be of the same agent. Raises ``HandoffError``."""
        old, new = self._principal, await self._surface.gate.admit(f"Bearer {token}")
        if (fold(new.name), new.tenant) != (fold(self._bearer), old.tenant):
            raise HandoffError(Code.FORBIDDEN, "The token is of another agent than this socket.")
        new.require(Allowed.WORK)
        return replace(new, name=old.name)

    # --- what goes out ---------------------------------------------------------------------------

    async def _follow(self, work: Callable[[], Awaitable[None]]) -> None:
        """Tell what there is for as long as the socket is open. A store that is away is asked again."""
        while True:
            try:
                await work()
            except StoreUnavailable as error:
                _LOG.warning("a socket waits for the store: %s", error)
                await asyncio.sleep(_STORE_AGAIN_S)
                continue
            except OSError:
                pass  # the client is gone; whoever reads hears that too
            except Exception:  # noqa: BLE001 - nobody else would tell the client
                _LOG.exception("a socket failed")
                await self._close(_FAULT, "The broker made a mistake. Come back with the cursor.")
            return

    async def _show_offers(self) -> None:
        """Offers and broadcasts, as the inbox has them."""
        seat = self._seat
        # The last words of a broker that leaves; one that stops may have been faster (``socket_protocol``).
        while not self._surface.broker.inbox.closing:
            before = seat.cursor
            found = await seat.next(timeout_s=_QUIET_S)
            if found is not None:
                try:
                    await self._show(found)
                except StoreUnavailable:
                    seat.unshow(found, before)
                    raise
        # It drains. One that stops has been faster (``socket_protocol``).
        await self._close(RESTARTS, STOPS)

    async def _show(self, found: Found) -> None:
        after, count = self._seat.cursor, len(found.offers)
        shown = [await self._surface.calls.out(offer, to_holder=True) for offer in found.offers]
        async with self._writing:
            if found.resync:
                self._sent = replace(after, position=0, shown=())
                await self._write(self._resync("every offer, and the broadcasts that are kept"))
            earlier = after.shown[: len(after.shown) - count]
            for broadcast in found.broadcasts:
                self._sent = replace(after, position=broadcast.position, shown=earlier)
                if self._channels is None or broadcast.channel in self._channels:
                    body = frames.framed("broadcast", native.encode(views.broadcast_out(broadcast)))
                    await self._write(frames.at_cursor(body, self._cursor()))
            self._sent = replace(after, shown=earlier)
            for number, offer in enumerate(found.offers, 1):
                self._sent = replace(after, shown=after.shown[: len(earlier) + number])
                news = views.news_out((), cursor=self._cursor(), resync=False)
                body = native.encode(views.offer_out(shown[number - 1], offer, news))
                await self._write(frames.framed("offer", body))

    async def _tell(self) -> None:
        """What the log says to this agent, and to its workspace if it asked for that."""
        reading = self._reading
        while items := await reading.next():
            async with self._writing:
                for number, item in enumerate(items, 1):
                    if number == len(items) or items[number].position != item.position:
                        reading.position = item.position
                    await self._write(frames.at_cursor(item.body, self._cursor()))

    def _cursor(self) -> str:
        """Where the socket stands once the frame that carries this is written."""
        self._reading.settle()
        return written(replace(self._sent, log=self._reading.position))

    def _resync(self, what: str) -> bytes:
        detail = f"The cursor means nothing here: {what} start anew. Read what matters at /api/handoffs."
        return frames.frame("resync", cursor=self._cursor(), detail=detail)

    async def _write(self, body: bytes) -> None:
        """Write one frame. Waits while the client does not read; ``OSError`` if it is gone."""
        await self._send({"type": "websocket.send", "text": body.decode()})

    async def _close(self, code: int, why: str) -> None:
        await self._write(frames.frame("closing", code=code, detail=why))
        await self._send({"type": "websocket.close", "code": code, "reason": why[:100]})


def _open(body: bytes, values_max: int) -> tuple[str, _Opening]:
    """The kind of a frame, and its id.

    Raises ``HandoffError``: ``parse_error``, ``invalid_params``, ``payload_too_large``.
    """
    try:
        opening = msgspec.json.decode(open_object(body, values_max), type=_Opening)
    except HandoffError as error:
        if error.code is not Code.PAYLOAD_TOO_LARGE:
            raise
        opening = _Opening()
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            opening = msgspec.json.decode(body, type=_Opening)
        raise _Refused(error, opening) from None
    try:
        kind = msgspec.json.decode(opening.type, type=str)
    except msgspec.DecodeError:
        kind = ""
    if kind not in frames.FROM_CLIENT:
        fault = f"must be one of {', '.join(frames.FROM_CLIENT)}"
        error = HandoffError(Code.INVALID_PARAMS, f"type {fault}.", violations=(Violation("type", fault),))
        raise _Refused(error, opening)
    return kind, opening


class _Refused(HandoffError):
    """A frame that is not read on, though its id is known."""

    def __init__(self, error: HandoffError, opening: _Opening) -> None:
        super().__init__(error.code, error.message, violations=error.violations, facts=error.facts)
        self.opening = opening


def _answer(kind: str, opening: _Opening, **fields: object) -> bytes:
    known = {"id": opening.id} if frames.is_plain(bytes(opening.id)) else {}
    return frames.frame(kind, **known, **fields)


def _error(fault: Exception, opening: _Opening) -> bytes:
    if isinstance(fault, _Refused):
        opening = fault.opening
    problem = faults.problem(refusal_of(fault), PATH)
    return _answer("error", opening, problem=Raw(problem.body))
