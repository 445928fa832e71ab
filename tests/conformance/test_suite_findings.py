"""What compatibility kits and other makers' programs once found wrong here, each as a test of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, Answer, Call, card
from tests.support.running import broker, running


@pytest.mark.parametrize("again", [False, True], ids=["it completes", "it asks the same again"])
def test_a_stream_may_begin_with_the_task_as_it_stood_before_the_reply(
    tmp_path: Path, *, again: bool
) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        known = call.message.get("taskId", "")

        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.tasks[known] if known else agent.task("WORKING")
            yield {"task": dict(task)}
            if not known:
                yield agent.status(task, "INPUT_REQUIRED", "which one?")
            elif not again:
                yield agent.status(task, "WORKING")
                yield agent.status(task, "COMPLETED", f"thanks for {call.text}")

        return events()

    with running(Agent(script)) as url, broker(tmp_path) as b:
        b.register("worker", card=card(url, streaming=True))
        asked = b.send("buy", context={"target_agent": "worker"})
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        told = b.send("the red one", message={"taskId": asked["id"]})
        assert told["status"]["state"] == ("TASK_STATE_INPUT_REQUIRED" if again else "TASK_STATE_COMPLETED")
        assert told["status"]["message"]["parts"][0]["text"] == (
            "which one?" if again else "thanks for the red one"
        )
