"""The surfaces of A2A: a binding (how a call travels) under a dialect (how it is written).

Not here: the native surfaces (``natives``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import httpx

from tests.interaction.dialects import PUSH_VERBS, Dialect, Dialect01, Dialect03, seen
from tests.interaction.seen import Ask, Config, Heard, Page, Refused, Seen, Surface, ask_of, written
from tests.support.running import Broker, sse_data

#: The face that a caller talks to if the test names no agent.
FACE = "porter"


class Wire(Surface):
    """A surface of A2A: a binding under a dialect."""

    def __init__(self, broker: Broker, name: str, dialect: Dialect) -> None:
        self.broker, self.name, self.dialect = broker, name, dialect
        self.returned = "failed" if isinstance(dialect, Dialect01) else "rejected"
        self.codes = "jsonrpc"
        self.token: Mapping[str, str] = {}
        """The header of who calls, if the broker asks."""

    @property
    def named(self) -> dict[str, str]:
        """What every call names: its version, and who calls."""
        return ({"A2A-Version": self.dialect.version} if self.dialect.version else {}) | dict(self.token)

    # the binding: one call, one stream

    def call(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> dict[str, Any]:
        raise NotImplementedError

    def follow(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    # the same for all

    def aim(self, ask: Ask) -> Ask:
        return ask

    def send(self, text: str = "hello", **more: Any) -> Seen:
        ask = self.aim(ask_of(text, **more))
        return self.dialect.task(
            self.call("send", self.dialect.params(ask), ask.headers, ask.facts), sent=True
        )

    def start(self, text: str = "hello", **more: Any) -> Seen:
        """The first generation has no way to ask for an answer at once: its caller streams, and goes."""
        if not isinstance(self.dialect, Dialect01):
            return self.send(text, wait=False, **more)
        with closing(self._stream(text, **more)) as heard:
            first = next(heard)
        return Seen(
            id=first.task_id, state=first.state, said="", data=[], artifacts=[], history=[], context_id="",
            ours={"handoff_id": first.handoff_id},
        )  # fmt: skip

    def stream(self, text: str = "hello", **more: Any) -> Iterator[Heard]:
        return self._stream(text, **more)

    def _stream(self, text: str, **more: Any) -> Any:
        ask = self.aim(ask_of(text, **more))
        results = self.follow("stream", self.dialect.params(ask), ask.headers, ask.facts)
        return (self.dialect.event(result) for result in results)

    def get(self, task_id: str, *, history: int | None = None) -> Seen:
        params: dict[str, Any] = {"id": task_id}
        if history is not None:
            params["historyLength"] = history
        return self.dialect.task(self.call("get", params, {}, ""))

    def list(self, *, context: str = "", state: str = "", size: int = 0, token: str = "") -> Page:
        word = (
            state.replace("_", "-") if isinstance(self.dialect, Dialect03) else f"TASK_STATE_{state.upper()}"
        )
        filters: dict[str, Any] = {
            "contextId": context, "status": word if state else "", "pageSize": size, "pageToken": token,
        }  # fmt: skip
        page = self.call("list", {name: value for name, value in filters.items() if value}, {}, "")
        return Page([seen(task) for task in page["tasks"]], page["nextPageToken"], page["totalSize"])

    def cancel(self, task_id: str) -> Seen:
        return self.dialect.task(self.call("cancel", {"id": task_id}, {}, ""))

    def subscribe(self, task_id: str) -> Iterator[Heard]:
        results = self.follow("subscribe", {"id": task_id}, {}, "")
        return (self.dialect.event(result) for result in results)

    def reply(self, task: Seen, text: str, **more: Any) -> Seen:
        return self.send(text, task=task.id, context=False, **more)

    def set_push(self, task_id: str, **config: Any) -> Config:
        """Set a push configuration, written as in 1.0."""
        params = self.dialect.push_params(task_id, "", config)
        return self.dialect.push_config(self.call("set_push", params, {}, ""))

    def get_push(self, task_id: str, config_id: str = "") -> Config:
        params = self.dialect.push_params(task_id, config_id, None)
        return self.dialect.push_config(self.call("get_push", params, {}, ""))

    def list_push(self, task_id: str) -> list[Config]:
        page: Any = self.call("list_push", self.dialect.push_params(task_id, "", None), {}, "")
        configs = page if isinstance(self.dialect, Dialect03) else page["configs"]
        return [self.dialect.push_config(config) for config in configs]

    def delete_push(self, task_id: str, config_id: str) -> Any:
        """Remove it; what is answered."""
        return self.call("delete_push", self.dialect.push_params(task_id, config_id, None), {}, "")

    def post(self, path: str, body: Any, headers: Mapping[str, str], facts: str) -> httpx.Response:
        content = written(body, facts)
        return self.broker.http.post(
            path, content=content, headers={"Content-Type": "application/json", **self.named, **headers}
        )

    def listen(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], facts: str = ""
    ) -> Iterator[Any]:
        with self.broker.http.stream(
            method,
            path,
            content=written(body, facts) if body is not None else None,
            headers={"Content-Type": "application/json", **self.named, **headers},
        ) as answer:
            if not answer.headers["content-type"].startswith("text/event-stream"):
                answer.read()
                yield answer
                return
            for data in sse_data(answer.iter_lines()):
                yield json.loads(data)


def wire(surface: Surface) -> Wire:
    """For tests of what only A2A has."""
    assert isinstance(surface, Wire)
    return surface


class JsonRpc(Wire):
    """JSON-RPC on the address of a card."""

    path = "/"

    def call(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> dict[str, Any]:
        answer = self.post(self.path, self._envelope(operation, params), headers, facts)
        return _rpc_result(answer.json())

    def follow(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> Iterator[dict[str, Any]]:
        envelope = self._envelope(operation, params)
        for item in self.listen("POST", self.path, envelope, headers, facts):
            yield _rpc_result(item.json() if isinstance(item, httpx.Response) else item)

    def _envelope(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 7, "method": self.dialect.methods[operation], "params": params}


class Face(JsonRpc):
    """The face of an agent: a client that knows nothing of the broker talks to the agent's address."""

    def __init__(self, broker: Broker, name: str, dialect: Dialect) -> None:
        super().__init__(broker, name, dialect)
        self.at(FACE)

    def at(self, agent_id: str) -> None:
        """Talk to this agent from now on."""
        self.path = f"/agents/{agent_id}/"

    def aim(self, ask: Ask) -> Ask:
        """The first agent that the test named is the one whose face it is."""
        if ask.context is None or "target_agent" not in ask.context:
            return ask
        context = dict(ask.context)
        self.at(context.pop("target_agent"))
        return replace(ask, context=context)


class Rest(Wire):
    """HTTP+JSON. ``prefix`` is that of the generation."""

    def __init__(self, broker: Broker, name: str, dialect: Dialect, prefix: str = "") -> None:
        super().__init__(broker, name, dialect)
        self._prefix = prefix
        self.codes = "http"

    def call(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> dict[str, Any]:
        if operation in ("get", "list"):
            task_id = params.pop("id", "")
            path = f"{self._prefix}/tasks/{task_id}" if operation == "get" else f"{self._prefix}/tasks"
            query = {k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items()}
            answer = self.broker.http.get(path, params=query, headers={**self.named, **headers})
        elif operation == "cancel":
            answer = self.post(f"{self._prefix}/tasks/{params['id']}:cancel", {}, headers, facts)
        elif operation in PUSH_VERBS:
            answer = self._push(PUSH_VERBS[operation], params)
        elif operation == "card":
            answer = self.broker.http.get(f"{self._prefix}{self.dialect.card_path}", headers=self.named)
        else:
            answer = self.post(f"{self._prefix}/message:send", params, headers, facts)
        return _rest_result(answer)

    def _push(self, verb: str, params: dict[str, Any]) -> httpx.Response:
        path = f"{self._prefix}/tasks/{params.pop('taskId')}/pushNotificationConfigs"
        if verb == "POST":
            return self.broker.http.post(path, json=params, headers=self.named)
        return self.broker.http.request(verb, "/".join((path, *params.values())), headers=self.named)

    def follow(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> Iterator[dict[str, Any]]:
        if operation == "stream":
            items = self.listen("POST", f"{self._prefix}/message:stream", params, headers, facts)
        else:
            path = f"{self._prefix}/tasks/{params['id']}:subscribe"
            items = self.listen("GET", path, None, headers)
        for item in items:
            yield _rest_result(item) if isinstance(item, httpx.Response) else item


class PlainHttp(Wire):
    """The first generation over plain HTTP: ``POST /tasks/send``, with bare params or an envelope."""

    def __init__(self, broker: Broker, name: str, dialect: Dialect, *, bare: bool) -> None:
        super().__init__(broker, name, dialect)
        self._bare = bare

    def _body(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return params if self._bare else {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}

    def call(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> dict[str, Any]:
        method = self.dialect.methods[operation]
        return self._read(self.post(f"/{method}", self._body(method, params), headers, facts).json())

    def follow(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> Iterator[dict[str, Any]]:
        method = self.dialect.methods[operation]
        for item in self.listen("POST", f"/{method}", self._body(method, params), headers, facts):
            yield self._read(item.json() if isinstance(item, httpx.Response) else item)

    def _read(self, body: dict[str, Any]) -> dict[str, Any]:
        if not self._bare:
            return _rpc_result(body)
        if "error" in body:
            raise _refusal(body["error"])
        return body


def _rpc_result(body: dict[str, Any]) -> dict[str, Any]:
    assert (body["jsonrpc"], body["id"]) == ("2.0", 7), body
    if "error" in body:
        raise _refusal(body["error"])
    return body["result"]


def _refusal(error: dict[str, Any]) -> Refused:
    """A JSON-RPC error object. The first generation's details are one object, later ones' a list."""
    data = error["data"]
    details = data if isinstance(data, list) else [data, data]
    violations = {v["field"]: v["description"] for d in details for v in d.get("fieldViolations", [])}
    facts = details[0].get("metadata", {})
    return Refused(details[0]["reason"], error["code"], error["message"], violations, facts, details)


def _rest_result(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_success:
        return answer.json()
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    refused = _refusal({"code": answer.status_code, "message": error["message"], "data": error["details"]})
    raise refused
