"""What an agent says when it calls back, read in whatever way it says it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.agents import Agent, Binding, Generation, Interface
from a2a_handoff.ports import RemoteState, Update
from a2a_handoff.wire.callbacks import notification_of

V1, V03, V01 = Generation.V1_0, Generation.V0_3, Generation.V0_1


def agent(generation: Generation, binding: Binding = Binding.JSONRPC) -> Agent:
    face = Interface(url="http://a.example", binding=binding, generation=generation)
    return Agent(agent_id="a", tenant="default", interfaces=(face,))


def read(said: Any, generation: Generation, binding: Binding = Binding.JSONRPC) -> Update:
    return notification_of(json.dumps(said).encode(), agent(generation, binding))


_TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
_TASK_0_3 = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}}
_TASK_FIRST = {"id": "t", "sessionId": "c", "status": {"state": "completed"}}


@pytest.mark.parametrize(
    ("said", "generation"),
    [
        ({"task": _TASK}, V1),
        (_TASK, V1),
        (_TASK_0_3, V03),
        ({k: v for k, v in _TASK_0_3.items() if k != "kind"}, V03),
        (_TASK_FIRST, V01),
        ({k: v for k, v in _TASK_FIRST.items() if k != "sessionId"}, V01),
        # Servers notify in another generation than they speak.
        ({"task": _TASK}, V03),
        (_TASK_0_3, V1),
    ],
)
def test_a_task_is_read_whatever_generation_it_is_written_in(said: Any, generation: Generation) -> None:
    update = read(said, generation)
    assert (update.remote_task_id, update.state, update.snapshot) == ("t", RemoteState.COMPLETED, True)


@pytest.mark.parametrize(
    "said",
    [
        {"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_FAILED"}}},
        {"kind": "status-update", "taskId": "t", "status": {"state": "failed"}, "final": True},
    ],
)
def test_an_event_is_no_whole_task(said: Any) -> None:
    update = read(said, V1)
    assert (update.remote_task_id, update.state, update.snapshot) == ("t", RemoteState.FAILED, False)


def test_what_may_be_in_the_shape_of_a_proto_is_a_hint_only() -> None:
    assert read({"task": _TASK}, V03, Binding.HTTP_JSON) == Update()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["task", "message", "statusUpdate", "kind", "id", "status", "state", "artifacts", "parts"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(said=_JSON, generation=st.sampled_from(Generation))
def test_nothing_that_an_agent_says_is_an_error(said: Any, generation: Generation) -> None:
    assert isinstance(read(said, generation), Update)


@given(body=st.binary(max_size=64))
def test_neither_is_what_is_no_json(body: bytes) -> None:
    assert isinstance(notification_of(body, agent(V1)), Update)
