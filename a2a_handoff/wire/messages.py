"""Reading a message that a caller sends.

Duty: make it A2A 1.0, check it, and say what routing needs of it.
Rules: one decode tells whether a message is sound, as most are; only then that it is not, its faults are
looked for one by one.
Source: A2A 1.0 sections 4.1.4 to 4.1.6.
Not here: converting it (``shapes``), the params around it (``requests``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Violation
from a2a_handoff.core.text import is_blank
from a2a_handoff.wire.fields import members_of
from a2a_handoff.wire.members import LIST_ITEMS_MAX, PARTS_MAX, Members, id_fault
from a2a_handoff.wire.protonames import message_names
from a2a_handoff.wire.shapes import content_id, fields_of, message_faults, message_in

_ROLES: Final = frozenset({"ROLE_USER", "ROLE_AGENT"})
_NULL: Final = Raw(b"null")
_NOTHING: Final = Raw(b"")


class Part(msgspec.Struct):
    """A part. An empty ``data`` or ``metadata`` is not there."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Raw = _NOTHING
    metadata: Raw = _NOTHING
    filename: str | None = None
    mediaType: str | None = None  # noqa: N815 - the wire's name

    @property
    def mode(self) -> str:
        """Its media type; empty for a file of unknown type."""
        if self.mediaType:
            return self.mediaType
        if self.text is not None:
            return "text/plain"
        return "" if self.data == _NOTHING else "application/json"

    @property
    def sound(self) -> bool:
        """Whether it holds exactly one content."""
        held = (self.text is not None) + (self.raw is not None) + (self.url is not None)
        return held + (self.data != _NOTHING) == 1 and _is_object(self.metadata)


class Message(msgspec.Struct):
    """A message, as far as the broker looks into it. Nulls are unset."""

    messageId: str | None = None  # noqa: N815
    contextId: str | None = None  # noqa: N815
    taskId: str | None = None  # noqa: N815
    role: str | None = None
    parts: list[Part] = []
    metadata: Raw = _NOTHING
    extensions: tuple[str, ...] | None = None
    referenceTaskIds: tuple[str, ...] | None = None  # noqa: N815

    @property
    def text(self) -> str:
        """The texts of its parts."""
        return "\n".join(part.text for part in self.parts if part.text is not None)

    @property
    def modes(self) -> tuple[str, ...]:
        """The media types of its parts, as far as they are known, each once."""
        return tuple(dict.fromkeys(mode for part in self.parts if (mode := part.mode)))

    @property
    def metadata_members(self) -> Mapping[str, Raw]:
        """The members of its metadata, as written."""
        return {} if self.metadata in (_NOTHING, _NULL) else members_of(self.metadata) or {}

    @property
    def sound(self) -> bool:
        """Whether there is nothing to find fault with."""
        return (
            not is_blank(self.messageId or "")
            and self.role in _ROLES
            and 0 < len(self.parts) <= PARTS_MAX
            and _is_object(self.metadata)
            and all(part.sound for part in self.parts)
            and not any(id_fault(name) for name in (self.messageId, self.contextId, self.taskId))
            and len(self.extensions or ()) <= LIST_ITEMS_MAX
            and len(self.referenceTaskIds or ()) <= LIST_ITEMS_MAX
        )


_messages = msgspec.json.Decoder(Message)


def read_message(fields: Members, alias: str, generation: Generation) -> tuple[bytes, Message]:
    """The member ``message`` as 1.0, written and read; its faults go to those of ``fields``.

    ``alias`` is the task id that a client of the first generation made: its messages have no id, and
    get one made of both.
    """
    written = fields.raw("message")
    if not written.startswith(b"{"):
        fields.fault("message", "must be an object" if written else "is required")
        return b"", Message()
    made = content_id(written, alias) if generation is Generation.V0_1 else ""
    canonical = message_in(written, generation, message_id=made)
    message = _read(canonical)
    if not message.sound and generation is Generation.V1_0:
        canonical = message_names(canonical)
        message = _read(canonical)
    if not message.sound:
        _find_faults(fields, canonical, generation)
    return canonical, message


def _read(canonical: bytes) -> Message:
    """The message; an empty one if a type is wrong."""
    try:
        return _messages.decode(canonical)
    except msgspec.ValidationError:
        return Message()


def faults_of(canonical: bytes, generation: Generation = Generation.V1_0) -> tuple[Violation, ...]:
    """What is wrong with a 1.0 message and its ids; paths are relative to it, named as in ``generation``."""
    ids = Members(fields_of(canonical), "", [])
    for name in ("messageId", "contextId", "taskId"):
        ids.id(name)
    return (*message_faults(canonical, generation), *ids.faults)


def _find_faults(fields: Members, canonical: bytes, generation: Generation) -> None:
    known = len(fields.faults)
    for fault in faults_of(canonical, generation):
        fields.fault(f"message.{fault.field}", fault.description)
    if len(fields.faults) == known:
        fields.fault("message", "is not a Message")


def _is_object(raw: Raw) -> bool:
    """Whether it is an object, null or not there."""
    return raw in (_NOTHING, _NULL) or memoryview(raw)[0] == ord("{")
