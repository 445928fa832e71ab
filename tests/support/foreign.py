"""Programs of other makers, each in an environment of its own outside the repository.

A kit is a list of pinned packages in ``tests/conformance/foreign/kits``. Its environment is made once, on first use, and
named after the pins: other pins make another one. ``python -m tests.support.foreign`` makes all of them. Where one
cannot be made (no network, no Node) its tests are skipped, or fail where they are required.
What runs in an environment are scripts of ``tests/conformance/foreign``, which say what they saw as JSON.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.required import missing

FOLDER = Path(__file__).parents[1] / "conformance" / "foreign"
KITS = FOLDER / "kits"
JAVASCRIPT = "javascript"
#: Made only when a compatibility kit is run.
ON_DEMAND = frozenset({"tck"})
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "a2a-handoff" / "foreign"
MAKE_S = 240.0
RUN_S = 60.0


@dataclass(frozen=True)
class Program:
    """A program of another maker: the kit that has it, and what the tests do with it."""

    kit: str
    package: str
    role: str
    speaks: str

    @property
    def version(self) -> str:
        """The version that the kit pins."""
        if self.kit == JAVASCRIPT:
            wanted = json.loads((KITS / JAVASCRIPT / "package.json").read_text(encoding="utf-8"))
            return str(wanted["dependencies"][self.package])
        pins = (KITS / f"{self.kit}.txt").read_text(encoding="utf-8").splitlines()
        return next(pin.split("==")[1] for pin in pins if pin.startswith(f"{self.package}=="))


_BOTH = "JSON-RPC, HTTP+JSON"
PROGRAMS = (
    Program(JAVASCRIPT, "@a2a-js/sdk", "client", f"1.0 and 0.3 on {_BOTH}, gRPC"),
    Program("sdk_0_3", "a2a-sdk", "client", f"0.3 on {_BOTH}"),
    Program("sdk_0_2", "a2a-sdk", "client", "0.2 on JSON-RPC"),
    Program("first_generation", "agent2agent-client", "client", "the first generation, JSON-RPC"),
    Program("first_generation", "agent2agent-server", "agent", "the first generation, JSON-RPC"),
    Program("fasta2a_0_2", "fasta2a", "client", "its own dialect of the first generation, JSON-RPC"),
    Program("agent_framework", "agent-framework-a2a", "client, agent", "1.0 on JSON-RPC"),
    Program("google_adk", "google-adk", "client, agent", "1.0 on JSON-RPC"),
    Program("strands", "strands-agents", "agent", "0.3 on JSON-RPC"),
    Program("pydantic_ai", "fasta2a", "agent, of pydantic-ai", "1.0 on JSON-RPC"),
)


class Unavailable(Exception):
    """An environment cannot be made here."""


def kits() -> list[str]:
    """The names of the kits that the tests need."""
    return [*sorted({path.stem for path in KITS.glob("*.txt")} - ON_DEMAND), JAVASCRIPT]


def make(kit: str) -> Path:
    """The environment of a kit, made if it is not there. Raises ``Unavailable``."""
    pins = KITS / kit / "package-lock.json" if kit == JAVASCRIPT else KITS / f"{kit}.txt"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = hashlib.sha256(version.encode() + pins.read_bytes()).hexdigest()[:12]
    made = CACHE / f"{kit}-{key}"
    if made.is_dir():
        return made
    CACHE.mkdir(parents=True, exist_ok=True)
    # Several processes of tests want it at once; one makes it, the others wait.
    with (CACHE / f"{kit}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            fresh = CACHE / f"{kit}.making"
            shutil.rmtree(fresh, ignore_errors=True)
            (_make_javascript if kit == JAVASCRIPT else _make_python)(fresh, pins)
            fresh.rename(made)
    return made


def _make_python(folder: Path, pins: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        raise Unavailable("uv is not installed")
    _call(uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder))
    _call(
        uv,
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--python",
        str(folder / "bin/python"),
        "-r",
        str(pins),
    )


def _make_javascript(folder: Path, pins: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("Node.js is not installed")
    shutil.copytree(pins.parent, folder)
    _call(npm, "ci", "--silent", "--ignore-scripts", cwd=folder)


def _call(*command: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=MAKE_S, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[0]).name} took more than {MAKE_S:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"{Path(command[0]).name}: {done.stderr.strip()[-300:]}")


@cache
def _found(kit: str) -> Path | str:
    """The environment, or why there is none; a failure is not tried again by every test."""
    try:
        return make(kit)
    except Unavailable as why:
        return str(why)


def command(kit: str, script: str) -> tuple[str, ...]:
    """What runs a script in the environment of a kit. Skips the test, or fails it, if there is none."""
    found = _found(kit)
    if isinstance(found, str):
        missing(f"the environment {kit} cannot be made here: {found}")
    if kit != JAVASCRIPT:
        return (str(found / "bin/python"), str(FOLDER / script))
    # Node looks for packages beside the script, which several processes put there.
    source = (FOLDER / script).read_bytes()
    beside = found / f"{hashlib.sha256(source).hexdigest()[:12]}-{script}"
    if not beside.is_file():
        fresh = beside.with_name(f"{os.getpid()}-{script}")
        fresh.write_bytes(source)
        fresh.rename(beside)
    return ("node", str(beside))


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("A2A_", "OTEL_", "PYTHON", "VIRTUAL_ENV", "COV_"))
    }
    return kept | {"NO_PROXY": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def run(kit: str, script: str, *arguments: str) -> Any:
    """Run a script to its end; what its last line says, as JSON."""
    done = subprocess.run(
        (*command(kit, script), *arguments),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env=_environment(),
    )
    assert done.returncode == 0, (
        f"{script} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextmanager
def serving(kit: str, script: str, folder: Path, *arguments: str) -> Generator[str]:
    """A script that serves. It says its address in a line, ``ready URL``, and ends with this."""
    words = folder / f"{script}.log"
    with (
        words.open("wb") as log,
        subprocess.Popen(
            (*command(kit, script), *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(),
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = b""
            until = time.monotonic() + RUN_S
            while not line.startswith(b"ready "):
                ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
                line = process.stdout.readline() if ready else b""
                assert line, f"{script} does not serve: {words.read_text()[-4000:]}"
            yield line.split()[1].decode()
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def _size(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def main() -> int:
    """Make every environment and say what each took."""
    code = 0
    for kit in kits():
        start = time.monotonic()
        try:
            made = make(kit)
        except Unavailable as why:
            print(f"{kit}: {why}")
            code = 1
            continue
        print(f"{kit}: {time.monotonic() - start:.1f} s, {_size(made):.0f} MiB, {made}")
    return code


if __name__ == "__main__":
    sys.exit(main())
