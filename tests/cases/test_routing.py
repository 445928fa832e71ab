"""Known faults of routing and matching: c015 to c018 of docs/reference/cases.md."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, card, completes
from tests.support.running import Ahead, Broker, bound_socket, broker, handoff_context, running

NOWHERE = "http://127.0.0.1:9"


def resolve(b: Broker, key: str = "k", **context: Any) -> dict[str, Any]:
    """Who would get a handoff whose message has the id ``key``."""
    body = handoff_context(**context)
    answer = b.http.post("/api/resolve", json=body, headers={"Idempotency-Key": key})
    assert answer.status_code == 200, answer.text
    return answer.json()


def candidates(b: Broker, key: str = "k", **context: Any) -> list[str]:
    return [each["agent_id"] for each in resolve(b, key, **context)["candidates"]]


# --- c015: names that look alike -----------------------------------------------------------------

SKILL = unicodedata.normalize("NFC", "adhésif.expert")


@pytest.mark.parametrize(
    "asked",
    [SKILL, unicodedata.normalize("NFD", SKILL), SKILL.upper(), unicodedata.normalize("NFD", SKILL.upper())],
    ids=["NFC", "NFD", "upper case", "both"],
)
@pytest.mark.parametrize("stored", [SKILL, unicodedata.normalize("NFD", SKILL)], ids=["as NFC", "as NFD"])
def test_c015_spellings_that_unicode_calls_equal_are_one_name(
    tmp_path: Path, stored: str, asked: str
) -> None:
    with running(Agent(completes)) as url, broker(tmp_path) as b:
        b.register("expert", card=card(url, skills=(stored,)))
        task = b.send(context={"requirements": {"skill": asked}})
        by_id = b.send(context={"target_agent": "EXPERT"})
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert by_id["status"]["state"] == "TASK_STATE_COMPLETED"


def test_c015_a_name_without_its_accents_is_another_name_and_the_right_one_is_suggested(
    tmp_path: Path,
) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        b.register("expert", card=card(url, skills=(SKILL,)))
        task = b.send(context={"requirements": {"skill": "adhesif.expert"}})
        handoff = b.handoff(task["id"])
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert handoff["outcome"] == "no_capable_agent"
    (near,) = [each for each in handoff["passed_over"] if each["near"]]
    assert near["agent_id"] == "expert"
    assert f"did you mean {SKILL}?" in near["reason"]
    assert agent.calls == []


# --- c016: ties and no evidence ------------------------------------------------------------------


def _broad_and_special(b: Broker, *, reverse: bool = False) -> None:
    agents = [("g", ("a", "b", "c", "d")), ("s", ("d",))]
    for name, skills in reversed(agents) if reverse else agents:
        b.register(name, card=card(f"{NOWHERE}/{name}", skills=skills))


def test_c016_a_tie_is_decided_by_the_question_alone_whatever_the_order_of_registration(
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {"requirements": {"skill": "d"}}
    keys = [f"key-{number}" for number in range(20)]
    answers: list[list[list[str]]] = []
    for place, reverse in (("one", False), ("two", True)):
        folder = tmp_path / place
        folder.mkdir()
        with broker(folder) as b:
            _broad_and_special(b, reverse=reverse)
            answers.append([candidates(b, key, **asked) for key in keys])
        with broker(folder) as b:  # from the store, after a restart
            answers.append([candidates(b, key, **asked) for key in keys])
    assert answers[0] == answers[1] == answers[2] == answers[3]
    # Neither the broad agent nor the special one has an advantage.
    assert {tuple(found) for found in answers[0]} == {("g", "s"), ("s", "g")}


def test_c016_the_same_question_has_the_same_answer_a_hundred_times(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        _broad_and_special(b)
        assert len({tuple(candidates(b, requirements={"skill": "d"})) for _ in range(100)}) == 1


def test_c016_what_nobody_has_is_guessed_for_nobody(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        _broad_and_special(b)
        found = resolve(b, requirements={"skill": "z"})
        task = b.send(context={"requirements": {"skill": "z"}})
        handoff = b.handoff(task["id"])
    assert (found["candidates"], found["reason"]) == ([], "no_capable_agent")
    assert task["status"]["state"] == "TASK_STATE_REJECTED"
    assert (handoff["state"], handoff["outcome"], handoff["attempts"]) == ("returned", "no_capable_agent", [])


@pytest.mark.parametrize(
    ("context", "place"),
    [
        ({"requirements": {"capabilities": [""]}}, "metadata.handoff_context.requirements.capabilities[0]"),
        ({"requirements": {"capabilities": [" "]}}, "metadata.handoff_context.requirements.capabilities[0]"),
        ({"requirements": {"tags": ["ok", ""]}}, "metadata.handoff_context.requirements.tags[1]"),
        ({"requirements": {"skill": ""}}, "handoff_context"),
        ({"requirements": {}}, "handoff_context"),
        ({}, "handoff_context"),
    ],
)
def test_c016_an_empty_name_asks_for_nothing_and_is_refused(
    tmp_path: Path, context: dict[str, Any], place: str
) -> None:
    with broker(tmp_path) as b:
        _broad_and_special(b)
        body = {
            "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "do it"}]},
            "metadata": {"handoff_context": handoff_context(**context)},
        }
        error = b.rpc("SendMessage", body)["error"]
        assert b.http.get("/api/handoffs").json()["total"] == 0
    assert error["code"] == -32602
    assert place in [v["field"] for d in error["data"] for v in d.get("fieldViolations", ())]


# --- c017: an agent that takes connections and never answers -------------------------------------

WAIT_S = 0.3


def _seconds_to_ack(handoff: dict[str, Any]) -> float:
    created, accepted = (datetime.fromisoformat(handoff[name]) for name in ("created_at", "accepted_at"))
    return (accepted - created).total_seconds()


def test_c017_a_mute_agent_costs_one_wait_and_is_asked_last_from_then_on(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"requirements": {"capabilities": ["x"]}}
    with (
        bound_socket() as mute,
        running(Agent(completes)) as url,
        broker(tmp_path, ack_wait=WAIT_S, retry_delay=0.05) as b,
    ):
        mute.listen()
        b.register("ok", card=card(url, capabilities={"x": True}))
        b.send(context=asked)
        # It was never timed, so it goes before one that was.
        b.register("hang", card=card(f"http://127.0.0.1:{mute.getsockname()[1]}", capabilities={"x": True}))
        assert candidates(b, **asked) == ["hang", "ok"]
        done = [b.handoff(b.send(context=asked)["id"]) for _ in range(5)]
    told = [[(a["agent_id"], a["outcome"], a["deliveries"]) for a in handoff["attempts"]] for handoff in done]
    assert told == [[("hang", "timeout", 2), ("ok", None, 1)], *[[("ok", None, 1)]] * 4]
    assert 2 * WAIT_S <= _seconds_to_ack(done[0]) < 2 * WAIT_S + 2
    assert all(_seconds_to_ack(handoff) < WAIT_S for handoff in done[1:])


def test_c017_two_silences_open_the_breaker_and_a_trial_that_is_answered_closes_it(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"requirements": {"capabilities": ["x"]}}
    clock = Ahead()
    back = Agent(completes)
    with running(Agent(completes)) as url, broker(tmp_path, ack_wait=WAIT_S, clock=clock) as b:
        b.register("ok", card=card(url, capabilities={"x": True}))
        with bound_socket() as mute:
            mute.listen()
            port = mute.getsockname()[1]
            b.register("hang", card=card(f"http://127.0.0.1:{port}", capabilities={"x": True}))
            for _ in range(2):
                b.send(context={"target_agent": "hang", "fallback": ["ok"]})
            found = resolve(b, **asked)
            assert [each["agent_id"] for each in found["candidates"]] == ["ok"]
            assert "circuit breaker is open" in found["passed_over"][0]["reason"]
            assert b.http.get("/api/agents/hang").json()["present"] is False
        with running(back, port=port):
            clock.seconds = 20
            assert set(candidates(b, **asked)) == {"hang", "ok"}
            task = b.send(context={"target_agent": "hang"})
            assert b.http.get("/api/agents/hang").json()["present"] is True
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len(back.calls) == 1


# --- c018: one's own work ------------------------------------------------------------------------


def test_c018_the_only_one_who_could_is_the_sender_so_it_comes_back(tmp_path: Path) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        b.register("a", card=card(url, capabilities={"x": True}))
        for name in ("a", "A"):
            task = b.send(context={"source_agent": name, "requirements": {"capabilities": ["x"]}})
            handoff = b.handoff(task["id"])
            assert task["status"]["state"] == "TASK_STATE_REJECTED"
            assert (handoff["state"], handoff["outcome"]) == ("returned", "self_only")
            assert handoff["source_agent"] == "a"
    assert agent.calls == []


@pytest.mark.parametrize(("sender", "target"), [("a", "a"), ("a", "A"), ("A", "a"), ("nobody", "Nobody")])
def test_c018_a_sender_that_names_itself_is_refused_however_it_spells_that(
    tmp_path: Path, sender: str, target: str
) -> None:
    agent = Agent(completes)
    with running(agent) as url, broker(tmp_path) as b:
        b.register("a", card=card(url))
        body = {
            "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "do it"}]},
            "metadata": {"handoff_context": handoff_context(source_agent=sender, target_agent=target)},
        }
        error = b.rpc("SendMessage", body)["error"]
        assert b.http.get("/api/handoffs").json()["total"] == 0
    assert (error["code"], error["data"][0]["reason"]) == (-32051, "CYCLE_DETECTED")
    assert agent.calls == []


def test_c018_of_two_who_could_it_is_always_the_other(tmp_path: Path) -> None:
    sender, other = Agent(completes), Agent(completes)
    with running(sender) as one, running(other) as two, broker(tmp_path) as b:
        b.register("a", card=card(one, capabilities={"x": True}))
        b.register("b", card=card(two, capabilities={"x": True}))
        for _ in range(5):
            task = b.send(context={"source_agent": "a", "requirements": {"capabilities": ["x"]}})
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (len(sender.of("SendMessage")), len(other.of("SendMessage"))) == (0, 5)


def test_c018_what_an_agent_sent_is_not_in_its_own_inbox(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        for name in ("a", "b"):
            b.register(name, capabilities={"x": True})
        task = b.send(context={"source_agent": "a", "requirements": {"capabilities": ["x"]}}, wait=False)
        b.until(task["id"], "offered")
        inboxes = {
            name: [
                h["handoff_id"] for h in b.http.get(f"/api/handoffs/pending?target={name}").json()["handoffs"]
            ]
            for name in ("a", "b")
        }
        b.rpc("CancelTask", {"id": task["id"]})
    assert inboxes == {"a": [], "b": [task["id"]]}
