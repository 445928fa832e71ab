"""Streams and those who join them later, on every surface."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Heard, Refused, Surface
from tests.interaction.staff import Staff
from tests.support.agents import Agent, Answer, Call, asks, completes, streams
from tests.support.running import WAIT_S

_ORDER = ("submitted", "working", "completed")


def assembled(told: Iterable[Heard]) -> dict[int, str]:
    """The artifacts that a follower has in the end, by the order in which they came."""
    texts: list[str] = []
    for heard in told:
        if heard.task is not None:
            texts = list(heard.task.artifacts)
        if heard.kind == "artifact" and heard.append:
            texts[-1] += heard.artifact
        elif heard.kind == "artifact":
            texts.append(heard.artifact)
    return dict(enumerate(texts))


@proves("stream.order")
def test_the_task_comes_first_then_chunks_in_order_and_the_end_last(surface: Surface, staff: Staff) -> None:
    worker, _ = staff.hire(streams("one ", "two ", "three"), streaming=True)
    told = list(surface.stream(to=(worker,)))
    first = "status" if "first" in surface.name else "task"
    assert (told[0].kind, told[0].state) == (first, "submitted")
    chunks = [(heard.artifact, heard.append, heard.last) for heard in told if heard.kind == "artifact"]
    assert chunks == [("one ", False, False), ("two ", True, False), ("three", True, True)]
    assert (told[-1].kind, told[-1].state, told[-1].said) == ("status", "completed", "done")
    states = [_ORDER.index(heard.state) for heard in told if heard.state]
    assert states == sorted(states)
    assert len({heard.task_id for heard in told}) == 1


@proves("stream.started")
def test_the_stream_says_who_is_asked_before_anything_else(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.puppet()
    with closing(surface.stream(to=(worker,))) as told:  # pyright: ignore[reportArgumentType]
        notice = next(data for heard in told for data in heard.data)
        agent.next().answer({"task": agent.task("COMPLETED")})
    assert (notice["type"], notice["event"]) == ("system_event", "handoff_started")
    assert notice["target_agent"] == worker
    assert notice["message"]


@proves("stream.asks")
def test_a_stream_ends_where_the_caller_must_speak(surface: Surface, staff: Staff) -> None:
    asker, _ = staff.hire(asks)
    told = list(surface.stream(to=(asker,)))
    assert (told[-1].state, told[-1].said) == ("input_required", "Which one?")


@proves("subscribe.catch_up")
def test_who_joins_gets_what_there_is_and_then_what_comes(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.puppet(streaming=True)
    task = surface.start(to=(worker,))
    turn = agent.next()
    remote = agent.task("WORKING")
    turn.event({"task": remote})
    followers: list[tuple[list[Heard], Any]] = []
    for number in range(3):
        word = f"{number} "
        turn.event(agent.artifact(remote, "text", word, append=number > 0, last=number == 2))
        surface.broker.logged(task.handoff_id, "output_recorded", number + 1)
        follower = surface.subscribe(task.id)
        followers.append(([next(iter(follower))], follower))
    turn.event(agent.status(remote, "COMPLETED", "done"))
    turn.end()
    for told, follower in followers:
        told.extend(follower)
        assert assembled(told) == {0: "0 1 2 "}
        assert (told[-1].state, told[-1].said) == ("completed", "done")


@proves("subscribe.catch_up")
def test_who_joins_in_the_thick_of_it_misses_nothing_and_hears_nothing_twice(
    surface: Surface, staff: Staff
) -> None:
    enough = threading.Event()
    followers = 4
    joined = threading.Semaphore(0)

    async def chatters(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            remote = agent.task("WORKING")
            yield {"task": remote}
            for number in range(5_000):
                last = enough.is_set() or number == 4_999
                yield agent.artifact(remote, "text", f"{number} ", append=number > 0, last=last)
                if last:
                    break
                await asyncio.sleep(0.001)  # the pace at which it speaks
            yield agent.status(remote, "COMPLETED")

        return events()

    def follow(task_id: str) -> list[Heard]:
        told: list[Heard] = []
        for heard in surface.subscribe(task_id):
            told.append(heard)
            if sum(one.append for one in told) == 3:
                joined.release()
        return told

    worker, _ = staff.hire(chatters, streaming=True)
    task = surface.start(to=(worker,))
    with ThreadPoolExecutor(followers) as pool:
        told = [pool.submit(follow, task.id) for _ in range(followers)]
        for _ in range(followers):
            assert joined.acquire(timeout=WAIT_S)
        enough.set()
        texts = [assembled(one.result()) for one in told]
    whole = surface.get(task.id).artifacts
    assert whole[0].split() == [str(number) for number in range(len(whole[0].split()))]
    assert texts == [dict(enumerate(whole))] * followers


@proves("subscribe.together")
def test_all_who_follow_a_task_are_told_the_same(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.puppet(streaming=True)
    task = surface.start(to=(worker,))
    turn = agent.next()
    remote = agent.task("WORKING")
    turn.event({"task": remote})
    surface.broker.until(task.handoff_id, "acknowledged")
    one, two = surface.subscribe(task.id), surface.subscribe(task.id)
    heard = [[next(iter(one))], [next(iter(two))]]
    for number in range(3):
        turn.event(agent.artifact(remote, f"part-{number}", str(number)))
        turn.event(agent.status(remote, "WORKING", f"done with {number}"))
    turn.event(agent.status(remote, "COMPLETED", "done"))
    turn.end()
    heard[0].extend(one)
    heard[1].extend(two)
    assert heard[0] == heard[1]
    assert [h.said for h in heard[0] if h.said.startswith("done with")] == [
        f"done with {n}" for n in range(3)
    ]
    assert assembled(heard[0]) == {0: "0", 1: "1", 2: "2"}


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED", "CANCELED", "REJECTED"])
@proves("stream.ends", "subscribe.ends")
def test_streams_end_with_the_task_however_it_ends(surface: Surface, staff: Staff, end: str) -> None:
    worker, agent = staff.puppet(streaming=True)
    told = surface.stream(to=(worker,))
    begun = next(told)
    remote, turn = agent.task("WORKING"), agent.next()
    turn.event({"task": remote})
    turn.event(agent.artifact(remote, "part", "so far"))
    surface.broker.logged(begun.handoff_id, "output_recorded")
    follower = surface.subscribe(begun.task_id)
    joined = next(follower)
    assert joined.kind == ("status" if "first" in surface.name else "task")
    assert joined.state == "working"
    if joined.task is not None:
        assert joined.task.artifacts == ["so far"]
    turn.event(agent.status(remote, end, "so be it"))
    turn.end()
    wanted = surface.returned if end == "REJECTED" else end.lower()
    for heard in (list(told), list(follower)):
        assert heard[-1].state == wanted
        assert [one.state for one in heard].count(wanted) == 1


@proves("subscribe.apart")
def test_who_hangs_up_takes_nothing_from_the_others(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.puppet(streaming=True)
    task = surface.start(to=(worker,))
    turn, remote = agent.next(), agent.task("WORKING")
    turn.event({"task": remote})
    surface.broker.until(task.handoff_id, "acknowledged")
    staying = surface.subscribe(task.id)
    heard = [next(staying)]
    with closing(surface.subscribe(task.id)) as leaving:  # pyright: ignore[reportArgumentType]
        next(iter(leaving))
    for number in range(3):
        turn.event(agent.artifact(remote, f"part-{number}", str(number)))
    turn.event(agent.status(remote, "COMPLETED", "done"))
    turn.end()
    heard.extend(staying)
    assert assembled(heard) == {0: "0", 1: "1", 2: "2"}
    assert (heard[-1].state, heard[-1].said) == ("completed", "done")


@proves("subscribe.ended")
def test_a_task_that_has_ended_cannot_be_followed(surface: Surface, staff: Staff) -> None:
    worker, _ = staff.hire(completes)
    task = surface.send(to=(worker,))
    with pytest.raises(Refused) as refused:
        list(surface.subscribe(task.id))
    assert refused.value.reason == "UNSUPPORTED_OPERATION"
    assert refused.value.code == {"jsonrpc": -32004, "http": 400, "grpc": 9}[surface.codes]
