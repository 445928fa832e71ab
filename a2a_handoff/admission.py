"""Who is let in, from the settings.

Duty: the gate that every surface asks, and what tells clients where they get a token for it.
Not here: judging tokens (``security``), where the gate is asked (``transports``).
"""

from __future__ import annotations

from typing import Any

from a2a_handoff.client.documents import read_document
from a2a_handoff.config import ConfigurationError, Settings
from a2a_handoff.ports import Clock, Gate, Scope, UrlPolicy
from a2a_handoff.security.principals import OpenGate


def gate_of(settings: Settings, policy: UrlPolicy, clock: Clock) -> Gate:
    """Who is let in. Raises ``ConfigurationError`` if that cannot be judged."""
    if not settings.authenticates:
        return OpenGate(settings.default_tenant)
    try:
        from a2a_handoff.security.bearer import TokenGate, TokenRules  # noqa: PLC0415 - its library is an extra
        from a2a_handoff.security.keyring import PublicKeys  # noqa: PLC0415 - its library is an extra
    except ImportError:
        raise ConfigurationError(
            "authentication needs the extra auth: pip install 'a2a-handoff[auth]'"
        ) from None
    rules = TokenRules(
        issuer=settings.auth_issuer,
        audience=settings.auth_audience,
        leeway_s=settings.auth_leeway,
        agent_claim=settings.auth_agent_claim,
        tenant_claim="" if settings.auth_tenant_claim == "none" else settings.auth_tenant_claim,
        tenant=settings.default_tenant,
    )
    place, keys = settings.auth_jwks, None
    if place:
        keys = PublicKeys(lambda: read_document(place, policy), monotonic=clock.monotonic, named=place)
    try:
        return TokenGate(rules, secret=settings.secret(), keys=keys, now=clock.now)
    except OSError as error:
        raise ConfigurationError(f"auth_secret_file: cannot be read: {error.strerror}") from error


def resource_metadata(settings: Settings, resource: str) -> dict[str, Any] | None:
    """What a client needs to know to get a token (RFC 9728); ``None`` if nobody issues tokens for others."""
    if not settings.auth_jwks or not settings.auth_issuer.startswith(("http://", "https://")):
        return None
    return {
        "resource": resource,
        "authorization_servers": [settings.auth_issuer],
        "scopes_supported": [scope.value for scope in Scope],
        "bearer_methods_supported": ["header"],
    }
