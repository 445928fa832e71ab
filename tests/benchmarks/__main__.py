"""``make bench``: what a handoff costs, as ratios against other ways through the same machine.

The broker, a reverse proxy (nginx, if it is installed) and a broker built on a2a-sdk's own handlers in
memory stand in front of the same fixed agent and get the same load, one after the other, in rounds that
alternate. The server under test has CPU 0, load and agent have CPU 1, where there are two. A ratio is the
median of the ratios of the rounds; in brackets the lowest and the highest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

CALLERS = (1, 16, 64)
_NGINX = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  upstream agent {{ server 127.0.0.1:{agent}; keepalive 512; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://agent; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_buffering off; }}
  }}
}}
"""


@dataclass
class Way:
    """One way to the agent."""

    name: str
    url: str
    pid: int
    kind: str
    streams: bool = True
    rounds: dict[tuple[str, int], list[dict[str, float]]] = field(default_factory=dict)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def pin(pid: int, cpu: int) -> None:
    """One CPU each, if there are two."""
    if hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) > 1:
            os.sched_setaffinity(pid, {cpus[cpu]})


@contextlib.contextmanager
def process(
    command: Sequence[str], *, cpu: int, port: int, env: dict[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """A server, up when it listens."""
    running = subprocess.Popen(
        command,
        env=os.environ | (env or {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
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


def fire(way: Way, callers: int, seconds: float, kind: str) -> dict[str, float]:
    """One measurement."""
    before = cpu_s(way.pid)
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.load",
        "fire",
        way.url,
        str(callers),
        str(seconds),
        kind,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as load:
        pin(load.pid, 1)
        said, _ = load.communicate()
    result: dict[str, float] = json.loads(said)
    if result["errors"]:
        raise SystemExit(f"{way.name}, {kind}, {callers} callers: {result['errors']:.0f} wrong answers")
    result["cpu_us"] = 1e6 * (cpu_s(way.pid) - before) / (result["rps"] * seconds)
    return result


def register(broker: str, agent: str) -> None:
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
            "supportedInterfaces": [{"url": agent, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {
                "streaming": streaming,
                "extensions": [{"uri": "urn:a2a-handoff:handoff:v1", "params": params}],
            },
            "defaultInputModes": ["text/plain", "application/json"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": name, "name": name, "description": name, "tags": ["bench"]}],
        }
        httpx.post(
            f"{broker}/api/agents", json={"agent_id": name, "card": card}, trust_env=False
        ).raise_for_status()


def ratio(way: Way, other: Way, kind: tuple[str, str], callers: int, value: str = "rps") -> str:
    """The median of the rounds' ratios, with their range."""
    pairs = zip(way.rounds[kind[0], callers], other.rounds[kind[1], callers], strict=True)
    ratios = sorted(a[value] / b[value] for a, b in pairs if b[value])
    if not ratios:
        return "not measured"
    return f"{statistics.median(ratios):.3g} [{ratios[0]:.2g}-{ratios[-1]:.2g}]"


def median(way: Way, kind: str, callers: int, value: str) -> float:
    return statistics.median(each[value] for each in way.rounds[kind, callers])


def measure(ways: list[Way], *, rounds: int, seconds: float) -> None:
    """Every way, kind and number of callers, there and back again."""
    for number in range(rounds):
        for way in ways if number % 2 == 0 else reversed(ways):
            for callers in CALLERS:
                result = fire(way, callers, seconds, way.kind)
                way.rounds.setdefault((way.kind, callers), []).append(result)
            if way.streams:
                kind = "stream" if way.kind == "handoff" else "plain-stream"
                way.rounds.setdefault((kind, 16), []).append(fire(way, 16, seconds, kind))


def table(broker: Way, direct: Way, others: list[Way]) -> Table:
    """The figures."""
    shown = Table(title="A durable, traced, resolved handoff against other ways to the same agent")
    shown.add_column("callers", justify="right")
    shown.add_column("handoffs/s", justify="right")
    shown.add_column("added p50, ms", justify="right")
    shown.add_column("added p99, ms", justify="right")
    shown.add_column("CPU, µs", justify="right")
    for other in others:
        shown.add_column(f"rate / {other.name}", justify="right")
    for callers in CALLERS:
        added = [
            median(broker, "handoff", callers, name) - median(direct, "plain", callers, name)
            for name in ("p50_ms", "p99_ms")
        ]
        shown.add_row(
            str(callers),
            f"{median(broker, 'handoff', callers, 'rps'):.0f}",
            f"{added[0]:.2f}",
            f"{added[1]:.2f}",
            f"{median(broker, 'handoff', callers, 'cpu_us'):.0f}",
            *(ratio(broker, other, ("handoff", "plain"), callers) for other in others),
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    chosen = parser.parse_args(arguments)
    rounds, seconds = (1, 1.0) if chosen.quick else (chosen.rounds, chosen.seconds)
    console = Console(width=132)
    with contextlib.ExitStack() as up, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ports = {name: free_port() for name in ("agent", "broker", "sdk", "nginx")}
        agent_url = f"http://127.0.0.1:{ports['agent']}/"
        load = [sys.executable, "-m", "tests.benchmarks.load", "agent", str(ports["agent"])]
        agent = up.enter_context(process(load, cpu=1, port=ports["agent"]))
        (folder / "cards").mkdir()
        env = {
            "A2A_HANDOFF_PORT": str(ports["broker"]),
            "A2A_HANDOFF_STORE": f"sqlite:///{folder}/bench.db",
            "A2A_HANDOFF_CARDS": str(folder / "cards"),
        }
        serve = [str(Path(sys.executable).with_name("a2a-handoff")), "serve"]
        running = up.enter_context(process(serve, cpu=0, port=ports["broker"], env=env))
        broker = Way("broker", f"http://127.0.0.1:{ports['broker']}/", running.pid, "handoff")
        register(broker.url.rstrip("/"), agent_url)
        direct = Way("the agent itself", agent_url, agent.pid, "plain")
        sdk = [sys.executable, "-m", "tests.benchmarks.sdk_broker", str(ports["sdk"]), agent_url]
        sdk_running = up.enter_context(process(sdk, cpu=0, port=ports["sdk"]))
        sdk_way = Way(
            "a2a-sdk, in memory", f"http://127.0.0.1:{ports['sdk']}/", sdk_running.pid, "plain", streams=False
        )
        ways, others = [direct, broker, sdk_way], [direct, sdk_way]
        nginx_way: Way | None = None
        nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if nginx:
            config = folder / "nginx.conf"
            config.write_text(_NGINX.format(folder=folder, agent=ports["agent"], port=ports["nginx"]))
            proxy = up.enter_context(process([nginx, "-c", str(config)], cpu=0, port=ports["nginx"]))
            nginx_way = Way("nginx", f"http://127.0.0.1:{ports['nginx']}/", proxy.pid, "plain")
            ways.append(nginx_way)
            others.insert(1, nginx_way)
        else:
            console.print("nginx is not installed: there is no column for it")
        measure(ways, rounds=rounds, seconds=seconds)
        console.print(table(broker, direct, others))
        events = median(broker, "stream", 16, "rps") * 50
        console.print(f"streamed events at 16 callers: {events:.0f}/s", end="")
        if nginx_way is not None:
            console.print(f", {ratio(broker, nginx_way, ('stream', 'plain-stream'), 16)} of nginx")
        else:
            console.print()
        growth = ratio_of_rates(broker)
        console.print(f"rate at 64 callers / rate at 1: {growth:.2f} (commits are grouped)")
    from tests.benchmarks import resolution

    resolution.main()


def ratio_of_rates(way: Way) -> float:
    """How the rate grows with the callers."""
    return median(way, "handoff", 64, "rps") / median(way, "handoff", 1, "rps")


if __name__ == "__main__":
    main()
