"""What a broker costs that is built on a2a-sdk's own handlers, in memory: the yardstick of the benchmarks.

``python -m tests.benchmarks.sdk_broker PORT AGENT_URL`` forwards every message with the SDK's client to the
agent and gives back its task. It keeps nothing on disk, and has no guards, retries, traces or context.
"""

from __future__ import annotations

import os
import sys
import uuid

os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")

import httpx
import uvicorn
from a2a.client import ClientConfig, ClientFactory
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    Message,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from starlette.applications import Starlette


def card(url: str) -> AgentCard:
    """A card at ``url`` that speaks JSON-RPC 1.0."""
    return AgentCard(
        name="yardstick",
        description="forwards",
        version="1",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    )


class Forward(AgentExecutor):
    """Sends the message on and reports what the agent answered."""

    def __init__(self, agent_url: str) -> None:
        limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
        self._http = httpx.AsyncClient(timeout=30, limits=limits, trust_env=False)
        self._client = ClientFactory(ClientConfig(httpx_client=self._http, streaming=False)).create(
            card(agent_url)
        )

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, context_id = context.task_id or "", context.context_id or ""
        submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await event_queue.enqueue_event(Task(id=task_id, context_id=context_id, status=submitted))
        message = Message()
        if context.message is not None:
            message.CopyFrom(context.message)
        message.message_id = str(uuid.uuid4())
        message.ClearField("task_id")
        message.ClearField("context_id")
        async for answer in self._client.send_message(SendMessageRequest(message=message)):
            for artifact in answer.task.artifacts:
                await event_queue.enqueue_event(
                    TaskArtifactUpdateEvent(task_id=task_id, context_id=context_id, artifact=artifact)
                )
            status = TaskStatus(state=answer.task.status.state)
            await event_queue.enqueue_event(
                TaskStatusUpdateEvent(task_id=task_id, context_id=context_id, status=status)
            )

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def main(port: int, agent_url: str) -> None:
    """Serve on loopback until killed."""
    own = card(f"http://127.0.0.1:{port}/")
    handler = DefaultRequestHandler(Forward(agent_url), InMemoryTaskStore(), own)
    app = Starlette(routes=[*create_agent_card_routes(own), *create_jsonrpc_routes(handler, "/")])
    uvicorn.run(app, port=port, log_config=None, access_log=False, lifespan="off", ws="none")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
