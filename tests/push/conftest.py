"""A broker with short waits for its webhooks, and what the tests ask of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, Script, card
from tests.support.hooks import Hook, hook
from tests.support.hooks import Script as HookScript
from tests.support.puppet import Puppet, puppet
from tests.support.running import Broker, broker, running
from tests.support.wire import eventually

RETRY: dict[str, Any] = {"webhook_retry_delay": 0.05, "webhook_retry_max": 0.2, "webhook_timeout": 5}


class Office:
    """A broker, the agents behind it, and the webhooks of its callers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._names = 0
        self.broker: Broker

    def open(self, **settings: Any) -> Broker:
        """Start the broker; the settings go over those of the tests."""
        self.broker = self._stack.enter_context(broker(self._folder, **(RETRY | settings)))
        return self.broker

    def hook(self, script: HookScript | None = None) -> Hook:
        """A receiver of its own."""
        return self._stack.enter_context(hook(script) if script else hook())

    def hire(self, script: Script, *, streaming: bool = True) -> str:
        """The name of a new scripted agent."""
        url = self._stack.enter_context(running(Agent(script)))
        self._names += 1
        self.broker.register(f"agent-{self._names}", card=card(url, streaming=streaming))
        return f"agent-{self._names}"

    def puppet(self) -> tuple[str, Puppet]:
        """A new puppet, and its name."""
        agent = self._stack.enter_context(puppet())
        self._names += 1
        self.broker.register(f"agent-{self._names}", card=card(agent.url, streaming=True))
        return f"agent-{self._names}", agent

    def send(self, agent: str, config: Any = None, *, wait: bool = False, **more: Any) -> Any:
        """A task for an agent, with a push configuration in the message."""
        configuration = {} if config is None else {"taskPushNotificationConfig": config}
        return self.broker.send(
            wait=wait, context={"target_agent": agent}, configuration=configuration, **more
        )

    def add(self, task_id: str, **config: Any) -> Any:
        """Set a push configuration; the answer's result."""
        answer = self.broker.rpc("CreateTaskPushNotificationConfig", {"taskId": task_id, **config})
        assert "result" in answer, answer
        return answer["result"]

    def webhooks(self, task_id: str) -> list[Any]:
        """How the webhooks of a task are doing."""
        found: list[Any] = self.broker.http.get(f"/api/handoffs/{task_id}/webhooks").json()["webhooks"]
        return found

    def until(self, task_id: str, wanted: Callable[[Any], Any]) -> Any:
        """The webhook of a task that has one, once it is as wanted."""

        def found() -> Any:
            (only,) = self.webhooks(task_id)
            return only if wanted(only) else None

        return eventually(found)

    def work(self, task_id: str) -> list[str]:
        """The work that is left for a task, by kind."""
        store = self.broker.app.store
        works = self.broker.loop.run(store.claim_work(now=2e9, limit=100))
        return [work.key.kind.value for work in works if work.key.handoff_id == task_id]

    def rests(self, task_id: str) -> None:
        """Wait until a task has no work left."""
        eventually(lambda: not self.work(task_id))


@pytest.fixture
def office(tmp_path: Path) -> Generator[Office]:
    with ExitStack() as stack:
        made = Office(tmp_path, stack)
        made.open()
        yield made


@pytest.fixture
def closed_office(tmp_path: Path) -> Iterator[Office]:
    """An office whose broker the test opens, with settings of its own."""
    with ExitStack() as stack:
        yield Office(tmp_path, stack)
