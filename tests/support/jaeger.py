"""A real Jaeger with the configuration of ``otel/``, on ports of its own.

``.ci/jaeger.sh`` builds it. Where it is missing the tests are skipped, unless ``A2A_HANDOFF_TEST_SERVICES`` says
that they are required.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.required import missing
from tests.support.running import kept_port
from tests.support.wire import eventually

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0


@dataclass
class Jaeger:
    """Where spans go, and where they are read."""

    endpoint: str
    http: httpx.Client

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """A trace as Jaeger has it so far."""
        answer = self.http.get(f"/api/traces/{trace_id}")
        return answer.json()["data"][0] if answer.status_code == 200 else None

    def dependencies(self) -> set[tuple[str, str]]:
        """Who calls whom, as its graph of services shows it."""
        asked = {"endTs": int(time.time() * 1000) + 60_000, "lookback": 3_600_000}
        found = self.http.get("/api/dependencies", params=asked).raise_for_status().json()["data"]
        return {(edge["parent"], edge["child"]) for edge in found}

    def search(self, service: str, tags: str) -> list[dict[str, Any]]:
        """Traces of a service by tags, a JSON object."""
        found = self.http.get("/api/traces", params={"service": service, "tags": tags, "lookback": "1h"})
        return found.raise_for_status().json()["data"]


def find() -> Path:
    """The program. Skips, or fails, if there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    found = sorted((cache / "a2a-handoff").glob("jaeger-v*"))
    if not found:
        missing("Jaeger is not built; .ci/jaeger.sh builds it, if there is Go")
    return found[-1]


@contextmanager
def jaeger(folder: Path, *, store: str = "memory") -> Generator[Jaeger]:
    """Start it, and wait until it answers. ``store``: memory, or badger to keep traces in ``folder``."""
    query, otlp = kept_port(), kept_port()
    addresses = {
        "extensions::jaeger_query::http::endpoint": query,
        "extensions::jaeger_query::grpc::endpoint": kept_port(),
        "extensions::healthcheckv2::http::endpoint": kept_port(),
        "receivers::otlp::protocols::http::endpoint": otlp,
        "receivers::otlp::protocols::grpc::endpoint": kept_port(),
        "exporters::prometheus::endpoint": kept_port(),
    }
    chosen = [f"--config=yaml:{name}: 127.0.0.1:{port}" for name, port in addresses.items()]
    own = f"{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {kept_port()}}}}}}}}}"
    chosen.append(f"--config=yaml:service::telemetry::metrics::readers: [{own}]")
    env = os.environ | {
        "PROMETHEUS_URL": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        "JAEGER_STORE": store,
        "JAEGER_BADGER_DIR": str(folder / "traces"),
    }
    words = folder / "jaeger.log"
    with (
        words.open("wb") as log,
        subprocess.Popen(
            (str(find()), "--config=jaeger.yaml", *chosen), cwd=ROOT / "otel", env=env, stdout=log, stderr=log
        ) as process,
    ):
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{query}", timeout=10, trust_env=False) as http:

                def up() -> bool:
                    assert process.poll() is None, words.read_text()[-2_000:]
                    try:
                        return http.get("/api/services").status_code == 200
                    except httpx.TransportError:
                        return False

                eventually(up, within_s=WAIT_S)
                yield Jaeger(f"http://127.0.0.1:{otlp}", http)
        finally:
            # What is only in memory need not be put in order.
            process.kill() if store == "memory" else process.terminate()
            process.wait(WAIT_S)
