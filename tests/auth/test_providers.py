"""A broker that takes the tokens of an identity provider, whose keys it reads over HTTP or from a file."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from a2a_handoff.security import keyring
from tests.support.bearers import SECRET, Provider, bearer
from tests.support.running import Broker, broker, running

_SETTINGS: dict[str, Any] = {"auth_issuer": Provider.issuer, "auth_audience": "broker"}


class Published(Provider):
    """Its keys at an address. ``reads`` counts how often they were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.app = Starlette(routes=[Route("/keys", self._answer)])

    async def _answer(self, request: Request) -> Response:
        del request
        self.reads += 1
        return JSONResponse(self.key_set())


@pytest.fixture
def provider() -> Published:
    return Published()


@pytest.fixture
def b(tmp_path: Path, provider: Published) -> Generator[Broker]:
    with running(provider.app) as url, broker(tmp_path, auth_jwks=f"{url}/keys", **_SETTINGS) as open_broker:
        yield open_broker


def _asked(b: Broker, token: str) -> int:
    return b.http.get("/api/agents", headers={"Authorization": f"Bearer {token}"}).status_code


def test_its_tokens_are_good_and_its_keys_are_read_once(b: Broker, provider: Published) -> None:
    assert [_asked(b, provider.token(name)) for name in ("a", "b", "a")] == [200, 200, 200]
    assert provider.reads == 1


def test_its_keys_may_change(b: Broker, provider: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "AGAIN_S", 0.0)
    assert _asked(b, provider.token("a")) == 200
    old = provider.token("old")
    provider.rotate(keep=False)
    monkeypatch.setattr(keyring, "_AT_ONCE_S", 0.0)
    assert _asked(b, provider.token("a")) == 200
    assert _asked(b, old) == 401


def test_what_it_issued_for_others_is_not_good_here(b: Broker, provider: Published) -> None:
    assert _asked(b, provider.token("a", audience="somebody else")) == 401


def test_tokens_of_another_provider_are_not_good_here(b: Broker, provider: Published) -> None:
    assert _asked(b, provider.token("a")) == 200
    assert _asked(b, Published().token("a")) == 401


def test_a_provider_that_is_away_is_no_reason_not_to_start(tmp_path: Path, provider: Published) -> None:
    with running(provider.app) as url:
        pass
    with broker(tmp_path, auth_jwks=f"{url}/keys", **_SETTINGS) as b:
        answer = b.http.get("/api/agents", headers={"Authorization": f"Bearer {provider.token('a')}"})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "retry-after" in answer.headers
        assert b.http.get("/readyz").status_code == 200


def test_keys_may_stand_in_a_file_beside_a_secret(tmp_path: Path, provider: Published) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(provider.key_set()))
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    with broker(tmp_path, auth_jwks=str(file), auth_secret_file=secret, **_SETTINGS) as b:
        assert _asked(b, provider.token("a")) == 200
        ours = bearer("a", iss=Provider.issuer, aud="broker")
        assert b.http.get("/api/agents", headers=ours).status_code == 200


def test_a_client_is_told_where_it_gets_a_token(b: Broker) -> None:
    """RFC 9728, as clients of MCP look for it."""
    for path, resource in (("", b.url), ("/mcp", f"{b.url}/mcp")):
        told = b.http.get(f"/.well-known/oauth-protected-resource{path}").json()
        assert (told["resource"], told["authorization_servers"]) == (resource, [Provider.issuer])
        assert "handoff:send" in told["scopes_supported"]


def test_who_has_a_secret_alone_is_told_nothing(closed: Broker) -> None:
    assert closed.http.get("/.well-known/oauth-protected-resource").status_code == 404
