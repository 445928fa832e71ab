"""``kill -9`` of the broker while a webhook is told: nothing is skipped, nothing overtakes, the end comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.agents import Agent, card, streams
from tests.support.hooks import Answer, Told, hook
from tests.support.puppet import puppet
from tests.support.running import running
from tests.support.served import served
from tests.support.wire import eventually

STORY = ["SUBMITTED", "WORKING", "a", "b", "c", "COMPLETED"]
SETTINGS: dict[str, Any] = {"webhook_retry_delay": 0.05, "webhook_retry_max": 0.2}


def test_what_was_committed_and_not_told_before_the_kill_is_told_after_it(tmp_path: Path) -> None:
    down = True

    async def script(_: Told) -> Answer | None:
        return Answer(503) if down else None

    with (
        hook(script) as told,
        running(Agent(streams("a", "b", "c"))) as url,
        served(tmp_path, forked=True, **SETTINGS) as broker,
    ):
        broker.register("worker", card=card(url, streaming=True))
        task = broker.send(
            "go",
            wait=True,
            context={"target_agent": "worker"},
            configuration={"taskPushNotificationConfig": {"url": told.url, "token": "tok"}},
        )
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        eventually(lambda: told.refused)
        broker.kill()
        down = False
        broker.start()
        told.until()
        assert told.words == STORY
        assert {one.headers["x-a2a-notification-token"] for one in told.told} == {"tok"}
        assert told.told[0].id == told.refused[0].id


def test_a_kill_in_the_middle_repeats_at_most_what_was_on_its_way(tmp_path: Path) -> None:
    with hook() as told, puppet() as agent, served(tmp_path, forked=True, **SETTINGS) as broker:
        broker.register("worker", card=card(agent.url, streaming=True))
        configuration = {"taskPushNotificationConfig": {"id": "w", "url": told.url}}
        task = broker.send("go", context={"target_agent": "worker"}, configuration=configuration)
        turn = agent.next()
        work = agent.task("WORKING")
        turn.event({"task": work})
        turn.event(agent.artifact(work, "x", "a", last=False))
        eventually(lambda: "a" in told.words)
        broker.kill()
        turn.end()
        # The agent is asked how its task stands, and has finished it meanwhile.
        work["status"] = {"state": "TASK_STATE_COMPLETED"}
        work["artifacts"] = [{"artifactId": "x", "parts": [{"text": "a"}]}]
        broker.start()
        told.until("COMPLETED")
        words = list(dict.fromkeys(told.words))
        assert words[:3] == ["SUBMITTED", "WORKING", "a"]
        assert words[-1] == "COMPLETED"
        assert told.words.count("SUBMITTED") == 1
        by_id = {one.id: one.body for one in told.told}
        assert all(by_id[one.id] == one.body for one in told.told)
        eventually(
            lambda: (
                broker.http.get(f"/api/handoffs/{task['id']}/webhooks").json()["webhooks"][0]["state"]
                == "done"
            )
        )
