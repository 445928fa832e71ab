"""Whether two requests, or two answers, say the same.

Duty: tell a repeat of a request from another one under the same id, and give a message another id; tell
what an agent said before, however it writes it now. Key order, white space and the trace headers do not
count: a retry has other spans and may be written by another JSON library.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

import msgspec

from a2a_handoff.core.context import CONTEXT_KEY, EXTENSION_URI
from a2a_handoff.wire.fields import decode_any
from a2a_handoff.wire.shapes import fields_of, pack


def digest_of(message: bytes, metadata: bytes) -> str:
    """A quick fingerprint of the bytes as they came. Equal fingerprints are equal content."""
    return hashlib.sha256(message + b"\0" + metadata).hexdigest()


def same_content(message: bytes, metadata: bytes, other_message: bytes, other_metadata: bytes) -> bool:
    """Whether two requests have the same content, however they are written."""
    return _content(message, metadata) == _content(other_message, other_metadata)


def canonical(body: bytes) -> bytes:
    """JSON in one way of writing: equal for what says the same."""
    return msgspec.json.encode(decode_any(body), order="sorted")


def under_id(message: bytes, message_id: str) -> bytes:
    """The message under another id."""
    return pack({**fields_of(message), "messageId": message_id})


def _content(message: bytes, metadata: bytes) -> tuple[Any, Any]:
    said: Any = decode_any(message)
    beside: Any = decode_any(metadata) if metadata else {}
    for holder in (_member(said, "metadata"), beside):
        for name in (CONTEXT_KEY, EXTENSION_URI):
            package = _member(holder, name)
            if isinstance(package, dict):
                cast("dict[str, Any]", package).pop("traceparent", None)
    return said, beside


def _member(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
