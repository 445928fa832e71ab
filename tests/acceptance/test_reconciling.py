"""A target whose broker was killed in the middle is asked how it fares, and never sent the task again.

Real servers of each generation: a2a-sdk for 1.0 and 0.3, the sample server's behaviour for the first one.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.first_generation import CARD, FirstGenerationAgent, first_generation_agent
from tests.support.running import Loop
from tests.support.sdk_agent import SdkAgent, sdk_agent
from tests.support.served import Served, served
from tests.support.wire import eventually

_FACES = [
    ("1.0", "JSONRPC", True),
    ("1.0", "JSONRPC", False),
    ("1.0", "HTTP+JSON", True),
    ("0.3", "JSONRPC", True),
    ("0.3", "JSONRPC", False),
    ("0.3", "HTTP+JSON", True),
    ("0.1", "JSONRPC", True),
]


@contextmanager
def _first() -> Generator[FirstGenerationAgent]:
    loop = Loop()
    manager = first_generation_agent()
    try:
        yield loop.run(manager.__aenter__())
    finally:
        loop.run(manager.__aexit__(None, None, None))
        loop.close()


class _Worker:
    """One of these servers: it can be let go on, and counts how often it was given work."""

    def __init__(self, agent: SdkAgent | FirstGenerationAgent) -> None:
        self._agent = agent

    def release(self) -> None:
        if isinstance(self._agent, SdkAgent):
            self._agent.release()
        else:
            self._agent.release.set()  # its loop polls nothing else: the next request wakes it

    @property
    def calls(self) -> int:
        return len(self._agent.headers if isinstance(self._agent, SdkAgent) else self._agent.requests)

    @property
    def runs(self) -> int:
        if isinstance(self._agent, SdkAgent):
            return self._agent.executor.runs
        return sum(request["method"].startswith("tasks/send") for request in self._agent.requests)


@contextmanager
def _worker(b: Served, version: str, binding: str, streams: bool) -> Generator[_Worker]:
    if version == "0.1":
        with _first() as first:
            b.register("worker", card=CARD | {"url": first.url})
            yield _Worker(first)
        return
    with sdk_agent() as agent:
        card: dict[str, Any] = {
            "name": "real",
            "description": "A real server.",
            "version": "1",
            "supportedInterfaces": [
                {
                    "url": f"{agent.url}/rpc" if binding == "JSONRPC" else agent.url,
                    "protocolBinding": binding,
                    "protocolVersion": version,
                }
            ],
            "capabilities": {"streaming": streams},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
        }
        b.register("worker", card=card)
        yield _Worker(agent)


@pytest.mark.parametrize(("version", "binding", "streams"), _FACES)
@pytest.mark.parametrize("goes_on", ["while nobody listens", "when it was asked"])
def test_a_kill_in_the_middle_of_a_task_loses_and_doubles_nothing(
    tmp_path: Path, version: str, binding: str, streams: bool, goes_on: str
) -> None:
    with (
        served(tmp_path, forked=True, reconcile_every=0.5) as b,
        _worker(b, version, binding, streams) as worker,
    ):
        task_id = b.send("half", context={"target_agent": "worker"})["id"]
        b.logged(task_id, "output_recorded")
        b.kill()
        before = worker.calls
        if goes_on == "while nobody listens":
            worker.release()
        b.start()
        if goes_on == "when it was asked":
            eventually(lambda: worker.calls > before)
            worker.release()
        assert b.ended(task_id)["state"] == "completed"
        made = b.task(task_id)["artifacts"]
        texts = ["".join(part.get("text", "") for part in artifact["parts"]) for artifact in made]
        assert texts[0] == "one two"
        assert len({artifact["artifactId"] for artifact in made}) == len(made) == 2
        eventually(lambda: worker.runs == 1)
