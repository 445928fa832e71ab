"""A client of the MCP tools without a library of MCP: one request for each call, for one agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.running import Broker, sse_data

_HEADERS = {"Accept": "application/json, text/event-stream"}


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The tools of a broker as an agent has them. ``options`` are platform, workspace and instance."""

    broker: Broker
    agent: str
    options: dict[str, str] = field(default_factory=dict[str, str])

    def ask(
        self, tool: str, arguments: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """What a tool gave; ``error`` is in it if it refused."""
        call = {
            "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }  # fmt: skip
        asked = {"agent": self.agent, **self.options}
        answer = self.broker.http.post(
            "/mcp", params=asked, json=call, headers={**_HEADERS, **(headers or {})}
        )
        assert answer.status_code == 200, answer.text
        (said,) = [json.loads(data) for data in sse_data(iter(answer.text.splitlines()))]
        result = said["result"]
        assert result.get("isError", False) is ("error" in result["structuredContent"])
        return result["structuredContent"]

    def do(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The same, and it must be done."""
        given = self.ask(tool, arguments)
        assert "error" not in given, given
        return given
