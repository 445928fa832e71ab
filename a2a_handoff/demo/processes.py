"""The broker and the agents of the demo as processes of their own.

Duty: start them, wait until they answer, stop them.
Rules: every child is on a leash (``leash``), so none outlives the runner, however that one ends. What
a child writes goes to a file of its name, which is shown if it fails. The agents are forked from one
process that has a2a-sdk imported already: importing it takes seconds, and six of them would queue for
the processor.
Not here: what is done with them (``scenes``).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

if sys.platform != "win32":
    from multiprocessing import forkserver

from a2a_handoff.demo.cards import Card, port_of
from a2a_handoff.demo.leash import die_with_parent

_AGENT = "a2a_handoff.demo.agent"
_LEASH = "a2a_handoff.demo.leash"

_READY_WAIT_S = 40.0
_POLL_S = 0.05
_STOP_WAIT_S = 5.0


class ChildFailed(Exception):
    """A process did not come up. The message names it and ends with what it wrote."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process, the address that says that it is ready, and where its words are."""

    name: str
    process: subprocess.Popen[bytes] | BaseProcess
    ready_url: str
    log: Path

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        if isinstance(self.process, BaseProcess):
            return self.process.is_alive()
        return self.process.poll() is None

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within the time."""
        if isinstance(self.process, BaseProcess):
            self.process.join(timeout_s)
            return not self.process.is_alive()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True


class Processes:
    """The children, stopped together at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []
        if sys.platform == "win32":
            self._agents = multiprocessing.get_context("spawn")
        else:
            self._agents = multiprocessing.get_context("forkserver")
            self._agents.set_forkserver_preload([_AGENT])
            forkserver.ensure_running()  # begins to import while the rest goes on
        self._leash_end, self._leash = self._agents.Pipe(duplex=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_broker(self, url: str, env: Mapping[str, str]) -> None:
        """Start ``a2a-handoff serve`` in this environment, away from any configuration file."""
        log = self._folder / "broker.log"
        with log.open("wb") as words:
            process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", _LEASH, "serve"],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C is for the runner, which stops the children in order
            )
        self._children.append(Child("broker", process, f"{url}/readyz", log))

    def start_agent(self, name: str, card: Card, broker: str, bound: socket.socket) -> None:
        """Start an agent on a bound socket; it registers with the broker."""
        log = self._folder / f"{name}.log"
        log.touch()
        args = (name, card, broker, bound, log, self._leash_end)
        process = self._agents.Process(target=_agent, args=args, name=name, daemon=True)
        process.start()
        ready_url = f"http://127.0.0.1:{port_of(card)}/.well-known/agent-card.json"
        self._children.append(Child(name, process, ready_url, log))

    async def ready(self) -> None:
        """Wait until every child answers.

        Raises:
            ChildFailed: One ended, or does not answer in time.
        """
        until = time.monotonic() + _READY_WAIT_S
        async with httpx.AsyncClient(timeout=2, trust_env=False) as http:
            await asyncio.gather(*(self._answers(http, child, until) for child in self._children))

    @staticmethod
    async def _answers(http: httpx.AsyncClient, child: Child, until: float) -> None:
        while child.alive and time.monotonic() < until:
            try:
                answer = await http.get(child.ready_url)
            except httpx.TransportError:
                pass
            else:
                if answer.is_success:
                    return
            await asyncio.sleep(_POLL_S)
        raise ChildFailed(f"{child.name} is not ready\n{_tail(child.log)}")

    def words_of(self, name: str) -> str:
        """The last lines that a child wrote."""
        return "\n".join(_tail(child.log) for child in self._children if child.name == name)

    def stop(self) -> None:
        """Stop every child: first asked, then made to."""
        for child in reversed(self._children):
            child.process.terminate()
        until = time.monotonic() + _STOP_WAIT_S
        for child in self._children:
            if not child.wait(max(0.0, until - time.monotonic())):
                child.process.kill()
                child.wait(_STOP_WAIT_S)
            if not isinstance(child.process, BaseProcess) and child.process.stdin is not None:
                child.process.stdin.close()
        self._children.clear()
        self._leash_end.close()
        self._leash.close()


def _agent(
    name: str, card: Card, broker: str, bound: socket.socket, log: Path, leash_end: Connection
) -> None:
    """What an agent's process runs."""
    from a2a_handoff.demo.agent import serve  # noqa: PLC0415 - the runner itself does not need it

    if hasattr(os, "setsid"):
        os.setsid()  # as start_new_session
    with log.open("ab") as words:
        os.dup2(words.fileno(), 1)
        os.dup2(words.fileno(), 2)
    die_with_parent(leash_end.fileno())
    serve(name, card, broker, bound)


def bound_socket(wished: int = 0) -> socket.socket:
    """A socket on the wished port of the loopback if that is free, else on any free one.

    It is kept from here on, so that nobody else can take the port before the agent listens; with
    SO_REUSEADDR somebody could.
    """
    for port in (wished, 0):
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # for TCP_NODELAY
        try:
            bound.bind(("127.0.0.1", port))
        except OSError:
            bound.close()
        else:
            return bound
    raise OSError("no port is free on 127.0.0.1")


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
