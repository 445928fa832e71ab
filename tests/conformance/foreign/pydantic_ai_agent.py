"""An agent of pydantic-ai on fasta2a, with a model that is a function. ``wait`` takes long; anything else is said back.

Its timestamps have no zone.
"""

import asyncio

from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from serving import listen, serve


async def answer(messages, info):
    text = messages[-1].parts[-1].content
    text = text if isinstance(text, str) else " ".join(str(one) for one in text)
    if text == "wait":
        await asyncio.sleep(60)
    return ModelResponse(parts=[TextPart(f"pydantic heard {text}")])


bound, port = listen()
serve(agent_to_a2a(Agent(FunctionModel(answer)), name="parrot", url=f"http://127.0.0.1:{port}"), bound)
