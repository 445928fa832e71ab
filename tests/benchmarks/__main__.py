"""``make bench``: what a handoff costs, as ratios against other ways through the same machine.

The broker, nginx as a reverse proxy (if it is installed) and a broker built on a2a-sdk's own handlers in
memory stand in front of the same fixed agent and get the same load, one after the other, in rounds that
alternate. A ratio is the median of the ratios of the rounds; in parentheses the lowest and the highest.
Not here: agents that fetch their work (``pulling``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import resolution
from tests.benchmarks.load import STREAM_EVENTS
from tests.benchmarks.servers import LOAD_CPU, agent, broker, cpu_s, nginx, pin, sdk_broker

CALLERS = (1, 16, 64, 256)
STREAMERS = 16

Result = dict[str, float]


@dataclass
class Way:
    """One way to the agent. ``callers`` are the numbers of callers that it is measured with."""

    name: str
    url: str
    pid: int
    kind: str = "plain"
    callers: Sequence[int] = CALLERS
    streams: bool = False
    rounds: dict[tuple[str, int], list[Result]] = field(default_factory=dict)

    def measure(self, seconds: float) -> None:
        """One round."""
        for callers in self.callers:
            self.rounds.setdefault(("", callers), []).append(self._fire(callers, seconds, self.kind))
        if self.streams:
            kind = "stream" if self.kind == "handoff" else "plain-stream"
            self.rounds.setdefault(("stream", STREAMERS), []).append(self._fire(STREAMERS, seconds, kind))

    def _fire(self, callers: int, seconds: float, kind: str) -> Result:
        before = cpu_s(self.pid)
        command = [sys.executable, "-m", "tests.benchmarks.load", "fire"]
        with subprocess.Popen(
            [*command, self.url, str(callers), str(seconds), kind], stdout=subprocess.PIPE
        ) as load:
            pin(load.pid, LOAD_CPU)
            said, _ = load.communicate()
        if load.returncode:
            raise SystemExit(f"{self.name}, {kind}, {callers} callers: the load was broken off")
        result: Result = json.loads(said)
        if result["errors"]:
            raise SystemExit(f"{self.name}, {kind}, {callers} callers: {result['errors']:.0f} wrong answers")
        result["cpu_us"] = 1e6 * (cpu_s(self.pid) - before) / (result["rps"] * seconds)
        return result

    def median(self, callers: int, value: str, kind: str = "") -> float:
        """The median of the rounds."""
        return statistics.median(each[value] for each in self.rounds[kind, callers])


def ratio(one: Way, other: Way, callers: int, value: str = "rps", kind: str = "") -> str:
    """The median of the rounds' ratios, with their range; empty if one of the two was not measured."""
    ours, theirs = one.rounds.get((kind, callers)), other.rounds.get((kind, callers))
    if not ours or not theirs:
        return ""
    ratios = sorted(a[value] / b[value] for a, b in zip(ours, theirs, strict=True) if b[value])
    if not ratios:
        return ""
    return f"{statistics.median(ratios):.3g} ({ratios[0]:.2g}-{ratios[-1]:.2g})"


@dataclass
class Ways:
    """All that is measured. ``broker`` is as it comes: metrics, but no collector for spans.

    The last two are the same servers with messages of text alone.
    """

    direct: Way
    broker: Way
    traced: Way
    sampled: Way
    silent: Way
    sdk: Way
    nginx: Way | None
    broker_text: Way
    sdk_text: Way

    def all(self) -> list[Way]:
        """In the order of a round."""
        ways = [self.direct, self.broker, self.traced, self.sampled, self.silent, self.sdk]
        ways += [self.broker_text, self.sdk_text]
        return ways if self.nginx is None else [*ways, self.nginx]


def table(ways: Ways, sizes: dict[int, float]) -> Table:
    """The figures. ``sizes`` are microseconds of one resolution by number of agents."""
    ours, direct, sdk, proxy = ways.broker, ways.direct, ways.sdk, ways.nginx
    shown = Table(title="A durable, resolved, measured handoff against other ways to the same agent")
    shown.add_column("")
    for callers in CALLERS:
        shown.add_column(f"{callers} caller{'s' if callers > 1 else ''}", justify="right")

    def row(name: str, cell: Callable[[int], str]) -> None:
        shown.add_row(name, *map(cell, CALLERS))

    def against(name: str, one: Way, other: Way | None, value: str = "rps") -> None:
        if other is None:
            row(name, lambda _: "nginx is missing")
        else:
            row(name, lambda callers: ratio(one, other, callers, value))

    row("handoffs a second", lambda callers: f"{ours.median(callers, 'rps'):,.0f}")
    against("rate / that of the agent itself", ours, direct)
    against("rate / that of nginx", ours, proxy)
    against("rate / that of the SDK broker", ours, sdk)
    against("the same with text alone", ways.broker_text, ways.sdk_text)
    for value in ("p50_ms", "p99_ms"):
        row(
            f"added {value[:3]}, ms",
            lambda callers, value=value: f"{ours.median(callers, value) - direct.median(callers, value):.2f}",
        )
    row("p99 / p50", lambda callers: f"{ours.median(callers, 'p99_ms') / ours.median(callers, 'p50_ms'):.2f}")
    for name, way in (
        ("CPU of a handoff, µs", ours),
        ("with spans of every chain sent", ways.traced),
        ("with spans of a tenth sent", ways.sampled),
        ("without telemetry", ways.silent),
    ):
        row(
            name,
            lambda callers, way=way: (
                f"{way.median(callers, 'cpu_us'):,.0f}" if callers in way.callers else ""
            ),
        )
    against("CPU / that of nginx", ours, proxy, "cpu_us")
    against("CPU / that of the SDK broker", ours, sdk, "cpu_us")
    against("rate with spans sent / without", ways.traced, ours)
    against("rate with spans and metrics / with neither", ways.traced, ways.silent)
    against("rate with spans of a tenth / with neither", ways.sampled, ways.silent)
    against("p99 with spans and metrics / with neither", ways.traced, ways.silent, "p99_ms")
    shown.add_section()
    row(
        f"streamed events a second ({STREAM_EVENTS} a stream)",
        lambda callers: (
            f"{ours.median(callers, 'rps', 'stream') * STREAM_EVENTS:,.0f}" if callers == STREAMERS else ""
        ),
    )
    if proxy is not None:
        row("streams / those of nginx", lambda callers: ratio(ours, proxy, callers, kind="stream"))
    shown.add_section()
    rates = {callers: ours.median(callers, "rps") for callers in CALLERS}
    row("rate / that of one caller", lambda callers: f"{rates[callers] / rates[1]:.2f}")
    smallest = min(sizes)
    for size, spent in sizes.items():
        named = f"a resolution among {size:,} agents: {spent:,.0f} µs"
        shown.add_row(named, f"{spent / sizes[smallest]:.2f} x")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    chosen = parser.parse_args(arguments)
    rounds, seconds = (1, 1.0) if chosen.quick else (chosen.rounds, chosen.seconds)
    console = Console(width=140)
    with contextlib.ExitStack() as up:
        folder = Path(up.enter_context(tempfile.TemporaryDirectory()))
        agent_url, agent_pid = up.enter_context(agent())
        sink_url, _ = up.enter_context(agent())

        def ours(name: str, callers: Sequence[int], env: dict[str, str]) -> Way:
            url, pid = up.enter_context(broker(folder / name, agent_url, env))
            return Way(name, url, pid, kind="handoff", callers=callers, streams=not env)

        spans = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink_url}
        proxy = up.enter_context(nginx(folder, agent_url))
        handoffs = ours("broker", CALLERS, {})
        plain = Way("a2a-sdk broker", *up.enter_context(sdk_broker(agent_url)), callers=(1, 16, 64))
        ways = Ways(
            direct=Way("the agent itself", agent_url, agent_pid, streams=True),
            broker=handoffs,
            traced=ours("broker with spans", (16, 64), spans),
            sampled=ours(
                "broker with a tenth of spans", (16, 64), spans | {"A2A_HANDOFF_TRACE_RATIO": "0.1"}
            ),
            silent=ours("broker without telemetry", (16, 64), {"OTEL_SDK_DISABLED": "true"}),
            sdk=plain,
            broker_text=Way("broker, text", handoffs.url, handoffs.pid, kind="handoff-text", callers=(16,)),
            sdk_text=Way("a2a-sdk broker, text", plain.url, plain.pid, kind="plain-text", callers=(16,)),
            nginx=None if proxy is None else Way("nginx", *proxy, streams=True),
        )
        for number in range(rounds):
            for way in ways.all() if number % 2 == 0 else reversed(ways.all()):
                way.measure(seconds)
    roster = {size: resolution.agents(size) for size in resolution.SIZES}
    sizes = {size: resolution.of_ten_capable(found) for size, found in roster.items()}
    console.print(table(ways, sizes))
    console.print(
        f"{rounds} rounds of {seconds:g} s, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"{platform.system()}. Ratios: median (lowest-highest) of the rounds."
    )
    if ways.nginx is None:
        console.print("nginx is not installed: there is nothing to compare with it.")


if __name__ == "__main__":
    main()
