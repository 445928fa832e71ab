"""``/mcp`` as a path of the broker: bounds, strangers, connections that end, the stop."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.mcp.conftest import Door, good
from tests.mcp.test_watching import hang_up
from tests.support.running import Broker, broker
from tests.support.served import served

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def post(b: Broker, content: bytes | None = None, **headers: str) -> httpx.Response:
    body = json.dumps(LIST).encode() if content is None else content
    return b.http.post("/mcp", content=body, headers=HEADERS | headers)


def tools_of(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    (data,) = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return len(json.loads(data)["result"]["tools"])


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_it_answers_posts_alone(b: Broker) -> None:
    for method in ("GET", "DELETE", "PUT"):
        answer = b.http.request(method, "/mcp", headers=HEADERS)
        assert problem(answer) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"


def test_what_is_no_request_is_refused(b: Broker) -> None:
    assert problem(post(b, b"{")) == (400, "parse_error")
    assert problem(post(b, b"\xff")) == (400, "parse_error")
    assert problem(post(b, b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}")) == (400, "parse_error")
    assert post(b, b'{"a": 1}').status_code == 400


def test_c079_a_body_has_the_limit_of_every_other_also_in_chunks(tmp_path: Path) -> None:
    with broker(tmp_path, max_body=20_000) as b:
        big = json.dumps(LIST | {"more": "x" * 20_000}).encode()
        assert problem(post(b, big)) == (413, "payload_too_large")
        chunks = (big[at : at + 1_000] for at in range(0, len(big), 1_000))
        assert problem(b.http.post("/mcp", content=chunks, headers=HEADERS)) == (413, "payload_too_large")
        assert tools_of(post(b)) > 0


def test_a_page_of_another_site_and_another_name_are_turned_away(b: Broker) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
        assert problem(post(b, None, **headers)) == (403, "forbidden")
    assert tools_of(post(b, Origin="http://localhost:3000")) > 0
    assert tools_of(post(b, Host="localhost")) > 0
    assert tools_of(post(b, Host="handoffs.internal")) > 0


def test_c089_there_are_no_sessions_so_any_of_them_will_do(b: Broker) -> None:
    assert tools_of(post(b)) == tools_of(post(b, None, **{"Mcp-Session-Id": "of-another-replica"}))
    assert "mcp-session-id" not in post(b).headers


def test_c090_clients_that_vanish_disturb_nobody(b: Broker, caplog: pytest.LogCaptureFixture) -> None:
    b.register("cursor")
    door = Door("http", b.url)

    async def body() -> None:
        async with door.client("cowork") as client:
            for number in range(20):
                await asyncio.to_thread(hang_up, b.url, 0.001 * (number % 4))
                good(await client.call_tool("list_agents", {}))

    with caplog.at_level(logging.ERROR):
        asyncio.run(body())
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_broker_that_stops_lets_those_who_wait_go(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        running.register("cursor")
        door = Door("http", running.url)
        codes: list[int] = []

        async def body() -> None:
            async with door.client() as client:
                good(await client.call_tool("watch_handoffs", {"timeout": 0}))
                begun = asyncio.Event()

                async def hear(progress: float, total: float | None, message: str | None) -> None:
                    begun.set()

                long = {"timeout": 300, "pollInterval": 0.1}
                watching = asyncio.create_task(
                    client.call_tool("watch_handoffs", long, progress_callback=hear)
                )
                await asyncio.wait_for(begun.wait(), 20)
                stopping = threading.Thread(target=lambda: codes.append(running.stop()))
                stopping.start()
                await asyncio.wait({watching}, timeout=20)
                assert watching.done()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                await asyncio.to_thread(stopping.join)

        asyncio.run(body())
        assert codes == [0]
        assert "Traceback" not in running.words


def test_c096_without_the_extra_it_says_what_to_install(b: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: Any = None
    monkeypatch.delitem(sys.modules, "a2a_handoff.transports.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp_types", gone)
    answer = post(b)
    assert problem(answer) == (404, "not_found")
    assert "pip install 'a2a-handoff[mcp]'" in answer.json()["detail"]
    assert b.http.get("/readyz").status_code == 200


def test_c096_a_broker_that_nobody_asks_for_mcp_does_not_load_it() -> None:
    script = "import sys; import a2a_handoff.app; print('mcp' in sys.modules, 'mcp_types' in sys.modules)"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
