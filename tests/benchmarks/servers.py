"""The servers that are measured, each a process of its own, and what they cost.

Where there are two CPUs, the server under test has the first one alone, load and agent have the second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import httpx

SERVERS_CPU, LOAD_CPU = 0, 1
_CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

_NGINX = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {folder}; proxy_temp_path {folder};
  upstream agent {{ server 127.0.0.1:{agent}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://agent; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_buffering off; }}
  }}
}}
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def pin(pid: int, cpu: int) -> None:
    """One CPU each, if there are two."""
    if len(_CPUS) > 1:
        os.sched_setaffinity(pid, {_CPUS[cpu]})


@contextlib.contextmanager
def process(
    command: Sequence[str], *, cpu: int, port: int, env: dict[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """A server, up when it listens."""
    running = subprocess.Popen(
        command, env=os.environ | (env or {}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    pin(running.pid, cpu)
    try:
        ends_at = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if running.poll() is not None or time.monotonic() > ends_at:
                raise SystemExit(f"{command[-3:]} did not start")
            time.sleep(0.1)
        yield running
    finally:
        running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(15)
        running.kill()


def cpu_s(pid: int) -> float:
    """CPU time of a process and its children so far, 0 where /proc is missing."""
    total = 0.0
    with contextlib.suppress(OSError):
        pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        for each in pids:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def rss_mb(pid: int) -> float:
    """Resident memory of a process, 0 where /proc is missing."""
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0


# --- what there is to start ----------------------------------------------------------------------


@contextlib.contextmanager
def agent() -> Generator[tuple[str, int]]:
    """The fixed agent; it answers whatever is sent to it, spans too. Its address and process."""
    port = free_port()
    with process(_module("load", "agent", str(port)), cpu=LOAD_CPU, port=port) as running:
        yield f"http://127.0.0.1:{port}/", running.pid


@contextlib.contextmanager
def broker(
    folder: Path, agent_url: str | None = None, env: dict[str, str] | None = None
) -> Generator[tuple[str, int]]:
    """A broker on a store in ``folder`` that knows the fixed agent, if any. Its address and process."""
    port = free_port()
    (folder / "cards").mkdir(parents=True)
    own = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    environ = dict.fromkeys(own, "") | {
        "A2A_HANDOFF_PORT": str(port),
        "A2A_HANDOFF_STORE": f"sqlite:///{folder}/bench.db",
        "A2A_HANDOFF_CARDS": str(folder / "cards"),
    }
    serve = [sys.executable, "-m", "a2a_handoff", "serve"]
    with process(serve, cpu=SERVERS_CPU, port=port, env=environ | (env or {})) as running:
        url = f"http://127.0.0.1:{port}/"
        if agent_url is not None:
            _register(url, agent_url)
        yield url, running.pid


@contextlib.contextmanager
def bare() -> Generator[tuple[str, int]]:
    """A server that answers whoever waits, and keeps nothing."""
    port = free_port()
    with process(_module("bare", str(port)), cpu=SERVERS_CPU, port=port) as running:
        yield f"http://127.0.0.1:{port}/", running.pid


@contextlib.contextmanager
def sdk_broker(agent_url: str) -> Generator[tuple[str, int]]:
    """A broker on a2a-sdk's own handlers, in memory."""
    port = free_port()
    with process(_module("sdk_broker", str(port), agent_url), cpu=SERVERS_CPU, port=port) as running:
        yield f"http://127.0.0.1:{port}/", running.pid


@contextlib.contextmanager
def nginx(folder: Path, agent_url: str) -> Generator[tuple[str, int] | None]:
    """nginx as a reverse proxy to the agent; ``None`` if it is not installed."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        yield None
        return
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, agent=httpx.URL(agent_url).port, port=port))
    with process([program, "-c", str(config)], cpu=SERVERS_CPU, port=port) as running:
        yield f"http://127.0.0.1:{port}/", running.pid


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"tests.benchmarks.{name}", *arguments]


def _register(broker_url: str, agent_url: str) -> None:
    """Two registrations of the fixed agent: one is asked whole answers, the other streams."""
    for name, streaming, capability in (
        ("bench-agent", False, "canBench"),
        ("bench-streamer", True, "canStream"),
    ):
        params = {"offers": False, "capabilities": {capability: True}}
        card = {
            "name": name,
            "description": "fixed",
            "version": "1",
            "supportedInterfaces": [
                {"url": agent_url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": {
                "streaming": streaming,
                "extensions": [{"uri": "urn:a2a-handoff:handoff:v1", "params": params}],
            },
            "defaultInputModes": ["text/plain", "application/json"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": name, "name": name, "description": name, "tags": ["bench"]}],
        }
        body = {"agent_id": name, "card": card}
        httpx.post(f"{broker_url}api/agents", json=body, trust_env=False).raise_for_status()
