"""google-adk with the broker as a remote agent: URL. What it saw is printed as JSON."""

import asyncio
import json
import sys

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main():
    agent = RemoteA2aAgent(name="broker", agent_card=f"{sys.argv[1]}/.well-known/agent-card.json")
    runner = InMemoryRunner(agent=agent, app_name="trial")
    session = await runner.session_service.create_session(app_name="trial", user_id="me")
    said = types.Content(role="user", parts=[types.Part(text="echo")])
    report = {"heard": [], "errors": []}
    async for event in runner.run_async(user_id="me", session_id=session.id, new_message=said):
        if event.error_message:
            report["errors"].append(event.error_message)
        parts = (event.content and event.content.parts) or []
        report["heard"] += [part.text for part in parts if part.text]
    print(json.dumps(report))


asyncio.run(main())
