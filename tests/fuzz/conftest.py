"""One broker for all fuzz tests, watched: what it answers, what it keeps, what it logs.

The broker listens as ``serve`` does, on the same protocol with the same limits.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.support.agents import Agent, card, completes
from tests.support.running import WAIT_S, Broker, broker, handoff_context, running, sse_data

settings.register_profile(
    "fuzz",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "30")),
    suppress_health_check=list(HealthCheck),
)

#: What nobody outside may read: stacks, SQL, paths, names of classes and libraries.
_INTERNAL = re.compile(
    r"Traceback|\bFile \"|\.py\b|site-packages|sqlite|\bSELECT\b|\bINSERT\b|UNIQUE constraint|msgspec|pydantic"
    r"|starlette|uvicorn|httptools|\b[A-Z]\w*(Error|Exception)\b(?<!JSONParseError)|object has no attribute"
    r"|NoneType|<class|__\w+__|"
    # Where this is, where it writes, whose it is.
    + "|".join(
        re.escape(f"{place}/")
        for place in (Path.cwd(), tempfile.gettempdir(), Path.home())
        if str(place) != "/"
    ),
)
#: Names of 0.3 for errors, which its clients over HTTP expect in ``type``.
_NAME_03 = re.compile(r'"type":"\w+Error"')


class Log(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(self.format(record))


@dataclass
class Watched:
    """A broker under attack, and what must hold of it whatever is sent."""

    broker: Broker
    task_id: str
    alias: str
    log: Log
    kept: list[str] = field(default_factory=list[str])

    @property
    def http(self) -> httpx.Client:
        return self.broker.http

    def state(self) -> Any:
        """What a refused request must not change: the handoffs, and what is registered.

        What requests before it began has ended by then.
        """
        if self.broker.app.service.dispatcher.running:
            self.broker.loop.run(self._rests())
        page = self.http.get("/api/handoffs", params={"limit": 3}).json()
        agents = self.http.get("/api/agents").json()["agents"]
        names = ("agent_id", "platform", "workspace", "capabilities", "role", "card_url", "registered_at")
        shown = [{name: agent.get(name) for name in names} for agent in agents]
        return page["total"], [h["handoff_id"] for h in page["handoffs"]], shown

    async def _rests(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.broker.app.service.dispatcher.running:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)

    def is_well(self) -> None:
        """It answers a good request, and has logged no fault of its own."""
        answer = self.http.get(f"/tasks/{self.task_id}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"]["state"] == "TASK_STATE_COMPLETED"
        assert self.log.errors == []

    def works(self) -> None:
        """It takes a good message."""
        task = self.broker.send(context={"target_agent": "worker"})
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


def clean(text: str) -> str:
    """The text, after a check that it tells nothing of the inside."""
    found = _INTERNAL.search(_NAME_03.sub("", text))
    assert found is None, (found, text[:2_000])
    return text


def json_of(answer: httpx.Response) -> Any:
    """The JSON of an answer; that there is one is checked."""
    clean(answer.text)
    return json.loads(answer.content, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def events_of(answer: httpx.Response) -> list[Any]:
    """The events of a stream that has ended."""
    clean(answer.text)
    return [json.loads(data, parse_constant=_no_constant) for data in sse_data(iter(answer.text.split("\n")))]


@contextmanager
def watching(folder: Path, **chosen: Any) -> Generator[Watched]:
    """A broker with one agent that completes, a task of 1.0 and one of the first generation."""
    log = Log()
    logging.getLogger().addHandler(log)
    try:
        # Nobody listens where the webhooks point, and they are not tried again during a test.
        settings: dict[str, Any] = {
            "wait_for_agent": 0.0,
            "webhooks": 100,
            "webhook_retry_delay": 3600.0,
            **chosen,
        }
        with running(Agent(completes)) as url, broker(folder, **settings) as made:
            made.register("worker", card=card(url, capabilities={"canWork": True}))
            task = made.send(context={"target_agent": "worker"})
            params = {
                "id": "mine-1",
                "message": {"role": "user", "parts": [{"type": "text", "text": "hello"}]},
                "metadata": {"handoff_context": handoff_context(target_agent="worker")},
            }
            first = made.http.post("/tasks/send", json=params).json()
            assert first["status"]["state"] == "completed", first
            yield Watched(made, task["id"], "mine-1", log)
    finally:
        logging.getLogger().removeHandler(log)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watching(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


@pytest.fixture
def watched(shared: Watched) -> Generator[Watched]:
    """The broker; after the test it works, and has logged nothing as an error."""
    shared.log.errors.clear()
    yield shared
    shared.is_well()
    shared.works()
