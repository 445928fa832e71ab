"""How each generation of A2A writes calls and answers.

Duty: params out of an ``Ask``; ``Seen``, ``Heard`` and ``Config`` out of results.
Not here: how they travel (``wires``).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tests.interaction.seen import Ask, Config, Heard, Seen, artifact_heard, words_of
from tests.support.agents import URI

_NUMBERS = itertools.count(1)

METHODS: Mapping[str, str] = {
    "send": "SendMessage", "stream": "SendStreamingMessage", "get": "GetTask",
    "list": "ListTasks", "cancel": "CancelTask", "subscribe": "SubscribeToTask",
    "set_push": "CreateTaskPushNotificationConfig", "get_push": "GetTaskPushNotificationConfig",
    "list_push": "ListTaskPushNotificationConfigs", "delete_push": "DeleteTaskPushNotificationConfig",
    "card": "GetExtendedAgentCard",
}  # fmt: skip
METHODS_03: Mapping[str, str] = {
    "send": "message/send", "stream": "message/stream", "get": "tasks/get",
    "list": "tasks/list", "cancel": "tasks/cancel", "subscribe": "tasks/resubscribe",
    "set_push": "tasks/pushNotificationConfig/set", "get_push": "tasks/pushNotificationConfig/get",
    "list_push": "tasks/pushNotificationConfig/list", "delete_push": "tasks/pushNotificationConfig/delete",
    "card": "agent/getAuthenticatedExtendedCard",
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
    card_path = "/extendedAgentCard"

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
        return artifact_heard(body["artifact"], body["taskId"], body["append"], body["lastChunk"])


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
        return artifact_heard(result["artifact"], result["taskId"], result["append"], result["lastChunk"])


class Dialect03Http(Dialect):
    """A2A 0.3 over HTTP+JSON, which is the ProtoJSON of its proto."""

    version = ""
    card_path = "/card"
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
            return artifact_heard(artifact, result["id"], *flags)
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
    said, data = words_of(status.get("message", {}))
    ours = body.get("metadata", {}).get(URI, {})
    return Heard(
        kind="status", task_id=task_id, state=_state(status["state"]), said=said, data=data,
        handoff_id=ours.get("handoff_id", ""),
    )  # fmt: skip


def seen(task: dict[str, Any]) -> Seen:
    """A task of any generation: parts and states differ in names that do not matter here."""
    said, data = words_of(task["status"].get("message", {}))
    return Seen(
        id=task["id"],
        state=_state(task["status"]["state"]),
        said=said,
        data=data,
        artifacts=[words_of(artifact)[0] for artifact in task.get("artifacts", [])],
        history=[words_of(message)[0] for message in task.get("history", [])],
        context_id=task.get("contextId", task.get("sessionId", "")),
        ours=task.get("metadata", {}).get(URI, {}),
    )


def _state(word: str) -> str:
    return word.removeprefix("TASK_STATE_").lower().replace("-", "_").replace("cancelled", "canceled")
