"""A store of the previous release is opened by this one, and one of a newer release by the previous one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.stores.migrations import SINCE_MARK
from tests.support import previous
from tests.support.agents import Agent, asks, card, completes
from tests.support.hooks import hook
from tests.support.postgres import postgres_server
from tests.support.running import running
from tests.support.served import ROOT, Served, served

STORES = ["sqlite", "postgres"]
NEWER = 99


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The address of a store that is not there yet, or is empty."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'broker.db'}"
        return
    server = postgres_server()
    database = server.fresh()
    yield server.url(database)
    server.drop(database)


def _next(broker: Served, store: str, root: Path = ROOT) -> contextlib.AbstractContextManager[Served]:
    """A broker in the place of one that has ended."""
    return served(broker.folder, store=store, port=broker.port, root=root, reconcile_every=0.5, work_lease=2)


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_was_under_way_in_the_previous_release_is_brought_to_its_end(
    tmp_path: Path, store: str, end: str
) -> None:
    worker, asker = Agent(completes), Agent(asks)
    with running(worker) as first, running(asker) as second, hook() as told:
        with served(tmp_path, store=store, root=previous.code()) as old:
            old.register("worker", card=card(first))
            old.register("asker", card=card(second))
            old.register("editor")
            once: dict[str, Any] = {"context": {"target_agent": "worker"}, "message": {"messageId": "once"}}
            done = old.send("done", wait=True, **once)
            asked = old.send("ask", wait=True, context={"target_agent": "asker"})
            offered = old.send("edit", context={"target_agent": "editor"})
            held = old.send("hold", context={"target_agent": "editor"})
            old.post(f"/api/handoffs/{held['id']}/accept", agent_id="editor")
            config = {"taskId": offered["id"], "id": "c-1", "url": told.url}
            assert "result" in old.rpc("CreateTaskPushNotificationConfig", config)
            shown = {task["id"]: old.task(task["id"]) for task in (done, asked, offered, held)}
            logs = {task_id: old.log(task_id) for task_id in shown}
            if end == "stopped":
                assert old.stop() == 0
            else:
                old.kill()
        with _next(old, store) as new:
            for task_id, log in logs.items():
                assert new.log(task_id)[: len(log)] == log
                assert new.task(task_id) == shown[task_id]
            assert new.send("done", wait=True, **once)["id"] == done["id"]
            message = {"taskId": asked["id"], "messageId": "m-reply"}
            answered = new.send("blue", wait=True, message=message)
            assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
            new.post(f"/api/handoffs/{held['id']}/complete", agent_id="editor", result="held on")
            new.post(f"/api/handoffs/{offered['id']}/accept", agent_id="editor")
            new.post(f"/api/handoffs/{offered['id']}/complete", agent_id="editor", result="edited")
            told.until("COMPLETED")
            for task_id in shown:
                assert new.ended(task_id)["state"] == "completed"
            fresh = new.send("fresh", wait=True, context={"target_agent": "worker"})
            assert fresh["status"]["state"] == "TASK_STATE_COMPLETED"
            assert new.stop() == 0
            assert "Traceback" not in new.words, new.words
    assert [call.text for call in asker.of("SendMessage")] == ["ask", "blue"]
    assert [call.text for call in worker.of("SendMessage")] == ["done", "fresh"]


def test_an_older_release_says_that_a_store_is_of_a_newer_one_and_what_to_do(
    tmp_path: Path, store: str
) -> None:
    with served(tmp_path, store=store) as new:
        assert new.stop() == 0
    if store.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(tmp_path / "broker.db")) as connection:
            connection.execute(f"PRAGMA user_version = {NEWER}")
            connection.execute("UPDATE marks SET position = ? WHERE name = ?", (NEWER, SINCE_MARK))
            connection.commit()
    else:
        database = store.rpartition("/")[2]
        postgres_server().sql(f"UPDATE a2a_handoff_schema SET version = {NEWER}", database=database)
        postgres_server().sql(
            "UPDATE marks SET position = $1 WHERE name = $2", NEWER, SINCE_MARK, database=database
        )
    old = Served(tmp_path, {}, {"store": store}, root=previous.code())
    try:
        with pytest.raises(
            AssertionError,
            match=rf"has schema {NEWER}, this version knows \d+: upgrade a2a-handoff, or "
            "restore the backup made before its upgrade",
        ):
            old.start()
        assert old.stop() != 0
        assert "Traceback" not in old.words
    finally:
        old.close()
