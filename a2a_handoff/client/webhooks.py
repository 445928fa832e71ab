"""Call webhooks.

Duty: ``ports.HookClient``: one POST at a time, at an address that the URL policy vets each time.
Rules: redirects are not followed. Of the answer only the status and ``Retry-After`` count; a small body is
read so that the connection can be kept, and then forgotten.
Not here: what is sent, and how often (``courier``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from a2a_handoff.client.faults import retry_after_s
from a2a_handoff.client.http import Call, Http
from a2a_handoff.ports import AgentError, HookAnswer, UrlPolicy

_BODY_MAX: Final = 16_384
_BODY_S: Final = 1.0


class WebhookClient:
    """``ports.HookClient``. ``now`` gives epoch seconds; ``connect_s`` bounds connecting, in seconds."""

    def __init__(
        self,
        policy: UrlPolicy,
        *,
        now: Callable[[], float],
        connect_s: float = 3.0,
        extra_ca_pem: bytes = b"",
    ) -> None:
        self._http = Http(policy, connect_s=connect_s, extra_ca_pem=extra_ca_pem)
        self._now = now

    async def post(
        self, url: str, headers: tuple[tuple[str, str], ...], body: bytes, *, timeout_s: float
    ) -> HookAnswer:
        """Send one notification.

        Raises ``AgentError`` if no answer came within ``timeout_s`` seconds, or the address may not be
        called.
        """
        # It has an id, so the receiver knows one that comes twice. The status counts as soon as it is there,
        # however slowly a body comes after it.
        call = Call(method="POST", url=url, headers=headers, body=body, stream=True, repeatable=True)
        async with self._http.exchange(call, wait_s=timeout_s, whole_s=2 * timeout_s + _BODY_S) as answer:
            with contextlib.suppress(AgentError):
                await answer.read(limit=_BODY_MAX, wait_s=_BODY_S)
            later_s = retry_after_s(answer.header("retry-after"), now=self._now())
            return HookAnswer(status=answer.status, retry_after_s=later_s)

    async def close(self) -> None:
        """Close every connection."""
        await self._http.close()
