from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.running import Broker, broker


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path) as running:
        yield running
