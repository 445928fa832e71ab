from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.bearers import SECRET
from tests.support.running import Broker, broker


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    """A broker that asks everybody who it is."""
    folder: Path = tmp_path_factory.mktemp("closed")
    with broker(folder, auth_secret=SECRET) as running:
        yield running
