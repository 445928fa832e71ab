"""The agent that docs/tutorial/first-handoff.md shows is one that works."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.kit.client import BrokerClient
from tests.support.running import running

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-handoff.md"


def shown_agent() -> Starlette:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "postage"}
    exec(compile(code[0], "postage.py", "exec"), names)
    return names["app"]


def test_the_shown_agent_answers_and_hands_on() -> None:
    async def body() -> None:
        context = {
            "user_intent": "wants a price",
            "conversation_summary": "asked",
            "key_facts": {},
            "offer_id": "o1",
        }
        async with BrokerClient(url, agent_id="shop") as broker:
            answer = (await broker.send("What does a letter cost?", context))[-1]
            assert answer.text == "I take over from shop. A letter costs 95 cents."
            assert answer.state == "COMPLETED"
            assert answer.metadata[EXTENSION_URI]["receipt"]["user_intent"] == "wants a price"
            last = (await broker.send("What does a parcel cost?", {**context, "offer_id": "o2"}))[-1]
            directive = last.metadata[EXTENSION_URI]["handoff"]
            assert directive["requirements"] == {"domain": "billing"}
            assert directive["key_facts"] == {"invoice": "INV-3000"}

    with running(shown_agent()) as url:
        asyncio.run(asyncio.wait_for(body(), 20))
