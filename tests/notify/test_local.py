"""Waiting for wake-ups in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from a2a_handoff.notify import LocalNotifier

WAIT_S = 5.0
_T = TypeVar("_T")


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


def test_a_publish_between_two_waits_is_not_missed() -> None:
    async def scene() -> list[bool]:
        notifier = LocalNotifier()
        with notifier.listen("a", "b") as listener:
            notifier.publish("b")
            notifier.publish("a")
            return [await listener.wait(timeout_s=WAIT_S), await listener.wait(timeout_s=0.01)]

    assert _run(scene()) == [True, False]


def test_others_are_not_woken() -> None:
    async def scene() -> bool:
        notifier = LocalNotifier()
        with notifier.listen("a") as listener:
            notifier.publish("b")
            return await listener.wait(timeout_s=0.01)

    assert not _run(scene())


def test_who_has_left_is_forgotten() -> None:
    notifier = LocalNotifier()
    with notifier.listen("a"), notifier.listen("a", "b"):
        assert set(notifier.waiters) == {"a", "b"}
    assert notifier.waiters == {}


def test_everybody_can_be_woken_at_once() -> None:
    async def scene() -> list[bool]:
        notifier = LocalNotifier()
        with notifier.listen("a") as one, notifier.listen("b") as other:
            notifier.wake_all()
            return [await one.wait(timeout_s=WAIT_S), await other.wait(timeout_s=WAIT_S)]

    assert _run(scene()) == [True, True]


def test_where_hints_may_be_lost_a_waiter_looks_without_one() -> None:
    async def scene() -> list[bool]:
        notifier = LocalNotifier(look_s=0.01)
        with notifier.listen("a") as listener:
            return [await listener.wait(timeout_s=WAIT_S) for _ in range(3)]

    assert _run(scene()) == [True, True, True]


def test_a_wait_that_is_shorter_than_the_look_ends_as_it_says() -> None:
    async def scene() -> bool:
        notifier = LocalNotifier(look_s=WAIT_S)
        with notifier.listen("a") as listener:
            return await listener.wait(timeout_s=0.01)

    assert not _run(scene())
