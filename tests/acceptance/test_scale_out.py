"""The configurations of ``deploy`` and of the compose profile ``scale``, as far as they run outside of containers."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from a2a_handoff.config import read
from tests.support.agents import Agent, card, completes, streams
from tests.support.nginx import proxied
from tests.support.replicas import processes
from tests.support.running import WAIT_S, running, send_params, sse_data
from tests.support.sockets import socket_of
from tests.support.wire import eventually

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))[
    "services"
]
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "deploy/kubernetes/a2a-handoff.yaml").read_text(encoding="utf-8"))
)
DEPLOYMENT, SERVICE, BUDGET = MANIFESTS
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def call(url: str, text: str, *, method: str = "SendMessage", wait: bool = True, target: str) -> Any:
    params = send_params(text, wait=wait, context={"target_agent": target})
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with httpx.stream(
        "POST", url, json=body, headers={"A2A-Version": "1.0"}, timeout=30, trust_env=False
    ) as answer:
        if "event-stream" in answer.headers["content-type"]:
            return [json.loads(data)["result"] for data in sse_data(answer.iter_lines())]
        return json.loads(answer.read())


def test_callers_streams_and_sockets_go_on_through_the_proxy_when_a_broker_is_gone(tmp_path: Path) -> None:
    worker, talker = Agent(completes), Agent(streams("one ", "two"))
    with (
        running(worker) as first,
        running(talker) as second,
        processes(tmp_path, 2) as (a, b),
        proxied(tmp_path, a.port, b.port) as url,
    ):
        a.register("worker", card=card(first))
        b.register("talker", card=card(second, streaming=True))
        for number in range(4):
            done = call(url, f"task {number}", target="worker")["result"]["task"]
            assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        told = call(url, "tell", method="SendStreamingMessage", target="talker")
        assert told[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        with socket_of(url, "editor", platform="cursor") as socket:
            task = call(url, "edit", wait=False, target="editor")["result"]["task"]
            assert socket.next("offer")["handoff_id"] == task["id"]

        a.kill()
        for number in range(4):
            done = call(url, f"later {number}", target="worker")["result"]["task"]
            assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        with socket_of(url, "editor", platform="cursor") as socket:
            assert socket.do("accept", handoff_id=task["id"])
            assert socket.do("complete", handoff_id=task["id"], result="edited")
        assert b.ended(task["id"])["state"] == "completed"


def test_the_brokers_of_the_compose_profile_have_settings_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    brokers = [SERVICES[name] for name in ("broker-1", "broker-2")]
    assert brokers[0] == brokers[1]
    settings = read(environ=brokers[0]["environment"])
    assert settings.store.startswith("postgresql://")
    assert settings.nats_servers
    assert settings.public_url == "http://" + SERVICES["proxy"]["ports"][0].rpartition(":")[0]
    assert all(service["profiles"] == ["scale"] for service in (*brokers, SERVICES["proxy"]))


def test_the_pods_have_settings_that_there_are_and_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    secrets = {
        "A2A_HANDOFF_STORE": "postgresql://handoff@db/handoff",
        "A2A_HANDOFF_AUTH_SECRET": "s" * 64,
    }
    environ = {one["name"]: one.get("value") or secrets[one["name"]] for one in CONTAINER["env"]}
    settings = read(environ=environ)
    assert CONTAINER["args"] == SERVICES["broker"]["command"]
    shell, option, drain = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert (shell, option) == ("sh", "-c")
    found = re.fullmatch(r'a2a-handoff drain --timeout (\d+) --token "\$\((a2a-handoff token .*)\)"', drain)
    assert found is not None
    assert settings.grace + int(found[1]) < POD["terminationGracePeriodSeconds"]
    assert found[2] == "a2a-handoff token --sub drain --scope handoff:admin"
    # Those that are there are fewer by one at most, by drains and by rollouts.
    assert BUDGET["spec"]["minAvailable"] == DEPLOYMENT["spec"]["replicas"] - 1
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == labels == BUDGET["spec"]["selector"]["matchLabels"]
    assert SERVICE["spec"]["sessionAffinity"] == "None"


def test_the_probes_of_the_pods_say_what_they_are_for(tmp_path: Path) -> None:
    def probe(url: str, kind: str) -> int:
        return httpx.get(url + CONTAINER[kind]["httpGet"]["path"], timeout=5, trust_env=False).status_code

    agent = Agent(completes)
    with running(agent), processes(tmp_path, 1, grace=5) as (broker,):
        assert probe(broker.url, "startupProbe") == 200
        assert probe(broker.url, "readinessProbe") == 200
        assert probe(broker.url, "livenessProbe") == 200
        broker.register("slow", lease_s=60)
        watching = threading.Thread(
            target=lambda: broker.http.get("/api/handoffs/watch", params={"agent": "slow", "timeout": 30})
        )
        watching.start()
        eventually(lambda: broker.http.get("/api/agents/slow").json()["present"])
        # Who waits is let go, and the broker ends within its grace.
        assert broker.stop() == 0
        watching.join(WAIT_S)
        assert not watching.is_alive()
