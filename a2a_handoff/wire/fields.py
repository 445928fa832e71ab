"""Reading a JSON object of a stranger, member by member, with every fault at its place.

Duty: typed access to raw members; each that is wrong leaves one ``Violation``, and reading goes on.
Rules: nothing is coerced but ``5.0`` where an integer is expected (senders on protobuf ``Struct`` have
no integers). ``null`` means absent. Values are not repeated in faults: they are a stranger's.
Not here: what the members mean (``context``, ``directive``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Raw

from a2a_handoff.core.errors import Violation
from a2a_handoff.core.text import NAME_CHARS_MAX, is_blank, name_fault

_TEXT = msgspec.json.Decoder(str | None)
_NUMBER = msgspec.json.Decoder(int | float | None)
_FLAG = msgspec.json.Decoder(bool | None)
_TEXTS = msgspec.json.Decoder(list[str] | None)
_WithOffset = Annotated[datetime, msgspec.Meta(tz=True)]
_INSTANT = msgspec.json.Decoder(_WithOffset | None)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])

#: Faults beyond these are not listed: the answer stays bounded.
FAULTS_MAX = 50

#: JSON has integers over this, which are no floats any more.
_FLOAT_MAX = sys.float_info.max

_Choice = TypeVar("_Choice", bound=StrEnum)
_Value = TypeVar("_Value")


def members_of(raw: Raw | bytes) -> dict[str, Raw] | None:
    """The members of a JSON object, each as it came; ``None`` if it is something else.

    Of members with one name the last counts (RFC 8259 section 4 leaves it open).
    """
    try:
        return _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Fields:
    """The members of one object at ``path``. Faults go to the shared list ``faults``."""

    __slots__ = ("_members", "_path", "faults")

    def __init__(self, members: Mapping[str, Raw], path: str, faults: list[Violation]) -> None:
        self._members = members
        self._path = path
        self.faults = faults

    def fault(self, name: str, description: str) -> None:
        """Note a fault of member ``name``."""
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(Violation(f"{self._path}.{name}" if self._path else name, description))

    def text(self, name: str, *, required: bool = False, bytes_max: int) -> str:
        """A string; one that is required must show something."""
        value = self._read(name, _TEXT, "must be a string", required=required)
        if value is None:
            return ""
        if required and is_blank(value):
            self.fault(name, "must not be blank")
        elif len(value) * 4 > bytes_max and len(value.encode()) > bytes_max:
            self.fault(name, f"must be at most {bytes_max} bytes of UTF-8")
        return value

    def name(self, name: str, *, chars_max: int = NAME_CHARS_MAX) -> str:
        """The name of something: short, one line, may be empty."""
        value = self._read(name, _TEXT, "must be a string")
        if value and (fault := name_fault(value, chars_max=chars_max)):
            self.fault(name, fault)
        return value or ""

    def names(self, name: str, *, items_max: int) -> tuple[str, ...]:
        """A list of names, none of them empty."""
        values = self._read(name, _TEXTS, "must be a list of strings")
        if not values:
            return ()
        if len(values) > items_max:
            self.fault(name, f"must have at most {items_max} items")
            return ()
        for index, value in enumerate(values):
            if fault := name_fault(value) or ("" if value else "is empty"):
                self.fault(f"{name}[{index}]", fault)
        return tuple(values)

    def choice(self, name: str, choices: type[_Choice]) -> _Choice | None:
        """One of the values of ``choices``."""
        value = self._read(name, _TEXT, _one_of(choices))
        if value is None:
            return None
        try:
            return choices(value)
        except ValueError:
            self.fault(name, _one_of(choices))
            return None

    def integer(self, name: str, low: int, high: int) -> int | None:
        """A whole number from ``low`` to ``high``; ``5.0`` is one."""
        value = self._read(name, _NUMBER, _integer_from(low, high))
        if value is None:
            return None
        if value != int(value) or not low <= value <= high:
            self.fault(name, _integer_from(low, high))
            return None
        return int(value)

    def number(self, name: str, low: float = -_FLOAT_MAX, high: float = _FLOAT_MAX) -> float | None:
        """A finite number from ``low`` to ``high``."""
        value = self._read(name, _NUMBER, _number_from(low, high))
        if value is None:
            return None
        if not low <= value <= high:
            self.fault(name, _number_from(low, high))
            return None
        return float(value)

    def flag(self, name: str) -> bool | None:
        """``true`` or ``false``, not in quotes."""
        return self._read(name, _FLAG, "must be true or false")

    def instant(self, name: str) -> float | None:
        """A point in time, as epoch seconds, from RFC 3339 with an offset."""
        expected = "must be a date and time of RFC 3339 with an offset, such as 2030-01-31T12:00:00Z"
        value = self._read(name, _INSTANT, expected)
        return None if value is None else value.timestamp()

    def raw(self, name: str, *, bytes_max: int) -> bytes:
        """Any JSON value as it came; empty if absent."""
        value = bytes(self._members.get(name, b""))
        if len(value) > bytes_max:
            self.fault(name, f"must be at most {bytes_max} bytes of JSON")
        return b"" if value == b"null" else value

    def raw_object(self, name: str, *, required: bool = False, bytes_max: int) -> bytes:
        """A JSON object as it came; empty if absent."""
        value = self.raw(name, bytes_max=bytes_max)
        if not value and required:
            self.fault(name, "is missing; {} is enough")
        elif value and not value.startswith(b"{"):
            self.fault(name, "must be an object")
        return value

    def object(self, name: str) -> Fields | None:
        """The members of an object within this one."""
        raw = self._members.get(name)
        if raw is None or bytes(raw) == b"null":
            return None
        members = members_of(raw)
        if members is None:
            self.fault(name, "must be an object")
            return None
        return Fields(members, f"{self._path}.{name}" if self._path else name, self.faults)

    def unknown(self, known: Collection[str]) -> list[str]:
        """Names of the members that are not in ``known``, shortened."""
        return [name[:NAME_CHARS_MAX] for name in self._members if name not in known]

    def _read(
        self, name: str, decoder: msgspec.json.Decoder[_Value], expected: str, *, required: bool = False
    ) -> _Value | None:
        raw = self._members.get(name)
        value: _Value | None = None
        if raw is not None:
            try:
                value = decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.fault(name, expected)
                return None
        if value is None and required:
            self.fault(name, "is missing")
        return value


@cache
def _one_of(choices: type[StrEnum]) -> str:
    return f"must be one of {', '.join(choices)}"


@cache
def _integer_from(low: int, high: int) -> str:
    return f"must be an integer from {low} to {high}"


@cache
def _number_from(low: float, high: float) -> str:
    return "must be a number" if high == _FLOAT_MAX else f"must be a number from {low:g} to {high:g}"


def same_json(one: bytes, other: bytes) -> bool:
    """Whether two JSON texts say the same.

    The order of members, white space, escapes and the writing of numbers do not count. Numbers are
    compared exactly, whatever their size.
    """
    return one == other or _canonical(one) == _canonical(other)


def _canonical(raw: bytes) -> Any:
    return json.loads(raw, parse_int=_exact, parse_float=_exact)


def _exact(number: str) -> tuple[object, ...]:
    """A number as sign, digits and exponent: never equal to a string, a boolean or a list."""
    try:
        sign, digits, exponent = Decimal(number).as_tuple()
    except ArithmeticError:
        return (number,)
    significant = "".join(map(str, digits)).lstrip("0")
    stripped = significant.rstrip("0")
    if not stripped or not isinstance(exponent, int):
        return (0, stripped, exponent if stripped else 0)
    return (sign, stripped, exponent + len(significant) - len(stripped))
