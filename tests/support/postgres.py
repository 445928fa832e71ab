"""A PostgreSQL server of the test process, started when the first test asks for it.

The programs are those of the machine (``apt-get install postgresql``). Everything lies in a folder that goes
with the process. Users: ``broker`` needs no password, ``guarded`` has one.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from a2a_handoff.stores import open_store
from tests.support.processes import halt
from tests.support.required import missing
from tests.support.running import kept_port
from tests.support.wire import eventually

PASSWORD = "pass/word?@1"
START_S = 30.0
_NUMBERS = itertools.count(1)
_HBA = """
local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}
#: Of a server that is measured: what it has committed outlives the loss of power.
_DURABLE = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on", "shared_buffers": "256MB"}


class Postgres:
    """One server. It keeps its port and its data over restarts."""

    def __init__(self, programs: Path, *, durable: bool = False) -> None:
        self.programs = programs
        self._options = _OPTIONS | (_DURABLE if durable else {})
        self._folder = Path(tempfile.mkdtemp(prefix="a2a-handoff-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._template = ""
        # A server does not run as root.
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = kept_port()
        data = self._folder / "data"
        command = [
            programs / "initdb",
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "broker",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._user)
        (data / "pg_hba.conf").write_text(_HBA)

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = {**self._options, "port": str(self.port), "unix_socket_directories": str(self._folder)}
        command: list[str | Path] = [self.programs / "postgres", "-D", self._folder / "data"]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with (self._folder / "words").open("ab") as words:
            self._process = subprocess.Popen[bytes](
                command, cwd=self._folder, stdout=words, stderr=words, stdin=subprocess.DEVNULL, **self._user
            )
        eventually(self._answers, within_s=START_S)

    def _answers(self) -> bool:
        check = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(check, check=False).returncode == 0

    def processes(self) -> list[int]:
        """The server's processes, its first one first."""
        assert self._process is not None
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii")
        return [first, *map(int, children.split())]

    def kill(self) -> None:
        """End it as the kernel would: nothing is said, and what its other processes do ends by itself."""
        family = self.processes()
        self.stop(signal.SIGKILL)
        eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in family), within_s=START_S)

    def kill_one(self, which: int) -> None:
        """End one of its processes by number of its turn; the server ends the others and recovers by itself."""
        family = self.processes()[1:]
        if family:
            with suppress(ProcessLookupError):
                os.kill(family[which % len(family)], signal.SIGKILL)
        eventually(self._answers, within_s=START_S)

    def freeze(self) -> None:
        """Let all of it do nothing, with its connections open."""
        for one in self.processes():
            with suppress(ProcessLookupError):
                halt(one)

    def thaw(self) -> None:
        """Let it go on."""
        for one in self.processes():
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGCONT)

    def stop(self, number: int = signal.SIGINT) -> None:
        """Cut all connections and stop; with SIGQUIT as in a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(START_S)

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str, user: str = "broker") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, *values: object, database: str = "postgres") -> list[Any]:
        """Run a statement as an operator would, with the server's own defaults."""
        import asyncpg  # pyright: ignore[reportMissingTypeStubs] - it has none

        async def run() -> list[Any]:
            connection: Any = await asyncpg.connect(self.url(database))
            try:
                return [tuple(row) for row in await connection.fetch(statement, *values)]
            finally:
                await connection.close()

        return asyncio.run(run())

    def fresh(self) -> str:
        """The name of a new, empty database."""
        name = f"test_{next(_NUMBERS)}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def drop(self, name: str) -> None:
        """Remove a database: hundreds of them would take long to remove at the end."""
        self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def migrated(self) -> str:
        """The name of a new database with the schema of a store in it, which is quicker than to make it."""
        if not self._template:
            self._template = self.fresh()

            async def migrate() -> None:
                store = open_store(self.url(self._template))
                await store.open()
                await store.close()

            asyncio.run(migrate())
        name = f"test_{next(_NUMBERS)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        return name


class Wire:
    """Stands between a store and its server, and cuts the connection at one COMMIT.

    It is that of the first transaction that has ``after`` in it. ``forward``: the server gets it and does it, but
    its answer is lost; else it is lost itself. ``meanwhile`` is done before the store notices. ``cuts`` counts.
    """

    def __init__(
        self, port: int, *, forward: bool, after: bytes, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        self._port = port
        self._meanwhile = meanwhile
        self._forward = forward
        self._after = after
        self.cuts = 0
        self._clients: list[asyncio.StreamWriter] = []
        self._connected = asyncio.Semaphore(0)
        self._ended = False

    async def end(self, port: int) -> None:
        """Say on every connection that the server ends, as one does whose process was killed, and no more.

        Returns when the clients have read it. Then ``cut`` lets them connect again.
        """
        self._connected = asyncio.Semaphore(0)
        last, writer = await asyncio.open_connection("127.0.0.1", port)
        await self._connected.acquire()
        self._ended = True
        fields = b"SFATAL\0C57P02\0Mterminating connection because of crash of another server process\0\0"
        for client in self._clients:
            client.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
        await last.read(1)
        writer.close()

    def cut(self) -> None:
        """Cut every connection."""
        self._ended = False
        for client in self._clients:
            client.close()
        self._clients.clear()

    async def __aenter__(self) -> int:
        """Begin. The port to connect to."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._clients.append(writer)
        self._connected.release()
        down = asyncio.create_task(self._pump(up_reader, writer))
        armed = False
        try:
            while data := await reader.read(1 << 16):
                armed = armed or self._after in data
                if armed and not self.cuts and b"COMMIT" in data:
                    self.cuts += 1
                    down.cancel()
                    if self._forward:
                        await asyncio.wait([down])
                        up_writer.write(data)
                        await up_reader.read(1)  # it was done
                    await asyncio.to_thread(self._meanwhile)
                    break
                if not self._ended:
                    up_writer.write(data)
        finally:
            down.cancel()
            up_writer.close()
            writer.close()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()


def programs() -> Path | None:
    """Where the programs of the newest server of this machine are; ``None`` if there is none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: float(path.parents[1].name),
        reverse=True,
    )
    if found:
        return found[0].parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


@cache
def _shared() -> Postgres | None:
    installed = programs()
    if installed is None:
        return None
    server = Postgres(installed)
    atexit.register(server.remove)
    server.start()
    server.sql(f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'")
    return server


def postgres_server() -> Postgres:
    """The server of this process. Without PostgreSQL the test is skipped, or fails where it must be there."""
    server = _shared()
    if server is None:
        missing("PostgreSQL is not on this machine: apt-get install postgresql")
    return server
