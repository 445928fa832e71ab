"""The tools as an MCP server.

Duty: list and call the tools in the words of the protocol: schemas, structured results, tool errors,
progress; ``_meta.traceparent`` of a call goes on as the header ``traceparent``.
Rules: imports ``mcp``, an extra; whoever needs this module imports it late. What a tool refuses is a result
with ``isError``, which a model reads; only an unknown tool is an error of the protocol.
Sources: MCP 2025-06-18 and 2026-07-28, section Tools; SEP-414 (trace context in ``_meta``).
Not here: transports (``surface``, ``cli.mcp``).
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from a2a_handoff import __version__
from a2a_handoff.core.errors import ERRORS, Code, Violation
from a2a_handoff.transports.mcp.calls import Caller, Refused
from a2a_handoff.transports.mcp.tools import INSTRUCTIONS, TOOLS, Tool, Toolbox
from a2a_handoff.wire.native.tools import schema_of

_LOG = logging.getLogger("a2a_handoff.mcp")

Context = ServerRequestContext[Any, Any]

_BY_NAME = {tool.name: tool for tool in TOOLS}
_FAULTS = {"missing": "is missing", "extra_forbidden": "is not known here"}
_TRACE = ("traceparent", "tracestate")


def make_server(toolbox: Toolbox, caller_of: Callable[[Context], Caller]) -> Server[Any]:
    """A server of the tools. ``caller_of`` says which agent a request is from."""

    async def list_tools(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del params
        agent_id = caller_of(context).agent_id
        return types.ListToolsResult(tools=[_listed(tool, agent_id) for tool in TOOLS])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = _BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:64]!r}.")
        try:
            return _result(
                await tool.run(toolbox, _caller(caller_of(context), context), _taken(tool, params))
            )
        except Refused as refused:
            return _refusal(refused)
        except Exception:  # noqa: BLE001 - a fault of ours is answered as every other
            _LOG.exception("the tool %s failed", tool.name)
            return _refusal(Refused(Code.INTERNAL.value, ERRORS[Code.INTERNAL].meaning))

    server: Server[Any] = Server(
        "a2a-handoff",
        version=__version__,
        title="Agent handoffs",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.middleware.clear()  # its spans would stand beside those of the broker, which has its own rules
    return server


def _listed(tool: Tool, agent_id: str) -> types.Tool:
    taken = schema_of(tool.taken)
    if "agentId" in taken["properties"]:
        taken["properties"]["agentId"]["default"] = agent_id
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=taken,
        output_schema=schema_of(tool.given),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.changes,
            destructive_hint=tool.ends,
            idempotent_hint=tool.repeatable,
            open_world_hint=False,
        ),
    )


def _caller(caller: Caller, context: Context) -> Caller:
    """The caller with what belongs to this call: its trace and its progress."""
    meta: Mapping[str, Any] = context.meta or {}
    trace = {name: meta[name] for name in _TRACE if isinstance(meta.get(name), str)}
    if any(not value.isascii() or not value.isprintable() for value in trace.values()):
        trace = {}

    async def report(done: float, total: float, message: str) -> None:
        with contextlib.suppress(Exception):  # whoever left is noticed by the transport
            await context.session.report_progress(done, total, message)

    return replace(caller, headers={**caller.headers, **trace}, report=report)


def _taken(tool: Tool, params: types.CallToolRequestParams) -> BaseModel:
    try:
        return tool.taken.model_validate(params.arguments or {})
    except ValidationError as error:
        wrong = tuple(
            Violation(".".join(map(str, fault["loc"])), _FAULTS.get(fault["type"], fault["msg"]))
            for fault in error.errors(include_url=False, include_input=False, include_context=False)
        )
        text = f"Wrong arguments of {tool.name}."
        raise Refused(Code.INVALID_PARAMS.value, text, violations=wrong) from None


def _result(given: BaseModel) -> types.CallToolResult:
    """The structure, and the same as text for clients that show models nothing else."""
    content = given.model_dump(mode="json", by_alias=True, exclude_none=True)
    text = json.dumps(content, ensure_ascii=False)
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=content)


def _refusal(refused: Refused) -> types.CallToolResult:
    said: dict[str, Any] = {
        "code": refused.code,
        "message": refused.message,
        "retryable": refused.retryable,
        "remedy": refused.remedy,
        "violations": [{"field": v.field, "description": v.description} for v in refused.violations],
        "facts": refused.facts,
    }
    error = {name: value for name, value in said.items() if value not in ("", [], {})}
    return types.CallToolResult(
        content=[types.TextContent(text=str(refused))], structured_content={"error": error}, is_error=True
    )
