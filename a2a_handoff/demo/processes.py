"""The broker and the agents of the demo as processes of their own.

Duty: start them, wait until they answer, stop them.
Rules: every child is on a leash (``leash``), so none outlives the runner, however that one ends. What
a child writes goes to a file of its name, which is shown if it fails.
Not here: what is done with them (``scenes``).
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

_READY_WAIT_S = 40.0
_POLL_S = 0.05
_STOP_WAIT_S = 5.0


class ChildFailed(Exception):
    """A process did not come up. The message names it and ends with what it wrote."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process, the address that says that it is ready, and where its words are."""

    name: str
    process: subprocess.Popen[bytes]
    ready_url: str
    log: Path


class Processes:
    """The children, stopped in the reverse order at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, module: str, *args: str, ready_url: str, env: Mapping[str, str]) -> Child:
        """Start ``python -m module args`` on a leash."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as words:
            process = subprocess.Popen(  # noqa: S603  # our own module, no shell
                [sys.executable, "-m", module, *args],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C is for the runner, which stops them in order
            )
        child = Child(name, process, ready_url, log)
        self._children.append(child)
        return child

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
        while child.process.poll() is None and time.monotonic() < until:
            try:
                answer = await http.get(child.ready_url)
            except httpx.TransportError:
                pass
            else:
                if answer.is_success:
                    return
            await asyncio.sleep(_POLL_S)
        raise ChildFailed(f"{child.name} is not ready\n{_tail(child.log)}")

    def stop(self) -> None:
        """Stop every child: first asked, then made to."""
        for child in reversed(self._children):
            child.process.terminate()
        until = time.monotonic() + _STOP_WAIT_S
        for child in self._children:
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            if child.process.stdin is not None:
                child.process.stdin.close()
        self._children.clear()


def free_port(wished: int = 0) -> int:
    """The wished port of the loopback if it is free, else any free one."""
    for port in (wished, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free on 127.0.0.1")


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
