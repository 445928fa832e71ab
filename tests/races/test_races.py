"""What happens at the same moment, is interrupted in the middle, or comes in the wrong order.

Each test is named after the fault that it keeps out. They run against a real broker with real agents; where
the store has to fail, it is the real one with a fault put in.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff import dispatcher, talk
from a2a_handoff.core import commands as cmd
from a2a_handoff.ports import Commit, Committed, StoreUnavailable, Update
from tests.client.raw_server import SSE_HEAD, Request, answer, chunk, event, rpc, says, working
from tests.support.agents import (
    URI,
    Agent,
    Answer,
    Call,
    asks,
    card,
    completes,
    hands_on,
    rejects,
    said,
)
from tests.support.running import Ahead, Broker, broker, kept_port, running, send_params
from tests.support.wire import Caller, Gate, calls, eventually, raw, streaming_body, tells

CAN = {"requirements": {"capabilities": ["canWork"]}}


def _register(b: Broker, name: str, url: str, capability: str = "canWork", **more: Any) -> None:
    b.register(name, card=card(url, capabilities={capability: True}, **more))


def _needs(capability: str) -> dict[str, Any]:
    return {"requirements": {"capabilities": [capability]}}


async def _ready(agent: Agent, call: Call) -> Answer | None:
    """What an agent answers that speaks our extension and is ready; ``None`` if it was not asked."""
    offer = call.ours.get("offer")
    return {"message": said("ready", ready={"offer_id": offer["offer_id"]})} if offer else None


class Fault:
    """Makes one method of the store fail, until it is mended."""

    def __init__(self, b: Broker, name: str) -> None:
        self._store, self._name = b.app.store, name
        self._whole = getattr(self._store, name)
        self.tried = 0
        setattr(self._store, name, self._fail)

    def _fail(self, *_: Any, **__: Any) -> Awaitable[Any]:
        async def failing() -> Any:
            self.tried += 1
            raise StoreUnavailable("no space left")

        return failing()

    def mend(self) -> None:
        setattr(self._store, self._name, self._whole)


# --- commits and those who wait for them ---------------------------------------------------------


def test_a_commit_whose_asker_is_cancelled_is_told_to_those_who_wait_for_it(tmp_path: Path) -> None:
    """Else a follower would sleep until something else happens, and the work would lie until a restart."""
    agent = Agent(asks)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "asker", url)
        task = b.send(context=CAN)
        ledger, store = b.app.service.ledger, b.app.store

        async def cancelled_in_the_middle() -> None:
            commit = store.commit

            def and_cancel(*args: Any) -> Awaitable[Committed]:
                pending = commit(*args)
                asyncio.get_running_loop().call_soon(change.cancel)
                return pending

            message = {"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "blue"}]}
            reply = cmd.Reply(message=json.dumps(message).encode(), message_id="m2")
            change = asyncio.ensure_future(ledger.change(task["id"], lambda _: (reply,)))
            store.commit = and_cancel  # type: ignore[method-assign]
            try:
                await asyncio.wait((change,))
            finally:
                store.commit = commit  # type: ignore[method-assign]
            assert change.cancelled()

        b.loop.run(cancelled_in_the_middle())
        done = b.until(task["id"], "completed", timeout_s=3)
        assert b.log(task["id"]).count("reply_received") == 1
    assert done["state"] == "completed"
    assert [call.text for call in agent.of("SendMessage")] == ["hello", "blue"]


def test_a_slow_reader_gets_every_chunk_once(tmp_path: Path) -> None:
    count = 600
    texts = [f"{number} " for number in range(count)]

    async def script(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            for number, text in enumerate(texts):
                yield agent.artifact(task, "text", text, append=number > 0, last=number == count - 1)
                if number % 50 == 0:
                    await asyncio.sleep(0)
            yield agent.status(task, "COMPLETED", "done")

        return events()

    with running(Agent(script)) as url, broker(tmp_path) as b:
        _register(b, "streamer", url, streaming=True)
        with Caller(b.url) as caller:
            caller.post("/", streaming_body(context=CAN), headers="A2A-Version: 1.0\r\nConnection: close\r\n")
            caller.until(b"TASK_STATE_WORKING")
            handoff_id = b.http.get("/api/handoffs").json()["handoffs"][0]["handoff_id"]
            b.until(handoff_id, "completed")
            body = caller.rest().decode()
        stored = b.handoff(handoff_id)["artifacts"][0]["parts"]
    events = [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data:")]
    read = [
        part["text"]
        for each in events
        for part in each["result"].get("artifactUpdate", {}).get("artifact", {}).get("parts", [])
    ]
    assert read == texts
    assert [part["text"] for part in stored] == texts


# --- the store fails in the middle ---------------------------------------------------------------


def test_an_answer_that_comes_while_the_store_cannot_write_is_kept_and_nothing_is_sent_again(
    tmp_path: Path,
) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        await gate.wait()
        return await completes(agent, call)

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        task = b.send(context=CAN, wait=False)
        eventually(lambda: agent.of("SendMessage"))
        fault = Fault(b, "commit")
        gate.open()
        eventually(lambda: fault.tried >= 2)
        fault.mend()
        done = b.until(task["id"], "completed")
    assert done["result"] == "done: hello"
    assert len(agent.of("SendMessage")) == 1


def test_work_that_cannot_be_put_back_now_is_put_back_later(tmp_path: Path) -> None:
    """Held by a process that does not do it, it would be done by nobody until a restart."""
    port = kept_port()
    agent = Agent(completes)
    with broker(tmp_path, ack_wait=0.5) as b:
        _register(b, "down", f"http://127.0.0.1:{port}")
        commit, release = None, Fault(b, "release_work")
        writes = b.app.store.commit

        def after_the_request(one: Commit) -> Any:
            nonlocal commit
            pending = writes(one)
            commit = Fault(b, "commit")
            return pending

        b.app.store.commit = after_the_request  # type: ignore[method-assign]
        task = b.send(context=CAN, wait=False)
        eventually(lambda: release.tried >= 2)
        b.app.store.commit = writes  # type: ignore[method-assign]
        with running(agent, port=port):
            release.mend()
            done = b.until(task["id"], "completed")
    assert done["attempts"][0]["agent_id"] == "down"
    assert len(agent.of("SendMessage")) == 1


def test_a_fault_of_ours_in_a_conversation_does_not_send_the_task_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(talk, "interpret", broken)
    monkeypatch.setattr(dispatcher, "_FAULT_AGAIN_S", 0.05)
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b, caplog.at_level(logging.ERROR):
        _register(b, "worker", url)
        task = b.send(context=CAN, wait=False)
        eventually(lambda: "delivery_uncertain" in b.log(task["id"]))
        assert b.handoff(task["id"])["state"] == "offered"
    assert len(agent.of("SendMessage")) == 1
    assert any("a fault of ours" in str(record.exc_info) for record in caplog.records)


def test_a_reader_that_breaks_ends_the_conversation(tmp_path: Path) -> None:
    """Whatever it is that breaks it: else nobody would hear of it until the deadline."""

    async def breaks() -> AsyncGenerator[Update]:
        yield Update(remote_task_id="r-1")
        raise RuntimeError("a fault of ours")

    async def read() -> list[list[Update]]:
        return [batch async for batch in talk._batches(breaks())]

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="a fault of ours"):
        asyncio.run(asyncio.wait_for(read(), 5))
    assert time.monotonic() - began < 4


# --- stopping and starting -----------------------------------------------------------------------


def test_an_offer_that_a_stopping_broker_makes_is_not_taken_for_one_that_had_begun(tmp_path: Path) -> None:
    """The first agent refuses while the broker stops, so the next one is offered the task by nobody."""
    asked, gate = threading.Event(), Gate()

    async def slow_no(_: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await gate.wait()
        await says(answer(b"", 503))(_, writer)

    other = Agent(completes)
    with raw(SendMessage=slow_no) as server, running(other) as url:
        with broker(tmp_path, deliveries=1) as b:
            _register(b, "first", server.url)
            _register(b, "other", url)
            task = b.send(context={"target_agent": "first", "fallback": ["other"]}, wait=False)
            assert asked.wait(10)

            def refuse_while_it_stops() -> None:
                eventually(lambda: b.app.service.dispatcher._claims.stopping)
                gate.open()

            refusing = threading.Thread(target=refuse_while_it_stops)
            refusing.start()
        refusing.join(10)
        assert other.of("SendMessage") == []
        with broker(tmp_path) as b:
            done = b.until(task["id"], "completed")
    assert [(a["agent_id"], a["outcome"]) for a in done["attempts"]] == [
        ("first", "target_unavailable"),
        ("other", None),
    ]


def test_a_reply_that_was_on_its_way_when_the_broker_died_is_not_passed_on_twice(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        if call.message.get("taskId"):
            agent.task("WORKING", task_id="r-1")
            await asyncio.Event().wait()
        return {"task": agent.task("INPUT_REQUIRED", "Which one?")}

    agent = Agent(script)
    with running(agent) as url:
        with broker(tmp_path, grace=0.2) as b:
            _register(b, "asker", url)
            task = b.send(context=CAN)
            b.send("blue", wait=False, message={"taskId": task["id"]})
            eventually(lambda: len(agent.of("SendMessage")) == 2)
        agent.task("COMPLETED", "blue it is", task_id="r-1")
        with broker(tmp_path) as b:
            done = b.until(task["id"], "completed")
    assert done["status_message"]["parts"] == [{"text": "blue it is"}]
    assert [call.text for call in agent.of("SendMessage")] == ["hello", "blue"]


# --- offers, cancels and what overtakes them -----------------------------------------------------


def test_an_agent_that_was_ready_and_then_rejects_the_task_gives_it_back(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        return await _ready(agent, call) or await rejects(agent, call)

    with running(Agent(script)) as url, broker(tmp_path) as b:
        _register(b, "fickle", url, speaks=True)
        task = b.send(context=CAN)
        handoff = b.handoff(task["id"])
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert (handoff["state"], handoff["outcome"]) == ("returned", "target_rejected")


def test_a_cancel_that_comes_while_the_offer_is_out_keeps_the_task_from_being_sent(tmp_path: Path) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.ours.get("offer"):
            await gate.wait()
        return await _ready(agent, call) or await completes(agent, call)

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, ack_wait=5, cancel_wait=5) as b:
        _register(b, "polite", url, speaks=True)
        task = b.send(context=CAN, wait=False)
        eventually(lambda: agent.of("SendMessage"))
        assert b.http.post(f"/api/handoffs/{task['id']}/cancel").status_code == 200
        gate.open()
        done = b.until(task["id"], "canceled")
        eventually(lambda: len(agent.of("SendMessage")) == 2)
        offer, rescinded = agent.of("SendMessage")
    assert done["detail"] == ""
    assert rescinded.ours["rescinded"]["offer_id"] == offer.ours["offer"]["offer_id"]


@pytest.mark.parametrize("fallback", [True, False])
def test_an_agent_whose_offer_lapsed_is_told_so(tmp_path: Path, fallback: bool) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        if call.ours.get("offer"):
            await asyncio.Event().wait()
        return {"message": said("fine")}

    mute, other = Agent(script), Agent(completes)
    with running(mute) as one, running(other) as two, broker(tmp_path, ack_wait=0.2, deliveries=1) as b:
        _register(b, "mute", one, speaks=True)
        _register(b, "other", two)
        context = {"target_agent": "mute"} | ({"fallback": ["other"]} if fallback else {})
        task = b.send(context=context)
        eventually(lambda: [call for call in mute.of("SendMessage") if "rescinded" in call.ours])
    assert task["status"]["state"] == f"TASK_STATE_{'COMPLETED' if fallback else 'REJECTED'}"


def test_a_cancel_that_the_target_could_not_be_told_reaches_it_when_its_task_is_known(tmp_path: Path) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return agent.task("CANCELED", task_id=call.params["id"])
        await gate.wait()
        return {"task": agent.task("WORKING")}

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, ack_wait=0.2, cancel_wait=20) as b:
        _register(b, "slow", url)
        task = b.send(context=CAN, wait=False)
        eventually(lambda: "delivery_uncertain" in b.log(task["id"]))
        b.http.post(f"/api/handoffs/{task['id']}/cancel")
        gate.open()
        done = b.until(task["id"], "canceled")
    assert done["detail"] == ""
    assert len(agent.of("CancelTask")) == 1


def test_a_task_that_is_given_back_after_a_cancel_is_canceled(tmp_path: Path) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return {"error": {"code": -32002, "message": "not now"}}
        task = agent.task("WORKING")

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": task}
            await gate.wait()
            yield agent.status(task, "COMPLETED", "take it back", release={"reason": "no time"})

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, cancel_wait=20) as b:
        _register(b, "worker", url, streaming=True)
        task = b.send(context=CAN, wait=False)
        b.until(task["id"], "acknowledged")
        b.http.post(f"/api/handoffs/{task['id']}/cancel")
        eventually(lambda: agent.of("CancelTask"))
        gate.open()
        done = b.until(task["id"], "canceled", "returned")
    assert done["state"] == "canceled"


# --- what the caller says meanwhile --------------------------------------------------------------


def test_a_reply_that_the_target_could_not_take_is_passed_on_again(tmp_path: Path) -> None:
    tried: list[str] = []

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        message = request.params["message"]
        state = "COMPLETED" if message.get("taskId") else "INPUT_REQUIRED"
        if message.get("taskId"):
            tried.append(message["messageId"])
            if len(tried) == 1:
                await says(answer(b"", 503))(request, writer)
                return
        task = {"id": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}"}}
        await says(answer(rpc({"task": task})))(request, writer)

    with raw(SendMessage=script) as server, broker(tmp_path) as b:
        _register(b, "asker", server.url)
        task = b.send(context=CAN)
        done = b.send("blue", message={"taskId": task["id"], "messageId": "m2"})
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert tried == ["m2", "m2"]


def test_a_message_that_comes_before_anybody_has_the_task_goes_to_whoever_takes_it(tmp_path: Path) -> None:
    gate = Gate()

    async def slow_no(agent: Agent, call: Call) -> Answer:
        await gate.wait()
        return await rejects(agent, call)

    async def takes(agent: Agent, call: Call) -> Answer:
        if call.message.get("taskId"):
            return {"task": agent.task("COMPLETED", f"with {call.text}", task_id="r-1")}
        return {"task": dict(agent.task("WORKING"))}

    first, second = Agent(slow_no), Agent(takes)
    with running(first) as one, running(second) as two, broker(tmp_path) as b:
        _register(b, "first", one)
        _register(b, "second", two)
        task = b.send(context={"target_agent": "first", "fallback": ["second"]}, wait=False)
        eventually(lambda: first.of("SendMessage"))
        b.send("sugar", wait=False, message={"taskId": task["id"]})
        gate.open()
        done = b.until(task["id"], "completed")
    assert done["status_message"]["parts"] == [{"text": "with sugar"}]
    assert [call.text for call in second.of("SendMessage")] == ["hello", "sugar"]


def test_messages_of_the_caller_reach_the_target_in_their_order(tmp_path: Path) -> None:
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if not call.message.get("taskId"):
            return {"task": dict(agent.task("INPUT_REQUIRED", "Tell me."))}
        if call.text == "one":
            await gate.wait()
            return {"task": dict(agent.task("WORKING", task_id="r-1"))}
        return {"task": agent.task("COMPLETED", "all", task_id="r-1")}

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, ack_wait=10) as b:
        _register(b, "asker", url)
        task = b.send(context=CAN)
        b.send("one", wait=False, message={"taskId": task["id"]})
        eventually(lambda: len(agent.of("SendMessage")) == 2)
        b.send("two", wait=False, message={"taskId": task["id"]})
        eventually(lambda: len(b.app.service.dispatcher._tasks) == 2)
        assert [call.text for call in agent.of("SendMessage")] == ["hello", "one"]
        gate.open()
        b.until(task["id"], "completed")
    assert [call.text for call in agent.of("SendMessage")] == ["hello", "one", "two"]


def test_a_question_that_a_message_overtook_is_not_asked_again(tmp_path: Path) -> None:
    """The stream brings the question when the answer is there already: the target is at work."""
    said_beside, question = Gate(), Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "SubscribeToTask":
            return {"error": {"code": -32004, "message": "no"}}
        if call.message.get("taskId"):

            async def answered() -> AsyncIterator[dict[str, Any]]:
                yield {"task": dict(agent.tasks["r-1"])}
                said_beside.open()
                await question.wait()

            return answered()
        task = agent.task("WORKING")

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": dict(task)}
            await said_beside.wait()
            await question.wait()
            status = agent.status(dict(task), "INPUT_REQUIRED", "Which one?")
            yield status

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, reconcile_every=0.1) as b:
        _register(b, "hasty", url, streaming=True)
        task = b.send(context=CAN, wait=False)
        b.until(task["id"], "acknowledged")
        b.send("the blue one", wait=False, message={"taskId": task["id"]})
        eventually(lambda: not [t for t, k in b.app.service.dispatcher._tasks.items() if k.kind == "forward"])
        question.open()
        eventually(lambda: agent.of("GetTask"))
        agent.task("COMPLETED", "blue", task_id="r-1")
        done = b.until(task["id"], "completed")
        log = b.log(task["id"])
    assert done["status_message"]["parts"] == [{"text": "blue"}]
    assert "caller_asked" not in log


def test_a_target_that_waits_for_the_caller_is_left_alone(tmp_path: Path) -> None:
    """It was late with its question, so a look at it had been planned before."""
    gate = Gate()

    async def script(agent: Agent, call: Call) -> Answer:
        await gate.wait()
        return {"task": agent.task("INPUT_REQUIRED", "Which one?")}

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, ack_wait=0.1, reconcile_every=0.3) as b:
        _register(b, "asker", url)
        task = b.send(context=CAN, wait=False)
        eventually(lambda: "delivery_uncertain" in b.log(task["id"]))
        gate.open()
        b.until(task["id"], "input_required")
        log = b.log(task["id"])
        store = b.app.store
        eventually(lambda: (b.loop.run(store.next_due()) or 0.0) - time.time() > 3)
        assert b.log(task["id"]) == log
    assert agent.of("GetTask") == []


@pytest.mark.parametrize("streaming", [True, False])
def test_a_target_that_was_authorised_elsewhere_is_heard_though_the_caller_said_nothing(
    tmp_path: Path, streaming: bool
) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task("WORKING")
        if not streaming:
            return {"task": agent.task("AUTH_REQUIRED", "Sign in.", task_id=task["id"])}

        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"task": task}
            yield agent.status(task, "AUTH_REQUIRED", "Sign in.")

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, reconcile_every=0.1) as b:
        _register(b, "strict", url, streaming=streaming)
        task = b.send(context=CAN, wait=False)
        b.until(task["id"], "auth_required")
        eventually(lambda: len(agent.of("GetTask")) > 2)
        log = b.log(task["id"])
        assert log[-1] == "caller_asked"
        agent.task("COMPLETED", "done", task_id="r-1")
        done = b.until(task["id"], "completed")
    assert done["status_message"]["parts"] == [{"text": "done"}]
    assert [call.method for call in agent.calls if call.method.startswith("Send")] == [
        "SendStreamingMessage" if streaming else "SendMessage"
    ]


# --- the stream is cut ---------------------------------------------------------------------------


def test_output_that_was_streamed_is_not_recorded_again_when_the_target_is_asked(tmp_path: Path) -> None:
    """The target writes its artifact its own way: what counts is what is in it."""
    whole = {"parts": [{"text": "one "}, {"text": "two"}], "artifactId": "a"}
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "result": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [whole]}}, indent=2)  # fmt: skip
    with (
        raw(
            SendStreamingMessage=says(
                SSE_HEAD, event(working()), event(chunk("one ", append=False)), event(chunk("two"))
            ),
            GetTask=says(answer(body.encode())),
        ) as server,
        broker(tmp_path) as b,
    ):
        _register(b, "cut", server.url, streaming=True)
        events = list(b.events(context=CAN))
        handoff = b.handoff(events[0]["result"]["task"]["id"])
        log = b.log(handoff["handoff_id"])
    texts = [
        part["text"]
        for each in events
        for part in each["result"].get("artifactUpdate", {}).get("artifact", {}).get("parts", [])
    ]
    assert texts == ["one ", "two"]
    assert handoff["state"] == "completed"
    assert "delivery_uncertain" in log


def test_a_target_whose_streams_end_at_once_is_asked_now_and_then(tmp_path: Path) -> None:
    times: list[float] = []

    async def still_working(request: Request, writer: asyncio.StreamWriter) -> None:
        times.append(time.monotonic())
        await tells("WORKING")(request, writer)

    short = says(SSE_HEAD, event(working()))
    with (
        raw(SendStreamingMessage=short, SubscribeToTask=short, GetTask=still_working) as server,
        broker(tmp_path, reconcile_every=0.2) as b,
    ):
        _register(b, "brief", server.url, streaming=True)
        task = b.send(context=CAN, wait=False)
        eventually(lambda: len(times) >= 4)
        b.http.post(f"/api/handoffs/{task['id']}/cancel")
    assert all(later - earlier >= 0.19 for earlier, later in itertools.pairwise(times))
    assert len(calls(server, "SendStreamingMessage")) == 1


# --- agents that come ----------------------------------------------------------------------------


def test_a_handoff_that_waits_goes_to_the_agent_that_comes(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("puller", capabilities={"canWork": True})
        clock.seconds += 1000
        task = b.send(context=CAN, wait=False)
        assert b.handoff(task["id"])["state"] == "requested"
        b.http.post("/api/agents/puller/heartbeat", json={"status": "online"})
        offered = b.until(task["id"], "offered")
    assert offered["assigned_to"] == "puller"


def test_an_agent_that_comes_while_the_handoff_is_being_stored_is_not_missed(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock) as b:
        b.register("puller", capabilities={"canWork": True})
        clock.seconds += 1000
        registry = b.app.registry
        resolve = registry.resolve

        def and_it_comes(*args: Any, **more: Any) -> Any:
            found = resolve(*args, **more)
            registry.presence.heard_from("default", "puller")
            return found

        registry.resolve = and_it_comes  # type: ignore[method-assign]
        task = b.send(context=CAN, wait=False)
        offered = b.until(task["id"], "offered")
    assert offered["assigned_to"] == "puller"


def test_a_handoff_for_an_agent_that_is_gone_comes_back(tmp_path: Path) -> None:
    """What was asked for means nothing any more when it is looked for anew."""
    gate = Gate()

    async def slow_no(agent: Agent, call: Call) -> Answer:
        await gate.wait()
        return await rejects(agent, call)

    agent = Agent(slow_no)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "only-one", url)
        task = b.send(context={"requirements": {"agent_type": "only-one"}}, wait=False)
        eventually(lambda: agent.of("SendMessage"))
        assert b.http.delete("/api/agents/only-one").status_code == 204
        gate.open()
        done = b.until(task["id"], "returned")
    assert done["attempts"][0]["outcome"] == "target_rejected"


# --- chains --------------------------------------------------------------------------------------


def test_a_chain_ends_from_wherever_it_ends_up_to_its_root(tmp_path: Path) -> None:
    """The third agent hands on to nobody: that child is over the moment that it is made."""
    first = Agent(hands_on(user_intent="Go on.", **_needs("canB")))
    second = Agent(hands_on(user_intent="Go on.", **_needs("canNobody")))
    with running(first) as one, running(second) as two, broker(tmp_path) as b:
        _register(b, "A", one, "canA")
        _register(b, "B", two, "canB")
        task = b.send(context=_needs("canA"))
        chain = b.http.get(f"/api/chains/{task['metadata'][URI]['correlation_id']}").json()["handoffs"]
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert [h["state"] for h in chain] == ["returned"] * 3


def test_an_agent_that_calls_the_broker_before_it_answers_has_taken_the_task(tmp_path: Path) -> None:
    """It works inside its first call, and needs help for that: neither a loop nor a wrong state."""
    url_of: list[str] = []
    helped: list[Any] = []

    async def script(agent: Agent, call: Call) -> Answer:
        import httpx

        params = send_params(
            "help me",
            context={"source_agent": "B", "correlation_id": call.ours["correlation_id"], **_needs("canC")},
        )
        async with httpx.AsyncClient(trust_env=False) as http:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
            answered = await http.post(url_of[0], json=body, headers={"A2A-Version": "1.0"})
            helped.append(answered.json())
        return await completes(agent, call)

    help_ = Agent(completes)
    with running(Agent(script)) as one, running(help_) as two, broker(tmp_path) as b:
        url_of.append(b.url + "/")
        _register(b, "B", one, "canB")
        _register(b, "C", two, "canC")
        task = b.send(context=_needs("canB"))
        log = b.log(task["id"])
    assert helped[0]["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert help_.of("SendMessage")[0].ours["handoff_chain"] == ["triage", "B", "C"]
    assert log.count("handoff_acknowledged") == 1
    assert log.index("handoff_acknowledged") < log.index("child_attached")
