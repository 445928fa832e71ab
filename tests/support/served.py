"""The broker as a process of its own, ``a2a-handoff serve``, that can be killed and started again.

What it knows is read over HTTP, as any operator would. ``forked`` brokers are the same command, but their
processes are forked from one that has imported everything: they start many times as fast.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx

from tests.support.processes import halt
from tests.support.running import kept_port, send_params
from tests.support.wire import eventually

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "import sys; from a2a_handoff.cli import main; sys.exit(main())", "serve")
READY_S = 60.0
ENDS = ("completed", "failed", "canceled", "returned", "expired")


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["a2a_handoff.cli.commands", "a2a_handoff.server"])


def _forked(env: Mapping[str, str], words: Path, before: Callable[[], None] | None) -> None:
    """What a forked process runs."""
    from a2a_handoff.cli import main

    os.environ.clear()
    os.environ.update(env)
    with words.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if before is not None:
        before()
    sys.exit(main(["serve"]))


class Served:
    """A broker on a store in ``folder``. The port stays the same over restarts.

    ``known``: it is set that this is how others reach it. ``root``: the folder of the code that runs, which cannot
    be another one than this for a forked one, in whose process ``before`` is called before its command runs.
    """

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        settings: Mapping[str, Any],
        *,
        forked: bool = False,
        known: bool = False,
        root: Path = ROOT,
        before: Callable[[], None] | None = None,
    ) -> None:
        assert not forked or root == ROOT
        self.folder = folder
        self._before = before
        self._forked = forked
        self._root = root
        self.port = settings.get("port") or kept_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        (folder / "cards").mkdir(exist_ok=True)
        chosen: dict[str, Any] = {
            "port": self.port,
            "store": f"sqlite:///{folder / 'broker.db'}",
            "cards": folder / "cards",
            "grace": 2,
            **({"public_url": self.url} if known else {}),
            **settings,
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("A2A_HANDOFF_", "OTEL_"))}
        named = {f"A2A_HANDOFF_{name.upper()}": str(value) for name, value in chosen.items()}
        self._env = {**inherited, "PYTHONPATH": str(root), **named, **env}
        self._process: subprocess.Popen[bytes] | None = None
        self._fork: BaseProcess | None = None

    # --- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        if self._forked:
            self.begin()
            eventually(self.answers, within_s=READY_S)
            return
        with (self.folder / "broker.log").open("ab") as words:
            self._process = subprocess.Popen(
                COMMAND,
                cwd=self._root,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=words,
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], READY_S)
        line = self._process.stdout.readline() if ready else b""
        assert b"is ready" in line, f"{line!r}\n{self.words}"

    def begin(self) -> None:
        """Start a forked one without waiting for it. It may end again, as when its database is away."""
        arguments = (self._env, self.folder / "broker.log", self._before)
        self._fork = FORKS.Process(target=_forked, args=arguments, daemon=True)
        self._fork.start()

    def answers(self) -> bool:
        """Whether it says that it is ready."""
        try:
            return self.http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    @property
    def alive(self) -> bool:
        """Whether its process, a forked one, is there."""
        return self._fork is not None and self._fork.is_alive()

    def freeze(self) -> None:
        """Let it do nothing, with its connections open."""
        halt(self.pid)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        """The number of its process."""
        running = self._process or self._fork
        assert running is not None
        assert running.pid is not None
        return running.pid

    def kill(self) -> None:
        """End it as the kernel would: at once, with nothing said and nothing closed."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as an operator would. The exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        fork, self._fork = self._fork, None
        code = 0
        if process is not None and process.stdout is not None:
            process.send_signal(number)
            code = process.wait(30)
            process.stdout.close()
        if fork is not None and fork.pid is not None:
            os.kill(fork.pid, number)
            fork.join(30)
            code = fork.exitcode or 0
            fork.close()
        # Connections of the dead process are no good to the next one.
        self.http.close()
        self.http = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        return code

    def close(self) -> None:
        """End it if it runs."""
        self._end(signal.SIGKILL)
        self.http.close()

    @property
    def words(self) -> str:
        """What it wrote."""
        return (self.folder / "broker.log").read_text(encoding="utf-8", errors="replace")

    # --- what is asked of it ---------------------------------------------------------------------

    def rpc(self, method: str, params: Any, **headers: str) -> Any:
        """A JSON-RPC call of 1.0; the whole answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post("/", json=body, headers={"A2A-Version": "1.0"} | headers).json()

    def send(
        self, text: str, *, wait: bool = False, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Any:
        """SendMessage; the task, by default as soon as there is one."""
        answer = self.rpc("SendMessage", send_params(text, wait=wait, **more), **(headers or {}))
        assert "result" in answer, answer
        return answer["result"]["task"]

    def task(self, task_id: str) -> Any:
        """GetTask."""
        return self.rpc("GetTask", {"id": task_id})["result"]

    def post(self, path: str, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def register(self, agent_id: str, **body: Any) -> Any:
        return self.post("/api/agents", agent_id=agent_id, **body)

    def handoff(self, handoff_id: str) -> Any:
        return self.http.get(f"/api/handoffs/{handoff_id}").json()

    def events(self, handoff_id: str) -> list[Any]:
        """The whole log of a handoff."""
        found: list[Any] = []
        while True:
            query = {"after": len(found), "limit": 1000}
            page = self.http.get(f"/api/handoffs/{handoff_id}/events", params=query).json()["events"]
            found += page
            if len(page) < 1000:
                return found

    def log(self, handoff_id: str) -> list[str]:
        """The kinds of the handoff's events."""
        return [kind_of(event) for event in self.events(handoff_id)]

    def logged(self, handoff_id: str, kind: str, count: int = 1) -> None:
        """Wait until the log has ``count`` events of a kind."""
        eventually(lambda: self.log(handoff_id).count(kind) >= count)

    def until(self, handoff_id: str, *states: str, within_s: float = 20.0) -> Any:
        """The handoff, once it is in one of the states."""

        def found() -> Any:
            handoff = self.handoff(handoff_id)
            return handoff if handoff["state"] in states else None

        return _patiently(
            found, within_s, lambda: f"{self.handoff(handoff_id)['state']}: {self.log(handoff_id)}"
        )

    def ended(self, handoff_id: str, within_s: float = 20.0) -> Any:
        """The handoff, once it has ended."""
        return self.until(handoff_id, *ENDS, within_s=within_s)


def _patiently(condition: Callable[[], Any], within_s: float, otherwise: Callable[[], str]) -> Any:
    try:
        return eventually(condition, within_s=within_s)
    except AssertionError as error:
        raise AssertionError(f"{error}: {otherwise()}") from None


def kind_of(event: Mapping[str, Any]) -> str:
    """The kind of an event of the log, such as ``handoff_offered``."""
    return str(event["type"]).removeprefix("a2a-handoff.")


@contextmanager
def served(
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    forked: bool = False,
    known: bool = False,
    root: Path = ROOT,
    **settings: Any,
) -> Generator[Served]:
    """A running broker process."""
    broker = Served(folder, env or {}, settings, forked=forked, known=known, root=root)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
