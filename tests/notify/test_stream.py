"""The log as a stream of CloudEvents: complete, in order, once, over crashes of broker and server."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.api import StreamConfig

from a2a_handoff.notify.jetstream import NatsStream, StreamPlan, token
from a2a_handoff.notify.link import Access, NatsLink
from a2a_handoff.ports import Appended, Entry, StreamUnavailable
from tests.notify.follower import Heard, events
from tests.support.nats import Nats, nats_server
from tests.support.running import broker
from tests.support.served import served
from tests.support.wire import eventually, metric

WAIT_S = 20.0
_NOBODY = {"capabilities": ["canFly"]}


@pytest.fixture
def server(tmp_path: Path) -> Generator[Nats]:
    (tmp_path / "nats").mkdir()
    with nats_server(tmp_path / "nats") as running:
        yield running


def _settings(server: Nats, **more: Any) -> dict[str, Any]:
    return {"nats": server.url, "nats_stream": "events"} | more


def _hand_off(b: Any, task: str = "do it", **body: Any) -> str:
    """One that nobody can do: it goes back at once."""
    asked = {"task": task, "source_agent": "shop", "requirements": _NOBODY}
    answer = b.http.post("/api/handoffs", json=asked | body)
    assert answer.status_code == 201, answer.text
    return answer.json()["handoff_id"]


def _tail(b: Any) -> list[dict[str, Any]]:
    """The log over HTTP, up to its end by now."""
    found: list[dict[str, Any]] = []
    last = b.http.get("/api/handoffs").json()["total"]
    with b.http.stream("GET", "/api/events?after=0") as answer:
        ends = 0
        for line in answer.iter_lines():
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:")))
                ends += found[-1]["type"] == "a2a-handoff.handoff_returned"
                if ends == last:
                    return found
    raise AssertionError(found)


def _whole(heard: list[Heard]) -> None:
    """Each handoff's events are all there, once, in order."""
    seen: dict[str, int] = {}
    for each in heard:
        subject = each.event["subject"]
        assert each.event["seq"] == seen.get(subject, 0) + 1, each
        seen[subject] = each.event["seq"]
        assert each.id == f"{subject}/{each.event['seq']}" == each.headers["Nats-Msg-Id"]
    assert all(one.event["position"] < next_one.event["position"] for one, next_one in pairwise(heard))


# --- what is told --------------------------------------------------------------------------------


def test_the_stream_has_the_same_cloudevents_as_the_log_over_http(tmp_path: Path, server: Nats) -> None:
    with broker(tmp_path, **_settings(server), jaeger_url="http://jaeger.test") as b:
        for number in range(3):
            _hand_off(b, f"task {number}")
        told = _tail(b)
        heard = events(server.url, least=len(told))
    assert [each.event for each in heard] == told
    _whole(heard)
    first = heard[0]
    assert first.subject == "handoff.default.handoff_requested"
    assert first.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    _, trace_id, span_id, _ = first.headers["traceparent"].split("-")
    assert trace_id == first.event["traceid"]
    assert len(span_id) == 16


def test_a_workspace_can_be_followed_alone(tmp_path: Path, server: Nats) -> None:
    with broker(tmp_path, **_settings(server)) as b:
        mine = _hand_off(b, workspace="qa")
        _hand_off(b)
        heard = events(server.url, subject="handoff.qa.*", least=4)
        ends = events(server.url, subject="handoff.*.handoff_returned")
    assert {each.event["subject"] for each in heard} == {mine}
    assert len(ends) == 2


def test_what_was_in_the_log_before_the_first_start_is_not_told(tmp_path: Path, server: Nats) -> None:
    with broker(tmp_path) as b:
        _hand_off(b)
    with broker(tmp_path, **_settings(server)) as b:
        new = _hand_off(b)
        heard = events(server.url, least=2)
    assert {each.event["subject"] for each in heard} == {new}


def test_c075_an_event_that_is_too_large_for_the_server_goes_without_its_data(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    with (
        nats_server(tmp_path / "nats", "max_payload: 16KB") as server,
        broker(tmp_path, **_settings(server)) as b,
    ):
        handoff_id = _hand_off(b, "x" * 100, context={"notes": "y" * 1_500}, message_id="m")
        large = b.http.post(
            "/api/handoffs",
            json={
                "source_agent": "shop",
                "requirements": _NOBODY,
                "message": {
                    "messageId": "l",
                    "role": "ROLE_USER",
                    "parts": [{"text": "read it"}, {"data": {"z": "z" * 50_000}}],
                },
            },
        )
        assert large.status_code == 201, large.text
        heard = events(server.url, least=4)
        _whole(heard)
        cut = [each for each in heard if "dataref" in each.event]
        assert [each.event["subject"] for each in cut] == [large.json()["handoff_id"]]
        assert "data" not in cut[0].event
        (page,) = b.http.get(cut[0].event["dataref"]).json()["events"]
        assert page["id"] == cut[0].id
        assert handoff_id in {each.event["subject"] for each in heard}


# --- subjects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", "default"),
        ("my-team_2", "my-team_2"),
        ("a.b", "a%2Eb"),
        ("*", "%2A"),
        (">", "%3E"),
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("~", "%7E"),
        ("%", "%25"),
        ("é", "%C3%A9"),
        ("", "%"),
    ],
)
def test_a_name_is_one_token_of_a_subject(name: str, expected: str) -> None:
    assert token(name) == expected


@given(st.lists(st.text(max_size=200), min_size=2, max_size=2, unique=True))
def test_distinct_names_are_distinct_tokens_without_wildcards(names: list[str]) -> None:
    one, other = map(token, names)
    assert one != other
    for made in (one, other):
        assert made.isascii()
        assert made.isprintable()
        assert 0 < len(made) <= 120
        assert not set(made) & set(".*> /\r\n\t")


@pytest.mark.parametrize("workspace", ["handoff.*", ">", "a.b.c", "team one", "名" * 150, "$JS.API", "*"])
def test_no_name_of_a_workspace_reaches_the_subjects_of_another(
    tmp_path: Path, server: Nats, workspace: str
) -> None:
    with broker(tmp_path, **_settings(server)) as b:
        mine = _hand_off(b, workspace=workspace)
        heard = events(server.url, subject=f"handoff.{token(workspace)}.*", least=2)
        assert {each.event["subject"] for each in heard} == {mine}
        assert events(server.url, subject="handoff.default.*") == []


# --- crashes -------------------------------------------------------------------------------------


def test_a_broker_that_was_killed_goes_on_where_the_stream_ends(tmp_path: Path, server: Nats) -> None:
    with served(tmp_path, forked=True, **_settings(server)) as b:
        made: list[str] = []
        for _ in range(3):
            made += [_hand_off(b) for _ in range(5)]
            b.kill()
            b.start()
        made.append(_hand_off(b))
        for handoff_id in made:
            b.ended(handoff_id)
        count = sum(len(b.events(handoff_id)) for handoff_id in made)
        heard = events(server.url, least=count)
    assert len(heard) == count
    _whole(heard)


@pytest.mark.parametrize("end", [Nats.kill, Nats.stop])
def test_a_server_that_was_restarted_gets_what_happened_meanwhile(
    tmp_path: Path, server: Nats, end: Callable[[Nats], None]
) -> None:
    with broker(tmp_path, **_settings(server)) as b:
        made = [_hand_off(b)]
        for _ in range(2):
            end(server)
            made += [_hand_off(b) for _ in range(3)]
            eventually(lambda: "events do not reach" in b.http.get("/readyz").text)
            eventually(lambda: metric(b.http.get("/metrics").text, "handoff_events_lag_seconds") > 0)
            server.start()
            eventually(lambda: b.http.get("/readyz").text == "ready\n", within_s=WAIT_S)
        count = sum(len(b.log(handoff_id)) for handoff_id in made)
        heard = events(server.url, least=count)
        assert len(heard) == count
        _whole(heard)
        eventually(lambda: metric(b.http.get("/metrics").text, "handoff_events_lag_seconds") == 0)
        assert metric(b.http.get("/metrics").text, "handoff_events_published_total") == count


def test_what_a_server_lost_when_its_machine_crashed_is_told_again_in_the_same_places(
    tmp_path: Path, server: Nats
) -> None:
    kept, copy = server.folder / "jetstream", tmp_path / "copy"

    def told(b: Any, made: list[str]) -> list[tuple[int, str]]:
        count = sum(len(b.log(handoff_id)) for handoff_id in made)
        heard = events(server.url, least=count, within_s=2 * WAIT_S)
        assert len(heard) == count
        _whole(heard)
        return [(each.sequence, each.id) for each in heard]

    with broker(tmp_path, **_settings(server)) as b:
        made = [_hand_off(b)]
        told(b, made)
        server.stop()
        shutil.copytree(kept, copy)  # what had reached the disk
        server.start()
        made += [_hand_off(b) for _ in range(3)]
        before = told(b, made)
        server.kill()
        shutil.rmtree(kept)
        shutil.copytree(copy, kept)
        server.start()
        made.append(_hand_off(b))
        assert told(b, made)[: len(before)] == before


def test_a_server_that_says_nothing_holds_no_handoff_up(tmp_path: Path, server: Nats) -> None:
    with broker(tmp_path, **_settings(server)) as b:
        made = [_hand_off(b)]
        server.freeze()
        began = time.monotonic()
        made += [_hand_off(b) for _ in range(20)]
        assert time.monotonic() - began < WAIT_S / 2
        eventually(lambda: "NATS is away" in b.http.get("/readyz").text, within_s=WAIT_S)
        server.thaw()
        count = sum(len(b.log(handoff_id)) for handoff_id in made)
        heard = events(server.url, least=count, within_s=2 * WAIT_S)
    assert len(heard) == count
    _whole(heard)


def test_a_broker_that_died_between_the_stream_and_its_mark_tells_nothing_twice(
    tmp_path: Path, server: Nats
) -> None:
    with broker(tmp_path, **_settings(server)) as b:
        made = [_hand_off(b) for _ in range(4)]
        count = sum(len(b.log(handoff_id)) for handoff_id in made)
        events(server.url, least=count)
    with broker(tmp_path) as b:
        b.loop.run(b.app.store.set_mark("events", 2))  # as if it had died before it moved the mark
    with broker(tmp_path, **_settings(server)) as b:
        made.append(_hand_off(b))
        count += len(b.log(made[-1]))
        heard = events(server.url, least=count)
    assert len(heard) == count
    _whole(heard)


def test_what_was_removed_from_the_stream_does_not_come_back(tmp_path: Path, server: Nats) -> None:
    async def purge() -> None:
        client = await nats.connect(server.url)
        await client.jetstream().purge_stream("events")
        await client.close()

    with broker(tmp_path, **_settings(server)) as b:
        old = _hand_off(b)
        events(server.url, least=len(b.log(old)))
        eventually(lambda: b.loop.run(b.app.store.get_mark("events")) == b.loop.run(b.app.store.log_end()))
    asyncio.run(purge())
    with broker(tmp_path, **_settings(server)) as b:
        new = _hand_off(b)
        heard = events(server.url, least=len(b.log(new)))
    assert {each.event["subject"] for each in heard} == {new}


def test_a_stream_that_was_deleted_is_made_again(tmp_path: Path, server: Nats) -> None:
    async def delete() -> None:
        client = await nats.connect(server.url)
        await client.jetstream().delete_stream("events")
        await client.close()

    with broker(tmp_path, **_settings(server)) as b:
        old = _hand_off(b)
        events(server.url, least=len(b.log(old)))
        asyncio.run(delete())
        new = _hand_off(b)
        heard = events(server.url, least=len(b.log(new)))
    assert new in {each.event["subject"] for each in heard}


# --- one stream, several brokers -----------------------------------------------------------------


def _entry(number: int) -> Entry:
    return Entry(
        id=f"h/{number}",
        log="1",
        position=number,
        place=("default",),
        name="handoff_requested",
        body=b"{}",
        traceparent=f"00-{'1' * 32}-{'2' * 16}-01",
    )


async def _stream(url: str) -> tuple[NatsLink, NatsStream]:
    link = NatsLink(Access(servers=(url,)), name="test")
    link.start()
    async with asyncio.timeout(WAIT_S):
        while link.client is None:  # noqa: ASYNC110 - it tells one listener, which is not this test
            await asyncio.sleep(0.01)
    return link, NatsStream(link, StreamPlan(name="events", prefix="handoff"))


def test_of_two_publishers_one_is_refused_and_the_order_holds(server: Nats) -> None:
    async def scene() -> list[Any]:
        (one_link, one), (other_link, other) = await _stream(server.url), await _stream(server.url)
        try:
            start = await one.end()
            assert await other.end() == start
            first = await one.append([_entry(1), _entry(2)], after=start.sequence)
            refused = await other.append([_entry(1), _entry(2)], after=start.sequence)
            end = await other.end()
            second = await other.append([_entry(3)], after=end.sequence)
            return [first, refused.taken, end.position, end.whole, second, (await one.end()).position]
        finally:
            await one_link.close()
            await other_link.close()

    assert asyncio.run(scene()) == [
        Appended(taken=2, sequence=2),
        0,
        2,
        True,
        Appended(taken=1, sequence=3),
        3,
    ]
    assert [each.headers["Nats-Msg-Id"] for each in events(server.url)] == ["h/1", "h/2", "h/3"]


@pytest.mark.parametrize("subjects", [["handoff.*.*", "else"], ["handoff.default.*"], ["other"]])
def test_a_stream_with_other_subjects_is_left_alone(server: Nats, subjects: list[str]) -> None:
    async def scene() -> str:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(StreamConfig(name="events", subjects=subjects))
        await client.close()
        link, stream = await _stream(server.url)
        try:
            await stream.end()
        except StreamUnavailable as error:
            return str(error)
        finally:
            await link.close()
        return ""

    assert asyncio.run(scene()) == "the stream events must have the one subject handoff.*.*"


def test_a_stream_that_is_there_is_used_as_it_is(tmp_path: Path, server: Nats) -> None:
    async def make() -> None:
        client = await nats.connect(server.url)
        config = StreamConfig(name="mine", subjects=["blue.>"], max_msgs=3)
        await client.jetstream().add_stream(config)
        await client.close()

    asyncio.run(make())
    with broker(tmp_path, **_settings(server, nats_stream="mine", nats_prefix="blue")) as b:
        made = [_hand_off(b) for _ in range(3)]
        last = b.log(made[-1])[-1]
        eventually(lambda: _last(server) == [last] * bool(last))
        assert len(events(server.url, stream="mine", subject="blue.>")) == 3


def test_a_stream_that_is_made_has_the_limits_of_the_settings(tmp_path: Path, server: Nats) -> None:
    async def config() -> StreamConfig:
        client = await nats.connect(server.url)
        info = await client.jetstream().stream_info("events")
        await client.close()
        return info.config

    with broker(tmp_path, **_settings(server), nats_stream_age=3_600, nats_stream_size=2_000_000) as b:
        made = _hand_off(b)
        events(server.url, least=len(b.log(made)))
        found = asyncio.run(config())
    assert found.subjects == ["handoff.*.*"]
    assert (found.max_age, found.max_bytes, found.num_replicas) == (3_600, 2_000_000, 1)
    assert (found.storage, found.duplicate_window) == ("file", 120)


def test_a_broker_that_stops_has_told_what_it_did(
    tmp_path: Path, server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_handoff.outbox.LAST_S", WAIT_S)  # a busy machine is no fault
    with broker(tmp_path, **_settings(server)) as b:
        outbox = b.app.service.outbox
        assert outbox is not None
        made = [_hand_off(b)]
        eventually(lambda: outbox.published)
        made += [_hand_off(b) for _ in range(10)]
        count = sum(len(b.log(handoff_id)) for handoff_id in made)
    assert len(events(server.url, least=count)) == count


def _last(server: Nats) -> list[str]:
    heard = events(server.url, stream="mine", subject="blue.>")
    return [each.event["type"].removeprefix("a2a-handoff.") for each in heard][-1:]


def test_without_jetstream_the_broker_says_so_and_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "nats").mkdir()
    with (
        nats_server(tmp_path / "nats", jetstream=False) as server,
        broker(tmp_path, **_settings(server)) as b,
    ):
        eventually(lambda: "events do not reach" in b.http.get("/readyz").text)
        assert b.http.get("/readyz").status_code == 200
        assert _hand_off(b)
    assert "events are not told to the stream now" in caplog.text
