"""a2a-sdk 0.2 as a client of the broker: URL WEBHOOK. What it saw is printed as JSON."""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, A2AClient
from a2a.types import (
    CancelTaskRequest,
    GetTaskPushNotificationConfigParams,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    Message,
    MessageSendParams,
    Part,
    PushNotificationConfig,
    Role,
    SendMessageRequest,
    SendStreamingMessageRequest,
    SetTaskPushNotificationConfigRequest,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)

URL, WEBHOOK = sys.argv[1:]


def said(text, task=None):
    ids = {} if task is None else {"taskId": task.id, "contextId": task.context_id}
    message = Message(
        messageId=str(uuid.uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))], **ids
    )
    return MessageSendParams(message=message)


def words(parts):
    return "".join(part.root.text for part in parts)


def state(task):
    return task.status.state.value.replace("-", "_")


def seen(task):
    artifacts = "".join(words(artifact.parts) for artifact in task.artifacts or [])
    message = task.status.message
    return {"state": state(task), "text": artifacts or (words(message.parts) if message else "")}


async def told(answers):
    heard = []
    async for answer in answers:
        event = answer.root.result
        word = words(event.artifact.parts) if event.kind == "artifact-update" else state(event)
        if heard[-1:] != [word]:
            heard.append(word)
    return heard


async def main():
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        card = await A2ACardResolver(http, URL).get_agent_card()
        client = A2AClient(http, agent_card=card)

        def name():
            return str(uuid.uuid4())

        async def send(params):
            return (await client.send_message(SendMessageRequest(id=name(), params=params))).root.result

        def stream(params):
            return client.send_message_streaming(SendStreamingMessageRequest(id=name(), params=params))

        async def get(task_id):
            return (await client.get_task(GetTaskRequest(id=name(), params=TaskQueryParams(id=task_id)))).root

        report = {"name": card.name}
        sent = await send(said("echo"))
        report["sent"] = seen(sent)
        report["read"] = state((await get(sent.id)).result)
        report["streamed"] = await told(stream(said("echo")))

        asked = await send(said("ask"))
        report["asked"] = seen(asked)
        report["answered"] = seen(await send(said("blue", asked)))

        waiting = stream(said("wait"))
        async for answer in waiting:
            task = answer.root.result
            open_task = getattr(task, "task_id", None) or task.id
            if state(task) == "working":
                break
        canceled = await client.cancel_task(CancelTaskRequest(id=name(), params=TaskIdParams(id=open_task)))
        report["canceled"] = state(canceled.root.result)
        report["ended"] = (await told(waiting))[-1]

        pushed = await send(said("ask"))
        hook = PushNotificationConfig(id="hook", url=WEBHOOK, token="secret")
        setting = TaskPushNotificationConfig(taskId=pushed.id, pushNotificationConfig=hook)
        await client.set_task_callback(SetTaskPushNotificationConfigRequest(id=name(), params=setting))
        asking = GetTaskPushNotificationConfigParams(id=pushed.id)
        read = await client.get_task_callback(GetTaskPushNotificationConfigRequest(id=name(), params=asking))
        report["webhook"] = read.root.result.push_notification_config.url == WEBHOOK
        await send(said("green", pushed))
        report["pushed"] = pushed.id

        report["refused"] = (await get("nobody")).error.code
        print(json.dumps(report))


asyncio.run(main())
