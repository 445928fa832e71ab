"""The part of the native REST surface that waits and streams: inboxes, broadcasts, the log as it grows.

Rules: who waits holds nothing but a connection. A caller that goes away is noticed at once and loses
nothing: what it was shown is shown again, what it read it can read on from.
Sources: WHATWG HTML section 9.2 (server-sent events), CloudEvents 1.0.
Not here: order, waiting, who may see what (``inbox``, ``broadcasts``, ``journal``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from a2a_handoff.broker import HandoffBroker
from a2a_handoff.config import Settings
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.roster import Facet
from a2a_handoff.inbox import Found
from a2a_handoff.ports import Principal
from a2a_handoff.rollcall import Told
from a2a_handoff.security.quotas import Quotas
from a2a_handoff.transports.asgi import Bounds, disconnected
from a2a_handoff.transports.calls import NativeCalls
from a2a_handoff.transports.expiry import lasting, while_valid
from a2a_handoff.transports.native import Done, EventStream, body_of, given, number, seconds, words
from a2a_handoff.transports.rest import PAGE_MAX, facets_asked
from a2a_handoff.wire import faults, native
from a2a_handoff.wire.native import views
from a2a_handoff.wire.tasks import sse

WATCH_MAX_S = 300.0
WATCH_S = 30.0
POSITION_MAX = 2**53
EVENTS_MAX = 1_000

#: The cursor of a watch, on every answer of one, and whether the one that was given meant nothing.
CURSOR = "A2A-Handoff-Cursor"
RESYNC = "A2A-Handoff-Resync"

_BROADCASTS = "broadcasts"

_T = TypeVar("_T")


class LiveSurface:
    """Answers what of ``/api`` waits or streams."""

    def __init__(
        self, broker: HandoffBroker, calls: NativeCalls, quotas: Quotas, *, settings: Settings
    ) -> None:
        self._broker = broker
        self._calls = calls
        self._quotas = quotas
        self._settings = settings
        self._bounds = Bounds.of(settings)

    # --- inboxes ---------------------------------------------------------------------------------

    async def pending_handoffs(self, request: Request, principal: Principal) -> Done:
        """What an agent was offered and has not accepted, the most urgent first."""
        inbox = await self._broker.inbox.pending(principal, given(request, "target"))
        found = [await self._calls.out(handoff, to_holder=True) for handoff in inbox[:PAGE_MAX]]
        return Done(body=native.HandoffPage(handoffs=found, next_cursor=None, total=len(inbox)))

    async def watch(self, request: Request, principal: Principal) -> Done:
        """The next offer, as soon as there is one."""
        query = request.query_params
        include = words(query.get("include", ""), "include", frozenset({_BROADCASTS}))
        timeout_s = seconds(query.get("timeout", f"{WATCH_S}"), "timeout", WATCH_MAX_S)
        with self._open(principal, timeout_s):
            found = self._broker.inbox.watch(
                principal,
                given(request, "agent"),
                timeout_s=timeout_s,
                after=query.get("after", ""),
                broadcasts=_BROADCASTS in include,
            )
            return await self._found(await self._waited(request, principal, found))

    async def _found(self, found: Found) -> Done:
        headers = {CURSOR: found.cursor} | ({RESYNC: "true"} if found.resync else {})
        if found.offer is None and not found.broadcasts:
            return Done(status=204, headers=headers)
        news = views.news_out(found.broadcasts, cursor=found.cursor, resync=found.resync)
        body = news if found.offer is None else await self._offer(found.offer, news)
        return Done(body=body, headers=headers)

    async def _offer(self, offer: Handoff, news: native.NewsOut) -> native.OfferOut:
        return views.offer_out(await self._calls.out(offer, to_holder=True), offer, news)

    # --- broadcasts ------------------------------------------------------------------------------

    async def broadcast(self, request: Request, principal: Principal) -> Done:
        """Tell every agent of a workspace."""
        body = native.decode(native.BroadcastIn, await body_of(request, self._bounds))
        stored = await self._broker.broadcasts.send(
            principal,
            channel=body.channel,
            message=body.message,
            data=bytes(body.data or b""),
            sender=body.source_agent,
            workspace=body.workspace,
        )
        return Done(body=views.broadcast_out(stored), status=201)

    async def list_broadcasts(self, request: Request, principal: Principal) -> Done:
        """What a workspace was told, or what of it an agent hears."""
        query = request.query_params
        heard = await self._broker.broadcasts.read(
            principal,
            agent_id=query.get("agent", ""),
            workspace=query.get("workspace", ""),
            after=query.get("after", ""),
        )
        found = [views.broadcast_out(broadcast) for broadcast in heard.broadcasts]
        return Done(
            body=native.BroadcastPage(broadcasts=found, next_cursor=heard.cursor, resync=heard.resync)
        )

    # --- the log ---------------------------------------------------------------------------------

    async def get_events(self, request: Request, principal: Principal) -> Done:
        """The log of one handoff as CloudEvents, from a cursor on; waits for more if that is asked for."""
        query = request.query_params
        timeout_s = seconds(query.get("timeout", "0"), "timeout", WATCH_MAX_S)
        with self._open(principal, timeout_s):
            found = self._broker.events(
                principal,
                request.path_params["handoff_id"],
                after=number(query.get("after", "0"), "after", 2**53),
                limit=number(query.get("limit", "200"), "limit", EVENTS_MAX, least=1),
                timeout_s=timeout_s,
            )
            handoff, recorded, more = await self._waited(request, principal, found)
        url = self._calls.trace_url(handoff)
        events = [views.event_out(item, handoff, trace_url=url) for item in recorded]
        return Done(body=native.EventPage(events=events, next_cursor=recorded[-1].seq if more else None))

    async def events(self, request: Request, principal: Principal) -> Response:
        """The log as it grows: from an event on, else from now on."""
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        known = number(last, "after", POSITION_MAX) if last else None
        start, resync = await self._broker.tail_from(known)
        return self._stream(principal, self._tail(principal, start, resync=resync))

    async def _tail(self, principal: Principal, start: int, *, resync: bool) -> AsyncGenerator[bytes | None]:
        yield b'event: resync\nid: %d\ndata: {"position":%d}\n\n' % (start, start) if resync else None
        tail = self._broker.tail(principal, start, quiet_s=self._settings.keepalive)
        async with aclosing(tail) as log:
            async for item in log:
                if item is None:
                    yield None
                    continue
                recorded, handoff = item
                event = views.event_out(recorded, handoff, trace_url=self._calls.trace_url(handoff))
                yield b"id: %d\n%b" % (recorded.position, sse(native.encode(event)))

    # --- waiting ---------------------------------------------------------------------------------

    def _open(self, principal: Principal, timeout_s: float) -> AbstractContextManager[None]:
        """A wait is open meanwhile; who asks what there is now does not wait."""
        return self._quotas.hold(principal) if timeout_s else nullcontext()

    async def _waited(self, request: Request, principal: Principal, work: Coroutine[Any, Any, _T]) -> _T:
        """What comes of a wait, which ends when the caller goes away or its token ends."""
        return await while_valid(principal, self._broker.now(), _unless_gone(request, work))

    def _stream(self, principal: Principal, events: AsyncGenerator[bytes | None]) -> EventStream:
        told = _told_of_its_end(lasting(principal, self._broker.now(), events))
        return EventStream(told, held=self._quotas.hold(principal))

    # --- the agents ------------------------------------------------------------------------------

    async def agent_events(self, request: Request, principal: Principal) -> Response:
        """The agents that are there, then how they come, change and go."""
        return self._stream(principal, self._roll(principal.tenant, facets_asked(request)))

    async def _roll(self, tenant: str, facets: list[Facet]) -> AsyncGenerator[bytes | None]:
        calls = self._broker.rollcall.follow(tenant, facets, quiet_s=self._settings.keepalive)
        listed = False
        async with aclosing(calls) as roll:
            async for told in roll:
                if told is None:
                    yield None
                    continue
                events = [self._change(one) for one in told]
                if not listed:
                    listed = True
                    events.append(b'event: listed\ndata: {"total":%d}\n\n' % len(told))
                yield b"".join(events)

    def _change(self, told: Told) -> bytes:
        event = views.agent_event_out(
            told.news, told.agent_id, told.view, at=told.at, event_id=self._broker.new_id()
        )
        return sse(native.encode(event))


async def _told_of_its_end(events: AsyncGenerator[bytes | None]) -> AsyncGenerator[bytes | None]:
    """A stream whose last event says why it is over, if there is more to come that is not for the reader."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event
        except HandoffError as error:
            yield b"event: error\n" + sse(faults.problem(error).body)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """What comes of ``work``, which ends when the caller goes away. Raises ``ClientDisconnect`` then."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)
