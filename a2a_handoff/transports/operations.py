"""The operations of A2A on the broker, whatever binding and generation they came by.

Duty: from typed params to the broker and back to task views and stream events; which task id a caller
of the first generation knows.
Not here: HTTP and envelopes (``a2a``, ``legacy``), JSON shapes (``wire.tasks``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing

import msgspec
from msgspec.structs import replace

from a2a_handoff.broker import Accepted, HandoffBroker
from a2a_handoff.core.agents import Generation, missing_extensions
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.handoff import Handoff, requested
from a2a_handoff.intake import Call, Incoming
from a2a_handoff.ports import ANONYMOUS, HandoffQuery, Principal, RemoteState, Scope, Webhook
from a2a_handoff.security.quotas import Quotas
from a2a_handoff.transports.expiry import lasting, while_valid
from a2a_handoff.wire.content import digest_of
from a2a_handoff.wire.context import read_package, synthesize
from a2a_handoff.wire.context_reader import Overdue
from a2a_handoff.wire.members import checked_id
from a2a_handoff.wire.requests import (
    CancelParams,
    GetParams,
    ListParams,
    Params,
    PushParams,
    SendParams,
    SubscribeParams,
    push_url_field,
)
from a2a_handoff.wire.tasks import TaskEvent, TaskView, states_of, stream_events

#: Events of a task, those together that were committed together; ``None`` is silence.
Told = AsyncGenerator[Sequence[TaskEvent] | None]


class Asker(msgspec.Struct, kw_only=True):
    """Who asks, and how the request came; ``task_id`` and ``committed`` are what became of it."""

    principal: Principal
    generation: Generation
    call: Call
    surface: str
    face: str = ""
    traceparent: str = ""
    tracestate: str = ""
    extensions: tuple[str, ...] = ()
    key: str = ""
    gone: Callable[[], Awaitable[bool]] | None = None
    task_id: str = ""
    committed: bool = False


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks; ``next`` is the cursor of the next one."""

    tasks: tuple[TaskView, ...]
    next: tuple[float, str] | None
    total: int
    page_size: int


class Operations:
    """What an A2A server can be asked."""

    def __init__(
        self,
        broker: HandoffBroker,
        *,
        quotas: Quotas,
        keepalive_s: float,
        extended_card: Callable[[Principal, str], bytes] | None = None,
    ) -> None:
        self.broker = broker
        self._quotas = quotas
        self._keepalive_s = keepalive_s
        self._extended_card = extended_card

    def extended_card(self, asker: Asker) -> bytes:
        """The card for those who said who they are (A2A 1.0 section 3.1.11).

        Where nobody has to say it, the public card declares no other one. Raises for that
        ``unsupported_operation`` (1.0 section 3.3.4), and ``extended_agent_card_not_configured`` to callers
        of 0.3, which has no other error for it.
        """
        if self._extended_card is None or not asker.principal.authenticated:
            if asker.generation is Generation.V1_0:
                raise HandoffError(
                    Code.UNSUPPORTED_OPERATION, "There is no extended card here. Use the public card."
                )
            raise HandoffError(Code.EXTENDED_CARD_NOT_CONFIGURED)
        return self._extended_card(asker.principal, asker.face)

    def incoming(self, asker: Asker, params: SendParams) -> Incoming:
        """The message with its context, or with a minimal one if it came without."""
        refusal = None
        try:
            package = read_package(params.metadata, params.message_metadata, now=self.broker.now())
        except Overdue as late:
            package, refusal = late.package, late
        if package is None:
            package = synthesize(
                params.message, source_agent=asker.principal.name or ANONYMOUS, target_agent=asker.face
            )
        named = (*asker.extensions, *(e for e in params.extensions if e not in asker.extensions))
        return Incoming(
            message=params.message,
            message_id=params.message_id,
            package=package,
            arrival=asker.call,
            digest=digest_of(params.message, params.request_metadata),
            traceparent=asker.traceparent,
            tracestate=asker.tracestate,
            context_id=params.context_id,
            task_id=params.task_id,
            alias=params.alias,
            key=checked_id(asker.key, "Idempotency-Key"),
            references=params.reference_task_ids,
            metadata=params.request_metadata,
            extensions=named,
            accepted_output_modes=params.accepted_output_modes,
            surface=asker.surface,
            face=asker.face,
            input_modes=params.input_modes,
            text=params.text,
            refusal=refusal,
        )

    def held(self, asker: Asker) -> AbstractContextManager[None]:
        """A stream is open meanwhile. Raises ``HandoffError`` if that is one too many."""
        return self._quotas.hold(asker.principal)

    async def open(self, asker: Asker, params: Params) -> Told:
        """Begin a stream, of whichever of the two kinds. To be called while it is ``held``."""
        match params:
            case SendParams():
                told = await self.stream(asker, params)
            case SubscribeParams():
                told = await self.subscribe(asker, params)
            case _:
                raise HandoffError(Code.INTERNAL)
        return lasting(asker.principal, self.broker.now(), told)

    async def send(self, asker: Asker, params: SendParams) -> TaskView:
        """Send a message; the task when it ends or asks, or at once if the caller wants that."""
        journal = self.broker.journal
        if params.return_immediately:
            accepted = await self._take(asker, params)
            view = await journal.view(accepted.handoff)
        else:
            with self._quotas.hold(asker.principal):
                accepted = await self._take(asker, params)
                waiting = journal.wait(accepted.handoff.id, since=accepted.since, gone=asker.gone)
                view = await while_valid(asker.principal, self.broker.now(), waiting)
        return _named(view, params.alias)

    async def _take(self, asker: Asker, params: SendParams) -> Accepted:
        incoming, webhook = self.incoming(asker, params), None
        self._demand_extensions(asker, incoming)
        if params.push:
            webhook = await self._webhook(asker, params)
        accepted = await self.broker.send(asker.principal, incoming, webhook=webhook)
        asker.task_id = accepted.handoff.id
        asker.committed = accepted.created
        return accepted

    def _demand_extensions(self, asker: Asker, incoming: Incoming) -> None:
        """Who sends to an agent's face speaks what that agent demands (A2A 1.0 section 3.3.4)."""
        agent = self.broker.registry.get(asker.principal.tenant, asker.face) if asker.face else None
        missing = () if agent is None else missing_extensions(agent, incoming.extensions)
        if missing:
            raise HandoffError(
                Code.EXTENSION_SUPPORT_REQUIRED,
                f"The agent demands {', '.join(missing)}. If you speak it, name it in the header "
                "A2A-Extensions or in the extensions of the message.",
                facts={"extensions": ", ".join(missing)},
            )

    async def stream(self, asker: Asker, params: SendParams) -> Told:
        """Send a message and follow its task: the task first, then every event.

        The message is taken, or refused, before this returns.
        """
        accepted = await self._take(asker, params)
        handoff = accepted.handoff
        if accepted.created:
            # From its first event on, so that the caller hears of the first offer too.
            handoff = requested(await self.broker.journal.request_of(handoff.id))
        return self._follow(handoff, alias=params.alias, pauses=accepted.replayed)

    async def subscribe(self, asker: Asker, params: SubscribeParams) -> Told:
        """Follow a task that is under way, from its state now on.

        Raises ``unsupported_operation`` if it has ended (A2A 1.0 section 3.1.6).
        """
        handoff, alias = await self._find(asker, params.task_id)
        if handoff.state.terminal:
            raise HandoffError(
                Code.UNSUPPORTED_OPERATION,
                f"The task has ended as {handoff.state}; read it instead.",
            )
        return self._follow(handoff, alias=alias)

    async def _follow(self, handoff: Handoff, *, alias: str, pauses: bool = False) -> Told:
        """The task, then what is new, to its end or the next question. ``pauses``: or an open one."""
        journal = self.broker.journal
        view, read = await journal.look(handoff)
        yield (_named(view, alias),)
        task_id, context_id = alias or view.id, view.context_id
        if handoff.state.terminal or (pauses and view.state.asks):
            return
        async with aclosing(journal.follow(handoff.id, quiet_s=self._keepalive_s)) as steps:
            async for step in steps:
                if step is None:
                    yield None
                    continue
                if step.after.version <= read.get(step.after.id, 0) or step.comes_back(handoff.id):
                    continue
                told = stream_events(step.before, step.event, step.after, language=view.language)
                if told:
                    yield [replace(event, task_id=task_id, context_id=context_id) for event in told]
                if step.settled:
                    return

    async def get(self, asker: Asker, params: GetParams) -> TaskView:
        """One task."""
        handoff, alias = await self._find(asker, params.task_id)
        return _named(await self.broker.journal.view(handoff), alias)

    async def list(self, asker: Asker, params: ListParams) -> TaskPage:
        """A page of tasks, newest update first (A2A 1.0 section 3.1.4)."""
        principal = asker.principal
        query = HandoffQuery(
            tenant=principal.tenant,
            sender="" if principal.unrestricted else principal.name,
            face=asker.face,
            states=states_of(params.status) if params.status else frozenset(),
            context_id=params.context_id,
            updated_after=params.updated_after,
            before=params.before,
            limit=params.page_size,
        )
        page = await self.broker.list(principal, query)
        views = [await self.broker.journal.view(handoff) for handoff in page.handoffs]
        if not params.include_artifacts:
            views = [replace(view, artifacts=()) for view in views]
        return TaskPage(tasks=tuple(views), next=page.next, total=page.total, page_size=params.page_size)

    async def cancel(self, asker: Asker, params: CancelParams) -> TaskView:
        """Cancel a task; its state is final when this returns.

        Raises ``task_not_cancelable`` if it has ended, or ends otherwise meanwhile.
        """
        asker.principal.require(Scope.SEND)
        handoff, alias = await self._find(asker, params.task_id)
        after = await self.broker.cancel(asker.principal, handoff.id)
        if not after.state.terminal:
            after = await self.broker.journal.ended(handoff.id)
        view = await self.broker.journal.view(after)
        if after.state.terminal and view.state is not RemoteState.CANCELED:
            raise HandoffError(
                Code.TASK_NOT_CANCELABLE, f"The task had ended as {after.state} before it could be canceled."
            )
        return _named(view, alias)

    # --- push configurations ---------------------------------------------------------------------

    async def set_push(self, asker: Asker, params: PushParams) -> Webhook:
        """Set a push configuration of a task of the caller's (A2A 1.0 section 3.1.7)."""
        asker.principal.require(Scope.SEND)
        handoff, alias = await self._find_own(asker, params.task_id)
        webhook = await self._webhook(asker, params)
        return await self.broker.webhooks.add(handoff, webhook, task_id=alias or handoff.id)

    async def get_push(self, asker: Asker, params: PushParams) -> Webhook:
        """One of them; the oldest if none is named, as before 1.0."""
        handoff, _ = await self._find_own(asker, params.task_id)
        return await self.broker.webhooks.get(handoff, params.config_id)

    async def list_push(self, asker: Asker, params: PushParams) -> Sequence[Webhook]:
        """All of them."""
        handoff, _ = await self._find_own(asker, params.task_id)
        return await self.broker.webhooks.list(handoff)

    async def delete_push(self, asker: Asker, params: PushParams) -> None:
        """Remove one of them."""
        asker.principal.require(Scope.SEND)
        handoff, _ = await self._find_own(asker, params.task_id)
        await self.broker.webhooks.remove(handoff, params.config_id)

    async def _webhook(self, asker: Asker, params: PushParams | SendParams) -> Webhook:
        config = params.config if isinstance(params, PushParams) else params.push
        field = push_url_field(params, asker.generation)
        return await self.broker.webhooks.prepare(config, asker.generation, field=field)

    # --- tasks by their names --------------------------------------------------------------------

    async def _find_own(self, asker: Asker, task_id: str) -> tuple[Handoff, str]:
        """As ``_find``, but only what the caller sent itself."""
        handoff, alias = await self._find(asker, task_id)
        return await self.broker.own(asker.principal, handoff.id), alias

    async def _find(self, asker: Asker, task_id: str) -> tuple[Handoff, str]:
        """A task by its own id, or by the one that its client made. Gives the name the client knows."""
        principal = asker.principal
        if asker.generation is not Generation.V1_0:
            handoff = await self.broker.aliased(principal, task_id)
            if handoff is not None:
                return handoff, task_id
        return await self.broker.get(principal, task_id), ""

    async def made_by_client(self, asker: Asker, task_id: str) -> bool:
        """Whether a task id is one that a client of the first generation made."""
        return await self.broker.aliased(asker.principal, task_id) is not None


def _named(view: TaskView, alias: str) -> TaskView:
    return replace(view, id=alias) if alias else view
