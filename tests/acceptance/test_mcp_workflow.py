"""A desktop assistant that speaks REST and an editor that speaks MCP work together, each in its process."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from mcp import Client

from tests.acceptance.test_workflows import Worker, worker
from tests.mcp.conftest import good, stdio
from tests.support.served import Served, served

TESTS = {
    "targetAgent": "cowork",
    "task": "Run E2E tests for groundbreaking features",
    "context": {"testFile": "groundbreaking-features.test.ts"},
}


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("mcp-workflow")) as broker:
        yield broker


async def hears(assistant: Worker) -> Any:
    return await asyncio.to_thread(assistant.next)


async def review(editor: Client, assistant: Worker) -> None:
    """What the model in the editor does."""
    watching = asyncio.create_task(editor.call_tool("watch_handoffs", {"timeout": 60}))
    made = (await hears(assistant))["handoff"]
    came = good(await watching)
    assert (came["accepted"], came["handoff"]["handoffId"]) == (True, made)
    assert came["handoff"]["task"] == "Review the new CodeDnaService implementation"
    assert came["handoff"]["context"]["key_facts"] == {"files": ["code-dna.service.ts"]}
    one = {"handoffId": made}
    good(await editor.call_tool("handoff_progress", {**one, "message": "the browser tests run"}))

    tests = good(await editor.call_tool("create_handoff", TESTS))["handoff"]
    assert await hears(assistant) == {"did": "registered"}
    assert await hears(assistant) == {
        "did": "found",
        "task": TESTS["task"],
        "file": "groundbreaking-features.test.ts",
    }
    ended = {"state": ""}
    async with asyncio.timeout(30):
        while ended["state"] != "completed":
            ended = good(await editor.call_tool("check_handoffs", {"handoffId": tests["handoffId"]}))[
                "handoff"
            ]
    assert ended["result"] == "groundbreaking-features.test.ts: 12 passed"

    good(await editor.call_tool("complete_handoff", {**one, "result": f"fine; {ended['result']}"}))
    assert await hears(assistant) == {
        "did": "read",
        "result": "fine; groundbreaking-features.test.ts: 12 passed",
    }
    sent = good(await editor.call_tool("check_handoffs", {}))["sent"]
    assert [(each["handoffId"], each["state"]) for each in sent] == [(tests["handoffId"], "completed")]


def test_the_editor_reviews_and_has_the_assistant_run_the_browser_tests(b: Served) -> None:
    async def body() -> None:
        async with Client(stdio(b.url), read_timeout_seconds=60) as editor:
            good(await editor.call_tool("watch_handoffs", {"timeout": 0}))
            with worker("assistant_with_a_browser", b.url) as assistant:
                await review(editor, assistant)

    asyncio.run(body())
    assert b.http.get("/api/agents/cursor").json()["status"] == "offline"
