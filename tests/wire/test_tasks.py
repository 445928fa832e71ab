"""Handoffs as A2A tasks and streams, held against the SDK's types of 1.0 and 0.3 and models of 0.1."""

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.compat.v0_3 import types as v03
from a2a.types import a2a_pb2 as v10
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import TypeAdapter

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Generation, Readiness, Role
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import EXTENSION_URI, Mode
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import OutputKind, State
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.ports import RemoteState
from a2a_handoff.wire import notices
from a2a_handoff.wire.projection import TASK_STATES, task_state
from a2a_handoff.wire.tasks import (
    ArtifactUpdate,
    StatusUpdate,
    StreamWriter,
    TaskView,
    fold,
    list_json,
    sse,
    states_of,
    stream_events,
    task_json,
    task_result,
)
from tests.support.machine import World, candidate, every_command, in_state, means, request
from tests.wire import first_generation as v01

V1_0, V0_3, V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1
OLD_EVENT = TypeAdapter(v03.Task | v03.TaskStatusUpdateEvent | v03.TaskArtifactUpdateEvent)


def _said(text: str, message_id: str = "s-1", **more: Any) -> bytes:
    message = {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": text}]} | more
    return json.dumps(message).encode()


def _artifact(artifact_id: str, text: str, **more: Any) -> bytes:
    return json.dumps({"artifactId": artifact_id, "parts": [{"text": text}]} | more).encode()


def _chunk(artifact_id: str, text: str, *, append: bool = True, last: bool = False, **more: Any) -> ev.Output:
    return ev.Output(
        kind=OutputKind.ARTIFACT,
        body=_artifact(artifact_id, text, **more),
        append=append,
        last=last,
        artifact_id=artifact_id,
    )


def _status(text: str, message_id: str) -> ev.Output:
    return ev.Output(kind=OutputKind.STATUS, body=_said(text, message_id))


def _working(*outputs: ev.Output) -> World:
    world = World(request(candidate("billing"), candidate("senior")))
    world.do(cmd.Acknowledge(agent_id="billing", attempt=1, remote=ev.Remote(task_id="r-1")))
    if outputs:
        world.do(cmd.Progress(attempt=1, outputs=outputs))
    return world


def _view(world: World) -> TaskView:
    return fold(world.h, world.log)


def _told(world: World, language: str = "en") -> list[StatusUpdate | ArtifactUpdate]:
    told: list[StatusUpdate | ArtifactUpdate] = []
    before: Handoff | None = None
    for event in world.log:
        after = evolve(before, event)
        told.extend(stream_events(before, event, after, language=language))
        before = after
    return told


def _texts(bodies: Any) -> list[str]:
    return [json.loads(body)["parts"][0]["text"] for body in bodies]


def _data(message: bytes) -> dict[str, Any]:
    return next(part["data"] for part in json.loads(message)["parts"] if "data" in part)


def _check_task(view: TaskView) -> None:
    """The task is one in every generation."""
    ParseDict(json.loads(task_json(view, V1_0)), v10.Task())
    ParseDict(json.loads(task_result(view, V1_0, sent=True)), v10.SendMessageResponse())
    v03.Task.model_validate_json(task_json(view, V0_3))
    v01.Task.model_validate_json(task_json(view, V0_1, history_length=100))


def _check_stream(events: list[Any]) -> None:
    """The events are those of every generation."""
    for generation in Generation:
        writer = StreamWriter(generation)
        for event in events:
            written = [json.loads(body) for body in writer.write(event)]
            for body in written:
                if generation is V1_0:
                    ParseDict(body, v10.StreamResponse())
                elif generation is V0_3:
                    OLD_EVENT.validate_python(body)
                elif "artifact" in body:
                    v01.TaskArtifactUpdateEvent.model_validate(body)
                else:
                    v01.TaskStatusUpdateEvent.model_validate_json(json.dumps(body))


# --- states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (State.REQUESTED, RemoteState.SUBMITTED),
        (State.OFFERED, RemoteState.SUBMITTED),
        (State.ESCALATED, RemoteState.SUBMITTED),
        (State.ACKNOWLEDGED, RemoteState.WORKING),
        (State.INPUT_REQUIRED, RemoteState.INPUT_REQUIRED),
        (State.AUTH_REQUIRED, RemoteState.AUTH_REQUIRED),
        (State.HANDED_OFF, RemoteState.WORKING),
        (State.COMPLETED, RemoteState.COMPLETED),
        (State.FAILED, RemoteState.FAILED),
        (State.CANCELED, RemoteState.CANCELED),
        (State.RETURNED, RemoteState.REJECTED),
        (State.EXPIRED, RemoteState.FAILED),
    ],
)
def test_every_state_of_a_handoff_is_a_state_of_a_task(state: State, shown: RemoteState) -> None:
    world = in_state(state)
    view = _view(world)
    assert view.state is shown
    assert state in states_of(shown)
    asked = _said("which?") if view.status_message == b"{}" else view.status_message
    _check_task(replace(view, status_message=asked))


def test_every_state_is_listed_under_exactly_one() -> None:
    listed = [own for shown in RemoteState for own in states_of(shown)]
    assert sorted(listed) == sorted(State)
    assert set(TASK_STATES) == set(State)


def test_once_it_was_working_a_task_is_not_submitted_again() -> None:
    world = _working()
    back = replace(world.h, state=State.REQUESTED)
    assert task_state(back) is RemoteState.WORKING
    assert task_state(replace(back, acked_at=None)) is RemoteState.SUBMITTED


# --- what was said ---------------------------------------------------------------------------------


def test_the_history_is_what_the_caller_and_the_target_said_in_their_order() -> None:
    world = _working(_status("reading", "s-1"), _status("writing", "s-2"))
    world.do(
        cmd.AskCaller(attempt=1, message=_said("which month?", "s-3")),
        cmd.Reply(message=_said("March", "m-2", role="ROLE_USER"), message_id="m-2"),
        cmd.Complete(attempt=1, message=_said("done", "s-4")),
    )
    view = _view(world)
    assert _texts(view.history) == ["hello", "reading", "writing", "which month?", "March"]
    assert _texts([view.status_message]) == ["done"]
    _check_task(view)


def test_a_question_is_the_status_until_it_is_answered() -> None:
    world = _working()
    world.do(cmd.AskCaller(attempt=1, message=_said("which month?", "s-3")))
    assert _texts([_view(world).status_message]) == ["which month?"]
    assert _texts(_view(world).history) == ["hello"]
    world.do(cmd.Reply(message=_said("March", "m-2", role="ROLE_USER"), message_id="m-2"))
    assert _texts(_view(world).history) == ["hello", "which month?", "March"]
    assert "March" not in _view(world).status_message.decode()


def test_a_final_message_that_is_missing_does_not_leave_an_older_one_in_its_place() -> None:
    world = _working(_status("halfway", "s-1"))
    world.do(cmd.Complete(attempt=1))
    assert _view(world).status_message == b""
    assert _texts(_view(world).history) == ["hello", "halfway"]


def test_the_same_word_twice_is_in_the_history_once() -> None:
    world = _working(_status("working", "s-1"), _status("working", "s-1"), _status("done", "s-2"))
    assert _texts(_view(world).history) == ["hello", "working"]


def test_ids_in_messages_are_those_of_the_callers_task() -> None:
    foreign = _said("hi", "s-1", taskId="r-1", contextId="r-c")
    world = _working(ev.Output(kind=OutputKind.STATUS, body=foreign))
    task = json.loads(task_json(_view(world), V1_0))
    assert (task["status"]["message"]["taskId"], task["status"]["message"]["contextId"]) == ("h-1", "c-1")
    [*_, update] = _told(world)
    written = json.loads(StreamWriter(V0_3).write(update)[0])
    assert written["status"]["message"]["taskId"] == "h-1"


def test_what_an_agent_says_names_its_task_and_its_context_whatever_it_named_itself() -> None:
    for named in ({}, {"taskId": "r-1"}, {"contextId": "r-c"}):
        world = _working(ev.Output(kind=OutputKind.STATUS, body=_said("hi", "s-1", **named)))
        for generation in (V1_0, V0_3):
            task = json.loads(task_json(_view(world), generation))
            said, asked = task["status"]["message"], task["history"][0]
            assert (said["taskId"], said["contextId"], said["messageId"]) == ("h-1", "c-1", "s-1")
            assert asked.keys().isdisjoint({"taskId", "contextId"})


# --- artifacts -------------------------------------------------------------------------------------


def test_an_artifact_of_one_piece_stays_byte_for_byte() -> None:
    body = b'{"artifactId":"a", "parts":[{"data":{"f":1.10,"big":12345678901234567890}}]}'
    world = _working(ev.Output(kind=OutputKind.ARTIFACT, body=body))
    assert _view(world).artifacts == (body,)
    assert body in task_json(_view(world), V1_0)


def test_chunks_are_joined_by_id_however_they_interleave() -> None:
    world = _working(
        _chunk("a", "1", append=False, name="report"),
        _chunk("b", "x", append=False),
        _chunk("a", "2", name="other", description="new"),
        _chunk("b", "y", last=True),
        _chunk("a", "3", last=True),
    )
    first, second = (json.loads(body) for body in _view(world).artifacts)
    assert [part["text"] for part in first["parts"]] == ["1", "2", "3"]
    assert (first["name"], first["description"]) == ("report", "new")
    assert [part["text"] for part in second["parts"]] == ["x", "y"]
    _check_task(_view(world))


def test_a_chunk_for_an_unknown_artifact_begins_it() -> None:
    world = _working(_chunk("a", "1"), _chunk("a", "2"))
    [artifact] = _view(world).artifacts
    assert [part["text"] for part in json.loads(artifact)["parts"]] == ["1", "2"]


def test_a_whole_artifact_takes_the_place_of_what_was_there() -> None:
    world = _working(_chunk("a", "1"), _chunk("b", "x"), _chunk("a", "new", append=False, last=True))
    assert _texts(_view(world).artifacts) == ["new", "x"]


def test_odd_artifacts_do_not_spoil_the_task() -> None:
    for body in (b'{"artifactId":5,"parts":[]}', b'{"parts":"x"}', b"{}"):
        world = _working(*(ev.Output(kind=OutputKind.ARTIFACT, body=body, append=True) for _ in range(2)))
        assert len(_view(world).artifacts) == 1
        task_json(_view(world), V0_3)


# --- what the broker says --------------------------------------------------------------------------


def test_the_stream_tells_of_every_switch_and_of_the_confirmation() -> None:
    world = World(request(candidate("billing"), candidate("senior")))
    world.do(
        cmd.Decline(agent_id="billing", means=means("senior", n=2), reason="busy"),
        cmd.Acknowledge(agent_id="senior", attempt=2),
    )
    told = [(update, _data(update.message)) for update in _told(world) if isinstance(update, StatusUpdate)]
    assert [(data["event"], data["target_agent"], update.state) for update, data in told] == [
        ("handoff_started", "billing", RemoteState.SUBMITTED),
        ("handoff_started", "senior", RemoteState.SUBMITTED),
        ("handoff_confirmed", "senior", RemoteState.WORKING),
    ]
    assert all(data["type"] == "system_event" and data["message"] for _, data in told)
    assert len({json.loads(update.message)["messageId"] for update, _ in told}) == 3
    _check_stream([_view(world), *_told(world)])


def test_the_caller_hears_that_an_agent_does_not_answer_and_who_is_responsible_meanwhile() -> None:
    world = World(request(candidate("billing")))
    world.do(cmd.DeliveryUnsure(attempt=1, detail="no answer yet", means=means()))
    told = _told(world)[-1]
    assert isinstance(told, StatusUpdate)
    assert (_data(told.message)["event"], told.state) == ("ack_overdue", RemoteState.SUBMITTED)
    assert "you stay responsible" in _texts([told.message])[0]
    assert _view(world).status_message == told.message
    world.do(cmd.Acknowledge(agent_id="billing", attempt=1))
    assert _data(_view(world).status_message)["event"] == "handoff_confirmed"


def test_a_target_at_work_whose_stream_was_cut_is_no_news_to_the_caller() -> None:
    world = _working()
    before = _told(world)
    world.do(cmd.DeliveryUnsure(attempt=1, detail="the stream ended before the task", means=means()))
    assert _told(world) == before


def test_a_task_that_asked_for_nothing_comes_back_with_what_to_ask_for_in_its_text() -> None:
    near = ev.PassedOver(agent_id="default_agent", reason="is not registered: name a target_agent", near=True)
    far = ev.PassedOver(agent_id="other", reason="lacks canBrowse")
    world = World(request(passed_over=(near, far), reason=ev.Outcome.NO_CAPABLE_AGENT))
    (text,) = _texts([_view(world).status_message])
    assert "default_agent: is not registered: name a target_agent" in text
    assert "other" not in text


def test_a_returned_task_lists_every_attempt_and_its_reason() -> None:
    world = World(
        request(
            candidate("billing"),
            candidate("senior"),
            passed_over=(ev.PassedOver(agent_id="ops", reason="offline", near=True),),
        )
    )
    world.do(
        cmd.Decline(agent_id="billing", means=means("senior", n=2), reason="busy"),
        cmd.Decline(agent_id="senior", means=means(n=3), reason="not mine"),
        cmd.Resolved(resolution=ev.Resolution(), means=means(n=4)),
    )
    view = _view(world)
    assert view.state is RemoteState.REJECTED
    text, data, source = (
        part.get("text") or part["data"] for part in json.loads(view.status_message)["parts"]
    )
    assert source["event"] == "source_active"
    assert "1. billing: target_rejected (busy)" in text
    assert "2. senior: target_rejected (not mine)" in text
    assert data["event"] == "handoff_returned"
    assert [(a["agent_id"], a["outcome"], a["reason"]) for a in data["attempts"]] == [
        ("billing", "target_rejected", "busy"),
        ("senior", "target_rejected", "not mine"),
    ]
    last = _told(world)[-1]
    assert isinstance(last, StatusUpdate)
    assert last.message == view.status_message
    _check_task(view)


def test_an_expired_task_lists_them_too_and_has_failed() -> None:
    view = _view(in_state(State.EXPIRED))
    assert view.state is RemoteState.FAILED
    assert _data(view.status_message)["event"] == "handoff_expired"
    assert _data(view.status_message)["attempts"][0]["agent_id"] == "billing"


def test_who_could_not_be_asked_is_listed_when_nobody_was() -> None:
    passed_over = tuple(ev.PassedOver(agent_id=f"a-{n}", reason="lacks canBrowse") for n in range(50))
    view = _view(World(request(passed_over=passed_over, reason=ev.Outcome.NO_CAPABLE_AGENT)))
    listed = _data(view.status_message)["passed_over"]
    assert listed[0] == {"agent_id": "a-0", "reason": "lacks canBrowse"}
    assert len(listed) == 20


def test_a_failure_without_a_word_is_explained() -> None:
    view = _view(in_state(State.FAILED))
    assert "billing" in _texts([view.status_message])[0]
    assert "broken" in _texts([view.status_message])[0]
    word = _working()
    word.do(cmd.Fail(attempt=1, message=_said("disk full", "s-1")))
    assert _texts([_view(word).status_message]) == ["disk full"]


def test_what_the_broker_says_is_not_part_of_the_history() -> None:
    world = World(request(candidate("billing")))
    assert _data(_view(world).status_message)["event"] == "handoff_started"
    world.do(cmd.Acknowledge(agent_id="billing", attempt=1))
    assert _data(_view(world).status_message)["event"] == "handoff_confirmed"
    world.do(cmd.Complete(attempt=1))
    assert _texts(_view(world).history) == ["hello"]


@pytest.mark.parametrize(
    ("preferences", "language"),
    [
        (b'{"language":"fr"}', "fr"),
        (b'{"language":"fr-CA"}', "fr"),
        (b'{"language":"FR_fr"}', "fr"),
        (b'{"language":"de"}', "en"),
        (b'{"language":5}', "en"),
        (b"{}", "en"),
    ],
)
def test_the_broker_speaks_the_callers_language_or_english(preferences: bytes, language: str) -> None:
    world = World(request(candidate("billing")))
    first = world.log[0]
    assert isinstance(first, ev.HandoffRequested)
    context = replace(first.package.context, user_preferences=preferences)
    world.log[0] = replace(first, package=replace(first.package, context=context))
    view = _view(world)
    assert view.language == language
    expected = "Transfert" if language == "fr" else "Handing"
    assert _texts([view.status_message])[0].startswith(expected)
    [update] = _told(world, view.language)
    assert isinstance(update, StatusUpdate)
    assert update.message == view.status_message


# --- metadata --------------------------------------------------------------------------------------


def test_the_task_tells_how_the_handoff_stands() -> None:
    world = _working()
    ours = json.loads(_view(world).metadata)[EXTENSION_URI]
    assert ours["handoff_id"] == "h-1"
    assert ours["state"] == "acknowledged"
    assert (ours["hop_count"], ours["handoff_chain"]) == (1, ["sender", "billing"])
    assert ours["trace_id"] == world.h.trace.trace_id
    assert ours["correlation_id"] == world.h.correlation_id
    assert ours["attempts"][0]["acknowledged_at"] == "2027-01-15T08:00:00.000Z"


def test_the_callers_metadata_comes_back_as_it_was_without_the_context() -> None:
    given = b'{"priority":0,"f":1.10,"note":"","opt":null,"handoff_context":{"x":1},"urn:a2a-handoff:handoff:v1":{}}'
    world = World(replace(request(candidate("billing")), request_metadata=given))
    metadata = _view(world).metadata
    assert b'"priority":0,"f":1.10,"note":"","opt":null' in metadata
    assert b"handoff_context" not in metadata
    assert json.loads(metadata)[EXTENSION_URI]["handoff_id"] == "h-1"


# --- a chain ---------------------------------------------------------------------------------------


def _leaf() -> World:
    return World(request(candidate("senior"), path=("sender", "billing"), hop_count=1, handoff_id="h-2"))


def test_a_task_that_was_handed_on_shows_its_leaf() -> None:
    root = in_state(State.HANDED_OFF)
    leaf = _leaf()
    view = _view(root).continued_by(_view(leaf))
    assert (view.id, view.context_id, view.state) == ("h-1", "c-1", RemoteState.WORKING)
    leaf.do(
        cmd.Acknowledge(agent_id="senior", attempt=1),
        cmd.Progress(attempt=1, outputs=(_status("on it", "s-1"), _chunk("a", "1", append=False))),
        cmd.AskCaller(attempt=1, message=_said("which?", "s-2")),
    )
    view = _view(root).continued_by(_view(leaf))
    assert view.state is RemoteState.INPUT_REQUIRED
    assert _texts([view.status_message]) == ["which?"]
    assert _texts(view.history) == ["hello", "on it"]
    assert _texts(view.artifacts) == ["1"]
    leaf_says = json.loads(view.metadata)[EXTENSION_URI]["leaf"]
    assert (leaf_says["handoff_id"], leaf_says["state"]) == ("h-2", "input_required")
    message = json.loads(task_json(view, V1_0))["status"]["message"]
    assert message.get("taskId", "h-1") == "h-1"
    _check_task(view)


def test_a_task_that_ended_by_its_child_shows_the_childs_result() -> None:
    root = in_state(State.HANDED_OFF)
    leaf = _leaf()
    leaf.do(cmd.Acknowledge(agent_id="senior", attempt=1), cmd.Complete(attempt=1, message=_said("done")))
    root.do(cmd.ChildOver(child_id="child", state=State.COMPLETED))
    view = _view(root).continued_by(_view(leaf))
    assert view.state is RemoteState.COMPLETED
    assert _texts([view.status_message]) == ["done"]
    assert _texts(view.history) == ["hello"]


def test_outputs_of_root_and_leaf_stand_side_by_side() -> None:
    root = _working(_chunk("a", "draft", append=False), _status("handing on", "s-0"))
    attach = cmd.AttachChild(child_id="child", mode=Mode.TRANSFER, agent_id="billing")
    root.do(attach, cmd.ChildTookOver(child_id="child"))
    leaf = _leaf()
    leaf.do(
        cmd.Acknowledge(agent_id="senior", attempt=1),
        cmd.Complete(
            attempt=1,
            message=_said("done", "s-9"),
            outputs=(_chunk("a", "final", append=False), _chunk("b", "more", append=False)),
        ),
    )
    view = _view(root).continued_by(_view(leaf))
    assert _texts(view.artifacts) == ["final", "more"]
    assert _texts(view.history) == ["hello", "handing on"]


def test_an_offer_to_a_leaf_does_not_take_the_stream_back_to_submitted() -> None:
    writer = StreamWriter(V1_0)
    states: list[str] = []
    for update in (*_told(in_state(State.HANDED_OFF)), *_told(_leaf())):
        [body] = writer.write(update)
        states.append(json.loads(body)["statusUpdate"]["status"]["state"])
    assert states == ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_WORKING"]


# --- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "asked", "shown"),
    [
        (V1_0, None, 4),
        (V1_0, 0, None),
        (V1_0, 2, 2),
        (V1_0, 99, 4),
        (V0_3, None, 4),
        (V0_3, 0, 4),
        (V0_3, 1, 1),
        (V0_1, None, None),
        (V0_1, 0, None),
        (V0_1, 3, 3),
    ],
)
def test_each_generation_has_its_rule_for_the_history(
    generation: Generation, asked: int | None, shown: int | None
) -> None:
    world = _working(*(_status(f"{n}", f"s-{n}") for n in range(4)))
    task = json.loads(task_json(_view(world), generation, history_length=asked))
    assert ("history" in task) is (shown is not None)
    if shown is not None:
        assert len(task["history"]) == shown
        assert task["history"][-1]["parts"][0]["text"] == "2"


def test_a_task_looks_as_each_generation_wants_it() -> None:
    world = _working(_chunk("a", "1", append=False), _chunk("b", "2", append=False))
    world.now += 1.5
    world.do(cmd.Complete(attempt=1, message=_said("done")))
    view = _view(world)
    new, old, first = (json.loads(task_json(view, generation)) for generation in Generation)
    assert new["status"]["state"] == "TASK_STATE_COMPLETED"
    assert new["status"]["timestamp"] == "2027-01-15T08:00:01.500Z"
    assert (old["kind"], old["contextId"], old["status"]["state"]) == ("task", "c-1", "completed")
    assert old["status"]["message"]["kind"] == "message"
    assert (first["id"], first["sessionId"], first["status"]["state"]) == ("h-1", "c-1", "completed")
    assert [artifact["index"] for artifact in first["artifacts"]] == [0, 1]
    assert "messageId" not in first["status"]["message"]


def test_the_first_generation_finds_the_true_state_in_the_metadata() -> None:
    task = json.loads(task_json(_view(in_state(State.RETURNED)), V0_1))
    assert task["status"]["state"] == "failed"
    assert task["metadata"][EXTENSION_URI]["state"] == "returned"


def test_only_the_answer_to_a_message_is_wrapped_and_only_in_1_0() -> None:
    view = _view(_working())
    assert set(json.loads(task_result(view, V1_0, sent=True))) == {"task"}
    assert json.loads(task_result(view, V1_0))["id"] == "h-1"
    assert json.loads(task_result(view, V0_3, sent=True))["kind"] == "task"
    assert json.loads(task_result(view, V0_1, sent=True))["id"] == "h-1"


def test_a_page_always_has_its_token() -> None:
    views = [_view(_working()), _view(in_state(State.COMPLETED))]
    page = list_json(views, V1_0, next_page_token="", page_size=50, total_size=2)
    assert json.loads(page)["nextPageToken"] == ""
    assert ParseDict(json.loads(page), v10.ListTasksResponse()).total_size == 2
    assert all("artifacts" not in task for task in json.loads(page)["tasks"])


# --- streams ---------------------------------------------------------------------------------------


def _whole_story() -> World:
    world = _working(_chunk("a", "1", append=False), _status("half", "s-1"), _chunk("a", "2", last=True))
    world.do(
        cmd.AskCaller(attempt=1, message=_said("which?", "s-2")),
        cmd.Reply(message=_said("that", "m-2", role="ROLE_USER"), message_id="m-2"),
        cmd.Complete(attempt=1, message=_said("done", "s-3"), outputs=(_chunk("b", "x", append=False),)),
    )
    return world


def test_a_stream_is_one_in_every_generation() -> None:
    world = _whole_story()
    _check_stream([fold(evolve(None, world.log[0]), world.log[:1]), *_told(world)])


def test_a_stream_of_0_3_ends_with_final() -> None:
    writer = StreamWriter(V0_3)
    written = [json.loads(body) for update in _told(_whole_story()) for body in writer.write(update)]
    kinds = [(body["kind"], body.get("final")) for body in written]
    assert kinds[-2:] == [("artifact-update", None), ("status-update", True)]
    asked = next(body for body in written if body.get("status", {}).get("state") == "input-required")
    assert asked["final"]
    assert [final for kind, final in kinds if kind == "status-update"].count(True) == 2


def test_a_stream_of_the_first_generation_numbers_its_artifacts() -> None:
    writer = StreamWriter(V0_1)
    written = [json.loads(body) for update in _told(_whole_story()) for body in writer.write(update)]
    chunks = [body["artifact"] for body in written if "artifact" in body]
    assert [(c["index"], c["append"], c["lastChunk"]) for c in chunks] == [
        (0, False, False),
        (0, True, True),
        (1, False, False),
    ]
    assert written[-1] == written[-1] | {"id": "h-1", "final": True}


def test_a_snapshot_in_the_first_generation_is_a_status_and_every_artifact_so_far() -> None:
    world = _working(_chunk("a", "1", append=False), _chunk("b", "2", append=False))
    first, *rest = (json.loads(body) for body in StreamWriter(V0_1).write(_view(world)))
    assert (first["status"]["state"], first["final"]) == ("working", False)
    assert [body["artifact"]["index"] for body in rest] == [0, 1]
    world.do(cmd.Complete(attempt=1))
    *artifacts, last = (json.loads(body) for body in StreamWriter(V0_1).write(_view(world)))
    assert (len(artifacts), last["final"]) == (2, True)


def test_a_reply_is_told_only_if_it_moves_the_task() -> None:
    world = _working()
    world.do(cmd.Reply(message=_said("more", "m-2", role="ROLE_USER"), message_id="m-2"))
    assert len(_told(world)) == 2
    asked = _working()
    asked.do(
        cmd.AskCaller(attempt=1, message=_said("which?", "s-2")),
        cmd.Reply(message=_said("that", "m-2", role="ROLE_USER"), message_id="m-2"),
    )
    states = [update.state for update in _told(asked) if isinstance(update, StatusUpdate)]
    assert states[-2:] == [RemoteState.INPUT_REQUIRED, RemoteState.WORKING]


def test_events_of_the_broker_alone_are_not_told() -> None:
    world = World(request(candidate("billing")))
    refused = cmd.DeliveryFailed(
        attempt=1, outcome=ev.Outcome.TARGET_UNAVAILABLE, detail="refused", means=means("billing")
    )
    assert [type(event).__name__ for event in world.do(refused)] == ["RedeliveryScheduled"]
    assert len(_told(world)) == 1


def test_a_server_sent_event_is_one_line_whatever_the_json_has_in_it() -> None:
    event = sse('{"a":\n\r\n "b\u2028c\u2029d\u0085é"}'.encode())
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert len(event.decode().splitlines()) == 2
    assert json.loads(event[6:]) == {"a": "b\u2028c\u2029d\u0085é"}
    assert sse(b"{}") == b"data: {}\n\n"


# --- for any story ---------------------------------------------------------------------------------

_outputs = st.lists(
    st.builds(
        _chunk,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["1", "2"]),
        append=st.booleans(),
        last=st.booleans(),
    )
    | st.builds(_status, st.sampled_from(["x", "y"]), st.sampled_from(["s-1", "s-2"])),
    max_size=3,
).map(tuple)
_commands: st.SearchStrategy[Command] = st.one_of(
    st.sampled_from(every_command()[1:]),
    st.just(cmd.Acknowledge(agent_id="billing", attempt=1)),
    st.builds(cmd.Progress, outputs=_outputs),
    st.builds(cmd.Complete, outputs=_outputs, message=st.sampled_from([b"", _said("done", "s-9")])),
    st.builds(cmd.AskCaller, outputs=_outputs, message=st.just(_said("which?", "s-5"))),
)


def _client(
    first: TaskView, updates: list[StatusUpdate | ArtifactUpdate]
) -> tuple[RemoteState, dict[str, list[str]]]:
    """What a client makes of a stream: the state, and the texts of each artifact."""
    state, artifacts = first.state, dict[str, list[str]]()
    for update in updates:
        if isinstance(update, StatusUpdate):
            state = update.state
            continue
        artifact = json.loads(update.artifact)
        texts = [part["text"] for part in artifact["parts"]]
        known = artifacts.setdefault(artifact["artifactId"], [])
        artifacts[artifact["artifactId"]] = [*known, *texts] if update.append else texts
    return state, artifacts


@given(st.lists(_commands, max_size=12))
def test_who_follows_a_stream_knows_what_the_task_shows(commands: list[Command]) -> None:
    boss = candidate("boss", Readiness.PERSON, Role.SUPERVISOR)
    world = World(request(candidate("billing"), candidate("senior"), boss))
    for command in commands:
        try:
            world.do(command)
        except HandoffError:
            continue
    view, told = _view(world), _told(world)
    state, artifacts = _client(fold(evolve(None, world.log[0]), world.log[:1]), told)
    assert state is view.state
    shown = {json.loads(body)["artifactId"]: _texts_of(body) for body in view.artifacts}
    assert shown == artifacts
    assert task_json(view, V1_0) == task_json(_view(world), V1_0)


def _texts_of(body: bytes) -> list[str]:
    return [part["text"] for part in json.loads(body)["parts"]]


@given(st.lists(_commands.filter(lambda c: getattr(c, "message", b"") != b"{}"), max_size=10))
def test_any_story_is_a_task_and_a_stream_in_every_generation(commands: list[Command]) -> None:
    world = World(request(candidate("billing"), candidate("senior")))
    for command in commands:
        if isinstance(command, cmd.Progress) and any(o.body == b"{}" for o in command.outputs):
            continue
        try:
            world.do(command)
        except HandoffError:
            continue
    _check_task(_view(world))
    _check_stream([_view(world), *_told(world)])


def test_the_view_is_the_same_whenever_it_is_made() -> None:
    world = _whole_story()
    assert fold(world.h, world.log) == fold(world.h, iter(list(world.log)))


def test_the_extension_page_names_every_event_that_the_broker_tells() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "extension.md").read_text(encoding="utf-8")
    for event in (notices.STARTED, notices.CONFIRMED, notices.RETURNED, notices.EXPIRED, notices.FAILED):
        assert f"| `{event}` |" in page
