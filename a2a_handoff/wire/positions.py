"""Where in a JSON text each value stands.

Duty: a map from paths such as ``skills[0].tags`` to offsets, for faults that name line and column.
Rules: strict JSON (RFC 8259): no NaN, no trailing commas. Nesting is bounded.
Not here: what the values mean.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

NESTING_MAX = 64

_read_string = json.JSONDecoder().raw_decode

_BLANK = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclass(slots=True)
class Positions:
    """Offsets of values by path, and of the second use of a name in one object."""

    values: dict[str, int] = field(default_factory=dict[str, int])
    repeated: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def of(self, path: str) -> int:
        """The offset of a value, or of the nearest that contains it if it is not there."""
        while path and path not in self.values:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.values.get(path, 0)


def positions_of(text: str) -> Positions:
    """Where everything is. Raises ``json.JSONDecodeError``, which knows line and column."""
    found = Positions()
    end = _blank(text, _value(text, _blank(text, 0), "", found, 0))
    if end < len(text):
        raise json.JSONDecodeError("Nothing may follow the value", text, end)
    return found


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, path: str, found: Positions, depth: int) -> int:
    """Read one value that begins at ``at``; the offset behind it."""
    if depth > NESTING_MAX:
        raise json.JSONDecodeError(f"Nested deeper than {NESTING_MAX} levels", text, at)
    found.values[path] = at
    begin = text[at : at + 1]
    if begin == "{":
        return _members(text, at, path, found, depth)
    if begin == "[":
        return _items(text, at, path, found, depth)
    if begin == '"':
        return _read_string(text, at)[1]
    match = _SCALAR.match(text, at)
    if match is None:
        raise json.JSONDecodeError("A value is expected here", text, at)
    return match.end()


def _members(text: str, at: int, path: str, found: Positions, depth: int) -> int:
    seen: set[str] = set()
    at = _blank(text, at + 1)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("A name in double quotes is expected here", text, at)
        start = at
        name, at = _read_string(text, at)
        inner = f"{path}.{name}" if path else str(name)
        if name in seen:
            found.repeated.append((inner, start))
        seen.add(name)
        at = _blank(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("A colon is expected here", text, at)
        at = _blank(text, _value(text, _blank(text, at + 1), inner, found, depth + 1))
        if text[at : at + 1] == "}":
            return at + 1
        at = _comma(text, at, "}")


def _items(text: str, at: int, path: str, found: Positions, depth: int) -> int:
    at = _blank(text, at + 1)
    if text[at : at + 1] == "]":
        return at + 1
    index = 0
    while True:
        at = _blank(text, _value(text, at, f"{path}[{index}]", found, depth + 1))
        if text[at : at + 1] == "]":
            return at + 1
        at = _comma(text, at, "]")
        index += 1


def _comma(text: str, at: int, end: str) -> int:
    if text[at : at + 1] != ",":
        raise json.JSONDecodeError(f"A comma or {end} is expected here", text, at)
    after = _blank(text, at + 1)
    if text[after : after + 1] == end:
        raise json.JSONDecodeError("A comma must not be the last thing", text, at)
    return after
