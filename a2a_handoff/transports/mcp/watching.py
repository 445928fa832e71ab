"""``watch_handoffs``: waiting for work.

Duty: what an agent holds and has not answered for, then the next offer or broadcast, accepted if that is
wanted.
Rules: waiting is one long poll of the inbox, so a handoff is shown at once and costs nothing until then. A
call that is cut off loses nothing: before ``accept`` the offer stays in the inbox; after it the next call
of the same process of the agent shows the handoff again, until the agent has said something of it
(progress, a question, a part handed on, an end). What the sender says to it later, and the ends of its
parts, are shown the same way. A broker that goes away while a call waits is waited for.
Not here: the other tools (``tools``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from a2a_handoff.core.agents import fold
from a2a_handoff.core.errors import Code
from a2a_handoff.transports.mcp import shown
from a2a_handoff.transports.mcp.calls import UNREACHABLE, Answer, Caller, Calls, Refused, segment
from a2a_handoff.wire.cursor import read_cursor, written
from a2a_handoff.wire.native.tools import HandoffGiven, WatchGiven, WatchTaken

#: The broker's own limit for one poll, and how much longer its answer may take.
_POLL_MAX_S = 300.0
_SLACK_S = 15.0
_AGAIN_S = 1.0
_HELD_MAX = 100
_EVENTS_MAX = 1_000
#: Of so many agents it is remembered up to where they heard their workspace.
_HEARD_MAX = 1_000

#: Somebody else was faster, or the offer was withdrawn.
_GONE = frozenset(
    code.value
    for code in (
        Code.STALE_ATTEMPT,
        Code.NOT_THE_HOLDER,
        Code.WRONG_STATE,
        Code.HANDOFF_ENDED,
        Code.TASK_NOT_FOUND,
    )
)

#: How agents are ready that fetch their work.
_FETCHES = ("pull", "person")
_OWN_WORDS = frozenset({"output_recorded", "caller_asked", "child_attached"})
_ACCEPTED = "handoff_acknowledged"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Held:
    """A handoff that an agent has accepted. ``news`` came since its last word, ``heard``: it said one."""

    id: str
    news: tuple[str, ...]
    heard: bool


class Watching:
    """Waits for the work of agents. Remembers up to where each of them heard what its workspace was told."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._heard: dict[str, str] = {}

    async def watch_handoffs(self, caller: Caller, taken: WatchTaken) -> WatchGiven:
        """What there is for an agent, at once or as soon as it comes. Raises ``Refused``."""
        agent_id = taken.agent_id or caller.agent_id
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + taken.timeout
        async with _reporting(caller, taken.timeout, taken.poll_interval):
            agent = await self._lasting(ends_at, lambda: self._calls.present(caller, agent_id))
            if agent["readiness"] not in _FETCHES:
                raise Refused(
                    Code.WRONG_STATE.value,
                    f"The agent {agent_id!r} has an address, and what it is offered is sent there. "
                    "Watch as another agent, or register this one without a card.",
                )
            held = await self._lasting(ends_at, lambda: self._unanswered(caller, agent_id))
            if held is not None:
                return held
            await self._lasting(ends_at, lambda: self._from_now(caller, agent_id))
            while True:
                found = await self._lasting(ends_at, lambda: self._poll(caller, agent_id, ends_at))
                given = await self._taken(caller, agent_id, found, ends_at, accept=taken.auto_accept)
                if given is not None:
                    return given
                if loop.time() >= ends_at or (found.body is None and not self._calls.patient):
                    last = await self._lasting(ends_at, lambda: self._unanswered(caller, agent_id))
                    return last or WatchGiven(next="Nothing came. Call watch_handoffs again to wait on.")
                if found.body is None:  # the broker stops, and lets go of those who wait
                    await asyncio.sleep(min(_AGAIN_S, max(0.0, ends_at - loop.time())))

    # --- what is held ----------------------------------------------------------------------------

    async def held(self, caller: Caller, agent_id: str, limit: int = _HELD_MAX) -> list[dict[str, Any]]:
        """What an agent has accepted and not finished, the newest update first. Raises ``Refused``."""
        states = "acknowledged,input_required,auth_required"
        asked = {"holder": agent_id, "state": states, "include": "result", "limit": limit}
        page = (await self._calls.get(caller, "/api/handoffs", asked)).body["handoffs"]
        return [each for each in page if fold(each["assigned_to"]) == fold(agent_id)]

    async def news_of(self, caller: Caller, handoff_id: str) -> Held:
        """What came to a handoff since its agent's last word. Raises ``Refused``."""
        path = f"/api/handoffs/{segment(handoff_id)}/events"
        news: list[str] = []
        heard = True
        after: int | None = 0
        while after is not None:
            page = (await self._calls.get(caller, path, {"after": after, "limit": _EVENTS_MAX})).body
            for event in page["events"]:
                kind = event["type"].removeprefix("a2a-handoff.")
                if kind == _ACCEPTED or kind in _OWN_WORDS:
                    heard, news = kind != _ACCEPTED, []
                elif said := _said(kind, event["data"]):
                    news.append(said)
            after = page["next_cursor"]
        return Held(handoff_id, tuple(news), heard)

    async def _unanswered(self, caller: Caller, agent_id: str) -> WatchGiven | None:
        """The oldest handoff that this process of the agent holds and has not answered for."""
        for each in reversed(await self.held(caller, agent_id)):
            accepted_by = each["attempts"][-1].get("instance_id", "")
            if each["state"] != "acknowledged" or accepted_by not in ("", caller.instance_id):
                continue
            held = await self.news_of(caller, each["handoff_id"])
            if held.heard and not held.news:
                continue
            # A repeated accept changes nothing and shows the context as the agent gets it.
            accepted = await self._accept(caller, agent_id, held.id)
            if accepted is not None:
                given = shown.handoff(accepted).model_copy(update={"news": list(held.news)})
                return WatchGiven(handoff=given, accepted=True, again=True, next=_go_on(given, again=True))
        return None

    # --- what comes ------------------------------------------------------------------------------

    async def _poll(self, caller: Caller, agent_id: str, ends_at: float) -> Answer:
        left_s = ends_at - asyncio.get_running_loop().time()
        wait_s = min(max(left_s, 0.0), _POLL_MAX_S)
        asked = {
            "agent": agent_id,
            "timeout": f"{wait_s:.3f}",
            "include": "broadcasts",
            "after": self._heard.get(fold(agent_id), ""),
        }
        return await self._calls.get(caller, "/api/handoffs/watch", asked, wait_s=wait_s + _SLACK_S)

    async def _from_now(self, caller: Caller, agent_id: str) -> None:
        """What was said before the first call is not news."""
        if fold(agent_id) in self._heard:
            return
        while True:
            found = await self._poll(caller, agent_id, 0.0)
            self._remember(agent_id, found)
            if found.body is None or not found.body.get("broadcasts"):
                return

    async def _taken(
        self, caller: Caller, agent_id: str, found: Answer, ends_at: float, *, accept: bool
    ) -> WatchGiven | None:
        """What a poll came back with, as it is given; ``None`` if it was nothing, or somebody else has it."""
        if found.body is None:
            self._remember(agent_id, found)
            return None
        said = shown.broadcasts(found.body.get("broadcasts") or [])
        offer = found.body if "handoff_id" in found.body else None
        if offer is not None and accept:
            handoff_id = offer["handoff_id"]
            offer = await self._lasting(ends_at, lambda: self._accept(caller, agent_id, handoff_id))
        self._remember(agent_id, found)
        if offer is not None:
            given = shown.handoff(offer)
            return WatchGiven(
                handoff=given, accepted=accept, broadcasts=said, next=_go_on(given) if accept else _CHOOSE
            )
        return WatchGiven(broadcasts=said, next="Call watch_handoffs again to wait on.") if said else None

    async def _accept(self, caller: Caller, agent_id: str, handoff_id: str) -> dict[str, Any] | None:
        """Take an offer; ``None`` if it is not there any more."""
        body = {"agent_id": agent_id, "instance_id": caller.instance_id}
        try:
            answer = await self._calls.post(caller, f"/api/handoffs/{segment(handoff_id)}/accept", body)
        except Refused as refused:
            if refused.code in _GONE:
                return None
            raise
        return cast("dict[str, Any]", answer.body)

    def _remember(self, agent_id: str, found: Answer) -> None:
        """Up to where the agent heard. What it was offered is not kept: that comes until it is taken."""
        if not found.cursor:
            return
        self._heard[fold(agent_id)] = written(replace(read_cursor(found.cursor), shown=()))
        if len(self._heard) > _HEARD_MAX:
            del self._heard[next(iter(self._heard))]

    async def _lasting(self, ends_at: float, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until the broker answers, if it may come back, and until the time is over."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await ask()
            except Refused as refused:
                away = refused.code in (UNREACHABLE, Code.UNAVAILABLE.value)
                if not away or not self._calls.patient or loop.time() + _AGAIN_S >= ends_at:
                    raise
            await asyncio.sleep(_AGAIN_S)


_CHOOSE = "Call accept_handoff to take it, or decline_handoff with a reason."


def _go_on(given: HandoffGiven, *, again: bool = False) -> str:
    if given.news:
        return "Read the news and go on; then call complete_handoff, or handoff_progress to keep working."
    if again:
        return (
            "You accepted this before. Do it and call complete_handoff, or call handoff_progress and go on."
        )
    return "Do the task, then call complete_handoff with the result. handoff_progress tells how far you are."


def _said(kind: str, data: dict[str, Any]) -> str:
    """An event as news for the agent at work; empty if it is none."""
    match kind:
        case "reply_received":
            return f"The sender says: {shown.text_of(data.get('message'))}"
        case "cancel_requested":
            return "The sender wants this stopped: stop, and call release_handoff."
        case "child_ended":
            return f"Part {data.get('child_id')} is {data.get('state')}: see check_handoffs."
        case _:
            return ""


@asynccontextmanager
async def _reporting(caller: Caller, timeout_s: float, every_s: float) -> AsyncGenerator[None]:
    """Tell every few seconds that the call still waits, so that its client does too."""

    async def report() -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while True:
            await asyncio.sleep(every_s)
            waited = loop.time() - began_at
            await caller.report(
                waited, timeout_s, f"waiting for a handoff ({waited:.0f} of {timeout_s:.0f} s)"
            )

    reporter = asyncio.create_task(report())
    try:
        yield
    finally:
        reporter.cancel()
