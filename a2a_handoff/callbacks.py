"""Where agents call the broker back about a task, instead of being asked again and again.

Duty: which agents are asked to do so, the address and the token of each attempt, whether a caller has it.
Rules: the token is made from a secret of the store, so that it needs no place of its own, outlives a restart
and is good on every broker on the store; it opens one attempt and nothing else, and is compared in constant
time. An agent that says it calls back, and again and again does not, is not waited for.
Sources: A2A 1.0 sections 4.3 and 13.2; RFC 2104 (HMAC).
Not here: the calls (``transports.callbacks``), what comes of them (``exchange``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Literal

from a2a_handoff.core.agents import Agent
from a2a_handoff.core.handoff import Attempt
from a2a_handoff.ports import Callback, Clock, Store

_SECRET_NAME = "callbacks"  # noqa: S105 - its name, which is none

Mode = Literal["off", "auto", "always"]

#: After so many tasks in a row that ended without a call an agent is not asked to call, for so long.
_SILENT_ENDS = 2
_SILENT_S = 3_600.0


class Callbacks:
    """Makes and checks them.

    ``url`` is where agents reach the broker; without one nobody is asked to call. ``mode``: ``off``, ``auto``
    for agents that cannot stream, ``always`` for all that can call back.
    """

    def __init__(self, *, store: Store, clock: Clock, url: str, mode: Mode) -> None:
        self._store = store
        self._clock = clock
        self._url = url
        self._mode: Mode = mode if url else "off"
        self._key = b""
        self._silent: dict[tuple[str, str], tuple[int, float]] = {}

    async def open(self) -> None:
        """Read the secret. The store must be open; raises ``StoreUnavailable``."""
        self._key = await self._store.secret(_SECRET_NAME)

    def wanted_of(self, agent: Agent) -> bool:
        """Whether this agent is to call back about its tasks."""
        if self._mode == "off" or not agent.push_notifications:
            return False
        ends, since = self._silent.get((agent.tenant, agent.agent_id), (0, 0.0))
        if ends >= _SILENT_ENDS and self._clock.monotonic() < since + _SILENT_S:
            return False
        return self._mode == "always" or not agent.streaming

    def heard(self, agent: Agent) -> None:
        """The agent called."""
        self._silent.pop((agent.tenant, agent.agent_id), None)

    def missed(self, agent: Agent) -> None:
        """A task of the agent ended, and the broker had to find that out itself."""
        ends, _ = self._silent.get((agent.tenant, agent.agent_id), (0, 0.0))
        self._silent[agent.tenant, agent.agent_id] = (ends + 1, self._clock.monotonic())

    def of(self, handoff_id: str, attempt: Attempt, agent: Agent) -> Callback | None:
        """What an agent is told of where to call about an attempt; ``None`` if it is not to call."""
        if not self.wanted_of(agent):
            return None
        token = self._token(handoff_id, attempt.number)
        return Callback(url=f"{self._url}/callbacks/{handoff_id}/{attempt.number}", token=token)

    def admits(self, handoff_id: str, attempt: int, token: str) -> bool:
        """Whether a token is that of an attempt. What was made before the mode was changed stays good."""
        return hmac.compare_digest(token.encode(), self._token(handoff_id, attempt).encode())

    def _token(self, handoff_id: str, attempt: int) -> str:
        digest = hmac.digest(self._key, f"{handoff_id}/{attempt}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
