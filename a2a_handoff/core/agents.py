"""What the broker knows of an agent, as far as matching and delivery need it.

Duty: the record of an agent, when two names are the same, the capabilities that a platform implies,
the rules of presence and of the circuit breaker.
Not here: reading cards (``wire.cards``), registering and expiring (``registry``).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

import msgspec


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


class Trust(StrEnum):
    """What the signatures of a card are worth.

    ``unchecked``: nobody looked, or there is no card. ``unsigned``: it has none. ``unverified``: it has
    some, and the broker knows the key of none. ``verified``: one of them is good.
    """

    UNCHECKED = "unchecked"
    UNSIGNED = "unsigned"
    UNVERIFIED = "unverified"
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What checking the signatures of a card showed.

    ``key_id`` and ``key_from`` (an address, or ``card_keys``) name the key of a verified one; ``detail`` says
    why the others are not. ``partial``: it is over the fields of A2A 1.0 alone, so only they are read.
    """

    trust: Trust = Trust.UNCHECKED
    key_id: str = ""
    key_from: str = ""
    detail: str = ""
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent as registered, without its load and presence (``AgentView`` adds those).

    ``capabilities`` are the effective ones: what the agent declares over the defaults of its
    platform. ``interfaces`` is empty for a pull agent. ``card`` is the card as it came, byte for
    byte, or empty. ``card_problem`` says why the card cannot be used for delivery (an auth scheme
    that we do not speak, say), empty if it can. ``card_notice`` says why a newer card of its was not
    taken. ``signature`` is what the signatures of the card are worth.
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
    broadcasts: bool = True
    card: bytes = b""
    card_url: str = ""
    card_etag: str = ""
    card_problem: str = ""
    card_notice: str = ""
    signature: Signature = Signature()
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


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What somebody says of an agent when registering it. Empty and ``None``: nothing said.

    What is said here goes over what the card says, and that over the defaults of the platform.
    ``card`` is raw JSON; ``card_url`` is where to fetch it. With neither, the agent is a pull agent.
    """

    agent_id: str = ""
    platform: str = ""
    workspace: str = ""
    role: Role | None = None
    instance_id: str = ""
    session_number: int = 0
    capabilities: Mapping[str, bool] = field(default_factory=dict[str, bool])
    domains: tuple[str, ...] = ()
    max_concurrency: int | None = None
    token_budget: int | None = None
    lease_s: float | None = None
    broadcasts: bool | None = None
    card: bytes = b""
    card_url: str = ""
    metadata: bytes = b"{}"


# --- names ---------------------------------------------------------------------------------------


#: Longer names are compared all the same, but not kept: they are a stranger's.
_KEPT_CHARS = 256


def fold(name: str) -> str:
    """The form in which names are compared: ids, skills, capabilities, tags, domains, platforms.

    Two spellings are one name if they are canonical caseless matches (Unicode 3.13, D145), blanks
    around them aside. Nothing fuzzy: ``adhesif`` is another name than ``adhésif``.
    """
    return _kept_fold(name) if len(name) <= _KEPT_CHARS else _fold(name)


def _fold(name: str) -> str:
    name = name.strip()
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


_kept_fold = lru_cache(maxsize=8192)(_fold)


def skeleton(name: str) -> str:
    """What is left of a name without accents, case and punctuation: only to *suggest* other names."""
    decomposed = unicodedata.normalize("NFKD", name).casefold()
    return "".join(char for char in decomposed if char.isalnum())


# --- capabilities --------------------------------------------------------------------------------


#: Capabilities that a platform implies; what an agent declares itself goes over them.
PLATFORM_CAPABILITIES: dict[str, frozenset[str]] = {
    "cowork": frozenset({"canBrowse", "canTestUI"}),
    "external": frozenset({"canBrowse", "canTestUI"}),
    "cursor": frozenset({"canEditFiles", "canExecuteCode"}),
    "claude-code": frozenset({"canEditFiles", "canExecuteCode"}),
}


def effective_capabilities(platform: str, declared: Mapping[str, bool]) -> frozenset[str]:
    """The platform's defaults, with what the agent declares switched on or off over them."""
    effective = {fold(name): name for name in PLATFORM_CAPABILITIES.get(fold(platform), ())}
    for name, has in declared.items():
        if has:
            effective[fold(name)] = name
        else:
            effective.pop(fold(name), None)
    return frozenset(effective.values())


# --- extensions ----------------------------------------------------------------------------------


def missing_extensions(agent: Agent, spoken: Collection[str]) -> tuple[str, ...]:
    """The extensions that an agent demands and a caller does not speak, sorted."""
    return tuple(sorted({*agent.required_extensions}.difference(spoken)))


# --- presence ------------------------------------------------------------------------------------

#: A pull agent is present for this long after its last call (it should call every 5 s).
PRESENCE_WINDOW_S = 20.0

#: A push agent not heard from for this long is probed before work is sent to it.
HEARD_WINDOW_S = 5.0

#: The share of the newest sample in a smoothed response time.
RESPONSE_WEIGHT = 0.2


def smoothed(old: float | None, sample: float) -> float:
    """The exponentially weighted mean after one more sample; the first one stands as it is."""
    return sample if old is None else old + RESPONSE_WEIGHT * (sample - old)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Keeps work away from an agent that does not answer.

    Opens after ``opens_after`` failures in a row, without success between. After ``half_open_s``
    one trial is let through; while that one runs (at most ``half_open_s``) the breaker is open to
    all others. A success closes it, a failure opens it again. Times are seconds of one clock that never goes
    back.
    """

    opens_after: int = 2
    half_open_s: float = 15.0
    failures: int = 0
    tried_at: float = 0.0

    def open_at(self, now: float) -> bool:
        """Whether work is kept away at ``now``."""
        return self.failures >= self.opens_after and now < self.tried_at + self.half_open_s

    def offered(self, now: float) -> Breaker:
        """Work was sent: if the breaker had opened, this is the trial."""
        return replace(self, tried_at=now) if self.failures >= self.opens_after else self

    def failed(self, now: float) -> Breaker:
        """The agent did not answer."""
        return replace(self, failures=self.failures + 1, tried_at=now)

    def succeeded(self) -> Breaker:
        """The agent answered."""
        return replace(self, failures=0, tried_at=0.0) if self.failures else self
