"""The receiver: the same offer, the same answer; the same task, one run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from a2a_handoff.kit import Declined, HandoffReceiver, IncomingHandoff, Ready
from a2a_handoff.kit.receiver import Decision
from a2a_handoff.kit.runs import Run, Runs


def offer(offer_id: str = "o1", **facts: object) -> IncomingHandoff:
    return IncomingHandoff(offer_id=offer_id, offer=True, key_facts=facts, raw={"key_facts": facts})


def task(offer_id: str = "o1") -> IncomingHandoff:
    return IncomingHandoff(offer_id=offer_id)


# --- offers --------------------------------------------------------------------------------------


def test_an_offer_is_taken_with_a_receipt_unless_the_agent_decides_otherwise() -> None:
    async def run() -> None:
        receiver = HandoffReceiver("a")
        assert await receiver.answer(offer(n=1)) == {
            "ready": {"offer_id": "o1", "receipt": {"key_facts": {"n": 1}}}
        }
        assert receiver.took(task())

    asyncio.run(run())


def test_a_decision_may_take_its_time_and_say_no() -> None:
    async def decide(incoming: IncomingHandoff) -> Decision:
        await asyncio.sleep(0)
        return Declined("busy") if incoming.key_facts.get("busy") else Ready(receipt={"user_intent": "mine"})

    async def run() -> None:
        receiver = HandoffReceiver("a", decide=decide)
        assert await receiver.answer(offer("o1", busy=True)) == {
            "declined": {"offer_id": "o1", "reason": "busy"}
        }
        assert (await receiver.answer(offer("o2")))["ready"]["receipt"] == {"user_intent": "mine"}
        assert not receiver.took(task("o1"))

    asyncio.run(run())


def test_a_redelivered_offer_gets_the_first_answer_even_while_it_is_being_decided() -> None:
    asked = 0

    async def decide(_: IncomingHandoff) -> Decision:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return Declined(f"call {asked}")

    async def run() -> None:
        receiver = HandoffReceiver("a", decide=decide)
        first, second = await asyncio.gather(receiver.answer(offer()), receiver.answer(offer()))
        assert first == second == await receiver.answer(offer())
        assert asked == 1

    asyncio.run(run())


def test_an_agent_that_cannot_decide_declines(caplog: pytest.LogCaptureFixture) -> None:
    def decide(_: IncomingHandoff) -> Decision:
        raise RuntimeError("secret")

    async def run() -> None:
        answer = await HandoffReceiver("a", decide=decide).answer(offer())
        assert answer["declined"]["reason"] == "the agent could not decide"

    asyncio.run(run())
    assert "deciding about offer o1 failed" in caplog.text


# --- redelivered tasks ---------------------------------------------------------------------------


def test_a_redelivered_task_is_answered_from_the_first_run_live_or_over() -> None:
    async def run() -> None:
        receiver = HandoffReceiver("a")
        runs = 0
        go_on = asyncio.Event()

        async def work() -> AsyncIterator[str]:
            nonlocal runs
            runs += 1
            yield "one"
            await go_on.wait()
            yield "two"

        first = receiver.once(task(), work)
        assert await anext(first) == "one"
        assert receiver.in_flight == 1
        second = receiver.once(task(), work)
        assert await anext(second) == "one"
        go_on.set()
        assert [word async for word in first] == ["two"]
        assert [word async for word in second] == ["two"]
        assert [word async for word in receiver.once(task(), work)] == ["one", "two"]
        assert (runs, receiver.in_flight) == (1, 0)

    asyncio.run(run())


def test_another_offer_and_a_task_without_one_run_anew() -> None:
    async def run() -> None:
        receiver = HandoffReceiver("a")
        runs = 0

        async def work() -> AsyncIterator[int]:
            nonlocal runs
            runs += 1
            yield runs

        for incoming in (task("o1"), task("o2"), task(""), task(""), task("o1")):
            async for _ in receiver.once(incoming, work):
                pass
        assert runs == 4

    asyncio.run(run())


def test_the_failure_of_the_first_run_is_the_answer_to_the_redelivery() -> None:
    async def run() -> None:
        receiver = HandoffReceiver("a")

        async def work() -> AsyncIterator[int]:
            yield 1
            raise LookupError("no such invoice")

        for _ in range(2):
            words = receiver.once(task(), work)
            assert await anext(words) == 1
            with pytest.raises(LookupError):
                await anext(words)

    asyncio.run(run())


def test_a_connection_that_goes_does_not_end_the_work() -> None:
    async def run() -> None:
        receiver = HandoffReceiver("a")
        go_on = asyncio.Event()

        async def work() -> AsyncIterator[str]:
            await go_on.wait()
            yield "done"

        async def listen() -> list[str]:
            return [word async for word in receiver.once(task(), work)]

        listener = asyncio.ensure_future(listen())
        await asyncio.sleep(0)
        listener.cancel()
        await asyncio.wait([listener])
        go_on.set()
        assert await listen() == ["done"]

    asyncio.run(run())


# --- what is remembered --------------------------------------------------------------------------


def test_memory_is_bounded_and_a_run_under_way_is_never_forgotten() -> None:
    async def run() -> None:
        runs: Runs[str] = Runs(len, runs_max=3, bytes_max=100)
        go_on = asyncio.Event()

        async def wait(run: Run[str]) -> None:
            await go_on.wait()
            run.say("late")

        async def quick(run: Run[str]) -> None:
            run.say("x")

        slow = runs.join("slow", wait)
        for number in range(10):
            async for _ in runs.join(number, quick).follow():
                pass
        assert len(runs) == 3
        assert runs.get("slow") is slow
        assert runs.get(9) is not None
        assert runs.get(0) is None
        go_on.set()
        assert [word async for word in slow.follow()] == ["late"]

    asyncio.run(run())


def test_large_answers_are_forgotten_by_their_bytes() -> None:
    async def run() -> None:
        runs: Runs[str] = Runs(len, runs_max=100, bytes_max=100)

        async def large(run: Run[str]) -> None:
            run.say("x" * 40)

        for number in range(5):
            async for _ in runs.join(number, large).follow():
                pass
        assert [number for number in range(5) if runs.get(number)] == [3, 4]

    asyncio.run(run())


def test_a_stopped_run_ends_its_followers_after_what_was_said() -> None:
    async def run() -> None:
        runs: Runs[str] = Runs(len, runs_max=10, bytes_max=100)

        async def endless(run: Run[str]) -> None:
            run.say("begun")
            await asyncio.Event().wait()

        run = runs.join("k", endless)
        words = run.follow()
        assert await anext(words) == "begun"
        run.say("canceled")
        run.stop()
        assert [word async for word in words] == ["canceled"]

    asyncio.run(run())
