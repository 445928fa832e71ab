"""Which signatures of cards are worth something.

Duty: ``ports.CardVerifier``: match each signature of a card with a key that the operator trusts, and verify.
Rules: one good signature is enough. The key is one of the operator's file by its ``kid``, or of the address
in ``jku`` if the operator lists it; an address that only the card names is never called. A card that a known
key signed and that does not fit is refused; a key that is not known makes nothing bad and nothing good.
Sources: A2A 1.0 section 8.4.3.
Not here: what a signature is over (``wire.signatures``), keys (``security``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from a2a_handoff.core.agents import Signature, Trust
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.ports import Clock
from a2a_handoff.wire.signatures import CardSignature, Payload, SignatureFault, payloads, signatures_of

if TYPE_CHECKING:
    from joserfc.jwk import Key

    from a2a_handoff.security.keyring import PublicKeys

#: Where a verified key came from if it is one of the operator's file.
FROM_FILE = "card_keys"


class CardJudge:
    """``ports.CardVerifier``. ``required``: cards without a verified signature are refused.

    ``keys`` are those of the operator's file, ``key_sets`` those of the addresses that may be asked.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        required: bool = False,
        keys: PublicKeys | None = None,
        key_sets: Mapping[str, PublicKeys] | None = None,
    ) -> None:
        self.required = required
        self._clock = clock
        self._keys = keys
        self._key_sets = key_sets or {}

    async def close(self) -> None:
        """Stop reading keys."""
        for keys in (*filter(None, (self._keys,)), *self._key_sets.values()):
            await keys.close()

    async def verify(self, card: bytes) -> Signature:
        """What the signatures of a card are worth.

        Raises ``HandoffError`` (``invalid_agent``) with the place of each fault.
        """
        try:
            found = signatures_of(card)
        except SignatureFault as fault:
            if not fault.path:
                return Signature()  # it is no card at all, which whoever reads it will say
            raise _refused([fault]) from None
        if not found:
            if self.required:
                raise _refused([SignatureFault("signatures", "is missing: only signed cards are taken here")])
            return Signature(trust=Trust.UNSIGNED)
        bad = [each for each in found if isinstance(each, SignatureFault)]
        unknown: list[SignatureFault] = []
        bodies: list[Payload] | None = None
        for signature in found:
            if isinstance(signature, SignatureFault):
                continue
            key, why = await self._key_of(signature)
            if key is None:
                unknown.append(SignatureFault(signature.path, f"its key {signature.key_id!r} {why}"))
                continue
            try:
                # In a thread: the first time loads the SDK, which takes a second.
                bodies = bodies or await asyncio.to_thread(_payloads_of, card)
            except SignatureFault as fault:
                bad.append(SignatureFault(signature.path, f"cannot be verified: the card {fault.message}"))
                break
            payload = _fitting(signature, key, bodies)
            if payload is not None:
                return Signature(
                    trust=Trust.VERIFIED, key_id=signature.key_id, key_from=why, partial=payload.partial
                )
            text = (
                f"does not fit: the key {signature.key_id!r} did not sign this card, or it was changed since"
            )
            bad.append(SignatureFault(signature.path, text))
        if bad or self.required:
            raise _refused([*bad, *unknown])
        return Signature(trust=Trust.UNVERIFIED, detail="; ".join(map(str, unknown)))

    async def _key_of(self, signature: CardSignature) -> tuple[Key | None, str]:
        """The key of a signature and where it came from; without one why there is none."""
        places = [(FROM_FILE, self._keys)] if self._keys is not None else []
        if signature.key_url:
            if signature.key_url in self._key_sets:
                places.append((signature.key_url, self._key_sets[signature.key_url]))
            elif not places:
                return None, "is of a key set whose address is not on the list"
        why = "is not one that this broker knows"
        for place, keys in places:
            try:
                key = await keys.find(signature.key_id)
            except HandoffError:
                why = "is not known: its key set cannot be had now"
                continue
            if key is not None:
                fault = _fault_of(key, self._clock.now())
                return (None, fault) if fault else (key, place)
        return None, why


def _fault_of(key: Key, now: float) -> str:
    from a2a_handoff.security.card_keys import fault_of  # noqa: PLC0415 - needs the extra, as all keys do

    return fault_of(key, now)


def _payloads_of(card: bytes) -> list[Payload]:
    return list(payloads(card))


def _fitting(signature: CardSignature, key: Key, bodies: Iterable[Payload]) -> Payload | None:
    """The payload that the key signed."""
    from a2a_handoff.security.card_keys import verifies  # noqa: PLC0415 - needs the extra, as all keys do

    for payload in bodies:
        if verifies(key, signature.algorithm, signature.signed(payload.body), signature.signature):
            return payload
    return None


def _refused(faults: Iterable[SignatureFault]) -> HandoffError:
    return HandoffError(
        Code.INVALID_AGENT,
        violations=tuple(Violation(f"card.{fault.path}", fault.message) for fault in faults),
    )
