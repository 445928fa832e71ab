"""Brokers wake each other over the database or over NATS; where no hint comes they look by themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from a2a_handoff.stores.postgres_hints import PostgresHints
from tests.support.agents import Agent, card, completes
from tests.support.nats import nats_server
from tests.support.replicas import replicas
from tests.support.running import WAIT_S, Broker, running

#: Far longer than anybody waits here.
NEVER_S = 600.0


def tell_each_other(a: Broker, b: Broker, url: str) -> None:
    """A task, an offer and an agent that were made at one are seen at the other."""
    a.register("worker", card=card(url))
    a.register("editor")
    with ThreadPoolExecutor(2) as pool:
        watch = pool.submit(b.http.get, "/api/handoffs/watch", params={"agent": "editor", "timeout": 20})
        offered = a.send("edit", wait=False, context={"target_agent": "editor"})
        assert watch.result(WAIT_S).json()["handoff_id"] == offered["id"]
        follow = pool.submit(b.until, offered["id"], "canceled")
        a.rpc("CancelTask", {"id": offered["id"]})
        assert follow.result(WAIT_S)["state"] == "canceled"
    done = b.send("work", context={"target_agent": "worker"})
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("over", ["the database", "NATS"])
def test_hints_are_enough_without_looking(tmp_path: Path, over: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "SIGNS_S", "BURY_S"):
        monkeypatch.setattr(f"a2a_handoff.replicas.{name}", NEVER_S)
    monkeypatch.setattr("a2a_handoff.stores.postgres_hints.LOOK_S", 0.05)
    agent = Agent(completes)
    with running(agent) as url:
        if over == "NATS":
            with nats_server(tmp_path) as server, replicas(tmp_path, nats=server.url) as (a, b):
                for one in (a, b):
                    one.http.get("/readyz")
                tell_each_other(a, b, url)
        else:
            with replicas(tmp_path) as (a, b):
                tell_each_other(a, b, url)


def test_looking_is_enough_without_hints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresHints, "send", lambda *_: None)
    monkeypatch.setattr("a2a_handoff.replicas.LOOK_S", 0.05)
    monkeypatch.setattr("a2a_handoff.replicas.SIGNS_S", 0.05)
    agent = Agent(completes)
    with running(agent) as url, replicas(tmp_path) as (a, b):
        tell_each_other(a, b, url)
