"""Lists over REST: results of own handoffs, inboxes, and what a filter cannot be."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.puller import hand_off, puller
from tests.support.running import Broker, broker


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("lists")
    with broker(folder) as running:
        yield running


def test_who_sent_handoffs_reads_their_results_in_one_list(b: Broker) -> None:
    with puller(b, "cursor") as cursor:
        made = [
            hand_off(b, target_agent="cursor", source_agent="asker", task=f"task {n}")["handoff_id"]
            for n in range(3)
        ]
        cursor.do("complete", made[0], result="one")
        cursor.do("fail", made[1], reason="no")
        page = b.http.get("/api/handoffs", params={"sender": "asker", "include": "result"}).json()
    found = {h["handoff_id"]: (h["status"], h["result"], h["task"]) for h in page["handoffs"]}
    assert found == {
        made[0]: ("completed", "one", "task 0"),
        made[1]: ("failed", None, "task 1"),
        made[2]: ("pending", None, "task 2"),
    }
    plain = b.http.get("/api/handoffs", params={"sender": "asker"}).json()
    assert {h["result"] for h in plain["handoffs"]} == {None}


def test_what_comes_back_is_among_the_results_with_the_reason(b: Broker) -> None:
    made = hand_off(b, source_agent="unlucky", requirements={"capabilities": ["canFly"]})
    page = b.http.get("/api/handoffs", params={"sender": "unlucky", "state": "returned"}).json()
    assert [(h["handoff_id"], h["outcome"]) for h in page["handoffs"]] == [
        (made["handoff_id"], "no_capable_agent")
    ]


@pytest.mark.parametrize(
    ("path", "params", "field"),
    [
        ("/api/handoffs", {"include": "everything"}, "include"),
        ("/api/handoffs", {"state": "happy"}, "state"),
        ("/api/handoffs", {"limit": "many"}, "limit"),
        ("/api/handoffs", {"cursor": "%"}, "cursor"),
        ("/api/handoffs/pending", {}, "target"),
        ("/api/events", {"after": "-1"}, "after"),
        ("/api/events", {"after": "x"}, "after"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(b: Broker, path: str, params: dict[str, str], field: str) -> None:
    answer = b.http.get(path, params=params)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_the_inbox_of_an_unknown_agent_is_empty(b: Broker) -> None:
    page = b.http.get("/api/handoffs/pending", params={"target": "nobody"})
    assert (page.status_code, page.json()["handoffs"], page.json()["total"]) == (200, [], 0)
