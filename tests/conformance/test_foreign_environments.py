"""The environments of other makers' programs: made once for all, or missed with a word."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import foreign


@pytest.fixture
def kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for kits of this test, and a cache of its own."""
    folder = tmp_path / "kits"
    folder.mkdir()
    monkeypatch.setattr(foreign, "KITS", folder)
    monkeypatch.setattr(foreign, "CACHE", tmp_path / "cache")
    return folder


def test_many_that_want_an_environment_at_once_get_the_same_and_other_pins_another(kits: Path) -> None:
    (kits / "empty.txt").write_text("# nothing\n")
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(foreign.make, ["empty"] * 4))
    assert len(made) == 1
    assert (made.pop() / "bin/python").exists()
    (kits / "empty.txt").write_text("# still nothing\n")
    assert foreign.make("empty").is_dir()
    assert len(list((kits.parent / "cache").glob("empty-*"))) == 2


def test_what_cannot_be_made_leaves_nothing_and_skips_its_tests_unless_they_are_required(
    kits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kits / "wrong.txt").write_text("this is no requirement\n")
    monkeypatch.delenv("TEST_SERVICES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="the environment wrong cannot be made here: uv"):
        foreign.command("wrong", "some.py")
    monkeypatch.setenv("TEST_SERVICES", "required")
    with pytest.raises(pytest.fail.Exception, match="the environment wrong cannot be made here: uv"):
        foreign.command("wrong", "some.py")
    assert list((kits.parent / "cache").glob("wrong-*")) == []


def test_every_program_that_the_page_names_is_pinned() -> None:
    assert {program.kit for program in foreign.PROGRAMS} == set(foreign.kits())
    assert all(program.version for program in foreign.PROGRAMS)
