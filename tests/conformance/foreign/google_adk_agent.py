"""An agent of google-adk without a model. ``wait`` takes long; anything else is said back."""

import asyncio
from collections.abc import AsyncGenerator

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types
from serving import listen, serve


class Parrot(BaseAgent):
    async def _run_async_impl(self, ctx) -> AsyncGenerator[Event, None]:
        text = ctx.user_content.parts[0].text
        if text == "wait":
            await asyncio.sleep(60)
        said = types.Content(role="model", parts=[types.Part(text=f"adk heard {text}")])
        yield Event(author=self.name, content=said, invocation_id=ctx.invocation_id)


bound, port = listen()
serve(to_a2a(Parrot(name="parrot", description="Says it back."), host="127.0.0.1", port=port), bound)
