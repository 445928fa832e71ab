"""What comes with the broker shows a token: the command line, the kit, MCP clients."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from a2a_handoff.cli import main
from a2a_handoff.config import Settings, SettingsError, read
from a2a_handoff.kit.client import BrokerClient
from tests.support.bearers import SECRET, bearer, token
from tests.support.running import Broker


def _run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(args)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("URL", "TOKEN", "AUTH_SECRET", "AUTH_SECRET_FILE", "CONFIG"):
        monkeypatch.delenv(f"A2A_HANDOFF_{name}", raising=False)


# --- the command line ----------------------------------------------------------------------------


def test_a_command_shows_the_token_of_its_option_its_variable_or_a_file(
    closed: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask = ("agents", "list", "--url", closed.url)
    code, _, told = _run(capsys, *ask)
    assert (code, "unauthenticated" in told) == (1, True)
    assert _run(capsys, *ask, "--token", token("cli"))[0] == 0
    (tmp_path / "token").write_text(token("cli") + "\n")
    assert _run(capsys, *ask, "--token", f"@{tmp_path / 'token'}")[0] == 0
    monkeypatch.setenv("A2A_HANDOFF_TOKEN", token("cli"))
    assert _run(capsys, *ask)[0] == 0


@pytest.mark.parametrize("given", ["@nowhere", "two words", "\u00fc"])
def test_what_is_no_token_is_wrong_usage(
    closed: Broker, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    assert _run(capsys, "agents", "list", "--url", closed.url, "--token", given)[0] == 2


def test_what_is_sent_with_a_token_is_its_agents(closed: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    sent = ("send", "do it", "--target", "nobody", "--url", closed.url, "--token", token("clerk"), "--json")
    _run(capsys, *sent)
    seen = closed.http.get("/api/handoffs", headers=bearer("clerk")).json()["handoffs"]
    assert {each["source_agent"] for each in seen} == {"clerk"}
    code, _, _ = _run(capsys, "resolve", "--target", "nobody", "--url", closed.url, "--token", token("clerk"))
    assert code == 1


def test_a_token_for_development_is_good_at_the_broker_with_the_same_settings(
    closed: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2A_HANDOFF_AUTH_SECRET", SECRET)
    code, made, _ = _run(capsys, "token", "--sub", "editor", "--scope", "handoff:work", "--ttl", "60")
    assert code == 0
    headers = {"Authorization": f"Bearer {made.strip()}"}
    assert closed.http.get("/api/agents", headers=headers).status_code == 200
    claims = jwt.decode(made.strip(), OctKey.import_key(SECRET), algorithms=["HS256"]).claims
    assert (claims["sub"], claims["tenant"], claims["scope"]) == ("editor", "default", "handoff:work")
    assert 50 < claims["exp"] - time.time() <= 60


def test_without_a_secret_there_is_nothing_to_sign_with(capsys: pytest.CaptureFixture[str]) -> None:
    code, made, told = _run(capsys, "token", "--sub", "editor")
    assert (code, made, "A2A_HANDOFF_AUTH_SECRET_FILE" in told) == (2, "", True)


def test_a_scope_that_there_is_not_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2A_HANDOFF_AUTH_SECRET", SECRET)
    code, made, told = _run(capsys, "token", "--sub", "editor", "--scope", "handoff:send handoff:wrok")
    assert (code, made) == (2, "")
    assert "'handoff:wrok'" in told
    assert "handoff:work" in told


# --- settings ------------------------------------------------------------------------------------


def test_a_broker_that_asks_for_tokens_may_listen_on_every_address() -> None:
    assert Settings(host="192.0.2.1", auth_secret=SECRET).authenticates


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"AUTH_SECRET": "short"}, "too short"),
        ({"AUTH_SECRET_FILE": "nowhere"}, "cannot be read"),
        ({"AUTH_JWKS": "nowhere.json", "AUTH_ISSUER": "i", "AUTH_AUDIENCE": "a"}, "neither"),
        ({"AUTH_JWKS": "https://id.example/keys"}, "auth_issuer and auth_audience"),
        ({"AUTH_JWKS": "https://id.example/keys", "AUTH_ISSUER": "i"}, "needs auth_audience"),
        ({"HOST": "192.0.2.1"}, "turn authentication on"),
    ],
)
def test_settings_that_would_not_keep_anybody_out_are_refused(environ: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(environ={f"A2A_HANDOFF_{name}": value for name, value in environ.items()})
    assert why in str(caught.value)
    assert "short" not in str(caught.value).replace("too short", "")


def test_a_secret_is_never_shown() -> None:
    assert SECRET not in repr(Settings(auth_secret=SECRET))


# --- the kit -------------------------------------------------------------------------------------


def test_the_kit_shows_its_token(closed: Broker) -> None:
    async def story() -> list[Any]:
        async with BrokerClient(closed.url, agent_id="kit", token=token("kit")) as client:
            await client.register({"agent_id": "kit"})
            return await client.send(
                "do it",
                {"target_agent": "nobody", "user_intent": "i", "conversation_summary": "s", "key_facts": {}},
            )

    assert asyncio.run(story())[-1].ended


# --- MCP -----------------------------------------------------------------------------------------


def _mcp(closed: Broker, headers: dict[str, str], query: str = "") -> Any:
    async def story() -> Any:
        async with httpx.AsyncClient(headers=headers, trust_env=False) as plain:
            http: Any = plain
            transport = streamable_http_client(f"{closed.url}/mcp{query}", http_client=http)
            async with Client(transport, read_timeout_seconds=30) as client:
                return await client.call_tool("create_handoff", {"targetAgent": "nobody", "task": "do it"})

    return asyncio.run(story())


def test_tools_work_as_the_agent_of_the_token(closed: Broker) -> None:
    result = _mcp(closed, bearer("desk"))
    assert not result.is_error, result
    seen = closed.http.get("/api/handoffs", headers=bearer("desk")).json()["handoffs"]
    assert [each["source_agent"] for each in seen] == ["desk"]


def test_tools_do_not_work_as_another_agent(closed: Broker) -> None:
    result = _mcp(closed, bearer("desk"), "?agent=boss")
    assert result.is_error
    assert "forbidden" in json.dumps(result.model_dump(mode="json"))
