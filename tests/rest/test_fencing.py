"""Who may act on a handoff, on which attempt and on which version of it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.puller import Puller, hand_off, puller
from tests.support.running import Broker, broker

ACTIONS: dict[str, dict[str, Any]] = {
    "accept": {},
    "decline": {"reason": "busy"},
    "progress": {"message": "half"},
    "complete": {"result": "done"},
    "fail": {"reason": "broken"},
    "release": {"reason": "not mine"},
    "cancel": {"reason": "too late"},
}


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("fencing")
    with broker(folder, cancel_wait=0.05) as running:
        yield running


@pytest.fixture
def cursor(b: Broker) -> Generator[Puller]:
    with puller(b, "cursor") as agent:
        yield agent


def offered(b: Broker, **more: Any) -> str:
    return hand_off(b, target_agent="cursor", **more)["handoff_id"]


# --- versions ------------------------------------------------------------------------------------


def test_the_version_is_the_etag_and_moves_with_every_event(b: Broker, cursor: Puller) -> None:
    handoff_id = offered(b)
    first = b.http.get(f"/api/handoffs/{handoff_id}")
    assert first.headers["etag"] == '"2"'
    accepted = cursor.act("accept", handoff_id)
    assert accepted.headers["etag"] == '"3"'
    assert b.http.get(f"/api/handoffs/{handoff_id}").headers["etag"] == '"3"'


def test_who_knows_the_version_is_told_that_nothing_changed(b: Broker, cursor: Puller) -> None:
    handoff_id = offered(b)
    tag = b.http.get(f"/api/handoffs/{handoff_id}").headers["etag"]
    for known in (tag, f"W/{tag}", f'"9", {tag}', "*"):
        answer = b.http.get(f"/api/handoffs/{handoff_id}", headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    cursor.do("accept", handoff_id)
    assert b.http.get(f"/api/handoffs/{handoff_id}", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize("verb", ACTIONS)
def test_an_action_on_a_version_that_is_gone_is_refused_and_changes_nothing(
    b: Broker, cursor: Puller, verb: str
) -> None:
    handoff_id = offered(b)
    if verb not in ("accept", "decline"):
        cursor.do("accept", handoff_id)
    version = len(b.log(handoff_id))
    for tag in (f'"{version - 1}"', f'W/"{version}"', "nonsense", '""'):
        refused = cursor.act(verb, handoff_id, headers={"If-Match": tag}, **ACTIONS[verb])
        assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed"), tag
        assert refused.json()["facts"] == {"version": str(version)}
    assert len(b.log(handoff_id)) == version
    taken = cursor.act(verb, handoff_id, headers={"If-Match": f'"1", "{version}"'}, **ACTIONS[verb])
    assert taken.status_code == 200, taken.text


def test_any_version_will_do_for_a_star(b: Broker, cursor: Puller) -> None:
    assert cursor.act("accept", offered(b), headers={"If-Match": "*"}).status_code == 200


# --- attempts ------------------------------------------------------------------------------------


def test_an_attempt_that_was_superseded_is_stale(b: Broker, cursor: Puller) -> None:
    with puller(b, "second") as second:
        handoff_id = offered(b, fallback=["second"])
        cursor.do("decline", handoff_id, attempt=1, reason="full")
        assert second.watch().json()["attempt"] == 2
        for verb in ("accept", "progress"):
            stale = cursor.act(verb, handoff_id, attempt=1)
            assert (stale.status_code, stale.json()["code"]) == (409, "stale_attempt")
        old = second.act("accept", handoff_id, attempt=1)
        assert (old.status_code, old.json()["facts"]) == (409, {"attempt": "2"})
        second.do("accept", handoff_id, attempt=2)
        late = cursor.act("complete", handoff_id, attempt=1, result="mine")
        assert (late.status_code, late.json()["code"]) == (409, "stale_attempt")
        done = second.do("complete", handoff_id, attempt=2, result="theirs")
    assert done["result"] == "theirs"
    assert [(a["agent_id"], a["outcome"], a["detail"]) for a in done["attempts"]] == [
        ("cursor", "target_rejected", "full"),
        ("second", None, ""),
    ]


@pytest.mark.parametrize("verb", [verb for verb in ACTIONS if verb != "cancel"])
def test_what_another_agent_holds_is_not_to_be_touched(b: Broker, cursor: Puller, verb: str) -> None:
    b.register("thief")
    handoff_id = offered(b)
    refused = cursor.act(verb, handoff_id, agent_id="thief", **ACTIONS[verb])
    assert (refused.status_code, refused.json()["code"]) == (403, "not_the_holder")


@pytest.mark.parametrize("verb", ["accept", "complete", "fail"])
def test_a_repeat_is_answered_as_the_first_time(b: Broker, cursor: Puller, verb: str) -> None:
    handoff_id = offered(b)
    first = cursor.do(verb, handoff_id, attempt=1, **ACTIONS[verb])
    again = cursor.do(verb, handoff_id, attempt=1, **ACTIONS[verb])
    assert again == first


def test_an_action_needs_no_attempt_and_no_name(b: Broker, cursor: Puller) -> None:
    handoff_id = offered(b)
    assert cursor.act("complete", handoff_id, agent_id="", result={"n": 1.0}).json()["result"] == {"n": 1}


def test_a_result_after_a_cancel_is_kept_aside_and_refused(b: Broker, cursor: Puller) -> None:
    handoff_id = offered(b)
    cursor.do("accept", handoff_id)
    b.http.post(f"/api/handoffs/{handoff_id}/cancel")
    b.until(handoff_id, "canceled")
    late = cursor.act("complete", handoff_id, result="done")
    assert (late.status_code, late.json()["code"]) == (409, "handoff_ended")
    assert b.handoff(handoff_id)["state"] == "canceled"
    assert b.log(handoff_id)[-1] == "late_result_recorded"


def test_a_holder_that_gives_a_canceled_task_back_confirms_the_cancel(tmp_path: Path) -> None:
    with broker(tmp_path, cancel_wait=30) as b, puller(b, "cursor") as cursor:
        handoff_id = offered(b)
        cursor.do("accept", handoff_id)
        b.http.post(f"/api/handoffs/{handoff_id}/cancel")
        assert b.handoff(handoff_id)["state"] == "acknowledged"
        done = cursor.do("release", handoff_id, reason="stopped")
        assert (done["state"], done["detail"]) == ("canceled", "")


# --- processes of one agent ----------------------------------------------------------------------


def test_a_new_process_of_an_agent_goes_on_with_what_the_old_one_accepted(b: Broker) -> None:
    with puller(b, "phoenix", instance="one") as one:
        handoff_id = hand_off(b, target_agent="phoenix")["handoff_id"]
        one.do("accept", handoff_id)
    with puller(b, "phoenix", instance="two") as two:
        assert b.http.get("/api/agents/phoenix").json()["instance_id"] == "two"
        held = b.http.get("/api/handoffs", params={"holder": "phoenix", "state": "acknowledged"}).json()
        assert [h["handoff_id"] for h in held["handoffs"]] == [handoff_id]
        assert two.do("complete", handoff_id, result="resumed")["result"] == "resumed"


def test_a_process_takes_out_only_its_own_registration(b: Broker) -> None:
    b.register("twin", instance_id="old")
    b.register("twin", instance_id="new")
    refused = b.http.delete("/api/agents/twin", params={"instance_id": "old"})
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_state")
    assert b.http.get("/api/agents/twin").status_code == 200
    assert b.http.delete("/api/agents/twin", params={"instance_id": "new"}).status_code == 204
    assert b.http.get("/api/agents/twin").status_code == 404
