"""How soon a long poll wakes when its handoff is made, next to the barest delivery over the same HTTP.

Run by hand: ``python -m tests.benchmarks.wakeup``. The bare server answers a waiting request as soon as
another request sets its ``asyncio.Event``: the same uvicorn, loop and parser, bodies of the same size,
nothing durable. For the broker the same clock runs from the first byte of ``POST /api/handoffs`` to the
last byte of the waiting agent's answer: reading, resolving, the durable commit, the wake-up, the read of
the inbox, the answer. Rounds alternate between both; each wakes one of the agents that wait, by chance.
What counts is the ratio within one run. ``accepted`` is the time after which the caller of the broker had
its own answer.

``--most`` makes the exit code 1 if the ratio of the medians is higher for any number of waiting agents.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from tests.benchmarks.load import Connection

WAITERS = (1, 100, 1_000)
_WAIT_S = 290
_BODY = {
    "source_agent": "bench",
    "task": "Review the new implementation of the invoice service.",
    "context": {"files": [f"src/invoice_{n}.py" for n in range(10)], "focus": ["errors", "performance"]},
    "priority": "high",
}


# --- the bare server -----------------------------------------------------------------------------

_events: dict[str, asyncio.Event] = {}
_ANSWER = json.dumps({"handoff_id": "x" * 36, "context": {"facts": "y" * 3_500}}).encode()


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """``GET /wait/NAME`` answers when ``POST /fire/NAME`` comes."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    name = scope["path"].rpartition("/")[2]
    event = _events.setdefault(name, asyncio.Event())
    if scope["method"] == "POST":
        json.loads(body)
        event.set()
        answer, status = _ANSWER[:2_000], 201
    else:
        await event.wait()
        event.clear()
        answer, status = _ANSWER, 200
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


@contextmanager
def bare_server() -> Generator[int]:
    """The bare server as a process; its port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.wakeup", "--serve-bare", str(port)])
    try:
        until_it_listens(port)
        yield port
    finally:
        process.kill()  # it would wait for the agents that wait
        process.wait(10)


@contextmanager
def broker_server(folder: Path) -> Generator[int]:
    """The broker as a process; its port."""
    port = free_port()
    settings = {"PORT": port, "STORE": f"sqlite:///{folder}/broker.db", "CARDS": folder, "PULL_ACK_WAIT": 600}
    env = {k: v for k, v in os.environ.items() if not k.startswith(("A2A_HANDOFF_", "OTEL_"))}
    env |= {f"A2A_HANDOFF_{name}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "a2a_handoff", "serve"], env=env, stdout=subprocess.DEVNULL
    )
    try:
        until_it_listens(port)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def until_it_listens(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the server did not start")


# --- measuring -----------------------------------------------------------------------------------


class Round(NamedTuple):
    """Seconds from the first byte sent until the caller, and until the agent that waits, have an answer."""

    accepted: float
    woken: float


class Side:
    """One of the two servers, with agents that wait at it."""

    def __init__(self, port: int, wait: Callable[[int], str], fire: Callable[[int], tuple[str, Any]]) -> None:
        self._port, self._wait, self._fire = port, wait, fire
        self._connections: list[Connection] = []
        self._answers: list[asyncio.Future[bytes]] = []
        self._caller: Connection | None = None

    async def open(self, agents: int) -> None:
        """Let so many agents wait."""
        for number in range(agents):
            self._connections.append(await self._connect())
            self._answers.append(self._ask(number))
        await asyncio.sleep(0.5 + agents / 500)

    async def close(self) -> None:
        """Let them go."""
        for connection in filter(None, (self._caller, *self._connections)):
            connection.close()
        await asyncio.gather(*self._answers, return_exceptions=True)
        self._caller, self._connections, self._answers = None, [], []

    async def wake(self, number: int) -> tuple[Round, bytes]:
        """Wake one of them; its answer."""
        request = self.request(*self._fire(number))
        caller = await self.caller()
        waiting = asyncio.ensure_future(_stamped(self._answers[number]))
        await asyncio.sleep(0)
        began = time.perf_counter()
        _, accepted_at = await _stamped(caller.ask(request))
        answer, woken_at = await waiting
        return Round(accepted_at - began, woken_at - began), answer

    def wait_again(self, number: int) -> None:
        """The agent waits for the next one."""
        self._answers[number] = self._ask(number)

    async def call(self, path: str, body: Any) -> bytes:
        """A call that is not measured."""
        return await (await self.caller()).ask(self.request(path, body))

    async def caller(self) -> Connection:
        """The connection of those who do not wait."""
        self._caller = self._caller or await self._connect()
        return self._caller

    def request(self, path: str, body: Any = None) -> bytes:
        """A whole HTTP request: POST with a body, else GET."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        return head.encode() + b"\r\n" + content

    def _ask(self, number: int) -> asyncio.Future[bytes]:
        return self._connections[number].ask(self.request(self._wait(number)))

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
        return connection


async def _stamped(answer: asyncio.Future[bytes]) -> tuple[bytes, float]:
    return await answer, time.perf_counter()


def _agent(number: int) -> str:
    return f"agent-{number}"


async def measure(bare_port: int, broker_port: int, agents: int, rounds: int) -> dict[str, list[Round]]:
    """Alternate between both servers, with so many agents that wait at each."""
    plain = Side(bare_port, lambda n: f"/wait/{_agent(n)}", lambda n: (f"/fire/{_agent(n)}", _BODY))
    ours = Side(
        broker_port,
        lambda n: f"/api/handoffs/watch?agent={_agent(n)}&timeout={_WAIT_S}",
        lambda n: ("/api/handoffs", _BODY | {"target_agent": _agent(n)}),
    )
    setup = Side(broker_port, lambda _: "", lambda _: ("", None))
    for number in range(agents):
        await setup.call("/api/agents", {"agent_id": _agent(number)})
    await setup.close()
    await plain.open(agents)
    await ours.open(agents)
    found: dict[str, list[Round]] = {"bare": [], "broker": []}
    for turn in range(rounds + 20):
        number = random.randrange(agents)
        one, _ = await plain.wake(number)
        plain.wait_again(number)
        two, answer = await ours.wake(number)
        handoff_id = json.loads(answer)["handoff_id"]
        done = {"agent_id": _agent(number), "result": "done"}
        await setup.call(f"/api/handoffs/{handoff_id}/complete", done)
        ours.wait_again(number)
        await asyncio.sleep(0.005)  # so that what follows a commit is not charged to the next round
        if turn >= 20:
            found["bare"].append(one)
            found["broker"].append(two)
    for side in (plain, ours, setup):
        await side.close()
    return found


def _at(values: list[float], share: float) -> float:
    return 1000 * sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> int:
    """Measure, print a table, judge."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=300)
    options.add_argument("--waiters", type=int, nargs="+", default=WAITERS)
    options.add_argument("--most", type=float, help="the highest ratio that is good enough")
    options.add_argument("--serve-bare", type=int, metavar="PORT", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve_bare:
        import uvicorn

        port = chosen.serve_bare
        uvicorn.run(bare, port=port, http="httptools", log_config=None, access_log=False, lifespan="off")
        return 0
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; times in ms")
    print(
        f"{'waiting':>7} {'bare p50':>9} {'p99':>7} {'broker p50':>11} {'p99':>7} {'accepted':>9} {'ratio':>6}"
    )
    worst = 0.0
    for agents in chosen.waiters:
        with (
            tempfile.TemporaryDirectory() as folder,
            bare_server() as one,
            broker_server(Path(folder)) as two,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            found = runner.run(measure(one, two, agents, chosen.rounds))
        plain = [one.woken for one in found["bare"]]
        ours = [one.woken for one in found["broker"]]
        ratio = _at(ours, 0.5) / _at(plain, 0.5)
        worst = max(worst, ratio)
        accepted = _at([one.accepted for one in found["broker"]], 0.5)
        print(
            f"{agents:>7} {_at(plain, 0.5):>9.2f} {_at(plain, 0.99):>7.2f} {_at(ours, 0.5):>11.2f}"
            f" {_at(ours, 0.99):>7.2f} {accepted:>9.2f} {ratio:>6.1f}",
            flush=True,
        )
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return 1 if chosen.most is not None and worst > chosen.most else 0


if __name__ == "__main__":
    sys.exit(main())
