"""The native REST surface below ``/api``: agents, handoffs, chains, explanations.

Rules: handlers read the call, ask the service and write what comes back.
Not here: the shapes (``wire.native``), the rules, what waits or streams (``live``), the table of routes
(``routes``).
"""

from __future__ import annotations

from starlette.requests import Request

from a2a_handoff.broker import HandoffBroker
from a2a_handoff.config import Settings
from a2a_handoff.core.agents import Role, Status, fold
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.roster import Facet, Kind
from a2a_handoff.core.text import is_blank, name_fault
from a2a_handoff.drain import NOTICE_MAX_S, Drain
from a2a_handoff.ports import HandoffQuery, Principal, Scope
from a2a_handoff.transports.asgi import Bounds
from a2a_handoff.transports.calls import NativeCalls, Origin, Verb
from a2a_handoff.transports.native import (
    APPLIED,
    Done,
    body_of,
    is_known,
    number,
    seconds,
    tag_of,
    wanted_versions,
    wants_little,
    words,
    wrong,
)
from a2a_handoff.wire import native
from a2a_handoff.wire.broker_card import CARD_CACHING, own_card
from a2a_handoff.wire.delivery import snapshot_json
from a2a_handoff.wire.native import views

PAGE_MAX = 500


class RestSurface:
    """Answers ``/api``."""

    def __init__(
        self, broker: HandoffBroker, calls: NativeCalls, drain: Drain, *, settings: Settings
    ) -> None:
        self._broker = broker
        self._calls = calls
        self._drain = drain
        self._settings = settings
        self._bounds = Bounds.of(settings)

    # --- this broker -----------------------------------------------------------------------------

    async def start_drain(self, request: Request, principal: Principal) -> Done:
        """Take this broker out of service, or say how far that is."""
        self._operator(principal)
        notice_s = seconds(request.query_params.get("notice", "5"), "notice", NOTICE_MAX_S)
        self._drain.begin(notice_s=notice_s)
        return self._drained()

    async def get_drain(self, request: Request, principal: Principal) -> Done:
        """How far this broker is on its way out."""
        del request
        self._operator(principal)
        return self._drained()

    async def end_drain(self, request: Request, principal: Principal) -> Done:
        """Put this broker back into service."""
        del request
        self._operator(principal)
        self._drain.undo()
        return self._drained()

    def _drained(self) -> Done:
        return Done(body=native.DrainOut(stage=self._drain.stage, under_way=self._drain.under_way))

    def _operator(self, principal: Principal) -> None:
        """Raises ``forbidden`` for who is no admin of the broker's own tenant: it serves all of them."""
        principal.require(Scope.ADMIN)
        if principal.authenticated and principal.tenant != self._settings.default_tenant:
            raise HandoffError(Code.FORBIDDEN, "Only an admin of the broker's own tenant may do that.")

    # --- agents ----------------------------------------------------------------------------------

    async def list_agents(self, request: Request, principal: Principal) -> Done:
        """The agents of the tenant that have what is asked for."""
        statuses = words(request.query_params.get("status", ""), "status", frozenset(Status))
        found = [
            views.agent_out(view)
            for view in self._broker.registry.views(principal.tenant, facets_asked(request))
            if not statuses or view.status in statuses
        ]
        return Done(body=native.AgentPage(agents=found, total=len(found)))

    async def register_agent(self, request: Request, principal: Principal) -> Done:
        """Register an agent, or replace its registration."""
        body = native.decode(native.AgentIn, await body_of(request, self._bounds))
        view, new = await self._broker.registry.register(principal, body.registration())
        return Done(body=views.agent_out(view), status=201 if new else 200)

    async def get_agent(self, request: Request, principal: Principal) -> Done:
        """One agent."""
        agent_id = request.path_params["agent_id"]
        await self._broker.registry.find(principal.tenant, agent_id)
        view = self._broker.registry.view(principal.tenant, agent_id)
        if view is None:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {agent_id[:64]!r}.")
        return Done(body=views.agent_out(view))

    async def get_agent_card(self, request: Request, principal: Principal) -> Done:
        """The agent's card as it came, byte for byte."""
        agent_id = request.path_params["agent_id"]
        await self._broker.registry.find(principal.tenant, agent_id)
        view = self._broker.registry.view(principal.tenant, agent_id)
        if view is None or not view.agent.card:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no card of {agent_id[:64]!r}.")
        card, tag = own_card(view.agent)
        headers = {"ETag": tag, "Cache-Control": CARD_CACHING}
        if is_known(request, tag):
            return Done(status=304, headers=headers)
        return Done(body=card, headers=headers)

    async def delete_agent(self, request: Request, principal: Principal) -> Done:
        """Deregister an agent. What it holds goes on."""
        await self._broker.registry.deregister(
            principal,
            request.path_params["agent_id"],
            instance_id=request.query_params.get("instance_id", ""),
        )
        return Done(status=204)

    async def heartbeat(self, request: Request, principal: Principal) -> Done:
        """A sign of life of an agent."""
        body = native.decode(native.HeartbeatIn, await body_of(request, self._bounds))
        view = await self._broker.registry.heartbeat(
            principal, request.path_params["agent_id"], body.status, body.in_flight
        )
        return Done(body=views.agent_out(view))

    # --- handoffs --------------------------------------------------------------------------------

    async def create_handoff(self, request: Request, principal: Principal) -> Done:
        """Hand a task off. Answers at once; follow it by its id."""
        body = native.decode(native.HandoffIn, await body_of(request, self._bounds))
        accepted = await self._calls.create(principal, body, _origin(request))
        return await self._shown(accepted.handoff, status=200 if accepted.replayed else 201)

    async def list_handoffs(self, request: Request, principal: Principal) -> Done:
        """A page of handoffs, newest update first."""
        query = request.query_params
        full = words(query.get("include", ""), "include", frozenset({"result"}))
        page = await self._broker.list(
            principal,
            HandoffQuery(
                tenant=principal.tenant,
                sender=query.get("sender", ""),
                agent=query.get("agent", ""),
                holder=query.get("holder", ""),
                states=_states(query.get("state", "")),
                correlation_id=query.get("correlation_id", ""),
                context_id=query.get("context_id", ""),
                before=views.read_cursor(query.get("cursor", "")),
                limit=number(query.get("limit", "50"), "limit", PAGE_MAX, least=1),
            ),
        )
        return Done(
            body=native.HandoffPage(
                handoffs=[
                    await self._calls.out(h)
                    if full
                    else views.handoff_out(h, trace_url=self._calls.trace_url(h))
                    for h in page.handoffs
                ],
                next_cursor=views.cursor_of(page.next),
                total=page.total,
            )
        )

    async def get_handoff(self, request: Request, principal: Principal) -> Done:
        """One handoff with its context and its result."""
        handoff = await self._broker.get(principal, request.path_params["handoff_id"])
        tag = tag_of(await self._broker.journal.versions(handoff))
        if is_known(request, tag):
            return Done(status=304, headers={"ETag": tag})
        return await self._shown(handoff)

    async def list_webhooks(self, request: Request, principal: Principal) -> Done:
        """Where its sender is told of it, and how that goes."""
        handoff = await self._broker.own(principal, request.path_params["handoff_id"])
        found = await self._broker.webhooks.list(handoff)
        return Done(body=native.WebhookPage(webhooks=[views.webhook_out(webhook) for webhook in found]))

    # --- what agents do --------------------------------------------------------------------------

    async def accept(self, request: Request, principal: Principal) -> Done:
        """Take an offer: this is the ACK."""
        return await self._acted(request, principal, "accept", to_holder=True)

    async def decline(self, request: Request, principal: Principal) -> Done:
        """Refuse an offer; the next candidate is asked."""
        return await self._acted(request, principal, "decline")

    async def progress(self, request: Request, principal: Principal) -> Done:
        """Tell what there is so far, or ask the caller."""
        return await self._acted(request, principal, "progress")

    async def complete(self, request: Request, principal: Principal) -> Done:
        """Finish the task."""
        return await self._acted(request, principal, "complete")

    async def fail(self, request: Request, principal: Principal) -> Done:
        """Say that the task failed."""
        return await self._acted(request, principal, "fail")

    async def release(self, request: Request, principal: Principal) -> Done:
        """Give the task back to its sender."""
        return await self._acted(request, principal, "release")

    async def cancel(self, request: Request, principal: Principal) -> Done:
        """Ask for the end of a handoff."""
        return await self._acted(request, principal, "cancel")

    async def _acted(
        self, request: Request, principal: Principal, verb: Verb, *, to_holder: bool = False
    ) -> Done:
        body = native.decode(native.ActionIn, await body_of(request, self._bounds) or b"{}")
        after = await self._calls.act(
            principal, verb, request.path_params["handoff_id"], body, versions=wanted_versions(request)
        )
        if not wants_little(request):
            return await self._shown(after, to_holder=to_holder)
        tag = tag_of(await self._broker.journal.versions(after))
        short = views.handoff_out(after, trace_url=self._calls.trace_url(after))
        return Done(body=short, headers={"ETag": tag, **APPLIED})

    # --- chains and explanations -----------------------------------------------------------------

    async def get_chain(self, request: Request, principal: Principal) -> Done:
        """Every handoff of one correlation id, oldest first."""
        chain, handoffs = await self._broker.chain(principal, request.path_params["correlation_id"])
        shown = [views.handoff_out(h, trace_url=self._calls.trace_url(h)) for h in handoffs]
        url = self._settings.trace_url(chain.trace_id)
        return Done(body=views.chain_out(chain, shown, trace_url=url))

    async def get_snapshot(self, request: Request, principal: Principal) -> Done:
        """The immutable context of one hop, with its transcript."""
        hop = number(request.path_params["hop"], "hop", 100, least=1)
        _, event = await self._broker.snapshot(principal, request.path_params["correlation_id"], hop)
        return Done(body=snapshot_json(event))

    async def resolve(self, request: Request, principal: Principal) -> Done:
        """Who would get this handoff, and why the others not. Nothing is created."""
        body = native.decode(native.HandoffIn, await body_of(request, self._bounds))
        if not body.text:
            body = body.model_copy(update={"task": "(resolve only)"})
        incoming = self._calls.incoming(body, _origin(request))
        resolution = await self._broker.explain(principal, incoming)
        return Done(body=views.resolution_out(resolution, warnings=incoming.package.warnings))

    # --- shared ----------------------------------------------------------------------------------

    async def _shown(self, handoff: Handoff, *, status: int = 200, to_holder: bool = False) -> Done:
        tag = tag_of(await self._broker.journal.versions(handoff))
        body = await self._calls.out(handoff, to_holder=to_holder)
        return Done(body=body, status=status, headers={"ETag": tag})


#: By which parameters agents are found. What an agent has of each is what it is matched by.
_FACETS = {
    kind.value: kind
    for kind in (
        Kind.CAPABILITY,
        Kind.SKILL,
        Kind.DOMAIN,
        Kind.TAG,
        Kind.PLATFORM,
        Kind.WORKSPACE,
        Kind.ROLE,
    )
}


def facets_asked(request: Request) -> list[Facet]:
    """What agents must have, all of it. Raises ``invalid_params`` for what is no name of anything."""
    asked: list[Facet] = []
    for name, kind in _FACETS.items():
        for value in filter(None, request.query_params.getlist(name)):
            fault = "is blank" if is_blank(value) else name_fault(value)
            if kind is Kind.ROLE and value not in frozenset(Role):
                fault = f"must be of {', '.join(sorted(Role))}"
            if fault:
                raise wrong(name, fault)
            asked.append(Facet(kind, value if kind is Kind.WORKSPACE else fold(value)))
    return asked


def _origin(request: Request) -> Origin:
    return Origin(
        surface="rest",
        method=request.method,
        route=request.url.path,
        key=request.headers.get("idempotency-key", ""),
        traceparent=request.headers.get("traceparent", ""),
        tracestate=request.headers.get("tracestate", ""),
    )


def _states(text: str) -> frozenset[State]:
    return frozenset(map(State, words(text, "state", frozenset(State))))
