"""The command ``mcp``: a process between a client and a broker."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.conftest import Door, ask, good, refused
from tests.support.running import Broker, broker, kept_port
from tests.support.wire import eventually

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Process:
    """The command, spoken to line by line."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.number = 1

    def say(self, message: Any) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        self.popen.stdin.flush()

    def hear(self) -> Any:
        assert self.popen.stdout is not None
        return json.loads(self.popen.stdout.readline())

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        self.number += 1
        params = {"name": name, "arguments": arguments}
        self.say({"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params})

    def end(self) -> tuple[int, str, str]:
        """Close its input: exit code, and what it wrote that nobody read."""
        out, err = self.popen.communicate(timeout=WAIT_S)
        return self.popen.returncode, out, err


@contextmanager
def process(url: str, *flags: str) -> Generator[Process]:
    popen = subprocess.Popen(
        (sys.executable, "-m", "a2a_handoff", "mcp", "--url", url, *flags),
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        started = Process(popen)
        started.say(HELLO)
        assert started.hear()["result"]["serverInfo"]["name"] == "a2a-handoff"
        started.say(READY)
        yield started
    finally:
        popen.kill()
        popen.wait(WAIT_S)
        for stream in (popen.stdin, popen.stdout, popen.stderr):
            assert stream is not None
            stream.close()


def test_the_end_of_its_input_ends_it_and_its_output_is_protocol_alone(b: Broker) -> None:
    with process(b.url) as running:
        running.say("this is no JSON")
        running.call("list_agents", {})
        answer = running.hear()
        while answer.get("id") != 2:
            answer = running.hear()
        assert not answer["result"].get("isError")
        code, out, _ = running.end()
    assert code == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_a_call_waits(b: Broker, number: signal.Signals) -> None:
    with process(b.url) as running:
        running.call("watch_handoffs", {"timeout": 300})
        eventually(lambda: any(b.app.service.inbox._seats.values()))
        running.popen.send_signal(number)
        assert running.popen.wait(WAIT_S) == 0
        assert running.popen.stderr is not None
        assert "Traceback" not in running.popen.stderr.read()
    made = ask(b)
    assert b.handoff(made)["state"] in ("offered", "requested")  # nobody took it


def test_a_client_of_an_older_protocol_cancels_by_a_notification(b: Broker) -> None:
    b.register("cursor")
    with process(b.url) as running:
        running.call("watch_handoffs", {"timeout": 300})
        eventually(lambda: any(b.app.broker.inbox._seats.values()))
        running.say(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": running.number}}
        )
        eventually(lambda: not any(b.app.broker.inbox._seats.values()))
        made = ask(b)
        assert b.handoff(made)["state"] == "offered"
        running.call("watch_handoffs", {"timeout": 10})
        answer = running.hear()
        while answer.get("id") != running.number:
            answer = running.hear()
        came = answer["result"]["structuredContent"]
        assert (came["handoff"]["handoffId"], came["again"]) == (made, False)


def test_the_agent_is_there_as_long_as_the_process_is(b: Broker) -> None:
    flags = ("--agent", "helper", "--platform", "cowork", "--capability", "canDeploy", "--instance", "w-1")

    def known() -> Any:
        return b.http.get("/api/agents/helper").json()

    with process(b.url, *flags) as running:
        eventually(lambda: known().get("status") == "online")
        agent = known()
        assert (agent["platform"], agent["instance_id"], agent["readiness"]) == ("cowork", "w-1", "pull")
        able = {name for name, has in agent["capabilities"].items() if has is True}
        assert able == {"canBrowse", "canTestUI", "canDeploy"}
        assert running.end()[0] == 0
    assert known()["status"] == "offline"


def test_an_agent_that_is_known_stays_as_it_is_registered(b: Broker) -> None:
    b.register("cursor", platform="external", capabilities={"domains": ["law"]})
    with process(b.url) as running:
        running.call("check_handoffs", {})
        running.hear()
        agent = b.http.get("/api/agents/cursor").json()
        assert (agent["platform"], agent["capabilities"]["domains"]) == ("external", ["law"])
    with process(b.url, "--workspace", "editor2"):
        eventually(lambda: b.http.get("/api/agents/cursor").json()["workspace"] == "editor2")


def test_it_starts_before_the_broker_and_registers_when_that_is_there(tmp_path: Path) -> None:
    port = kept_port()
    door = Door("stdio", f"http://127.0.0.1:{port}")

    async def body() -> None:
        async with door.client() as client:
            error = refused(await client.call_tool("check_handoffs", {}))
            assert error["code"] == "unreachable"
            watching = asyncio.create_task(client.call_tool("watch_handoffs", {"timeout": 60}))
            with await asyncio.to_thread(entered, broker(tmp_path, port=port)) as b:
                await asyncio.to_thread(
                    eventually, lambda: b.http.get("/api/agents/cursor").status_code == 200
                )
                made = await asyncio.to_thread(ask, b)
                assert good(await watching)["handoff"]["handoffId"] == made

    asyncio.run(body())


@contextmanager
def _within(context: Any, value: Any) -> Generator[Any]:
    try:
        yield value
    finally:
        context.__exit__(None, None, None)


def entered(context: Any) -> Any:
    """Enter a context in the thread that calls, to be left by the one that is given."""
    return _within(context, context.__enter__())


def test_an_address_that_is_none_is_told_at_once() -> None:
    done = _run("--url", "ftp://x")
    assert done.returncode == 2
    assert "is not the address of a broker" in done.stderr


@pytest.mark.parametrize("package", ["mcp", "mcp_types"])
def test_c096_without_the_extra_it_says_what_to_install(package: str) -> None:
    script = (
        f"import sys; sys.modules['{package}'] = None; "
        "from a2a_handoff.cli import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, timeout=WAIT_S, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "a2a-handoff: mcp needs the extra mcp: pip install 'a2a-handoff[mcp]'\n"


def _run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "a2a_handoff", "mcp", *flags),
        capture_output=True, text=True, timeout=WAIT_S, cwd=ROOT, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
