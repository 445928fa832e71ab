"""An agent of strands with a model that is a stub. ``wait`` takes long; anything else is said back."""

import asyncio

from serving import listen, serve
from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer


class Stub(Model):
    def update_config(self, **model_config):
        pass

    def get_config(self):
        return {}

    def structured_output(self, output_model, prompt, system_prompt=None, **kwargs):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **kwargs):
        text = messages[-1]["content"][0]["text"]
        if text == "wait":
            await asyncio.sleep(60)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for word in ("strands heard ", text):
            yield {"contentBlockDelta": {"delta": {"text": word}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


bound, port = listen()
server = A2AServer(
    agent_factory=lambda context_id: Agent(
        model=Stub(), name="parrot", description="Says it back.", callback_handler=None
    ),
    http_url=f"http://127.0.0.1:{port}",
    enable_a2a_compliant_streaming=True,
)
serve(server.to_starlette_app(), bound)
