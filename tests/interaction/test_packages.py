"""Where the package stands in what a target receives, wherever its sender put it."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.agents import URI, Agent, card, completes
from tests.support.running import Broker, broker, handoff_context, running

_PACKAGE = handoff_context(requirements={"capabilities": ["canWork"]}, transcript=[{"said": "all of it"}])


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Broker, Agent]]:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path_factory.mktemp("packages")) as b:
        b.register("worker", card=card(url, capabilities={"canWork": True}))
        yield b, agent


@pytest.mark.parametrize(
    ("beside", "within"),
    [
        ({"handoff_context": _PACKAGE}, {}),
        ({URI: _PACKAGE}, {}),
        ({}, {URI: _PACKAGE}),
        ({}, {"handoff_context": _PACKAGE}),
        ({"handoff_context": _PACKAGE, URI: _PACKAGE}, {"handoff_context": _PACKAGE, URI: _PACKAGE}),
    ],
    ids=["metadata", "metadata-uri", "message-uri", "message", "everywhere"],
)
def test_a_target_finds_one_package_in_two_places_and_no_other(
    house: tuple[Broker, Agent], beside: dict[str, Any], within: dict[str, Any]
) -> None:
    b, agent = house
    note = {"their": "own"}
    task = b.send(metadata=beside | note, message={"metadata": within | note})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    params = agent.calls[-1].params
    package = params["message"]["metadata"].pop(URI)
    assert params["metadata"].pop("handoff_context") == package
    assert package["handoff_chain"] == ["triage", "worker"]
    assert (params["metadata"], params["message"]["metadata"]) == (note, note)
    assert "all of it" not in json.dumps(agent.calls[-1].params)


@pytest.mark.parametrize("unset", ["extensions", "metadata", "referenceTaskIds", "taskId", "contextId"])
def test_a_null_is_an_unset_field_of_a_message(house: tuple[Broker, Agent], unset: str) -> None:
    b, agent = house
    task = b.send(context={"target_agent": "worker"}, message={unset: None})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert agent.calls[-1].message["extensions"] == [URI]
