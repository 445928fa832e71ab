"""Who calls, and what they may do."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Protocol

import msgspec

from a2a_handoff.core.errors import Code, HandoffError


class Scope(StrEnum):
    """What a token allows. Reading what is one's own needs none of them."""

    SEND = "handoff:send"
    """Hand tasks off, answer their questions, cancel them, set their webhooks."""
    WORK = "handoff:work"
    """Be an agent: register, fetch work, accept it and finish it; tell the workspace something."""
    METRICS = "handoff:metrics"
    """Read ``/metrics``, which counts over all tenants."""
    ADMIN = "handoff:admin"
    """Everything in its tenant: see every handoff there, and act for every agent."""


#: What a token allows that says nothing of scopes.
USUAL_SCOPES = frozenset({Scope.SEND.value, Scope.WORK.value})

#: What who did not say its name is called. No token may bear it.
ANONYMOUS = "anonymous"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls. ``name`` is the agent id (the subject of the token), empty if nobody said.

    ``trusted``: an inbound trace may be continued, and the name was verified or needs no proof.
    ``expires_at``, in epoch seconds, is from when on it is nobody any more.
    """

    name: str = ""
    tenant: str = "default"
    scopes: frozenset[str] = frozenset()
    trusted: bool = False
    authenticated: bool = False
    expires_at: float = math.inf

    @property
    def unrestricted(self) -> bool:
        """Whether it may see and do everything in its tenant: an admin, or whoever an open broker met."""
        return not self.authenticated or Scope.ADMIN in self.scopes

    def require(self, scope: Scope) -> None:
        """Raises ``HandoffError`` (``forbidden``) if its token does not allow something."""
        if self.authenticated and scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise HandoffError(
                Code.FORBIDDEN, f"The token lacks the scope {scope.value}.", facts={"scope": scope.value}
            )


class Gate(Protocol):
    """Says who calls. The same for every surface: it is given what stands in ``Authorization``."""

    @property
    def closed(self) -> bool:
        """Whether callers must say, and prove, who they are."""
        ...

    async def admit(self, authorization: str) -> Principal:
        """Who calls.

        Raises ``HandoffError``: ``unauthenticated``, ``unavailable`` without keys to judge by.
        """
        ...

    def open(self) -> None:
        """Begin to get ready; nobody waits for it."""
        ...

    async def close(self) -> None:
        """End what runs for it."""
        ...
