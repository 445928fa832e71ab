"""Agents of every generation do the work, whatever way it came in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Surface
from tests.support.first_generation import CARD, FirstGenerationAgent, first_generation_agent
from tests.support.running import Loop
from tests.support.sdk_agent import SdkAgent, sdk_agent

Names = Callable[[str], str]


@pytest.fixture(scope="module")
def sdk() -> Iterator[SdkAgent]:
    with sdk_agent() as agent:
        yield agent


@pytest.fixture(scope="module")
def old() -> Iterator[FirstGenerationAgent]:
    loop = Loop()
    manager = first_generation_agent()
    try:
        yield loop.run(manager.__aenter__())
    finally:
        loop.run(manager.__aexit__(None, None, None))
        loop.close()


def card_of(url: str, version: str, binding: str = "JSONRPC") -> dict[str, Any]:
    interface = {"url": url, "protocolBinding": binding, "protocolVersion": version}
    return {
        "name": "real",
        "description": "A real server.",
        "version": "1",
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
    }


def serves(surface: Surface, name: str, done: str = "done") -> None:
    """Answers, streams and questions of the agent ``name`` come through."""
    task = surface.send("echo", to=(name,))
    # The tools show one result: the last artifact that is text alone. The echo has the key facts in it too.
    made = ["one two"] if surface.name == "mcp" else ["one two", "echo"]
    assert (task.state, task.said, task.artifacts) == ("completed", done, made)
    told = list(surface.stream("echo", to=(name,)))
    chunks = [(heard.artifact, heard.append) for heard in told if heard.kind == "artifact"]
    assert chunks == [("one ", False), ("two", True), ("echo", False)]
    assert (told[-1].state, told[-1].said) == ("completed", done)
    asked = surface.send("ask", to=(name,))
    assert (asked.state, asked.said) == ("input_required", "which one?")
    if surface.codes != "native":
        assert surface.reply(asked, "blue").state == "completed"


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@proves("agent.1.0")
def test_an_agent_that_speaks_1_0_does_the_work(
    surface: Surface, sdk: SdkAgent, names: Names, binding: str
) -> None:
    name = names("sdk")
    url = {"JSONRPC": f"{sdk.url}/rpc", "HTTP+JSON": sdk.url, "GRPC": f"127.0.0.1:{sdk.grpc_port}"}[binding]
    surface.broker.register(name, card=card_of(url, "1.0", binding))
    serves(surface, name)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@proves("agent.0.3")
def test_an_agent_that_speaks_0_3_does_the_work(
    surface: Surface, sdk: SdkAgent, names: Names, binding: str
) -> None:
    name = names("sdk")
    url = {"JSONRPC": f"{sdk.url}/rpc", "HTTP+JSON": sdk.url, "GRPC": f"127.0.0.1:{sdk.grpc_port}"}[binding]
    surface.broker.register(name, card=card_of(url, "0.3", binding))
    serves(surface, name)


@proves("agent.first")
def test_an_agent_of_the_first_generation_does_the_work(
    surface: Surface, old: FirstGenerationAgent, names: Names
) -> None:
    name = names("old")
    surface.broker.register(name, card=CARD | {"url": old.url})
    serves(surface, name)
