"""What the broker knows of an agent, as far as matching and delivery need it.

Duty: the record of an agent, the capabilities that a platform implies, presence rules.
Not here: reading cards (``wire.cards``), registering and expiring (``registry``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """``supervisor`` and ``human`` are where escalations go; they are never matched as ``agent``."""

    AGENT = "agent"
    HUMAN = "human"
    SUPERVISOR = "supervisor"


class Status(StrEnum):
    """What an agent says of itself by heartbeat; ``offline`` is also what silence means."""

    ONLINE = "online"
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    OFFLINE = "offline"


class Generation(StrEnum):
    """The generations of the A2A protocol. ``V0_1`` is the first one, with ``tasks/send``."""

    V1_0 = "1.0"
    V0_3 = "0.3"
    V0_1 = "0.1"


class Binding(StrEnum):
    """How A2A travels to an agent (A2A 1.0 section 5.1)."""

    JSONRPC = "JSONRPC"
    HTTP_JSON = "HTTP+JSON"
    GRPC = "GRPC"


class Readiness(StrEnum):
    """How an agent says that it is ready for a handoff.

    ``offer``: it speaks our extension and answers an explicit offer. ``probe``: plain A2A, it is
    ready if it answers. ``pull``: it fetches its work, ``accept`` is the answer. ``person``: as
    ``pull``, without a time limit but the deadline.
    """

    OFFER = "offer"
    PROBE = "probe"
    PULL = "pull"
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One way to reach a push agent, in the order of its card's preference."""

    url: str
    binding: Binding
    generation: Generation
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill of the card. ``id`` and ``tags`` are kept as written; matching folds them."""

    id: str
    name: str = ""
    tags: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent as registered, without its load and presence (``AgentView`` adds those).

    ``capabilities`` are the effective ones: what the agent declares over the defaults of its
    platform. ``interfaces`` is empty for a pull agent. ``card`` is the card as it came, byte for
    byte, or empty. ``card_problem`` says why the card cannot be used for delivery (an auth scheme
    that we do not speak, say), empty if it can.
    """

    agent_id: str
    tenant: str
    workspace: str = "default"
    platform: str = ""
    role: Role = Role.AGENT
    instance_id: str = ""
    session_number: int = 0
    name: str = ""
    version: str = ""
    capabilities: frozenset[str] = frozenset()
    domains: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    streaming: bool = False
    push_notifications: bool = False
    speaks_handoff: bool = False
    required_extensions: tuple[str, ...] = ()
    token_budget: int | None = None
    max_concurrency: int | None = None
    lease_s: float = 1800.0
    card: bytes = b""
    card_url: str = ""
    card_problem: str = ""
    metadata: bytes = b"{}"
    registered_at: float = 0.0

    @property
    def readiness(self) -> Readiness:
        """How this agent will be asked whether it is ready."""
        if self.role is not Role.AGENT and not self.interfaces:
            return Readiness.PERSON
        if not self.interfaces:
            return Readiness.PULL
        return Readiness.OFFER if self.speaks_handoff else Readiness.PROBE


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """An agent at one moment: what matching looks at.

    ``present`` is the presence rule already applied (a push agent is present until its breaker
    opens; a pull agent if it was heard from within the presence window). ``in_flight`` counts the
    handoffs that it holds or was offered. ``response_s`` is the smoothed time to ACK, ``None``
    before the first. ``success_rate`` is completed / (completed + failed), 1.0 before the first.
    """

    agent: Agent
    status: Status = Status.ONLINE
    present: bool = True
    breaker_open: bool = False
    in_flight: int = 0
    response_s: float | None = None
    success_rate: float = 1.0
    received: int = 0
    completed: int = 0
    failed: int = 0
    last_heard_at: float = 0.0


#: Capabilities that a platform implies; what an agent declares itself goes over them.
PLATFORM_CAPABILITIES: dict[str, frozenset[str]] = {
    "cowork": frozenset({"canBrowse", "canTestUI"}),
    "external": frozenset({"canBrowse", "canTestUI"}),
    "cursor": frozenset({"canEditFiles", "canExecuteCode"}),
    "claude-code": frozenset({"canEditFiles", "canExecuteCode"}),
}


def effective_capabilities(platform: str, declared: dict[str, bool]) -> frozenset[str]:
    """The platform's defaults, with what the agent declares switched on or off over them."""
    effective = set(PLATFORM_CAPABILITIES.get(platform, frozenset()))
    for name, has in declared.items():
        if has:
            effective.add(name)
        else:
            effective.discard(name)
    return frozenset(effective)
