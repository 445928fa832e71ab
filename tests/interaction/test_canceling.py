"""Canceling a task in each of its states, on every surface."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Seen, Surface
from tests.interaction.staff import Staff, Street
from tests.interaction.surfaces import surfaces
from tests.interaction.wires import FACE
from tests.support.agents import Agent, Answer, Call, card, completes, hands_on, rejects
from tests.support.puppet import Puppet
from tests.support.running import Broker, broker

Names = Callable[[str], str]


@contextmanager
def canceling(surface: Surface, task: Seen) -> Generator[Any]:
    """A cancel that waits for its end while the test goes on."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(surface.cancel, task.id)


def holding(surface: Surface, agent: Puppet, name: str) -> Seen:
    """A task that a puppet works on."""
    task = surface.start(to=(name,))
    agent.next().answer({"task": agent.task("WORKING")})
    surface.broker.until(task.handoff_id, "acknowledged")
    return task


@proves("cancel.waiting")
def test_a_task_that_waits_for_an_agent_is_canceled_at_once(surface: Surface, names: Names) -> None:
    b, sleeper, can = surface.broker, names("sleeper"), names("canWork")
    b.register(sleeper, capabilities={can: True})
    b.http.post(f"/api/agents/{sleeper}/heartbeat", json={"status": "offline"})
    task = surface.start(context={"requirements": {"capabilities": [can]}})
    assert b.handoff(task.handoff_id)["waiting_until"]
    assert surface.cancel(task.id).state == "canceled"
    assert b.handoff(task.handoff_id)["state"] == "canceled"


@proves("cancel.offered")
def test_an_offer_that_nobody_took_is_withdrawn(surface: Surface, names: Names) -> None:
    b, puller = surface.broker, names("puller")
    b.register(puller, platform="external")
    task = surface.start(to=(puller,))
    pending = f"/api/handoffs/pending?target={puller}"
    assert [h["handoff_id"] for h in b.http.get(pending).json()["handoffs"]] == [task.handoff_id]
    assert surface.cancel(task.id).state == "canceled"
    assert b.http.get(pending).json()["handoffs"] == []
    late = b.http.post(f"/api/handoffs/{task.handoff_id}/accept", json={"agent_id": puller})
    assert late.status_code == 409


@proves("cancel.working")
def test_the_target_is_told_and_its_word_is_waited_for(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.puppet()
    task = holding(surface, agent, worker)
    with canceling(surface, task) as canceled:
        turn = agent.next("CancelTask")
        assert turn.call.params["id"] == "r-1"
        assert surface.get(task.id).state == "working"
        turn.answer(agent.task("CANCELED", task_id="r-1"))
    assert canceled.result().state == "canceled"
    assert surface.broker.handoff(task.handoff_id)["detail"] == ""


@proves("cancel.silent")
def test_a_target_that_does_not_answer_a_cancel_is_not_waited_for_for_ever(
    surface: Surface, staff: Staff
) -> None:
    worker, agent = staff.puppet()
    task = holding(surface, agent, worker)
    assert surface.cancel(task.id).state == "canceled"
    assert agent.next("CancelTask").call.params["id"] == "r-1"
    assert surface.broker.handoff(task.handoff_id)["detail"] == "cancel_unconfirmed"


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED"])
@proves("cancel.asked")
def test_a_task_that_waits_for_the_caller_can_be_canceled(surface: Surface, staff: Staff, state: str) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return agent.task("CANCELED", task_id=call.params["id"])
        return {"task": agent.task(state, "Which one?")}

    asker, agent = staff.hire(script, "asker")
    task = surface.send(to=(asker,))
    assert surface.cancel(task.id).state == "canceled"
    assert len(agent.of("CancelTask")) == 1


@pytest.fixture(scope="module")
def staffed(tmp_path_factory: pytest.TempPathFactory, street: Street) -> Iterator[Broker]:
    """A broker with a person who is asked what no agent takes."""
    with broker(tmp_path_factory.mktemp("staffed"), grpc_port=0) as b:
        b.register(FACE, card=card(street.settle(Agent(completes))))
        b.register("boss", role="supervisor")
        yield b


@proves("cancel.escalated")
def test_a_task_that_waits_for_a_person_can_be_canceled(
    surface: Surface, staffed: Broker, street: Street
) -> None:
    here = surfaces(staffed)[surface.name]
    no, _ = Staff(staffed, street).hire(rejects, "no")
    task = here.start(to=(no,))
    staffed.until(task.handoff_id, "escalated")
    pending = "/api/handoffs/pending?target=boss"
    assert [h["handoff_id"] for h in staffed.http.get(pending).json()["handoffs"]] == [task.handoff_id]
    assert here.cancel(task.id).state == "canceled"
    assert staffed.http.get(pending).json()["handoffs"] == []


@proves("cancel.handed_on")
def test_a_cancel_goes_to_the_agent_that_has_the_task_now(surface: Surface, staff: Staff) -> None:
    second, leaf = staff.puppet("second")
    first, gone = staff.hire(hands_on(target_agent=second, user_intent="Finish it."), "first")
    task = surface.start(to=(first,))
    leaf.next().answer({"task": leaf.task("WORKING")})
    surface.broker.until(task.handoff_id, "handed_off")
    with canceling(surface, task) as canceled:
        turn = leaf.next("CancelTask")
        turn.answer(leaf.task("CANCELED", task_id="r-1"))
    assert canceled.result().state == "canceled"
    trace_id = surface.broker.handoff(task.handoff_id)["trace_id"]
    assert turn.call.headers["traceparent"].split("-")[1] == trace_id
    chain = surface.broker.http.get(
        f"/api/chains/{surface.broker.handoff(task.handoff_id)['correlation_id']}"
    )
    assert [h["state"] for h in chain.json()["handoffs"]] == ["canceled", "canceled"]
    assert gone.of("CancelTask") == []


@proves("cancel.delegated")
def test_a_cancel_reaches_those_who_do_a_part_of_the_task(surface: Surface, staff: Staff) -> None:
    b = surface.broker
    boss, agent = staff.puppet("boss")
    helper, helping = staff.puppet("helper")
    task = holding(surface, agent, boss)
    context = {"source_agent": boss, "target_agent": helper, "parent_handoff_id": task.handoff_id}
    part = b.send("a part", wait=False, context=context)
    helping.next().answer({"task": helping.task("WORKING")})
    b.until(part["id"], "acknowledged")
    with canceling(surface, task) as canceled:
        for one in (agent, helping):
            turn = one.next("CancelTask")
            turn.answer(one.task("CANCELED", task_id=turn.call.params["id"]))
    assert canceled.result().state == "canceled"
    assert b.until(part["id"], "canceled")["state"] == "canceled"


async def fails(agent: Agent, call: Call) -> Answer:
    return {"task": agent.task("FAILED", "broken")}


@pytest.mark.parametrize("script", [completes, rejects, fails])
@proves("cancel.ended")
def test_a_task_that_has_ended_cannot_be_canceled(surface: Surface, staff: Staff, script: Any) -> None:
    worker, agent = staff.hire(script)
    task = surface.send(to=(worker,))
    with pytest.raises(Refused) as refused:
        surface.cancel(task.id)
    assert refused.value.reason == "TASK_NOT_CANCELABLE"
    assert refused.value.code == {"jsonrpc": -32002, "http": 400, "grpc": 9, "native": 409}[surface.codes]
    assert surface.get(task.id).state == task.state
    assert agent.of("CancelTask") == []


@proves("cancel.ended")
def test_a_task_that_was_canceled_cannot_be_canceled_again(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.puppet()
    agent.auto["CancelTask"] = lambda call: agent.task("CANCELED", task_id=call.params["id"])
    task = holding(surface, agent, worker)
    assert surface.cancel(task.id).state == "canceled"
    with pytest.raises(Refused) as refused:
        surface.cancel(task.id)
    assert refused.value.reason == "TASK_NOT_CANCELABLE"
