"""Waiting for work: nothing is lost, nothing comes twice, whatever becomes of the call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.conftest import Door, ask, good, refused
from tests.support.agents import card
from tests.support.running import Broker
from tests.support.served import served
from tests.support.wire import eventually

NOW: dict[str, Any] = {"timeout": 0}


def test_an_offer_is_shown_as_soon_as_it_is_made_and_accepted(door: Door, b: Broker) -> None:
    b.register("cursor")

    async def body() -> None:
        async with door.client() as client:
            good(await client.call_tool("watch_handoffs", NOW))
            watching = asyncio.create_task(client.call_tool("watch_handoffs", {"pollInterval": 60}))
            await waits(b)
            made = await asyncio.to_thread(ask, b)
            began_at = time.perf_counter()
            came = good(await watching)
            assert time.perf_counter() - began_at < 2
            assert (came["handoff"]["handoffId"], came["accepted"], came["again"]) == (made, True, False)
            assert b.handoff(made)["state"] == "acknowledged"

    asyncio.run(body())


def test_who_waits_is_told_that_the_call_lives(door: Door, b: Broker) -> None:
    b.register("cursor")
    told: list[tuple[float, float | None]] = []

    async def body() -> None:
        enough = asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            assert message
            told.append((progress, total))
            if len(told) == 2:
                enough.set()

        async with door.client() as client:
            arguments = {"timeout": 60, "pollInterval": 0.1}
            watching = asyncio.create_task(
                client.call_tool("watch_handoffs", arguments, progress_callback=hear)
            )
            await asyncio.wait_for(enough.wait(), 20)
            await asyncio.to_thread(ask, b)
            assert good(await watching)["handoff"]

    asyncio.run(body())
    assert [total for _, total in told[:2]] == [60, 60]
    assert 0 < told[0][0] < told[1][0]


def test_a_call_that_is_canceled_takes_nothing(
    door: Door, b: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    b.register("cursor")

    async def body() -> None:
        async with door.client() as client:
            good(await client.call_tool("watch_handoffs", NOW))
            watching = asyncio.create_task(client.call_tool("watch_handoffs", {}))
            await waits(b)
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            await nobody_waits(b)
            made = await asyncio.to_thread(ask, b)
            assert b.handoff(made)["state"] == "offered"
            came = good(await client.call_tool("watch_handoffs", NOW))
            assert (came["handoff"]["handoffId"], came["again"]) == (made, False)

    asyncio.run(body())
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_c091_what_was_accepted_is_shown_again_until_something_is_said_of_it(door: Door, b: Broker) -> None:
    b.register("cursor")

    async def body() -> None:
        made = await asyncio.to_thread(ask, b)
        one = {"handoffId": made}
        async with door.client() as client:
            first = good(await client.call_tool("watch_handoffs", {}))
            for _ in range(2):
                again = good(await client.call_tool("watch_handoffs", {}))
                assert again["again"]
                assert again["handoff"]["handoffId"] == made
                assert again["handoff"]["context"] == first["handoff"]["context"]
            good(await client.call_tool("handoff_progress", {**one, "message": "reading"}))
            assert "handoff" not in good(await client.call_tool("watch_handoffs", NOW))
            held = good(await client.call_tool("check_handoffs", {}))["accepted"]
            assert [each["handoffId"] for each in held] == [made]
            good(await client.call_tool("complete_handoff", {**one, "result": "fine"}))
            assert "handoff" not in good(await client.call_tool("watch_handoffs", NOW))
        assert b.log(made).count("handoff_acknowledged") == 1

    asyncio.run(body())


def test_another_window_does_not_get_what_this_one_accepted(door: Door, b: Broker) -> None:
    b.register("cursor")

    async def body() -> None:
        made = await asyncio.to_thread(ask, b)
        async with door.client(instance="window-1") as client:
            assert good(await client.call_tool("watch_handoffs", NOW))["handoff"]["handoffId"] == made
        async with door.client(instance="window-2") as client:
            assert "handoff" not in good(await client.call_tool("watch_handoffs", NOW))
            held = good(await client.call_tool("check_handoffs", {}))["accepted"]
            assert [(each["handoffId"], each["acceptedBy"]) for each in held] == [(made, "window-1")]
            error = refused(await client.call_tool("accept_handoff", {"handoffId": made}))
            assert error["code"] == "stale_attempt"
        async with door.client(instance="window-1") as client:  # it was started anew
            again = good(await client.call_tool("watch_handoffs", NOW))
            assert (again["handoff"]["handoffId"], again["again"]) == (made, True)

    asyncio.run(body())


def test_of_two_windows_that_wait_one_gets_it(door: Door, b: Broker) -> None:
    b.register("cursor")

    async def body() -> None:
        async with door.client(instance="window-1") as one, door.client(instance="window-2") as two:
            for client in (one, two):
                good(await client.call_tool("watch_handoffs", NOW))
            both = [
                asyncio.create_task(each.call_tool("watch_handoffs", {"timeout": 4})) for each in (one, two)
            ]
            await waits(b, 2)
            made = await asyncio.to_thread(ask, b)
            came = [good(await each).get("handoff") for each in both]
        assert [each["handoffId"] for each in came if each] == [made]

    asyncio.run(body())


def test_two_agents_get_their_own(door: Door, b: Broker) -> None:
    for name in ("cursor", "cowork"):
        b.register(name)

    async def body() -> None:
        async with door.client("cursor") as editor, door.client("cowork") as assistant:
            both = [asyncio.create_task(each.call_tool("watch_handoffs", {})) for each in (editor, assistant)]
            made = [
                await asyncio.to_thread(ask, b, name, source_agent="anna") for name in ("cursor", "cowork")
            ]
            assert [good(await each)["handoff"]["handoffId"] for each in both] == made

    asyncio.run(body())


def test_an_offer_that_is_not_to_be_accepted_by_itself_is_shown_until_it_is(door: Door, b: Broker) -> None:
    b.register("cursor")

    async def body() -> None:
        made = await asyncio.to_thread(ask, b)
        async with door.client() as client:
            for _ in range(2):
                came = good(await client.call_tool("watch_handoffs", {"autoAccept": False}))
                assert (came["handoff"]["handoffId"], came["accepted"]) == (made, False)
                assert b.handoff(made)["state"] == "offered"
            good(await client.call_tool("accept_handoff", {"handoffId": made}))
            assert b.handoff(made)["state"] == "acknowledged"

    asyncio.run(body())


def test_who_watches_as_an_agent_that_has_an_address_is_told_so(door: Door, b: Broker) -> None:
    b.register("remote", card=card("http://127.0.0.1:9"))

    async def body() -> None:
        async with door.client("remote") as client:
            error = refused(await client.call_tool("watch_handoffs", NOW))
            assert error["code"] == "wrong_state"
            assert "has an address" in error["message"]

    asyncio.run(body())


def test_answers_of_the_sender_and_ends_of_parts_are_news(door: Door, b: Broker) -> None:
    for name in ("cursor", "cowork"):
        b.register(name)

    async def body() -> None:
        made = await asyncio.to_thread(ask, b, source_agent="anna")
        one = {"handoffId": made}
        async with door.client() as client:
            good(await client.call_tool("watch_handoffs", {}))
            asked = {**one, "message": "Which branch?", "state": "input_required"}
            assert (
                good(await client.call_tool("handoff_progress", asked))["handoff"]["state"]
                == "input_required"
            )
            assert "handoff" not in good(await client.call_tool("watch_handoffs", NOW))
            reply = {"messageId": "m-reply", "taskId": made, "role": "ROLE_USER", "parts": [{"text": "main"}]}
            answer = await asyncio.to_thread(
                b.rpc, "SendMessage", {"message": reply, "configuration": {"returnImmediately": True}}
            )
            assert "result" in answer, answer
            news = good(await client.call_tool("watch_handoffs", {}))
            assert (news["handoff"]["handoffId"], news["handoff"]["news"]) == (
                made,
                ["The sender says: main"],
            )

            part = {"task": "Test it", "targetAgent": "cowork", "parent": made, "mode": "delegate"}
            child = good(await client.call_tool("create_handoff", part))["handoff"]
            assert child["parent"] == made
            assert "handoff" not in good(await client.call_tool("watch_handoffs", NOW))
            b.http.post(f"/api/handoffs/{child['handoffId']}/complete", json={"result": "12 passed"})
            await asyncio.to_thread(b.logged, made, "child_ended")
            news = good(await client.call_tool("watch_handoffs", {}))["handoff"]
            assert news["news"] == [f"Part {child['handoffId']} is completed: see check_handoffs."]
            done = good(await client.call_tool("check_handoffs", {"handoffId": child["handoffId"]}))
            assert done["handoff"]["result"] == "12 passed"

            b.http.post(f"/api/handoffs/{made}/cancel", json={})
            held = good(await client.call_tool("check_handoffs", {}))["accepted"]
            assert any("wants this stopped" in said for each in held for said in each.get("news", []))

    asyncio.run(body())


def test_a_connection_that_breaks_at_any_moment_loses_and_doubles_nothing(b: Broker) -> None:
    """The client asks for work and is gone: before, while and after the handoff is accepted."""
    b.register("cursor")
    door = Door("http", b.url)

    async def body() -> None:
        async with door.client() as client:
            good(await client.call_tool("watch_handoffs", NOW))
            for after_s in (0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1):
                made = await asyncio.to_thread(ask, b)
                await asyncio.to_thread(hang_up, b.url, after_s)
                came = good(await client.call_tool("watch_handoffs", {"timeout": 10}))
                assert came["handoff"]["handoffId"] == made
                good(await client.call_tool("complete_handoff", {"handoffId": made, "result": 1}))
                assert b.log(made).count("handoff_acknowledged") == 1

    asyncio.run(body())


def hang_up(url: str, after_s: float) -> None:
    """Call ``watch_handoffs`` and close the connection, whatever came."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "watch_handoffs", "arguments": {"timeout": 10}},
    }
    body = json.dumps(call).encode()
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        time.sleep(after_s)


def test_a_broker_that_starts_anew_is_waited_for(tmp_path: Path) -> None:
    with served(tmp_path, forked=True) as running:
        door = Door("stdio", running.url)

        async def body() -> None:
            async with door.client() as client:
                good(await client.call_tool("watch_handoffs", NOW))
                watching = asyncio.create_task(client.call_tool("watch_handoffs", {"timeout": 60}))
                await asyncio.to_thread(running.kill)
                error = refused(await client.call_tool("list_agents", {}))
                assert (error["code"], error["retryable"]) == ("unreachable", True)
                assert "is it running?" in error["message"]
                await asyncio.to_thread(running.start)
                wish = {"targetAgent": "cursor", "source_agent": "cowork", "task": "x"}
                made = await asyncio.to_thread(running.http.post, "/api/handoffs", json=wish)
                came = good(await watching)
                assert came["handoff"]["handoffId"] == made.json()["handoff_id"]

        asyncio.run(body())


# --- who waits -----------------------------------------------------------------------------------


async def waits(b: Broker, count: int = 1) -> None:
    """Until so many wait for the inbox of the editor."""
    await _until(b, lambda number: number >= count)


async def nobody_waits(b: Broker) -> None:
    await _until(b, lambda number: number == 0)


async def _until(b: Broker, fits: Callable[[int], bool]) -> None:
    await asyncio.to_thread(eventually, lambda: fits(sum(map(len, b.app.service.inbox._seats.values()))))
