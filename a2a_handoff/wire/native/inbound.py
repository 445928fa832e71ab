"""What comes in on the native surfaces: registrations, new handoffs, what agents do with them.

Duty: one model for each request body, and folding the three shapes of a new handoff into message and
context.
Rules: names are snake case; camelCase is read too. Payloads stay byte for byte. What a model does not
know is kept in ``model_extra`` so that an answer can warn of it.
Not here: checking a handoff context (``wire.context``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Raw
from pydantic import (
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
)
from pydantic.alias_generators import to_camel

from a2a_handoff.core.agents import Registration, Role, Status
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.score import RECEIPT_BYTES_MAX
from a2a_handoff.wire.fields import members_of
from a2a_handoff.wire.messages import faults_of
from a2a_handoff.wire.native.raw import ContextArray, ContextObject, RawArray, RawJson, RawObject, raw
from a2a_handoff.wire.shapes import artifact_faults, fields_of, pack

#: The largest count, and the longest lease: a week.
COUNT_MAX = 2**31 - 1
LEASE_S_MAX = 604_800.0

_array = msgspec.json.Decoder(list[Raw])


def _either(name: str) -> AliasChoices:
    return AliasChoices(name, to_camel(name))


def _whole(value: Any) -> Any:
    """``5.0`` is the integer 5 (protobuf ``Struct`` knows no integers); nothing else is coerced."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole), Field(le=COUNT_MAX)]


class Inbound(BaseModel):
    """A request body. A null is a field that is not set; ``"5"`` is no number."""

    model_config = ConfigDict(
        strict=True,
        alias_generator=AliasGenerator(validation_alias=_either),
        extra="allow",
        hide_input_in_errors=True,
        frozen=True,
    )

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Fields that mean nothing here, for a warning."""
        return tuple(self.model_extra or ())


class AgentIn(Inbound):
    """A registration. A push agent has a card or a card_url; an agent without fetches its work."""

    agent_id: str = Field(
        default="",
        description="The agent's own name; a known one is updated. By default made of the card's name.",
    )
    platform: str = Field(
        default="", description="Where it runs; implies capabilities: cowork, external, cursor, claude-code."
    )
    workspace: str = Field(
        default="", description="Agents of other workspaces are never matched; empty: default."
    )
    instance_id: str = Field(default="", description="This process of the agent.")
    session_number: Count = Field(default=0, ge=0, description="The agent's own count of sessions.")
    capabilities: dict[str, bool | list[str]] = Field(
        default_factory=dict,
        description="Switches over the defaults of the platform: {canBrowse: true}; domains is a list.",
    )
    role: Role | None = Field(
        default=None,
        strict=False,
        description="agent, human or supervisor; by default the card's, else agent.",
    )
    card: RawObject | None = Field(default=None, description="An A2A AgentCard, kept byte for byte.")
    card_url: str = Field(default="", description="Where to fetch the card; a base address will do.")
    max_concurrency: Count | None = Field(
        default=None, ge=1, description="Handoffs at a time; null: no limit."
    )
    lease_s: float | None = Field(
        default=None,
        gt=0,
        le=LEASE_S_MAX,
        description="Seconds that a pull agent may be silent; null: the setting.",
    )
    token_budget: Count | None = Field(
        default=None, ge=1, description="Tokens of context that the agent takes at most."
    )
    broadcasts: bool = Field(default=True, description="Whether it hears what its workspace is told.")
    metadata: RawObject | None = Field(default=None, description="The owner's own notes; kept, not read.")

    def registration(self) -> Registration:
        """What was said of the agent. Raises ``HandoffError`` (``invalid_agent``)."""
        switches = {name: value for name, value in self.capabilities.items() if isinstance(value, bool)}
        domains = self.capabilities.get("domains", [])
        wrong = [
            Violation(f"capabilities.{name}", "must be true or false")
            for name, value in self.capabilities.items()
            if name != "domains" and not isinstance(value, bool)
        ]
        if not isinstance(domains, list):
            wrong.append(Violation("capabilities.domains", "must be a list of names"))
        if wrong or not isinstance(domains, list):
            raise HandoffError(Code.INVALID_AGENT, violations=tuple(wrong))
        return Registration(
            agent_id=self.agent_id,
            platform=self.platform,
            workspace=self.workspace,
            role=self.role,
            instance_id=self.instance_id,
            session_number=self.session_number,
            capabilities=switches,
            domains=tuple(domains),
            max_concurrency=self.max_concurrency,
            token_budget=self.token_budget,
            lease_s=self.lease_s,
            broadcasts=self.broadcasts,
            card=bytes(self.card or b""),
            card_url=self.card_url,
            metadata=bytes(self.metadata or b"{}"),
        )


class HeartbeatIn(Inbound):
    """A sign of life."""

    status: Status = Field(
        default=Status.ONLINE, strict=False, description="online, idle, busy, draining or offline."
    )
    in_flight: Count | None = Field(
        default=None, ge=0, description="What the agent is working on, elsewhere too."
    )


_CONTEXT_FIELDS = (
    "correlation_id",
    "source_agent",
    "target_agent",
    "handoff_reason",
    "conversation_summary",
    "user_intent",
    "key_facts",
    "task_progress",
    "user_preferences",
    "context_ref",
    "hop_count",
    "handoff_chain",
    "requirements",
    "signals",
    "mode",
    "priority",
    "fallback",
    "replay_safe",
    "deadline",
    "wait_for_agent",
    "parent_handoff_id",
    "context_overflow",
    "context_profile",
    "transcript",
    "traceparent",
)

#: A ``context`` with one of these is a handoff context; any other is key facts.
_MARKS = frozenset({"conversation_summary", "user_intent", "key_facts"})


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    messageId: str = ""  # noqa: N815 - the name of A2A
    parts: list[_Part] = []


class HandoffIn(Inbound):
    """A new handoff, or a question who would get it.

    Three shapes are read: the native one; ``{targetAgent, task, context, priority}``; and
    ``{fromAgent, toAgentType, toAgentId, type, summary, tasks[], workspace}``. ``task`` or ``summary``
    gives intent and summary where those are not given; ``context`` gives the key facts, unless it is a
    handoff context itself, whose fields then stand in for those that are not given beside it.
    """

    task: str = Field(default="", description="What is to be done, in words; becomes the message.")
    summary: str = Field(default="", description="The same, as the second source shape calls it.")
    message: RawJson | None = Field(default=None, description="An A2A message, or its text.")
    context: RawObject | None = Field(default=None, description="Key facts, or a whole handoff context.")
    source_agent: RawJson | None = Field(
        default=None,
        validation_alias=AliasChoices("source_agent", "sourceAgent", "from_agent", "fromAgent"),
        description="Who hands off; by default the caller.",
    )
    target_agent: RawJson | None = Field(
        default=None,
        validation_alias=AliasChoices("target_agent", "targetAgent", "to_agent_id", "toAgentId"),
        description="A certain agent. Without it, capabilities decide.",
    )
    agent_type: str = Field(
        default="",
        validation_alias=AliasChoices("agent_type", "agentType", "to_agent_type", "toAgentType"),
        description="browser, code, an agent id or a platform.",
    )
    type: str = Field(
        default="", description="The sender's own word for the kind of work; becomes a key fact."
    )
    tasks: RawArray | None = Field(default=None, description="The steps; become a key fact.")
    workspace: str = Field(default="default", description="Only agents of this workspace are matched.")
    requirements: ContextObject | None = Field(
        default=None,
        description="agent_type, capabilities[], skill, domain, tags[], platform, "
        "input_modes[], output_modes[].",
    )
    signals: ContextObject | None = Field(
        default=None,
        description="intent, sentiment_score, complexity_score, risk_level, language, completion_estimate.",
    )
    mode: RawJson | None = Field(default=None, description="transfer or delegate.")
    priority: RawJson | None = Field(default=None, description="low, normal, high or urgent.")
    deadline: RawJson | None = Field(default=None, description="An RFC 3339 time with an offset.")
    replay_safe: RawJson | None = Field(default=None, description="Running the task twice does no harm.")
    wait_for_agent: RawJson | None = Field(
        default=None, description="Seconds to wait for an agent that is absent."
    )
    fallback: ContextArray | None = Field(
        default=None, description="Agents to try if target_agent does not take it."
    )
    parent_handoff_id: RawJson | None = Field(
        default=None, description="The handoff that this one continues."
    )
    correlation_id: RawJson | None = Field(default=None, description="The chain; a new one by default.")
    handoff_reason: RawJson | None = Field(
        default=None, description="capability_boundary, specialization, escalation or load_balancing."
    )
    conversation_summary: RawJson | None = Field(default=None, description="What was said so far.")
    user_intent: RawJson | None = Field(default=None, description="What the user wants, in explicit words.")
    key_facts: ContextObject | None = Field(default=None, description="Entities, amounts, references.")
    task_progress: ContextObject | None = Field(default=None, description="{step, total, completed[]}.")
    user_preferences: ContextObject | None = Field(default=None, description="Language, tone, constraints.")
    context_ref: RawJson | None = Field(default=None, description="Where the sender keeps the whole context.")
    hop_count: RawJson | None = Field(default=None, description="Hops so far, by the sender's count.")
    handoff_chain: ContextArray | None = Field(
        default=None, description="The agents that held the task so far."
    )
    context_overflow: RawJson | None = Field(default=None, description="refuse or trim.")
    context_profile: RawJson | None = Field(default=None, description="minimal or rich.")
    transcript: RawJson | None = Field(
        default=None, description="The whole conversation; stored, not sent on."
    )
    traceparent: RawJson | None = Field(default=None, description="The sender's span (W3C Trace Context).")
    message_id: str = Field(
        default="", description="Makes the request idempotent, like the header Idempotency-Key."
    )
    context_id: str = Field(default="", description="The A2A contextId of the conversation.")

    @property
    def own_message_id(self) -> str:
        """The id that the message has by itself; empty if there is none."""
        try:
            return msgspec.json.decode(self.message or b"{}", type=_Message).messageId
        except msgspec.DecodeError:
            return ""

    @property
    def text(self) -> str:
        """What is to be done, in words: the task, the summary, or the text of the message."""
        if self.task or self.summary:
            return self.task or self.summary
        if self.message is None:
            return ""
        try:
            if bytes(self.message)[:1] == b'"':
                return msgspec.json.decode(self.message, type=str)
            parts = msgspec.json.decode(self.message, type=_Message).parts
        except msgspec.DecodeError:
            return ""
        return "\n".join(part.text for part in parts if part.text)

    def message_json(self, message_id: str) -> bytes:
        """The task's message as A2A 1.0 JSON: the one that was given, else one made of the text.

        Steps and plain facts go along as a data part, so that agents that know nothing of handoffs
        see them too. Raises ``HandoffError`` (``invalid_params``) if there is neither, or no A2A message.
        """
        if self.message is not None and bytes(self.message)[:1] != b'"':
            return _whole_message(self.message, message_id, "ROLE_USER")
        if not self.text:
            raise HandoffError(
                Code.INVALID_PARAMS,
                "A handoff needs a task, a summary or a message.",
                violations=(Violation("task", "is missing"),),
            )
        parts: list[dict[str, Any]] = [{"text": self.text}]
        data = {"tasks": self.tasks} if self.tasks is not None else {}
        if self.context is not None and not self._whole_context():
            data["context"] = self.context
        if data:
            parts.append({"data": data})
        message: dict[str, Any] = {"messageId": message_id, "role": "ROLE_USER", "parts": parts}
        if self.context_id:
            message["contextId"] = self.context_id
        return msgspec.json.encode(message)

    def handoff_context(self) -> bytes:
        """The ``handoff_context`` object that this body amounts to; its values are as they came."""
        whole = self._whole_context()
        fields: dict[str, Raw] = dict(whole)
        for name in _CONTEXT_FIELDS:
            value: Raw | None = getattr(self, name)
            if value is not None:
                fields[name] = value
        requirements = members_of(fields.get("requirements", Raw(b"{}")))
        if self.agent_type and requirements is not None:
            fields["requirements"] = raw({"agent_type": self.agent_type} | requirements)
        facts = members_of(fields.get("key_facts", Raw(b"{}")))
        more = self._facts_beside(whole)
        if more and facts is not None:
            fields["key_facts"] = raw(more | facts)
        if self.text:
            fields.setdefault("key_facts", Raw(b"{}"))
            fields.setdefault("user_intent", raw(self.text))
            fields.setdefault("conversation_summary", raw(self.summary or self.text))
        return msgspec.json.encode(fields)

    def _facts_beside(self, whole: Mapping[str, Raw]) -> dict[str, Raw]:
        """What the older shapes say beside the key facts."""
        facts: dict[str, Raw] = {}
        if self.type:
            facts["type"] = raw(self.type)
        if self.tasks is not None:
            facts["tasks"] = self.tasks
        if self.context is not None and not whole:
            facts |= members_of(self.context) or {}
        return facts

    def _whole_context(self) -> dict[str, Raw]:
        if self.context is None:
            return {}
        fields = members_of(self.context) or {}
        return fields if _MARKS & fields.keys() else {}


class ActionIn(Inbound):
    """Body of accept, decline, progress, complete, fail, release and cancel."""

    agent_id: str = Field(default="", description="Who acts; may be left out if the caller is known.")
    attempt: Count = Field(
        default=0, ge=0, description="The attempt it belongs to; 0 is the caller's current one."
    )
    instance_id: str = Field(
        default="",
        max_length=200,
        description="For accept: which process of the agent; of several the first has it.",
    )
    reason: str = Field(
        default="", max_length=2_000, description="Why; for decline, fail, release and cancel."
    )
    result: RawJson | None = Field(default=None, description="Text or any JSON; becomes an artifact.")
    artifacts: RawArray | None = Field(default=None, description="A2A 1.0 artifacts.")
    message: RawJson | None = Field(default=None, description="An A2A message to the caller, or its text.")
    state: Literal["working", "input_required", "auth_required"] = Field(
        default="working", description="For progress: whether the agent waits for the caller."
    )
    receipt: RawObject | None = Field(default=None, description="For accept: what arrived of the context.")

    @field_validator("receipt")
    @classmethod
    def _short(cls, value: Raw | None) -> Raw | None:
        if value is not None and len(bytes(value)) > RECEIPT_BYTES_MAX:
            raise ValueError(f"must be an object of at most {RECEIPT_BYTES_MAX} bytes")
        return value

    def message_json(self, message_id: str) -> bytes:
        """What the agent says, as an A2A 1.0 message; empty if nothing.

        Raises ``HandoffError`` (``invalid_params``) for an object that is no message.
        """
        if self.message is None or bytes(self.message) == b"null":
            return b""
        if bytes(self.message)[:1] == b"{":
            return _whole_message(self.message, message_id, "ROLE_AGENT")
        return msgspec.json.encode(
            {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{_kind(self.message): self.message}]}
        )

    def artifact_jsons(self, artifact_id: str) -> tuple[bytes, ...]:
        """The artifacts as A2A 1.0 JSON; ``result`` becomes one named ``artifact_id``, the last.

        Raises ``HandoffError`` (``invalid_params``) for what is no artifact.
        """
        given = tuple(bytes(each) for each in _array.decode(self.artifacts or b"[]"))
        for number, artifact in enumerate(given):
            _refuse(f"artifacts[{number}]", artifact_faults(artifact))
        if self.result is None or bytes(self.result) == b"null":
            return given
        parts = [{_kind(self.result): self.result}]
        return (*given, msgspec.json.encode({"artifactId": artifact_id, "name": "result", "parts": parts}))


class BroadcastIn(Inbound):
    """A message to every agent of a workspace but the sender."""

    channel: str = Field(min_length=1, max_length=200, description="Such as general or urgent.")
    message: str = Field(min_length=1, description="What is said.")
    data: RawObject | None = Field(default=None, description="More, for programs.")
    source_agent: str = Field(
        default="",
        validation_alias=AliasChoices("source_agent", "sourceAgent", "from_agent", "fromAgent"),
        description="Who says it; by default the caller.",
    )
    workspace: str = Field(default="", description="Who hears it; by default the workspace of the sender.")


def _whole_message(given: Raw, message_id: str, role: str) -> bytes:
    """A message that was given whole; its id and its role are filled in if they are not there."""
    if bytes(given)[:1] != b"{":
        _refuse("message", (Violation("", "must be a Message, or its text"),))
    fields = fields_of(given)
    if "messageId" not in fields or "role" not in fields:
        message = pack({"messageId": message_id, "role": role, **fields})
    else:
        message = bytes(given)
    _refuse("message", faults_of(message))
    return message


def _refuse(path: str, faults: Sequence[Violation]) -> None:
    if faults:
        found = tuple(
            Violation(f"{path}.{fault.field}" if fault.field else path, fault.description) for fault in faults
        )
        text = f"{found[0].field} {found[0].description}."
        raise HandoffError(Code.INVALID_PARAMS, f"Invalid parameters: {text}", violations=found)


def _kind(value: Raw) -> str:
    return "text" if bytes(value)[:1] == b'"' else "data"
