"""Bad input on the native REST surface, and the surface against its own OpenAPI document."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.conftest import Watched, clean, json_of
from tests.fuzz.mutations import mangled, spoilt
from tests.fuzz.test_http_json import values
from tests.fuzz.test_jsonrpc import CONTEXT, MESSAGE
from tests.support.agents import card

FUZZ = settings.get_profile("fuzz")

ARTIFACT = {
    "artifactId": "a",
    "name": "n",
    "description": "d",
    "parts": [{"text": "x"}],
    "metadata": {"a": 1},
}
HANDOFF = CONTEXT | {
    "task": "hello", "message": MESSAGE, "type": "work", "tasks": ["a", {"b": 1}], "agent_type": "worker",
    "workspace": "default", "message_id": "", "context_id": "c-1",
}  # fmt: skip
AGENT = {
    "agent_id": "guest", "platform": "cursor", "workspace": "elsewhere", "instance_id": "i", "session_number": 1,
    "capabilities": {"canGuess": True, "domains": ["x"]}, "role": "agent", "max_concurrency": 2, "lease_s": 60,
    "token_budget": 500, "broadcasts": True, "metadata": {"a": 1},
    "card": card("http://127.0.0.1:9/", canGuess=True),
}  # fmt: skip
ACTION = {
    "agent_id": "worker", "attempt": 1, "instance_id": "", "reason": "r", "result": {"a": 1},
    "artifacts": [ARTIFACT], "message": MESSAGE | {"role": "ROLE_AGENT"}, "state": "working",
    "receipt": {"user_intent": "x", "key_facts": {"a": 1}},
}  # fmt: skip
SOURCES = {
    "first": {"targetAgent": "worker", "task": "t", "context": {"a": 1}, "priority": "high"},
    "second": {
        "fromAgent": "x", "toAgentType": "code", "toAgentId": "worker", "type": "t", "summary": "s",
        "tasks": ["a"], "workspace": "default",
    },
}  # fmt: skip
BROADCAST = {
    "channel": "general",
    "message": "m",
    "data": {"a": 1},
    "source_agent": "worker",
    "workspace": "w",
}

BODIES: dict[str, tuple[str, Any]] = {
    "handoff": ("/api/handoffs", HANDOFF),
    "first source": ("/api/handoffs", SOURCES["first"]),
    "second source": ("/ai-api/infrastructure/handoffs", SOURCES["second"]),
    "whole context": ("/api/handoffs", {"task": "t", "target_agent": "worker", "context": CONTEXT}),
    "resolve": ("/api/resolve", HANDOFF),
    "agent": ("/api/agents", AGENT),
    "heartbeat": ("/api/agents/worker/heartbeat", {"status": "online", "in_flight": 0}),
    "broadcast": ("/api/broadcasts", BROADCAST),
} | {
    verb: (f"/api/handoffs/{{id}}/{verb}", ACTION)
    for verb in ("accept", "decline", "progress", "complete", "fail", "release", "cancel")
}


def check(
    watched: Watched, method: str, path: str, body: bytes | None = None, **headers: bytes
) -> httpx.Response:
    """Send it; a refusal is problem details and has changed nothing."""
    before = watched.state()
    stated: dict[str, bytes] = {} if body is None else {"Content-Type": b"application/json"}
    raw = [(name.encode(), value) for name, value in (stated | headers).items()]
    answer = watched.http.request(method, path, content=body, headers=raw)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        problem = json_of(answer)
        assert answer.headers["content-type"] == "application/problem+json"
        assert (problem["status"], problem["type"]) == (
            answer.status_code,
            f"urn:a2a-handoff:error:{problem['code']}",
        )
        assert problem["detail"]
        assert all(fault["description"] for fault in problem.get("errors", []))
        assert watched.state() == before
    elif answer.content:
        json_of(answer)
    watched.is_well()
    return answer


@pytest.mark.parametrize("name", BODIES)
def test_a_spoilt_body_is_a_problem_at_its_place_or_does_its_work(watched: Watched, name: str) -> None:
    path, valid = BODIES[name]

    @settings(FUZZ)
    @given(st.one_of(spoilt(valid), spoilt(valid, most=1), mangled(json.dumps(valid).encode())))
    def attack(body: bytes) -> None:
        answer = check(watched, "POST", path.replace("{id}", watched.task_id), body)
        if name == "agent" and answer.is_success:
            watched.http.delete(f"/api/agents/{answer.json()['agent_id']}")

    attack()


QUERIES: dict[str, dict[str, str]] = {
    "/api/handoffs": {
        "state": "completed", "agent": "a", "sender": "s", "holder": "h", "correlation_id": "c",
        "context_id": "x", "include": "result", "cursor": "WzEsImEiXQ", "limit": "2",
    },
    "/api/handoffs/pending": {"target": "worker"},
    "/api/handoffs/{id}/events": {"after": "1", "limit": "1"},
    "/api/agents": {
        "capability": "canWork", "skill": "work", "domain": "web", "tag": "x", "role": "agent",
        "workspace": "default", "platform": "", "status": "online",
    },
    "/api/broadcasts": {"after": "", "agent": "worker", "workspace": "default"},
    "/api/chains/{id}": {"x": "y"},
    "/api/chains/{id}/snapshots/1": {"x": "y"},
}  # fmt: skip


@pytest.mark.parametrize("path", QUERIES)
def test_a_spoilt_query_is_a_problem_at_its_place(watched: Watched, path: str) -> None:
    valid = QUERIES[path]

    @settings(FUZZ)
    @given(st.dictionaries(st.sampled_from([*valid, "unknown"]), values, max_size=4))
    def attack(query: dict[str, str]) -> None:
        asked = httpx.QueryParams({**valid, **{k: v.encode(errors="replace") for k, v in query.items()}})
        check(watched, "GET", f"{path.replace('{id}', watched.task_id)}?{asked}")

    attack()


@pytest.mark.parametrize(
    "header",
    ["Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "traceparent", "tracestate", "baggage"],
)
def test_odd_headers_are_refused_or_mean_nothing(watched: Watched, header: str) -> None:
    for value in (
        "",
        ",",
        '"',
        "*",
        '"1"',
        '""',
        "W/",
        "a\tb",
        "\xe9",
        "x" * 300,
        "-1",
        "9" * 40,
        "00-0-0-0",
        "=;,",
    ):
        for method, path, body in (
            ("POST", "/api/handoffs", b'{"task":"t","target_agent":"worker"}'),
            ("POST", f"/api/handoffs/{watched.task_id}/cancel", b"{}"),
            ("GET", f"/api/handoffs/{watched.task_id}", None),
        ):
            check(watched, method, path, body, **{header: value.encode("latin-1")})


# --- faults that were there ----------------------------------------------------------------------


def faults(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code in (400, 422), answer.text
    return {fault["field"]: fault["description"] for fault in answer.json()["errors"]}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "message.parts"),
        ({"parts": []}, "message.parts"),
        ({"parts": [5]}, "message.parts[0]"),
        ({"parts": [{"text": {}}]}, "message.parts[0].text"),
        ({"parts": [{"text": "x"}], "extensions": 5}, "message.extensions"),
        ({"parts": [{"text": "x"}], "metadata": 5}, "message.metadata"),
        ({"parts": [{"text": "x"}], "role": 7}, "message.role"),
        ({"parts": [{"text": "x"}], "messageId": "a\nb"}, "message.messageId"),
        ({"parts": [{"text": "x"}], "messageId": 5}, "message.messageId"),
        (5, "message"),
        ([], "message"),
        ({"parts": [{"text": "x"}] * 1_001}, "message.parts"),
    ],
)
def test_a_message_that_is_none_is_refused_where_it_is_wrong(
    watched: Watched, message: Any, field: str
) -> None:
    body = {"task": "t", "target_agent": "worker", "message": message}
    answer = check(watched, "POST", "/api/handoffs", json.dumps(body).encode())
    assert field in faults(answer)


def test_a_message_without_id_and_role_gets_both_and_stays_as_it_is(watched: Watched) -> None:
    body = b'{"target_agent":"worker","task":"t","message":{"parts":[{"data":{"n":1.10}}]}}'
    made = watched.http.post("/api/handoffs", content=body).json()
    watched.broker.until(made["handoff_id"], "completed", "failed", "returned")
    log = watched.http.get(f"/api/handoffs/{made['handoff_id']}/events").content
    assert b'{"data":{"n":1.10}}' in log


@pytest.mark.parametrize(
    "artifact", [None, [], {}, {"artifactId": "a"}, {"artifactId": 5, "parts": [{"text": "x"}]}]
)
def test_an_artifact_that_is_none_is_refused_where_it_is_wrong(watched: Watched, artifact: Any) -> None:
    path = f"/api/handoffs/{watched.task_id}/complete"
    body = json.dumps({"artifacts": [ARTIFACT, artifact]}).encode()
    assert all(field.startswith("artifacts[1]") for field in faults(check(watched, "POST", path, body)))


HUGE = "1" + "0" * 30


@pytest.mark.parametrize("field", ["session_number", "max_concurrency", "token_budget", "lease_s"])
@pytest.mark.parametrize("value", [HUGE, "true", '"5"', "1.5", "-1", "[]"])
def test_a_number_of_an_agent_that_no_store_can_hold_is_refused(
    watched: Watched, field: str, value: str
) -> None:
    if (field, value) == ("lease_s", "1.5"):
        return
    answer = check(watched, "POST", "/api/agents", f'{{"agent_id":"g","{field}":{value}}}'.encode())
    assert list(faults(answer)) == [field]


@pytest.mark.parametrize("value", [HUGE, "true", '"5"', "1.5", "-1", "[]"])
def test_a_number_of_a_heartbeat_or_an_action_is_a_number(watched: Watched, value: str) -> None:
    beat = check(watched, "POST", "/api/agents/worker/heartbeat", f'{{"in_flight":{value}}}'.encode())
    assert list(faults(beat)) == ["in_flight"]
    path = f"/api/handoffs/{watched.task_id}/accept"
    assert list(faults(check(watched, "POST", path, f'{{"attempt":{value}}}'.encode()))) == ["attempt"]
    whole = watched.http.post("/api/agents/worker/heartbeat", content=b'{"in_flight":0.0}')
    assert whole.json()["in_flight"] == 0


@pytest.mark.parametrize("path", ["/api/handoffs?limit=0", "/api/handoffs/{id}/events?limit=0"])
def test_a_page_of_nothing_is_refused(watched: Watched, path: str) -> None:
    assert "limit" in faults(check(watched, "GET", path.replace("{id}", watched.task_id)))


def test_a_receipt_for_a_handoff_of_nobody_is_refused_as_any_other(watched: Watched) -> None:
    answer = check(watched, "POST", "/api/handoffs/nobody/accept", b'{"receipt":{}}')
    assert answer.json()["code"] == "task_not_found"


def test_a_receipt_is_at_most_256_kb(watched: Watched) -> None:
    body = b'{"receipt":{"key_facts":[%b1]}}' % (b"1e308," * 50_000)
    assert "receipt" in faults(check(watched, "POST", f"/api/handoffs/{watched.task_id}/accept", body))


@pytest.mark.parametrize("path", ["/api/handoffs", "/message:send", "/"])
def test_an_idempotency_key_is_an_id(watched: Watched, path: str) -> None:
    body = {"task": "t", "target_agent": "worker", "message": MESSAGE}
    if path == "/":
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body}
    before = watched.state()
    headers = {"Idempotency-Key": "k" * 5_000, "A2A-Version": "1.0"}
    answer = watched.http.post(path, json=body, headers=headers)
    assert "Idempotency-Key is longer than 256 characters" in clean(answer.text)
    assert watched.state() == before


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", "GET, HEAD, POST"),
        ("/tasks", "GET"),
        ("/message:send", "POST"),
        ("/v1/message:stream", "POST"),
        ("/tasks/x", "GET"),
        ("/tasks/x:cancel", "POST"),
        ("/tasks/x:subscribe", "GET, POST"),
        ("/tasks/x/pushNotificationConfigs/y", "DELETE, GET"),
        ("/api/agents", "GET, HEAD, POST"),
        ("/api/agents/worker", "DELETE, GET, HEAD"),
        ("/api/handoffs/x/accept", "POST"),
        ("/api/chains/a/b/snapshots/1", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_has_not_is_refused_with_those_that_it_has(
    watched: Watched, path: str, allowed: str
) -> None:
    answer = watched.http.put(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    clean(answer.text)


def test_a_task_id_is_decoded_once_and_may_have_a_colon(watched: Watched) -> None:
    for name, meant in (
        ("a%2525b", "a%25b"),
        ("a:b", "a:b"),
        ("%3Acancel", ":cancel"),
        ("a:b:nothing", "a:b:nothing"),
    ):
        answer = watched.http.get(f"/tasks/{name}")
        assert answer.status_code == 404
        assert repr(meant) in answer.json()["error"]["message"]
