"""Who calls.

Duty: a ``Principal`` for every request where nobody has to say who it is, and the tenant that a request
names, for every gate.
Rules: without authentication the broker listens on loopback only (``config`` refuses anything else
without an explicit flag), and whoever reaches it there is trusted to say its own name and its tenant. A
token says both, and a request that names another tenant is refused.
Not here: tokens (``bearer``), what a principal may see (``broker``).
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.tracing import DEFAULT_TENANT
from a2a_handoff.ports import Principal

#: What a tenant may be called: a word that fits into a path as it is.
TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")


class OpenGate:
    """Lets everybody in as the default tenant: for loopback, where there is nobody else."""

    closed = False

    def __init__(self, tenant: str = DEFAULT_TENANT) -> None:
        self._anybody = Principal(tenant=tenant, trusted=True)

    async def admit(self, authorization: str) -> Principal:
        """The caller. An ``Authorization`` header is not looked at: nothing could verify it."""
        del authorization
        return self._anybody

    def open(self) -> None:
        """There is nothing to get ready."""

    async def close(self) -> None:
        """Nothing runs for it."""


def within(principal: Principal, tenant: str) -> Principal:
    """The caller in the tenant that its request names; an empty name says nothing.

    Raises ``HandoffError``: ``forbidden`` if the caller's token is of another tenant, ``invalid_params``
    for what is no tenant's name.
    """
    if not tenant or tenant == principal.tenant:
        return principal
    if principal.authenticated:
        raise HandoffError(
            Code.FORBIDDEN,
            "The token is not of the tenant that the request names.",
            violations=(Violation("tenant", "must be that of the token, or absent"),),
        )
    if not TENANT.fullmatch(tenant):
        raise HandoffError(
            Code.INVALID_PARAMS,
            "The tenant is not a tenant's name.",
            violations=(Violation("tenant", "must be 1 to 64 of a-z A-Z 0-9 . _ -"),),
        )
    return replace(principal, tenant=tenant)


def refused(text: str) -> HandoffError:
    """A token that is no good."""
    return HandoffError(Code.UNAUTHENTICATED, text, facts={"token": "invalid"})


def expired() -> HandoffError:
    """A token that was good."""
    return HandoffError(
        Code.UNAUTHENTICATED, "The token has expired; get a new one.", facts={"token": "expired"}
    )
