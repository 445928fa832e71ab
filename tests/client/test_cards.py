"""Finding a card at an address that somebody named."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from a2a_handoff.client import WellKnownCardFetcher
from a2a_handoff.client.cards import places
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import FetchedCard
from a2a_handoff.security.urls import OutboundPolicy
from tests.client.raw_server import Handler, Request, answer, closed_port, for_ever, raw_server, run, says

CARD = {"name": "a", "url": "http://a/", "skills": [], "x": 1.10}
NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"


def serves(*paths: str, body: bytes | None = None) -> Handler:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        found = request.path in paths
        said = json.dumps(CARD).encode() if body is None else body
        writer.write(answer(said, headers='ETag: "e1"\r\n') if found else answer(b"<html>", 404, "text/html"))
        await writer.drain()

    return handler


def fetcher(*, allow_private: bool = True, timeout_s: float = 10.0) -> WellKnownCardFetcher:
    return WellKnownCardFetcher(OutboundPolicy(allow_private=allow_private), timeout_s=timeout_s)


async def found_at(path: str, *served: str) -> tuple[FetchedCard, list[str]]:
    async with raw_server(serves(*served)) as server:
        card = await fetcher().fetch(f"http://127.0.0.1:{server.port}{path}")
        return card, [request.path for request in server.requests]


@pytest.mark.parametrize(
    ("path", "served", "asked"),
    [
        ("", NEW, [NEW]),
        ("/", OLD, [NEW, OLD]),
        ("/cards/a.json", "/cards/a.json", ["/cards/a.json"]),
        ("/cards/a.json?v=1", "/cards/a.json?v=1", ["/cards/a.json?v=1"]),
        ("/a2a", NEW, ["/a2a", "/a2a" + NEW, "/a2a" + OLD, NEW]),
        ("/team/x", "/team/x" + NEW, ["/team/x", "/team/x" + NEW]),
        ("/team/x/", "/team/x" + OLD, ["/team/x/", "/team/x" + NEW, "/team/x" + OLD]),
        ("/a2a", OLD, ["/a2a", "/a2a" + NEW, "/a2a" + OLD, NEW, OLD]),
    ],
)
def test_c008_the_address_itself_then_below_it_then_the_origin(
    path: str, served: str, asked: list[str]
) -> None:
    card, paths = run(found_at(path, served))
    assert paths == asked
    assert card.url.endswith(served)
    assert card.body == json.dumps(CARD).encode()
    assert card.etag == '"e1"'


@pytest.mark.parametrize("served", [NEW, OLD])
def test_c007_agents_of_both_generations_are_found_and_the_place_is_told(served: str) -> None:
    card, _ = run(found_at("", served))
    assert card.url.endswith(served)


def test_places_are_named_once() -> None:
    assert places("http://h/.well-known/agent-card.json")[0] == "http://h" + NEW
    assert len(places("http://h")) == 2
    assert places("http://h/x#fragment")[0] == "http://h/x"


REFUSALS = [
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1:5432/",
    "file:///etc/passwd",
    "ftp://a/",
    "http://",
    "nonsense",
    "http://[::1/",
    "http://nobody.invalid/",
]


def test_c010_every_failure_has_the_same_text() -> None:
    async def body() -> None:
        texts = set[str]()
        for url in REFUSALS:
            with pytest.raises(HandoffError) as caught:
                await fetcher(allow_private=False).fetch(url)
            assert caught.value.code is Code.CARD_UNAVAILABLE
            texts.add(caught.value.message)
        nasty = [says(), says(answer(b"{}")), says(answer(b"[]")), says(b"SSH\r\n\r\n")]
        for handler in nasty:
            async with raw_server(handler) as server:
                with pytest.raises(HandoffError) as caught:
                    await fetcher().fetch(server.url)
                texts.add(caught.value.message)
        with pytest.raises(HandoffError) as caught:
            await fetcher().fetch(f"http://127.0.0.1:{closed_port()}/")
        texts.add(caught.value.message)
        assert len(texts) == 1

    run(body())


def test_c010_no_connection_is_made_to_private_space() -> None:
    async def body() -> None:
        async with raw_server(serves(NEW)) as server:
            for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
                with pytest.raises(HandoffError):
                    await fetcher(allow_private=False).fetch(f"http://{host}:{server.port}/")
            assert not server.open
            assert not server.requests

    run(body())


def test_c010_a_redirect_is_not_followed() -> None:
    async def body() -> None:
        async with raw_server(serves("/card")) as inner:
            moved = answer(b"", 302, headers=f"Location: http://127.0.0.1:{inner.port}/card\r\n")
            async with raw_server(says(moved)) as server:
                with pytest.raises(HandoffError):
                    await fetcher().fetch(server.url)
            assert not inner.requests

    run(body())


def test_a_body_over_one_mebibyte_is_no_card() -> None:
    async def body() -> None:
        large = json.dumps({**CARD, "description": "x" * 1_048_576}).encode()
        async with raw_server(serves(NEW, body=large)) as server:
            with pytest.raises(HandoffError):
                await fetcher().fetch(f"http://127.0.0.1:{server.port}")

    run(body())


@pytest.mark.parametrize(
    "body",
    [b'{"name":"a"}', b'{"url":"http://a/"}', b'{"name":"a","url":"\xff"}', b'{"name":"a","url":NaN}', b""],
)
def test_what_only_looks_like_json_is_no_card(body: bytes) -> None:
    async def check() -> None:
        async with raw_server(serves(NEW, body=body)) as server:
            with pytest.raises(HandoffError):
                await fetcher().fetch(f"http://127.0.0.1:{server.port}")

    run(check())


def test_the_whole_search_has_one_time_limit() -> None:
    async def body() -> None:
        async with raw_server(for_ever) as server:
            began = time.monotonic()
            with pytest.raises(HandoffError):
                await fetcher(timeout_s=0.2).fetch(server.url)
            assert time.monotonic() - began < 2

    run(body())


@pytest.mark.parametrize(
    ("content_type", "taken"),
    [
        ("application/json", True),
        ("application/a2a+json; charset=utf-8", True),
        ("text/plain", True),
        ("application/octet-stream", True),
        ("text/html", False),
        ("application/xml", False),
        ("image/png", False),
    ],
)
def test_what_is_served_as_something_else_is_no_card(content_type: str, *, taken: bool) -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(json.dumps(CARD).encode(), kind=content_type))
        await writer.drain()

    async def story() -> None:
        async with raw_server(handler) as server:
            await fetcher().fetch(f"http://127.0.0.1:{server.port}/c.json")

    if taken:
        run(story())
        return
    with pytest.raises(HandoffError) as caught:
        run(story())
    assert caught.value.code is Code.CARD_UNAVAILABLE


def test_a_card_that_did_not_change_is_not_sent_again() -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        same = request.headers.get("if-none-match") == '"e1"'
        if same:
            writer.write(b'HTTP/1.1 304 Not Modified\r\nETag: "e1"\r\nConnection: close\r\n\r\n')
        else:
            writer.write(answer(json.dumps(CARD).encode(), headers='ETag: "e1"\r\n'))
        await writer.drain()

    async def story() -> None:
        async with raw_server(handler) as server:
            url = f"http://127.0.0.1:{server.port}/c.json"
            first = await fetcher().fetch(url)
            assert await fetcher().fetch_changed(url, first.etag) is None
            again = await fetcher().fetch_changed(url, '"e0"')
            assert again == first

    run(story())
