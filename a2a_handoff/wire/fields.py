"""Reading a JSON object of a stranger into a typed record, with every fault at its place.

Duty: the fast way if all types fit, else member by member, so that each wrong one leaves a ``Violation``.
Rules: nothing is coerced. ``null`` means absent. Values are not repeated in faults: they are a
stranger's.
Not here: what the members mean (``context``, ``directive``).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache, lru_cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw

from a2a_handoff.core.errors import Violation
from a2a_handoff.core.text import NAME_CHARS_MAX, name_fault

#: A point in time: RFC 3339 with an offset.
Instant = Annotated[datetime, msgspec.Meta(tz=True)]

#: Faults beyond these are not listed: the answer stays bounded.
FAULTS_MAX = 50

#: Any JSON value. Without the hook a number such as 1e308 takes a thousand times longer, so that one
#: body of them would hold up everybody.
decode_any = msgspec.json.Decoder(float_hook=float).decode

_NUMBER_CHARS = 40
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_Record = TypeVar("_Record")


def members_of(raw: Raw | bytes) -> dict[str, Raw] | None:
    """The members of a JSON object, each as it came; ``None`` if it is something else.

    Of members with one name the last counts (RFC 8259 section 4 leaves it open).
    """
    try:
        return _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_record(record: type[_Record], raw: Raw | bytes, path: str, faults: list[Violation]) -> _Record:
    """Read a JSON object at ``path`` into a struct whose fields all have defaults.

    Members that are absent, ``null`` or wrong keep the default; the wrong ones are added to
    ``faults``. Members that the record does not have are passed over.
    """
    try:
        return _decoder(record).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    members = members_of(raw)
    if members is None:
        add_fault(faults, path, "must be an object")
        return record()
    values: dict[str, Any] = {}
    for name, kind in _types(record).items():
        value = members.get(name)
        if value is None or bytes(value) == b"null":
            continue
        place = member_path(path, name)
        if _is_record(kind):
            values[name] = read_record(kind, value, place, faults)
            continue
        try:
            values[name] = _decoder(kind).decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            add_fault(faults, place, _expected(kind))
    return record(**values)


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def member_path(path: str, name: str) -> str:
    """The path of a member of the object at ``path``; empty is the whole body."""
    return f"{path}.{name}" if path else name


def add_fault(faults: list[Violation], path: str, description: str) -> None:
    """Note a fault, unless there are many already."""
    if len(faults) < FAULTS_MAX:
        faults.append(Violation(path, description))


def check_names(
    faults: list[Violation], path: str, values: str | tuple[str, ...], *, items_max: int = 1
) -> None:
    """Note what is no name: too long, of more than one line. In a list none may be empty."""
    if isinstance(values, str):
        if values and (fault := name_fault(values)):
            add_fault(faults, path, fault)
        return
    if len(values) > items_max:
        add_fault(faults, path, f"must have at most {items_max} items")
    for index, value in enumerate(values[:items_max]):
        if fault := name_fault(value) if value else "is empty":
            add_fault(faults, f"{path}[{index}]", fault)


def unknown_members(record: type[object], raw: Raw | bytes) -> list[str]:
    """Names of the members that ``record`` does not have, shortened."""
    known = _types(record)
    return [name[:NAME_CHARS_MAX] for name in members_of(raw) or {} if name not in known]


def write_instant(at: float) -> str:
    """Epoch seconds as RFC 3339 in UTC with milliseconds (A2A 1.0 section 5.6.1)."""
    seconds, micros = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_second(seconds)}.{micros // 1_000:03d}Z"


@lru_cache(maxsize=256)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().removesuffix("+00:00")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@cache
def _types(record: type[object]) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


@cache
def _expected(kind: Any) -> str:
    """What a member of this type must be, in words."""
    optional = [each for each in get_args(kind) if each is not type(None)]
    if type(None) in get_args(kind) and len(optional) == 1:
        return _expected(optional[0])
    if kind == Instant:
        return "must be a date and time of RFC 3339 with an offset, such as 2030-01-31T12:00:00Z"
    if get_origin(kind) is Annotated:
        base, meta = get_args(kind)
        what = "an integer" if meta.multiple_of == 1 else "a number"
        return f"must be {what} from {meta.ge:g} to {meta.le:g}" if base is float else _expected(base)
    if get_origin(kind) is tuple:
        return "must be a list of strings"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"must be one of {', '.join(kind)}"
    if kind is str:
        return "must be a string"
    return "must be true or false" if kind is bool else "must be a number"


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
    return _known(number) if len(number) <= _NUMBER_CHARS else _digits(number)


def _digits(number: str) -> tuple[object, ...]:
    try:
        sign, digits, exponent = Decimal(number).as_tuple()
    except ArithmeticError:
        return (number,)
    significant = "".join(map(str, digits)).lstrip("0")
    stripped = significant.rstrip("0")
    if not stripped or not isinstance(exponent, int):
        return (0, stripped, exponent if stripped else 0)
    return (sign, stripped, exponent + len(significant) - len(stripped))


_known = lru_cache(maxsize=4_096)(_digits)
