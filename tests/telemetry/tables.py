"""The tables of ``docs/reference/telemetry.md``, made from the code.

``python -m tests.telemetry.tables --write`` puts them into the page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from a2a_handoff.core.signals import ATTRIBUTES, EVENTS, SPANS
from a2a_handoff.telemetry.instruments import FORMULAS, INSTRUMENTS

PAGE = Path(__file__).parents[2] / "docs/reference/telemetry.md"


def tables() -> dict[str, str]:
    """Each table of the page, by the name in its marker."""
    return {
        "spans": _table(("Span", "Kind", "What it covers"), ((_code(s.name), s.kind, s.when) for s in SPANS)),
        "attributes": _table(
            ("Attribute", "Type", "On", "Meaning"),
            ((_code(a.name), a.type, a.on, a.meaning) for a in ATTRIBUTES),
        ),
        "events": _table(("Event", "On", "Meaning"), ((_code(e.name), e.on, e.meaning) for e in EVENTS)),
        "instruments": _table(
            ("Instrument", "On `/metrics`", "Type, unit", "Attributes", "Meaning"),
            (
                (
                    _code(i.name),
                    _code(i.prometheus),
                    f"{i.type}, {_code(i.unit)}",
                    ", ".join(map(_code, i.attributes)),
                    i.meaning,
                )
                for i in INSTRUMENTS
            ),
        ),
        "buckets": _table(
            ("Instrument", "Edges of its buckets"),
            ((_code(i.name), " ".join(f"{edge:g}" for edge in i.buckets)) for i in INSTRUMENTS if i.buckets),
        ),
        "formulas": "\n\n".join(
            f"**{f.name}** (alarm: {f.alarm}). {f.remark}\n\n```promql\n{f.formula}\n```" for f in FORMULAS
        ),
    }


def written(page: str) -> str:
    """The page with every table as the code has it."""
    for name, table in tables().items():
        marked = re.compile(rf"(<!-- {name}: written from the code -->\n).*?(<!-- end -->)", re.DOTALL)
        page, found = marked.subn(lambda m, table=table: f"{m[1]}{table}\n{m[2]}", page)
        if found != 1:
            raise LookupError(f"the page has {found} places for {name}")
    return page


def _code(text: str) -> str:
    return f"`{text}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    new = written(PAGE.read_text())
    if "--write" in sys.argv:
        PAGE.write_text(new)
    else:
        sys.stdout.write(new)
