"""An agent on agent2agent-server, the code of April 2025. ``wait`` takes long; anything else is said back.

Its task manager refuses every cancel.
"""

import asyncio

from common_server.server.server import A2AServer
from common_server.server.task_manager import InMemoryTaskManager
from common_server.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    Artifact,
    SendTaskResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from serving import listen, serve


class Parrot(InMemoryTaskManager):
    async def _answer(self, params):
        """The artifact of a task, once it is there."""
        await self.upsert_task(params)
        text = params.message.parts[0].text
        if text == "wait":
            await asyncio.sleep(60)
        return Artifact(parts=[{"type": "text", "text": f"first heard {text}"}])

    async def on_send_task(self, request):
        artifact = await self._answer(request.params)
        task = await self.update_store(request.params.id, TaskStatus(state=TaskState.COMPLETED), [artifact])
        return SendTaskResponse(id=request.id, result=task)

    async def on_send_task_subscribe(self, request):
        params = request.params
        heard = await self.setup_sse_consumer(params.id)
        working = TaskStatusUpdateEvent(id=params.id, status=TaskStatus(state=TaskState.WORKING))
        await self.enqueue_events_for_sse(params.id, working)
        self.running = asyncio.create_task(self._stream(params))
        return self.dequeue_events_for_sse(request.id, params.id, heard)

    async def _stream(self, params):
        artifact = await self._answer(params)
        done = TaskStatus(state=TaskState.COMPLETED)
        await self.update_store(params.id, done, [artifact])
        await self.enqueue_events_for_sse(params.id, TaskArtifactUpdateEvent(id=params.id, artifact=artifact))
        await self.enqueue_events_for_sse(
            params.id, TaskStatusUpdateEvent(id=params.id, status=done, final=True)
        )


bound, port = listen()
card = AgentCard(
    name="parrot",
    url=f"http://127.0.0.1:{port}/",
    version="1",
    capabilities=AgentCapabilities(streaming=True),
    skills=[AgentSkill(id="parrot", name="parrot")],
)
serve(A2AServer(agent_card=card, task_manager=Parrot()).app, bound)
