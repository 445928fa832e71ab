"""What an operator sees of a broker's store, and of work that nobody does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from pathlib import Path

import pytest

from a2a_handoff import app
from a2a_handoff.stores.postgres import READERS
from tests.support.agents import Agent, card, completes
from tests.support.replicas import replicas
from tests.support.running import Broker, broker, running
from tests.support.wire import eventually, metric

#: Seconds that a task has, enough to drain a broker meanwhile.
DEADLINE_S = 2.0


@pytest.fixture(params=["sqlite", "postgres"])
def b(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Broker]:
    monkeypatch.setattr(app, "_QUEUE_EVERY_S", 0.05)
    if request.param == "sqlite":
        with broker(tmp_path) as alone:
            yield alone
    else:
        with replicas(tmp_path, 1) as (alone,):
            yield alone


def read(b: Broker, name: str, **labels: str) -> float:
    text = b.http.get("/metrics").text
    assert name in text
    return metric(text, name, **labels)


def test_work_that_a_drained_broker_leaves_is_late_until_it_serves_again(b: Broker) -> None:
    """Here the end of a task whose deadline passes meanwhile, and that of its offer."""
    b.register("cursor", platform="cursor")
    deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=DEADLINE_S)
    body = {"source_agent": "shop", "target_agent": "cursor", "task": "x", "deadline": deadline.isoformat()}
    made = b.http.post("/api/handoffs", json=body).json()["handoff_id"]
    assert b.http.post("/api/drain?notice=0").is_success
    eventually(lambda: b.http.get("/api/drain").json()["stage"] == "drained")
    assert read(b, "handoff_work_late") == 0
    eventually(lambda: read(b, "handoff_work_late", handoff_work_state="due") == 2)
    eventually(lambda: read(b, "handoff_work_late_age_seconds", handoff_work_state="due") > 0.2)
    assert read(b, "handoff_work_late", handoff_work_state="lapsed") == 0
    assert b.handoff(made)["state"] == "offered"
    assert b.http.delete("/api/drain").is_success
    b.until(made, "expired")
    eventually(lambda: read(b, "handoff_work_late") == 0)
    eventually(lambda: read(b, "handoff_work_late_age_seconds") == 0)


def test_a_broker_at_work_shows_its_connections_and_renews_its_claims(b: Broker) -> None:
    agent = Agent(completes)
    with running(agent) as url:
        b.register("worker", card=card(url))
        for _ in range(3):
            b.send("go", context={"target_agent": "worker"})
    assert read(b, "handoff_store_connections_limit") == READERS
    assert 0 < read(b, "handoff_store_connections") <= READERS
    eventually(lambda: read(b, "handoff_store_connections", handoff_connection_state="used") == 0)
    eventually(lambda: read(b, "handoff_store_writes_waiting") == 0)
    assert read(b, "handoff_store_reads_waiting") == 0
    assert read(b, "handoff_store_reads_wait_time_seconds_total") > 0
    assert 0 <= read(b, "handoff_work_lease_age_seconds") < b.app.settings.work_lease
