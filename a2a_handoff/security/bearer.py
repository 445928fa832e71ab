"""Bearer tokens: JSON Web Tokens, signed with a shared secret or by an identity provider.

Duty: from an ``Authorization`` header to a ``Principal``.
Rules: which algorithms are taken follows from the keys that there are, never from the token: a secret
verifies HMAC only, public keys never do. ``exp`` and the claims that name agent and tenant must be there;
a claim of a wrong type is a bad token, not a fault of ours. A refusal never says what the token held.
A token is verified once and then known until it expires, or until the keys change.
Sources: RFC 6750 (bearer tokens), RFC 7519 (JWT), RFC 8725 (best current practices), RFC 9068 sections 2
and 4 (access tokens), A2A 1.0 section 7.
Not here: keys and where they come from (``keyring``), what a principal may see (``broker``).
"""

from __future__ import annotations

import base64
import math
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import Key, OctKey

from a2a_handoff.core.agents import fold
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.text import is_blank, name_fault
from a2a_handoff.ports import ANONYMOUS, USUAL_SCOPES, Principal
from a2a_handoff.security.card_keys import fault_of
from a2a_handoff.security.keyring import PublicKeys
from a2a_handoff.security.principals import TENANT, expired, refused

_WITH_SECRET: Final = ("HS256", "HS384", "HS512")
_WITH_KEYS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
    "EdDSA",
)  # fmt: skip
_TOKEN_CHARS_MAX: Final = 16_384
_KNOWN_MAX: Final = 4_096
#: RFC 6750 section 2.1.
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a good token is.

    ``issuer`` and ``audience`` are not looked at if they are empty, but then a token with an audience is
    not for us. ``leeway_s`` is how far clocks may differ. ``tenant_claim`` empty: everybody is of ``tenant``.
    """

    issuer: str = ""
    audience: str = ""
    leeway_s: float = 30.0
    agent_claim: str = "sub"
    tenant_claim: str = "tenant"
    tenant: str = "default"


class _Header(msgspec.Struct):
    alg: str
    kid: str = ""


class TokenGate:
    """Lets those in who bear a good token. ``now`` is epoch seconds."""

    closed = True

    def __init__(
        self,
        rules: TokenRules,
        *,
        secret: bytes = b"",
        keys: PublicKeys | None = None,
        now: Callable[[], float],
    ) -> None:
        self._rules = rules
        self._secret = OctKey.import_key(secret) if secret else None
        self._keys = keys
        self._now = now
        self._known: OrderedDict[str, tuple[Principal, int]] = OrderedDict()

    async def admit(self, authorization: str) -> Principal:
        """Who bears a token. Raises ``HandoffError``: ``unauthenticated``, ``unavailable``."""
        edition = 0
        if self._keys is not None:
            self._keys.stay_fresh()
            edition = self._keys.edition
        known = self._known.get(authorization)
        if known is not None and known[1] == edition:
            if known[0].expires_at > self._now():
                self._known.move_to_end(authorization)
                return known[0]
            del self._known[authorization]
            raise expired()
        if not authorization:
            raise HandoffError(Code.UNAUTHENTICATED)
        bearer = _BEARER.fullmatch(authorization)
        if bearer is None:
            raise refused("Authorization must be: Bearer TOKEN.")
        principal = self._principal(await self._claims(bearer[1]))
        edition = 0 if self._keys is None else self._keys.edition
        self._known[authorization] = (principal, edition)
        self._known.move_to_end(authorization)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return principal

    def open(self) -> None:
        """Read the keys of the provider, so that the log says at once if they cannot be had."""
        if self._keys is not None:
            self._keys.stay_fresh()

    async def close(self) -> None:
        """Stop reading keys."""
        if self._keys is not None:
            await self._keys.close()

    # --- the signature ---------------------------------------------------------------------------

    async def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > _TOKEN_CHARS_MAX:
            raise refused("The token is too long.")
        try:
            head = token.partition(".")[0]
            header = msgspec.json.decode(
                base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)), type=_Header
            )
        except (ValueError, RecursionError):  # those of base64 and msgspec are ValueErrors
            raise refused("The token is not a JSON Web Token.") from None
        key, algorithms = await self._key_for(header)
        try:
            # Providers go on saying EdDSA, the older name of Ed25519; the library has an opinion of that.
            with warnings.catch_warnings(action="ignore", category=SecurityWarning):
                return jwt.decode(token, key, algorithms=algorithms).claims
        except (JoseError, ValueError, TypeError, RecursionError):
            raise refused("The signature of the token is not good.") from None

    async def _key_for(self, header: _Header) -> tuple[Key, list[str]]:
        if self._secret is not None and header.alg in _WITH_SECRET:
            return self._secret, list(_WITH_SECRET)
        if self._keys is not None and header.alg in _WITH_KEYS:
            key = await self._keys.find(header.kid)
            if key is None:
                raise refused("The token is signed with a key that is not known.")
            if fault := fault_of(key, self._now()):
                raise refused(f"The token is signed with a key that {fault}.")
            return key, list(_WITH_KEYS)
        raise refused("The token is signed in a way that is not accepted.")

    # --- the claims ------------------------------------------------------------------------------

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        rules, now = self._rules, self._now()
        expires_at = _time(claims, "exp")
        if expires_at is None:
            raise refused("The token has no exp: one that never ends is not accepted.")
        expires_at += rules.leeway_s
        if expires_at <= now:
            raise expired()
        for claim in ("nbf", "iat"):
            begins_at = _time(claims, claim)
            if begins_at is not None and begins_at - rules.leeway_s > now:
                raise refused(f"The token is not valid yet ({claim}).")
        if rules.issuer and claims.get("iss") != rules.issuer:
            raise refused("The token is of another issuer (iss).")
        self._check_audience(claims.get("aud"))
        return Principal(
            name=self._agent(claims),
            tenant=self._tenant(claims),
            scopes=_scopes(claims),
            trusted=True,
            authenticated=True,
            expires_at=expires_at,
        )

    def _check_audience(self, said: object) -> None:
        audience = self._rules.audience
        named = cast("list[object]", said) if isinstance(said, list) else [] if said is None else [said]
        if (audience or named) and audience not in named:
            raise refused("The token is for another audience (aud).")

    def _agent(self, claims: Mapping[str, Any]) -> str:
        claim = self._rules.agent_claim
        name = claims.get(claim)
        if not isinstance(name, str) or is_blank(name) or name_fault(name) or fold(name) == ANONYMOUS:
            raise refused(f"The token does not say which agent it is of ({claim}).")
        return name

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        claim = self._rules.tenant_claim
        if not claim:
            return self._rules.tenant
        tenant = claims.get(claim)
        if not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            raise refused(f"The token does not say which tenant it is of ({claim}).")
        return tenant


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    """A NumericDate (RFC 7519 section 2), fractions too."""
    value = claims.get(claim)
    if value is None:
        return None
    try:
        time = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        time = math.inf
    if not math.isfinite(time):
        raise refused(f"The token is wrong: {claim} is not a time.")
    return time


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes: ``scope`` (RFC 8693 section 4.2), or ``scp`` as some providers have it; words or a list."""
    said = claims.get("scope", claims.get("scp"))
    if said is None:
        return USUAL_SCOPES
    if isinstance(said, str):
        return frozenset(said.split())
    if isinstance(said, list):
        return frozenset(word for word in cast("list[object]", said) if isinstance(word, str))
    raise refused("The token is wrong: scope is neither text nor a list.")


def minted(secret: bytes, claims: Mapping[str, Any]) -> str:
    """A token with these claims, signed with a shared secret."""
    return jwt.encode({"alg": "HS256"}, dict(claims), OctKey.import_key(secret), algorithms=["HS256"])
