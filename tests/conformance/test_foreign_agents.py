"""Agents of other makers behind a running broker: it finds their card, hands them tasks, and tells its callers.

Each agent is a script of ``foreign`` that runs in an environment of its own (``tests/support/foreign.py``).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import foreign
from tests.support.hooks import hook
from tests.support.running import send_params, sse_data
from tests.support.served import Served, served
from tests.support.wire import eventually


@dataclass(frozen=True)
class Maker:
    """What is known of an agent: how it begins what it says, whether it stops when asked to, and where its card is."""

    kit: str
    says: str
    stops: bool = True
    card: str = "agent-card.json"

    def __str__(self) -> str:
        return self.kit


MAKERS = (
    Maker("google_adk", "adk heard "),
    Maker("strands", "strands heard "),
    Maker("agent_framework", "framework heard "),
    # Its timestamps have no zone, and what it runs goes on when it is asked to stop.
    Maker("pydantic_ai", "pydantic heard ", stops=False),
    Maker("first_generation", "first heard ", stops=False, card="agent.json"),
)


@contextmanager
def hired(folder: Path, maker: Maker) -> Generator[Served]:
    """A broker process, and the agent behind it as ``parrot``, known by the card that it serves."""
    with (
        foreign.serving(maker.kit, f"{maker.kit}_agent.py", folder) as url,
        served(folder, forked=True, cancel_wait=2, webhook_retry_delay=0.1) as broker,
    ):
        broker.register("parrot", card_url=f"{url}/.well-known/{maker.card}")
        yield broker


def text_of(task: Any) -> str:
    """What a task came to: its artifacts, or else its last word."""
    holders = task.get("artifacts") or [task["status"].get("message", {})]
    return "".join(part.get("text", "") for holder in holders for part in holder.get("parts", []))


@pytest.mark.parametrize("maker", MAKERS, ids=str)
def test_an_agent_of_another_maker_does_its_task_and_its_callers_hear_of_it(
    tmp_path: Path, maker: Maker
) -> None:
    context = {"target_agent": "parrot"}
    with hired(tmp_path, maker) as broker, hook() as told:
        done = broker.send("hello", wait=True, context=context)
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(done) == f"{maker.says}hello"
        assert broker.task(done["id"])["status"] == done["status"]

        push = {"taskPushNotificationConfig": {"url": told.url, "token": "secret"}}
        params = send_params("stream", context=context, configuration=push)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        with broker.http.stream("POST", "/", json=body, headers={"A2A-Version": "1.0"}) as answer:
            lines = list(sse_data(answer.iter_lines()))
        assert f"{maker.says}stream" in "".join(lines) or all(
            word in "".join(lines) for word in (maker.says, "stream")
        )
        assert "TASK_STATE_COMPLETED" in lines[-1]
        last = told.until("COMPLETED")[-1]
        assert last.headers["x-a2a-notification-token"] == "secret"


@pytest.mark.parametrize("maker", MAKERS, ids=str)
def test_a_task_of_an_agent_of_another_maker_can_be_canceled(tmp_path: Path, maker: Maker) -> None:
    with hired(tmp_path, maker) as broker:
        task = broker.send("wait", context={"target_agent": "parrot"})
        eventually(lambda: "handoff_acknowledged" in broker.log(task["id"]), within_s=20)
        canceled = broker.rpc("CancelTask", {"id": task["id"]})["result"]
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        ended = broker.ended(task["id"])
        assert ended["state"] == "canceled"
        assert ("cancel_unconfirmed" in str(ended)) != maker.stops
