"""The tools: their names, what models read of them, and what each one asks of the broker.

Rules: a tool is one or a few REST calls; every check and every refusal is the broker's. A tool that acts
may be called again: the broker takes an act once.
Not here: waiting (``watching``), the shapes (``wire.native.tools``), the protocol (``server``).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from a2a_handoff.transports.mcp import shown
from a2a_handoff.transports.mcp.calls import Caller, Calls, segment
from a2a_handoff.transports.mcp.watching import Watching
from a2a_handoff.wire.native import tools as shapes

#: What a server says of itself to models that connect.
INSTRUCTIONS = """\
Work with other agents through handoffs. To wait for work call watch_handoffs; it accepts what comes. Do it, \
then call complete_handoff with the result (or handoff_progress, release_handoff, fail_handoff). To give \
work to others call create_handoff with a task that stands alone; read results with check_handoffs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. ``run`` raises ``Refused``.

    ``changes``: it changes something, ``ends``: what it does cannot be taken back. ``repeatable``: calling
    it again with the same arguments changes nothing more.
    """

    name: str
    title: str
    description: str
    taken: type[BaseModel]
    given: type[BaseModel]
    run: Callable[[Toolbox, Caller, Any], Awaitable[BaseModel]]
    changes: bool = True
    ends: bool = False
    repeatable: bool = True


class Toolbox:
    """What the tools do, for every agent that calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._watching = Watching(calls)

    # --- looking ---------------------------------------------------------------------------------

    async def watch(self, caller: Caller, taken: shapes.WatchTaken) -> shapes.WatchGiven:
        """Wait for work."""
        return await self._watching.watch_handoffs(caller, taken)

    async def check(self, caller: Caller, taken: shapes.CheckTaken) -> shapes.CheckGiven:
        """What there is now."""
        agent_id = taken.agent_id or caller.agent_id
        if taken.handoff_id:
            one = await self._calls.get(caller, f"/api/handoffs/{segment(taken.handoff_id)}")
            return shapes.CheckGiven(handoff=await self._with_news(caller, one.body))
        inbox, held, sent, told = await asyncio.gather(
            self._calls.get(caller, "/api/handoffs/pending", {"target": agent_id}),
            self._watching.held(caller, agent_id, taken.limit),
            self._calls.get(
                caller, "/api/handoffs", {"sender": agent_id, "include": "result", "limit": taken.limit}
            ),
            self._told(caller, agent_id, taken.limit),
        )
        return shapes.CheckGiven(
            inbox=[shown.handoff(each) for each in inbox.body["handoffs"][: taken.limit]],
            accepted=[await self._with_news(caller, each) for each in held],
            sent=[shown.handoff(each, whole=False) for each in sent.body["handoffs"]],
            broadcasts=shown.broadcasts(told),
        )

    async def _with_news(self, caller: Caller, one: dict[str, Any]) -> shapes.HandoffGiven:
        held = await self._watching.news_of(caller, one["handoff_id"])
        return shown.handoff(one).model_copy(update={"news": list(held.news)})

    async def _told(self, caller: Caller, agent_id: str, limit: int) -> list[dict[str, Any]]:
        """The latest broadcasts. Pages begin with the oldest."""
        latest: list[dict[str, Any]] = []
        after = ""
        while True:
            asked = {"agent": agent_id, "after": after, "workspace": caller.workspace}
            page = (await self._calls.get(caller, "/api/broadcasts", asked)).body
            if not page["broadcasts"]:
                return latest
            latest = [*latest, *page["broadcasts"]][-limit:]
            after = page["next_cursor"]

    async def agents(self, caller: Caller, taken: shapes.ListAgentsTaken) -> shapes.AgentsGiven:
        """Who there is."""
        page = await self._calls.get(caller, "/api/agents", taken.model_dump())
        return shapes.AgentsGiven(agents=[shown.agent(each) for each in page.body["agents"]])

    async def resolve(self, caller: Caller, taken: shapes.WishTaken) -> shapes.ResolveGiven:
        """Who would get a task."""
        asked = _wish(caller, taken)
        found = (await self._calls.post(caller, "/api/resolve", asked)).body
        return shapes.ResolveGiven(
            candidates=[
                shapes.CandidateGiven(agent_id=each["agent_id"], reasons=each.get("reasons") or [])
                for each in found["candidates"]
            ],
            passed_over=[
                shapes.CandidateGiven(agent_id=each["agent_id"], reasons=[each["reason"]])
                for each in found["passed_over"]
            ],
            rule=found.get("rule") or "",
            reason=found.get("reason") or "",
            waits=found.get("wait", False),
        )

    # --- handing off -----------------------------------------------------------------------------

    async def create(self, caller: Caller, taken: shapes.CreateTaken) -> shapes.OneGiven:
        """Hand a task off."""
        body = _wish(caller, taken) | {
            "conversation_summary": taken.summary or taken.task,
            "priority": taken.priority,
            "mode": taken.mode,
            "parent_handoff_id": taken.parent or None,
            "fallback": taken.fallback or None,
            "deadline": taken.deadline or None,
            "replay_safe": taken.replay_safe or None,
            "message_id": taken.idempotency_key or str(uuid.uuid4()),
        }
        answer = await self._calls.post(caller, "/api/handoffs", body)
        made = shown.handoff(answer.body, whole=False)
        over = made.state in ("returned", "failed", "expired")
        return shapes.OneGiven(
            handoff=made,
            next="Nobody took it: see outcome and attempts."
            if over
            else "Go on with your work. Read the result later with check_handoffs.",
        )

    async def cancel(self, caller: Caller, taken: shapes.ReasonTaken) -> shapes.OneGiven:
        """Take a handoff back."""
        return await self._act(
            caller, taken, "cancel", {"reason": taken.reason}, "Its agent is told to stop."
        )

    async def broadcast(self, caller: Caller, taken: shapes.BroadcastTaken) -> shapes.ToldGiven:
        """Tell the workspace."""
        body = {
            "channel": taken.channel,
            "message": taken.message,
            "data": taken.data,
            "source_agent": taken.agent_id or caller.agent_id,
            "workspace": taken.workspace or caller.workspace,
        }
        # The broker has no key for broadcasts, so one whose answer was lost is not sent again by us.
        told = (await self._calls.post(caller, "/api/broadcasts", body, tries=1)).body
        return shapes.ToldGiven(
            broadcast_id=told["broadcast_id"], workspace=told["workspace"], expires_at=told["expires_at"]
        )

    # --- working ---------------------------------------------------------------------------------

    async def accept(self, caller: Caller, taken: shapes.OneTaken) -> shapes.OneGiven:
        """Take an offer."""
        body = {"instance_id": caller.instance_id}
        return await self._act(caller, taken, "accept", body, "Do the task, then call complete_handoff.")

    async def decline(self, caller: Caller, taken: shapes.ReasonTaken) -> shapes.OneGiven:
        """Refuse an offer."""
        return await self._act(
            caller, taken, "decline", {"reason": taken.reason}, "Call watch_handoffs for the next."
        )

    async def progress(self, caller: Caller, taken: shapes.ProgressTaken) -> shapes.OneGiven:
        """Say how far it is, or ask."""
        body = {"message": taken.message, "state": taken.state}
        hint = (
            "Go on, then call complete_handoff."
            if taken.state == "working"
            else "The answer comes as news of this handoff: see watch_handoffs and check_handoffs."
        )
        return await self._act(caller, taken, "progress", body, hint)

    async def complete(self, caller: Caller, taken: shapes.CompleteTaken) -> shapes.OneGiven:
        """Finish a task."""
        return await self._act(
            caller, taken, "complete", {"result": taken.result}, "Call watch_handoffs for the next."
        )

    async def fail(self, caller: Caller, taken: shapes.ReasonTaken) -> shapes.OneGiven:
        """Say that a task failed."""
        return await self._act(
            caller, taken, "fail", {"reason": taken.reason}, "Call watch_handoffs for the next."
        )

    async def release(self, caller: Caller, taken: shapes.ReasonTaken) -> shapes.OneGiven:
        """Give a task back."""
        return await self._act(
            caller, taken, "release", {"reason": taken.reason}, "Call watch_handoffs for the next."
        )

    async def _act(
        self, caller: Caller, taken: shapes.OneTaken, verb: str, body: dict[str, Any], hint: str
    ) -> shapes.OneGiven:
        who = {} if verb == "cancel" else {"agent_id": taken.agent_id or caller.agent_id}
        path = f"/api/handoffs/{segment(taken.handoff_id)}/{verb}"
        answer = await self._calls.post(caller, path, body | who)
        return shapes.OneGiven(handoff=shown.handoff(answer.body, whole=verb == "accept"), next=hint)


def _wish(caller: Caller, taken: shapes.WishTaken) -> dict[str, Any]:
    """A new handoff as the broker reads it."""
    needed = dict(taken.requirements)
    if taken.capabilities:
        more = needed.get("capabilities", [])
        needed["capabilities"] = [*taken.capabilities, *more] if isinstance(more, list) else more
    said = {
        "task": taken.task,
        "source_agent": taken.agent_id or caller.agent_id,
        "target_agent": taken.target_agent,
        "agent_type": taken.agent_type,
        "context": taken.context,
        "requirements": needed,
        "workspace": taken.workspace or caller.workspace,
    }
    return {name: value for name, value in said.items() if value}


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="watch_handoffs",
        title="Wait for a handoff",
        description="Wait for the next task that another agent hands to you, and accept it. Comes back at "
        "once when there is one, else after timeout seconds with nothing; then call it again. "
        "Shows first what you accepted earlier and have not answered for, so nothing is lost "
        "if a call was cut off. Returns broadcasts too.",
        taken=shapes.WatchTaken,
        given=shapes.WatchGiven,
        run=Toolbox.watch,
    ),
    Tool(
        name="check_handoffs",
        title="Check handoffs",
        description="Look, without waiting or accepting: your inbox, what you accepted and have not "
        "finished, what you handed off with its results, and recent broadcasts. With handoffId"
        " one handoff in full.",
        taken=shapes.CheckTaken,
        given=shapes.CheckGiven,
        run=Toolbox.check,
        changes=False,
    ),
    Tool(
        name="create_handoff",
        title="Hand a task off",
        description="Give a task to another agent: a certain one (targetAgent), or whoever has the "
        "capabilities. Comes back at once with an id; the result comes later, see "
        "check_handoffs. If a call was cut off, look there before you call again, or use an "
        "idempotencyKey.",
        taken=shapes.CreateTaken,
        given=shapes.OneGiven,
        run=Toolbox.create,
        repeatable=False,
    ),
    Tool(
        name="accept_handoff",
        title="Accept a handoff",
        description="Take a handoff from your inbox. From then on it is yours. watch_handoffs does this by"
        " itself.",
        taken=shapes.OneTaken,
        given=shapes.OneGiven,
        run=Toolbox.accept,
    ),
    Tool(
        name="decline_handoff",
        title="Decline a handoff",
        description="Refuse a handoff in your inbox that you have not accepted; the next agent is asked at"
        " once.",
        taken=shapes.ReasonTaken,
        given=shapes.OneGiven,
        run=Toolbox.decline,
        ends=True,
    ),
    Tool(
        name="handoff_progress",
        title="Report progress",
        description="Tell the sender how far you are with a handoff that you accepted, or ask something: "
        "state input_required with the question in message.",
        taken=shapes.ProgressTaken,
        given=shapes.OneGiven,
        run=Toolbox.progress,
        repeatable=False,
    ),
    Tool(
        name="complete_handoff",
        title="Complete a handoff",
        description="Finish a handoff with its result, which goes to the sender. Accepts it first if needed.",
        taken=shapes.CompleteTaken,
        given=shapes.OneGiven,
        run=Toolbox.complete,
        ends=True,
    ),
    Tool(
        name="fail_handoff",
        title="Fail a handoff",
        description="Say that the task of a handoff that you accepted cannot be done by anybody. It ends.",
        taken=shapes.ReasonTaken,
        given=shapes.OneGiven,
        run=Toolbox.fail,
        ends=True,
    ),
    Tool(
        name="release_handoff",
        title="Give a handoff back",
        description="Give a handoff that you accepted back to its sender, because you cannot do it.",
        taken=shapes.ReasonTaken,
        given=shapes.OneGiven,
        run=Toolbox.release,
        ends=True,
    ),
    Tool(
        name="cancel_handoff",
        title="Cancel a handoff",
        description="Take back a handoff that you created; whoever works on it is told to stop.",
        taken=shapes.ReasonTaken,
        given=shapes.OneGiven,
        run=Toolbox.cancel,
        ends=True,
    ),
    Tool(
        name="agent_broadcast",
        title="Broadcast a message",
        description="Say something to all agents of the workspace. Nobody answers for it; to give work to "
        "somebody use create_handoff.",
        taken=shapes.BroadcastTaken,
        given=shapes.ToldGiven,
        run=Toolbox.broadcast,
        repeatable=False,
    ),
    Tool(
        name="list_agents",
        title="List agents",
        description="The agents that can be handed work: capabilities, skills, whether they are there, how"
        " busy.",
        taken=shapes.ListAgentsTaken,
        given=shapes.AgentsGiven,
        run=Toolbox.agents,
        changes=False,
    ),
    Tool(
        name="resolve",
        title="Explain who would get a task",
        description="Which agents would be asked to do a task, in which order, and why the others would "
        "not. Nothing is created.",
        taken=shapes.WishTaken,
        given=shapes.ResolveGiven,
        run=Toolbox.resolve,
        changes=False,
    ),
)
