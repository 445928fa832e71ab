"""Push configurations: who may see them, what they may hold, how they are written."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.intake import Call
from a2a_handoff.ports import USUAL_SCOPES, Principal
from a2a_handoff.transports.operations import Asker, Operations
from a2a_handoff.wire.requests import Operation, PushParams, read_params
from tests.support.agents import Agent, asks, card
from tests.support.running import Broker, broker, kept_port, running
from tests.support.wire import eventually

SET = "CreateTaskPushNotificationConfig"
LIST = "ListTaskPushNotificationConfigs"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("configs")
    with running(Agent(asks)) as url, broker(folder, webhooks=3) as b:
        b.register("worker", card=card(url))
        yield b


@pytest.fixture
def task(house: Broker) -> Any:
    """A task that waits for its caller, so nobody is told anything."""
    return house.send(context={"target_agent": "worker"})


def hook_url(path: str = "") -> str:
    return f"http://127.0.0.1:{kept_port()}/{path}"


def refusal(house: Broker, method: str, params: Any, version: str = "1.0") -> dict[str, str]:
    """The violations of a call that is refused."""
    error = house.rpc(method, params, version=version)["error"]
    assert error["code"] == -32602, error
    data = error["data"] if isinstance(error["data"], list) else [error["data"]]
    return {v["field"]: v["description"] for d in data for v in d.get("fieldViolations", [])}


def urls(house: Broker, task_id: str) -> list[str]:
    return [config["url"] for config in house.rpc(LIST, {"taskId": task_id})["result"]["configs"]]


# --- what they may hold --------------------------------------------------------------------------


def test_a_configuration_without_an_id_gets_one_and_both_are_kept(house: Broker, task: Any) -> None:
    made = [house.rpc(SET, {"taskId": task["id"], "url": hook_url(name)})["result"] for name in "ab"]
    assert made[0]["id"] != made[1]["id"]
    page = house.rpc(LIST, {"taskId": task["id"]})["result"]
    assert page == {"configs": made, "nextPageToken": ""}


def test_a_task_has_no_more_of_them_than_the_setting_allows(house: Broker, task: Any) -> None:
    for number in range(3):
        house.rpc(SET, {"taskId": task["id"], "id": f"w-{number}", "url": hook_url()})
    error = house.rpc(SET, {"taskId": task["id"], "id": "w-9", "url": hook_url()})["error"]
    assert error["code"] == -32602
    assert "3 push notification configurations" in error["message"]
    anew = house.rpc(SET, {"taskId": task["id"], "id": "w-1", "url": hook_url("new")})
    assert anew["result"]["url"].endswith("/new")
    assert len(urls(house, task["id"])) == 3


@pytest.mark.parametrize(
    ("config", "field", "fault"),
    [
        ({}, "url", "is required"),
        ({"url": ""}, "url", "must not be blank"),
        ({"url": 5}, "url", "must be a string"),
        ({"url": "https://x.test/" + "p" * 2_048}, "url", "at most 2048 bytes"),
        ({"url": "https://x.test/", "token": "t" * 8_193}, "token", "at most 8192 bytes"),
        ({"url": "https://x.test/", "token": "a\r\nX-Evil: 1"}, "token", "printable ASCII"),
        ({"url": "https://x.test/", "token": "é"}, "token", "printable ASCII"),
        ({"url": "https://x.test/", "id": "i" * 257}, "id", "256"),
        ({"url": "https://x.test/", "authentication": {}}, "authentication.scheme", "is required"),
        (
            {"url": "https://x.test/", "authentication": {"scheme": "Bearer x"}},
            "authentication.scheme",
            "name of an authentication scheme",
        ),
        (
            {"url": "https://x.test/", "authentication": {"scheme": "Bearer", "credentials": "a\nb"}},
            "authentication.credentials",
            "printable ASCII",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_where_it_stands(
    house: Broker, task: Any, config: Any, field: str, fault: str
) -> None:
    found = refusal(house, SET, {"taskId": task["id"], **config})
    assert fault in found[field]
    message = {"messageId": f"m-{field}-{fault}", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    params = {"message": message, "configuration": {"taskPushNotificationConfig": config}}
    found = refusal(house, "SendMessage", params)
    assert fault in found[f"configuration.taskPushNotificationConfig.{field}"]
    assert urls(house, task["id"]) == []


def test_schemes_of_the_older_generations_are_checked_too(house: Broker, task: Any) -> None:
    authentication = {"schemes": ["Bearer", "no scheme"], "credentials": "x"}
    config = {"url": hook_url(), "authentication": authentication}
    params = {"taskId": task["id"], "pushNotificationConfig": config}
    found = refusal(house, "tasks/pushNotificationConfig/set", params, version="")
    assert "name of an authentication scheme" in found["pushNotificationConfig.authentication.schemes"]


def test_unknown_members_are_not_kept(house: Broker, task: Any) -> None:
    made = house.rpc(SET, {"taskId": task["id"], "id": "w", "url": hook_url(), "more": "x" * 9_999})
    assert set(made["result"]) == {"taskId", "id", "url"}


# --- who may see them ----------------------------------------------------------------------------


def asker(name: str, *, tenant: str = "default", scopes: tuple[str, ...] = ()) -> Asker:
    principal = Principal(
        name=name, tenant=tenant, authenticated=True, scopes=frozenset(scopes) or USUAL_SCOPES
    )
    return Asker(principal=principal, generation=Generation.V1_0, call=Call(), surface="test")


def push_params(operation: Operation, **params: Any) -> PushParams:
    found = read_params(operation, Generation.V1_0, json.dumps(params).encode())
    assert isinstance(found, PushParams)
    return found


@pytest.mark.parametrize("who", ["stranger", "worker"])
def test_only_who_sent_the_task_sees_or_changes_them(house: Broker, who: str) -> None:
    operations = Operations(house.app.broker, quotas=house.app.quotas, keepalive_s=15)
    task = house.send(context={"target_agent": "worker", "source_agent": "shop"})
    house.register("shop")
    mine = push_params(Operation.SET_PUSH, taskId=task["id"], id="w", url=hook_url())
    house.loop.run(operations.set_push(asker("shop"), mine))
    named = push_params(Operation.GET_PUSH, taskId=task["id"], id="w")
    other = asker(who)
    for call in (
        operations.set_push(other, mine),
        operations.get_push(other, named),
        operations.list_push(other, named),
        operations.delete_push(other, named),
    ):
        with pytest.raises(HandoffError) as refused:
            house.loop.run(call)
        assert refused.value.code is Code.TASK_NOT_FOUND
        assert "no task" in str(refused.value)
    assert house.loop.run(operations.get_push(asker("shop"), named)).id == "w"
    with pytest.raises(HandoffError):
        house.loop.run(operations.list_push(asker("shop", tenant="other"), named))
    house.loop.run(operations.delete_push(asker("admin", scopes=("handoff:admin",)), named))
    assert urls(house, task["id"]) == []


def test_how_they_are_doing_is_shown_without_their_secrets(house: Broker, task: Any) -> None:
    authentication = {"scheme": "Bearer", "credentials": "cred-xyz"}
    house.rpc(
        SET,
        {"taskId": task["id"], "id": "w", "url": hook_url(), "token": "tok-xyz"}
        | {"authentication": authentication},
    )
    answer = house.http.get(f"/api/handoffs/{task['id']}/webhooks")
    (shown,) = answer.json()["webhooks"]
    assert (shown["id"], shown["state"], shown["delivered"]) == ("w", "active", 0)
    assert (shown["protocol_version"], shown["status"], shown["last_at"]) == ("1.0", None, None)
    assert "xyz" not in answer.text
    assert house.http.get("/api/handoffs/nobody/webhooks").status_code == 404
    assert "xyz" not in house.http.get(f"/api/handoffs/{task['id']}/events").text


# --- how they are written ------------------------------------------------------------------------


def test_0_3_over_http_takes_the_task_from_the_path_and_the_id_from_where_clients_put_it(
    house: Broker, task: Any
) -> None:
    base, url = f"/v1/tasks/{task['id']}/pushNotificationConfigs", hook_url()
    inner = {"pushNotificationConfig": {"url": url, "authentication": {"schemes": ["Bearer"]}}}
    bodies: list[dict[str, Any]] = [
        {"parent": f"tasks/{task['id']}", "configId": "by-parent", "config": {"name": "", **inner}},
        {"config_id": "by-name", "config": {"push_notification_config": {"url": url}}},
        {"pushNotificationConfig": {"id": "by-body", "url": url}},
    ]
    for body in bodies:
        made = house.http.post(base, json=body).json()
        config_id = made["pushNotificationConfig"]["id"]
        assert config_id.startswith("by-")
        assert made["name"] == f"tasks/{task['id']}/pushNotificationConfigs/{config_id}"
        assert house.http.get(f"{base}/{config_id}").json() == made
    assert len(house.http.get(base).json()["configs"]) == 3
    gone = house.http.delete(f"{base}/by-body")
    assert (gone.status_code, gone.json()) == (200, {})
    assert len(house.http.get(base).json()["configs"]) == 2


def test_0_3_over_json_rpc_answers_a_deletion_with_null_and_a_get_without_an_id(
    house: Broker, task: Any
) -> None:
    config = {"taskId": task["id"], "pushNotificationConfig": {"url": hook_url()}}
    made = house.rpc("tasks/pushNotificationConfig/set", config, version="")["result"]
    assert house.rpc("tasks/pushNotificationConfig/get", {"id": task["id"]}, version="")["result"] == made
    assert house.rpc("tasks/pushNotificationConfig/list", {"id": task["id"]}, version="")["result"] == [made]
    params = {"id": task["id"], "pushNotificationConfigId": made["pushNotificationConfig"]["id"]}
    gone = house.rpc("tasks/pushNotificationConfig/delete", params, version="")
    assert gone == {"jsonrpc": "2.0", "id": 1, "result": None}


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
def test_the_card_offers_them_in_every_generation(house: Broker, path: str) -> None:
    house.register("fetcher", platform="external")  # its face has a card of the broker's
    for prefix in ("", "/agents/fetcher"):
        assert house.http.get(prefix + path).json()["capabilities"]["pushNotifications"] is True


def test_a_broker_on_the_network_calls_no_private_address(tmp_path: Path) -> None:
    with running(Agent(asks)) as url, broker(tmp_path, allow_private_addresses=True) as b:
        b.register("worker", card=card(url))
        kept = b.send(context={"target_agent": "worker"})
        b.rpc(SET, {"taskId": kept["id"], "id": "w", "url": hook_url()})
    with broker(tmp_path, allow_private_addresses=False, webhook_retry_delay=0.05) as b:
        found = refusal(b, SET, {"taskId": kept["id"], "url": hook_url()})
        assert found == {"url": "is not an address that the broker may call"}
        b.rpc("CancelTask", {"id": kept["id"]})

        def refused() -> Any:
            (shown,) = b.http.get(f"/api/handoffs/{kept['id']}/webhooks").json()["webhooks"]
            return shown if shown["failures"] else None

        shown = eventually(refused)
        assert (shown["error"], shown["status"]) == ("address unknown or not allowed", None)
