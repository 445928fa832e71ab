"""The native REST surface below ``/api``.

Duty: agents, handoffs, chains and explanations as JSON; errors as problem details (RFC 9457).
Rules: every route is a row of ``ROUTES``, which the OpenAPI document is made of too. Handlers read the
body, call the service and write what comes back.
Not here: the shapes (``wire.native``), the rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from a2a_handoff.broker import HandoffBroker
from a2a_handoff.config import Settings
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.events import Output, OutputKind, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.intake import Call, Incoming
from a2a_handoff.ports import HandoffQuery, Principal
from a2a_handoff.security.principals import OpenGate
from a2a_handoff.transports.openapi import Operation, Parameter, document
from a2a_handoff.transports.rendering import refusal_of
from a2a_handoff.wire import faults, native
from a2a_handoff.wire.content import digest_of
from a2a_handoff.wire.context import read_context
from a2a_handoff.wire.delivery import snapshot_json
from a2a_handoff.wire.envelope import open_object
from a2a_handoff.wire.native import views

_PAGE_MAX = 500
_EVENTS_MAX = 1_000

Answer = BaseModel | bytes | None
Handler = Callable[["RestSurface", Request, Principal], Awaitable["Done"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a handler answers: a model, or raw bytes of ``media_type``."""

    body: Answer = None
    status: int = 200
    media_type: str = "application/json"


class RestSurface:
    """Answers ``/api``."""

    def __init__(self, broker: HandoffBroker, *, gate: OpenGate, settings: Settings) -> None:
        self._broker = broker
        self._gate = gate
        self._settings = settings

    def routes(self) -> list[StarletteRoute]:
        """Every row of ``ROUTES`` as a route, and the document that describes them."""
        served = [_route(op, self._endpoint(handler)) for op, handler in ROUTES]
        return [*served, StarletteRoute("/openapi.json", self._openapi, methods=["GET"])]

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                principal = self._gate.admit(request.headers.get("authorization", ""))
                return _response(await handler(self, request, principal))
            except ClientDisconnect:
                return Response(status_code=400)  # nobody is there to read it
            except Exception as fault:  # noqa: BLE001 - a fault of ours is answered as every other
                return await on_refusal(request, refusal_of(fault))

        return endpoint

    async def _openapi(self, request: Request) -> Response:
        del request
        return Response(document([op for op, _ in ROUTES]), media_type="application/json")

    # --- agents ----------------------------------------------------------------------------------

    async def list_agents(self, request: Request, principal: Principal) -> Done:
        """Every agent of the tenant."""
        query = request.query_params
        found = [
            views.agent_out(view)
            for view in self._broker.registry.views(principal.tenant)
            if (not query.get("capability") or query["capability"] in view.agent.capabilities)
            and (not query.get("workspace") or query["workspace"] == view.agent.workspace)
            and (not query.get("status") or query["status"] == view.status.value)
            and (not query.get("platform") or query["platform"] == view.agent.platform)
        ]
        return Done(body=native.AgentPage(agents=found, total=len(found)))

    async def register_agent(self, request: Request, principal: Principal) -> Done:
        """Register an agent, or replace its registration."""
        body = native.decode(native.AgentIn, await self._body(request))
        view, new = await self._broker.registry.register(principal, body.registration())
        return Done(body=views.agent_out(view), status=201 if new else 200)

    async def get_agent(self, request: Request, principal: Principal) -> Done:
        """One agent."""
        agent_id = request.path_params["agent_id"]
        view = self._broker.registry.view(principal.tenant, agent_id)
        if view is None:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {agent_id[:64]!r}.")
        return Done(body=views.agent_out(view))

    async def get_agent_card(self, request: Request, principal: Principal) -> Done:
        """The agent's card as it came, byte for byte."""
        agent_id = request.path_params["agent_id"]
        view = self._broker.registry.view(principal.tenant, agent_id)
        if view is None or not view.agent.card:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no card of {agent_id[:64]!r}.")
        return Done(body=view.agent.card)

    async def delete_agent(self, request: Request, principal: Principal) -> Done:
        """Deregister an agent. What it holds goes on."""
        await self._broker.registry.deregister(principal, request.path_params["agent_id"])
        return Done(status=204)

    async def heartbeat(self, request: Request, principal: Principal) -> Done:
        """A sign of life of an agent."""
        body = native.decode(native.HeartbeatIn, await self._body(request))
        view = await self._broker.registry.heartbeat(
            principal, request.path_params["agent_id"], body.status, body.in_flight
        )
        return Done(body=views.agent_out(view))

    # --- handoffs --------------------------------------------------------------------------------

    async def create_handoff(self, request: Request, principal: Principal) -> Done:
        """Hand a task off. Answers at once; follow it by its id."""
        body = native.decode(native.HandoffIn, await self._body(request))
        incoming = self._incoming(request, body)
        accepted = await self._broker.send(principal, incoming)
        return Done(body=await self._out(accepted.handoff), status=200 if accepted.replayed else 201)

    def _incoming(self, request: Request, body: native.HandoffIn) -> Incoming:
        now = self._broker.now()
        message_id = body.message_id or request.headers.get("idempotency-key", "") or self._broker.new_id()
        message = body.message_json(message_id)
        package = read_context(body.handoff_context(), path="", now=now)
        return Incoming(
            message=message,
            message_id=message_id,
            package=package,
            arrival=Call(method=request.method, route=request.url.path, started_at=now),
            digest=digest_of(message, body.handoff_context()),
            traceparent=request.headers.get("traceparent", ""),
            tracestate=request.headers.get("tracestate", ""),
            context_id=body.context_id,
            key=request.headers.get("idempotency-key", ""),
            metadata=msgspec.json.encode({"handoff_context": msgspec.Raw(body.handoff_context())}),
            surface="rest",
            workspace=body.workspace,
        )

    async def list_handoffs(self, request: Request, principal: Principal) -> Done:
        """A page of handoffs, newest update first."""
        query = request.query_params
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
                limit=_count(query.get("limit", "50"), "limit", _PAGE_MAX),
            ),
        )
        return Done(
            body=native.HandoffPage(
                handoffs=[views.handoff_out(h, trace_url=self._trace_url(h)) for h in page.handoffs],
                next_cursor=views.cursor_of(page.next),
                total=page.total,
            )
        )

    async def pending_handoffs(self, request: Request, principal: Principal) -> Done:
        """What an agent was offered and has not accepted, the most urgent first."""
        target = request.query_params.get("target", "")
        if not target:
            raise _missing("target")
        inbox = await self._broker.inbox(principal, target)
        found = [await self._out(handoff) for handoff in inbox[:_PAGE_MAX]]
        return Done(body=native.HandoffPage(handoffs=found, next_cursor=None, total=len(inbox)))

    async def get_handoff(self, request: Request, principal: Principal) -> Done:
        """One handoff with its context and its result."""
        handoff = await self._broker.get(principal, request.path_params["handoff_id"])
        return Done(body=await self._out(handoff))

    async def get_events(self, request: Request, principal: Principal) -> Done:
        """The log of one handoff as CloudEvents, from a cursor on."""
        query = request.query_params
        after = _count(query.get("after", "0"), "after", 2**53)
        limit = _count(query.get("limit", "200"), "limit", _EVENTS_MAX)
        recorded = await self._broker.events(
            principal, request.path_params["handoff_id"], after=after, limit=limit
        )
        more = recorded[-1].seq if len(recorded) == limit else None
        return Done(
            body=native.EventPage(events=[views.event_out(item) for item in recorded], next_cursor=more)
        )

    # --- what agents do --------------------------------------------------------------------------

    async def accept(self, request: Request, principal: Principal) -> Done:
        """Take an offer: this is the ACK."""
        handoff_id, body = await self._action(request)
        after = await self._broker.accept(
            principal, handoff_id, body.agent_id, body.attempt, receipt=bytes(body.receipt or b"")
        )
        return Done(body=await self._out(after))

    async def decline(self, request: Request, principal: Principal) -> Done:
        """Refuse an offer; the next candidate is asked."""
        handoff_id, body = await self._action(request)
        after = await self._broker.decline(principal, handoff_id, body.agent_id, body.attempt, body.reason)
        return Done(body=await self._out(after))

    async def progress(self, request: Request, principal: Principal) -> Done:
        """Tell what there is so far, or ask the caller."""
        handoff_id, body = await self._action(request)
        message = body.message_json(self._broker.new_id())
        outputs = _outputs(body, handoff_id)
        if body.state == "working":
            said = (Output(kind=OutputKind.STATUS, body=message),) if message else ()
            after = await self._broker.progress(
                principal, handoff_id, body.agent_id, body.attempt, (*outputs, *said)
            )
        else:
            after = await self._broker.ask(
                principal,
                handoff_id,
                body.agent_id,
                body.attempt,
                auth=body.state == "auth_required",
                message=message,
                outputs=outputs,
            )
        return Done(body=await self._out(after))

    async def complete(self, request: Request, principal: Principal) -> Done:
        """Finish the task."""
        handoff_id, body = await self._action(request)
        after = await self._broker.complete(
            principal,
            handoff_id,
            body.agent_id,
            body.attempt,
            message=body.message_json(self._broker.new_id()),
            outputs=_outputs(body, handoff_id),
        )
        return Done(body=await self._out(after))

    async def fail(self, request: Request, principal: Principal) -> Done:
        """Say that the task failed."""
        handoff_id, body = await self._action(request)
        after = await self._broker.fail(principal, handoff_id, body.agent_id, body.attempt, body.reason)
        return Done(body=await self._out(after))

    async def release(self, request: Request, principal: Principal) -> Done:
        """Give the task back to its sender."""
        handoff_id, body = await self._action(request)
        after = await self._broker.release(principal, handoff_id, body.agent_id, body.attempt, body.reason)
        return Done(body=await self._out(after))

    async def cancel(self, request: Request, principal: Principal) -> Done:
        """Ask for the end of a handoff."""
        handoff_id, body = await self._action(request)
        return Done(body=await self._out(await self._broker.cancel(principal, handoff_id, body.reason)))

    async def _action(self, request: Request) -> tuple[str, native.ActionIn]:
        body = await self._body(request)
        return request.path_params["handoff_id"], native.decode(native.ActionIn, body or b"{}")

    # --- chains and explanations -----------------------------------------------------------------

    async def get_chain(self, request: Request, principal: Principal) -> Done:
        """Every handoff of one correlation id, oldest first."""
        chain, handoffs = await self._broker.chain(principal, request.path_params["correlation_id"])
        shown = [views.handoff_out(h, trace_url=self._trace_url(h)) for h in handoffs]
        url = self._settings.trace_url(chain.trace_id)
        return Done(body=views.chain_out(chain, shown, trace_url=url))

    async def get_snapshot(self, request: Request, principal: Principal) -> Done:
        """The immutable context of one hop, with its transcript."""
        hop = _count(request.path_params["hop"], "hop", 100)
        _, event = await self._broker.snapshot(principal, request.path_params["correlation_id"], hop)
        return Done(body=snapshot_json(event))

    async def resolve(self, request: Request, principal: Principal) -> Done:
        """Who would get this handoff, and why the others not. Nothing is created."""
        body = native.decode(native.HandoffIn, await self._body(request))
        if not body.text:
            body = body.model_copy(update={"task": "(resolve only)"})
        incoming = self._incoming(request, body)
        resolution = await self._broker.explain(principal, incoming)
        return Done(body=views.resolution_out(resolution, warnings=incoming.package.warnings))

    # --- shared ----------------------------------------------------------------------------------

    async def _out(self, handoff: Handoff) -> native.HandoffOut:
        first = await self._broker.journal.request_of(handoff.id)
        view = await self._broker.journal.view(handoff)
        return views.handoff_out(
            handoff,
            first,
            trace_url=self._trace_url(handoff),
            tokenizer=self._broker.tokenizer,
            status_message=view.status_message,
            artifacts=view.artifacts,
        )

    def _trace_url(self, handoff: Handoff) -> str:
        return self._settings.trace_url(handoff.trace.trace_id)

    async def _body(self, request: Request) -> bytes:
        limit = self._settings.max_body
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise HandoffError(
                    Code.PAYLOAD_TOO_LARGE,
                    f"The body is larger than {limit} bytes.",
                    facts={"limit_bytes": str(limit)},
                )
            parts.append(part)
        body = b"".join(parts)
        if body:
            open_object(body)
        return body


def _route(operation: Operation, endpoint: Callable[[Request], Awaitable[Response]]) -> StarletteRoute:
    """A row as a route. A correlation id may contain slashes, which arrive decoded.

    Whoever names the route, in a metric say, is told the plain template.
    """
    path = operation.path.replace("{correlation_id}", "{correlation_id:path}")
    route = StarletteRoute(path, endpoint, methods=[operation.method])
    route.path = operation.path
    return route


def _response(done: Done) -> Response:
    match done.body:
        case None:
            return Response(status_code=done.status)
        case bytes() as raw:
            return Response(raw, status_code=done.status, media_type=done.media_type)
        case model:
            return Response(native.encode(model), status_code=done.status, media_type=done.media_type)


def _outputs(body: native.ActionIn, handoff_id: str) -> tuple[Output, ...]:
    return tuple(
        Output(kind=OutputKind.ARTIFACT, body=artifact, artifact_id=_artifact_id(artifact))
        for artifact in body.artifact_jsons(f"{handoff_id}-result")
    )


class _Artifact(msgspec.Struct):
    artifactId: str  # noqa: N815 - the name of A2A


def _artifact_id(artifact: bytes) -> str:
    try:
        return msgspec.json.decode(artifact, type=_Artifact).artifactId
    except msgspec.MsgspecError:
        raise HandoffError(
            Code.INVALID_PARAMS,
            "An artifact needs an artifactId.",
            violations=(Violation("artifacts", "each must be an A2A 1.0 artifact with an artifactId"),),
        ) from None


def _states(words: str) -> frozenset[State]:
    found: set[State] = set()
    for word in filter(None, words.split(",")):
        try:
            found.add(State(word))
        except ValueError:
            known = ", ".join(State)
            raise HandoffError(
                Code.INVALID_PARAMS,
                f"There is no state {word[:32]!r}; there are {known}.",
                violations=(Violation("state", f"must be of {known}"),),
            ) from None
    return frozenset(found)


def _count(text: str, name: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > most:
        raise HandoffError(
            Code.INVALID_PARAMS,
            f"{name} must be a number from 0 to {most}.",
            violations=(Violation(name, f"must be a number from 0 to {most}"),),
        )
    return int(text)


def _missing(name: str) -> HandoffError:
    return HandoffError(
        Code.INVALID_PARAMS, f"{name} is missing.", violations=(Violation(name, "is missing"),)
    )


_AGENT = Parameter("agent_id", "The agent.", where="path")
_HANDOFF = Parameter("handoff_id", "The handoff.", where="path")
_CHAIN = Parameter("correlation_id", "The chain.", where="path")


def _act(verb: str, summary: str) -> Operation:
    return Operation(
        "POST",
        f"/api/handoffs/{{handoff_id}}/{verb}",
        summary,
        parameters=(_HANDOFF,),
        body=native.ActionIn,
        body_required=False,
        answer=native.HandoffOut,
        errors=(403, 404, 409),
    )


ROUTES: Sequence[tuple[Operation, Handler]] = (
    (
        Operation(
            "GET",
            "/api/agents",
            "List the agents",
            parameters=(
                Parameter("capability", "Only agents that have it."),
                Parameter("workspace", "Only agents of it."),
                Parameter("platform", "Only agents on it."),
                Parameter("status", "online, idle, busy, draining or offline."),
            ),
            answer=native.AgentPage,
        ),
        RestSurface.list_agents,
    ),
    (
        Operation(
            "POST",
            "/api/agents",
            "Register an agent",
            body=native.AgentIn,
            answer=native.AgentOut,
            status=(201, 200),
            errors=(403,),
        ),
        RestSurface.register_agent,
    ),
    (
        Operation(
            "GET",
            "/api/agents/{agent_id}",
            "Read an agent",
            parameters=(_AGENT,),
            answer=native.AgentOut,
            errors=(404,),
        ),
        RestSurface.get_agent,
    ),
    (
        Operation(
            "GET",
            "/api/agents/{agent_id}/card",
            "Read an agent's card as it came",
            parameters=(_AGENT,),
            errors=(404,),
        ),
        RestSurface.get_agent_card,
    ),
    (
        Operation(
            "DELETE",
            "/api/agents/{agent_id}",
            "Deregister an agent",
            parameters=(_AGENT,),
            status=(204,),
            errors=(403, 404),
        ),
        RestSurface.delete_agent,
    ),
    (
        Operation(
            "POST",
            "/api/agents/{agent_id}/heartbeat",
            "Give a sign of life",
            parameters=(_AGENT,),
            body=native.HeartbeatIn,
            body_required=False,
            answer=native.AgentOut,
            errors=(403, 404),
        ),
        RestSurface.heartbeat,
    ),
    (
        Operation(
            "POST",
            "/api/handoffs",
            "Hand a task off",
            parameters=(Parameter("Idempotency-Key", "Makes a repeat harmless.", where="header"),),
            body=native.HandoffIn,
            answer=native.HandoffOut,
            status=(201, 200),
            errors=(409, 503),
        ),
        RestSurface.create_handoff,
    ),
    (
        Operation(
            "GET",
            "/api/handoffs",
            "List handoffs, newest update first",
            parameters=(
                Parameter("state", "States, separated by commas."),
                Parameter("agent", "Sent, offered to or held by this agent."),
                Parameter("sender", "Sent by this agent."),
                Parameter("holder", "Offered to or held by this agent."),
                Parameter("correlation_id", "Of this chain."),
                Parameter("context_id", "Of this A2A context."),
                Parameter("cursor", "next_cursor of the page before."),
                Parameter("limit", "At most so many; 50 by default.", kind="integer", most=_PAGE_MAX),
            ),
            answer=native.HandoffPage,
        ),
        RestSurface.list_handoffs,
    ),
    (
        Operation(
            "GET",
            "/api/handoffs/pending",
            "List what an agent was offered",
            parameters=(Parameter("target", "The agent.", required=True),),
            answer=native.HandoffPage,
        ),
        RestSurface.pending_handoffs,
    ),
    (
        Operation(
            "GET",
            "/api/handoffs/{handoff_id}",
            "Read a handoff",
            parameters=(_HANDOFF,),
            answer=native.HandoffOut,
            errors=(404,),
        ),
        RestSurface.get_handoff,
    ),
    (
        Operation(
            "GET",
            "/api/handoffs/{handoff_id}/events",
            "Read the log of a handoff",
            parameters=(
                _HANDOFF,
                Parameter("after", "Events after this seq.", kind="integer", most=2**53),
                Parameter("limit", "At most so many; 200 by default.", kind="integer", most=_EVENTS_MAX),
            ),
            answer=native.EventPage,
            errors=(404,),
        ),
        RestSurface.get_events,
    ),
    (_act("accept", "Accept an offer"), RestSurface.accept),
    (_act("decline", "Decline an offer"), RestSurface.decline),
    (_act("progress", "Report progress, or ask the caller"), RestSurface.progress),
    (_act("complete", "Complete the task"), RestSurface.complete),
    (_act("fail", "Fail the task"), RestSurface.fail),
    (_act("release", "Give the task back"), RestSurface.release),
    (_act("cancel", "Cancel a handoff"), RestSurface.cancel),
    (
        Operation(
            "GET",
            "/api/chains/{correlation_id}/snapshots/{hop}",
            "Read the context of one hop",
            tag="chains",
            parameters=(_CHAIN, Parameter("hop", "From 1.", where="path", kind="integer", most=100)),
            errors=(404,),
        ),
        RestSurface.get_snapshot,
    ),
    (
        Operation(
            "GET",
            "/api/chains/{correlation_id}",
            "Read a chain",
            tag="chains",
            parameters=(_CHAIN,),
            answer=native.ChainOut,
            errors=(404,),
        ),
        RestSurface.get_chain,
    ),
    (
        Operation(
            "POST",
            "/api/resolve",
            "Explain who would get a handoff",
            body=native.HandoffIn,
            answer=native.ResolutionOut,
        ),
        RestSurface.resolve,
    ),
)


async def on_refusal(request: Request, error: Exception) -> Response:
    """A refused call as problem details."""
    if isinstance(error, HTTPException):
        code = Code.METHOD_NOT_ALLOWED if error.status_code == 405 else Code.NOT_FOUND
        error = HandoffError(code)
    if not isinstance(error, HandoffError):
        error = HandoffError(Code.INTERNAL)
    refusal = faults.problem(error, request.url.path)
    return Response(
        refusal.body,
        status_code=refusal.status,
        media_type=refusal.media_type,
        headers=dict(refusal.headers),
    )
