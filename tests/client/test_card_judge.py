"""Which signatures of cards are worth something."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from joserfc.jwk import ECKey, OKPKey, RSAKey

from a2a_handoff.client.card_judge import CardJudge
from a2a_handoff.clock import SystemClock
from a2a_handoff.core.agents import Signature, Trust
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.security.keyring import PublicKeys
from tests.support.agents import card
from tests.support.signing import Signer, b64, key_set

CARD = card("http://a/", speaks=True, skills=("bill",))
CLOCK = SystemClock()


def keys(document: Any) -> PublicKeys:
    async def source() -> bytes:
        if document is None:
            raise OSError("away")
        return json.dumps(document).encode()

    return PublicKeys(source, monotonic=CLOCK.monotonic, named="test")


def judge(
    *known: Signer, required: bool = False, sets: dict[str, Any] | None = None
) -> Callable[[Any], Signature]:
    """Judges a card by the keys of some, and of key sets by address."""

    def verify(document: Any) -> Signature:
        async def run() -> Signature:
            own = keys(key_set(*known)) if known else None
            others = {url: keys(each) for url, each in (sets or {}).items()}
            found = CardJudge(CLOCK, required=required, keys=own, key_sets=others)
            raw = document if isinstance(document, bytes) else json.dumps(document).encode()
            try:
                return await found.verify(raw)
            finally:
                await found.close()

        return asyncio.run(run())

    return verify


def refusal(verify: Callable[[Any], Signature], document: Any) -> list[tuple[str, str]]:
    with pytest.raises(HandoffError) as caught:
        verify(document)
    assert caught.value.code is Code.INVALID_AGENT
    return [(each.field, each.description) for each in caught.value.violations]


# --- good ones -----------------------------------------------------------------------------------


def test_a_card_that_a_known_key_signed_is_verified() -> None:
    signer = Signer()
    assert judge(signer)(signer.signed(CARD)) == Signature(
        trust=Trust.VERIFIED, key_id="k1", key_from="card_keys"
    )


def test_how_the_card_is_written_does_not_matter() -> None:
    signer = Signer()
    signed = signer.signed(CARD)
    written = json.dumps(dict(reversed(signed.items())), indent=3, ensure_ascii=True).encode()
    assert judge(signer)(written).trust is Trust.VERIFIED


def test_a_card_that_the_sdk_signed_is_verified_but_for_the_fields_that_the_sdk_does_not_know() -> None:
    signer = Signer()
    signed = signer.signed_by_the_sdk(CARD)
    assert judge(signer)(signed).trust is Trust.VERIFIED
    tampered = signed | {"mine": 1, "url": "http://evil/"}
    found = judge(signer)(tampered)
    assert (found.trust, found.partial) == (Trust.VERIFIED, True)


@pytest.mark.parametrize(
    "signer",
    [
        Signer(algorithm="ES384", key=ECKey.generate_key("P-384")),
        Signer(algorithm="RS256", key=RSAKey.generate_key(2048)),
        Signer(algorithm="PS512", key=RSAKey.generate_key(2048)),
        Signer(algorithm="Ed25519", key=OKPKey.generate_key("Ed25519")),
    ],
    ids=lambda signer: signer.algorithm,
)
def test_the_usual_algorithms_are_taken(signer: Signer) -> None:
    assert judge(signer)(signer.signed(CARD)).trust is Trust.VERIFIED


def test_ed25519_may_be_called_eddsa() -> None:
    signer = Signer(algorithm="Ed25519", key=OKPKey.generate_key("Ed25519"))
    assert judge(signer)(signer.signed(CARD, alg="EdDSA")).trust is Trust.VERIFIED


def test_one_good_signature_of_several_is_enough() -> None:
    old, new, strange = Signer("old"), Signer("new"), Signer("strange")
    both = new.signed(strange.signed(old.signed(CARD) | {"version": "2"}))
    assert judge(old, new)(both).key_id == "new"


# --- bad ones ------------------------------------------------------------------------------------


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    "change", [{"name": "x"}, {"mine": 1}, {"skills": []}, {"supportedInterfaces": []}], ids=str
)
def test_a_card_that_was_changed_since_is_refused_with_the_place(change: Any, *, required: bool) -> None:
    signer = Signer()
    ((field, text),) = refusal(judge(signer, required=required), signer.signed(CARD) | change)
    assert field == "card.signatures[0]"
    assert text.startswith("does not fit: the key 'k1' did not sign this card")


def test_a_key_of_the_same_name_is_not_the_key() -> None:
    ((field, _),) = refusal(judge(Signer()), Signer().signed(CARD))
    assert field == "card.signatures[0]"


def test_a_signature_that_cannot_be_read_is_refused_with_the_place() -> None:
    ((field, text),) = refusal(judge(), CARD | {"signatures": [{"protected": "%", "signature": "x"}]})
    assert (field, text) == ("card.signatures[0].protected", "is not a base64url-encoded JSON object")


def test_a_public_key_is_never_a_shared_secret_and_no_signature_is_none() -> None:
    signer = Signer()
    public = signer.key.as_pem(private=False)
    protected = b64(b'{"alg":"HS256","kid":"k1"}')
    signed = f"{protected}.{b64(rfc8785.dumps(CARD))}".encode()
    made = b64(hmac.digest(public, signed, "sha256"))
    for signature in (
        {"protected": protected, "signature": made},
        {"protected": b64(b'{"alg":"none","kid":"k1"}'), "signature": b64(b"x")},
        signer.over(b"x", alg="RS256"),
        signer.over(b"x", alg="ES384"),
    ):
        ((field, _),) = refusal(judge(signer), CARD | {"signatures": [signature]})
        assert field == "card.signatures[0]"


def test_a_name_that_stands_twice_makes_a_signature_worthless() -> None:
    signer = Signer()
    raw = json.dumps(signer.signed(CARD)).replace('"name": "Scripted"', '"name": "x", "name": "Scripted"')
    assert judge(signer)(raw.encode()) == Signature()  # whoever reads the card refuses it


@pytest.mark.parametrize("number", ["1e400", "90071992547409930"])
def test_a_card_without_a_canonical_form_cannot_be_verified(number: str) -> None:
    signer = Signer()
    raw = json.dumps(signer.signed(CARD) | {"mine": 0}).replace('"mine": 0', f'"mine": {number}')
    ((field, text),) = refusal(judge(signer), raw.encode())
    assert field == "card.signatures[0]"
    assert text.startswith("cannot be verified: the card has no canonical form")


# --- unknown ones --------------------------------------------------------------------------------


def test_an_unknown_key_is_noted_and_if_signatures_are_required_refused() -> None:
    signed = Signer("k9").signed(CARD)
    for known in ((), (Signer(),)):
        found = judge(*known)(signed)
        assert found.trust is Trust.UNVERIFIED
        assert found.detail == "signatures[0]: its key 'k9' is not one that this broker knows"
        ((field, text),) = refusal(judge(*known, required=True), signed)
        assert (field, text) == ("card.signatures[0]", "its key 'k9' is not one that this broker knows")


def test_an_unsigned_card_is_noted_and_if_signatures_are_required_refused() -> None:
    for document in (CARD, CARD | {"signatures": []}, CARD | {"signatures": None}):
        assert judge(Signer())(document) == Signature(trust=Trust.UNSIGNED)
        assert refusal(judge(Signer(), required=True), document) == [
            ("card.signatures", "is missing: only signed cards are taken here")
        ]


def test_a_key_that_is_too_short_expired_revoked_or_for_something_else_is_not_used() -> None:
    long_ago = 1_000_000_000
    for more, text in (
        ({"exp": long_ago}, "has expired"),
        ({"revoked": {"revoked_at": 1}}, "is revoked"),
        ({"key_ops": ["encrypt"]}, "is not meant to verify signatures"),
        ({"alg": "HS256"}, "is of a kind that is not taken"),
    ):
        signer = Signer()
        found = judge(sets={"https://k/": {"keys": [signer.jwk | more]}})(
            signer.signed(CARD, jku="https://k/")
        )
        assert found.trust is Trust.UNVERIFIED
        assert text in found.detail


# --- key sets at addresses -----------------------------------------------------------------------


def test_a_key_set_whose_address_is_on_the_list_is_asked() -> None:
    signer = Signer()
    signed = signer.signed(CARD, jku="https://keys.example/jwks.json")
    found = judge(sets={"https://keys.example/jwks.json": key_set(signer)})(signed)
    assert (found.trust, found.key_from) == (Trust.VERIFIED, "https://keys.example/jwks.json")


@pytest.mark.parametrize(
    "address", ["https://evil.example/jwks.json", "https://keys.example/jwks.json/", "http://keys.example/"]
)
def test_an_address_that_only_the_card_names_is_not_called(address: str) -> None:
    signer = Signer()
    found = judge(sets={"https://keys.example/jwks.json": None})(signer.signed(CARD, jku=address))
    assert found.trust is Trust.UNVERIFIED
    assert found.detail.endswith("is of a key set whose address is not on the list")


def test_a_key_set_that_cannot_be_had_makes_a_card_unverified() -> None:
    signed = Signer().signed(CARD, jku="https://k/")
    found = judge(sets={"https://k/": None})(signed)
    assert found.trust is Trust.UNVERIFIED
    assert found.detail.endswith("is not known: its key set cannot be had now")
    refusal(judge(sets={"https://k/": None}, required=True), signed)


def test_a_known_key_of_the_file_goes_before_an_address() -> None:
    signer = Signer()
    signed = signer.signed(CARD, jku="https://not-on-the-list/")
    assert judge(signer)(signed).key_from == "card_keys"
