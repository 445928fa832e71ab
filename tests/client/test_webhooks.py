"""Calls of webhooks, down to the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from a2a_handoff.client import WebhookClient
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Sent
from a2a_handoff.security.urls import OutboundPolicy
from tests.client.raw_server import (
    Handler,
    RawServer,
    Request,
    answer,
    closed_port,
    for_ever,
    raw_server,
    read_request,
    reset,
    run,
    until,
)
from tests.support.streams import listening

HEADERS = (("Content-Type", "application/a2a+json"), ("X-A2A-Notification-Id", "n-1"))


@asynccontextmanager
async def calling(handler: Handler) -> AsyncGenerator[tuple[WebhookClient, RawServer]]:
    client = WebhookClient(OutboundPolicy(allow_private=True), now=lambda: 1_000.0)
    async with raw_server(handler) as server:
        try:
            yield client, server
        finally:
            await client.close()
            await until(lambda: not server.open)


def answers(*parts: bytes) -> Handler:
    """Answers the calls with these bytes in turn, then with the last of them."""
    rest = list(parts)

    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(rest.pop(0) if len(rest) > 1 else rest[0])
        await writer.drain()

    return handler


def test_one_post_with_the_headers_and_the_body_as_given() -> None:
    async def body() -> None:
        async with calling(answers(answer(b"", 202))) as (client, server):
            told = await client.post(server.url + "/a?b=c", HEADERS, b'{"task": {}}', timeout_s=5)
            assert (told.status, told.retry_after_s) == (202, None)
            (request,) = server.requests
            assert (request.method, request.path, request.body) == ("POST", "/a2a/a?b=c", b'{"task": {}}')
            assert request.headers["x-a2a-notification-id"] == "n-1"
            assert request.headers["content-type"] == "application/a2a+json"

    run(body())


def test_the_body_of_the_answer_does_not_count_however_long_it_is() -> None:
    async def body() -> None:
        async with calling(answers(answer(b"x" * 100_000), answer(b"\xff\x00"))) as (client, server):
            for _ in range(2):
                assert (await client.post(server.url, HEADERS, b"{}", timeout_s=5)).status == 200

    run(body())


@pytest.mark.parametrize("part", [b"", b"x"])
def test_what_was_taken_is_no_failure_if_the_body_of_the_answer_comes_slowly_or_not_at_all(
    part: bytes,
) -> None:
    async def slowly(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + part)
        await writer.drain()
        await for_ever(request, writer)

    async def body() -> None:
        async with calling(slowly) as (client, server):
            assert (await client.post(server.url, HEADERS, b"{}", timeout_s=0.5)).status == 200

    run(body())


def test_retry_after_is_read_in_both_forms() -> None:
    date = "Thu, 01 Jan 1970 00:20:00 GMT"  # 200 seconds after the test's now

    async def body() -> None:
        first = answer(b"", 503, headers="Retry-After: 7\r\n")
        second = answer(b"", 429, headers=f"Retry-After: {date}\r\n")
        async with calling(answers(first, second)) as (client, server):
            told = [await client.post(server.url, HEADERS, b"{}", timeout_s=5) for _ in range(2)]
            assert [(one.status, one.retry_after_s) for one in told] == [(503, 7.0), (429, 200.0)]

    run(body())


def test_a_connection_is_kept_and_if_it_was_closed_that_is_no_failure() -> None:
    connections = over = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, over
        connections += 1
        try:
            for _ in range(2):
                await read_request(reader)
                writer.write(answer(b"").replace(b"Connection: close\r\n", b""))
            await read_request(reader)  # the third request on the connection is read and dropped
        finally:
            over += 1

    async def body() -> None:
        async with listening(serve) as port:
            client = WebhookClient(OutboundPolicy(allow_private=True), now=lambda: 1_000.0)
            for expected in (1, 1, 2, 2):
                answered = await client.post(f"http://127.0.0.1:{port}/", HEADERS, b"{}", timeout_s=5)
                assert answered.status == 200
                assert connections == expected
            await client.close()
            await until(lambda: over == connections)

    run(body())


def test_no_answer_is_a_failure_that_says_what_it_was() -> None:
    async def drops(_: Request, writer: asyncio.StreamWriter) -> None:
        reset(writer)

    async def body() -> None:
        for handler, outcome, detail in (
            (for_ever, Outcome.TIMEOUT, "no answer in time"),
            (drops, Outcome.TARGET_UNAVAILABLE, "connection lost"),
            (answers(b"SMTP ready\r\n\r\n"), Outcome.INVALID_RESPONSE, "the answer is not HTTP"),
        ):
            async with calling(handler) as (client, server):
                with pytest.raises(AgentError) as failed:
                    await client.post(server.url, HEADERS, b"{}", timeout_s=0.2)
                assert (failed.value.outcome, failed.value.detail) == (outcome, detail)
        async with calling(for_ever) as (client, _):
            with pytest.raises(AgentError, match="not connected") as failed:
                await client.post(f"http://127.0.0.1:{closed_port()}/", HEADERS, b"{}", timeout_s=5)
            assert failed.value.sent is Sent.NO

    run(body())


def test_a_call_that_is_under_way_when_it_is_closed_is_broken_off() -> None:
    async def body() -> None:
        free = asyncio.Event()

        async def waits(_: Request, __: asyncio.StreamWriter) -> None:
            await free.wait()

        async with calling(waits) as (client, server):
            call = asyncio.ensure_future(client.post(server.url, HEADERS, b"{}", timeout_s=60))
            await until(lambda: bool(server.requests))
            await client.close()
            with pytest.raises(AgentError, match="the broker is closing"):
                await call
            with pytest.raises(AgentError, match="the broker is closing"):
                await client.post(server.url, HEADERS, b"{}", timeout_s=60)
            free.set()

    run(body())
