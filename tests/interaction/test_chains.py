"""Chains of agents, time, and people: one task for its caller, on every surface."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Surface
from tests.interaction.staff import Staff, Street
from tests.interaction.surfaces import surfaces
from tests.interaction.wires import FACE
from tests.support.agents import Agent, asks, card, completes, hands_on, rejects
from tests.support.running import Broker, broker

Names = Callable[[str], str]


def chain_of(b: Broker, handoff_id: str) -> list[dict[str, Any]]:
    correlation_id = b.handoff(handoff_id)["correlation_id"]
    return b.http.get(f"/api/chains/{correlation_id}").json()["handoffs"]


@proves("chain.directive")
def test_a_task_that_is_handed_on_stays_one_task_for_its_caller(surface: Surface, staff: Staff) -> None:
    third, leaf = staff.hire(completes, "third")
    second, _ = staff.hire(hands_on(target_agent=third, user_intent="Finish it."), "second")
    first, _ = staff.hire(hands_on(target_agent=second, user_intent="Go on."), "first")
    task = surface.send("do it", to=(first,))
    assert (task.state, task.artifacts, task.said) == ("completed", ["done: do it"], "done")
    assert surface.get(task.id).artifacts == ["done: do it"]
    chain = chain_of(surface.broker, task.handoff_id)
    assert chain[-1]["handoff_chain"] == ["triage", first, second, third]
    assert [h["state"] for h in chain] == ["completed"] * 3
    assert len({h["correlation_id"] for h in chain}) == len({h["trace_id"] for h in chain}) == 1
    (call,) = leaf.calls
    assert (call.ours["hop_count"], call.ours["user_intent"]) == (3, "Finish it.")


@proves("chain.stream")
def test_a_stream_leads_from_the_first_agent_to_the_leaf(surface: Surface, staff: Staff) -> None:
    second, _ = staff.hire(completes, "second")
    first, _ = staff.hire(hands_on(target_agent=second, user_intent="Finish it."), "first")
    told = list(surface.stream("do it", to=(first,)))
    asked = [
        data["target_agent"]
        for heard in told
        for data in heard.data
        if data.get("event") == "handoff_started"
    ]
    assert asked == [first, second]
    assert [heard.artifact for heard in told if heard.kind == "artifact"] == ["done: do it"]
    assert [heard.state for heard in told].count("completed") == 1
    assert told[-1].state == "completed"
    states = [heard.state for heard in told if heard.state]
    assert "submitted" not in states[states.index("working") :]
    assert len({heard.task_id for heard in told}) == 1


@proves("chain.reply")
def test_a_question_of_the_leaf_reaches_the_caller_and_the_reply_the_leaf(
    surface: Surface, staff: Staff
) -> None:
    second, leaf = staff.hire(asks, "second")
    first, gone = staff.hire(hands_on(target_agent=second, user_intent="Finish it."), "first")
    task = surface.send("paint it", to=(first,))
    assert (task.state, task.said) == ("input_required", "Which one?")
    done = surface.reply(task, "the blue one")
    assert (done.id, done.state, done.said) == (task.id, "completed", "thanks for the blue one")
    assert [call.text for call in leaf.of("SendMessage")] == ["paint it", "the blue one"]
    assert len(gone.calls) == 1


@proves("chain.delegate")
def test_an_agent_that_calls_for_help_names_its_own_handoff(surface: Surface, staff: Staff) -> None:
    boss, agent = staff.puppet("boss")
    helper, helping = staff.hire(completes, "helper")
    task = surface.start("the whole", to=(boss,))
    agent.next().answer({"task": agent.task("WORKING")})
    surface.broker.until(task.handoff_id, "acknowledged")
    context = {"source_agent": boss, "parent_handoff_id": task.handoff_id}
    help_given = surface.send("a part", to=(helper,), context=context)
    assert (help_given.state, help_given.artifacts) == ("completed", ["done: a part"])
    first, second = chain_of(surface.broker, task.handoff_id)
    assert (first["state"], first["children"][0]["state"]) == ("acknowledged", "completed")
    assert second["parent_handoff_id"] == task.handoff_id
    assert second["handoff_chain"] == ["triage", boss, helper]
    (call,) = helping.calls
    assert call.ours["hop_count"] == 2
    agent.tasks["r-1"]["status"] = {"state": "TASK_STATE_COMPLETED"}


@proves("deadline", "repeat.late")
def test_at_its_deadline_a_task_ends_and_the_target_is_told(
    surface: Surface, staff: Staff, names: Names
) -> None:
    worker, agent = staff.puppet()
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.6)
    with ThreadPoolExecutor(1) as pool:
        same: dict[str, Any] = {"to": (worker,), "context": {"deadline": soon.isoformat()}}
        same["message_id"] = names("said")
        sent = pool.submit(surface.send, **same)
        agent.next().answer({"task": agent.task("WORKING")})
        task = sent.result()
    assert task.state == "failed"
    assert task.ours["state"] == "expired"
    assert task.attempts[0][0] == worker
    if surface.codes != "native":
        assert "deadline" in task.said
    assert agent.next("CancelTask").call.params["id"] == "r-1"
    again = surface.send(**same)
    assert (again.id, again.state, again.handoff_id) == (task.id, "failed", task.handoff_id)
    with pytest.raises(Refused) as refused:
        surface.send(**{**same, "message_id": names("other")})
    assert [field.rpartition(".")[2] for field in refused.value.violations] == ["deadline"]


@pytest.fixture(scope="module")
def staffed(tmp_path_factory: pytest.TempPathFactory, street: Street) -> Iterator[tuple[Broker, Agent]]:
    """A broker with a supervisor."""
    boss = Agent(completes)
    with broker(tmp_path_factory.mktemp("staffed"), grpc_port=0) as b:
        b.register(FACE, card=card(street.settle(Agent(completes))))
        b.register("boss", card=card(street.settle(boss), role="supervisor"))
        yield b, boss


@proves("supervisor")
def test_what_no_agent_takes_goes_to_a_supervisor(
    surface: Surface, staffed: tuple[Broker, Agent], street: Street
) -> None:
    b, boss = staffed
    staff = Staff(b, street)
    (one, _), (two, _) = staff.hire(rejects, "one"), staff.hire(rejects, "two")
    before = len(boss.calls)
    task = surfaces(b)[surface.name].send("decide", to=(one, two))
    assert (task.state, task.artifacts) == ("completed", ["done: decide"])
    assert task.attempts == [(one, "target_rejected"), (two, "target_rejected"), ("boss", None)]
    assert "handoff_escalated" in b.log(task.handoff_id)
    assert len(boss.calls) == before + 1
