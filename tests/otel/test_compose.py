"""The compose file, the image and the configurations fit together, and their commands work outside of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from a2a_handoff.config import read
from a2a_handoff.demo.agents import BEHAVIOURS
from a2a_handoff.demo.cards import port_of, read_card
from tests.otel.rules import OTEL
from tests.support.running import kept_port

ROOT = OTEL.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
JAEGER: dict[str, Any] = yaml.safe_load((OTEL / "jaeger.yaml").read_text(encoding="utf-8"))
OURS = "a2a-handoff"
AGENTS = {name: service for name, service in SERVICES.items() if "network_mode" in service}
EVERY = pytest.mark.parametrize("name", SERVICES)


# --- what may be done to it ----------------------------------------------------------------------


@EVERY
def test_every_port_is_open_on_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


@EVERY
def test_every_container_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "ipc", "devices"} & service.keys()
    assert service.get("user", "") != "root"


@EVERY
def test_every_image_is_pinned_and_every_container_says_whether_it_is_well(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    if service["image"] == OURS:
        assert service["pull_policy"] == ("build" if "build" in service else "never")
    else:
        assert re.search(r":v?\d+\.\d+(\.\d+)?(-alpine)?$", service["image"]), service["image"]


@EVERY
def test_every_file_that_is_mounted_is_there_and_cannot_be_changed(name: str) -> None:
    for volume in SERVICES[name].get("volumes", ()):
        source, _, rest = volume.partition(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert rest.endswith(":ro"), volume
        else:
            assert source in COMPOSE["volumes"]


# --- the broker and its agents -------------------------------------------------------------------


def test_the_settings_of_the_broker_are_ones_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    settings = read(environ=SERVICES["broker"]["environment"])
    assert not settings.loopback
    assert settings.private_addresses, "its agents share its loopback"
    assert settings.public_url == "http://" + SERVICES["broker"]["ports"][0].rpartition(":")[0]


def test_the_broker_starts_and_is_healthy_outside_as_it_does_inside(tmp_path: Path) -> None:
    port = kept_port()
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("A2A_HANDOFF_", "OTEL_"))
    }
    elsewhere = {
        "A2A_HANDOFF_HOST": "127.0.0.1",
        "A2A_HANDOFF_PORT": str(port),
        "A2A_HANDOFF_STORE": f"sqlite:///{tmp_path}/handoffs.db",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "",
    }
    environ |= SERVICES["broker"]["environment"] | elsewhere
    process = subprocess.Popen(
        outside(SERVICES["broker"]["command"]),
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "a2a-handoff is ready at http://127.0.0.1:8080\n", line
        check = [
            word.replace(":8080/", f":{port}/") for word in SERVICES["broker"]["healthcheck"]["test"][1:]
        ]
        assert subprocess.run(outside(check), check=False, timeout=30).returncode == 0
    finally:
        process.terminate()
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0, told


def outside(command: list[str]) -> list[str]:
    """A command as it stands, from the environment of the tests."""
    programs = Path(sys.executable).parent
    return [str(programs / command[0]), *command[1:]]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_listens_where_its_card_and_its_health_check_say(name: str) -> None:
    service = AGENTS[name]
    *module, agent = service["command"]
    assert module == ["python", "-m", "a2a_handoff.demo.agent"]
    assert agent in BEHAVIOURS
    assert service["network_mode"] == "service:broker"
    url = f"http://127.0.0.1:{port_of(read_card(ROOT / 'agent_cards', agent))}/"
    assert url in service["healthcheck"]["test"][-1]


def test_every_agent_of_the_demo_runs() -> None:
    assert {service["command"][-1] for service in AGENTS.values()} == set(BEHAVIOURS)


# --- the image -----------------------------------------------------------------------------------


def stages() -> list[str]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]


def test_the_image_is_built_in_one_stage_and_runs_in_another_without_root() -> None:
    build, final = stages()
    assert build.startswith("FROM python:3.13-slim AS build\n")
    assert final.startswith("FROM python:3.13-slim\n")
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE) == ["handoff"]
    assert not re.search(r"\b(apt|apt-get|gcc|pip install)\b", final)


def test_the_image_runs_what_the_compose_file_runs() -> None:
    assert f"CMD {SERVICES['broker']['command']}".replace("'", '"') in stages()[1]


def test_the_build_gets_what_it_copies_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    copied = {
        source
        for arguments in re.findall(r"^COPY (?!--from)(.*)$", "".join(stages()), re.MULTILINE)
        for source in arguments.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / source).exists() for source in copied)
    ignored = [line for line in lines if line.startswith("**/")]
    assert any(fnmatch("a2a_handoff/x.pyc", line) for line in ignored)


# --- who reads from whom -------------------------------------------------------------------------


def jaeger_ports() -> set[int]:
    """The ports that Jaeger's configuration listens on."""
    text = (OTEL / "jaeger.yaml").read_text(encoding="utf-8")
    found = re.findall(r"^ *endpoint: \$\{env:JAEGER_LISTEN_HOST:-127\.0\.0\.1\}:(\d+)$", text, re.MULTILINE)
    return {int(port) for port in (*found, *re.findall(r"^ *port: (\d+)$", text, re.MULTILINE))}


def test_every_address_in_a_configuration_is_one_where_somebody_listens() -> None:
    scraped = yaml.safe_load((OTEL / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    targets = [f"http://{t}" for job in scraped for entry in job["static_configs"] for t in entry["targets"]]
    sources = (OTEL / "grafana/provisioning/datasources/datasources.yml").read_text(encoding="utf-8")
    urls = [
        *targets,
        *(source["url"] for source in yaml.safe_load(sources)["datasources"]),
        SERVICES["broker"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"],
        *re.findall(r"(?<=:-)http://[^}]+", (OTEL / "jaeger.yaml").read_text(encoding="utf-8")),
    ]
    listening = {"broker": {8080}, "jaeger": jaeger_ports(), "prometheus": {9090}, "grafana": {3000}}
    for url in urls:
        parts = urlsplit(url)
        assert parts.port in listening[str(parts.hostname)], url


def test_what_is_published_of_jaeger_and_its_health_are_ports_that_it_has() -> None:
    published = {int(port.rpartition(":")[2]) for port in SERVICES["jaeger"]["ports"]}
    checked = {
        int(port) for port in re.findall(r":(\d+)/", " ".join(SERVICES["jaeger"]["healthcheck"]["test"]))
    }
    assert published | checked <= jaeger_ports()


def test_every_part_that_jaeger_is_told_to_use_is_configured() -> None:
    service = JAEGER["service"]
    connectors = JAEGER["connectors"].keys()
    assert set(service["extensions"]) == JAEGER["extensions"].keys()
    for pipeline in service["pipelines"].values():
        assert set(pipeline["receivers"]) <= JAEGER["receivers"].keys() | connectors
        assert set(pipeline.get("processors", ())) <= JAEGER["processors"].keys()
        assert set(pipeline["exporters"]) <= JAEGER["exporters"].keys() | connectors


def test_jaeger_keeps_spans_longer_than_any_chain_lasts_and_leaves_their_times_alone() -> None:
    query = JAEGER["extensions"]["jaeger_query"]
    backends = JAEGER["extensions"]["jaeger_storage"]["backends"]
    assert query["max_clock_skew_adjust"] == "0s"
    assert int(backends["badger"]["badger"]["ttl"]["spans"].removesuffix("h")) > 7 * 24
    assert query["storage"]["traces"] == JAEGER["exporters"]["jaeger_storage_exporter"]["trace_storage"]
    assert set(backends) == {"memory", "badger"}
