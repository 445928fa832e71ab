"""``/mcp``: the tools over streamable HTTP.

Duty: bound and vet a request, then give it to the package ``mcp``, whose server calls the broker's REST
surface within this process.
Rules: no sessions, so any replica answers any call, and a call that runs ends when its connection does.
``mcp`` is an extra and slow to import: it is loaded with the first request, in a thread. Which sites may
call is judged for every path alike before a request comes here (``security.sites``), so the package's own
check of Host and Origin, which knows only fixed lists, is off.
Sources: MCP 2025-06-18 and 2026-07-28, section Transports, streamable HTTP.
Not here: the tools (``tools``), the protocol (``server``), cancels (``exchange``).
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx
from starlette.requests import Request

from a2a_handoff import chores
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import Gate
from a2a_handoff.security.principals import within
from a2a_handoff.transports.asgi import (
    App,
    Bounds,
    ClientGone,
    Receive,
    Scope,
    Send,
    answer,
    headers_of,
    read_body,
    tenant_of,
    text_header,
)
from a2a_handoff.transports.mcp.calls import Caller, Calls
from a2a_handoff.transports.mcp.exchange import Exchanges
from a2a_handoff.transports.mcp.tools import Toolbox
from a2a_handoff.transports.rendering import refuse
from a2a_handoff.wire import faults
from a2a_handoff.wire.envelope import open_object

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from a2a_handoff.transports.mcp.server import Context

DEFAULT_AGENT = "cursor"
INSTALL = "pip install 'a2a-handoff[mcp]'"

#: Where the principal of a request is kept in its scope.
_CALLER = "a2a_handoff.caller"

#: What goes on to the REST surface: who calls, and the trace that the call belongs to.
_PASSED = ("authorization", "traceparent", "tracestate")


class McpSurface:
    """Answers ``/mcp``. ``native`` is the REST surface as an ASGI application, without its telemetry."""

    def __init__(self, native: App, *, gate: Gate, bounds: Bounds) -> None:
        self._native = native
        self._gate = gate
        self._bounds = bounds
        self._opening = asyncio.Lock()
        self._exchanges = Exchanges()
        self._manager: StreamableHTTPSessionManager | None = None
        self._runs: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            if scope["method"] != "POST":
                # Without sessions there is nothing to listen to and nothing to end.
                raise HandoffError(Code.METHOD_NOT_ALLOWED, facts={faults.ALLOW: "POST"})
            headers = headers_of(scope)
            caller = within(await self._gate.admit(text_header(headers, b"authorization")), tenant_of(scope))
            scope = {**scope, _CALLER: caller}
            body = await read_body(receive, headers, self._bounds.size)
            open_object(body, self._bounds.values)
            manager = await self._opened()
        except ClientGone:
            await answer(send, 400, b"")
            return
        except HandoffError as error:
            await refuse(send, faults.problem(error, scope["path"]))
            return
        await self._exchanges.answer(manager.handle_request, body, scope, receive, send)

    async def close(self) -> None:
        """End what still runs."""
        await chores.end(self._runs)

    async def _opened(self) -> StreamableHTTPSessionManager:
        """The manager of the package, made at the first request. Raises ``HandoffError`` (``not_found``)."""
        async with self._opening:
            if self._manager is None:
                try:
                    module = await asyncio.to_thread(
                        importlib.import_module, "a2a_handoff.transports.mcp.server"
                    )
                except ImportError:
                    raise HandoffError(
                        Code.NOT_FOUND, f"This broker lacks the extra mcp. Where it runs: {INSTALL}"
                    ) from None
                self._manager = await self._made(module.make_server)
            return self._manager

    async def _made(self, make_server: Any) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import (  # noqa: PLC0415 - an extra
            StreamableHTTPSessionManager,
        )
        from mcp.server.transport_security import TransportSecuritySettings  # noqa: PLC0415 - an extra

        inside = httpx.ASGITransport(app=self._native)
        http = httpx.AsyncClient(transport=inside, base_url="http://localhost")
        calls = Calls(http, explain=str, patient=False)
        manager = StreamableHTTPSessionManager(
            make_server(Toolbox(calls), _caller_of),
            stateless=True,
            max_request_body_size=self._bounds.size,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        running = asyncio.Event()

        async def run() -> None:
            async with http, manager.run():
                running.set()
                await asyncio.Event().wait()

        self._runs.append(asyncio.create_task(run(), name="mcp"))
        await running.wait()
        return manager


def _caller_of(context: Context) -> Caller:
    """The agent of the token, else the one that the address names.

    The address is ``/mcp?agent=&platform=&workspace=&instance=``.
    """
    request: Request = context.request  # pyright: ignore[reportAssignmentType] - every call comes by HTTP
    query: Mapping[str, str] = request.query_params
    return Caller(
        agent_id=query.get("agent", "") or request.scope[_CALLER].name or DEFAULT_AGENT,
        tenant=tenant_of(request.scope),
        platform=query.get("platform", ""),
        workspace=query.get("workspace", ""),
        instance_id=query.get("instance", ""),
        headers={name: request.headers[name] for name in _PASSED if name in request.headers},
    )
