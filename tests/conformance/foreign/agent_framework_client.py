"""Microsoft's agent-framework as a client of the broker: URL. What it saw is printed as JSON."""

import asyncio
import json
import sys

from agent_framework.a2a import A2AAgent


async def main():
    async with A2AAgent(name="broker", url=sys.argv[1]) as agent:
        report = {"sent": (await agent.run("echo")).text}
        report["streamed"] = "".join([update.text async for update in agent.run("echo", stream=True)])
        session = agent.create_session()
        report["asked"] = (await agent.run("ask", session=session)).text
        report["answered"] = (await agent.run("blue", session=session)).text
        print(json.dumps(report))


asyncio.run(main())
