"""Streams and polling: what is yielded, when it ends, and that nothing stays open."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from a2a_handoff.core.agents import Binding, Generation
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, RemoteState, Sent, Update
from tests.client.raw_server import (
    SSE_HEAD,
    TASK_DONE,
    Handler,
    Request,
    agent_at,
    answer,
    chunk,
    client,
    collect,
    delivery,
    event,
    for_ever,
    open_sockets,
    raw_server,
    reset,
    rpc,
    run,
    says,
    status,
    until,
    working,
)

DONE = event(status("TASK_STATE_COMPLETED"))


def states(updates: list[Update]) -> list[RemoteState | None]:
    return [update.state for update in updates]


async def streamed(handler: Handler, **settings: Any) -> list[Update]:
    async with raw_server(handler) as server, client(**settings) as made:
        return await collect(made, agent_at(server.url, streaming=True))


# --- streams -------------------------------------------------------------------------------------


def test_a_stream_is_yielded_step_by_step_until_the_task_ends() -> None:
    updates = run(
        streamed(
            says(
                SSE_HEAD,
                event(working()),
                event(chunk("one ", append=False)) + event(chunk("two")),
                DONE,
            )
        )
    )
    assert states(updates) == [RemoteState.WORKING, None, None, RemoteState.COMPLETED]
    assert [update.snapshot for update in updates] == [True, False, False, False]
    assert [(o.artifact_id, o.append, o.last) for u in updates for o in u.outputs] == [
        ("a", False, False),
        ("a", True, False),
    ]
    assert {update.remote_task_id for update in updates} == {"t-1"}
    assert {update.remote_context_id for update in updates} == {"c-1"}


def test_each_update_is_there_before_the_next_is_sent() -> None:
    async def body() -> None:
        step = asyncio.Event()

        async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(SSE_HEAD + event(working()))
            await step.wait()
            writer.write(DONE)
            await writer.drain()

        async with raw_server(handler) as server, client() as made:
            updates = made.send(agent_at(server.url, streaming=True), delivery(), first_wait_s=10)
            async with aclosing(updates):
                assert (await anext(updates)).state is RemoteState.WORKING
                step.set()
                assert (await anext(updates)).state is RemoteState.COMPLETED

    run(body())


def test_c032_an_event_cut_at_every_offset_is_read_the_same() -> None:
    text = {"artifactId": "a", "parts": [{"text": "🧪‍🦰 订单"}]}
    whole = b"".join(
        b"data: " + line + b"\r\n"
        for line in json.dumps(
            rpc({"artifactUpdate": {"taskId": "t-1", "artifact": text}}), ensure_ascii=False, indent=0
        )
        .encode()
        .split(b"\n")
    )
    whole += b"\r\n" + DONE
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")

    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        cut = int(request.path.rpartition("/")[2])
        writer.write(head)
        for piece in (whole[:cut], whole[cut:]):
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def body() -> None:
        async with raw_server(handler) as server, client() as made:
            for cut in range(len(whole) + 1):
                updates = await collect(made, agent_at(f"{server.url}/{cut}", streaming=True))
                assert states(updates) == [None, RemoteState.COMPLETED]
                assert json.loads(updates[0].outputs[0].body) == text

    run(body())


@pytest.mark.parametrize("tail", [b"", b"\n"])
def test_c040_a_last_event_without_its_blank_line_counts_if_it_is_whole(tail: bytes) -> None:
    updates = run(streamed(says(SSE_HEAD, event(working()), DONE.rstrip(b"\n") + tail)))
    assert states(updates) == [RemoteState.WORKING, RemoteState.COMPLETED]


def test_c040_a_last_event_that_is_cut_in_half_counts_for_nothing() -> None:
    updates = run(streamed(says(SSE_HEAD, event(working()), DONE[: len(DONE) // 2])))
    assert states(updates) == [RemoteState.WORKING]


def test_half_an_event_and_nothing_else_may_have_begun() -> None:
    async def body() -> None:
        with pytest.raises(AgentError) as caught:
            await streamed(says(SSE_HEAD, DONE[: len(DONE) // 2]))
        assert caught.value.sent is Sent.MAYBE

    run(body())


def test_a_stream_that_ends_early_just_ends() -> None:
    assert states(run(streamed(says(SSE_HEAD, event(working()))))) == [RemoteState.WORKING]


def test_a_reset_in_mid_stream_just_ends_what_had_begun() -> None:
    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + event(working()) + event(chunk("x")))
        await writer.drain()
        await heard.wait()
        reset(writer)

    heard = asyncio.Event()

    async def body() -> None:
        async with raw_server(handler) as server, client() as made:
            updates = made.send(agent_at(server.url, streaming=True), delivery(), first_wait_s=10)
            found = [await anext(updates), await anext(updates)]
            heard.set()
            found += [update async for update in updates]
            assert states(found) == [RemoteState.WORKING, None]

    run(body())


def test_silence_in_mid_stream_ends_it_after_the_idle_limit() -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + event(working()))
        await for_ever(request, writer)

    assert states(run(streamed(handler, idle_s=0.1))) == [RemoteState.WORKING]


def test_comments_keep_a_stream_alive() -> None:
    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + event(working()))
        for _pings in range(10):
            writer.write(b": ping\n\n")
            await asyncio.sleep(0.1)
        writer.write(DONE)
        await writer.drain()

    updates = run(streamed(handler, idle_s=0.6))
    assert states(updates) == [RemoteState.WORKING, RemoteState.COMPLETED]


@pytest.mark.parametrize("state", ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"])
def test_an_interrupted_task_ends_the_iteration_though_the_stream_stays_open(state: str) -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + event(working()) + event(status(state)))
        await for_ever(request, writer)

    async def body() -> None:
        async with raw_server(handler) as server, client() as made:
            updates = await collect(made, agent_at(server.url, streaming=True))
            assert states(updates) == [RemoteState.WORKING, RemoteState(state)]
            await until(lambda: not server.open)

    run(body())


def test_a_message_in_place_of_a_task_is_a_reply_and_the_end() -> None:
    message = {"messageId": "r", "contextId": "c-9", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
    updates = run(streamed(says(SSE_HEAD, event({"message": message}), event(working()))))
    assert len(updates) == 1
    assert updates[0].reply
    assert updates[0].remote_context_id == "c-9"
    assert json.loads(updates[0].message) == message


def test_a_streaming_agent_may_answer_with_one_json_body() -> None:
    assert states(run(streamed(says(answer(rpc(TASK_DONE)))))) == [RemoteState.COMPLETED]


# --- polling -------------------------------------------------------------------------------------


def polled(*answers: Any) -> Handler:
    """Answers one after the other, the last one for ever. Exceptions are written as bytes."""
    left = list(answers)

    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        said = left.pop(0) if len(left) > 1 else left[0]
        writer.write(said if isinstance(said, bytes) else answer(rpc(said)))
        await writer.drain()

    return handler


def task(state: str, text: str = "") -> dict[str, Any]:
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
    return {
        "id": "t-1",
        "contextId": "c-1",
        "status": {"state": f"TASK_STATE_{state}"},
        "artifacts": artifacts,
    }


def test_an_agent_that_does_not_stream_is_sent_to_without_waiting_and_polled() -> None:
    async def body() -> None:
        handler = polled(
            working(), task("WORKING"), task("WORKING", "x"), task("WORKING", "x"), task("COMPLETED", "xy")
        )
        async with raw_server(handler) as server, client() as made:
            updates = await collect(made, agent_at(server.url))
            # What did not change is not said again.
            assert states(updates) == [RemoteState.WORKING, RemoteState.WORKING, RemoteState.COMPLETED]
            assert all(update.snapshot for update in updates)
            assert [json.loads(u.outputs[0].body)["parts"] for u in updates[1:]] == [
                [{"text": "x"}],
                [{"text": "xy"}],
            ]
            sent, *polls = [request.json for request in server.requests]
            assert sent["params"]["configuration"] == {"returnImmediately": True}
            assert {poll["method"] for poll in polls} == {"GetTask"}
            assert polls[0]["params"] == {"id": "t-1", "historyLength": 0}
            assert len(polls) == 4

    run(body())


def test_a_span_that_each_answer_names_anew_is_no_news() -> None:
    def traced(state: str, span: int) -> bytes:
        trace = f"traceresponse: 00-0af7651916cd43dd8448eb211c80319c-{span:016x}-01\r\n"
        return answer(rpc(task(state)), headers=trace)

    async def body() -> None:
        handler = polled(*(traced("WORKING", n) for n in range(1, 6)), traced("COMPLETED", 6))
        async with raw_server(handler) as server, client() as made:
            updates = await collect(made, agent_at(server.url))
            assert states(updates) == [RemoteState.WORKING, RemoteState.COMPLETED]
            assert updates[0].traceparent

    run(body())


def test_a_task_without_an_id_cannot_be_asked_for_again() -> None:
    async def body() -> None:
        nameless = {"status": {"state": "TASK_STATE_WORKING"}, "artifacts": []}
        async with raw_server(polled({"task": nameless})) as server, client() as made:
            assert states(await collect(made, agent_at(server.url))) == [RemoteState.WORKING]
            assert len(server.requests) == 1

    run(body())


def test_a_terminal_first_answer_needs_no_polling() -> None:
    async def body() -> None:
        async with raw_server(polled(TASK_DONE)) as server, client() as made:
            assert states(await collect(made, agent_at(server.url))) == [RemoteState.COMPLETED]
            assert len(server.requests) == 1

    run(body())


def test_polling_survives_two_misses_in_a_row() -> None:
    busy = answer(b"", 503)
    handler = polled(
        working(), busy, answer(b"<html>", 500), task("WORKING", "x"), busy, busy, task("COMPLETED")
    )

    async def body() -> None:
        async with raw_server(handler) as server, client() as made:
            assert states(await collect(made, agent_at(server.url))) == [
                RemoteState.WORKING,
                RemoteState.WORKING,
                RemoteState.COMPLETED,
            ]

    run(body())


def test_polling_that_misses_three_times_ends_and_leaves_the_question_to_the_caller() -> None:
    async def body() -> None:
        async with raw_server(polled(working(), answer(b"", 503))) as server, client() as made:
            assert states(await collect(made, agent_at(server.url))) == [RemoteState.WORKING]
            assert len(server.requests) == 4

    run(body())


def test_a_task_that_the_agent_forgot_is_an_error() -> None:
    gone = answer({"jsonrpc": "2.0", "id": "1", "error": {"code": -32001, "message": "x"}})

    async def body() -> None:
        async with raw_server(polled(working(), gone)) as server, client() as made:
            with pytest.raises(AgentError) as caught:
                await collect(made, agent_at(server.url))
            assert (caught.value.jsonrpc_code, caught.value.sent) == (-32001, Sent.YES)

    run(body())


# --- subscribing ---------------------------------------------------------------------------------


def by_method(**handlers: Handler) -> Handler:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        method = request.json["method"]
        await handlers[method.rpartition("/")[2]](request, writer)

    return handler


async def subscribed(
    handler: Handler, *, streaming: bool = True, **more: Any
) -> tuple[list[Update], list[str]]:
    async with raw_server(handler) as server, client() as made:
        updates = made.subscribe(agent_at(server.url, streaming=streaming, **more), "t-1")
        async with aclosing(updates):
            found = [update async for update in updates]
        return found, [request.json["method"] for request in server.requests]


def test_a_subscription_follows_the_stream_of_the_task() -> None:
    updates, methods = run(subscribed(says(SSE_HEAD, event(working()), event(chunk("x")), DONE)))
    assert states(updates) == [RemoteState.WORKING, None, RemoteState.COMPLETED]
    assert updates[0].snapshot
    assert methods == ["SubscribeToTask"]


def test_a_refused_subscription_falls_back_to_polling() -> None:
    refused = says(answer({"jsonrpc": "2.0", "id": "1", "error": {"code": -32004, "message": "x"}}))
    handler = by_method(SubscribeToTask=refused, GetTask=polled(task("WORKING"), task("COMPLETED")))
    updates, methods = run(subscribed(handler))
    assert states(updates) == [RemoteState.WORKING, RemoteState.COMPLETED]
    assert methods == ["SubscribeToTask", "GetTask", "GetTask"]


def test_an_agent_that_does_not_stream_is_polled() -> None:
    updates, methods = run(subscribed(polled(task("WORKING"), task("COMPLETED")), streaming=False))
    assert states(updates) == [RemoteState.WORKING, RemoteState.COMPLETED]
    assert set(methods) == {"GetTask"}


def test_before_1_0_a_snapshot_comes_first_and_the_whole_task_last() -> None:
    """What was said between the snapshot and the stream would be lost otherwise."""
    old = {"id": "t-1", "contextId": "c-1", "kind": "task"}
    done = {
        "taskId": "t-1",
        "contextId": "c-1",
        "kind": "status-update",
        "status": {"state": "completed"},
        "final": True,
    }
    parts = [{"kind": "text", "text": "said in between"}]
    handler = by_method(
        get=polled(
            {**old, "status": {"state": "working"}},
            {**old, "status": {"state": "completed"}, "artifacts": [{"artifactId": "a", "parts": parts}]},
        ),
        resubscribe=says(SSE_HEAD, event(done)),
    )
    updates, methods = run(subscribed(handler, generation=Generation.V0_3))
    assert states(updates) == [RemoteState.WORKING, RemoteState.COMPLETED]
    assert json.loads(updates[1].outputs[0].body)["parts"] == [{"text": "said in between"}]
    assert methods == ["tasks/get", "tasks/resubscribe", "tasks/get"]


def test_a_subscription_to_an_agent_that_is_not_there_is_an_error() -> None:
    async def body() -> None:
        with pytest.raises(AgentError) as caught:
            await subscribed(says())
        assert caught.value.outcome is Outcome.TARGET_UNAVAILABLE

    run(body())


# --- nothing stays open --------------------------------------------------------------------------


async def hangs(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(SSE_HEAD + event(working()))
    await for_ever(request, writer)


def test_c080_two_hundred_aborted_streams_leave_no_socket_behind() -> None:
    broken = says(SSE_HEAD, event(working()), b"data: {broken\n\n")

    async def closed_early(made: Any, url: str) -> None:
        updates = made.send(agent_at(url, streaming=True), delivery(), first_wait_s=10)
        async with aclosing(updates):
            await anext(updates)

    async def dropped(made: Any, url: str) -> None:
        async for _ in made.send(agent_at(url, streaming=True), delivery(), first_wait_s=10):
            break

    async def cancelled(made: Any, url: str) -> None:
        task = asyncio.create_task(collect(made, agent_at(url, streaming=True)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def cancelled_later(made: Any, url: str) -> None:
        heard = asyncio.Event()

        async def read() -> None:
            async for _ in made.send(agent_at(url, streaming=True), delivery(), first_wait_s=10):
                heard.set()

        task = asyncio.create_task(read())
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def malformed(made: Any, url: str) -> None:
        with pytest.raises(AgentError):
            await collect(made, agent_at(url, streaming=True))

    async def body() -> None:
        async with raw_server(hangs) as open_ended, raw_server(broken) as bad, client() as made:
            await closed_early(made, open_ended.url)
            await until(lambda: not open_ended.open)
            before = open_sockets()
            for _ in range(4):
                ways = (closed_early, dropped, cancelled, cancelled_later)
                await asyncio.gather(*(way(made, open_ended.url) for way in ways for _ in range(10)))
                await asyncio.gather(*(malformed(made, bad.url) for _ in range(10)))
            await until(lambda: not open_ended.open and not bad.open)
            await until(lambda: open_sockets() <= before)
            # And the next call is as good as the first.
            await closed_early(made, open_ended.url)

    run(body())


def test_a_thousand_calls_at_once_all_get_their_own_answer() -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        task_id = request.params["message"]["messageId"]
        await asyncio.sleep(0)
        writer.write(answer(rpc({"task": {"id": task_id, "status": {"state": "TASK_STATE_COMPLETED"}}})))
        await writer.drain()

    async def body() -> None:
        async with raw_server(handler) as server, client(connect_s=10.0) as made:
            agent = agent_at(server.url)
            messages = [
                json.dumps({"messageId": f"m-{n}", "role": "ROLE_USER", "parts": []}).encode()
                for n in range(1000)
            ]
            gate = asyncio.Semaphore(200)

            async def one(message: bytes) -> str:
                async with gate:
                    return (await collect(made, agent, delivery(message)))[0].remote_task_id

            assert await asyncio.gather(*map(one, messages)) == [f"m-{n}" for n in range(1000)]

    run(body())


@pytest.mark.parametrize("binding", [Binding.JSONRPC, Binding.HTTP_JSON])
def test_large_parts_arrive_byte_for_byte(binding: Binding) -> None:
    raw = json.dumps({"raw": "QUJD" * 700_000, "mediaType": "x/y", "z": 1.10, "big": 12345678901234567890})
    artifact = '{"artifactId":"a", "parts":[' + raw.replace("1.1}", "1.10}") + "]}"
    state = '{"state":"TASK_STATE_COMPLETED"}'
    task = '{"task":{"id":"t-1","status":' + state + ',"artifacts":[' + artifact + "]}}"
    body = task if binding is Binding.HTTP_JSON else '{"jsonrpc":"2.0","id":"1","result":' + task + "}"

    async def check() -> None:
        async with raw_server(says(answer(body.encode()))) as server, client() as made:
            updates = await collect(made, agent_at(server.url, binding=binding))
            assert updates[0].outputs[0].body == artifact.encode()

    run(check())
