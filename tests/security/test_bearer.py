"""Which tokens are good, whose they are, and what they allow."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import Principal
from a2a_handoff.security import keyring
from a2a_handoff.security.bearer import TokenGate, TokenRules, minted
from a2a_handoff.security.keyring import PublicKeys
from a2a_handoff.security.principals import OpenGate, within
from tests.support.bearers import SECRET, Provider, claims_of, token

_PROVIDED = TokenRules(issuer=Provider.issuer, audience="broker")


def _gate(rules: TokenRules | None = None, *, now: Callable[[], float] = time.time) -> TokenGate:
    return TokenGate(rules or TokenRules(), secret=SECRET.encode(), now=now)


def _admit(authorization: str, gate: TokenGate | OpenGate | None = None) -> Principal:
    return asyncio.run((gate or _gate()).admit(authorization))


def _refusal(authorization: str, gate: TokenGate | None = None) -> HandoffError:
    with pytest.raises(HandoffError) as caught:
        _admit(authorization, gate)
    return caught.value


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bearing(sub: str = "editor", **more: Any) -> str:
    return f"Bearer {token(sub, **more)}"


def test_a_good_token_says_which_agent_of_which_tenant_calls() -> None:
    who = _admit(_bearing("editor", tenant="acme"))
    assert (who.name, who.tenant, who.authenticated, who.trusted) == ("editor", "acme", True, True)
    assert not who.unrestricted


def test_the_scheme_may_be_written_in_any_case() -> None:
    assert _admit(_bearing().replace("Bearer", "bEARER")).name == "editor"


@pytest.mark.parametrize(
    ("said", "scopes"),
    [
        ({}, {"handoff:send", "handoff:work"}),
        ({"scope": "handoff:send openid"}, {"handoff:send", "openid"}),
        ({"scope": ["handoff:admin"]}, {"handoff:admin"}),
        ({"scp": "handoff:work"}, {"handoff:work"}),
        ({"scope": ""}, set()),
    ],
)
def test_scopes_are_words_or_a_list_and_all_but_the_rare_ones_without_a_word(
    said: dict[str, Any], scopes: set[str]
) -> None:
    assert _admit(_bearing(**said)).scopes == scopes


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("", "Who you are is not known."),
        ("Basic dXNlcjpwYXNz", "Bearer TOKEN"),
        ("Bearer", "Bearer TOKEN"),
        ("Bearer a b", "Bearer TOKEN"),
        ("Bearer x", "not a JSON Web Token"),
        ("Bearer a.b.c", "not a JSON Web Token"),
        ("Bearer " + "a" * 20_000, "too long"),
        (_bearing()[:-6] + "AAAAAA", "signature"),
        ("Bearer " + _base64(b'{"alg":"HS256","x":' + b"[" * 5_000) + ".e30.", "not a JSON Web Token"),
    ],
)
def test_what_is_no_token_of_ours_is_refused_and_says_why(header: str, why: str) -> None:
    refusal = _refusal(header)
    assert refusal.code is Code.UNAUTHENTICATED
    assert why in refusal.message


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": None}, "no exp"),
        ({"exp": "tomorrow"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": {}}, "exp is not a time"),
        ({"exp": 10**400}, "exp is not a time"),
        ({"nbf": -(10**400)}, "nbf is not a time"),
        ({"lasts_s": -120}, "expired"),
        ({"iat": "now"}, "iat is not a time"),
        ({"sub": None}, "which agent"),
        ({"sub": ""}, "which agent"),
        ({"sub": 7}, "which agent"),
        ({"sub": "a\nb"}, "which agent"),
        ({"sub": "x" * 300}, "which agent"),
        ({"tenant": None}, "which tenant"),
        ({"tenant": ""}, "which tenant"),
        ({"tenant": ["a"]}, "which tenant"),
        ({"tenant": "a/b"}, "which tenant"),
        ({"aud": "somebody else"}, "audience"),
        ({"scope": 7}, "scope"),
    ],
)
def test_a_token_with_wrong_claims_is_refused_and_never_a_fault_of_ours(
    claims: dict[str, Any], why: str
) -> None:
    sub = claims.pop("sub", "editor")
    whole = claims_of("editor", **claims) | {"sub": sub}
    whole = {name: value for name, value in whole.items() if value is not None}
    refusal = _refusal(f"Bearer {minted(SECRET.encode(), whole)}")
    assert (refusal.code, why in refusal.message) == (Code.UNAUTHENTICATED, True), refusal.message


def test_c066_nobody_is_anonymous_by_a_token() -> None:
    for name in ("anonymous", "Anonymous", " "):
        assert _refusal(_bearing(name)).code is Code.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("claims", "good"),
    [
        ({"iat": 2.5, "nbf": 2.5}, True),
        ({"lasts_s": -2}, True),
        ({"iat": 120}, False),
        ({"nbf": 120}, False),
        ({"lasts_s": -120}, False),
    ],
)
def test_c067_clocks_may_differ_by_the_leeway_and_no_more(claims: dict[str, float], good: bool) -> None:
    shifted: dict[str, Any] = {
        name: time.time() + value if name != "lasts_s" else value for name, value in claims.items()
    }
    if good:
        assert _admit(_bearing(**shifted)).name == "editor"
    else:
        assert _refusal(_bearing(**shifted)).code is Code.UNAUTHENTICATED


def test_a_known_token_is_nobody_s_any_more_when_it_has_expired() -> None:
    now = time.time()
    gate = _gate(now=lambda: now)
    header = _bearing(lasts_s=100)

    async def story() -> None:
        nonlocal now
        assert (await gate.admit(header)).name == "editor"
        now += 129
        assert (await gate.admit(header)).name == "editor"
        now += 2
        with pytest.raises(HandoffError) as caught:
            await gate.admit(header)
        assert caught.value.facts["token"] == "expired"

    asyncio.run(story())


def test_issuer_and_audience_are_checked_where_they_are_set() -> None:
    gate = _gate(_PROVIDED)
    good: dict[str, Any] = {"iss": Provider.issuer, "aud": ["other", "broker"]}
    assert _admit(_bearing(**good), gate).name == "editor"
    assert "issuer" in _refusal(_bearing(**good | {"iss": "https://evil.example"}), gate).message
    assert "audience" in _refusal(_bearing(iss=Provider.issuer), gate).message


def test_agent_and_tenant_may_stand_in_other_claims() -> None:
    rules = TokenRules(agent_claim="client_id", tenant_claim="org")
    who = _admit(_bearing("ignored", client_id="editor", org="acme"), _gate(rules))
    assert (who.name, who.tenant) == ("editor", "acme")


def test_with_one_tenant_a_token_need_not_name_it() -> None:
    rules = TokenRules(tenant_claim="", tenant="only")
    assert _admit(_bearing(tenant=None), _gate(rules)).tenant == "only"


# --- algorithms ----------------------------------------------------------------------------------


def _unsigned(claims: dict[str, Any]) -> str:
    head, body = (_base64(json.dumps(part).encode()) for part in ({"alg": "none", "typ": "JWT"}, claims))
    return f"{head}.{body}."


def test_an_unsigned_token_is_refused() -> None:
    assert "not accepted" in _refusal(f"Bearer {_unsigned(claims_of('editor'))}").message


def test_a_public_key_is_never_a_secret() -> None:
    """RFC 8725 section 2.1: a token that is signed with HMAC and the text of the public key."""
    key = RSAKey.generate_key(2_048, auto_kid=True)
    public = key.as_pem(private=False)
    forged = jwt.encode(
        {"alg": "HS256", "kid": key.kid},
        claims_of("editor", iss=Provider.issuer, aud="broker"),
        OctKey.import_key(public.replace(b"-----BEGIN PUBLIC KEY-----", b"").strip()),
        algorithms=["HS256"],
    )

    async def source() -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False)]}).encode()

    keys = PublicKeys(source, monotonic=time.monotonic, named="test")
    gate = TokenGate(_PROVIDED, keys=keys, now=time.time)
    assert "not accepted" in _refusal(f"Bearer {forged}", gate).message


# --- keys of an identity provider ----------------------------------------------------------------


class _Published:
    """A provider's key set, with how often it was read and the clock that decides when."""

    def __init__(self) -> None:
        self.provider = Provider()
        self.reads = 0
        self.down = False
        self.now = 1_000.0
        self.keys = PublicKeys(self._read, monotonic=lambda: self.now, named="test")
        self.gate = TokenGate(_PROVIDED, keys=self.keys, now=time.time)

    async def _read(self) -> bytes:
        self.reads += 1
        if self.down:
            raise OSError("it is down")
        return json.dumps(self.provider.key_set()).encode()

    async def admit(self, **more: Any) -> Principal:
        return await self.gate.admit(f"Bearer {self.provider.token('editor', **more)}")


def test_keys_are_read_once_for_many_tokens() -> None:
    async def story() -> None:
        there = _Published()
        await asyncio.gather(*(there.admit(jti=str(n)) for n in range(20)))
        assert there.reads == 1

    asyncio.run(story())


def test_a_new_key_is_found_when_a_token_names_it() -> None:
    async def story() -> None:
        there = _Published()
        await there.admit()
        there.provider.rotate()
        there.now += keyring.AGAIN_S
        assert (await there.admit()).name == "editor"
        assert there.reads == 2

    asyncio.run(story())


def test_made_up_keys_do_not_make_the_set_be_read_again_and_again() -> None:
    async def story() -> None:
        there = _Published()
        await there.admit()
        for number in range(50):
            there.now += 1.0
            with pytest.raises(HandoffError):
                await there.admit(header={"kid": f"made-up-{number}"})
        assert there.reads <= 1 + 50 / keyring.AGAIN_S

    asyncio.run(story())


def test_known_keys_go_on_while_their_source_is_down() -> None:
    async def story() -> None:
        there = _Published()
        await there.admit()
        there.down = True
        there.now += keyring.KEEP_S + 1
        assert (await there.admit()).name == "editor"
        await there.keys.close()

    asyncio.run(story())


def test_without_any_keys_so_far_the_broker_says_that_it_cannot_judge() -> None:
    async def story() -> None:
        there = _Published()
        there.down = True
        with pytest.raises(HandoffError) as caught:
            await there.admit()
        assert caught.value.code is Code.UNAVAILABLE

    asyncio.run(story())


def test_what_a_withdrawn_key_signed_is_refused_once_the_set_was_read_again() -> None:
    async def story() -> None:
        there = _Published()
        header = f"Bearer {there.provider.token('editor')}"
        await there.gate.admit(header)
        there.provider.rotate(keep=False)
        there.now += keyring.KEEP_S + 1
        await there.gate.admit(header)  # makes the set be read again, and does not wait for that
        assert there.keys._reading is not None
        await there.keys._reading
        with pytest.raises(HandoffError) as caught:
            await there.gate.admit(header)
        assert caught.value.code is Code.UNAUTHENTICATED

    asyncio.run(story())


def test_a_token_without_a_key_id_is_good_with_an_only_key() -> None:
    async def story() -> None:
        there = _Published()
        assert (await there.admit(header={"kid": None})).name == "editor"
        there.provider.rotate()
        there.now += keyring.AGAIN_S
        await there.admit()
        with pytest.raises(HandoffError):
            await there.admit(header={"kid": None}, jti="2")

    asyncio.run(story())


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":{}}',
        b'{"keys":[]}',
        b'{"keys":[1,{"kty":"oct","k":"AAAA"},{"kty":"RSA"}]}',
        b'{"keys":' + b"[" * 5_000,
    ],
)
def test_a_document_without_usable_keys_is_like_none(document: bytes) -> None:
    async def story() -> None:
        async def source() -> bytes:
            return document

        keys = PublicKeys(source, monotonic=time.monotonic, named="test")
        with pytest.raises(HandoffError) as caught:
            await keys.find("k")
        assert caught.value.code is Code.UNAVAILABLE

    asyncio.run(story())


@pytest.mark.parametrize(
    "strange",
    [
        {"kty": "EC", "crv": "brainpoolP256r1", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": [], "x": "AA", "y": "AA"},
        {"kty": ["RSA"]},
        {"kty": "OKP", "crv": "X448", "x": "AA"},
    ],
)
def test_a_key_of_a_kind_that_nobody_here_knows_does_not_spoil_the_others(strange: dict[str, Any]) -> None:
    provider = Provider()

    async def source() -> bytes:
        return json.dumps({"keys": [strange, *provider.key_set()["keys"]]}).encode()

    keys = PublicKeys(source, monotonic=time.monotonic, named="test")
    gate = TokenGate(_PROVIDED, keys=keys, now=time.time)
    assert _admit(f"Bearer {provider.token('editor')}", gate).name == "editor"


@pytest.mark.parametrize("name", ["Ed25519", "EdDSA"])
def test_ed25519_is_known_by_both_of_its_names(name: str) -> None:
    key = OKPKey.generate_key("Ed25519", auto_kid=True)
    head, body = ({"alg": name, "kid": key.kid}, claims_of("editor", iss=Provider.issuer, aud="broker"))
    signed = f"{_base64(json.dumps(head).encode())}.{_base64(json.dumps(body).encode())}"
    signature = JWSRegistry.algorithms["Ed25519"].sign(signed.encode(), key)

    async def source() -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False)]}).encode()

    keys = PublicKeys(source, monotonic=time.monotonic, named="test")
    gate = TokenGate(_PROVIDED, keys=keys, now=time.time)
    assert _admit(f"Bearer {signed}.{_base64(signature)}", gate).name == "editor"


@pytest.mark.parametrize(
    ("bits", "said", "why"),
    [
        (1_024, {}, "has 1024 bits"),
        (2_048, {"revoked": {"revoked_at": 1}}, "is revoked"),
        (2_048, {"exp": 1}, "expired"),
        (2_048, {"key_ops": ["encrypt"]}, "not meant to verify"),
    ],
)
@pytest.mark.filterwarnings("ignore:Key size should be")
def test_a_key_that_is_too_short_or_over_or_for_something_else_verifies_no_token(
    bits: int, said: dict[str, Any], why: str
) -> None:
    key = RSAKey.generate_key(bits, auto_kid=True)
    claims = claims_of("editor", iss=Provider.issuer, aud="broker")
    signed = jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key, algorithms=["RS256"])

    async def source() -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False) | said]}).encode()

    keys = PublicKeys(source, monotonic=time.monotonic, named="test")
    gate = TokenGate(_PROVIDED, keys=keys, now=time.time)
    assert why in _refusal(f"Bearer {signed}", gate).message


# --- the tenant of a request ---------------------------------------------------------------------


def test_an_open_broker_believes_the_tenant_that_a_request_names() -> None:
    anybody = _admit("", OpenGate())
    assert (anybody.tenant, within(anybody, "").tenant, within(anybody, "acme").tenant) == (
        "default", "default", "acme",
    )  # fmt: skip
    with pytest.raises(HandoffError) as caught:
        within(anybody, "a/b")
    assert caught.value.code is Code.INVALID_PARAMS


def test_a_token_is_good_in_its_own_tenant_only() -> None:
    who = _admit(_bearing(tenant="acme", scope="handoff:admin"))
    assert within(who, "acme") is who
    with pytest.raises(HandoffError) as caught:
        within(who, "default")
    assert caught.value.code is Code.FORBIDDEN
