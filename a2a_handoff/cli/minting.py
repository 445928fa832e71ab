"""``token``: a token for development, signed with the broker's shared secret.

Not here: what a good token is (``security.bearer``).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from a2a_handoff.cli.outcome import FAILED, USAGE, Failed
from a2a_handoff.config import SettingsError, read
from a2a_handoff.ports import Scope


def token(*, sub: str, tenant: str, scope: str, ttl_s: float, config: Path | None) -> str:
    """A token that the broker with these settings takes for ``ttl_s`` seconds. Raises ``Failed``."""
    known = [one.value for one in Scope]
    unknown = [one for one in scope.split() if one not in known]
    if unknown:
        raise Failed(f"--scope: there is no {unknown[0]!r}, only {', '.join(known)}", code=USAGE)
    try:
        settings = read(environ=os.environ, config_file=config)
    except SettingsError as error:
        raise Failed(*error.lines, code=USAGE) from None
    secret = settings.secret()
    if not secret:
        raise Failed(
            "there is no shared secret to sign with: set A2A_HANDOFF_AUTH_SECRET_FILE, as for the broker",
            code=USAGE,
        )
    try:
        from a2a_handoff.security.bearer import minted  # noqa: PLC0415 - its library is an extra
    except ImportError:
        raise Failed("token: needs the extra auth: pip install 'a2a-handoff[auth]'", code=FAILED) from None
    now = int(time.time())
    claims: dict[str, object] = {settings.auth_agent_claim: sub, "iat": now, "exp": now + int(ttl_s)}
    if settings.auth_tenant_claim != "none":
        claims[settings.auth_tenant_claim] = tenant or settings.default_tenant
    elif tenant:
        raise Failed("--tenant: the broker's tokens name no tenant (auth_tenant_claim)", code=USAGE)
    said = {"iss": settings.auth_issuer, "aud": settings.auth_audience, "scope": scope}
    return minted(secret, claims | {name: value for name, value in said.items() if value})
