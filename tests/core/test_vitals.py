"""How an agent is doing, whatever happened to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.agents import Agent, Binding, Generation, Interface, Role, Status
from a2a_handoff.core.events import Outcome
from a2a_handoff.core.vitals import Vitals

PUSH = Agent(
    agent_id="push",
    tenant="t",
    interfaces=(Interface(url="http://a.test", binding=Binding.JSONRPC, generation=Generation.V1_0),),
)
PULL = Agent(agent_id="pull", tenant="t")
PERSON = Agent(agent_id="person", tenant="t", role=Role.HUMAN)

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["heard", "beat", "opened", "closed", "offered", "acknowledged", "ended", "returned", "held"]
        ),
        st.sampled_from([0.0, 0.5, 7.0, 15.0, 20.0, 21.0]),
        st.sampled_from([None, *Outcome]),
        st.sampled_from(list(Status)),
    ),
    max_size=30,
)


def step(vitals: Vitals, name: str, now: float, outcome: Outcome | None, status: Status) -> None:
    match name:
        case "heard":
            vitals.heard(now, now)
        case "beat":
            vitals.beat(now, status, 1)
        case "opened":
            vitals.opened()
        case "closed":
            if vitals._channels:
                vitals.closed()
        case "offered":
            vitals.offered(now)
        case "acknowledged":
            vitals.acknowledged(0.5)
        case "ended":
            vitals.ended(now, outcome)
        case "held":
            vitals.held(2)
        case _:
            vitals.returned(now)


@given(_STEPS, st.sampled_from([PUSH, PULL, PERSON]))
def test_a_view_that_is_kept_is_never_out_of_date(steps, agent: Agent):
    kept, fresh = Vitals(), Vitals()
    now = 1_000.0
    for name, passes, outcome, status in steps:
        now += passes
        step(kept, name, now, outcome, status)
        step(fresh, name, now, outcome, status)
        kept.view(agent, now)
        for later in (now, now + 14.9, now + 15, now + 20, now + 20.1):
            fresh._view = None
            assert kept.view(agent, later) == fresh.view(agent, later)
        kept._view = None


@given(_STEPS)
def test_the_load_is_never_negative_and_rates_stay_rates(steps):
    vitals = Vitals()
    for name, passes, outcome, status in steps:
        step(vitals, name, passes, outcome, status)
        view = vitals.view(PUSH, passes)
        assert view.in_flight >= 0
        assert 0.0 <= view.success_rate <= 1.0
        assert view.response_s is None or view.response_s >= 0


def test_an_offer_without_an_answer_counts_as_a_slow_one():
    vitals = Vitals()
    vitals.acknowledged(0.1)
    vitals.ended(1.0, Outcome.TIMEOUT)
    response_s = vitals.view(PUSH, 1.0).response_s
    assert response_s is not None
    assert response_s > 10


def test_a_silent_pull_agent_is_shown_as_offline_and_a_push_agent_is_not():
    vitals = Vitals()
    assert vitals.view(PULL, 0.0).status is Status.OFFLINE
    assert vitals.view(PERSON, 0.0).status is Status.OFFLINE
    assert vitals.view(PUSH, 0.0).status is Status.ONLINE
