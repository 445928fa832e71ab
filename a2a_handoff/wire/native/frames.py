"""The frames of the WebSocket: JSON objects, told apart by ``type``.

Duty: one model for each kind of frame, and writing those that the broker sends.
Rules: what a frame carries is what REST carries; a frame has a body of REST in it, or is one with ``type``,
``id`` and ``cursor`` beside its fields. ``id`` is the client's own and comes back as it came.
Not here: when a frame is sent (``transports.websocket``, ``bulletin``), what it carries (``inbound``,
``outbound``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Raw
from pydantic import BaseModel, Field, field_validator

from a2a_handoff.wire.native.inbound import ActionIn, AgentIn, BroadcastIn, HeartbeatIn, Inbound
from a2a_handoff.wire.native.outbound import AgentOut, BroadcastOut, HandoffOut, OfferOut, Outbound, Problem
from a2a_handoff.wire.native.raw import RawJson, RawObject

ID_BYTES_MAX = 200
#: Channels of broadcasts that one socket may name.
CHANNELS_MAX = 100

_ID = "Comes back in the answer as it came: a text or a number."
_CURSOR = "Where to go on from: pass the last one that came in the hello of the next socket."


def is_plain(request_id: bytes) -> bool:
    """Whether an id is a text or a number, and short."""
    return 0 < len(request_id) <= ID_BYTES_MAX and request_id[:1] in b'"-0123456789'


class _Asked(BaseModel):
    """What every frame of a client may have beside its own fields."""

    id: RawJson | None = Field(default=None, description=_ID)

    @field_validator("id")
    @classmethod
    def _plain(cls, value: Raw | None) -> Raw | None:
        if value is not None and (
            len(bytes(value)) > ID_BYTES_MAX or bytes(value)[:1] not in b'"-0123456789'
        ):
            raise ValueError(f"must be a text or a number of at most {ID_BYTES_MAX} bytes")
        return value


# --- from the client -----------------------------------------------------------------------------


class HelloFrame(AgentIn, _Asked):
    """The first frame: which agent this is, and what it wants to hear.

    With any field of ``POST /api/agents`` but ``agent_id``, ``instance_id`` and ``broadcasts`` it registers
    the agent; without, the agent must be known.
    """

    type: Literal["hello"]
    cursor: str = Field(default="", description="The cursor of the last frame that an earlier socket got.")
    events: bool = Field(default=False, description="Whether it hears what happens in its workspace.")
    channels: list[str] | None = Field(
        default=None,
        max_length=CHANNELS_MAX,
        description="Hear the broadcasts of these channels only; null: of all.",
    )

    @property
    def registers(self) -> bool:
        """Whether it is a registration."""
        said = self.model_fields_set & AgentIn.model_fields.keys()
        return bool(said - {"agent_id", "instance_id", "broadcasts"})


class ActFrame(ActionIn, _Asked):
    """What an agent does with a handoff; the body of ``POST /api/handoffs/{handoff_id}/{type}``."""

    type: Literal["accept", "decline", "progress", "complete", "fail", "release", "cancel"]
    handoff_id: str = Field(min_length=1, description="Which one.")


class CreateFrame(Inbound, _Asked):
    """A new handoff. Its ``message_id`` makes a repeat harmless."""

    type: Literal["create"]
    handoff: RawObject = Field(description="The body of POST /api/handoffs.")


class SayFrame(BroadcastIn, _Asked):
    """A broadcast; the body of ``POST /api/broadcasts``."""

    type: Literal["broadcast"]


class BeatFrame(HeartbeatIn, _Asked):
    """How the agent is doing; the body of ``POST /api/agents/{agent_id}/heartbeat``."""

    type: Literal["heartbeat"]


class PingFrame(Inbound, _Asked):
    """Asks for a ``pong``, for those who cannot send the ping of the protocol."""

    type: Literal["ping"]


class TokenFrame(Inbound, _Asked):
    """A new token, before the one that the socket came with expires. It must be of the same agent."""

    type: Literal["token"]
    token: str = Field(min_length=1, max_length=16_384)


#: The model of each kind of frame that a client sends.
FROM_CLIENT: Mapping[str, type[Inbound]] = MappingProxyType(
    {
        "hello": HelloFrame,
        **dict.fromkeys(ActFrame.model_fields["type"].annotation.__args__, ActFrame),  # type: ignore[union-attr]
        "create": CreateFrame,
        "broadcast": SayFrame,
        "heartbeat": BeatFrame,
        "ping": PingFrame,
        "token": TokenFrame,
    }
)


# --- from the broker -----------------------------------------------------------------------------


class _Answer(Outbound):
    """What answers a frame."""

    id: RawJson | None = Field(default=None, description="That of the frame that it answers.")


class WelcomeFrame(_Answer):
    """The answer to ``hello``: offers, broadcasts and events may come from now on."""

    type: Literal["welcome"]
    agent: AgentOut
    new: bool = Field(description="Whether the hello registered an agent that was not known.")
    cursor: str = Field(description=_CURSOR)
    ping_s: float = Field(description="How often the broker pings; who does not answer in as long is gone.")
    max_frame: int = Field(description="The largest frame that is read, in bytes.")


class OkFrame(_Answer):
    """A frame was obeyed. What it made or changed is in one of the fields."""

    type: Literal["ok"]
    handoff: HandoffOut | None = Field(default=None, description="For create and what is done with handoffs.")
    created: bool | None = Field(default=None, description="For create; false for a repeat.")
    broadcast: BroadcastOut | None = None
    agent: AgentOut | None = Field(default=None, description="For heartbeat.")


class ErrorFrame(_Answer):
    """A frame was refused and changed nothing. The socket stays open."""

    type: Literal["error"]
    problem: Problem


class PongFrame(_Answer):
    """The answer to ``ping``."""

    type: Literal["pong"]


class OfferFrame(OfferOut):
    """A handoff is offered, its context as the target gets it; what the long poll answers."""

    type: Literal["offer"]


class BroadcastFrame(BroadcastOut):
    """The workspace is told something."""

    type: Literal["broadcast"]
    cursor: str = Field(description=_CURSOR)


class Told(Outbound):
    """What follows from the log. ``position`` is the place of the event in it."""

    position: int = Field(description="The place in the log.")
    cursor: str = Field(description=_CURSOR)


class TakenFrame(Told):
    """An offer to this agent was accepted, by this socket or by another process of the agent."""

    type: Literal["taken"]
    handoff_id: str
    attempt: int
    instance_id: str = Field(default="", description="Which process has it, if it said.")


class RescindedFrame(Told):
    """An offer to this agent is withdrawn, or the task is not its own any more. Stop."""

    type: Literal["rescinded"]
    handoff_id: str
    attempt: int
    reason: str = Field(description="The outcome of the attempt, such as timeout, canceled or expired.")
    detail: str = ""


class CancelFrame(Told):
    """The caller wants a task stopped that this agent holds. Stop, and say so with ``release``."""

    type: Literal["cancel_requested"]
    handoff_id: str
    attempt: int
    reason: str = ""


class ReplyFrame(Told):
    """The caller answered what this agent asked."""

    type: Literal["reply"]
    handoff_id: str
    attempt: int
    message: RawObject = Field(description="An A2A message.")


class EventFrame(Told):
    """Something happened to a handoff of the workspace. Only for those who asked for events."""

    type: Literal["event"]
    event: str = Field(description="handoff:created, handoff:completed and the others of the page.")
    data: dict[str, Any] = Field(description="handoffId, and what belongs to the event.")


class ResyncFrame(Outbound):
    """The cursor meant nothing here, or lay too far back: read again what matters."""

    type: Literal["resync"]
    cursor: str = Field(description=_CURSOR)
    detail: str = Field(description="What is shown again, or was passed over.")


class LaggingFrame(Outbound):
    """The client reads too slowly: the socket closes with 4429. Nothing is lost; go on from the cursor."""

    type: Literal["lagging"]
    detail: str


class ClosingFrame(Outbound):
    """The broker closes the socket. ``code`` is that of the close frame which follows."""

    type: Literal["closing"]
    code: int
    detail: str


#: The model of each kind of frame that the broker sends.
FROM_BROKER: Mapping[str, type[Outbound]] = MappingProxyType(
    {
        "welcome": WelcomeFrame,
        "ok": OkFrame,
        "error": ErrorFrame,
        "pong": PongFrame,
        "offer": OfferFrame,
        "broadcast": BroadcastFrame,
        "taken": TakenFrame,
        "rescinded": RescindedFrame,
        "cancel_requested": CancelFrame,
        "reply": ReplyFrame,
        "event": EventFrame,
        "resync": ResyncFrame,
        "lagging": LaggingFrame,
        "closing": ClosingFrame,
    }
)


#: The names of events, after ``handoff:``, and what is in their data beside ``handoffId``.
EVENTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "created": ("targetAgent, task", "A task is handed off; targetAgent is who is asked first."),
        "offered": ("agent, attempt", "It was offered to an agent."),
        "accepted": ("agent, attempt", "The agent took it; the sender let go."),
        "input_required": ("", "The agent asks the caller something."),
        "auth_required": ("", "The agent asks the caller for a credential."),
        "handed_off": ("childId", "The agent passed it on."),
        "escalated": ("reason, detail", "Nobody took it: a person or a supervisor is asked."),
        "completed": ("result", "It is done."),
        "failed": ("reason, detail", "The agent failed it."),
        "returned": ("reason, detail", "It is with its sender again."),
        "canceled": ("", "It was canceled."),
        "expired": ("reason, detail", "Its deadline passed."),
    }
)


# --- writing -------------------------------------------------------------------------------------


def frame(kind: str, **fields: Any) -> bytes:
    """A frame of the broker. ``Raw`` values stay byte for byte."""
    return msgspec.json.encode({"type": kind, **fields})


def framed(kind: str, body: bytes) -> bytes:
    """A body of REST as a frame."""
    return b'{"type":"%b",%b' % (kind.encode(), body[1:])


def at_cursor(body: bytes, cursor: str) -> bytes:
    """A frame with the cursor after it."""
    return b'%b,"cursor":"%b"}' % (body[:-1], cursor.encode())
