"""The agent of the compatibility kits, behind a broker: what the kits count on passes through unchanged."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.suite_agent import ACTS, acts, opens
from tests.support.agents import Agent, card
from tests.support.running import Broker, broker, running, sse_data

ENDS = {"tck-input-required": "INPUT_REQUIRED", "tck-reject-task": "REJECTED"}
SILENT = {"tck-complete-task", "tck-stream-002", *ENDS}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Broker, Agent]]:
    agent = Agent(acts)
    with running(agent) as url, broker(tmp_path_factory.mktemp("suite")) as b:
        b.register("default_agent", card=card(url, streaming=True) | {"defaultInputModes": ["*/*"]})
        yield b, agent


def message(name: str) -> dict[str, Any]:
    parts = [
        {"text": "x", "metadata": {"kept": [1.0, None]}},
        {"raw": "dGNr", "mediaType": "text/plain", "filename": "a.txt"},
        {"url": "https://example.com/a", "mediaType": "image/png"},
        {"data": {"n": 9007199254740993}},
    ]
    return {"messageId": name, "role": "ROLE_USER", "parts": parts, "metadata": {"my.own/key": {"a": [1, 2]}}}


@pytest.mark.parametrize("prefix", ACTS)
def test_the_agent_is_told_by_the_message_id_what_to_do(house: tuple[Broker, Agent], prefix: str) -> None:
    b, agent = house
    sent = message(f"{prefix}-{len(agent.calls)}")
    task = b.rpc("SendMessage", {"message": sent})["result"]["task"]
    assert task["status"]["state"] == f"TASK_STATE_{ENDS.get(prefix, 'COMPLETED')}"
    got = agent.of("SendStreamingMessage")[-1].message
    assert (got["messageId"], got["parts"]) == (sent["messageId"], sent["parts"])
    assert got["metadata"]["my.own/key"] == {"a": [1, 2]}
    assert ("artifacts" in task) == (prefix not in SILENT)


def test_a_message_for_an_answer_becomes_a_finished_task_with_its_words(house: tuple[Broker, Agent]) -> None:
    b, _ = house
    task = b.rpc("SendMessage", {"message": message("tck-message-response-1")})["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["status"]["message"]["parts"] == [{"text": "Direct message response"}]


def test_the_agent_that_leaves_tasks_open_asks_and_stops_when_it_is_canceled(tmp_path: Path) -> None:
    with running(Agent(opens)) as url, broker(tmp_path) as b:
        b.register("default_agent", card=card(url, streaming=True) | {"defaultInputModes": ["*/*"]})
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": message("m")},
        }
        with b.http.stream("POST", "/", json=body, headers={"A2A-Version": "1.0"}) as answer:
            told = [json.loads(data)["result"] for data in sse_data(answer.iter_lines())]
        assert told[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        canceled = b.rpc("CancelTask", {"id": told[0]["task"]["id"]})["result"]
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
