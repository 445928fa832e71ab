"""Loops that run as long as the broker does.

Duty: begin them, begin them anew after a fault of ours, end them. A loop that ended by itself would leave a
broker that says it is ready and does nothing.
Not here: what they do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

_LOG = logging.getLogger("a2a_handoff.chores")
_AGAIN_S = 1.0
_TOLD_AGAIN_S = 0.5


def begin(work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
    """Run ``work``, which never ends by itself. A fault of it is logged, and it begins anew."""
    return asyncio.create_task(_tirelessly(work, name), name=name)


async def end(chores: Sequence[asyncio.Task[None]]) -> None:
    """Stop them. One that does not hear of it is told again: nats-py swallows a cancel while it connects."""
    left = set(chores)
    while left:
        for chore in left:
            chore.cancel()
        over, left = await asyncio.wait(left, timeout=_TOLD_AGAIN_S)
        for chore in over:
            _ = chore.cancelled() or chore.exception()


async def _tirelessly(work: Callable[[], Awaitable[None]], name: str) -> None:
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - whatever it is, the loop must go on
            _LOG.exception("%s failed and begins anew", name)
        await asyncio.sleep(_AGAIN_S)
