"""Agents, cards and webhooks out there, and the policy on addresses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import Protocol

import msgspec

from a2a_handoff.core.agents import Agent, Signature
from a2a_handoff.core.events import Outcome, Output


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent is to call the broker about one attempt, and with what. ``token`` is a secret."""

    url: str
    token: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one agent.

    ``message`` is A2A 1.0 JSON, with our extension's metadata already in it. ``remote`` ids are set
    for a follow-up only: a first message never carries ids that the target did not make. With a
    ``callback`` the agent is asked to say there what becomes of its task.
    """

    message: bytes
    metadata: bytes = b""
    extensions: tuple[str, ...] = ()
    remote_task_id: str = ""
    remote_context_id: str = ""
    accepted_output_modes: tuple[str, ...] = ()
    traceparent: str = ""
    tracestate: str = ""
    callback: Callback | None = None


class RemoteState(StrEnum):
    """A2A task states as a target reports them (A2A 1.0 section 4.1.3)."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"

    @property
    def terminal(self) -> bool:
        """No further state follows."""
        return self in (
            RemoteState.COMPLETED,
            RemoteState.FAILED,
            RemoteState.CANCELED,
            RemoteState.REJECTED,
        )

    @property
    def asks(self) -> bool:
        """The task waits for its caller."""
        return self in (RemoteState.INPUT_REQUIRED, RemoteState.AUTH_REQUIRED)


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What a target said, in one step: part of a stream, or a whole answer.

    ``state`` is ``None`` if the step says nothing of it. ``message`` is the status message (or, with
    ``reply``, the Message that the target answered instead of a Task) as A2A 1.0 JSON.
    ``metadata`` is the raw metadata of the status message, the message or the task, where our
    extension's ``handoff``, ``ready``, ``declined`` and ``receipt`` may be found. ``snapshot``: the
    outputs are all there are so far, not an addition.
    ``traceparent`` is the one that the target sent back, if it did.
    """

    remote_task_id: str = ""
    remote_context_id: str = ""
    state: RemoteState | None = None
    message: bytes = b""
    outputs: tuple[Output, ...] = ()
    metadata: bytes = b""
    reply: bool = False
    snapshot: bool = False
    traceparent: str = ""


class Sent(StrEnum):
    """How sure it is that the target never saw the request."""

    NO = "no"
    """It cannot have started: not connected, TLS failed, refused with 429 or 503 before output."""
    MAYBE = "maybe"
    """It was sent and nothing came back."""
    YES = "yes"
    """It answered, and the answer is an error."""


class AgentError(Exception):
    """A call to an agent failed.

    ``again``: asking the same agent again may help. ``retry_after_s``: when, by its own word.
    ``detail`` is safe to show: a class of fault and a status, never the agent's own text.
    """

    def __init__(
        self,
        outcome: Outcome,
        detail: str,
        *,
        sent: Sent,
        again: bool = False,
        retry_after_s: float | None = None,
        jsonrpc_code: int | None = None,
    ) -> None:
        self.outcome = outcome
        self.detail = detail
        self.sent = sent
        self.again = again
        self.retry_after_s = retry_after_s
        self.jsonrpc_code = jsonrpc_code
        super().__init__(f"{outcome.value}: {detail}")


class AgentClient(Protocol):
    """Talks A2A to agents, in whatever generation and binding their card offers.

    Every method raises ``AgentError`` and nothing else. Generators are to be closed on every way out.
    """

    async def probe(self, agent: Agent, *, timeout_s: float) -> None:
        """See whether the agent is there, by reading its card. Any HTTP answer counts as *there*."""
        ...

    def send(self, agent: Agent, delivery: Delivery, *, first_wait_s: float | None) -> AsyncGenerator[Update]:
        """Deliver a message and yield what comes back until a terminal or interrupted state.

        Streams where the agent can; else sends with ``returnImmediately`` and polls; else waits. With a
        callback it does not stream, and ends after the first answer; an agent that refuses the callback
        gets the message without it.
        ``first_wait_s`` bounds the wait for the first sign of an answer (``None``: none), after that
        only the idle limit holds. Ends without a terminal state if the stream was cut: the caller
        then asks with ``get``.
        """
        ...

    async def get(self, agent: Agent, remote_task_id: str) -> Update:
        """The target's task as it stands, as a snapshot."""
        ...

    def subscribe(self, agent: Agent, remote_task_id: str) -> AsyncGenerator[Update]:
        """Follow a task that is under way; a snapshot first. Falls back to polling ``get``."""
        ...

    async def cancel(self, agent: Agent, remote_task_id: str, *, traceparent: str = "") -> Update:
        """Ask the target to stop."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class FetchedCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card as it was served. ``url`` is where it was found."""

    body: bytes
    url: str
    etag: str = ""


class CardFetcher(Protocol):
    """Reads AgentCards from addresses that callers name."""

    async def fetch(self, url: str) -> FetchedCard:
        """Read a card from the address itself, else from the well-known paths below it.

        The paths are tried at the address, then at its origin, the new name first.

        Raises ``HandoffError`` (``card_unavailable``) with one generic text for every cause.
        """
        ...

    async def fetch_changed(self, url: str, etag: str) -> FetchedCard | None:
        """Read a card again where it was found. ``None``: it is still the one of ``etag``.

        Raises ``HandoffError`` (``card_unavailable``).
        """
        ...


class CardVerifier(Protocol):
    """Judges the signatures of cards, by the keys that the operator trusts."""

    @property
    def required(self) -> bool:
        """Whether only cards with a verified signature are taken."""
        ...

    async def verify(self, card: bytes) -> Signature:
        """What the signatures of a card are worth.

        Raises ``HandoffError`` (``invalid_agent``) with the place of each fault: a signature by a known key
        that does not fit the card and none that does, or, if signatures are required, none that is verified.
        """
        ...


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook answered; ``retry_after_s`` is its own word on when to come again."""

    status: int
    retry_after_s: float | None = None


class HookClient(Protocol):
    """Calls webhooks."""

    async def post(
        self, url: str, headers: tuple[tuple[str, str], ...], body: bytes, *, timeout_s: float
    ) -> HookAnswer:
        """Send one notification. Redirects are not followed, the answer's body is not read.

        Raises ``AgentError`` if no answer came within ``timeout_s`` seconds, or the address may not be
        called.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class UrlPolicy(Protocol):
    """Which addresses the broker may call."""

    async def vet(self, url: str) -> str:
        """Resolve the host once and return the address to connect to.

        Raises ``HandoffError`` (``card_unavailable``) if scheme or address is not allowed.
        """
        ...
