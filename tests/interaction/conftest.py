"""One broker and one server of agents for all tests of a surface, and the surfaces that a test runs on.

Tests share the broker, so each hires agents of its own (``staff``) and makes up names of its own (``names``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.interaction.manifest import ways_of
from tests.interaction.seen import Surface
from tests.interaction.staff import Staff, Street
from tests.interaction.surfaces import surfaces
from tests.interaction.wires import FACE
from tests.support.agents import Agent, card, completes
from tests.support.running import Broker, broker, running
from tests.support.tools import Tools

_NUMBERS = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "proves(*ids): the requirements that a test proves")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for way in ("surface", "way"):
        if way in metafunc.fixturenames:
            metafunc.parametrize(way, ways_of(metafunc.function), indirect=True)


@pytest.fixture(scope="session")
def street() -> Iterator[Street]:
    made = Street()
    with running(made) as made.url:
        yield made


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory, street: Street) -> Iterator[Broker]:
    """A broker with short waits and one agent, whose face is always there."""
    with broker(tmp_path_factory.mktemp("house"), cancel_wait=0.5, grpc_port=0) as b:
        b.register(FACE, card=card(street.settle(Agent(completes))))
        # The first call of a tool loads the package mcp, for which the deadlines of tests are too short.
        Tools(broker=b, agent=FACE).do("list_agents")
        yield b


@pytest.fixture
def surface(request: pytest.FixtureRequest, house: Broker) -> Surface:
    return surfaces(house)[request.param]


@pytest.fixture
def staff(house: Broker, street: Street) -> Iterator[Staff]:
    made = Staff(house, street)
    yield made
    made.dismiss()


@pytest.fixture
def names() -> Callable[[str], str]:
    """Makes names that no other test uses."""
    number = next(_NUMBERS)
    return lambda stem: f"{stem}-{number}"
