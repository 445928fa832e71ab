"""Where agents call the broker back about a task, instead of being asked again and again.

Duty: which agents are asked to do so, the address and the token of each attempt, whether a caller has it.
Rules: the token is made from a secret of the store, so that it needs no place of its own, outlives a restart
and is good on every broker on the store; it opens one attempt and nothing else, and is compared in constant
time.
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
from a2a_handoff.ports import Callback, Store

_SECRET_NAME = "callbacks"  # noqa: S105 - its name, which is none

Mode = Literal["off", "auto", "always"]


class Callbacks:
    """Makes and checks them.

    ``url`` is where agents reach the broker; without one nobody is asked to call. ``mode``: ``off``, ``auto``
    for agents that cannot stream, ``always`` for all that can call back.
    """

    def __init__(self, *, store: Store, url: str, mode: Mode) -> None:
        self._store = store
        self._url = url
        self._mode: Mode = mode if url else "off"
        self._key = b""

    async def open(self) -> None:
        """Read the secret. The store must be open; raises ``StoreUnavailable``."""
        self._key = await self._store.secret(_SECRET_NAME)

    def wanted_of(self, agent: Agent) -> bool:
        """Whether this agent is to call back about its tasks."""
        if self._mode == "off" or not agent.push_notifications:
            return False
        return self._mode == "always" or not agent.streaming

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
