"""The AgentCards that the broker serves: its own, and those of the faces of its agents.

Duty: one document that clients of every generation can read; its ETag.
Rules: the skills are those of the registered agents, so that a plain A2A client sees what it can get here.
Sources: A2A 1.0 section 4.4 and 8; AgentCard of 0.3; AgentCard of 0.1 for ``authentication``.
Not here: reading cards (``cards``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from a2a_handoff import __version__
from a2a_handoff.core.agents import Agent, Skill
from a2a_handoff.core.context import EXTENSION_URI

#: Before the id of an agent, the tenant by which gRPC 1.0 knows its face.
FACE_TENANT = "agents/"

#: How long clients may take a card for current (A2A 1.0 section 8.6.1).
CARD_CACHING = "max-age=60"

_SKILLS_MAX = 500
_MODES = ["text/plain", "application/json", "application/octet-stream"]

#: How callers say who they are: in the form of 1.0, with the members by which 0.3 has it beside them.
_SECURED: dict[str, Any] = {
    "securitySchemes": {
        "bearer": {
            "httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"},
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
        }
    },
    "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
    "security": [{"bearer": []}],
    "supportsAuthenticatedExtendedCard": True,
}

#: ``preferredTransport`` and ``additionalInterfaces`` are of 0.3, ``authentication`` is of 0.1.
_BINDINGS = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"))


def broker_card(
    url: str, agents: Sequence[Agent], *, grpc: str = "", secured: bool = False, tenant: str = ""
) -> tuple[bytes, str]:
    """The broker's own card at ``url``, and its ETag.

    ``grpc`` is where it is reached over gRPC. ``secured``: callers need a token. With ``tenant`` it is the
    extended card of that tenant (A2A 1.0 section 3.1.11): its addresses name it, for clients to say it again,
    and the params of our extension have every agent, with the address at which it is reached through here.
    """
    skills: dict[str, dict[str, Any]] = {}
    for agent in agents:
        for skill in agent.skills:
            if len(skills) < _SKILLS_MAX:
                skills.setdefault(skill.id, _skill(skill, agent))
    skills.setdefault(
        "handoff",
        {
            "id": "handoff",
            "name": "Handoff",
            "description": "Hands a task to the agent that advertises what it needs.",
            "tags": ["handoff", "routing"],
        },
    )
    description = (
        "Hands tasks to the best agent by advertised capability, makes sure that it is ready, and "
        "returns what nobody takes."
    )
    listed = [skills[name] for name in sorted(skills)]
    more = _grpc_interfaces(grpc)
    params = {"tenant": tenant, "agents": [_listed(url, agent) for agent in agents]} if tenant else None
    return _card(
        url,
        "a2a-handoff",
        description,
        __version__,
        listed,
        more,
        secured=secured,
        tenant=tenant,
        params=params,
    )


def face_card(url: str, agent: Agent, *, grpc: str = "", secured: bool = False) -> tuple[bytes, str]:
    """The card of the address at which the broker stands for one agent, and its ETag.

    gRPC has one address for all, so there the tenant says whose face it is; 0.3 has no tenants.
    """
    skills = [_skill(skill, agent) for skill in agent.skills]
    name = agent.name or agent.agent_id
    description = f"{name}, reached through the handoff broker."
    address = face_url(url, agent)
    interfaces = [
        interface | {"tenant": FACE_TENANT + agent.agent_id}
        for interface in _grpc_interfaces(grpc)
        if interface["protocolVersion"] == "1.0"
    ]
    version = agent.version or __version__
    return _card(address, name, description, version, skills, interfaces, secured=secured)


def face_url(url: str, agent: Agent) -> str:
    """Where the broker stands for an agent."""
    return f"{url}/agents/{quote(agent.agent_id, safe='')}"


def own_card(agent: Agent) -> tuple[bytes, str]:
    """An agent's own card as it came, so that its signature stays good, and its ETag."""
    return agent.card, etag_of(agent.card)


def _listed(url: str, agent: Agent) -> dict[str, Any]:
    return {
        "agentId": agent.agent_id,
        "name": agent.name or agent.agent_id,
        "url": face_url(url, agent),
        "platform": agent.platform,
        "workspace": agent.workspace,
        "capabilities": sorted(agent.capabilities),
        "domains": sorted(agent.domains),
        "skills": [skill.id for skill in agent.skills],
    }


def _skill(skill: Skill, agent: Agent) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": skill.id,
        "name": skill.name or skill.id,
        "description": f"{skill.name or skill.id}, by {agent.name or agent.agent_id}",
        "tags": list(skill.tags),
    }
    if skill.input_modes:
        shown["inputModes"] = list(skill.input_modes)
    if skill.output_modes:
        shown["outputModes"] = list(skill.output_modes)
    return shown


def _grpc_interfaces(address: str) -> list[dict[str, str]]:
    if not address:
        return []
    return [
        {"url": address, "protocolBinding": "GRPC", "protocolVersion": version} for version in ("1.0", "0.3")
    ]


def _card(
    url: str,
    name: str,
    description: str,
    version: str,
    skills: list[dict[str, Any]],
    more: list[dict[str, str]],
    *,
    secured: bool,
    tenant: str = "",
    params: dict[str, Any] | None = None,
) -> tuple[bytes, str]:
    address = url.rstrip("/") + "/"
    extension = {
        "uri": EXTENSION_URI,
        "description": "Handoffs: context, readiness, fallback, return to sender.",
        "required": False,
        **({} if params is None else {"params": params}),
    }
    of_tenant = {"tenant": tenant} if tenant else {}
    body = msgspec.json.encode(
        {
            "name": name,
            "description": description,
            "version": version,
            "supportedInterfaces": [
                {"url": _at(address, binding), "protocolBinding": binding, "protocolVersion": generation}
                | of_tenant
                for binding, generation in _BINDINGS
            ]
            + [interface | of_tenant for interface in more],
            "capabilities": {
                "streaming": True,
                "pushNotifications": True,
                "stateTransitionHistory": False,
                "extensions": [extension],
                "extendedAgentCard": secured,
            },
            "defaultInputModes": _MODES,
            "defaultOutputModes": _MODES,
            "skills": skills,
            "url": address,
            "preferredTransport": "JSONRPC",
            "protocolVersion": "0.3.0",
            "additionalInterfaces": [
                {"url": _at(address, binding), "transport": binding} for binding in ("JSONRPC", "HTTP+JSON")
            ]
            + [
                {"url": interface["url"], "transport": "GRPC"}
                for interface in more
                if interface["protocolVersion"] == "0.3"
            ],
            "provider": {"organization": "a2a-handoff", "url": address},
            "authentication": {"schemes": ["Bearer"] if secured else []},
            **(_SECURED if secured else {}),
        }
    )
    return body, etag_of(body)


def etag_of(body: bytes) -> str:
    """The strong validator of a card (RFC 9110 section 8.8.3)."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _at(address: str, binding: str) -> str:
    """Clients of HTTP+JSON append paths that begin with a slash (A2A 1.0 section 11.3)."""
    return address if binding == "JSONRPC" else address.rstrip("/")
