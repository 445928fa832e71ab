"""The whole broker on PostgreSQL: tasks, fallback, restarts, ``kill -9``, and a server that goes away."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import test_kill
from tests.acceptance.test_kill import Stage
from tests.support.agents import Agent, card, completes, rejects
from tests.support.postgres import Wire, postgres_server
from tests.support.running import Loop, broker, kept_port, running
from tests.support.served import served
from tests.support.wire import eventually

#: Between offer and answer, with a target that works, streams, or holds it by hand; and while one waits for time.
SCENES = [
    test_kill.the_offer_is_out_and_not_answered,
    test_kill.it_lies_in_an_inbox,
    test_kill.it_said_ready_and_has_the_task,
    test_kill.a_plain_agent_works_on_it,
    test_kill.it_is_in_the_middle_of_a_stream,
    test_kill.a_pull_agent_holds_it,
    test_kill.the_agent_is_down_and_will_be_asked_again,
]


def test_a_task_falls_back_and_is_there_after_a_restart(tmp_path: Path) -> None:
    server = postgres_server()
    store = server.url(server.fresh())
    unwilling, willing = Agent(rejects), Agent(completes)
    with running(unwilling) as first, running(willing) as second:
        with broker(tmp_path, store=store) as b:
            b.register("unwilling", card=card(first))
            b.register("willing", card=card(second))
            task = b.send("anybody", context={"target_agent": "unwilling", "fallback": ["willing"]})
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            handoff, log = b.handoff(task["id"]), b.log(task["id"])
            assert [attempt["agent_id"] for attempt in handoff["attempts"]] == ["unwilling", "willing"]
            waiting = b.send("later", wait=False, context={"requirements": {"capabilities": ["canWait"]}})
        assert (len(unwilling.calls), len(willing.calls)) == (1, 1)
        with broker(tmp_path, store=store) as b:
            assert b.handoff(task["id"]) == handoff
            assert b.log(task["id"]) == log
            listed = b.http.get("/api/handoffs").json()["handoffs"]
            assert {one["handoff_id"] for one in listed} == {task["id"], waiting["id"]}
            again = b.send("once more", context={"target_agent": "willing"})
            assert again["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_broker_is_killed_and_another_goes_on_with_what_it_left(tmp_path: Path) -> None:
    server = postgres_server()
    store = server.url(server.fresh())
    settings: dict[str, Any] = {"ack_wait": 120, "retry_delay": 5, "reconcile_every": 0.5, "cancel_wait": 120}
    with ExitStack() as stack, served(tmp_path, store=store, **settings) as killed:
        stage = Stage(killed, stack)
        begun = [play(stage) for play in SCENES]
        for scene in begun:
            next(scene)
        killed.kill()
        for happens in stage.meanwhile:
            happens()
        killed.start()
        for scene in begun:
            with pytest.raises(StopIteration):
                next(scene)
        assert "Traceback" not in killed.words, killed.words


def test_a_broker_whose_server_goes_away_says_so_and_comes_back_with_it(tmp_path: Path) -> None:
    server = postgres_server()
    store = server.url(server.fresh())
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path, store=store) as b:
        b.register("worker", card=card(url))
        task = b.send("before", context={"target_agent": "worker"})
        assert b.http.get("/readyz").status_code == 200
        server.stop(signal.SIGQUIT)
        try:
            probe = b.http.get("/readyz")
            assert (probe.status_code, probe.text) == (503, "the store does not answer\n")
            assert b.http.get("/healthz").status_code == 200
            refused = b.http.post("/api/handoffs", json={"source_agent": "me", "task": "now"})
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
            for word in (str(server.port), "postgres", "sql", "broker@"):
                assert word not in refused.text.lower()
            assert "error" in b.rpc("GetTask", {"id": task["id"]})
        finally:
            server.start()
        eventually(lambda: b.http.get("/readyz").status_code == 200)
        assert b.rpc("GetTask", {"id": task["id"]})["result"]["status"]["state"] == "TASK_STATE_COMPLETED"

        again = b.send("after", context={"target_agent": "worker"})
        assert again["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [call.text for call in agent.calls] == ["before", "after"]


@pytest.mark.parametrize("forward", [True, False], ids=["it arrived", "it did not"])
@pytest.mark.parametrize("patient", [True, False], ids=["patient", "impatient"])
def test_a_result_whose_commit_is_in_doubt_reaches_its_caller_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward: bool, patient: bool
) -> None:
    if not patient:
        monkeypatch.setattr("a2a_handoff.stores.postgres_writer.DOUBT_S", 0.0)
    server = postgres_server()
    database = server.fresh()
    wire, loop = Wire(server.port, forward=forward, after=b"HandoffCompleted"), Loop()
    port = loop.run(wire.__aenter__())
    agent = Agent(completes)
    with (
        running(agent) as url,
        broker(tmp_path, store=f"postgresql://broker@127.0.0.1:{port}/{database}") as b,
    ):
        b.register("worker", card=card(url))
        task = b.send("mind the gap", context={"target_agent": "worker"})
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert b.log(task["id"]).count("handoff_completed") == 1
    loop.run(wire.__aexit__())
    loop.close()
    assert wire.cuts == 1
    assert [call.text for call in agent.calls if call.method == "SendMessage"] == ["mind the gap"]


def test_a_broker_that_cannot_reach_its_server_ends_with_one_line(tmp_path: Path) -> None:
    port = kept_port()
    with (
        pytest.raises(AssertionError) as raised,
        served(tmp_path, store=f"postgresql://me:sekrit@127.0.0.1:{port}/x"),
    ):
        pass
    words = (tmp_path / "broker.log").read_text()
    (line,) = [line for line in words.splitlines() if line.startswith("a2a-handoff: ")]
    assert line.startswith(f"a2a-handoff: The store postgresql://127.0.0.1:{port}/x cannot be reached")
    assert "sekrit" not in words + str(raised.value)
    assert "Traceback" not in words
