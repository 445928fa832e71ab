"""What might be better in an AgentCard, and what the broker makes of it.

Duty: findings beyond validity: addresses that others cannot use or use in the wrong order, parameters that
nobody knows, extensions that shut callers out, capabilities that follow from skills, signatures.
Rules: nothing here makes a card be refused; warnings are for what does not work as its author seems to mean,
hints for the rest.
Sources: A2A 1.0 sections 3.6 (versions), 4.4 (cards), 4.6 (extensions), 5.1 (addresses), 8.4 (signatures).
Not here: what makes a card invalid (``card_reader``), whether an address answers (``cli.checking``).
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from a2a_handoff.core.agents import Binding, Generation, skeleton
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.wire.card_reader import BINDINGS, REQUIRED, SYNONYMS, CardFacts, version_generation
from a2a_handoff.wire.card_values import Finding, Severity, member
from a2a_handoff.wire.signatures import SignatureFault, signatures_of

#: Parameters of our extension (docs/reference/extension.md section 1).
PARAMETERS = frozenset(
    {
        "platform", "capabilities", "domains", "role", "workspace", "instance_id", "session_number",
        "max_concurrency", "token_budget", "lease_s", "offers",
    }
)  # fmt: skip
_MEMBERS = frozenset(
    {name for names in REQUIRED.values() for name in names}
    | {
        "provider", "documentationUrl", "iconUrl", "securitySchemes", "securityRequirements", "security",
        "signatures", "preferredTransport", "additionalInterfaces", "authentication",
        "supportsAuthenticatedExtendedCard",
    }
)  # fmt: skip
_NEWEST = (Generation.V1_0, Generation.V0_3, Generation.V0_1)
_PATCHED = re.compile(r"v?\d+\.\d+\.\d+.*")


def lint(document: Any, facts: CardFacts) -> Iterator[Finding]:
    """What might be better in a card that was read to ``facts``."""
    if not isinstance(document, dict):
        return
    card = cast("dict[str, Any]", document)
    yield from _misspelled(card)
    yield from _addresses(card)
    yield from _extensions(card)
    yield from _skills(card, facts)
    yield from _signatures(card)


def addresses_of(document: Any) -> list[tuple[str, str, bool]]:
    """The addresses of a card as they stand in it: path, URL, and whether it is one of gRPC."""
    if not isinstance(document, dict):
        return []
    found: list[tuple[str, str, bool]] = []
    for path, entry in _entries(cast("dict[str, Any]", document)):
        url = entry.get("url")
        if isinstance(url, str):
            found.append((f"{path}.url" if path else "url", url, _binding(entry) is Binding.GRPC))
    return found


def _misspelled(card: Mapping[str, Any]) -> Iterator[Finding]:
    for name in card:
        if name not in _MEMBERS and member(card, name)[0] == name and not _is_snake(name):
            near = difflib.get_close_matches(name, _MEMBERS, n=1, cutoff=0.8)
            if near and near[0] not in card:
                yield Finding(
                    name, f"is no member of a card and passed over; did you mean {near[0]}?", Severity.WARNING
                )


def _is_snake(name: str) -> bool:
    """Whether a name is another spelling of a member's (ProtoJSON takes both)."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name) in _MEMBERS


# --- addresses -----------------------------------------------------------------------------------


def _entries(card: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects that hold an address, in the order of the card's preference, and their paths."""
    key, listed = member(card, "supportedInterfaces")
    if not (isinstance(listed, list) and listed):
        if isinstance(card.get("url"), str):
            yield "", dict(card)
        key, listed = member(card, "additionalInterfaces")
    for index, entry in enumerate(cast("list[Any]", listed) if isinstance(listed, list) else []):
        if isinstance(entry, dict):
            yield f"{key}[{index}]", cast("dict[str, Any]", entry)


def _binding(entry: Mapping[str, Any]) -> Binding | None:
    words = (member(entry, name)[1] for name in ("protocolBinding", "transport", "preferredTransport"))
    word = next((word for word in words if isinstance(word, str)), "JSONRPC")
    return BINDINGS.get(skeleton(word))


def _addresses(card: Mapping[str, Any]) -> Iterator[Finding]:
    seen: dict[tuple[str, ...], str] = {}
    best = len(_NEWEST)
    for path, entry in _entries(card):
        at = f"{path}." if path else ""
        url, binding = entry.get("url"), _binding(entry)
        version = member(entry, "protocolVersion")[1]
        if isinstance(url, str):
            yield from _address(url, f"{at}url", grpc=binding is Binding.GRPC)
        if isinstance(version, str):
            yield from _version(version, f"{at}protocolVersion")
        same = tuple(str(value) for value in (url, binding, version, entry.get("tenant")))
        if same in seen and path:
            text = f"is the same address as {seen[same] or 'url'}"
            yield Finding(path, text, Severity.HINT if seen[same] == "" else Severity.WARNING)
        seen.setdefault(same, path)
        generation = version_generation(version) if isinstance(version, str) else None
        if generation is not None and path.startswith("supported"):
            rank = _NEWEST.index(generation)
            if rank < best < len(_NEWEST):
                text = "stands behind an older version; clients take the first address that they can use"
                yield Finding(path, text, Severity.HINT)
            best = min(best, rank)


def _address(url: str, path: str, *, grpc: bool) -> Iterator[Finding]:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return
    if grpc and "://" in url:
        yield Finding(path, "has a scheme; clients of gRPC take host:port", Severity.WARNING)
    elif parts.scheme == "http" and host and not _is_here(host):
        text = "is http: whoever is on the way can read and change what agents say; use https"
        yield Finding(path, text, Severity.WARNING)


def _is_here(host: str) -> bool:
    """Whether a host is this machine or one beside it, which needs no TLS."""
    if "." not in host and ":" not in host:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.endswith((".localhost", ".internal"))
    return address.is_loopback or address.is_unspecified


def _version(version: str, path: str) -> Iterator[Finding]:
    generation = version_generation(version)
    if generation is Generation.V1_0 and version != "1.0":
        text = "is taken for 1.0" + (": patch numbers do not count" if _PATCHED.fullmatch(version) else "")
        yield Finding(path, f"{text}; write it so", Severity.HINT)


# --- extensions ----------------------------------------------------------------------------------


def _extensions(card: Mapping[str, Any]) -> Iterator[Finding]:
    capabilities = member(card, "capabilities")[1]
    listed = (
        cast("dict[str, Any]", capabilities).get("extensions") if isinstance(capabilities, dict) else None
    )
    uris: set[str] = set()
    for index, item in enumerate(cast("list[Any]", listed) if isinstance(listed, list) else []):
        path = f"capabilities.extensions[{index}]"
        if not isinstance(item, dict):
            continue
        extension = cast("dict[str, Any]", item)
        uri = extension.get("uri")
        if not isinstance(uri, str):
            continue
        if uri in uris:
            yield Finding(f"{path}.uri", "is declared twice", Severity.WARNING)
        uris.add(uri)
        if uri == EXTENSION_URI:
            yield from _ours(extension, path)
        elif extension.get("required") is True:
            text = "is required: only tasks of senders that name it in A2A-Extensions come here"
            yield Finding(f"{path}.required", text, Severity.WARNING)
        elif (near := _near(uri)) and uri != EXTENSION_URI:
            yield Finding(f"{path}.uri", f"is another extension than {near}", Severity.WARNING)


def _near(uri: str) -> str:
    return EXTENSION_URI if difflib.SequenceMatcher(None, uri, EXTENSION_URI).ratio() > 0.85 else ""


def _ours(extension: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if extension.get("required") is True:
        text = "is required: clients that do not know the extension are shut out; say false"
        yield Finding(f"{path}.required", text, Severity.WARNING)
    params = extension.get("params")
    for name in cast("dict[str, Any]", params) if isinstance(params, dict) else ():
        snake = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
        if snake not in PARAMETERS:
            near = difflib.get_close_matches(snake, PARAMETERS, n=1, cutoff=0.6)
            more = f"; did you mean {near[0]}?" if near else f": there are {', '.join(sorted(PARAMETERS))}"
            yield Finding(
                f"{path}.params.{name}", f"is no parameter of the extension{more}", Severity.WARNING
            )


# --- skills and signatures -----------------------------------------------------------------------


def _skills(card: Mapping[str, Any], facts: CardFacts) -> Iterator[Finding]:
    listed = card.get("skills")
    told = _declared(card)
    for index, item in enumerate(cast("list[Any]", listed) if isinstance(listed, list) else []):
        if not isinstance(item, dict):
            continue
        path, skill = f"skills[{index}]", cast("dict[str, Any]", item)
        for name in ("tags", "description"):
            if not skill.get(name):
                yield Finding(f"{path}.{name}", f"has no {name}; A2A requires it", Severity.WARNING)
        for place, name in _names_of(skill):
            implied = SYNONYMS.get(skeleton(name), "")
            if implied and implied not in told and facts.capabilities.get(implied):
                told.add(implied)
                yield Finding(f"{path}.{place}", f"implies the capability {implied}", Severity.HINT)


def _names_of(skill: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tags = skill.get("tags")
    listed = cast("list[Any]", tags) if isinstance(tags, list) else []
    places = [("id", skill.get("id")), *((f"tags[{number}]", tag) for number, tag in enumerate(listed))]
    return ((place, name) for place, name in places if isinstance(name, str))


def _declared(card: Mapping[str, Any]) -> set[str]:
    """The capabilities that our extension speaks of: they need not be inferred."""
    capabilities = member(card, "capabilities")[1]
    listed = (
        cast("dict[str, Any]", capabilities).get("extensions") if isinstance(capabilities, dict) else None
    )
    found: set[str] = set()
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        params = cast("dict[str, Any]", item).get("params") if isinstance(item, dict) else None
        declared = cast("dict[str, Any]", params).get("capabilities") if isinstance(params, dict) else None
        found.update(map(str, cast("list[Any]", declared) if isinstance(declared, (list, dict)) else ()))
    return found


def _signatures(card: Mapping[str, Any]) -> Iterator[Finding]:
    if not card.get("signatures"):
        return
    try:
        found = signatures_of(json.dumps({"signatures": card["signatures"]}).encode())
    except (SignatureFault, ValueError) as error:
        found = [
            error if isinstance(error, SignatureFault) else SignatureFault("signatures", "cannot be read")
        ]
    for each in found:
        if isinstance(each, SignatureFault):
            yield Finding(
                each.path.split(" ")[0],
                f"{each.message}: brokers that verify refuse the card",
                Severity.WARNING,
            )
        else:
            yield Finding(each.path, f"is by the key {each.key_id} ({each.algorithm})", Severity.HINT)
