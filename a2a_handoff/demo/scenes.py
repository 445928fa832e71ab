"""The scenes of the demo: what is asked, and what must have happened.

Duty: send real tasks through the broker's public A2A endpoint, and check the answers.
Rule: a scene proves what it shows from the broker's own record, or raises ``Missed``.
Not here: processes (``processes``), looks (``show``).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import httpx
from a2a.utils.errors import A2AError

from a2a_handoff.demo.show import Show
from a2a_handoff.kit.client import BrokerClient, Step

SENDER = "demo-user"

_SCENE_WAIT_S = 30.0
_LOOK_AGAIN_S = 0.02


class Missed(Exception):
    """A step that did not happen. The message says which."""


@dataclass(slots=True)
class Stage:
    """The broker as the demo uses it, and what came of the scene's task."""

    broker: BrokerClient
    show: Show
    correlation_id: str = ""
    steps: list[Step] = field(default_factory=list[Step])
    chain: dict[str, Any] = field(default_factory=dict[str, Any])
    _told: dict[str, int] = field(default_factory=dict[str, int])

    async def play(self, title: str, text: str, **context: Any) -> None:
        """Send one task, show all that happens, and fetch the chain when it is over."""
        self.correlation_id = str(uuid.uuid4())
        self.steps = []
        self.show.scene(title, text)
        package = {
            "correlation_id": self.correlation_id,
            "conversation_summary": f"The user wrote: {text}",
            "user_intent": text,
            "key_facts": {},
            "user_preferences": {"language": "en"},
            **context,
        }
        async with asyncio.timeout(_SCENE_WAIT_S):
            async with contextlib.aclosing(self.broker.stream(text, package)) as steps:
                async for step in steps:
                    self.steps.append(step)
                    await self._tell()
            await self._tell()
            self.chain = await self._ended_chain()

    async def _ended_chain(self) -> dict[str, Any]:
        """The chain; its first handoff ends a moment after the one that carries the task."""
        while True:
            chain = await self.broker.chain(self.correlation_id)
            if chain["handoffs"][0]["ended_at"]:
                return chain
            await asyncio.sleep(_LOOK_AGAIN_S)

    def prove(self, happened: object, what: str) -> None:
        """``what`` happened, or the scene failed."""
        if not happened:
            raise Missed(what)
        self.show.proven(what)

    @property
    def state(self) -> str:
        """The state of the task as the caller saw it last."""
        return next((step.state for step in reversed(self.steps) if step.state), "")

    @property
    def events(self) -> set[str]:
        """The system events that the caller was sent."""
        return {str(step.event["event"]) for step in self.steps if step.event}

    @property
    def handoffs(self) -> list[dict[str, Any]]:
        """The handoffs of the chain, oldest first."""
        return self.chain["handoffs"]

    @property
    def holders(self) -> list[str]:
        """Who held the task, in order."""
        return [str(handoff["assigned_to"]) for handoff in self.handoffs]

    def attempts(self) -> list[tuple[str, str | None]]:
        """Agent and outcome of every attempt of the first handoff."""
        return [(attempt["agent_id"], attempt["outcome"]) for attempt in self.handoffs[0]["attempts"]]

    def artifact(self, name: str) -> str:
        """The text of an artifact, put together of its chunks."""
        return "".join(step.text for step in self.steps if step.artifact_name == name)

    async def _tell(self) -> None:
        """Show what the broker committed since the last look, in that order, in the whole chain."""
        news: list[dict[str, Any]] = []
        for handoff in (await self.broker.chain(self.correlation_id))["handoffs"]:
            handoff_id = str(handoff["handoff_id"])
            events = await self.broker.events(handoff_id, after=self._told.get(handoff_id, 0))
            self._told[handoff_id] = self._told.get(handoff_id, 0) + len(events)
            news.extend(events)
        for event in sorted(news, key=itemgetter("position")):
            self.show.event(event)


# --- the scenes ----------------------------------------------------------------------------------


async def chain_of_three(stage: Stage) -> None:
    """A hands on to B, B hands on to C; the caller sees one task and one stream."""
    await stage.play(
        "A chain: triage finds billing, billing finds the code editor",
        "Invoice INV-2041 of March has the wrong VAT, please mend the template.",
        target_agent="triage-agent",
    )
    stage.prove(stage.state == "COMPLETED", "the caller's one task is completed")
    stage.prove(
        stage.holders == ["triage-agent", "billing_agent", "code-editor"],
        "triage-agent, billing_agent and code-editor held it in turn",
    )
    stage.prove(
        [h["hop_count"] for h in stage.handoffs] == [1, 2, 3],
        "hop count and path grew with each ACK, the correlation id stayed",
    )
    stage.prove(
        stage.events >= {"handoff_started", "handoff_confirmed"},
        "the caller was told of each transfer as it happened",
    )
    stage.prove("+  <td>" in stage.artifact("patch"), "the patch of the last agent came chunk by chunk")
    stage.show.chain(stage.chain)


async def fallback(stage: Stage) -> None:
    """The first choice is down, the second is busy, the third takes it."""
    await stage.play(
        "Fallback: the specialist is down, the senior is busy",
        "Please refund INV-1990.",
        target_agent="arabic_specialist",
        fallback=["senior_agent", "billing_agent"],
        key_facts={"invoice": "INV-1990", "senior_busy": True},
        user_preferences={"language": "ar"},
    )
    attempts = stage.attempts()
    stage.prove(
        attempts[0] == ("arabic_specialist", "target_unavailable"), "arabic_specialist did not answer"
    )
    stage.prove(attempts[1] == ("senior_agent", "target_rejected"), "senior_agent declined, with its reason")
    stage.prove(attempts[2] == ("billing_agent", None), "billing_agent acknowledged and did it")
    stage.prove(stage.state == "COMPLETED", "the task is completed; failed attempts cost no hop")
    stage.prove(stage.handoffs[0]["hop_count"] == 1, "billing_agent is hop 1")
    stage.show.chain(stage.chain)


async def loop_refused(stage: Stage) -> None:
    """An agent tries to hand the task back to an agent that had it."""
    await stage.play(
        "A loop is refused",
        "I want a second opinion.",
        target_agent="triage-agent",
    )
    last = stage.handoffs[-1]
    stage.prove("second-opinion" in stage.holders, "second-opinion got the task and tried to hand it back")
    stage.prove(
        last["outcome"] == "cycle_detected", "the broker refused: triage-agent is already on the path"
    )
    stage.prove(stage.state == "REJECTED", "the task is with its sender again, not lost and not looping")
    stage.show.chain(stage.chain)


async def returned(stage: Stage) -> None:
    """Nobody takes it: it goes back to its sender with every attempt and its reason."""
    await stage.play(
        "Return to sender: nobody takes it",
        "Decide about the contract of ACME.",
        target_agent="arabic_specialist",
        fallback=["senior_agent"],
        key_facts={"senior_busy": True},
    )
    stage.prove(stage.handoffs[0]["state"] == "returned", "the handoff is returned")
    stage.prove(
        [outcome for _, outcome in stage.attempts()] == ["target_unavailable", "target_rejected"],
        "each attempt is listed with its reason",
    )
    stage.prove(stage.handoffs[0]["owner"] == "source", f"{SENDER} owns the task again")
    stage.show.chain(stage.chain)


async def browser(stage: Stage) -> None:
    """A browser task goes to whoever can browse, whatever its platform."""
    url = "https://status.example.com/"
    await stage.play(
        "By capability, not by platform: a browser task",
        f"What does {url} say?",
        requirements={"agent_type": "browser"},
        key_facts={"url": url},
        user_preferences={"language": "fr"},
    )
    stage.prove(stage.holders == ["browser-agent"], "browser-agent got it, on platform external")
    stage.prove(
        stage.artifact("page-text").startswith("All systems operational"), "the text of the page came back"
    )
    stage.prove(stage.state == "COMPLETED", "the task is completed")


SCENES: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    chain_of_three,
    fallback,
    loop_refused,
    returned,
    browser,
)


async def play_all(url: str, show: Show) -> dict[str, str] | None:
    """Play every scene. The first one's correlation and trace id, ``None`` if a step was missed."""
    first: dict[str, str] = {}
    async with BrokerClient(url, agent_id=SENDER) as broker:
        stage = Stage(broker, show)
        for scene in SCENES:
            try:
                await scene(stage)
            except (Missed, TimeoutError, A2AError, httpx.HTTPError) as missed:
                what = str(missed) or "its end, in time"
                show.missed(f"scene {scene.__name__} did not show: {what}")
                return None
            first = first or {"correlation_id": stage.correlation_id, "trace_id": stage.chain["trace_id"]}
    return first
