"""What a signature of a card says, and which bytes it is over."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import create_signature_verifier
from joserfc.jws import JWSRegistry

from a2a_handoff.wire.signatures import (
    SIGNATURES_MAX,
    CardSigner,
    SignatureFault,
    canonical,
    known_fields,
    payloads,
    signatures_of,
)
from tests.support.agents import card
from tests.support.signing import Signer, b64, key_set, keys_of

SPEC_EXAMPLE = {
    "name": "Example Agent",
    "description": "",
    "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
    "skills": [],
}


def bodies(document: Any) -> list[bytes]:
    return [payload.body for payload in payloads(json.dumps(document).encode())]


def test_the_example_of_the_specification_has_the_bytes_that_it_prints() -> None:
    assert (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},"description":"",'
        b'"name":"Example Agent","skills":[]}'
    ) in bodies(SPEC_EXAMPLE)


def test_required_fields_stay_optional_ones_stay_if_they_were_set_and_other_defaults_go() -> None:
    document = {
        "name": "",
        "iconUrl": "",
        "securityRequirements": [],
        "securitySchemes": {"a": {"apiKeySecurityScheme": {"description": "", "location": "", "name": ""}}},
        "capabilities": {"extensions": [{"uri": "x", "required": False, "params": {"empty": ""}}]},
        "skills": [{"id": "", "examples": [], "tags": []}],
        "provider": {"url": "", "organization": "o"},
        "documentation_url": "d",
    }
    assert json.loads(bodies(document)[1]) == {
        "name": "",
        "iconUrl": "",
        "securitySchemes": {"a": {"apiKeySecurityScheme": {"location": "", "name": ""}}},
        "capabilities": {"extensions": [{"uri": "x", "params": {"empty": ""}}]},
        "skills": [{"id": "", "tags": []}],
        "provider": {"url": "", "organization": "o"},
        "documentationUrl": "d",
    }


def test_a_field_that_nobody_knows_is_part_of_what_is_signed() -> None:
    whole = [payload for payload in payloads(b'{"name":"a","mine":{"x":1.0}}') if not payload.partial]
    assert whole
    assert all(json.loads(payload.body)["mine"] == {"x": 1} for payload in whole)


def test_the_signatures_are_no_part_of_what_they_sign() -> None:
    assert bodies(card("http://a/")) == bodies(card("http://a/") | {"signatures": [{"x": 1}]})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": 2}, b'{"a":2,"b":1}'),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'.encode()),  # by UTF-16, section 3.2.3
        ([1e30, 1e-7, 4.5, 333333333.33333329], b"[1e+30,1e-7,4.5,333333333.3333333]"),
        ("é\u0001\n", '"é\\u0001\\n"'.encode()),
    ],
)
def test_the_canonical_form_is_that_of_rfc_8785(value: Any, text: bytes) -> None:
    assert canonical(value) == text


@pytest.mark.parametrize(
    "raw",
    [b'{"name":"a","name":"b"}', b'{"a":{"x":1,"x":1}}', b"[]", b"7", b"{", b"\xff", b'{"a":NaN}'],
    ids=str,
)
def test_what_has_no_one_meaning_has_no_payload(raw: bytes) -> None:
    with pytest.raises(SignatureFault):
        list(payloads(raw))


def test_a_number_or_a_text_that_json_cannot_hold_has_no_payload() -> None:
    for raw in (b'{"a":1e400}', b'{"a":90071992547409930}', b'{"a":"\\ud800"}'):
        with pytest.raises(SignatureFault):
            list(payloads(raw))


# --- reading -------------------------------------------------------------------------------------


def test_a_signature_is_opened_with_its_key_and_its_place() -> None:
    signed = Signer(key_id="k7").signed(card("http://a/"), jku="https://keys.example/jwks.json")
    (found,) = signatures_of(json.dumps(signed).encode())
    assert not isinstance(found, SignatureFault)
    assert (found.algorithm, found.key_id, found.key_url) == ("ES256", "k7", "https://keys.example/jwks.json")
    assert found.path == "signatures[0]"


def faults_of(*signatures: Any) -> list[str]:
    found = signatures_of(json.dumps({"signatures": list(signatures)}).encode())
    return [str(each) for each in found if isinstance(each, SignatureFault)]


def test_a_signature_that_cannot_be_read_is_named_with_its_place() -> None:
    good = Signer().over(b"x")
    wrong: list[tuple[Any, str]] = [
        (7, "signatures[0]: must be an object"),
        ({}, "signatures[0].protected: is missing"),
        (good | {"protected": 3}, "signatures[0].protected: must be text"),
        (good | {"protected": "%%"}, "signatures[0].protected: is not a base64url-encoded JSON object"),
        (good | {"protected": b64(b"[]")}, "signatures[0].protected: is not a base64url-encoded JSON object"),
        (good | {"protected": b64(b'{"alg":"a","alg":"b"}')}, "signatures[0].protected: is not"),
        (good | {"protected": "a" * 5_000}, "signatures[0].protected: is longer than"),
        (good | {"signature": "a" * 3_000}, "signatures[0].signature: is longer than"),
        (good | {"signature": "a+b/"}, "signatures[0].signature: is not base64url"),
        (Signer().over(b"x", kid=None), "signatures[0].protected kid: is missing"),
        (Signer().over(b"x", kid="a\nb"), "signatures[0].protected kid: contains a control character"),
        (Signer().over(b"x", alg=None), "signatures[0].protected alg: is missing"),
        (Signer().over(b"x", crit=["exp"]), "signatures[0].protected: has the parameter crit"),
        (Signer().over(b"x", b64=False), "signatures[0].protected: has the parameter b64"),
    ]
    for signature, text in wrong:
        (fault,) = faults_of(signature)
        assert fault.startswith(text), fault


def test_the_list_of_signatures_is_bounded() -> None:
    for value in ({}, "x", [{}] * (SIGNATURES_MAX + 1)):
        with pytest.raises(SignatureFault):
            signatures_of(json.dumps({"signatures": value}).encode())
    assert signatures_of(b'{"signatures":null}') == signatures_of(b"{}") == []


# --- with the SDK --------------------------------------------------------------------------------


def test_what_the_sdk_signs_is_one_of_the_payloads() -> None:
    signer = Signer()
    signed = signer.signed_by_the_sdk(card("http://a/", speaks=True, skills=("ü", "b"), domains=["x"]))
    (found,) = signatures_of(json.dumps(signed).encode())
    assert not isinstance(found, SignatureFault)
    verifier = create_signature_verifier(lambda kid, jku: keys_of(key_set(signer))[kid or ""], ["ES256"])
    verifier(parse_agent_card(json.loads(json.dumps(signed))))
    assert found.signed(bodies(signed)[-1]).startswith(signed["signatures"][0]["protected"].encode())


def test_only_known_fields_are_left_of_a_card_that_is_read_as_the_sdk_does() -> None:
    document: dict[str, Any] = card("http://a/") | {"mine": 1, "signatures": []}
    document["capabilities"] |= {"canBrowse": True}
    known = json.loads(known_fields(json.dumps(document).encode()))
    assert "mine" not in known
    assert "canBrowse" not in known["capabilities"]
    assert known["skills"][0]["id"] == "work"


def test_a_card_of_ours_is_good_for_the_sdk_and_for_the_letter_of_the_specification() -> None:
    signer = Signer()
    model: Any = JWSRegistry.algorithms["ES256"]
    ours = CardSigner(
        lambda data: model.sign(data, signer.key), algorithm="ES256", key_id="k1", key_url="https://b/keys"
    )
    document = card("http://a/") | {"url": "http://a/", "protocolVersion": "0.3.0"}
    body = ours.signed(json.dumps(document).encode())
    assert ours.signed(json.dumps(document).encode()) is body
    signed = json.loads(body)
    assert {k: v for k, v in signed.items() if k != "signatures"} == document
    assert len(signed["signatures"]) == 2
    verifier = create_signature_verifier(lambda kid, jku: keys_of(key_set(signer))[kid or ""], ["ES256"])
    verifier(parse_agent_card(json.loads(body)))


def test_what_is_signed_says_how_and_with_which_key() -> None:
    ours = CardSigner(lambda data: b"s", algorithm="ES256", key_id="k1", key_url="https://b/keys")
    signed = json.loads(ours.signed(json.dumps(card("http://a/")).encode()))
    for signature in signed["signatures"]:
        head = json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))
        assert head == {"alg": "ES256", "kid": "k1", "jku": "https://b/keys", "typ": "JOSE"}
