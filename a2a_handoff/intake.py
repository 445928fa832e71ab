"""From what a surface received to the command that creates a handoff.

Duty: who sends, which chain and parent it belongs to, what context travels on, who the candidates are.
Everything that the guards judge comes from the broker's own record; what a caller claims counts only
where the broker has no record, and only if it makes the chain longer.
Not here: parsing (``wire``), deciding (``core.machine``), writing (``ledger``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from a2a_handoff.config import Settings
from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import fold
from a2a_handoff.core.budget import fit
from a2a_handoff.core.context import Dropped, HandoffContext, Mode, Package, Reason, joined_summary
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.events import ParentRef, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.question import Question
from a2a_handoff.core.score import passed_on
from a2a_handoff.core.spans import span_of_holder
from a2a_handoff.core.tracing import InboundTrace, SpanRef, plan_hop
from a2a_handoff.core.triggers import should_handoff
from a2a_handoff.ports import (
    ANONYMOUS,
    ChainTaken,
    Clock,
    Principal,
    RequestKey,
    Store,
    StoreUnavailable,
    TokenCounter,
)
from a2a_handoff.registry import Registry
from a2a_handoff.wire.delivery import delivered_context

_IN_VAIN = frozenset({State.RETURNED, State.FAILED, State.EXPIRED})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The request that brought a message, for its span. ``started_at`` is 0 if there was none.

    ``method`` is that of HTTP, or ``core.spans.GRPC``; ``route`` then service and method.
    """

    method: str = "POST"
    route: str = "/"
    rpc_method: str = ""
    protocol_version: str = ""
    started_at: float = 0.0


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the broker, whatever surface it came by.

    ``message`` is A2A 1.0 JSON. ``task_id`` continues a task; ``alias`` is a task id made by the client
    (first generation). ``key`` overrides the message id for idempotency. ``refusal`` is why it cannot be
    taken, unless it was taken before. ``context_at`` leads to the fields of the context, for those who wrote
    a wrong one.
    """

    message: bytes
    message_id: str
    package: Package
    arrival: Call
    digest: str
    traceparent: str = ""
    tracestate: str = ""
    context_id: str = ""
    task_id: str = ""
    alias: str = ""
    key: str = ""
    references: tuple[str, ...] = ()
    metadata: bytes = b""
    extensions: tuple[str, ...] = ()
    accepted_output_modes: tuple[str, ...] = ()
    surface: str = ""
    face: str = ""
    input_modes: tuple[str, ...] = ()
    workspace: str = ""
    text: str = ""
    refusal: HandoffError | None = None
    context_at: str = "metadata.handoff_context."


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """What ``Ledger.create`` needs. ``reroute`` resolves again, given the agents that are full."""

    request: cmd.Request
    key: RequestKey
    reroute: Callable[[frozenset[str]], ev.Resolution]
    attach: cmd.AttachChild | None = None


class _Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where in which chain the new handoff stands.

    ``summary`` is that of the parent, ``delivered`` the context as the sender was given it.
    """

    correlation_id: str
    hops: int = 0
    path: tuple[str, ...] = ()
    summary: str = ""
    delivered: HandoffContext | None = None
    dropped: tuple[Dropped, ...] = ()
    stored_span: SpanRef | None = None
    known_chain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Turns incoming messages into requests."""

    store: Store
    registry: Registry
    clock: Clock
    counter: TokenCounter
    settings: Settings

    async def take(
        self,
        principal: Principal,
        incoming: Incoming,
        *,
        parent: Handoff | None = None,
        mode: Mode | None = None,
        attempt: int = 0,
        said: bytes = b"",
        target_open: bool = True,
    ) -> Intake:
        """Make the request. ``parent`` is given by a directive, else found; ``said`` is the directive.

        Raises ``HandoffError``: ``invalid_context``, ``context_too_large``, ``context_required``,
        ``parent_ambiguous``, ``forbidden``, ``handoff_not_needed``.
        """
        package = incoming.package
        sender = self._sender(principal, incoming)
        by_call = parent is None
        chain: list[Handoff] = []
        if parent is None:
            parent, chain = await self._find_parent(principal, sender, incoming)
        if parent is not None and parent.children:
            chain = await self.store.chain_handoffs(parent.tenant, parent.correlation_id)
        lineage = await self._lineage(principal, sender, incoming, parent)
        if package.synthesized and (parent is not None or lineage.known_chain):
            raise HandoffError(Code.CONTEXT_REQUIRED)
        handoff_id = self.clock.new_id()
        trace, correlation_id = plan_hop(
            correlation_id=lineage.correlation_id,
            tenant=principal.tenant,
            new_correlation_id=handoff_id,
            inbound=InboundTrace(
                http=incoming.traceparent,
                context=package.options.traceparent,
                tracestate=incoming.tracestate,
                trusted=principal.trusted,
                policy=self.settings.trace_inbound,
            ),
            stored=lineage.stored_span,
            ratio=self.settings.trace_ratio,
            known_chain=lineage.known_chain,
            call=incoming.arrival,
            new_span_id=self.clock.new_span_id,
        )
        package = self._package(package, sender, correlation_id, lineage, incoming)
        package = self._weigh(package, sender, principal)
        resolution = await self._resolved(principal, sender, package, incoming, spread=handoff_id)
        now = self.clock.now()
        mode = mode or package.options.mode or Mode.DELEGATE
        deadline_at = self._deadline(package, parent, now)
        parent_ref = None
        attach = None
        if parent is not None:
            parent_ref = ParentRef(
                handoff_id=parent.id,
                mode=mode,
                deadline_at=parent.deadline_at,
                escalated=parent.escalated,
            )
            attach = cmd.AttachChild(
                child_id=handoff_id,
                mode=mode,
                attempt=attempt,
                agent_id=parent.holder,
                target_open=target_open,
                by_call=by_call,
                context_score=self._passed_on(lineage, incoming, said) if mode is Mode.TRANSFER else None,
            )
        request = cmd.Request(
            handoff_id=handoff_id,
            tenant=principal.tenant,
            sender=sender,
            context_id=incoming.context_id or self.clock.new_id(),
            message=incoming.message,
            message_id=incoming.message_id,
            request_metadata=incoming.metadata,
            extensions=incoming.extensions,
            package=package,
            resolution=resolution,
            policy=self.settings.policy,
            trace=trace,
            deadline_at=deadline_at,
            means=ev.Means(offer_id=self.clock.new_id(), span_id=self.clock.new_span_id()),
            parent=parent_ref,
            workspace=incoming.workspace,
            input_modes=incoming.input_modes,
            accepted_output_modes=incoming.accepted_output_modes,
            surface=incoming.surface,
            face=incoming.face,
            returns_to=sender,
            came_back=_came_back(chain, sender, package),
        )
        key = RequestKey(
            tenant=principal.tenant,
            sender=sender,
            key=incoming.key or incoming.message_id,
            digest=incoming.digest,
            handoff_id=handoff_id,
        )

        def reroute(full: frozenset[str]) -> ev.Resolution:
            return self.resolve(principal, sender, package, incoming, spread=handoff_id, full=full)

        return Intake(request=request, key=key, attach=attach, reroute=reroute)

    async def _resolved(
        self, principal: Principal, sender: str, package: Package, incoming: Incoming, *, spread: str
    ) -> ev.Resolution:
        """Who may take it. If nobody is known here, another broker may have registered somebody just now."""
        if package.context.target_agent:
            await self.registry.find(principal.tenant, package.context.target_agent)
        known = self.registry.revision
        found = self.resolve(principal, sender, package, incoming, spread=spread)
        if not found.candidates:
            with contextlib.suppress(StoreUnavailable):
                await self.registry.catch_up()
            if self.registry.revision != known:
                return self.resolve(principal, sender, package, incoming, spread=spread)
        return found

    def key_of(self, principal: Principal, incoming: Incoming) -> tuple[str, str]:
        """The sender of a message, and the key that makes a repeat of it known."""
        sender = self._sender(principal, incoming)
        return sender, incoming.key or incoming.message_id

    # --- who and where ---------------------------------------------------------------------------

    def _sender(self, principal: Principal, incoming: Incoming) -> str:
        """Who sends, under the id that it is registered by, however it spells that.

        A loop that changes the case of a name with every round is a loop all the same.
        """
        return self.registry.spelled(principal.tenant, self._claimed_sender(principal, incoming))

    @staticmethod
    def _claimed_sender(principal: Principal, incoming: Incoming) -> str:
        """The authenticated name; without authentication, the name that the context claims."""
        claimed = incoming.package.context.source_agent
        if principal.authenticated:
            if claimed and fold(claimed) != fold(principal.name):
                raise HandoffError(
                    Code.FORBIDDEN,
                    f"source_agent is {claimed!r}, but the token is that of {principal.name!r}.",
                    violations=(
                        Violation(f"{incoming.context_at}source_agent", "must be the authenticated sender"),
                    ),
                )
            return principal.name
        return claimed or principal.name or ANONYMOUS

    async def _find_parent(
        self, principal: Principal, sender: str, incoming: Incoming
    ) -> tuple[Handoff | None, list[Handoff]]:
        """The open handoff that the sender holds and continues, if there is one; else what its chain has."""
        options = incoming.package.options
        named = (options.parent_handoff_id, *incoming.references)
        for handoff_id in filter(None, named):
            parent = await self.store.load_handoff(handoff_id)
            if parent is not None and parent.tenant == principal.tenant and parent.holder == sender:
                return parent, []
            if handoff_id == options.parent_handoff_id:
                raise HandoffError(
                    Code.INVALID_CONTEXT,
                    f"parent_handoff_id {handoff_id!r} is not an open handoff that {sender!r} holds.",
                    violations=(
                        Violation(
                            f"{incoming.context_at}parent_handoff_id",
                            "is not an open handoff of the sender",
                        ),
                    ),
                )
        correlation_id = incoming.package.context.correlation_id
        if not correlation_id:
            return None, []
        chain = await self.store.chain_handoffs(principal.tenant, correlation_id)
        held = [h for h in chain if h.holder == sender and h.state is not State.HANDED_OFF]
        if len(held) > 1:
            ids = ", ".join(h.id for h in held)
            raise HandoffError(
                Code.PARENT_AMBIGUOUS,
                f"{sender} holds several open handoffs of this chain: {ids}. "
                "Name one with parent_handoff_id.",
                facts={"handoff_ids": ids},
            )
        return (held[0] if held else None), chain

    async def _lineage(
        self, principal: Principal, sender: str, incoming: Incoming, parent: Handoff | None
    ) -> _Lineage:
        context = incoming.package.context
        if parent is not None:
            if context.correlation_id and context.correlation_id != parent.correlation_id:
                raise HandoffError(
                    Code.INVALID_CONTEXT,
                    "correlation_id differs from that of the parent handoff; it is unchanged in a chain.",
                    violations=(
                        Violation(
                            f"{incoming.context_at}correlation_id",
                            f"must be {parent.correlation_id!r}",
                        ),
                    ),
                )
            first = await self._first_of(parent)
            return _Lineage(
                correlation_id=parent.correlation_id,
                hops=parent.hops_before + 1,
                path=_path_with_holder(parent),
                summary=first.package.context.conversation_summary,
                delivered=self._delivered(parent, first),
                dropped=first.package.dropped,
                stored_span=span_of_holder(parent),
                known_chain=True,
            )
        known = False
        if context.correlation_id:
            try:
                chain = await self.store.find_chain(principal.tenant, context.correlation_id)
            except ChainTaken:
                raise HandoffError(
                    Code.INVALID_CONTEXT,
                    "This correlation_id cannot be used; choose a new one.",
                    violations=(
                        Violation(f"{incoming.context_at}correlation_id", "is not available to you"),
                    ),
                ) from None
            known = chain is not None
        claimed = context.handoff_chain
        path = claimed if claimed and claimed[-1] == sender else (*claimed, sender)
        return _Lineage(
            correlation_id=context.correlation_id,
            hops=max(context.hop_count, len(path) - 1),
            path=path,
            known_chain=known,
        )

    async def _first_of(self, parent: Handoff) -> ev.HandoffRequested:
        event = (await self.store.read_events(parent.id, limit=1))[0].event
        if not isinstance(event, ev.HandoffRequested):
            raise HandoffError(Code.INTERNAL)
        return event

    def _delivered(self, parent: Handoff, first: ev.HandoffRequested) -> HandoffContext | None:
        """The context as the holder was given it: cut to its own limit, if it has one."""
        agent = self.registry.get(parent.tenant, parent.holder)
        return None if agent is None else delivered_context(first, agent, self.counter.count)

    @staticmethod
    def _passed_on(lineage: _Lineage, incoming: Incoming, said: bytes) -> float | None:
        """Who gives a task away shows what it kept of the context; who asks for help need not."""
        if lineage.delivered is None:
            return None
        return passed_on(lineage.delivered, incoming.package.context, said)

    # --- what travels ----------------------------------------------------------------------------

    def _package(
        self, package: Package, sender: str, correlation_id: str, lineage: _Lineage, incoming: Incoming
    ) -> Package:
        """The package as it is stored: names and counts from our record, the summary joined, it fits."""
        given = package.context
        context = replace(
            given,
            correlation_id=correlation_id,
            source_agent=sender,
            target_agent=incoming.face or given.target_agent,
            conversation_summary=joined_summary(
                lineage.summary,
                given.conversation_summary,
                delivered=lineage.delivered.conversation_summary if lineage.delivered else "",
            ),
            hop_count=lineage.hops,
            handoff_chain=lineage.path,
            context_ref=given.context_ref or f"ctx_snap_{lineage.hops + 1}",
        )
        fitted = fit(
            context,
            count=self.counter.count,
            limit=self.settings.token_budget,
            overflow=package.options.context_overflow,
            earlier=lineage.dropped,
            tokenizer=self.counter.name,
        )
        return replace(
            package,
            context=fitted.context,
            tokens=fitted.tokens,
            dropped=fitted.dropped,
            warnings=(*package.warnings, *fitted.warnings),
        )

    def _weigh(self, package: Package, sender: str, principal: Principal) -> Package:
        """The 80 % rule: an agent that says it can finish keeps the task.

        A warning, or a refusal if the operator wants it enforced. An escalation is never held back.
        """
        if package.synthesized or package.context.handoff_reason is Reason.ESCALATION:
            return package
        view = self.registry.view(principal.tenant, sender)
        advice = should_handoff(
            requirements=package.requirements,
            capabilities=package.requirements.capabilities if view is None else view.agent.capabilities,
            signals=package.signals,
            in_flight=0 if view is None else view.in_flight,
            max_concurrency=None if view is None else view.agent.max_concurrency,
        )
        if not advice.not_needed:
            return package
        if self.settings.enforce_triggers:
            raise HandoffError(Code.HANDOFF_NOT_NEEDED)
        return replace(package, warnings=(*package.warnings, "handoff_not_needed: the sender can finish"))

    def _deadline(self, package: Package, parent: Handoff | None, now: float) -> float:
        asked = package.options.deadline_at
        deadline_at = now + self.settings.deadline if asked is None else asked
        return deadline_at if parent is None else min(deadline_at, parent.deadline_at)

    # --- who may take it -------------------------------------------------------------------------

    def resolve(
        self,
        principal: Principal,
        sender: str,
        package: Package,
        incoming: Incoming,
        *,
        spread: str,
        full: frozenset[str] = frozenset(),
    ) -> ev.Resolution:
        """Who may take it, in order, and why the others not. ``full`` agents have no slot left."""
        started_at = self.clock.now()
        resolution = self.registry.resolve(
            Question(
                tenant=principal.tenant,
                package=package,
                sender=sender,
                workspace=incoming.workspace,
                input_modes=incoming.input_modes,
                output_modes=incoming.accepted_output_modes,
                extensions=incoming.extensions,
                text=incoming.text,
                full=full,
                spread=spread,
            )
        )
        return replace(resolution, started_at=started_at)

    def resolve_again(self, h: Handoff, first: ev.HandoffRequested) -> ev.Resolution:
        """Who may take it now that those who were asked did not.

        What was asked for may name an agent that is gone: then there is nobody.
        """
        try:
            return self._resolve_again(h, first)
        except HandoffError:
            return ev.Resolution(reason=ev.Outcome.NO_CAPABLE_AGENT)

    def _resolve_again(self, h: Handoff, first: ev.HandoffRequested) -> ev.Resolution:
        package = first.package
        return self.registry.resolve(
            Question(
                tenant=h.tenant,
                package=package,
                sender=h.sender,
                workspace=h.workspace,
                input_modes=first.input_modes,
                output_modes=first.accepted_output_modes,
                extensions=first.extensions,
                tried=tuple(attempt.agent_id for attempt in h.attempts),
                spread=h.id,
            )
        )


def _path_with_holder(parent: Handoff) -> tuple[str, ...]:
    """The path to the agent that hands on, which is on it also if it has not said *ready* so far."""
    attempt = parent.attempt
    holds = attempt is None or attempt.acked_at is not None
    return parent.path if holds else (*parent.path, parent.holder)


def _came_back(chain: list[Handoff], sender: str, package: Package) -> int:
    """How often in a row this sender asked for the same in this chain, and got nothing."""
    count = 0
    for past in chain:
        if (past.sender, past.requirements, past.target_agent) != (
            sender,
            package.requirements,
            package.context.target_agent,
        ):
            continue
        if past.state in _IN_VAIN:
            count += 1
        elif past.state is State.COMPLETED:
            count = 0
    return count
