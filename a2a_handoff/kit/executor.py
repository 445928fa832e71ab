"""One line for agents built on a2a-sdk: ``HandoffExecutor(MyExecutor(), HandoffReceiver("my-agent"))``.

Duty: answer offers, run a redelivered task once, send the receipt; and the few calls by which an
executor reads the context, hands on and gives back.
Rules: the inner executor sees the ids of the first delivery only, whatever task the SDK made for a
redelivery. Its events reach every delivery, with that delivery's ids.
Not here: offers, memory and payloads (``receiver``, ``runs``, ``directive``).
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events.event_queue import Event, EventQueue
from a2a.types import (
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import MessageToDict

from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.kit.directive import in_metadata, receipt
from a2a_handoff.kit.incoming import (
    ChildEnd,
    IncomingHandoff,
    Json,
    read_child_end,
    read_incoming,
    read_rescinded,
)
from a2a_handoff.kit.receiver import VOID, HandoffReceiver
from a2a_handoff.kit.runs import Run


def incoming_of(context: RequestContext) -> IncomingHandoff | None:
    """The handoff that came with the message that an executor is given."""
    return read_incoming(_message_of(context), context.metadata)


def child_end_of(context: RequestContext) -> ChildEnd | None:
    """The end of a handoff that this agent had delegated, if the message tells of one."""
    return read_child_end(_message_of(context))


def agent_message(text: str, *payloads: Json, task_id: str = "", context_id: str = "") -> Message:
    """A message of the agent, with payloads of ``directive`` in its metadata.

    As the message of a status it hands the task on or gives it back, whatever the status says.
    """
    message = Message(
        message_id=str(uuid.uuid4()),
        role=Role.ROLE_AGENT,
        task_id=task_id,
        context_id=context_id,
        parts=[Part(text=text)],
    )
    if payloads:
        message.metadata.update(in_metadata(*payloads))
        message.extensions.append(EXTENSION_URI)
    return message


async def direct(context: RequestContext, queue: EventQueue, text: str, payload: Json) -> None:
    """End this agent's part: publish a completed status whose message carries the directive."""
    task_id, context_id = context.task_id or "", context.context_id or ""
    message = agent_message(text, payload, task_id=task_id, context_id=context_id)
    await queue.enqueue_event(
        TaskStatusUpdateEvent(
            task_id=task_id,
            context_id=context_id,
            status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED, message=message),
        )
    )


class HandoffExecutor(AgentExecutor):
    """Wraps an executor so that it takes part in handoffs; the executor itself stays as it is.

    Offers are answered by the receiver. A task that is delivered again, under whatever new task id,
    is answered from the first run. If the agent was not offered the task before, the receipt rides
    on its first message.
    """

    def __init__(self, inner: AgentExecutor, receiver: HandoffReceiver) -> None:
        self._inner = inner
        self._receiver = receiver
        self._runs: WeakValueDictionary[str, Run[Event]] = WeakValueDictionary()
        self._firsts: WeakKeyDictionary[Run[Event], _Ids] = WeakKeyDictionary()
        self._relaying: set[_Ids] = set()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer an offer, or do the task: by the inner executor, once for each offer."""
        incoming = incoming_of(context)
        void = read_rescinded(_message_of(context))
        if void:
            await self._rescind(void, context)
            await event_queue.enqueue_event(agent_message("Understood.", context_id=context.context_id or ""))
        elif incoming is not None and incoming.offer:
            answer = await self._receiver.answer(incoming)
            text = "Ready." if "ready" in answer else str(answer["declined"]["reason"])
            reply = agent_message(text, answer, context_id=context.context_id or "")
            await event_queue.enqueue_event(reply)
        elif context.current_task is not None:
            await self._follow_up(context, event_queue)
        elif incoming is None or not incoming.offer_id:
            await self._inner.execute(context, event_queue)
        elif self._receiver.is_void(incoming) and self._receiver.runs.get(incoming.offer_id) is None:
            await event_queue.enqueue_event(_rejected(context))
        else:
            await self._once(incoming, context, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the task, and with it the run that other deliveries of it follow."""
        run = self._runs.get(context.task_id or "")
        if run is None:
            await self._inner.cancel(context, event_queue)
            return
        ids = _ids(context)

        async def tell(event: Event) -> None:
            run.say(_renamed(event, self._firsts[run]))
            await event_queue.enqueue_event(_renamed(event, ids))

        self._relaying.discard(ids)
        try:
            await self._inner.cancel(_as_first(context, self._firsts[run]), _Sink(tell))
        finally:
            run.stop()

    async def _rescind(self, offer_id: str, context: RequestContext) -> None:
        """Stop what runs for an offer that the broker took back."""
        self._receiver.rescind(offer_id)
        run: Run[Event] | None = self._receiver.runs.get(offer_id)
        if run is None or run.over or run not in self._firsts:
            return
        first = self._firsts[run]

        async def tell(event: Event) -> None:
            run.say(_renamed(event, first))

        about = RequestContext(context.call_context, task_id=first.task_id, context_id=first.context_id)
        try:
            await self._inner.cancel(about, _Sink(tell))
        finally:
            run.stop()

    async def _once(self, incoming: IncomingHandoff, context: RequestContext, queue: EventQueue) -> None:
        ids = _ids(context)
        receipt_due = not self._receiver.took(incoming)

        async def work(run: Run[Event]) -> None:
            async def record(event: Event) -> None:
                nonlocal receipt_due
                kept = _renamed(event, ids)
                if receipt_due:
                    receipt_due = not _attach_receipt(kept, incoming)
                run.say(kept)

            await self._inner.execute(context, _Sink(record))

        run: Run[Event] = self._receiver.runs.join(incoming.offer_id, work)
        self._firsts.setdefault(run, ids)
        self._runs[ids.task_id] = run
        self._relaying.add(ids)
        try:
            async with aclosing(run.follow()) as events:
                async for event in events:
                    if ids not in self._relaying:
                        return
                    await queue.enqueue_event(_renamed(event, ids))
        except asyncio.CancelledError:
            if not run.followers:  # nobody is left to hear the answer
                run.stop()
            raise
        finally:
            self._relaying.discard(ids)

    async def _follow_up(self, context: RequestContext, queue: EventQueue) -> None:
        run = self._runs.get(context.task_id or "")
        if run is None:
            await self._inner.execute(context, queue)
            return
        ids = _ids(context)

        async def pass_on(event: Event) -> None:
            await queue.enqueue_event(_renamed(event, ids))

        await self._inner.execute(_as_first(context, self._firsts[run]), _Sink(pass_on))


class _Ids(NamedTuple):
    task_id: str
    context_id: str


class _Sink(EventQueue):
    """A queue that calls a function for each event."""

    def __init__(self, sink: Callable[[Event], Awaitable[None]]) -> None:
        self._sink = sink

    async def enqueue_event(self, event: Event) -> None:
        await self._sink(event)


def _message_of(context: RequestContext) -> Json:
    return {} if context.message is None else {"metadata": MessageToDict(context.message.metadata)}


def _rejected(context: RequestContext) -> Task:
    task = Task(id=context.task_id, context_id=context.context_id)
    message = agent_message(VOID, task_id=task.id, context_id=task.context_id)
    task.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_REJECTED, message=message))
    return task


def _ids(context: RequestContext) -> _Ids:
    return _Ids(context.task_id or "", context.context_id or "")


def _as_first(context: RequestContext, first: _Ids) -> RequestContext:
    """The same request, as if it came for the first delivery's task."""
    if _ids(context) == first:
        return context
    request: SendMessageRequest | None = None
    if context.message is not None:
        request = SendMessageRequest(message=context.message, configuration=context.configuration)
        request.metadata.update(context.metadata)
        request.message.task_id, request.message.context_id = first
    task = context.current_task
    return RequestContext(
        call_context=context.call_context,
        request=request,
        task_id=first.task_id,
        context_id=first.context_id,
        task=None if task is None else cast("Task", _renamed(task, first)),
        related_tasks=context.related_tasks,
    )


def _renamed(event: Event, ids: _Ids) -> Event:
    """A copy of the event for another delivery. Never the event itself: the SDK changes what it is given."""
    renamed = copy.deepcopy(event)
    match renamed:
        case Task():
            renamed.id, renamed.context_id = ids
            messages = [*renamed.history, renamed.status.message]
        case TaskStatusUpdateEvent():
            renamed.task_id, renamed.context_id = ids
            messages = [renamed.status.message]
        case TaskArtifactUpdateEvent():
            renamed.task_id, renamed.context_id = ids
            messages = []
        case Message():
            messages = [renamed]
    for message in messages:
        if message.task_id:
            message.task_id = ids.task_id
        if message.context_id:
            message.context_id = ids.context_id
    return renamed


def _attach_receipt(event: Event, incoming: IncomingHandoff) -> bool:
    """Put the receipt on the event's message; false if it has none."""
    match event:
        case Message():
            message = event
        case TaskStatusUpdateEvent() | Task() if event.status.HasField("message"):
            message = event.status.message
        case _:
            return False
    held = cast("dict[str, Any]", MessageToDict(message.metadata).get(EXTENSION_URI) or {})
    message.metadata.update(in_metadata({"receipt": receipt(incoming)}, held))
    if EXTENSION_URI not in message.extensions:
        message.extensions.append(EXTENSION_URI)
    return True
