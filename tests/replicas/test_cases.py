"""Faults that users of comparable systems met with several processes on one database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.replicas.test_tasks import Held
from tests.support.agents import Agent, card, completes
from tests.support.postgres import postgres_server
from tests.support.puller import in_threads
from tests.support.replicas import replicas
from tests.support.running import WAIT_S, running
from tests.support.wire import eventually

ROUNDS = 15


def test_c042_cancels_at_two_brokers_at_once_reach_the_target_once(tmp_path: Path) -> None:
    script = Held()
    agent = Agent(script)
    with running(agent) as url, replicas(tmp_path) as brokers, ThreadPoolExecutor(20) as pool:
        brokers[0].register("worker", card=card(url, streaming=True))
        task = brokers[0].send("stop", wait=False, context={"target_agent": "worker"})
        assert script.called.wait(WAIT_S)
        brokers[0].until(task["id"], "acknowledged")
        answers = list(pool.map(lambda n: brokers[n % 2].rpc("CancelTask", {"id": task["id"]}), range(20)))
        for answer in answers:
            assert "result" in answer or answer["error"]["code"] == -32002, answer
        brokers[1].until(task["id"], "canceled")
        assert brokers[1].log(task["id"]).count("cancel_requested") == 1
    assert len(agent.of("CancelTask")) == 1


def test_c063_each_end_is_counted_by_the_broker_that_committed_it_and_by_no_other(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, replicas(tmp_path) as (a, b):
        a.register("worker", card=card(url))
        for number in range(5):
            (a if number < 3 else b).send(f"task {number}", context={"target_agent": "worker"})
        counted = [
            sum(
                float(line.rpartition(" ")[2])
                for line in one.http.get("/metrics").text.splitlines()
                if line.startswith("handoff_outcomes_total{") and 'handoff_state="completed"' in line
            )
            for one in (a, b)
        ]
        assert counted == [3, 2]


def test_c071_of_an_end_at_each_of_two_brokers_the_first_one_holds(tmp_path: Path) -> None:
    with replicas(tmp_path) as (a, b):
        a.register("hand")

        def ended(task_id: str) -> list[Any]:
            said = {"agent_id": "hand"}
            return in_threads(
                lambda: a.http.post(f"/api/handoffs/{task_id}/complete", json=said | {"result": "x"}),
                lambda: b.http.post(f"/api/handoffs/{task_id}/fail", json=said | {"reason": "y"}),
            )

        outcomes: set[str] = set()
        for number in range(ROUNDS):
            task = b.send(f"round {number}", wait=False, context={"target_agent": "hand"})
            accepted = a.http.post(f"/api/handoffs/{task['id']}/accept", json={"agent_id": "hand"})
            assert accepted.is_success, accepted.text
            answers = ended(task["id"])
            assert sorted(answer.status_code for answer in answers) == [200, 409], [x.text for x in answers]
            states = {one.handoff(task["id"])["state"] for one in (a, b)}
            assert len(states) == 1
            outcomes |= states
            log = a.log(task["id"])
            assert log.count("handoff_completed") + log.count("handoff_failed") == 1
            assert log == b.log(task["id"])
        assert outcomes <= {"completed", "failed"}


def test_c074_a_large_task_is_written_and_wakes_who_waits_for_it_elsewhere(tmp_path: Path) -> None:
    agent = Agent(completes)
    name = 'agent "quoted" of Zürich ' + "x" * 60
    with running(agent) as url, replicas(tmp_path) as (a, b), ThreadPoolExecutor(1) as pool:
        a.register(name, card=card(url))
        facts = {"words": "ü" * 1500}
        task = a.send("large " * 4000, wait=False, context={"target_agent": name, "key_facts": facts})
        waiting = pool.submit(b.until, task["id"], "completed")
        assert waiting.result(WAIT_S)["state"] == "completed"


def test_c077_work_that_only_a_newer_version_knows_is_left_to_it(tmp_path: Path) -> None:
    server = postgres_server()
    agent = Agent(completes)
    with running(agent) as url, replicas(tmp_path, 1) as (a,):
        database = a.app.settings.store.rpartition("/")[2]
        server.sql("INSERT INTO work VALUES ('h-1', 'dance', 0, '', 0, 0, '', 0, false)", database=database)
        a.register("worker", card=card(url))
        done = a.send("go on", context={"target_agent": "worker"})
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        claimed = server.sql("SELECT owner, claims FROM work WHERE kind = 'dance'", database=database)
        assert claimed == [("", 0)]
        eventually(lambda: a.http.get("/readyz").is_success)
