"""Web pages of others, and names that are not the broker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_handoff.security.sites import Sites
from tests.support.running import broker

LOCAL = Sites(loopback=True, public_url="")
NAMED = Sites(loopback=True, public_url="https://broker.example/a2a")
OPEN = Sites(loopback=False, public_url="")


def _fault(sites: Sites, host: str = "127.0.0.1:8080", origin: str = "") -> str:
    headers = [(b"accept", b"*/*"), (b"host", host.encode("latin-1"))]
    return sites.fault([*headers, (b"origin", origin.encode("latin-1"))] if origin else headers)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "localhost:1",
        "LOCALHOST",
        "[::1]:8080",
        "broker:8080",
        "host.docker.internal",
        "",
    ],
)
def test_a_program_of_this_machine_may_call(host: str) -> None:
    assert _fault(LOCAL, host) == ""


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1:8080", "https://[::1]"])
def test_a_page_of_this_machine_may_call(origin: str) -> None:
    assert _fault(LOCAL, origin=origin) == ""


@pytest.mark.parametrize("origin", ["chrome-extension://abc", "vscode-webview://x", "tauri://localhost"])
def test_an_extension_may_call(origin: str) -> None:
    assert _fault(LOCAL, origin=origin) == ""


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://evil.example:8080", "http://localhost.evil.example", "null", "http://["],
)
@pytest.mark.parametrize("sites", [LOCAL, NAMED, OPEN])
def test_a_page_of_another_site_may_not(sites: Sites, origin: str) -> None:
    assert "may not use this broker" in _fault(sites, origin=origin)


def test_a_name_that_somebody_let_point_to_this_machine_is_not_ours() -> None:
    fault = _fault(LOCAL, "evil.example:8080", "http://evil.example:8080")
    assert "A2A_HANDOFF_PUBLIC_URL" in fault
    assert _fault(LOCAL, "evil.example")
    assert _fault(NAMED, "broker.example") == ""
    assert _fault(NAMED, origin="https://broker.example") == ""


def test_a_broker_that_others_can_reach_takes_pages_of_its_own_address() -> None:
    assert _fault(OPEN, "10.0.0.7:8080") == ""
    assert _fault(OPEN, "10.0.0.7:8080", "http://10.0.0.7:8080") == ""


def test_nothing_is_done_for_the_page_of_another_site(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        body = {"task": "steal", "target_agent": "editor"}
        for path in ("/api/handoffs", "/", "/tasks/send", "/message:send"):
            answer = b.http.post(path, json=body, headers={"Origin": "https://evil.example"})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert b.http.get("/api/handoffs", headers={"Host": "evil.example"}).status_code == 403
        assert b.http.get("/api/handoffs").json()["total"] == 0
