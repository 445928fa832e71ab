"""Reading the values of a stranger's JSON object, with every fault at its place.

Duty: one method for each kind of value; what is harmless is normalised with a warning, what is wrong
is an error.
Not here: what the values mean (``card_reader``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from a2a_handoff.core.text import name_fault, prose_fault

LIST_MAX = 100
TEXT_MAX = 8_192
FINDINGS_MAX = 100
_NUMBER_MAX = 1_000_000_000


class Severity(StrEnum):
    """How bad a finding is.

    ``error``: the card is refused. ``warning``: it is accepted as it was understood. ``hint``: what the
    broker makes of it, or what might be better.
    """

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a card. ``path`` is such as ``skills[0].tags``; empty: all of it."""

    path: str
    message: str
    severity: Severity


class ValueReader:
    """Reads values and collects what is wrong with them. A wrong value reads as nothing."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def error(self, path: str, message: str) -> None:
        """Note what makes the card useless."""
        self._note(Finding(path, message, Severity.ERROR))

    def warn(self, path: str, message: str) -> None:
        """Note what was understood all the same."""
        self._note(Finding(path, message, Severity.WARNING))

    def _note(self, finding: Finding) -> None:
        """The list stays bounded, and many warnings never crowd out an error."""
        if sum(known.severity is finding.severity for known in self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def failed(self, path: str) -> bool:
        """Whether there is an error at ``path``."""
        return any(f.path == path and f.severity is Severity.ERROR for f in self.findings)

    def members(self, owner: dict[str, Any], name: str, path: str) -> dict[str, Any]:
        """A member that is an object; ``null`` is an empty one."""
        key, value = member(owner, name)
        return self.is_object({} if value is None else value, joined(path, key))

    def is_object(self, value: Any, path: str) -> dict[str, Any]:
        """``value`` if it is an object, else an empty one."""
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self.error(path, "must be an object")
        return {}

    def items(self, owner: dict[str, Any], name: str, path: str, *, most: int = LIST_MAX) -> list[Any]:
        """A member that is a list, at most ``most`` entries of it."""
        key, value = member(owner, name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.error(joined(path, key), "must be a list")
            return []
        found = cast("list[Any]", value)
        if len(found) > most:
            self.error(joined(path, key), f"has {len(found)} entries, at most {most} are taken")
        return found[:most]

    def text(self, owner: dict[str, Any], name: str, path: str, *, most: int = TEXT_MAX) -> str:
        """A member that is text."""
        key, value = member(owner, name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.error(joined(path, key), "must be text")
            return ""
        if len(value) > most:
            self.error(joined(path, key), f"is longer than {most} characters")
            return ""
        return value

    def prose(self, owner: dict[str, Any], name: str, path: str) -> str:
        """A member that people read: text that shows what it says."""
        text = self.text(owner, name, path)
        if fault := prose_fault(text):
            self.error(joined(path, member(owner, name)[0]), fault)
            return ""
        return text

    def name(self, owner: dict[str, Any], name: str, path: str) -> str:
        """A member that is a name: one line, not too long."""
        key, _ = member(owner, name)
        text = self.text(owner, name, path).strip()
        return text if not text or self.is_name(text, joined(path, key)) else ""

    def is_name(self, text: str, path: str) -> bool:
        """Whether a text can be a name."""
        fault = name_fault(text.strip()) if text.strip() else "is blank"
        if fault:
            self.error(path, fault)
        return not fault

    def names(self, owner: dict[str, Any], name: str, path: str) -> tuple[str, ...]:
        """A list of names; ``null`` is none, a single text is one."""
        key, value = member(owner, name)
        path = joined(path, key)
        if isinstance(value, str):
            self.warn(path, "should be a list")
            return (value.strip(),) if value.strip() and self.is_name(value, path) else ()
        found: list[str] = []
        for index, item in enumerate(self.items({key: value}, key, path.rpartition(".")[0])):
            if item is None or (isinstance(item, str) and not item.strip()):
                self.warn(f"{path}[{index}]", "is empty")
            elif not isinstance(item, str):
                self.error(f"{path}[{index}]", "must be text")
            elif self.is_name(item, f"{path}[{index}]"):
                found.append(item.strip())
        return tuple(dict.fromkeys(found))

    def flag(self, owner: dict[str, Any], name: str, path: str) -> bool:
        """A member that is true or false."""
        key, value = member(owner, name)
        if value is not None and not isinstance(value, bool):
            self.error(joined(path, key), "must be true or false")
        return value is True

    def number(
        self, owner: dict[str, Any], name: str, path: str, *, least: float, whole: bool = False
    ) -> float | None:
        """A member that is a number in its bounds."""
        key, value = member(owner, name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or (whole and value % 1):
            self.error(joined(path, key), f"must be a {'whole ' if whole else ''}number")
            return None
        if not least <= value <= _NUMBER_MAX:
            self.error(joined(path, key), f"must be between {least:g} and {_NUMBER_MAX}")
            return None
        return float(value)

    def count(self, owner: dict[str, Any], name: str, path: str) -> int | None:
        """A member that is a whole number from 1."""
        number = self.number(owner, name, path, least=1, whole=True)
        return None if number is None else int(number)


def member(owner: Mapping[str, Any], name: str) -> tuple[str, Any]:
    """A member by its JSON name or its snake_case one (ProtoJSON), and the name it was found by."""
    if name in owner:
        return name, owner[name]
    snake = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
    return (snake, owner[snake]) if snake in owner else (name, None)


def joined(path: str, name: str) -> str:
    """The path of a member."""
    return f"{path}.{name}" if path else name
