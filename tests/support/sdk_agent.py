"""A real a2a-sdk server in a thread: 1.0 and 0.3, on JSON-RPC, HTTP+JSON and gRPC.

What the agent does is told by the text of the message: ``echo``, ``ask``, ``slow``, ``half``,
``message``, ``reject``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import httpx
import uvicorn
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    a2a_pb2_grpc,
)
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send


def _said(text: str, updater: TaskUpdater) -> Message:
    return updater.new_agent_message([Part(text=text)], metadata={"from": "agent"})


class ScriptedExecutor(AgentExecutor):
    """Does what the message says."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.runs = 0

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run one message."""
        text = context.get_user_input().split("\n")[0]
        if text == "message":
            reply = Message(message_id="r-1", role=Role.ROLE_AGENT, parts=[Part(text="hello")])
            reply.context_id = context.context_id or ""
            reply.metadata.update({"from": "agent"})
            await event_queue.enqueue_event(reply)
            return
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        task = context.current_task
        asked = task is not None and task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        if task is None:
            task = Task(id=context.task_id, context_id=context.context_id)
            task.status.state = TaskState.TASK_STATE_SUBMITTED
            await event_queue.enqueue_event(task)
        if text == "reject":
            await updater.reject(_said("not mine", updater))
            return
        await updater.start_work()
        if text == "ask" and not asked:
            await updater.requires_input(_said("which one?", updater))
            return
        self.runs += 1
        if text == "slow":
            await self.release.wait()
        await updater.add_artifact([Part(text="one ")], artifact_id="a", append=False, last_chunk=False)
        if text == "half":
            await self.release.wait()
        await updater.add_artifact([Part(text="two")], artifact_id="a", append=True, last_chunk=True)
        parts = list(context.message.parts) if context.message is not None else []
        await updater.add_artifact(parts, artifact_id="b", name="echo")
        await updater.complete(_said("done", updater))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Stop."""
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


@dataclass
class SdkAgent:
    """The running server. ``headers`` are those of each request, ``metadata`` those of each call of gRPC."""

    port: int
    grpc_port: int
    executor: ScriptedExecutor
    loop: asyncio.AbstractEventLoop
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    metadata: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def release(self) -> None:
        """Let the slow tasks finish."""
        self.loop.call_soon_threadsafe(self.executor.release.set)

    def hold(self) -> None:
        """Make slow tasks slow again."""
        self.loop.call_soon_threadsafe(self.executor.release.clear)


def _card(*, push: bool) -> AgentCard:
    return AgentCard(
        name="SDK",
        description="real",
        version="1",
        supported_interfaces=[
            AgentInterface(url="http://127.0.0.1/", protocol_binding="JSONRPC", protocol_version=version)
            for version in ("1.0", "0.3")
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=push),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
    )


def _recording(app: ASGIApp, headers: list[dict[str, str]]) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    return wrapped


class _Noting(grpc.aio.ServerInterceptor):
    """Notes the metadata of every call."""

    def __init__(self, seen: list[dict[str, str]]) -> None:
        self._seen = seen

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        metadata = dict(handler_call_details.invocation_metadata)
        self._seen.append(metadata | {":path": handler_call_details.method})
        return await continuation(handler_call_details)


async def _grpc_server(handler: DefaultRequestHandler, seen: list[dict[str, str]]) -> tuple[Any, int]:
    server = grpc.aio.server(interceptors=[_Noting(seen)])
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


@contextmanager
def sdk_agent(*, push: bool = False) -> Generator[SdkAgent]:
    """Start the server, wait until it listens, stop it at the end. ``push``: it calls back."""
    started = threading.Event()
    found: list[Any] = []

    def serve() -> None:
        async def main() -> None:
            executor = ScriptedExecutor()
            card = _card(push=push)
            configs = InMemoryPushNotificationConfigStore() if push else None
            http = httpx.AsyncClient(trust_env=False)
            handler = DefaultRequestHandler(
                agent_executor=executor,
                task_store=InMemoryTaskStore(),
                agent_card=card,
                push_config_store=configs,
                push_sender=BasePushNotificationSender(http, configs) if configs is not None else None,
            )
            routes = [
                *create_agent_card_routes(card),
                *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
                *create_rest_routes(handler, enable_v0_3_compat=True),
            ]
            headers: list[dict[str, str]] = []
            config = uvicorn.Config(
                _recording(Starlette(routes=routes), headers),
                host="127.0.0.1",
                port=0,
                log_level="critical",
                timeout_graceful_shutdown=1,
            )
            server = uvicorn.Server(config)
            config.load()
            server.lifespan = config.lifespan_class(config)
            await server.startup()
            port = server.servers[0].sockets[0].getsockname()[1]
            metadata: list[dict[str, str]] = []
            rpc_server, grpc_port = await _grpc_server(handler, metadata)
            loop = asyncio.get_running_loop()
            found.extend((server, SdkAgent(port, grpc_port, executor, loop, headers, metadata)))
            started.set()
            await server.main_loop()
            await server.shutdown()
            await rpc_server.stop(1)
            await handler.aclose()
            await http.aclose()

        asyncio.run(main())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(30)
    server, agent = found
    try:
        yield agent
    finally:
        server.should_exit = True
        agent.release()
        thread.join(10)
