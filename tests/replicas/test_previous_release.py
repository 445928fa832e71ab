"""The previous release runs beside this one: on one PostgreSQL and one NATS, in both directions, and one after the other.

Its brokers are processes with the code of that release, from the history. The database is theirs at first; this one
brings its schema up to date while they work.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff import __version__
from tests.acceptance.test_kill_under_load import SETTINGS as LOAD
from tests.acceptance.test_kill_under_load import Load, Staff
from tests.notify.follower import events
from tests.replicas.test_gone import Door, sends, works_behind
from tests.support import previous
from tests.support.agents import Agent, asks, card, completes
from tests.support.hooks import hook
from tests.support.nats import Nats, nats_server
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.postgres import postgres_server
from tests.support.replicas import SETTINGS
from tests.support.running import WAIT_S, running, sse_data
from tests.support.served import Served, kind_of, served
from tests.support.sockets import socket_of
from tests.support.wire import eventually

_NUMBERS = itertools.count(1)


@dataclass
class Common:
    """What the brokers of both releases share, and how to start one."""

    folder: Path
    stack: ExitStack
    store: str
    nats: Nats

    def start(self, *, old: bool = False, **settings: Any) -> Served:
        """A broker of the previous release, or of this one."""
        place = self.folder / f"broker-{len(list(self.folder.glob('broker-*')))}"
        place.mkdir()
        chosen: dict[str, Any] = SETTINGS | {"nats": self.nats.url, "nats_stream": "events"} | settings
        how: dict[str, Any] = {"root": previous.code()} if old else {"forked": True}
        broker = self.stack.enter_context(served(place, store=self.store, **how, **chosen))
        assert broker.http.get("/").json()["version"] == (previous.VERSION if old else __version__)
        return broker


@contextmanager
def _common(folder: Path) -> Generator[Common]:
    """An empty database and a server of NATS; whatever was started on them ends."""
    previous.code()
    server = postgres_server()
    database = server.fresh()
    (folder / "nats").mkdir()
    with ExitStack() as stack:
        stack.callback(server.drop, database)
        nats = stack.enter_context(nats_server(folder / "nats"))
        common = Common(folder, stack.enter_context(ExitStack()), server.url(database), nats)
        yield common
    for words in folder.glob("broker-*/broker.log"):
        assert "Traceback" not in (said := words.read_text(encoding="utf-8", errors="replace")), said


@pytest.fixture
def common(tmp_path: Path) -> Generator[Common]:
    with _common(tmp_path) as made:
        yield made


@dataclass
class Pair:
    """A broker that is told of a task, and one of the other release."""

    here: Served
    there: Served
    name: str
    """For agents: each test has its own."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Served, Served]]:
    with _common(tmp_path_factory.mktemp("releases")) as made:
        yield made.start(old=True), made.start()


@pytest.fixture(params=["from the previous to this", "from this to the previous"])
def pair(both: tuple[Served, Served], request: pytest.FixtureRequest) -> Pair:
    old, new = both
    here, there = (old, new) if request.param.startswith("from the previous") else (new, old)
    return Pair(here, there, f"agent-{next(_NUMBERS)}")


def _subscribed(b: Served, task_id: str) -> list[Any]:
    """Everything that a subscription tells, to its end."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    with b.http.stream("POST", "/", json=body, headers={"A2A-Version": "1.0"}) as answer:
        return [json.loads(data)["result"] for data in sse_data(answer.iter_lines())]


# --- beside each other ---------------------------------------------------------------------------


def test_a_task_that_one_release_took_is_followed_at_the_other(pair: Pair) -> None:
    door = Door()
    agent = Agent(works_behind(door))
    with running(agent) as url, ThreadPoolExecutor(3) as pool:
        pair.there.register(pair.name, card=card(url, streaming=True))
        task = pair.here.send("over there", context={"target_agent": pair.name})
        assert door.came.wait(WAIT_S)
        pair.there.until(task["id"], "acknowledged")
        streams = [pool.submit(_subscribed, b, task["id"]) for b in (pair.here, pair.there)]
        known = len(pair.there.log(task["id"]))
        poll = pool.submit(
            pair.there.http.get,
            f"/api/handoffs/{task['id']}/events",
            params={"after": known, "timeout": 20},
        )
        eventually(lambda: pair.there.task(task["id"])["status"]["state"].endswith("WORKING"))
        door.open()
        for told in streams:
            assert told.result(WAIT_S)[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert poll.result(WAIT_S).json()["events"]
        assert pair.here.log(task["id"]) == pair.there.log(task["id"])
        assert pair.here.task(task["id"]) == pair.there.task(task["id"])
    assert sends(agent) == ["over there"]


def test_a_question_is_answered_at_the_other_release(pair: Pair) -> None:
    agent = Agent(asks)
    with running(agent) as url:
        pair.here.register(pair.name, card=card(url))
        task = pair.here.send("something", wait=True, context={"target_agent": pair.name})
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        message = {"taskId": task["id"], "messageId": f"{pair.name}-2"}
        done = pair.there.send("the blue one", wait=True, message=message)
        assert (done["id"], done["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
        assert pair.here.task(task["id"])["status"]["state"] == "TASK_STATE_COMPLETED"
    assert sends(agent) == ["something", "the blue one"]


def test_a_cancel_at_the_other_release_reaches_the_agent(pair: Pair) -> None:
    door = Door()
    script = works_behind(door)

    async def stops(agent: Agent, call: Any) -> Any:
        if call.method == "CancelTask":
            return agent.task("CANCELED", task_id=call.params["id"])
        return await script(agent, call)

    agent = Agent(stops)
    with running(agent) as url:
        pair.here.register(pair.name, card=card(url, streaming=True))
        task = pair.here.send("stop me", context={"target_agent": pair.name})
        assert door.came.wait(WAIT_S)
        pair.here.until(task["id"], "acknowledged")
        pair.there.rpc("CancelTask", {"id": task["id"]})
        for b in (pair.here, pair.there):
            assert b.ended(task["id"])["state"] == "canceled"
        door.open()
    assert len(agent.of("CancelTask")) == 1


def test_the_same_message_at_both_releases_is_one_task(pair: Pair) -> None:
    agent = Agent(completes)
    with running(agent) as url, ThreadPoolExecutor(2) as pool:
        pair.here.register(pair.name, card=card(url))
        asked: dict[str, Any] = {
            "context": {"target_agent": pair.name},
            "message": {"messageId": pair.name},
            "wait": True,
        }
        tasks = list(pool.map(lambda b: b.send("once", **asked), (pair.here, pair.there)))
    assert tasks[0]["id"] == tasks[1]["id"]
    assert len(agent.of("SendMessage")) == 1


def test_an_agent_that_fetches_its_work_at_one_release_gets_what_the_other_took(pair: Pair) -> None:
    with ThreadPoolExecutor(1) as pool:
        pair.here.register(pair.name)
        eventually(lambda: pair.there.http.get(f"/api/agents/{pair.name}").is_success)
        watch = pool.submit(
            pair.there.http.get, "/api/handoffs/watch", params={"agent": pair.name, "timeout": 20}
        )
        task = pair.here.send("edit", context={"target_agent": pair.name})
        assert watch.result(WAIT_S).json()["handoff_id"] == task["id"]
        pair.there.post(f"/api/handoffs/{task['id']}/accept", agent_id=pair.name)
        pair.here.post(f"/api/handoffs/{task['id']}/progress", agent_id=pair.name, text="half")
        pair.there.post(f"/api/handoffs/{task['id']}/complete", agent_id=pair.name, result="edited")
        assert pair.here.ended(task["id"])["state"] == "completed"
        with socket_of(pair.there.url, pair.name) as socket:
            task = pair.here.send("again", context={"target_agent": pair.name})
            assert socket.next("offer")["handoff_id"] == task["id"]
            socket.do("accept", handoff_id=task["id"])
            cancel = pool.submit(pair.here.rpc, "CancelTask", {"id": task["id"]})
            assert socket.next("cancel_requested")["handoff_id"] == task["id"]
            socket.do("release", handoff_id=task["id"])
            assert cancel.result(WAIT_S)["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert pair.here.ended(task["id"])["state"] == "canceled"


def test_a_webhook_that_was_set_at_one_release_is_told_of_what_happens_at_the_other(pair: Pair) -> None:
    with hook() as told:
        pair.here.register(pair.name)
        task = pair.here.send("by hand", context={"target_agent": pair.name})
        config = {"taskId": task["id"], "id": "c-1", "url": told.url}
        assert "result" in pair.here.rpc("CreateTaskPushNotificationConfig", config)
        pair.there.post(f"/api/handoffs/{task['id']}/accept", agent_id=pair.name)
        pair.there.post(f"/api/handoffs/{task['id']}/complete", agent_id=pair.name, result="fine")
        told.until("COMPLETED")


def test_an_agent_with_a_limit_does_the_tasks_of_both_releases(pair: Pair) -> None:
    agent = Agent(completes)
    with running(agent) as url, ThreadPoolExecutor(6) as pool:
        pair.here.register(pair.name, card=card(url), max_concurrency=1)
        eventually(lambda: pair.there.http.get(f"/api/agents/{pair.name}").is_success)

        def send(number: int) -> Any:
            broker = pair.here if number % 2 else pair.there
            return broker.send(f"task {number}", wait=True, context={"target_agent": pair.name})

        done = list(pool.map(send, range(12)))
    assert {task["status"]["state"] for task in done} == {"TASK_STATE_COMPLETED"}
    assert sorted(sends(agent)) == sorted(f"task {number}" for number in range(12))


# --- one of them is gone -------------------------------------------------------------------------


@pytest.mark.parametrize("killed", ["previous", "this"])
def test_a_task_whose_broker_was_killed_is_brought_to_its_end_by_the_other_release(
    common: Common, killed: str
) -> None:
    door = Door()
    agent = Agent(works_behind(door))
    old, new = common.start(old=True), common.start()
    dying, other = (old, new) if killed == "previous" else (new, old)
    with running(agent) as url:
        dying.register("worker", card=card(url, streaming=True))
        task = dying.send("survive", context={"target_agent": "worker"})
        assert door.came.wait(WAIT_S)
        dying.until(task["id"], "acknowledged")
        dying.kill()
        door.open()
        assert other.ended(task["id"])["state"] == "completed"
        assert other.log(task["id"]).count("handoff_completed") == 1
    assert sends(agent) == ["survive"]


@pytest.mark.parametrize("killed", ["previous", "this"])
def test_each_span_that_was_committed_is_sent_by_the_other_release(common: Common, killed: str) -> None:
    agent = Agent(completes)
    with OtlpReceiver() as receiver, running(agent) as url:
        # Spans of the one that is killed would leave long after it is gone.
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "60000"}
        old, new = common.start(old=True, env=env), common.start(env=env)
        dying, other = (old, new) if killed == "previous" else (new, old)
        dying.register("worker", card=card(url))
        task = dying.send("traced", wait=True, context={"target_agent": "worker"})
        trace_id = dying.handoff(task["id"])["trace_id"]
        assert receiver.trace(trace_id) == []
        dying.kill()
        eventually(lambda: len(receiver.trace(trace_id)) >= 3, within_s=30)
        spans = receiver.trace(trace_id)
        assert len({span.span_id for span in spans}) == len(spans)
        receiver.one_root(trace_id)
        assert other.send("after", wait=True, context={"target_agent": "worker"})


@pytest.mark.parametrize("killed", ["previous", "this"])
def test_a_kill_under_load_loses_nothing_at_the_other_release(common: Common, killed: str) -> None:
    old, new = common.start(old=True, **LOAD), common.start(**LOAD)
    dying, other = (old, new) if killed == "previous" else (new, old)
    seed = random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed}")
    staff = Staff(common.stack)
    staff.register(other)
    load = Load(other, dying, seed=seed)
    with load.under_way():
        _until_taken(load, 20)
        dying.kill()
        _until_taken(load, len(load.tasks) + 20)
    _settled(load, staff, other)


# --- one after the other -------------------------------------------------------------------------


def test_brokers_that_are_replaced_by_this_release_under_load_lose_nothing(common: Common) -> None:
    """Two of the previous release; then one of each; then two of this one, on a database that all of them had."""
    seed = random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed}")
    brokers = [common.start(old=True, **LOAD) for _ in range(2)]
    staff = Staff(common.stack)
    staff.register(brokers[0])
    load = Load(*brokers, seed=seed)
    with load.under_way():
        for number, leaving in enumerate(brokers):
            _until_taken(load, len(load.tasks) + 20)
            assert leaving.stop() == 0
            brokers[number] = common.start(port=leaving.port, **LOAD)
        _until_taken(load, len(load.tasks) + 20)
    logs = _settled(load, staff, brokers[1])
    _all_completed(logs)
    wanted = {handoff_id: [event["id"] for event in log] for handoff_id, log in logs.items()}
    heard = events(common.nats.url, least=sum(map(len, wanted.values())))
    told: dict[str, list[str]] = {}
    for each in heard:
        told.setdefault(each.event["subject"], []).append(each.id)
    assert told == wanted


def test_a_database_in_use_is_brought_up_to_date_by_a_broker_that_starts(common: Common) -> None:
    """The previous release goes on with the newer schema for as long as it runs."""
    seed = random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed}")
    old = common.start(old=True, **LOAD)
    staff = Staff(common.stack)
    staff.register(old)
    load = Load(old, seed=seed)
    with load.under_way():
        _until_taken(load, 20)
        new = common.start(**LOAD)
        _until_taken(load, len(load.tasks) + 20)
    _all_completed(_settled(load, staff, new))


def _until_taken(load: Load, count: int) -> None:
    eventually(lambda: len(load.tasks) >= count or load.faults, within_s=60)


def _settled(load: Load, staff: Staff, b: Served) -> dict[str, list[dict[str, Any]]]:
    """Hold what was told against what was done, once all has ended. The logs."""
    handoffs = load.settled()
    print(f"{len(load.tasks)} tasks, {Counter(h['state'] for h in handoffs)}")
    logs = {h["handoff_id"]: b.events(h["handoff_id"]) for h in handoffs}
    staff.lost_and_repeated_nothing(load, handoffs, logs)
    return logs


def _all_completed(logs: dict[str, list[dict[str, Any]]]) -> None:
    """Whoever ends in order has finished, or given back, what it had."""
    for log in logs.values():
        assert "handoff_completed" in [kind_of(event) for event in log]
