"""Which requirements a test proves, and which ways into the broker it runs over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interaction.requirements import REQUIREMENTS

BY_ID = {requirement.id: requirement for requirement in REQUIREMENTS}


def proves(*ids: str) -> pytest.MarkDecorator:
    """Marks a test with the requirements that it proves; all of them hold on the same kind of way."""
    return pytest.mark.proves(*ids)


def ids_of(test: Callable[..., Any]) -> list[str]:
    """The requirements that a test proves."""
    return [one for mark in getattr(test, "pytestmark", []) if mark.name == "proves" for one in mark.args]


def ways_of(test: Callable[..., Any]) -> list[str]:
    """What a test runs over: the ways of what it proves, without their gaps."""
    proven = [BY_ID[one] for one in ids_of(test) if one in BY_ID]
    ways = proven[0].ways if proven else ()
    return [name for name in ways if not any(name in requirement.gaps for requirement in proven)]
