"""AgentCards of every generation, and registrations, as core agents.

Duty: from the raw bytes of a card (and what a registration says over it) to an ``Agent``; faults with
line and column for authors of cards; the identity of an address.
Rules: the bytes are kept as they came. A bad card fails here and nowhere else.
Not here: what the fields of a card mean (``card_reader``), fetching (``client``), storing
(``registry``).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from a2a_handoff.core.agents import (
    Agent,
    Registration,
    Role,
    Signature,
    effective_capabilities,
    fold,
)
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.text import name_fault
from a2a_handoff.wire.card_lints import lint
from a2a_handoff.wire.card_reader import CardFacts, read_facts
from a2a_handoff.wire.card_values import FINDINGS_MAX, Finding, Severity
from a2a_handoff.wire.envelope import open_object
from a2a_handoff.wire.positions import Positions, positions_of
from a2a_handoff.wire.signatures import known_fields

CARD_BYTES_MAX = 1_048_576
METADATA_BYTES_MAX = 65_536
DEFAULT_LEASE_S = 1_800.0

_UNCHECKED = Signature()

_DEFAULT_PORTS = {"http": 80, "https": 443}
#: They would end or change the path of ``/agents/{agent_id}/``.
_NOT_IN_IDS = re.compile(r"[/\\?#%,]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a card's text. Line and column count from 1; ``path`` is as in a violation."""

    line: int
    column: int
    path: str
    severity: Severity
    message: str


def check(text: str) -> list[Fault]:
    """Everything that is wrong with the text of a card, and what might be better, in its order.

    Without errors the card is good.
    """
    if len(text.encode(errors="surrogatepass")) > CARD_BYTES_MAX:
        return [_fault(text, 0, "", Severity.ERROR, f"the card is larger than {CARD_BYTES_MAX} bytes")]
    try:
        positions = positions_of(text)
        document = json.loads(text)
    except json.JSONDecodeError as error:
        return [_fault(text, error.pos, "", Severity.ERROR, f"not JSON: {error.msg}")]
    faults = [
        _fault(text, at, path, Severity.ERROR, "the name is used twice in one object")
        for path, at in positions.repeated
    ]
    facts, findings = read_facts(document)
    return located(text, [*findings, *lint(document, facts)], faults, positions)


def located(
    text: str, findings: Sequence[Finding], faults: Iterable[Fault] = (), positions: Positions | None = None
) -> list[Fault]:
    """Findings at their places in the text of a card, in its order; ``faults`` have theirs."""
    where = positions or (positions_of(text) if findings else Positions())
    found = [*faults, *(_fault(text, where.of(f.path), f.path, f.severity, f.message) for f in findings)]
    return sorted(found, key=lambda fault: (fault.line, fault.column))


def _fault(text: str, at: int, path: str, severity: Severity, message: str) -> Fault:
    line, column = _line_of(text, at)
    return Fault(line=line, column=column, path=path, severity=severity, message=message)


def _line_of(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def read_card(raw: bytes, *, found_at: str = "", path: str = "") -> tuple[CardFacts, tuple[str, ...]]:
    """What a card says, and the warnings about it. ``path`` leads the paths of violations.

    Raises ``HandoffError``: ``payload_too_large``, ``invalid_agent`` with every fault.
    """
    if len(raw) > CARD_BYTES_MAX:
        raise HandoffError(
            Code.PAYLOAD_TOO_LARGE, f"The card has {len(raw)} bytes, at most {CARD_BYTES_MAX} are taken."
        )
    try:
        open_object(raw)
        document = json.loads(raw, object_pairs_hook=_once)
    except (HandoffError, ValueError, RecursionError):
        raise _refused(_unreadable(raw), path) from None
    facts, findings = read_facts(document, found_at=found_at)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise _refused(errors, path)
    return facts, tuple(f"{_join(path, f.path)}: {f.message}" for f in findings)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError
    return members


def _unreadable(raw: bytes) -> list[Finding]:
    """Why a card is no JSON that has one meaning, and where."""
    try:
        text = raw.decode()
        positions = positions_of(text)
    except UnicodeDecodeError as error:
        return [Finding("", f"is not UTF-8 at byte {error.start}", Severity.ERROR)]
    except json.JSONDecodeError as error:
        line, column = _line_of(error.doc, error.pos)
        text = f"is not JSON: line {line}, column {column}: {error.msg}"
        return [Finding("", text, Severity.ERROR)]
    twice = [
        Finding(
            path,
            "is used twice in one object, again at line {}, column {}".format(*_line_of(text, at)),
            Severity.ERROR,
        )
        for path, at in positions.repeated[:FINDINGS_MAX]
    ]
    return twice or [Finding("", "is not a JSON object that can be read", Severity.ERROR)]


def _refused(errors: list[Finding], path: str) -> HandoffError:
    violations = tuple(Violation(_join(path, error.path) or "card", error.message) for error in errors)
    return HandoffError(Code.INVALID_AGENT, violations=violations)


def _join(path: str, inner: str) -> str:
    return f"{path}.{inner}" if path and inner else path or inner


# --- agents --------------------------------------------------------------------------------------


def agent_of(
    said: Registration,
    *,
    tenant: str,
    now: float,
    lease_s: float = DEFAULT_LEASE_S,
    found_at: str = "",
    etag: str = "",
    signature: Signature = _UNCHECKED,
) -> tuple[Agent, tuple[str, ...]]:
    """The agent that a registration describes, and warnings about its card.

    What the registration says goes over the card, and that over the platform. Without an agent id the
    card's name makes one. ``found_at`` and ``etag`` are those of a fetched card. What a ``signature`` is not
    over is not read. Raises ``HandoffError`` (``invalid_agent``, ``payload_too_large``).
    """
    facts, warnings = CardFacts(), ()
    if said.card:
        facts, warnings = read_card(said.card, found_at=found_at, path="card")
        if signature.partial:
            signed, _ = read_card(known_fields(said.card), found_at=found_at, path="card")
            if signed != facts:
                warnings = (*warnings, "card: fields that its signature does not cover were not read")
            facts = signed
    agent_id = unicodedata.normalize("NFC", said.agent_id or slug(facts.name))
    wrong = _registration_faults(said, agent_id)
    if wrong:
        raise HandoffError(Code.INVALID_AGENT, violations=wrong)
    platform = said.platform or facts.platform
    agent = Agent(
        agent_id=agent_id,
        tenant=tenant,
        workspace=said.workspace or facts.workspace or "default",
        platform=platform,
        role=said.role or facts.role or Role.AGENT,
        instance_id=said.instance_id or facts.instance_id,
        session_number=said.session_number or facts.session_number,
        name=facts.name or agent_id,
        version=facts.version,
        capabilities=effective_capabilities(platform, {**facts.capabilities, **said.capabilities}),
        domains=tuple(dict.fromkeys((*said.domains, *facts.domains))),
        skills=facts.skills,
        input_modes=facts.input_modes,
        output_modes=facts.output_modes,
        interfaces=facts.interfaces,
        streaming=facts.streaming,
        push_notifications=facts.push_notifications,
        speaks_handoff=facts.speaks_handoff,
        required_extensions=facts.required_extensions,
        token_budget=said.token_budget or facts.token_budget,
        max_concurrency=said.max_concurrency or facts.max_concurrency,
        lease_s=said.lease_s or facts.lease_s or lease_s,
        broadcasts=said.broadcasts is not False,
        card=said.card,
        card_url=found_at,
        card_etag=etag,
        card_problem=facts.problem,
        signature=signature,
        metadata=said.metadata,
        registered_at=now,
    )
    return agent, warnings


def _registration_faults(said: Registration, agent_id: str) -> tuple[Violation, ...]:
    wrong: list[Violation] = []
    if not agent_id:
        wrong.append(Violation("agent_id", "is missing, and the card has no name to make one of"))
    elif fault := id_fault(agent_id):
        wrong.append(Violation("agent_id", fault))
    names = {
        "platform": said.platform,
        "workspace": said.workspace,
        "instance_id": said.instance_id,
        **{f"capabilities.{name}": name for name in said.capabilities},
        **{f"capabilities.domains[{index}]": name for index, name in enumerate(said.domains)},
    }
    for field, name in names.items():
        fault = (
            name_fault(name)
            if name
            else ""
            if field in ("platform", "workspace", "instance_id")
            else "is empty"
        )
        if fault:
            wrong.append(Violation(field, fault))
    if len(said.metadata) > METADATA_BYTES_MAX:
        wrong.append(Violation("metadata", f"is larger than {METADATA_BYTES_MAX} bytes"))
    return tuple(wrong)


def id_fault(agent_id: str) -> str:
    """Why a text cannot be the id of an agent; empty if it can."""
    if _NOT_IN_IDS.search(agent_id):
        return "must not contain / \\ ? # % or a comma"
    if agent_id.strip(".") == "":
        return "must not be dots alone"
    return name_fault(agent_id)


def slug(name: str) -> str:
    """An agent id made of a card's name: ``Billing Agent (EU)`` gives ``billing-agent-eu``."""
    return re.sub(r"[^\w]+", "-", fold(name)).strip("-_")[:100]


def canonical_url(url: str) -> str:
    """The form by which two addresses are the same endpoint (RFC 3986 section 6.2).

    Case of scheme and host, the default port, a slash at the end and the fragment do not matter.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return url
    if not host:
        return url
    scheme = parts.scheme.lower()
    shown = f"[{host}]" if ":" in host else host
    netloc = shown if port is None or port == _DEFAULT_PORTS.get(scheme) else f"{shown}:{port}"
    return urlunsplit((scheme, netloc, parts.path.rstrip("/"), parts.query, ""))
