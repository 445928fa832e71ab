"""What the demo's agents do. No model: keywords, facts and fixed texts, so that every run is the same.

Duty: the behaviour of each agent as one function over a ``Turn``, and the executor that runs it.
Rules: an agent knows no other agent's address. It hands on to a skill or an ability, or answers.
Not here: the server around an agent (``agent``), offers and redelivery (``kit.executor``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part, Task, TaskState

from a2a_handoff.core.context import Reason
from a2a_handoff.kit import Declined, IncomingHandoff, Ready, handoff
from a2a_handoff.kit.executor import agent_message, direct, incoming_of
from a2a_handoff.kit.introduction import introduce
from a2a_handoff.kit.receiver import Decision

#: Between two chunks of an artifact, so that a stream can be seen to stream.
_PAUSE_S = 0.04


@dataclass(frozen=True, slots=True)
class Turn:
    """One task as an agent's function sees it: what it holds, and the ways to answer."""

    context: RequestContext
    queue: EventQueue
    held: IncomingHandoff
    text: str
    updater: TaskUpdater

    def fact(self, name: str) -> str:
        """A fact of the context as text, empty if it is not there."""
        value = self.held.key_facts.get(name)
        return "" if value is None else str(value)

    async def say(self, text: str) -> None:
        """A word on the way."""
        await self.updater.start_work(self._message(text))

    async def show(self, name: str, chunks: Iterable[str]) -> None:
        """An artifact, chunk by chunk."""
        pieces = list(chunks)
        for number, piece in enumerate(pieces):
            await self.updater.add_artifact(
                [Part(text=piece)],
                artifact_id=name,
                name=name,
                append=number > 0,
                last_chunk=number == len(pieces) - 1,
            )
            await asyncio.sleep(_PAUSE_S)

    async def finish(self, text: str) -> None:
        """The task is done."""
        await self.updater.complete(self._message(text))

    async def ask(self, text: str) -> None:
        """Something is missing: the caller is asked, and the task waits."""
        await self.updater.requires_input(self._message(text))

    async def hand_on(self, text: str, payload: Mapping[str, Any]) -> None:
        """The task is somebody else's from here on."""
        await direct(self.context, self.queue, text, payload)

    def _message(self, text: str) -> Any:
        return agent_message(text, task_id=self.updater.task_id, context_id=self.updater.context_id)


Behaviour = Callable[[Turn], Awaitable[None]]


class DemoExecutor(AgentExecutor):
    """Runs a behaviour as an a2a-sdk agent: publishes the task, then takes its turn."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """One turn."""
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        if context.current_task is None:
            task = Task(id=updater.task_id, context_id=updater.context_id)
            task.status.state = TaskState.TASK_STATE_SUBMITTED
            await event_queue.enqueue_event(task)
        held = incoming_of(context) or IncomingHandoff()
        await self._behaviour(Turn(context, event_queue, held, context.get_user_input(), updater))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Stop: the SDK ends the turn itself."""
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


# --- the agents ----------------------------------------------------------------------------------

_INVOICE = re.compile(r"\bINV-\d+\b", re.IGNORECASE)
_MONTH = re.compile(
    r"\b(January|February|March|April|May|June|July|August|September|October|November|December)\b"
)


async def triage(turn: Turn) -> None:
    """Finds out what a request is about and passes it to whoever can do it."""
    text = turn.text.lower()
    found = {"invoice": _INVOICE.search(turn.text), "month": _MONTH.search(turn.text)}
    facts = {name: match.group() for name, match in found.items() if match}
    intent = turn.held.user_intent or turn.text
    if "second opinion" in text:
        payload = handoff(
            "second-opinion",
            base=turn.held,
            intent=intent,
            summary="The customer wants a second opinion.",
            update=facts,
        )
        await turn.hand_on("Asking for a second opinion.", payload)
    elif any(word in text for word in ("invoice", "refund", "charge", "payment", "bill")):
        payload = handoff(
            domain="billing",
            base=turn.held,
            intent=intent,
            summary=f"The customer writes about billing: {turn.text}",
            update=facts,
        )
        await turn.hand_on("This is about billing.", payload)
    elif "http" in text or "web page" in text:
        payload = handoff(
            capabilities=["canBrowse"],
            base=turn.held,
            intent=intent,
            summary="A web page has to be read.",
            update=facts,
            reason=Reason.CAPABILITY_BOUNDARY,
        )
        await turn.hand_on("Somebody with a browser has to look.", payload)
    else:
        await turn.finish("Hello! I find the right colleague for you. What is it about?")


async def billing(turn: Turn) -> None:
    """Knows invoices. What has to be changed in code it leaves to an agent that edits files."""
    introduction = introduce(
        turn.held.raw, needed={"invoice": "the number of the invoice"}, show=("invoice",)
    )
    if introduction.questions:
        await turn.ask(introduction.text)
        return
    invoice = turn.fact("invoice")
    await turn.say(introduction.text)
    if "template" in turn.text.lower() or turn.fact("file"):
        await turn.show(
            "findings",
            (f"Invoice {invoice}: ", "VAT is computed with 20 %, ", "the customer's rate is 5.5 %."),
        )
        payload = handoff(
            capabilities=["canEditFiles"],
            base=turn.held,
            summary=f"{invoice} is wrong because the template has a fixed VAT rate.",
            update={"file": "templates/invoice.html", "vat_rate": 5.5},
            progress={"step": 1, "total": 2, "completed": ["found the cause"]},
            reason=Reason.CAPABILITY_BOUNDARY,
            traceparent="",  # this agent knows nothing of tracing; the chain's trace must hold all the same
        )
        await turn.hand_on("The template has to be changed.", payload)
        return
    await turn.finish(f"Invoice {invoice} is settled; the amount goes back within three days.")


async def senior(turn: Turn) -> None:
    """Takes what is hard, if it has the time."""
    await turn.say(introduce(turn.held.raw, show=()).text)
    await turn.finish("Decided: the customer is right.")


async def code_editor(turn: Turn) -> None:
    """Edits files: answers with a patch."""
    file = turn.fact("file") or "README.md"
    rate = turn.fact("vat_rate") or "0"
    await turn.say(introduce(turn.held.raw, show=("file", "vat_rate")).text)
    await turn.show(
        "patch",
        (
            f"--- a/{file}\n+++ b/{file}\n",
            "@@ -14 +14 @@\n",
            "-  <td>{{ total * 0.20 }}</td>\n",
            f"+  <td>{{{{ total * {float(rate) / 100:.3f} }}}}</td>\n",
        ),
    )
    await turn.finish(f"{file} is mended.")


_PAGES = {
    "https://status.example.com/": "All systems operational. Last incident: none in 30 days.",
}


async def browser(turn: Turn) -> None:
    """Reads a page. The pages are on board: the demo needs no network."""
    match = re.search(r"https?://\S+", turn.text)
    url = turn.fact("url") or (match.group() if match else "")
    await turn.say(introduce(turn.held.raw, show=("url",)).text)
    text = _PAGES.get(url, "The page is empty.")
    middle = len(text) // 2
    await turn.show("page-text", (text[:middle], text[middle:]))
    await turn.finish("That is what the page says.")


async def second_opinion(turn: Turn) -> None:
    """Has no opinion, and tries to give the task back by handing it on to the agent it came from."""
    payload = handoff(
        turn.held.source_agent,
        base=turn.held,
        summary="No opinion here.",
        intent=turn.held.user_intent or "?",
    )
    await turn.hand_on(f"Let {turn.held.source_agent} decide.", payload)


def busy(offer: IncomingHandoff) -> Decision:
    """Declines while the facts say that there is no time."""
    if offer.key_facts.get("senior_busy"):
        return Declined("in the middle of an incident")
    return Ready()


def ready(_: IncomingHandoff) -> Decision:
    """Takes everything."""
    return Ready()


#: The agents that run as processes: what they do, and how they answer offers.
BEHAVIOURS: Mapping[str, tuple[Behaviour, Callable[[IncomingHandoff], Decision]]] = {
    "triage-agent": (triage, ready),
    "billing_agent": (billing, ready),
    "senior_agent": (senior, busy),
    "code-editor": (code_editor, ready),
    "browser-agent": (browser, ready),
    "second-opinion": (second_opinion, ready),
}
