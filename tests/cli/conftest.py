"""The stub broker and a way to run commands against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from a2a_handoff.cli import main
from tests.cli.stub import Stub

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process: exit code, standard output, standard error."""
    monkeypatch.delenv("A2A_HANDOFF_URL", raising=False)

    def run(*args: str) -> tuple[int, str, str]:
        code = main(args)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
