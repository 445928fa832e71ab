"""The manifest and the tests agree: nothing is unproven, unknown, or left out without a reason."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.interaction.manifest import BY_ID, ids_of, ways_of
from tests.interaction.requirements import REQUIREMENTS, SURFACES
from tests.interaction.surfaces import surfaces


def _tests() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every test of this folder that says what it proves."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.interaction.{path.stem}")
        for name, value in vars(module).items():
            if name.startswith("test_") and callable(value) and ids_of(value):
                yield f"{path.stem}::{name}", value


@cache
def _proven() -> frozenset[tuple[str, str]]:
    return frozenset((one, way) for _, test in _tests() for one in ids_of(test) for way in ways_of(test))


def proven_ways(requirement: str) -> set[str]:
    """Where a requirement is proven."""
    return {way for one, way in _proven() if one == requirement}


def test_every_id_that_a_test_names_is_a_requirement() -> None:
    named = [(name, one) for name, test in _tests() for one in ids_of(test)]
    assert [(name, one) for name, one in named if one not in BY_ID] == []


def test_what_a_test_proves_holds_on_one_kind_of_way() -> None:
    assert [name for name, test in _tests() if len({BY_ID[one].ways for one in ids_of(test)}) > 1] == []


def test_every_requirement_is_proven_on_every_way_or_says_why_not() -> None:
    proven = _proven()
    wanted = {(r.id, way) for r in REQUIREMENTS for way in r.ways}
    excused = {(r.id, way) for r in REQUIREMENTS for way in r.gaps}
    assert sorted(wanted - proven - excused) == []
    assert sorted(proven & excused) == []


def test_requirements_are_whole_and_ids_unique() -> None:
    assert [one for one, count in Counter(r.id for r in REQUIREMENTS).items() if count > 1] == []
    for requirement in REQUIREMENTS:
        assert requirement.source, requirement.id
        assert requirement.behaviour.endswith("."), requirement.id
        assert requirement.gaps.keys() <= set(requirement.ways), requirement.id
        assert all(requirement.gaps.values()), requirement.id


def test_the_surfaces_of_the_manifest_are_those_that_exist(house: Any) -> None:
    assert tuple(surfaces(house)) == SURFACES
