"""``kill -9`` of the broker between any two steps of a handoff, and what is left to do is done.

Each scene leads a handoff to one step and stands still there: the agents are puppets, so the step is not
hit by chance. Then the process is killed and started again on the same file, and the scene goes on.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.agents import Agent, card, completes, hands_on, said
from tests.support.puppet import Puppet, Turn, puppet
from tests.support.running import WAIT_S, kept_port, running
from tests.support.served import ENDS, Served, kind_of, served
from tests.support.wire import eventually

_ENDED = {f"handoff_{end}" for end in ENDS}


@dataclass
class Stage:
    """Where scenes play. ``broker`` is another process after the kill."""

    broker: Served
    stack: ExitStack
    meanwhile: list[Callable[[], Any]] = field(default_factory=list[Callable[[], Any]])
    """What happens while there is no broker."""

    def puppet(self, name: str, **more: Any) -> Puppet:
        """A puppet that is registered under ``name``."""
        agent = self.stack.enter_context(puppet())
        self.broker.register(name, card=card(agent.url, **more))
        return agent

    def agent(self, name: str, script: Any, **more: Any) -> Agent:
        """A scripted agent that is registered under ``name``."""
        agent = Agent(script)
        self.broker.register(name, card=card(self.stack.enter_context(running(agent)), **more))
        return agent


@dataclass
class Errand:
    """One task, from its caller's side, over the kill."""

    stage: Stage
    text: str
    context: dict[str, Any]
    id: str = ""
    before: list[Any] = field(default_factory=list[Any])

    def send(self, *, wait: bool = False) -> Any:
        """The same message every time: a repeat attaches to the task that there is."""
        return self.stage.broker.send(
            self.text, wait=wait, context=self.context, message={"messageId": f"m-{self.text}"}
        )

    def note(self) -> None:
        """Remember what the log has before the kill."""
        self.before = self.stage.broker.events(self.id)

    def found(self) -> None:
        """The caller finds its task by the id and by its message, and the log is what it was."""
        b = self.stage.broker
        assert b.task(self.id)["id"] == self.id
        assert self.send()["id"] == self.id
        assert b.events(self.id)[: len(self.before)] == self.before

    def ends(self, state: str = "completed", within_s: float = 20.0) -> Any:
        """It ends as it should, and its log is whole."""
        b = self.stage.broker
        handoff = b.ended(self.id, within_s)
        assert handoff["state"] == state, (handoff["detail"], b.log(self.id))
        events = b.events(self.id)
        assert events[: len(self.before)] == self.before
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert [event["position"] for event in events] == sorted({event["position"] for event in events})
        assert [kind_of(event) for event in events if kind_of(event) in _ENDED] == [f"handoff_{state}"]
        assert self.send()["id"] == self.id
        return handoff


def errand(stage: Stage, text: str, target: str = "", **context: Any) -> Errand:
    """Send a task on its way."""
    named = {"target_agent": target} if target else {}
    made = Errand(stage, text, {**named, **context})
    made.id = made.send()["id"]
    return made


def in_s(seconds: float) -> str:
    """A time from now."""
    return (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)).isoformat()


def ready(turn: Turn) -> dict[str, Any]:
    """The answer *ready* to an offer."""
    return {"message": said("ready", ready={"offer_id": turn.call.ours["offer"]["offer_id"]})}


def names_of(turn: Turn) -> tuple[Any, Any]:
    """The offer id and attempt that a call carries, be it the offer or the task."""
    ours = turn.call.ours.get("offer", turn.call.ours)
    return ours["offer_id"], ours["attempt"]


Scene = Callable[[Stage], Generator[None]]
SCENES: dict[str, Scene] = {}


def scene(play: Scene) -> Scene:
    """Kill where it yields."""
    SCENES[play.__name__] = play
    return play


# --- before anybody took it ----------------------------------------------------------------------


@scene
def the_offer_is_out_and_not_answered(stage: Stage) -> Generator[None]:
    agent = stage.puppet("polite-1", speaks=True)
    task = errand(stage, "offered", "polite-1")
    offer = agent.next()
    task.note()
    yield
    task.found()
    again = agent.next()
    assert names_of(again) == names_of(offer)
    again.answer(ready(again))
    delivered = agent.next()
    assert names_of(delivered) == names_of(offer)
    delivered.answer({"task": agent.task("COMPLETED", "done")})
    assert len(task.ends()["attempts"]) == 1


@scene
def a_plain_agent_is_being_looked_at(stage: Stage) -> Generator[None]:
    knocked, opened = threading.Event(), threading.Event()
    agent = Agent(completes)

    async def door(scope: Any, receive: Any, send: Any) -> None:
        if opened.is_set():
            await agent(scope, receive, send)
            return
        knocked.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    stage.broker.register("door", card=card(stage.stack.enter_context(running(door))))
    task = errand(stage, "behind a door", "door")
    assert knocked.wait(WAIT_S)
    task.note()
    stage.meanwhile.append(opened.set)
    yield
    task.found()
    task.ends()
    assert len(agent.calls) == 1


@scene
def nobody_is_there_to_take_it(stage: Stage) -> Generator[None]:
    b = stage.broker
    b.register("sleeper", capabilities={"canSleep": True})
    b.post("/api/agents/sleeper/heartbeat", status="offline")
    task = errand(stage, "for whoever comes", requirements={"capabilities": ["canSleep"]})
    assert b.handoff(task.id)["waiting_until"]
    task.note()
    yield
    task.found()
    worker = stage.agent("late-riser", completes, capabilities={"canSleep": True})
    assert task.ends()["attempts"][0]["agent_id"] == "late-riser"
    assert len(worker.calls) == 1


@scene
def it_lies_in_an_inbox(stage: Stage) -> Generator[None]:
    stage.broker.register("puller-1", platform="external")
    task = errand(stage, "in an inbox", "puller-1")
    task.note()
    yield
    task.found()
    pending = stage.broker.http.get("/api/handoffs/pending?target=puller-1").json()["handoffs"]
    assert [h["handoff_id"] for h in pending] == [task.id]
    stage.broker.post(f"/api/handoffs/{task.id}/accept", agent_id="puller-1", attempt=1)
    stage.broker.post(f"/api/handoffs/{task.id}/complete", agent_id="puller-1", result="done")
    assert task.ends()["result"] == "done"


# --- with the target -----------------------------------------------------------------------------


@scene
def it_said_ready_and_has_the_task(stage: Stage) -> Generator[None]:
    agent = stage.puppet("polite-2", speaks=True)
    task = errand(stage, "delivered", "polite-2")
    offer = agent.next()
    offer.answer(ready(offer))
    delivered = agent.next()
    stage.broker.logged(task.id, "handoff_acknowledged")
    task.note()
    yield
    task.found()
    again = agent.next()
    assert names_of(again) == names_of(delivered) == names_of(offer)
    assert again.call.text == delivered.call.text == "delivered"
    again.answer({"task": agent.task("COMPLETED", "done")})
    assert len(task.ends()["attempts"]) == 1


@scene
def a_plain_agent_has_it_and_has_said_nothing(stage: Stage) -> Generator[None]:
    agent = stage.puppet("mute-1")
    task = errand(stage, "once and never again", "mute-1", deadline=in_s(15))
    agent.next()
    task.note()
    yield
    task.found()
    stage.broker.logged(task.id, "delivery_uncertain")
    handoff = task.ends("expired", within_s=30)
    assert len(agent.of("SendMessage")) == 1
    assert [a["agent_id"] for a in handoff["attempts"]] == ["mute-1"]


@scene
def a_plain_agent_has_it_and_running_it_twice_does_no_harm(stage: Stage) -> Generator[None]:
    mute = stage.puppet("mute-2")
    other = stage.agent("spare-2", completes)
    task = errand(stage, "harmless", "mute-2", fallback=["spare-2"], replay_safe=True)
    mute.next()
    task.note()
    yield
    task.found()
    handoff = task.ends()
    assert [(a["agent_id"], a["outcome"]) for a in handoff["attempts"]] == [
        ("mute-2", "timeout"),
        ("spare-2", None),
    ]
    assert [call.text for call in other.calls] == ["harmless"]


@scene
def a_plain_agent_works_on_it(stage: Stage) -> Generator[None]:
    agent = stage.puppet("worker-1")
    task = errand(stage, "under way", "worker-1")
    remote = agent.task("WORKING")
    agent.next().answer({"task": remote})
    stage.broker.until(task.id, "acknowledged")
    task.note()
    yield
    task.found()
    remote["status"] = {"state": "TASK_STATE_COMPLETED", "message": said("done meanwhile")}
    task.ends()
    assert len(agent.of("SendMessage")) == 1
    assert stage.broker.task(task.id)["status"]["message"]["parts"][0]["text"] == "done meanwhile"


@scene
def it_is_in_the_middle_of_a_stream(stage: Stage) -> Generator[None]:
    agent = stage.puppet("streamer", streaming=True)
    task = errand(stage, "word by word", "streamer")
    turn = agent.next("SendStreamingMessage")
    remote = agent.task("WORKING")
    turn.event({"task": remote})
    turn.event(agent.artifact(remote, "text", "one ", last=False))
    turn.event(agent.artifact(remote, "text", "two ", append=True, last=False))
    stage.broker.logged(task.id, "output_recorded", 1)
    _shows(stage, task.id, "one two ")
    task.note()
    remote["artifacts"] = [{"artifactId": "text", "parts": [{"text": "one "}, {"text": "two "}]}]

    async def goes_on() -> AsyncIterator[dict[str, Any]]:
        yield {"task": remote}
        yield agent.artifact(remote, "text", "three", append=True)
        yield agent.status(remote, "COMPLETED", "done")

    agent.auto["SubscribeToTask"] = lambda _: goes_on()
    yield
    task.found()
    task.ends()
    assert len(agent.of("SubscribeToTask")) == 1
    _shows(stage, task.id, "one two three")
    assert len(agent.of("SendStreamingMessage")) == 1


@scene
def what_a_stream_said_meanwhile_is_caught_up_with(stage: Stage) -> Generator[None]:
    agent = stage.puppet("chatterer", streaming=True)
    task = errand(stage, "while you were out", "chatterer")
    turn = agent.next("SendStreamingMessage")
    remote = agent.task("WORKING")
    turn.event({"task": remote})
    turn.event(agent.artifact(remote, "text", "one ", last=False))
    _shows(stage, task.id, "one ")
    task.note()
    remote["artifacts"] = [
        {"artifactId": "text", "parts": [{"text": "one "}, {"text": "two "}, {"text": "three"}]}
    ]
    remote["status"] = {"state": "TASK_STATE_COMPLETED", "message": said("done meanwhile")}
    yield
    task.found()
    task.ends()
    _shows(stage, task.id, "one two three")


def _shows(stage: Stage, task_id: str, text: str) -> None:
    """The task has one artifact with that text, sooner or later."""

    def texts() -> list[str]:
        artifacts = stage.broker.task(task_id).get("artifacts", [])
        return ["".join(part["text"] for part in artifact["parts"]) for artifact in artifacts]

    with suppress(AssertionError):
        eventually(lambda: texts() == [text])
    assert texts() == [text]


@scene
def a_pull_agent_holds_it(stage: Stage) -> Generator[None]:
    b = stage.broker
    b.register("puller-2", platform="external")
    task = errand(stage, "held by hand", "puller-2")
    b.post(f"/api/handoffs/{task.id}/accept", agent_id="puller-2")
    b.post(f"/api/handoffs/{task.id}/progress", agent_id="puller-2", message="half of it")
    task.note()
    yield
    task.found()
    assert b.handoff(task.id)["state"] == "acknowledged"
    b.post(f"/api/handoffs/{task.id}/complete", agent_id="puller-2", attempt=1, result="all of it")
    assert task.ends()["result"] == "all of it"


# --- questions -----------------------------------------------------------------------------------


@scene
def it_asks_the_caller(stage: Stage) -> Generator[None]:
    agent = stage.puppet("asker-1")
    task = errand(stage, "which one", "asker-1")
    agent.next().answer(agent.asks(agent.task("WORKING"), "Which?"))
    stage.broker.until(task.id, "input_required")
    task.note()
    yield
    task.found()
    assert stage.broker.task(task.id)["status"]["message"]["parts"][0]["text"] == "Which?"
    reply = stage.broker.send("the blue one", message={"taskId": task.id})
    assert reply["id"] == task.id
    turn = agent.next("SendMessage")
    assert (turn.call.text, turn.call.message["taskId"]) == ("the blue one", "r-1")
    turn.answer({"task": agent.task("COMPLETED", "thanks", task_id="r-1")})
    task.ends()


@scene
def the_reply_is_out_and_works(stage: Stage) -> Generator[None]:
    agent = stage.puppet("asker-2")
    task = errand(stage, "and then", "asker-2")
    remote = agent.task("WORKING")
    agent.next().answer(agent.asks(remote, "Which?"))
    stage.broker.until(task.id, "input_required")
    stage.broker.send("blue", message={"taskId": task.id, "messageId": "reply-2"})
    agent.next("SendMessage")
    remote["status"] = {"state": "TASK_STATE_WORKING"}
    task.note()
    yield
    assert stage.broker.send("blue", message={"taskId": task.id, "messageId": "reply-2"})["id"] == task.id
    task.found()
    remote["status"] = {"state": "TASK_STATE_COMPLETED", "message": said("blue it is")}
    task.ends()
    assert [call.text for call in agent.of("SendMessage")] == ["and then", "blue"]


@scene
def the_reply_did_not_arrive(stage: Stage) -> Generator[None]:
    agent = stage.puppet("asker-3")
    task = errand(stage, "lost on the way", "asker-3")
    remote = agent.task("WORKING")
    agent.next().answer(agent.asks(remote, "Which?"))
    stage.broker.until(task.id, "input_required")
    stage.broker.send("green", message={"taskId": task.id})
    lost = agent.next("SendMessage")
    task.note()
    yield
    task.found()
    again = agent.next("SendMessage")
    assert again.call.message == lost.call.message
    again.answer({"task": agent.task("COMPLETED", "thanks", task_id="r-1")})
    task.ends()


# --- ends ----------------------------------------------------------------------------------------


@scene
def it_is_being_canceled(stage: Stage) -> Generator[None]:
    agent = stage.puppet("worker-3")
    task = errand(stage, "never mind", "worker-3")
    agent.next().answer({"task": agent.task("WORKING")})
    stage.broker.until(task.id, "acknowledged")
    stage.broker.post(f"/api/handoffs/{task.id}/cancel")
    agent.next("CancelTask")
    task.note()
    yield
    agent.next("CancelTask").answer(agent.task("CANCELED", task_id="r-1"))
    handoff = task.ends("canceled")
    assert handoff["detail"] == ""


@scene
def it_was_done_and_the_caller_did_not_hear_of_it(stage: Stage) -> Generator[None]:
    agent = stage.agent("quick", completes)
    task = errand(stage, "done already", "quick")
    stage.broker.ended(task.id)
    task.note()
    yield
    task.found()
    again = task.send(wait=True)
    assert (again["id"], again["status"]["state"]) == (task.id, "TASK_STATE_COMPLETED")
    assert again["artifacts"][0]["parts"] == [{"text": "done: done already"}]
    task.ends()
    assert len(agent.calls) == 1


# --- chains --------------------------------------------------------------------------------------


@scene
def it_is_being_handed_on(stage: Stage) -> Generator[None]:
    leaf = stage.puppet("leaf-1", speaks=True)
    first = stage.agent("first-1", hands_on(target_agent="leaf-1", user_intent="Finish it."))
    task = errand(stage, "from hand to hand", "first-1")
    offer = leaf.next()
    task.note()
    yield
    task.found()
    again = leaf.next()
    assert names_of(again) == names_of(offer)
    again.answer(ready(again))
    leaf.next().answer({"task": leaf.task("COMPLETED", "done")})
    task.ends()
    assert len(first.calls) == 1
    assert stage.broker.task(task.id)["status"]["message"]["parts"][0]["text"] == "done"


@scene
def the_leaf_has_it(stage: Stage) -> Generator[None]:
    leaf = stage.puppet("leaf-2")
    first = stage.agent("first-2", hands_on(target_agent="leaf-2", user_intent="Finish it."))
    task = errand(stage, "in the end", "first-2")
    remote = leaf.task("WORKING")
    leaf.next().answer({"task": remote})
    stage.broker.until(task.id, "handed_off")
    task.note()
    yield
    task.found()
    remote["status"] = {"state": "TASK_STATE_COMPLETED", "message": said("done by the leaf")}
    task.ends()
    assert (len(first.calls), len(leaf.of("SendMessage"))) == (1, 1)
    assert stage.broker.task(task.id)["status"]["message"]["parts"][0]["text"] == "done by the leaf"


@scene
def its_target_waits_for_help(stage: Stage) -> Generator[None]:
    boss, helper = stage.puppet("boss"), stage.puppet("helper", speaks=True)
    task = errand(stage, "the whole", "boss")
    remote = boss.task("WORKING")
    boss.next().answer({"task": remote})
    stage.broker.until(task.id, "acknowledged")
    part = errand(stage, "a part", "helper", source_agent="boss", parent_handoff_id=task.id)
    offer = helper.next()
    task.note()
    part.note()
    yield
    task.found()
    part.found()
    again = helper.next()
    assert names_of(again) == names_of(offer)
    again.answer(ready(again))
    helper.next().answer({"task": helper.task("COMPLETED", "the part")})
    part.ends()
    assert stage.broker.handoff(task.id)["children"][0]["state"] == "completed"
    remote["status"] = {"state": "TASK_STATE_COMPLETED", "message": said("the whole")}
    task.ends()


# --- with a clock that runs: the last ones before the kill ----------------------------------------


@scene
def the_agent_is_down_and_will_be_asked_again(stage: Stage) -> Generator[None]:
    agent, port = Agent(completes), kept_port()
    stage.broker.register("down", card=card(f"http://127.0.0.1:{port}"))
    task = errand(stage, "to one that is down", "down")
    stage.broker.logged(task.id, "redelivery_scheduled")
    task.note()
    stage.meanwhile.append(lambda: stage.stack.enter_context(running(agent, port=port)))
    yield
    task.found()
    handoff = task.ends()
    assert (len(agent.calls), handoff["attempts"][0]["deliveries"]) == (1, 2)


@scene
def its_deadline_passes_while_nobody_is_there(stage: Stage) -> Generator[None]:
    agent = stage.puppet("worker-4")
    agent.auto["CancelTask"] = lambda call: agent.task("CANCELED", task_id=call.params["id"])
    task = errand(stage, "too late", "worker-4", deadline=in_s(4))
    agent.next().answer({"task": agent.task("WORKING")})
    stage.broker.until(task.id, "acknowledged")
    task.note()
    yield
    task.ends("expired")
    assert eventually(lambda: agent.of("CancelTask"))


# --- the play ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Generator[None] | Exception]]:
    """Every scene up to the kill; then the broker is another process."""
    folder = tmp_path_factory.mktemp("killed")
    settings: dict[str, Any] = {
        "ack_wait": 120,
        "retry_delay": 10,
        "reconcile_every": 0.5,
        "cancel_wait": 120,
    }
    with ExitStack() as stack, served(folder, **settings) as broker:
        stage = Stage(broker, stack)
        scenes: dict[str, Generator[None] | Exception] = {}
        for name, play in SCENES.items():
            scenes[name] = begun = play(stage)
            try:
                next(begun)
            except Exception as error:  # noqa: BLE001 - it fails its own test
                scenes[name] = error
        broker.kill()
        for happens in stage.meanwhile:
            happens()
        broker.start()
        yield scenes
        assert "Traceback" not in broker.words, broker.words


@pytest.mark.parametrize("name", SCENES)
def test_a_kill_is_survived_when(name: str, played: dict[str, Generator[None] | Exception]) -> None:
    play = played[name]
    if isinstance(play, Exception):
        raise play
    with pytest.raises(StopIteration):
        next(play)
