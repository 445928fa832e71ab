"""``send``: one task to the broker, and what comes back as it comes.

Duty: build the A2A 1.0 request with its handoff context, read the answer or its stream.
Rules: what the agent made goes to standard output; notes on the way (system events, states, ids) go to
standard error, so that the output can be piped. With ``--json`` every result of the broker goes to
standard output as it came, one a line.
Not here: HTTP (``remote``).
"""

from __future__ import annotations

import base64
import mimetypes
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Raw
from rich.console import Console
from rich.text import Text

from a2a_handoff.cli import show
from a2a_handoff.cli.outcome import FAILED, INTERRUPTED, UNREACHABLE, USAGE, Failed
from a2a_handoff.cli.place import Place
from a2a_handoff.cli.remote import Broker, rpc_refusal
from a2a_handoff.wire.fields import members_of
from a2a_handoff.wire.native.outbound import HandoffOut

_VERSION = {"A2A-Version": "1.0"}
_STATE_PREFIX = "TASK_STATE_"

#: States after which nothing more comes without a word of the caller.
_STANDSTILL = frozenset({"completed", "failed", "canceled", "rejected", "input_required", "auth_required"})


#: System events that say how it ended, every attempt included.
_ENDS = frozenset({"handoff_returned", "handoff_expired"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the options say of a task. Empty means not said; ``context`` is the file's JSON object.

    ``named``: a token says who sends.
    """

    context: bytes = b""
    source: str = ""
    target: str = ""
    capabilities: tuple[str, ...] = ()
    skill: str = ""
    domain: str = ""
    tags: tuple[str, ...] = ()
    platform: str = ""
    summary: str = ""
    intent: str = ""
    facts: tuple[str, ...] = ()
    mode: str = ""
    priority: str = ""
    correlation_id: str = ""
    parent: str = ""
    replay_safe: bool = False
    named: bool = False


def context_of(text: str, wishes: Wishes) -> dict[str, Any]:
    """The ``handoff_context``: the file's fields, and what the options say over them.

    ``text`` stands in for a missing intent or summary. Raises ``Failed`` for what cannot be read.
    """
    given = members_of(wishes.context or b"{}")
    if given is None:
        raise Failed("--context: must be a JSON object with the fields of a handoff context", code=USAGE)
    context: dict[str, Any] = dict(given)
    said: dict[str, Any] = {
        "source_agent": wishes.source,
        "target_agent": wishes.target,
        "conversation_summary": wishes.summary,
        "user_intent": wishes.intent,
        "mode": wishes.mode,
        "priority": wishes.priority,
        "correlation_id": wishes.correlation_id,
        "parent_handoff_id": wishes.parent,
        "replay_safe": wishes.replay_safe,
    }
    context |= {name: value for name, value in said.items() if value}
    asked: dict[str, Any] = {
        "capabilities": wishes.capabilities,
        "skill": wishes.skill,
        "domain": wishes.domain,
        "tags": wishes.tags,
        "platform": wishes.platform,
    }
    asked = {name: value for name, value in asked.items() if value}
    if asked:
        context["requirements"] = _object(context, "requirements") | asked
    if wishes.facts:
        context["key_facts"] = _object(context, "key_facts") | dict(map(_fact, wishes.facts))
    if not wishes.named:
        context.setdefault("source_agent", "cli")
    context.setdefault("user_intent", text)
    context.setdefault("conversation_summary", text)
    context.setdefault("key_facts", {})
    return context


def request_body(text: str, wishes: Wishes) -> bytes:
    """The same task in the native shape, for ``POST /api/resolve``. Raises ``Failed``."""
    return msgspec.json.encode({"task": text} | context_of(text, wishes))


def send(place: Place, text: str, files: list[Path], wishes: Wishes, *, stream: bool, as_json: bool) -> int:
    """Send the task and show what comes back; the exit code. Raises ``Failed``."""
    context = context_of(text, wishes)
    parts: list[dict[str, Any]] = [{"text": text}, *(_file_part(path) for path in files)]
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendStreamingMessage" if stream else "SendMessage",
        "params": {
            "message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts},
            "metadata": {"handoff_context": context},
        },
    }
    body = msgspec.json.encode(request)
    printer = Printer(as_json=as_json)
    with Broker(place) as broker:
        try:
            for result in _results(broker, body, stream=stream):
                printer.take(result)
        except KeyboardInterrupt:
            printer.note("stopped watching; the handoff goes on" + printer.hint())
            return INTERRUPTED
        except Failed as failed:
            goes_on = [f"  the handoff goes on{printer.hint()}"] if printer.task_id else []
            raise Failed(*failed.lines, *goes_on, code=failed.code) from None
        return printer.finish(broker)


def _results(broker: Broker, body: bytes, *, stream: bool) -> Iterator[bytes]:
    """Each ``result`` of the answer. Raises ``Failed`` for a JSON-RPC error."""
    answers = (
        broker.events("/", body, _VERSION)
        if stream
        else iter([broker.post("/", body, headers=_VERSION, wait_s=None)])
    )
    for answer in answers:
        fields = members_of(answer)
        if fields is None or not fields.keys() & {"result", "error"}:
            raise Failed(f"{broker.url} does not answer in JSON-RPC 2.0: is that a broker?", code=UNREACHABLE)
        if "error" in fields:
            raise rpc_refusal(msgspec.json.decode(fields["error"]))
        yield bytes(fields["result"])


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    data: Raw = Raw()
    url: str = ""
    raw: str = ""
    filename: str = ""
    media_type: str = ""


class _Message(msgspec.Struct):
    parts: list[_Part] = []


class _Status(msgspec.Struct):
    state: str = ""
    message: _Message | None = None


class _Artifact(msgspec.Struct, rename="camel"):
    artifact_id: str = ""
    parts: list[_Part] = []


class _Task(msgspec.Struct):
    id: str
    status: _Status
    artifacts: list[_Artifact] = []


class _StatusUpdate(msgspec.Struct, rename="camel"):
    task_id: str
    status: _Status


class _ArtifactUpdate(msgspec.Struct):
    artifact: _Artifact
    append: bool = False


class _Result(msgspec.Struct, rename="camel"):
    """As much of a ``StreamResponse`` (A2A 1.0 section 3.2.3) as is shown."""

    task: _Task | None = None
    message: _Message | None = None
    status_update: _StatusUpdate | None = None
    artifact_update: _ArtifactUpdate | None = None


class _SystemEvent(msgspec.Struct):
    type: Literal["system_event"]
    event: str = ""
    message: str = ""
    target_agent: str = ""


class Printer:
    """Shows the results of one task as they come."""

    def __init__(self, *, as_json: bool) -> None:
        self.task_id = ""
        self.state = ""
        self._as_json = as_json
        self._out: Console = show.console()
        self._notes: Console = show.console(stderr=True)
        self._artifact = ""
        self._in_line = False
        self._told_why = False

    def take(self, raw: bytes) -> None:
        """One result of a stream, or that of a blocking send. Raises ``Failed`` if it is not A2A."""
        try:
            result = msgspec.json.decode(raw, type=_Result)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Failed("the answer is not A2A 1.0: is that a broker?", code=UNREACHABLE) from None
        if self._as_json:
            self._out.out(msgspec.json.format(raw, indent=-1).decode())
        if result.task is not None:
            self._task(result.task)
        elif result.status_update is not None:
            self.task_id = result.status_update.task_id
            self._status(result.status_update.status)
        elif result.artifact_update is not None:
            self._chunk(result.artifact_update.artifact, append=result.artifact_update.append)
        elif result.message is not None:
            self._message(result.message)
            self.state = "completed"

    def finish(self, broker: Broker) -> int:
        """Say how it stands; the exit code. Raises ``Failed`` if it has not ended."""
        self._end_line()
        if self.state not in _STANDSTILL:
            raise Failed(
                "the stream ended before the task did; the handoff goes on" + self.hint(), code=UNREACHABLE
            )
        if self.task_id and not self._as_json:
            self._summary(broker)
        return 0 if self.state == "completed" else FAILED

    def hint(self) -> str:
        """How to look again, as the end of a sentence."""
        return f": a2a-handoff handoffs show {show.clean(self.task_id)}" if self.task_id else ""

    def note(self, text: str) -> None:
        """A short line beside the output."""
        if self._as_json:
            return
        self._end_line()
        self._notes.print(Text(show.clean(text), style="dim"))

    def _summary(self, broker: Broker) -> None:
        """State and ids as the broker has them; what the stream told if it cannot be asked."""
        try:
            handoff = broker.read(HandoffOut, broker.get(f"/api/handoffs/{self.task_id}"))
        except Failed:
            self.note(f"{self.state}  handoff {self.task_id}")
            return
        by = ""
        if handoff.state == "completed":
            done_by = self._leaf(broker, handoff).assigned_to
            by = f"by {done_by}  " if done_by else ""
        elif not self._told_why:
            for each in handoff.attempts:
                if each.outcome:
                    self.note(f"attempt {each.number} {each.agent_id}: {show.why(each.outcome, each.detail)}")
            if handoff.outcome:
                self.note(show.why(handoff.outcome, handoff.detail))
        ids = f"  {by}handoff {handoff.handoff_id}  trace {handoff.trace_url or handoff.trace_id}"
        self._notes.print(Text.assemble(show.state_text(handoff.state), show.clean(ids)))
        if handoff.state in ("input_required", "auth_required"):
            self.note("it waits for an answer: send a message with this id as its taskId")

    def _leaf(self, broker: Broker, handoff: HandoffOut) -> HandoffOut:
        """The handoff that carried the task in the end; as far down as the broker tells."""
        try:
            while handoff.leaf_id:
                handoff = broker.read(HandoffOut, broker.get(f"/api/handoffs/{handoff.leaf_id}"))
        except Failed:
            pass
        return handoff

    def _task(self, task: _Task) -> None:
        if not self.task_id:
            self.task_id = task.id
            self.note(f"handoff {task.id}")
        for artifact in task.artifacts:
            self._chunk(artifact, append=False)
        self._status(task.status)

    def _status(self, status: _Status) -> None:
        state = status.state.removeprefix(_STATE_PREFIX).lower()
        if status.message is not None:
            self._message(status.message)
        elif state not in {self.state, "submitted", *_STANDSTILL}:
            self.note(f"· {state}")
        self.state = state

    def _message(self, message: _Message) -> None:
        events = [event for part in message.parts if (event := _system_event(part))]
        for event in events:
            to = f" > {event.target_agent}" if event.target_agent else ""
            self.note(f"· {event.event}{to}" + (f": {event.message}" if event.message else ""))
            self._told_why = self._told_why or event.event in _ENDS
        told = {event.message for event in events}
        for part in message.parts:
            if _system_event(part) is None and part.text not in told:
                self._part(part)
        self._end_line()

    def _chunk(self, artifact: _Artifact, *, append: bool) -> None:
        if not (append and artifact.artifact_id == self._artifact):
            self._end_line()
            self._artifact = artifact.artifact_id
        for part in artifact.parts:
            self._part(part)

    def _part(self, part: _Part) -> None:
        if self._as_json:
            return
        if part.text is not None:
            text = show.clean(part.text)
            self._out.print(Text(text), end="")
            self._in_line = not text.endswith("\n")
            self._out.file.flush()
            return
        self._end_line()
        if bytes(part.data):
            self._out.print(show.readable(bytes(part.data)))
        elif part.url or part.raw:
            size = part.url or f"{len(part.raw) * 3 // 4} bytes"
            kind = part.media_type or "unknown type"
            self._out.print(Text(show.clean(f"[{part.filename or 'file'}, {kind}, {size}]")))

    def _end_line(self) -> None:
        if self._in_line:
            self._out.print()
            self._in_line = False


def _system_event(part: _Part) -> _SystemEvent | None:
    """What the broker tells of the handoff itself, if that is what the part is."""
    try:
        return msgspec.json.decode(part.data, type=_SystemEvent) if bytes(part.data) else None
    except msgspec.DecodeError:
        return None


def _object(context: dict[str, Any], name: str) -> dict[str, Any]:
    """An object of the context that an option adds to."""
    members = members_of(context.get(name, Raw(b"{}")))
    if members is None:
        raise Failed(f"--context: {name} must be an object", code=USAGE)
    return dict(members)


def _fact(text: str) -> tuple[str, Any]:
    """``name=value``; the value is JSON if it is, else text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise Failed(f"--fact: {text!r} must be name=value", code=USAGE)
    try:
        return name.strip(), msgspec.json.decode(value.encode(), type=Raw)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return name.strip(), value


def _file_part(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Failed(f"--file: {path}: {error.strerror}", code=USAGE) from None
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return {"raw": base64.b64encode(content).decode(), "filename": path.name, "mediaType": kind}
