"""Tokens for tests: of a shared secret, and of an identity provider whose keys change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from a2a_handoff.security.bearer import minted

SECRET = "a shared secret of more than thirty-two bytes"


def claims_of(sub: str, *, tenant: str = "default", lasts_s: float = 86_400, **more: Any) -> dict[str, Any]:
    """Claims of a good token; what is ``None`` in ``more`` is left out."""
    found = {"sub": sub, "tenant": tenant, "exp": time.time() + lasts_s} | more
    return {name: value for name, value in found.items() if value is not None}


def token(sub: str, **more: Any) -> str:
    return minted(SECRET.encode(), claims_of(sub, **more))


def bearer(sub: str, **more: Any) -> dict[str, str]:
    """The header of an agent."""
    return {"Authorization": f"Bearer {token(sub, **more)}"}


class Provider:
    """Signs tokens with its newest key."""

    issuer = "https://id.example"

    def __init__(self) -> None:
        self.keys: list[RSAKey | ECKey] = []
        self.rotate()

    def rotate(self, *, keep: bool = True) -> None:
        key = ECKey.generate_key("P-256", auto_kid=True)
        self.keys = [*(self.keys if keep else []), key]

    def key_set(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in self.keys]}

    def token(
        self, sub: str, *, header: Mapping[str, Any] | None = None, audience: str = "broker", **more: Any
    ) -> str:
        key = self.keys[-1]
        head = {"alg": "ES256", "kid": key.kid} | dict(header or {})
        head = {name: value for name, value in head.items() if value is not None}
        return jwt.encode(
            head, claims_of(sub, iss=self.issuer, aud=audience, **more), key, algorithms=["ES256"]
        )
