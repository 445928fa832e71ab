"""What the check of a card says beyond what makes it invalid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.wire.card_lints import PARAMETERS, addresses_of
from a2a_handoff.wire.card_reader import read_facts
from a2a_handoff.wire.card_values import Severity
from a2a_handoff.wire.cards import check
from tests.support.signing import Signer

GOOD: dict[str, Any] = {
    "name": "Billing",
    "description": "Bills.",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "https://a.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "bill", "name": "Bill", "description": "Bills.", "tags": ["bill"]}],
}


def found(**change: Any) -> list[tuple[str, str, str]]:
    """Path, severity and message of everything that is said of a good card that was changed."""
    return [(f.path, f.severity.value, f.message) for f in check(json.dumps(GOOD | change))]


def interfaces(*given: tuple[str, str, str]) -> list[dict[str, str]]:
    return [
        {"url": url, "protocolBinding": binding, "protocolVersion": version}
        for url, binding, version in given
    ]


def test_of_a_good_card_nothing_is_said() -> None:
    assert found() == []


def test_a_member_that_is_nearly_one_of_a_card_is_a_warning() -> None:
    ((path, severity, text),) = found(documentationURL="https://a.test/docs")
    assert (path, severity) == ("documentationURL", "warning")
    assert text.endswith("did you mean documentationUrl?")
    assert found(documentation_url="x", mine=1, iconUrl="https://a.test/i") == []


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://a.test/", True),
        ("http://10.0.0.5:80/", True),
        ("http://[2001:db8::1]/", True),
        ("https://a.test/", False),
        ("http://127.0.0.1:9000/", False),
        ("http://[::1]:9000/", False),
        ("http://localhost:9000/", False),
        ("http://billing:9000/", False),
        ("http://host.docker.internal:9000/", False),
    ],
)
def test_http_to_another_machine_is_a_warning(url: str, *, warned: bool) -> None:
    said = found(supportedInterfaces=interfaces((url, "JSONRPC", "1.0")))
    assert [(path, severity) for path, severity, _ in said] == (
        [("supportedInterfaces[0].url", "warning")] if warned else []
    )


def test_a_relative_address_is_an_error() -> None:
    said = found(supportedInterfaces=interfaces(("/a2a", "JSONRPC", "1.0")))
    assert ("supportedInterfaces[0].url", "error") in [each[:2] for each in said]


def test_an_address_that_stands_twice_is_a_warning() -> None:
    twice = interfaces(("https://a.test/", "JSONRPC", "1.0"), ("https://a.test/", "JSONRPC", "1.0"))
    assert found(supportedInterfaces=twice) == [
        ("supportedInterfaces[1]", "warning", "is the same address as supportedInterfaces[0]")
    ]


def test_a_newer_version_behind_an_older_one_is_a_hint() -> None:
    said = found(
        supportedInterfaces=interfaces(
            ("https://a.test/", "JSONRPC", "0.3"), ("https://a.test/v1", "JSONRPC", "1.0")
        )
    )
    assert [each[:2] for each in said] == [("supportedInterfaces[1]", "hint")]
    assert "the first address that they can use" in said[0][2]


@pytest.mark.parametrize("version", ["1.0.0", "1.2"])
def test_an_odd_protocol_version_is_a_hint(version: str) -> None:
    ((path, severity, text),) = found(supportedInterfaces=interfaces(("https://a.test/", "JSONRPC", version)))
    assert (path, severity) == ("supportedInterfaces[0].protocolVersion", "hint")
    assert text.startswith("is taken for 1.0")


def test_a_grpc_address_with_a_scheme_is_a_warning() -> None:
    both = interfaces(("https://a.test/", "JSONRPC", "1.0"), ("https://a.test:443", "GRPC", "1.0"))
    ((path, severity, text),) = found(supportedInterfaces=both)
    assert (path, severity) == ("supportedInterfaces[1].url", "warning")
    assert text == "has a scheme; clients of gRPC take host:port"
    assert addresses_of(GOOD | {"supportedInterfaces": both}) == [
        ("supportedInterfaces[0].url", "https://a.test/", False),
        ("supportedInterfaces[1].url", "https://a.test:443", True),
    ]


def test_the_addresses_of_an_older_card_are_its_own_and_the_additional_ones() -> None:
    card = {"url": "http://a/", "additionalInterfaces": [{"url": "a:1", "transport": "GRPC"}]}
    assert addresses_of(card) == [
        ("url", "http://a/", False), ("additionalInterfaces[0].url", "a:1", True),
    ]  # fmt: skip
    assert addresses_of([]) == []


# --- extensions ----------------------------------------------------------------------------------


def extension(uri: str = EXTENSION_URI, **more: Any) -> dict[str, Any]:
    return {"extensions": [{"uri": uri, **more}]}


def test_a_parameter_that_the_extension_does_not_have_is_a_warning() -> None:
    said = found(capabilities=extension(params={"max_concurency": 3, "xyz": 1, "domains": [], "leaseS": 5}))
    assert [each[0] for each in said] == [
        "capabilities.extensions[0].params.max_concurency",
        "capabilities.extensions[0].params.xyz",
    ]
    assert said[0][2].endswith("did you mean max_concurrency?")
    assert "there are capabilities, domains" in said[1][2]


def test_the_parameters_are_those_that_the_reader_knows() -> None:
    params: dict[str, Any] = {name: [] for name in PARAMETERS}
    _, findings = read_facts(GOOD | {"capabilities": extension(params=params)})
    wrong = {f.path.rpartition(".")[2] for f in findings if f.severity is Severity.ERROR}
    assert wrong | {"capabilities", "domains"} == PARAMETERS


def test_a_required_extension_is_a_warning() -> None:
    for uri in ("https://x.example/e/v1", EXTENSION_URI):
        said = found(capabilities=extension(uri, required=True))
        assert [each[:2] for each in said] == [("capabilities.extensions[0].required", "warning")]


def test_an_extension_that_is_nearly_ours_is_a_warning() -> None:
    ((path, _, text),) = found(capabilities=extension("urn:a2a-handoff:handoff:v2"))
    assert (path, text) == ("capabilities.extensions[0].uri", f"is another extension than {EXTENSION_URI}")


# --- skills and signatures -----------------------------------------------------------------------


def test_a_skill_without_tags_or_description_is_a_warning() -> None:
    said = found(skills=[{"id": "a", "name": "A", "tags": []}])
    assert {each[:2] for each in said} == {
        ("skills[0].tags", "warning"),
        ("skills[0].description", "warning"),
    }


def test_capabilities_that_follow_from_skills_are_shown_once() -> None:
    skill = {"id": "browse", "name": "B", "description": "B.", "tags": ["browse", "test-ui"]}
    said = found(skills=[skill])
    assert said == [
        ("skills[0].id", "hint", "implies the capability canBrowse"),
        ("skills[0].tags[1]", "hint", "implies the capability canTestUI"),
    ]
    declared = extension(params={"capabilities": {"canBrowse": True, "canTestUI": False}})
    assert found(skills=[skill], capabilities=declared) == []


def test_signatures_are_shown_and_those_that_cannot_be_read_warned_of() -> None:
    signed = Signer("k7").signed(GOOD)["signatures"]
    assert found(signatures=signed) == [("signatures[0]", "hint", "is by the key k7 (ES256)")]
    ((path, severity, _),) = found(signatures=[{"protected": "%", "signature": "x"}])
    assert (path, severity) == ("signatures[0].protected", "warning")
    ((path, severity, _),) = found(signatures="x")
    assert (path, severity) == ("signatures", "warning")
