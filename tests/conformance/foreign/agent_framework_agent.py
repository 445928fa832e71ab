"""An agent of Microsoft's agent-framework without a model. ``wait`` takes long; anything else is said back."""

import asyncio

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    BaseAgent,
    Content,
    Message,
    ResponseStream,
)
from agent_framework.a2a import A2AExecutor
from serving import listen, serve
from starlette.applications import Starlette


class Parrot(BaseAgent):
    def run(self, messages=None, *, stream=False, session=None, **kwargs):
        text = str(
            messages
            if isinstance(messages, str)
            else messages[-1].text
            if isinstance(messages, list)
            else messages.text
        )
        return (
            ResponseStream(self._words(text), finalizer=AgentResponse.from_updates)
            if stream
            else self._whole(text)
        )

    async def _words(self, text):
        if text == "wait":
            await asyncio.sleep(60)
        for word in ("framework heard ", text):
            yield AgentResponseUpdate(contents=[Content.from_text(word)], role="assistant")

    async def _whole(self, text):
        said = "".join([update.text async for update in self._words(text)])
        return AgentResponse(messages=[Message("assistant", [said])])


bound, port = listen()
card = AgentCard(
    name="parrot",
    description="Says it back.",
    version="1",
    supported_interfaces=[
        AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="parrot", name="parrot", description="Says it back.", tags=["parrot"])],
)
handler = DefaultRequestHandler(
    agent_executor=A2AExecutor(Parrot(name="parrot"), stream=True),
    task_store=InMemoryTaskStore(),
    agent_card=card,
)
serve(Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]), bound)
