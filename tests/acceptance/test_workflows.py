"""The worked examples of agents that cannot listen, with every side a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.served import Served, served
from tests.support.wire import eventually

WORKERS = Path(__file__).with_name("workers.py")
WAIT_S = 30.0

CURL = """
curl -X POST {url}/ai-api/infrastructure/handoffs \\
  -H "Content-Type: application/json" \\
  -d '{{
    "fromAgent": "cowork",
    "toAgentType": "cursor",
    "type": "implementation",
    "summary": "Review the CodeDnaService",
    "tasks": [{{"description": "Check error handling"}}],
    "workspace": "editor2"
  }}'
"""


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(tmp_path_factory.mktemp("workflows")) as broker:
        yield broker


class Worker:
    """A process, and what it told so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait(WAIT_S)}"
        return json.loads(line)


@contextmanager
def worker(role: str, url: str) -> Generator[Worker]:
    """One of the programs; it must end well."""
    process = subprocess.Popen(
        (sys.executable, str(WORKERS), role, url), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Worker(process)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()


def test_the_assistant_asks_the_editor_for_a_review(b: Served) -> None:
    with worker("reviewing_editor", b.url) as editor:
        assert editor.next() == {"did": "registered"}
        with worker("asking_assistant", b.url) as assistant:
            assert assistant.next() == {"did": "asked", "status": "pending", "priority": "high"}
            assert editor.next() == {
                "did": "accepted",
                "task": "Review the new CodeDnaService implementation",
                "files": ["apis/backend-ai-api/src/app/learning/services/code-dna.service.ts"],
                "focus": ["error handling", "performance"],
            }
            comments = ["error handling: fine", "performance: fine"]
            assert assistant.next() == {"did": "read", "comments": comments}


def test_the_editor_delegates_browser_tests_to_the_assistant(b: Served) -> None:
    with worker("testing_assistant", b.url) as assistant:
        assert assistant.next() == {"did": "registered"}
        with worker("delegating_editor", b.url) as editor:
            assert editor.next() == {"did": "delegated", "state": "offered"}
            assert assistant.next() == {
                "did": "found",
                "task": "Run E2E tests for groundbreaking features",
                "file": "groundbreaking-features.test.ts",
            }
            assert editor.next() == {
                "did": "read",
                "same": True,
                "result": "groundbreaking-features.test.ts: 12 passed",
            }


def test_editor_and_assistant_work_over_sockets_through_a_cut(b: Served) -> None:
    """Nobody polls. The event may come before the answer of the call that it follows from."""
    with worker("live_editor", b.url) as editor:
        assert editor.next() == {"did": "registered"}
        with worker("live_assistant", b.url) as assistant:
            told = [assistant.next() for _ in range(3)]
            assert {"did": "asked", "status": "pending"} in told
            created = {"targetAgent": "cursor", "task": "Review a.py"}
            heard = {"did": "heard", "mine": True}
            assert heard | {"event": "handoff:created", "data": created} in told
            assert told[-1] == heard | {
                "event": "handoff:completed",
                "data": {"result": {"comments": ["fine"]}},
            }
            assert editor.next() == {"did": "accepted", "task": "Review a.py", "files": ["a.py"]}


def test_the_task_of_an_a2a_client_is_done_by_the_editor_behind_its_long_poll(b: Served) -> None:
    """Any A2A client reaches it at its face, and hears every word."""
    with worker("reviewing_editor", b.url) as editor:
        editor.next()
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Review a.py"}]}
        context = {
            "source_agent": "cli",
            "conversation_summary": "A review is wanted.",
            "user_intent": "Review a.py",
            "key_facts": {"files": ["a.py"], "focusAreas": ["names"]},
        }
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": message, "metadata": {"handoff_context": context}},
        }
        events = list(_stream(b.url + "/agents/cursor/", call))
        assert editor.next()["task"] == "Review a.py"
        b.post("/api/broadcasts", channel="general", message="that was all", source_agent="cli")
    assert "reading a.py" in json.dumps(events)
    last = events[-1]["result"]["statusUpdate"]["status"]["state"]
    assert last == "TASK_STATE_COMPLETED"
    artifacts = [e["result"]["artifactUpdate"] for e in events if "artifactUpdate" in e["result"]]
    assert [a["artifact"]["parts"] for a in artifacts] == [[{"data": {"comments": ["names: fine"]}}]]


def _stream(url: str, call: dict[str, Any]) -> Iterator[Any]:
    headers = {"A2A-Version": "1.0"}
    with httpx.stream("POST", url, json=call, headers=headers, timeout=WAIT_S, trust_env=False) as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line[5:])


def test_the_curl_example_of_older_clients_works_as_it_stands(b: Served) -> None:
    b.register("cursor", platform="cursor", workspace="editor2")
    made = json.loads(_shell(CURL.format(url=b.url)))
    assert (made["status"], made["assigned_to"], made["source_agent"]) == ("pending", "cursor", "cowork")
    old = f"{b.url}/ai-api/infrastructure/handoffs"
    pending = json.loads(_shell(f"curl '{old}/pending?target=cursor'"))["handoffs"]
    assert [h["handoff_id"] for h in pending] == [made["handoff_id"]]
    facts = pending[0]["context"]["key_facts"]
    assert facts == {"type": "implementation", "tasks": [{"description": "Check error handling"}]}
    one = f"{old}/{made['handoff_id']}"
    accepted = json.loads(_shell(f"curl -X POST {one}/accept"))
    assert accepted["status"] == "accepted"
    _shell(f"""curl -X POST {one}/complete -H "Content-Type: application/json" -d '{{"result": "fine"}}'""")
    polled = json.loads(_shell(f"curl {one}"))
    assert (polled["status"], polled["result"]) == ("completed", "fine")


def _shell(line: str) -> str:
    """A line as a person would paste it."""
    return subprocess.run(
        line.strip() + " --silent --fail-with-body --noproxy '*'",
        shell=True, check=True, capture_output=True, text=True, timeout=WAIT_S,
    ).stdout  # fmt: skip


def test_a_person_answers_over_rest(b: Served) -> None:
    b.register("anna", role="human")
    made = b.post(
        "/api/handoffs",
        targetAgent="anna",
        sourceAgent="cowork",
        task="May I delete the branch?",
        context={"branch": "old"},
    )["handoff_id"]
    watched = b.http.get("/api/handoffs/watch", params={"agent": "anna", "timeout": 10}).json()
    assert watched["handoff_id"] == made
    b.post(f"/api/handoffs/{made}/accept", agent_id="anna")
    asking = {"agent_id": "anna", "state": "input_required", "message": "Is it merged?"}
    b.post(f"/api/handoffs/{made}/progress", **asking)
    assert b.handoff(made)["state"] == "input_required"
    b.post(f"/api/handoffs/{made}/complete", agent_id="anna", result="Yes, do.")
    assert b.handoff(made)["result"] == "Yes, do."


def test_an_offer_survives_the_broker_and_the_agent_that_waits_for_it(tmp_path: Path) -> None:
    """The broker is killed twice; what was offered is there, and the work is accepted once."""
    with served(tmp_path) as b:
        b.register("cursor")
        made = b.post("/api/handoffs", targetAgent="cursor", task="x", context={})["handoff_id"]
        b.kill()
        b.start()
        offer = b.http.get("/api/handoffs/watch", params={"agent": "cursor", "timeout": 10}).json()
        assert offer["handoff_id"] == made
        b.post(f"/api/handoffs/{made}/accept", agent_id="cursor", attempt=offer["attempt"])
        b.kill()
        b.start()
        b.post(f"/api/handoffs/{made}/complete", agent_id="cursor", result="once")
        eventually(lambda: b.handoff(made)["state"] == "completed")
        assert b.log(made).count("handoff_acknowledged") == 1
