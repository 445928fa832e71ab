"""The broker's answers as the tools show them: what a model needs, and no more.

Not here: asking (``calls``), the shapes themselves (``wire.native.tools``).
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from a2a_handoff.wire.native.tools import AgentGiven, BroadcastGiven, HandoffGiven

Json = dict[str, Any]

#: Of a handoff among others, so that a list of them does not fill a model's memory.
RESULT_BYTES_MAX = 8_192


def handoff(shown: Json, *, whole: bool = True) -> HandoffGiven:
    """One handoff. Not ``whole``: without what its sender knows, or who has read it before."""
    attempts: list[Json] = shown.get("attempts") or []
    children: list[Json] = shown.get("children") or []
    result, warnings = shown.get("result"), list(shown.get("warnings") or [])
    if not whole and result is not None and len(msgspec.json.encode(result)) > RESULT_BYTES_MAX:
        result = None
        warnings.append("The result is large: read it by check_handoffs with this handoffId.")
    return HandoffGiven(
        handoff_id=shown["handoff_id"],
        state=shown["state"],
        task=shown.get("task", ""),
        source_agent=shown.get("source_agent", ""),
        assigned_to=shown.get("assigned_to", ""),
        priority=shown.get("priority", ""),
        context=shown.get("context") if whole else None,
        parts=_more_parts(shown) if whole else [],
        said=text_of(shown.get("status_message")),
        result=result,
        outcome=shown.get("outcome") or "",
        detail=shown.get("detail", ""),
        attempts=[_attempt(each) for each in attempts if each.get("outcome")],
        accepted_by=attempts[-1].get("instance_id", "") if attempts else "",
        parent=shown.get("parent_handoff_id", ""),
        children=[child["handoff_id"] for child in children],
        deadline=shown.get("deadline") or "",
        correlation_id=shown.get("correlation_id", ""),
        trace_id=shown.get("trace_id", ""),
        warnings=warnings,
    )


def _attempt(attempt: Json) -> str:
    detail = f": {attempt['detail']}" if attempt.get("detail") else ""
    return f"{attempt['agent_id']} {attempt['outcome']}{detail}"


def _more_parts(shown: Json) -> list[Json]:
    """The parts of the message that say more than task and context."""
    message: Json = shown.get("message") or {}
    parts: list[Json] = message.get("parts") or []
    return [
        part
        for part in parts
        if part.get("text") != shown.get("task")
        and cast("Json", part.get("data") or {}).keys() != {"context"}
    ]


def text_of(message: Json | None) -> str:
    """What a message says in words."""
    parts: list[Json] = (message or {}).get("parts") or []
    return "\n".join(str(part["text"]) for part in parts if part.get("text"))


def broadcasts(page: list[Json]) -> list[BroadcastGiven]:
    """What was said, in its order."""
    return [
        BroadcastGiven(
            channel=said["channel"],
            message=said["message"],
            data=said.get("data"),
            source_agent=said.get("source_agent", ""),
            created_at=said.get("created_at", ""),
        )
        for said in page
    ]


def agent(shown: Json) -> AgentGiven:
    """One agent."""
    skills: list[Json] = shown.get("skills") or []
    able: Json = shown.get("capabilities") or {}
    return AgentGiven(
        agent_id=shown["agent_id"],
        status=shown.get("status", ""),
        platform=shown.get("platform", ""),
        workspace=shown.get("workspace", ""),
        role=shown.get("role", ""),
        capabilities=[name for name, has in able.items() if has is True],
        domains=able.get("domains") or [],
        skills=[skill["id"] for skill in skills],
        in_flight=shown.get("in_flight", 0),
    )
