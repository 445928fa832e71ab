"""Agents that call back: nobody waits for them, and nothing is lost or doubled of what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.callbacks.conftest import begun, idle, served
from tests.support.bearers import SECRET, bearer
from tests.support.calling import calling_agent
from tests.support.running import Broker, broker, kept_port, send_params
from tests.support.wire import eventually

_GENERATIONS = ["1.0", "0.3", "0.1"]


def texts(b: Broker, task_id: str) -> list[str]:
    task = b.rpc("GetTask", {"id": task_id})["result"]
    return ["".join(part["text"] for part in artifact["parts"]) for artifact in task.get("artifacts", [])]


@pytest.mark.parametrize("generation", _GENERATIONS)
def test_an_agent_is_told_where_to_call_in_the_words_of_its_generation(
    tmp_path: Path, generation: str
) -> None:
    with served(tmp_path, generation) as (b, agent):
        task_id = begun(b, agent)
        config = agent.config
        assert config["url"] == f"{b.url}/callbacks/{task_id}/1"
        scheme = {"scheme": "Bearer"} if generation == "1.0" else {"schemes": ["Bearer"]}
        assert config["authentication"] == scheme | {"credentials": config["token"]}
        assert len(config["token"]) >= 32


@pytest.mark.parametrize("generation", _GENERATIONS)
def test_a_task_ends_when_its_agent_calls_and_nobody_asked(tmp_path: Path, generation: str) -> None:
    with served(tmp_path, generation) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("COMPLETED", "done", answer="forty-two")
        assert agent.call().status_code == 204
        handoff = b.until(task_id, "completed")
        assert texts(b, task_id) == ["forty-two"]
        assert handoff["state"] == "completed"
        assert agent.of("get") == []
        assert len(agent.of("send")) == 1


def test_a_waiting_caller_gets_its_answer_by_the_call(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        with b.http.stream(
            "POST",
            "/",
            json={"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}},
            headers={"A2A-Version": "1.0"},
        ) as answer:
            lines = answer.iter_lines()
            assert "TASK_STATE_WORKING" in next(line for line in lines if line.startswith("data:"))
            agent.stand("COMPLETED", "done")
            agent.call()
            assert any("TASK_STATE_COMPLETED" in line for line in lines)


@pytest.mark.parametrize("generation", _GENERATIONS)
@pytest.mark.parametrize("state", ["FAILED", "CANCELED"])
def test_every_end_is_taken(tmp_path: Path, generation: str, state: str) -> None:
    with served(tmp_path, generation) as (b, agent):
        task_id = begun(b, agent)
        agent.stand(state, "no")
        agent.call()
        b.until(task_id, state.lower())


def test_the_end_alone_is_a_hint_to_ask_for_what_was_made(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("COMPLETED", "done", answer="all of it")
        assert agent.call(agent.notice("status")).status_code == 204
        b.until(task_id, "completed")
        assert texts(b, task_id) == ["all of it"]
        assert len(agent.of("get")) == 1


@pytest.mark.parametrize("kept", ["an error", "an older state"])
def test_the_end_counts_though_the_agent_does_not_know_it_when_asked(tmp_path: Path, kept: str) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("WORKING", "", half="half of it")
        agent.broken, agent.keeps = kept == "an error", agent.task
        agent.stand("COMPLETED", "done")
        agent.call(agent.notice("status"))
        b.until(task_id, "completed")
        assert texts(b, task_id) == ([] if agent.broken else ["half of it"])


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED"])
def test_a_question_reaches_the_caller_and_the_answer_the_agent(tmp_path: Path, state: str) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand(state, "Which one?")
        agent.call(agent.notice("status"))
        b.until(task_id, state.lower())
        agent.stand("WORKING")
        message = {"messageId": "reply", "role": "ROLE_USER", "taskId": task_id, "parts": [{"text": "blue"}]}
        b.rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}})
        idle(b)
        again = agent.of("send")[-1]
        assert (again["message"]["taskId"], agent.config["url"]) == ("r-1", f"{b.url}/callbacks/{task_id}/1")
        agent.stand("COMPLETED", "thanks")
        agent.call()
        b.until(task_id, "completed")


def test_progress_comes_through_once_however_often_and_in_whatever_order_it_is_said(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("WORKING", "one", a="first")
        early = agent.notice("artifact")
        agent.call(agent.notice("status"))
        b.logged(task_id, "output_recorded")
        idle(b)
        agent.stand("WORKING", "two", a="first", b="second")
        late = agent.notice("artifact")
        for body in (late, late, early, agent.notice("status"), agent.notice()):
            assert agent.call(body).status_code == 204
            idle(b)
        agent.stand("COMPLETED", "done", a="first", b="second")
        agent.call()
        b.until(task_id, "completed")
        task = b.rpc("GetTask", {"id": task_id})["result"]
        assert texts(b, task_id) == ["first", "second"]
        heard = [m["parts"][0]["text"] for m in task["history"] if m["role"] == "ROLE_AGENT"]
        assert heard == ["one", "two"]


def test_an_end_that_is_told_again_or_contradicted_changes_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("COMPLETED", "done", answer="right")
        for _ in range(3):
            assert agent.call().status_code == 204
        log = b.log(task_id)
        agent.stand("FAILED", "wrong")
        for _ in range(3):
            assert agent.call().status_code == 204
        assert b.handoff(task_id)["state"] == "completed"
        assert texts(b, task_id) == ["right"]
        assert b.log(task_id) == [*log, "late_result_recorded"]


def test_what_is_said_of_another_task_ends_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.call({"task": {"id": "r-2", "contextId": "rc-1", "status": {"state": "TASK_STATE_FAILED"}}})
        agent.call({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "still at it"}]}})
        idle(b)
        assert b.handoff(task_id)["state"] == "acknowledged"
        agent.stand("COMPLETED")
        agent.call()
        b.until(task_id, "completed")


@pytest.mark.parametrize(
    "body", [{}, {"task": 5}, {"statusUpdate": {"status": {"state": "NEW"}}}, {"x": [1]}]
)
def test_what_cannot_be_read_is_a_hint_to_ask(tmp_path: Path, body: Any) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("COMPLETED", "done")
        assert agent.call(body).status_code == 204
        b.until(task_id, "completed")


# --- who may call --------------------------------------------------------------------------------


def test_the_token_may_come_as_a_bearer_token(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("COMPLETED")
        assert agent.call(bearer=True).status_code == 204
        b.until(task_id, "completed")


def test_a_wrong_token_and_an_unknown_attempt_look_the_same(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        token = agent.config["token"]
        agent.stand("COMPLETED")
        answers = [
            b.http.post(path, json=agent.notice(), headers=headers)
            for path, headers in [
                (f"/callbacks/{task_id}/1", {}),
                (f"/callbacks/{task_id}/1", {"X-A2A-Notification-Token": "x" * 43}),
                (f"/callbacks/{task_id}/1", {"Authorization": f"Basic {token}"}),
                (f"/callbacks/{task_id}/2", {"X-A2A-Notification-Token": token}),
                (f"/callbacks/{task_id}/01", {"X-A2A-Notification-Token": token}),
                ("/callbacks/nobody/1", {"X-A2A-Notification-Token": token}),
            ]
        ]
        opaque = [(b"X-A2A-Notification-Token", b"\xe9")]
        answers.append(b.http.post(f"/callbacks/{task_id}/1", json=agent.notice(), headers=opaque))
        assert {answer.status_code for answer in answers} == {404}
        bodies = [{**answer.json(), "instance": ""} for answer in answers]
        assert all(body == bodies[0] for body in bodies)
        assert b.handoff(task_id)["state"] == "acknowledged"
        assert agent.of("get") == []


def test_the_token_alone_lets_an_agent_in_where_everybody_is_asked_who_it_is(tmp_path: Path) -> None:
    port = kept_port()
    known: dict[str, Any] = {"public_url": f"http://127.0.0.1:{port}", "auth_secret": SECRET}
    with calling_agent() as agent, broker(tmp_path, port=port, **known) as b:
        card = {"agent_id": "caller", "card": agent.card}
        assert b.http.post("/api/agents", json=card, headers=bearer("caller")).is_success
        sent = send_params("work", wait=False, context={"target_agent": "caller", "source_agent": "shop"})
        task_id = b.rpc("SendMessage", sent, **bearer("shop"))["result"]["task"]["id"]
        b.until(task_id, "acknowledged")
        agent.stand("COMPLETED", "done")
        wrong = {"Authorization": bearer("caller")["Authorization"]}
        assert b.http.post(agent.config["url"], json=agent.notice(), headers=wrong).status_code == 404
        assert agent.call(bearer=True).status_code == 204
        b.until(task_id, "completed")


def test_a_body_that_is_too_large_or_no_json_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, max_body=2_048) as (b, agent):
        task_id = begun(b, agent)
        config = agent.config
        proof = {"X-A2A-Notification-Token": config["token"]}
        assert b.http.post(config["url"], content=b"{" + b" " * 4_000, headers=proof).status_code == 413
        assert b.http.post(config["url"], content=b"[]", headers=proof).status_code == 400
        assert b.http.get(config["url"], headers=proof).status_code == 405
        assert b.handoff(task_id)["state"] == "acknowledged"


def test_the_token_is_nowhere_to_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        shown = (
            b.http.get(f"/api/handoffs/{task_id}").text + b.http.get(f"/api/handoffs/{task_id}/events").text
        )
        assert agent.config["token"] not in shown + caplog.text


# --- who is asked to call ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "streams"),
    [({"callbacks": "off"}, False), ({"public_url": ""}, False), ({"callbacks": "auto"}, True)],
)
def test_nobody_is_asked_who_should_not_or_could_not(
    tmp_path: Path, settings: dict[str, Any], streams: bool
) -> None:
    with served(tmp_path, **settings) as (b, agent):
        card = agent.card
        card["capabilities"]["streaming"] = streams
        b.register("caller", card=card)
        agent.stand("COMPLETED", "done")
        b.send("work", context={"target_agent": "caller"})
        assert [method for method, _ in agent.calls] == ["SendStreamingMessage" if streams else "SendMessage"]
        assert "callbacks" not in str(agent.calls)


def test_an_agent_that_streams_is_asked_to_call_if_that_is_wanted(tmp_path: Path) -> None:
    with served(tmp_path, callbacks="always") as (b, agent):
        card = agent.card
        card["capabilities"]["streaming"] = True
        b.register("caller", card=card)
        task_id = begun(b, agent)
        agent.stand("COMPLETED", "done")
        agent.call()
        b.until(task_id, "completed")


@pytest.mark.parametrize("generation", _GENERATIONS)
@pytest.mark.parametrize("code", [-32003, -32602])
def test_an_agent_that_refuses_to_call_gets_the_task_all_the_same(
    tmp_path: Path, generation: str, code: int
) -> None:
    with served(tmp_path, generation) as (b, agent):
        agent.refuses = code
        agent.stand("COMPLETED", "done")
        task = b.send("work", context={"target_agent": "caller"})
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert len(agent.of("send")) == 2


def test_an_agent_that_never_calls_is_asked_now_and_then(tmp_path: Path) -> None:
    with served(tmp_path, reconcile_every=0.2) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("COMPLETED", "done", answer="at last")
        b.until(task_id, "completed")
        assert texts(b, task_id) == ["at last"]
        assert len(agent.of("send")) == 1


def test_an_agent_that_never_calls_is_not_waited_for_again_and_again(tmp_path: Path) -> None:
    with served(tmp_path, reconcile_every=0.2) as (b, agent):

        def works() -> None:
            agent.stand("WORKING")
            task = b.send("work", wait=False, context={"target_agent": "caller"})
            b.until(task["id"], "acknowledged")
            agent.stand("COMPLETED", "done")
            b.until(task["id"], "completed")

        works()
        works()
        assert "callbacks" in str(agent.of("send")[-1])
        works()
        assert "callbacks" not in str(agent.of("send")[-1])
        assert len(agent.of("send")) == 3


# --- when it comes at the wrong time -------------------------------------------------------------


def test_an_end_that_comes_before_the_answer_to_the_delivery_is_the_end(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        agent.mute = True
        task_id = b.send("work", wait=False, context={"target_agent": "caller"})["id"]
        eventually(lambda: agent.of("send"))
        agent.stand("COMPLETED", "quick", answer="quickly")
        assert agent.call().status_code == 204
        b.until(task_id, "completed")
        assert texts(b, task_id) == ["quickly"]
        idle(b)
        assert len(agent.of("send")) == 1


def test_a_call_that_comes_while_the_agent_is_asked_makes_the_broker_ask_again(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("WORKING", "one")
        for _ in range(20):
            agent.call(agent.notice("status"))
        agent.stand("INPUT_REQUIRED", "Which one?")
        agent.call(agent.notice("status"))
        b.until(task_id, "input_required")


def test_an_agent_that_goes_on_by_itself_is_looked_after_again(tmp_path: Path) -> None:
    with served(tmp_path, reconcile_every=0.3) as (b, agent):
        task_id = begun(b, agent)
        agent.stand("AUTH_REQUIRED", "Sign in.")
        agent.call(agent.notice("status"))
        b.until(task_id, "auth_required")
        agent.stand("WORKING", "thanks")
        agent.call(agent.notice("status"))
        b.until(task_id, "acknowledged")
        agent.stand("COMPLETED", "done")
        b.until(task_id, "completed")


def test_an_agent_that_calls_is_there_though_it_answers_no_questions(tmp_path: Path) -> None:
    with served(tmp_path, reconcile_every=0.2, lost_after=1) as (b, agent):
        task_id = begun(b, agent)
        agent.broken = True
        for _ in range(4):
            asked = len(agent.of("get"))
            eventually(lambda before=asked: len(agent.of("get")) >= before + 3)
            agent.call(agent.notice("status"))
        assert "delivery_uncertain" not in b.log(task_id)
        agent.stand("COMPLETED", "done")
        agent.call()
        b.until(task_id, "completed")


def test_the_result_of_an_agent_that_was_given_up_is_kept_aside(tmp_path: Path) -> None:
    with served(tmp_path, reconcile_every=0.1, lost_after=1, callbacks="always") as (b, agent):
        context = {"target_agent": "caller", "replay_safe": True, "fallback": ["second"]}
        b.register("second")
        task_id = b.send("work", wait=False, context=context)["id"]
        b.until(task_id, "acknowledged")
        idle(b)
        agent.broken = True
        eventually(lambda: b.handoff(task_id)["assigned_to"] == "second")
        agent.stand("COMPLETED", "too late", answer="late")
        for _ in range(2):
            assert agent.call().status_code == 204
        assert b.log(task_id).count("late_result_recorded") == 1
        assert b.handoff(task_id)["assigned_to"] == "second"


def test_a_canceled_task_takes_the_word_of_its_agent_for_it(tmp_path: Path) -> None:
    with served(tmp_path, cancel_wait=20) as (b, agent):
        task_id = begun(b, agent)
        b.http.post(f"/api/handoffs/{task_id}/cancel", json={})
        agent.stand("CANCELED", "stopped")
        agent.call()
        b.until(task_id, "canceled")
        assert b.rpc("GetTask", {"id": task_id})["result"]["status"]["state"] == "TASK_STATE_CANCELED"


def test_a_message_in_place_of_a_task_is_the_end(tmp_path: Path) -> None:
    with served(tmp_path) as (b, agent):
        agent.mute = True
        params = send_params("work", wait=False, context={"target_agent": "caller"})
        task_id = b.rpc("SendMessage", params)["result"]["task"]["id"]
        eventually(lambda: agent.of("send"))
        agent.call({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "42"}]}})
        b.until(task_id, "completed")
