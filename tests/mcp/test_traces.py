"""Calls of tools in traces: a handoff belongs to the trace of its caller, and waiting makes none."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.conftest import WAYS, Door, good
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.running import Broker, broker

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture
def receiver() -> Generator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def traced(receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Broker]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with broker(tmp_path) as b:
        yield b


@pytest.mark.parametrize("way", WAYS)
def test_a_handoff_hangs_below_the_span_that_called_the_tool(
    traced: Broker, receiver: OtlpReceiver, way: str
) -> None:
    traced.register("cowork")

    async def body() -> None:
        async with Door(way, traced.url).client() as client:
            meta: Any = {"traceparent": HEADER, "tracestate": "vendor=1"}
            wish = {"targetAgent": "cowork", "task": "x"}
            made = good(await client.call_tool("create_handoff", wish, meta=meta))["handoff"]
            assert made["traceId"] == TRACE
            good(await client.call_tool("watch_handoffs", {"timeout": 0}))
            await asyncio.to_thread(
                traced.http.post, f"/api/handoffs/{made['handoffId']}/complete", json={"result": "fine"}
            )

    asyncio.run(body())
    assert traced.app.telemetry.flush()
    spans = receiver.trace(TRACE)
    servers = [span for span in spans if span.kind == "server" and span.service == "a2a-handoff"]
    assert [(span.name, span.parent_id) for span in servers] == [("POST /api/handoffs", CALLER)]
    assert receiver.orphans(TRACE, known=frozenset({CALLER})) == []
    others = {span.name for span in receiver.spans if span.trace_id != TRACE}
    assert not [name for name in others if name.endswith("/mcp")]


def test_a_header_does_what_the_meta_does(traced: Broker, receiver: OtlpReceiver) -> None:
    """For clients that trace HTTP and know nothing of ``_meta``."""
    traced.register("cowork")
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "create_handoff", "arguments": {"targetAgent": "cowork", "task": "x"}},
    }
    headers = {"Accept": "application/json, text/event-stream", "traceparent": HEADER}
    answer = traced.http.post("/mcp", json=call, headers=headers)
    assert TRACE in answer.text
    assert traced.app.telemetry.flush()
    parents = {span.parent_id for span in receiver.trace(TRACE) if span.kind == "server"}
    assert CALLER in parents
