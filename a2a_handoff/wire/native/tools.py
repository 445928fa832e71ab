"""What the MCP tools take and give: one model for each, which is also its JSON schema.

Rules: names are camelCase, as the tools have them; snake case is read too. Numbers and switches that a model
wrote as text are read; a parameter that is not known is refused, so that a misspelled one is noticed.
Descriptions are read by models: short, with units and limits.
Not here: what the tools do (``transports.mcp``); the checks that the broker makes anyway.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel

WATCH_S = 300
WATCH_MAX_S = 3_600
PROGRESS_S = 5

_ME = "The agent that you are."
_WHICH = "The handoff."


class Taken(BaseModel):
    """Parameters of a tool."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    agent_id: str = Field(default="", description=_ME)


class WatchTaken(Taken):
    """Parameters of ``watch_handoffs``."""

    timeout: float = Field(
        default=WATCH_S, ge=0, le=WATCH_MAX_S, description="Seconds to wait at most; 0 only looks."
    )
    poll_interval: float = Field(
        default=PROGRESS_S,
        ge=0.1,
        le=WATCH_S,
        description="Seconds between progress reports while waiting. A handoff is shown at once, whatever "
        "this is.",
    )
    auto_accept: bool = Field(
        default=True, description="Accept the handoff that comes. If false, call accept_handoff yourself."
    )


class CheckTaken(Taken):
    """Parameters of ``check_handoffs``."""

    handoff_id: str = Field(default="", max_length=200, description="Only this handoff, in full.")
    limit: int = Field(default=10, ge=1, le=100, description="At most so many of each list.")


class WishTaken(Taken):
    """What a task needs: parameters of ``resolve``, and those of ``create_handoff`` too."""

    task: str = Field(default="", description="What is to be done, in words that stand alone.")
    target_agent: str = Field(
        default="", description="A certain agent, by id. Leave it out to let capabilities decide."
    )
    agent_type: str = Field(
        default="", description="browser, code, or a platform such as cowork, cursor, claude-code."
    )
    capabilities: list[str] = Field(
        default_factory=list[str],
        description="What the agent must be able to do: canBrowse, canTestUI, canEditFiles, "
        "canExecuteCode, ...",
    )
    requirements: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="More: skill, domain, tags[], platform, input_modes[], output_modes[].",
    )
    context: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Key facts for the agent: files, names, numbers, references. At most 2,000 tokens in "
        "all.",
    )
    workspace: str = Field(default="", description="Only agents of this workspace; by default yours.")


class CreateTaken(WishTaken):
    """Parameters of ``create_handoff``."""

    task: str = Field(min_length=1, description="What is to be done, in words that stand alone.")
    summary: str = Field(default="", description="What was said so far. By default the task.")
    priority: Literal["low", "normal", "high", "urgent"] = Field(
        default="normal", description="Its place in inboxes."
    )
    mode: Literal["delegate", "transfer"] | None = Field(
        default=None,
        description="With parent: delegate keeps your task yours and brings the result back (the default);"
        " transfer gives your task away.",
    )
    parent: str = Field(default="", description="The handoff that you hold and that this one is a part of.")
    fallback: list[str] = Field(
        default_factory=list[str], description="Agents to ask if targetAgent does not take it."
    )
    deadline: str = Field(default="", description="RFC 3339 time with an offset; 24 hours by default.")
    replay_safe: bool = Field(
        default=False, description="Doing the task twice does no harm, so a lost agent may be replaced."
    )
    idempotency_key: str = Field(
        default="",
        max_length=200,
        description="Any text of yours: the same one again makes no second handoff.",
    )


class OneTaken(Taken):
    """Parameters of ``accept_handoff``, and those of every tool that acts on one handoff."""

    handoff_id: str = Field(min_length=1, max_length=200, description=_WHICH)


class CompleteTaken(OneTaken):
    """Parameters of ``complete_handoff``."""

    result: Any = Field(description="What came of it: text, or any JSON.")


class ReasonTaken(OneTaken):
    """Parameters of ``decline_handoff``, ``fail_handoff``, ``release_handoff`` and ``cancel_handoff``."""

    reason: str = Field(default="", max_length=2_000, description="Why, in words for the sender.")


class ProgressTaken(OneTaken):
    """Parameters of ``handoff_progress``."""

    message: str = Field(min_length=1, description="What is done so far, or the question.")
    state: Literal["working", "input_required", "auth_required"] = Field(
        default="working", description="input_required or auth_required if you wait for the sender."
    )


class BroadcastTaken(Taken):
    """Parameters of ``agent_broadcast``."""

    channel: str = Field(min_length=1, max_length=200, description="Such as general or urgent.")
    message: str = Field(min_length=1, description="What is said.")
    data: dict[str, Any] | None = Field(default=None, description="More, for programs.")
    workspace: str = Field(default="", description="Who hears it; by default your workspace.")


class ListAgentsTaken(BaseModel):
    """Parameters of ``list_agents``; each one narrows the list."""

    model_config = Taken.model_config

    capability: str = Field(default="", description="Only agents that have it, such as canBrowse.")
    platform: str = Field(default="", description="Only agents on it, such as cowork.")
    workspace: str = Field(default="", description="Only agents of it.")
    status: Literal["", "online", "idle", "busy", "draining", "offline"] = Field(
        default="", description="Only agents that are so."
    )


# --- what they give ------------------------------------------------------------------------------


class Given(BaseModel):
    """The structured result of a tool."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True, frozen=True
    )


class Sparse(Given):
    """Written without what is empty, so that a model reads little."""

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value not in ("", None, [], {})}


class HandoffGiven(Sparse):
    """One handoff; what is empty is left out."""

    handoff_id: str
    state: str = Field(
        description="requested or offered: nobody has it yet. acknowledged: at work. input_required, "
        "auth_required: it waits for the sender. completed, failed, canceled, returned, "
        "expired: over."
    )
    task: str = ""
    source_agent: str = Field(default="", description="Who handed it off.")
    assigned_to: str = Field(default="", description="Who was offered it or has it.")
    priority: str = ""
    context: dict[str, Any] | None = Field(default=None, description="The context as its agent gets it.")
    parts: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]], description="More parts of the message, such as files."
    )
    said: str = Field(default="", description="What was said of it last; the question, if its agent asks.")
    news: list[str] = Field(
        default_factory=list[str],
        description="Of a handoff that you hold: what came since you last said something of it.",
    )
    result: Any = Field(default=None, description="What came of it.")
    outcome: str = Field(default="", description="Why it ended badly.")
    detail: str = Field(default="", description="More of that.")
    attempts: list[str] = Field(default_factory=list[str], description="Who was asked, and why not.")
    accepted_by: str = Field(default="", description="Which process of the agent accepted it.")
    parent: str = Field(default="", description="The handoff that it is a part of.")
    children: list[str] = Field(default_factory=list[str], description="Handoffs that are parts of it.")
    deadline: str = ""
    correlation_id: str = ""
    trace_id: str = ""
    warnings: list[str] = Field(default_factory=list[str])


class BroadcastGiven(Sparse):
    """What a workspace was told."""

    channel: str
    message: str
    data: dict[str, Any] | None = None
    source_agent: str = ""
    created_at: str = ""


class WatchGiven(Given):
    """What ``watch_handoffs`` came back with."""

    handoff: HandoffGiven | None = Field(default=None, description="The handoff that came; absent if none.")
    accepted: bool = Field(default=False, description="It is yours now: do it, then call complete_handoff.")
    again: bool = Field(
        default=False, description="You accepted it in an earlier call and have said nothing of it since."
    )
    broadcasts: list[BroadcastGiven] = Field(
        default_factory=list[BroadcastGiven], description="What the workspace was told since the last call."
    )
    next: str = Field(description="What to do now.")


class CheckGiven(Given):
    """What ``check_handoffs`` found."""

    inbox: list[HandoffGiven] = Field(
        default_factory=list[HandoffGiven], description="Offered to you and not accepted, most urgent first."
    )
    accepted: list[HandoffGiven] = Field(
        default_factory=list[HandoffGiven], description="Accepted by you and not finished, newest first."
    )
    sent: list[HandoffGiven] = Field(
        default_factory=list[HandoffGiven], description="Handed off by you, with results, newest first."
    )
    broadcasts: list[BroadcastGiven] = Field(
        default_factory=list[BroadcastGiven], description="What the workspace was told, oldest first."
    )
    handoff: HandoffGiven | None = Field(default=None, description="The one that was asked for.")


class OneGiven(Given):
    """A handoff as it stands after what was done."""

    handoff: HandoffGiven
    next: str = Field(description="What to do now.")


class ToldGiven(Given):
    """A broadcast that was sent."""

    broadcast_id: str
    workspace: str = Field(description="Who hears it.")
    expires_at: str = Field(description="Until when it is kept for agents that come later.")


class AgentGiven(Sparse):
    """One agent."""

    agent_id: str
    status: str
    platform: str = ""
    workspace: str = ""
    role: str = ""
    capabilities: list[str] = Field(default_factory=list[str])
    domains: list[str] = Field(default_factory=list[str])
    skills: list[str] = Field(default_factory=list[str])
    in_flight: int = Field(default=0, description="Handoffs that it has now.")


class AgentsGiven(Given):
    """The agents that fit."""

    agents: list[AgentGiven]


class CandidateGiven(Sparse):
    """An agent, and why."""

    agent_id: str
    reasons: list[str] = Field(default_factory=list[str])


class ResolveGiven(Given):
    """Who would get it."""

    candidates: list[CandidateGiven] = Field(description="In the order in which they would be asked.")
    passed_over: list[CandidateGiven] = Field(description="Who would not be asked, and why.")
    rule: str = Field(default="", description="The routing rule that matched.")
    reason: str = Field(default="", description="Why there is nobody.")
    waits: bool = Field(default=False, description="Agents match, none is present: it would wait for them.")


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, without the titles that pydantic makes of names."""
    return _untitled(model.model_json_schema(by_alias=True))


def _untitled(schema: Any, *, names: bool = False) -> Any:
    """``names``: these are names of fields, one of which may be ``title``."""
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]  # pyright: ignore[reportUnknownVariableType] - JSON
    if not isinstance(schema, dict):
        return schema
    return {
        name: _untitled(value, names=name in ("properties", "$defs"))
        for name, value in schema.items()  # pyright: ignore[reportUnknownVariableType] - JSON
        if names or name != "title"
    }
