"""Writes that wait for their turn, and what becomes of their callers.

Duty: answer those who wait; say what was claimed for those who do not wait any more.
Not here: in what order and transaction the writes are done (the writer of each store).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from a2a_handoff.ports import Committed, Work
from a2a_handoff.stores.batch import Prepared

_Statement = TypeVar("_Statement")


class Job(msgspec.Struct, Generic[_Statement], frozen=True):
    """A commit, or any other write, and who waits for it."""

    work: Prepared | _Statement
    future: asyncio.Future[Any]


def answer(jobs: Sequence[Job[Any]], results: Sequence[object]) -> list[Work]:
    """Give each caller its result, or raise it there if it is an exception.

    What was claimed for callers that are gone comes back: nobody will do it.
    """
    left: list[Work] = []
    for job, result in zip(jobs, results, strict=True):
        if job.future.done():
            left += _claimed(result)
        elif isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
    return left


def _claimed(result: object) -> Sequence[Work]:
    if isinstance(result, Committed):
        return result.claimed
    if isinstance(result, list):
        return [one for one in cast("list[object]", result) if isinstance(one, Work)]
    return ()
