"""Agents as programs that die: push agents, plain and speaking the extension, and pull agents of both kinds.

Each writes into a diary what it did before it says so, and goes on after a start with what it had begun.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.support.agents import Agent, Answer, Call, Script, card, said
from tests.support.running import kept_port
from tests.support.served import FORKS, Served
from tests.support.sockets import socket_of

WORK_S = 0.05
WORDS = [f"{n} " for n in range(6)]


class Diary:
    """Lines of JSON in a file that outlives its agent. What a process has written, its death does not undo."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self.entries = read_diary(path)
        self._begun = {entry["run"] for entry in self.entries if "run" in entry}

    def note(self, **entry: Any) -> None:
        self.entries.append(entry)
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def does(self, errand: str, run: str = "") -> None:
        """The effect. With the name of a ``run`` it is the only one under that name."""
        if not run or run not in self._begun:
            self._begun.add(run)
            self.note(errand=errand, run=run, life=os.getpid())

    def keep(self, task: dict[str, Any]) -> dict[str, Any]:
        """A task as it is now, for who asks after the next start."""
        self.note(task=task)
        return task

    def kept(self) -> dict[str, dict[str, Any]]:
        return {entry["task"]["id"]: entry["task"] for entry in self.entries if "task" in entry}


def read_diary(path: Path) -> list[dict[str, Any]]:
    """What was written so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- agents that are called ----------------------------------------------------------------------


def plain(diary: Diary) -> Script:
    """Knows nothing of us: what reaches it twice it does twice."""

    async def script(agent: Agent, call: Call) -> Answer:
        diary.does(call.text)
        await asyncio.sleep(WORK_S)
        return {"task": diary.keep(agent.task("COMPLETED", "done", task_id=_task_id()))}

    return script


def worker(diary: Diary) -> Script:
    """Says that it works, and has to be asked."""

    async def script(agent: Agent, call: Call) -> Answer:
        diary.does(call.text)
        task = diary.keep(agent.task("WORKING", task_id=_task_id()))
        asyncio.get_running_loop().call_later(WORK_S * 4, finish, agent, diary, task)
        return {"task": dict(task)}

    return script


def talker(diary: Diary) -> Script:
    """Streams its words."""

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "SubscribeToTask":
            known = agent.tasks.get(call.params["id"])
            return {"task": known} if known else {"error": {"code": -32001, "message": "no such task"}}
        diary.does(call.text)

        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING", task_id=_task_id())
            yield {"task": dict(diary.keep(task))}
            parts: list[dict[str, str]] = []
            task["artifacts"] = [{"artifactId": "text", "parts": parts}]
            for number, word in enumerate(WORDS):
                await asyncio.sleep(WORK_S / 2)
                parts.append({"text": word})
                yield agent.artifact(task, "text", word, append=number > 0, last=number == len(WORDS) - 1)
            over = agent.status(task, "COMPLETED", "done")
            diary.keep(task)
            yield over

        return events()

    return script


def polite(diary: Diary) -> Script:
    """Answers offers, and runs a task once for each offer id, over its own deaths."""
    runs: dict[str, asyncio.Task[dict[str, Any]]] = {}

    async def run(agent: Agent, errand: str, offer_id: str) -> dict[str, Any]:
        diary.does(errand, offer_id)
        await asyncio.sleep(WORK_S)
        return diary.keep(agent.task("COMPLETED", "done", task_id=f"r-{offer_id}"))

    async def script(agent: Agent, call: Call) -> Answer:
        if "offer" in call.ours:
            return {"message": said("ready", ready={"offer_id": call.ours["offer"]["offer_id"]})}
        if "rescinded" in call.ours:
            return {"message": said("very well")}
        offer_id = call.ours["offer_id"]
        if offer_id not in runs:
            runs[offer_id] = asyncio.create_task(run(agent, call.text, offer_id))
        return {"task": await asyncio.shield(runs[offer_id])}

    return script


def _task_id() -> str:
    return f"r-{uuid.uuid4().hex}"


def finish(agent: Agent, diary: Diary, task: dict[str, Any]) -> None:
    """Bring a task to its end, as after a start."""
    if "artifacts" in task:
        task["artifacts"] = [{"artifactId": "text", "parts": [{"text": word} for word in WORDS]}]
    agent.status(task, "COMPLETED", "done")
    diary.keep(task)


SCRIPTS: dict[str, Callable[[Diary], Script]] = {
    "plain": plain,
    "spare": plain,
    "worker": worker,
    "talker": talker,
    "polite": polite,
}


def be_called(name: str, port: int, diary_path: Path, urls: list[str]) -> None:
    """The process of an agent that is called."""
    del urls
    diary = Diary(diary_path)
    does = SCRIPTS[name](diary)

    async def script(agent: Agent, call: Call) -> Answer:
        if call.method == "CancelTask":
            return {"error": {"code": -32002, "message": "it is under way"}}
        return await does(agent, call)

    async def run() -> None:
        agent = Agent(script, tasks=diary.kept())
        for task in agent.tasks.values():
            if task["status"]["state"] == "TASK_STATE_WORKING":
                if name == "talker":
                    task["artifacts"] = []
                finish(agent, diary, task)
        config = uvicorn.Config(
            agent, host="127.0.0.1", port=port, lifespan="off", log_config=None, http="httptools"
        )
        await uvicorn.Server(config).serve()

    asyncio.run(run())


# --- agents that fetch their work ----------------------------------------------------------------


#: What ends a socket: it broke, it was refused, nothing came, or what was said was refused.
_BROKEN = (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, AssertionError)


class Fetcher:
    """An agent that has no address. Everything that it knows of its work is in its diary and at the brokers."""

    def __init__(self, name: str, urls: list[str], diary: Diary) -> None:
        self.name = name
        self.diary = diary
        self._chance = random.Random(os.getpid())
        self._urls = urls
        self._http = httpx.Client(timeout=8, trust_env=False)
        self._pause = threading.Event()

    def any_url(self) -> str:
        return self._chance.choice(self._urls)

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask brokers until one answers."""
        while True:
            with suppress(httpx.TransportError):
                answer = self._http.request(method, self.any_url() + path, **more)
                if answer.status_code != 503:
                    return answer
            self._pause.wait(0.1)

    def register(self) -> None:
        said_so = {"agent_id": self.name, "platform": "external", "lease_s": 60}
        self.call("POST", "/api/agents", json=said_so).raise_for_status()

    def resume(self) -> None:
        """Do what this agent has accepted and not finished."""
        query = {"agent": self.name, "state": "acknowledged"}
        for handoff in self.call("GET", "/api/handoffs", params=query).json()["handoffs"]:
            self.do(handoff["handoff_id"])

    def accept(self, handoff_id: str) -> None:
        path = f"/api/handoffs/{handoff_id}/accept"
        if self.call("POST", path, json={"agent_id": self.name}).is_success:
            self.do(handoff_id)

    def do(self, handoff_id: str) -> None:
        """Once, whatever happened to this process meanwhile."""
        self.diary.does(handoff_id, handoff_id)
        self._pause.wait(WORK_S)
        self.call(
            "POST", f"/api/handoffs/{handoff_id}/complete", json={"agent_id": self.name, "result": "done"}
        )

    def poll(self) -> None:
        """Wait for work at whichever broker."""
        query: dict[str, Any] = {"agent": self.name, "timeout": 3}
        while True:
            answer = self.call("GET", "/api/handoffs/watch", params=query)
            if answer.status_code == 200:
                self.accept(answer.json()["handoff_id"])
            else:
                self.resume()

    def listen(self) -> None:
        """Hold a socket to whichever broker, and another when it breaks."""
        while True:
            with suppress(*_BROKEN), socket_of(self.any_url(), self.name) as socket:
                self.resume()
                while True:
                    handoff_id = socket.next("offer", timeout=5)["handoff_id"]
                    socket.do("accept", handoff_id=handoff_id)
                    self.diary.does(handoff_id, handoff_id)
                    self._pause.wait(WORK_S)
                    socket.do("complete", handoff_id=handoff_id, result="done")
            self._pause.wait(0.1)


def fetch(name: str, port: int, diary_path: Path, urls: list[str]) -> None:
    """The process of an agent that fetches its work."""
    del port
    fetcher = Fetcher(name, urls, Diary(diary_path))
    fetcher.register()
    fetcher.resume()
    (fetcher.listen if name == "socket" else fetcher.poll)()


# --- as the campaign sees them -------------------------------------------------------------------

NAMES = (*SCRIPTS, "puller", "socket")


class Staffer:
    """One agent, to be killed and started."""

    def __init__(self, name: str, folder: Path, urls: list[str]) -> None:
        self.name = name
        self.diary = folder / f"{name}.jsonl"
        self.diary.touch()
        self._urls = urls
        self._port = kept_port() if name in SCRIPTS else 0
        self._process: BaseProcess | None = None

    def register(self, b: Served) -> None:
        """As whoever sets it up does, once."""
        if self._port:
            url = f"http://127.0.0.1:{self._port}"
            b.register(
                self.name, card=card(url, streaming=self.name == "talker", speaks=self.name == "polite")
            )
        else:
            b.register(self.name, platform="external", lease_s=60)

    def start(self) -> None:
        does = be_called if self._port else fetch
        arguments = (self.name, self._port, self.diary, self._urls)
        self._process = FORKS.Process(target=does, args=arguments, daemon=True)
        self._process.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join(10)
            self._process = None

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)
