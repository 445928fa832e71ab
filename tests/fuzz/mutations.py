"""Valid requests, spoilt: a JSON tree, what can be done to it, and how it is written.

A tree is plain Python data, but for ``Verbatim`` (bytes that are written as they are, JSON or not) and
``Pairs`` (an object whose keys may come twice).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import strategies as st


class Verbatim(bytes):
    """A value that is written as it is."""


class Pairs(list[tuple[str, Any]]):
    """The members of an object, in order, some perhaps twice."""


def written(tree: Any) -> bytes:
    """The tree as bytes."""
    if isinstance(tree, Verbatim):
        return bytes(tree)
    if isinstance(tree, Pairs):
        return b"{" + b",".join(written(k) + b":" + written(v) for k, v in tree) + b"}"
    if isinstance(tree, dict):
        return written(Pairs(cast("dict[str, Any]", tree).items()))
    if isinstance(tree, list):
        return b"[" + b",".join(map(written, cast("list[Any]", tree))) + b"]"
    return json.dumps(tree).encode()


#: Whole numbers, and what looks like numbers.
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 1.5, 5.0, -0.0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**64), 10**30, 1e308, 5e-324,
    *map(Verbatim, (
        b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1E400", b"1e-999", b"-0", b"01", b"1.",
        b"+1", b".5", b"0x10", b"1_000", b"9" * 400, b"-" + b"9" * 5_000, b"0." + b"1" * 400, b"1e5", b"5.0e0",
    )),
)  # fmt: skip

TEXTS: tuple[Any, ...] = (
    "", " ", "\0", "a\0b", "\n", "a\r\nb", "\u202eevil", "\ufeffx", "\u2028", "\x7f", "\u0085", "e\u0301",
    "\U0010ffff", "\U0001f600" * 40, "a" * 257, "a" * 70_000, "../../etc/passwd", "'; DROP TABLE x; --", "%00",
    "%s%n{0}${x}", "<script>", "null", "true", "2030-02-30T00:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00", "2030-01-01T00:00:00", "00-" + "0" * 32 + "-" + "0" * 16 + "-00", "/", ".",
    "a/b?c#d", "TASK_STATE_NOBODY", "ROLE_NOBODY", "urn:a2a-handoff:handoff:v1",
    *map(Verbatim, (
        b'"\\ud800"', b'"a\\udc00b"', b'"\\u0000"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\xc0\x80"',
        b'"\x00"', b'"\t"', b'"a\nb"', b'"\\x"', b'"\\u12"', b"'a'", b'"open',
    )),
)  # fmt: skip

OTHERS: tuple[Any, ...] = (
    None, True, False, [], {}, [None], [[]], [{}], [1, "a", None], {"": ""}, {"a": {}}, ["a"] * 200, [{}] * 200,
    {str(n): n for n in range(300)}, Pairs([("a", 1), ("a", 2)]),
    *map(Verbatim, (
        b"", b"undefined", b"truE", b"nul", b"{", b"]", b"{}}", b"[1,]", b'{"a":1,}', b"{a:1}", b"/**/1", b"{1:2}",
        b"[" * 30 + b"]" * 30, b"[" * 70 + b"]" * 70, b'{"a":' * 70 + b"1" + b"}" * 70,
        b"[" * 5_000 + b"]" * 5_000, b"[" * 100_000,
    )),
)  # fmt: skip

POISON: tuple[Any, ...] = (*NUMBERS, *TEXTS, *OTHERS)

poison = st.sampled_from(POISON)


@dataclass(frozen=True)
class _Place:
    """A value in a tree: its holder and its key there."""

    holder: Any
    key: Any

    @property
    def value(self) -> Any:
        return self.holder[self.key]


def _places(tree: Any) -> list[_Place]:
    found: list[_Place] = []
    keys: Sequence[Any] = ()
    if isinstance(tree, dict):
        keys = list(cast("dict[str, Any]", tree))
    elif isinstance(tree, list) and not isinstance(tree, Pairs):
        keys = range(len(cast("list[Any]", tree)))
    for key in keys:
        found.append(_Place(tree, key))
        found.extend(_places(tree[key]))
    return found


def _drop(place: _Place, _: Any) -> None:
    del place.holder[place.key]


def _replace(place: _Place, value: Any) -> None:
    place.holder[place.key] = value


def _in_list(place: _Place, _: Any) -> None:
    place.holder[place.key] = [place.value]


def _in_object(place: _Place, _: Any) -> None:
    place.holder[place.key] = {"value": place.value}


def _as_text(place: _Place, _: Any) -> None:
    place.holder[place.key] = Verbatim(json.dumps(written(place.value).decode(errors="replace")).encode())


def _twice(place: _Place, value: Any) -> None:
    """The holder with this key written twice: first with another value, or last."""
    if isinstance(place.value, dict):
        members = cast("dict[str, Any]", place.value)
        pairs = Pairs(members.items())
        if members:
            pairs.append((next(iter(members)), value))
        place.holder[place.key] = pairs
    elif isinstance(place.holder, list):
        place.holder.insert(place.key, place.value)


def _beside(place: _Place, value: Any) -> None:
    """One more member, under a name of another generation, of a proto, or of nobody."""
    if isinstance(place.value, dict):
        place.value["kind"] = value
        place.value["unknown"] = value


_OPERATIONS: tuple[Callable[[_Place, Any], None], ...] = (
    _drop, _replace, _replace, _replace, _replace, _in_list, _in_object, _as_text, _twice, _beside,
)  # fmt: skip


@dataclass(frozen=True)
class _Tree:
    """A valid tree, which a failed test need not show."""

    valid: Any

    def __repr__(self) -> str:
        return "..."


def spoilt(valid: Any, *, most: int = 3) -> st.SearchStrategy[bytes]:
    """A valid tree after one to ``most`` mutations, written."""
    return _spoilt(_Tree(valid), most)


@st.composite
def _spoilt(draw: st.DrawFn, tree: _Tree, most: int) -> bytes:
    root = {"": deepcopy(tree.valid)}
    for _ in range(draw(st.integers(1, most))):
        places = _places(root)
        if not places:
            break
        place = places[draw(st.integers(0, len(places) - 1))]
        draw(st.sampled_from(_OPERATIONS))(place, deepcopy(draw(poison)))
    return written(root.get("", Verbatim(b"")))


@st.composite
def mangled(draw: st.DrawFn, valid: bytes) -> bytes:
    """Bytes of a valid request, cut, flipped, doubled or with others put in between."""
    body = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(body) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                del body[at:]
            case 1 if body:
                body[at] ^= draw(st.integers(1, 255))
            case 2:
                body[at:at] = draw(st.binary(min_size=1, max_size=4))
            case _:
                body[at:at] = body[at : at + draw(st.integers(1, 40))]
    return bytes(body)
