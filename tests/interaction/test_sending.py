"""A task goes in and comes back, on every surface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Surface
from tests.interaction.staff import Staff
from tests.interaction.surfaces import surfaces
from tests.interaction.wires import FACE
from tests.support.agents import Agent, Answer, Call, asks, card, completes, rejects
from tests.support.running import Broker, broker, running

Names = Callable[[str], str]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Agent]]:
    """A broker that has one agent, for tasks that name none; it is the default of the routing rules."""
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path_factory.mktemp("alone"), grpc_port=0) as b:
        b.register(FACE, card=card(url))
        b.register("default_agent", card=card(url + "/"))
        yield b, agent


@proves("send.completes")
def test_a_task_is_answered_with_its_artifacts(surface: Surface, staff: Staff) -> None:
    worker, _ = staff.hire(completes)
    task = surface.send("fix it", to=(worker,))
    again = surface.get(task.id)
    assert (task.state, task.said, task.artifacts) == ("completed", "done", ["done: fix it"])
    assert task.attempts == [(worker, None)]
    assert (again.state, again.said, again.artifacts) == (task.state, task.said, task.artifacts)


@proves("send.plain")
def test_a_message_without_a_context_is_a_first_hop(surface: Surface, alone: tuple[Broker, Agent]) -> None:
    b, agent = alone
    seen = len(agent.calls)
    task = surfaces(b)[surface.name].send("just this", context=False)
    assert task.state == "completed"
    (call,) = agent.calls[seen:]
    assert call.ours["synthesized"] is True
    assert (call.ours["user_intent"], call.ours["conversation_summary"]) == ("just this", "just this")
    assert call.ours["hop_count"] == 1


@proves("send.immediately")
def test_who_does_not_wait_is_answered_at_once_and_the_task_goes_on(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.puppet()
    task = surface.send(to=(worker,), wait=False)
    assert task.state == "submitted"
    agent.next().answer({"task": agent.task("COMPLETED", "done")})
    surface.broker.until(task.handoff_id, "completed")
    assert surface.get(task.id).state == "completed"


@proves("send.decline")
def test_a_rejection_is_a_decline_and_the_next_agent_gets_the_task(surface: Surface, staff: Staff) -> None:
    (no, _), (yes, _) = staff.hire(rejects, "no"), staff.hire(completes, "yes")
    task = surface.send(to=(no, yes))
    assert task.state == "completed"
    assert task.attempts == [(no, "target_rejected"), (yes, None)]


@proves("send.returned")
def test_a_task_that_nobody_takes_comes_back_with_every_attempt_and_its_reason(
    surface: Surface, staff: Staff
) -> None:
    (one, _), (two, _) = staff.hire(rejects, "one"), staff.hire(rejects, "two")
    task = surface.send(to=(one, two))
    assert task.state == surface.returned
    assert task.attempts == [(one, "target_rejected"), (two, "target_rejected")]
    assert all(task.reasons)
    assert all(name in task.said for name in (one, two))
    assert task.ours["state"] == "returned"


@proves("send.nobody")
def test_a_task_that_nobody_can_do_comes_back_at_once(surface: Surface, names: Names) -> None:
    task = surface.send(context={"requirements": {"capabilities": [names("canFly")]}})
    assert task.state == surface.returned
    assert task.attempts == []
    assert "no registered agent can do this" in task.said


@proves("send.failed")
def test_a_failure_of_the_target_is_final_and_said_in_its_own_words(surface: Surface, staff: Staff) -> None:
    async def fails(agent: Agent, call: Call) -> Answer:
        return {"task": agent.task("FAILED", "the disk is full")}

    (broken, _), (spare, other) = staff.hire(fails, "broken"), staff.hire(completes, "spare")
    task = surface.send(to=(broken, spare))
    assert (task.state, task.said) == ("failed", "the disk is full")
    assert other.calls == []


@proves("send.bytes")
def test_facts_arrive_byte_for_byte(surface: Surface, staff: Staff) -> None:
    facts = '{"z":1.10,"a":12345678901234567890,"nothing":null,"é":"é","deep":[{"b":-0.0,"a":1e2}]}'
    worker, agent = staff.hire(completes)
    assert surface.send(to=(worker,), facts=facts).state == "completed"
    (call,) = agent.calls
    assert call.body.count(f'"key_facts":{facts}'.encode()) == 2


@proves("send.trace")
def test_the_callers_trace_is_continued_to_the_target(surface: Surface, staff: Staff) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"[:26] + f"{abs(hash(surface.name)) % 10**6:06d}"
    worker, agent = staff.hire(completes)
    task = surface.send(to=(worker,), headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert agent.calls[0].headers["traceparent"].split("-")[1] == trace
    assert task.ours["trace_id"] == task.ours["correlation_id"] == trace


# --- questions -----------------------------------------------------------------------------------


@proves("ask.reply")
def test_a_question_ends_the_call_and_the_reply_reaches_the_targets_task(
    surface: Surface, staff: Staff
) -> None:
    asker, agent = staff.hire(asks)
    task = surface.send(to=(asker,))
    assert (task.state, task.said) == ("input_required", "Which one?")
    done = surface.reply(task, "the blue one")
    assert (done.id, done.state, done.said) == (task.id, "completed", "thanks for the blue one")
    first, second = agent.of("SendMessage")
    assert "taskId" not in first.message
    assert (second.message["taskId"], second.message["contextId"]) == ("r-1", "rc-r-1")
    assert second.text == "the blue one"


@proves("ask.shown")
def test_a_task_that_asks_shows_its_question(surface: Surface, staff: Staff) -> None:
    asker, _ = staff.hire(asks)
    task = surface.get(surface.send(to=(asker,)).id)
    assert (task.state, task.said) == ("input_required", "Which one?")


@proves("ask.again")
def test_a_reply_that_is_sent_twice_reaches_the_target_once(
    surface: Surface, staff: Staff, names: Names
) -> None:
    asker, agent = staff.hire(asks)
    reply = {"message_id": names("reply")}
    task = surface.send(to=(asker,))
    done = surface.reply(task, "blue", **reply)
    again = surface.reply(task, "blue", **reply)
    assert (again.id, again.state, again.said) == (done.id, done.state, done.said)
    assert len(agent.of("SendMessage")) == 2


@proves("ask.twice")
def test_two_questions_may_be_answered_in_the_same_words(surface: Surface, staff: Staff) -> None:
    async def asks_twice(agent: Agent, call: Call) -> Answer:
        task_id = call.message.get("taskId", "")
        if len(agent.calls) < 3:
            return {"task": agent.task("INPUT_REQUIRED", f"sure? {len(agent.calls)}", task_id=task_id)}
        return {"task": agent.task("COMPLETED", "well then", task_id=task_id)}

    asker, agent = staff.hire(asks_twice)
    task = surface.send(to=(asker,))
    assert surface.reply(task, "yes").said == "sure? 2"
    assert surface.reply(task, "yes").said == "well then"
    ids = [call.message["messageId"] for call in agent.of("SendMessage")]
    assert len(set(ids)) == 3


@proves("reply.ended")
def test_a_task_that_has_ended_takes_no_more_messages(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.hire(completes)
    task = surface.send(to=(worker,))
    with pytest.raises(Refused) as refused:
        surface.reply(task, "and now this")
    assert refused.value.reason == "UNSUPPORTED_OPERATION"
    assert refused.value.code == {"jsonrpc": -32004, "http": 400, "grpc": 9}[surface.codes]
    assert len(agent.calls) == 1


@proves("reply.unknown")
def test_a_message_to_an_unknown_task_is_refused(surface: Surface) -> None:
    with pytest.raises(Refused) as refused:
        surface.send("go on", task="nobody-made-this", context=False)
    assert refused.value.reason == "TASK_NOT_FOUND"
    assert refused.value.code == {"jsonrpc": -32001, "http": 404, "grpc": 5}[surface.codes]


# --- repeats -------------------------------------------------------------------------------------


@proves("repeat.same")
def test_the_same_message_twice_is_one_task(surface: Surface, staff: Staff, names: Names) -> None:
    worker, agent = staff.hire(completes)
    same: dict[str, Any] = {"to": (worker,), "message_id": names("said")}
    first, again = surface.send("pay 10", **same), surface.send("pay 10", **same)
    assert (again.id, again.handoff_id) == (first.id, first.handoff_id)
    assert again.artifacts == first.artifacts == ["done: pay 10"]
    assert len(agent.calls) == 1


@proves("repeat.other")
def test_the_same_id_with_other_content_is_a_conflict(surface: Surface, staff: Staff, names: Names) -> None:
    worker, agent = staff.hire(completes)
    same: dict[str, Any] = {"to": (worker,), "message_id": names("said")}
    first = surface.send("pay 10", **same)
    with pytest.raises(Refused) as refused:
        surface.send("pay 99", **same)
    assert refused.value.reason == "IDEMPOTENCY_CONFLICT"
    assert refused.value.code == {"jsonrpc": -32602, "http": 409, "grpc": 6, "native": 409}[surface.codes]
    assert refused.value.facts["task_id"] == first.id
    assert len(agent.calls) == 1


@proves("repeat.under_way")
def test_a_repeat_attaches_to_the_task_that_is_under_way(
    surface: Surface, staff: Staff, names: Names
) -> None:
    worker, agent = staff.puppet()
    same: dict[str, Any] = {"to": (worker,), "message_id": names("said")}
    first = surface.start("slowly", **same)
    turn = agent.next()
    told = surface.stream("slowly", **same)
    assert next(iter(told)).task_id == first.id
    turn.answer({"task": agent.task("COMPLETED", "done")})
    assert list(told)[-1].state == "completed"
    assert surface.send("slowly", **same).said == "done"
    assert len(agent.turns) == 1


@proves("alias")
def test_a_task_goes_by_the_id_that_its_client_made(surface: Surface, staff: Staff, names: Names) -> None:
    mine = names("order")
    worker, agent = staff.puppet()
    started = surface.start("wait", to=(worker,), task=mine)
    agent.next().answer({"task": agent.task("WORKING")})
    surface.broker.until(started.handoff_id, "acknowledged")
    assert started.id == mine != started.handoff_id
    assert surface.get(mine).id == mine
    with pytest.raises(Refused):
        surfaces(surface.broker)["jsonrpc-1.0"].get(mine)
    assert surfaces(surface.broker)["jsonrpc-1.0"].get(started.handoff_id).state == "working"
    told = surface.subscribe(mine)
    assert next(iter(told)).task_id == mine
    agent.auto["CancelTask"] = lambda call: agent.task("CANCELED", task_id=call.params["id"])
    assert (surface.cancel(mine).id, surface.get(mine).state) == (mine, "canceled")
    assert {heard.task_id for heard in told} == {mine}
