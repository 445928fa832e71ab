"""Cursors: where a reader is, opaque to it.

Duty: from what a cursor says to the text that a caller keeps, and back: for listings as bytes, for an inbox,
its broadcasts and the log whole.
Rules: a cursor says for whom it was made and by which store (``epoch``); whether it still means anything
is for its maker to judge. What cannot be read is refused at its field.
Not here: what the cursor of a listing says (``requests``, ``native.views``).
"""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Annotated

import msgspec

from a2a_handoff.core.errors import Code, HandoffError, Violation

#: Stores hold no larger number.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_TEXT_MAX = 2_000


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """``owner`` is for whom it was made, ``position`` up to where broadcasts were read.

    ``shown`` are offers (see ``mark``), the newest last. ``log`` is up to where the log was told,
    ``None`` if it never was.
    """

    epoch: _Count
    owner: _Count
    position: _Count = 0
    shown: tuple[_Count, ...] = ()
    log: _Count | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Cursor)


def seal(body: bytes) -> str:
    """The text of a cursor: URL-safe base64 without padding (RFC 4648 section 5)."""
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def unseal(text: str) -> bytes:
    """What ``seal`` was given. Raises ``ValueError`` for what it did not write."""
    if len(text) > _TEXT_MAX:
        raise ValueError(text[:1])
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)


def mark(*names: str) -> int:
    """48 bits that stand for these names, in every process alike."""
    return int.from_bytes(blake2b("\0".join(names).encode(), digest_size=6).digest())


def written(cursor: Cursor) -> str:
    """The text of a cursor."""
    return seal(_encoder.encode(cursor))


def read_cursor(text: str, field: str = "after") -> Cursor:
    """What ``written`` wrote. Raises ``HandoffError`` (``invalid_params``) at ``field`` for anything else."""
    try:
        return _decoder.decode(unseal(text))
    except (ValueError, msgspec.DecodeError):  # binascii.Error is a ValueError
        raise HandoffError(
            Code.INVALID_PARAMS,
            "That is no cursor that an answer gave. Start again without one.",
            violations=(Violation(field, "is not a cursor that an answer gave"),),
        ) from None
