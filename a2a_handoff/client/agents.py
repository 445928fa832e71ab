"""Conversations with agents: deliver, follow, ask, cancel.

Duty: ``ports.AgentClient`` over A2A 1.0 and 0.3 (JSON-RPC, HTTP+JSON, gRPC) and the first generation.
Rules: nothing but ``AgentError`` is raised. A stream that breaks after it has said something just ends,
and so does polling after a few misses in a row: the task may well go on, and the caller asks with
``get``. A stream that breaks before it said anything is *perhaps sent*. Every connection is closed on
every way out of an iterator; close it with ``aclosing``.
Sources: A2A 1.0 sections 3.1, 3.2.2 and 3.5; 0.3 section 7; ``a2a.json`` of 0.1.
Not here: what a request looks like (``calls``), what an answer means (``wire.answers``), retries of a
delivery (``core.machine``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from msgspec.structs import replace

from a2a_handoff.client import calls
from a2a_handoff.client.faults import invalid, result_of, status_fault
from a2a_handoff.client.http import Answer, Call, Http
from a2a_handoff.client.sse import EventParser, Messages
from a2a_handoff.core.agents import Agent, Binding, Generation, Interface
from a2a_handoff.core.events import Outcome
from a2a_handoff.core.tracing import parse_traceparent
from a2a_handoff.ports import AgentError, Delivery, Sent, Update, UrlPolicy
from a2a_handoff.wire.answers import unnamed_id, update_of

if TYPE_CHECKING:
    from a2a_handoff.client.grpc import GrpcLines

#: The body of an error is read no further than this.
_ERROR_BODY_MAX: Final = 65_536
_ERROR_BODY_S: Final = 5.0

_CONNECT_MARGIN_S: Final = 0.25
#: So much later than a call must have ended its connection is closed, if it was given up before.
_SLACK_S: Final = 1.0
_POLL_GROWTH: Final = 1.6
_POLL_MISSES: Final = 3
#: What agents say that do not call back, or not there: not supported, and wrong parameters.
_NO_CALLBACK: Final = frozenset({-32003, -32602})


class A2AClient:
    """Talks A2A to agents; see ``ports.AgentClient``.

    All times are seconds. ``connect_s`` bounds connecting; keep it below the time in which an agent
    has to answer, for until it is over it is not known whether anything was sent. ``call_s`` bounds a
    get or a cancel, ``idle_s`` the silence between two parts of an answer (comments of a stream break
    it). ``max_bytes`` is the most of one answer, or of one event of a stream. Polling starts every
    ``poll_min_s`` and slows down to every ``poll_max_s``. ``now`` is the wall clock (epoch seconds).
    """

    def __init__(
        self,
        policy: UrlPolicy,
        *,
        connect_s: float = 3.0,
        call_s: float = 10.0,
        idle_s: float = 300.0,
        max_bytes: int = 33_554_432,
        poll_min_s: float = 0.2,
        poll_max_s: float = 5.0,
        extra_ca_pem: bytes = b"",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._http = Http(policy, connect_s=connect_s, extra_ca_pem=extra_ca_pem)
        self._lines: GrpcLines | None = None
        self._policy = policy
        self._extra_ca_pem = extra_ca_pem
        self._connect_s = connect_s
        self._call_s = call_s
        self._idle_s = idle_s
        self._max_bytes = max_bytes
        self._poll_min_s = poll_min_s
        self._poll_max_s = poll_max_s
        self._now = now

    async def close(self) -> None:
        """Close every connection; what is under way fails with ``AgentError``."""
        await self._http.close()
        if self._lines is not None:
            await self._lines.close()

    async def probe(self, agent: Agent, *, timeout_s: float) -> None:
        """See whether the agent is there: any HTTP answer to a GET of its card, or a connection for gRPC."""
        if agent.interfaces and (interface := calls.interface_of(agent)).binding is Binding.GRPC:
            await self._grpc().connect(interface.url, wait_s=timeout_s)
            return
        url = agent.card_url or _card_url(calls.interface_of(agent))
        call = Call(
            method="GET", url=url, headers=(("Accept", "application/json"),), stream=True, repeatable=True
        )
        try:
            async with self._http.exchange(call, wait_s=timeout_s, whole_s=timeout_s + _SLACK_S):
                return
        except AgentError as error:
            # Whatever went wrong, no task was sent.
            raise AgentError(error.outcome, error.detail, sent=Sent.NO, again=True) from None

    def send(self, agent: Agent, delivery: Delivery, *, first_wait_s: float | None) -> AsyncGenerator[Update]:
        """Deliver a message and yield what comes back until a terminal or interrupted state."""
        # Not shorter than connecting may take: a cut there would look like a request that was sent.
        wait_s = None if first_wait_s is None else max(first_wait_s, self._connect_s + _CONNECT_MARGIN_S)
        if delivery.callback is not None:
            return self._send_once(agent, delivery, wait_s)
        make = partial(calls.send, agent=agent, delivery=delivery)
        return self._follow(agent, make, wait_s, own=delivery.traceparent)

    async def _send_once(
        self, agent: Agent, delivery: Delivery, wait_s: float | None
    ) -> AsyncGenerator[Update]:
        """Deliver a message to an agent that is to call back. One that refuses to gets it without that."""
        make = partial(calls.send, agent=agent, delivery=delivery)
        try:
            async with aclosing(
                self._follow(agent, make, wait_s, own=delivery.traceparent, poll=False)
            ) as answers:
                async for update in answers:
                    yield update
        except AgentError as error:
            if error.jsonrpc_code not in _NO_CALLBACK:
                raise
        else:
            return
        async with aclosing(
            self.send(agent, replace(delivery, callback=None), first_wait_s=wait_s)
        ) as answers:
            async for update in answers:
                yield update

    async def get(self, agent: Agent, remote_task_id: str) -> Update:
        """The target's task as it stands, as a snapshot."""
        interface = calls.interface_of(agent)
        return await self._ask(interface, calls.get(interface, remote_task_id))

    async def subscribe(self, agent: Agent, remote_task_id: str) -> AsyncGenerator[Update]:
        """Follow a task that is under way; a snapshot first. Falls back to polling."""
        interface = calls.interface_of(agent)
        streams_whole = agent.streaming and interface.generation is Generation.V1_0
        known: Update | None = None
        if not streams_whole:
            # Before 1.0 a new stream need not begin with the task as it stands.
            known = await self.get(agent, remote_task_id)
            yield known
            if _settled(known):
                return
        heard = False
        if agent.streaming:
            make = partial(calls.subscribe, task_id=remote_task_id)
            try:
                async with aclosing(self._follow(agent, make, self._call_s)) as updates:
                    async for update in updates:
                        heard = True
                        yield (
                            update if streams_whole else await self._completed(agent, remote_task_id, update)
                        )
            except AgentError:
                if heard:
                    raise
        if heard:
            return
        if known is None:
            known = await self.get(agent, remote_task_id)
            yield known
        if not _settled(known):
            async with aclosing(self._poll(interface, known)) as updates:
                async for update in updates:
                    yield update

    async def cancel(self, agent: Agent, remote_task_id: str, *, traceparent: str = "") -> Update:
        """Ask the target to stop."""
        interface = calls.interface_of(agent)
        return await self._ask(interface, calls.cancel(interface, remote_task_id, traceparent=traceparent))

    async def _completed(self, agent: Agent, remote_task_id: str, update: Update) -> Update:
        """In place of the last event the whole task: it has what was said while the stream began."""
        if update.snapshot or update.reply or not _settled(update):
            return update
        try:
            return await self.get(agent, remote_task_id)
        except AgentError:
            return update

    def _exchange(
        self, interface: Interface, call: Call, wait_s: float | None, whole_s: float | None
    ) -> AbstractAsyncContextManager[Answer]:
        if interface.binding is Binding.GRPC:
            return self._grpc().exchange(call, interface.generation, wait_s=wait_s)
        return self._http.exchange(call, wait_s=wait_s, whole_s=whole_s)

    def _grpc(self) -> GrpcLines:
        """Made for the first agent that is reached so: the library is large, and an extra."""
        if self._lines is None:
            from a2a_handoff.client.grpc import GrpcLines  # noqa: PLC0415 - its library is an extra

            self._lines = GrpcLines(
                self._policy,
                connect_s=self._connect_s,
                max_bytes=self._max_bytes,
                extra_ca_pem=self._extra_ca_pem,
            )
        return self._lines

    async def _ask(self, interface: Interface, call: Call) -> Update:
        whole_s = 2 * self._call_s + _SLACK_S
        async with self._exchange(interface, call, self._call_s, whole_s) as answer:
            return await self._read_whole(interface, answer, wait_s=self._call_s)

    async def _follow(
        self,
        agent: Agent,
        make: Callable[[Interface], Call],
        wait_s: float | None,
        *,
        own: str = "",
        poll: bool = True,
    ) -> AsyncGenerator[Update]:
        """Send, and yield the events of the stream, or the answer and what polling, if any, finds after it.

        ``own`` is our traceparent: a target that sends it back has said nothing about a span of its own.
        """
        interface = calls.interface_of(agent)
        call = make(interface)
        began = time.monotonic()
        whole_s = None if wait_s is None or call.stream else wait_s + self._idle_s + _SLACK_S
        async with self._exchange(interface, call, wait_s, whole_s) as answer:
            if answer.streams:
                left_s = None if wait_s is None else max(wait_s - (time.monotonic() - began), 0.0)
                async with aclosing(self._events(interface, answer, left_s)) as updates:
                    async for update in updates:
                        yield _unless_own(update, own)
                return
            update = await self._read_whole(interface, answer, wait_s=self._idle_s)
        yield _unless_own(update, own)
        if poll and update.snapshot and update.remote_task_id and not _settled(update):
            async with aclosing(self._poll(interface, update)) as updates:
                async for update in updates:
                    yield _unless_own(update, own)

    async def _events(
        self, interface: Interface, answer: Answer, wait_s: float | None
    ) -> AsyncGenerator[Update]:
        """The events of a stream until the task is settled or the stream ends.

        ``wait_s`` bounds the wait for the first one; comments do not count there. A stream is about the
        task that it begins with: servers have been seen to mix in events of others in the same context.
        """
        parser = Messages() if interface.binding is Binding.GRPC else EventParser(self._max_bytes)
        deadline = None if wait_s is None else time.monotonic() + wait_s
        traceparent = _traceparent_header(answer)
        heard = False
        task_id = ""
        unnamed = 0
        while True:
            patience = self._idle_s
            if deadline is not None and not heard:
                patience = max(deadline - time.monotonic(), 0.0)
            try:
                chunk = await answer.chunk(wait_s=patience)
            except AgentError as error:
                if heard and error.sent is Sent.MAYBE:
                    return
                raise
            for data in parser.feed(chunk) if chunk is not None else ():
                update = self._event(interface, data, unnamed)
                unnamed += any(output.artifact_id == unnamed_id(unnamed + 1) for output in update.outputs)
                task_id = task_id or update.remote_task_id
                if update.remote_task_id not in ("", task_id):
                    continue
                yield replace(update, traceparent=traceparent) if traceparent and not heard else update
                # The task that a stream begins with may ask as it did before; more may follow.
                opening = not heard and update.snapshot and update.state is not None and update.state.asks
                heard = True
                if _settled(update) and not opening:
                    return
            if chunk is None:
                break
        # The last event may lack its blank line; cut in half it counts for nothing.
        try:
            last = self._event(interface, left, unnamed) if (left := parser.end()) else None
        except AgentError as error:
            if error.outcome is not Outcome.INVALID_RESPONSE:
                raise
            last = None
        if last is not None and last.remote_task_id in ("", task_id or last.remote_task_id):
            yield last
        elif not heard:
            raise AgentError(
                Outcome.TARGET_UNAVAILABLE, "the stream ended before it began", sent=Sent.MAYBE, again=True
            )

    def _event(self, interface: Interface, data: bytes, unnamed: int) -> Update:
        result = result_of(data, interface.binding, interface.generation)
        return update_of(result, interface.generation, interface.binding, event=True, unnamed=unnamed)

    async def _read_whole(self, interface: Interface, answer: Answer, *, wait_s: float) -> Update:
        status = answer.status
        if status not in (200, 201, 202):
            raise await self._fault(interface, answer)
        body = await answer.read(limit=self._max_bytes, wait_s=wait_s)
        result = result_of(body, interface.binding, interface.generation)
        update = update_of(result, interface.generation, interface.binding)
        traceparent = _traceparent_header(answer)
        return replace(update, traceparent=traceparent) if traceparent else update

    async def _fault(self, interface: Interface, answer: Answer) -> AgentError:
        body = b""
        if answer.status >= 400:
            try:
                body = await answer.read(limit=_ERROR_BODY_MAX, wait_s=_ERROR_BODY_S)
            except AgentError:
                body = b""  # the status says enough
        elif answer.status < 300:
            return invalid(f"HTTP {answer.status} without an answer")
        return status_fault(
            answer.status,
            answer.header("retry-after"),
            body,
            interface.binding,
            interface.generation,
            now=self._now(),
        )

    async def _poll(self, interface: Interface, known: Update) -> AsyncGenerator[Update]:
        """Ask again and again, and yield what changed, until the task is settled."""
        delay_s = self._poll_min_s
        misses = 0
        call = calls.get(interface, known.remote_task_id)
        while True:
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * _POLL_GROWTH, self._poll_max_s)
            try:
                update = await self._ask(interface, call)
            except AgentError as error:
                if error.jsonrpc_code is not None:
                    raise
                misses += 1
                if misses == _POLL_MISSES:
                    return
                delay_s = max(delay_s, min(error.retry_after_s or 0.0, self._idle_s))
                continue
            misses = 0
            # Each answer may name another span; that alone is no news.
            if replace(update, traceparent=known.traceparent) != known:
                yield update
                known = update
            if _settled(update):
                return


def _settled(update: Update) -> bool:
    """Nothing more comes without a message of the caller's."""
    return update.reply or (update.state is not None and (update.state.terminal or update.state.asks))


def _unless_own(update: Update, traceparent: str) -> Update:
    if update.traceparent and update.traceparent == traceparent:
        return replace(update, traceparent="")
    return update


def _traceparent_header(answer: Answer) -> str:
    for name in ("traceresponse", "traceparent"):
        value = answer.header(name)
        if value and parse_traceparent(value) is not None:
            return value
    return ""


def _card_url(interface: Interface) -> str:
    old = interface.generation is Generation.V0_1
    return urljoin(interface.url, "/.well-known/agent.json" if old else "/.well-known/agent-card.json")
