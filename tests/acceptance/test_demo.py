"""The demo as its users run it: real processes, no terminal, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "import sys; from a2a_handoff.cli import main; sys.exit(main())", "demo")
WAIT_S = 60.0

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


@contextmanager
def demo(
    tmp_path: Path, *args: str, env: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[str]]:
    """A running demo, in a folder of its own for its temporary files."""
    process = subprocess.Popen(
        (*COMMAND, *args),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), **(env or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def children(tmp_path: Path) -> set[int]:
    """The processes that were started with this folder for temporary files, the demo itself too."""
    found: set[int] = set()
    mark = f"TMPDIR={tmp_path}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
            except OSError:
                continue
    return found


def gone(tmp_path: Path) -> bool:
    """Whether every process of the demo is gone within the wait."""
    until = time.monotonic() + 15
    while children(tmp_path):
        if time.monotonic() > until:
            return False
        os.sched_yield()
    return True


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            break
    return "".join(lines)


def test_the_demo_proves_every_scene_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, output
    for proof in (
        "triage-agent, billing_agent and code-editor held it in turn",
        "arabic_specialist did not answer",
        "senior_agent declined, with its reason",
        "billing_agent acknowledged and did it",
        "the broker refused: triage-agent is already on the path",
        "each attempt is listed with its reason",
        "browser-agent got it, on platform external",
    ):
        assert f"✓            {proof}" in output, output
    assert "the trace of scene 1 is " in output
    assert "✗" not in output
    assert "\x1b[" not in output
    assert gone(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_cleans_up_at_any_time(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        read_until(process, "starting")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
    assert gone(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_child_survives_a_demo_that_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--keep") as process:
        output = read_until(process, "Ctrl-C")
        assert "Everything keeps running" in output, output
        assert len(children(tmp_path)) >= 8
        process.kill()
    assert gone(tmp_path)
