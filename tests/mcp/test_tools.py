"""Every tool, by every way in."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from mcp import Client, MCPError

from a2a_handoff.transports.mcp.tools import TOOLS
from tests.mcp.conftest import Door, ask, good, refused, text
from tests.support.running import Broker

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_every_tool_is_listed_with_what_a_model_needs_to_use_it(door: Door) -> None:
    async def body() -> None:
        async with door.client("claude-code") as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(listed) == [tool.name for tool in TOOLS]
        watch = listed["watch_handoffs"].input_schema["properties"]
        defaults = {name: field["default"] for name, field in watch.items()}
        assert defaults == {"timeout": 300, "pollInterval": 5, "autoAccept": True, "agentId": "claude-code"}
        broadcast = listed["agent_broadcast"].input_schema
        assert {"channel", "message", "data"} <= broadcast["properties"].keys()
        assert broadcast["required"] == ["channel", "message"]
        for tool in listed.values():
            assert tool.title
            assert tool.description
            assert len(tool.description) < 500
            assert tool.annotations is not None
            reads = tool.name in ("check_handoffs", "list_agents", "resolve")
            assert tool.annotations.read_only_hint is reads
            assert tool.output_schema is not None
            assert all(field.get("description") for field in tool.input_schema["properties"].values())

    asyncio.run(body())


def test_a_task_goes_there_and_back_by_tools_alone(door: Door) -> None:
    async def body() -> None:
        async with door.client("cowork", platform="cowork") as assistant, door.client("cursor") as editor:
            for client in (assistant, editor):
                good(await client.call_tool("watch_handoffs", {"timeout": 0}))
            agents = good(await editor.call_tool("list_agents", {"capability": "canBrowse"}))["agents"]
            assert [agent["agentId"] for agent in agents] == ["cowork"]

            wish = {"task": "Run the browser tests", "capabilities": ["canTestUI"]}
            would = good(await editor.call_tool("resolve", wish))
            assert [each["agentId"] for each in would["candidates"]] == ["cowork"]
            assert would["passedOver"]
            made = good(
                await editor.call_tool(
                    "create_handoff",
                    {**wish, "context": {"testFile": "a.test.ts", "zahl": 12}, "priority": "high"},
                )
            )["handoff"]
            assert (made["state"], made["assignedTo"], made["sourceAgent"]) == ("offered", "cowork", "cursor")

            inbox = good(await assistant.call_tool("check_handoffs", {}))["inbox"]
            assert [offer["handoffId"] for offer in inbox] == [made["handoffId"]]
            one = {"handoffId": made["handoffId"]}
            mine = good(await assistant.call_tool("accept_handoff", one))["handoff"]
            assert mine["context"]["key_facts"] == {"testFile": "a.test.ts", "zahl": 12}
            assert mine["context"]["priority"] == "high"
            good(await assistant.call_tool("handoff_progress", {**one, "message": "half of them"}))
            held = good(await assistant.call_tool("check_handoffs", {}))["accepted"]
            assert [(each["handoffId"], each["said"]) for each in held] == [
                (made["handoffId"], "half of them")
            ]
            good(await assistant.call_tool("complete_handoff", {**one, "result": {"passed": 12}}))
            good(await assistant.call_tool("complete_handoff", {**one, "result": {"passed": 12}}))

            sent = good(await editor.call_tool("check_handoffs", {}))["sent"]
            assert [(each["state"], each["result"]) for each in sent] == [("completed", {"passed": 12})]
            whole = good(await editor.call_tool("check_handoffs", one))["handoff"]
            assert whole["context"]["key_facts"] == {"testFile": "a.test.ts", "zahl": 12}

    asyncio.run(body())


def test_work_can_be_declined_failed_given_back_and_taken_back(door: Door, b: Broker) -> None:
    async def body() -> None:
        async with door.client() as client:
            good(await client.call_tool("watch_handoffs", {"timeout": 0}))
            for verb, state in (("decline", "returned"), ("fail", "failed"), ("release", "returned")):
                one = {"handoffId": ask(b)}
                if verb != "decline":
                    good(await client.call_tool("accept_handoff", one))
                given = good(await client.call_tool(f"{verb}_handoff", {**one, "reason": "no tests here"}))
                assert given["handoff"]["handoffId"] == one["handoffId"]
                ended = await asyncio.to_thread(b.until, one["handoffId"], state)
                assert "no tests here" in str(ended)
            b.register("cowork")
            mine = good(await client.call_tool("create_handoff", {"targetAgent": "cowork", "task": "x"}))
            one = {"handoffId": mine["handoff"]["handoffId"]}
            gone = good(await client.call_tool("cancel_handoff", {**one, "reason": "not needed"}))
            assert gone["handoff"]["state"] == "canceled"

    asyncio.run(body())


def test_a_broadcast_reaches_the_others(door: Door, b: Broker) -> None:
    async def body() -> None:
        async with door.client("cowork") as speaker, door.client("cursor") as hearer:
            for client in (speaker, hearer):
                good(await client.call_tool("watch_handoffs", {"timeout": 0}))
            said = {"channel": "urgent", "message": "main is red", "data": {"run": 7}}
            told = good(await speaker.call_tool("agent_broadcast", said))
            assert told["workspace"] == "default"
            heard = good(await hearer.call_tool("watch_handoffs", {"timeout": 10}))
            assert [(s["message"], s["data"], s["sourceAgent"]) for s in heard["broadcasts"]] == [
                ("main is red", {"run": 7}, "cowork")
            ]
            assert "handoff" not in heard
            again = good(await hearer.call_tool("watch_handoffs", {"timeout": 0}))
            assert again["broadcasts"] == []
            kept = good(await hearer.call_tool("check_handoffs", {}))["broadcasts"]
            assert [said["message"] for said in kept] == ["main is red"]

    asyncio.run(body())


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "watch_handoffs": ({"timeout": -1}, "timeout"),
    "check_handoffs": ({"limit": 0}, "limit"),
    "create_handoff": ({"task": "x", "priority": "at once"}, "priority"),
    "accept_handoff": ({}, "handoffId"),
    "decline_handoff": ({"handoffId": ""}, "handoffId"),
    "handoff_progress": ({"handoffId": "h", "message": "m", "state": "done"}, "state"),
    "complete_handoff": ({"handoffId": "h"}, "result"),
    "fail_handoff": ({"handoffId": "h", "reason": "x" * 2_001}, "reason"),
    "release_handoff": ({"handoffId": "h", "why": "x"}, "why"),
    "cancel_handoff": ({"handoffId": ["h"]}, "handoffId"),
    "agent_broadcast": ({"channel": "general", "message": "m", "data": "d"}, "data"),
    "list_agents": ({"status": "bored"}, "status"),
    "resolve": ({"task": "x", "capabilities": "canBrowse"}, "capabilities"),
}


def test_wrong_arguments_of_each_tool_are_named(door: Door) -> None:
    assert WRONG.keys() == {tool.name for tool in TOOLS}

    async def body() -> None:
        async with door.client() as client:
            for name, (arguments, field) in WRONG.items():
                error = refused(await client.call_tool(name, arguments))
                assert error["code"] == "invalid_params", name
                assert [each["field"] for each in error["violations"]] == [field], name

    asyncio.run(body())


def test_what_the_broker_refuses_says_why_and_what_to_do(door: Door, b: Broker) -> None:
    b.register("cowork")
    theirs = ask(b, "cowork", source_agent="anna")

    async def body() -> None:
        async with door.client() as client:
            error = refused(await client.call_tool("accept_handoff", {"handoffId": theirs}))
            assert error["code"] == "not_the_holder"
            assert error["remedy"]
            error = refused(await client.call_tool("accept_handoff", {"handoffId": "../agents"}))
            assert error["code"] == "not_found"
            for name in ("nothing", ".", ".."):
                error = refused(await client.call_tool("accept_handoff", {"handoffId": name}))
                assert error["code"] == "task_not_found", name
                error = refused(await client.call_tool("check_handoffs", {"handoffId": name}))
                assert error["code"] == "task_not_found", name
            error = refused(await client.call_tool("watch_handoffs", {"agentId": "nobody", "timeout": 0}))
            assert error["code"] == "agent_not_found"
            wrong = {"task": "x", "deadline": "tomorrow", "context": {"a": 1}}
            error = refused(await client.call_tool("create_handoff", wrong))
            assert [each["field"] for each in error["violations"]] == ["deadline"]
            assert "- deadline: " in text(await client.call_tool("create_handoff", wrong))
            error = refused(await client.call_tool("create_handoff", {"task": "x", "parent": "nothing"}))
            assert error["code"]

    asyncio.run(body())


def test_a_tool_that_does_not_exist_is_an_error_of_the_protocol(door: Door) -> None:
    async def body() -> None:
        async with door.client() as client:
            with pytest.raises(Exception, match="There is no tool 'drop_tables'"):
                await client.call_tool("drop_tables", {})

    asyncio.run(body())


def test_oversized_arguments_are_refused_and_the_next_call_works(door: Door) -> None:
    async def body() -> None:
        async with door.client() as client:
            big = {"task": "x", "context": {"file": "x" * 200_000}}
            assert refused(await client.call_tool("create_handoff", big))["code"] in (
                "context_too_large",
                "invalid_context",
            )
            deep: Any = "x"
            for _ in range(90):
                deep = [deep]
            with contextlib.suppress(MCPError):  # over HTTP the request as a whole is too deep
                found = await client.call_tool("complete_handoff", {"handoffId": "h", "result": deep})
                assert refused(found)["code"] == "parse_error"
            assert good(await client.call_tool("list_agents", {}))["agents"] is not None

    asyncio.run(body())


def test_a_large_result_is_read_alone(door: Door, b: Broker) -> None:
    b.register("cowork")
    large = {"log": "x" * 20_000}

    async def body() -> None:
        async with door.client() as client:
            wish = {"targetAgent": "cowork", "task": "x"}
            made = good(await client.call_tool("create_handoff", wish))["handoff"]["handoffId"]
            b.http.post(f"/api/handoffs/{made}/complete", json={"result": large})
            (sent,) = good(await client.call_tool("check_handoffs", {}))["sent"]
            assert "result" not in sent
            assert "handoffId" in sent["warnings"][0]
            whole = good(await client.call_tool("check_handoffs", {"handoffId": made}))["handoff"]
            assert whole["result"] == large

    asyncio.run(body())


def test_c083_text_arrives_as_it_was_written(door: Door, b: Broker) -> None:
    words = "订单 🧪‍🦰 مرحبا \u0000 \U0010ffff"

    async def body() -> None:
        async with door.client() as client:
            made = ask(b, task=words, context={words: [2**60 + 1, 1.0, words]})
            b.register("cursor")
            came = good(await client.call_tool("watch_handoffs", {"timeout": 10}))["handoff"]
            assert came["task"] == words
            assert came["context"]["key_facts"] == {words: [2**60 + 1, 1.0, words]}
            good(await client.call_tool("complete_handoff", {"handoffId": made, "result": words}))
            assert b.handoff(made)["result"] == words

    b.register("cursor")
    asyncio.run(body())


def test_a_call_goes_on_with_the_trace_that_its_meta_names(door: Door, b: Broker) -> None:
    b.register("cowork")

    async def body() -> None:
        async with door.client() as client:
            wish = {"targetAgent": "cowork", "task": "x"}
            meta: Any = {"traceparent": TRACE}
            made = good(await client.call_tool("create_handoff", wish, meta=meta))["handoff"]
            assert made["traceId"] == "0af7651916cd43dd8448eb211c80319c"
            odd: Any = {"traceparent": "00-é\n-01"}
            other = good(await client.call_tool("create_handoff", wish, meta=odd))["handoff"]
            assert other["traceId"] != made["traceId"]

    asyncio.run(body())


def test_c091_one_key_makes_one_handoff(door: Door, b: Broker) -> None:
    b.register("cowork")

    async def call(client: Client, **more: Any) -> str:
        wish = {"targetAgent": "cowork", "task": "x", **more}
        return good(await client.call_tool("create_handoff", wish))["handoff"]["handoffId"]

    async def body() -> None:
        async with door.client() as client:
            assert await call(client, idempotencyKey="k") == await call(client, idempotencyKey="k")
            assert await call(client) != await call(client)

    asyncio.run(body())
