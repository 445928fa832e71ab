"""Who may take a handoff: targets, rules, filters, ranking, reasons."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from a2a_handoff.core.agents import (
    Agent,
    AgentView,
    Binding,
    Generation,
    Interface,
    Readiness,
    Role,
    Skill,
    Status,
    effective_capabilities,
)
from a2a_handoff.core.context import HandoffContext, HandoffOptions, Package, Requirements, Signals
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Outcome, Resolution
from a2a_handoff.core.matching import CANDIDATES_MAX, PASSED_OVER_MAX, resolve, supervisors
from a2a_handoff.core.question import Question
from a2a_handoff.core.roster import Roster
from a2a_handoff.core.rules import RoutingRules, Rule, shipped

NO_RULES = RoutingRules()


def agent(name: str, *, url: str = "", platform: str = "", can: tuple[str, ...] = (), **fields) -> Agent:
    return Agent(
        agent_id=name,
        tenant=fields.pop("tenant", "t"),
        platform=platform,
        capabilities=effective_capabilities(platform, dict.fromkeys(can, True)),
        interfaces=(Interface(url=url, binding=Binding.JSONRPC, generation=Generation.V1_0),) if url else (),
        **fields,
    )


def push(name: str, *can: str, **fields) -> AgentView:
    live = {k: fields.pop(k) for k in tuple(fields) if k in AgentView.__struct_fields__ and k != "agent"}
    return AgentView(agent=agent(name, url=f"http://{name}.test", can=can, **fields), **live)


def pull(name: str, *can: str, **fields) -> AgentView:
    live = {k: fields.pop(k) for k in tuple(fields) if k in AgentView.__struct_fields__ and k != "agent"}
    return AgentView(agent=agent(name, can=can, **fields), **live)


def skilled(name: str, *skills: str, tags: tuple[str, ...] = (), **fields) -> AgentView:
    return push(name, skills=tuple(Skill(id=skill, tags=tags) for skill in skills), **fields)


def ask(
    views: Any, rules: RoutingRules = NO_RULES, *, passed_over_max: int = PASSED_OVER_MAX, **asked: Any
) -> Resolution:
    requirements = {k: asked.pop(k) for k in tuple(asked) if k in Requirements.__struct_fields__}
    context = HandoffContext(
        correlation_id="c",
        source_agent="me",
        conversation_summary="s",
        user_intent="i",
        target_agent=asked.pop("target_agent", ""),
        handoff_chain=asked.pop("path", ()),
    )
    package = Package(
        context=context,
        requirements=Requirements(**requirements),
        signals=asked.pop("signals", Signals()),
        options=HandoffOptions(fallback=asked.pop("fallback", ())),
        synthesized=asked.pop("synthesized", False),
    )
    modes = {
        "input_modes": asked.pop("part_modes", ()),
        "output_modes": asked.pop("accepted_output_modes", ()),
    }
    question = Question(tenant=asked.pop("tenant", "t"), package=package, **modes, **asked)
    return resolve(question, views, rules, passed_over_max=passed_over_max)


def names(resolution: Resolution) -> list[str]:
    return [candidate.agent_id for candidate in resolution.candidates]


def why(resolution: Resolution) -> dict[str, str]:
    return {p.agent_id: p.reason for p in resolution.passed_over}


# --- the worked example: browser work goes to whoever can browse ---------------------------------


def test_a_browser_handoff_reaches_an_external_agent_and_not_only_cowork():
    extension = pull("chrome-extension", platform="external")
    desktop = pull("claude-desktop", platform="cowork")
    editor = pull("editor", platform="cursor")
    assert names(ask([extension, editor], agent_type="browser")) == ["chrome-extension"]
    assert set(names(ask([extension, desktop, editor], agent_type="browser"))) == {
        "chrome-extension",
        "claude-desktop",
    }
    assert names(ask([extension, desktop, editor], agent_type="code")) == ["editor"]


def test_a_browser_handoff_goes_to_the_idle_agent_or_else_to_the_faster():
    extension = pull("chrome-extension", platform="external", status=Status.IDLE, response_s=9.0)
    desktop = pull("claude-desktop", platform="cowork", status=Status.BUSY, response_s=0.1)
    assert names(ask([extension, desktop], agent_type="browser"))[0] == "chrome-extension"
    extension = replace(extension, status=Status.BUSY)
    assert names(ask([extension, desktop], agent_type="browser"))[0] == "claude-desktop"


def test_a_platform_counts_only_if_the_sender_asks_for_one():
    views = [pull("a", platform="external"), pull("b", platform="cowork")]
    assert names(ask(views, capabilities=("canBrowse",), platform="CoWork")) == ["b"]


def test_a_capability_with_a_new_name_needs_no_change_anywhere():
    assert names(ask([push("a"), push("b", "canDeploy")], capabilities=("canDeploy",))) == ["b"]


def test_a_declared_lack_goes_over_the_platform():
    view = AgentView(
        agent=Agent(
            agent_id="a",
            tenant="t",
            platform="external",
            capabilities=effective_capabilities("external", {"canBrowse": False}),
        )
    )
    assert names(ask([view], capabilities=("canBrowse",))) == []


# --- agent_type ----------------------------------------------------------------------------------


def test_an_agent_type_may_be_an_agent_id_and_then_names_the_target():
    resolution = ask([pull("cursor", present=False), push("b", platform="cursor")], agent_type="Cursor")
    assert names(resolution)[0] == "cursor"


def test_an_agent_type_may_be_a_platform():
    assert names(ask([push("b", platform="cursor"), push("c")], agent_type="cursor")) == ["b"]
    assert names(ask([push("b", platform="robots")], agent_type="robots")) == ["b"]


def test_a_known_platform_without_agents_is_no_error_but_nobody():
    assert ask([push("b")], agent_type="cowork").reason is Outcome.NO_CAPABLE_AGENT


def test_any_other_agent_type_is_refused_with_its_field():
    with pytest.raises(HandoffError) as caught:
        ask([push("b")], agent_type="browzer")
    assert caught.value.code is Code.INVALID_CONTEXT
    assert caught.value.violations[0].field == "requirements.agent_type"


# --- no guessing ---------------------------------------------------------------------------------


def test_c016_no_overlap_no_score():
    broad, narrow = skilled("G", "a", "b", "c", "d"), skilled("S", "d")
    for views in ([broad, narrow], [narrow, broad]):
        nobody = ask(views, skill="z")
        assert names(nobody) == []
        assert nobody.reason is Outcome.NO_CAPABLE_AGENT
        answers = {tuple(names(ask(views, skill="d", spread="h1"))) for _ in range(100)}
        assert answers == {tuple(names(ask([broad, narrow], skill="d", spread="h1")))}


@pytest.mark.parametrize("field", ["capabilities", "tags", "input_modes", "output_modes"])
def test_c016_an_empty_name_is_refused(field: str):
    with pytest.raises(HandoffError) as caught:
        ask([push("a", "x")], **dict[str, Any]({field: ("x", " ")}))
    assert caught.value.code is Code.INVALID_CONTEXT
    assert caught.value.violations[0].field == f"requirements.{field}[1]"


def test_c021_a_context_that_asks_for_nothing_is_refused():
    with pytest.raises(HandoffError) as caught:
        ask([push("a", "x"), push("default_agent")], shipped())
    assert caught.value.code is Code.INVALID_CONTEXT


def test_a_context_with_signals_that_no_rule_matches_goes_to_the_default():
    resolution = ask([push("default_agent")], shipped(), signals=Signals(intent="other"))
    assert (names(resolution), resolution.rule) == (["default_agent"], "default")


def test_a_plain_message_goes_to_the_default_and_to_nobody_else():
    assert names(ask([push("default_agent"), push("b")], shipped(), synthesized=True)) == ["default_agent"]
    nobody = ask([push("b")], shipped(), synthesized=True)
    assert nobody.reason is Outcome.NO_CAPABLE_AGENT
    assert not nobody.wait
    assert why(nobody)["default_agent"] == (
        "is the target of rule 'default' and not registered: name a target_agent or requirements "
        "in metadata.handoff_context"
    )


def test_the_text_of_a_message_suggests_and_never_routes():
    views = [skilled("a", "invoices"), skilled("b", "weather")]
    nobody = ask(views, shipped(), synthesized=True, text="Please look at my Invoices, now.")
    assert names(nobody) == []
    assert "skill invoices: name it in requirements" in why(nobody)["a"]
    assert "b" not in why(nobody)


def test_tags_alone_need_one_that_matches():
    views = [skilled("a", "s", tags=("shop", "cart")), skilled("b", "s", tags=("shop",)), push("c")]
    assert names(ask(views, tags=("Cart", "shop"))) == ["a", "b"]
    assert names(ask(views, tags=("bank",))) == []


def test_modes_alone_need_an_agent_that_declares_them():
    views = [push("a", input_modes=("image/png",)), push("b"), push("c", input_modes=("text",))]
    assert names(ask(views, input_modes=("image/png",))) == ["a"]


# --- names ---------------------------------------------------------------------------------------

ADHESIF = "adh\u00e9sif.expert"


@pytest.mark.parametrize("asked", ["adhe\u0301sif.expert", ADHESIF.upper(), f" {ADHESIF} "])
@pytest.mark.parametrize("field", ["skill", "capability", "tag"])
def test_c015_equivalent_spellings_match(asked: str, field: str):
    views = [skilled("a", ADHESIF, tags=(ADHESIF,)), push("b")]
    wanted: dict[str, Any] = (
        {"skill": asked}
        if field == "skill"
        else {"capabilities" if field == "capability" else "tags": (asked,)}
    )
    assert names(ask(views, **wanted)) == ["a"]


@pytest.mark.parametrize("field", ["skill", "capability", "tag"])
def test_c015_the_ascii_variant_is_a_suggestion_and_no_match(field: str):
    views = [skilled("a", ADHESIF, tags=(ADHESIF,)), push("b")]
    asked = "adhesif.expert"
    wanted: dict[str, Any] = (
        {"skill": asked}
        if field == "skill"
        else {"capabilities" if field == "capability" else "tags": (asked,)}
    )
    nobody = ask(views, **wanted)
    assert names(nobody) == []
    assert nobody.reason is Outcome.NO_CAPABLE_AGENT
    near = nobody.passed_over[0]
    assert (near.agent_id, near.near) == ("a", True)
    assert ADHESIF in near.reason


def test_agent_ids_match_without_regard_to_case():
    assert names(ask([push("Billing_Agent")], target_agent="billing_agent")) == ["Billing_Agent"]


def test_an_agent_that_lacks_one_of_several_things_is_a_near_miss():
    views = [push("a", "x"), push("b", "x", "y", workspace="w2"), push("c")]
    nobody = ask(views, capabilities=("x", "y"), workspace="default")
    assert [p.agent_id for p in nobody.passed_over if p.near] == ["a", "b"]
    assert why(nobody) == {
        "a": "lacks capability y",
        "b": "is in workspace w2, not default",
        "c": "lacks capability x, capability y",
    }


# --- hard filters --------------------------------------------------------------------------------


def test_other_tenants_do_not_exist():
    resolution = ask([push("a", "x", tenant="other"), push("b")], capabilities=("x",))
    assert why(resolution) == {"b": "lacks capability x"}
    assert names(ask([push("a", "x", tenant="other")], target_agent="a")) == []


def test_agents_of_another_workspace_are_passed_over():
    views = [push("a", "x", workspace="w1"), push("b", "x", workspace="w2")]
    assert names(ask(views, capabilities=("x",), workspace="w2")) == ["b"]


def test_a_sender_that_is_registered_asks_within_its_own_workspace():
    views = [push("me", workspace="w1"), push("a", "x", workspace="w1"), push("b", "x")]
    assert names(ask(views, capabilities=("x",), sender="me")) == ["a"]
    assert names(ask(views, capabilities=("x",), sender="stranger")) == ["b"]


def test_people_and_supervisors_are_never_matched_as_agents():
    views = [pull("boss", "x", role=Role.SUPERVISOR), pull("ann", "x", role=Role.HUMAN)]
    nobody = ask(views, capabilities=("x",))
    assert nobody.reason is Outcome.NO_CAPABLE_AGENT
    assert why(nobody)["boss"] == "is a supervisor: escalations go there"


@pytest.mark.parametrize(
    ("live", "says"),
    [
        ({"breaker_open": True}, "circuit breaker"),
        ({"status": Status.DRAINING}, "draining"),
        ({"status": Status.OFFLINE}, "offline"),
        ({"card_problem": "demands a login that the broker does not have"}, "demands a login"),
        ({"required_extensions": ("urn:x",)}, "extension urn:x"),
    ],
)
def test_who_cannot_be_asked_is_passed_over_with_the_reason(live: dict[str, Any], says: str):
    resolution = ask([push("a", "x", **live), push("b", "x")], capabilities=("x",))
    assert names(resolution) == ["b"]
    assert says in why(resolution)["a"]


def test_an_extension_that_the_sender_speaks_is_no_obstacle():
    view = push("a", "x", required_extensions=("urn:x",))
    assert names(ask([view], capabilities=("x",), extensions=("urn:x",))) == ["a"]


def test_an_open_breaker_of_everybody_means_unavailable_at_once():
    nobody = ask([push("a", "x", breaker_open=True)], capabilities=("x",))
    assert (nobody.reason, nobody.wait) == (Outcome.TARGET_UNAVAILABLE, False)


def test_c013_absent_pull_agents_are_waited_for():
    waiting = ask([pull("a", "x", present=False), push("b")], capabilities=("x",))
    assert (names(waiting), waiting.wait) == ([], True)
    assert "absent" in why(waiting)["a"]
    assert not ask([pull("a", "x", present=False), push("b", "x")], capabilities=("x",)).wait
    assert not ask([pull("a", "x", status=Status.DRAINING)], capabilities=("x",)).wait
    assert not ask([push("b")], capabilities=("x",)).wait


def test_c018_an_agent_is_never_its_own_target():
    only = ask([push("A", "x")], capabilities=("x",), sender="A", path=("A",))
    assert (names(only), only.reason, only.wait) == ([], Outcome.SELF_ONLY, False)
    assert why(only) == {"A": "is the sender itself"}
    for spread in map(str, range(20)):
        both = ask([push("A", "x"), push("B", "x")], capabilities=("x",), sender="a", spread=spread)
        assert names(both) == ["B"]


def test_c019_only_an_agent_on_the_path_can_means_cycle():
    cycle = ask([push("A", "a"), push("B", "b")], capabilities=("a",), sender="B", path=("A", "B"))
    assert cycle.reason is Outcome.CYCLE_DETECTED
    assert why(cycle)["A"] == "is on the path already: A > B > A"


def test_agents_on_the_path_are_passed_over_for_others():
    views = [push("A", "a"), push("C", "a")]
    resolution = ask(views, capabilities=("a",), sender="B", path=("A", "B"))
    assert names(resolution) == ["C"]
    assert why(resolution) == {"A": "is on the path already: A > B > A"}


def test_agents_that_were_tried_are_not_asked_again():
    resolution = ask([push("a", "x"), push("b", "x")], capabilities=("x",), tried=("a",))
    assert names(resolution) == ["b"]


@pytest.mark.parametrize(
    ("declared", "sent", "matches"),
    [
        ((), "image/png", True),
        (("image/png",), "image/png", True),
        (("image/*",), "image/png", True),
        (("*/*",), "image/png", True),
        (("file",), "image/png", True),
        (("text",), "text/plain; charset=utf-8", True),
        (("data",), "application/json", True),
        (("TEXT/Plain;charset=ascii",), "text/plain", True),
        (("text/plain",), "image/png", False),
        (("application/json",), "text/plain", False),
    ],
)
def test_an_agent_must_take_the_media_types_of_the_message(
    declared: tuple[str, ...], sent: str, matches: bool
):
    views = [push("a", "x", input_modes=declared)]
    resolution = ask(views, capabilities=("x",), part_modes=(sent,))
    assert names(resolution) == (["a"] if matches else [])
    assert matches or why(resolution)["a"] == f"does not take {sent}"


def test_the_modes_of_the_skill_go_over_those_of_the_card():
    skill = Skill(id="draw", input_modes=("image/png",), output_modes=("image/svg+xml",))
    view = push("a", skills=(skill,), input_modes=("text/plain",), output_modes=("text/plain",))
    assert names(ask([view], skill="draw", part_modes=("image/png",))) == ["a"]
    assert names(ask([view], skill="draw", part_modes=("text/plain",))) == []
    assert names(ask([view], skill="draw", output_modes=("text/plain",))) == []
    assert names(ask([view], skill="draw", accepted_output_modes=("text/plain", "image/*"))) == ["a"]


def test_the_caller_must_be_able_to_read_one_of_the_outputs():
    view = push("a", "x", output_modes=("text/html", "text/plain"))
    assert names(ask([view], capabilities=("x",), accepted_output_modes=("text/plain",))) == ["a"]
    nobody = ask([view], capabilities=("x",), accepted_output_modes=("image/png",))
    assert why(nobody)["a"] == "gives none of image/png"


@pytest.mark.parametrize("where", ["domains", "domain tag", "plain tag"])
def test_a_domain_is_declared_or_a_tag(where: str):
    view = {
        "domains": push("a", domains=("Shop",)),
        "domain tag": skilled("a", "s", tags=("domain:shop",)),
        "plain tag": skilled("a", "s", tags=("shop",)),
    }[where]
    assert names(ask([view, push("b")], domain="shop")) == ["a"]


# --- ranking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "worse", "asked"),
    [
        (skilled("z", "s"), skilled("a", "other", tags=("s",), status=Status.IDLE), {"skill": "s"}),
        (
            skilled("z", "s", tags=("t", "u")),
            skilled("a", "s", tags=("t",)),
            {"skill": "s", "tags": ("t", "u")},
        ),
        (push("z", "x", status=Status.IDLE), push("a", "x"), {}),
        (push("z", "x"), push("a", "x", status=Status.BUSY), {}),
        (push("z", "x"), push("a", "x", status=Status.IDLE, in_flight=1), {}),
        (push("z", "x", in_flight=1, response_s=5.0), push("a", "x", in_flight=2), {}),
        (push("z", "x", response_s=0.1, success_rate=0.5), push("a", "x", response_s=0.2), {}),
        (push("z", "x", response_s=0.1), push("a", "x", response_s=0.1, success_rate=0.9), {}),
        (push("z", "x"), push("a", "x", response_s=0.1), {}),
        (
            push("z", "x", status=Status.BUSY, in_flight=9, success_rate=0.1),
            push("a", "x", status=Status.IDLE, in_flight=1, max_concurrency=1),
            {},
        ),
    ],
)
def test_ranking_goes_by_match_then_leisure_then_load_then_speed_then_success(better, worse, asked):
    wanted: dict[str, Any] = asked or {"capabilities": ("x",)}
    assert names(ask([worse, better], **wanted)) == ["z", "a"]


def test_a_full_agent_stays_a_candidate_and_says_so():
    resolution = ask([push("a", "x", in_flight=2, max_concurrency=2)], capabilities=("x",))
    assert names(resolution) == ["a"]
    assert resolution.candidates[0].reasons[0] == "is full: holds 2 of 2"


def test_an_agent_that_the_store_knows_to_be_full_is_last_whatever_its_view_says():
    views = [push("a", "x", max_concurrency=2), push("b", "x", max_concurrency=2, in_flight=1)]
    assert names(ask(views, capabilities=("x",))) == ["a", "b"]
    resolution = ask(views, capabilities=("x",), full=frozenset({"a"}))
    assert names(resolution) == ["b", "a"]
    assert resolution.candidates[1].reasons[0] == "is full: holds 2 of 2"


@pytest.mark.parametrize("seems_full", [False, True])
def test_of_more_agents_than_are_listed_those_that_are_not_known_to_be_full_are_listed_first(
    seems_full: bool,
):
    views = [
        push(f"a-{n:02}", "x", max_concurrency=1, in_flight=int(seems_full))
        for n in range(CANDIDATES_MAX + 1)
    ]
    full = frozenset(view.agent.agent_id for view in views[:CANDIDATES_MAX])
    assert names(ask(views, capabilities=("x",), full=full))[0] == views[-1].agent.agent_id


def test_a_candidate_says_why_it_stands_where_it_stands():
    view = skilled(
        "a",
        "s",
        tags=("t",),
        in_flight=1,
        max_concurrency=4,
        response_s=0.12,
        completed=3,
        failed=1,
        success_rate=0.75,
    )
    (candidate,) = ask([view], skill="s", tags=("T",), domain="t").candidates
    assert candidate.reasons == (
        "has skill s by its id",
        "has tag T",
        "has domain t",
        "online",
        "holds 1 of 4",
        "answers in 0.120 s",
        "succeeds in 75%",
    )
    assert candidate.readiness is Readiness.PROBE


def test_exact_ties_are_spread_over_questions_and_fixed_for_one():
    views = [push(name, "x") for name in "abcde"]
    chosen = Counter(names(ask(views, capabilities=("x",), spread=str(n)))[0] for n in range(500))
    assert min(chosen.values()) > 60
    assert names(ask(views, capabilities=("x",), spread="1")) == names(
        ask(views[::-1], capabilities=("x",), spread="1")
    )
    assert names(ask(views, capabilities=("x",))) == list("abcde")


_VIEWS = st.builds(
    push,
    st.text("abcdefgh", min_size=1, max_size=2),
    st.sampled_from(["x", "y"]),
    status=st.sampled_from(list(Status)),
    in_flight=st.integers(0, 3),
    max_concurrency=st.none() | st.integers(1, 3),
    response_s=st.none() | st.floats(0, 10),
    success_rate=st.floats(0, 1),
    breaker_open=st.booleans(),
)


@settings(max_examples=60)
@given(
    st.lists(_VIEWS, unique_by=lambda v: v.agent.agent_id, max_size=25),
    st.randoms(use_true_random=False),
    st.text(max_size=3),
)
def test_the_order_of_registration_never_matters(views: list[AgentView], chance: random.Random, spread: str):
    shuffled = chance.sample(views, len(views))
    asked: dict[str, Any] = {"capabilities": ("x",), "spread": spread, "sender": "a", "path": ("b",)}
    assert ask(views, **asked) == ask(shuffled, **asked)


@settings(max_examples=60)
@given(st.lists(_VIEWS, unique_by=lambda v: v.agent.agent_id, max_size=70), st.integers(0, 60))
def test_everybody_is_a_candidate_or_passed_over_or_counted(views: list[AgentView], listed: int):
    resolution = ask(views, capabilities=("x",), passed_over_max=listed)
    assert len(resolution.candidates) <= CANDIDATES_MAX
    assert len(resolution.passed_over) <= listed
    assert len(resolution.candidates) + len(resolution.passed_over) + resolution.more == len(views)
    assert not {*names(resolution)} & {*why(resolution)}
    assert all("x" in v.agent.capabilities for v in views if v.agent.agent_id in names(resolution))


# --- a named target ------------------------------------------------------------------------------


def test_a_named_target_needs_no_capability_and_no_rank():
    views = [push("b", status=Status.BUSY, in_flight=9, max_concurrency=1), push("a", "x")]
    resolution = ask(views, target_agent="b", capabilities=("x",))
    assert names(resolution) == ["b", "a"]
    assert resolution.candidates[0].reasons == ("named by the sender",)
    alone = ask(views, target_agent="b")
    assert (names(alone), alone.passed_over, alone.more) == (["b"], (), 0)


def test_a_named_target_may_be_a_person():
    assert (
        ask([pull("ann", role=Role.HUMAN, present=False)], target_agent="ann").candidates[0].role
        is Role.HUMAN
    )


@pytest.mark.parametrize("target", ["a", "A", "me", "ME"])
def test_a_named_target_on_the_path_or_the_sender_itself_is_a_cycle(target: str):
    views = [push("a"), push("me"), push("other", "x")]
    cycle = ask(
        views, target_agent=target, sender="me", path=("a", "me"), fallback=("other",), capabilities=("x",)
    )
    assert (names(cycle), cycle.reason) == ([], Outcome.CYCLE_DETECTED)
    assert cycle.passed_over[0].agent_id == target


def test_an_unknown_target_is_nobody_with_a_suggestion():
    nobody = ask([push("billing-agent")], target_agent="billing_agent")
    assert nobody.reason is Outcome.NO_CAPABLE_AGENT
    assert why(nobody) == {"billing_agent": "is not registered; did you mean billing-agent?"}


def test_an_offline_push_target_gives_way_to_capabilities_then_fallback():
    views = [push("t", status=Status.OFFLINE), push("able", "x"), push("second")]
    assert names(ask(views, target_agent="t", capabilities=("x",), fallback=("second",))) == [
        "able",
        "second",
    ]
    assert names(ask(views, target_agent="t", fallback=("second", "ghost"))) == ["second"]
    gone = ask(views, target_agent="t")
    assert (names(gone), gone.reason, gone.wait) == ([], Outcome.TARGET_UNAVAILABLE, False)


def test_the_inbox_of_an_absent_pull_target_waits():
    views = [pull("t", present=False), push("able", "x"), push("second")]
    assert names(ask(views, target_agent="t")) == ["t"]
    assert names(ask(views, target_agent="t", fallback=("second",))) == ["t", "second"]
    assert names(ask(views, target_agent="t", capabilities=("x",))) == ["able", "t"]
    assert names(ask(views, target_agent="t", capabilities=("z",))) == ["t"]


def test_a_named_target_with_an_open_breaker_is_asked_last():
    views = [push("t", breaker_open=True), push("second")]
    assert names(ask(views, target_agent="t", fallback=("second",))) == ["second", "t"]
    assert names(ask(views, target_agent="t")) == ["t"]


@pytest.mark.parametrize(
    "live", [{"status": Status.DRAINING}, {"card_problem": "has no address that we speak"}]
)
def test_a_named_target_that_takes_no_work_is_not_asked(live: dict[str, Any]):
    nobody = ask([push("t", **live)], target_agent="t")
    assert (names(nobody), nobody.reason) == ([], Outcome.TARGET_UNAVAILABLE)
    draining = ask([pull("t", status=Status.DRAINING)], target_agent="t")
    assert (names(draining), draining.wait) == ([], False)


def test_a_named_target_that_was_tried_gives_way():
    assert names(ask([push("t"), push("second")], target_agent="t", fallback=("second",), tried=("t",))) == [
        "second"
    ]


def test_fallbacks_without_a_target_are_asked_in_their_order():
    assert names(ask([push("a"), push("b")], fallback=("b", "a"))) == ["b", "a"]


def test_an_agent_is_a_candidate_once():
    assert names(ask([push("a", "x")], target_agent="a", fallback=("A",), capabilities=("x",))) == ["a"]


# --- rules ---------------------------------------------------------------------------------------


def test_a_rule_sends_to_its_agent_and_names_itself():
    resolution = ask([push("billing_agent"), push("b")], shipped(), signals=Signals(intent="billing"))
    assert (names(resolution), resolution.rule) == (["billing_agent"], "billing")
    assert resolution.candidates[0].reasons == ("target of rule 'billing'",)


@pytest.mark.parametrize(
    "there",
    [
        [],
        [push("billing_agent", breaker_open=True)],
        [push("billing_agent", status=Status.DRAINING)],
        [pull("billing_agent", present=False)],
        [push("billing_agent", workspace="w2")],
    ],
)
def test_a_rule_whose_target_is_not_there_passes_to_the_next(there: list[AgentView]):
    signals = Signals(intent="billing", complexity_score=9)
    views = [*there, push("senior_agent"), push("default_agent")]
    resolution = ask(views, shipped(), signals=signals, workspace="default")
    assert (names(resolution), resolution.rule) == (["senior_agent"], "complex")
    assert "billing_agent" in why(resolution)


def test_a_rule_never_sends_to_an_agent_that_lacks_what_is_required():
    views = [push("billing_agent"), push("able", "x")]
    resolution = ask(views, shipped(), signals=Signals(intent="billing"), capabilities=("x",))
    assert (names(resolution), resolution.rule) == (["able"], "")
    assert why(resolution)["billing_agent"] == "lacks capability x"


def test_behind_the_target_of_a_rule_stand_the_others_that_can_do_it():
    views = [push("billing_agent", "x"), push("able", "x"), push("spare")]
    resolution = ask(
        views, shipped(), signals=Signals(intent="billing"), capabilities=("x",), fallback=("spare",)
    )
    assert names(resolution) == ["billing_agent", "spare", "able"]


def test_a_rule_may_send_to_a_supervisor():
    view = pull("escalation_agent", role=Role.SUPERVISOR, present=False)
    assert names(ask([view], shipped(), signals=Signals(sentiment_score=0.1))) == ["escalation_agent"]


def test_a_rule_never_sends_back_to_the_sender():
    resolution = ask(
        [push("billing_agent")], shipped(), signals=Signals(intent="billing"), sender="billing_agent"
    )
    assert names(resolution) == []


def test_a_rule_may_ask_for_requirements_on_top_of_those_of_the_sender():
    rules = RoutingRules(
        (Rule(name="web", when="domain == 'shop'", requirements=Requirements(agent_type="browser")),)
    )
    views = [
        push("a", domains=("shop",)),
        push("b", platform="external", domains=("shop",)),
        push("c", "canBrowse"),
    ]
    resolution = ask(views, rules, domain="shop")
    assert (names(resolution), resolution.rule) == (["b", "a"], "web")


def test_a_named_target_goes_over_every_rule():
    views = [push("billing_agent"), push("b")]
    resolution = ask(views, shipped(), target_agent="b", signals=Signals(intent="billing"))
    assert (names(resolution), resolution.rule) == (["b"], "")


# --- escalation ----------------------------------------------------------------------------------


def escalate(*views: AgentView, **options) -> list[str]:
    return [s.agent_id for s in supervisors(Roster.of(views), "t", **options)]


def test_escalations_go_to_supervisors_then_to_people_absent_or_not():
    views = [
        pull("ann", role=Role.HUMAN),
        pull("boss", role=Role.SUPERVISOR, present=False),
        push("chief", role=Role.SUPERVISOR),
        push("down", role=Role.SUPERVISOR, breaker_open=True),
        pull("gone", role=Role.SUPERVISOR, status=Status.DRAINING),
        push("agent", "x"),
        pull("stranger", role=Role.SUPERVISOR, tenant="other"),
    ]
    assert escalate(*views) == ["chief", "boss", "ann"]
    assert escalate(*views, exclude=("CHIEF",)) == ["boss", "ann"]


def test_escalations_stay_in_the_workspace_if_it_has_somebody():
    views = [pull("here", role=Role.HUMAN, workspace="w"), pull("there", role=Role.SUPERVISOR)]
    assert escalate(*views, workspace="w") == ["here"]
    assert escalate(*views, workspace="w2") == ["there", "here"]


# --- size ----------------------------------------------------------------------------------------


def test_what_is_listed_stays_bounded_and_the_rest_is_counted():
    views = [push(f"a{n:05}", "x" if n < 200 else "y") for n in range(2_000)]
    resolution = ask(views, capabilities=("x",))
    assert len(resolution.candidates) == CANDIDATES_MAX
    assert len(resolution.passed_over) == PASSED_OVER_MAX
    assert resolution.more == 2_000 - CANDIDATES_MAX - PASSED_OVER_MAX


def test_a_roster_forgets_what_is_dropped_and_what_is_replaced():
    roster = Roster(lambda known: AgentView(agent=known))
    roster.put(agent("a", can=("x",)))
    roster.put(agent("b", can=("x",)))
    roster.put(agent("A", can=("y",)))
    assert names(ask(roster, capabilities=("x",))) == ["b"]
    assert roster.drop("t", "B") is not None
    assert roster.drop("t", "b") is None
    assert roster.drop("nowhere", "b") is None
    assert [entry.agent.agent_id for entry in roster] == ["A"]
    assert len(roster) == 1
    assert names(ask(roster, capabilities=("x",))) == []
