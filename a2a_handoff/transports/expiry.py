"""A token ends while its bearer waits, or follows something.

Duty: waits and streams that end when the caller is nobody any more.
Rules: nothing that was begun is broken off by it, only the waiting for it. Callers whose leave does not end
cost nothing here.
Not here: whether a token is good at the start (``security``), sockets, which may get
a new one (``websocket``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from a2a_handoff.ports import Principal
from a2a_handoff.security.principals import expired

_T = TypeVar("_T")


def left_s(principal: Principal, now: float) -> float | None:
    """Seconds for which a caller is still who it is, at least 0; ``None`` for ever."""
    return None if math.isinf(principal.expires_at) else max(0.0, principal.expires_at - now)


async def while_valid(principal: Principal, now: float, work: Coroutine[Any, Any, _T]) -> _T:
    """What comes of a wait. Raises ``HandoffError`` (``unauthenticated``) when the caller's leave ends."""
    left = left_s(principal, now)
    if left is None:
        return await work
    limit = asyncio.timeout(left)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise expired() from None
        raise


def lasting(principal: Principal, now: float, events: AsyncGenerator[_T]) -> AsyncGenerator[_T]:
    """A stream that ends with ``unauthenticated`` when the caller's leave does."""
    left = left_s(principal, now)
    return events if left is None else _bounded(events, left)


async def _bounded(events: AsyncGenerator[_T], left: float) -> AsyncGenerator[_T]:
    ends_at = asyncio.get_running_loop().time() + left
    async with aclosing(events):
        while True:
            # Where events are there already, nothing is waited for, and no limit would be felt.
            if asyncio.get_running_loop().time() >= ends_at:
                raise expired()
            limit = asyncio.timeout_at(ends_at)
            try:
                async with limit:
                    item = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if limit.expired():
                    raise expired() from None
                raise
            yield item
