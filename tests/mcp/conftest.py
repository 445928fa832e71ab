"""A broker, and the ways in which an MCP client reaches its tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult, TextContent

from tests.support.running import Broker, broker

WAYS = ("http", "http_handshake", "stdio")


@dataclass
class Door:
    """One way to the tools of a broker at ``url``."""

    way: str
    url: str

    def client(self, agent: str = "cursor", **options: str) -> AbstractAsyncContextManager[Client]:
        """The package's own client, for an agent. ``options`` are platform, workspace and instance."""
        if self.way == "stdio":
            return Client(stdio(self.url, agent, **options), read_timeout_seconds=30)
        query = urlencode({"agent": agent} | options)
        mode = "legacy" if self.way == "http_handshake" else "auto"
        return Client(f"{self.url}/mcp?{query}", mode=mode, read_timeout_seconds=30)


def stdio(url: str, agent: str = "cursor", **options: str) -> StdioServerParameters:
    """How a client starts the command."""
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "a2a_handoff", "mcp", "--agent", agent, "--url", url, *flags],
        cwd=str(Path(__file__).parents[2]),
    )


@pytest.fixture
def b(tmp_path: Path) -> Generator[Broker]:
    with broker(tmp_path) as running:
        yield running


@pytest.fixture(params=WAYS)
def door(request: pytest.FixtureRequest, b: Broker) -> Door:
    return Door(request.param, b.url)


def ask(b: Broker, agent: str = "cursor", task: str = "Review a.py", **more: Any) -> str:
    """Hand a task to an agent over REST; the id of the handoff."""
    body = {"targetAgent": agent, "source_agent": "cowork", "task": task} | more
    answer = b.http.post("/api/handoffs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["handoff_id"]


def good(result: CallToolResult) -> Any:
    """The structure of a result that is no error, which its text repeats."""
    assert not result.is_error, text(result)
    assert json.loads(text(result)) == result.structured_content
    return result.structured_content


def refused(result: CallToolResult) -> Any:
    """What was refused."""
    assert result.is_error, result.structured_content
    error = result.structured_content["error"]
    assert error["message"] in text(result)
    assert f"({error['code']})" in text(result)
    return error


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text
