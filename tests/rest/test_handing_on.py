"""An agent without an address hands its task on, or asks another one for help, by a call."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.puller import Puller, hand_off, puller
from tests.support.running import Broker, broker


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("handing-on")
    with broker(folder) as running:
        yield running


@pytest.fixture
def editor(b: Broker) -> Generator[Puller]:
    with puller(b, "editor") as agent:
        yield agent


@pytest.fixture
def tester(b: Broker) -> Generator[Puller]:
    with puller(b, "tester", capabilities={"canTestUI": True}) as agent:
        yield agent


def held(b: Broker, editor: Puller) -> str:
    """A handoff that the editor has."""
    handoff_id = hand_off(b, target_agent="editor", source_agent="cowork")["handoff_id"]
    editor.do("accept", handoff_id)
    return handoff_id


def test_a_transfer_ends_the_senders_part_with_the_accept_and_carries_the_task(
    b: Broker, editor: Puller, tester: Puller
) -> None:
    parent = held(b, editor)
    child = hand_off(
        b, task="Test it.", source_agent="editor", parent_handoff_id=parent, mode="transfer",
        requirements={"capabilities": ["canTestUI"]},
    )  # fmt: skip
    assert child["parent_handoff_id"] == parent
    assert child["correlation_id"] == b.handoff(parent)["correlation_id"]
    assert child["handoff_chain"] == ["cowork", "editor"]
    before = b.http.get(f"/api/handoffs/{parent}")
    assert (before.json()["state"], before.json()["owner"]) == ("acknowledged", "target")
    offer = tester.watch().json()
    assert (offer["handoff_id"], offer["context"]["hop_count"]) == (child["handoff_id"], 2)
    tester.do("accept", child["handoff_id"])
    handed = b.http.get(f"/api/handoffs/{parent}", headers={"If-None-Match": before.headers["etag"]})
    assert (handed.json()["state"], handed.json()["owner"]) == ("handed_off", "leaf")
    late = editor.act("complete", parent, result="mine")
    assert (late.status_code, late.json()["code"]) == (409, "stale_attempt")
    tester.do("complete", child["handoff_id"], result="all green")
    done = b.http.get(f"/api/handoffs/{parent}", headers={"If-None-Match": handed.headers["etag"]})
    assert done.status_code == 200
    assert (done.json()["state"], done.json()["result"]) == ("completed", "all green")
    chain = b.http.get(f"/api/chains/{child['correlation_id']}").json()
    assert [h["handoff_chain"] for h in chain["handoffs"]] == [
        ["cowork", "editor"],
        ["cowork", "editor", "tester"],
    ]


def test_the_tag_of_a_handoff_that_was_handed_on_moves_with_the_leaf(
    b: Broker, editor: Puller, tester: Puller
) -> None:
    parent = held(b, editor)
    child = hand_off(
        b, source_agent="editor", parent_handoff_id=parent, mode="transfer", target_agent="tester"
    )["handoff_id"]
    tester.do("accept", child)
    tag = b.http.get(f"/api/handoffs/{parent}").headers["etag"]
    tester.do("progress", child, message="half of it")
    answer = b.http.get(f"/api/handoffs/{parent}", headers={"If-None-Match": tag})
    assert answer.status_code == 200
    assert "half of it" in answer.text


def test_a_transfer_that_nobody_takes_leaves_the_task_with_its_holder(b: Broker, editor: Puller) -> None:
    parent = held(b, editor)
    child = hand_off(
        b, source_agent="editor", parent_handoff_id=parent, mode="transfer",
        requirements={"capabilities": ["canFly"]},
    )  # fmt: skip
    assert (child["state"], child["outcome"]) == ("returned", "no_capable_agent")
    assert b.handoff(parent)["state"] == "acknowledged"
    assert editor.do("complete", parent, result="done after all")["result"] == "done after all"


def test_who_delegates_stays_the_owner_and_reads_the_result(
    b: Broker, editor: Puller, tester: Puller
) -> None:
    parent = held(b, editor)
    child = hand_off(
        b, task="Test it.", source_agent="editor", parent_handoff_id=parent, target_agent="tester"
    )["handoff_id"]
    tester.do("accept", child)
    assert (b.handoff(parent)["state"], b.handoff(parent)["owner"]) == ("acknowledged", "target")
    tester.do("complete", child, result={"green": 12})
    results = b.http.get("/api/handoffs", params={"sender": "editor", "include": "result"}).json()
    mine = {h["handoff_id"]: (h["state"], h["result"]) for h in results["handoffs"]}
    assert mine[child] == ("completed", {"green": 12})
    assert b.handoff(parent)["children"] == [{"handoff_id": child, "mode": "delegate", "state": "completed"}]
    assert editor.do("complete", parent, result="reviewed and tested")["state"] == "completed"


def test_the_end_of_a_delegator_cancels_what_it_delegated(b: Broker, editor: Puller, tester: Puller) -> None:
    parent = held(b, editor)
    child = hand_off(b, source_agent="editor", parent_handoff_id=parent, target_agent="tester")["handoff_id"]
    editor.do("complete", parent, result="did it without")
    assert b.until(child, "canceled")["state"] == "canceled"


def test_nobody_hands_on_what_another_holds(b: Broker, editor: Puller, tester: Puller) -> None:
    parent = held(b, editor)
    body = {"task": "x", "source_agent": "tester", "parent_handoff_id": parent, "target_agent": "editor"}
    refused = b.http.post("/api/handoffs", json=body)
    assert refused.status_code == 422
    assert "parent_handoff_id" in refused.json()["errors"][0]["field"]


def test_a_loop_is_refused_with_its_path(b: Broker, editor: Puller, tester: Puller) -> None:
    parent = held(b, editor)
    child = hand_off(
        b, source_agent="editor", parent_handoff_id=parent, mode="transfer", target_agent="tester"
    )["handoff_id"]
    tester.do("accept", child)
    back = {"task": "x", "source_agent": "tester", "parent_handoff_id": child, "target_agent": "editor"}
    refused = b.http.post("/api/handoffs", json=back)
    assert (refused.status_code, refused.json()["code"]) == (409, "cycle_detected")
    assert refused.json()["facts"]["path"] == "cowork,editor,tester,editor"
