"""Everything that can go wrong on the way to an agent, and what each means for the task."""

from __future__ import annotations

import asyncio
import json
import ssl
from email.utils import formatdate
from typing import Any

import pytest

from a2a_handoff.client import WellKnownCardFetcher
from a2a_handoff.core.agents import Binding, Generation
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Outcome
from a2a_handoff.ports import AgentError, Sent
from a2a_handoff.security.urls import OutboundPolicy
from tests.client.raw_server import (
    SSE_HEAD,
    TASK_DONE,
    Request,
    agent_at,
    answer,
    client,
    closed_port,
    collect,
    delivery,
    event,
    fault_of,
    for_ever,
    raw_server,
    read_request,
    reset,
    rpc,
    run,
    says,
    until,
    working,
)
from tests.support.streams import listening

both = pytest.mark.parametrize("streaming", [False, True], ids=["unary", "stream"])


# --- the connection ------------------------------------------------------------------------------


@both
def test_c025_a_refused_connection_is_proof_that_nothing_was_sent(streaming: bool) -> None:
    async def body() -> None:
        async with client() as made:
            agent = agent_at(f"http://127.0.0.1:{closed_port()}/", streaming=streaming)
            with pytest.raises(AgentError) as caught:
                await collect(made, agent)
        assert caught.value.outcome is Outcome.TARGET_UNAVAILABLE
        assert caught.value.sent is Sent.NO
        assert caught.value.again
        assert caught.value.detail == "not connected"

    run(body())


def test_a_server_without_tls_behind_https_has_seen_no_request() -> None:
    async def body() -> None:
        async with raw_server(says(b"HTTP/1.1 400 X\r\n\r\n")) as server, client() as made:
            with pytest.raises(AgentError) as caught:
                await collect(made, agent_at(server.url.replace("http:", "https:")))
        assert (caught.value.sent, caught.value.again) == (Sent.NO, True)

    run(body())


def test_an_untrusted_certificate_means_tls_failed_and_nothing_was_sent(
    server_tls: ssl.SSLContext,
) -> None:
    async def body() -> None:
        async with raw_server(says(answer(rpc(TASK_DONE))), server_tls) as server, client() as made:
            with pytest.raises(AgentError) as caught:
                await collect(made, agent_at(server.url))
            assert server.requests == []
        assert caught.value.detail == "TLS failed"
        assert (caught.value.sent, caught.value.again) == (Sent.NO, True)

    run(body())


def test_a_handshake_that_hangs_ends_with_the_connect_limit_as_not_sent() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def body() -> None:
        async with listening(hang) as port, client(connect_s=0.2) as made:
            with pytest.raises(AgentError) as caught:
                # The wait for the answer is shorter, and must not hide that nothing was sent.
                await collect(made, agent_at(f"https://127.0.0.1:{port}/"), first_wait_s=0.05)
        assert caught.value.detail == "no connection in time"
        assert (caught.value.sent, caught.value.again) == (Sent.NO, True)

    run(body())


@both
def test_a_server_that_reads_the_request_and_closes_may_have_begun(streaming: bool) -> None:
    fault = run(fault_of(says(), streaming=streaming))
    assert (fault.outcome, fault.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.MAYBE)


@both
def test_a_reset_after_the_request_may_have_begun(streaming: bool) -> None:
    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        reset(writer)

    fault = run(fault_of(handler, streaming=streaming))
    assert (fault.outcome, fault.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.MAYBE)


@both
def test_c025_silence_before_the_head_is_a_timeout_that_may_have_begun(streaming: bool) -> None:
    fault = run(fault_of(for_ever, streaming=streaming, first_wait_s=0.1, connect_s=0.1))
    assert (fault.outcome, fault.sent) == (Outcome.TIMEOUT, Sent.MAYBE)


def test_silence_after_the_head_of_a_stream_is_a_timeout_too() -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE_HEAD + b": still here\n\n")
        await for_ever(request, writer)

    fault = run(fault_of(handler, streaming=True, first_wait_s=0.1, connect_s=0.1))
    assert (fault.outcome, fault.sent) == (Outcome.TIMEOUT, Sent.MAYBE)


def test_silence_in_the_middle_of_a_body_ends_with_the_idle_limit() -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{")
        await for_ever(request, writer)

    fault = run(fault_of(handler, idle_s=0.1, first_wait_s=0.1, connect_s=0.1))
    assert (fault.outcome, fault.sent) == (Outcome.TIMEOUT, Sent.MAYBE)


def test_a_body_that_breaks_off_may_have_begun() -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"
    fault = run(fault_of(says(cut)))
    assert (fault.outcome, fault.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.MAYBE)


def test_a_server_that_speaks_something_else_gives_an_invalid_response() -> None:
    fault = run(fault_of(says(b"SSH-2.0-OpenSSH_9.0\r\n\r\n")))
    assert (fault.outcome, fault.sent, fault.again) == (Outcome.INVALID_RESPONSE, Sent.YES, False)


def test_a_stream_that_ends_without_an_event_may_have_begun() -> None:
    fault = run(fault_of(says(SSE_HEAD, b": hello\n\n"), streaming=True))
    assert (fault.outcome, fault.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.MAYBE)


def test_an_address_that_the_policy_forbids_is_never_called() -> None:
    async def body() -> None:
        async with raw_server(says(answer(rpc(TASK_DONE)))) as server:
            async with client(policy=OutboundPolicy()) as made:
                with pytest.raises(AgentError) as caught:
                    await collect(made, agent_at(server.url))
            assert not server.requests
            assert not server.open
        assert (caught.value.outcome, caught.value.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.NO)

    run(body())


@pytest.mark.parametrize("url", ["http://", "ftp://127.0.0.1/", "nonsense", "http://127.0.0.1:99999/"])
def test_what_is_no_url_is_an_unavailable_target(url: str) -> None:
    async def body() -> None:
        async with client() as made:
            with pytest.raises(AgentError) as caught:
                await collect(made, agent_at(url))
        assert (caught.value.outcome, caught.value.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.NO)

    run(body())


def test_an_agent_without_an_interface_that_we_speak_is_unavailable() -> None:
    async def body() -> None:
        async with client() as made:
            for binding, generation in (
                (Binding.GRPC, Generation.V0_1),
                (Binding.HTTP_JSON, Generation.V0_1),
            ):
                agent = agent_at("http://127.0.0.1:1/", binding=binding, generation=generation)
                with pytest.raises(AgentError) as caught:
                    await collect(made, agent)
                assert caught.value.outcome is Outcome.TARGET_UNAVAILABLE
                assert (caught.value.sent, caught.value.again) == (Sent.NO, False)

    run(body())


def test_closing_the_client_ends_what_is_under_way() -> None:
    async def body() -> None:
        async with raw_server(says_and_hangs(SSE_HEAD, event(working()))) as server, client() as made:
            updates = made.send(agent_at(server.url, streaming=True), delivery(), first_wait_s=10)
            await anext(updates)
            waiting = asyncio.ensure_future(anext(updates, None))
            await asyncio.sleep(0)
            await made.close()
            assert await waiting is None
            with pytest.raises(AgentError) as caught:
                await collect(made, agent_at(server.url))
            assert caught.value.sent is Sent.NO

    run(body())


def test_a_kept_connection_that_the_server_has_closed_does_not_fail_what_can_be_repeated() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(answer(rpc(TASK_DONE["task"])).replace(b"Connection: close\r\n", b""))
        await read_request(reader)  # the next request on the same connection is read and dropped

    async def body() -> None:
        async with listening(serve) as port, client() as made:
            agent = agent_at(f"http://127.0.0.1:{port}/")
            for _ in range(2):
                assert (await made.get(agent, "t-1")).remote_task_id == "t-1"
            with pytest.raises(AgentError) as caught:
                await collect(made, agent)
            assert caught.value.sent is Sent.MAYBE
        assert connections == 2

    run(body())


# --- the status ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("status", [429, 503])
def test_c034_429_and_503_mean_try_again_when_it_says_so(status: int, streaming: bool) -> None:
    busy = answer(b"upstream down", status, "text/plain", "Retry-After: 7\r\n")
    fault = run(fault_of(says(busy), streaming=streaming))
    assert (fault.outcome, fault.sent, fault.again) == (Outcome.TARGET_UNAVAILABLE, Sent.NO, True)
    assert fault.retry_after_s == 7
    assert fault.detail == f"HTTP {status}"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (formatdate(1_800_000_030, usegmt=True), 30.0),
        (formatdate(1_700_000_000, usegmt=True), 0.0),
        ("99999999999999999999", 86_400.0),
        ("-1", None),
        ("soon", None),
        ("١٢", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, expected: float | None) -> None:
    async def handler(_: Request, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 503 X\r\nRetry-After: {header}\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())

    fault = run(fault_of(handler, now=lambda: 1_800_000_000.0))
    assert fault.retry_after_s == expected


@both
@pytest.mark.parametrize("status", [401, 403])
def test_c034_refused_credentials_are_for_the_operator_and_not_retried(status: int, streaming: bool) -> None:
    refused = answer({"error": "who are you?"}, status)
    fault = run(fault_of(says(refused), streaming=streaming))
    assert (fault.outcome, fault.sent, fault.again) == (Outcome.TARGET_AUTH, Sent.YES, False)


@pytest.mark.parametrize("status", [502, 504])
def test_a_gateway_error_leaves_open_what_happened_behind_it(status: int) -> None:
    fault = run(fault_of(says(answer(b"bad gateway", status, "text/html"))))
    assert (fault.outcome, fault.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.MAYBE)


@both
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_c034_a_redirect_is_not_followed(status: int, streaming: bool) -> None:
    async def body() -> None:
        async with raw_server(says(answer(rpc(TASK_DONE)))) as inner:
            moved = answer(b"", status, "text/plain", f"Location: {inner.url}\r\n")
            fault = await fault_of(says(moved), streaming=streaming)
            assert not inner.requests
        assert (fault.outcome, fault.sent) == (Outcome.INVALID_RESPONSE, Sent.YES)

    run(body())


@both
@pytest.mark.parametrize(
    ("status", "outcome"),
    [(404, Outcome.INVALID_RESPONSE), (400, Outcome.INVALID_RESPONSE), (500, Outcome.TARGET_FAILED)],
)
def test_c005_an_html_error_page_is_named_by_its_status_alone(
    status: int, outcome: Outcome, streaming: bool
) -> None:
    page = answer(b"<html>secret stack trace</html>", status, "text/html")
    fault = run(fault_of(says(page), streaming=streaming))
    assert (fault.outcome, fault.sent, fault.again) == (outcome, Sent.YES, False)
    assert fault.detail == f"HTTP {status}"


def test_an_empty_success_is_an_invalid_response() -> None:
    fault = run(fault_of(says(b"HTTP/1.1 204 No Content\r\n\r\n")))
    assert (fault.outcome, fault.sent) == (Outcome.INVALID_RESPONSE, Sent.YES)


def test_an_error_page_of_any_size_is_read_only_a_little() -> None:
    page = answer(b"x" * 1_000_000, 500, "text/html")
    fault = run(fault_of(says(page)))
    assert fault.outcome is Outcome.TARGET_FAILED


# --- the body ------------------------------------------------------------------------------------

DEEP = b'{"jsonrpc":"2.0","id":"1","result":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
QUITE_DEEP = b'{"jsonrpc":"2.0","id":"1","result":{"task":' + b'{"a":' * 70 + b"1" + b"}" * 72
SURROGATE = b'{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"\xed\xa0\x80"}}}'
BROKEN = {
    "html": b"<html>hello</html>",
    "cut": b'{"jsonrpc":"2.0","id":"1","result":{"task":',
    "empty": b"",
    "array": b"[]",
    "word": b'"task"',
    "NaN": b'{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"t","x":NaN}}}',
    "infinity": b'{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"t","metadata":{"x":1e999}}}}',
    "not utf-8": b'{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"t","metadata":{"x":"\xff"}}}}',
    "surrogate": SURROGATE,
    "deep": DEEP,
    "70 deep": QUITE_DEEP,
    "two values": b'{"jsonrpc":"2.0","result":{}} {}',
    "no result": b'{"jsonrpc":"2.0","id":"1"}',
    "null result": b'{"jsonrpc":"2.0","id":"1","result":null}',
    "error is text": b'{"jsonrpc":"2.0","id":"1","error":"no"}',
    "nothing known": b'{"jsonrpc":"2.0","id":"1","result":{"hello":1}}',
    "task is text": b'{"jsonrpc":"2.0","id":"1","result":{"task":"t"}}',
    "message is text": b'{"jsonrpc":"2.0","id":"1","result":{"message":"hi"}}',
    "status is text": b'{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"t","status":"done"}}}',
    "artifact is a number": b'{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"t","status":{},"artifacts":[1]}}}',
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_is_not_a2a_is_an_invalid_response(body: bytes) -> None:
    fault = run(fault_of(says(answer(body))))
    assert (fault.outcome, fault.sent, fault.again) == (Outcome.INVALID_RESPONSE, Sent.YES, False)


@pytest.mark.parametrize("body", [b for b in BROKEN.values() if b], ids=[n for n, b in BROKEN.items() if b])
def test_an_event_that_is_not_a2a_is_an_invalid_response(body: bytes) -> None:
    fault = run(fault_of(says(SSE_HEAD, event(working()), b"data: " + body + b"\n\n"), streaming=True))
    assert (fault.outcome, fault.sent, fault.again) == (Outcome.INVALID_RESPONSE, Sent.YES, False)


def test_c034_200_with_html_where_a_stream_was_asked_for_is_an_invalid_response() -> None:
    fault = run(fault_of(says(answer(b"<html></html>", 200, "text/html")), streaming=True))
    assert (fault.outcome, fault.sent) == (Outcome.INVALID_RESPONSE, Sent.YES)


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_over_the_limit_is_refused_however_it_is_framed(chunked: bool) -> None:
    task = {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "metadata": {"x": "y" * 5000}}}
    payload = json.dumps(rpc(task)).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    if chunked:
        frame = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(payload), payload)
    else:
        frame = answer(payload)
    fault = run(fault_of(says(frame), max_bytes=4096))
    assert (fault.outcome, fault.detail) == (Outcome.INVALID_RESPONSE, "answer over 4096 bytes")

    async def fits() -> None:
        async with raw_server(says(frame)) as server, client(max_bytes=len(payload)) as made:
            assert len(await collect(made, agent_at(server.url))) == 1

    run(fits())


def test_an_event_over_the_limit_is_refused() -> None:
    fault = run(
        fault_of(says(SSE_HEAD, b"data: " + b"x" * 3000, b"y" * 3000), streaming=True, max_bytes=4096)
    )
    assert (fault.outcome, fault.detail) == (Outcome.INVALID_RESPONSE, "event over 4096 bytes")


def test_no_detail_ever_carries_text_of_the_agent() -> None:
    secret = b"s3cr3t-stack-trace"
    answers = [
        answer(secret, status, "text/html", "X-Why: s3cr3t-stack-trace\r\n")
        for status in (200, 302, 400, 401, 404, 429, 500, 502, 503)
    ]
    answers += [
        answer({"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": secret.decode()}}),
        answer({"error": {"code": 500, "message": secret.decode()}}, 500),
        b"HTTP/1.1 s3cr3t-stack-trace\r\n\r\n",
    ]

    async def body() -> None:
        for said in answers:
            fault = await fault_of(says(said))
            assert "s3cr3t" not in str(fault)
            assert "s3cr3t" not in repr(fault.__dict__)

    run(body())


# --- errors in the protocol ----------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (-32700, Outcome.TARGET_REJECTED),
        (-32600, Outcome.TARGET_REJECTED),
        (-32601, Outcome.TARGET_REJECTED),
        (-32602, Outcome.TARGET_REJECTED),
        (-32603, Outcome.TARGET_FAILED),
        (-32001, Outcome.TARGET_FAILED),
        (-32004, Outcome.TARGET_REJECTED),
        (-32005, Outcome.TARGET_REJECTED),
        (-32006, Outcome.TARGET_FAILED),
        (-32008, Outcome.TARGET_REJECTED),
        (-32009, Outcome.TARGET_REJECTED),
        (1, Outcome.TARGET_FAILED),
    ],
)
def test_a_jsonrpc_error_is_a_refusal_or_a_failure(code: int, outcome: Outcome, streaming: bool) -> None:
    error = {"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": "x", "data": [{"a": 1}]}}
    fault = run(fault_of(says(answer(error)), streaming=streaming))
    assert (fault.outcome, fault.sent, fault.again) == (outcome, Sent.YES, False)
    assert fault.jsonrpc_code == code


def test_a_jsonrpc_error_with_status_400_counts_as_the_error_that_it_is() -> None:
    error = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32602, "message": "x"}}
    fault = run(fault_of(says(answer(error, 400))))
    assert (fault.outcome, fault.jsonrpc_code) == (Outcome.TARGET_REJECTED, -32602)


def test_a_jsonrpc_error_inside_a_stream_ends_it_with_that_error() -> None:
    error = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": "x"}}
    data = b"data: " + json.dumps(error).encode() + b"\n\n"
    fault = run(fault_of(says(SSE_HEAD, event(working()), data), streaming=True))
    assert (fault.outcome, fault.jsonrpc_code, fault.sent) == (Outcome.TARGET_FAILED, -32603, Sent.YES)


@pytest.mark.parametrize(
    ("code", "outcome", "sent"),
    [
        (-32006, Outcome.TARGET_REJECTED, Sent.YES),
        (-32007, Outcome.TARGET_AUTH, Sent.YES),
        (-32008, Outcome.TARGET_AUTH, Sent.YES),
        (-32009, Outcome.TARGET_REJECTED, Sent.YES),
        (-32010, Outcome.TARGET_UNAVAILABLE, Sent.NO),
    ],
)
def test_the_first_generation_has_its_own_meanings_for_some_codes(
    code: int, outcome: Outcome, sent: Sent
) -> None:
    async def body() -> None:
        error = {"jsonrpc": "2.0", "id": "1", "result": None, "error": {"code": code, "message": "x"}}
        async with raw_server(says(answer(error))) as server, client() as made:
            with pytest.raises(AgentError) as caught:
                await collect(made, agent_at(server.url, generation=Generation.V0_1))
        assert (caught.value.outcome, caught.value.sent) == (outcome, sent)

    run(body())


def rest_error(reason: str, status: int = 400) -> dict[str, Any]:
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "x"}
    return {"error": {"code": status, "status": "X", "message": "no", "details": [{"@type": "y"}, detail]}}


@pytest.mark.parametrize("generation", [Generation.V1_0, Generation.V0_3])
@pytest.mark.parametrize(
    ("body", "code", "outcome"),
    [
        (rest_error("TASK_NOT_FOUND"), -32001, Outcome.TARGET_FAILED),
        (rest_error("UNSUPPORTED_OPERATION"), -32004, Outcome.TARGET_REJECTED),
        ({"type": "TaskNotFoundError", "message": "no"}, -32001, Outcome.TARGET_FAILED),
        ({"error": {"code": 400, "message": "no"}}, None, Outcome.TARGET_FAILED),
    ],
)
def test_an_error_of_http_json_is_known_by_its_reason(
    body: Any, code: int | None, outcome: Outcome, generation: Generation
) -> None:
    async def check() -> None:
        async with raw_server(says(answer(body, 404))) as server, client() as made:
            agent = agent_at(server.url, binding=Binding.HTTP_JSON, generation=generation)
            with pytest.raises(AgentError) as caught:
                await collect(made, agent)
        assert (caught.value.outcome, caught.value.jsonrpc_code) == (outcome, code)
        assert caught.value.sent is Sent.YES

    run(check())


def test_an_error_inside_a_stream_of_http_json_ends_it() -> None:
    async def body() -> None:
        first = b"data: " + json.dumps(working()).encode() + b"\n\n"
        data = b"event: error\ndata: " + json.dumps(rest_error("INVALID_AGENT_RESPONSE")).encode() + b"\n\n"
        async with raw_server(says(SSE_HEAD, first, data)) as server, client() as made:
            agent = agent_at(server.url, binding=Binding.HTTP_JSON, streaming=True)
            with pytest.raises(AgentError) as caught:
                await collect(made, agent)
        assert (caught.value.outcome, caught.value.jsonrpc_code) == (Outcome.TARGET_FAILED, -32006)

    run(body())


# --- probing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 302, 401, 404, 500, 503])
def test_any_http_answer_to_a_probe_counts_as_there(status: int) -> None:
    async def body() -> None:
        async with raw_server(says(answer(b"x", status, "text/plain"))) as server, client() as made:
            await made.probe(agent_at(server.url), timeout_s=10)
            await made.probe(
                agent_at(server.url, card_url=server.url.replace("/a2a", "/card.json")), timeout_s=10
            )
            paths = [(request.method, request.path) for request in server.requests]
            assert paths == [("GET", "/.well-known/agent-card.json"), ("GET", "/card.json")]

    run(body())


def test_a_probe_without_an_answer_fails_as_not_sent() -> None:
    async def body() -> None:
        async with raw_server(for_ever) as server, client() as made:
            with pytest.raises(AgentError) as caught:
                await made.probe(agent_at(server.url), timeout_s=0.1)
            assert (caught.value.outcome, caught.value.sent) == (Outcome.TIMEOUT, Sent.NO)
            assert caught.value.again
            with pytest.raises(AgentError) as caught:
                await made.probe(agent_at(f"http://127.0.0.1:{closed_port()}/"), timeout_s=5)
            assert (caught.value.outcome, caught.value.sent) == (Outcome.TARGET_UNAVAILABLE, Sent.NO)

    run(body())


# --- pinning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["agent.test", "AGENT.test", "agent.test.", "a_b.agent.test"])
def test_the_connection_goes_to_the_vetted_address_under_the_name_of_the_url(host: str) -> None:
    asked: list[str] = []

    async def resolver(name: str) -> list[str]:
        asked.append(name)
        return ["127.0.0.1"]

    async def body() -> None:
        policy = OutboundPolicy(allow_private=True, resolver=resolver)
        async with raw_server(says(answer(rpc(TASK_DONE)))) as server, client(policy=policy) as made:
            await collect(made, agent_at(f"http://{host}:{server.port}/a2a"))
            assert server.requests[0].headers["host"] == f"{host.lower()}:{server.port}"
        assert asked == [host.lower()]

    run(body())


def test_tls_is_checked_against_the_name_and_not_the_address(
    server_tls: ssl.SSLContext, authority_pem: bytes
) -> None:
    async def resolver(name: str) -> list[str]:
        return ["127.0.0.1"]

    async def body() -> None:
        policy = OutboundPolicy(allow_private=True, resolver=resolver)
        async with (
            raw_server(says(answer(rpc(TASK_DONE))), server_tls) as server,
            client(policy=policy, extra_ca_pem=authority_pem) as made,
        ):
            assert len(await collect(made, agent_at(f"https://agent.test:{server.port}/"))) == 1
            with pytest.raises(AgentError) as caught:
                await collect(made, agent_at(f"https://other.test:{server.port}/"))
            assert caught.value.detail == "TLS failed"

    run(body())


def test_a_broken_authority_fails_at_once_and_not_at_the_first_call() -> None:
    async def body() -> None:
        broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        with pytest.raises(ValueError, match="builder error"):
            async with client(extra_ca_pem=broken):
                pass

    run(body())


def test_what_one_parser_takes_for_the_host_is_what_is_vetted() -> None:
    asked: list[str] = []

    async def resolver(name: str) -> list[str]:
        asked.append(name)
        return ["127.0.0.1"]

    async def body() -> None:
        policy = OutboundPolicy(allow_private=True, resolver=resolver)
        async with raw_server(says(answer(rpc(TASK_DONE)))) as server, client(policy=policy) as made:
            # Python's parser takes evil.test for the host, the one that connects takes good.test.
            await collect(made, agent_at(f"http://good.test:{server.port}\\@evil.test/"))
            assert server.requests[0].headers["host"] == f"good.test:{server.port}"
            with pytest.raises(AgentError):
                await collect(made, agent_at(f"http://user:pw@good.test:{server.port}/"))
            await collect(made, agent_at(f"http://2130706433:{server.port}/"))
            assert server.requests[1].headers["host"] == f"127.0.0.1:{server.port}"
        assert asked == ["good.test"]

    run(body())


def test_clients_of_addresses_that_are_idle_longest_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_handoff.client.http._LANES_MAX", 3)

    async def resolver(name: str) -> list[str]:
        return ["127.0.0.1"]

    async def body() -> None:
        policy = OutboundPolicy(allow_private=True, resolver=resolver)
        stream = says_and_hangs(SSE_HEAD, event(working()))
        async with (
            raw_server(says(answer(rpc(TASK_DONE)))) as server,
            raw_server(stream) as hanging,
            client(policy=policy) as made,
        ):
            updates = made.send(agent_at(hanging.url, streaming=True), delivery(), first_wait_s=10)
            await anext(updates)
            for n in range(10):
                await collect(made, agent_at(f"http://agent-{n}.test:{server.port}/"))
            assert len(made._http._lanes) == 3
            # The one in use was kept, and can still be ended from here.
            assert len(hanging.open) == 1
            await updates.aclose()
            await until(lambda: not hanging.open)

    run(body())


@pytest.mark.parametrize("ask", ["probe", "get", "cancel", "card"])
def test_a_call_that_was_given_up_leaves_no_connection_behind(ask: str) -> None:
    async def body() -> None:
        async with raw_server(for_ever) as server, client(call_s=0.3, connect_s=0.2) as made:
            agent = agent_at(server.url)
            fetcher = WellKnownCardFetcher(OutboundPolicy(allow_private=True), timeout_s=0.3)
            asked = {
                "probe": lambda: made.probe(agent, timeout_s=0.3),
                "get": lambda: made.get(agent, "t-1"),
                "cancel": lambda: made.cancel(agent, "t-1"),
                "card": lambda: fetcher.fetch(server.url),
            }
            with pytest.raises((AgentError, HandoffError)):
                await asked[ask]()
            assert server.requests
            await until(lambda: not server.open)

    run(body())


def says_and_hangs(*pieces: bytes) -> Any:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(pieces))
        await for_ever(request, writer)

    return handler
