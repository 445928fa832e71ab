"""Commands: what may be asked of a handoff.

They are imperative, and the machine may refuse them. They are not stored; what follows from them is
(``events``). Raw JSON travels as ``bytes`` in the shape of A2A 1.0. Times are epoch seconds.
Not here: which states take which command (``machine``).
"""

from __future__ import annotations

import msgspec

from a2a_handoff.core.context import Mode, Package
from a2a_handoff.core.events import Means, Outcome, Output, ParentRef, Remote, Resolution, State
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.tracing import HopTrace


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Create the handoff. Guards run first: a loop or a sixth hop is an error, nothing is stored.

    ``workspace`` and ``input_modes`` are kept for when agents are looked for anew. ``came_back`` is how
    often in a row the same request of the sender came back in this chain.
    """

    handoff_id: str
    tenant: str
    sender: str
    context_id: str
    message: bytes
    message_id: str
    request_metadata: bytes
    extensions: tuple[str, ...]
    package: Package
    resolution: Resolution
    policy: Policy
    trace: HopTrace
    deadline_at: float
    means: Means
    parent: ParentRef | None = None
    workspace: str = ""
    input_modes: tuple[str, ...] = ()
    accepted_output_modes: tuple[str, ...] = ()
    surface: str = ""
    face: str = ""
    returns_to: str = ""
    came_back: int = 0


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A new resolution, asked for by ``ResolutionRequested``."""

    resolution: Resolution
    means: Means


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True):
    """The target is ready. ``attempt`` 0 means the current one (the caller is known to hold it).

    ``instance_id`` says which process of the agent has it, ``lease_s`` for how long it may be silent.
    """

    agent_id: str
    attempt: int = 0
    remote: Remote = msgspec.field(default_factory=Remote)
    context_score: float | None = None
    synthetic_span: bool = True
    instance_id: str = ""
    lease_s: float | None = None


class Decline(msgspec.Struct, frozen=True, kw_only=True):
    """The target will not take it."""

    agent_id: str
    means: Means
    attempt: int = 0
    reason: str = ""


class DeliveryFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery is known not to have started work: retry, then move on.

    ``again``: the same agent may be asked again (a refused connection may; a wrong password not).
    ``retry_after_s`` is the agent's own wish.
    """

    attempt: int
    outcome: Outcome
    detail: str
    means: Means
    again: bool = True
    retry_after_s: float | None = None


class DeliveryUnsure(msgspec.Struct, frozen=True, kw_only=True):
    """The request went out and nothing came back: the target may be working on it."""

    attempt: int
    detail: str
    means: Means


class OfferLapsed(msgspec.Struct, frozen=True, kw_only=True):
    """The time for the ACK of a pull offer is over."""

    attempt: int
    means: Means


class TargetLost(msgspec.Struct, frozen=True, kw_only=True):
    """The target that holds the task has not been heard from for too long."""

    attempt: int
    detail: str
    means: Means


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What the target said on the way; ``remote`` if its names became known only now."""

    attempt: int = 0
    outputs: tuple[Output, ...] = ()
    agent_id: str = ""
    remote: Remote | None = None


class AskCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The target needs input (or a credential) from the caller."""

    attempt: int = 0
    agent_id: str = ""
    auth: bool = False
    message: bytes = b""
    outputs: tuple[Output, ...] = ()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A follow-up message of the caller. ``message_id`` makes it idempotent."""

    message: bytes
    message_id: str


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """The target finished the task."""

    attempt: int = 0
    agent_id: str = ""
    message: bytes = b""
    outputs: tuple[Output, ...] = ()


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """The target, having accepted, failed the task."""

    attempt: int = 0
    agent_id: str = ""
    outcome: Outcome = Outcome.TARGET_FAILED
    detail: str = ""
    message: bytes = b""
    outputs: tuple[Output, ...] = ()


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The target gives the task back to its sender.

    ``outcome`` says why if it is not of its own will: it wanted to hand on and may not. Then it is told
    to stop if its own task is still open (``target_open``).
    """

    attempt: int = 0
    agent_id: str = ""
    reason: str = ""
    outcome: Outcome = Outcome.RELEASED
    target_open: bool = False


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """The caller wants it stopped. Idempotent while it is under way."""

    by: str
    reason: str = ""


class ConfirmCancel(msgspec.Struct, frozen=True, kw_only=True):
    """The target stopped (``confirmed``), or ``cancel_wait`` passed without its word."""

    confirmed: bool


class Expire(msgspec.Struct, frozen=True, kw_only=True):
    """The deadline passed."""


class WaitOver(msgspec.Struct, frozen=True, kw_only=True):
    """``wait_for_agent`` passed and no agent came."""

    means: Means


class AttachChild(msgspec.Struct, frozen=True, kw_only=True):
    """The target hands the task on: ``child_id`` is being requested in the same commit.

    ``by_call``: it called the broker and gets the child's end as the answer to its call.
    ``context_score`` is how much of its context it passes on.
    """

    child_id: str
    mode: Mode
    attempt: int = 0
    agent_id: str = ""
    target_open: bool = False
    by_call: bool = False
    context_score: float | None = None


class ChildTookOver(msgspec.Struct, frozen=True, kw_only=True):
    """The child of a transfer was acknowledged: the target is out of it."""

    child_id: str


class ChildAsks(msgspec.Struct, frozen=True, kw_only=True):
    """The child of a delegation asks its caller, which is the target of this handoff."""

    child_id: str


class ChildOver(msgspec.Struct, frozen=True, kw_only=True):
    """The child ended in ``state``."""

    child_id: str
    state: State
    outcome: Outcome | None = None
    detail: str = ""


Command = (
    Request
    | Resolved
    | Acknowledge
    | Decline
    | DeliveryFailed
    | DeliveryUnsure
    | OfferLapsed
    | TargetLost
    | Progress
    | AskCaller
    | Reply
    | Complete
    | Fail
    | Release
    | Cancel
    | ConfirmCancel
    | Expire
    | WaitOver
    | AttachChild
    | ChildTookOver
    | ChildAsks
    | ChildOver
)

#: Commands after which somebody else may be asked.
Offering = Resolved | Decline | DeliveryFailed | DeliveryUnsure | OfferLapsed | TargetLost | WaitOver
