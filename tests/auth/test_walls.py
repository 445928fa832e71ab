"""A stranger's thing does not exist: each operation answers as it does for an id that was never given out.

The stranger is an admin of another tenant, who knows every id there is. Another agent of the same tenant, who
takes no part in a handoff, is told the same of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bearers import SECRET, bearer
from tests.support.running import Broker, broker, send_params, sse_data

_V1 = {"A2A-Version": "1.0"}
_UNKNOWN = "01a22f2d-0000-7000-8000-00000000abcd"
_HOOK = "http://127.0.0.1:9/hook"


@dataclass(frozen=True)
class House:
    """A broker with what ``shop`` of the tenant ``acme`` handed to ``maker``, and who else is there."""

    b: Broker
    task: str
    context: str
    legacy: str = "order-7"
    chain: str = "chain-of-acme"

    shop: Any = None
    maker: Any = None


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Generator[House]:
    folder: Path = tmp_path_factory.mktemp("walls")
    shop, maker = bearer("shop", tenant="acme"), bearer("maker", tenant="acme")
    with broker(folder, auth_secret=SECRET, wait_for_agent=600) as b:
        card = {"name": "maker", "skills": [], "version": "1"}
        assert b.http.post("/api/agents", json={"agent_id": "maker", "card": card}, headers=maker).is_success
        context = {
            "source_agent": "shop",
            "target_agent": "maker",
            "correlation_id": "chain-of-acme",
            "conversation_summary": "A secret summary.",
            "user_intent": "Make it.",
            "key_facts": {},
        }
        task = _rpc(
            b,
            "SendMessage",
            send_params("secret words", wait=False, metadata={"handoff_context": context}),
            shop,
        )["result"]["task"]
        old = {
            "id": "order-7",
            "message": {"role": "user", "parts": [{"type": "text", "text": "secret words"}]},
            "metadata": {"handoff_context": context | {"correlation_id": "other-of-acme"}},
            "pushNotification": {"url": _HOOK},
        }
        # Its answer waits for the end of the task; nobody waits for its answer.
        with pytest.raises(httpx.ReadTimeout):
            b.http.post("/tasks/send", json=old, headers=shop, timeout=1.0)
        config = {"taskId": task["id"], "id": "hook", "url": _HOOK}
        assert "result" in _rpc(b, "CreateTaskPushNotificationConfig", config, shop)
        said = {"channel": "news", "message": "a secret of acme"}
        assert b.http.post("/api/broadcasts", json=said, headers=maker).is_success
        yield House(b, task["id"], task["contextId"], shop=shop, maker=maker)


def _rpc(b: Broker, method: str, params: Any, headers: Any, *, path: str = "/", version: str = "1.0") -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    named = {"A2A-Version": version} if version else {}
    return b.http.post(path, json=body, headers=headers | named).json()


Ask = Callable[[Broker, str, Any], Any]


def _call(method: str, params: Callable[[str], Any], *, version: str = "1.0", path: str = "/") -> Ask:
    return lambda b, task, headers: _rpc(b, method, params(task), headers, version=version, path=path)


def _http(method: str, path: str, body: Any = None) -> Ask:
    def ask(b: Broker, task: str, headers: Any) -> Any:
        answer = b.http.request(method, path.format(task=task), json=body, headers=headers)
        return answer.status_code, answer.json()

    return ask


def _old(task: str, kind: str = "message/send") -> Any:
    message = {"role": "user", "messageId": "m-1", "parts": [{"kind": "text", "text": "hi"}], "taskId": task}
    return {"message": message} if kind else {}


_CONFIG = {"pushNotificationConfig": {"id": "hook", "url": _HOOK}}

#: Everything that can be asked of one task.
ON_A_TASK: dict[str, Ask] = {
    "GetTask": _call("GetTask", lambda t: {"id": t}),
    "CancelTask": _call("CancelTask", lambda t: {"id": t}),
    "SubscribeToTask": _call("SubscribeToTask", lambda t: {"id": t}),
    "SendMessage": _call("SendMessage", lambda t: send_params(message={"taskId": t, "messageId": "w-1"})),
    "SendStreamingMessage": _call(
        "SendStreamingMessage", lambda t: send_params(message={"taskId": t, "messageId": "w-2"})
    ),
    "CreateTaskPushNotificationConfig": _call(
        "CreateTaskPushNotificationConfig", lambda t: {"taskId": t, "id": "x", "url": _HOOK}
    ),
    "GetTaskPushNotificationConfig": _call("GetTaskPushNotificationConfig", lambda t: {"taskId": t, "id": "hook"}),
    "ListTaskPushNotificationConfigs": _call("ListTaskPushNotificationConfigs", lambda t: {"taskId": t}),
    "DeleteTaskPushNotificationConfig": _call(
        "DeleteTaskPushNotificationConfig", lambda t: {"taskId": t, "id": "hook"}
    ),
    "message/send": _call("message/send", _old, version="0.3"),
    "message/stream": _call("message/stream", _old, version="0.3"),
    "tasks/get": _call("tasks/get", lambda t: {"id": t}, version="0.3"),
    "tasks/cancel": _call("tasks/cancel", lambda t: {"id": t}, version="0.3"),
    "tasks/resubscribe": _call("tasks/resubscribe", lambda t: {"id": t}, version="0.3"),
    "push set 0.3": _call("tasks/pushNotificationConfig/set", lambda t: {"taskId": t, **_CONFIG}, version="0.3"),
    "push get 0.3": _call("tasks/pushNotificationConfig/get", lambda t: {"id": t}, version="0.3"),
    "push list 0.3": _call("tasks/pushNotificationConfig/list", lambda t: {"id": t}, version="0.3"),
    "push delete 0.3": _call(
        "tasks/pushNotificationConfig/delete", lambda t: {"id": t, "pushNotificationConfigId": "hook"}, version="0.3"
    ),
    "push get 0.1": _call("tasks/pushNotification/get", lambda t: {"id": t}, version=""),
    "push set 0.1": _call(
        "tasks/pushNotification/set", lambda t: {"id": t, "pushNotificationConfig": {"url": _HOOK}}, version=""
    ),
    "GET /tasks/{id}": _http("GET", "/tasks/{task}"),
    "POST /tasks/{id}:cancel": _http("POST", "/tasks/{task}:cancel", {}),
    "POST /tasks/{id}:subscribe": _http("POST", "/tasks/{task}:subscribe"),
    "GET /tasks/{id}/pushNotificationConfigs": _http("GET", "/tasks/{task}/pushNotificationConfigs"),
    "GET /tasks/{id}/pushNotificationConfigs/{id}": _http("GET", "/tasks/{task}/pushNotificationConfigs/hook"),
    "DELETE /tasks/{id}/pushNotificationConfigs/{id}": _http(
        "DELETE", "/tasks/{task}/pushNotificationConfigs/hook"
    ),
    "GET /v1/tasks/{id}": _http("GET", "/v1/tasks/{task}"),
    "POST /v1/tasks/{id}:cancel": _http("POST", "/v1/tasks/{task}:cancel", {}),
    "GET /v1/tasks/{id}:subscribe": _http("GET", "/v1/tasks/{task}:subscribe"),
    "POST /tasks/get": lambda b, t, h: _posted(b, "/tasks/get", {"id": t}, h),
    "POST /tasks/cancel": lambda b, t, h: _posted(b, "/tasks/cancel", {"id": t}, h),
    "POST /tasks/resubscribe": lambda b, t, h: _posted(b, "/tasks/resubscribe", {"id": t}, h),
    "GET /api/handoffs/{id}": _http("GET", "/api/handoffs/{task}"),
    "GET /api/handoffs/{id}/events": _http("GET", "/api/handoffs/{task}/events"),
    "GET /api/handoffs/{id}/webhooks": _http("GET", "/api/handoffs/{task}/webhooks"),
    **{
        f"POST /api/handoffs/{{id}}/{verb}": _http("POST", f"/api/handoffs/{{task}}/{verb}", body)
        for verb, body in {
            "accept": {}, "decline": {"reason": "r"}, "progress": {"message": "m"}, "complete": {"result": 1},
            "fail": {"reason": "r"}, "release": {"reason": "r"}, "cancel": {},
        }.items()
    },
    "older GET": _http("GET", "/ai-api/infrastructure/handoffs/{task}"),
    "older accept": _http("POST", "/ai-api/infrastructure/handoffs/{task}/accept", {}),
    "parent": lambda b, t, h: _posted(b, "/api/handoffs", {"task": "x", "target_agent": "y", "parent_handoff_id": t}, h),
}  # fmt: skip


def _posted(b: Broker, path: str, body: Any, headers: Any) -> Any:
    answer = b.http.post(path, json=body, headers=headers)
    return answer.status_code, answer.json()


def _said(answer: Any, task: str) -> str:
    return json.dumps(answer).replace(task, "ID")


def _is_refused(answer: Any) -> bool:
    if isinstance(answer, tuple):
        return answer[0] in (404, 422)
    return answer.get("error", {}).get("code") in (-32001, -32602)


@pytest.mark.parametrize("who", ["another tenant", "a bystander"])
@pytest.mark.parametrize("operation", ON_A_TASK)
def test_c065_a_strangers_task_is_like_one_that_never_was(house: House, operation: str, who: str) -> None:
    tenant, scope = ("other", "handoff:admin") if who == "another tenant" else ("acme", None)
    headers = bearer("spy", tenant=tenant, scope=scope)
    ask = ON_A_TASK[operation]
    answer, unknown = ask(house.b, house.task, headers), ask(house.b, _UNKNOWN, headers)
    assert _is_refused(answer), answer
    assert _said(answer, house.task) == _said(unknown, _UNKNOWN)
    assert "secret" not in json.dumps(answer)


@pytest.mark.parametrize(
    "operation",
    [
        "tasks/get",
        "tasks/cancel",
        "tasks/resubscribe",
        "push get 0.1",
        "POST /tasks/get",
        "POST /tasks/cancel",
    ],
)
@pytest.mark.parametrize("who", ["another tenant", "a bystander"])
def test_c044_a_task_id_that_a_client_made_is_its_own(house: House, operation: str, who: str) -> None:
    headers = bearer("spy", tenant="other" if who == "another tenant" else "acme", scope="handoff:send")
    answer = ON_A_TASK[operation](house.b, house.legacy, headers)
    assert _is_refused(answer), answer
    known = ON_A_TASK["POST /tasks/get"](house.b, house.legacy, house.shop)
    assert known[0] == 200


def test_the_task_is_as_it_was_after_all_that(house: House) -> None:
    seen = house.b.http.get(f"/api/handoffs/{house.task}", headers=house.shop).json()
    assert (seen["state"], seen["assigned_to"]) == ("offered", "maker")
    hooks = house.b.http.get(f"/api/handoffs/{house.task}/webhooks", headers=house.shop).json()["webhooks"]
    assert [hook["id"] for hook in hooks] == ["hook"]


#: What else can be asked for by its name, and what everybody is told of a name that is nobody's.
BY_NAME: dict[str, tuple[str, str]] = {
    "chain": ("GET", "/api/chains/{chain-of-acme}"),
    "snapshot": ("GET", "/api/chains/{chain-of-acme}/snapshots/1"),
    "agent": ("GET", "/api/agents/{maker}"),
    "card": ("GET", "/api/agents/{maker}/card"),
    "deregister": ("DELETE", "/api/agents/{maker}"),
    "heartbeat": ("POST", "/api/agents/{maker}/heartbeat"),
    "watch": ("GET", "/api/handoffs/watch?agent={maker}&timeout=0"),
    "face": ("POST", "/agents/{maker}"),
    "face tasks": ("GET", "/agents/{maker}/tasks"),
    "face card": ("GET", "/agents/{maker}/.well-known/agent-card.json"),
    "face card through the broker": ("GET", "/agents/{maker}/agent-card.json"),
    "face extended card": ("GET", "/agents/{maker}/extendedAgentCard"),
}


@pytest.mark.parametrize("thing", BY_NAME)
def test_what_another_tenant_has_is_like_what_nobody_has(house: House, thing: str) -> None:
    method, path = BY_NAME[thing]
    headers = bearer("spy", tenant="other", scope="handoff:admin")
    name = path[path.index("{") + 1 : path.index("}")]
    answers = [
        house.b.http.request(method, path.replace(f"{{{name}}}", asked), headers=headers)
        for asked in (name, "nobody-at-all")
    ]
    assert [answer.status_code for answer in answers] == [404, 404], answers[0].text
    assert answers[0].text.replace(name, "ID") == answers[1].text.replace("nobody-at-all", "ID")


def _tasks(b: Broker, headers: Any, **filters: Any) -> list[Any]:
    return _rpc(b, "ListTasks", filters, headers)["result"]["tasks"]


def _logged(h: House, who: Any) -> int:
    """How many of the first entries of the log are told; nobody waits for the first that is not there."""
    with h.b.http.stream("GET", "/api/events?after=0", headers=who, timeout=1.0) as answer:
        try:
            next(sse_data(answer.iter_lines()))
        except httpx.ReadTimeout:
            return 0
        return 1


def _called(h: House, who: Any) -> int:
    with h.b.http.stream("GET", "/api/events/agents", headers=who, timeout=5.0) as answer:
        for data in sse_data(answer.iter_lines()):
            event = json.loads(data)
            return event.get("total", 1)
    return 0


#: Every list there is, as the number of things in it.
LISTS: dict[str, Callable[[House, Any], int]] = {
    "ListTasks": lambda h, who: len(_tasks(h.b, who)),
    "ListTasks of a context": lambda h, who: len(_tasks(h.b, who, contextId=h.context)),
    "GET /tasks": lambda h, who: h.b.http.get("/tasks", headers=who).json()["totalSize"],
    "GET /api/handoffs": lambda h, who: h.b.http.get("/api/handoffs", headers=who).json()["total"],
    **{
        f"GET /api/handoffs?{query}": (
            lambda h, who, query=query: h.b.http.get(f"/api/handoffs?{query}", headers=who).json()["total"]
        )
        for query in ("sender=shop", "holder=maker", "agent=maker", "correlation_id=chain-of-acme", "include=result")
    },
    "pending": lambda h, who: h.b.http.get("/api/handoffs/pending?target=maker", headers=who).json()["total"],
    "agents": lambda h, who: h.b.http.get("/api/agents", headers=who).json()["total"],
    "broadcasts": lambda h, who: len(h.b.http.get("/api/broadcasts", headers=who).json()["broadcasts"]),
    "extended card": lambda h, who: len(
        h.b.http.get("/extendedAgentCard", headers=who).json()["capabilities"]["extensions"][0]["params"]["agents"]
    ),
    "log": _logged,
    "roll call": _called,
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_shows_nothing_of_another_tenant(house: House, name: str) -> None:
    look = LISTS[name]
    assert look(house, bearer("spy", tenant="elsewhere", scope="handoff:admin")) == 0
    assert look(house, bearer("boss", tenant="acme", scope="handoff:admin")) > 0


def test_a_cursor_of_another_tenant_leads_to_nothing(house: House) -> None:
    spy, boss = (
        bearer(name, tenant=t, scope="handoff:admin") for name, t in (("spy", "empty"), ("boss", "acme"))
    )
    token = _rpc(house.b, "ListTasks", {"pageSize": 1}, boss)["result"]["nextPageToken"]
    assert token
    assert _tasks(house.b, boss, pageToken=token)
    assert _tasks(house.b, spy, pageToken=token) == []
    cursor = house.b.http.get("/api/handoffs?limit=1", headers=boss).json()["next_cursor"]
    assert house.b.http.get(f"/api/handoffs?cursor={cursor}", headers=spy).json()["handoffs"] == []
    heard = house.b.http.get("/api/broadcasts", headers=boss).json()["next_cursor"]
    again = house.b.http.get(f"/api/broadcasts?after={heard}", headers=spy).json()
    assert (again["broadcasts"], again["resync"]) == ([], True)


def test_c023_the_same_keys_and_ids_in_two_tenants_are_two_things(house: House) -> None:
    key, body = {"Idempotency-Key": "same"}, {"task": "x", "target_agent": "maker"}
    made = [
        house.b.http.post("/api/handoffs", json=body, headers=bearer("twin", tenant=tenant) | key)
        for tenant in ("acme", "other", "acme")
    ]
    assert [answer.status_code for answer in made] == [201, 201, 200]
    assert made[0].json()["handoff_id"] == made[2].json()["handoff_id"]
    for tenant in ("acme", "other"):
        registered = house.b.http.post(
            "/api/agents", json={"agent_id": "twin"}, headers=bearer("twin", tenant=tenant)
        )
        assert registered.status_code == 201


def test_who_is_asked_is_never_of_another_tenant(house: House) -> None:
    headers = bearer("buyer", tenant="other")
    seen = _posted(house.b, "/api/resolve", {"task": "x", "target_agent": "maker"}, headers)
    assert "maker" not in json.dumps(seen[1].get("candidates", []))
    assert (
        house.b.http.post(
            "/api/handoffs", json={"task": "x", "target_agent": "maker"}, headers=headers
        ).json()["state"]
        != "offered"
    )


# --- a tenant that the request names -------------------------------------------------------------

_NAMED: dict[str, Callable[[Broker, str, Any], httpx.Response]] = {
    "jsonrpc": lambda b, t, h: b.http.post(
        "/", json={"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"tenant": t}}, headers=h | _V1
    ),
    "jsonrpc path": lambda b, t, h: b.http.post(
        f"/{t}/a2a", json={"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}, headers=h | _V1
    ),
    "http+json query": lambda b, t, h: b.http.get("/tasks", params={"tenant": t}, headers=h),
    "http+json path": lambda b, t, h: b.http.get(f"/{t}/tasks", headers=h),
    "rest path": lambda b, t, h: b.http.get(f"/{t}/api/handoffs", headers=h),
    "first generation path": lambda b, t, h: b.http.post(f"/{t}/tasks/get", json={"id": "order-7"}, headers=h),
    "face path": lambda b, t, h: b.http.get(f"/{t}/agents/maker/tasks", headers=h),
    "mcp path": lambda b, t, h: b.http.post(
        f"/{t}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        headers=h | {"Accept": "application/json, text/event-stream"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", _NAMED)
def test_a_request_that_names_another_tenant_than_the_token_is_refused(house: House, way: str) -> None:
    spy = bearer("spy", tenant="other", scope="handoff:admin")
    answer = _NAMED[way](house.b, "acme", spy)
    assert answer.status_code == 403, answer.text
    assert "secret" not in answer.text
    assert _NAMED[way](house.b, "acme", house.shop).status_code not in (401, 403)


def test_an_open_broker_believes_the_tenant_and_keeps_tenants_apart(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        for tenant in ("acme", "other"):
            assert b.http.post(f"/{tenant}/api/agents", json={"agent_id": "maker"}).status_code == 201
        task = b.rpc(
            "SendMessage", send_params(wait=False, context={"target_agent": "maker"}) | {"tenant": "acme"}
        )
        task_id = task["result"]["task"]["id"]
        assert b.rpc("GetTask", {"id": task_id, "tenant": "acme"})["result"]["id"] == task_id
        for elsewhere in ({}, {"tenant": "other"}):
            assert b.rpc("GetTask", {"id": task_id} | elsewhere)["error"]["code"] == -32001
            assert b.rpc("ListTasks", elsewhere)["result"]["tasks"] == []
        assert len(b.rpc("ListTasks", {"tenant": "acme"})["result"]["tasks"]) == 1
        assert b.http.get(f"/acme/tasks/{task_id}").status_code == 200
        assert b.http.get(f"/other/tasks/{task_id}").status_code == 404
        assert b.http.get("/acme/api/handoffs/pending?target=maker").json()["total"] == 1
        assert b.http.get("/other/api/handoffs/pending?target=maker").json()["total"] == 0
        face = b.http.get("/acme/agents/maker/.well-known/agent-card.json").json()
        assert face["url"] == f"{b.url}/acme/agents/maker/"
        card = b.http.get("/acme/.well-known/agent-card.json").json()
        assert {interface["tenant"] for interface in card["supportedInterfaces"]} == {"acme"}
        assert "tenant" not in b.http.get("/.well-known/agent-card.json").json()["supportedInterfaces"][0]
        assert b.http.get("/agents/maker/.well-known/agent-card.json").status_code == 404
        assert b.rpc("ListTasks", {"tenant": "a/b"})["error"]["code"] == -32602
        assert b.http.get("/nobody/nothing").status_code == 404
        assert b.http.get("/no%20tenant/.well-known/agent-card.json").status_code == 404
