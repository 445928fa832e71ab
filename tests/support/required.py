"""What tests do when a program is missing that they need: skip, or fail where it must be there."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(words: str) -> NoReturn:
    """Skip the test and say why, or fail it if ``A2A_HANDOFF_TEST_SERVICES`` says ``required``."""
    if os.environ.get("TEST_SERVICES") == "required":
        pytest.fail(words)
    pytest.skip(words)
