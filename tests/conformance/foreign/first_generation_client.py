"""agent2agent-client, the code of April 2025, as a client of the broker: URL WEBHOOK. What it saw is printed as JSON.

Its ``get_task`` and its siblings forget an argument of their own helper, so they are called through that; it has a type
for ``tasks/resubscribe`` and no method.
"""

import asyncio
import json
import queue
import sys
import threading
import uuid

import httpx
from common_client.client.card_resolver import A2ACardResolver
from common_client.client.client import A2AClient
from common_client.types import (
    CancelTaskRequest,
    CancelTaskResponse,
    GetTaskPushNotificationRequest,
    GetTaskPushNotificationResponse,
    GetTaskRequest,
    GetTaskResponse,
    SendTaskStreamingResponse,
    SetTaskPushNotificationRequest,
    SetTaskPushNotificationResponse,
    TaskResubscriptionRequest,
)
from httpx_sse import connect_sse

URL, WEBHOOK = sys.argv[1:]


def said(text, task_id=None):
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": task_id or uuid.uuid4().hex, "sessionId": "one", "message": message}


def words(parts):
    return "".join(part.text for part in parts)


def state(task):
    return task.status.state.value.replace("-", "_")


def seen(task):
    artifacts = "".join(words(artifact.parts) for artifact in task.artifacts or [])
    message = task.status.message
    return {"state": state(task), "text": artifacts or (words(message.parts) if message else "")}


def word(event):
    return words(event.artifact.parts) if hasattr(event, "artifact") else state(event)


def deduped(heard):
    return [one for i, one in enumerate(heard) if i == 0 or heard[i - 1] != one]


class Live:
    """A stream that is read in a thread, for the client's own reading holds up the loop."""

    def __init__(self, stream):
        self.heard = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read(stream)), daemon=True)
        self._thread.start()

    async def _read(self, stream):
        async for answer in stream:
            self.heard.put(word(answer.result))
        self.heard.put(None)

    def until(self, wanted):
        while self.heard.get(timeout=30) != wanted:
            pass

    def rest(self):
        found = []
        while (one := self.heard.get(timeout=30)) is not None:
            found.append(one)
        return deduped(found)


async def main():
    card = A2ACardResolver(URL).get_agent_card()
    client = A2AClient(agent_card=card)

    async def call(request, answer, **params):
        return answer(**await client._send_request(request(params=params), 30))

    async def resubscribe(task_id):
        body = TaskResubscriptionRequest(params={"id": task_id}).model_dump()
        with httpx.Client(timeout=None) as http, connect_sse(http, "POST", client.url, json=body) as source:
            for event in source.iter_sse():
                yield SendTaskStreamingResponse(**json.loads(event.data))

    async def send(params):
        return (await client.send_task(params)).result

    report = {"name": card.name}
    echo = said("echo")
    report["sent"] = seen(await send(echo))
    read = await call(GetTaskRequest, GetTaskResponse, id=echo["id"])
    report["read"] = state(read.result)
    report["own id"] = read.result.id == echo["id"] and read.result.sessionId == "one"
    report["streamed"] = Live(client.send_task_streaming(said("echo"))).rest()

    asking = said("ask")
    report["asked"] = seen(await send(asking))
    report["answered"] = seen(await send(said("blue", asking["id"])))

    asking = said("ask")
    await send(asking)
    following = Live(resubscribe(asking["id"]))
    first = following.heard.get(timeout=30)
    await send(said("red", asking["id"]))
    report["followed"] = [first, *following.rest()]

    wait = said("wait")
    waiting = Live(client.send_task_streaming(wait))
    waiting.until("working")
    report["canceled"] = state((await call(CancelTaskRequest, CancelTaskResponse, id=wait["id"])).result)
    report["ended"] = waiting.rest()[-1]

    pushed = said("ask")
    await send(pushed)
    hook = {"url": WEBHOOK, "token": "secret"}
    await call(
        SetTaskPushNotificationRequest,
        SetTaskPushNotificationResponse,
        id=pushed["id"],
        pushNotificationConfig=hook,
    )
    read = await call(GetTaskPushNotificationRequest, GetTaskPushNotificationResponse, id=pushed["id"])
    report["webhook"] = read.result.pushNotificationConfig.url == WEBHOOK
    await send(said("green", pushed["id"]))
    report["pushed"] = pushed["id"]

    report["refused"] = (await call(GetTaskRequest, GetTaskResponse, id="nobody")).error.code
    print(json.dumps(report))


asyncio.run(main())
