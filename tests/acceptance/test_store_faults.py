"""What an operator and a caller see when the store fails under a running broker process, and how it comes back."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, card, completes
from tests.support.running import kept_port, running, send_params
from tests.support.served import Served, served
from tests.support.wire import eventually


@contextmanager
def no_room(b: Served) -> Generator[None]:
    """The process may write no byte more into any file, as on a disk that is full."""
    resource.prlimit(b.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(b.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def locked(b: Served) -> Generator[None]:
    """Another program writes to the file, and does not end."""
    shell = sqlite3.connect(b.folder / "broker.db", isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        shell.execute("ROLLBACK")
        shell.close()


@pytest.mark.parametrize(("trouble", "words"), [(no_room, ""), (locked, "is locked by another program")])
def test_a_store_that_cannot_write_is_told_to_everybody_and_goes_on_without_a_restart(
    tmp_path: Path, trouble: Any, words: str
) -> None:
    agent = Agent(completes)
    with running(agent) as url, served(tmp_path, port=kept_port()) as b:
        b.register("worker", card=card(url))
        before = b.send("before", wait=True, context={"target_agent": "worker"})
        with trouble(b):
            params = send_params(
                "lost?", context={"target_agent": "worker"}, message={"messageId": "lost-or-not"}
            )
            refused = b.rpc("SendMessage", params)
            assert refused["error"]["data"][0]["reason"] == "UNAVAILABLE"
            body = {"source_agent": "me", "task": "now", "target_agent": "worker"}
            over_rest = b.http.post("/api/handoffs", json=body)
            assert over_rest.status_code == 503
            assert over_rest.headers["retry-after"]
            for secret in (str(tmp_path), "sql", "database"):
                assert secret not in over_rest.text.lower() + str(refused).lower()
            probe = b.http.get("/readyz")
            assert (probe.status_code, probe.text) == (503, "the store does not answer\n")
            assert b.http.get("/healthz").status_code == 200
            # What was stored can be read.
            assert b.task(before["id"]) == before
        eventually(lambda: b.http.get("/readyz").status_code == 200)
        again = b.rpc("SendMessage", params)
        assert "result" in again, (again, b.words[-3000:])
        again = again["result"]["task"]
        assert again["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [call.text for call in agent.calls] == ["before", "lost?"]
        assert words in b.words
        assert "Traceback" not in b.words


def test_a_damaged_file_ends_the_start_with_one_line_and_a_restored_one_is_taken(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, served(tmp_path, port=kept_port()) as b:
        b.register("worker", card=card(url))
        task = b.send("before", wait=True, context={"target_agent": "worker"})
        b.stop()
        file = tmp_path / "broker.db"
        good = file.read_bytes()
        file.write_bytes(b"no database " * 1_000)
        with pytest.raises(AssertionError):
            b.start()
        b.kill()
        (line,) = [line for line in b.words.splitlines() if line.startswith("a2a-handoff: ")]
        assert f"The store {file}" in line
        assert "Traceback" not in b.words
        file.write_bytes(good)
        b.start()
        assert b.task(task["id"]) == task
