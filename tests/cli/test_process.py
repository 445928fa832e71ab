"""The command as a process of its own: what it imports, pipes, signals, terminals; and its reference page."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from fcntl import ioctl
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

import pytest
import typer.main

from a2a_handoff import __version__
from a2a_handoff.cli.commands import app
from tests.cli.conftest import Run
from tests.cli.stub import Stub

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from a2a_handoff.cli import main; raise SystemExit(main())"]


def start(*args: str, env: dict[str, str] | None = None, **streams: Any) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("A2A_HANDOFF_")}
    return subprocess.Popen([*COMMAND, *args], text=True, cwd=ROOT, env=environ | (env or {}), **streams)


def test_the_version_is_the_packages(run: Run) -> None:
    assert run("--version") == (0, f"a2a-handoff {__version__}\n", "")


@pytest.mark.parametrize("args", [(), ("--help",), ("agents",), ("send", "--help")])
def test_help_is_plain_text_and_needs_no_server(run: Run, args: tuple[str, ...]) -> None:
    code, out, err = run(*args)
    assert code in (0, 2)
    assert "Usage: a2a-handoff" in out + err
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    "args", [("nonsense",), ("send",), ("send", "T", "--nonsense"), ("handoffs", "list", "--limit", "x")]
)
def test_wrong_usage_has_exit_code_2(run: Run, args: tuple[str, ...]) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert "Error: " in err


def imported_by(statement: str) -> set[str]:
    script = f"import sys, contextlib\nwith contextlib.suppress(SystemExit):\n {statement}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_c096_help_imports_nothing_that_it_does_not_need() -> None:
    heavy = {
        "httpx",
        "pydantic",
        "rich",
        "a2a",
        "uvicorn",
        "starlette",
        "opentelemetry",
        "tiktoken",
        "google",
    }
    assert not heavy & imported_by("from a2a_handoff.cli import main; main(['--help'])")


def test_c096_the_core_imports_nothing_heavy() -> None:
    heavy = {
        "httpx",
        "pydantic",
        "rich",
        "typer",
        "a2a",
        "uvicorn",
        "starlette",
        "opentelemetry",
        "asyncio",
        "sqlite3",
    }
    assert not heavy & imported_by("import a2a_handoff.core.machine, a2a_handoff.core.matching")


def test_settings_are_read_without_the_server() -> None:
    assert not {"httpx", "a2a", "uvicorn", "opentelemetry"} & imported_by("import a2a_handoff.config")


# --- pipes and signals ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_reader_that_goes_away_leaves_no_traceback(stub: Stub, how: tuple[str, ...]) -> None:
    agents = [{"agent_id": f"agent-{number}"} for number in range(3000)]
    stub.json("GET", "/api/agents", {"agents": agents, "total": 3000})
    reader, writer = os.pipe()
    os.close(reader)
    process = start("agents", "list", *how, "--url", stub.url, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err == ""


@contextlib.contextmanager
def hanging(stub: Stub) -> Generator[threading.Event]:
    """A stream that says one thing and then nothing. Gives the event of its having been read."""
    begun, over = threading.Event(), threading.Event()

    def write(request: BaseHTTPRequestHandler) -> None:
        task = {"task": {"id": "h1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        request.wfile.write(
            b"data: " + json.dumps({"jsonrpc": "2.0", "id": 1, "result": task}).encode() + b"\n\n"
        )
        request.wfile.flush()
        begun.set()
        over.wait(30)
        request.close_connection = True

    stub.answers["POST", "/"] = write
    yield begun
    over.set()


def test_ctrl_c_stops_watching_and_says_that_the_handoff_goes_on(stub: Stub) -> None:
    with hanging(stub):
        process = start("send", "T", "--url", stub.url, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stderr is not None
        assert process.stderr.readline() == "handoff h1\n"
        assert process.stderr.readline() == "· working\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "stopped watching; the handoff goes on: a2a-handoff handoffs show h1"


# --- terminals -----------------------------------------------------------------------------------


def on_a_terminal(*args: str, columns: int, env: dict[str, str] | None = None) -> str:
    """What a command writes to a terminal of that width."""
    main, side = pty.openpty()
    ioctl(side, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {"TERM": "xterm-256color", "COLUMNS": "", "NO_COLOR": ""} | (env or {})
    process = start(*args, stdout=side, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=clean)
    os.close(side)
    said = b""
    while True:
        try:
            piece = os.read(main, 65_536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(main)
    assert process.wait(30) == 0
    return said.decode()


def test_a_terminal_gets_colour_and_lines_of_its_width(stub: Stub) -> None:
    handoff = {
        "handoff_id": "h1", "correlation_id": "c", "trace_id": "ab", "state": "completed", "status": "completed",
        "owner": "nobody", "source_agent": "somebody", "assigned_to": "somebody-else", "task": "word " * 20,
    }  # fmt: skip
    stub.json("GET", "/api/handoffs", {"handoffs": [handoff], "total": 1})
    said = on_a_terminal("handoffs", "list", "--url", stub.url, columns=80)
    assert "\x1b[32mcompleted" in said
    plain = on_a_terminal("handoffs", "list", "--url", stub.url, columns=80, env={"NO_COLOR": "1"})
    assert "\x1b[32m" not in plain
    assert (
        max(len(line.rstrip()) for line in plain.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())
        <= 80
    )


# --- the reference page --------------------------------------------------------------------------


def commands(group: Any, path: str = "a2a-handoff") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_the_reference_page_names_every_command_and_every_option() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    missing: list[str] = []
    for path, command in commands(typer.main.get_command(app)):
        heading = f"## `{path}"
        if heading not in page:
            missing.append(path)
            continue
        section = page.partition(heading)[2].partition("\n## ")[0]
        missing += [
            f"{path} {name}"
            for param in command.params
            for name in param.opts
            if name.startswith("--")
            and name not in ("--url", "--token", "--json", "--help")
            and f"`{name}" not in section
        ]
    assert missing == []
