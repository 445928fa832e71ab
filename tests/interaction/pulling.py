"""An agent that fetches its work, the same over each of the ways to fetch it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.puller import Puller, puller
from tests.support.running import WAIT_S, Broker
from tests.support.sockets import Socket, socket_of
from tests.support.tools import Tools


@dataclass(frozen=True, kw_only=True)
class Work:
    """A handoff as its agent sees it. ``attempt`` is 0 where none is shown."""

    id: str
    state: str
    attempt: int
    facts: dict[str, Any] | None
    said: str
    result: Any
    reasons: str
    """Why it ended badly, in all its words."""


class Pull(Protocol):
    """What such an agent does."""

    @property
    def cursor(self) -> str:
        """Where it stands."""
        ...

    def offered(self) -> Work:
        """The next offer, as soon as there is one."""
        ...

    def inbox(self) -> list[str]:
        """The handoffs that are offered to it, as they are listed."""
        ...

    def heard(self) -> list[str]:
        """What the workspace was told, as soon as it was told anything."""
        ...

    def act(self, verb: str, handoff_id: str, **body: Any) -> tuple[Work | None, str]:
        """The handoff afterwards, or the code of the refusal."""
        ...

    def reply(self, handoff_id: str) -> str:
        """What its caller answered, as soon as it did."""
        ...

    def say(self, message: str) -> None:
        """Tell the workspace."""
        ...

    def beat(self, status: str) -> str:
        """Give a sign of life; the status that the agent has then."""
        ...


class ByPolling:
    """Over REST, with the long poll."""

    def __init__(self, agent: Puller, cursor: str) -> None:
        self._agent = agent
        self._cursor = cursor

    @property
    def cursor(self) -> str:
        return self._cursor

    def offered(self) -> Work:
        return _work(self._watched())

    def inbox(self) -> list[str]:
        return [offer["handoff_id"] for offer in self._agent.pending()]

    def heard(self) -> list[str]:
        return [said["message"] for said in self._watched(include="broadcasts")["broadcasts"]]

    def _watched(self, **more: Any) -> dict[str, Any]:
        answer = self._agent.watch(WAIT_S, after=self._cursor, **more)
        assert answer.status_code == 200
        self._cursor = answer.json()["cursor"]
        return answer.json()

    def act(self, verb: str, handoff_id: str, **body: Any) -> tuple[Work | None, str]:
        answer = self._agent.act(verb, handoff_id, **body)
        return (_work(answer.json()), "") if answer.is_success else (None, answer.json()["code"])

    def reply(self, handoff_id: str) -> str:
        path = f"/api/handoffs/{handoff_id}/events"
        after, heard = 0, list[str]()
        while not heard:
            page = self._agent.http.get(path, params={"after": after, "timeout": WAIT_S}).json()
            assert page["events"]
            after = page["events"][-1]["seq"]
            heard = [_text(e["data"]["message"]) for e in page["events"] if "reply_received" in e["type"]]
        return heard[0]

    def say(self, message: str) -> None:
        said = {"channel": "general", "message": message, "source_agent": self._agent.name}
        assert self._agent.http.post("/api/broadcasts", json=said).status_code == 201

    def beat(self, status: str) -> str:
        path = f"/api/agents/{self._agent.name}/heartbeat"
        return self._agent.http.post(path, json={"status": status}).json()["status"]


class BySocket:
    """Over the WebSocket."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    @property
    def cursor(self) -> str:
        return self._socket.cursor

    def offered(self) -> Work:
        return _work(self._socket.next("offer"))

    def inbox(self) -> list[str]:
        raise NotImplementedError("there is no frame for it")

    def heard(self) -> list[str]:
        return [self._socket.next("broadcast")["message"]]

    def act(self, verb: str, handoff_id: str, **body: Any) -> tuple[Work | None, str]:
        answer = self._socket.ask(verb, handoff_id=handoff_id, **body)
        return (_work(answer["handoff"]), "") if answer["type"] == "ok" else (None, answer["problem"]["code"])

    def reply(self, handoff_id: str) -> str:
        told = self._socket.next("reply")
        assert told["handoff_id"] == handoff_id
        return _text(told["message"])

    def say(self, message: str) -> None:
        self._socket.do("broadcast", channel="general", message=message)

    def beat(self, status: str) -> str:
        return self._socket.do("heartbeat", status=status)["agent"]["status"]


def _work(shown: dict[str, Any]) -> Work:
    attempts = shown.get("attempts", [])
    words = [shown.get("detail", ""), *(attempt.get("detail", "") for attempt in attempts)]
    return Work(
        id=shown["handoff_id"],
        state=shown["state"],
        attempt=shown.get("attempt", 0),
        facts=(shown.get("context") or {}).get("key_facts"),
        said=_text(shown.get("status_message") or {}),
        result=shown.get("result"),
        reasons=" ".join(words),
    )


def _text(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message.get("parts", []))


_TOOLS = {"progress": "handoff_progress"} | {
    verb: f"{verb}_handoff" for verb in ("accept", "decline", "complete", "fail", "release")
}


class ByTools:
    """Over MCP."""

    cursor = ""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._watched(0)

    def offered(self) -> Work:
        return _work_given(self._watched(WAIT_S)["handoff"])

    def inbox(self) -> list[str]:
        return [offer["handoffId"] for offer in self._tools.do("check_handoffs")["inbox"]]

    def heard(self) -> list[str]:
        return [said["message"] for said in self._watched(WAIT_S)["broadcasts"]]

    def _watched(self, timeout: float) -> dict[str, Any]:
        """Watching with a time of 0 makes the agent known."""
        return self._tools.do("watch_handoffs", timeout=timeout, autoAccept=False)

    def act(self, verb: str, handoff_id: str, **body: Any) -> tuple[Work | None, str]:
        given = self._tools.ask(_TOOLS[verb], {"handoffId": handoff_id, **body})
        if "error" in given:
            return None, given["error"]["code"]
        return _work_given(given["handoff"]), ""

    def reply(self, handoff_id: str) -> str:
        given = self._watched(WAIT_S)["handoff"]
        assert given["handoffId"] == handoff_id
        (news,) = given["news"]
        return news.removeprefix("The sender says: ")

    def say(self, message: str) -> None:
        self._tools.do("agent_broadcast", channel="general", message=message)

    def beat(self, status: str) -> str:
        raise NotImplementedError("there is no tool for it")


def _work_given(given: dict[str, Any]) -> Work:
    return Work(
        id=given["handoffId"],
        state=given["state"],
        attempt=0,
        facts=given.get("context", {}).get("key_facts"),
        said=given.get("said", ""),
        result=given.get("result"),
        reasons=" ".join([given.get("detail", ""), *given.get("attempts", [])]),
    )


@contextmanager
def pulling(b: Broker, way: str, agent_id: str, *, cursor: str = "", **said: Any) -> Generator[Pull]:
    """An agent that is registered and fetches its work in one of the ways."""
    if way == "rest":
        with puller(b, agent_id, platform="external", **said) as agent:
            yield ByPolling(agent, cursor)
    elif way == "mcp":
        yield ByTools(Tools(broker=b, agent=agent_id, options={"platform": "external", **said}))
    else:
        instance = {"instance_id": said["instance"]} if "instance" in said else {}
        with socket_of(b, agent_id, platform="external", cursor=cursor, **instance) as socket:
            yield BySocket(socket)
