"""The manifest and the tests agree: nothing is unproven, unknown, or left out without a reason."""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.interaction.manifest import BY_ID, marks_of, surfaces_of
from tests.interaction.requirements import REQUIREMENTS, SURFACES
from tests.interaction.surfaces import surfaces


def _tests() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every test of this folder that says what it proves."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.interaction.{path.stem}")
        for name, value in vars(module).items():
            if name.startswith("test_") and callable(value) and marks_of(value):
                yield f"{path.stem}::{name}", value


def _proven() -> set[tuple[str, str]]:
    """(requirement, surface) of every test; the surface is empty for a test that takes none."""
    found: set[tuple[str, str]] = set()
    for _, test in _tests():
        takes_one = "surface" in inspect.signature(test).parameters
        for ids, _ in marks_of(test):
            found |= {(one, name) for one in ids for name in (surfaces_of(test) if takes_one else [""])}
    return found


def test_every_id_that_a_test_names_is_a_requirement() -> None:
    named = [(name, one) for name, test in _tests() for ids, _ in marks_of(test) for one in ids]
    assert [(name, one) for name, one in named if one not in BY_ID] == []


def test_every_requirement_is_proven_on_every_surface_or_says_why_not() -> None:
    proven = _proven()
    wanted = {(r.id, name) for r in REQUIREMENTS for name in (SURFACES if not r.apart else [""])}
    excused = {(r.id, name) for r in REQUIREMENTS for name in r.gaps}
    assert sorted(wanted - proven - excused) == []
    assert sorted(proven & excused) == []
    assert sorted(proven - wanted) == []


def test_requirements_are_whole_and_ids_unique() -> None:
    assert [one for one, count in Counter(r.id for r in REQUIREMENTS).items() if count > 1] == []
    for requirement in REQUIREMENTS:
        assert requirement.source, requirement.id
        assert requirement.behaviour.endswith("."), requirement.id
        assert requirement.gaps.keys() <= set(SURFACES), requirement.id
        assert all(requirement.gaps.values()), requirement.id


def test_the_surfaces_of_the_manifest_are_those_that_exist(house: Any) -> None:
    assert tuple(surfaces(house)) == SURFACES
