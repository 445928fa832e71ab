"""Which requirement a test proves, and on which surfaces it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interaction.requirements import REQUIREMENTS, SURFACES

BY_ID = {requirement.id: requirement for requirement in REQUIREMENTS}


def proves(*ids: str, on: tuple[str, ...] = SURFACES) -> pytest.MarkDecorator:
    """Marks a test with the requirements that it proves; ``on`` limits the surfaces that it runs on."""
    return pytest.mark.proves(*ids, on=on)


def marks_of(test: Callable[..., Any]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The ids that a test names, with the surfaces of each mark."""
    marks = getattr(test, "pytestmark", [])
    return [(mark.args, mark.kwargs["on"]) for mark in marks if mark.name == "proves"]


def surfaces_of(test: Callable[..., Any]) -> list[str]:
    """The surfaces that a test runs on: those of its marks without the gaps of what it proves."""
    marks = marks_of(test)
    gaps = {gap for ids, _ in marks for one in ids if one in BY_ID for gap in BY_ID[one].gaps}
    return [name for name in SURFACES if name not in gaps and all(name in on for _, on in marks)]
