"""Routing rules: what they may say, which of them match."""

from __future__ import annotations

import pytest

from a2a_handoff.core.context import HandoffContext, Requirements, Signals
from a2a_handoff.core.rules import RULES_MAX, RoutingRules, Rule, RulesError, shipped


def first(
    rules: RoutingRules, signals: Signals | None = None, context: HandoffContext | None = None, **asked
):
    values = rules.values_of(signals or Signals(), Requirements(**asked), context)
    return next((rule.target for rule in rules.matching(values)), None)


def when(condition: str) -> RoutingRules:
    return RoutingRules((Rule(name="r", when=condition, target="hit"),))


def context(**fields) -> HandoffContext:
    return HandoffContext(
        correlation_id="c", source_agent="a", conversation_summary="s", user_intent="i", **fields
    )


def fault(text: str) -> str:
    with pytest.raises(RulesError) as caught:
        RoutingRules.load(text)
    return "\n".join(caught.value.faults)


@pytest.mark.parametrize(
    ("signals", "target"),
    [
        (Signals(intent="billing"), "billing_agent"),
        (Signals(sentiment_score=0.29), "escalation_agent"),
        (Signals(sentiment_score=0.3), None),
        (Signals(complexity_score=8.1), "senior_agent"),
        (Signals(complexity_score=8), None),
        (Signals(language="ar"), "arabic_specialist"),
        (Signals(language="en"), None),
        (Signals(), None),
        (Signals(intent="billing", sentiment_score=0.0, complexity_score=9, language="ar"), "billing_agent"),
        (Signals(sentiment_score=0.1, complexity_score=9, language="ar"), "escalation_agent"),
        (Signals(complexity_score=9, language="ar"), "senior_agent"),
    ],
)
def test_the_shipped_rules_send_by_the_first_that_matches(signals: Signals, target: str | None):
    assert first(shipped(), signals) == target
    assert shipped().default == "default_agent"


def test_an_absent_sentiment_counts_as_one_and_an_absent_complexity_as_nothing():
    assert first(when("sentiment == 1.0 && complexity == 0"), Signals()) == "hit"


@pytest.mark.parametrize(
    "condition", ["complexity > 8", "complexity > 8.0", "8 < complexity", "complexity_score > 8"]
)
def test_a_number_may_be_written_with_or_without_a_point(condition: str):
    assert first(when(condition), Signals(complexity_score=9)) == "hit"
    assert first(when(condition), Signals(complexity_score=8)) is None


def test_conditions_may_look_into_the_facts():
    rules = when("key_facts.tier == 'gold' && key_facts.amount > 100")
    assert first(rules, context=context(key_facts=b'{"tier":"gold","amount":150}')) == "hit"
    assert first(rules, context=context(key_facts=b'{"tier":"gold","amount":99.5}')) is None


def test_a_key_that_the_context_lacks_makes_a_rule_not_match_and_says_so():
    rules = when("key_facts.tier == 'gold'")
    values = rules.values_of(Signals(), Requirements(), context(key_facts=b"{}"))
    (verdict,) = rules.verdicts(values)
    assert not verdict.matched
    assert "tier" in verdict.problem


@pytest.mark.parametrize(
    "facts", [b'{"n":99999999999999999999999}', b'{"n":null}', b'{"n":[1]}', b'{"n":"9"}', b'{"n":{"n":9}}']
)
def test_facts_of_another_type_make_a_rule_not_match(facts: bytes):
    assert first(when("key_facts.n > 8"), context=context(key_facts=facts)) is None


def test_an_error_behind_a_negation_is_still_no_match():
    assert first(when("!(key_facts.tier == 'gold')"), context=context()) is None


def test_conditions_may_look_at_what_is_required():
    rules = when("'canBrowse' in capabilities && tags.exists(t, t.startsWith('shop'))")
    assert first(rules, capabilities=("canBrowse",), tags=("shopping",)) == "hit"
    assert first(rules, capabilities=("canBrowse",)) is None


def test_rules_are_read_from_toml_in_their_order():
    rules = RoutingRules.load(
        """
        default = "anybody"
        [[rule]]
        name = "web"
        when = "'canBrowse' in capabilities"
        requirements = { capabilities = ["canTestUI"], domain = "shop" }
        [[rule]]
        when = "true"
        target = "last"
        """
    )
    web, last = rules.rules
    assert web.requirements == Requirements(capabilities=("canTestUI",), domain="shop")
    assert (last.name, last.target, rules.default) == ("rule 2", "last", "anybody")


def test_an_unknown_name_is_refused_with_rule_place_and_known_names():
    text = fault('[[rule]]\nname = "typo"\nwhen = "intnt == \'billing\'"\ntarget = "a"\n')
    assert text.startswith("rule 1 (typo): when: line 1, column 1: undeclared reference to 'intnt'")
    assert "intent, language" in text


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("intent == 3", "no matching overload"),
        ("intent ==", "Syntax error"),
        ("complexity > 'a'", "no matching overload"),
        ("sentiment < 0.3 || sentiment < 1", "write 8.0 for 8"),
        ("1 + 1", "gives INT, must give BOOL"),
        ("intent.matches", "when:"),
    ],
)
def test_a_condition_that_cannot_work_is_refused_at_load(condition: str, says: str):
    text = fault(f'[[rule]]\nname = "r"\nwhen = """{condition}"""\ntarget = "a"\n')
    assert "rule 1 (r)" in text
    assert says in text


def test_every_fault_of_a_file_is_named_at_once():
    text = fault(
        """
        defualt = "x"
        [[rule]]
        when = "true"
        [[rule]]
        name = "both"
        when = "true"
        target = "a"
        requirements = { capabilites = ["x"], skill = "", tags = [] }
        [[rule]]
        name = ""
        target = 3
        wen = "true"
        """
    )
    for part in (
        "defualt: unknown",
        "rule 1: needs one of target and requirements",
        "rule 2 (both): needs one of target and requirements",
        "requirements.capabilites is unknown; known are agent_type, capabilities",
        "requirements.skill must be text",
        "requirements.tags must be a list",
        "rule 3: wen is unknown",
        "target must be text",
        "when must be text",
        "name must be text",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rule = 3", "must be [[rule]] tables"),
        ("rule = [3]", "rule 1: must be a table"),
        ("[[rule]", "not TOML"),
        ("default = 3", "default: must be the id of an agent"),
        ('[[rule]]\nwhen="true"\nrequirements=3', "requirements must be a table"),
        ('[[rule]]\nwhen="true"\nrequirements={}', "requirements must be a table"),
        ('[[rule]]\nname="a"\nwhen="true"\ntarget="x"\n' * 2, "the name a is used twice"),
        ('[[rule]]\nwhen="true"\ntarget="x"\n' * (RULES_MAX + 1), f"at most {RULES_MAX}"),
        ('[[rule]]\nwhen="' + "true || " * 600 + 'true"\ntarget="x"\n', "longer than"),
    ],
)
def test_a_document_of_another_shape_is_refused(text: str, says: str):
    assert says in fault(text)


def test_no_rules_match_nothing():
    assert first(RoutingRules(), Signals(intent="billing")) is None
