"""Which context a task belongs to, and what it is called, on every surface of A2A (1.0 section 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Surface, ask_of
from tests.interaction.staff import Staff
from tests.interaction.test_refusals import handoffs
from tests.interaction.wires import wire
from tests.support.agents import Agent, Answer, Call, asks, completes

Names = Callable[[str], str]


@proves("context.made")
def test_a_context_that_the_broker_made_is_in_the_answer(surface: Surface, staff: Staff) -> None:
    worker, _ = staff.hire(completes)
    one, two = surface.send(to=(worker,)), surface.send(to=(worker,))
    assert one.context_id
    assert one.context_id != two.context_id
    assert surface.get(one.id).context_id == one.context_id


@proves("context.given")
def test_a_context_that_the_caller_named_is_kept_or_refused(
    surface: Surface, staff: Staff, names: Names
) -> None:
    worker, agent = staff.hire(completes)
    session = names("session")
    task = surface.send(to=(worker,), context_id=session)
    assert task.context_id == surface.get(task.id).context_id == session
    before = handoffs(surface.broker)
    with pytest.raises(Refused) as refused:
        surface.send(to=(worker,), context_id="x" * 10_000)
    assert refused.value.reason == "INVALID_PARAMS"
    (place,) = refused.value.violations
    assert place.endswith(("contextId", "sessionId"))
    assert (handoffs(surface.broker), len(agent.calls)) == (before, 1)


@proves("context.inferred")
def test_a_message_that_names_only_its_task_is_of_its_context(surface: Surface, staff: Staff) -> None:
    asker, _ = staff.hire(asks)
    task = surface.send("paint it", to=(asker,))
    again = surface.reply(task, "blue")
    assert (again.id, again.context_id, again.state) == (task.id, task.context_id, "completed")


@proves("context.other")
def test_a_message_that_names_a_task_and_another_context_is_refused(
    surface: Surface, staff: Staff, names: Names
) -> None:
    asker, agent = staff.hire(asks)
    task = surface.send("paint it", to=(asker,))
    with pytest.raises(Refused) as refused:
        surface.reply(task, "blue", context_id=names("elsewhere"))
    assert refused.value.reason == "INVALID_PARAMS"
    assert [field.rpartition(".")[2] for field in refused.value.violations] == ["contextId"]
    assert len(agent.calls) == 1
    assert surface.reply(task, "blue", context_id=task.context_id).state == "completed"


@proves("context.said")
def test_what_an_agent_says_names_its_task_and_its_context(surface: Surface, staff: Staff) -> None:
    asker, _ = staff.hire(asks)
    way = wire(surface)
    told = list(way.follow("stream", way.dialect.params(way.aim(ask_of("paint it", to=(asker,)))), {}, ""))
    spoken: list[dict[str, Any]] = [event.get("statusUpdate", event) for event in told]
    task = surface.get(next(event["taskId"] for event in spoken if "taskId" in event))
    said = [event["status"]["message"] for event in spoken if "message" in event.get("status", {})]
    said.append(way.call("get", {"id": task.id}, {}, "")["status"]["message"])
    assert len(said) > 2
    assert {(one["taskId"], one["contextId"]) for one in said} == {(task.id, task.context_id)}


@proves("ids.unique")
def test_every_task_has_an_id_of_its_own(surface: Surface, staff: Staff, names: Names) -> None:
    worker, _ = staff.hire(completes)
    named = names("message")
    tasks = [surface.send(to=(worker,), message_id=f"{named}-{n}", context_id=named) for n in range(3)]
    assert len({task.id for task in tasks} | {named, *(f"{named}-{n}" for n in range(3))}) == 7
    assert [surface.get(task.id).id for task in tasks] == [task.id for task in tasks]


@proves("ask.auth")
def test_a_target_that_wants_a_login_ends_the_call_and_says_what_is_wanted(
    surface: Surface, staff: Staff
) -> None:
    async def wants(agent: Agent, call: Call) -> Answer:
        return {"task": agent.task("AUTH_REQUIRED", "Log in at https://id.example and say so.")}

    worker, _ = staff.hire(wants)
    task = surface.send(to=(worker,))
    # The first generation has no word for it but this one.
    assert task.state == ("input_required" if "first" in surface.name else "auth_required")
    assert task.said == "Log in at https://id.example and say so."
    assert surface.get(task.id).state == task.state
