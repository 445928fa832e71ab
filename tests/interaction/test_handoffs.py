"""Handoffs from end to end, through a real broker and real agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.agents import (
    URI,
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
    streams,
)
from tests.support.running import Broker, broker, kept_port, running

CAN = {"requirements": {"capabilities": ["canWork"]}}


def _register(b: Broker, name: str, url: str, capability: str = "canWork", **more: Any) -> None:
    b.register(name, card=card(url, capabilities={capability: True}, **more))


def _ours(task: dict[str, Any]) -> dict[str, Any]:
    return task["metadata"][URI]


def test_a_rejection_is_a_decline_and_the_next_agent_gets_the_task(tmp_path: Path) -> None:
    no, yes = Agent(rejects), Agent(completes)
    with running(no) as first, running(yes) as second, broker(tmp_path) as b:
        _register(b, "a-no", first)
        _register(b, "b-yes", second)
        task = b.send(context={"target_agent": "a-no", "fallback": ["b-yes"]})
        handoff = b.handoff(task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    outcomes = [(a["agent_id"], a["outcome"]) for a in handoff["attempts"]]
    assert outcomes == [("a-no", "target_rejected"), ("b-yes", None)]


def test_an_agent_that_is_down_is_asked_twice_and_then_the_next_one(tmp_path: Path) -> None:
    yes = Agent(completes)
    with running(yes) as second, broker(tmp_path) as b:
        _register(b, "down", f"http://127.0.0.1:{kept_port()}")
        _register(b, "up", second)
        task = b.send(context={"target_agent": "down", "fallback": ["up"]})
        handoff = b.handoff(task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [(a["agent_id"], a["deliveries"]) for a in handoff["attempts"]] == [("down", 2), ("up", 1)]


def test_when_nobody_takes_it_the_task_comes_back_with_every_attempt_and_its_reason(tmp_path: Path) -> None:
    no = Agent(rejects)
    with running(no) as url, broker(tmp_path) as b:
        _register(b, "no-1", url)
        _register(b, "no-2", url + "/")
        task = b.send(context=CAN)
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert {a["agent_id"] for a in _ours(task)["attempts"]} == {"no-1", "no-2"}
    assert _ours(task)["state"] == "returned"


def test_nobody_capable_comes_back_at_once(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        task = b.send(context={"requirements": {"capabilities": ["canFly"]}})
    assert task["status"]["state"] == "TASK_STATE_REJECTED"


def test_an_explicit_offer_is_answered_ready_before_the_task_is_sent(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        offer = call.ours.get("offer")
        if offer:
            return {"message": said("ready", ready={"offer_id": offer["offer_id"]})}
        return await completes(agent, call)

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "polite", url, speaks=True)
        task = b.send(context=CAN)
        log = b.log(task["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    offer, delivered = agent.of("SendMessage")
    assert offer.ours["offer"]["offer_id"] == delivered.ours["offer_id"]
    assert [e for e in log if e != "remote_learnt"] == [
        "handoff_requested", "handoff_offered", "handoff_acknowledged", "handoff_completed",
    ]  # fmt: skip


def test_a_declined_offer_moves_on_with_the_agents_own_reason(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        return {
            "message": said("no", declined={"offer_id": call.ours["offer"]["offer_id"], "reason": "full"})
        }

    busy, free = Agent(script), Agent(completes)
    with running(busy) as first, running(free) as second, broker(tmp_path) as b:
        _register(b, "busy", first, speaks=True)
        _register(b, "free", second)
        task = b.send(context={"target_agent": "busy", "fallback": ["free"]})
        attempts = b.handoff(task["id"])["attempts"]
    assert (attempts[0]["outcome"], attempts[0]["detail"]) == ("target_rejected", "full")
    assert attempts[1]["agent_id"] == "free"


def test_a_question_of_the_target_reaches_the_caller_and_the_reply_the_target(tmp_path: Path) -> None:
    agent = Agent(asks)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "asker", url)
        task = b.send(context=CAN)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        done = b.send("the blue one", message={"taskId": task["id"]})
    assert done["id"] == task["id"]
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    first, second = agent.of("SendMessage")
    assert "taskId" not in first.message
    assert second.message["taskId"] == "r-1"
    assert second.message["contextId"] == "rc-r-1"


def test_streamed_chunks_reach_the_caller_as_they_come(tmp_path: Path) -> None:
    agent = Agent(streams("one ", "two ", "three"))
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "streamer", url, streaming=True)
        events = list(b.events(context=CAN))
    kinds = [next(iter(e["result"])) for e in events]
    assert kinds[0] == "task"
    texts = [
        e["result"]["artifactUpdate"]["artifact"]["parts"][0]["text"]
        for e in events
        if "artifactUpdate" in e["result"]
    ]
    assert texts == ["one ", "two ", "three"]
    assert events[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_what_came_in_chunks_is_one_text_in_the_result(tmp_path: Path) -> None:
    agent = Agent(streams("one ", "tw", "o"))
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "streamer", url, streaming=True)
        task = b.send(context=CAN)
        assert b.handoff(task["id"])["result"] == "one two"


def test_the_callers_stream_says_that_a_handoff_started_and_who_has_it(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        events = list(b.events(context=CAN))
    told = [
        part["data"]
        for e in events
        for part in e["result"].get("statusUpdate", {}).get("status", {}).get("message", {}).get("parts", [])
        if "data" in part
    ]
    started = next(d for d in told if d.get("event") == "handoff_started")
    assert started["type"] == "system_event"
    assert started["target_agent"] == "worker"
    assert started["message"]
    assert [d["event"] for d in told][:3] == ["handoff_started", "handoff_confirmed", "source_standby"]


def test_a_chain_of_three_agents_completes_as_one_task(tmp_path: Path) -> None:
    second = Agent(completes)
    first = Agent(hands_on(requirements={"capabilities": ["canFinish"]}, user_intent="Finish it."))
    with running(first) as one, running(second) as two, broker(tmp_path) as b:
        _register(b, "b", one)
        _register(b, "c", two, "canFinish")
        task = b.send(context=CAN)
        chain = b.http.get(f"/api/chains/{_ours(task)['correlation_id']}").json()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"][0]["text"] == "done: hello"
    assert [h["handoff_chain"] for h in chain["handoffs"]][-1] == ["triage", "b", "c"]
    (call,) = second.of("SendMessage")
    assert call.ours["hop_count"] == 2
    assert call.ours["user_intent"] == "Finish it."


def test_a_loop_by_directive_is_refused_and_the_task_goes_back_with_the_path(tmp_path: Path) -> None:
    back = Agent(hands_on(target_agent="triage", user_intent="You do it."))
    triage = Agent(completes)
    with running(back) as one, running(triage) as two, broker(tmp_path) as b:
        _register(b, "b", one)
        b.register("triage", card=card(two))
        task = b.send(context=CAN)
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert "triage -> b -> triage" in str(task)
    assert triage.calls == []


def test_cancel_reaches_the_target_and_is_final(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return agent.task("CANCELED", task_id=call.params["id"])
        return {"task": agent.task("WORKING")}

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        task = b.send(context=CAN, wait=False)
        b.until(task["id"], "acknowledged")
        answer = b.rpc("CancelTask", {"id": task["id"]})
    assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert len(agent.of("CancelTask")) == 1


def test_a_target_that_takes_the_request_and_says_nothing_is_uncertain_not_replaced(tmp_path: Path) -> None:
    mute, other = Agent(hangs), Agent(completes)
    with running(mute) as one, running(other) as two, broker(tmp_path, ack_wait=0.2) as b:
        _register(b, "mute", one)
        _register(b, "other", two)
        context = {"target_agent": "mute", "fallback": ["other"]}
        task = b.send(context=context, wait=False)
        safe = b.send("again", context=context | {"replay_safe": True})
        log = b.log(task["id"])
        b.rpc("CancelTask", {"id": task["id"]})
    assert "delivery_uncertain" in log
    assert other.of("SendMessage")[0].text == "again"
    assert safe["status"]["state"] == "TASK_STATE_COMPLETED"


def test_the_same_message_twice_is_one_task_and_other_content_is_a_conflict(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        message = {"messageId": "m1"}
        first = b.send("pay 10", context=CAN, message=message)
        again = b.send("pay 10", context=CAN, message=message)
        other = b.rpc(
            "SendMessage",
            {
                "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "pay 99"}]},
                "metadata": {"handoff_context": {"source_agent": "triage", "conversation_summary": "x", "user_intent": "y", "key_facts": {}, **CAN}},
            },
        )  # fmt: skip
    assert again["id"] == first["id"]
    assert len(agent.of("SendMessage")) == 1
    assert other["error"]["code"] == -32602
    assert other["error"]["data"][0]["reason"] == "IDEMPOTENCY_CONFLICT"


def test_work_that_was_under_way_goes_on_after_a_restart(tmp_path: Path) -> None:
    state = {"now": "WORKING"}

    async def script(agent: Agent, call: Call) -> Answer:
        return {"task": agent.task(state["now"])}

    agent = Agent(script)
    with running(agent) as url:
        with broker(tmp_path) as b:
            _register(b, "worker", url)
            task = b.send(context=CAN, wait=False)
            b.until(task["id"], "acknowledged")
        agent.tasks["r-1"]["status"] = {"state": "TASK_STATE_COMPLETED"}
        with broker(tmp_path) as b:
            done = b.until(task["id"], "completed")
    assert done["state"] == "completed"
    assert len(agent.of("SendMessage")) == 1


def test_an_agent_may_spell_its_id_in_another_case(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("Editor", platform="cursor")
        b.http.post("/api/agents/editor/heartbeat", json={})
        task = b.send(context={"requirements": {"agent_type": "code"}}, wait=False)
        pending = b.http.get("/api/handoffs/pending", params={"target": "EDITOR"}).json()["handoffs"]
        accepted = b.http.post(f"/api/handoffs/{task['id']}/accept", json={"agent_id": "editor"})
        done = b.http.post(
            f"/api/handoffs/{task['id']}/complete", json={"agent_id": "EDITOR", "result": "ok"}
        )
    assert [h["handoff_id"] for h in pending] == [task["id"]]
    assert accepted.json()["assigned_to"] == "Editor"
    assert done.json()["state"] == "completed"
