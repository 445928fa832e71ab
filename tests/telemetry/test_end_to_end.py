"""Traces and metrics of a real broker with real agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from a2a_handoff.core.tracing import root_span_id, trace_id_of
from tests.support.agents import URI, Agent, Answer, Call, card, completes, hands_on, rejects
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.running import Broker, broker, handoff_context, kept_port, running, send_params
from tests.support.wire import eventually
from tests.telemetry.story import CALLER, CHAIN

TRACE = CHAIN.replace("-", "")


@pytest.fixture
def traced(receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that exports to ``receiver``."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with broker(tmp_path) as b:
        yield b


def arrived(b: Broker) -> None:
    """Wait until nothing is under way, and all that was recorded has left."""
    eventually(lambda: not b.app.service.dispatcher.running)
    assert b.app.telemetry.flush()


def metrics(b: Broker) -> dict[str, float]:
    lines = b.http.get("/metrics").text.splitlines()
    return {k: float(v) for k, _, v in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def asks_for_help(b: Broker, target: str, seen: list[Any]) -> Any:
    """Streams *working*, delegates to ``target`` without a word about traces, and completes."""

    async def script(agent: Agent, call: Call) -> Answer:
        if "handoff_id" not in call.ours:  # told how the helper fared; it knows that from its own call
            return {"task": agent.tasks[call.message["taskId"]]}

        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": task}
            context = handoff_context(
                source_agent="b", target_agent=target, parent_handoff_id=call.ours["handoff_id"]
            )
            params = send_params("help", metadata={"handoff_context": context})
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
            async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
                answer = await client.post(b.url, json=body, headers={"A2A-Version": "1.0"})
            seen.append(answer.json())
            yield agent.status(task, "COMPLETED", "done")

        return events()

    return script


def test_a_chain_through_silent_agents_is_one_tree(traced, receiver):
    seen: list[Any] = []
    with ExitStack() as up:
        b_url = up.enter_context(running(Agent(asks_for_help(traced, "c", seen))))
        c_url = up.enter_context(running(Agent(completes)))
        traced.register("b", card=card(b_url, streaming=True))
        traced.register("c", card=card(c_url))
        task = traced.send(context={"target_agent": "b", "correlation_id": CHAIN})
        arrived(traced)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "result" in seen[0], seen
    edges = {("a2a-handoff", "b"), ("b", "a2a-handoff"), ("a2a-handoff", "c")}
    # A span of a request is noted once its answer is sent, which the caller may have had a moment before.
    eventually(lambda: receiver.edges(TRACE) == edges)
    assert receiver.one_root(TRACE).span_id == root_span_id(TRACE)
    assert receiver.orphans(TRACE) == []
    names = [span.name for span in receiver.trace(TRACE)]
    assert names.count("POST /") == 2
    assert names.count("handoff b") == names.count("handoff c") == 1


def test_a_chain_by_directives_is_one_tree(traced, receiver):
    with ExitStack() as up:
        b_url = up.enter_context(
            running(Agent(hands_on(**handoff_context(source_agent="b", target_agent="c"))))
        )
        c_url = up.enter_context(running(Agent(completes)))
        traced.register("b", card=card(b_url))
        traced.register("c", card=card(c_url))
        task = traced.send(context={"target_agent": "b", "correlation_id": "order-42"})
        arrived(traced)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    trace = trace_id_of("order-42")
    assert receiver.one_root(trace).name == "handoff_chain"
    assert receiver.orphans(trace) == []
    assert {span.attributes.get("handoff.correlation_id") for span in receiver.trace(trace)} == {"order-42"}


def test_c056_the_callers_trace_reaches_the_target_and_holds_for_every_attempt(traced, receiver):
    no, yes = Agent(rejects), Agent(completes)
    with running(no) as first, running(yes) as second:
        traced.register("no", card=card(first))
        traced.register("yes", card=card(second))
        params = send_params(context={"target_agent": "no", "fallback": ["yes"]})
        traced.rpc("SendMessage", params, traceparent=CALLER, tracestate="vendor=1")
        arrived(traced)
    trace = CALLER[3:35]
    clients = {s.attributes["gen_ai.agent.name"]: s for s in receiver.trace(trace) if s.kind == "client"}
    for name, agent in (("no", no), ("yes", yes)):
        (call,) = agent.of("SendMessage")
        assert call.headers["traceparent"] == f"00-{trace}-{clients[name].span_id}-01"
        assert call.headers["tracestate"] == "vendor=1"
        assert call.ours["traceparent"] == call.headers["traceparent"]
        assert call.params["metadata"]["handoff_context"]["traceparent"] == call.headers["traceparent"]
    assert receiver.orphans(trace, known=frozenset({CALLER[36:52]})) == []


def test_c057_ids_keep_their_zeros_everywhere(traced, receiver):
    chain = "00000000-0000-4000-8000-00000000abcd"
    agent = Agent(completes)
    with running(agent) as url:
        traced.register("b", card=card(url))
        task = traced.send(context={"target_agent": "b", "correlation_id": chain})
        arrived(traced)
    trace = chain.replace("-", "")
    assert task["metadata"][URI]["trace_id"] == trace
    assert traced.handoff(task["id"])["trace_id"] == trace
    assert agent.calls[0].headers["traceparent"].split("-")[1] == trace
    assert len(receiver.trace(trace)) >= 5


def asked(receiver):
    """The spans of reads so far."""
    return [span for span in receiver.spans if span.attributes.get("a2a.method.name") == "GetTask"]


def test_reads_and_errors_on_the_task_paths_have_a_span_of_their_own(traced, receiver):
    traced.rpc("GetTask", {"id": "nobody"}, traceparent=CALLER)
    traced.rpc("GetTask", {"id": "nobody"})
    # A span of a request is noted once its answer is sent, which the caller may have had a moment before.
    eventually(lambda: arrived(traced) or len(asked(receiver)) >= 2)
    spans = asked(receiver)
    assert len(spans) == 2
    assert {span.trace_id == CALLER[3:35] for span in spans} == {True, False}
    assert not any(span.failed for span in spans)


def test_c064_metrics_agree_with_what_happened(traced):
    down = f"http://127.0.0.1:{kept_port()}"
    with running(Agent(completes)) as url:
        traced.register("down", card=card(down))
        traced.register("up", card=card(url))
        traced.send("one", context={"target_agent": "down", "fallback": ["up"]})
        traced.send("two", context={"requirements": {"capabilities": ["canFly"]}})
        traced.rpc("SendMessage", send_params("three", context={"user_intent": ""}))
        shown = metrics(traced)

    def total(prefix: str, *labels: str) -> float:
        return sum(
            v for k, v in shown.items() if k.split("{")[0] == prefix and all(label in k for label in labels)
        )

    assert total("handoff_outcomes_total") == 2
    assert total("handoff_outcomes_total", 'handoff_state="completed"') == 1
    assert total("handoff_outcomes_total", 'handoff_state="returned"') == 1
    assert total("handoff_duration_seconds_count") == 2
    assert total("handoff_dispatch_attempts_total", 'kind="initial"') == 1
    assert total("handoff_dispatch_attempts_total", 'kind="retry"') == 2
    assert total("handoff_rejections_total", 'error_type="invalid_context"') == 1
    assert total("handoff_dispatch_attempts_total", 'target_agent_name="down"') == 2
    assert total("http_server_request_duration_seconds_count", 'http_route="/"') == 3
    assert total("handoff_telemetry_dropped_total") == 0


def test_a_broker_that_starts_again_sends_what_its_predecessor_could_not(receiver, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with running(Agent(completes)) as url:
        with broker(tmp_path) as b:
            b.register("b", card=card(url))
            b.send("first", context={"target_agent": "b"})
            arrived(b)
            sent = {span.raw for span in receiver.spans if span.trace_id != TRACE}
            receiver.status = 400
            b.send("second", context={"target_agent": "b", "correlation_id": CHAIN})
            arrived(b)
        assert receiver.trace(TRACE) == []
        receiver.status = 200
        with broker(tmp_path) as b:
            arrived(b)
    assert receiver.one_root(TRACE).name == "handoff_chain"
    assert receiver.orphans(TRACE) == []
    assert sent
