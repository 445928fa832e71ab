"""Known faults of task life cycles: c041 to c049 of docs/reference/cases.md."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.core.errors import HandoffError
from a2a_handoff.ports import USUAL_SCOPES, Principal
from tests.support.agents import Agent, Answer, Call, card, completes, hangs, rejects
from tests.support.running import Broker, broker, running, send_params
from tests.support.wire import Gate, eventually

CAN = {"requirements": {"capabilities": ["canWork"]}}


def _register(b: Broker, name: str, url: str, **more: Any) -> None:
    b.register(name, card=card(url, capabilities={"canWork": True}, **more))


def _code(answered: Any) -> int:
    return answered["error"]["code"]


# --- c041: a result after the cancel -------------------------------------------------------------


@pytest.mark.parametrize("way", ["stream", "poll"])
def test_c041_a_result_that_comes_after_the_cancel_changes_nothing(tmp_path: Path, way: str) -> None:
    gate, told = Gate(), threading.Event()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return dict(agent.tasks["r-1"], status={"state": "TASK_STATE_CANCELED"})
        task = agent.task("WORKING")
        if way == "poll":
            return {"task": task}

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": task}
            await gate.wait()
            yield agent.artifact(task, "late", "too late")
            yield agent.status(task, "COMPLETED", "done all the same")
            told.set()

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url, streaming=way == "stream")
        task = b.send(context=CAN, wait=False)
        b.until(task["id"], "acknowledged")
        with b.http.stream(
            "POST",
            "/",
            json={"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task["id"]}},
            headers={"A2A-Version": "1.0"},
        ) as followed:
            canceled = b.rpc("CancelTask", {"id": task["id"]})
            seen = "".join(followed.iter_text())
        before, log = b.handoff(task["id"]), b.log(task["id"])
        late = {"artifactId": "late", "parts": [{"text": "too late"}]}
        agent.task("COMPLETED", "done all the same", task_id="r-1", artifacts=[late])
        polled = len(agent.of("GetTask"))
        gate.open()
        # Another handoff through the same agent comes after whatever was still to come of the first.
        b.until(b.send("next", context=CAN, wait=False)["id"], "acknowledged")
        assert (b.handoff(task["id"]), b.log(task["id"])) == (before, log)
        assert len(agent.of("GetTask")) <= polled + 1
    assert canceled["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert before["state"] == "canceled"
    assert before["artifacts"] == []
    assert seen.count("TASK_STATE_CANCELED") == 1
    assert "TASK_STATE_COMPLETED" not in seen
    assert [kind for kind in log if kind in ("handoff_canceled", "handoff_completed")] == ["handoff_canceled"]


# --- c042: many cancels --------------------------------------------------------------------------


def test_c042_many_cancels_at_once_are_one(tmp_path: Path) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            await gate.wait()
            return dict(agent.tasks["r-1"], status={"state": "TASK_STATE_CANCELED"})
        return {"task": agent.task("WORKING")}

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, cancel_wait=10) as b, ThreadPoolExecutor(20) as pool:
        _register(b, "worker", url)
        task = b.send(context=CAN, wait=False)
        b.until(task["id"], "acknowledged")
        asked = [pool.submit(b.rpc, "CancelTask", {"id": task["id"]}) for _ in range(20)]
        eventually(lambda: agent.of("CancelTask"))
        gate.open()
        answers = [each.result(20) for each in asked]
        log = b.log(task["id"])
    ends = {
        answered["result"]["status"]["state"] if "result" in answered else _code(answered)
        for answered in answers
    }
    assert ends <= {"TASK_STATE_CANCELED", -32002}
    assert "TASK_STATE_CANCELED" in ends
    assert len(agent.of("CancelTask")) == 1
    assert (log.count("cancel_requested"), log.count("handoff_canceled")) == (1, 1)


# --- c043: everything at once --------------------------------------------------------------------


def test_c043_chunks_messages_and_a_cancel_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    count, cancel_after = 50, 30
    reached = threading.Event()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return dict(agent.tasks["r-1"], status={"state": "TASK_STATE_CANCELED"})
        if call.message.get("taskId"):
            return {"task": agent.tasks["r-1"]}
        task = agent.task("WORKING")

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": task}
            for number in range(count):
                if number == cancel_after:
                    reached.set()
                yield agent.artifact(task, "text", f"{number} ", append=number > 0, last=False)
                await asyncio.sleep(0)
            await asyncio.Event().wait()

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b, ThreadPoolExecutor(8) as pool:
        _register(b, "worker", url, streaming=True)
        task = b.send(context=CAN, wait=False)
        b.until(task["id"], "acknowledged")

        def say(number: int) -> tuple[str, Any]:
            message = {"taskId": task["id"], "messageId": f"say-{number}"}
            return f"say-{number}", b.rpc(
                "SendMessage", send_params(str(number), wait=False, message=message)
            )

        def cancel() -> Any:
            assert reached.wait(10)
            return b.rpc("CancelTask", {"id": task["id"]})

        canceling = pool.submit(cancel)
        said = [each.result(20) for each in [pool.submit(say, number) for number in range(count)]]
        assert canceling.result(20)["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        after = b.rpc("GetTask", {"id": task["id"]})["result"]
        later = b.rpc("GetTask", {"id": task["id"]})["result"]
    accepted = [message_id for message_id, answered in said if "result" in answered]
    refused = [answered for _, answered in said if "error" in answered]
    assert {_code(answered) for answered in refused} <= {-32004}
    kept = [m["messageId"] for m in after["history"] if m["messageId"].startswith("say-")]
    assert sorted(kept) == sorted(accepted)
    texts = [p["text"] for p in after["artifacts"][0]["parts"]] if after.get("artifacts") else []
    assert texts == [f"{number} " for number in range(len(texts))]
    assert after["status"]["state"] == "TASK_STATE_CANCELED"
    assert after == later


# --- c044: ids that the client made --------------------------------------------------------------


def test_c044_an_unknown_task_id_creates_nothing(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        message = {"taskId": "does-not-exist"}
        for method in ("SendMessage", "SendStreamingMessage"):
            assert _code(b.rpc(method, send_params(context=CAN, message=message))) == -32001
        rest = b.http.post("/message:send", json=send_params(context=CAN, message=message))
        assert rest.status_code == 404
        assert b.http.get("/api/handoffs").json()["total"] == 0
    assert agent.calls == []


def test_c044_a_task_id_that_a_client_made_is_its_own(tmp_path: Path) -> None:
    """As of now one tenant can call; what another principal sees is asked of the service itself."""
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        params = {
            "id": "task-1",
            "message": {"role": "user", "parts": [{"type": "text", "text": "for X"}]},
            "metadata": {"handoff_context": {**_context(), **CAN}},
        }
        mine = b.http.post("/tasks/send", json=params).json()
        again = b.http.post("/tasks/get", json={"id": "task-1"}).json()
        stranger = Principal(name="y", tenant="tenant-y", scopes=USUAL_SCOPES, authenticated=True)
        assert b.loop.run(b.app.broker.aliased(stranger, "task-1")) is None
        handoff_id = b.http.get("/api/handoffs").json()["handoffs"][0]["handoff_id"]
        with pytest.raises(HandoffError, match="task_not_found"):
            b.loop.run(b.app.broker.get(stranger, handoff_id))
        sibling = Principal(name="z", tenant="default", scopes=USUAL_SCOPES, authenticated=True)
        assert b.loop.run(b.app.broker.aliased(sibling, "task-1")) is None
    assert mine["id"] == again["id"] == "task-1"
    assert again["status"]["state"] == "completed"


def _context() -> dict[str, Any]:
    return {
        "source_agent": "triage",
        "conversation_summary": "x",
        "user_intent": "y",
        "key_facts": {},
    }


# --- c045, c046: after the end -------------------------------------------------------------------


async def _fails(agent: Agent, call: Call) -> Answer:
    return {"task": agent.task("FAILED", "it broke")}


async def _works(agent: Agent, call: Call) -> Answer:
    if call.method == "CancelTask":
        return agent.task("CANCELED", task_id=call.params["id"])
    return {"task": agent.task("WORKING")}


def _ended(b: Broker, state: str) -> str:
    """A task that has ended in this state."""
    if state == "canceled":
        task = b.send(context={"target_agent": "works"}, wait=False)
        b.until(task["id"], "acknowledged")
        b.rpc("CancelTask", {"id": task["id"]})
    elif state == "expired":
        task = b.send(context={"target_agent": "hangs"}, wait=False)
        b.until(task["id"], "expired")
    else:
        target = {"completed": "completes", "failed": "fails", "returned": "rejects"}[state]
        task = b.send(context={"target_agent": target})
    assert b.handoff(task["id"])["state"] == state
    return task["id"]


_ENDS = ["completed", "failed", "canceled", "returned", "expired"]


def test_c045_a_task_that_has_ended_takes_no_more_messages_also_after_a_restart(tmp_path: Path) -> None:
    agents = {
        "completes": Agent(completes),
        "fails": Agent(_fails),
        "rejects": Agent(rejects),
        "works": Agent(_works),
        "hangs": Agent(hangs),
    }
    servers = {name: running(agent) for name, agent in agents.items()}
    urls = {name: server.__enter__() for name, server in servers.items()}
    try:
        with broker(tmp_path, deadline=1) as b:
            for name, url in urls.items():
                _register(b, name, url)
            ended = {state: _ended(b, state) for state in _ENDS}
            before = {state: b.handoff(task_id) for state, task_id in ended.items()}
            sent = sum(len(agent.of("SendMessage")) for agent in agents.values())
            _refuses_messages(b, ended)
            assert {state: b.handoff(task_id) for state, task_id in ended.items()} == before
        with broker(tmp_path) as b:
            _refuses_messages(b, ended)
            assert {state: b.handoff(task_id) for state, task_id in ended.items()} == before
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)
    assert sum(len(agent.of("SendMessage")) for agent in agents.values()) == sent


def _refuses_messages(b: Broker, ended: dict[str, str]) -> None:
    for task_id in ended.values():
        params = send_params("more", message={"taskId": task_id})
        for method in ("SendMessage", "SendStreamingMessage"):
            answered = b.http.post(
                "/",
                json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
                headers={"A2A-Version": "1.0"},
            )
            assert answered.headers["content-type"].startswith("application/json")
            assert _code(answered.json()) == -32004
            assert answered.json()["error"]["data"][0]["reason"] == "UNSUPPORTED_OPERATION"
        assert b.http.post("/message:send", json=params).status_code == 400
        assert b.http.post("/message:stream", json=params).status_code == 400


def test_c046_a_task_that_has_ended_cannot_be_canceled_on_any_surface(tmp_path: Path) -> None:
    agents = {
        "completes": Agent(completes),
        "fails": Agent(_fails),
        "rejects": Agent(rejects),
        "works": Agent(_works),
        "hangs": Agent(hangs),
    }
    servers = {name: running(agent) for name, agent in agents.items()}
    urls = {name: server.__enter__() for name, server in servers.items()}
    try:
        with broker(tmp_path, deadline=1) as b:
            for name, url in urls.items():
                _register(b, name, url)
            for state in _ENDS:
                task_id = _ended(b, state)
                before = b.handoff(task_id)
                for _ in range(2):
                    assert _code(b.rpc("CancelTask", {"id": task_id})) == -32002
                    old = b.rpc("tasks/cancel", {"id": task_id}, version="0.3")
                    assert _code(old) == -32002
                    binding = b.http.post(f"/tasks/{task_id}:cancel", json={})
                    assert binding.status_code == 400
                    assert binding.json()["error"]["details"][0]["reason"] == "TASK_NOT_CANCELABLE"
                    assert b.http.post(f"/api/handoffs/{task_id}/cancel").status_code == 409
                assert b.handoff(task_id) == before
            eventually(lambda: agents["hangs"].of("SendMessage"))
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)
    assert len(agents["works"].of("CancelTask")) == 1


# --- c047: nothing is forgotten ------------------------------------------------------------------


def test_c047_nothing_that_runs_is_collected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    count = 300

    async def slow(agent: Agent, call: Call) -> Answer:
        await asyncio.sleep(0.5)
        return await completes(agent, call)

    agent = Agent(slow)
    stop = threading.Event()

    def collect() -> None:
        while not stop.wait(0.2):
            gc.collect()

    collector = threading.Thread(target=collect)
    with running(agent) as url, broker(tmp_path) as b, caplog.at_level(logging.WARNING):
        _register(b, "slow", url)
        collector.start()
        try:
            for number in range(count):
                b.send(f"job {number}", context=CAN, wait=False)
            done = eventually(
                lambda: (
                    (page := b.http.get("/api/handoffs", params={"state": "completed", "limit": "1"}).json())[
                        "total"
                    ]
                    == count
                    and page
                ),
                within_s=30,
            )
        finally:
            stop.set()
            collector.join(10)
    assert done["total"] == count
    assert not [record for record in caplog.records if "destroyed" in record.getMessage()]
    assert len({call.message["messageId"] for call in agent.of("SendMessage")}) == count


# --- c048: a question ----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED"])
def test_c048_a_reply_reaches_the_task_that_asked_and_waiting_for_it_costs_nothing(
    tmp_path: Path, state: str
) -> None:
    working = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        task_id = call.message.get("taskId", "")
        if not task_id:
            return {"task": agent.task(state, "Go on?", task_id="r1", contextId="rc1")}

        async def finish() -> None:
            await working.wait()
            agent.task("COMPLETED", f"you said {call.text}", task_id="r1", contextId="rc1")

        finishing.append(asyncio.ensure_future(finish()))
        return {"task": dict(agent.task("WORKING", task_id="r1", contextId="rc1"))}

    finishing: list[asyncio.Future[None]] = []
    agent, other = Agent(script), Agent(completes)
    with (
        running(agent) as url,
        running(other) as second,
        broker(tmp_path, ack_wait=0.1, reconcile_every=0.1, retry_delay=0) as b,
    ):
        _register(b, "asker", url)
        _register(b, "other", second)
        task = b.send(context={"target_agent": "asker", "fallback": ["other"]}, message={"contextId": "bc1"})
        assert task["status"]["state"] == f"TASK_STATE_{state}"
        log = b.log(task["id"])
        # Something else takes several of the asker's waits.
        for _ in range(5):
            b.send(context={"target_agent": "nobody", "wait_for_agent": 0})
            eventually(lambda: b.http.get("/readyz").status_code == 200)
        assert b.log(task["id"]) == log
        reply = b.send("yes", wait=False, message={"taskId": task["id"]})
        assert reply["status"]["state"] == "TASK_STATE_WORKING"
        working.open()
        done = b.until(task["id"], "completed")
        after = b.rpc("GetTask", {"id": task["id"]})["result"]
    first, second_call = agent.of("SendMessage")
    assert "taskId" not in first.message
    assert (second_call.message["taskId"], second_call.message["contextId"]) == ("r1", "rc1")
    assert second_call.text == "yes"
    assert (after["id"], after["contextId"]) == (task["id"], "bc1")
    assert after["status"]["message"]["parts"] == [{"text": "you said yes"}]
    assert [(a["agent_id"], a["deliveries"]) for a in done["attempts"]] == [("asker", 1)]
    assert other.calls == []


# --- c049: a blocking send -----------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
def test_c049_a_blocking_send_returns_with_everything_that_is_also_stored(
    tmp_path: Path, streaming: bool
) -> None:
    gate = Gate()
    artifacts = [{"artifactId": f"a{number}", "parts": [{"text": f"part {number}"}]} for number in (1, 2)]

    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task("WORKING")
        if streaming:

            async def events() -> AsyncIterator[dict[str, Any]]:
                yield {"task": dict(task)}
                await gate.wait()
                for number in (1, 2):
                    yield agent.artifact(task, f"a{number}", f"part {number}")
                yield agent.status(task, "COMPLETED", "done")

            return events()

        async def finish() -> None:
            await gate.wait()
            agent.task("COMPLETED", "done", task_id=task["id"], artifacts=artifacts)

        finishing.append(asyncio.ensure_future(finish()))
        return {"task": dict(task)}

    finishing: list[asyncio.Future[None]] = []
    with running(Agent(script)) as url, broker(tmp_path) as b, ThreadPoolExecutor(1) as pool:
        _register(b, "worker", url, streaming=streaming)
        sending = pool.submit(b.send, context=CAN)
        eventually(
            lambda: [
                h for h in b.http.get("/api/handoffs").json()["handoffs"] if h["state"] == "acknowledged"
            ]
        )
        assert not sending.done()
        gate.open()
        task = sending.result(20)
        read = b.rpc("GetTask", {"id": task["id"]})["result"]
        # What a process would find that starts now, from the file alone.
        stored = b.loop.run(b.app.store.load_handoff(task["id"]))
        events = b.loop.run(b.app.store.read_events(task["id"]))
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"] == artifacts
    assert read == task
    assert stored is not None
    assert stored.state == "completed"
    assert stored.version == len(events)
