"""Every way into the broker behind one small interface, so that one test body serves them all.

A surface is a binding (how a call travels) and a dialect (how it is written). What comes back is read
into ``Seen``, ``Heard`` and ``Refused``, which are the same for all of them.
Not here: what each surface must do (``requirements``).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import httpx

from tests.support.agents import URI
from tests.support.running import Broker, handoff_context, sse_data

_NUMBERS = itertools.count(1)

#: The face that a caller talks to if the test names no agent.
FACE = "porter"


# --- what comes back -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A task as a surface shows it. ``state`` is the word of 1.0 in lower case, such as ``completed``."""

    id: str
    state: str
    said: str
    data: list[dict[str, Any]]
    artifacts: list[str]
    history: list[str]
    context_id: str
    ours: dict[str, Any]

    @property
    def handoff_id(self) -> str:
        """The broker's own name for the task."""
        return self.ours.get("handoff_id", self.id)

    @property
    def attempts(self) -> list[tuple[str, str | None]]:
        """Each attempt: who was asked, and what came of it."""
        return [(attempt["agent_id"], attempt["outcome"]) for attempt in self.ours["attempts"]]

    @property
    def reasons(self) -> list[str]:
        """What each attempt came to nothing by, in words."""
        return [attempt.get("reason", attempt.get("detail", "")) for attempt in self.ours["attempts"]]


@dataclass(frozen=True, kw_only=True)
class Heard:
    """An event of a stream: ``task``, ``status`` or ``artifact``. ``last`` is an artifact's last chunk."""

    kind: str
    task_id: str
    state: str = ""
    said: str = ""
    data: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    artifact: str = ""
    append: bool = False
    last: bool = False
    task: Seen | None = None
    handoff_id: str = ""


class Refused(Exception):
    """The call was refused. ``code`` is the surface's own, ``violations`` are by field."""

    def __init__(
        self, reason: str, code: int, message: str, violations: Mapping[str, str], facts: Mapping[str, str]
    ) -> None:
        self.reason, self.code, self.message = reason, code, message
        self.violations, self.facts = violations, facts
        super().__init__(f"{reason} {code}: {message} {dict(violations)}")


class Page(NamedTuple):
    """A page of a listing."""

    tasks: list[Seen]
    next: str
    total: int


@dataclass(frozen=True, kw_only=True)
class Config:
    """A push configuration as a surface shows it. ``scheme`` is the first one."""

    task: str
    id: str
    url: str
    token: str
    scheme: str
    credentials: str


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a test wants to send."""

    text: str = "hello"
    wait: bool = True
    task: str = ""
    message_id: str = ""
    context: Mapping[str, Any] | None = None
    context_id: str = ""
    history: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: str = ""
    push: str = ""
    """The URL of a webhook."""


# --- dialects ------------------------------------------------------------------------------------

METHODS: Mapping[str, str] = {
    "send": "SendMessage", "stream": "SendStreamingMessage", "get": "GetTask",
    "list": "ListTasks", "cancel": "CancelTask", "subscribe": "SubscribeToTask",
    "set_push": "CreateTaskPushNotificationConfig", "get_push": "GetTaskPushNotificationConfig",
    "list_push": "ListTaskPushNotificationConfigs", "delete_push": "DeleteTaskPushNotificationConfig",
}  # fmt: skip
METHODS_03: Mapping[str, str] = {
    "send": "message/send", "stream": "message/stream", "get": "tasks/get",
    "list": "tasks/list", "cancel": "tasks/cancel", "subscribe": "tasks/resubscribe",
    "set_push": "tasks/pushNotificationConfig/set", "get_push": "tasks/pushNotificationConfig/get",
    "list_push": "tasks/pushNotificationConfig/list", "delete_push": "tasks/pushNotificationConfig/delete",
}  # fmt: skip
METHODS_01: Mapping[str, str] = {
    "send": "tasks/send", "stream": "tasks/sendSubscribe", "get": "tasks/get",
    "cancel": "tasks/cancel", "subscribe": "tasks/resubscribe",
    "set_push": "tasks/pushNotification/set", "get_push": "tasks/pushNotification/get",
}  # fmt: skip
PUSH_VERBS: Mapping[str, str] = {
    "set_push": "POST", "get_push": "GET", "list_push": "GET", "delete_push": "DELETE",
}  # fmt: skip


class Dialect:
    """How A2A 1.0 writes calls and answers; the older generations say what differs."""

    methods = METHODS
    version = "1.0"
    wraps = True
    push_member = "taskPushNotificationConfig"
    push_ids = ("taskId", "id")

    def message(self, ask: Ask) -> dict[str, Any]:
        message: dict[str, Any] = {
            "messageId": ask.message_id or f"i-{next(_NUMBERS)}",
            "role": "ROLE_USER",
            "parts": [{"text": ask.text}],
        }
        if ask.task:
            message["taskId"] = ask.task
        if ask.context_id:
            message["contextId"] = ask.context_id
        return message

    def settings(self, ask: Ask) -> dict[str, Any]:
        chosen: dict[str, Any] = {} if ask.wait else {"returnImmediately": True}
        return chosen if ask.history is None else chosen | {"historyLength": ask.history}

    def params(self, ask: Ask) -> dict[str, Any]:
        """Params of a message."""
        params: dict[str, Any] = {"message": self.message(ask)}
        settings = self.settings(ask)
        if ask.push:
            settings[self.push_member] = {"url": ask.push}
        if settings:
            params["configuration"] = settings
        return params | _beside(ask)

    def push_params(self, task_id: str, config_id: str, config: dict[str, Any] | None) -> dict[str, Any]:
        """Params about the push configurations of a task; ``config`` is one of 1.0, to set."""
        if config is not None:
            return {"taskId": task_id, **config}
        task, name = self.push_ids
        return {task: task_id} | ({name: config_id} if config_id else {})

    def push_config(self, result: dict[str, Any]) -> Config:
        """A push configuration out of a result."""
        return _config(result, result["taskId"])

    def task(self, result: dict[str, Any], *, sent: bool = False) -> Seen:
        """A task out of a result."""
        return seen(result["task"] if sent and self.wraps else result)

    def event(self, result: dict[str, Any]) -> Heard:
        """An event of a stream."""
        ((kind, body),) = result.items()
        if kind == "task":
            return _task_heard(body)
        if kind == "statusUpdate":
            return _status_heard(body, body["taskId"])
        assert kind == "artifactUpdate", result
        return _artifact_heard(body["artifact"], body["taskId"], body["append"], body["lastChunk"])


class Dialect03(Dialect):
    """A2A 0.3."""

    methods = METHODS_03
    version = ""
    wraps = False
    push_member = "pushNotificationConfig"
    push_ids = ("id", "pushNotificationConfigId")

    def push_params(self, task_id: str, config_id: str, config: dict[str, Any] | None) -> dict[str, Any]:
        if config is None:
            return super().push_params(task_id, config_id, None)
        return {"taskId": task_id, "pushNotificationConfig": _old_config(config)}

    def push_config(self, result: dict[str, Any]) -> Config:
        return _config(result["pushNotificationConfig"], result["taskId"])

    def message(self, ask: Ask) -> dict[str, Any]:
        parts = [{"kind": "text", "text": ask.text}]
        return super().message(ask) | {"kind": "message", "role": "user", "parts": parts}

    def settings(self, ask: Ask) -> dict[str, Any]:
        chosen: dict[str, Any] = {} if ask.wait else {"blocking": False}
        return chosen if ask.history is None else chosen | {"historyLength": ask.history}

    def event(self, result: dict[str, Any]) -> Heard:
        kind = result["kind"]
        if kind == "task":
            return _task_heard(result)
        if kind == "status-update":
            return _status_heard(result, result["taskId"])
        assert kind == "artifact-update", result
        return _artifact_heard(result["artifact"], result["taskId"], result["append"], result["lastChunk"])


class Dialect03Http(Dialect):
    """A2A 0.3 over HTTP+JSON, which is the ProtoJSON of its proto."""

    version = ""
    push_member = "pushNotification"

    def push_params(self, task_id: str, config_id: str, config: dict[str, Any] | None) -> dict[str, Any]:
        if config is None:
            return super().push_params(task_id, config_id, None)
        inner = {"pushNotificationConfig": _old_config(config)}
        return {"taskId": task_id, "parent": f"tasks/{task_id}", "config": inner}

    def push_config(self, result: dict[str, Any]) -> Config:
        kind, task_id, configs, config_id = result["name"].split("/")
        config = _config(result["pushNotificationConfig"], task_id)
        assert (kind, configs, config_id) == ("tasks", "pushNotificationConfigs", config.id)
        return config

    def message(self, ask: Ask) -> dict[str, Any]:
        message = super().message(ask)
        message["content"] = message.pop("parts")
        return message

    def settings(self, ask: Ask) -> dict[str, Any]:
        chosen: dict[str, Any] = {"blocking": ask.wait}
        return chosen if ask.history is None else chosen | {"historyLength": ask.history}

    def params(self, ask: Ask) -> dict[str, Any]:
        params = super().params(ask)
        params["request"] = params.pop("message")
        return params


class Dialect01(Dialect):
    """The first generation: the client makes the task's id."""

    methods = METHODS_01
    version = ""
    wraps = False

    def params(self, ask: Ask) -> dict[str, Any]:
        params: dict[str, Any] = {
            "id": ask.task or ask.message_id or f"mine-{next(_NUMBERS)}",
            "message": {"role": "user", "parts": [{"type": "text", "text": ask.text}]},
        }
        if ask.context_id:
            params["sessionId"] = ask.context_id
        if ask.history is not None:
            params["historyLength"] = ask.history
        if ask.push:
            params["pushNotification"] = {"url": ask.push}
        return params | _beside(ask)

    def push_params(self, task_id: str, config_id: str, config: dict[str, Any] | None) -> dict[str, Any]:
        """There is one configuration for a task, and it has no id."""
        return {"id": task_id} | ({"pushNotificationConfig": _old_config(config)} if config else {})

    def push_config(self, result: dict[str, Any]) -> Config:
        return _config(result["pushNotificationConfig"], result["id"])

    def event(self, result: dict[str, Any]) -> Heard:
        if "artifact" in result:
            artifact = result["artifact"]
            flags = bool(artifact.get("append")), bool(artifact.get("lastChunk"))
            return _artifact_heard(artifact, result["id"], *flags)
        heard = _status_heard(result, result["id"])
        final = heard.state in ("completed", "failed", "canceled", "input_required")
        assert result["final"] is final, result
        return heard


def _old_config(config: dict[str, Any]) -> dict[str, Any]:
    """A push configuration of 1.0 as one of the older generations."""
    if "authentication" not in config:
        return config
    authentication = dict(config["authentication"])
    return config | {"authentication": {"schemes": [authentication.pop("scheme")], **authentication}}


def _config(body: dict[str, Any], task_id: str) -> Config:
    authentication = body.get("authentication", {})
    (scheme,) = authentication.get("schemes", [authentication.get("scheme", "")])
    return Config(
        task=task_id, id=body.get("id", ""), url=body["url"], token=body.get("token", ""), scheme=scheme,
        credentials=authentication.get("credentials", ""),
    )  # fmt: skip


def _beside(ask: Ask) -> dict[str, Any]:
    return {} if ask.context is None else {"metadata": {"handoff_context": dict(ask.context)}}


def _task_heard(body: dict[str, Any]) -> Heard:
    task = seen(body)
    return Heard(
        kind="task", task_id=task.id, state=task.state, said=task.said, data=task.data, task=task,
        handoff_id=task.handoff_id,
    )  # fmt: skip


def _status_heard(body: dict[str, Any], task_id: str) -> Heard:
    status = body["status"]
    said, data = _words(status.get("message", {}))
    ours = body.get("metadata", {}).get(URI, {})
    return Heard(
        kind="status", task_id=task_id, state=_state(status["state"]), said=said, data=data,
        handoff_id=ours.get("handoff_id", ""),
    )  # fmt: skip


def _artifact_heard(artifact: dict[str, Any], task_id: str, append: bool, last: bool) -> Heard:
    return Heard(kind="artifact", task_id=task_id, artifact=_words(artifact)[0], append=append, last=last)


def seen(task: dict[str, Any]) -> Seen:
    """A task of any generation: parts and states differ in names that do not matter here."""
    said, data = _words(task["status"].get("message", {}))
    return Seen(
        id=task["id"],
        state=_state(task["status"]["state"]),
        said=said,
        data=data,
        artifacts=[_words(artifact)[0] for artifact in task.get("artifacts", [])],
        history=[_words(message)[0] for message in task.get("history", [])],
        context_id=task.get("contextId", task.get("sessionId", "")),
        ours=task.get("metadata", {}).get(URI, {}),
    )


def _state(word: str) -> str:
    return word.removeprefix("TASK_STATE_").lower().replace("-", "_").replace("cancelled", "canceled")


def _words(body: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The text of a message or an artifact, and its data parts."""
    parts = body.get("parts", body.get("content", []))
    data = [part["data"] for part in parts if "data" in part]
    return "".join(part.get("text", "") for part in parts), [one.get("data", one) for one in data]


# --- surfaces ------------------------------------------------------------------------------------


class Surface(Protocol):
    """What a test can do. ``to`` names the agents to try, in order; ``context`` what differs in it."""

    broker: Broker
    name: str
    codes: str
    returned: str
    """How a task is shown that nobody took."""

    def send(self, text: str = "hello", **more: Any) -> Seen: ...

    def start(self, text: str = "hello", **more: Any) -> Seen:
        """A task under way, without waiting for anything but that it exists."""
        ...

    def stream(self, text: str = "hello", **more: Any) -> Iterator[Heard]: ...

    def get(self, task_id: str, *, history: int | None = None) -> Seen: ...

    def list(self, *, context: str = "", state: str = "", size: int = 0, token: str = "") -> Page: ...

    def cancel(self, task_id: str) -> Seen: ...

    def subscribe(self, task_id: str) -> Iterator[Heard]: ...

    def reply(self, task: Seen, text: str, **more: Any) -> Seen: ...


def ask_of(text: str, *, to: tuple[str, ...] = (), context: Any = None, **more: Any) -> Ask:
    """What ``send`` and its siblings were given, as one value. ``context=False`` sends none."""
    if context is False:
        return Ask(text=text, **more)
    named: dict[str, Any] = {"target_agent": to[0]} if to else {}
    if len(to) > 1:
        named["fallback"] = list(to[1:])
    return Ask(text=text, context=handoff_context(**(named | (context or {}))), **more)


class Wire(Surface):
    """A surface of A2A: a binding under a dialect."""

    def __init__(self, broker: Broker, name: str, dialect: Dialect) -> None:
        self.broker, self.name, self.dialect = broker, name, dialect
        self.returned = "failed" if isinstance(dialect, Dialect01) else "rejected"
        self.codes = "jsonrpc"

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
        named = {"A2A-Version": self.dialect.version} if self.dialect.version else {}
        content = written(body, facts)
        return self.broker.http.post(
            path, content=content, headers={"Content-Type": "application/json", **named, **headers}
        )

    def listen(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], facts: str = ""
    ) -> Iterator[Any]:
        named = {"A2A-Version": self.dialect.version} if self.dialect.version else {}
        with self.broker.http.stream(
            method,
            path,
            content=written(body, facts) if body is not None else None,
            headers={"Content-Type": "application/json", **named, **headers},
        ) as answer:
            if not answer.headers["content-type"].startswith("text/event-stream"):
                answer.read()
                yield answer
                return
            for data in sse_data(answer.iter_lines()):
                yield json.loads(data)


def written(body: Any, facts: str) -> bytes:
    """The body, with ``key_facts`` exactly as given, which no JSON library would write so."""
    text = json.dumps(body)
    if facts:
        at = text.index('"key_facts": ') + len('"key_facts": ')
        text = text[:at] + facts + text[json.JSONDecoder().raw_decode(text, at)[1] :]
    return text.encode()


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
            named = {"A2A-Version": self.dialect.version} if self.dialect.version else {}
            answer = self.broker.http.get(path, params=query, headers={**named, **headers})
        elif operation == "cancel":
            answer = self.post(f"{self._prefix}/tasks/{params['id']}:cancel", {}, headers, facts)
        elif operation in PUSH_VERBS:
            answer = self._push(PUSH_VERBS[operation], params)
        else:
            answer = self.post(f"{self._prefix}/message:send", params, headers, facts)
        return _rest_result(answer)

    def _push(self, verb: str, params: dict[str, Any]) -> httpx.Response:
        path = f"{self._prefix}/tasks/{params.pop('taskId')}/pushNotificationConfigs"
        named = {"A2A-Version": self.dialect.version} if self.dialect.version else {}
        if verb == "POST":
            return self.broker.http.post(path, json=params, headers=named)
        return self.broker.http.request(verb, "/".join((path, *params.values())), headers=named)

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
    return Refused(
        details[0]["reason"], error["code"], error["message"], violations, details[0].get("metadata", {})
    )


def _rest_result(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_success:
        return answer.json()
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    refused = _refusal({"code": answer.status_code, "message": error["message"], "data": error["details"]})
    raise refused


# --- the native surface --------------------------------------------------------------------------

_NATIVE_STATES: Mapping[str, str] = {
    "requested": "submitted", "offered": "submitted", "escalated": "submitted",
    "acknowledged": "working", "handed_off": "working", "returned": "rejected", "expired": "failed",
}  # fmt: skip
_SETTLED = ("completed", "failed", "canceled", "returned", "expired", "input_required", "auth_required")


class Native(Surface):
    """Native REST: a handoff is made at once; its log tells the rest."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.codes, self.returned = "native", "rejected"

    def send(self, text: str = "hello", *, wait: bool = True, **more: Any) -> Seen:
        made = self.start(text, **more)
        if not wait:
            return made
        self.broker.until(made.id, *_SETTLED)
        return self.get(made.id)

    def start(self, text: str = "hello", **more: Any) -> Seen:
        ask = ask_of(text, **more)
        body: dict[str, Any] = {"task": text, **(ask.context or {})}
        if ask.message_id:
            body["message_id"] = ask.message_id
        if ask.context_id:
            body["context_id"] = ask.context_id
        answer = self.broker.http.post(
            "/api/handoffs",
            content=written(body, ask.facts),
            headers={"Content-Type": "application/json", **ask.headers},
        )
        return self._seen(_native_result(answer))

    def get(self, task_id: str, *, history: int | None = None) -> Seen:
        assert history is None
        return self._seen(_native_result(self.broker.http.get(f"/api/handoffs/{task_id}")))

    def list(self, *, context: str = "", state: str = "", size: int = 0, token: str = "") -> Page:
        filters = {"context_id": context, "state": state, "limit": size or "", "cursor": token}
        given = {name: value for name, value in filters.items() if value}
        page = _native_result(self.broker.http.get("/api/handoffs", params=given))
        return Page([self._seen(h) for h in page["handoffs"]], page["next_cursor"] or "", page["total"])

    def cancel(self, task_id: str) -> Seen:
        made = self._seen(_native_result(self.broker.http.post(f"/api/handoffs/{task_id}/cancel", json={})))
        self.broker.until(made.id, *_SETTLED[:5])
        return self.get(task_id)

    def reply(self, task: Seen, text: str, **more: Any) -> Seen:
        raise NotImplementedError("there is no reply here")

    def stream(self, text: str = "hello", **more: Any) -> Iterator[Heard]:
        made = self.start(text, **more)
        yield Heard(kind="task", task_id=made.id, state="submitted", task=made, handoff_id=made.id)
        yield from self._log(made.id, 0)

    def subscribe(self, task_id: str) -> Iterator[Heard]:
        """The log has everything from the start."""
        return self._log(task_id, 0)

    def _log(self, task_id: str, seq: int) -> Iterator[Heard]:
        while True:
            events = self._events(task_id, seq)
            for event in events:
                seq = event["seq"]
                yield from _native_heard(task_id, event)
                if event["type"].removeprefix("a2a-handoff.handoff_") in _SETTLED[:5]:
                    return
            if not events:
                self._grown(task_id, seq)

    def _events(self, task_id: str, after: int) -> list[dict[str, Any]]:
        answer = self.broker.http.get(f"/api/handoffs/{task_id}/events", params={"after": after})
        return _native_result(answer)["events"]

    def _grown(self, task_id: str, seq: int) -> None:
        """Wait until the log is longer."""
        journal = self.broker.app.service.journal

        async def follow() -> None:
            async for step in journal.follow(task_id):
                if step is not None and step.after.id == task_id and step.after.version > seq:
                    return

        self.broker.loop.run(follow())

    def _seen(self, body: dict[str, Any]) -> Seen:
        said, data = _words(body["status_message"] or {})
        return Seen(
            id=body["handoff_id"],
            state=_NATIVE_STATES.get(body["state"], body["state"]),
            said=said,
            data=data,
            artifacts=[_words(artifact)[0] for artifact in body["artifacts"]],
            history=[],
            context_id="",
            ours=body,
        )


def _native_heard(task_id: str, event: dict[str, Any]) -> Iterator[Heard]:
    data = event["data"]
    kind = event["type"].removeprefix("a2a-handoff.")
    for output in data.get("outputs", []):
        if output["kind"] == "artifact":
            yield _artifact_heard(output["body"], task_id, output["append"], output["last"])
        else:
            yield Heard(kind="status", task_id=task_id, state="working", said=_words(output["body"])[0])
    states = {
        "handoff_offered": "submitted", "handoff_acknowledged": "working", "caller_asked": "input_required",
        "handoff_completed": "completed", "handoff_failed": "failed", "handoff_canceled": "canceled",
        "handoff_returned": "rejected", "handoff_expired": "failed",
    }  # fmt: skip
    if kind in states:
        said = _words(data.get("message") or {})[0]
        told: list[dict[str, Any]] = []
        if kind == "handoff_offered":
            told = [{"type": "system_event", "event": "handoff_started", "message": "-"}]
            told[0]["target_agent"] = data["agent_id"]
        yield Heard(kind="status", task_id=task_id, state=states[kind], said=said, data=told)


def _native_result(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    if answer.is_success:
        return body
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["status"] == answer.status_code
    violations = {v["field"]: v["description"] for v in body.get("errors", [])}
    raise Refused(body["code"].upper(), answer.status_code, body["detail"], violations, body.get("facts", {}))


def surfaces(broker: Broker) -> dict[str, Surface]:
    """Every surface of a broker by name, in the order of ``requirements.SURFACES``."""
    made: list[Surface] = [
        JsonRpc(broker, "jsonrpc-1.0", Dialect()),
        JsonRpc(broker, "jsonrpc-0.3", Dialect03()),
        Rest(broker, "http-1.0", Dialect()),
        Rest(broker, "http-0.3", Dialect03Http(), "/v1"),
        JsonRpc(broker, "jsonrpc-first", Dialect01()),
        PlainHttp(broker, "http-first-bare", Dialect01(), bare=True),
        PlainHttp(broker, "http-first-envelope", Dialect01(), bare=False),
        Face(broker, "face", Dialect()),
        Native(broker, "native"),
    ]
    return {surface.name: surface for surface in made}
