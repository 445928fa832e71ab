"""Core values to bytes and back, the same for every store.

Duty: MessagePack of events, handoffs, agents and webhooks. The type of an event stands beside its body, in a
column of its own.
Rules: fields are written by name, so that a field may be added with a default and old logs still read.
A field or an event that was once written is never renamed. A field at its default is not written (all
kept structs say ``omit_defaults``), so a default is never changed either; ``Policy`` is written whole,
because its defaults are ours to change.
The previous release reads what is written here, and the other way round (docs/how-to/make-a-release.md).
Not here: which columns a store keeps beside the bytes.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args

import msgspec

from a2a_handoff.core.agents import Agent
from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import StoreUnavailable, Webhook

_T = TypeVar("_T")

_encoder = msgspec.msgpack.Encoder()
_events: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in get_args(Event)
}
_handoff = msgspec.msgpack.Decoder(Handoff)
_agent = msgspec.msgpack.Decoder(Agent)
_webhook = msgspec.msgpack.Decoder(Webhook)


def encode_event(event: Event) -> tuple[str, bytes]:
    """The type and the body of an event. Raises ``UnicodeEncodeError`` on half a surrogate pair."""
    return type(event).__name__, _encoder.encode(event)


def decode_event(kind: str, body: bytes) -> Event:
    """Read an event back. Raises ``StoreUnavailable`` if this version cannot understand it."""
    decoder = _events.get(kind)
    if decoder is None:
        raise StoreUnavailable(f"The log holds an event {kind!r} of a newer version: upgrade a2a-handoff.")
    return _read(decoder, body, kind)


def encode_handoff(handoff: Handoff) -> bytes:
    """The snapshot of a handoff. Raises ``UnicodeEncodeError`` on half a surrogate pair."""
    return _encoder.encode(handoff)


def decode_handoff(body: bytes) -> Handoff:
    """Read a snapshot back. Raises ``StoreUnavailable`` if it is damaged."""
    return _read(_handoff, body, "Handoff")


def encode_agent(agent: Agent) -> bytes:
    """A registration. Raises ``UnicodeEncodeError`` on half a surrogate pair."""
    return _encoder.encode(agent)


def decode_agent(body: bytes) -> Agent:
    """Read a registration back. Raises ``StoreUnavailable`` if it is damaged."""
    return _read(_agent, body, "Agent")


def encode_webhook(webhook: Webhook) -> bytes:
    """A webhook. Raises ``UnicodeEncodeError`` on half a surrogate pair."""
    return _encoder.encode(webhook)


def decode_webhook(body: bytes) -> Webhook:
    """Read a webhook back. Raises ``StoreUnavailable`` if it is damaged."""
    return _read(_webhook, body, "Webhook")


def _read(decoder: msgspec.msgpack.Decoder[_T], body: bytes, kind: str) -> _T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(
            f"A stored {kind} cannot be read ({error}): restore a backup, or upgrade a2a-handoff."
        ) from error
