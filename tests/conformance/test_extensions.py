"""Extensions: ours is activated and echoed in every generation, those that an agent demands are demanded.

A2A 1.0 sections 3.3.4 and 4.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.agents import URI, Agent, card, completes
from tests.support.running import Broker, broker, handoff_context, running

DEMANDED = "https://example.com/ext/geo/v1"
OTHER = "https://example.com/ext/other/v1"


@dataclass(frozen=True)
class Way:
    """One way to send a message. ``header`` activates extensions, ``echo`` names what was activated."""

    path: str
    body: Callable[[str, list[str]], dict[str, Any]]
    version: str = ""
    echo: str = "a2a-extensions"
    jsonrpc: bool = True
    carries: bool = True

    def send(
        self, b: Broker, *, face: str = "", header: str = "", carried: list[str] | None = None
    ) -> httpx.Response:
        headers = {"A2A-Version": self.version} if self.version else {}
        if header:
            headers["X-A2A-Extensions" if self.echo.startswith("x-") else "A2A-Extensions"] = header
        body = self.body(b.app.clock.new_id(), carried or [])
        return b.http.post((f"/agents/{face}" if face else "") + self.path, json=body, headers=headers)


def rpc(method: str, params: Callable[[str, list[str]], dict[str, Any]]) -> Any:
    return lambda number, carried: {
        "jsonrpc": "2.0", "id": 1, "method": method, "params": params(number, carried),
    }  # fmt: skip


def v1(number: str, carried: list[str]) -> dict[str, Any]:
    return {
        "message": {
            "messageId": number, "role": "ROLE_USER", "parts": [{"text": "x"}], "extensions": carried,
        },
        "metadata": {"handoff_context": handoff_context(requirements={"skill": "work"})},
    }  # fmt: skip


def v03(number: str, carried: list[str]) -> dict[str, Any]:
    parts = [{"kind": "text", "text": "x"}]
    message = {"kind": "message", "messageId": number, "role": "user", "parts": parts, "extensions": carried}
    return {"message": message, "metadata": v1(number, carried)["metadata"]}


def v03_http(number: str, carried: list[str]) -> dict[str, Any]:
    message = {"messageId": number, "role": "ROLE_USER", "content": [{"text": "x"}], "extensions": carried}
    return {"message": message, "metadata": v1(number, carried)["metadata"]}


def v01(number: str, carried: list[str]) -> dict[str, Any]:
    message = {"role": "user", "parts": [{"type": "text", "text": "x"}]}
    return {"id": number, "message": message, "metadata": v1(number, carried)["metadata"]}


WAYS = {
    "jsonrpc-1.0": Way("/", rpc("SendMessage", v1), version="1.0"),
    "jsonrpc-0.3": Way("/", rpc("message/send", v03), echo="x-a2a-extensions"),
    "jsonrpc-0.1": Way("/", rpc("tasks/send", v01), carries=False),
    "http-1.0": Way("/message:send", v1, version="1.0", jsonrpc=False),
    "http-0.3": Way("/v1/message:send", v03_http, echo="x-a2a-extensions", jsonrpc=False),
    "http-0.1": Way("/tasks/send", v01, jsonrpc=False, carries=False),
}


@pytest.fixture(scope="module")
def staffed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Agent]]:
    """A broker with one agent, which demands an extension."""
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path_factory.mktemp("demand")) as b:
        demands = card(url)
        demands["capabilities"]["extensions"].append({"uri": DEMANDED, "required": True})
        b.register("geo", card=demands)
        yield b, agent


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def code_of(answer: httpx.Response) -> Any:
    body = answer.json()
    return body["error"].get("code") if "error" in body else body.get("code")


def test_our_extension_is_activated_by_the_header_and_echoed(staffed: tuple[Broker, Agent], way: Way) -> None:
    b, _ = staffed
    answer = way.send(b, header=f"{OTHER}, {URI}")
    assert answer.status_code == 200, answer.text
    assert answer.headers[way.echo] == URI
    assert way.echo not in way.send(b, header=OTHER).headers
    assert way.echo not in way.send(b).headers


def test_our_own_extension_is_demanded_of_nobody(staffed: tuple[Broker, Agent]) -> None:
    b, _ = staffed
    for path in ("/.well-known/agent-card.json", "/agents/geo/agent-card.json"):
        extensions = b.http.get(path).json()["capabilities"]["extensions"]
        assert [(each["uri"], each["required"]) for each in extensions] == [(URI, False)]


def test_the_face_of_an_agent_that_demands_an_extension_demands_it(
    staffed: tuple[Broker, Agent], way: Way
) -> None:
    b, agent = staffed
    seen = len(agent.calls)
    answer = way.send(b, face="geo", header=OTHER)
    old = way is WAYS["jsonrpc-0.1"] or way is WAYS["http-0.1"]
    assert answer.status_code == (200 if way.jsonrpc else 400), answer.text
    if way.jsonrpc:
        assert code_of(answer) == (-32004 if old else -32008)
    if way is WAYS["http-1.0"]:
        error = answer.json()["error"]
        assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
        assert "EXTENSION_SUPPORT_REQUIRED" in answer.text
    assert DEMANDED in answer.text
    assert len(agent.calls) == seen


def test_who_activates_it_is_let_through_and_the_agent_is_told(
    staffed: tuple[Broker, Agent], way: Way
) -> None:
    b, agent = staffed
    seen = len(agent.calls)
    assert way.send(b, face="geo", header=DEMANDED).status_code == 200
    (call,) = agent.calls[seen:]
    assert DEMANDED in call.headers["a2a-extensions"].split(", ")


def test_a_message_that_carries_it_activates_it(staffed: tuple[Broker, Agent], way: Way) -> None:
    if not way.carries:
        return  # messages of the first generation name no extensions
    b, agent = staffed
    seen = len(agent.calls)
    assert way.send(b, face="geo", carried=[DEMANDED]).status_code == 200
    (call,) = agent.calls[seen:]
    assert DEMANDED in call.headers["a2a-extensions"].split(", ")


def test_routing_passes_over_an_agent_whose_extension_the_sender_does_not_speak(
    staffed: tuple[Broker, Agent], way: Way
) -> None:
    b, agent = staffed
    seen = len(agent.calls)
    assert way.send(b, header=OTHER).status_code == 200
    assert len(agent.calls) == seen
    assert way.send(b, header=DEMANDED).status_code == 200
    assert len(agent.calls) == seen + 1


@pytest.mark.parametrize("asked", [{"requirements": {"skill": "work"}}, {"target_agent": "geo"}], ids=str)
def test_the_explanation_names_the_extension(staffed: tuple[Broker, Agent], asked: dict[str, Any]) -> None:
    b, _ = staffed
    answer = b.http.post("/api/resolve", json={"source_agent": "x", "task": "t", **asked}).json()
    assert answer["candidates"] == []
    (passed,) = answer["passed_over"]
    assert passed["reason"] == f"demands the extension {DEMANDED}, which the sender does not speak"
    message = {"role": "ROLE_USER", "parts": [{"text": "t"}], "extensions": [DEMANDED]}
    answer = b.http.post("/api/resolve", json={"source_agent": "x", "message": message, **asked}).json()
    assert [each["agent_id"] for each in answer["candidates"]] == ["geo"]
