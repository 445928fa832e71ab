"""The configurations of the how-to page are ones that work."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import typer

from a2a_handoff.cli.commands import app
from a2a_handoff.transports.mcp.tools import TOOLS
from tests.docs_tables import DOCS

PAGE = (DOCS / "how-to" / "connect-mcp-clients.md").read_text(encoding="utf-8")


def servers(config: Any) -> Iterator[dict[str, Any]]:
    """Every server of a configuration, wherever its client wants it."""
    if "command" in config or "url" in config:
        yield config
    else:
        for value in config.values():
            yield from servers(value)


def samples() -> list[dict[str, Any]]:
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    return [server for block in blocks for server in servers(json.loads(block))]


def flags() -> set[str]:
    commands: Any = typer.main.get_command(app)
    return {flag for param in commands.commands["mcp"].params for flag in param.opts}


@pytest.mark.parametrize("server", samples(), ids=json.dumps)
def test_a_sample_starts_the_command_or_names_the_address(server: dict[str, Any]) -> None:
    if "url" in server:
        url = urlsplit(server["url"])
        assert url.path == "/mcp"
        assert {name for name, _ in parse_qsl(url.query)} <= {"agent", "platform", "workspace", "instance"}
        return
    assert (server["command"], server["args"][0]) == ("a2a-handoff", "mcp")
    assert {word for word in server["args"] if word.startswith("--")} <= flags()


def test_the_lines_for_the_shell_name_options_that_there_are() -> None:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    started = [shlex.split(line.partition(" -- ")[2]) for line in lines if " -- " in line]
    assert started
    for words in started:
        assert words[:2] == ["a2a-handoff", "mcp"]
        assert {word for word in words if word.startswith("--")} <= flags()


def test_every_option_of_the_command_and_every_tool_that_it_names_is_there() -> None:
    for flag in flags() - {"--help", "-h"}:
        assert flag in PAGE
    named = set(re.findall(r"`([a-z]+_handoffs?|[a-z]+_agents|agent_[a-z]+)`", PAGE))
    assert named <= {tool.name for tool in TOOLS}
