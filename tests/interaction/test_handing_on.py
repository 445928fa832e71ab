"""Handing on again and again, and the same directive twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.core.context import Package
from a2a_handoff.wire.context_reader import read_context
from tests.support.agents import Agent, Answer, Call, asks, card, completes, said
from tests.support.running import Broker, broker, running
from tests.support.wire import eventually

_CAN = {"requirements": {"capabilities": ["canWork"]}}


def _register(b: Broker, name: str, url: str, **more: Any) -> None:
    b.register(name, card=card(url, capabilities={"canWork": True}, **more))


def test_a_target_that_wants_the_same_help_for_ever_is_stopped(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task("WORKING", task_id=call.message.get("taskId", ""))
        directive = {"requirements": {"capabilities": ["canFly"]}, "mode": "delegate"}
        task["status"]["message"] = said("help me", handoff=directive)
        return {"task": task}

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        _register(b, "stubborn", url)
        task = b.send(context=_CAN, wait=False)
        ended = b.until(task["id"], "returned")
    assert ended["attempts"][0]["outcome"] == "max_hops_exceeded"
    assert len(ended["children"]) == 5


def test_a_caller_that_names_its_handoff_is_stopped_as_well(tmp_path: Path) -> None:
    called = threading.Event()

    async def script(agent: Agent, call: Call) -> Answer:
        called.set()
        return {"task": agent.task("WORKING")}

    with running(Agent(script)) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        task = b.send(context=_CAN, wait=False)
        b.until(task["id"], "acknowledged")
        again = {
            "task": "fly", "source_agent": "worker", "parent_handoff_id": task["id"],
            "requirements": {"capabilities": ["canFly"]},
        }  # fmt: skip
        answers = [b.http.post("/api/handoffs", json=again) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [201] * 5 + [409]
    assert answers[-1].json()["code"] == "max_hops_exceeded"


def test_a_directive_that_is_read_twice_hands_on_once(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        return {"task": agent.task("WORKING")}

    with running(Agent(script)) as url, broker(tmp_path) as b:
        _register(b, "worker", url)
        b.register("editor")
        task = b.send(context=_CAN, wait=False)
        b.until(task["id"], "acknowledged")

        async def hand_on(target: str) -> str:
            parent = await b.app.service.journal.load(task["id"])
            assert parent.attempt is not None
            child = await b.app.broker.hand_on(parent, parent.attempt, *_directive(target), target_open=True)
            return child.id

        first = b.loop.run(hand_on("editor"))
        assert b.loop.run(hand_on("editor")) == first
        handoff = b.handoff(task["id"])
    assert (handoff["state"], [child["handoff_id"] for child in handoff["children"]]) == (
        "acknowledged",
        [first],
    )


@pytest.mark.parametrize("state", ["REJECTED", "FAILED", "CANCELED", "INPUT_REQUIRED"])
def test_a_directive_outranks_whatever_status_carries_it(tmp_path: Path, state: str) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task(state)
        task["status"]["message"] = said("not mine", handoff={"requirements": {"capabilities": ["canEnd"]}})
        return {"task": task}

    with running(Agent(script)) as first, running(Agent(completes)) as last, broker(tmp_path) as b:
        _register(b, "first", first)
        b.register("ends", card=card(last, capabilities={"canEnd": True}))
        task = b.send(context=_CAN)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_what_is_passed_on_is_evidence_for_the_score(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task("COMPLETED")
        directive = {"key_facts": {"invoice": "INV-7"}, "requirements": {"capabilities": ["canEnd"]}}
        task["status"]["message"] = said("handing on", handoff=directive)
        return {"task": task}

    with running(Agent(script)) as first, running(Agent(completes)) as last, broker(tmp_path) as b:
        _register(b, "forgets", first)
        b.register("ends", card=card(last, capabilities={"canEnd": True}))
        task = b.send(context=_CAN)
        handoff = b.handoff(task["id"])
    # One of two facts; intent and summary are as they were, nothing else was sent.
    assert handoff["context_score"] == pytest.approx((0.25 + 0.35 / 2 + 0.15) / (0.25 + 0.35 + 0.15))


def test_a_question_of_a_helper_goes_to_the_agent_that_asked_for_help_and_not_to_the_caller(
    tmp_path: Path,
) -> None:
    heard: list[dict[str, Any]] = []

    async def asks_for_help(agent: Agent, call: Call) -> Answer:
        child = call.ours.get("child")
        if child is None:
            task = agent.task("WORKING")
            directive = {"requirements": {"capabilities": ["canHelp"]}, "mode": "delegate"}
            task["status"]["message"] = said("help me", handoff=directive)
            return {"task": task}
        heard.append(child)
        task = agent.tasks[call.message["taskId"]]
        if child["state"] == "completed":
            task["status"] = {"state": "TASK_STATE_COMPLETED", "message": said("done with help")}
        else:
            task["status"] = {"state": "TASK_STATE_WORKING"}
        return {"task": task}

    with running(Agent(asks_for_help)) as first, running(Agent(asks)) as second, broker(tmp_path) as b:
        _register(b, "asker", first)
        b.register("helper", card=card(second, capabilities={"canHelp": True}))
        task = b.send(context=_CAN, wait=False)
        eventually(lambda: heard)
        assert (heard[0]["state"], b.handoff(task["id"])["state"]) == ("input_required", "acknowledged")
        b.send("the blue one", message={"taskId": heard[0]["handoff_id"]}, wait=False)
        b.until(task["id"], "completed")
    assert [child["state"] for child in heard] == ["input_required", "completed"]


def _directive(target: str) -> tuple[Package, bytes]:
    body = (
        b'{"target_agent":"%b","conversation_summary":"s","user_intent":"i","key_facts":{}}' % target.encode()
    )
    return read_context(body, path="x", now=0.0), body
