"""What webhooks are told, in which order, and what happens when they do not listen."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.core.events import WorkKind
from tests.push.conftest import Office
from tests.support.agents import asks, completes, said, streams
from tests.support.hooks import Answer, Shut, Told, answers, hook
from tests.support.running import broker, kept_port, send_params
from tests.support.wire import eventually, metric

STORY = ["SUBMITTED", "WORKING", "a", "b", "c", "COMPLETED"]
OLD = {"url": "", "token": "t", "authentication": {"schemes": ["Bearer"], "credentials": "s3cret"}}


# --- what is told --------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [True, False])
def test_a_webhook_in_the_message_hears_the_whole_task_in_order(office: Office, wait: bool) -> None:
    told = office.hook()
    task = office.send(office.hire(streams("a", "b", "c")), {"url": told.url + "/in?x=1"}, wait=wait)
    told.until()
    assert told.words == STORY
    assert {one.path for one in told.told} == {"/in"}
    assert len({one.id for one in told.told}) == len(STORY)
    bodies = [next(iter(one.json.values())) for one in told.told]
    assert {(body["taskId"], body["contextId"]) for body in bodies} == {(task["id"], task["contextId"])}
    office.until(task["id"], lambda hook: hook["state"] == "done")
    office.rests(task["id"])


def test_a_webhook_hears_what_the_stream_of_the_same_task_says(office: Office) -> None:
    told = office.hook()
    agent = office.hire(streams("a", "b", "c"))
    configuration = {"taskPushNotificationConfig": {"url": told.url}}
    events = list(office.broker.events(context={"target_agent": agent}, configuration=configuration))
    told.until()
    assert [one.json for one in told.told] == [event["result"] for event in events[1:]]


def test_token_and_credentials_are_sent_and_nothing_more_than_was_given(office: Office) -> None:
    full, bare, half = office.hook(), office.hook(), office.hook()
    agent, puppet = office.puppet()
    task = office.send(agent)
    authentication = {"scheme": "Bearer", "credentials": "s3cret"}
    office.add(task["id"], url=full.url, token="tok", authentication=authentication)
    office.add(task["id"], url=bare.url)
    office.add(task["id"], url=half.url, authentication={"scheme": "Bearer"})
    puppet.next().answer({"task": puppet.task("COMPLETED")})
    for told in (full, bare, half):
        assert told.until()[0].headers["content-type"] == "application/a2a+json"
    for one in full.told:
        assert one.headers["authorization"] == "Bearer s3cret"
        assert one.headers["x-a2a-notification-token"] == "tok"
    for one in (*bare.told, *half.told):
        assert "authorization" not in one.headers
        assert "x-a2a-notification-token" not in one.headers


def test_a_caller_of_0_3_is_told_the_task_of_0_3_after_each_event(office: Office) -> None:
    told = office.hook()
    message = {
        "messageId": "m-03", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "go"}],
    }  # fmt: skip
    params = {
        "message": message,
        "configuration": {"pushNotificationConfig": OLD | {"url": told.url}},
        "metadata": {
            "handoff_context": send_params(context={"target_agent": office.hire(streams("a", "b"))})[
                "metadata"
            ]["handoff_context"]
        },
    }
    task = office.broker.rpc("message/send", params, version="")["result"]
    told.until()
    tasks = [one.json for one in told.told]
    assert {one.headers["content-type"] for one in told.told} == {"application/json"}
    assert {one.headers["authorization"] for one in told.told} == {"Bearer s3cret"}
    assert {(one["kind"], one["id"], one["contextId"]) for one in tasks} == {
        ("task", task["id"], task["contextId"])
    }
    assert tasks[-1] == task
    texts = [[part["text"] for a in one.get("artifacts", []) for part in a["parts"]] for one in tasks]
    assert texts[0] == []
    assert texts[-1] == ["a", "b"]
    assert [one["status"]["state"] for one in tasks][:2] == ["submitted", "working"]


def test_a_caller_of_the_first_generation_is_told_under_its_own_id(office: Office) -> None:
    told = office.hook()
    context = send_params(context={"target_agent": office.hire(streams("a", "b"))})["metadata"]
    params = {
        "id": "mine-1",
        "message": {"role": "user", "parts": [{"type": "text", "text": "go"}]},
        "pushNotification": OLD | {"url": told.url},
        "metadata": context,
    }
    task = office.broker.rpc("tasks/send", params, version="")["result"]
    told.until()
    last = told.told[-1]
    assert last.json == task
    assert {one.json["id"] for one in told.told} == {"mine-1"}
    assert last.headers["content-type"] == "application/json"
    assert last.headers["authorization"] == "Bearer s3cret"


def test_a_task_that_is_handed_on_is_one_task_to_its_webhook(office: Office) -> None:
    told, old = office.hook(), office.hook()
    last = office.hire(streams("a"))
    first, puppet = office.puppet()
    task = office.send(first, {"url": told.url})
    config = {"taskId": task["id"], "pushNotificationConfig": {"url": old.url}}
    assert "result" in office.broker.rpc("tasks/pushNotificationConfig/set", config, version="")
    directive = puppet.task("COMPLETED")
    directive["status"]["message"] = said("handing on", handoff={"target_agent": last, **_summary()})
    puppet.next().answer({"task": directive})
    told.until()
    old.until()
    assert {next(iter(one.json.values()))["taskId"] for one in told.told} == {task["id"]}
    assert [one.state for one in told.told if one.state][-1] == "COMPLETED"
    assert told.words.count("COMPLETED") == 1
    assert "a" in told.words
    final = old.told[-1].json
    assert (final["id"], final["status"]["state"]) == (task["id"], "completed")
    assert [part["text"] for artifact in final["artifacts"] for part in artifact["parts"]] == ["a"]


def _summary() -> dict[str, Any]:
    return {"handoff_reason": "specialization", "conversation_summary": "More.", "user_intent": "More."}


def test_a_question_is_told_and_the_rest_after_the_answer(office: Office) -> None:
    told = office.hook()
    task = office.send(office.hire(asks, streaming=False), {"url": told.url}, wait=True)
    told.until("INPUT_REQUIRED")
    office.broker.send("the red one", message={"taskId": task["id"]})
    told.until("COMPLETED")
    states = [one.state for one in told.told]
    assert states.index("INPUT_REQUIRED") < states.index("COMPLETED")
    assert states[-1] == "COMPLETED"


def test_a_webhook_in_a_follow_up_hears_of_its_answer(office: Office) -> None:
    told = office.hook()
    task = office.send(office.hire(asks, streaming=False), wait=True)
    configuration = {"taskPushNotificationConfig": {"id": "w", "url": told.url}}
    office.broker.send("the red one", message={"taskId": task["id"]}, configuration=configuration)
    told.until("COMPLETED")
    assert "INPUT_REQUIRED" not in told.words
    assert [hook["id"] for hook in office.webhooks(task["id"])] == ["w"]


def test_a_message_that_is_sent_again_sets_no_second_webhook(office: Office) -> None:
    told = office.hook()
    agent = office.hire(completes, streaming=False)
    once, again = (
        office.send(agent, {"url": told.url}, wait=True, message={"messageId": "m-same"}) for _ in range(2)
    )
    assert once["id"] == again["id"]
    told.until()
    assert len(office.webhooks(once["id"])) == 1
    assert told.words.count("COMPLETED") == 1


def test_a_task_that_nobody_takes_is_told_too(office: Office) -> None:
    told = office.hook()
    office.send("nobody-of-that-name", {"url": told.url})
    assert told.until()[-1].state == "REJECTED"


def test_a_webhook_that_is_set_later_hears_what_comes_later(office: Office) -> None:
    told = office.hook()
    agent, puppet = office.puppet()
    task = office.send(agent)
    turn = puppet.next()
    work = puppet.task("WORKING")
    turn.event({"task": work})
    turn.event(puppet.artifact(work, "x", "before"))
    office.broker.logged(task["id"], "output_recorded")
    office.add(task["id"], url=told.url)
    turn.event(puppet.artifact(work, "x", "after", append=True))
    turn.event(puppet.status(work, "COMPLETED"))
    told.until()
    assert told.words == ["after", "COMPLETED"]


@pytest.mark.parametrize("version", ["1.0", ""])
def test_a_webhook_that_is_set_after_the_end_hears_the_end(office: Office, version: str) -> None:
    told = office.hook()
    task = office.send(office.hire(streams("a", "b")), wait=True)
    if version:
        office.add(task["id"], url=told.url)
    else:
        config = {"taskId": task["id"], "pushNotificationConfig": {"url": told.url}}
        office.broker.rpc("tasks/pushNotificationConfig/set", config, version="")
    told.until()
    assert [one.state for one in told.told] == ["COMPLETED"]
    office.until(task["id"], lambda hook: hook["state"] == "done")


# --- pace ----------------------------------------------------------------------------------------


def test_a_slow_webhook_holds_up_neither_its_task_nor_another_webhook(office: Office) -> None:
    shut = Shut()
    slow, quick = office.hook(shut), office.hook()
    agent = office.hire(streams("a", "b", "c"))
    slow_task = office.send(agent, {"url": slow.url}, wait=True)
    assert slow_task["status"]["state"] == "TASK_STATE_COMPLETED"
    office.add(slow_task["id"], url=quick.url)
    office.send(agent, {"url": quick.url})
    quick.until(count=2)
    assert slow.told == []
    shut.open()
    slow.until()
    assert slow.words == STORY


def test_tasks_with_the_same_receiver_do_not_wait_for_one_another(office: Office) -> None:
    free = threading.Event()

    async def script(one: Told) -> Answer | None:
        return None if free.is_set() or one.path == "/two" else Answer(503)

    told = office.hook(script)
    agent = office.hire(completes, streaming=False)
    office.send(agent, {"url": told.url + "/one"})
    office.send(agent, {"url": told.url + "/two"})
    assert {one.path for one in told.until()} == {"/two"}
    free.set()
    told.until(count=2)


# --- failures ------------------------------------------------------------------------------------


def test_a_dead_webhook_is_told_everything_in_order_once_it_is_back(office: Office) -> None:
    port = kept_port()
    task = office.send(office.hire(streams("a", "b", "c")), {"url": f"http://127.0.0.1:{port}/"}, wait=True)
    dead = office.until(task["id"], lambda hook: hook["failures"] >= 2)
    assert (dead["state"], dead["status"], dead["error"]) == ("active", None, "not connected")
    assert dead["failing_since"]
    with hook(port=port) as told:
        told.until()
        assert told.words == STORY
        back = office.until(task["id"], lambda hook: hook["state"] == "done")
    assert (back["failures"], back["failing_since"], back["error"]) == (0, None, "")
    assert back["delivered"] == len(STORY)


@pytest.mark.parametrize("status", [500, 503, 429, 408, 302, 304])
def test_what_may_pass_is_tried_again_under_the_same_id(office: Office, status: int) -> None:
    told = office.hook(answers(200, status, status))
    office.send(office.hire(streams("a", "b", "c")), {"url": told.url})
    told.until()
    assert told.words == STORY
    assert [str(one) for one in told.refused] == ["WORKING", "WORKING"]
    assert {one.id for one in told.refused} == {told.told[1].id}


def test_a_failure_among_the_notifications_of_one_event_repeats_none_of_them(office: Office) -> None:
    told = office.hook(answers(200, 200, 200, 503, 200, 503))
    agent, puppet = office.puppet()
    office.send(agent, {"url": told.url})
    artifacts = [{"artifactId": f"x-{n}", "parts": [{"text": f"{n}"}]} for n in range(4)]
    puppet.next().answer({"task": puppet.task("COMPLETED", artifacts=artifacts)})
    told.until()
    assert told.words == ["SUBMITTED", "WORKING", "0", "1", "2", "3", "COMPLETED"]
    assert [str(one) for one in told.refused] == ["1", "2"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422])
def test_what_is_refused_for_good_is_given_up_at_once_for_all_to_see(
    office: Office, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.INFO, "a2a_handoff")
    told = office.hook(answers(200, then=status))
    url = told.url + "/?key=in-the-url"
    config = {"url": url, "token": "tok-1", "authentication": {"scheme": "X", "credentials": "cred-1"}}
    task = office.send(office.hire(streams("a", "b", "c")), config, wait=True)
    lost = office.until(task["id"], lambda hook: hook["state"] == "given_up")
    assert (lost["delivered"], lost["failures"]) == (1, 1)
    assert (lost["status"], lost["error"]) == (status, f"HTTP {status}")
    office.rests(task["id"])
    assert len(told.refused) == 1
    (record,) = [r for r in caplog.records if "webhook" in r.getMessage()]
    assert record.levelname == "WARNING"
    assert f"given up after 1 try: HTTP {status}" in record.getMessage()
    assert record.__dict__["handoff_id"] == task["id"]
    for secret in ("tok-1", "cred-1", "in-the-url"):
        assert secret not in caplog.text


def test_a_webhook_that_is_gone_is_removed(office: Office) -> None:
    told = office.hook(answers(200, then=410))
    task = office.send(office.hire(completes, streaming=False), {"url": told.url}, wait=True)
    eventually(lambda: not office.webhooks(task["id"]))
    office.rests(task["id"])
    assert (len(told.told), len(told.refused)) == (1, 1)


def test_a_webhook_that_takes_nothing_for_too_long_is_given_up(closed_office: Office) -> None:
    office = closed_office
    office.open(webhook_give_up=0.3)
    told = office.hook(answers(then=500))
    task = office.send(office.hire(completes, streaming=False), {"url": told.url}, wait=True)
    lost = office.until(task["id"], lambda hook: hook["state"] == "given_up")
    assert lost["failures"] == len(told.refused) > 1
    assert lost["error"] == "HTTP 500"
    assert told.told == []


def test_a_silent_webhook_is_not_waited_for_for_ever(closed_office: Office) -> None:
    office = closed_office
    office.open(webhook_timeout=0.1)
    shut = Shut()
    told = office.hook(shut)
    task = office.send(office.hire(completes, streaming=False), {"url": told.url}, wait=True)
    late = office.until(task["id"], lambda hook: hook["failures"] > 0)
    assert late["error"] == "no answer in time"
    shut.open()
    told.until()


def test_retry_after_is_heeded_within_the_limit(closed_office: Office) -> None:
    office = closed_office
    office.open(webhook_retry_delay=30, webhook_retry_max=0.05)
    asked: list[Told] = []

    async def script(one: Told) -> Answer | None:
        asked.append(one)
        return Answer(503, {"retry-after": "3600"}) if len(asked) == 1 else None

    told = office.hook(script)
    office.send(office.hire(completes, streaming=False), {"url": told.url})
    told.until()
    assert asked[0].id == asked[1].id


def test_redirects_are_not_followed(office: Office) -> None:
    inner = office.hook()

    async def script(_: Told) -> Answer:
        return Answer(307, {"location": inner.url})

    told = office.hook(script)
    task = office.send(office.hire(completes, streaming=False), {"url": told.url}, wait=True)
    assert office.until(task["id"], lambda hook: hook["failures"] > 1)["error"] == "HTTP 307"
    assert inner.told == []


def test_tries_are_counted_by_what_became_of_them(office: Office) -> None:
    fine, gone = office.hook(answers(200, 503)), office.hook(answers(then=410))
    agent = office.hire(completes, streaming=False)
    task = office.send(agent, {"url": fine.url}, wait=True)
    office.add(task["id"], url=gone.url)
    fine.until()

    def counted() -> dict[str, float]:
        text = office.broker.http.get("/metrics").text
        name = "handoff_webhook_notifications_total"
        results = ("taken", "failed", "given_up", "removed")
        return {result: metric(text, name, handoff_webhook_result=result) for result in results}

    wanted = {"taken": len(fine.told), "failed": 1, "given_up": 0, "removed": 1}
    eventually(lambda: counted() == wanted)


# --- changes while it is told --------------------------------------------------------------------


def test_a_webhook_that_is_set_anew_goes_on_where_it_was(office: Office) -> None:
    told = office.hook(answers(200, 200, then=404))
    task = office.send(office.hire(streams("a", "b", "c")), {"id": "w", "url": told.url}, wait=True)
    office.until(task["id"], lambda hook: hook["state"] == "given_up")
    other = office.hook()
    office.add(task["id"], id="w", url=other.url)
    other.until()
    assert told.words + other.words == STORY
    office.until(task["id"], lambda hook: hook["state"] == "done")


def test_a_webhook_that_was_removed_is_told_nothing_more(office: Office) -> None:
    told, witness = office.hook(), office.hook()
    agent, puppet = office.puppet()
    task = office.send(agent, {"id": "w", "url": told.url})
    office.add(task["id"], id="witness", url=witness.url)
    turn = puppet.next()
    work = puppet.task("WORKING")
    turn.event({"task": work})
    told.until("WORKING")
    gone = office.broker.rpc("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "w"})
    assert gone["result"] == {}
    turn.event(puppet.status(work, "COMPLETED"))
    witness.until()
    assert "COMPLETED" not in told.words
    assert [hook["id"] for hook in office.webhooks(task["id"])] == ["witness"]


def test_a_webhook_that_was_removed_and_set_again_is_told_once(office: Office) -> None:
    told = office.hook()
    agent, puppet = office.puppet()
    task = office.send(agent, {"id": "w", "url": told.url})
    turn = puppet.next()
    work = puppet.task("WORKING")
    turn.event({"task": work})
    told.until("WORKING")
    for _ in range(3):
        office.broker.rpc("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "w"})
        office.add(task["id"], id="w", url=told.url)
    turn.event(puppet.status(work, "COMPLETED"))
    office.until(task["id"], lambda hook: hook["state"] == "done")
    assert told.words.count("COMPLETED") == 1
    office.rests(task["id"])


def test_a_stopping_broker_does_not_wait_for_webhooks_and_the_next_one_goes_on(
    closed_office: Office, tmp_path: Path
) -> None:
    office = closed_office
    shut = Shut()
    told = office.hook(shut)
    with broker(tmp_path, webhook_timeout=0.2, webhook_retry_delay=0.05) as first:
        office.broker = first
        agent = office.hire(streams("a", "b", "c"))
        task = office.send(agent, {"url": told.url}, wait=True)
        office.until(task["id"], lambda hook: hook["failures"] > 0)
    shut.open()
    office.open()
    told.until()
    assert list(dict.fromkeys(told.words)) == STORY  # one may have come twice
    office.until(task["id"], lambda hook: hook["state"] == "done")


def test_a_lease_that_lapsed_makes_no_second_run(office: Office) -> None:
    told = office.hook()
    agent, puppet = office.puppet()
    task = office.send(agent, {"url": told.url})
    turn = puppet.next()
    work = puppet.task("WORKING")
    turn.event({"task": work})
    told.until("WORKING")
    app, loop = office.broker.app, office.broker.loop

    async def lapse() -> None:
        works = await app.store.claim_work(now=2e9, limit=100)
        ours = [one for one in works if one.key.kind is WorkKind.WEBHOOK]
        app.service.dispatcher.take(ours, app.clock.now())

    for _ in range(3):
        loop.run(lapse())
    turn.event(puppet.artifact(work, "x", "once"))
    turn.event(puppet.status(work, "COMPLETED"))
    office.until(task["id"], lambda hook: hook["state"] == "done")
    assert told.words == ["SUBMITTED", "WORKING", "once", "COMPLETED"]


# --- a task without one --------------------------------------------------------------------------


def test_a_task_without_a_webhook_has_no_work_for_one(office: Office) -> None:
    agent, _ = office.puppet()
    task = office.send(agent)
    assert "webhook" not in office.work(task["id"])
    assert office.webhooks(task["id"]) == []
