"""Every route of the native REST surface, and the OpenAPI document that is made of the same rows.

Not here: the handlers (``rest``, ``live``), the form of the document (``openapi``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from a2a_handoff.core.agents import Status
from a2a_handoff.core.events import State
from a2a_handoff.ports import Gate
from a2a_handoff.security.principals import within
from a2a_handoff.transports.asgi import tenant_of
from a2a_handoff.transports.live import (
    CURSOR,
    EVENTS_MAX,
    POSITION_MAX,
    RESYNC,
    WATCH_MAX_S,
    WATCH_S,
    LiveSurface,
)
from a2a_handoff.transports.native import Done, Handler, on_refusal
from a2a_handoff.transports.openapi import Operation, Parameter, document
from a2a_handoff.transports.rendering import refusal_of
from a2a_handoff.transports.rest import PAGE_MAX, RestSurface
from a2a_handoff.wire import native

#: Where the older clients look for some of the routes below ``/api/handoffs``.
OLD_ROOT = "/ai-api/infrastructure/handoffs"

_ROOT = "/api/handoffs"
_OLD = (
    ("POST", ""),
    ("GET", "/pending"),
    ("GET", "/watch"),
    ("GET", "/{handoff_id}"),
    ("POST", "/{handoff_id}/accept"),
    ("POST", "/{handoff_id}/complete"),
)


def routes(rest: RestSurface, live: LiveSurface, gate: Gate) -> list[Route]:
    """The routes, and the one that describes them."""
    rows = table(rest, live)
    described = document([operation for operation, _ in rows], secured=gate.closed)

    async def openapi(request: Request) -> Response:
        del request
        return Response(described, media_type="application/json")

    served = [_route(operation, _endpoint(handler, gate)) for operation, handler in rows]
    return [*served, Route("/openapi.json", openapi, methods=["GET"])]


def _route(operation: Operation, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    """A row as a route. A correlation id may contain slashes, which arrive decoded.

    Whoever names the route, in a metric say, is told the plain template.
    """
    path = operation.path.replace("{correlation_id}", "{correlation_id:path}")
    route = Route(path, endpoint, methods=[operation.method])
    route.path = operation.path
    return route


def _endpoint(handler: Handler, gate: Gate) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            principal = await gate.admit(request.headers.get("authorization", ""))
            principal = within(principal, tenant_of(request.scope))
            answer = await handler(request, principal)
            return answer.response() if isinstance(answer, Done) else answer
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except Exception as fault:  # noqa: BLE001 - a fault of ours is answered as every other
            return await on_refusal(request, refusal_of(fault))

    return endpoint


_AGENT = Parameter("agent_id", "The agent.", where="path")
_HANDOFF = Parameter("handoff_id", "The handoff.", where="path")
_CARD_ETAG = ("ETag", "What the card is now, for If-None-Match.")
_ETAG = ("ETag", "The version of the handoff, for If-Match and If-None-Match.")
_CHAIN = Parameter("correlation_id", "The chain.", where="path")


_FOUND_BY = (
    Parameter("capability", "Only agents that have it, or a skill or a tag of that name.", repeated=True),
    Parameter("skill", "Only agents that have it, or a tag of that name.", repeated=True),
    Parameter("domain", "Only agents that know it.", repeated=True),
    Parameter("tag", "Only agents with a skill that has it.", repeated=True),
    Parameter("platform", "Only agents on it."),
    Parameter("workspace", "Only agents of it, exactly as it is written."),
    Parameter("role", "agent, human or supervisor."),
)


def _act(verb: str, summary: str) -> Operation:
    return Operation(
        "POST",
        f"/api/handoffs/{{handoff_id}}/{verb}",
        summary,
        parameters=(
            _HANDOFF,
            Parameter("If-Match", "Only if it is still at this ETag.", where="header"),
            Parameter(
                "Prefer", "return=minimal: answered without message, context and artifacts.", where="header"
            ),
        ),
        headers=(_ETAG, ("Preference-Applied", "return=minimal, if that was done.")),
        body=native.ActionIn,
        body_required=False,
        answer=native.HandoffOut,
        errors=(403, 404, 409, 412),
    )


def table(rest: RestSurface, live: LiveSurface) -> list[tuple[Operation, Handler]]:
    """Every operation with its handler. Of two that fit a path the first one serves it."""
    rows: list[tuple[Operation, Handler]] = [
        (
            Operation(
                "GET",
                "/api/agents",
                "List the agents",
                parameters=(*_FOUND_BY, Parameter("status", "In one of these.", words=tuple(Status))),
                answer=native.AgentPage,
            ),
            rest.list_agents,
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
            rest.register_agent,
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
            rest.get_agent,
        ),
        (
            Operation(
                "GET",
                "/api/agents/{agent_id}/card",
                "Read an agent's card as it came",
                parameters=(
                    _AGENT,
                    Parameter(
                        "If-None-Match", "An ETag that the caller has: 304 if it is still so.", where="header"
                    ),
                ),
                status=(200, 304),
                headers=(_CARD_ETAG,),
                errors=(404,),
            ),
            rest.get_agent_card,
        ),
        (
            Operation(
                "DELETE",
                "/api/agents/{agent_id}",
                "Deregister an agent",
                parameters=(
                    _AGENT,
                    Parameter("instance_id", "Only if this process registered it last; else 409."),
                ),
                status=(204,),
                errors=(403, 404, 409),
            ),
            rest.delete_agent,
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
            rest.heartbeat,
        ),
        (
            Operation(
                "POST",
                "/api/handoffs",
                "Hand a task off",
                parameters=(Parameter("Idempotency-Key", "Makes a repeat harmless.", where="header"),),
                body=native.HandoffIn,
                headers=(_ETAG,),
                answer=native.HandoffOut,
                status=(201, 200),
                errors=(409, 503),
            ),
            rest.create_handoff,
        ),
        (
            Operation(
                "GET",
                "/api/handoffs",
                "List handoffs, newest update first",
                parameters=(
                    Parameter("state", "In one of these states.", words=tuple(State)),
                    Parameter("agent", "Sent, offered to or held by this agent."),
                    Parameter("sender", "Sent by this agent."),
                    Parameter("holder", "Offered to or held by this agent."),
                    Parameter("correlation_id", "Of this chain."),
                    Parameter("context_id", "Of this A2A context."),
                    Parameter("include", "With context, result and artifacts of each.", words=("result",)),
                    Parameter("cursor", "next_cursor of the page before."),
                    Parameter(
                        "limit", "At most so many; 50 by default.", kind="integer", least=1, most=PAGE_MAX
                    ),
                ),
                answer=native.HandoffPage,
            ),
            rest.list_handoffs,
        ),
        (
            Operation(
                "GET",
                "/api/handoffs/pending",
                "List what an agent was offered",
                parameters=(Parameter("target", "The agent.", required=True),),
                answer=native.HandoffPage,
            ),
            live.pending_handoffs,
        ),
        (
            Operation(
                "GET",
                "/api/handoffs/watch",
                "Wait for the next offer",
                parameters=(
                    Parameter("agent", "The agent that fetches its work.", required=True),
                    Parameter(
                        "timeout",
                        f"Seconds to wait at most; {WATCH_S:g} by default.",
                        kind="number",
                        most=int(WATCH_MAX_S),
                    ),
                    Parameter(
                        "after", "The cursor of an earlier answer: what that showed is not shown again."
                    ),
                    Parameter("include", "Come back for those too.", words=("broadcasts",)),
                ),
                headers=(
                    (CURSOR, "Pass as after."),
                    (RESYNC, "true: the cursor meant nothing here, so everything is shown again."),
                ),
                answer=(native.OfferOut, native.NewsOut),
                status=(200, 204),
                errors=(404, 429, 503),
            ),
            live.watch,
        ),
        (
            Operation(
                "GET",
                "/api/handoffs/{handoff_id}",
                "Read a handoff",
                parameters=(
                    _HANDOFF,
                    Parameter(
                        "If-None-Match", "An ETag that the caller has: 304 if it is still so.", where="header"
                    ),
                ),
                headers=(_ETAG,),
                answer=native.HandoffOut,
                status=(200, 304),
                errors=(404,),
            ),
            rest.get_handoff,
        ),
        (
            Operation(
                "GET",
                "/api/handoffs/{handoff_id}/events",
                "Read the log of a handoff",
                parameters=(
                    _HANDOFF,
                    Parameter("after", "Events after this seq.", kind="integer", most=2**53),
                    Parameter(
                        "limit", "At most so many; 200 by default.", kind="integer", least=1, most=EVENTS_MAX
                    ),
                    Parameter(
                        "timeout",
                        "Seconds to wait for an event if there is none after that; 0 by default.",
                        kind="number",
                        most=int(WATCH_MAX_S),
                    ),
                ),
                answer=native.EventPage,
                errors=(404, 429, 503),
            ),
            live.get_events,
        ),
        (
            Operation(
                "GET",
                "/api/handoffs/{handoff_id}/webhooks",
                "See how the webhooks of a handoff are doing",
                parameters=(_HANDOFF,),
                answer=native.WebhookPage,
                errors=(404,),
            ),
            rest.list_webhooks,
        ),
        (_act("accept", "Accept an offer"), rest.accept),
        (_act("decline", "Decline an offer"), rest.decline),
        (_act("progress", "Report progress, or ask the caller"), rest.progress),
        (_act("complete", "Complete the task"), rest.complete),
        (_act("fail", "Fail the task"), rest.fail),
        (_act("release", "Give the task back"), rest.release),
        (_act("cancel", "Cancel a handoff"), rest.cancel),
        (
            Operation(
                "GET",
                "/api/chains/{correlation_id}/snapshots/{hop}",
                "Read the context of one hop",
                tag="chains",
                parameters=(
                    _CHAIN,
                    Parameter("hop", "From 1.", where="path", kind="integer", least=1, most=100),
                ),
                errors=(404,),
            ),
            rest.get_snapshot,
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
            rest.get_chain,
        ),
        (
            Operation(
                "POST",
                "/api/resolve",
                "Explain who would get a handoff",
                body=native.HandoffIn,
                answer=native.ResolutionOut,
            ),
            rest.resolve,
        ),
        (
            Operation(
                "POST",
                "/api/broadcasts",
                "Tell every agent of a workspace",
                tag="broadcasts",
                body=native.BroadcastIn,
                answer=native.BroadcastOut,
                status=(201,),
                errors=(403, 503),
            ),
            live.broadcast,
        ),
        (
            Operation(
                "GET",
                "/api/broadcasts",
                "Read what a workspace was told",
                tag="broadcasts",
                parameters=(
                    Parameter(
                        "after", "next_cursor of the page before; without it, everything that is kept."
                    ),
                    Parameter("agent", "As this agent hears it."),
                    Parameter("workspace", "Of this workspace; by default that of the agent."),
                ),
                answer=native.BroadcastPage,
                errors=(404,),
            ),
            live.list_broadcasts,
        ),
        (
            Operation(
                "POST",
                "/api/drain",
                "Take this broker out of service",
                tag="broker",
                parameters=(
                    Parameter(
                        "notice",
                        "Seconds in which it is not ready, but takes tasks as before; by default 5.",
                        kind="number",
                        most=300,
                    ),
                ),
                answer=native.DrainOut,
            ),
            rest.start_drain,
        ),
        (
            Operation(
                "GET",
                "/api/drain",
                "Read how far this broker is out of service",
                tag="broker",
                answer=native.DrainOut,
            ),
            rest.get_drain,
        ),
        (
            Operation(
                "DELETE",
                "/api/drain",
                "Put this broker back into service",
                tag="broker",
                answer=native.DrainOut,
            ),
            rest.end_drain,
        ),
        (
            Operation(
                "GET",
                "/api/events",
                "Follow the log of all handoffs",
                tag="events",
                parameters=(
                    Parameter(
                        "Last-Event-ID",
                        "Goes on after this position; without it, from now on.",
                        where="header",
                        kind="integer",
                        most=POSITION_MAX,
                    ),
                    Parameter(
                        "after",
                        "The same, for those who cannot set the header.",
                        kind="integer",
                        most=POSITION_MAX,
                    ),
                ),
                media_type="text/event-stream",
                errors=(429, 503),
            ),
            live.events,
        ),
        (
            Operation(
                "GET",
                "/api/events/agents",
                "Follow the agents: who is there, then who comes, changes, falls silent or goes",
                tag="events",
                parameters=_FOUND_BY,
                media_type="text/event-stream",
                errors=(429, 503),
            ),
            live.agent_events,
        ),
    ]
    by_name = {(operation.method, operation.path): (operation, handler) for operation, handler in rows}
    for method, path in _OLD:
        operation, handler = by_name[method, _ROOT + path]
        rows.append((replace(operation, path=OLD_ROOT + path, tag="older clients"), handler))
    return rows
