"""The proxy of ``deploy/nginx.conf``, run by a real nginx in front of brokers of the test.

The program is that of the machine (``apt-get install nginx-light``). Where it is missing the tests are skipped,
unless ``A2A_HANDOFF_TEST_SERVICES`` says that it is required.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.required import missing
from tests.support.running import kept_port
from tests.support.wire import eventually

CONFIG = Path(__file__).parents[2] / "deploy" / "nginx.conf"


def _program() -> str:
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    return found or missing("there is no nginx: apt-get install nginx-light")


@contextmanager
def proxied(folder: Path, *ports: int) -> Generator[str]:
    """The address of a proxy in front of what listens on ``ports``, with the names and paths of here."""
    port = kept_port()
    text = CONFIG.read_text(encoding="utf-8")
    for number, behind in enumerate(ports, start=1):
        text, found = re.subn(rf"\bbroker-{number}:8080\b", f"127.0.0.1:{behind}", text)
        assert found == 1, number
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("/tmp/", f"{folder}/")
    text = text.replace("/dev/stderr", str(folder / "nginx.log"))
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    # As root its workers would be of another user, who may not write into the folder.
    user = ["-g", "daemon off; user root;"] if os.geteuid() == 0 else ["-g", "daemon off;"]
    command = [_program(), "-p", str(folder), "-c", str(folder / "nginx.conf"), *user]
    with (folder / "nginx.out").open("wb") as words:
        process = subprocess.Popen(command, stdout=words, stderr=words, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(url))
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).is_success
    except httpx.TransportError:
        return False
