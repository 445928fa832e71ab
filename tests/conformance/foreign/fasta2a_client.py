"""fasta2a 0.2 as a client of the broker: URL. It names no request, sends and polls. What it saw is printed as JSON."""

import asyncio
import json
import sys

from fasta2a.client import A2AClient


async def main():
    client = A2AClient(sys.argv[1])
    message = {"role": "user", "parts": [{"type": "text", "text": "echo"}]}
    task = (await client.send_task(message=message))["result"]
    while task["status"]["state"] not in ("completed", "failed"):
        await asyncio.sleep(0.1)
        task = (await client.get_task(task["id"]))["result"]
    parts = [part["text"] for artifact in task["artifacts"] for part in artifact["parts"]]
    print(json.dumps({"state": task["status"]["state"], "text": "".join(parts)}))


asyncio.run(main())
