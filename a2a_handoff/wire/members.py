"""Reading the members of one JSON object by their names on the wire, with every fault at its place.

Duty: typed access to raw members, for objects whose names differ from generation to generation; each
wrong one leaves a ``Violation``, and reading goes on.
Rules: nothing is coerced, but ``5.0`` is the integer 5 (protobuf ``Struct`` knows no integers). A null is
an unset member. Values are not repeated in faults: they are a stranger's.
Not here: records that have one shape only (``fields``), what the members mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.text import is_blank, name_fault
from a2a_handoff.wire.fields import Instant, add_fault
from a2a_handoff.wire.protonames import json_names

#: The longest id that is accepted.
ID_CHARS_MAX: Final = 256
LIST_ITEMS_MAX: Final = 100

#: Parts of one message or artifact.
PARTS_MAX: Final = 1_000

_NULL: Final = Raw(b"null")
_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(tuple[str, ...])
_number = msgspec.json.Decoder(int | float)
_flag = msgspec.json.Decoder(bool)
_instant = msgspec.json.Decoder(Instant)
_object = msgspec.json.Decoder(dict[str, Raw])


def id_fault(value: str | None) -> str:
    """Why ``value`` cannot be an id; empty if it can, or if there is none."""
    return name_fault(value, chars_max=ID_CHARS_MAX) if value else ""


def checked_id(value: str, name: str) -> str:
    """An id that came beside the body, in a header say. Raises ``HandoffError`` (``invalid_params``)."""
    if fault := id_fault(value):
        raise HandoffError(Code.INVALID_PARAMS, f"{name} {fault}.", violations=(Violation(name, fault),))
    return value


class Members:
    """The members of the object at ``path``. Faults go to the shared list ``faults``."""

    __slots__ = ("_members", "_path", "faults")

    def __init__(self, members: Mapping[str, Raw], path: str, faults: list[Violation]) -> None:
        self._members = members
        self._path = path
        self.faults = faults

    def fault(self, name: str, description: str) -> None:
        """Note a fault of member ``name``."""
        add_fault(self.faults, f"{self._path}.{name}" if self._path else name, description)

    def raw(self, name: str) -> bytes:
        """Any value as written; empty if it is not set."""
        value = self._members.get(name, _NULL)
        return b"" if value == _NULL else bytes(value)

    def text(self, name: str, *, bytes_max: int | None = None, required: bool = False) -> str:
        """A string; a required one must show something."""
        value: str | None = self._read(name, _text, "must be a string")
        if required and value is None and not self.raw(name):
            self.fault(name, "is required")
        elif required and value is not None and is_blank(value):
            self.fault(name, "must not be blank")
        elif value and bytes_max is not None and len(value.encode()) > bytes_max:
            self.fault(name, f"must be at most {bytes_max} bytes of UTF-8")
        return value or ""

    def id(self, name: str, *, required: bool = False) -> str:
        """An id: any text of one line, at most ``ID_CHARS_MAX`` characters."""
        value = self.text(name, required=required)
        fault = id_fault(value)
        if fault and not (required and is_blank(value)):
            self.fault(name, fault)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of at most ``LIST_ITEMS_MAX`` strings."""
        values: tuple[str, ...] | None = self._read(name, _texts, "must be a list of strings")
        if values and len(values) > LIST_ITEMS_MAX:
            self.fault(name, f"must have at most {LIST_ITEMS_MAX} items")
        return values or ()

    def flag(self, name: str) -> bool | None:
        """``true`` or ``false``, not in quotes."""
        value: bool | None = self._read(name, _flag, "must be true or false")
        return value

    def count(self, name: str, low: int, high: int) -> int | None:
        """A whole number from ``low`` to ``high``."""
        expected = f"must be an integer from {low} to {high}"
        value: float | None = self._read(name, _number, expected)
        if value is None:
            return None
        if value != int(value) or not low <= value <= high:
            self.fault(name, expected)
            return None
        return int(value)

    def instant(self, name: str) -> float | None:
        """A point in time, as epoch seconds, from RFC 3339 with an offset."""
        expected = "must be a date and time of RFC 3339 with an offset, such as 2030-01-31T12:00:00Z"
        value: Any = self._read(name, _instant, expected)
        return None if value is None else value.timestamp()

    def object(self, name: str) -> bytes:
        """An object as written; empty if it is not set or is something else."""
        value = self.raw(name)
        if value and not value.startswith(b"{"):
            self.fault(name, "must be an object")
            return b""
        return value

    def child(self, name: str) -> Members | None:
        """The members of an object within this one; ``None`` if it is not set or is something else."""
        value = self.object(name)
        if not value:
            return None
        path = f"{self._path}.{name}" if self._path else name
        return Members(json_names(_object.decode(value)), path, self.faults)

    def _read(self, name: str, decoder: msgspec.json.Decoder[Any], expected: str) -> Any:
        value = self._members.get(name, _NULL)
        if value == _NULL:
            return None
        try:
            return decoder.decode(value)
        except msgspec.DecodeError:
            self.fault(name, expected)
            return None
