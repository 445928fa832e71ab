"""Endless loops end when they are told to, also if something in them does not listen."""

from __future__ import annotations

import asyncio

from a2a_handoff import chores

WAIT_S = 10.0


def test_a_chore_that_swallows_its_end_is_told_again() -> None:
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while swallowed < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.sleep(3600)

    async def scene() -> bool:
        chore = chores.begin(deaf, "deaf")
        await asyncio.sleep(0)
        await chores.end([chore])
        return chore.cancelled()

    assert asyncio.run(asyncio.wait_for(scene(), WAIT_S))
    assert swallowed == 2


def test_nothing_to_end_is_no_trouble() -> None:
    asyncio.run(chores.end([]))
