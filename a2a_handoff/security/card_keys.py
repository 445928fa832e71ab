"""Signatures of cards: whether a key made one, and the broker's own private key.

Duty: judge a public key, verify with it; read the private key and sign with it.
Rules: asymmetric algorithms only, so that no public key is ever taken for a shared secret, and none without
a signature. The algorithm must fit the key. Keys that are too short, expired, revoked or meant for something
else are not used. No fault shows a key.
Sources: RFC 7515 (JWS), RFC 7517 (JWK), RFC 7518 (algorithms), RFC 7638 (thumbprint), RFC 8037 (EdDSA); A2A
1.0 section 8.4.3 for keys that were revoked.
Not here: where public keys come from (``keyring``), what is signed (``wire.signatures``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_RSA_BITS_MIN: Final = 2_048

#: RFC 9864 gave the algorithm of Ed25519 a name of its own.
_NAMES: Final = {"Ed25519": "EdDSA"}


class KeyFault(ValueError):
    """A private key that cannot be used. Its text says why and is fit to be shown."""


def fault_of(key: Key, now: float) -> str:
    """Why a public key may not be used at ``now`` (seconds since 1970); empty if it may."""
    if not _algorithms_of(key):
        return "is of a kind that is not taken"
    if isinstance(key, RSAKey) and key.raw_value.key_size < _RSA_BITS_MIN:
        return f"has {key.raw_value.key_size} bits, at least {_RSA_BITS_MIN} are needed"
    said = cast("Mapping[str, Any]", key.as_dict(private=False))
    operations = said.get("key_ops", ["verify"])
    if said.get("use", "sig") != "sig" or "verify" not in operations:
        return "is not meant to verify signatures"
    if "revoked" in said:
        return "is revoked"
    begins, ends = said.get("nbf", 0), said.get("exp", now + 1)
    in_time = isinstance(begins, int | float) and isinstance(ends, int | float) and begins <= now < ends
    return "" if in_time else "has expired, or is not valid so far"


def verifies(key: Key, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether a key made ``signature`` over ``signed`` with ``algorithm``."""
    name = _NAMES.get(algorithm, algorithm)
    if name not in _algorithms_of(key):
        return False
    try:
        return bool(_algorithm(name).verify(signed, signature, key))
    except (JoseError, ValueError):
        return False


def _algorithms_of(key: Key) -> frozenset[str]:
    """What a key can be used with: its kind and curve say it, and its own ``alg`` narrows it."""
    if isinstance(key, RSAKey):
        fitting = frozenset(_RSA)
    elif isinstance(key, ECKey | OKPKey) and key.curve_name in _CURVES:
        fitting = frozenset({_CURVES[key.curve_name]})
    else:
        return frozenset()
    named = key.alg
    return fitting if named is None else fitting & {_NAMES.get(named, named)}


def _algorithm(name: str) -> Any:
    return JWSRegistry.algorithms["Ed25519" if name == "EdDSA" else name]


# --- the broker's own key ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The private key of the broker."""

    key_id: str
    algorithm: str
    key: Key

    def sign(self, data: bytes) -> bytes:
        """The signature of ``data``."""
        return _algorithm(self.algorithm).sign(data, self.key)

    def key_set(self) -> bytes:
        """The JWK Set to publish: the public half."""
        public = self.key.as_dict(private=False)
        for name in ("key_ops", "use"):
            public.pop(name, None)
        return msgspec.json.encode(
            {"keys": [{**public, "kid": self.key_id, "alg": self.algorithm, "use": "sig"}]}
        )


def load_signing_key(path: Path, key_id: str = "") -> SigningKey:
    """A private key from a JWK, or from PEM without a password: P-256 and the like, Ed25519, or RSA.

    ``key_id`` goes over the ``kid`` of a JWK; without both the thumbprint of the key is taken. Raises
    ``KeyFault``.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise KeyFault(f"cannot be read: {error.strerror}") from None
    key = _from_jwk(raw) if raw.lstrip().startswith(b"{") else _from_pem(raw)
    algorithms = _algorithms_of(key)
    if not algorithms or not key.is_private:
        raise KeyFault("is no private key that is taken: use P-256, Ed25519 or RSA")
    if isinstance(key, RSAKey) and key.raw_value.key_size < _RSA_BITS_MIN:
        raise KeyFault(f"has {key.raw_value.key_size} bits, at least {_RSA_BITS_MIN} are needed")
    algorithm = _RSA[0] if _RSA[0] in algorithms else min(algorithms)
    return SigningKey(key_id=key_id or key.kid or key.thumbprint(), algorithm=algorithm, key=key)


def _from_jwk(raw: bytes) -> Key:
    try:
        return JWKRegistry.import_key(msgspec.json.decode(raw, type=dict[str, Any]))
    except (msgspec.MsgspecError, JoseError, ValueError, TypeError, LookupError, RecursionError):
        raise KeyFault("is no JSON Web Key") from None


def _from_pem(raw: bytes) -> Key:
    for kind in (ECKey, OKPKey, RSAKey):
        try:
            return kind.import_key(raw)
        except (JoseError, ValueError, TypeError):
            continue
    raise KeyFault("is neither a JWK nor a private key in PEM without a password")


__all__ = ["KeyFault", "SigningKey", "fault_of", "load_signing_key", "verifies"]
