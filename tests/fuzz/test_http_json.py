"""Bad HTTP+JSON: 1.0, 0.3 below ``/v1``, the first generation over plain HTTP, the faces; queries and paths."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_handoff.core.agents import Generation
from a2a_handoff.wire.requests import METHODS, Operation
from tests.fuzz.conftest import Watched, events_of, json_of
from tests.fuzz.mutations import TEXTS, Verbatim, mangled, spoilt
from tests.fuzz.test_jsonrpc import CONTEXT, MESSAGE, check_one, envelope, params_of

FUZZ = settings.get_profile("fuzz")
V1_0, V0_3, V0_1 = Generation.V1_0, Generation.V0_3, Generation.V0_1

PROTO = {
    "message": MESSAGE
    | {
        "content": [
            {"text": "hello", "metadata": {"a": 1}},
            {"data": {"data": {"n": 1}}},
            {"file": {"fileWithBytes": "AP/+", "mimeType": "text/plain", "name": "f"}},
        ],
        "parts": None,
    },
    "configuration": {
        "acceptedOutputModes": ["text/plain"], "historyLength": 3, "blocking": False,
        "pushNotification": {"url": "http://127.0.0.1:1/x", "authentication": {"schemes": ["Bearer"]}},
    },
    "metadata": {"handoff_context": CONTEXT},
}  # fmt: skip
OWN_NAMES = {
    "request": {
        "message_id": "m", "context_id": "c", "role": "ROLE_USER",
        "content": [{"file": {"file_with_uri": "https://x.test/y", "mime_type": "text/plain"}}, {"text": "x"}],
    },
    "configuration": {"history_length": 1, "accepted_output_modes": [], "push_notification": {"url": "x"}},
}  # fmt: skip
PUSH_03 = {
    "parent": "tasks/x",
    "config_id": "c",
    "config": {"name": "tasks/x", "push_notification_config": {"url": "http://127.0.0.1:1/x", "id": "c"}},
}


def ask(watched: Watched, method: str, path: str, body: bytes | None = None) -> httpx.Response:
    headers = {} if body is None else {"Content-Type": "application/json"}
    return watched.http.request(method, path, content=body, headers=headers)


def check(
    watched: Watched, method: str, path: str, body: bytes | None = None, *, envelope: bool = False
) -> None:
    """Send it; the answer is one of the binding, and a refusal has changed nothing."""
    before = watched.state()
    answer = ask(watched, method, path, body)
    assert answer.status_code < 500, answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        assert events_of(answer)
    elif envelope and answer.status_code == 200:
        if check_one(json_of(answer)):
            assert watched.state() == before
    else:
        found = json_of(answer)
        if answer.status_code >= 400:
            _check_error(answer.status_code, found)
            assert watched.state() == before
        else:
            assert "error" not in found
    watched.is_well()


def _check_error(status: int, body: Any) -> None:
    """An error of the binding (``google.rpc.Status``), of JSON-RPC, or problem details."""
    if "jsonrpc" in body:
        check_one(body)
        return
    if "status" in body:
        assert (body["status"], body["code"]) == (status, body["code"])
        assert body["detail"]
        return
    error = body["error"]
    assert error["message"]
    if "details" in error:
        assert (error["code"], error["details"][0]["reason"]) == (
            status,
            error["details"][0]["reason"].upper(),
        )
    else:
        assert error["data"]["reason"]


SENDS = {
    "1.0-send": ("/message:send", params_of(Operation.SEND, V1_0, "")),
    "1.0-stream": ("/message:stream", params_of(Operation.STREAM, V1_0, "")),
    "face-send": ("/agents/worker/message:send", params_of(Operation.SEND, V1_0, "")),
    "0.3-send": ("/v1/message:send", params_of(Operation.SEND, V0_3, "")),
    "0.3-proto": ("/v1/message:send", PROTO),
    "0.3-own-names": ("/v1/message:send", OWN_NAMES),
    "0.3-stream": ("/v1/message:stream", PROTO),
    "0.3-face": ("/agents/worker/v1/message:send", PROTO),
    "1.0-push": ("/tasks/{id}/pushNotificationConfigs", params_of(Operation.SET_PUSH, V1_0, "")),
    "0.3-push": ("/v1/tasks/{id}/pushNotificationConfigs", PUSH_03),
    "1.0-cancel": ("/tasks/{id}:cancel", {"metadata": {"a": 1}}),
    "0.3-cancel": ("/v1/tasks/{id}:cancel", {"metadata": {"a": 1}}),
    "1.0-subscribe": ("/tasks/{id}:subscribe", {"a": 1}),
    "0.3-subscribe": ("/v1/tasks/{id}:subscribe", {"a": 1}),
}


@pytest.mark.parametrize("name", SENDS)
def test_a_spoilt_body_is_answered_in_the_binding_or_does_its_work(watched: Watched, name: str) -> None:
    path, valid = SENDS[name]

    @settings(FUZZ)
    @given(st.one_of(spoilt(valid), mangled(json.dumps(valid).encode())))
    def attack(body: bytes) -> None:
        check(watched, "POST", path.replace("{id}", watched.task_id), body)

    attack()


FIRST = ("tasks/send", "tasks/sendSubscribe", "tasks/get", "tasks/cancel", "tasks/resubscribe")


@pytest.mark.parametrize("method", FIRST)
@pytest.mark.parametrize("bare", [True, False], ids=["bare", "envelope"])
def test_a_spoilt_call_of_the_first_generation_is_answered_in_kind(
    watched: Watched, method: str, bare: bool
) -> None:
    valid = params_of(METHODS[V0_1, method], V0_1, watched.alias)
    whole = valid if bare else envelope(V0_1, method, valid)

    @settings(FUZZ)
    @given(spoilt(whole))
    def attack(body: bytes) -> None:
        check(watched, "POST", f"/{method}", body, envelope=not bare)

    attack()


QUERIES = {
    "/tasks": params_of(Operation.LIST, V1_0, ""),
    "/v1/tasks": params_of(Operation.LIST, V0_3, ""),
    "/tasks/{id}": {"historyLength": 1, "tenant": "x", "A2A-Version": "1.0"},
    "/v1/tasks/{id}": {"historyLength": 1},
    "/tasks/{id}/pushNotificationConfigs": {"pageSize": 1, "pageToken": "x"},
    "/tasks/{id}/pushNotificationConfigs/p": {"tenant": "x"},
    "/v1/tasks/{id}/pushNotificationConfigs/p": {"x": "y"},
    "/extendedAgentCard": {"tenant": "x"},
    "/v1/card": {"x": "y"},
}

#: What a query parameter may be: any text, the reprs of other poison, and bytes that are no UTF-8.
values = st.one_of(
    st.sampled_from([t for t in TEXTS if not isinstance(t, Verbatim) and len(t) < 9_000]),
    st.sampled_from(
        ["NaN", "1e999", "-1", "0", "1.5", "9" * 30, "9" * 5_000, "[]", "{}", "TRUE", "+1", "0x1", " 1"]
    ),
    st.sampled_from(["WzFlOTk5LCJhIl0", "WzEsIv8iXQ", "WyJhIiwxXQ", "W1tb", "=", "a=b", "WzEuNSwiYSJd"]),
    st.text(max_size=20),
)


@pytest.mark.parametrize("path", QUERIES)
def test_a_spoilt_query_is_answered_in_the_binding(watched: Watched, path: str) -> None:
    valid = QUERIES[path]

    @settings(FUZZ)
    @given(
        st.dictionaries(st.sampled_from([*valid, "unknown", ""]), values, max_size=4),
        st.sampled_from(
            ["", "&&", "?", "&pageSize", "&pageSize=1&pageSize=x", "&%ff=%fe", "&a[]=1", "&" * 2_000]
        ),
    )
    def attack(query: dict[str, str], more: str) -> None:
        text = urlencode({**{k: str(v) for k, v in valid.items()}, **query}, errors="replace")
        check(watched, "GET", f"{path.replace('{id}', watched.task_id)}?{text}{more}")

    attack()


TEMPLATES = (
    "/tasks/{}", "/tasks/{}:cancel", "/tasks/{}:subscribe", "/tasks/{}/pushNotificationConfigs",
    "/tasks/{}/pushNotificationConfigs/{}", "/v1/tasks/{}", "/v1/tasks/{}:cancel", "/v1/{}", "/{}", "/message:{}",
    "/agents/{}/tasks/x", "/agents/{}/", "/agents/{}/.well-known/agent-card.json", "/agents/worker/{}",
    "/agents/worker/v1/tasks/{}", "/tasks/{}/{}", "/tasks{}",
)  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE"])
def test_any_path_under_any_method_is_answered(watched: Watched, method: str) -> None:
    names = st.one_of(
        st.sampled_from(
            ["%00", "%ff", "%ed%a0%80", "%2e%2e", "%2F", "%252F", ":", "::", "a:b", "%3Acancel", "x" * 3_000]
        ),
        st.text(min_size=1, max_size=8).map(lambda t: quote(t, safe="", errors="replace")),
    )

    @settings(FUZZ)
    @given(st.sampled_from(TEMPLATES), names)
    def attack(template: str, name: str) -> None:
        check(
            watched,
            method,
            template.replace("{}", name),
            b"{}" if method in ("POST", "PUT", "PATCH") else None,
        )

    attack()
