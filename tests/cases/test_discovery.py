"""Known faults of card discovery and registration: c007 to c014 of docs/reference/cases.md."""

from __future__ import annotations

import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.support.agents import Agent, card, completes
from tests.support.running import Ahead, Broker, bound_socket, broker, kept_port, running

WELL_KNOWN = "/.well-known/agent-card.json"
OLD_WELL_KNOWN = "/.well-known/agent.json"


@dataclass
class Site:
    """An agent whose card stands at the paths in ``pages``; POST is answered by ``agent``."""

    pages: dict[str, Any] = field(default_factory=dict)
    agent: Agent = field(default_factory=lambda: Agent(completes))
    asked: list[str] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await self.agent(scope, receive, send)
            return
        path = scope["path"]
        self.asked.append(path)
        status, headers, body = 404, [(b"content-type", b"application/json")], b'{"error":"nothing here"}'
        if path in self.redirects:
            status, headers = 302, [(b"location", self.redirects[path].encode())]
        elif path in self.pages:
            status, body = 200, msgspec.json.encode(self.pages[path])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def trap() -> Generator[tuple[socket.socket, int]]:
    """A listening socket that nobody may connect to, and its port."""
    with bound_socket() as listening:
        listening.listen()
        listening.setblocking(False)
        yield listening, listening.getsockname()[1]


def untouched(listening: socket.socket) -> bool:
    """Whether nobody has connected."""
    try:
        connection, _ = listening.accept()
    except BlockingIOError:
        return True
    connection.close()
    return False


def resolve(b: Broker, **requirements: Any) -> dict[str, Any]:
    """Who would get a handoff."""
    answer = b.http.post("/api/resolve", json={"source_agent": "triage", "requirements": requirements})
    assert answer.status_code == 200, answer.text
    return answer.json()


def candidates(b: Broker, **requirements: Any) -> list[str]:
    return [each["agent_id"] for each in resolve(b, **requirements)["candidates"]]


# --- c007: the two well-known paths --------------------------------------------------------------


def test_c007_both_paths_serve_one_card_that_clients_can_keep(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        new, old = b.http.get(WELL_KNOWN), b.http.get(OLD_WELL_KNOWN)
        with_token = b.http.get(OLD_WELL_KNOWN, headers={"Authorization": "Bearer anything"})
    assert new.status_code == old.status_code == with_token.status_code == 200
    assert new.content == old.content == with_token.content
    assert new.headers["etag"] == old.headers["etag"]
    assert "max-age" in new.headers["cache-control"]


@pytest.mark.parametrize("path", [WELL_KNOWN, OLD_WELL_KNOWN])
def test_c007_a_card_that_is_known_is_not_sent_again_until_it_changes(tmp_path: Path, path: str) -> None:
    with broker(tmp_path) as b:
        etag = b.http.get(path).headers["etag"]
        for named in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            again = b.http.get(path, headers={"If-None-Match": named})
            assert (again.status_code, again.content) == (304, b""), named
            assert again.headers["etag"] == etag
        assert b.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
        b.register("painter", card=card("http://127.0.0.1:9", skills=("paint",)))
        changed = b.http.get(path, headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag
    assert "paint" in [skill["id"] for skill in changed.json()["skills"]]


@pytest.mark.parametrize("path", [WELL_KNOWN, OLD_WELL_KNOWN])
def test_c007_an_agent_that_has_one_of_the_paths_only_is_found_and_the_path_remembered(
    tmp_path: Path, path: str
) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path) as b:
        site.pages[path] = card(url)
        agent = b.register("one", card_url=url)
        assert agent["card_url"] == url + path
        assert site.asked == [WELL_KNOWN, OLD_WELL_KNOWN][: 1 if path == WELL_KNOWN else 2]
        site.asked.clear()
        b.loop.run(b.app.registry.cards.refresh_all())
        assert site.asked == [path]
        task = b.send(context={"target_agent": "one"})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


# --- c008: where a card may stand ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ("/a2a", WELL_KNOWN),
        ("/team/x", "/team/x" + WELL_KNOWN),
        ("/team/x/", "/team/x" + OLD_WELL_KNOWN),
        ("/cards/mine.json", "/cards/mine.json"),
    ],
)
def test_c008_a_card_is_looked_for_at_the_address_below_it_and_at_the_origin(
    tmp_path: Path, given: str, served: str
) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path) as b:
        site.pages[served] = card(url + "/a2a")
        assert b.register("nested", card_url=url + given)["card_url"] == url + served
        task = b.send(context={"target_agent": "nested"})
        view = b.http.get("/api/agents/nested").json()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (view["present"], view["failed"]) == (True, 0)


# --- c009: agents that serve no card at all ------------------------------------------------------


def test_c009_an_agent_whose_card_was_sent_along_works_though_it_serves_none(tmp_path: Path) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path) as b:
        b.register("bare", card=card(url))
        first = b.send(context={"target_agent": "bare"})
        probes = len(site.asked)
        second = b.send(context={"target_agent": "bare"})
    assert first["status"]["state"] == second["status"]["state"] == "TASK_STATE_COMPLETED"
    # Nobody has heard from it before the first handoff: is it there at all? Any answer says yes.
    assert probes == 1
    assert len(site.asked) == 1


def test_c009_an_agent_that_takes_offers_is_never_asked_for_its_card(tmp_path: Path) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path) as b:
        b.register("polite", card=card(url, speaks=True))
        b.send(context={"target_agent": "polite"})
    assert site.agent.calls
    assert site.asked == []


def test_c009_a_refresh_that_fails_stops_no_traffic(tmp_path: Path) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path) as b:
        site.pages[WELL_KNOWN] = card(url, skills=("paint",))
        b.register("once", card_url=url)
        site.pages.clear()
        assert b.loop.run(b.app.registry.cards.refresh_all()) == 0
        task = b.send(context={"requirements": {"skill": "paint"}})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


# --- c010: addresses that a caller may not make us call ------------------------------------------


def test_c010_no_inner_address_is_called_for_a_card_and_every_refusal_reads_the_same(tmp_path: Path) -> None:
    with trap() as (listening, port), broker(tmp_path, allow_private_addresses=False) as b:
        urls = [
            "http://169.254.169.254/latest/meta-data/",
            f"http://127.0.0.1:{port}/",
            f"http://127.0.0.1:{kept_port()}/",
            f"http://localhost:{port}/",
            f"http://[::ffff:127.0.0.1]:{port}/",
            f"http://2130706433:{port}/",
            "http://[::1]/",
            "http://10.0.0.1/",
            "file:///etc/passwd",
            "gopher://127.0.0.1/",
            "http://user:secret@example.com/",
            "not a url",
        ]
        answers = [b.http.post("/api/agents", json={"agent_id": "x", "card_url": url}) for url in urls]
        assert b.http.get("/api/agents").json()["total"] == 0
        assert untouched(listening)
    assert {answer.status_code for answer in answers} == {422}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["code"] == "card_unavailable"


def test_c010_open_and_closed_ports_read_the_same_where_private_addresses_are_allowed(tmp_path: Path) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path) as b:
        urls = [url, f"http://127.0.0.1:{kept_port()}/", "http://169.254.169.254/latest/meta-data/"]
        answers = [b.http.post("/api/agents", json={"agent_id": "x", "card_url": one}) for one in urls]
    assert site.asked == [WELL_KNOWN, OLD_WELL_KNOWN]
    assert {answer.status_code for answer in answers} == {422}
    assert len({answer.content for answer in answers}) == 1


def test_c010_a_redirect_is_not_followed(tmp_path: Path) -> None:
    site = Site()
    with trap() as (listening, port), running(site) as url, broker(tmp_path) as b:
        site.redirects = dict.fromkeys(
            (WELL_KNOWN, OLD_WELL_KNOWN, "/card"), f"http://127.0.0.1:{port}{WELL_KNOWN}"
        )
        answer = b.http.post("/api/agents", json={"agent_id": "x", "card_url": url + "/card"})
        assert untouched(listening)
    assert (answer.status_code, answer.json()["code"]) == (422, "card_unavailable")


def test_c010_an_inner_address_within_a_card_is_not_called_either(tmp_path: Path) -> None:
    with trap() as (listening, port), broker(tmp_path, allow_private_addresses=False) as b:
        b.register("inner", card=card(f"http://127.0.0.1:{port}/"))
        task = b.send(context={"target_agent": "inner"})
        assert untouched(listening)
        (attempt,) = b.handoff(task["id"])["attempts"]
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert attempt["outcome"] == "target_unavailable"


# --- c011: one agent, several spellings ----------------------------------------------------------


def test_c011_spellings_of_one_address_are_one_agent(tmp_path: Path) -> None:
    spellings = ("http://T.example:80/", "http://t.example", "HTTP://t.example/", "http://t.example.:80")
    with broker(tmp_path) as b:
        answers = [
            b.http.post("/api/agents", json={"card": card(url, name="Billing", skills=("bill",))})
            for url in spellings
        ]
        assert b.http.get("/api/agents").json()["total"] == 1
        assert candidates(b, skill="bill") == ["billing"]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
    assert {answer.json()["agent_id"] for answer in answers} == {"billing"}


def test_c011_twenty_registrations_at_once_make_one_agent(tmp_path: Path) -> None:
    with broker(tmp_path) as b:

        def register(number: int) -> httpx.Response:
            url = "http://t.example" + "/" * (number % 2)
            with httpx.Client(base_url=b.url, trust_env=False) as client:
                return client.post("/api/agents", json={"card": card(url, name="Billing")}, timeout=30)

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(register, range(20)))
        assert b.http.get("/api/agents").json()["total"] == 1
        assert candidates(b, skill="work") == ["billing"]
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]


# --- c012: cards that change ---------------------------------------------------------------------


def test_c012_a_card_that_is_registered_again_routes_at_once(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("worker", card=card("http://127.0.0.1:9", skills=("a", "old")))
        face = "/agents/worker" + WELL_KNOWN
        before = b.http.get(face)
        assert candidates(b, skill="b") == []
        answer = b.http.post(
            "/api/agents",
            json={"agent_id": "worker", "card": card("http://127.0.0.1:9", skills=("a", "b"))},
        )
        assert answer.status_code == 200
        assert candidates(b, skill="b") == ["worker"]
        assert candidates(b, skill="old") == []
        after = b.http.get(face, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.headers["etag"] != before.headers["etag"]
    assert [skill["id"] for skill in after.json()["skills"]] == ["a", "b"]


def test_c012_a_card_that_changes_at_its_address_is_read_again(tmp_path: Path) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path) as b:
        site.pages[WELL_KNOWN] = card(url, skills=("a",))
        b.register("worker", card_url=url)
        site.pages[WELL_KNOWN] = card(url, skills=("b",)) | {"version": "1.1"}
        assert candidates(b, skill="b") == []
        assert b.loop.run(b.app.registry.cards.refresh_all()) == 1
        assert candidates(b, skill="b") == ["worker"]
        assert candidates(b, skill="a") == []
        assert b.http.get("/api/agents/worker").json()["version"] == "1.1"


# --- c013: agents that fall silent ---------------------------------------------------------------


def test_c013_a_silent_agent_is_no_candidate_from_the_moment_on_and_one_heartbeat_brings_it_back(
    tmp_path: Path,
) -> None:
    clock = Ahead()
    with broker(tmp_path, clock=clock, presence=20) as b:
        b.register("puller", capabilities={"canWork": True})
        clock.seconds = 19
        assert candidates(b, capabilities=["canWork"]) == ["puller"]
        clock.seconds = 21
        found = resolve(b, capabilities=["canWork"])
        assert (found["candidates"], found["wait"]) == ([], True)
        assert "was not heard from" in found["passed_over"][0]["reason"]
        assert b.http.get("/api/agents/puller").json()["status"] == "offline"
        clock.seconds = 100
        assert candidates(b, capabilities=["canWork"]) == []
        clock.seconds = 120
        assert b.http.post("/api/agents/puller/heartbeat", json={}).status_code == 200
        assert candidates(b, capabilities=["canWork"]) == ["puller"]


def test_c013_a_heartbeat_of_an_agent_that_is_not_registered_says_so(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        answer = b.http.post("/api/agents/nobody/heartbeat", json={})
    assert (answer.status_code, answer.json()["code"]) == (404, "agent_not_found")


def test_c013_what_a_silent_agent_was_offered_times_out_and_goes_to_the_next(tmp_path: Path) -> None:
    clock = Ahead()
    with running(Agent(completes)) as url, broker(tmp_path, clock=clock, pull_ack_wait=0.2) as b:
        b.register("puller", capabilities={"canWork": True})
        b.register("pusher", card=card(url, capabilities={"canWork": True}))
        context = {"target_agent": "puller", "requirements": {"capabilities": ["canWork"]}}
        task = b.send(context=context, wait=False)
        clock.seconds = 60
        done = b.until(task["id"], "completed")
    told = [(attempt["agent_id"], attempt["outcome"]) for attempt in done["attempts"]]
    assert told == [("puller", "timeout"), ("pusher", None)]


# --- c014: odd cards -----------------------------------------------------------------------------


def _odd(**fields: Any) -> dict[str, Any]:
    skill = {"id": "bill", "name": "Bill", "description": "Bills.", "tags": ["money"]}
    base = card("http://127.0.0.1:9")
    if "skills" in fields:
        return base | fields
    return base | {"skills": [skill | fields]}


@pytest.mark.parametrize(
    ("odd", "skills"),
    [
        (_odd(tags=None), [{"id": "bill", "name": "Bill", "tags": []}]),
        (_odd(tags="billing"), [{"id": "bill", "name": "Bill", "tags": ["billing"]}]),
        (_odd(examples=[{"q": "x"}]), [{"id": "bill", "name": "Bill", "tags": ["money"]}]),
        (_odd(skills=None), []),
        (_odd(skills=[]), []),
        (
            _odd(skills=[{"id": "a", "name": "A", "tags": ["x"]}, {"id": "a", "name": "B", "tags": ["y"]}]),
            [{"id": "a", "name": "A", "tags": ["x", "y"]}],
        ),
    ],
    ids=["null tags", "tags as text", "examples as objects", "null skills", "no skills", "one id twice"],
)
def test_c014_what_is_odd_and_harmless_is_taken_and_put_in_order(
    tmp_path: Path, odd: dict[str, Any], skills: list[dict[str, Any]]
) -> None:
    with broker(tmp_path) as b:
        assert b.register("odd", card=odd)["skills"] == skills
        assert b.http.get("/api/agents").json()["agents"][0]["skills"] == skills
        assert candidates(b, skill="nothing") == []
        assert b.http.get(WELL_KNOWN).status_code == 200
    with broker(tmp_path) as b:
        assert b.http.get("/api/agents/odd").json()["skills"] == skills


@pytest.mark.parametrize(
    ("odd", "place"),
    [
        (_odd(tags={"a": 1}), "card.skills[0].tags"),
        (_odd(tags=["ok", 7]), "card.skills[0].tags[1]"),
        (_odd(id={"a": 1}), "card.skills[0].id"),
        (_odd(skills="bill"), "card.skills"),
        (_odd(skills=[None, 3]), "card.skills[1]"),
        (_odd(skills=[{"id": f"s{n}", "name": "s", "tags": []} for n in range(10_000)]), "card.skills"),
    ],
    ids=["tags an object", "a tag a number", "id an object", "skills as text", "skills of nothing", "10000"],
)
def test_c014_what_cannot_be_understood_is_refused_at_its_place_and_leaves_nothing(
    tmp_path: Path, odd: dict[str, Any], place: str
) -> None:
    with broker(tmp_path) as b:
        answer = b.http.post("/api/agents", json={"agent_id": "odd", "card": odd})
        assert answer.status_code == 422, answer.text
        assert place in [error["field"] for error in answer.json()["errors"]]
        assert b.http.get("/api/agents").json() == {"agents": [], "total": 0}
        assert candidates(b, skill="bill") == []


def test_c014_a_card_of_megabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        answer = b.http.post(
            "/api/agents", json={"agent_id": "odd", "card": _odd(description="x" * 1_100_000)}
        )
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
