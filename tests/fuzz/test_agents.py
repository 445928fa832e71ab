"""Agents that answer anything at all: the caller gets a sound task with a sound end, and the broker is well."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Generator
from typing import Any

import pytest
from a2a.types import Task
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.conftest import Watched, clean, json_of
from tests.fuzz.mutations import mangled, spoilt, written
from tests.support.agents import URI, card
from tests.support.running import handoff_context, running, send_params, sse_data

FUZZ = settings.get_profile("fuzz")

#: Seconds after which a task ends of which nobody knows whether it is being worked on.
DEADLINE_S = 1.0
ENDS = {f"TASK_STATE_{end}" for end in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}
ASKS = {f"TASK_STATE_{ask}" for ask in ("INPUT_REQUIRED", "AUTH_REQUIRED")}

_MESSAGE = {
    "messageId": "a-1",
    "role": "ROLE_AGENT",
    "parts": [{"text": "hello"}, {"data": {"n": 1}}, {"url": "https://example.com/f", "filename": "f"}],
    "contextId": "c-1",
    "metadata": {
        URI: {"receipt": {"user_intent": "x", "key_facts": {"a": 1}}},
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    },
    "extensions": [URI],
}
_STATUS = {"state": "TASK_STATE_COMPLETED", "message": _MESSAGE, "timestamp": "2026-01-01T00:00:00.000Z"}
_ARTIFACT = {"artifactId": "r", "name": "result", "parts": [{"text": "done"}], "metadata": {"a": 1}}
_TASK = {
    "id": "t-1",
    "contextId": "c-1",
    "status": _STATUS,
    "artifacts": [_ARTIFACT],
    "history": [_MESSAGE],
    "metadata": {"k": "v"},
}
_HANDING_ON = {
    "id": "t-2",
    "contextId": "c-1",
    "status": {
        "state": "TASK_STATE_COMPLETED",
        "message": {
            "messageId": "a-2",
            "role": "ROLE_AGENT",
            "parts": [{"text": "not mine"}],
            "metadata": {
                URI: {"handoff": {"target_agent": "worker", "user_intent": "Do it.", "key_facts": {}}}
            },
        },
    },
}
ANSWERS = [{"task": _TASK}, {"task": _HANDING_ON}, {"message": _MESSAGE}]
EVENTS = [
    {"task": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}},
    {
        "artifactUpdate": {
            "taskId": "t-1",
            "contextId": "c-1",
            "artifact": _ARTIFACT,
            "append": False,
            "lastChunk": True,
        }
    },
    {"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": _STATUS}},
]


def rpc(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": result}


class Hostile:
    """Answers every call with the bytes that a test chose; knows nothing of its tasks afterwards."""

    def __init__(self) -> None:
        self.body = b""
        self.content_type = b"application/json"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked = b""
        more = True
        while more:
            message = await receive()
            asked += message.get("body", b"")
            more = message.get("more_body", False)
        known = b'"Send' in asked
        content_type = self.content_type if known else b"application/json"
        gone = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "gone"}}).encode()
        headers = [(b"content-type", content_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body if known else gone})


@pytest.fixture(scope="module")
def hostile(shared: Watched) -> Generator[Hostile]:
    """One agent behind two cards: one says that it streams, the other speaks our extension."""
    agent = Hostile()
    with running(agent) as url:
        shared.broker.register("whole", card=card(url))
        shared.broker.register("streamer", card=card(url, streaming=True))
        shared.broker.register("polite", card=card(url, speaks=True))
        yield agent


def ends_well(watched: Watched, target: str) -> None:
    """A blocking send comes back with a task that is sound on every surface."""
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=DEADLINE_S)
    context = handoff_context(target_agent=target, deadline=soon.isoformat(), hop_count=0)
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send_params(context=context)}
    answer = watched.http.post("/", json=body, headers={"A2A-Version": "1.0"})
    assert answer.status_code == 200, answer.text
    said = json_of(answer)
    assert "result" in said, said
    task = said["result"].get("task")
    if task is not None:
        assert task["status"]["state"] in ENDS | ASKS, task["status"]
        for path in (f"/tasks/{task['id']}", f"/v1/tasks/{task['id']}", f"/api/handoffs/{task['id']}"):
            read = watched.http.get(path)
            assert read.status_code == 200, read.text
            json_of(read)
        ParseDict(task, Task(), ignore_unknown_fields=True)
        clean(watched.http.get(f"/api/handoffs/{task['id']}/events").text)
        if task["status"]["state"] in ASKS:
            watched.http.post(f"/api/handoffs/{task['id']}/cancel", json={})


def stream_of(events: list[bytes]) -> bytes:
    return b"".join(b"data: " + event.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n" for event in events)


@FUZZ
@given(body=st.one_of(*(spoilt(rpc(answer)) for answer in ANSWERS), *(spoilt(answer) for answer in ANSWERS)))
def test_a_spoilt_answer_ends_in_a_sound_task(watched: Watched, hostile: Hostile, body: bytes) -> None:
    hostile.body, hostile.content_type = body, b"application/json"
    ends_well(watched, "whole")


@FUZZ
@given(body=st.sampled_from([written(rpc(answer)) for answer in ANSWERS]).flatmap(mangled))
def test_mangled_bytes_end_in_a_sound_task(watched: Watched, hostile: Hostile, body: bytes) -> None:
    hostile.body, hostile.content_type = body, b"application/json"
    ends_well(watched, "whole")


@FUZZ
@given(
    events=st.tuples(*(st.one_of(st.just(written(rpc(e))), spoilt(rpc(e), most=2)) for e in EVENTS)).map(
        list
    ),
    order=st.permutations(range(len(EVENTS))),
)
def test_a_spoilt_stream_ends_in_a_sound_task(
    watched: Watched, hostile: Hostile, events: list[bytes], order: list[int]
) -> None:
    hostile.body = stream_of([events[place] for place in order])
    hostile.content_type = b"text/event-stream"
    ends_well(watched, "streamer")


OFFERED: list[dict[str, Any]] = [
    {"ready": {"offer_id": "o-1", "receipt": {"user_intent": "x"}}},
    {"declined": {"offer_id": "o-1", "reason": "busy"}},
    {"release": {"reason": "no"}},
]


@FUZZ
@given(
    body=st.sampled_from(OFFERED).flatmap(
        lambda word: spoilt(rpc({"message": _MESSAGE | {"metadata": {URI: word}}}), most=2)
    )
)
def test_a_spoilt_word_on_an_offer_ends_in_a_sound_task(
    watched: Watched, hostile: Hostile, body: bytes
) -> None:
    hostile.body, hostile.content_type = body, b"application/json"
    ends_well(watched, "polite")


def test_what_the_tests_begin_with_is_sound(watched: Watched, hostile: Hostile) -> None:
    """The unspoilt answers complete; so what the other tests try is not refused for a common reason."""
    hostile.body, hostile.content_type = written(rpc(ANSWERS[0])), b"application/json"
    task = watched.broker.send(context={"target_agent": "whole"})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    hostile.body, hostile.content_type = stream_of([written(rpc(e)) for e in EVENTS]), b"text/event-stream"
    task = watched.broker.send(context={"target_agent": "streamer"})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert list(sse_data(iter(hostile.body.decode().split("\n"))))
