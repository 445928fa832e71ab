"""What is measured, and how it follows from committed events.

Duty: the table of instruments, the published formulas, and ``measure``: the measurements that an event
brings. Rules: a handoff is counted once in ``handoff.duration`` and once in ``handoff.outcomes``;
attempts are counted apart; agents that are not registered are ``_OTHER``, so that a caller cannot make
series at will.
Not here: spans (``core.spans``), adding values up (``tally``), the thread that does (``recorder``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Role
from a2a_handoff.core.events import Event, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.spans import TASK_STATES, Attributes
from a2a_handoff.ports import Late

OTHER = "_OTHER"

_TIMES = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 30, 60, 120, 300, 900, 3600,
)  # fmt: skip
_TASK_TIMES = (*_TIMES, 14_400, 86_400, 604_800)
_SCORES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 1)
_HOPS = (0, 1, 2, 3, 4, 5)
_HTTP_TIMES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

_AGENTS = ("handoff.source.agent.name", "handoff.target.agent.name")


class InstrumentRow(NamedTuple):
    """One instrument. ``prometheus`` is its name on ``/metrics``."""

    name: str
    type: Literal["histogram", "counter", "gauge", "updowncounter"]
    unit: str
    attributes: tuple[str, ...]
    meaning: str
    prometheus: str
    buckets: tuple[float, ...] = ()


INSTRUMENTS = (
    InstrumentRow(
        "handoff.duration",
        "histogram",
        "s",
        (*_AGENTS, "error.type"),
        "From accepting a handoff to the target's first word, or to its end if no target took it. Its count "
        "is the number of handoffs that were decided.",
        "handoff_duration_seconds",
        _TIMES,
    ),
    InstrumentRow(
        "handoff.transition.duration",
        "histogram",
        "s",
        _AGENTS,
        "From the end of the source agent (its request) to the first word of the target agent. People are "
        "left out.",
        "handoff_transition_duration_seconds",
        _TIMES,
    ),
    InstrumentRow(
        "handoff.context.score",
        "histogram",
        "1",
        _AGENTS,
        "Share of the context that arrived, 1 if nothing was lost. No sample without evidence.",
        "handoff_context_score",
        _SCORES,
    ),
    InstrumentRow(
        "handoff.dispatch.attempts",
        "counter",
        "{attempt}",
        (*_AGENTS, "handoff.attempt.kind"),
        "Deliveries: `initial` is the first of a handoff, `retry` any other, to the same agent or the next.",
        "handoff_dispatch_attempts_total",
    ),
    InstrumentRow(
        "handoff.task.duration",
        "histogram",
        "s",
        (*_AGENTS, "a2a.task.state"),
        "From acceptance by the target to the end of the task.",
        "handoff_task_duration_seconds",
        _TASK_TIMES,
    ),
    InstrumentRow(
        "handoff.outcomes",
        "counter",
        "{handoff}",
        (*_AGENTS, "handoff.state", "handoff.engaged", "error.type"),
        "Handoffs that ended, each once. `handoff.engaged`: a target had accepted it.",
        "handoff_outcomes_total",
    ),
    InstrumentRow(
        "handoff.rejections",
        "counter",
        "{handoff}",
        ("handoff.source.agent.name", "error.type"),
        "Requests for a handoff that were refused, nothing stored.",
        "handoff_rejections_total",
    ),
    InstrumentRow(
        "handoff.hops",
        "histogram",
        "{hop}",
        ("handoff.source.agent.name",),
        "Hops that the chain had when the handoff was accepted. Its count is the number of handoffs.",
        "handoff_hops",
        _HOPS,
    ),
    InstrumentRow(
        "handoff.queue.size",
        "updowncounter",
        "{handoff}",
        ("handoff.state",),
        "Handoffs that have not ended, now.",
        "handoff_queue_size",
    ),
    InstrumentRow(
        "handoff.queue.oldest_age",
        "gauge",
        "s",
        ("handoff.state",),
        "Age of the oldest of them, now.",
        "handoff_queue_oldest_age_seconds",
    ),
    InstrumentRow(
        "handoff.work.late",
        "updowncounter",
        "{item}",
        ("handoff.work.state",),
        "Deliveries, timers and other work that could be done and is nobody's, now: `due`, or `lapsed` (its "
        "broker did not keep it, and no other has taken it over).",
        "handoff_work_late",
    ),
    InstrumentRow(
        "handoff.work.late_age",
        "gauge",
        "s",
        ("handoff.work.state",),
        "How late the latest of it is, 0 if none is.",
        "handoff_work_late_age_seconds",
    ),
    InstrumentRow(
        "handoff.work.lease_age",
        "gauge",
        "s",
        (),
        "For how long this broker has not renewed its claims of work. From `work_lease` on others take them.",
        "handoff_work_lease_age_seconds",
    ),
    InstrumentRow(
        "handoff.store.connections",
        "updowncounter",
        "{connection}",
        ("handoff.connection.state",),
        "Connections that read from the store, by what they do: `used`, `idle`.",
        "handoff_store_connections",
    ),
    InstrumentRow(
        "handoff.store.connections.limit",
        "gauge",
        "{connection}",
        (),
        "How many there may be.",
        "handoff_store_connections_limit",
    ),
    InstrumentRow(
        "handoff.store.reads.waiting",
        "updowncounter",
        "{read}",
        (),
        "Reads that wait for a connection, now.",
        "handoff_store_reads_waiting",
    ),
    InstrumentRow(
        "handoff.store.reads.wait_time",
        "counter",
        "s",
        (),
        "How long reads have waited for a connection, all together: its rate is how many wait on average.",
        "handoff_store_reads_wait_time_seconds_total",
    ),
    InstrumentRow(
        "handoff.store.writes.waiting",
        "updowncounter",
        "{write}",
        (),
        "Writes that are asked for and not durable yet, now.",
        "handoff_store_writes_waiting",
    ),
    InstrumentRow(
        "handoff.store.writes.oldest_age",
        "gauge",
        "s",
        (),
        "For how long the oldest of them has waited, 0 if none does.",
        "handoff_store_writes_oldest_age_seconds",
    ),
    InstrumentRow(
        "handoff.client.disconnects",
        "counter",
        "{request}",
        ("http.route",),
        "Callers that left before their answer or stream ended. Not a failure of the handoff.",
        "handoff_client_disconnects_total",
    ),
    InstrumentRow(
        "handoff.webhook.notifications",
        "counter",
        "{notification}",
        ("handoff.webhook.result",),
        "Tries to notify a webhook: `taken`, `failed` (it is tried again), `given_up` (it is not), `removed` "
        "(the webhook said that it is gone).",
        "handoff_webhook_notifications_total",
    ),
    InstrumentRow(
        "handoff.nats.connected",
        "gauge",
        "1",
        (),
        "1 while there is a connection to NATS, else 0. Without NATS there is none.",
        "handoff_nats_connected",
    ),
    InstrumentRow(
        "handoff.wakeup.hints",
        "counter",
        "{hint}",
        ("handoff.wakeup.result",),
        "Wake-ups between brokers: `sent`, `heard` (from others), `dropped` (NATS was away; the others look "
        "by themselves), `overrun` (they came faster than they were read).",
        "handoff_wakeup_hints_total",
    ),
    InstrumentRow(
        "handoff.events.published",
        "counter",
        "{event}",
        (),
        "Events that this broker told to the stream. Of several brokers on one store one does.",
        "handoff_events_published_total",
    ),
    InstrumentRow(
        "handoff.events.lag",
        "gauge",
        "s",
        (),
        "Age of the oldest event that is not in the stream, 0 if all are.",
        "handoff_events_lag_seconds",
    ),
    InstrumentRow(
        "handoff.clock.ahead",
        "gauge",
        "s",
        (),
        "How far the broker's time is ahead of the clock of its machine, which was set back; 0 as a rule.",
        "handoff_clock_ahead_seconds",
    ),
    InstrumentRow(
        "handoff.telemetry.dropped",
        "counter",
        "{item}",
        ("handoff.drop.reason",),
        "Spans lost (`queue_full`, `export_failed`, `shutdown`), or committed changes that were neither "
        "traced nor measured (`recorder_full`).",
        "handoff_telemetry_dropped_total",
    ),
    InstrumentRow(
        "http.server.request.duration",
        "histogram",
        "s",
        ("http.request.method", "http.route", "http.response.status_code", "error.type"),
        "Requests. A stream counts until its end. Without a matching route `http.route` is empty.",
        "http_server_request_duration_seconds",
        _HTTP_TIMES,
    ),
    InstrumentRow(
        "rpc.server.call.duration",
        "histogram",
        "s",
        ("rpc.system.name", "rpc.method", "rpc.response.status_code", "error.type"),
        "Requests over gRPC. A stream counts until its end.",
        "rpc_server_call_duration_seconds",
        _HTTP_TIMES,
    ),
)


class FormulaRow(NamedTuple):
    """A number to watch: how it is computed from ``/metrics``, and when to worry."""

    name: str
    formula: str
    alarm: str
    remark: str


FORMULAS = (
    FormulaRow(
        "Success rate",
        '1 - ((sum(rate(handoff_duration_seconds_count{error_type!=""}[10m])) or vector(0)) + '
        '(sum(rate(handoff_outcomes_total{handoff_state="returned",handoff_engaged="true"}[10m])) '
        "or vector(0))) / sum(rate(handoff_duration_seconds_count[10m]))",
        "< 95 %",
        "A handoff succeeds if a target accepts it and does not give it back. Refused requests do not count.",
    ),
    FormulaRow(
        "Context loss score",
        "sum(rate(handoff_context_score_sum[10m])) / sum(rate(handoff_context_score_count[10m]))",
        "< 0.8",
        "The mean; 1 if nothing was lost.",
    ),
    FormulaRow(
        "Transition latency",
        "histogram_quantile(0.95, sum by (le) (rate(handoff_transition_duration_seconds_bucket[10m])))",
        "> 3 s",
        "3 s is an edge of the buckets, so the share above it is exact.",
    ),
    FormulaRow(
        "Retry frequency",
        '(sum(rate(handoff_dispatch_attempts_total{handoff_attempt_kind="retry"}[10m])) or vector(0)) '
        "/ sum(rate(handoff_duration_seconds_count[10m]))",
        "> 10 %",
        "Retries per handoff, not per attempt.",
    ),
    FormulaRow(
        "Task completion after handoff",
        '(sum(rate(handoff_task_duration_seconds_count{a2a_task_state="TASK_STATE_COMPLETED"}[1h])) '
        "or vector(0)) / sum(rate(handoff_task_duration_seconds_count[1h]))",
        "< 80 %",
        "Of the tasks that a target accepted. Deadlines see to it that every task ends.",
    ),
)


class Measurement(NamedTuple):
    """One value for one instrument."""

    instrument: str
    value: float
    attributes: Attributes


class QueueReading(NamedTuple):
    """How many handoffs are in a state, and how old the oldest is (seconds)."""

    state: str
    size: int
    oldest_age_s: float


class WorkReading(NamedTuple):
    """Work that is nobody's: how much by why, and how late the latest of it is (seconds).

    ``lease_age_s``: for how long this broker has not renewed its own claims.
    """

    late: dict[Late, tuple[int, float]]
    lease_age_s: float


class NatsReading(NamedTuple):
    """Whether NATS is there, and what became of wake-ups, by ``handoff.wakeup.result``.

    ``events`` is how many were told to a stream, and how old the oldest is that was not (seconds), if there
    is one.
    """

    connected: bool
    hints: dict[str, int]
    events: tuple[int, float] | None = None


#: Why something was lost.
LOSSES = ("recorder_full", "queue_full", "export_failed", "shutdown")

#: The label of an agent, from tenant and id.
Label = Callable[[str, str], str]


def measure(before: Handoff | None, event: Event, after: Handoff, label: Label) -> list[Measurement]:
    """What ``event`` measures; ``before`` and ``after`` are the states around it."""
    out: list[Measurement] = []
    match event:
        case ev.HandoffRequested():
            source: Attributes = {"handoff.source.agent.name": label(after.tenant, after.sender)}
            out.append(Measurement("handoff.hops", after.hop_count, source))
        case ev.HandoffOffered(attempt=number):
            out.append(_attempt(after, label, "initial" if number == 1 else "retry"))
        case ev.RedeliveryScheduled():
            out.append(_attempt(after, label, "retry"))
        case ev.HandoffAcknowledged(at=at) if before is not None and before.acked_at is None:
            agents = _agents(after, label)
            out.append(Measurement("handoff.duration", at - after.created_at, agents))
            if after.attempts[-1].role is Role.AGENT:
                server = after.trace.server
                since = min(server.started_at, after.created_at) if server else after.created_at
                out.append(Measurement("handoff.transition.duration", at - since, agents))
        case _ if before is not None and after.state.terminal and not before.state.terminal:
            out.extend(_end(before, after, label))
        case _:
            pass
    score = after.context_score
    if score is not None and before is not None and score != before.context_score:
        out.append(Measurement("handoff.context.score", score, _agents(after, label)))
    return out


def _attempt(h: Handoff, label: Label, kind: str) -> Measurement:
    return Measurement("handoff.dispatch.attempts", 1, {**_agents(h, label), "handoff.attempt.kind": kind})


def _end(before: Handoff, after: Handoff, label: Label) -> Iterable[Measurement]:
    at = after.updated_at
    agents = _agents(after, label)
    engaged = before.acked_at is not None
    outcome: Attributes = {**agents, "handoff.state": after.state.value, "handoff.engaged": engaged}
    if after.outcome is not None:
        outcome["error.type"] = after.outcome.value
    yield Measurement("handoff.outcomes", 1, outcome)
    if before.acked_at is not None:
        state: Attributes = {**agents, "a2a.task.state": TASK_STATES[after.state]}
        yield Measurement("handoff.task.duration", at - before.acked_at, state)
    elif after.outcome is not None:
        failed: Attributes = {**agents, "error.type": after.outcome.value}
        yield Measurement("handoff.duration", at - after.created_at, failed)
    elif after.state is State.COMPLETED:
        yield Measurement("handoff.duration", at - after.created_at, agents)


def _agents(h: Handoff, label: Label) -> Attributes:
    out: Attributes = {"handoff.source.agent.name": label(h.tenant, h.sender)}
    if h.attempts:
        out["handoff.target.agent.name"] = label(h.tenant, h.attempts[-1].agent_id)
    return out
