"""In the trace of an agent that calls back one sees what it calls about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.callbacks.conftest import begun, idle, served
from tests.support.otlp_receiver import OtlpReceiver

_TRACE, _SPAN = "a" * 32, "b" * 16


def test_a_call_in_a_trace_of_its_own_links_to_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        with served(tmp_path) as (b, agent):
            task_id = begun(b, agent)
            agent.call(agent.notice("status"))  # nobody traces this one: it makes no trace
            idle(b)
            agent.stand("COMPLETED", "done")
            agent.call(traceparent=f"00-{_TRACE}-{_SPAN}-01")
            b.until(task_id, "completed")
            trace_id = b.handoff(task_id)["trace_id"]
            spans = receiver.wait_for(lambda found: bool([s for s in found if s.trace_id == _TRACE]))
            (called,) = [span for span in spans if "callbacks" in span.name]
            (invoked,) = [
                span
                for span in receiver.trace(trace_id)
                if span.name.startswith("invoke_agent") and span.kind == "client"
            ]
    assert (called.name, called.trace_id) == ("POST /callbacks/{handoff_id}/{attempt}", _TRACE)
    assert called.parent_id == _SPAN
    assert called.links == ((trace_id, invoked.span_id, {"handoff.link.type": "attempt"}),)
