"""AgentCards of every generation and how bad ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_handoff.core.agents import Agent, Binding, Generation, Readiness, Registration, Role
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.rules import shipped
from a2a_handoff.wire import card_reader
from a2a_handoff.wire.card_reader import generation_of, read_facts, url_fault, version_generation
from a2a_handoff.wire.cards import (
    CARD_BYTES_MAX,
    Severity,
    agent_of,
    canonical_url,
    check,
    id_fault,
    read_card,
    slug,
)

EXAMPLES = sorted((Path(__file__).parents[2] / "agent_cards").glob("*.json"))

V1: dict[str, Any] = {
    "name": "A",
    "description": "d",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "http://a.test/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
}
V03: dict[str, Any] = {
    "name": "A",
    "description": "d",
    "version": "1.0.0",
    "protocolVersion": "0.3.0",
    "url": "http://a.test/",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"]}],
}
FIRST: dict[str, Any] = {
    "name": "A",
    "url": "http://a.test/",
    "version": "1.0.0",
    "authentication": {"schemes": ["public"]},
    "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": False},
    "skills": [{"id": "s", "name": "S"}],
}


def raw(card: Any) -> bytes:
    return json.dumps(card).encode()


def agent(card: Any, *, found_at: str = "", **said: Any) -> Agent:
    return agent_of(
        Registration(agent_id=said.pop("agent_id", "a"), card=raw(card), **said),
        tenant="t",
        now=5.0,
        found_at=found_at,
    )[0]


def skilled(*skills: Any) -> Agent:
    return agent({**V1, "skills": list(skills)})


def with_params(**params: Any) -> dict[str, Any]:
    return {**V1, "capabilities": {"extensions": [{"uri": EXTENSION_URI, "params": params}]}}


def refused(card: Any) -> dict[str, str]:
    with pytest.raises(HandoffError) as caught:
        read_card(card if isinstance(card, bytes) else raw(card))
    assert caught.value.code is Code.INVALID_AGENT
    return {v.field: v.description for v in caught.value.violations}


# --- the examples --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_card_is_a_good_a2a_card_for_us_and_for_the_sdk(path: Path):
    assert check(path.read_text(encoding="utf-8")) == []
    parsed = parse_agent_card(json.loads(path.read_bytes()))
    read, warnings = agent_of(Registration(agent_id=path.stem, card=path.read_bytes()), tenant="t", now=0)
    assert warnings == ()
    assert [i.url for i in parsed.supported_interfaces] == [i.url for i in read.interfaces]
    assert [skill.id for skill in parsed.skills] == [skill.id for skill in read.skills]
    assert read.readiness is Readiness.OFFER


def test_the_example_cards_have_the_names_and_the_abilities_that_rules_and_docs_speak_of():
    read = {
        p.stem: agent_of(Registration(agent_id=p.stem, card=p.read_bytes()), tenant="t", now=0)[0]
        for p in EXAMPLES
    }
    assert {rule.target for rule in shipped().rules} <= read.keys()
    assert read["browser-agent"].capabilities == {"canBrowse", "canTestUI"}
    assert read["browser-agent"].platform == "external"
    assert read["code-editor"].capabilities == {"canEditFiles", "canExecuteCode"}
    assert read["escalation_agent"].role is Role.SUPERVISOR
    ports = [a.interfaces[0].url for a in read.values()]
    assert len(set(ports)) == len(ports)


# --- generations ---------------------------------------------------------------------------------


def addresses(card: Any, **options: Any) -> list[tuple[str, Binding, Generation]]:
    return [(i.url, i.binding, i.generation) for i in agent(card, **options).interfaces]


def test_a_card_of_1_0_lists_its_interfaces_in_order_with_their_tenants():
    card = {
        **V1,
        "supportedInterfaces": [
            {
                "url": "http://a.test/rest",
                "protocolBinding": "HTTP+JSON",
                "protocolVersion": "1.0.3",
                "tenant": "x",
            },
            {"url": "http://a.test/", "protocolBinding": "jsonrpc", "protocolVersion": "0.3"},
            {"url": "a.test:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "http://a.test/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
    }
    assert addresses(card) == [
        ("http://a.test/rest", Binding.HTTP_JSON, Generation.V1_0),
        ("http://a.test/", Binding.JSONRPC, Generation.V0_3),
        ("a.test:50051", Binding.GRPC, Generation.V1_0),
    ]
    assert agent(card).interfaces[0].tenant == "x"
    assert agent(card).card_problem == ""


@pytest.mark.parametrize("version", ["0.3.0", "0.3", "0.2.6", None])
def test_c004_a_card_of_0_3_or_0_2_or_without_a_version_is_0_3(version: str | None):
    card = {
        **V03,
        "protocolVersion": version,
        "additionalInterfaces": [
            {"url": "http://a.test/", "transport": "JSONRPC"},
            {"url": "http://a.test/v1", "transport": "HTTP+JSON"},
        ],
    }
    assert addresses(card) == [
        ("http://a.test/", Binding.JSONRPC, Generation.V0_3),
        ("http://a.test/v1", Binding.HTTP_JSON, Generation.V0_3),
    ]


def test_the_preferred_transport_is_that_of_the_url():
    assert addresses({**V03, "preferredTransport": "HTTP+JSON"})[0][1] is Binding.HTTP_JSON


@pytest.mark.parametrize(
    ("card", "generation"),
    [
        (FIRST, Generation.V0_1),
        ({**FIRST, "authentication": None}, Generation.V0_1),
        ({**V03, "protocolVersion": "0.1.0"}, Generation.V0_1),
        ({k: v for k, v in FIRST.items() if k != "authentication"}, Generation.V0_1),
        ({**FIRST, "preferredTransport": "JSONRPC"}, Generation.V0_3),
        ({**FIRST, "securitySchemes": {}}, Generation.V0_3),
        ({**FIRST, "protocolVersion": "0.3.0"}, Generation.V0_3),
        (V03, Generation.V0_3),
        (V1, Generation.V1_0),
    ],
)
def test_the_first_generation_is_known_by_what_only_it_had(card: dict[str, Any], generation: Generation):
    assert generation_of(card) is generation
    assert agent(card).interfaces[0].generation is generation


@pytest.mark.parametrize(
    ("version", "generation"),
    [
        ("1.0", Generation.V1_0), ("v1.0.3", Generation.V1_0), ("1.5", Generation.V1_0), ("0.3", Generation.V0_3),
        ("0.2.5", Generation.V0_3), ("0.1", Generation.V0_1), ("2.0", None), ("0.9", None), ("", None), ("x", None),
    ],
)  # fmt: skip
def test_patch_numbers_do_not_matter(version: str, generation: Generation | None):
    assert version_generation(version) is generation


def test_addresses_that_we_do_not_speak_are_left_out_with_a_warning():
    card = {
        **V1,
        "supportedInterfaces": [
            {"url": "https://a.test/2", "protocolBinding": "JSONRPC", "protocolVersion": "2.0"},
            {"url": "https://a.test/x", "protocolBinding": "CARRIER-PIGEON", "protocolVersion": "1.0"},
        ],
    }
    assert addresses(card) == []
    assert "no address that this broker can use" in agent(card).card_problem
    assert [f.path for f in check(json.dumps(card))] == [
        "supportedInterfaces[0].protocolVersion",
        "supportedInterfaces[1].protocolBinding",
    ]


GRPC_ONLY = {
    **V1,
    "supportedInterfaces": [{"url": "a.test:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}],
}


def test_an_agent_that_speaks_grpc_alone_can_be_reached():
    read = agent(GRPC_ONLY)
    assert (read.card_problem, read.readiness) == ("", Readiness.PROBE)


def test_without_its_library_an_agent_that_speaks_grpc_alone_has_a_problem_and_is_no_pull_agent(monkeypatch):
    monkeypatch.setattr(card_reader, "SPOKEN", frozenset({Binding.JSONRPC, Binding.HTTP_JSON}))
    read = agent(GRPC_ONLY)
    assert "no address that this broker can use: HTTP+JSON, JSONRPC of" in read.card_problem
    assert read.readiness is Readiness.PROBE


def test_a_fetched_card_without_an_address_is_reached_where_it_was_found():
    card = {k: v for k, v in V03.items() if k != "url"}
    assert (
        addresses(card, found_at="http://a.test/team/.well-known/agent.json")[0][0] == "http://a.test/team/"
    )
    assert addresses(card, found_at="http://a.test/cards/7.json")[0][0] == "http://a.test/"
    assert agent(card).readiness is Readiness.PULL


def test_an_agent_that_says_0_0_0_0_is_reached_at_the_host_of_its_card():
    card = {**V03, "url": "http://0.0.0.0:9999/a2a"}
    assert (
        addresses(card, found_at="http://h.test:9999/.well-known/agent.json")[0][0]
        == "http://h.test:9999/a2a"
    )
    assert addresses(card)[0][0] == "http://0.0.0.0:9999/a2a"


# --- what it can do ------------------------------------------------------------------------------


def test_our_parameters_say_what_an_agent_is():
    read = agent(
        with_params(
            platform="external",
            capabilities={"canTestUI": False, "canAnalyze": True, "domains": ["shop"]},
            domains=["bank"],
            role="agent",
            workspace="w",
            instance_id="i",
            session_number=81,
            max_concurrency=2,
            token_budget=500,
            lease_s=60,
        )
    )
    assert read.capabilities == {"canBrowse", "canAnalyze"}
    assert read.domains == ("shop", "bank")
    assert (read.platform, read.workspace, read.role) == ("external", "w", Role.AGENT)
    assert (read.instance_id, read.session_number) == ("i", 81)
    assert (read.max_concurrency, read.token_budget, read.lease_s) == (2, 500, 60.0)
    assert read.readiness is Readiness.OFFER


def test_capabilities_may_be_a_list_of_names():
    assert agent(with_params(capabilities=["canDeploy"])).capabilities == {"canDeploy"}


def test_an_agent_may_speak_of_itself_and_not_want_offers():
    assert agent(with_params(offers=False, capabilities={"canBrowse": True})).readiness is Readiness.PROBE


@pytest.mark.parametrize("name", ["browse", "Browse", "edit-files", "edit_files", "execute-code", "test-ui"])
@pytest.mark.parametrize("place", ["id", "tag"])
def test_third_party_cards_get_capabilities_from_skill_ids_and_tags(name: str, place: str):
    skill = (
        {"id": name, "name": "S", "tags": []} if place == "id" else {"id": "s", "name": "S", "tags": [name]}
    )
    (capability,) = skilled(skill).capabilities
    assert capability in {"canBrowse", "canEditFiles", "canExecuteCode", "canTestUI"}


def test_what_a_card_declares_goes_over_what_its_skills_imply():
    card = {
        **with_params(capabilities={"canBrowse": False}),
        "skills": [{"id": "browse", "name": "B", "tags": []}],
    }
    assert agent(card).capabilities == frozenset()


def test_switches_beside_the_standard_capabilities_count_though_sdks_drop_them():
    card = {**V1, "capabilities": {"streaming": True, "canBrowse": True, "canEditFiles": False, "x": 3}}
    read = agent(card)
    assert read.capabilities == {"canBrowse"}
    assert read.streaming


def test_a_registration_goes_over_the_card_and_the_card_over_the_platform():
    read = agent(
        with_params(platform="cursor", capabilities={"canEditFiles": False}, workspace="w", domains=["a"]),
        capabilities={"canExecuteCode": False, "canFly": True},
        domains=("b",),
        workspace="v",
        role=Role.HUMAN,
        max_concurrency=1,
    )
    assert read.capabilities == {"canFly"}
    assert (read.domains, read.workspace, read.role, read.max_concurrency) == (("b", "a"), "v", Role.HUMAN, 1)


def test_demanded_extensions_are_kept_and_ours_is_not_among_them():
    card = {
        **V1,
        "capabilities": {
            "extensions": [
                {"uri": "urn:x", "required": True},
                {"uri": "urn:y"},
                {"uri": EXTENSION_URI, "required": True},
            ]
        },
    }
    assert agent(card).required_extensions == ("urn:x",)


def test_the_card_is_kept_byte_for_byte():
    body = b'{ "name":"A","big":9007199254740993 , "skills" : null}'
    assert agent_of(Registration(agent_id="a", card=body), tenant="t", now=0)[0].card == body


# --- authentication ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"securitySchemes": {"b": {"type": "http", "scheme": "bearer"}}, "security": [{"b": []}]},
            "http bearer",
        ),
        (
            {
                "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
                "securityRequirements": [{"schemes": {"b": {"list": []}}}],
            },
            "httpAuth",
        ),
        ({"security": [{"k": []}, {"o": []}]}, "(k or o)"),
        ({"authentication": {"schemes": ["bearer"]}}, "(bearer)"),
        ({"authentication": {"schemes": "basic"}}, "(basic)"),
    ],
)
def test_an_agent_that_demands_a_login_has_a_problem(fields: dict[str, Any], says: str):
    problem = agent({**V03, **fields}).card_problem
    assert problem.startswith("demands authentication (")
    assert says in problem


@pytest.mark.parametrize(
    "fields",
    [
        {"securitySchemes": {"b": {"type": "http", "scheme": "bearer"}}},
        {"security": []},
        {"security": None, "securityRequirements": None},
        {"security": [{"b": []}, {}]},
        {"securityRequirements": [{"schemes": {}}]},
        {"authentication": {"schemes": ["public"]}},
        {"authentication": {"schemes": []}},
        {"authentication": None},
    ],
)
def test_an_agent_that_lets_everybody_in_has_none(fields: dict[str, Any]):
    assert agent({**V03, **fields}).card_problem == ""


# --- real cards ----------------------------------------------------------------------------------


def test_c014_null_and_single_tags_are_normalised():
    read = skilled(
        {"id": "a", "name": "A", "tags": None},
        {"id": "b", "name": "B", "tags": "billing", "examples": [{"q": "x"}]},
        {"id": "B", "name": "B again", "tags": ["refund", None, " "]},
        {"name": "Only a Name", "tags": []},
    )
    assert [(s.id, s.tags) for s in read.skills] == [
        ("a", ()),
        ("b", ("billing", "refund")),
        ("Only a Name", ()),
    ]


@pytest.mark.parametrize("skills", [None, []])
def test_c014_a_card_without_skills_is_taken(skills: Any):
    assert agent({**V1, "skills": skills}).skills == ()


def test_c014_a_wrong_type_is_refused_at_its_place():
    card = {
        **V1,
        "name": 3,
        "defaultInputModes": [1],
        "capabilities": {
            "streaming": "yes",
            "extensions": [{"uri": EXTENSION_URI, "params": {"role": "king", "max_concurrency": 0}}, 4],
        },
        "skills": [
            {"id": "a", "name": "A", "tags": 3},
            "b",
            {"id": ["c"]},
            {"id": "d", "tags": [{}]},
            {"tags": []},
        ],
        "supportedInterfaces": [{"url": 7}, {"url": "ftp://a.test"}, {"url": "http://u:p@a.test"}, None],
        "securitySchemes": [],
    }
    assert refused(card) == {
        "name": "must be text",
        "defaultInputModes[0]": "must be text",
        "capabilities.streaming": "must be true or false",
        "capabilities.extensions[0].params.role": "must be one of agent, human, supervisor",
        "capabilities.extensions[0].params.max_concurrency": "must be between 1 and 1000000000",
        "capabilities.extensions[1]": "must be an object",
        "skills[0].tags": "must be a list",
        "skills[1]": "must be an object",
        "skills[2].id": "must be text",
        "skills[3].tags[0]": "must be text",
        "skills[4].id": "is missing",
        "supportedInterfaces[0].url": "must be text",
        "supportedInterfaces[1].url": "must be an http or https URL",
        "supportedInterfaces[2].url": "must not carry a user name or password",
        "supportedInterfaces[3]": "must be an object",
        "securitySchemes": "must be an object",
    }


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"null", b'{"a":NaN}', b'{"name":"\xff"}', b"[" * 100_000]
)
def test_what_is_no_card_is_refused(body: bytes):
    assert refused(body)


def test_c014_sizes_are_bounded():
    many = {**V1, "skills": [{"id": f"s{n}", "tags": []} for n in range(10_000)]}
    assert refused(many)["skills"] == "has 10000 entries, at most 1000 are taken"
    assert "skills[0].tags" in refused({**V1, "skills": [{"id": "s", "tags": ["t"] * 101}]})
    assert "skills[0].id" in refused({**V1, "skills": [{"id": "s" * 201}]})
    assert "supportedInterfaces[0].url" in refused(
        {**V1, "supportedInterfaces": [{"url": "http://a.test/" + "x" * 3_000}]}
    )
    with pytest.raises(HandoffError) as caught:
        read_card(b" " * (CARD_BYTES_MAX + 1))
    assert caught.value.code is Code.PAYLOAD_TOO_LARGE


def test_many_warnings_never_crowd_out_an_error():
    skills = [{"id": f"s{n}", "tags": "t"} for n in range(500)]
    assert "name" in refused({**V1, "skills": skills, "name": 3})


def test_names_in_snake_case_are_understood_as_protojson_does():
    card = {
        "name": "A",
        "supported_interfaces": V1["supportedInterfaces"],
        "default_input_modes": ["a/b"],
        "skills": [],
    }
    read = agent(card)
    assert (read.interfaces[0].url, read.input_modes) == ("http://a.test/", ("a/b",))


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["uri", "id", "tags", "url", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
_KEYS = [
    *V1,
    *V03,
    *FIRST,
    "additionalInterfaces",
    "securitySchemes",
    "security",
    "securityRequirements",
    "preferredTransport",
]


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=6), st.sampled_from([V1, V03, FIRST, {}]))
def test_c014_no_card_breaks_anything_but_its_registration(fields: dict[str, Any], base: dict[str, Any]):
    card = {**base, **fields}
    text = json.dumps(card)
    faults = check(text)
    wrong = any(fault.severity is Severity.ERROR for fault in faults)
    try:
        agent(card)
    except HandoffError:
        assert wrong
    else:
        assert not wrong


# --- where the fault is --------------------------------------------------------------------------


def test_a_fault_names_line_column_and_path():
    text = """{
  "name": "A",
  "skills": [
    {"id": "a",
     "tags": 3},
    {"tags": []}
  ],
  "supportedInterfaces": []
}
"""
    found = [(f.line, f.column, f.path, f.severity) for f in check(text) if f.severity is Severity.ERROR]
    assert found == [(5, 14, "skills[0].tags", Severity.ERROR), (6, 5, "skills[1].id", Severity.ERROR)]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("", 1, 1, "A value is expected"),
        ('{"a": 1,}', 1, 8, "A comma must not be the last thing"),
        ('{"a" 1}', 1, 6, "A colon is expected"),
        ('{\n  "a": tru\n}', 2, 8, "A value is expected"),
        ("{a: 1}", 1, 2, "A name in double quotes"),
        ('{"a": [1 2]}', 1, 10, "A comma or ]"),
        ('{"a": 1} x', 1, 10, "Nothing may follow"),
        ('{"a": NaN}', 1, 7, "A value is expected"),
        ('{"a": "\n"}', 1, 8, "Invalid control character"),
        ("[" * 100, 1, 66, "Nested deeper"),
        ('{"a": 1, ', 1, 10, "A name in double quotes"),
    ],
)
def test_a_text_that_is_not_json_is_refused_where_it_breaks(text: str, line: int, column: int, says: str):
    (fault,) = check(text)
    assert (fault.line, fault.column) == (line, column)
    assert says in fault.message


def test_a_name_that_is_used_twice_makes_a_card_refused_with_the_place():
    text = json.dumps(V1)[:-1] + ',\n "name": "B"}'
    (fault,) = (each for each in check(text) if each.severity is Severity.ERROR)
    assert (fault.line, fault.column, fault.path) == (2, 2, "name")
    assert refusals(text.encode()) == [
        ("card.name", "is used twice in one object, again at line 2, column 2")
    ]


def refusals(raw: bytes) -> list[tuple[str, str]]:
    with pytest.raises(HandoffError) as caught:
        read_card(raw, path="card")
    assert caught.value.code is Code.INVALID_AGENT
    return [(each.field, each.description) for each in caught.value.violations]


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        (b"", "card", "is not JSON: line 1, column 1"),
        (b'{"name":\n "a",}', "card", "is not JSON: line 2, column 5: A comma must not be the last thing"),
        (b'{"name": "\xff"}', "card", "is not UTF-8 at byte 10"),
        (b"<html></html>", "card", "is not JSON: line 1, column 1"),
        (
            b'{"a":' * 70 + b"1" + b"}" * 70,
            "card",
            "is not JSON: line 1, column 326: Nested deeper than 64 levels",
        ),
        (b'{"name":"a","skills":[{"id":"x","id":"y"}]}', "card.skills[0].id", "is used twice in one object"),
        (json.dumps(V1 | {"name": "a\u202eb"}).encode(), "card.name", "contains a character that hides"),
        (json.dumps(V1 | {"name": "a\u0007"}).encode(), "card.name", "contains a control character, U+0007"),
        (json.dumps(V1 | {"description": "x\u001b[2J"}).encode(), "card.description", "contains a control"),
        (json.dumps(V1 | {"description": "x" * 1_000_000}).encode(), "card.description", "is longer than"),
        (
            json.dumps(V1 | {"skills": [{"id": str(n)} for n in range(3_000)]}).encode(),
            "card.skills",
            "has 3000",
        ),
        (
            json.dumps(V1 | {"skills": [{"id": "a", "description": "\u2066x"}]}).encode(),
            "card.skills[0].description",
            "contains a character that hides",
        ),
    ],
    ids=[
        "empty",
        "comma",
        "utf-8",
        "html",
        "deep",
        "twice",
        "bidi",
        "bell",
        "escape",
        "long",
        "skills",
        "isolate",
    ],
)
def test_a_hostile_card_is_refused_with_the_place(raw: bytes, field: str, says: str):
    (found,) = refusals(raw)
    assert found[0] == field
    assert found[1].startswith(says), found


def test_prose_may_have_lines_tabs_and_the_marks_of_scripts_from_right_to_left():
    texts = ("a\r\n\tb", "\u200f\u05d0\u200e", "\u0645\u200c\u062e", "\U0001f469\u200d\U0001f4bb")
    for text in texts:
        assert read_card(json.dumps(V1 | {"description": text}).encode())[0].name == "A"


def test_what_the_specification_requires_is_named_as_a_warning():
    missing = {f.path for f in check('{"name": "A"}')}
    assert missing >= {"description", "url", "version", "capabilities", "skills"}
    assert {f.severity for f in check('{"name": "A"}')} == {Severity.WARNING}


@given(_JSON)
def test_the_finder_of_positions_accepts_what_json_accepts(value: Any):
    text = json.dumps(value, indent=1)
    assert all(not fault.message.startswith("not JSON") for fault in check(text))


@given(st.text('{}[]",:0aet\\ \n', max_size=20))
def test_the_finder_of_positions_refuses_what_json_refuses(text: str):
    try:
        json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert check(text)[0].message.startswith("not JSON")
    else:
        assert not any(fault.message.startswith("not JSON") for fault in check(text))


def test_a_card_that_is_too_large_is_refused_before_it_is_read():
    (fault,) = check(" " * (CARD_BYTES_MAX + 1))
    assert "larger than" in fault.message


# --- registrations and names ---------------------------------------------------------------------


def test_a_registration_without_a_card_is_a_pull_agent():
    said = Registration(
        agent_id="ext-1", platform="external", capabilities={"canFly": True}, domains=("shop",)
    )
    read, warnings = agent_of(said, tenant="t", now=7.0, lease_s=99.0)
    assert read.readiness is Readiness.PULL
    assert read.capabilities == {"canBrowse", "canTestUI", "canFly"}
    assert (read.workspace, read.name, read.registered_at, read.lease_s) == ("default", "ext-1", 7.0, 99.0)
    assert warnings == ()


@pytest.mark.parametrize("agent_id", ["a/b", "a?", "..", "a\nb", "x" * 201, "a,b", "100%", " a"])
def test_an_id_that_would_break_a_path_or_a_line_is_refused(agent_id: str):
    with pytest.raises(HandoffError) as caught:
        agent_of(Registration(agent_id=agent_id), tenant="t", now=0)
    assert caught.value.violations[0].field == "agent_id"
    assert id_fault(agent_id)


def test_every_fault_of_a_registration_is_named():
    said = Registration(
        agent_id="",
        platform="a\nb",
        workspace="w\x00",
        capabilities={"": True},
        domains=("",),
        metadata=b"x" * 70_000,
    )
    with pytest.raises(HandoffError) as caught:
        agent_of(said, tenant="t", now=0)
    assert [v.field for v in caught.value.violations] == [
        "agent_id", "platform", "workspace", "capabilities.", "capabilities.domains[0]", "metadata",
    ]  # fmt: skip


def test_without_an_id_the_name_of_the_card_makes_one():
    assert agent({**V1, "name": "Billing Agent (EU)"}, agent_id="").agent_id == "billing-agent-eu"
    assert slug("Équipe Été") == "équipe-été"


@pytest.mark.parametrize(
    "url",
    [
        "http://T.example:80/",
        "http://t.example",
        "HTTP://t.example/",
        "http://t.example./#x",
        " http://t.example ",
    ],
)
def test_c011_one_endpoint_has_one_identity(url: str):
    assert canonical_url(url) == "http://t.example"


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://t.example:443/a/", "https://t.example/a"),
        ("https://t.example:8443/a", "https://t.example:8443/a"),
        ("http://[::1]:80/", "http://[::1]"),
        ("http://t.example/A?q=1", "http://t.example/A?q=1"),
        ("not a url", "not a url"),
        ("http://[broken", "http://[broken"),
    ],
)
def test_paths_ports_and_queries_make_other_endpoints(url: str, same: str):
    assert canonical_url(url) == same


@pytest.mark.parametrize(
    "url", ["", "a.test", "/a", "http://", "http://a b", "http://a.test:x", "http://[", "file:///etc/passwd"]
)
def test_what_cannot_be_the_address_of_an_agent_is_refused(url: str):
    assert url_fault(url)


def test_facts_of_a_card_are_read_without_a_registration():
    facts, findings = read_facts(V1)
    assert (facts.name, findings) == ("A", [])
