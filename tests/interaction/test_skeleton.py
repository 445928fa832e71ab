"""The straight path: send, resolve, deliver, answer."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import Agent, card, completes
from tests.support.running import broker, running


def test_a_task_reaches_the_agent_that_has_the_capability_and_its_answer_comes_back(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        b.register("editor", card=card(url, capabilities={"canEditFiles": True}))
        task = b.send("fix it", context={"requirements": {"capabilities": ["canEditFiles"]}})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"] == [{"artifactId": "answer", "parts": [{"text": "done: fix it"}]}]
    (call,) = agent.of("SendMessage")
    assert call.ours["hop_count"] == 1
    assert call.ours["handoff_chain"] == ["triage", "editor"]
    assert (
        call.headers["traceparent"].split("-")[1]
        == task["metadata"]["urn:a2a-handoff:handoff:v1"]["trace_id"]
    )
