"""Every surface asks who calls, in its own words; what everybody may read, it does not ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bearers import SECRET, bearer
from tests.support.running import Broker, broker, send_params

_V1 = {"A2A-Version": "1.0"}


def _rpc(method: str, params: Any) -> dict[str, Any]:
    return {"json": {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}}


_OLD = {"id": "t-1", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
_MCP = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {},
}  # fmt: skip

#: One request for each surface: method, path, what else.
DOORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "jsonrpc 1.0": ("POST", "/", {**_rpc("GetTask", {"id": "x"}), "headers": _V1}),
    "jsonrpc 1.0 stream": ("POST", "/", {**_rpc("SendStreamingMessage", send_params()), "headers": _V1}),
    "jsonrpc 0.3": ("POST", "/", _rpc("tasks/get", {"id": "x"})),
    "jsonrpc 0.1": ("POST", "/", _rpc("tasks/send", _OLD)),
    "http+json 1.0": ("GET", "/tasks", {}),
    "http+json 1.0 send": ("POST", "/message:send", {"json": send_params()}),
    "http+json 1.0 stream": ("POST", "/message:stream", {"json": send_params()}),
    "http+json 0.3": ("GET", "/v1/tasks/x", {}),
    "first generation": ("POST", "/tasks/send", {"json": _OLD}),
    "extended card 1.0": ("GET", "/extendedAgentCard", {}),
    "extended card 0.3": ("GET", "/v1/card", {}),
    "rest": ("GET", "/api/handoffs", {}),
    "rest agents": ("GET", "/api/agents", {}),
    "rest older": ("GET", "/ai-api/infrastructure/handoffs/pending?target=x", {}),
    "long poll": ("GET", "/api/handoffs/watch?agent=x&timeout=0", {}),
    "sse": ("GET", "/api/events", {}),
    "sse agents": ("GET", "/api/events/agents", {}),
    "mcp": ("POST", "/mcp", {"json": _MCP}),
    "face": ("POST", "/agents/editor", {**_rpc("GetTask", {"id": "x"}), "headers": _V1}),
    "face rest": ("GET", "/agents/editor/tasks", {}),
    "face card": ("GET", "/agents/editor/.well-known/agent-card.json", {}),
    "metrics": ("GET", "/metrics", {}),
}


@pytest.mark.parametrize("door", DOORS)
def test_who_does_not_say_who_it_is_is_asked_to(closed: Broker, door: str) -> None:
    method, path, more = DOORS[door]
    answer = closed.http.request(method, path, **more)
    assert answer.status_code == 401, answer.text
    assert answer.headers["www-authenticate"] == "Bearer"
    assert _code(answer) == "UNAUTHENTICATED"


@pytest.mark.parametrize("door", DOORS)
def test_a_bad_token_is_told_to_be_one(closed: Broker, door: str) -> None:
    method, path, more = DOORS[door]
    headers = more.get("headers", {}) | bearer("editor", lasts_s=-3_600)
    answer = closed.http.request(method, path, **more | {"headers": headers})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert "expired" in answer.text


def _code(answer: httpx.Response) -> str:
    """The error's name, in whichever shape the surface has it."""
    body = answer.json()
    if "error" not in body:
        return body["code"].upper()
    error = body["error"]
    details = error.get("data") or error.get("details")
    return details["reason"] if isinstance(details, dict) else details[0]["reason"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/asyncapi.json",
    ],
)
def test_what_everybody_may_read_needs_no_token(closed: Broker, path: str) -> None:
    assert closed.http.get(path).status_code == 200


def test_the_id_of_an_unauthenticated_call_comes_back(closed: Broker) -> None:
    answer = closed.http.post("/", **_rpc("GetTask", {"id": "x"}), headers=_V1).json()
    assert (answer["id"], answer["error"]["code"]) == (7, -32058)


# --- scopes --------------------------------------------------------------------------------------

_HANDOFF = {"task": "do it", "target_agent": "nobody"}
_SEND, _WORK = "handoff:send", "handoff:work"

#: What is done, and the scope that allows it.
DEEDS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "send 1.0": ("POST", "/", {**_rpc("SendMessage", send_params()), "headers": _V1}, _SEND),
    "stream 1.0": ("POST", "/", {**_rpc("SendStreamingMessage", send_params()), "headers": _V1}, _SEND),
    "send http+json": ("POST", "/message:send", {"json": send_params()}, _SEND),
    "send 0.1": ("POST", "/tasks/send", {"json": _OLD}, _SEND),
    "cancel": ("POST", "/", {**_rpc("CancelTask", {"id": "x"}), "headers": _V1}, _SEND),
    "webhook": (
        "POST", "/", {**_rpc("CreateTaskPushNotificationConfig", {"taskId": "x", "url": "http://127.0.0.1:9/"}), "headers": _V1}, _SEND,
    ),
    "create": ("POST", "/api/handoffs", {"json": _HANDOFF}, _SEND),
    "register": ("POST", "/api/agents", {"json": {"agent_id": "editor"}}, _WORK),
    "heartbeat": ("POST", "/api/agents/editor/heartbeat", {}, _WORK),
    "deregister": ("DELETE", "/api/agents/editor", {}, _WORK),
    "watch": ("GET", "/api/handoffs/watch?agent=editor&timeout=0", {}, _WORK),
    "pending": ("GET", "/api/handoffs/pending?target=editor", {}, _WORK),
    "accept": ("POST", "/api/handoffs/x/accept", {}, _WORK),
    "complete": ("POST", "/api/handoffs/x/complete", {"json": {"result": 1}}, _WORK),
    "broadcast": ("POST", "/api/broadcasts", {"json": {"channel": "a", "message": "b"}}, _WORK),
    "metrics": ("GET", "/metrics", {}, "handoff:metrics"),
}  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS)
def test_what_a_token_does_not_allow_is_refused_and_named(closed: Broker, deed: str) -> None:
    method, path, more, scope = DEEDS[deed]
    others = " ".join({_SEND, _WORK, "openid"} - {scope})
    headers = more.get("headers", {}) | bearer("editor", scope=others)
    answer = closed.http.request(method, path, **more | {"headers": headers})
    assert answer.status_code == 403, answer.text
    assert answer.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
    assert scope in answer.text


@pytest.mark.parametrize("deed", DEEDS)
def test_an_admin_may_do_everything(closed: Broker, deed: str) -> None:
    method, path, more, _ = DEEDS[deed]
    headers = more.get("headers", {}) | bearer("boss", scope="handoff:admin")
    assert closed.http.request(method, path, **more | {"headers": headers}).status_code not in (401, 403)


def test_metrics_may_be_left_open(tmp_path: Any) -> None:
    with broker(tmp_path, auth_secret=SECRET, auth_metrics=False) as b:
        assert b.http.get("/metrics").status_code == 200


# --- who it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "send",
    [
        lambda b, h: b.http.post("/api/handoffs", json=_HANDOFF | {"source_agent": "shop"}, headers=h),
        lambda b, h: b.http.post("/api/handoffs", json={"fromAgent": "shop", "toAgentId": "x", "summary": "s"}, headers=h),
        lambda b, h: b.http.post("/", **_rpc("SendMessage", send_params(context={"source_agent": "shop"})), headers=h | _V1),
        lambda b, h: b.http.post("/message:send", json=send_params(context={"source_agent": "shop"}), headers=h),
        lambda b, h: b.http.post("/tasks/send", json=_OLD | {"metadata": {"handoff_context": {"source_agent": "shop", "conversation_summary": "s", "user_intent": "i", "key_facts": {}}}}, headers=h),
    ],
    ids=["rest", "rest older", "jsonrpc", "http+json", "first generation"],
)  # fmt: skip
def test_c069_nobody_sends_in_the_name_of_another(closed: Broker, send: Any) -> None:
    answer = send(closed, bearer("editor"))
    assert answer.status_code == 403, answer.text
    assert "source_agent" in answer.text


def test_what_an_agent_sends_is_its_own_without_a_word(closed: Broker) -> None:
    made = closed.http.post(
        "/api/handoffs", json=_HANDOFF, headers=bearer("editor") | {"X-A2A-Identity": "admin"}
    )
    assert made.status_code == 201
    read = closed.http.get(f"/api/handoffs/{made.json()['handoff_id']}", headers=bearer("editor")).json()
    assert read["source_agent"] == "editor"


def test_c068_c069_nobody_acts_as_another(closed: Broker) -> None:
    http = closed.http
    assert (
        http.post("/api/agents", json={"agent_id": "painter"}, headers=bearer("painter")).status_code == 201
    )
    body = {"task": "paint", "target_agent": "painter"}
    made = http.post("/api/handoffs", json=body, headers=bearer("shop")).json()["handoff_id"]
    thief = bearer("thief")
    assert http.post("/api/agents", json={"agent_id": "painter"}, headers=thief).status_code == 403
    assert http.delete("/api/agents/painter", headers=thief).status_code == 403
    assert http.get("/api/handoffs/watch?agent=painter&timeout=0", headers=thief).status_code == 404
    stolen = {"agent_id": "painter"}
    assert http.post(f"/api/handoffs/{made}/accept", json=stolen, headers=thief).status_code == 403
    assert http.post(f"/api/handoffs/{made}/accept", headers=thief).status_code == 404
    seen = http.get("/api/handoffs/pending?target=painter", headers=bearer("painter")).json()
    assert [each["handoff_id"] for each in seen["handoffs"]] == [made]
    assert http.post(f"/api/handoffs/{made}/accept", headers=bearer("painter")).status_code == 200
    boss = bearer("boss", scope="handoff:admin")
    done = http.post(
        f"/api/handoffs/{made}/complete", json={"agent_id": "painter", "result": "ok"}, headers=boss
    )
    assert done.json()["state"] == "completed"


def test_an_open_broker_looks_at_no_token(tmp_path: Any) -> None:
    with broker(tmp_path) as b:
        answer = b.http.get("/api/agents", headers={"Authorization": "Bearer nonsense"})
        assert answer.status_code == 200
        card = b.http.get("/.well-known/agent-card.json").json()
        assert "securitySchemes" not in card
        assert not card["capabilities"].get("extendedAgentCard")
        assert b.rpc("GetExtendedAgentCard", {})["error"]["code"] == -32004
        old = b.rpc("agent/getAuthenticatedExtendedCard", {}, version="")
        assert old["error"]["code"] == -32007


# --- cards ---------------------------------------------------------------------------------------


def test_the_public_card_says_how_to_get_in_and_names_no_agent(closed: Broker) -> None:
    card = {
        "skills": [{"id": "sew", "name": "Sew", "tags": ["cloth"]}],
        "name": "tailor",
        "url": "http://127.0.0.1:9",
    }
    body = {"agent_id": "tailor", "card": card}
    assert closed.http.post("/api/agents", json=body, headers=bearer("tailor")).status_code == 201
    shown = closed.http.get("/.well-known/agent-card.json").json()
    assert shown["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "Bearer"
    assert shown["securityRequirements"] == [{"schemes": {"bearer": {"list": []}}}]
    assert shown["capabilities"]["extendedAgentCard"] is True
    assert shown["authentication"] == {"schemes": ["Bearer"]}
    assert [skill["id"] for skill in shown["skills"]] == ["handoff"]
    assert "tailor" not in json.dumps(shown)


@pytest.mark.parametrize("way", ["jsonrpc 1.0", "jsonrpc 0.3", "http+json 1.0", "http+json 0.3"])
def test_the_extended_card_has_who_is_there_for_the_caller(closed: Broker, way: str) -> None:
    for name, tenant in (("weaver", "default"), ("miller", "acme")):
        headers = bearer(name, tenant=tenant)
        assert closed.http.post("/api/agents", json={"agent_id": name}, headers=headers).status_code in (
            200,
            201,
        )
    headers = bearer("guest", tenant="acme")
    match way:
        case "jsonrpc 1.0":
            answer = closed.http.post("/", **_rpc("GetExtendedAgentCard", {}), headers=headers | _V1)
            card = answer.json()["result"]
        case "jsonrpc 0.3":
            answer = closed.http.post("/", **_rpc("agent/getAuthenticatedExtendedCard", {}), headers=headers)
            card = answer.json()["result"]
        case "http+json 1.0":
            card = closed.http.get("/extendedAgentCard", headers=headers).json()
        case _:
            card = closed.http.get("/v1/card", headers=headers).json()
    params = card["capabilities"]["extensions"][0]["params"]
    assert [agent["agentId"] for agent in params["agents"]] == ["miller"]
    assert params["agents"][0]["url"] == f"{closed.url}/agents/miller"
    assert {interface["tenant"] for interface in card["supportedInterfaces"]} == {"acme"}


def test_the_tenant_of_the_extended_card_can_be_said_again(closed: Broker) -> None:
    headers = bearer("guest", tenant="acme")
    params = send_params() | {"tenant": "acme"}
    answer = closed.http.post("/", **_rpc("SendMessage", params), headers=headers | _V1).json()
    assert "result" in answer, answer


def test_a_registration_without_an_id_is_that_of_the_token(closed: Broker) -> None:
    made = closed.http.post("/api/agents", json={"platform": "cursor"}, headers=bearer("carver"))
    assert (made.status_code, made.json()["agent_id"]) == (201, "carver")


def test_c066_what_was_made_without_a_name_is_not_open_to_all(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        nameless = b.send(wait=False, context={"source_agent": "", "target_agent": "editor"})["id"]
        named = b.http.post("/api/handoffs", json=_HANDOFF | {"source_agent": "shop"}).json()["handoff_id"]
    with broker(tmp_path, auth_secret=SECRET) as b:
        seen = {
            (name, tenant): [
                b.http.get(
                    f"/api/handoffs/{each}", headers=bearer(name, tenant=tenant, scope=scope)
                ).status_code
                for each in (nameless, named)
            ]
            for name, tenant, scope in (
                ("shop", "default", None),
                ("spy", "default", None),
                ("shop", "other", "handoff:admin"),
                ("boss", "default", "handoff:admin"),
            )
        }
        assert seen == {
            ("shop", "default"): [404, 200],
            ("spy", "default"): [404, 404],
            ("shop", "other"): [404, 404],
            ("boss", "default"): [200, 200],
        }
        for tenant in (None, "", " ", "a/b"):
            headers = bearer("boss", tenant=tenant, scope="handoff:admin")
            assert b.http.get("/api/handoffs", headers=headers).status_code == 401


def test_the_description_of_the_native_surface_says_that_it_asks(closed: Broker) -> None:
    told = closed.http.get("/openapi.json").json()
    assert told["security"] == [{"bearer": []}]
    assert told["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert {"401", "403"} <= told["paths"]["/api/handoffs"]["post"]["responses"].keys()
