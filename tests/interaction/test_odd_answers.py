"""Agents that answer oddly: what they made reaches the caller whole and once, on every surface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Surface
from tests.interaction.staff import Staff
from tests.interaction.test_streams import assembled
from tests.support.agents import Agent, Answer, Call, Script, hands_on, said
from tests.support.running import Broker

#: An artifact is told again, or later than the next one: the texts in their order are not what they make.
_AGAIN = {
    "the stream ends without an end",
    "a chunk comes after the last one",
    "chunks of two artifacts take turns",
    "it begins an artifact anew",
}

Told = Callable[[Agent, dict[str, Any]], Iterator[dict[str, Any]]]
ODD: dict[str, tuple[Script, list[str]]] = {}
"""By what is odd: a script of a streaming agent, and the artifacts that come of it."""


def odd(*made: str) -> Callable[[Told], Told]:
    """An oddity: the events of one stream, after which the task is as the last of them left it."""

    def keep(tell: Told) -> Told:
        async def script(agent: Agent, call: Call) -> Answer:
            if call.method == "SubscribeToTask":
                return {"error": {"code": -32004, "message": "it has ended"}}

            async def events() -> AsyncIterator[dict[str, Any]]:
                for event in tell(agent, agent.task("WORKING")):
                    yield deepcopy(event)

            return events()

        ODD[tell.__name__.replace("_", " ")] = script, list(made)
        return tell

    return keep


@odd("made")
def the_status_comes_before_the_task(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield agent.status(task, "WORKING")
    yield {"task": task}
    yield agent.artifact(task, "a", "made")
    yield agent.status(task, "COMPLETED", "done")


@odd("made")
def nobody_says_that_there_is_a_task(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield agent.artifact(task, "a", "made")
    yield agent.status(task, "COMPLETED", "done")


@odd("one two")
def the_stream_ends_without_an_end(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"task": task}
    yield agent.artifact(task, "a", "one ", last=False)
    task["artifacts"] = [{"artifactId": "a", "parts": [{"text": "one two"}]}]
    agent.status(task, "COMPLETED", "done")


@odd("made")
def there_are_two_ends(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"task": task}
    yield agent.artifact(task, "a", "made")
    yield agent.status(task, "COMPLETED", "done")
    yield agent.status(task, "FAILED", "or not")


@odd("made")
def the_end_is_told_twice_and_as_a_task(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield agent.artifact(task, "a", "made")
    task["artifacts"] = [{"artifactId": "a", "parts": [{"text": "made"}]}]
    agent.status(task, "COMPLETED", "done")
    yield {"task": task}
    yield {"task": task}


@odd("made")
def its_context_changes(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"task": task}
    task["contextId"] = "another"
    yield agent.artifact(task, "a", "made")
    yield agent.status(task, "COMPLETED", "done")


@odd("made")
def its_task_changes_its_id(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"task": task}
    yield agent.artifact(task | {"id": "another"}, "b", "of another task")
    yield agent.status(task | {"id": "another"}, "FAILED", "another")
    task["artifacts"] = [{"artifactId": "a", "parts": [{"text": "made"}]}]
    agent.status(task, "COMPLETED", "done")


@odd("one more", "two")
def a_chunk_comes_after_the_last_one(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield agent.artifact(task, "a", "one ")
    yield agent.artifact(task, "b", "two")
    yield agent.artifact(task, "a", "more", append=True)
    yield agent.status(task, "COMPLETED", "done")


@odd("one two", "eins zwei")
def chunks_of_two_artifacts_take_turns(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"task": task}
    for number, (one, other) in enumerate((("one ", "eins "), ("two", "zwei"))):
        yield agent.artifact(task, "a", one, append=number > 0, last=number == 1)
        yield agent.artifact(task, "b", other, append=number > 0, last=number == 1)
    yield agent.status(task, "COMPLETED", "done")


@odd("one two")
def it_appends_to_what_there_is_not(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield agent.artifact(task, "a", "one ", append=True, last=False)
    yield agent.artifact(task, "a", "two", append=True)
    yield agent.status(task, "COMPLETED", "done")


@odd("anew")
def it_begins_an_artifact_anew(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield agent.artifact(task, "a", "old ", last=False)
    yield agent.artifact(task, "a", "anew")
    yield agent.status(task, "COMPLETED", "done")


@odd("", "made")
def an_artifact_is_empty(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    empty = agent.artifact(task, "a", "")
    empty["artifactUpdate"]["artifact"]["parts"] = []
    yield empty
    yield agent.artifact(task, "b", "made")
    yield agent.status(task, "COMPLETED", "done")


@odd("one two", "three")
def its_artifacts_have_no_ids(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for text, more in (("one ", False), ("two", True), ("three", False)):
        event = agent.artifact(task, "", text, append=more)
        del event["artifactUpdate"]["artifact"]["artifactId"]
        yield event
    yield agent.status(task, "COMPLETED", "done")


@odd("one", "two")
def its_artifacts_have_no_ids_and_the_stream_is_cut(
    agent: Agent, task: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    event = agent.artifact(task, "", "one")
    del event["artifactUpdate"]["artifact"]["artifactId"]
    yield event
    task["artifacts"] = [{"parts": [{"text": text}]} for text in ("one", "two")]
    agent.status(task, "COMPLETED", "done")


@odd()
def it_sends_a_message_in_place_of_a_task(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"message": said("done")}


@odd("made")
def its_words_are_null(agent: Agent, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"task": task | {"artifacts": None, "history": None, "metadata": None}}
    event = agent.artifact(task, "a", "made")
    event["artifactUpdate"] |= {"append": None, "lastChunk": None, "metadata": None}
    yield event
    yield agent.status(task, "COMPLETED", "done")


@pytest.mark.parametrize("oddity", ODD)
@proves("odd.answers")
def test_what_an_odd_agent_made_is_answered(surface: Surface, staff: Staff, oddity: str) -> None:
    script, made = ODD[oddity]
    worker, agent = staff.hire(script, "odd", streaming=True)
    task = surface.send(to=(worker,))
    # The tools show one result: the last artifact that is text alone, or the agent's word.
    shown = [text for text in made if text][-1:] or ["done"] if surface.name == "mcp" else made
    assert (task.state, task.said, task.artifacts) == ("completed", "done", shown)
    assert len(agent.of("SendStreamingMessage")) == 1


@pytest.mark.parametrize("oddity", ODD)
@proves("odd.streams")
def test_what_an_odd_agent_made_is_streamed(surface: Surface, staff: Staff, oddity: str) -> None:
    script, made = ODD[oddity]
    worker, _ = staff.hire(script, "odd", streaming=True)
    told = list(surface.stream(to=(worker,)))
    assert (told[-1].state, told[-1].said) == ("completed", "done")
    assert [heard.state for heard in told].count("completed") == 1
    # A log shows what was said, and so that something was appended to nothing.
    if oddity not in _AGAIN and (surface.codes != "native" or "appends to what" not in oddity):
        assert list(assembled(told).values()) == made


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED"])
@proves("chain.questions")
def test_questions_of_the_last_of_three_agents_reach_the_caller_and_the_answers_it(
    surface: Surface, staff: Staff, state: str
) -> None:
    async def asks_twice(agent: Agent, call: Call) -> Answer:
        task_id = call.message.get("taskId", "")
        if "enough" in call.text:
            return {"task": agent.task("COMPLETED", f"thanks for {call.text}", task_id=task_id)}
        return {"task": agent.task(state, f"And then? ({call.text})", task_id=task_id)}

    third, leaf = staff.hire(asks_twice, "third")
    second, _ = staff.hire(hands_on(target_agent=third, user_intent="Finish it."), "second")
    first, _ = staff.hire(hands_on(target_agent=second, user_intent="Go on."), "first")
    # The first generation has no word for it: there it is a question as any other.
    shown = "input_required" if "first" in surface.name else state.lower()
    task = surface.send("begin", to=(first,))
    assert (task.state, task.said) == (shown, "And then? (begin)")
    task = surface.reply(task, "more")
    assert (task.state, task.said) == (shown, "And then? (more)")
    done = surface.reply(task, "enough")
    assert (done.state, done.said) == ("completed", "thanks for enough")
    assert [call.message.get("taskId", "") for call in leaf.of("SendMessage")] == ["", "r-1", "r-1"]


_PARTS: list[dict[str, Any]] = [
    {"text": "text"},
    {"raw": "AAEC", "filename": "a.bin", "mediaType": "application/octet-stream"},
    {"url": "https://files.example/b.pdf", "filename": "b.pdf", "mediaType": "application/pdf"},
    {"data": {"n": 9007199254740993}},
]
_PARTS_0_3: list[dict[str, Any]] = [
    {"kind": "text", "text": "text"},
    {
        "kind": "file",
        "file": {"bytes": "AAEC", "name": "a.bin", "mimeType": "application/octet-stream"},
    },
    {
        "kind": "file",
        "file": {"uri": "https://files.example/b.pdf", "name": "b.pdf", "mimeType": "application/pdf"},
    },
    {"kind": "data", "data": {"n": 9007199254740993}},
]


@pytest.mark.parametrize("streaming", [True, False])
def test_parts_of_every_kind_come_through_whole_and_in_chunks(
    house: Broker, staff: Staff, streaming: bool
) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        whole = {"artifactId": "a", "parts": _PARTS}
        if not streaming:
            return {"task": agent.task("COMPLETED", artifacts=[whole])}

        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            for number, part in enumerate(_PARTS):
                event = agent.artifact(task, "a", "", append=number > 0, last=number == len(_PARTS) - 1)
                event["artifactUpdate"]["artifact"]["parts"] = [part]
                yield event
            yield agent.status(task, "COMPLETED")

        return events()

    worker, _ = staff.hire(script, "maker", streaming=streaming)
    context = {"target_agent": worker}
    task = house.send("make", context=context)
    assert task["artifacts"][0]["parts"] == _PARTS
    old = house.rpc("tasks/get", {"id": task["id"]}, version="0.3")["result"]
    assert old["artifacts"][0]["parts"] == _PARTS_0_3
    if streaming:
        told = [event["result"] for event in house.events("make", context=context)]
        chunks = [one["artifactUpdate"]["artifact"]["parts"] for one in told if "artifactUpdate" in one]
        assert chunks == [[part] for part in _PARTS]


def test_a_large_artifact_comes_through_in_chunks_and_is_kept_whole(house: Broker, staff: Staff) -> None:
    words = [f"{number:04d}" * 16_384 for number in range(48)]

    async def script(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            for number, word in enumerate(words):
                yield agent.artifact(task, "a", word, append=number > 0, last=number == len(words) - 1)
            yield agent.status(task, "COMPLETED")

        return events()

    worker, _ = staff.hire(script, "maker", streaming=True)
    told = [event["result"] for event in house.events("make", context={"target_agent": worker})]
    chunks = [one["artifactUpdate"] for one in told if "artifactUpdate" in one]
    assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks] == words
    assert [chunk["lastChunk"] for chunk in chunks] == [False] * (len(words) - 1) + [True]
    task_id = told[0]["task"]["id"]
    (artifact,) = house.rpc("GetTask", {"id": task_id})["result"]["artifacts"]
    assert [part["text"] for part in artifact["parts"]] == words
