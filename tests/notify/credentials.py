"""Credentials of NATS as an operator hands them out: JWTs signed with keys of our own.

Source: NATS ADR-14 (JWT), the nkeys encoding.
"""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

import nkeys


def _pair(prefix: int) -> tuple[Any, str, str]:
    """A key: it, its public name, its seed."""
    seed = bytes(nkeys.encode_seed(secrets.token_bytes(32), prefix))
    pair = nkeys.from_seed(bytearray(seed))
    return pair, bytes(pair.public_key).decode(), seed.decode()


def _part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _jwt(signer: tuple[Any, str, str], subject: str, name: str, claims: dict[str, Any]) -> str:
    body = {
        "jti": name,
        "iat": 1,
        "iss": signer[1],
        "name": name,
        "sub": subject,
        "nats": claims | {"version": 2},
    }
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    text = f"{_part(json.dumps(head).encode())}.{_part(json.dumps(body).encode())}"
    return f"{text}.{_part(signer[0].sign(text.encode()))}"


def credentials(folder: Path) -> tuple[Path, str]:
    """A file of credentials, and the configuration of a server that takes them."""
    operator = _pair(nkeys.PREFIX_BYTE_OPERATOR)
    account = _pair(nkeys.PREFIX_BYTE_ACCOUNT)
    user = _pair(nkeys.PREFIX_BYTE_USER)
    unlimited = dict.fromkeys(("subs", "data", "payload"), -1)
    limits = unlimited | dict.fromkeys(("imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
    operators = _jwt(operator, operator[1], "operator", {"type": "operator"})
    accounts = _jwt(operator, account[1], "account", {"type": "account", "limits": limits})
    users = _jwt(account, user[1], "user", {"type": "user", "pub": {}, "sub": {}} | unlimited)
    file = folder / "broker.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{users}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user[2]}\n------END USER NKEY SEED------\n"
    )
    config = f"operator: {operators}\nresolver: MEMORY\nresolver_preload {{ {account[1]}: {accounts} }}\n"
    return file, config
