"""Documents that the operator names by an address or a file.

Duty: read one whole, within time and size.
Rules: an address goes through the outbound policy like every other; redirects are not followed.
Not here: what is in it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from a2a_handoff.client.http import Call, Http
from a2a_handoff.ports import AgentError, UrlPolicy

_CONNECT_S: Final = 3.0
_BYTES_MAX: Final = 1_048_576


async def read_document(place: str, policy: UrlPolicy, *, timeout_s: float = 5.0) -> bytes:
    """The document at an http or https address, or in a file. Raises ``OSError`` if it cannot be had."""
    if not place.startswith(("http://", "https://")):
        return await asyncio.to_thread(Path(place).read_bytes)
    http = Http(policy, connect_s=_CONNECT_S)
    call = Call(method="GET", url=place, headers=(("Accept", "application/json"),), repeatable=True)
    try:
        async with (
            asyncio.timeout(timeout_s),
            http.exchange(call, wait_s=timeout_s, whole_s=2 * timeout_s) as answer,
        ):
            if answer.status != 200:
                raise OSError(f"the answer was {answer.status}")
            return await answer.read(limit=_BYTES_MAX, wait_s=timeout_s)
    except AgentError as error:
        raise OSError(str(error) or "it cannot be reached") from None
    finally:
        await http.close()
