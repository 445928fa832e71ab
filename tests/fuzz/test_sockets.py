"""Bad HTTP, byte by byte: what no client library would send, too much of it, and half of it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Generator
from contextlib import closing, suppress

import pytest

from tests.fuzz.conftest import Watched, clean, watching
from tests.support.agents import Agent, Answer, Call, card, completes
from tests.support.running import running

#: Seconds that a request may take to arrive, here; and a wait that is surely longer.
ARRIVAL_S = 0.7
LONG_S = 8.0

BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "nobody"}}).encode()
HEAD = b"Host: x\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Generator[Watched]:
    """A broker that does not wait long for requests, nor for a slow agent."""

    async def slow(agent: Agent, call: Call) -> Answer:
        await asyncio.sleep(2 * ARRIVAL_S)
        return await completes(agent, call)

    with watching(tmp_path_factory.mktemp("hasty"), arrival=ARRIVAL_S) as made, running(Agent(slow)) as url:
        made.broker.register("slow", card=card(url))
        yield made


@pytest.fixture
def watched(hasty: Watched) -> Generator[Watched]:
    hasty.log.errors.clear()
    yield hasty
    hasty.is_well()
    hasty.works()


def post(body: bytes = BODY, *, head: bytes = HEAD, length: int | None = None, path: bytes = b"/") -> bytes:
    said = len(body) if length is None else length
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path, head, said, body)


def get(path: bytes, head: bytes = HEAD) -> bytes:
    return b"GET %b HTTP/1.1\r\n%b\r\n" % (path, head)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n%b%b" % (HEAD, body, end)


class Line:
    """A connection to the broker."""

    def __init__(self, watched: Watched) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(watched.broker.url.rsplit(":", 1)[1])))
        self.socket.settimeout(LONG_S)

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, *, until: bytes = b"") -> bytes:
        """Everything until the broker closes, or until ``until`` was read. Fails after ``LONG_S``."""
        got = b""
        while not until or until not in got:
            try:
                piece = self.socket.recv(65_536)
            except (ConnectionResetError, BrokenPipeError):
                break
            if not piece:
                break
            got += piece
        return got


def told(watched: Watched, data: bytes, *, until: bytes = b"") -> bytes:
    """What the broker says to some bytes; they may be cut short by its answer."""
    with closing(Line(watched)) as line:
        with suppress(ConnectionResetError, BrokenPipeError):
            line.send(data)
        answer = line.read(until=until)
    clean(answer.decode("latin-1"))
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


NOT_HTTP: dict[str, bytes] = {
    "negative length": post(length=-5),
    "length in words": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: many\r\n\r\n" + BODY,
    "length with a sign": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: +5\r\n\r\n" + BODY,
    "length of 5000 digits": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    "two lengths": post(head=HEAD + b"Content-Length: 5\r\n"),
    "length and chunks": post(head=HEAD + b"Transfer-Encoding: chunked\r\n"),
    "unknown transfer": b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
    "a length too small": post(length=5),
    "chunks of no size": b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n",
    "a chunk too large": b"POST / HTTP/1.1\r\n"
    + HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"f" * 20
    + b"\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown method": b"BREW / HTTP/1.1\r\n" + HEAD + b"\r\n",
    "bytes in the path": get(b"/tasks/\xff\xfe"),
    "a NUL in the path": get(b"/tasks/\0"),
    "a path of 50 KB": get(b"/tasks/" + b"x" * 50_000).replace(b"/tasks/", b"tasks/"),
    "a NUL in a header": post(head=HEAD + b"X: a\0b\r\n"),
    "a folded header": post(head=HEAD + b"X: a\r\n b\r\n"),
    "a space before the colon": post(head=b"Host : x\r\n"),
    "a connection to elsewhere": b"CONNECT elsewhere.test:443 HTTP/1.1\r\n" + HEAD + b"\r\n",
    "every byte": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("name", NOT_HTTP)
def test_what_is_not_http_is_refused_and_its_connection_closed(watched: Watched, name: str) -> None:
    before = watched.state()
    assert 400 <= status(told(watched, NOT_HTTP[name])) < 500
    assert watched.state() == before


ODD: dict[str, tuple[bytes, int]] = {
    "no host": (b"GET /tasks/nobody HTTP/1.1\r\n\r\n", 404),
    "an absolute address": (get(b"http://elsewhere.test/tasks/nobody"), 404),
    "HTTP/1.0": (b"GET /tasks/nobody HTTP/1.0\r\n\r\n", 404),
    "HTTP/0.9": (b"GET /tasks/nobody\r\n\r\n", 404),
    "an upgrade": (get(b"/tasks/nobody", HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\n"), 404),
    "an unknown expectation": (post(head=HEAD + b"Expect: miracles\r\n"), 200),
    "bytes in headers": (post(head=HEAD + b"Idempotency-Key: \xff\r\nTraceparent: \xfe\r\nA2A-Extensions: \xff,,\r\n"), 200),
    "a version of bytes": (post(head=HEAD.replace(b"1.0", b"\xff")), 200),
    "a type of bytes": (post(b"{}", head=b'Content-Type: \xff"\r\n', path=b"/message:send"), 400),
    "another type": (post(b"<a/>", head=b"Content-Type: text/xml\r\n", path=b"/message:send"), 400),
    "a thousand headers": (post(head=HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(1_000))), 200),
    "chunks": (chunked(BODY[:5], BODY[5:]), 200),
    "chunks of one byte": (chunked(*(BODY[n : n + 1] for n in range(len(BODY)))), 200),
    "packed": (post(head=HEAD + b"Content-Encoding: gzip\r\n"), 200),
    "a body for a GET": (get(b"/tasks/nobody", HEAD + b"Content-Length: 3\r\n") + b"abc", 404),
    "more than asked for": (get(b"/tasks/nobody", HEAD + b"Connection: close\r\n") + b"rest", 404),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_answered_as_its_content_deserves(watched: Watched, name: str) -> None:
    data, expected = ODD[name]
    assert status(told(watched, data, until=b"}")) == expected


def test_an_expectation_is_met_before_the_body_comes(watched: Watched) -> None:
    with closing(Line(watched)) as line:
        line.send(post(b"", head=HEAD + b"Expect: 100-continue\r\n", length=len(BODY)))
        assert line.read(until=b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.send(BODY)
        assert status(line.read(until=b"}")) == 200


def test_requests_in_one_packet_are_all_answered_in_order(watched: Watched) -> None:
    calls = [{"jsonrpc": "2.0", "id": n, "method": "GetTask", "params": {"id": "x"}} for n in range(60)]
    data = b"".join(post(json.dumps(call).encode()) for call in calls)
    with closing(Line(watched)) as line:
        line.send(data)
        answer = line.read(until=b'"id":59,')
    ids = [json.loads(part)["id"] for part in _bodies(answer + b"\n")]
    assert ids == list(range(59))


def _bodies(answers: bytes) -> list[bytes]:
    """The bodies of answers, but for the last one, which may be cut."""
    return [part.split(b"\r\n\r\n", 1)[1] for part in answers.split(b"HTTP/1.1 200 OK\r\n")[1:-1]]


# --- too much ------------------------------------------------------------------------------------

FLOODS: dict[str, bytes] = {
    "100,000 headers": b"POST / HTTP/1.1\r\n"
    + b"".join(b"X-%d: y\r\n" % n for n in range(100_000))
    + b"\r\n",
    "a header of 1 MB": post(head=HEAD + b"X: " + b"y" * 1_000_000 + b"\r\n"),
    "a header without end": b"POST / HTTP/1.1\r\nX: " + b"y" * 3_000_000,
    "a name without end": b"POST / HTTP/1.1\r\n" + b"y" * 3_000_000,
    "a path without end": b"GET /" + b"y" * 3_000_000,
    "a path of 80 KB": get(b"/tasks/" + b"y" * 80_000),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_headers_is_stopped(watched: Watched, name: str) -> None:
    answer = told(watched, FLOODS[name])
    # A reset may overtake the answer when more was sent than was read.
    assert answer == b"" or status(answer) in (400, 431)


@pytest.mark.parametrize(
    "path", [b"/", b"/message:send", b"/v1/message:send", b"/tasks/send", b"/api/handoffs"]
)
def test_a_body_over_the_limit_is_refused_in_the_protocol_it_came_by(watched: Watched, path: bytes) -> None:
    before = watched.state()
    head = HEAD.replace(b"1.0", b"0.3") if path.startswith(b"/v1/") else HEAD
    answer = told(watched, post(b"x" * 11_000_000, path=path, head=head), until=b"}}")
    assert status(answer) == 413
    body = json.loads(answer.split(b"\r\n\r\n", 1)[1])
    assert "10485760" in json.dumps(body)
    assert watched.state() == before


@pytest.mark.parametrize("lies", [False, True], ids=["by its length", "by its chunks"])
def test_a_body_of_50_mb_is_not_read_to_its_end(watched: Watched, lies: bool) -> None:
    before = watched.state()
    data = chunked(*[b"y" * 65_536] * 800) if lies else post(b"y" * 50_000_000)
    answer = told(watched, data, until=b"}}")
    assert status(answer) == 413
    assert watched.state() == before


MEGABYTES = 4_500_000
HEAVY: dict[str, bytes] = {
    "open brackets": b"[" * MEGABYTES,
    "brackets in brackets": b"[" * (MEGABYTES // 2) + b"]" * (MEGABYTES // 2),
    "deep brackets side by side": b"[" + (b"[" * 55 + b"]" * 55 + b",") * (MEGABYTES // 111) + b"1]",
    "large numbers": b"[" + b"1e308," * (MEGABYTES // 6) + b"1]",
    "too large numbers": b"[" + b"1e309," * (MEGABYTES // 6) + b"1]",
    "one long number": b"9" * MEGABYTES,
    "quotes": b'["' + b'","' * (MEGABYTES // 3) + b'"]',
    "backslashes": b'"' + b"\\" * MEGABYTES + b'"',
    "members": b"{" + b'"a":1,' * (MEGABYTES // 6) + b'"a":1}',
}


@pytest.mark.parametrize(
    ("name", "path"),
    [(name, b"/") for name in HEAVY]
    + [("deep brackets side by side", b"/api/agents"), ("large numbers", b"/api/agents")],
)
def test_no_body_within_the_limit_holds_the_others_up(watched: Watched, name: str, path: bytes) -> None:
    """Such a body costs less than a second; what took time out of proportion took 4 to 50."""
    inner = HEAVY[name]
    body = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"metadata":%b}}' % inner
    if path != b"/":
        body = b'{"agent_id":"x","task":"x","capabilities":%b}' % inner
    began = time.process_time()
    answer = told(watched, post(body, path=path), until=b"}")
    assert answer
    assert time.process_time() - began < 3.0


# --- half of it ----------------------------------------------------------------------------------

HALVES: dict[str, tuple[bytes, int]] = {
    "half a head": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-", 408),
    "half a body": (post(length=5_000), 408),
    "half a body below /api": (post(length=5_000, path=b"/api/agents"), 408),
    "a length that lies by far": (post(b"x", length=9_000_000), 408),
    "chunks without an end": (chunked(BODY, end=b""), 408),
    "nothing": (b"", 0),
}


@pytest.mark.parametrize("name", HALVES)
def test_half_a_request_is_waited_for_no_longer_than_said(watched: Watched, name: str) -> None:
    data, expected = HALVES[name]
    before = watched.state()
    began = time.monotonic()
    answer = told(watched, data)
    assert ARRIVAL_S * 0.9 <= time.monotonic() - began < LONG_S
    assert (status(answer) if answer else 0) == expected
    assert watched.state() == before


@pytest.mark.parametrize("data", [post()[:-1], get(b"/tasks/nobody")[:-1]], ids=["body", "head"])
def test_a_request_that_trickles_in_is_cut_off(watched: Watched, data: bytes) -> None:
    began = time.monotonic()
    with closing(Line(watched)) as line:
        line.socket.settimeout(0.05)
        answer = b""
        for byte in data * 100:
            try:
                line.socket.send(bytes([byte]))
                answer += line.socket.recv(1_000)
                if answer:
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert time.monotonic() - began < LONG_S
    assert status(answer) == 408


def test_who_sends_on_and_on_after_the_refusal_is_cut_off(watched: Watched) -> None:
    began = time.monotonic()
    with closing(Line(watched)) as line:
        line.send(post(b"x", length=10**15))
        assert status(line.read(until=b"}}")) == 413
        with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012 - the loop is the client
            while time.monotonic() - began < LONG_S:
                line.send(b"y" * 10_000)
                time.sleep(0.02)
    assert time.monotonic() - began < LONG_S


def test_an_answer_may_take_longer_than_a_request(watched: Watched) -> None:
    """Both a caller that waits and one that follows: it is the agent who is slow."""
    done = watched.broker.send(context={"target_agent": "slow"})
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    events = list(watched.broker.events(context={"target_agent": "slow"}))
    assert events[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_caller_that_leaves_halfway_leaves_nothing_behind(watched: Watched) -> None:
    before = watched.state()
    for data in (b"POST", post(length=500), post()[:-10], b"POST / HTTP/1.1\r\nX"):
        with closing(Line(watched)) as line:
            line.send(data)
    assert watched.state() == before
