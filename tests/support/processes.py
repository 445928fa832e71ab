"""Processes that stand still."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support.wire import eventually


def halt(pid: int) -> None:
    """Stop a process, and wait until each of its threads stands still: until then it goes on answering.

    Raises ``ProcessLookupError`` if it is gone. Without ``/proc`` the wait is left out.
    """
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    if threads.exists():
        eventually(lambda: all(_state(thread) in "tTXZ" for thread in threads.iterdir()))


def _state(thread: Path) -> str:
    """The letter of proc(5); that of a thread that is gone is ``X``."""
    with suppress(OSError):
        return (thread / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return "X"
