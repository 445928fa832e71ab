"""The life cycle of a handoff: every command in every state, and the rules that hold always."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.actions import actions_for
from a2a_handoff.core.agents import Readiness, Role
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import Mode
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Outcome, State, WorkKind
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.machine import ALLOWED, decide
from a2a_handoff.core.policy import CHILDREN_MAX, REPLIES_MAX, Policy
from tests.support.machine import NOW, World, candidate, every_command, in_state, means, request


def refused(world: World, command: Command) -> Code:
    before = world.h
    with pytest.raises(HandoffError) as caught:
        world.do(command)
    assert world.h is before
    return caught.value.code


def outcome(world: World, command: Command) -> Code | None:
    try:
        world.do(command)
    except HandoffError as error:
        return error.code
    return None


# --- the table -----------------------------------------------------------------------------------


def test_the_table_names_every_command() -> None:
    assert set(ALLOWED) == set(get_args(Command))
    assert {type(c) for c in every_command()} == set(get_args(Command))


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("command", every_command(), ids=lambda c: type(c).__name__)
def test_a_command_is_obeyed_exactly_where_the_table_says(state: State, command: Command) -> None:
    world = in_state(state)
    if state in ALLOWED[type(command)]:
        code = outcome(world, command)
        # Allowed by the state, it may still be refused for a reason of its own.
        assert code in (None, Code.STALE_ATTEMPT, Code.NOT_THE_HOLDER, Code.WRONG_STATE)
    else:
        code = refused(world, command)
        if not isinstance(command, cmd.Request):
            ended = {Code.HANDOFF_ENDED, Code.TASK_NOT_CANCELABLE, Code.UNSUPPORTED_OPERATION}
            assert (code in ended) == state.terminal


@pytest.mark.parametrize("state", [s for s in State if s.terminal])
@pytest.mark.parametrize("command", every_command(), ids=lambda c: type(c).__name__)
def test_terminal_is_final(state: State, command: Command) -> None:
    world = in_state(state)
    before = world.h
    outcome(world, command)
    assert world.h.state is state
    assert world.h.updated_at == before.updated_at


# --- creation ------------------------------------------------------------------------------------


def test_the_first_candidate_is_offered_the_handoff_in_the_commit_that_creates_it() -> None:
    world = World(request(candidate("billing"), candidate("senior")))
    assert world.kinds() == ["HandoffRequested", "HandoffOffered"]
    assert (world.h.state, world.h.owner, world.h.holder) == (State.OFFERED, "source", "billing")
    assert world.h.hop_count == 0


A, B, C = candidate("a"), candidate("b"), candidate("c")


def full(*agents: str, **more: Any) -> ev.Means:
    """Means of somebody who knows that these agents are full; all three are there."""
    return replace(means("a", "b", "c", n=2, **more), full=frozenset(agents))


@pytest.mark.parametrize(
    ("who_is_full", "target", "asked"),
    [
        ((), "", "a"),
        (("a",), "", "b"),
        (("a", "b"), "", "c"),
        (("a", "b", "c"), "", "a"),
        (("a",), "A", "a"),
        (("a", "b"), "b", "b"),
    ],
)
def test_who_is_full_is_asked_only_if_everybody_is_or_by_name(
    who_is_full: tuple[str, ...], target: str, asked: str
) -> None:
    at_first = World(replace(request(A, B, C, target=target), means=full(*who_is_full)))
    assert at_first.h.holder == asked
    world = World(request(candidate("first"), A, B, C, target=target))
    world.do(cmd.Decline(agent_id="first", means=full(*who_is_full)))
    assert world.h.holder == asked
    anew = World(request(candidate("first"), target=target))
    anew.do(cmd.Decline(agent_id="first", means=means()))
    resolution = ev.Resolution(candidates=(A, B, C))
    anew.do(cmd.Resolved(resolution=resolution, means=full(*who_is_full)))
    assert anew.h.holder == asked


def test_to_be_passed_over_as_full_is_no_attempt() -> None:
    world = World(replace(request(A, B, C), means=full("a", "b")))
    assert [(attempt.number, attempt.agent_id) for attempt in world.h.attempts] == [(1, "c")]
    world.do(cmd.Decline(agent_id="c", means=full("b")))
    assert world.h.holder == "a"


def test_of_supervisors_one_that_is_not_full_is_asked() -> None:
    bosses = (candidate("boss", Readiness.PERSON, Role.SUPERVISOR), candidate("chief", Readiness.PERSON))
    world = World(request(A))
    world.do(cmd.Decline(agent_id="a", means=means()))
    world.do(cmd.Resolved(resolution=ev.Resolution(), means=full("boss", supervisors=bosses)))
    assert (world.h.state, world.h.holder) == (State.ESCALATED, "chief")


def test_without_any_capable_agent_the_handoff_goes_back_at_once() -> None:
    world = World(request(reason=Outcome.NO_CAPABLE_AGENT))
    assert (world.h.state, world.h.outcome) == (State.RETURNED, Outcome.NO_CAPABLE_AGENT)


def test_it_waits_for_a_matching_agent_that_is_away_and_goes_back_when_none_comes() -> None:
    world = World(request(wait=True))
    assert world.h.waiting_until == NOW + 300
    world.now += 300
    world.do(cmd.WaitOver(means=means()))
    assert world.h.state is State.RETURNED


def test_an_agent_that_comes_while_it_waits_is_offered_the_handoff() -> None:
    world = World(request(wait=True))
    world.do(cmd.Resolved(resolution=ev.Resolution(candidates=(candidate("late"),)), means=means("late")))
    assert (world.h.state, world.h.holder) == (State.OFFERED, "late")


def test_five_hops_are_delivered_and_the_sixth_is_refused_before_anything_is_stored() -> None:
    for hops in range(5):
        assert World(request(candidate("b"), hop_count=hops)).h.state is State.OFFERED
    with pytest.raises(HandoffError) as caught:
        decide(None, request(candidate("b"), hop_count=5), NOW)
    assert caught.value.code is Code.MAX_HOPS_EXCEEDED


@pytest.mark.parametrize("target", ["a", "b"])
def test_a_target_on_the_path_is_a_loop_and_the_error_names_the_path(target: str) -> None:
    with pytest.raises(HandoffError) as caught:
        decide(None, request(candidate("c"), path=("a", "b"), target=target), NOW)
    assert caught.value.code is Code.CYCLE_DETECTED
    assert caught.value.facts["path"] == f"a,b,{target}"


def test_when_only_an_ancestor_could_do_it_the_request_is_a_loop() -> None:
    looped = request(
        reason=Outcome.CYCLE_DETECTED,
        passed_over=(ev.PassedOver(agent_id="a", reason="had the task before"),),
        path=("a", "b"),
    )
    with pytest.raises(HandoffError) as caught:
        decide(None, looped, NOW)
    assert caught.value.facts["path"] == "a,b,a"


# --- offers --------------------------------------------------------------------------------------


def test_the_source_goes_on_standby_only_with_the_acknowledgement() -> None:
    world = World(request(candidate("billing")))
    assert world.h.owner == "source"
    world.do(cmd.Acknowledge(agent_id="billing"))
    assert (world.h.owner, world.h.hop_count, world.h.path) == ("target", 1, ("sender", "billing"))


def test_a_decline_moves_on_at_once_to_the_next_eligible_candidate() -> None:
    world = World(request(candidate("a"), candidate("b"), candidate("c")))
    world.do(cmd.Decline(agent_id="a", reason="full", means=means("c", n=2)))
    assert [(a.agent_id, a.outcome) for a in world.h.attempts] == [
        ("a", Outcome.TARGET_REJECTED),
        ("c", None),
    ]


def test_an_unreachable_agent_is_asked_once_more_and_then_the_next() -> None:
    world = World(request(candidate("a"), candidate("b")))
    down = cmd.DeliveryFailed(
        attempt=1, outcome=Outcome.TARGET_UNAVAILABLE, detail="refused", means=means("b", n=2)
    )
    (retry,) = world.do(down)
    assert isinstance(retry, ev.RedeliveryScheduled)
    assert 2.0 <= retry.due_at - NOW <= 2.2
    assert world.h.holder == "a"
    world.do(down)
    assert world.h.holder == "b"
    assert world.h.attempts[-1].number == 2


def test_retries_of_one_agent_are_further_and_further_apart() -> None:
    world = World(request(candidate("a"), policy=Policy(deliveries=4)))
    gaps: list[float] = []
    for _ in range(3):
        (retry,) = world.do(
            cmd.DeliveryFailed(attempt=1, outcome=Outcome.TARGET_UNAVAILABLE, detail="503", means=means())
        )
        assert isinstance(retry, ev.RedeliveryScheduled)
        gaps.append(retry.due_at - world.now)
        world.now = retry.due_at
    assert gaps == sorted(gaps)
    assert gaps[-1] > 3 * gaps[0]


def test_a_wrong_password_is_not_tried_again() -> None:
    world = World(request(candidate("a"), candidate("b")))
    world.do(
        cmd.DeliveryFailed(
            attempt=1, outcome=Outcome.TARGET_AUTH, detail="401", means=means("b", n=2), again=False
        )
    )
    assert world.h.holder == "b"


def test_at_most_three_agents_are_tried_then_it_goes_back_with_every_reason() -> None:
    world = World(request(*(candidate(name) for name in "abcde")))
    for name in "abc":
        world.do(cmd.Decline(agent_id=name, reason=f"{name} is full", means=means(*"abcde", n=ord(name))))
    assert world.h.state is State.RETURNED
    assert [a.detail for a in world.h.attempts] == ["a is full", "b is full", "c is full"]


def test_exhausted_candidates_are_resolved_anew_once() -> None:
    world = World(request(candidate("a")))
    world.do(cmd.Decline(agent_id="a", means=means()))
    assert world.kinds()[-1] == "ResolutionRequested"
    world.do(cmd.Resolved(resolution=ev.Resolution(candidates=(candidate("b"),)), means=means("b", n=2)))
    assert world.h.holder == "b"
    world.do(cmd.Decline(agent_id="b", means=means(n=3)))
    assert world.h.state is State.RETURNED


def test_a_supervisor_is_asked_before_it_goes_back_and_only_once() -> None:
    world = in_state(State.ESCALATED)
    assert (world.h.holder, world.h.owner) == ("boss", "source")
    other = candidate("other", Readiness.PERSON, Role.SUPERVISOR)
    world.do(cmd.Decline(agent_id="boss", means=means(supervisors=(other,), n=5)))
    assert world.h.state is State.RETURNED


def test_the_messages_of_a_caller_are_bounded_and_a_repeat_is_still_known() -> None:
    world = in_state(State.ACKNOWLEDGED)
    world.do(*(cmd.Reply(message=b"{}", message_id=f"r-{n}") for n in range(REPLIES_MAX)))
    assert refused(world, cmd.Reply(message=b"{}", message_id="more")) is Code.UNSUPPORTED_OPERATION
    assert world.do(cmd.Reply(message=b"{}", message_id="r-7")) == []


def test_the_handoffs_that_a_target_makes_are_bounded() -> None:
    world = in_state(State.ACKNOWLEDGED)
    attach = [cmd.AttachChild(child_id=f"c-{n}", mode=Mode.DELEGATE) for n in range(CHILDREN_MAX + 1)]
    world.do(*attach[:-1])
    assert refused(world, attach[-1]) is Code.WRONG_STATE


@pytest.mark.parametrize("mode", Mode)
def test_who_was_escalated_to_hands_on_to_nobody(mode: Mode) -> None:
    world = in_state(State.ESCALATED)
    world.do(cmd.Acknowledge(agent_id="boss"))
    assert refused(world, cmd.AttachChild(child_id="c", mode=mode, agent_id="boss")) is Code.WRONG_STATE
    world.do(cmd.Complete(agent_id="boss"))
    assert world.h.state is State.COMPLETED


def test_a_supervisor_that_was_named_as_the_target_may_hand_on() -> None:
    world = World(request(candidate("boss", Readiness.PULL, Role.SUPERVISOR)))
    world.do(cmd.Acknowledge(agent_id="boss"))
    world.do(cmd.AttachChild(child_id="c", mode=Mode.DELEGATE, agent_id="boss"))
    assert len(world.h.children) == 1


def test_a_chain_that_escalated_before_does_not_escalate_again() -> None:
    parent = ev.ParentRef(handoff_id="p", mode=Mode.TRANSFER, deadline_at=NOW + 3600, escalated=True)
    boss = candidate("boss", Readiness.PERSON, Role.SUPERVISOR)
    world = World(request(candidate("a"), parent=parent, policy=Policy(agents=1)))
    world.do(cmd.Decline(agent_id="a", means=means(supervisors=(boss,), n=2)))
    assert world.h.state is State.RETURNED


def test_a_pull_offer_is_announced_again_once_then_the_next_candidate_gets_it() -> None:
    world = World(request(candidate("editor", Readiness.PULL), candidate("other", Readiness.PULL)))
    world.now += 30
    world.do(cmd.OfferLapsed(attempt=1, means=means("other", n=2)))
    assert (world.h.holder, world.h.attempts[0].deliveries) == ("editor", 2)
    world.now += 30
    world.do(cmd.OfferLapsed(attempt=1, means=means("other", n=2)))
    assert world.h.holder == "other"


def test_a_pull_offer_without_an_alternative_stays_until_the_wait_is_over() -> None:
    world = World(request(candidate("editor", Readiness.PULL)))
    for _ in range(2):
        world.now += 30
        world.do(cmd.OfferLapsed(attempt=1, means=means()))
    assert (world.h.holder, world.h.waiting_until) == ("editor", NOW + 300)
    world.now = NOW + 300
    world.do(cmd.WaitOver(means=means()))
    assert (world.h.state, world.h.attempts[0].outcome) == (State.RETURNED, Outcome.TIMEOUT)


# --- uncertainty ---------------------------------------------------------------------------------


def test_a_delivery_that_may_have_started_goes_to_nobody_else() -> None:
    world = World(request(candidate("a"), candidate("b")))
    world.do(cmd.DeliveryUnsure(attempt=1, detail="no answer", means=means("b", n=2)))
    assert (world.h.holder, world.h.uncertain, world.h.owner) == ("a", True, "source")


def test_unless_the_sender_said_that_running_it_twice_does_no_harm() -> None:
    world = World(request(candidate("a"), candidate("b"), replay_safe=True))
    world.do(cmd.DeliveryUnsure(attempt=1, detail="no answer", means=means("b", n=2)))
    assert world.h.holder == "b"
    ended = next(e for e in world.log if isinstance(e, ev.AttemptEnded))
    assert ended.rescind


def test_a_target_whose_task_is_known_is_asked_before_another_agent_gets_it() -> None:
    world = World(request(candidate("a"), candidate("b"), replay_safe=True))
    world.do(
        cmd.Acknowledge(agent_id="a", attempt=1, remote=ev.Remote(task_id="r-1")),
        cmd.DeliveryUnsure(attempt=1, detail="the stream was cut", means=means("b", n=2)),
    )
    assert (world.h.holder, world.h.uncertain) == ("a", True)
    world.do(cmd.TargetLost(attempt=1, detail="it does not answer", means=means("b", n=2)))
    assert (world.h.holder, world.h.state) == ("b", State.OFFERED)


def test_nothing_is_replayed_once_output_was_recorded() -> None:
    world = World(request(candidate("a"), candidate("b"), replay_safe=True))
    world.do(
        cmd.Progress(attempt=1, outputs=(ev.Output(kind=ev.OutputKind.ARTIFACT, body=b"{}"),)),
        cmd.TargetLost(attempt=1, detail="silent", means=means("b", n=2)),
    )
    assert (world.h.holder, world.h.uncertain) == ("a", True)


def test_a_delivery_proven_unsent_after_ready_gives_ownership_back_and_moves_on() -> None:
    world = World(request(candidate("a", Readiness.OFFER), candidate("b")))
    world.do(cmd.Acknowledge(agent_id="a", attempt=1))
    world.do(
        cmd.DeliveryFailed(
            attempt=1,
            outcome=Outcome.TARGET_UNAVAILABLE,
            detail="refused",
            means=means("b", n=2),
            again=False,
        )
    )
    assert (world.h.holder, world.h.state, world.h.owner) == ("b", State.OFFERED, "source")
    assert world.h.hop_count == 1


# --- fencing -------------------------------------------------------------------------------------


def _superseded() -> World:
    world = World(request(candidate("a"), candidate("b")))
    world.do(cmd.Decline(agent_id="a", means=means("b", n=2)), cmd.Acknowledge(agent_id="b"))
    return world


def test_a_late_ack_after_fallback_is_refused_as_stale() -> None:
    assert refused(_superseded(), cmd.Acknowledge(agent_id="a", attempt=1)) is Code.STALE_ATTEMPT


def test_an_agent_that_never_had_it_is_not_the_holder() -> None:
    assert refused(_superseded(), cmd.Acknowledge(agent_id="c")) is Code.NOT_THE_HOLDER
    assert refused(_superseded(), cmd.Complete(agent_id="c")) is Code.NOT_THE_HOLDER


def test_a_repeated_ack_says_nothing_new() -> None:
    assert _superseded().do(cmd.Acknowledge(agent_id="b", attempt=2)) == []


def test_a_late_result_is_kept_and_never_applied() -> None:
    world = _superseded()
    (kept,) = world.do(cmd.Complete(agent_id="a", attempt=1, message=b'"mine"'))
    assert isinstance(kept, ev.LateResultRecorded)
    assert world.h.state is State.ACKNOWLEDGED


def test_a_result_after_the_cancel_is_kept_and_the_repeat_of_a_completion_is_silent() -> None:
    canceled = in_state(State.CANCELED)
    (kept,) = canceled.do(cmd.Complete(attempt=1))
    assert isinstance(kept, ev.LateResultRecorded)
    assert in_state(State.COMPLETED).do(cmd.Complete(attempt=1)) == []


# --- replies and cancels -------------------------------------------------------------------------


def test_a_reply_ends_the_pause_and_its_repeat_changes_nothing() -> None:
    world = in_state(State.INPUT_REQUIRED)
    world.do(cmd.Reply(message=b'{"a":1}', message_id="m-2"))
    assert world.h.state is State.ACKNOWLEDGED
    assert world.do(cmd.Reply(message=b'{"a":1}', message_id="m-2")) == []


def test_a_cancel_before_anybody_works_is_final_at_once() -> None:
    world = in_state(State.REQUESTED)
    world.do(cmd.Cancel(by="sender"))
    assert world.h.state is State.CANCELED


def test_a_cancel_of_a_pull_offer_rescinds_it() -> None:
    world = World(request(candidate("editor", Readiness.PULL)))
    world.do(cmd.Cancel(by="sender"))
    assert (world.h.state, world.h.attempts[0].outcome) == (State.CANCELED, Outcome.RESCINDED)


def test_a_cancel_of_a_working_target_waits_for_its_word_and_a_second_one_is_silent() -> None:
    world = in_state(State.ACKNOWLEDGED)
    world.do(cmd.Cancel(by="sender"))
    assert world.h.state is State.ACKNOWLEDGED
    assert world.do(cmd.Cancel(by="sender")) == []
    world.do(cmd.ConfirmCancel(confirmed=False))
    assert (world.h.state, world.h.detail) == (State.CANCELED, "cancel_unconfirmed")


def test_a_completion_that_is_faster_than_the_cancel_wins() -> None:
    world = in_state(State.ACKNOWLEDGED)
    world.do(cmd.Cancel(by="sender"), cmd.Complete(attempt=1))
    assert world.h.state is State.COMPLETED


def test_a_canceled_handoff_is_not_offered_to_the_next_agent() -> None:
    world = World(request(candidate("a"), candidate("b")))
    world.do(cmd.Cancel(by="sender"), cmd.Decline(agent_id="a", means=means("b", n=2)))
    assert world.h.state is State.CANCELED


# --- handing on ----------------------------------------------------------------------------------


def _handing_on(*, target_open: bool = False, mode: Mode = Mode.TRANSFER) -> World:
    world = in_state(State.ACKNOWLEDGED)
    world.do(cmd.AttachChild(child_id="child", mode=mode, agent_id="billing", target_open=target_open))
    return world


def test_the_target_keeps_the_task_until_the_child_is_acknowledged() -> None:
    world = _handing_on()
    assert (world.h.state, world.h.owner) == (State.ACKNOWLEDGED, "target")
    world.do(cmd.ChildTookOver(child_id="child"))
    assert (world.h.state, world.h.owner, world.h.leaf_id) == (State.HANDED_OFF, "leaf", "child")


@pytest.mark.parametrize(
    ("child", "own"),
    [
        (State.COMPLETED, State.COMPLETED),
        (State.FAILED, State.FAILED),
        (State.CANCELED, State.CANCELED),
        (State.EXPIRED, State.EXPIRED),
        (State.RETURNED, State.RETURNED),
    ],
)
def test_a_handed_off_handoff_ends_as_its_child(child: State, own: State) -> None:
    world = in_state(State.HANDED_OFF)
    world.do(cmd.ChildOver(child_id="child", state=child, outcome=Outcome.TARGET_FAILED))
    assert world.h.state is own


def test_a_target_whose_task_is_open_resumes_when_its_child_comes_back() -> None:
    world = _handing_on(target_open=True)
    world.do(cmd.ChildOver(child_id="child", state=State.RETURNED))
    assert (world.h.state, world.h.holder) == (State.ACKNOWLEDGED, "billing")


def test_a_target_that_is_done_cannot_resume_so_the_task_goes_back() -> None:
    world = _handing_on(target_open=False)
    world.do(cmd.ChildOver(child_id="child", state=State.RETURNED, outcome=Outcome.NO_CAPABLE_AGENT))
    assert (world.h.state, world.h.outcome) == (State.RETURNED, Outcome.NO_CAPABLE_AGENT)


def test_a_delegate_leaves_the_target_the_owner() -> None:
    world = _handing_on(mode=Mode.DELEGATE, target_open=True)
    world.do(cmd.ChildOver(child_id="child", state=State.COMPLETED))
    assert world.h.state is State.ACKNOWLEDGED
    world.do(cmd.Complete(attempt=1))
    assert world.h.state is State.COMPLETED


def test_the_end_of_a_parent_cancels_its_open_children() -> None:
    world = _handing_on(mode=Mode.DELEGATE)
    (end,) = world.do(cmd.Complete(attempt=1))
    kinds = [(a.kind, a.ref) for a in actions_for(end, world.h) if isinstance(a, ev.Schedule)]
    assert (WorkKind.CANCEL_CHILD, "child") in kinds


# --- rules that hold whatever happens ------------------------------------------------------------

_AGENTS = ("a", "b", "c")


def _commands() -> st.SearchStrategy[Command]:
    agent = st.sampled_from(_AGENTS)
    number = st.integers(0, 4)
    eligible = st.sets(agent).map(lambda names: means(*names, n=7))
    outcome = st.sampled_from(list(Outcome))
    outputs = st.sampled_from([(), (ev.Output(kind=ev.OutputKind.STATUS, body=b"{}"),)])
    state = st.sampled_from([s for s in State if s.terminal])
    child = st.sampled_from(["k1", "k2"])
    return st.one_of(
        st.builds(cmd.Acknowledge, agent_id=agent, attempt=number),
        st.builds(cmd.Decline, agent_id=agent, attempt=number, means=eligible),
        st.builds(
            cmd.DeliveryFailed,
            attempt=number,
            outcome=outcome,
            detail=st.just("x"),
            means=eligible,
            again=st.booleans(),
        ),
        st.builds(cmd.DeliveryUnsure, attempt=number, detail=st.just("x"), means=eligible),
        st.builds(cmd.TargetLost, attempt=number, detail=st.just("x"), means=eligible),
        st.builds(cmd.OfferLapsed, attempt=number, means=eligible),
        st.builds(cmd.Progress, attempt=number, agent_id=agent, outputs=outputs),
        st.builds(cmd.AskCaller, attempt=number, agent_id=agent, auth=st.booleans()),
        st.builds(cmd.Reply, message=st.just(b"{}"), message_id=st.sampled_from(["m-2", "m-3"])),
        st.builds(cmd.Complete, attempt=number, agent_id=agent),
        st.builds(cmd.Fail, attempt=number, agent_id=agent),
        st.builds(cmd.Release, attempt=number, agent_id=agent),
        st.builds(cmd.Cancel, by=st.just("sender")),
        st.builds(cmd.ConfirmCancel, confirmed=st.booleans()),
        st.just(cmd.Expire()),
        st.builds(cmd.WaitOver, means=eligible),
        st.builds(
            cmd.Resolved,
            resolution=st.builds(
                ev.Resolution, candidates=st.lists(agent, unique=True).map(lambda n: tuple(map(candidate, n)))
            ),
            means=eligible,
        ),
        st.builds(
            cmd.AttachChild,
            child_id=child,
            mode=st.sampled_from(Mode),
            agent_id=agent,
            target_open=st.booleans(),
        ),
        st.builds(cmd.ChildTookOver, child_id=child),
        st.builds(cmd.ChildOver, child_id=child, state=state),
    )


def _check(before: Handoff, event: ev.Event, after: Handoff) -> None:
    assert after.version == before.version + 1
    assert not before.state.terminal or after.state is before.state
    assert len({a.agent_id for a in after.attempts}) <= after.policy.agents + 1
    assert [a.number for a in after.attempts] == list(range(1, len(after.attempts) + 1))
    assert sum(a.outcome is None for a in after.attempts) <= 1
    assert all(a.deliveries <= after.policy.deliveries for a in after.attempts)
    assert after.hop_count <= after.policy.max_hops
    if after.owner == "target":
        assert after.holder
        assert after.attempts[-1].acked_at is not None
    if before.owner != "target" and after.owner == "target":
        assert isinstance(event, ev.HandoffAcknowledged)
    actions_for(event, after)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(_AGENTS), unique=True),
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 40.0]), _commands()), max_size=25),
    st.booleans(),
    st.sampled_from(Readiness),
)
def test_whatever_is_commanded_the_rules_hold_and_replaying_the_log_gives_the_state(
    agents: list[str], script: list[tuple[float, Command]], replay_safe: bool, readiness: Readiness
) -> None:
    first = request(
        *(candidate(name, readiness) for name in agents), wait=not agents, replay_safe=replay_safe
    )
    world = World(first)
    for passed, command in script:
        world.now += passed
        before = world.h
        try:
            new = world.do(command)
        except HandoffError:
            assert world.h is before
            continue
        for event in new:
            after = evolve(before, event)
            _check(before, event, after)
            before = after
    replayed: Handoff | None = None
    for event in world.log:
        replayed = evolve(replayed, event)
    assert replayed == world.h
