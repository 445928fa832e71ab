"""The receiving end of handoffs, for agents of any make.

Duty: read what arrives, answer offers, do a task once even if it is delivered again.
Rules: one receiver for each agent and event loop. Everything is plain JSON and asyncio; nothing here
needs an A2A library. The same offer gets the same answer each time.
Not here: a2a-sdk (``executor`` wraps an agent built on it), the words themselves (``directive``).
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from a2a_handoff.kit import directive
from a2a_handoff.kit.incoming import IncomingHandoff, Json, read_incoming
from a2a_handoff.kit.runs import Run, Runs

T = TypeVar("T")

#: Why an offer is declined that the broker took back.
VOID = "the offer is void"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """The agent takes it. ``receipt`` overrides the echo of the whole context."""

    receipt: Json | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """The agent does not take it, for this reason."""

    reason: str


Decision = Ready | Declined
Decide = Callable[[IncomingHandoff], Decision | Awaitable[Decision]]


def always_ready(_offer: IncomingHandoff) -> Decision:
    """Take everything that is offered."""
    return Ready()


class HandoffReceiver:
    """Offers and redeliveries of one agent.

    ``decide`` answers an offer; it should take less than the offer's ``ack_wait_s`` or the broker
    asks somebody else. ``runs_max`` and ``bytes_max`` bound what is remembered of finished tasks: a
    redelivery later than that runs the task again.
    """

    def __init__(
        self,
        agent_id: str,
        *,
        decide: Decide = always_ready,
        runs_max: int = 1_000,
        bytes_max: int = 64 * 1024 * 1024,
    ) -> None:
        self.agent_id = agent_id
        self._decide = decide
        self._answers: Runs[dict[str, Any]] = Runs(_size, runs_max=runs_max, bytes_max=bytes_max)
        self._void: dict[str, None] = {}
        self._void_max = runs_max
        self.runs: Runs[Any] = Runs(_size, runs_max=runs_max, bytes_max=bytes_max)

    @property
    def in_flight(self) -> int:
        """Tasks under way; a ``decide`` may look at it."""
        return self.runs.in_flight

    def read(self, message: Json, request_metadata: Json | None = None) -> IncomingHandoff | None:
        """The handoff that came with a message (A2A JSON), or ``None``."""
        return read_incoming(message, request_metadata)

    async def answer(self, offer: IncomingHandoff) -> dict[str, Any]:
        """The payload that answers an offer: ``{"ready": …}`` or ``{"declined": …}``.

        A redelivered offer gets the first answer again. A ``decide`` that fails declines: the task
        is better off with an agent that works.
        """
        if offer.offer_id in self._void:
            return directive.declined(offer, VOID)
        if not offer.offer_id:
            return await self._decided(offer)

        async def say(run: Run[dict[str, Any]]) -> None:
            run.say(await self._decided(offer))

        run = self._answers.join(offer.offer_id, say)
        return await anext(run.follow())

    def took(self, incoming: IncomingHandoff) -> bool:
        """Whether this task was offered before and answered *ready*, with its receipt."""
        run = self._answers.get(incoming.offer_id)
        return run is not None and any("ready" in answer for answer in run.said)

    def rescind(self, offer_id: str) -> None:
        """The offer is void: it is declined from now on. What runs for it should be stopped."""
        self._void[offer_id] = None
        while len(self._void) > self._void_max:
            del self._void[next(iter(self._void))]

    def is_void(self, incoming: IncomingHandoff) -> bool:
        """Whether the broker took this offer back; a task of it that comes late is to be refused."""
        return incoming.offer_id in self._void

    def once(self, incoming: IncomingHandoff, work: Callable[[], AsyncIterator[T]]) -> AsyncIterator[T]:
        """What ``work`` says, run once for each offer id.

        A redelivered task gets everything that the first run said and goes on with it. Without an
        offer id there is nothing to compare, and the work runs.
        """
        if not incoming.offer_id:
            return work()

        async def record(run: Run[Any]) -> None:
            async for item in work():
                run.say(item)

        return cast("AsyncIterator[T]", self.runs.join(incoming.offer_id, record).follow())

    async def _decided(self, offer: IncomingHandoff) -> dict[str, Any]:
        try:
            decision = self._decide(offer)
            if inspect.isawaitable(decision):
                decision = await decision
        except Exception:
            logger.exception("deciding about offer %s failed", offer.offer_id)
            decision = Declined("the agent could not decide")
        match decision:
            case Ready(receipt):
                return directive.ready(offer, directive.receipt(offer) if receipt is None else receipt)
            case Declined(reason):
                return directive.declined(offer, reason)


def _size(item: Any) -> int:
    measure = getattr(item, "ByteSize", None)  # a protobuf message
    if measure is not None:
        return int(measure())
    if isinstance(item, bytes | str):
        return len(item)
    return len(json.dumps(item, default=str))
