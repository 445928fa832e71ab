"""A broker is taken out of service and put back, alone and beside another one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_handoff.cli.commands import main
from tests.support.agents import Agent, Answer, Call, card, completes
from tests.support.bearers import SECRET, bearer
from tests.support.replicas import replicas
from tests.support.running import Broker, broker, running, send_params, sse_data
from tests.support.sockets import socket_of
from tests.support.wire import eventually


def stage(b: Broker) -> str:
    return b.http.get("/api/drain").json()["stage"]


def drain(b: Broker, notice: float = 0) -> Any:
    answer = b.http.post(f"/api/drain?notice={notice:g}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(b: Broker, wanted: str) -> None:
    eventually(lambda: stage(b) == wanted)


class Gated:
    """Works on a task until the test lets it finish."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    async def __call__(self, agent: Agent, call: Call) -> Answer:
        self.began.set()
        await asyncio.to_thread(self.may_end.wait, 20)
        return await completes(agent, call)


def test_a_broker_that_leaves_is_not_ready_and_takes_tasks_until_the_notice_is_over(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        b.register("worker", card=card(url))
        assert stage(b) == "serving"
        assert drain(b, notice=300)["stage"] == "leaving"
        probe = b.http.get("/readyz")
        assert (probe.status_code, probe.text) == (503, "leaving\n")
        assert b.http.get("/healthz").status_code == 200
        task = b.send("still", context={"target_agent": "worker"})
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert b.http.delete("/api/drain").json() == {"stage": "serving", "under_way": 0}
        assert b.http.get("/readyz").status_code == 200


def test_who_waits_is_let_go_what_runs_ends_and_new_tasks_are_refused(tmp_path: Path) -> None:
    gated = Gated()
    with running(Agent(gated)) as url, broker(tmp_path, ack_wait=30) as b, ThreadPoolExecutor(4) as threads:
        b.register("worker", card=card(url))
        b.register("editor", platform="cursor")
        watch = threads.submit(b.http.get, "/api/handoffs/watch", params={"agent": "editor", "timeout": 30})
        with socket_of(b, "other", platform="cursor") as socket:
            task = b.send("long", wait=False, context={"target_agent": "worker"})
            told = threads.submit(_events_of, b, task["id"])
            assert gated.began.wait(10)
            eventually(lambda: b.http.get("/api/agents/editor").json()["present"])
            drain(b)
            assert watch.result(10).status_code == 204
            assert socket.closed()[0] == 1012
            assert told.result(10) >= 1
        assert stage(b) == "draining"
        assert b.http.get("/api/drain").json()["under_way"] == 1

        refused = b.rpc("SendMessage", send_params("new", context={"target_agent": "worker"}))
        assert refused["error"]["data"][0]["reason"] == "UNAVAILABLE"
        again = b.http.post("/api/handoffs", json={"source_agent": "me", "task": "new"})
        assert (again.status_code, again.headers["retry-after"]) == (503, "5")
        # What there is can be read, and ends.
        assert b.rpc("GetTask", {"id": task["id"]})["result"]["id"] == task["id"]
        gated.may_end.set()
        until(b, "drained")
        assert b.handoff(task["id"])["state"] == "completed"


def _events_of(b: Broker, task_id: str) -> int:
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    with b.http.stream("POST", "/", json=call, headers={"A2A-Version": "1.0"}) as answer:
        return len([json.loads(data) for data in sse_data(answer.iter_lines())])


def test_a_broker_that_is_put_back_takes_everything_again_and_does_what_waited(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        b.register("worker", card=card(url))
        b.register("editor", platform="cursor")
        held = b.send("by hand", wait=False, context={"target_agent": "editor", "fallback": ["worker"]})
        drain(b)
        until(b, "drained")
        # An agent may still say what it does; what follows from that waits for a broker that is in service.
        declined = b.http.post(f"/api/handoffs/{held['id']}/decline", json={"agent_id": "editor"})
        assert declined.status_code == 200, declined.text
        assert agent.calls == []
        assert b.http.delete("/api/drain").json()["stage"] == "serving"
        eventually(lambda: b.handoff(held["id"])["state"] == "completed")
        assert b.send("new", context={"target_agent": "worker"})["status"]["state"] == "TASK_STATE_COMPLETED"
        with socket_of(b, "other", platform="cursor") as socket:
            assert socket.quiet() == []


def test_what_follows_at_a_drained_broker_is_done_by_another_one(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, replicas(tmp_path) as (a, b):
        a.register("worker", card=card(url))
        a.register("editor", platform="cursor")
        held = a.send("by hand", wait=False, context={"target_agent": "editor", "fallback": ["worker"]})
        drain(a)
        until(a, "drained")
        a.http.post(f"/api/handoffs/{held['id']}/decline", json={"agent_id": "editor"})
        eventually(lambda: b.handoff(held["id"])["state"] == "completed")
        assert stage(a) == "drained"
        assert a.handoff(held["id"])["state"] == "completed"
        assert [call.text for call in agent.calls] == ["by hand"]


def test_the_command_waits_until_nothing_is_under_way_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gated = Gated()
    with running(Agent(gated)) as url, broker(tmp_path, ack_wait=30) as b:
        b.register("worker", card=card(url))
        b.send("long", wait=False, context={"target_agent": "worker"})
        assert gated.began.wait(10)
        asked = ["drain", "--url", b.url, "--notice", "0"]
        assert main([*asked, "--timeout", "0.5"]) == 1
        said = capsys.readouterr()
        assert "is draining after 0.5 s: 1 piece of work is under way" in said.err
        gated.may_end.set()
        assert main([*asked, "--timeout", "20"]) == 0
        assert capsys.readouterr().out == f"{b.url} is drained: nothing is under way\n"
        assert main(["drain", "--url", b.url, "--undo"]) == 0
        assert capsys.readouterr().out == f"{b.url} is serving\n"
        assert b.http.get("/readyz").status_code == 200


def test_only_an_admin_of_the_brokers_own_tenant_may_drain_it(tmp_path: Path) -> None:
    admin, usual = ("handoff:admin", "default"), ("handoff:send handoff:work", "default")
    stranger = ("handoff:admin", "elsewhere")
    with broker(tmp_path, auth_secret=SECRET) as b:

        def asked(scope: str, tenant: str, ask: Callable[..., httpx.Response]) -> int:
            return ask("/api/drain", headers=bearer("op", tenant=tenant, scope=scope)).status_code

        for ask in (b.http.post, b.http.get, b.http.delete):
            assert ask("/api/drain").status_code == 401
            assert asked(*usual, ask) == 403
            assert asked(*stranger, ask) == 403
            assert asked(*admin, ask) == 200


@pytest.mark.parametrize("notice", ["-1", "301", "soon", "nan"])
def test_a_notice_that_is_no_time_is_refused(tmp_path: Path, notice: str) -> None:
    with broker(tmp_path) as b:
        answer = b.http.post(f"/api/drain?notice={notice}")
        assert answer.status_code == 400, answer.text
        assert stage(b) == "serving"
