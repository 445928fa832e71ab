"""A task is the same task at every broker on one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, Answer, Call, asks, card, completes, streams
from tests.support.hooks import hook
from tests.support.replicas import replicas
from tests.support.running import WAIT_S, Broker, running, send_params, sse_data
from tests.support.wire import eventually


class Held:
    """Works until it is let go; a cancel ends it."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.go = threading.Event()

    async def __call__(self, agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            self.go.set()
            return agent.task("CANCELED", task_id=call.params["id"])

        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            self.called.set()
            await asyncio.to_thread(self.go.wait, WAIT_S)
            yield agent.artifact(task, "a", "late", last=True)
            yield agent.status(task, "COMPLETED", "done")

        return events()


def subscribed(b: Broker, task_id: str) -> list[Any]:
    """Everything that a subscription tells, to its end."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    with b.http.stream("POST", "/", json=body, headers={"A2A-Version": "1.0"}) as answer:
        return [json.loads(data)["result"] for data in sse_data(answer.iter_lines())]


def test_a_task_that_one_broker_took_is_followed_at_another_and_ends_there(tmp_path: Path) -> None:
    script = Held()
    agent = Agent(script)
    with (
        running(agent) as url,
        replicas(tmp_path, 3) as (a, b, c),
        ThreadPoolExecutor(4) as pool,
    ):
        a.register("worker", card=card(url, streaming=True))
        eventually(lambda: b.http.get("/api/agents/worker").is_success)
        task = b.send("over there", wait=False, context={"target_agent": "worker"})
        assert script.called.wait(WAIT_S)
        streams_of = [pool.submit(subscribed, one, task["id"]) for one in (a, b, c)]
        poll = pool.submit(
            a.http.get,
            f"/api/handoffs/{task['id']}/events",
            params={"after": len(a.log(task["id"])), "timeout": 20},
        )
        eventually(
            lambda: c.rpc("GetTask", {"id": task["id"]})["result"]["status"]["state"].endswith("WORKING")
        )
        script.go.set()
        told = [one.result(WAIT_S) for one in streams_of]
        assert poll.result(WAIT_S).json()["events"]
        for one in told:
            assert one[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        for one in (a, b, c):
            listed = one.rpc("ListTasks", {})["result"]["tasks"]
            assert [(t["id"], t["status"]["state"]) for t in listed] == [(task["id"], "TASK_STATE_COMPLETED")]
            assert one.log(task["id"]) == b.log(task["id"])
    assert len(agent.of("SendStreamingMessage")) == 1


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_cancel_reaches_the_agent_from_any_broker(tmp_path: Path, where: int) -> None:
    script = Held()
    agent = Agent(script)
    with running(agent) as url, replicas(tmp_path, 3) as brokers:
        brokers[0].register("worker", card=card(url, streaming=True))
        task = brokers[0].send("stop me", wait=False, context={"target_agent": "worker"})
        assert script.called.wait(WAIT_S)
        brokers[0].until(task["id"], "acknowledged")
        brokers[where].rpc("CancelTask", {"id": task["id"]})
        for one in brokers:
            one.until(task["id"], "canceled")
        # Nobody talks about it any more, where it was sent either.
        talks = brokers[0].app.service.dispatcher._talks
        eventually(lambda: not talks)
    assert len(agent.of("CancelTask")) == 1


def test_an_answer_to_a_question_is_taken_at_every_broker(tmp_path: Path) -> None:
    agent = Agent(asks)
    with running(agent) as url, replicas(tmp_path) as (a, b):
        a.register("asker", card=card(url))
        task = a.send("something", context={"target_agent": "asker"})
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        done = b.send("the blue one", message={"taskId": task["id"], "messageId": "m-2"})
        assert done["id"] == task["id"]
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert a.rpc("GetTask", {"id": task["id"]})["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [call.text for call in agent.of("SendMessage")] == ["something", "the blue one"]


def test_what_is_said_at_another_broker_while_the_agent_works_does_not_double_its_words(
    tmp_path: Path,
) -> None:
    more, said = threading.Event(), threading.Event()

    async def script(agent: Agent, call: Call) -> Answer:
        follow_up = bool(call.message.get("taskId"))
        task = agent.tasks["t-1"] if follow_up else agent.task("WORKING", task_id="t-1")
        if follow_up:
            said.set()

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": {key: value for key, value in task.items() if key != "artifacts"}}
            await asyncio.to_thread(more.wait, WAIT_S)
            yield agent.artifact(task, "text", "one ", last=False)
            yield agent.artifact(task, "text", "two", append=True)
            yield agent.status(task, "COMPLETED", "done")

        return events()

    with running(Agent(script)) as url, replicas(tmp_path) as (a, b):
        a.register("talker", card=card(url, streaming=True))
        task = a.send("tell", wait=False, context={"target_agent": "talker"})
        a.until(task["id"], "acknowledged")
        b.send("be quick", wait=False, message={"taskId": task["id"], "messageId": "m-2"})
        assert said.wait(WAIT_S)
        eventually(lambda: not b.app.service.dispatcher._talks)
        more.set()
        a.until(task["id"], "completed")
        (artifact,) = b.rpc("GetTask", {"id": task["id"]})["result"]["artifacts"]
        assert "".join(part["text"] for part in artifact["parts"]) == "one two"


def test_the_same_message_at_two_brokers_is_one_task(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, replicas(tmp_path) as (a, b), ThreadPoolExecutor(2) as pool:
        a.register("worker", card=card(url))
        asked: dict[str, Any] = {"context": {"target_agent": "worker"}, "message": {"messageId": "once"}}
        tasks = list(pool.map(lambda one: one.send("once", **asked), (a, b)))
    assert tasks[0]["id"] == tasks[1]["id"]
    assert len(agent.of("SendMessage")) == 1


def test_a_task_of_the_first_generation_is_known_by_its_own_id_at_every_broker(tmp_path: Path) -> None:
    agent = Agent(asks)
    with running(agent) as url, replicas(tmp_path) as (a, b):
        a.register("asker", card=card(url))

        def say(one: Broker, text: str) -> Any:
            message = {"role": "user", "parts": [{"type": "text", "text": text}]}
            metadata = {"handoff_context": {
                "source_agent": "old", "target_agent": "asker", "conversation_summary": "s", "user_intent": "i", "key_facts": {},
            }}  # fmt: skip
            params = {"id": "mine-1", "message": message, "metadata": metadata}
            answer = one.http.post("/tasks/send", json=params).json()
            assert "status" in answer, answer
            return answer

        assert say(a, "first")["status"]["state"] == "input-required"
        assert say(b, "second")["status"]["state"] == "completed"
        got = b.http.post("/tasks/get", json={"id": "mine-1"}).json()
        assert got["status"]["state"] == "completed"
    assert len(agent.of("SendMessage")) == 2


def test_a_webhook_that_was_set_at_one_broker_is_told_of_what_happens_at_another(tmp_path: Path) -> None:
    with hook() as told, replicas(tmp_path) as (a, b):
        a.register("hand", workspace="w")
        task = a.send("by hand", wait=False, context={"target_agent": "hand"})
        config = {"taskId": task["id"], "id": "c-1", "url": told.url}
        assert "result" in b.rpc("CreateTaskPushNotificationConfig", config)
        for verb in ("accept", "complete"):
            said = {"agent_id": "hand"} | ({"result": "fine"} if verb == "complete" else {})
            answer = (b if verb == "accept" else a).http.post(f"/api/handoffs/{task['id']}/{verb}", json=said)
            assert answer.is_success, answer.text
        told.until("COMPLETED")
        gone = a.rpc("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "c-1"})
        assert "error" not in gone
        listed = b.rpc("ListTaskPushNotificationConfigs", {"taskId": task["id"]})["result"]
        assert not listed.get("configs")


def test_words_stream_at_one_broker_while_the_agent_talks_to_another(tmp_path: Path) -> None:
    agent = Agent(streams("one ", "two ", "three"))
    with running(agent) as url, replicas(tmp_path) as (a, b):
        a.register("talker", card=card(url, streaming=True))
        params = send_params("tell", context={"target_agent": "talker"}, wait=False)
        task = a.rpc("SendMessage", params)["result"]["task"]
        b.until(task["id"], "completed")
        (artifact,) = b.rpc("GetTask", {"id": task["id"]})["result"]["artifacts"]
        assert "".join(part["text"] for part in artifact["parts"]) == "one two three"
