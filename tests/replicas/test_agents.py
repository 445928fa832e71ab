"""Agents, their presence and their inboxes are the same at every broker on one PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.support.agents import Agent, asks, card, completes
from tests.support.replicas import replicas
from tests.support.running import WAIT_S, Broker, running
from tests.support.sockets import socket_of
from tests.support.tools import Tools
from tests.support.wire import eventually


def view(b: Broker, agent_id: str) -> Any:
    answer = b.http.get(f"/api/agents/{agent_id}")
    return answer.json() if answer.is_success else None


def test_an_agent_that_was_registered_a_moment_ago_gets_work_from_another_broker(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, replicas(tmp_path) as (a, b):
        for n in range(5):
            a.register(f"worker-{n}", card=card(url, capabilities=[f"can{n}"]))
            task = b.send("go", context={"requirements": {"capabilities": [f"can{n}"]}})
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            named = a.register(f"named-{n}", card=card(url))
            task = b.send("go", context={"target_agent": named["agent_id"]})
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"


def test_an_agent_that_is_changed_or_removed_at_one_broker_is_so_at_the_others(tmp_path: Path) -> None:
    with replicas(tmp_path, 3) as (a, b, c):
        a.register("editor", platform="cursor", workspace="one")
        eventually(lambda: (view(c, "editor") or {}).get("workspace") == "one")
        b.register("editor", platform="cursor", workspace="two")
        eventually(lambda: view(a, "editor")["workspace"] == "two")
        assert c.http.delete("/api/agents/editor").is_success
        eventually(lambda: view(a, "editor") is None and view(b, "editor") is None)
        a.register("editor", platform="cursor", workspace="three")
        eventually(lambda: (view(c, "editor") or {}).get("workspace") == "three")


def test_a_heartbeat_and_a_goodbye_are_known_at_every_broker(tmp_path: Path) -> None:
    with replicas(tmp_path) as (a, b):
        a.register("editor")
        assert b.http.post("/api/agents/editor/heartbeat", json={"status": "busy", "in_flight": 3}).is_success
        eventually(lambda: (view(a, "editor")["status"], view(a, "editor")["in_flight"]) == ("busy", 3))
        assert a.http.post("/api/agents/editor/heartbeat", json={"status": "idle"}).is_success
        eventually(lambda: view(b, "editor")["status"] == "idle")


def test_an_agent_that_waits_at_one_broker_gets_what_is_sent_to_another(tmp_path: Path) -> None:
    with replicas(tmp_path, presence=1) as (a, b), ThreadPoolExecutor(2) as pool:
        a.register("editor")
        asked = {"agent": "editor", "timeout": 20}
        watch = pool.submit(a.http.get, "/api/handoffs/watch", params=asked)
        eventually(lambda: a.app.service.inbox._seats)
        # It is not heard from but by its waiting, which is told often enough for so short a presence.
        eventually(lambda: view(b, "editor")["status"] != "offline")
        task = b.send("for the editor", wait=False, context={"target_agent": "editor"})
        offer = watch.result(WAIT_S)
        assert offer.status_code == 200, offer.text
        assert offer.json()["handoff_id"] == task["id"]
        accepted = b.http.post(f"/api/handoffs/{task['id']}/accept", json={"agent_id": "editor"})
        assert accepted.is_success, accepted.text
        done = a.http.post(f"/api/handoffs/{task['id']}/complete", json={"agent_id": "editor", "result": "x"})
        assert done.is_success, done.text
        assert b.until(task["id"], "completed")["state"] == "completed"


def test_what_waits_for_an_agent_is_offered_when_it_comes_to_another_broker(tmp_path: Path) -> None:
    with replicas(tmp_path, presence=1) as (a, b), ThreadPoolExecutor(2) as pool:
        a.register("editor", capabilities={"canEditFiles": True})
        eventually(lambda: all((view(one, "editor") or {}).get("status") == "offline" for one in (a, b)))
        task = b.send("wait", wait=False, context={"requirements": {"capabilities": ["canEditFiles"]}})
        assert b.log(task["id"])[-1] != "handoff_offered"
        watch = pool.submit(a.http.get, "/api/handoffs/watch", params={"agent": "editor", "timeout": 20})
        assert watch.result(WAIT_S).json()["handoff_id"] == task["id"]


def test_broadcasts_reach_agents_at_every_broker(tmp_path: Path) -> None:
    with (
        replicas(tmp_path) as (a, b),
        socket_of(a, "one", platform="x") as first,
        socket_of(b, "two", platform="x") as second,
    ):
        said = {"source_agent": "one", "channel": "news", "message": "lunch"}
        assert a.http.post("/api/broadcasts", json=said).is_success
        assert second.next("broadcast")["message"] == "lunch"
        assert b.http.post("/api/broadcasts", json=said | {"source_agent": "two"}).is_success
        assert first.next("broadcast")["message"] == "lunch"


def test_the_workspace_hears_the_same_in_the_same_order_at_every_broker(tmp_path: Path) -> None:
    agent = Agent(completes)
    with (
        running(agent) as url,
        replicas(tmp_path) as brokers,
        socket_of(brokers[0], "one", platform="x", events=True) as first,
        socket_of(brokers[1], "two", platform="x", events=True) as second,
    ):
        brokers[0].register("worker", card=card(url))
        for n in range(6):
            brokers[n % 2].send(f"task {n}", context={"target_agent": "worker", "source_agent": "one"})

        def heard(socket: Any) -> list[tuple[str, str]]:
            found: list[tuple[str, str]] = []
            while sum(name == "handoff:completed" for name, _ in found) < 6:
                frame = socket.next("event")
                found.append((frame["event"], frame["data"]["handoffId"]))
            return found

        assert heard(first) == heard(second)


def test_c089_the_tools_go_on_at_another_broker_from_call_to_call(tmp_path: Path) -> None:
    with replicas(tmp_path) as (a, b):
        here, there = Tools(broker=a, agent="cursor"), Tools(broker=b, agent="cursor")
        a.register("cursor", platform="cursor")
        task = b.send("edit it", wait=False, context={"target_agent": "cursor"})
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED", b.handoff(task["id"])
        found = there.do("watch_handoffs", timeout=10)
        assert task["id"] in str(found)
        here.ask("accept_handoff", {"handoffId": task["id"]})
        there.do("complete_handoff", handoffId=task["id"], result="edited")
        assert a.until(task["id"], "completed")["state"] == "completed"


def test_the_change_stream_of_agents_tells_what_happened_elsewhere(tmp_path: Path) -> None:
    with replicas(tmp_path) as (a, b), ThreadPoolExecutor(1) as pool:

        def told() -> list[str]:
            news = ("agent_registered", "agent_removed")
            found: list[str] = []
            with httpx.stream("GET", b.url + "/api/events/agents", timeout=20, trust_env=False) as answer:
                for line in answer.iter_lines():
                    found += [name for name in news if name in line]
                    if news[-1] in found:
                        break
            return found

        stream = pool.submit(told)
        eventually(lambda: "agents" in b.waiters)
        a.register("editor")
        eventually(lambda: view(b, "editor") is not None)
        assert a.http.delete("/api/agents/editor").is_success
        assert list(dict.fromkeys(stream.result(WAIT_S))) == ["agent_registered", "agent_removed"]


def test_work_for_an_agent_that_another_broker_registered_a_moment_ago_does_not_wait(tmp_path: Path) -> None:
    """It would be put back for half a minute if whoever claims it did not ask who that is."""
    with running(Agent(asks)) as url, replicas(tmp_path, reconcile_every=3_600) as (a, b):
        registry = b.app.registry
        before = registry._revision
        a.register("asker", card=card(url))
        task = a.send("first", context={"target_agent": "asker"})
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

        async def forget() -> None:
            """As if it had not heard of the agent so far."""
            registry._roster.drop("default", "asker")
            registry._revision = before

        b.loop.run(forget())
        second = b.send("second", message={"taskId": task["id"]})
        assert second["status"]["state"] == "TASK_STATE_COMPLETED"
