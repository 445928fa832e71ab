"""The pages hold what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs_tables import DOCS, SECTIONS, current

ROOT = DOCS.parent
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("page", SECTIONS)
def test_a_page_that_is_made_from_the_code_is_current(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == current(page), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    queue = [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen:
            continue
        seen.add(page)
        links = re.findall(r"\]\((?!https?://|#)([^)#]+\.md)", page.read_text(encoding="utf-8"))
        queue.extend((page.parent / target).resolve() for target in links)
    missing = {str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md")} - {
        str(page.relative_to(ROOT)) for page in seen
    }
    assert missing == set()


def test_the_map_of_the_code_names_every_room() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[a-z_]+", page))
    package = DOCS.parent / "a2a_handoff"
    rooms = {
        path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - {"__init__", "__main__"} - named == set()
