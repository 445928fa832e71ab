"""docs/reference/cases.md says the truth about which case is settled where."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "cases.md"

_NAMED = re.compile(r"^\s*(?:async )?def test((?:_c\d{3})+)_", re.MULTILINE)
_WITHOUT_TEST = ("a later release", "cannot arise: ")


class Row(NamedTuple):
    case: str
    wrong: str
    here: str
    files: frozenset[str]


def rows() -> list[Row]:
    """The rows of all tables of the page."""
    found: list[Row] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if re.match(r"\| c\d", line):
            case, wrong, here, files = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(case, wrong, here, frozenset(re.findall(r"`([^`]+)`", files))))
    return found


def named_tests() -> dict[str, set[str]]:
    """By case: the files that have a test named after it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for names in _NAMED.findall(path.read_text(encoding="utf-8")):
            for case in re.findall(r"c\d{3}", names):
                found[case].add(path.relative_to(TESTS).as_posix())
    return found


def test_every_case_has_one_row_in_order() -> None:
    assert [row.case for row in rows()] == [f"c{number:03}" for number in range(1, 99)]


def test_every_row_names_the_files_that_have_its_tests_and_no_others() -> None:
    named = named_tests()
    wrong = [
        f"{row.case}: {', '.join(f'`{name}`' for name in sorted(named[row.case])) or '—'}"
        for row in rows()
        if row.files != frozenset(named[row.case])
    ]
    assert wrong == [], "docs/reference/cases.md should say, in the last column:\n" + "\n".join(wrong)
    assert named.keys() <= {row.case for row in rows()}


def test_a_case_without_a_test_says_why() -> None:
    assert [row.case for row in rows() if not row.files and not row.here.startswith(_WITHOUT_TEST)] == []
    assert [row.case for row in rows() if row.files and row.here.startswith(_WITHOUT_TEST)] == []


def test_every_row_says_what_went_wrong_and_what_is_done_in_a_few_words() -> None:
    for row in rows():
        assert row.wrong.endswith("."), row.case
        assert 20 <= len(row.wrong) <= 160, row.case
        assert row.here, row.case
