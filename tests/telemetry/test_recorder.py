"""What was committed becomes spans at the collector and numbers on /metrics."""

from __future__ import annotations

import time
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from prometheus_client.parser import text_string_to_metric_families

from a2a_handoff.config import Settings
from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness, Role
from a2a_handoff.core.context import Mode
from a2a_handoff.core.errors import Code
from a2a_handoff.core.events import Outcome, State
from a2a_handoff.core.handoff import evolve
from a2a_handoff.ports import Late, Notified, Usage
from a2a_handoff.telemetry import QueueReading, Telemetry, WorkReading
from a2a_handoff.telemetry.instruments import measure
from tests.telemetry.story import CHAIN, Story, spans_of_step, tales

TRACE = CHAIN.replace("-", "")


def told(story: Story, telemetry: Telemetry) -> None:
    for change in story.changes:
        telemetry.record(change)


def samples(telemetry: Telemetry, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The samples of a name, by their labels (without empty ones)."""
    text, _ = telemetry.render_metrics()
    return {
        tuple(sorted((k, v) for k, v in sample.labels.items() if v)): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    }


def total(telemetry: Telemetry, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for key, value in samples(telemetry, name).items() if wanted <= set(key))


def straight(story: Story | None = None, **request) -> Story:
    story = story or Story()
    h = story.request("agent-b", **request)
    story.ack(h, score=0.9)
    story.do(h, cmd.Complete(), after_s=60)
    return story


# --- spans ---------------------------------------------------------------------------------------


def test_a_committed_chain_arrives_as_one_tree(exporting, receiver):
    story = Story()
    h1 = story.request("agent-b", correlation_id=CHAIN)
    story.ack(h1)
    h2 = story.request("agent-c", sender="agent-b", parent=h1, mode=Mode.TRANSFER)
    story.hand_over(h2, h1)
    story.do(h2, cmd.Complete())
    told(story, exporting)
    assert exporting.flush()
    assert receiver.one_root(TRACE).name == "handoff_chain"
    assert receiver.orphans(TRACE) == []
    assert receiver.tree(TRACE) == [
        "[a2a-handoff] handoff_chain (internal)",
        "  [a2a-handoff] POST / (server)",
        "    [a2a-handoff] handoff agent-b (internal)",
        "      [a2a-handoff] route_handoff (internal)",
        "      [a2a-handoff] invoke_agent agent-b (client)",
        "        [agent-b] invoke_agent agent-b (server)",
        "          [a2a-handoff] POST / (server)",
        "            [a2a-handoff] handoff agent-c (internal)",
        "              [a2a-handoff] route_handoff (internal)",
        "              [a2a-handoff] invoke_agent agent-c (client)",
        "                [agent-c] invoke_agent agent-c (server)",
        "              [a2a-handoff] handoff_outcome agent-c (internal)",
    ]
    assert receiver.edges(TRACE) == {
        ("a2a-handoff", "agent-b"), ("agent-b", "a2a-handoff"), ("a2a-handoff", "agent-c"),
    }  # fmt: skip


def test_every_span_has_the_published_scope(exporting, receiver):
    told(straight(), exporting)
    assert exporting.flush()
    assert {span.scope for span in receiver.spans} == {"a2a_handoff"}


def test_the_service_has_the_name_that_the_operator_gave_it(make, receiver):
    telemetry = make({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_SERVICE_NAME": "hand-off-1"})
    told(straight(), telemetry)
    assert telemetry.flush()
    assert {span.service for span in receiver.spans} == {"hand-off-1", "agent-b"}


def test_spans_of_traces_name_no_instance_so_that_another_replica_sends_the_same(exporting, receiver):
    told(straight(), exporting)
    assert exporting.flush()
    assert not any("service.instance.id" in span.resource for span in receiver.spans)


def test_without_an_endpoint_there_is_no_exporter(make):
    telemetry = make()
    told(straight(), telemetry)
    assert telemetry.flush()
    assert telemetry.exported_position is None
    assert total(telemetry, "handoff_hops_count") == 1


def test_a_disabled_sdk_records_nothing(make, receiver):
    telemetry = make({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint})
    told(straight(), telemetry)
    assert telemetry.flush()
    assert receiver.spans == []
    assert telemetry.render_metrics()[0] == b""


def test_spans_can_be_printed_for_a_look(make, capsys):
    telemetry = make({"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "20"})
    told(straight(), telemetry)
    assert telemetry.flush()
    assert '"name": "handoff_chain"' in capsys.readouterr().out


# --- after a crash -------------------------------------------------------------------------------


def replayed(story: Story, telemetry: Telemetry, after: int = 0) -> int:
    log = [recorded for change in story.changes for recorded in change.recorded]
    first = {change.after.id for change in story.changes if change.new_chain}
    return sum(
        telemetry.replay([r for r in log if r.handoff_id == h], after=after, new_chain=h in first)
        for h in story.handoffs
    )


def test_spans_replayed_after_a_crash_are_the_same_bytes(exporting, receiver):
    story = straight()
    told(story, exporting)
    assert exporting.flush()
    sent = sorted(span.raw for span in receiver.spans)
    receiver.clear()
    assert replayed(story, exporting) == len(sent)
    assert exporting.flush()
    assert sorted(span.raw for span in receiver.spans) == sent


def test_what_left_before_the_mark_is_not_replayed(exporting, receiver):
    story = straight()
    told(story, exporting)
    assert exporting.flush()
    receiver.clear()
    assert replayed(story, exporting, after=2) == len(
        [s for step in story.steps[2:] for s in spans_of_step(step)]
    )


def test_after_a_replay_the_mark_moves_to_its_end_so_that_it_is_not_done_again(exporting):
    story = straight()
    replayed(story, exporting)
    assert exporting.flush()
    assert exporting.exported_position == 0
    exporting.replayed(len(story.steps))
    assert exporting.flush()
    assert exporting.exported_position == len(story.steps)


def test_replaying_counts_nothing_twice(exporting):
    story = straight()
    told(story, exporting)
    replayed(story, exporting)
    assert total(exporting, "handoff_outcomes_total") == 1


def test_the_mark_trails_what_has_left_and_stands_still_while_the_collector_is_down(exporting, receiver):
    assert exporting.exported_position == 0
    story = straight()
    receiver.status = 400
    told(story, exporting)
    assert exporting.flush()
    assert exporting.exported_position == 0
    receiver.status = 200
    more = straight(Story())
    told(more, exporting)
    assert exporting.flush()
    assert exporting.exported_position == len(more.steps)


def test_events_without_spans_move_the_mark_too(exporting):
    story = straight()
    h = story.request("agent-c")
    story.ack(h)
    story.do(h, cmd.Progress(outputs=(ev.Output(kind=ev.OutputKind.STATUS),)))
    told(story, exporting)
    assert exporting.flush()
    assert exporting.exported_position == len(story.steps)


# --- metrics -------------------------------------------------------------------------------------


def test_a_straight_handoff_is_measured_once_by_each_instrument(make):
    telemetry = make()
    told(straight(), telemetry)
    agents = {"handoff_source_agent_name": "agent-a", "handoff_target_agent_name": "agent-b"}
    assert samples(telemetry, "handoff_duration_seconds_count") == {tuple(sorted(agents.items())): 1}
    assert total(telemetry, "handoff_duration_seconds_sum") == pytest.approx(0.5)
    assert total(telemetry, "handoff_transition_duration_seconds_sum") == pytest.approx(0.75)
    assert total(telemetry, "handoff_context_score_sum") == pytest.approx(0.9)
    assert total(telemetry, "handoff_dispatch_attempts_total", handoff_attempt_kind="initial") == 1
    assert total(telemetry, "handoff_task_duration_seconds_sum", a2a_task_state="TASK_STATE_COMPLETED") == 60
    assert total(telemetry, "handoff_outcomes_total", handoff_state="completed", handoff_engaged="true") == 1
    assert total(telemetry, "handoff_hops_count") == 1
    assert total(telemetry, "handoff_hops_sum") == 0


def test_c064_retries_returns_and_drops_are_counted_apart_from_outcomes(make):
    telemetry = make()
    story = Story()
    h1 = story.request("agent-b", "agent-c")
    for _ in range(2):
        story.do(h1, cmd.DeliveryFailed(attempt=1, outcome=Outcome.TIMEOUT, detail="", means=story.means()))
    story.ack(h1)
    story.do(h1, cmd.Complete())
    story.request()
    told(story, telemetry)
    assert total(telemetry, "handoff_outcomes_total") == 2
    assert total(telemetry, "handoff_outcomes_total", handoff_state="completed") == 1
    assert total(telemetry, "handoff_outcomes_total", handoff_state="returned") == 1
    assert total(telemetry, "handoff_duration_seconds_count") == 2
    assert total(telemetry, "handoff_duration_seconds_count", error_type="no_capable_agent") == 1
    assert total(telemetry, "handoff_dispatch_attempts_total") == 3
    assert total(telemetry, "handoff_dispatch_attempts_total", handoff_attempt_kind="retry") == 2


def test_a_handoff_that_comes_back_after_acceptance_can_be_told_from_a_success(make):
    telemetry = make()
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    story.do(h, cmd.Release())
    told(story, telemetry)
    assert total(telemetry, "handoff_duration_seconds_count", error_type="released") == 0
    assert total(telemetry, "handoff_outcomes_total", handoff_state="returned", handoff_engaged="true") == 1


def test_a_task_that_expires_is_counted_so_that_completion_is_not_flattered(make):
    telemetry = make()
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    story.do(h, cmd.Expire())
    told(story, telemetry)
    assert total(telemetry, "handoff_task_duration_seconds_count", a2a_task_state="TASK_STATE_FAILED") == 1


def test_people_are_left_out_of_the_transition_time():
    story = Story()
    h = story.request("agent-b", readiness=Readiness.PERSON)
    before = story.handoffs[h]
    acked = ev.HandoffAcknowledged(at=story.now + 3600, attempt=1, agent_id="agent-b")
    for role, expected in ((Role.AGENT, 1), (Role.HUMAN, 0), (Role.SUPERVISOR, 0)):
        attempts = (msgspec.structs.replace(before.attempts[0], role=role),)
        state = msgspec.structs.replace(before, attempts=attempts)
        found = measure(state, acked, evolve(state, acked), lambda _t, a: a)
        assert [m.instrument for m in found].count("handoff.transition.duration") == expected


def test_agents_that_nobody_registered_share_one_label(make):
    telemetry = make(known_agent=lambda _tenant, agent: agent == "agent-b")
    story = Story()
    for number in range(50):
        story.request("agent-b", sender=f"stranger-{number}")
    told(story, telemetry)
    labels = {dict(key)["handoff_source_agent_name"] for key in samples(telemetry, "handoff_hops_count")}
    assert labels == {"_OTHER"}


def test_refused_requests_are_counted_by_cause(make):
    telemetry = make()
    for code in (
        Code.INVALID_CONTEXT,
        Code.CYCLE_DETECTED,
        Code.MAX_HOPS_EXCEEDED,
        Code.FORBIDDEN,
        Code.INTERNAL,
    ):
        telemetry.rejected(code, tenant="default", sender="agent-a")
    by_type = {dict(k)["error_type"]: v for k, v in samples(telemetry, "handoff_rejections_total").items()}
    assert by_type == {
        "invalid_context": 1, "cycle_detected": 1, "max_hops_exceeded": 1, "unauthorized": 1, "_OTHER": 1,
    }  # fmt: skip


def test_notifications_of_webhooks_are_counted_by_what_became_of_them(make):
    telemetry = make()
    for result in (Notified.TAKEN, Notified.TAKEN, Notified.FAILED, Notified.GIVEN_UP, Notified.REMOVED):
        telemetry.notified(result)
    name = "handoff_webhook_notifications_total"
    assert {dict(k)["handoff_webhook_result"]: v for k, v in samples(telemetry, name).items()} == {
        "taken": 2, "failed": 1, "given_up": 1, "removed": 1,
    }  # fmt: skip


def test_a_fresh_broker_shows_zeros_so_that_an_absent_series_means_an_absent_broker(make):
    telemetry = make()
    assert total(telemetry, "handoff_queue_size") == 0
    assert len(samples(telemetry, "handoff_queue_size")) == 7
    assert set(samples(telemetry, "handoff_telemetry_dropped_total").values()) == {0}


def test_the_queue_is_read_when_metrics_are(make):
    telemetry = make()
    telemetry.queue = lambda: [QueueReading("requested", 3, 1.5), QueueReading("offered", 1, 0.5)]
    sizes = {
        dict(key)["handoff_state"]: size for key, size in samples(telemetry, "handoff_queue_size").items()
    }
    assert sizes == {
        "requested": 3, "offered": 1, "acknowledged": 0, "input_required": 0, "auth_required": 0,
        "handed_off": 0, "escalated": 0,
    }  # fmt: skip
    assert total(telemetry, "handoff_queue_oldest_age_seconds", handoff_state="requested") == 1.5


def test_c063_every_process_names_itself_so_that_counters_of_two_cannot_be_mixed_up(make):
    (labels,) = samples(make(), "target_info")
    assert len(dict(labels)["service_instance_id"]) == 36


def test_metrics_can_be_pushed_instead_with_exemplars_that_lead_to_the_trace(make, receiver):
    telemetry = make({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint})
    story = straight(correlation_id=CHAIN)
    told(story, telemetry)
    assert telemetry.render_metrics()[0] == b""
    telemetry.shutdown()
    pushed = [
        m
        for r in receiver.metrics
        for rm in r.resource_metrics
        for sm in rm.scope_metrics
        for m in sm.metrics
    ]
    (duration,) = [m for m in pushed if m.name == "handoff.duration"]
    (exemplar,) = duration.histogram.data_points[0].exemplars
    assert exemplar.trace_id.hex() == TRACE
    assert exemplar.span_id.hex() == story.changes[0].after.trace.hop_span_id


@given(tales())
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_in_any_tale_every_handoff_is_decided_once_and_ends_once(story):
    seen: Counter[str] = Counter()
    for step in story.steps:
        seen.update(m.instrument for m in measure(step.before, step.event, step.after, lambda _t, a: a))
        assert all(m.value >= 0 for m in measure(step.before, step.event, step.after, lambda _t, a: a))
    handoffs = story.handoffs.values()
    assert seen["handoff.hops"] == seen["handoff.duration"] == seen["handoff.outcomes"] == len(handoffs)
    assert seen["handoff.task.duration"] == sum(1 for h in handoffs if h.acked_at is not None)
    assert seen["handoff.dispatch.attempts"] >= sum(len(h.attempts) for h in handoffs)
    assert all(h.state.terminal for h in handoffs)
    assert {h.state for h in handoffs} <= {s for s in State if s.terminal}


# --- trouble -------------------------------------------------------------------------------------


def test_what_cannot_be_kept_is_counted_and_nobody_waits(make, monkeypatch):
    monkeypatch.setattr("a2a_handoff.telemetry.recorder._NOTES_MAX", 10)
    telemetry = make()
    story = straight()
    with telemetry._working:
        started = time.perf_counter()
        for _ in range(100):
            telemetry.record(story.changes[0])
        assert time.perf_counter() - started < 0.5
    assert total(telemetry, "handoff_telemetry_dropped_total", handoff_drop_reason="recorder_full") >= 89


def test_a_change_that_cannot_be_told_does_not_end_the_telling(make, caplog):
    telemetry = make()
    telemetry.known_agent = lambda _tenant, _agent: 1 / 0
    told(straight(), telemetry)
    assert total(telemetry, "handoff_telemetry_dropped_total") == 3
    assert "A change could not be recorded" in caplog.text
    telemetry.known_agent = lambda _tenant, _agent: True
    told(straight(), telemetry)
    assert total(telemetry, "handoff_outcomes_total") == 1


def test_recording_after_the_end_is_harmless(make):
    telemetry = make()
    telemetry.shutdown()
    telemetry.shutdown()
    told(straight(), telemetry)
    assert telemetry.dropped["recorder_full"] == 3


def test_the_ratio_zero_exports_nothing_and_measures_all(make, receiver):
    telemetry = make({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}, settings=Settings(trace_ratio=0.0))
    told(straight(Story(ratio=0.0)), telemetry)
    assert telemetry.flush()
    assert receiver.spans == []
    assert total(telemetry, "handoff_outcomes_total") == 1


def test_late_work_and_the_store_are_read_when_metrics_are(make):
    telemetry = make()
    assert samples(telemetry, "handoff_work_late") == dict.fromkeys(
        [(("handoff_work_state", "due"),), (("handoff_work_state", "lapsed"),)], 0
    )
    telemetry.work = lambda: WorkReading({Late.LAPSED: (3, 1.5)}, 2.5)
    telemetry.store = lambda: Usage(
        limit=4, used=3, idle=1, reads_waiting=5, read_wait_s=6.5, writes_waiting=7, oldest_write_s=8.5
    )
    assert total(telemetry, "handoff_work_late", handoff_work_state="lapsed") == 3
    assert total(telemetry, "handoff_work_late_age_seconds", handoff_work_state="lapsed") == 1.5
    assert total(telemetry, "handoff_work_late_age_seconds", handoff_work_state="due") == 0
    assert total(telemetry, "handoff_work_lease_age_seconds") == 2.5
    assert total(telemetry, "handoff_store_connections", handoff_connection_state="used") == 3
    assert total(telemetry, "handoff_store_connections", handoff_connection_state="idle") == 1
    assert total(telemetry, "handoff_store_connections_limit") == 4
    assert total(telemetry, "handoff_store_reads_waiting") == 5
    assert total(telemetry, "handoff_store_reads_wait_time_seconds_total") == 6.5
    assert total(telemetry, "handoff_store_writes_waiting") == 7
    assert total(telemetry, "handoff_store_writes_oldest_age_seconds") == 8.5
