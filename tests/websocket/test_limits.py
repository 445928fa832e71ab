"""What a socket may cost: frames, time, memory; and how a broker finds that nobody is there."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import socket as sockets
import struct
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from a2a_handoff.transports.socket_protocol import PIECES_MAX, BoundedSocket
from tests.support.puller import hand_off
from tests.support.running import WAIT_S, Ahead, Broker, broker
from tests.support.served import served
from tests.support.sockets import Socket, socket_of
from tests.support.wire import eventually


def until_seats(b: Broker, count: int, agent_id: str = "cursor") -> None:
    """Return when the broker holds so many sockets of an agent."""

    async def wait() -> None:
        async with asyncio.timeout(WAIT_S):
            while len(b.app.service.inbox._seats.get(f"inbox:default:{agent_id}", ())) != count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)

    b.loop.run(wait())


# --- the handshake -------------------------------------------------------------------------------


def _refused(b: Broker, path: str = "/ws", **headers: str) -> tuple[int, dict[str, Any]]:
    """The answer to a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refusal:
        connect(b.url.replace("http", "ws", 1) + path, proxy=None, additional_headers=headers).close()
    answer = refusal.value.response
    return answer.status_code, json.loads(answer.body or b"null")


def test_a_web_page_of_another_site_gets_no_socket(b: Broker) -> None:
    status, problem = _refused(b, Origin="https://evil.example")
    assert (status, problem["code"]) == (403, "forbidden")
    assert "evil.example" in problem["detail"]
    status, _ = _refused(b, Origin="null")
    assert status == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "chrome-extension://abc", "vscode-webview://x"])
def test_pages_of_this_machine_and_extensions_get_one(b: Broker, origin: str) -> None:
    url = b.url.replace("http", "ws", 1) + "/ws"
    with connect(url, proxy=None, additional_headers={"Origin": origin}) as connection:
        socket = Socket(connection)
        assert socket.ask("ping")["type"] == "pong"


def test_a_name_that_is_not_the_brokers_gets_none(b: Broker) -> None:
    port = int(b.url.rsplit(":", 1)[1])
    with sockets.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(_handshake("rebound.example"))
        assert raw.recv(4096).startswith(b"HTTP/1.1 403")


def test_there_is_one_socket_path(b: Broker) -> None:
    assert _refused(b, "/websocket") == (404, _refused(b, "/websocket")[1])
    assert _refused(b, "/api/agents")[1]["code"] == "not_found"


def test_a_plain_request_of_the_path_is_told_that_there_is_nothing(b: Broker) -> None:
    assert b.http.get("/ws").status_code in (404, 426)


def test_a_stopping_broker_takes_no_socket(b: Broker) -> None:
    b.loop.loop.call_soon_threadsafe(b.app.begin_stop)
    assert b.http.get("/readyz").status_code == 503
    assert _refused(b)[0] == 503


# --- until hello ---------------------------------------------------------------------------------


def test_who_says_no_hello_in_time_is_closed(tmp_path: Path) -> None:
    with broker(tmp_path, arrival=0.1) as b, socket_of(b) as socket:
        code, frames = socket.closed()
        assert (code, frames[-1]["type"], frames[-1]["code"]) == (4408, "closing", 4408)


def test_who_said_hello_may_be_silent_for_longer(tmp_path: Path) -> None:
    """The bounds of an HTTP request do not hold for a socket."""
    with broker(tmp_path, arrival=1.0) as b, socket_of(b, "cursor", platform="x") as socket:
        made = hand_off(b, requirements={"agent_type": "cursor"}, source_agent="a", wait_for_agent=60)
        assert socket.next("offer")["handoff_id"] == made["handoff_id"]
        b.loop.run(asyncio.sleep(1.5))
        assert socket.ask("ping")["type"] == "pong"


def test_who_cannot_say_hello_is_closed(b: Broker) -> None:
    with socket_of(b) as socket:
        for _ in range(5):
            socket.connection.send('{"type":"accept"}')
        code, frames = socket.closed()
        assert (code, [f["type"] for f in frames]) == (4400, ["error"] * 5 + ["closing"])


# --- size ----------------------------------------------------------------------------------------


def test_a_frame_is_as_large_as_a_body_may_be_and_no_larger(tmp_path: Path) -> None:
    with broker(tmp_path, max_body=100_000) as b:
        with socket_of(b, "cursor", platform="x") as socket:
            fits = '{"type":"ping","x":"' + "x" * 99_978 + '"}'
            assert len(fits) == 100_000
            socket.connection.send(fits)
            assert socket.next("pong")
            with suppress(ConnectionClosed):
                socket.connection.send(fits + " ")
            assert socket.closed()[0] == 1009
        with socket_of(b, "cursor") as socket:
            with suppress(ConnectionClosed):  # the broker may close before all of it is sent
                socket.connection.send("x" * 500 for _ in range(300))  # in fragments
            assert socket.closed()[0] == 1009
        assert b.http.get("/healthz").status_code == 200


def _frame(opcode: int, payload: bytes = b"", *, last: bool = True) -> bytes:
    """A short frame of a client, with a mask that changes nothing."""
    return struct.pack("!BB4x", last << 7 | opcode, 0x80 | len(payload)) + payload


def test_a_message_comes_in_no_more_pieces_than_it_may_however_small_they_are(b: Broker) -> None:
    b.register("cursor", platform="x")
    with half_open(b.url, "cursor") as raw:
        until_seats(b, 1)
        raw.sendall(_frame(1, last=False) + _frame(0, last=False) * (PIECES_MAX + 1))
        until_seats(b, 0)
    with socket_of(b, "cursor") as socket:
        pieces = ['{"type":', *[""] * (PIECES_MAX - 3), '"ping"}']
        socket.connection.send(pieces)  # an empty one is added at the end
        assert socket.next("pong")


def test_pings_of_a_client_that_does_not_read_pile_up_nothing_and_the_last_one_is_answered(
    b: Broker,
) -> None:
    b.register("cursor", platform="x")
    count, last = 40_000, b"%0120d" % 39_999
    with half_open(b.url, "cursor") as raw:
        raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 65_536)
        until_seats(b, 1)
        raw.sendall(b"".join(_frame(9, b"%0120d" % number) for number in range(count)))
        # The broker has read them all.
        sides = [each for each in gc.get_objects() if type(each) is BoundedSocket]
        assert eventually(lambda: any(last in pong for side in sides for pong in side._pong))
        raw.settimeout(WAIT_S)
        came = b""
        while last not in came:
            came += raw.recv(65_536)
        assert came.count(b"\x8a\x78") < count // 2


def test_what_is_no_unicode_is_closed(b: Broker) -> None:
    with socket_of(b, "cursor", platform="x") as socket:
        socket.connection.send(b"\xff\xfe", text=True)
        assert socket.closed()[0] == 1007


# --- reading too slowly --------------------------------------------------------------------------


def test_c078_a_client_that_does_not_read_is_closed_and_misses_nothing(tmp_path: Path) -> None:
    ping_s = 1.5
    with broker(tmp_path, socket_ping=ping_s) as b:
        b.register("cursor", platform="x")
        url = b.url.replace("http", "ws", 1) + "/ws"
        with connect(url, proxy=None, max_size=None, max_queue=1, close_timeout=1) as connection:
            slow = Socket(connection)
            slow.hello("cursor")
            said = [_broadcast(b, number) for number in range(200)]
            began = time.monotonic()
            until_seats(b, 0)
            assert time.monotonic() - began < 4 * ping_s
            code, frames = slow.closed()
        assert (code, frames[-1]["type"]) == (4429, "lagging")
        heard = [f["broadcast_id"] for f in frames[:-1]]
        assert 0 < len(heard) < 200
        with socket_of(b) as again:
            again.hello("cursor", cursor=slow.cursor)
            heard += [again.next("broadcast")["broadcast_id"] for _ in range(200 - len(heard))]
            assert again.quiet() == []
        assert heard == said


def _broadcast(b: Broker, number: int) -> str:
    said = {"channel": "general", "message": f"{number}", "data": {"x": "x" * 60_000}, "source_agent": "a"}
    return b.http.post("/api/broadcasts", json=said).json()["broadcast_id"]


def test_a_client_that_reads_slowly_but_reads_stays(tmp_path: Path) -> None:
    """It takes several times as long as one that reads nothing is given."""
    with broker(tmp_path, socket_ping=0.5) as b:
        b.register("cursor", platform="x")
        said = [_broadcast(b, number) for number in range(100)]
        with sockets.socket() as raw:
            raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 65_536)
            raw.connect(("127.0.0.1", int(b.url.rsplit(":", 1)[1])))
            url = b.url.replace("http", "ws", 1) + "/ws"
            with connect(url, sock=raw, max_size=None, max_queue=1, close_timeout=1) as connection:
                slow = Socket(connection)
                slow.hello("cursor")
                heard: list[str] = []
                while len(heard) < 100:
                    heard.append(slow.receive()["broadcast_id"])
                    b.loop.run(asyncio.sleep(0.02))
                assert heard == said


# --- nobody is there -----------------------------------------------------------------------------


def _handshake(host: str = "127.0.0.1") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


@contextmanager
def half_open(url: str, agent_id: str) -> Generator[sockets.socket]:
    """A client that said hello and does nothing ever after: no pong, no close."""
    with sockets.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as raw:
        raw.sendall(_handshake())
        assert raw.recv(4096).startswith(b"HTTP/1.1 101")
        body = json.dumps({"type": "hello", "agent_id": agent_id}).encode()
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[number % 4] for number, byte in enumerate(body))
        raw.sendall(struct.pack("!BB", 0x81, 0x80 | len(body)) + mask + masked)
        yield raw


def test_c095_a_client_that_answers_no_ping_is_gone_and_its_offer_is_there_for_others(tmp_path: Path) -> None:
    clock = Ahead()
    with broker(tmp_path, socket_ping=0.3, clock=clock) as b:
        b.register("cursor", platform="x")
        with half_open(b.url, "cursor"):
            until_seats(b, 1)
            made = hand_off(b, target_agent="cursor", source_agent="a")["handoff_id"]
            until_seats(b, 0)
            clock.seconds += 19
            assert b.http.get("/api/agents/cursor").json()["present"]
            clock.seconds += 2
            assert not b.http.get("/api/agents/cursor").json()["present"]
            with socket_of(b, "cursor") as other:
                assert other.next("offer")["handoff_id"] == made
                assert other.do("accept", handoff_id=made)["handoff"]["state"] == "acknowledged"


def test_a_silent_client_is_found_within_twenty_seconds_by_default(b: Broker) -> None:
    """Asked after one interval, gone after a second one."""
    assert 2 * b.app.settings.socket_ping < 20
    assert (
        2 * max(m.le for m in type(b.app.settings).model_fields["socket_ping"].metadata if hasattr(m, "le"))
        < 20
    )


def test_nothing_is_left_of_sockets_that_are_gone(b: Broker) -> None:
    for _ in range(20):
        with socket_of(b, "cursor", platform="x", events=True) as socket:
            socket.connection.socket.shutdown(2)
        with socket_of(b, "cursor", events=True):
            pass
    until_seats(b, 0)

    async def rest() -> tuple[int, list[str]]:
        async with asyncio.timeout(WAIT_S):
            while b.app.service.bulletin._chores:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
        return len(b.app.service.bulletin._boards), [name for name in names if "_Socket" in name]

    assert b.loop.run(rest()) == (0, [])
    assert not [topic for topic in b.waiters if topic.startswith(("told:", "inbox:"))]


# --- a real process ------------------------------------------------------------------------------


def test_c081_a_process_that_holds_sockets_and_polls_stops_in_time(tmp_path: Path) -> None:
    """Ten sockets, one more that is half open, and a poll: told, closed, exit code 0."""
    with ThreadPoolExecutor() as threads, served(tmp_path, grace=4) as b, ExitStack() as held:
        opened = [held.enter_context(socket_of(b.url, f"agent-{n}", platform="x")) for n in range(10)]
        held.enter_context(half_open(b.url, "agent-0"))
        poll = threads.submit(b.http.get, "/api/handoffs/watch", params={"agent": "agent-1", "timeout": 60})
        eventually(lambda: b.http.get("/healthz").is_success)
        began = time.monotonic()
        stopping = threads.submit(b.stop)
        for socket in opened:
            code, frames = socket.closed()
            assert (code, frames[-1]["type"]) == (1012, "closing")
        assert poll.result(WAIT_S).status_code == 204
        assert stopping.result(WAIT_S) == 0
        assert time.monotonic() - began < 6
        assert "Traceback" not in b.words
