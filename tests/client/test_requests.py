"""What an agent gets to see: methods, paths, headers, ids, in each generation and binding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_handoff.core.agents import Binding, Generation
from a2a_handoff.core.context import EXTENSION_URI
from a2a_handoff.ports import AgentError, Delivery, Sent
from tests.client.raw_server import (
    TASK_DONE,
    Request,
    agent_at,
    answer,
    client,
    collect,
    delivery,
    raw_server,
    rpc,
    run,
    says,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARTS = (
    '[{"text":"订单 🧪"},{"data":{"hop":1,"big":9007199254740993,"amount":12345678901234567890,"f":1.10},'
    '"metadata":{"k":null}},{"raw":"QUJD","filename":"a.bin","mediaType":"x/y"},{"url":"https://x/y"}]'
)
RICH = (
    '{"messageId":"m-1","role":"ROLE_USER","contextId":"callers-own","taskId":"callers-own","parts":'
    + PARTS
    + ',"metadata":{"k":1},"extensions":["urn:x"],"referenceTaskIds":["r-1"]}'
).encode()


async def sent_by(agent: dict[str, Any], sent: Delivery) -> Request:
    generation = agent.get("generation", Generation.V1_0)
    done = TASK_DONE if generation is Generation.V1_0 else {"id": "t", "status": {"state": "completed"}}
    body = done if agent.get("binding") is Binding.HTTP_JSON else rpc(done)
    async with raw_server(says(answer(body))) as server, client() as made:
        await collect(made, agent_at(server.url, **agent), sent)
        return server.requests[0]


def first_request(sent: Delivery, **agent: Any) -> Request:
    return run(sent_by(agent, sent))


# --- 1.0 -----------------------------------------------------------------------------------------


def test_c028_c085_1_0_parts_metadata_and_extensions_go_out_byte_for_byte() -> None:
    request = first_request(delivery(RICH, metadata=b'{"tenantKey": "v", "n": 1.10}'))
    assert PARTS.encode() in request.body
    assert b'"metadata":{"k":1}' in request.body
    assert b'{"tenantKey": "v", "n": 1.10}' in request.body
    assert request.params["message"]["extensions"] == ["urn:x"]
    assert request.params["message"]["referenceTaskIds"] == ["r-1"]
    assert request.json["method"] == "SendMessage"
    assert request.headers["a2a-version"] == "1.0"
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize("generation", Generation)
def test_ids_of_the_callers_world_never_leave(generation: Generation) -> None:
    request = first_request(delivery(RICH), generation=generation)
    assert b"callers-own" not in request.body


@pytest.mark.parametrize("generation", [Generation.V1_0, Generation.V0_3])
def test_c048_a_follow_up_carries_the_ids_that_the_target_made(generation: Generation) -> None:
    sent = delivery(RICH, remote_task_id="r-task", remote_context_id="r-context")
    message = first_request(sent, generation=generation).params["message"]
    assert (message["taskId"], message["contextId"]) == ("r-task", "r-context")


def test_a_stream_is_asked_for_only_where_the_card_says_so() -> None:
    unary = first_request(delivery(accepted_output_modes=("text/plain",)))
    stream = first_request(delivery(accepted_output_modes=("text/plain",)), streaming=True)
    assert unary.json["method"] == "SendMessage"
    assert unary.params["configuration"] == {
        "acceptedOutputModes": ["text/plain"],
        "returnImmediately": True,
    }
    assert stream.json["method"] == "SendStreamingMessage"
    assert stream.params["configuration"] == {"acceptedOutputModes": ["text/plain"]}
    assert "text/event-stream" in stream.headers["accept"]
    assert "text/event-stream" not in unary.headers["accept"]


def test_the_tenant_of_the_interface_is_echoed() -> None:
    assert first_request(delivery(), tenant="acme").params["tenant"] == "acme"
    rest = first_request(delivery(), tenant="ac/me", binding=Binding.HTTP_JSON)
    assert rest.path == "/a2a/ac%2Fme/message:send"
    assert "tenant" not in rest.json


def test_http_json_of_1_0_has_the_params_as_its_body() -> None:
    request = first_request(delivery(RICH, metadata=b"{}"), binding=Binding.HTTP_JSON)
    assert (request.method, request.path) == ("POST", "/a2a/message:send")
    assert PARTS.encode() in request.body
    assert request.json["configuration"] == {"returnImmediately": True}
    assert request.headers["a2a-version"] == "1.0"
    stream = first_request(delivery(), binding=Binding.HTTP_JSON, streaming=True)
    assert stream.path == "/a2a/message:stream"


def test_the_other_operations_have_their_paths() -> None:
    async def body() -> None:
        async with raw_server(says(answer(TASK_DONE))) as server, client() as made:
            for generation in (Generation.V1_0, Generation.V0_3):
                agent = agent_at(server.url + "/", binding=Binding.HTTP_JSON, generation=generation)
                await made.get(agent, "a/b?c")
                await made.cancel(agent, "a/b?c", traceparent=TRACEPARENT)
            streaming = agent_at(server.url, binding=Binding.HTTP_JSON, streaming=True)
            async for _ in made.subscribe(streaming, "t"):
                pass
            assert [(request.method, request.path) for request in server.requests] == [
                ("GET", "/a2a/tasks/a%2Fb%3Fc?historyLength=0"),
                ("POST", "/a2a/tasks/a%2Fb%3Fc:cancel"),
                ("GET", "/a2a/v1/tasks/a%2Fb%3Fc"),
                ("POST", "/a2a/v1/tasks/a%2Fb%3Fc:cancel"),
                ("POST", "/a2a/tasks/t:subscribe"),
            ]
            assert server.requests[1].headers["traceparent"] == TRACEPARENT

    run(body())


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_version_segment_of_0_3_is_not_doubled(suffix: str) -> None:
    async def body() -> None:
        async with raw_server(says(answer(TASK_DONE))) as server, client() as made:
            agent = agent_at(server.url + suffix, binding=Binding.HTTP_JSON, generation=Generation.V0_3)
            await made.get(agent, "t")
            assert server.requests[0].path == "/a2a/v1/tasks/t"

    run(body())


def test_a_query_in_the_url_of_an_interface_is_kept() -> None:
    async def body() -> None:
        async with raw_server(says(answer(TASK_DONE))) as server, client() as made:
            await made.get(agent_at(server.url + "?key=1", binding=Binding.HTTP_JSON), "t")
            assert server.requests[0].path == "/a2a/tasks/t?key=1&historyLength=0"

    run(body())


# --- older generations ---------------------------------------------------------------------------


def test_c004_0_3_gets_no_field_that_only_1_0_has() -> None:
    request = first_request(
        delivery(RICH, metadata=b'{"a":1}', accepted_output_modes=("text/plain",)), generation=Generation.V0_3
    )
    assert request.json["method"] == "message/send"
    assert request.headers["a2a-version"] == "0.3"
    params = request.params
    assert params["configuration"] == {"acceptedOutputModes": ["text/plain"], "blocking": False}
    assert params["metadata"] == {"a": 1}
    message = params["message"]
    assert (message["kind"], message["role"], message["metadata"]) == ("message", "user", {"k": 1})
    text, data, raw, url = message["parts"]
    assert text == {"kind": "text", "text": "订单 🧪"}
    assert (data["kind"], data["data"]["big"], data["metadata"]) == ("data", 9007199254740993, {"k": None})
    assert b'"amount":12345678901234567890,"f":1.10' in request.body
    assert raw == {"kind": "file", "file": {"bytes": "QUJD", "name": "a.bin", "mimeType": "x/y"}}
    assert url == {"kind": "file", "file": {"uri": "https://x/y"}}


def test_0_3_over_http_json_has_the_shape_of_its_proto() -> None:
    request = first_request(
        delivery(RICH, metadata=b'{"a":1}', remote_task_id="r-1"),
        generation=Generation.V0_3,
        binding=Binding.HTTP_JSON,
    )
    assert (request.method, request.path) == ("POST", "/a2a/v1/message:send")
    message = request.json["message"]
    assert (message["role"], message["taskId"], message["metadata"]) == ("ROLE_USER", "r-1", {"k": 1})
    assert "kind" not in message
    text, data, raw, url = message["content"]
    assert text == {"text": "订单 🧪"}
    assert data["data"]["data"]["big"] == 9007199254740993
    assert raw == {"file": {"fileWithBytes": "QUJD", "name": "a.bin", "mimeType": "x/y"}}
    assert url == {"file": {"fileWithUri": "https://x/y"}}
    assert request.json["configuration"] == {"blocking": False}


@pytest.mark.parametrize(("streaming", "method"), [(False, "tasks/send"), (True, "tasks/sendSubscribe")])
def test_the_first_generation_gets_ids_made_from_the_message_so_that_a_retry_names_the_same_task(
    streaming: bool, method: str
) -> None:
    sent = delivery(RICH, metadata=b'{"a":1}', accepted_output_modes=("text/plain",))
    request = first_request(sent, generation=Generation.V0_1, streaming=streaming)
    assert request.json["method"] == method
    assert "a2a-version" not in request.headers
    params = request.params
    assert (params["id"], params["sessionId"]) == ("m-1", "m-1")
    assert params["acceptedOutputModes"] == ["text/plain"]
    assert params["metadata"] == {"a": 1}
    assert "configuration" not in params
    assert set(params["message"]) == {"role", "parts", "metadata"}
    assert params["message"]["parts"][0] == {"type": "text", "text": "订单 🧪"}


def test_a_follow_up_in_the_first_generation_names_task_and_session() -> None:
    sent = delivery(remote_task_id="r-1", remote_context_id="s-1")
    params = first_request(sent, generation=Generation.V0_1).params
    assert (params["id"], params["sessionId"]) == ("r-1", "s-1")


# --- headers -------------------------------------------------------------------------------------


def test_c056_trace_context_travels_in_the_headers() -> None:
    headers = first_request(delivery(traceparent=TRACEPARENT, tracestate="a=1,b=2")).headers
    assert (headers["traceparent"], headers["tracestate"]) == (TRACEPARENT, "a=1,b=2")
    bare = first_request(delivery()).headers
    assert "traceparent" not in bare
    assert "tracestate" not in bare


def test_our_extension_is_activated_only_where_the_card_declares_it() -> None:
    sent = delivery(extensions=("urn:x", EXTENSION_URI))
    plain = first_request(sent).headers
    speaks = first_request(sent, speaks_handoff=True).headers
    declares = first_request(sent, card=b'{"uri":"%b"}' % EXTENSION_URI.encode()).headers
    assert plain["a2a-extensions"] == "urn:x"
    assert speaks["a2a-extensions"] == declares["a2a-extensions"] == f"urn:x, {EXTENSION_URI}"
    assert "a2a-extensions" not in first_request(delivery(extensions=(EXTENSION_URI,))).headers


def test_older_servers_get_the_extensions_under_the_old_name_too() -> None:
    headers = first_request(delivery(extensions=("urn:x",)), generation=Generation.V0_3).headers
    assert headers["x-a2a-extensions"] == headers["a2a-extensions"] == "urn:x"


@pytest.mark.parametrize("nasty", ["urn:x\r\nX-Evil: 1", "urn:a,urn:b", "urn:ü", " urn:x", "urn:\x00"])
def test_nothing_breaks_out_of_a_header(nasty: str) -> None:
    headers = first_request(delivery(extensions=(nasty, "urn:y"), tracestate=nasty)).headers
    assert headers["a2a-extensions"] == "urn:y"
    assert "x-evil" not in headers


def test_a_message_without_an_id_is_refused_before_anything_is_sent() -> None:
    async def body() -> None:
        async with raw_server(says()) as server, client() as made:
            for message in (b"[]", b"{}", b"no", b'{"messageId":1}'):
                with pytest.raises(AgentError) as caught:
                    await collect(made, agent_at(server.url), delivery(message))
                assert caught.value.sent is Sent.NO
            assert not server.requests

    run(body())


def test_the_first_interface_that_we_speak_is_taken() -> None:
    async def body() -> None:
        async with raw_server(says(answer(rpc(TASK_DONE)))) as server, client() as made:
            good = agent_at(server.url)
            rest = agent_at("127.0.0.1:1", binding=Binding.HTTP_JSON, generation=Generation.V0_1).interfaces
            other = agent_at("http://127.0.0.1:1/").interfaces
            agent = agent_at(server.url)
            agent = type(agent)(agent_id="a", tenant="default", interfaces=(*rest, *good.interfaces, *other))
            await collect(made, agent)
            assert len(server.requests) == 1

    run(body())


# --- the way back --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "metadata", "expected"),
    [
        (f"traceresponse: {TRACEPARENT}\r\n", {}, TRACEPARENT),
        (f"traceparent: {TRACEPARENT}\r\n", {}, TRACEPARENT),
        ("", {"traceparent": TRACEPARENT}, TRACEPARENT),
        ("", {EXTENSION_URI: {"traceparent": TRACEPARENT}}, TRACEPARENT),
        ("traceparent: nonsense\r\n", {"traceparent": "nonsense"}, ""),
        ("", {"traceparent": 7}, ""),
        ("", {}, ""),
    ],
)
def test_a_traceparent_that_comes_back_is_handed_on(
    headers: str, metadata: dict[str, Any], expected: str
) -> None:
    task = {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "metadata": metadata}}

    async def body() -> None:
        async with raw_server(says(answer(rpc(task), headers=headers))) as server, client() as made:
            (update,) = await collect(made, agent_at(server.url))
            assert update.traceparent == expected
            assert json.loads(update.metadata or b"{}") == metadata
            # Our own one, echoed, says nothing of a span of the target's.
            (echoed,) = await collect(made, agent_at(server.url), delivery(traceparent=TRACEPARENT))
            assert echoed.traceparent == ""

    run(body())
