"""What an AgentCard says, of whatever generation, with every fault at its place.

Duty: from the decoded JSON of a card to ``CardFacts``.
Rules: the raw JSON is read, not what an SDK keeps of it: our capabilities may stand in fields that it
drops. What is harmless is accepted and normalised (``null`` lists, a single tag as text, repeated
skills, snake_case names, which ProtoJSON allows); a wrong type where it matters is an error, with its
path; what the specification asks for and the broker can do without is a warning.
Sources: A2A 1.0 section 4.4, the 0.3 schema, ``a2a.json`` of 0.1.
Not here: bytes, line numbers and registrations (``cards``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, cast
from urllib.parse import urljoin, urlsplit, urlunsplit

from a2a_handoff.core.agents import Binding, Generation, Interface, Role, Skill, fold, skeleton
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.text import NAME_CHARS_MAX, name_fault
from a2a_handoff.wire.card_values import LIST_MAX, Finding, ValueReader, member

SKILLS_MAX = 1_000
URL_MAX = 2_048

#: What the ids and tags of skills mean in cards that know nothing of our extension.
SYNONYMS: Mapping[str, str] = {
    "browse": "canBrowse",
    "editfiles": "canEditFiles",
    "executecode": "canExecuteCode",
    "testui": "canTestUI",
}

#: Bindings that the broker can deliver by. That of gRPC needs a library that is an extra.
SPOKEN = frozenset(Binding) if find_spec("grpc") is not None else frozenset(Binding) - {Binding.GRPC}

#: How cards write the bindings.
BINDINGS = {
    "jsonrpc": Binding.JSONRPC,
    "httpjson": Binding.HTTP_JSON,
    "rest": Binding.HTTP_JSON,
    "grpc": Binding.GRPC,
}
_WELL_KNOWN = re.compile(r"/\.well-known/agent(?:-card)?\.json$")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.|$)")
#: What each generation requires of a card.
REQUIRED: Mapping[Generation, tuple[str, ...]] = {
    Generation.V1_0: (
        "name", "description", "supportedInterfaces", "version", "capabilities",
        "defaultInputModes", "defaultOutputModes", "skills",
    ),
    Generation.V0_3: (
        "name", "description", "url", "version", "protocolVersion", "capabilities",
        "defaultInputModes", "defaultOutputModes", "skills",
    ),
    Generation.V0_1: ("name", "url", "version", "capabilities", "skills"),
}  # fmt: skip
_STANDARD_CAPABILITIES = frozenset(
    {"streaming", "pushnotifications", "statetransitionhistory", "extensions", "extendedagentcard"}
)
#: Marks of 0.2 and later in a card without a version; the first generation has none of them.
_LATER = (
    "preferredTransport", "additionalInterfaces", "securitySchemes", "security",
    "supportsAuthenticatedExtendedCard",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a card says. ``None`` and empty: nothing. ``problem`` is that of ``Agent.card_problem``."""

    name: str = ""
    version: str = ""
    interfaces: tuple[Interface, ...] = ()
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    streaming: bool = False
    push_notifications: bool = False
    speaks_handoff: bool = False
    required_extensions: tuple[str, ...] = ()
    capabilities: Mapping[str, bool] = field(default_factory=dict[str, bool])
    domains: tuple[str, ...] = ()
    platform: str = ""
    role: Role | None = None
    workspace: str = ""
    instance_id: str = ""
    session_number: int = 0
    max_concurrency: int | None = None
    token_budget: int | None = None
    lease_s: float | None = None
    problem: str = ""


def read_facts(document: Any, *, found_at: str = "") -> tuple[CardFacts, list[Finding]]:
    """Read a decoded card. ``found_at`` is the address where it was served, if it was fetched."""
    reader = _Reader(found_at)
    return reader.card(document), reader.findings


class _Reader:
    """Reads one card; collects what is wrong on the way."""

    def __init__(self, found_at: str) -> None:
        self._read = ValueReader()
        self._found_at = found_at

    @property
    def findings(self) -> list[Finding]:
        return self._read.findings

    def card(self, document: Any) -> CardFacts:
        if not isinstance(document, dict):
            self._read.error("", "a card must be a JSON object")
            return CardFacts()
        card = cast("dict[str, Any]", document)
        generation = generation_of(card)
        for name in REQUIRED[generation]:
            if member(card, name)[1] is None:
                self._read.warn(name, f"is missing; A2A {generation.value} requires it")
        self._read.prose(card, "description", "")
        capabilities = self._read.members(card, "capabilities", "")
        skills = self._skills(card)
        interfaces, problem = self._interfaces(card, generation)
        demands = self._auth_problem(card)
        facts = CardFacts(
            name=" ".join(self._read.prose(card, "name", "").split())[:NAME_CHARS_MAX],
            version=self._version(card),
            interfaces=interfaces,
            skills=skills,
            input_modes=self._read.names(card, "defaultInputModes", ""),
            output_modes=self._read.names(card, "defaultOutputModes", ""),
            streaming=self._read.flag(capabilities, "streaming", "capabilities"),
            push_notifications=self._read.flag(capabilities, "pushNotifications", "capabilities"),
            capabilities={**_implied(skills), **_extra_capabilities(capabilities)},
            domains=self._read.names(capabilities, "domains", "capabilities"),
            problem=problem or demands,
        )
        return self._extensions(facts, capabilities)

    def _version(self, card: dict[str, Any]) -> str:
        value = member(card, "version")[1]
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._read.warn("version", "should be text")
            return str(value)
        return self._read.prose(card, "version", "")

    # --- extensions ---

    def _extensions(self, facts: CardFacts, capabilities: dict[str, Any]) -> CardFacts:
        required: list[str] = []
        for index, item in enumerate(self._read.items(capabilities, "extensions", "capabilities")):
            path = f"capabilities.extensions[{index}]"
            extension = self._read.is_object(item, path)
            uri = self._read.text(extension, "uri", path)
            if extension and not uri:
                self._read.error(f"{path}.uri", "is missing")
            elif uri == EXTENSION_URI:
                facts = self._params(facts, self._read.members(extension, "params", path), f"{path}.params")
            elif self._read.flag(extension, "required", path):
                required.append(uri)
        return replace(facts, required_extensions=tuple(required))

    def _params(self, facts: CardFacts, params: dict[str, Any], path: str) -> CardFacts:
        """The parameters of our extension; they go over what the rest of the card implies."""
        role = self._read.text(params, "role", path)
        if role and role not in list(Role):
            self._read.error(f"{path}.role", f"must be one of {', '.join(Role)}")
        declared, domains = self._switches(params, path)
        offers = member(params, "offers")[1]
        return replace(
            facts,
            speaks_handoff=offers is None or self._read.flag(params, "offers", path),
            capabilities={**facts.capabilities, **declared},
            domains=tuple(
                dict.fromkeys((*facts.domains, *domains, *self._read.names(params, "domains", path)))
            ),
            platform=self._read.name(params, "platform", path),
            role=Role(role) if role in list(Role) else None,
            workspace=self._read.name(params, "workspace", path),
            instance_id=self._read.name(params, "instance_id", path),
            session_number=int(self._read.number(params, "session_number", path, least=0, whole=True) or 0),
            max_concurrency=self._read.count(params, "max_concurrency", path),
            token_budget=self._read.count(params, "token_budget", path),
            lease_s=self._read.number(params, "lease_s", path, least=1),
        )

    def _switches(self, params: dict[str, Any], path: str) -> tuple[dict[str, bool], tuple[str, ...]]:
        """``{"canBrowse": true, "domains": […]}``, or a list of the names that are true."""
        key, value = member(params, "capabilities")
        path = f"{path}.{key}"
        if not isinstance(value, dict):
            return dict.fromkeys(self._read.names(params, "capabilities", path.rpartition(".")[0]), True), ()
        switches = cast("dict[str, Any]", value)
        declared: dict[str, bool] = {}
        for name, has in switches.items():
            if name == "domains" or has is None:
                continue
            if not isinstance(has, bool):
                self._read.error(f"{path}.{name}", "must be true or false")
            elif self._read.is_name(name, f"{path}.{name}"):
                declared[name.strip()] = has
        if len(declared) > LIST_MAX:
            self._read.error(path, f"has more than {LIST_MAX} entries")
        return declared, self._read.names(switches, "domains", path)

    # --- skills ---

    def _skills(self, card: dict[str, Any]) -> tuple[Skill, ...]:
        found: dict[str, Skill] = {}
        items = self._read.items(card, "skills", "", most=SKILLS_MAX)
        for index, item in enumerate(items):
            path = f"skills[{index}]"
            skill = self._read.is_object(item, path)
            if not skill and not isinstance(item, dict):
                continue
            name = self._read.prose(skill, "name", path)
            self._read.prose(skill, "description", path)
            key, skill_id = "id", self._read.name(skill, "id", path)
            if not skill_id and name and not self._read.failed(f"{path}.id"):
                key, skill_id = "name", self._read.name(skill, "name", path)
                self._read.warn(f"{path}.id", "is missing; the name stands in for it")
            if not skill_id:
                if not self._read.failed(f"{path}.{key}"):
                    self._read.error(f"{path}.id", "is missing")
                continue
            read = Skill(
                id=skill_id,
                name=name,
                tags=self._read.names(skill, "tags", path),
                input_modes=self._read.names(skill, "inputModes", path),
                output_modes=self._read.names(skill, "outputModes", path),
            )
            known = found.get(fold(skill_id))
            if known is not None:
                self._read.warn(f"{path}.id", "is used twice; the two skills are taken as one")
                read = replace(
                    known,
                    tags=tuple(dict.fromkeys((*known.tags, *read.tags))),
                    input_modes=tuple(dict.fromkeys((*known.input_modes, *read.input_modes))),
                    output_modes=tuple(dict.fromkeys((*known.output_modes, *read.output_modes))),
                )
            found[fold(skill_id)] = read
        return tuple(found.values())

    # --- addresses ---

    def _interfaces(self, card: dict[str, Any], generation: Generation) -> tuple[tuple[Interface, ...], str]:
        """The addresses in the card's order, and why none of them can be used, if so."""
        found: dict[tuple[str, Binding], Interface] = {}
        listed = 0
        entries = self._read.items(card, "supportedInterfaces", "")
        if entries:
            version = self._read.text(card, "protocolVersion", "")
            for index, item in enumerate(entries):
                path = f"supportedInterfaces[{index}]"
                entry = self._read.is_object(item, path)
                listed += 1
                kind = "protocolBinding" if member(entry, "transport")[1] is None else "transport"
                spoken = self._read.text(entry, "protocolVersion", path) or version or Generation.V1_0.value
                self._add(found, entry, path, kind=kind, version=spoken)
        else:
            spoken = self._read.text(card, "protocolVersion", "") or generation.value
            if member(card, "url")[1] is not None:
                listed += 1
                self._add(found, card, "", kind="preferredTransport", version=spoken)
            for index, item in enumerate(self._read.items(card, "additionalInterfaces", "")):
                path = f"additionalInterfaces[{index}]"
                listed += 1
                self._add(found, self._read.is_object(item, path), path, kind="transport", version=spoken)
        if not listed and self._found_at:
            base = _WELL_KNOWN.sub("/", self._found_at)
            root = base if base != self._found_at else urljoin(self._found_at, "/")
            self._read.warn("", "the card names no address; the one where it was found is used")
            return (Interface(url=root, binding=Binding.JSONRPC, generation=generation),), ""
        if not listed:
            self._read.warn("", "the card names no address: the agent has to fetch its work")
        interfaces = tuple(found.values())
        if listed and not any(interface.binding in SPOKEN for interface in interfaces):
            return (
                interfaces,
                f"has no address that this broker can use: {', '.join(sorted(SPOKEN))} of A2A 0.1 to 1.x",
            )
        return interfaces, ""

    def _add(
        self,
        found: dict[tuple[str, Binding], Interface],
        entry: dict[str, Any],
        path: str,
        *,
        kind: str,
        version: str,
    ) -> None:
        at = f"{path}." if path else ""
        url = self._read.text(entry, "url", path, most=URL_MAX).strip()
        word = self._read.text(entry, kind, path)
        binding = BINDINGS.get(skeleton(word)) if word else Binding.JSONRPC
        generation = version_generation(version)
        fault = url_fault(url, grpc=binding is Binding.GRPC)
        if not entry or self._read.failed(f"{at}url"):
            return
        if fault:
            self._read.error(f"{at}url", fault)
        elif binding is None:
            self._read.warn(
                f"{at}{kind}", "is a binding that this broker does not know; the address is not used"
            )
        elif generation is None:
            self._read.warn(
                f"{at}protocolVersion",
                "is a version that this broker does not speak; the address is not used",
            )
        else:
            url = self._reachable(url, f"{at}url")
            tenant = self._read.text(entry, "tenant", path) if path else ""
            interface = Interface(url=url, binding=binding, generation=generation, tenant=tenant)
            found.setdefault((url, binding), interface)

    def _reachable(self, url: str, path: str) -> str:
        """An agent that listens on every address often says ``0.0.0.0``: that is nowhere."""
        parts = urlsplit(url)
        if parts.hostname not in ("0.0.0.0", "::"):  # noqa: S104 - it is looked for, not bound to
            return url
        self._read.warn(path, f"{parts.hostname} is no address that can be called")
        host = urlsplit(self._found_at).hostname
        if not host:
            return url
        shown = f"[{host}]" if ":" in host else host
        return urlunsplit(parts._replace(netloc=f"{shown}:{parts.port}" if parts.port else shown))

    # --- authentication ---

    def _auth_problem(self, card: dict[str, Any]) -> str:
        """Why the agent would turn the broker away: it has no credentials for anybody."""
        schemes = self._read.members(card, "securitySchemes", "")
        for name in schemes:
            self._read.is_object(schemes[name], f"securitySchemes.{name}")
        key = next((k for k in ("securityRequirements", "security") if member(card, k)[1] is not None), "")
        demanded: list[str] = []
        for index, item in enumerate(self._read.items(card, key, "") if key else []):
            requirement = self._read.is_object(item, f"{key}[{index}]")
            if isinstance(requirement.get("schemes"), dict):
                requirement = cast("dict[str, Any]", requirement["schemes"])
            if not requirement:
                return ""  # an empty alternative: nobody needs to say who they are
            demanded.append(" and ".join(_scheme(name, schemes.get(name)) for name in sorted(requirement)))
        old = self._read.members(card, "authentication", "")
        words = [
            word for word in self._read.names(old, "schemes", "authentication") if fold(word) not in _OPEN
        ]
        demanded.extend(words)
        if not demanded:
            return ""
        return f"demands authentication ({' or '.join(demanded)}), for which this broker has no credentials"


#: Words of first-generation cards for *nobody needs to say who they are*.
_OPEN = frozenset({"", "none", "public", "noauth", "anonymous"})


def _implied(skills: tuple[Skill, ...]) -> dict[str, bool]:
    names = (name for skill in skills for name in (skill.id, *skill.tags))
    return {SYNONYMS[bare]: True for name in names if (bare := skeleton(name)) in SYNONYMS}


def _extra_capabilities(capabilities: Mapping[str, Any]) -> dict[str, bool]:
    """Switches that stand beside the standard ones, as some cards have them: ``canBrowse: true``."""
    return {
        name: has
        for name, has in capabilities.items()
        if isinstance(has, bool) and skeleton(name) not in _STANDARD_CAPABILITIES and not name_fault(name)
    }


def _scheme(name: str, scheme: Any) -> str:
    """A security scheme in a word: the kind if it is known, else its name."""
    if not isinstance(scheme, dict):
        return name
    fields = cast("dict[str, Any]", scheme)
    kind = fields.get("type")
    if isinstance(kind, str):
        return f"{kind} {fields['scheme']}" if isinstance(fields.get("scheme"), str) else kind
    return next(iter(fields), name).removesuffix("SecurityScheme")


# --- generations and addresses -------------------------------------------------------------------


def version_generation(version: str) -> Generation | None:
    """The generation of a protocol version (A2A 1.0 section 3.6: patch numbers do not matter).

    0.2 has the shapes of 0.3. ``None`` if we do not speak it.
    """
    match = _VERSION.match(version.strip())
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    if major == 1:
        return Generation.V1_0
    if major == 0:
        return Generation.V0_3 if minor in (2, 3) else Generation.V0_1 if minor < 2 else None
    return None


def generation_of(card: Mapping[str, Any]) -> Generation:
    """The generation of a card by its shape; its interfaces may differ from it.

    A card without a version is taken for 0.3 unless it has what only the first generation had:
    ``authentication``, or skills without ``tags``.
    """
    if member(card, "supportedInterfaces")[1] is not None:
        return Generation.V1_0
    version = member(card, "protocolVersion")[1]
    if isinstance(version, str) and version:
        return version_generation(version) or Generation.V0_3
    if any(member(card, name)[1] is not None for name in _LATER):
        return Generation.V0_3
    if "authentication" in card:
        return Generation.V0_1
    skills = card.get("skills")
    bare = isinstance(skills, list) and any(
        isinstance(skill, dict) and "tags" not in skill for skill in cast("list[Any]", skills)
    )
    return Generation.V0_1 if bare else Generation.V0_3


def url_fault(url: str, *, grpc: bool = False) -> str:
    """Why an address cannot be that of an agent; empty if it can."""
    if not url:
        return "is missing"
    if re.search(r"[\s\x00-\x1f\x7f\\]", url):
        return "contains white space or control characters"
    if grpc and "://" not in url:
        return ""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https", *(("grpc", "grpcs") if grpc else ())):
        return "must be an http or https URL"
    if not host:
        return "names no host"
    if parts.username is not None or parts.password is not None:
        return "must not carry a user name or password"
    return ""
