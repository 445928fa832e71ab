"""Whether two requests, or two answers, say the same.

Duty: tell a repeat of a request from another one under the same id, and give a message another id; tell
what an agent said before, however it writes it now. Key order, white space and the trace headers do not
count: a retry has other spans and may be written by another JSON library.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.context import CONTEXT_KEY, EXTENSION_URI
from a2a_handoff.wire.fields import decode_any, members_of, same_json
from a2a_handoff.wire.shapes import fields_of, pack

#: To read more of what a stranger wrote would hold up everybody.
_READ_BYTES_MAX: Final = 1_048_576

#: With more than a piece of this size hashlib lets other threads have the interpreter meanwhile. To get it
#: back takes longer than to hash a usual message.
_PIECE: Final = 2_047
_AT_ONCE_FROM: Final = 65_536


def digest_of(message: bytes, metadata: bytes) -> str:
    """A quick fingerprint of the bytes as they came. Equal fingerprints are equal content."""
    content = message + b"\0" + metadata
    if len(content) > _AT_ONCE_FROM:
        return hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256()
    for start in range(0, len(content), _PIECE):
        digest.update(content[start : start + _PIECE])
    return digest.hexdigest()


def same_content(message: bytes, metadata: bytes, other_message: bytes, other_metadata: bytes) -> bool:
    """Whether two requests have the same content, however they are written.

    What is written otherwise and is longer than 1 MB altogether counts as different.
    """
    one, other = _content(message, metadata), _content(other_message, other_metadata)
    if one.keys() != other.keys():
        return False
    unlike = [(bytes(value), bytes(other[path])) for path, value in one.items() if value != other[path]]
    if sum(len(value) + len(its) for value, its in unlike) > _READ_BYTES_MAX:
        return False
    return all(same_json(value, its) for value, its in unlike)


def canonical(body: bytes) -> bytes:
    """JSON in one way of writing: equal for what says the same. Over 1 MB it is left as it is."""
    if len(body) > _READ_BYTES_MAX:
        return body
    return msgspec.json.encode(decode_any(body), order="sorted")


def under_id(message: bytes, message_id: str) -> bytes:
    """The message under another id."""
    return pack({**fields_of(message), "messageId": message_id})


def _content(message: bytes, metadata: bytes) -> dict[tuple[str, ...], Raw]:
    """The members of a request by their paths, as written: three deep where a package stands."""
    found: dict[tuple[str, ...], Raw] = {
        ("message", name): value for name, value in (members_of(message) or {}).items()
    }
    beside = found.pop(("message", "metadata"), Raw(b"{}"))
    for path, holder in ((("message", "metadata"), beside), (("metadata",), metadata or b"{}")):
        for name, value in (members_of(holder) or {}).items():
            package = members_of(value) if name in (CONTEXT_KEY, EXTENSION_URI) else None
            if package is None:
                found[(*path, name)] = value
                continue
            found |= {(*path, name, inner): part for inner, part in package.items() if inner != "traceparent"}
    return found
