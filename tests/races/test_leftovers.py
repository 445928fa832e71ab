"""After the dust nothing is left: no work, no conversation, no lock, no listener."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw_server import SSE_HEAD, Request, answer, chunk, event, reset, says, working
from tests.support.agents import (
    Agent,
    Answer,
    Call,
    asks,
    card,
    completes,
    hands_on,
    hangs,
    rejects,
    said,
)
from tests.support.running import Broker, broker, kept_port, running, send_params
from tests.support.wire import eventually, raw, tells


async def _polite(agent: Agent, call: Call) -> Answer:
    offer = call.ours.get("offer")
    if offer:
        return {"message": said("ready", ready={"offer_id": offer["offer_id"]})}
    return await completes(agent, call)


async def _declines(agent: Agent, call: Call) -> Answer:
    offer = call.ours.get("offer", {})
    return {"message": said("no", declined={"offer_id": offer.get("offer_id", ""), "reason": "full"})}


async def _slow(agent: Agent, call: Call) -> Answer:
    """Works for a while, and stops when it is told."""
    if call.method == "CancelTask":
        return agent.task("CANCELED", task_id=call.params["id"])
    task = agent.task("WORKING")

    async def events() -> AsyncIterator[dict[str, Any]]:
        yield {"task": dict(task)}
        for number in range(5):
            await asyncio.sleep(0.02)
            yield agent.artifact(task, "text", f"{number} ", append=number > 0, last=number == 4)
        yield agent.status(task, "COMPLETED", "done")

    return events()


async def _cut(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(SSE_HEAD + event(working()) + event(chunk("one", append=False)))
    await writer.drain()
    reset(writer)


def _left(b: Broker, database: Path) -> dict[str, Any]:
    """What is still there; empty when all is done."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT kind, owner <> '', handoff_id FROM work").fetchall()
    dispatcher = b.app.service.dispatcher
    errands = dispatcher._errands
    listening = {"work", "renew-leases", "arrivals", "span-mark", "queue", "housekeeping"}
    found = {
        "work": rows,
        "tasks": list(dispatcher._tasks.values()),
        "talks": dispatcher._talks,
        "readers": errands._exchange.talks._readers,
        "turns": dict(errands._exchange.talks._turns),
        "begun": errands._begun,
        "misses": errands._misses,
        "locks": b.app.service.ledger._locks,
        "listeners": [t for t in b.waiters if t not in listening and not t.startswith("regis")],
    }
    return {name: what for name, what in found.items() if what}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_a_storm_of_handoffs_every_one_has_ended_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    agents: dict[str, Agent] = {
        "completes": Agent(completes),
        "rejects": Agent(rejects),
        "asks": Agent(asks),
        "hangs": Agent(hangs),
        "polite": Agent(_polite),
        "declines": Agent(_declines),
        "slow": Agent(_slow),
        "hands-on": Agent(hands_on(user_intent="Go on.", requirements={"capabilities": ["canWork"]})),
    }
    servers = {name: running(agent) for name, agent in agents.items()}
    urls = {name: server.__enter__() for name, server in servers.items()}
    urls["down"] = f"http://127.0.0.1:{kept_port()}"
    settings: dict[str, Any] = {
        "ack_wait": 0.1, "retry_delay": 0, "cancel_wait": 0.2, "reconcile_every": 0.1, "deadline": 4,
        "wait_for_agent": 0.5,
    }  # fmt: skip
    try:
        with (
            raw(SendStreamingMessage=_cut, GetTask=tells("COMPLETED")) as cut,
            raw(SendMessage=says(answer(b"", 503))) as busy,
            broker(tmp_path, **settings) as b,
            ThreadPoolExecutor(8) as pool,
        ):
            urls |= {"cut": cut.url, "busy": busy.url}
            for name, url in urls.items():
                streams = name in ("slow", "cut")
                speaks = name in ("polite", "declines")
                can = {"canWork": name in ("completes", "slow", "polite")}
                b.register(name, card=card(url, streaming=streams, speaks=speaks, capabilities=can))
            b.register("puller", capabilities={"canPull": True})

            def one(number: int, target: str, fallback: str, safe: bool, act: str) -> None:
                context = {"target_agent": target, "fallback": [fallback], "replay_safe": safe}
                task = b.send(f"job {number}", context=context, wait=False)
                if act == "cancel":
                    b.rpc("CancelTask", {"id": task["id"]})
                elif act == "reply":
                    message = {"taskId": task["id"]}
                    b.rpc("SendMessage", send_params("more", wait=False, message=message))
                elif act == "stream":
                    params = {"id": task["id"]}
                    b.rpc("GetTask", params)
                    with b.http.stream(
                        "POST",
                        "/",
                        json={"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": params},
                        headers={"A2A-Version": "1.0"},
                    ) as followed:
                        for _ in zip(followed.iter_lines(), range(dice.randrange(6)), strict=False):
                            pass

            # That what is left can be seen at all:
            b.send("seen", context={"target_agent": "hangs"}, wait=False)
            eventually(lambda: agents["hangs"].of("SendMessage"))
            assert {"work", "tasks", "talks", "readers", "begun"} <= _left(b, tmp_path / "broker.db").keys()

            names = [*urls, "puller"]
            jobs = [
                pool.submit(
                    one,
                    number,
                    dice.choice(names),
                    dice.choice(names),
                    dice.random() < 0.5,
                    dice.choice(["cancel", "reply", "stream", "wait"]),
                )
                for number in range(80)
            ]
            for job in jobs:
                job.result(40)
            open_states = "requested,offered,acknowledged,input_required,auth_required,handed_off,escalated"
            eventually(
                lambda: b.http.get("/api/handoffs", params={"state": open_states}).json()["total"] == 0,
                within_s=20,
            )
            database = tmp_path / "broker.db"
            try:
                eventually(lambda: not _left(b, database), within_s=10)
            except AssertionError:
                assert _left(b, database) == {}
            chains = b.http.get("/api/handoffs", params={"limit": "500"}).json()["handoffs"]
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)
    assert len(chains) >= 80
    for handoff in chains:
        assert handoff["state"] in ("completed", "failed", "canceled", "returned", "expired")
        assert len(handoff["attempts"]) <= 3


@pytest.mark.parametrize("seed", [1, 2])
def test_over_restarts_no_agent_gets_a_task_twice_that_it_may_have_begun(tmp_path: Path, seed: int) -> None:
    """The broker is stopped again and again, with next to no time to finish anything."""
    dice = random.Random(seed)

    async def steady(agent: Agent, call: Call) -> Answer:
        await asyncio.sleep(dice.random() / 20)
        task_id = f"r-{call.message['messageId']}"
        agent.task("COMPLETED", f"done {call.text}", task_id=task_id)
        return {"task": dict(agent.tasks[task_id], status={"state": "TASK_STATE_WORKING"})}

    async def streams(agent: Agent, call: Call) -> Answer:
        if call.method == "SubscribeToTask":
            return {"error": {"code": -32004, "message": "it has ended"}}
        task = agent.task("WORKING", task_id=f"r-{call.message['messageId']}")

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": dict(task)}
            await asyncio.sleep(dice.random() / 20)
            yield agent.status(task, "COMPLETED", f"done {call.text}")

        return events()

    polls, flows = Agent(steady), Agent(streams)
    made: list[str] = []
    with running(polls) as one, running(flows) as two:
        for round_ in range(4):
            with broker(tmp_path, grace=0.1, ack_wait=0.5, reconcile_every=0.1) as b:
                if round_ == 0:
                    b.register("polls", card=card(one, capabilities={"canWork": True}))
                    b.register("flows", card=card(two, streaming=True, capabilities={"canWork": True}))
                for _ in range(10):
                    target = dice.choice(["polls", "flows"])
                    made.append(b.send("job", context={"target_agent": target}, wait=False)["id"])
        with broker(tmp_path, ack_wait=0.5, reconcile_every=0.1) as b:
            # Where the broker died before it heard a task id, only time can tell.
            ended = eventually(
                lambda: (
                    (states := [b.handoff(each) for each in made])
                    and all(
                        h["state"] == "completed" or "delivery_uncertain" in b.log(h["handoff_id"])
                        for h in states
                    )
                    and states
                )
            )
    for agent in (polls, flows):
        sent = [call for call in agent.calls if call.method.startswith("Send")]
        times = Counter(call.message["messageId"] for call in sent)
        assert not times or max(times.values()) == 1
    assert [h["attempts"][0]["agent_id"] for h in ended if len(h["attempts"]) != 1] == []
    assert sum(h["state"] == "completed" for h in ended) >= 5
