"""A small agent in a process of its own, for tests of traces through several processes.

It speaks A2A 1.0 in raw JSON. Told a next agent, it calls the broker for help and completes with what the
help gave. What it knows of tracing is its *manner*:

- ``instrumented``: it has spans of its own and exports them, as any service with OpenTelemetry;
- ``passes_on``: it sends the ``traceparent`` that it got along with its own calls, and has no spans;
- ``silent``: it knows nothing of traces.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import signal
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any, Self

import httpx
import uvicorn
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.support.agents import URI, card, said
from tests.support.running import WAIT_S, bound_socket, handoff_context, send_params

_FORKS = multiprocessing.get_context("forkserver")
_W3C = TraceContextTextMapPropagator()
_AGAIN_S = 0.05


@dataclass(frozen=True)
class Plan:
    """What an agent is and does. ``next``: whom it asks for help; ``asks``: it asks its caller first."""

    name: str
    manner: str = "silent"
    next: str = ""
    asks: bool = False


@dataclass
class TracedAgent:
    """The agent within its process. ``gate``: it works only when this is open."""

    plan: Plan
    broker: str
    gate: Any
    tracer: Tracer
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    work: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["method"] == "GET":
            await _answer(send, {"name": self.plan.name}, {})
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        call = json.loads(body)
        result, back = await self._serve(call["method"], call["params"], headers)
        await _answer(send, {"jsonrpc": "2.0", "id": call["id"], "result": result}, back)

    async def _serve(
        self, method: str, params: dict[str, Any], headers: dict[str, str]
    ) -> tuple[Any, dict[str, str]]:
        if method == "GetTask":
            return self.tasks[params["id"]], {}
        message = params["message"]
        if "taskId" in message:
            task = self.tasks[message["taskId"]]
            if message.get("metadata", {}).get(URI, {}).get("child"):
                return {"task": task}, {}  # it was told how its helper fared; it knows that from its call
            task["status"] = {"state": "TASK_STATE_COMPLETED", "message": said("thanks")}
            return {"task": task}, {}
        task = self._new()
        back, ours = self._spans(headers)
        if self.plan.asks:
            task["status"] = {"state": "TASK_STATE_INPUT_REQUIRED", "message": said("Which?")}
            return {"task": task}, back
        if not self.plan.next:
            self._done(task, f"{self.plan.name} did it")
            return {"task": task}, back
        doing = asyncio.create_task(self._get_help(task, message["metadata"][URI]["handoff_id"], ours))
        self.work.add(doing)
        doing.add_done_callback(self.work.discard)
        return {"task": task}, back

    def _spans(self, headers: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """The headers to answer with, and those to call the broker with; the spans are made here."""
        given = {k: v for k, v in headers.items() if k in ("traceparent", "tracestate")}
        match self.plan.manner:
            case "instrumented":
                back: dict[str, str] = {}
                calls: dict[str, str] = {}
                server = self.tracer.start_span("work", context=_W3C.extract(given), kind=SpanKind.SERVER)
                inside = trace.set_span_in_context(server)
                _W3C.inject(back, context=inside)
                if self.plan.next:
                    client = self.tracer.start_span("ask for help", context=inside, kind=SpanKind.CLIENT)
                    _W3C.inject(calls, context=trace.set_span_in_context(client))
                    client.end()
                server.end()
                return back, calls
            case "passes_on":
                return {}, given
            case _:
                return {}, {}

    async def _get_help(self, task: dict[str, Any], parent: str, headers: dict[str, str]) -> None:
        await asyncio.to_thread(self.gate.wait)
        context = handoff_context(
            source_agent=self.plan.name, target_agent=self.plan.next, parent_handoff_id=parent
        )
        params = send_params(
            "help",
            metadata={"handoff_context": context},
            message={"messageId": f"{self.plan.name}-{task['id']}"},
        )
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    answer = await client.post(
                        self.broker, json=body, headers={"A2A-Version": "1.0"} | headers
                    )
                    helped = answer.json()["result"]["task"]
                    break
                await asyncio.sleep(_AGAIN_S)  # the broker may be starting
        assert helped["status"]["state"] == "TASK_STATE_COMPLETED", helped
        self._done(task, f"{self.plan.name} did it with help")

    def _new(self) -> dict[str, Any]:
        task_id = f"{self.plan.name}-{next(self.ids)}"
        task: dict[str, Any] = {
            "id": task_id,
            "contextId": f"c-{task_id}",
            "status": {"state": "TASK_STATE_WORKING"},
        }
        self.tasks[task_id] = task
        return task

    def _done(self, task: dict[str, Any], text: str) -> None:
        task["status"] = {"state": "TASK_STATE_COMPLETED", "message": said(text)}


async def _answer(send: Any, body: Any, headers: dict[str, str]) -> None:
    named = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in headers.items())]
    await send({"type": "http.response.start", "status": 200, "headers": named})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def _run(plan: Plan, bound: socket.socket, broker: str, collector: str, gate: Any) -> None:
    """What the process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    provider = TracerProvider(resource=Resource.create({"service.name": plan.name}), shutdown_on_exit=False)
    if plan.manner == "instrumented":
        exporter = OTLPSpanExporter(endpoint=f"{collector}/v1/traces")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    agent = TracedAgent(plan, broker, gate, provider.get_tracer("tests.agent"))
    config = uvicorn.Config(agent, lifespan="off", log_config=None, access_log=False, ws="none")
    asyncio.run(uvicorn.Server(config).serve(sockets=[bound]))


class Agents:
    """Agents as processes, all of them ended at the end."""

    def __init__(self, broker: str, collector: str) -> None:
        self._broker, self._collector = broker, collector
        self._processes: list[BaseProcess] = []
        self.gate = _FORKS.Event()
        self.gate.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for process in self._processes:
            process.kill()
            process.join(WAIT_S)
            process.close()

    def start(self, plan: Plan) -> dict[str, Any]:
        """Start one; its registration for the broker."""
        with bound_socket() as bound:
            port = bound.getsockname()[1]
            bound.listen(16)  # calls wait until the process serves them
            process = _FORKS.Process(
                target=_run, args=(plan, bound, self._broker, self._collector, self.gate), daemon=True
            )
            process.start()
        self._processes.append(process)
        return {"agent_id": plan.name, "card": card(f"http://127.0.0.1:{port}/")}


@contextmanager
def agents(broker: str, collector: str) -> Generator[Agents]:
    """No agents yet."""
    with Agents(broker, collector) as made:
        yield made


__all__ = ["Agents", "Plan", "agents"]
