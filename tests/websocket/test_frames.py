"""Every frame that a client sends, and how it is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.puller import hand_off
from tests.support.running import Broker, sse_data
from tests.support.sockets import Socket, socket_of


def _offered(b: Broker, socket: Socket, **body: Any) -> str:
    """A handoff to the agent behind the socket, which was shown it."""
    made = hand_off(b, target_agent="cursor", source_agent="cowork", **body)
    assert socket.next("offer")["handoff_id"] == made["handoff_id"]
    return made["handoff_id"]


# --- hello ---------------------------------------------------------------------------------------


def test_an_agent_registers_with_its_hello(b: Broker) -> None:
    with socket_of(b) as socket:
        welcome = socket.hello("cursor", platform="cursor", capabilities={"canDeploy": True}, lease_s=60)
        assert (welcome["new"], welcome["agent"]["agent_id"]) == (True, "cursor")
        assert {"canDeploy", "canEditFiles"} <= welcome["agent"]["capabilities"].keys()
        assert (welcome["ping_s"], welcome["max_frame"]) == (8, 10_485_760)
        assert welcome["cursor"]
    assert b.http.get("/api/agents/cursor").json()["lease_s"] == 60


def test_an_agent_that_is_known_says_its_name_only_and_stays_as_it_is(b: Broker) -> None:
    b.register("cursor", platform="cursor", lease_s=60)
    with socket_of(b) as socket:
        welcome = socket.hello("Cursor", instance_id="window-1", broadcasts=False)
        assert (welcome["new"], welcome["agent"]["agent_id"]) == (False, "cursor")
    known = b.http.get("/api/agents/cursor").json()
    assert (known["lease_s"], known["platform"], known["broadcasts"]) == (60, "cursor", True)


def test_an_agent_that_nobody_registered_is_told_so_and_may_say_hello_again(b: Broker) -> None:
    with socket_of(b) as socket:
        refused = socket.ask("hello", agent_id="nobody")
        assert refused["problem"]["code"] == "agent_not_found"
        assert socket.hello("nobody", platform="cursor")["new"]


def test_nothing_else_is_obeyed_before_hello_but_a_ping(b: Broker) -> None:
    with socket_of(b) as socket:
        assert socket.ask("ping")["type"] == "pong"
        refused = socket.ask("heartbeat", status="busy")
        assert (refused["problem"]["code"], refused["problem"]["status"]) == ("wrong_state", 409)


def test_a_second_hello_is_refused_and_the_socket_stays(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        assert socket.ask("hello", agent_id="cowork")["problem"]["code"] == "wrong_state"
        assert socket.ask("ping")["type"] == "pong"


# --- work ----------------------------------------------------------------------------------------


def test_an_offer_is_what_the_long_poll_answers(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        made = hand_off(
            b, target_agent="cursor", source_agent="cowork", key_facts={"n": 12345678901234567890}
        )
        offer = socket.next("offer")
        polled = b.http.get("/api/handoffs/watch", params={"agent": "cursor", "timeout": 5}).json()
        assert offer.pop("type") == "offer"
        assert offer.pop("cursor")
        polled.pop("cursor")
        assert offer == polled
        assert (offer["handoff_id"], offer["attempt"]) == (made["handoff_id"], 1)
        assert offer["context"]["key_facts"] == {"n": 12345678901234567890}


def test_work_is_accepted_reported_and_completed(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor", instance_id="window-1") as socket:
        made = _offered(b, socket)
        accepted = socket.do("accept", handoff_id=made, attempt=1)["handoff"]
        assert (accepted["state"], accepted["attempts"][0]["instance_id"]) == ("acknowledged", "window-1")
        assert accepted["context"]["handoff_id"] == made
        reported = socket.do("progress", handoff_id=made, message="half of it")["handoff"]
        assert reported["status_message"]["parts"] == [{"text": "half of it"}]
        done = socket.do("complete", handoff_id=made, result={"n": 1.10, "s": "订单 🧪"})["handoff"]
        assert (done["state"], done["result"]) == ("completed", {"n": 1.1, "s": "订单 🧪"})
    assert b.handoff(made)["result"] == {"n": 1.1, "s": "订单 🧪"}


@pytest.mark.parametrize(
    ("verb", "first", "state"),
    [("decline", False, "returned"), ("fail", True, "failed"), ("release", True, "returned")],
)
def test_work_is_given_up(b: Broker, verb: str, first: bool, state: str) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        made = _offered(b, socket)
        if first:
            socket.do("accept", handoff_id=made)
        socket.do(verb, handoff_id=made, reason="no time")
        ended = b.until(made, state)
        assert "no time" in json.dumps(ended)


def test_a_repeat_is_answered_as_the_first_time_and_a_late_one_refused(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        made = _offered(b, socket)
        for _ in range(2):
            assert socket.do("accept", handoff_id=made)["handoff"]["state"] == "acknowledged"
        for _ in range(2):
            assert socket.do("complete", handoff_id=made, result="x")["handoff"]["state"] == "completed"
        assert socket.ask("fail", handoff_id=made)["problem"]["code"] == "handoff_ended"


def test_the_caller_is_asked_and_its_reply_comes_over_the_socket(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        task = b.send("do it", wait=False, context={"target_agent": "cursor"})
        socket.next("offer")
        socket.do("accept", handoff_id=task["id"])
        asked = socket.do("progress", handoff_id=task["id"], state="input_required", message="Which?")
        assert asked["handoff"]["state"] == "input_required"
        b.send("The first.", wait=False, message={"taskId": task["id"]})
        reply = socket.next("reply")
        assert (reply["handoff_id"], reply["attempt"]) == (task["id"], 1)
        assert reply["message"]["parts"] == [{"text": "The first."}]


def test_a_cancel_reaches_who_holds_the_task(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        made = _offered(b, socket)
        socket.do("accept", handoff_id=made)
        b.http.post(f"/api/handoffs/{made}/cancel", json={"reason": "changed my mind"})
        told = socket.next("cancel_requested")
        assert (told["handoff_id"], told["reason"]) == (made, "changed my mind")
        socket.do("release", handoff_id=made)
        assert b.until(made, "canceled")


# --- the other way -------------------------------------------------------------------------------


def test_a_handoff_is_created_by_the_agent_of_the_socket_in_its_own_workspace(b: Broker) -> None:
    b.register("other", platform="cowork", workspace="team")
    with socket_of(b, "cursor", platform="cursor", workspace="team") as socket:
        made = socket.do(
            "create", handoff={"task": "Run the tests.", "agent_type": "browser", "type": "tests"}
        )
        assert (made["created"], made["handoff"]["source_agent"]) == (True, "cursor")
        assert made["handoff"]["assigned_to"] == "other"
        assert made["handoff"]["context"]["key_facts"] == {"type": "tests"}
        socket.do("cancel", handoff_id=made["handoff"]["handoff_id"])
    assert b.until(made["handoff"]["handoff_id"], "canceled")


def test_a_repeated_create_makes_one_handoff(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        body = {"task": "x", "target_agent": "cursor2", "message_id": "m-1"}
        b.register("cursor2")
        first, second = (socket.do("create", handoff=body) for _ in range(2))
        assert first["handoff"]["handoff_id"] == second["handoff"]["handoff_id"]
        assert (first["created"], second["created"]) == (True, False)
        conflict = socket.ask("create", handoff=body | {"task": "y"})
        assert conflict["problem"]["code"] == "idempotency_conflict"


def test_a_broadcast_is_heard_by_the_others_and_not_by_its_sender(b: Broker) -> None:
    with (
        socket_of(b, "cursor", platform="cursor") as cursor,
        socket_of(b, "cowork", platform="cowork") as cowork,
        socket_of(b, "deaf", platform="x", broadcasts=False) as deaf,
        socket_of(b, "picky", platform="x", channels=["urgent"]) as picky,
    ):
        said = cursor.do("broadcast", channel="general", message="main is red", data={"n": 1})
        heard = cowork.next("broadcast")
        assert (heard["message"], heard["data"], heard["source_agent"]) == ("main is red", {"n": 1}, "cursor")
        assert heard["broadcast_id"] == said["broadcast"]["broadcast_id"]
        cowork.do("broadcast", channel="urgent", message="it burns")
        assert cursor.next("broadcast")["message"] == "it burns"
        assert picky.next("broadcast")["message"] == "it burns"
        assert (deaf.quiet(), cursor.quiet()) == ([], [])


def test_a_socket_stays_in_the_workspace_of_its_hello_whatever_becomes_of_the_agent(b: Broker) -> None:
    with (
        socket_of(b, "cursor", platform="x", workspace="lab") as cursor,
        socket_of(b, "cowork", platform="x", workspace="lab") as cowork,
    ):
        b.register("cursor", platform="x", workspace="attic")
        cursor.do("broadcast", channel="general", message="moved")
        b.http.delete("/api/agents/cursor")
        cursor.do("broadcast", channel="general", message="removed")
        cowork.do("broadcast", channel="general", message="heard")
        assert [cowork.next("broadcast")["message"] for _ in range(2)] == ["moved", "removed"]
        assert cursor.next("broadcast")["message"] == "heard"
        made = cursor.do("create", handoff={"task": "x", "target_agent": "cowork"})["handoff"]
        assert cowork.next("offer")["handoff_id"] == made["handoff_id"]
        b.register("cursor", platform="x", workspace="lab")
        mine = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        assert cursor.next("offer")["handoff_id"] == mine


def test_a_ping_is_checked_before_the_hello_as_it_is_after_it(b: Broker) -> None:
    with socket_of(b) as socket:
        for hello in (False, True):
            if hello:
                socket.hello("cursor", platform="x")
            socket.connection.send('{"type":"ping","id":[1]}')
            assert socket.next("error")["problem"]["code"] == "invalid_params", hello
            assert socket.do("ping")


def test_a_heartbeat_says_how_the_agent_is_doing(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        agent = socket.do("heartbeat", status="busy", in_flight=3)["agent"]
        assert (agent["status"], agent["in_flight"]) == ("busy", 3)


def test_one_wire_carries_the_same_text_as_all_others(b: Broker) -> None:
    text = "订单 🧪‍🦰 مرحبا \u2028"
    with socket_of(b, "cursor", platform="cursor") as socket:
        made = _offered(b, socket, task=text)
        shown = socket.do("accept", handoff_id=made)["handoff"]
        assert shown["task"] == b.handoff(made)["task"] == text
        with b.http.stream("GET", "/api/events", params={"after": 0}) as events:
            first = json.loads(next(sse_data(events.iter_lines())))
        assert text in json.dumps(first, ensure_ascii=False)


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code", "fields"),
    [
        ("", "invalid_params", ["type"]),
        ("{", "parse_error", []),
        ("[]", "parse_error", []),
        ('"hello"', "parse_error", []),
        ("{}", "invalid_params", ["type"]),
        ('{"type":7}', "invalid_params", ["type"]),
        ('{"type":"subscribe"}', "invalid_params", ["type"]),
        ('{"type":"accept"}', "invalid_params", ["handoff_id"]),
        ('{"type":"accept","handoff_id":7,"attempt":"one"}', "invalid_params", ["handoff_id", "attempt"]),
        ('{"type":"heartbeat","status":"dancing"}', "invalid_params", ["status"]),
        ('{"type":"broadcast"}', "invalid_params", ["channel", "message"]),
        ('{"type":"create"}', "invalid_params", ["handoff"]),
        ('{"type":"create","handoff":{}}', "invalid_params", ["task"]),
        ('{"type":"ping","id":{"a":1}}', "invalid_params", ["id"]),
        ('{"type":"ping","id":"' + "x" * 300 + '"}', "invalid_params", ["id"]),
        ('{"type":"ping","n":' + "[" * 200 + "]" * 200 + "}", "parse_error", None),
        ('{"type":"ping","n":1e999}', "invalid_params", None),
    ],
)
def test_a_frame_that_is_wrong_is_answered_at_its_place_and_the_socket_stays(
    b: Broker, frame: str, code: str, fields: list[str] | None
) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        socket.connection.send(frame)
        refused = socket.next("error")
        assert refused["problem"]["code"] == code, refused
        assert "id" not in refused
        if fields is not None:
            assert sorted(e["field"] for e in refused["problem"].get("errors", [])) == sorted(fields)
        assert socket.ask("ping")["type"] == "pong"


def test_a_binary_message_with_json_is_read_as_well(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        socket.connection.send(b'{"type":"ping","id":"b"}')
        assert socket.next("pong")["id"] == "b"
        socket.connection.send(b"\xff\x00")
        assert socket.next("error")["problem"]["code"] == "parse_error"


@pytest.mark.parametrize("request_id", [0, -7, 12345678901234567890, 1.5, "a", "ü", ""])
def test_the_id_of_a_frame_comes_back_as_it_came(b: Broker, request_id: Any) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        for kind in ("ping", "unknown", "accept"):
            socket.send(kind, id=request_id)
            assert socket.next("pong", "error")["id"] == request_id


@pytest.mark.parametrize(
    "body",
    [
        {"task": "x", "handoff_reason": "boredom", "priority": "soon", "target_agent": "a\nb"},
        {"task": "x", "message": {"parts": "no"}},
        {"task": 7, "summary": 8},
        {"task": "x", "hop_count": 6},
        {"task": "x", "hop_count": 5, "handoff_chain": ["a1", "a2", "a3", "a4", "a5"], "source_agent": "a5"},
    ],
)
def test_a_create_is_refused_with_the_words_of_rest(b: Broker, body: dict[str, Any]) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        refused = socket.ask("create", handoff=body)
        assert refused["type"] == "error", refused
        rest = b.http.post("/api/handoffs", json=body | {"source_agent": body.get("source_agent", "cursor")})
        expected = rest.json()
        assert rest.status_code == refused["problem"]["status"]
        assert expected.pop("instance") == "/api/handoffs"
        assert refused["problem"].pop("instance") == "/ws"
        assert refused["problem"] == expected


def test_a_frame_that_names_a_strangers_handoff_or_none_gets_the_same_answer(b: Broker) -> None:
    with socket_of(b, "cursor", platform="cursor") as socket:
        for verb in ("accept", "decline", "progress", "complete", "fail", "release", "cancel"):
            problem = socket.ask(verb, handoff_id="there-is-none")["problem"]
            assert (problem["code"], problem["status"]) == ("task_not_found", 404)
