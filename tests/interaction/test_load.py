"""How loaded and how good an agent is, counted over whole chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.agents import Agent, Answer, Call, card, completes, hands_on, said
from tests.support.running import Broker, broker, running

_FIRST = {"requirements": {"capabilities": ["canStart"]}}


def _counts(b: Broker, agent_id: str) -> dict[str, Any]:
    agent = b.http.get(f"/api/agents/{agent_id}").json()
    return {name: agent[name] for name in ("in_flight", "received", "completed", "failed")}


def test_an_agent_that_handed_on_is_through_with_it_once(tmp_path: Path) -> None:
    first, second = Agent(hands_on(requirements={"capabilities": ["canEnd"]})), Agent(completes)
    with running(first) as a, running(second) as z, broker(tmp_path) as b:
        b.register("first", card=card(a, capabilities={"canStart": True}))
        b.register("last", card=card(z, capabilities={"canEnd": True}))
        task = b.send(context=_FIRST)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert _counts(b, "first") == {"in_flight": 0, "received": 1, "completed": 1, "failed": 0}
        assert _counts(b, "last") == {"in_flight": 0, "received": 1, "completed": 1, "failed": 0}


def test_the_failure_of_the_leaf_is_not_that_of_who_handed_on(tmp_path: Path) -> None:
    async def fails(agent: Agent, call: Call) -> Answer:
        return {"task": agent.task("FAILED", "broken")}

    first, second = Agent(hands_on(requirements={"capabilities": ["canEnd"]})), Agent(fails)
    with running(first) as a, running(second) as z, broker(tmp_path) as b:
        b.register("first", card=card(a, capabilities={"canStart": True}))
        b.register("last", card=card(z, capabilities={"canEnd": True}))
        task = b.send(context=_FIRST)
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert _counts(b, "first") == {"in_flight": 0, "received": 1, "completed": 1, "failed": 0}
        assert _counts(b, "last") == {"in_flight": 0, "received": 1, "completed": 0, "failed": 1}


def test_an_agent_whose_handing_on_came_to_nothing_holds_nothing_any_more(tmp_path: Path) -> None:
    first = Agent(hands_on(requirements={"capabilities": ["canEnd"]}))
    with running(first) as a, broker(tmp_path) as b:
        b.register("first", card=card(a, capabilities={"canStart": True}))
        task = b.send(context=_FIRST)
        assert task["status"]["state"] == "TASK_STATE_REJECTED"
        assert _counts(b, "first") == {"in_flight": 0, "received": 1, "completed": 0, "failed": 0}


def test_an_agent_that_gives_back_holds_nothing_any_more(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task("WORKING")
        task["status"]["message"] = said("not mine", release={"reason": "not mine"})
        return {"task": task}

    with running(Agent(script)) as a, broker(tmp_path) as b:
        b.register("first", card=card(a, capabilities={"canStart": True}))
        b.send(context=_FIRST)
        assert _counts(b, "first") == {"in_flight": 0, "received": 1, "completed": 0, "failed": 0}
