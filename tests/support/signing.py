"""Keys, and signatures of cards as different writers make them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import rfc8785
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.protobuf.json_format import MessageToDict
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

Card = dict[str, Any]
AsymmetricKey = ECKey | RSAKey | OKPKey


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Signer:
    """Somebody with a key. ``algorithm`` is that of its signatures."""

    key_id: str = "k1"
    algorithm: str = "ES256"
    key: AsymmetricKey = field(default_factory=lambda: ECKey.generate_key("P-256"))

    @property
    def jwk(self) -> dict[str, Any]:
        return {**self.key.as_dict(private=False), "kid": self.key_id}

    def over(self, payload: bytes, **header: Any) -> dict[str, Any]:
        """A signature over bytes; ``header`` goes over what stands in the protected header."""
        said = {"alg": self.algorithm, "typ": "JOSE", "kid": self.key_id} | header
        protected = b64(json.dumps({k: v for k, v in said.items() if v is not None}).encode())
        model: Any = JWSRegistry.algorithms[self.algorithm]
        made = model.sign(f"{protected}.{b64(payload)}".encode(), self.key)
        return {"protected": protected, "signature": b64(made)}

    def signed(self, card: Mapping[str, Any], **header: Any) -> Card:
        """The card as it is, with a signature over all of it."""
        body = {name: value for name, value in card.items() if name != "signatures"}
        earlier = card.get("signatures", [])
        return body | {"signatures": [*earlier, self.over(rfc8785.dumps(body), **header)]}

    def signed_by_the_sdk(self, card: Mapping[str, Any]) -> Card:
        """The card as the SDK reads it, signed by its signer."""
        pem = self.key.as_pem(private=True)
        header = {"kid": self.key_id, "alg": self.algorithm, "jku": None, "typ": "JOSE"}
        sign = create_agent_card_signer(pem, header)  # pyright: ignore[reportArgumentType] - a plain dict will do
        return MessageToDict(sign(parse_agent_card(json.loads(json.dumps(card)))))


def key_set(*signers: Signer) -> dict[str, Any]:
    """A JWK Set with the public keys of some."""
    return {"keys": [signer.jwk for signer in signers]}


def key_file(folder: Path, *signers: Signer) -> Path:
    """A file with the public keys of some."""
    path = folder / "keys.json"
    path.write_text(json.dumps(key_set(*signers)))
    return path


def pem_file(folder: Path) -> Path:
    """A file with a new private key."""
    path = folder / "key.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


def keys_of(document: Any) -> dict[str, jwt.PyJWK]:
    """The keys of a JWK Set, as the SDK's verifier takes them."""
    return {jwk["kid"]: jwt.PyJWK(jwk) for jwk in document["keys"]}
