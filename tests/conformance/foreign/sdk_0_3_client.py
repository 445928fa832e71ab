"""a2a-sdk 0.3 as a client of the broker: URL BINDING WEBHOOK. What it saw is printed as JSON."""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)

URL, BINDING, WEBHOOK = sys.argv[1:]


def said(text, task=None):
    ids = {} if task is None else {"task_id": task.id, "context_id": task.context_id}
    return Message(
        message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))], **ids
    )


def words(parts):
    return "".join(part.root.text for part in parts)


def state(task):
    return task.status.state.value.replace("-", "_")


def seen(task):
    artifacts = "".join(words(artifact.parts) for artifact in task.artifacts or [])
    message = task.status.message
    return {"state": state(task), "text": artifacts or (words(message.parts) if message else "")}


async def whole(events):
    """The task that an answer without a stream is."""
    return [task async for task, _ in events][-1]


async def told(events):
    heard = []
    async for task, update in events:
        artifact = getattr(update, "artifact", None)
        word = words(artifact.parts) if artifact else state(update or task)
        if heard[-1:] != [word]:
            heard.append(word)
    return heard


async def main():
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        card = await A2ACardResolver(http, URL).get_agent_card()

        def client(streaming):
            config = ClientConfig(
                httpx_client=http,
                streaming=streaming,
                supported_transports=[BINDING],
                use_client_preference=True,
            )
            return ClientFactory(config).create(card)

        plain, live = client(False), client(True)
        report = {"name": card.name}
        sent = await whole(plain.send_message(said("echo")))
        report["sent"] = seen(sent)
        report["read"] = state(await plain.get_task(TaskQueryParams(id=sent.id)))
        report["streamed"] = await told(live.send_message(said("echo")))

        asked = await whole(plain.send_message(said("ask")))
        report["asked"] = seen(asked)
        report["answered"] = seen(await whole(plain.send_message(said("blue", asked))))

        followed = await whole(plain.send_message(said("ask")))
        following = live.resubscribe(TaskIdParams(id=followed.id))
        task, _ = await anext(following)
        report["followed"] = [state(task)]
        await whole(plain.send_message(said("red", followed)))
        report["followed"] += await told(following)

        waiting = live.send_message(said("wait"))
        async for task, _ in waiting:
            if state(task) == "working":
                break
        report["canceled"] = state(await plain.cancel_task(TaskIdParams(id=task.id)))
        report["ended"] = (await told(waiting))[-1]

        pushed = await whole(plain.send_message(said("ask")))
        hook = PushNotificationConfig(id="hook", url=WEBHOOK, token="secret")
        await plain.set_task_callback(
            TaskPushNotificationConfig(task_id=pushed.id, push_notification_config=hook)
        )
        read = await plain.get_task_callback(
            GetTaskPushNotificationConfigParams(id=pushed.id, push_notification_config_id="hook")
        )
        report["webhook"] = read.push_notification_config.url == WEBHOOK
        await whole(plain.send_message(said("green", pushed)))
        report["pushed"] = pushed.id

        try:
            await plain.get_task(TaskQueryParams(id="nobody"))
        except A2AClientError as error:
            report["refused"] = str(error)
        print(json.dumps(report))


asyncio.run(main())
