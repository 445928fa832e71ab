"""A real Prometheus with the rules of ``otel/``, their windows shortened, that scrapes one broker.

Where the program is missing the tests are skipped, unless ``A2A_HANDOFF_TEST_SERVICES`` says that it is required.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.required import missing
from tests.support.running import kept_port
from tests.support.wire import eventually

OTEL = Path(__file__).parents[2] / "otel"
WAIT_S = 30.0
#: What the windows of the rules become, so that a minute of traffic is enough.
_SHORTER = ((r"\[10m\]|\[1h\]", "[20s]"), (r"interval: \d+s", "interval: 1s"), (r"for: \d+m", "for: 2s"))


class Prometheus:
    """What it says."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        alerts = self._http.get("/api/v1/alerts").json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def value(self, query: str) -> list[Any]:
        """What a query gives now; nothing if nothing meets it."""
        return self._http.get("/api/v1/query", params={"query": query}).json()["data"]["result"]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with its health."""
        groups = self._http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@contextmanager
def prometheus(folder: Path, target: str) -> Generator[Prometheus]:
    """Start it; ``target`` is host and port of the broker."""
    program = shutil.which("prometheus")
    if program is None:
        missing("Prometheus is not installed (Debian's package prometheus has it)")
    rules = (OTEL / "rules.yml").read_text()
    for long, short in _SHORTER:
        rules, count = re.subn(long, short, rules)
        assert count, f"no {long} in the rules"
    (folder / "rules.yml").write_text(rules)
    config = yaml.safe_load((OTEL / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (broker,) = [job for job in config["scrape_configs"] if job["job_name"] == "a2a-handoff"]
    broker["static_configs"] = [{"targets": [target]}]
    config["scrape_configs"] = [broker]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = kept_port()
    command = (
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    words = folder / "prometheus.log"
    with words.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as http:

                def up() -> bool:
                    assert process.poll() is None, words.read_text()[-2_000:]
                    try:
                        return http.get("/-/ready").status_code == 200
                    except httpx.TransportError:
                        return False

                eventually(up, within_s=WAIT_S)
                yield Prometheus(http)
        finally:
            process.terminate()
            process.wait(WAIT_S)
