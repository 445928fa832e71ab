"""The signatures of an AgentCard: what they say, and which bytes they are over.

Duty: read the signatures of a card within bounds; the payloads that a signature may be over; what is left of
a card if only the fields of A2A 1.0 count; sign a card of our own.
Rules: everything is made from the card as it came. Writers of the specification and of its SDKs do not agree
on the payload (A2A issue 2122), so there are three: the card as it was published; with default values
removed as section 8.4.1 says; and as the SDKs have it, which pass over fields that they do not know and drop
whatever is empty. A signature over the last one says nothing about the other fields: whoever trusts it must
read ``known_fields`` alone. Our own cards have two signatures, so that both camps can verify them. Names that
stand twice have no canonical form (RFC 8785 section 3.1), so such a card has no payload.
Sources: A2A 1.0 sections 4.4.7 and 8.4, RFC 7515 (JWS), RFC 8785 (JCS).
Not here: keys, algorithms and trust (``security.keys``, ``client.card_judge``).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from a2a_handoff.core.text import name_fault

SIGNATURES_MAX = 8
_HEADER_CHARS_MAX = 4_096
_SIGNATURE_CHARS_MAX = 2_048
_URL_CHARS_MAX = 2_048
_SIGNED_MAX = 128

#: Header parameters that change what is signed or how it is to be read (RFC 7515 section 4.1.11, RFC 7797).
_NOT_UNDERSTOOD = ("crit", "b64")


#: How the schema says that a field is required (AIP-203).
_BEHAVIOUR = "google.api.field_behavior"
_REQUIRED = 2


class SignatureFault(ValueError):
    """A signature that cannot be read. ``path`` is within the card, such as ``signatures[0].protected``."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{path}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSignature:
    """One signature, opened but not verified. ``path`` is where it stands, ``protected`` as it came."""

    path: str
    protected: str
    signature: bytes
    algorithm: str
    key_id: str
    key_url: str = ""

    def signed(self, payload: bytes) -> bytes:
        """What is signed if the payload is this one (RFC 7515 section 5.1)."""
        return f"{self.protected}.{encode(payload)}".encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Bytes that a signature may be over. ``partial``: fields that the SDKs do not know are not in it."""

    body: bytes
    partial: bool = False


def signatures_of(card: bytes) -> list[CardSignature | SignatureFault]:
    """The signatures of a card in their order, and a fault for each that cannot be read.

    Empty if there are none. Raises ``SignatureFault`` if the list itself is wrong.
    """
    listed = _members(card).get("signatures")
    if listed is None or listed == []:
        return []
    if not isinstance(listed, list):
        raise SignatureFault("signatures", "must be a list")
    items = cast("list[Any]", listed)
    if len(items) > SIGNATURES_MAX:
        raise SignatureFault("signatures", f"has {len(items)} entries, at most {SIGNATURES_MAX} are taken")
    found: list[CardSignature | SignatureFault] = []
    for index, item in enumerate(items):
        try:
            found.append(_signature(item, f"signatures[{index}]"))
        except SignatureFault as fault:
            found.append(fault)
    return found


def payloads(card: bytes) -> Iterator[Payload]:
    """The payloads of a card, the whole ones first. Raises ``SignatureFault`` if it has none."""
    members = _members(card)
    members.pop("signatures", None)
    seen = {published := canonical(members)}
    yield Payload(body=published)
    for payload in _payloads_to_sign(card, members):
        if payload.body not in seen:
            seen.add(payload.body)
            yield payload


def _payloads_to_sign(card: bytes, members: dict[str, Any]) -> Iterator[Payload]:
    """As section 8.4.1 has it, and as the SDKs do."""
    yield Payload(body=canonical(_without_defaults(members)))
    known = _known(card)
    if known is not None:
        yield Payload(body=canonical(_without_empty(known) or {}), partial=True)


def known_fields(card: bytes) -> bytes:
    """The card as the SDKs read it: without the fields that they do not know."""
    known = _known(card)
    return b"{}" if known is None else json.dumps(known).encode()


def canonical(value: Any) -> bytes:
    """A value in the form of RFC 8785. Raises ``SignatureFault`` if it has none."""
    import rfc8785  # noqa: PLC0415 - comes with the extra for signatures

    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError):
        raise SignatureFault("", "has no canonical form: a number or a text that JSON cannot hold") from None


def encode(data: bytes) -> str:
    """Base64url without padding (RFC 7515 section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    """Raises ``ValueError`` for anything but the one way to write it."""
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if encode(data) != text:
        raise ValueError
    return data


class CardSigner:
    """Signs the broker's cards. ``sign`` makes the signature of bytes; the rest names its key."""

    def __init__(
        self, sign: Callable[[bytes], bytes], *, algorithm: str, key_id: str, key_url: str = ""
    ) -> None:
        header = {"alg": algorithm, "typ": "JOSE", "kid": key_id} | ({"jku": key_url} if key_url else {})
        self._protected = encode(json.dumps(header, separators=(",", ":")).encode())
        self._sign = sign
        self.signed = lru_cache(maxsize=_SIGNED_MAX)(self._signed)
        """A card with its signatures; the same bytes for the same card, as long as it is remembered."""

    def _signed(self, card: bytes) -> bytes:
        bodies = {payload.body: None for payload in _payloads_to_sign(card, _members(card))}
        signatures = [
            {
                "protected": self._protected,
                "signature": encode(self._sign(f"{self._protected}.{encode(body)}".encode("ascii"))),
            }
            for body in reversed(bodies)
        ]
        return b'%b,"signatures":%b}' % (card.rstrip()[:-1], json.dumps(signatures).encode())


# --- reading -------------------------------------------------------------------------------------


def _signature(item: Any, path: str) -> CardSignature:
    if not isinstance(item, dict):
        raise SignatureFault(path, "must be an object")
    fields = cast("dict[str, Any]", item)
    protected = _text(fields.get("protected"), f"{path}.protected", _HEADER_CHARS_MAX)
    value = _text(fields.get("signature"), f"{path}.signature", _SIGNATURE_CHARS_MAX)
    try:
        header: Any = json.loads(_decode(protected), object_pairs_hook=_unique)
    except (ValueError, binascii.Error, RecursionError):
        raise SignatureFault(f"{path}.protected", "is not a base64url-encoded JSON object") from None
    if not isinstance(header, dict):
        raise SignatureFault(f"{path}.protected", "is not a base64url-encoded JSON object")
    named = cast("dict[str, Any]", header)
    for name in _NOT_UNDERSTOOD:
        if name in named:
            raise SignatureFault(f"{path}.protected", f"has the parameter {name}, which is not understood")
    try:
        signature = _decode(value)
    except (ValueError, binascii.Error):
        raise SignatureFault(f"{path}.signature", "is not base64url") from None
    key_id = _text(named.get("kid"), f"{path}.protected kid", _URL_CHARS_MAX)
    if fault := name_fault(key_id):
        raise SignatureFault(f"{path}.protected kid", fault)
    key_url = named.get("jku")
    return CardSignature(
        path=path,
        protected=protected,
        signature=signature,
        algorithm=_text(named.get("alg"), f"{path}.protected alg", 32),
        key_id=key_id,
        key_url="" if key_url is None else _text(key_url, f"{path}.protected jku", _URL_CHARS_MAX),
    )


def _text(value: Any, path: str, most: int) -> str:
    if value is None:
        raise SignatureFault(path, "is missing")
    if not isinstance(value, str) or not value:
        raise SignatureFault(path, "must be text")
    if len(value) > most:
        raise SignatureFault(path, f"is longer than {most} characters")
    return value


def _members(card: bytes) -> dict[str, Any]:
    """A new copy of the card's JSON."""
    try:
        document: Any = json.loads(card, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        told = str(error) if isinstance(error, _Twice) else "is not JSON"
        raise SignatureFault("", told) from None
    if not isinstance(document, dict):
        raise SignatureFault("", "must be a JSON object")
    return cast("dict[str, Any]", document)


class _Twice(ValueError):
    """A name that stands twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _Twice("uses a name twice in one object, so it has no canonical form")
    return members


def _no_constant(name: str) -> None:
    raise ValueError(name)


# --- payloads ------------------------------------------------------------------------------------


def _known(card: bytes) -> dict[str, Any] | None:
    """The card as the SDK takes it, without signatures; ``None`` if the SDK does not take it."""
    from a2a.client.card_resolver import parse_agent_card  # noqa: PLC0415 - costs a second, and is rarely needed
    from google.protobuf.json_format import MessageToDict, ParseError  # noqa: PLC0415

    try:
        known = MessageToDict(parse_agent_card(_members(card)))
    except (ParseError, ValueError, TypeError, AttributeError):
        return None
    known.pop("signatures", None)
    return known


def _without_empty(value: Any) -> Any:
    """What the SDKs do to a card before they sign it: empty text, lists and objects are dropped."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        kept = {name: left for name, each in members.items() if (left := _without_empty(each)) is not None}
        return kept or None
    if isinstance(value, list):
        items = [left for each in cast("list[Any]", value) if (left := _without_empty(each)) is not None]
        return items or None
    return None if value == "" else value


def _without_defaults(members: Mapping[str, Any]) -> dict[str, Any]:
    """Section 8.4.1: default values go, but for fields that are required or marked optional."""
    from a2a.types import AgentCard  # noqa: PLC0415 - costs a second, and is rarely needed

    return _message_without_defaults(members, AgentCard.DESCRIPTOR)


def _message_without_defaults(members: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    fields = {name: field for field in kind.fields for name in (field.json_name, field.name)}
    kept: dict[str, Any] = {}
    for name, value in members.items():
        field = fields.get(name)
        if field is None:
            kept[name] = value
            continue
        inner = _value_without_defaults(value, field)
        default = inner is None or (not field.has_presence and inner in ("", 0, False, [], {}))
        if not default or (inner is not None and _is_required(field)):
            kept[field.json_name] = inner
    return kept


def _value_without_defaults(value: Any, field: Any) -> Any:
    kind = field.message_type
    if kind is None or kind.full_name.startswith("google.protobuf."):
        return value
    if kind.GetOptions().map_entry:
        entry = kind.fields_by_name["value"]
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {name: _value_without_defaults(each, entry) for name, each in members.items()}
        return value
    if isinstance(value, list):
        return [_one_without_defaults(each, kind) for each in cast("list[Any]", value)]
    return _one_without_defaults(value, kind)


def _one_without_defaults(value: Any, kind: Any) -> Any:
    if isinstance(value, dict):
        return _message_without_defaults(cast("dict[str, Any]", value), kind)
    return value


def _is_required(field: Any) -> bool:
    """Whether the schema marks a field with ``google.api.field_behavior``."""
    options: Any = field.GetOptions().ListFields()
    return any(option.full_name == _BEHAVIOUR and _REQUIRED in values for option, values in options)
