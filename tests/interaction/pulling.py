"""An agent that fetches its work, the same over each of the ways to fetch it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol

from tests.support.puller import Puller, puller
from tests.support.running import WAIT_S, Broker
from tests.support.sockets import Socket, socket_of

PULLS = ("rest", "websocket")


class Pull(Protocol):
    """What such an agent does."""

    @property
    def cursor(self) -> str:
        """Where it stands."""
        ...

    def offered(self) -> dict[str, Any]:
        """The next offer, as soon as there is one."""
        ...

    def heard(self) -> list[str]:
        """What the workspace was told, as soon as it was told anything."""
        ...

    def act(self, verb: str, handoff_id: str, **body: Any) -> tuple[dict[str, Any] | None, str]:
        """The handoff afterwards, or the code of the refusal."""
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

    def offered(self) -> dict[str, Any]:
        return self._watched()

    def heard(self) -> list[str]:
        return [said["message"] for said in self._watched(include="broadcasts")["broadcasts"]]

    def _watched(self, **more: Any) -> dict[str, Any]:
        answer = self._agent.watch(WAIT_S, after=self._cursor, **more)
        assert answer.status_code == 200
        self._cursor = answer.json()["cursor"]
        return answer.json()

    def act(self, verb: str, handoff_id: str, **body: Any) -> tuple[dict[str, Any] | None, str]:
        answer = self._agent.act(verb, handoff_id, **body)
        return (answer.json(), "") if answer.is_success else (None, answer.json()["code"])

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

    def offered(self) -> dict[str, Any]:
        return self._socket.next("offer")

    def heard(self) -> list[str]:
        return [self._socket.next("broadcast")["message"]]

    def act(self, verb: str, handoff_id: str, **body: Any) -> tuple[dict[str, Any] | None, str]:
        answer = self._socket.ask(verb, handoff_id=handoff_id, **body)
        return (answer["handoff"], "") if answer["type"] == "ok" else (None, answer["problem"]["code"])

    def say(self, message: str) -> None:
        self._socket.do("broadcast", channel="general", message=message)

    def beat(self, status: str) -> str:
        return self._socket.do("heartbeat", status=status)["agent"]["status"]


@contextmanager
def pulling(b: Broker, way: str, agent_id: str, *, cursor: str = "", **said: Any) -> Generator[Pull]:
    """An agent that is registered and fetches its work in one of the ways."""
    if way == "rest":
        with puller(b, agent_id, platform="external", **said) as agent:
            yield ByPolling(agent, cursor)
    else:
        instance = {"instance_id": said["instance"]} if "instance" in said else {}
        with socket_of(b, agent_id, platform="external", cursor=cursor, **instance) as socket:
            yield BySocket(socket)
