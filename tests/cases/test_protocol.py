"""Known faults of protocol parsing and versioning: c001 to c006 of docs/reference/cases.md."""

from __future__ import annotations

import base64
import itertools
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.agents import Agent, Answer, Call, card, completes
from tests.support.running import Broker, broker, handoff_context, running, send_params

CAN = {"requirements": {"capabilities": ["canWork"]}}
_IDS = itertools.count(1)


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with one agent that completes everything."""
    with running(Agent(completes)) as url, broker(tmp_path_factory.mktemp("broker")) as started:
        started.register("worker", card=card(url, capabilities={"canWork": True}))
        yield started


def post(b: Broker, body: str | bytes, **headers: str) -> Any:
    """A body as it is, with the version header of 1.0."""
    return b.http.post("/", content=body, headers={"Content-Type": "application/json"} | headers)


def send_body(request_id: str) -> str:
    """SendMessage of 1.0 with an id as written."""
    params = json.dumps(send_params(context=CAN))
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"SendMessage","params":{params}}}'


def handoffs(b: Broker) -> int:
    """How many handoffs there are."""
    return b.http.get("/api/handoffs").json()["total"]


# --- c001: ids of requests -----------------------------------------------------------------------


@pytest.mark.parametrize("request_id", ['{"a":1}', "[1]", "true", "false"])
def test_c001_an_id_that_is_no_scalar_is_refused_under_null_and_nothing_is_done(
    b: Broker, request_id: str
) -> None:
    before = handoffs(b)
    answer = post(b, send_body(request_id), **{"A2A-Version": "1.0"})
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32600
    assert b'"id":null' in answer.content
    assert handoffs(b) == before


@pytest.mark.parametrize("request_id", ["1.5", "1.50", "1e2", '"a\\u00e9"', f'"{"x" * 1000}"', "null"])
def test_c001_any_other_id_comes_back_byte_for_byte(b: Broker, request_id: str) -> None:
    before = handoffs(b)
    answer = post(b, send_body(request_id), **{"A2A-Version": "1.0"})
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert f'"id":{request_id},'.encode() in answer.content
    assert handoffs(b) == before + 1


def test_c001_an_id_of_five_kilobytes_is_refused_and_nothing_is_done(b: Broker) -> None:
    before = handoffs(b)
    answer = post(b, send_body(f'"{"x" * 5000}"'), **{"A2A-Version": "1.0"})
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32600
    assert "1024" in answer.json()["error"]["message"]
    assert answer.json()["id"] is None
    assert handoffs(b) == before


# --- c002: batches and notifications -------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "[1]",
        f'[{send_body("1")},{{"jsonrpc":"2.0","id":2,"method":"GetTask","params":{{"id":"x"}}}}]',
    ],
    ids=["empty", "of a number", "of two calls"],
)
def test_c002_a_batch_is_refused_whole_with_one_error_and_no_side_effect(b: Broker, body: str) -> None:
    before = handoffs(b)
    answer = post(b, body, **{"A2A-Version": "1.0"})
    assert answer.status_code == 200
    error = answer.json()
    assert isinstance(error, dict)
    assert (error["id"], error["error"]["code"]) == (None, -32600)
    assert handoffs(b) == before


def test_c002_a_notification_is_refused_and_not_carried_out(b: Broker) -> None:
    before = handoffs(b)
    body = {"jsonrpc": "2.0", "method": "SendMessage", "params": send_params(context=CAN)}
    answer = post(b, json.dumps(body), **{"A2A-Version": "1.0"})
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32600
    assert answer.json()["id"] is None
    assert handoffs(b) == before


# --- c003: the version header --------------------------------------------------------------------


def old_params(**configuration: Any) -> dict[str, Any]:
    """Params of message/send (0.3) for our worker."""
    parts = [{"kind": "text", "text": "hi"}]
    return {
        "message": {"kind": "message", "messageId": f"old-{next(_IDS)}", "role": "user", "parts": parts},
        "metadata": {"handoff_context": handoff_context(**CAN)},
        "configuration": configuration,
    }


@pytest.mark.parametrize("headers", [{}, {"A2A-Version": ""}, {"A2A-Version": "0.3.7"}])
def test_c003_without_a_version_the_answer_has_the_shape_of_0_3(b: Broker, headers: dict[str, str]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": old_params()}
    task = b.http.post("/", json=body, headers=headers).json()["result"]
    assert task["kind"] == "task"
    assert task["status"]["state"] == "completed"
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "done: hi"}]
    assert "TASK_STATE" not in json.dumps(task)


@pytest.mark.parametrize("version", ["1.0", "1.0.3", "1.0.0"])
def test_c003_a_patch_number_does_not_count(b: Broker, version: str) -> None:
    answer = b.rpc("SendMessage", send_params(context=CAN), version=version)
    assert answer["result"].keys() == {"task"}
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "kind" not in answer["result"]["task"]


@pytest.mark.parametrize("version", ["2.0", "1", "1.0.", "latest", "0.3.0.1"])
def test_c003_a_version_that_is_not_spoken_is_refused_by_name(b: Broker, version: str) -> None:
    error = b.rpc("SendMessage", send_params(context=CAN), version=version)["error"]
    assert error["code"] == -32009
    assert error["data"][0]["metadata"] == {"requestedVersion": version, "supportedVersions": "1.0, 0.3"}


# --- c004: a sender of 1.0 and an agent of 0.3 ---------------------------------------------------

_FILE = base64.b64encode(bytes(range(256))).decode()
_ONLY_1_0 = (
    "ROLE_", "TASK_STATE_", "mediaType", "filename", "raw", "returnImmediately", "protocolBinding",
)  # fmt: skip


def old_card(url: str) -> dict[str, Any]:
    """A card of 0.3."""
    return {
        "name": "Old",
        "description": "Speaks 0.3.",
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "version": "1",
        "capabilities": {},
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [{"id": "old-work", "name": "Work", "description": "Works.", "tags": ["old"]}],
    }


async def old_answer(agent: Agent, call: Call) -> Answer:
    """A finished task of 0.3, or an error for any other method than message/send."""
    if call.method != "message/send":
        return {"error": {"code": -32601, "message": "Method not found"}}
    said = {
        "kind": "message", "messageId": "a-1", "role": "agent", "taskId": "r-1", "contextId": "rc-1",
        "parts": [{"kind": "text", "text": "Here it is."}], "metadata": {"cost": 3},
    }  # fmt: skip
    parts = [
        {"kind": "text", "text": "Ångström"},
        {"kind": "file", "file": {"bytes": _FILE, "name": "all.bin", "mimeType": "application/x-all"}},
        {"kind": "file", "file": {"uri": "https://files.example/a.pdf", "mimeType": "application/pdf"}},
        {"kind": "data", "data": {"rows": [1, 2.5]}, "metadata": {"sheet": "A"}},
    ]
    return {
        "kind": "task",
        "id": "r-1",
        "contextId": "rc-1",
        "status": {"state": "completed", "message": said, "timestamp": "2030-01-31T12:00:00Z"},
        "artifacts": [{"artifactId": "x", "name": "result", "parts": parts, "metadata": {"v": 1}}],
    }


def test_c004_a_task_of_1_0_reaches_an_agent_of_0_3_and_its_answer_comes_back_as_1_0(b: Broker) -> None:
    old = Agent(old_answer)
    message = {
        "parts": [
            {"text": "translate", "metadata": {"n": 1}},
            {"raw": _FILE, "filename": "all.bin", "mediaType": "application/x-all"},
            {"data": {"depth": {"of": [1, None]}}},
        ],
        "metadata": {"ticket": 7},
    }
    with running(old) as url:
        b.register("old", card=old_card(url))
        task = b.send(context={"requirements": {"skill": "old-work"}}, message=message)
        b.http.delete("/api/agents/old")

    (call,) = old.of("message/send")
    assert [c.method for c in old.calls] == ["message/send"]
    assert call.headers.get("a2a-version", "0.3").startswith("0.3")
    sent = call.message
    assert (sent["kind"], sent["role"]) == ("message", "user")
    assert sent["parts"] == [
        {"kind": "text", "text": "translate", "metadata": {"n": 1}},
        {"kind": "file", "file": {"bytes": _FILE, "name": "all.bin", "mimeType": "application/x-all"}},
        {"kind": "data", "data": {"depth": {"of": [1, None]}}},
    ]
    assert sent["metadata"]["ticket"] == 7
    without_context = json.dumps([sent["parts"], sent["role"], call.params.get("configuration")])
    assert not [word for word in _ONLY_1_0 if word in without_context]

    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["status"]["message"]["role"] == "ROLE_AGENT"
    assert task["status"]["message"]["parts"] == [{"text": "Here it is."}]
    assert task["status"]["message"]["metadata"] == {"cost": 3}
    (artifact,) = task["artifacts"]
    assert (artifact["name"], artifact["metadata"]) == ("result", {"v": 1})
    assert artifact["parts"] == [
        {"text": "Ångström"},
        {"raw": _FILE, "filename": "all.bin", "mediaType": "application/x-all"},
        {"url": "https://files.example/a.pdf", "mediaType": "application/pdf"},
        {"data": {"rows": [1, 2.5]}, "metadata": {"sheet": "A"}},
    ]


# --- c005: answers of targets that are not JSON-RPC ----------------------------------------------


class Upstream:
    """Has a card; answers every POST with one status and one body."""

    def __init__(self, status: int, content_type: str, body: str) -> None:
        self._answer = (status, content_type.encode(), body.encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        status, content_type, body = (200, b"application/json", b"{}")
        if scope["method"] == "POST":
            status, content_type, body = self._answer
        headers = [(b"content-type", content_type)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("status", "content_type", "body", "state", "outcome"),
    [
        (503, "text/plain", "LEAK upstream down", "TASK_STATE_REJECTED", "target_unavailable"),
        (404, "text/html", "<html>LEAK</html>", "TASK_STATE_FAILED", "invalid_response"),
        (200, "application/json", '{"LEAK": ', "TASK_STATE_FAILED", "invalid_response"),
        (500, "text/plain", "Traceback LEAK", "TASK_STATE_FAILED", "target_failed"),
        (302, "text/html", "LEAK", "TASK_STATE_FAILED", "invalid_response"),
    ],
)
def test_c005_what_an_agent_answers_over_http_never_becomes_an_error_of_the_broker(
    b: Broker,
    caplog: pytest.LogCaptureFixture,
    status: int,
    content_type: str,
    body: str,
    state: str,
    outcome: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    with running(Upstream(status, content_type, body)) as url:
        b.register("upstream", card=card(url))
        answer = b.rpc("SendMessage", send_params(context={"target_agent": "upstream"}), request_id="id-5")
        b.http.delete("/api/agents/upstream")
    assert "error" not in answer
    assert answer["id"] == "id-5"
    task = answer["result"]["task"]
    assert task["status"]["state"] == state
    handoff = b.handoff(task["id"])
    told = handoff["attempts"][0]["outcome"] or handoff["outcome"]
    assert told == outcome
    events = b.http.get(f"/api/handoffs/{task['id']}/events").text
    assert "LEAK" not in f"{answer} {handoff} {events}"
    assert not [record for record in caplog.records if "LEAK" in record.getMessage() or record.exc_info]


# --- c006: types of the configuration ------------------------------------------------------------


def fault_of(answer: Any) -> tuple[int, list[str]]:
    """The code of an error, and the fields that it names."""
    found = [v["field"] for d in answer["error"]["data"] for v in d.get("fieldViolations", ())]
    return answer["error"]["code"], found


@pytest.mark.parametrize("value", ["false", "true", 1, 0, [], {}])
def test_c006_return_immediately_is_true_or_false_and_nothing_that_looks_like_it(
    b: Broker, value: Any
) -> None:
    before = handoffs(b)
    params = send_params(context=CAN, configuration={"returnImmediately": value})
    assert fault_of(b.rpc("SendMessage", params)) == (-32602, ["configuration.returnImmediately"])
    assert handoffs(b) == before


@pytest.mark.parametrize(("value", "state"), [(None, "COMPLETED"), (False, "COMPLETED"), (True, "SUBMITTED")])
def test_c006_null_is_unset_and_true_does_not_wait(b: Broker, value: Any, state: str) -> None:
    task = b.send(context=CAN, configuration={"returnImmediately": value})
    assert task["status"]["state"] == f"TASK_STATE_{state}"
    b.until(task["id"], "completed")


@pytest.mark.parametrize(("value", "state"), [(None, "completed"), (True, "completed"), (False, "submitted")])
def test_c006_blocking_of_0_3_says_the_opposite(b: Broker, value: Any, state: str) -> None:
    task = b.rpc("message/send", old_params(blocking=value), version="")["result"]
    assert task["status"]["state"] == state
    b.until(task["id"], "completed")


@pytest.mark.parametrize("value", ["false", 0, "no"])
def test_c006_blocking_of_0_3_is_checked_as_well(b: Broker, value: Any) -> None:
    answer = b.rpc("message/send", old_params(blocking=value), version="")
    assert fault_of(answer) == (-32602, ["configuration.blocking"])


@pytest.mark.parametrize("value", [-1, "2", 1.5, 2**31, True])
def test_c006_a_history_length_that_is_no_count_is_refused(b: Broker, value: Any) -> None:
    params = send_params(context=CAN, configuration={"historyLength": value})
    assert fault_of(b.rpc("SendMessage", params)) == (-32602, ["configuration.historyLength"])
    assert fault_of(b.rpc("GetTask", {"id": "x", "historyLength": value})) == (-32602, ["historyLength"])


@pytest.mark.parametrize("value", ["1e9", "2.0", "2"])
def test_c006_a_count_may_be_written_as_any_whole_number(b: Broker, value: str) -> None:
    task = b.send(context=CAN)
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"GetTask","params":'
        f'{{"id":"{task["id"]}","historyLength":{value}}}}}'
    )
    history = post(b, body, **{"A2A-Version": "1.0"}).json()["result"]["history"]
    assert history[0]["parts"] == [{"text": "hello"}]


def test_c006_a_history_length_of_zero_leaves_the_history_out(b: Broker) -> None:
    task = b.send(context=CAN, configuration={"historyLength": 0})
    assert "history" not in task
