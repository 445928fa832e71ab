"""Agents that fetch their work: one body over each way to fetch it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.pulling import Pull, pulling
from tests.support.puller import hand_off
from tests.support.running import Broker

Names = Callable[[str], str]


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def editor(names: Names) -> str:
    return names("editor")


@pytest.fixture
def agent(house: Broker, way: str, editor: str) -> Iterator[Pull]:
    with pulling(house, way, editor) as made:
        yield made


def _to(b: Broker, agent_id: str, **body: Any) -> str:
    return hand_off(b, target_agent=agent_id, source_agent="cowork", **body)["handoff_id"]


@proves("pull.work")
def test_work_is_offered_accepted_reported_and_completed(house: Broker, agent: Pull, editor: str) -> None:
    made = _to(house, editor, key_facts={"files": ["a.py"]})
    offer = agent.offered()
    assert (offer.id, offer.state, offer.facts) == (made, "offered", {"files": ["a.py"]})
    accepted, _ = agent.act("accept", made)
    assert accepted is not None
    assert (accepted.state, accepted.facts) == ("acknowledged", {"files": ["a.py"]})
    assert house.handoff(made)["owner"] == "target"
    reported, _ = agent.act("progress", made, message="half")
    assert reported is not None
    assert reported.said == "half"
    done, _ = agent.act("complete", made, result={"n": 1})
    assert done is not None
    assert house.handoff(made)["result"] == done.result == {"n": 1}


@proves("pull.inbox")
def test_the_inbox_has_what_nobody_accepted_the_most_urgent_first(
    house: Broker, agent: Pull, editor: str
) -> None:
    low, normal, urgent = (_to(house, editor, priority=p) for p in ("low", "normal", "urgent"))
    assert agent.inbox() == [urgent, normal, low]
    agent.act("accept", urgent)
    assert agent.inbox() == [normal, low]


@proves("pull.decline")
def test_what_an_agent_declines_goes_back_with_its_reason(house: Broker, agent: Pull, editor: str) -> None:
    made = _to(house, editor)
    agent.offered()
    agent.act("decline", made, reason="not my language")
    returned = house.until(made, "returned")
    assert returned["attempts"][0]["detail"] == "not my language"


@proves("pull.release")
def test_a_task_is_given_back_or_failed(house: Broker, agent: Pull, editor: str) -> None:
    for verb, state in (("release", "returned"), ("fail", "failed")):
        made = _to(house, editor)
        agent.offered()
        agent.act("accept", made)
        after, _ = agent.act(verb, made, reason="no time")
        assert after is not None
        assert after.state == state
        assert "no time" in after.reasons


@proves("pull.fencing")
def test_a_repeat_does_no_harm_and_what_is_over_is_refused(house: Broker, agent: Pull, editor: str) -> None:
    made = _to(house, editor)
    agent.offered()
    for _ in range(2):
        assert agent.act("accept", made)[0]
    for _ in range(2):
        assert agent.act("complete", made, result="x")[0]
    assert agent.act("fail", made)[1] == "handoff_ended"
    assert agent.act("accept", "there-is-none")[1] == "task_not_found"


@proves("pull.attempt")
def test_another_attempt_cannot_be_accepted(house: Broker, agent: Pull, editor: str) -> None:
    made = _to(house, editor)
    assert agent.offered().attempt == 1
    assert agent.act("accept", made, attempt=2)[1] == "stale_attempt"
    assert agent.act("accept", made, attempt=1)[0]


@proves("pull.asks")
def test_an_agent_asks_the_caller_and_goes_on_with_the_reply(house: Broker, agent: Pull, editor: str) -> None:
    task = house.send("do it", wait=False, context={"target_agent": editor})
    assert agent.offered().id == task["id"]
    agent.act("accept", task["id"])
    asked, _ = agent.act("progress", task["id"], state="input_required", message="Which?")
    assert asked is not None
    assert asked.state == "input_required"
    house.send("The first.", wait=False, message={"taskId": task["id"]})
    assert agent.reply(task["id"]) == "The first."
    done, _ = agent.act("complete", task["id"], result="the first")
    assert done is not None
    assert done.state == "completed"


@proves("pull.cursor")
def test_what_was_shown_is_not_shown_again_to_who_has_the_cursor(
    house: Broker, way: str, editor: str
) -> None:
    with pulling(house, way, editor) as agent:
        first = _to(house, editor)
        assert agent.offered().id == first
        cursor = agent.cursor
    second = _to(house, editor)
    with pulling(house, way, editor, cursor=cursor) as agent:
        assert agent.offered().id == second
    with pulling(house, way, editor) as agent:
        assert {agent.offered().id for _ in range(2)} == {first, second}


@proves("pull.instances")
def test_of_two_processes_of_an_agent_the_first_has_the_task(house: Broker, way: str, editor: str) -> None:
    with (
        pulling(house, way, editor, instance="w-1") as one,
        pulling(house, way, editor, instance="w-2") as two,
    ):
        made = _to(house, editor)
        assert one.act("accept", made)[0]
        assert two.act("accept", made)[1] == "stale_attempt"
        assert one.act("accept", made)[0]


@proves("pull.broadcasts")
def test_what_one_agent_says_the_others_hear(house: Broker, way: str, names: Names, editor: str) -> None:
    with pulling(house, way, editor) as agent, pulling(house, way, names("cowork")) as other:
        agent.say("main is red")
        while "main is red" not in other.heard():
            pass


@proves("pull.heartbeat")
def test_an_agent_says_how_it_is_doing(house: Broker, agent: Pull, editor: str) -> None:
    assert agent.beat("busy") == "busy"
    assert house.http.get(f"/api/agents/{editor}").json()["status"] == "busy"
