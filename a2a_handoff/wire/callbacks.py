"""What an agent says when it calls back.

Duty: read a notification of any generation as an ``Update``.
Rules: what a notification is, is told by its fields, for servers are known that speak one generation and
notify in another. One that cannot be read is a hint all the same: the update is empty then, and the agent is
asked.
Sources: A2A 1.0 section 4.3.3 (a StreamResponse); the 0.3 specification section 9.5 and ``a2a.json`` of 0.1
(the task).
Not here: the answers of agents (``answers``), what our own webhooks are told (``push``).
"""

from __future__ import annotations

import msgspec

from a2a_handoff.core.agents import Agent, Binding, Generation
from a2a_handoff.ports import AgentError, Update
from a2a_handoff.wire.answers import update_of


class _Shape(msgspec.Struct, rename="camel"):
    """The fields by which the generations differ."""

    task: msgspec.Raw = msgspec.Raw(b"")
    message: msgspec.Raw = msgspec.Raw(b"")
    status_update: msgspec.Raw = msgspec.Raw(b"")
    artifact_update: msgspec.Raw = msgspec.Raw(b"")
    kind: str | None = None
    context_id: str | None = None
    session_id: str | None = None


_shape = msgspec.json.Decoder(_Shape)


def notification_of(body: bytes, agent: Agent) -> Update:
    """What a notification of ``agent`` says; an empty update if that cannot be read."""
    try:
        shape = _shape.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Update()
    spoken = {interface.generation for interface in agent.interfaces}
    wrapped = any(map(bytes, (shape.task, shape.message, shape.status_update, shape.artifact_update)))
    if wrapped and Generation.V1_0 not in spoken and _of_the_proto(agent):
        return Update()  # its parts may be those of the 0.3 proto, which look like others of 1.0
    if wrapped:
        generation = Generation.V1_0
    elif shape.kind is not None:
        generation = Generation.V0_3
    elif shape.session_id is not None or (Generation.V0_1 in spoken and shape.context_id is None):
        generation = Generation.V0_1
    else:
        generation = Generation.V1_0 if Generation.V1_0 in spoken else Generation.V0_3
    try:
        return update_of(body, generation, Binding.JSONRPC)
    except AgentError:
        return Update()


def _of_the_proto(agent: Agent) -> bool:
    return any(interface.binding is not Binding.JSONRPC for interface in agent.interfaces)
