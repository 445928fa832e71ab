"""The native surfaces: REST, and what the WebSocket and the MCP tools do differently.

Rules: who sends over them need not wait, so ``send`` makes a handoff and then looks how it ends. What one
of them has no word for is read over REST, or is a gap in ``requirements``.
Not here: the surfaces of A2A (``wires``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import httpx

from a2a_handoff.core.errors import ERRORS, Code
from tests.interaction.seen import (
    Ask,
    Heard,
    Page,
    Refused,
    Seen,
    Surface,
    artifact_heard,
    ask_of,
    words_of,
    written,
)
from tests.support.running import Broker
from tests.support.sockets import Socket, socket_of
from tests.support.tools import Tools

_STATES: Mapping[str, str] = {
    "requested": "submitted", "offered": "submitted", "escalated": "submitted",
    "acknowledged": "working", "handed_off": "working", "returned": "rejected", "expired": "failed",
}  # fmt: skip
_SETTLED = ("completed", "failed", "canceled", "returned", "expired", "input_required", "auth_required")


#: Who talks to the broker over a socket or by tools; whose task it is, the body says.
DESK = "desk"

#: What the tools call otherwise than REST does, and what they do not take: the task says what is wanted.
_ARGUMENTS: Mapping[str, str] = {
    "target_agent": "targetAgent", "conversation_summary": "summary", "key_facts": "context",
    "parent_handoff_id": "parent",
}  # fmt: skip
_UNSAID = ("user_intent",)
_NO_HEADERS: Mapping[str, str] = {}


class Native(Surface):
    """Native REST: a handoff is made at once; its log tells the rest."""

    codes, returned = "native", "rejected"

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name

    def send(self, text: str = "hello", *, wait: bool = True, **more: Any) -> Seen:
        made = self.start(text, **more)
        if not wait:
            return made
        self.broker.until(made.handoff_id, *_SETTLED)
        return self.get(made.id)

    def start(self, text: str = "hello", **more: Any) -> Seen:
        ask = ask_of(text, **more)
        answer = self.broker.http.post(
            "/api/handoffs",
            content=written(body_of(ask), ask.facts),
            headers={"Content-Type": "application/json", **ask.headers},
        )
        return seen(_result(answer))

    def get(self, task_id: str, *, history: int | None = None) -> Seen:
        assert history is None
        return seen(_result(self.broker.http.get(f"/api/handoffs/{task_id}")))

    def list(self, *, context: str = "", state: str = "", size: int = 0, token: str = "") -> Page:
        filters = {"context_id": context, "state": state, "limit": size or "", "cursor": token}
        given = {name: value for name, value in filters.items() if value}
        page = _result(self.broker.http.get("/api/handoffs", params=given))
        return Page([seen(h) for h in page["handoffs"]], page["next_cursor"] or "", page["total"])

    def cancel(self, task_id: str) -> Seen:
        self.take_back(task_id)
        self.broker.until(task_id, *_SETTLED[:5])
        return self.get(task_id)

    def take_back(self, task_id: str) -> None:
        """Ask for a cancel, whose end may come later."""
        _result(self.broker.http.post(f"/api/handoffs/{task_id}/cancel", json={}))

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
                yield from _heard_of(task_id, event)
                if event["type"].removeprefix("a2a-handoff.handoff_") in _SETTLED[:5]:
                    return
            if not events:
                self._grown(task_id, seq)

    def _events(self, task_id: str, after: int) -> list[dict[str, Any]]:
        answer = self.broker.http.get(f"/api/handoffs/{task_id}/events", params={"after": after})
        return _result(answer)["events"]

    def _grown(self, task_id: str, seq: int) -> None:
        """Wait until the log is longer."""
        journal = self.broker.app.service.journal

        async def follow() -> None:
            async for step in journal.follow(task_id):
                if step is not None and step.after.id == task_id and step.after.version > seq:
                    return

        self.broker.loop.run(follow())


class Socketed(Native):
    """The WebSocket: commands go over a socket, and its events say when a handoff has ended."""

    def send(self, text: str = "hello", *, wait: bool = True, **more: Any) -> Seen:
        if not wait:
            return self.start(text, **more)
        with self._socket() as socket:
            made = _made(socket, ask_of(text, **more))
            if made.ours["state"] not in _SETTLED:
                _until_settled(socket, made.id)
        return self.get(made.id)

    def start(self, text: str = "hello", **more: Any) -> Seen:
        with self._socket() as socket:
            return _made(socket, ask_of(text, **more))

    def take_back(self, task_id: str) -> None:
        with self._socket() as socket:
            _obeyed(socket.ask("cancel", handoff_id=task_id))

    def _socket(self) -> AbstractContextManager[Socket]:
        return socket_of(self.broker, DESK, role="agent", events=True)


def _made(socket: Socket, ask: Ask) -> Seen:
    """What a ``create`` made. The socket has no headers, so a trace is named in the body."""
    frame = {"type": "create", "id": "new", "handoff": body_of(ask) | dict(ask.headers)}
    socket.connection.send(written(frame, ask.facts).decode())
    answer = socket.next("ok", "error")
    assert answer["id"] == "new"
    return seen(_obeyed(answer))


def _obeyed(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["type"] == "error":
        raise _refusal(answer["problem"])
    return answer["handoff"]


def _until_settled(socket: Socket, handoff_id: str) -> None:
    """Read events until one says that the handoff has ended, or waits for its sender."""
    settled = False
    while not settled:
        event = socket.next("event")
        named = event["event"].removeprefix("handoff:")
        settled = event["data"]["handoffId"] == handoff_id and named in _SETTLED


class Tooled(Native):
    """The MCP tools: a handoff is made by ``create_handoff`` and read by ``check_handoffs``.

    A caller is an agent, and so is a conversation: what A2A calls a context is here whose tools they are.
    """

    def start(self, text: str = "hello", **more: Any) -> Seen:
        ask = ask_of(text, **more)
        context = dict(ask.context or {})
        sender = context.pop("source_agent")
        for name in _UNSAID:
            context.pop(name)
        wish = {_ARGUMENTS.get(name, name): value for name, value in context.items()}
        wish |= {"task": text, "agentId": sender}
        if ask.message_id:
            wish["idempotencyKey"] = ask.message_id
        given = self._ask(ask.context_id or DESK, "create_handoff", wish, ask.headers)
        return _given(given["handoff"])

    def get(self, task_id: str, *, history: int | None = None) -> Seen:
        assert history is None
        return _given(self._ask(DESK, "check_handoffs", {"handoffId": task_id})["handoff"])

    def list(self, *, context: str = "", state: str = "", size: int = 0, token: str = "") -> Page:
        assert (state, token) == ("", "")
        sent = self._ask(context or DESK, "check_handoffs", {"limit": size} if size else {})["sent"]
        return Page([_given(handoff) for handoff in sent], "", len(sent))

    def take_back(self, task_id: str) -> None:
        self._ask(DESK, "cancel_handoff", {"handoffId": task_id})

    def _ask(
        self, agent: str, tool: str, arguments: dict[str, Any], headers: Mapping[str, str] = _NO_HEADERS
    ) -> dict[str, Any]:
        given = Tools(broker=self.broker, agent=agent).ask(tool, arguments, headers)
        if "error" in given:
            raise _refusal(
                {"detail": given["error"]["message"], "errors": given["error"].get("violations", [])}
                | given["error"]
            )
        return given


def body_of(ask: Ask) -> dict[str, Any]:
    """The body of ``POST /api/handoffs``."""
    body: dict[str, Any] = {"task": ask.text, **(ask.context or {})}
    if ask.message_id:
        body["message_id"] = ask.message_id
    if ask.context_id:
        body["context_id"] = ask.context_id
    return body


def seen(body: dict[str, Any]) -> Seen:
    """A handoff as REST shows it."""
    said, data = words_of(body["status_message"] or {})
    return Seen(
        id=body["handoff_id"],
        state=_STATES.get(body["state"], body["state"]),
        said=said,
        data=data,
        artifacts=[words_of(artifact)[0] for artifact in body["artifacts"]],
        history=[],
        context_id="",
        ours=body,
    )


def _given(given: dict[str, Any]) -> Seen:
    """A handoff as the tools show it: attempts in words, and without the one that is under way."""
    attempts: list[dict[str, Any]] = []
    for said in given.get("attempts", []):
        outcome, _, detail = said.partition(": ")
        agent_id, _, outcome = outcome.rpartition(" ")
        attempts.append({"agent_id": agent_id, "outcome": outcome, "detail": detail})
    holder = given.get("assignedTo", "")
    if holder and holder not in [attempt["agent_id"] for attempt in attempts]:
        attempts.append({"agent_id": holder, "outcome": None})
    ours = {
        "handoff_id": given["handoffId"], "state": given["state"], "attempts": attempts,
        "trace_id": given["traceId"], "correlation_id": given["correlationId"],
    }  # fmt: skip
    return Seen(
        id=given["handoffId"],
        state=_STATES.get(given["state"], given["state"]),
        said=given.get("said", ""),
        data=[],
        artifacts=[given["result"]] if "result" in given else [],
        history=[],
        context_id="",
        ours=ours,
    )


def _heard_of(task_id: str, event: dict[str, Any]) -> Iterator[Heard]:
    data = event["data"]
    kind = event["type"].removeprefix("a2a-handoff.")
    for output in data.get("outputs", []):
        if output["kind"] == "artifact":
            yield artifact_heard(output["body"], task_id, output["append"], output["last"])
        else:
            yield Heard(kind="status", task_id=task_id, state="working", said=words_of(output["body"])[0])
    states = {
        "handoff_offered": "submitted", "handoff_acknowledged": "working", "caller_asked": "input_required",
        "handoff_completed": "completed", "handoff_failed": "failed", "handoff_canceled": "canceled",
        "handoff_returned": "rejected", "handoff_expired": "failed",
    }  # fmt: skip
    if kind in states:
        said = words_of(data.get("message") or {})[0]
        told: list[dict[str, Any]] = []
        if kind == "handoff_offered":
            told = [{"type": "system_event", "event": "handoff_started", "message": "-"}]
            told[0]["target_agent"] = data["agent_id"]
        yield Heard(kind="status", task_id=task_id, state=states[kind], said=said, data=told)


def _result(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    if answer.is_success:
        return body
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["status"] == answer.status_code
    raise _refusal(body)


def _refusal(problem: dict[str, Any]) -> Refused:
    """A problem. The tools show no status: theirs is the one that REST has for the same word."""
    violations = {fault["field"]: fault["description"] for fault in problem.get("errors", [])}
    code = ERRORS[Code(problem["code"])].http
    assert problem.get("status", code) == code
    return Refused(problem["code"].upper(), code, problem["detail"], violations, problem.get("facts", {}))
