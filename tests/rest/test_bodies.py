"""What stands in the bodies of the native surface is A2A, or is refused; what means nothing is told."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx
import pytest

from tests.support.agents import Agent, card, completes
from tests.support.running import Broker, broker, running

_CAN = {"requirements": {"capabilities": ["canWork"]}}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Broker, Agent]]:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path_factory.mktemp("bodies")) as b:
        b.register("worker", card=card(url, capabilities={"canWork": True}))
        b.register("editor")
        yield b, agent


def _fields(answer: httpx.Response) -> list[str]:
    return [fault["field"] for fault in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"foo": 1}, "message.parts"),
        ({"parts": []}, "message.parts"),
        ({"parts": [{"text": "t", "url": "u"}]}, "message.parts[0]"),
        ({"role": "user", "parts": [{"text": "t"}]}, "message.role"),
    ],
)
def test_a_message_that_is_none_is_refused_with_its_place(
    house: tuple[Broker, Agent], message: Any, field: str
) -> None:
    b, agent = house
    before = len(agent.calls)
    answer = b.http.post("/api/handoffs", json={"message": message, "task": "do it"} | _CAN)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_params")
    assert field in _fields(answer)
    assert len(agent.calls) == before


def test_a_message_of_parts_alone_gets_an_id_and_a_role(house: tuple[Broker, Agent]) -> None:
    b, agent = house
    made = b.http.post("/api/handoffs", json={"message": {"parts": [{"text": "bare"}]}} | _CAN).json()
    b.until(made["handoff_id"], "completed")
    sent = agent.calls[-1].message
    assert (sent["role"], sent["parts"]) == ("ROLE_USER", [{"text": "bare"}])
    assert sent["messageId"]


def test_the_id_of_the_message_makes_the_request_idempotent(house: tuple[Broker, Agent]) -> None:
    b, _ = house
    message = {"messageId": "once", "role": "ROLE_USER", "parts": [{"text": "once"}]}
    first, second = (b.http.post("/api/handoffs", json={"message": message} | _CAN) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["handoff_id"] == second.json()["handoff_id"]
    b.until(first.json()["handoff_id"], "completed")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"message": {"bad": 1}}, "message.parts"),
        ({"artifacts": [{"artifactId": "a"}]}, "artifacts[0].parts"),
        ({"artifacts": [{"parts": [{"text": "t"}]}]}, "artifacts[0].artifactId"),
        ({"artifacts": [{"artifactId": "a", "parts": [{"text": "t"}]}, 7]}, "artifacts[1]"),
    ],
)
@pytest.mark.parametrize("verb", ["progress", "complete"])
def test_what_an_agent_says_must_be_a2a(
    house: tuple[Broker, Agent], verb: str, body: dict[str, Any], field: str
) -> None:
    b, _ = house
    handoff = b.http.post("/api/handoffs", json={"task": "x", "target_agent": "editor"}).json()["handoff_id"]
    answer = b.http.post(f"/api/handoffs/{handoff}/{verb}", json={"agent_id": "editor"} | body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_params")
    assert _fields(answer) == [field]
    assert b.handoff(handoff)["state"] == "offered"


def test_a_field_that_means_nothing_is_told(house: tuple[Broker, Agent]) -> None:
    b, _ = house
    made = b.http.post(
        "/api/handoffs", json={"task": "x", "requirments": {"capabilities": ["canFly"]}} | _CAN
    )
    assert made.json()["warnings"] == ["requirments: not known, ignored"]
    b.until(made.json()["handoff_id"], "completed")
    explained = b.http.post("/api/resolve", json={"task": "x", "tak": "y"} | _CAN)
    assert explained.json()["warnings"] == ["tak: not known, ignored"]


def test_agents_are_listed_by_a_capability_however_it_is_spelled(house: tuple[Broker, Agent]) -> None:
    b, _ = house
    found = b.http.get("/api/agents", params={"capability": "CANWORK"}).json()["agents"]
    assert [agent["agent_id"] for agent in found] == ["worker"]
