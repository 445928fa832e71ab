"""Server spans of requests that created nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from a2a_handoff.config import Settings
from a2a_handoff.telemetry import Served
from tests.telemetry.story import CALLER, T0, Story
from tests.telemetry.test_recorder import samples, total

TRACE = CALLER[3:35]


async def task(request):
    return JSONResponse({"id": request.path_params["id"]})


async def broken(_request):
    raise RuntimeError("secret detail")


async def task_of_none(_request):
    return JSONResponse({})


async def nothing(_request):
    return Response(status_code=204)


async def five_thousand(_request):
    async def chunks():
        for _ in range(5_000):
            yield b"data: x\n\n"

    return StreamingResponse(chunks(), media_type="text/event-stream")


async def endless(_request):
    async def chunks():
        while True:
            yield b"data: x\n\n"
            await asyncio.sleep(0.005)

    return StreamingResponse(chunks(), media_type="text/event-stream")


def an_app() -> Starlette:
    return Starlette(
        routes=[
            Route("/api/tasks/{id}", task),
            Route("/api/broken", broken),
            Route("/api/handoffs/watch", nothing),
            Route("/api/agents/{agent_id}/heartbeat", task_of_none, methods=["POST"]),
            Route("/readyz", lambda _r: PlainTextResponse("ok")),
            Mount("/agents", routes=[Route("/{id}/card", task)]),
            Route("/five-thousand", five_thousand),
            Route("/endless", endless),
        ]
    )


def ask(app, path, *, method="GET", headers=None, query=b"token=sekrit", disconnect=False):
    """Send one request straight into an ASGI app; gives the messages it sent."""
    sent = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", b"h"), (b"authorization", b"Bearer sekrit"), *(headers or [])],
        "client": ("10.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def run():
        gone = asyncio.Event()
        first = True

        async def receive():
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if disconnect and message.get("body"):
                gone.set()

        await app(scope, receive, send)

    asyncio.run(run())
    return sent


def traced(*pairs):
    return [(b"traceparent", CALLER.encode()), *pairs]


def spans(receiver, telemetry):
    assert telemetry.flush()
    return receiver.spans


def test_the_name_is_the_template_and_nothing_private_is_recorded(exporting, receiver):
    ask(exporting.asgi(an_app()), "/api/tasks/0198c0de")
    (span,) = spans(receiver, exporting)
    assert span.name == "GET /api/tasks/{id}"
    assert span.kind == "server"
    assert span.attributes == {
        "http.request.method": "GET",
        "http.route": "/api/tasks/{id}",
        "http.response.status_code": 200,
    }
    assert "sekrit" not in repr(span)
    assert "10.0.0.1" not in repr(span)


def test_a_cold_and_a_hot_request_are_shown_alike(exporting, receiver):
    ask(exporting.asgi(an_app()), "/api/tasks/1", headers=traced())
    exporting.request_span(
        Served(started_at=T0, ended_at=T0 + 1, method="GET", route="/api/tasks/{id}", traceparent=CALLER)
    )
    cold, hot = spans(receiver, exporting)
    for what in (
        "name",
        "kind",
        "service",
        "scope",
        "attributes",
        "parent_id",
        "trace_id",
        "parent_remote",
        "failed",
    ):
        assert getattr(cold, what) == getattr(hot, what), what


def test_the_span_of_a_request_that_made_a_handoff_is_like_it_but_for_the_status(exporting, receiver):
    story = Story()
    story.request("agent-b")
    exporting.record(story.changes[0])
    exporting.request_span(
        Served(
            started_at=T0, ended_at=T0 + 1, method="POST", route="/", rpc_method="SendMessage",
            protocol_version="1.0", task_id=story.changes[0].after.id,
        )
    )  # fmt: skip
    hot = [span for span in spans(receiver, exporting) if span.name == "POST /"]
    ours = {"handoff.id", "handoff.correlation_id"}
    committed = next(span for span in hot if ours <= set(span.attributes))
    answered = next(span for span in hot if span is not committed)
    assert set(committed.attributes) - ours == set(answered.attributes) - {"http.response.status_code"}


def test_mounted_routes_and_wrong_methods_have_their_template_and_unknown_paths_none(exporting, receiver):
    app = exporting.asgi(an_app())
    ask(app, "/agents/b/card")
    ask(app, "/api/tasks/1", method="DELETE")
    ask(app, "/wp-admin/setup.php")
    ask(app, "/nowhere", method="BREW")
    assert [span.name for span in spans(receiver, exporting)] == [
        "GET /agents/{id}/card", "DELETE /api/tasks/{id}", "GET", "HTTP",
    ]  # fmt: skip


def test_c062_there_is_one_series_per_route_and_one_for_whatever_matches_none(exporting):
    app = exporting.asgi(an_app())
    for number in range(30):
        ask(app, f"/api/tasks/{number}")
        ask(app, f"/wp-admin/{number}")
        ask(app, f"/api/%2e%2e/{number}")
    series = samples(exporting, "http_server_request_duration_seconds_count")
    assert {dict(key).get("http_route", "") for key in series} == {"/api/tasks/{id}", ""}
    assert len(series) == 2
    assert sum(series.values()) == 90


def test_a_fault_of_ours_is_an_error_and_its_text_stays_with_us(exporting, receiver):
    with pytest.raises(RuntimeError):
        ask(exporting.asgi(an_app()), "/api/broken")
    (span,) = spans(receiver, exporting)
    assert span.failed
    assert span.attributes["error.type"] == "500"
    assert span.attributes["http.response.status_code"] == 500
    assert "secret detail" not in repr(span)


def test_a_fault_of_the_callers_is_none_of_ours(exporting, receiver):
    ask(exporting.asgi(an_app()), "/nowhere")
    (span,) = spans(receiver, exporting)
    assert not span.failed
    assert span.attributes["http.response.status_code"] == 404


def test_c060_a_stream_of_5000_chunks_is_one_span(exporting, receiver):
    assert len(ask(exporting.asgi(an_app()), "/five-thousand")) > 5_000
    assert [span.name for span in spans(receiver, exporting)] == ["GET /five-thousand"]


def test_c060_polls_that_find_nothing_and_probes_start_no_traces_and_are_counted(exporting, receiver):
    app = exporting.asgi(an_app())
    for _ in range(20):
        ask(app, "/api/handoffs/watch")
        ask(app, "/readyz")
        ask(app, "/api/agents/b/heartbeat", method="POST")
    assert spans(receiver, exporting) == []
    assert total(exporting, "http_server_request_duration_seconds_count") == 60
    ask(app, "/api/handoffs/watch", headers=traced())
    assert len(spans(receiver, exporting)) == 1


def test_c060_a_socket_is_one_span_and_no_request(exporting, receiver):
    exporting.request_span(
        Served(started_at=1.0, ended_at=2.0, method="GET", route="/ws", status=101, socket=True)
    )
    assert [span.name for span in spans(receiver, exporting)] == ["GET /ws"]
    assert total(exporting, "http_server_request_duration_seconds_count") == 0


def test_c059_a_caller_that_leaves_is_told_from_a_failure(exporting, receiver):
    ask(exporting.asgi(an_app()), "/endless", disconnect=True)
    (span,) = spans(receiver, exporting)
    assert span.attributes["handoff.request.outcome"] == "client_disconnect"
    assert not span.failed
    assert total(exporting, "handoff_client_disconnects_total", http_route="/endless") == 1


def test_a_trusted_callers_trace_is_continued(exporting, receiver):
    ask(exporting.asgi(an_app()), "/api/tasks/1", headers=traced())
    (span,) = spans(receiver, exporting)
    assert (span.trace_id, span.parent_id, span.parent_remote) == (TRACE, CALLER[36:52], True)


def test_baggage_of_callers_goes_nowhere(exporting, receiver):
    ask(exporting.asgi(an_app()), "/api/tasks/1", headers=traced((b"baggage", b"user=sekrit")))
    assert "sekrit" not in repr(spans(receiver, exporting))


def test_a_strangers_trace_is_not_continued(exporting, receiver):
    async def nobody(_scope: Any) -> bool:
        return False

    ask(exporting.asgi(an_app(), trusts=nobody), "/api/tasks/1", headers=traced())
    (span,) = spans(receiver, exporting)
    assert span.trace_id != TRACE
    assert span.parent_id == ""


@pytest.mark.parametrize("inbound", ["restart", "drop"])
def test_nobodys_trace_is_continued_if_the_operator_says_so(make, receiver, inbound):
    telemetry = make(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}, settings=Settings(trace_inbound=inbound)
    )
    ask(telemetry.asgi(an_app()), "/api/tasks/1", headers=traced())
    telemetry.request_span(Served(started_at=T0, ended_at=T0, method="GET", route="/x", traceparent=CALLER))
    found = spans(receiver, telemetry)
    assert len(found) == 2
    assert TRACE not in {span.trace_id for span in found}


def test_an_unsampled_caller_is_obeyed_and_measured(exporting, receiver):
    unsampled = [(b"traceparent", CALLER[:-2].encode() + b"00")]
    ask(exporting.asgi(an_app()), "/api/tasks/1", headers=unsampled)
    exporting.request_span(
        Served(started_at=T0, ended_at=T0, method="GET", route="/x", traceparent=CALLER[:-2] + "00")
    )
    assert spans(receiver, exporting) == []
    assert total(exporting, "http_server_request_duration_seconds_count") == 2


def test_the_ratio_holds_for_requests_too(make, receiver):
    telemetry = make({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}, settings=Settings(trace_ratio=0.0))
    ask(telemetry.asgi(an_app()), "/api/tasks/1")
    telemetry.request_span(Served(started_at=T0, ended_at=T0, method="GET", route="/x"))
    assert spans(receiver, telemetry) == []
    assert total(telemetry, "http_server_request_duration_seconds_count") == 2


def test_a_request_that_made_a_handoff_has_one_server_span_and_not_two(exporting, receiver):
    story = Story()
    story.request("agent-b")

    async def create(_request):
        exporting.record(story.changes[0])
        return JSONResponse({}, status_code=201)

    ask(
        exporting.asgi(Starlette(routes=[Route("/api/handoffs", create, methods=["POST"])])),
        "/api/handoffs",
        method="POST",
    )
    assert [span.kind for span in spans(receiver, exporting)].count("server") == 1
    assert total(exporting, "http_server_request_duration_seconds_count", http_route="/api/handoffs") == 1


def test_a_disabled_sdk_leaves_the_app_alone(make):
    app = an_app()
    assert make({"OTEL_SDK_DISABLED": "true"}).asgi(app) is app


def test_a_hot_request_whose_caller_left_has_no_status(exporting, receiver):
    exporting.request_span(
        Served(started_at=T0, ended_at=T0, method="POST", route="/", status=0, outcome="client_disconnect")
    )
    (span,) = spans(receiver, exporting)
    assert "http.response.status_code" not in span.attributes
    assert not span.failed


def test_c059_fifty_streams_closed_in_the_middle_by_their_clients_leave_no_error_behind(
    exporting, receiver, caplog
):
    caplog.set_level(logging.DEBUG)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    server = uvicorn.Server(uvicorn.Config(exporting.asgi(an_app()), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    for _ in range(50):
        with socket.create_connection(listener.getsockname(), timeout=5) as client:
            client.sendall(b"GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
            heard = b""
            while b"data: x" not in heard:
                heard += client.recv(4096)
    receiver.wait_for_spans(50)
    server.should_exit = True
    thread.join(10)
    listener.close()
    streams = spans(receiver, exporting)
    assert len(streams) == len({span.span_id for span in streams}) == 50
    assert {span.attributes["handoff.request.outcome"] for span in streams} == {"client_disconnect"}
    assert not any(span.failed for span in streams)
    assert "detach" not in caplog.text
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []
    assert total(exporting, "handoff_client_disconnects_total") == 50


def test_the_json_of_a_request_is_not_held_up(exporting):
    sent = ask(exporting.asgi(an_app()), "/api/tasks/7")
    assert json.loads(sent[1]["body"]) == {"id": "7"}
