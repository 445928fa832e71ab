"""Push configurations and notifications, as they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Generation
from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.wire.projection import TaskFold, fold
from a2a_handoff.wire.push import (
    NotificationWriter,
    deleted_json,
    notification_headers,
    push_json,
    push_list_json,
    webhook_of,
)
from tests.support.builders import (
    acknowledged_event,
    completed_event,
    offered_event,
    output_event,
    requested_event,
)
from tests.wire import first_generation

V1, V03, V01 = Generation.V1_0, Generation.V0_3, Generation.V0_1
FULL = {"id": "w", "url": "https://x.test/", "token": "t"}
AUTH = {"scheme": "Bearer", "credentials": "c"}
SAID = b'{"messageId":"a-1","role":"ROLE_AGENT","parts":[{"text":"done"}]}'
STORY = (
    requested_event(),
    offered_event(),
    acknowledged_event(),
    output_event(b'{"artifactId":"a-1","parts":[{"text":"x"}]}'),
    completed_event(SAID),
)


def hook(config: Any, generation: Generation = V1, **fields: Any) -> Any:
    made = webhook_of(json.dumps(config).encode(), generation, edition="e", created_at=1.0)
    return replace(made, task_id="t-1", **fields)


def written(generation: Generation, *events: Event, task_id: str = "mine") -> list[list[Any]]:
    """What each event of a log brings."""
    writer = NotificationWriter(generation, task_id)
    state: Handoff | None = None
    found: list[list[Any]] = []
    for event in events:
        before, state = state, evolve(state, event)
        found.append([json.loads(body) for body in writer.write(before, event, state)])
    return found


# --- configurations ------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [FULL, FULL | {"authentication": AUTH}, {"id": "w", "url": "u"}])
def test_a_configuration_is_shown_as_it_was_set(config: Any) -> None:
    assert json.loads(push_json(hook(config), V1)) == {"taskId": "t-1", **config}


def test_the_older_generations_have_lists_of_schemes_and_names_of_their_own() -> None:
    shown = hook(FULL | {"authentication": AUTH})
    old = {
        "url": "https://x.test/",
        "token": "t",
        "authentication": {"credentials": "c", "schemes": ["Bearer"]},
    }
    assert json.loads(push_json(shown, V03)) == {
        "taskId": "t-1",
        "pushNotificationConfig": {"id": "w", **old},
    }
    first = json.loads(push_json(shown, V01))
    assert first == {"id": "t-1", "pushNotificationConfig": old}
    first_generation.TaskPushNotificationConfig.model_validate(first)


def test_only_1_0_makes_an_id_for_each() -> None:
    assert hook({"url": "u"}).id == "e"
    assert hook({"url": "u", "id": "w"}).id == "w"
    assert hook({"url": "u"}, V03).id == ""


def test_lists_and_deletions_have_the_form_of_their_generation() -> None:
    shown = hook(FULL)
    assert json.loads(push_list_json([shown], V1)) == {
        "configs": [{"taskId": "t-1", **FULL}],
        "nextPageToken": "",
    }
    assert json.loads(push_list_json([], V03)) == []
    assert (deleted_json(V1), deleted_json(V03)) == (b"{}", b"null")


@pytest.mark.parametrize(
    ("config", "authorization"),
    [
        ({"url": "u"}, None),
        ({"url": "u", "authentication": {"scheme": "Bearer"}}, None),
        ({"url": "u", "authentication": {"credentials": "c"}}, None),
        ({"url": "u", "authentication": AUTH}, "Bearer c"),
    ],
)
def test_only_a_scheme_with_credentials_is_an_authorization(config: Any, authorization: str | None) -> None:
    assert dict(notification_headers(hook(config), "n")).get("Authorization") == authorization


def test_the_content_type_is_that_of_the_generation() -> None:
    types = [
        dict(notification_headers(hook({"url": "u"}, one), "n"))["Content-Type"] for one in (V1, V03, V01)
    ]
    assert types == ["application/a2a+json", "application/json", "application/json"]


# --- notifications -------------------------------------------------------------------------------


def test_1_0_is_told_each_event_as_its_streams_are() -> None:
    silent, offered, working, output, end = written(V1, *STORY)
    assert silent == []
    (status,) = offered
    assert status["statusUpdate"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert working[0]["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
    assert output == [
        {
            "artifactUpdate": {
                "taskId": "mine",
                "contextId": "context-1",
                "artifact": {"artifactId": "a-1", "parts": [{"text": "x"}]},
                "append": False,
                "lastChunk": False,
            }
        }
    ]
    assert end[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("generation", [V03, V01])
def test_the_older_generations_are_told_the_whole_task_once_for_each_event(generation: Generation) -> None:
    silent, offered, working, output, end = written(generation, *STORY)
    assert silent == []
    assert [len(tasks) for tasks in (offered, working, output, end)] == [1, 1, 1, 1]
    assert offered[0]["id"] == "mine"
    assert "artifacts" not in working[0]
    assert len(output[0]["artifacts"]) == 1
    assert end[0]["status"]["state"] == "completed"
    if generation is V01:
        for task in (*offered, *working, *output, *end):
            first_generation.Task.model_validate(task)
    else:
        assert {task["kind"] for task in (*offered, *end)} == {"task"}


def test_what_the_broker_keeps_to_itself_is_not_told() -> None:
    lost = ev.DeliveryUncertain(at=1.0, attempt=1, detail="")
    assert written(V03, *STORY[:3], lost)[-1] == []


def test_the_broker_speaks_to_a_webhook_in_the_language_of_the_task() -> None:
    first = STORY[0]
    context = replace(first.package.context, user_preferences=b'{"language":"fr"}')
    french = replace(first, package=replace(first.package, context=context))
    told = [written(V1, one, *STORY[1:2])[1] for one in (first, french)]
    assert told[0] != told[1]


# --- the task as it unfolds ----------------------------------------------------------------------


def test_a_task_that_unfolds_is_the_task_that_is_folded_at_once() -> None:
    unfolding, state = TaskFold(), None
    for number, event in enumerate(STORY, start=1):
        state = evolve(state, event)
        unfolding.take(event, state)
        assert unfolding.view() == fold(state, STORY[:number])


def test_what_a_leaf_says_is_part_of_the_task_until_the_task_goes_on_without_it() -> None:
    unfolding = TaskFold()
    above = None
    for event in STORY[:3]:
        above = evolve(above, event)
        unfolding.take(event, above)
    leaf = None
    for event in (requested_event("h-2"), *STORY[1:4]):
        leaf = evolve(leaf, event)
        unfolding.take(event, leaf)
    assert unfolding.view().id == "h-1"
    assert len(unfolding.view().artifacts) == 1
    above = evolve(above, completed_event(SAID))
    unfolding.take(completed_event(SAID), above)
    assert unfolding.view().artifacts == ()
