"""Thirteen faults of servers on a2a-sdk 1.3.0, each seen on a real one, none of which this server has.

Not here: those of gRPC, and extensions that are demanded (``test_extensions``).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, Answer, Call, card
from tests.support.hooks import hook
from tests.support.running import Broker, broker, running

WORKER = {"target_agent": "worker"}
OLD = {"A2A-Version": "0.3"}


async def keeps_asking(agent: Agent, call: Call) -> Answer:
    """Asks until it hears ``enough``; its artifact is what it got."""
    task_id = call.message.get("taskId", "")
    if call.text == "enough":
        artifact = {"artifactId": "got", "parts": call.message["parts"]}
        return {"task": agent.task("COMPLETED", "thanks", task_id=task_id, artifacts=[artifact])}
    return {"task": agent.task("INPUT_REQUIRED", f"and after {call.text}?", task_id=task_id)}


@pytest.fixture
def agent() -> Agent:
    return Agent(keeps_asking)


@pytest.fixture
def house(tmp_path: Path, agent: Agent) -> Generator[Broker]:
    with running(agent) as url, broker(tmp_path, webhook_retry_delay=0.05) as b:
        modes = {"defaultInputModes": ["text/plain", "application/pdf"]}
        b.register("worker", card=card(url) | modes)
        yield b


@pytest.fixture
def task(house: Broker) -> Any:
    """A task that waits for its caller."""
    return house.send("one", context=WORKER)


def old_message(**more: Any) -> dict[str, Any]:
    """A message of 0.3 in JSON-RPC."""
    message = {
        "kind": "message",
        "messageId": "m-old",
        "role": "user",
        "parts": [{"kind": "text", "text": "one"}],
    }
    return message | more


def test_follow_ups_that_name_only_the_task_stay_in_its_context_and_none_fails_it(
    house: Broker, task: Any
) -> None:
    for text, state in (("two", "INPUT_REQUIRED"), ("three", "INPUT_REQUIRED"), ("enough", "COMPLETED")):
        after = house.send(text, message={"taskId": task["id"]})
        assert (after["id"], after["contextId"]) == (task["id"], task["contextId"])
        assert after["status"]["state"] == f"TASK_STATE_{state}"
    named = {message.get("contextId", task["contextId"]) for message in after["history"]}
    assert named == {task["contextId"]}


def test_a_deletion_of_a_push_configuration_by_json_rpc_of_0_3_has_a_result(house: Broker, task: Any) -> None:
    config = {"taskId": task["id"], "pushNotificationConfig": {"id": "a", "url": "http://127.0.0.1:9/"}}
    assert "result" in house.rpc("tasks/pushNotificationConfig/set", config, version="")
    params = {"id": task["id"], "pushNotificationConfigId": "a"}
    answer = house.rpc("tasks/pushNotificationConfig/delete", params, version="")
    assert answer == {"jsonrpc": "2.0", "id": 1, "result": None}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("message/send", {"message": {"kind": "message"}}),
        ("message/send", {"message": old_message(parts="one")}),
        ("message/stream", {}),
        ("tasks/get", {"id": 5}),
        ("tasks/cancel", {}),
        ("tasks/pushNotificationConfig/set", {"taskId": "t"}),
    ],
)
def test_wrong_params_by_json_rpc_of_0_3_are_invalid_params(house: Broker, method: str, params: Any) -> None:
    assert house.rpc(method, params, version="")["error"]["code"] == -32602


def test_a_push_configuration_of_0_3_is_found_without_its_id(house: Broker, task: Any) -> None:
    config = {"taskId": task["id"], "pushNotificationConfig": {"id": "a", "url": "http://127.0.0.1:9/"}}
    made = house.rpc("tasks/pushNotificationConfig/set", config, version="")["result"]
    assert house.rpc("tasks/pushNotificationConfig/get", {"id": task["id"]}, version="")["result"] == made


def test_following_an_unknown_task_over_http_of_0_3_is_answered(house: Broker) -> None:
    for method in ("GET", "POST"):
        answer = house.http.request(method, "/v1/tasks/nobody:subscribe", headers=OLD)
        assert answer.status_code == 404
        assert answer.json()["type"] == "TaskNotFoundError"


def test_a_push_configuration_over_http_of_0_3_takes_its_task_from_the_path(house: Broker, task: Any) -> None:
    place = f"/v1/tasks/{task['id']}/pushNotificationConfigs"
    body = {"configId": "a", "config": {"pushNotificationConfig": {"url": "http://127.0.0.1:9/"}}}
    made = house.http.post(place, json=body, headers=OLD)
    assert made.status_code == 200
    assert made.json()["name"] == f"tasks/{task['id']}/pushNotificationConfigs/a"


def test_a_push_configuration_can_be_deleted_over_http_of_0_3(house: Broker, task: Any) -> None:
    place = f"/v1/tasks/{task['id']}/pushNotificationConfigs"
    body = {"configId": "a", "config": {"pushNotificationConfig": {"url": "http://127.0.0.1:9/"}}}
    house.http.post(place, json=body, headers=OLD)
    assert house.http.delete(f"{place}/a", headers=OLD).status_code == 200
    assert house.http.get(f"{place}/a", headers=OLD).status_code == 404


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("value", ["null", "many", "-1", "1e400", ""])
def test_a_history_length_that_is_no_number_is_the_callers_fault(
    house: Broker, task: Any, prefix: str, value: str
) -> None:
    headers = OLD if prefix else {"A2A-Version": "1.0"}
    answer = house.http.get(f"{prefix}/tasks/{task['id']}?historyLength={value}", headers=headers)
    assert answer.status_code == 400
    assert "historyLength" in answer.text


def test_bytes_of_a_file_over_http_of_0_3_are_base64_once(house: Broker, agent: Agent, task: Any) -> None:
    raw = base64.b64encode(bytes(range(256))).decode()
    file = {"file": {"fileWithBytes": raw, "mimeType": "application/pdf", "name": "a.pdf"}}
    content = [{"text": "enough"}, file]
    message = {"messageId": "m-file", "role": "ROLE_USER", "content": content, "taskId": task["id"]}
    body = {"message": message, "configuration": {"blocking": True}}
    answer = house.http.post("/v1/message:send", json=body, headers=OLD)
    assert answer.status_code == 200
    assert agent.of("SendMessage")[-1].message["parts"][1]["raw"] == raw
    back = answer.json()["task"]["artifacts"][0]["parts"][1]["file"]
    assert back["fileWithBytes"] == raw


def test_a_webhook_that_was_set_in_0_3_is_told_in_0_3_and_one_of_1_0_in_its_media_type(house: Broker) -> None:
    with hook() as old, hook() as new:
        sent = house.send(
            "one", context=WORKER, configuration={"taskPushNotificationConfig": {"url": new.url}}
        )
        set_old = {"taskId": sent["id"], "pushNotificationConfig": {"url": old.url}}
        house.rpc("tasks/pushNotificationConfig/set", set_old, version="")
        house.send("enough", message={"taskId": sent["id"]})
        theirs, ours = old.until("COMPLETED")[-1], new.until("COMPLETED")[-1]
    assert (theirs.json["kind"], theirs.json["status"]["state"]) == ("task", "completed")
    assert ours.json.keys() <= {"task", "statusUpdate"}
    assert ours.headers["content-type"] == "application/a2a+json"


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_body_that_is_not_utf_8_is_a_parse_error(house: Broker, version: str) -> None:
    headers = {"A2A-Version": version, "Content-Type": "application/json"}
    method = "SendMessage" if version == "1.0" else "message/send"
    body = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":{"a":"\xff"}}' % method.encode()
    assert house.http.post("/", content=body, headers=headers).json()["error"]["code"] == -32700
    path = "/message:send" if version == "1.0" else "/v1/message:send"
    answer = house.http.post(path, content=b'{"message":"\xff"}', headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize("version", ["1.5", "2.0", "1", "1.0.0.0", "x"])
@pytest.mark.parametrize("place", ["header", "query"])
def test_a_version_that_is_not_spoken_is_refused_wherever_it_stands(
    house: Broker, version: str, place: str
) -> None:
    query = f"?A2A-Version={version}" if place == "query" else ""
    headers = {"A2A-Version": version} if place == "header" else {}
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}}
    assert house.http.post(f"/{query}", json=call, headers=headers).json()["error"]["code"] == -32009
    answer = house.http.get(f"/tasks/t{query}", headers=headers)
    assert answer.status_code == 400
    assert "VERSION_NOT_SUPPORTED" in answer.text


def test_a_version_in_the_query_is_heard(house: Broker, task: Any) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
    assert house.http.post("/?A2A-Version=1.0", json=call).json()["result"]["id"] == task["id"]
    assert house.http.post("/", json=call).json()["error"]["code"] in (-32009, -32601)


def test_every_parameter_in_a_path_of_the_openapi_document_is_declared(house: Broker) -> None:
    document = house.http.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        named = set(re.findall(r"{(\w+)}", path))
        for operation in methods.values():
            declared = [*methods.get("parameters", []), *operation.get("parameters", [])]
            assert named <= {one["name"] for one in declared if one["in"] == "path"}, path
