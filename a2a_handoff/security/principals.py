"""Who calls.

Duty: a ``Principal`` for every request.
Rules: without authentication the broker listens on loopback only (``config`` refuses anything else
without an explicit flag), and whoever reaches it there is trusted to say its own name.
Not here: what a principal may see (``broker``).
"""

from __future__ import annotations

from dataclasses import dataclass

from a2a_handoff.core.tracing import DEFAULT_TENANT
from a2a_handoff.ports import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGate:
    """Lets everybody in as the default tenant: for loopback, where there is nobody else."""

    tenant: str = DEFAULT_TENANT

    def admit(self, authorization: str) -> Principal:
        """The caller. An ``Authorization`` header is not looked at: nothing could verify it."""
        del authorization
        return Principal(tenant=self.tenant, trusted=True)
