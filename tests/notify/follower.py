"""Reads a stream of events from outside, as any consumer would."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

WAIT_S = 20.0
_PAGE = 500


@dataclass(frozen=True)
class Heard:
    """A message: where it was, its headers, its CloudEvent."""

    subject: str
    headers: dict[str, str]
    event: dict[str, Any]
    sequence: int

    @property
    def id(self) -> str:
        return self.event["id"]


async def read(
    url: str, stream: str = "events", *, subject: str = ">", least: int = 0, within_s: float = WAIT_S
) -> list[Heard]:
    """Everything in the stream, from its first message on, once there are ``least``."""
    client = await nats.connect(url, allow_reconnect=False)
    try:
        context = client.jetstream()
        async with asyncio.timeout(within_s):
            while await _size(context, stream) < least:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.ALL, filter_subject=subject, ack_policy=AckPolicy.NONE
        )
        if not await _size(context, stream):
            return []
        consumer = await context.pull_subscribe(subject, stream=stream, config=config)
        count = (await consumer.consumer_info()).num_pending or 0
        found: list[Heard] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                with contextlib.suppress(TimeoutError):
                    page = min(count - len(found), _PAGE)
                    found += [_heard(message) for message in await consumer.fetch(page, timeout=1)]
        return found
    finally:
        await client.close()


def _heard(message: Msg) -> Heard:
    return Heard(
        message.subject,
        dict(message.headers or {}),
        json.loads(message.data),
        message.metadata.sequence.stream,
    )


async def _size(context: Any, stream: str) -> int:
    try:
        return (await context.stream_info(stream)).state.messages
    except NotFoundError:
        return 0


def events(url: str, **how: Any) -> list[Heard]:
    """``read`` from a test that is not asynchronous."""
    return asyncio.run(read(url, **how))
