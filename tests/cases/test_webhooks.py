"""Known faults of webhooks: c050 to c055 of docs/reference/cases.md, and what others say of webhooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.client import WebhookClient
from a2a_handoff.ports import AgentError
from a2a_handoff.security.urls import OutboundPolicy
from tests.support.agents import Agent, Answer, Call, card, completes, streams
from tests.support.hooks import Answer as HookAnswer
from tests.support.hooks import Hook, Told, answers, hook
from tests.support.running import Ahead, Broker, broker, running
from tests.support.served import served
from tests.support.wire import eventually

SET = "CreateTaskPushNotificationConfig"
STORY = ["SUBMITTED", "WORKING", "1", "2", "3", "4", "5", "COMPLETED"]
QUICK: dict[str, Any] = {"webhook_retry_delay": 0.05, "webhook_retry_max": 0.2}
five = streams("1", "2", "3", "4", "5")


@pytest.fixture
def stack() -> Generator[ExitStack]:
    with ExitStack() as made:
        yield made


def opened(stack: ExitStack, folder: Path, script: Any = completes, **settings: Any) -> Broker:
    """A broker with one agent, ``worker``."""
    url = stack.enter_context(running(Agent(script)))
    b = stack.enter_context(broker(folder, **(QUICK | settings)))
    b.register("worker", card=card(url, streaming=script is not completes))
    return b


def send(b: Broker, config: Any = None, *, wait: bool = True, **more: Any) -> Any:
    configuration = {} if config is None else {"taskPushNotificationConfig": config}
    return b.send(wait=wait, context={"target_agent": "worker"}, configuration=configuration, **more)


def doing(b: Broker, task_id: str, wanted: Callable[[Any], Any] = lambda _: True) -> Any:
    """How the only webhook of a task is doing, once it is as wanted."""

    def found() -> Any:
        (shown,) = b.http.get(f"/api/handoffs/{task_id}/webhooks").json()["webhooks"]
        return shown if wanted(shown) else None

    return eventually(found)


# --- c050: addresses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[64:ff9b::7f00:1]", "100.64.0.1", "0.0.0.0", "224.0.0.1"],
)
def test_c050_an_inner_address_is_refused_in_every_form(stack: ExitStack, tmp_path: Path, host: str) -> None:
    b = stack.enter_context(broker(tmp_path, allow_private_addresses=False))
    url = f"http://{host}/hook"
    for method, params in (
        (SET, {"taskId": b.send("x")["id"], "url": url}),
        (
            "SendMessage",
            {
                "message": {"messageId": "m-in", "role": "ROLE_USER", "parts": [{"text": "x"}]},
                "configuration": {"taskPushNotificationConfig": {"url": url}},
            },
        ),
    ):
        error = b.rpc(method, params)["error"]
        assert error["code"] == -32602
        assert "is not an address that the broker may call" in error["message"]


def test_c050_a_redirect_is_a_failure_and_not_followed(stack: ExitStack, tmp_path: Path) -> None:
    inner = stack.enter_context(hook())

    async def redirects(_: Told) -> HookAnswer:
        return HookAnswer(307, {"location": inner.url})

    outer = stack.enter_context(hook(redirects))
    b = opened(stack, tmp_path)
    task = send(b, {"url": outer.url})
    assert doing(b, task["id"], lambda shown: shown["failures"] > 1)["error"] == "HTTP 307"
    assert inner.told == inner.refused == []


# --- c051: names that change ---------------------------------------------------------------------


def test_c051_a_name_that_points_inside_by_now_is_not_called() -> None:
    answers_of = [["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "::1"]]

    async def resolver(_: str) -> Sequence[str]:
        return answers_of[0] if len(answers_of) == 1 else answers_of.pop(0)

    with hook() as inner:
        port = inner.url.rsplit(":", 1)[1]
        url = f"http://rebinding.test:{port}/"

        async def story() -> None:
            policy = OutboundPolicy(keep_s=0, resolver=resolver)
            client = WebhookClient(policy, now=lambda: 0.0)
            assert await policy.vet(url) == "93.184.216.34"
            for _ in range(2):
                with pytest.raises(AgentError, match="address unknown or not allowed"):
                    await client.post(url, (), b"{}", timeout_s=1)
            await client.close()

        asyncio.run(story())
        assert inner.told == inner.refused == []


def test_c051_the_connection_goes_to_the_vetted_address_under_the_name() -> None:
    async def resolver(_: str) -> Sequence[str]:
        return ["127.0.0.1"]

    with hook() as receiver:
        port = receiver.url.rsplit(":", 1)[1]

        async def story() -> None:
            client = WebhookClient(OutboundPolicy(allow_private=True, resolver=resolver), now=lambda: 0.0)
            answer = await client.post(f"http://no-such-name.test:{port}/", (), b"{}", timeout_s=5)
            assert answer.status == 200
            await client.close()

        asyncio.run(story())
        assert receiver.told[0].headers["host"] == f"no-such-name.test:{port}"


# --- c052: credentials ---------------------------------------------------------------------------


def test_c052_credentials_are_sent_as_given_and_shown_to_nobody_else(
    stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "a2a_handoff")
    full, bare, half = (stack.enter_context(hook(answers(500))) for _ in range(3))
    b = opened(stack, tmp_path, five)
    authentication = {"scheme": "bearer", "credentials": "s3cr3t"}
    send(b, {"url": full.url, "token": "tok-en", "authentication": authentication})
    send(b, {"url": bare.url})
    send(b, {"url": half.url, "authentication": {"scheme": "Bearer"}})
    for told in (full, bare, half):
        told.until()
    for one in (*full.told, *full.refused):
        assert one.headers["authorization"] == "bearer s3cr3t"
        assert one.headers["x-a2a-notification-token"] == "tok-en"
    for one in (*bare.told, *half.told):
        assert "authorization" not in one.headers
    seen = caplog.text + b.http.get("/metrics").text + b.http.get("/api/handoffs").text
    assert "s3cr3t" not in seen
    assert "tok-en" not in seen


# --- c053: order ---------------------------------------------------------------------------------


def test_c053_a_slow_first_and_a_retry_in_the_middle_change_no_order(
    stack: ExitStack, tmp_path: Path
) -> None:
    calls: list[str] = []

    async def script(one: Told) -> HookAnswer | None:
        if one.path == "/other":
            return None
        calls.append(one.id)
        if len(calls) == 1:
            await asyncio.sleep(0.3)
        return HookAnswer(503) if len(calls) == 4 else None

    told = stack.enter_context(hook(script))
    b = opened(stack, tmp_path, five)
    slow = send(b, {"url": told.url + "/slow"})
    other = send(b, {"url": told.url + "/other"})
    told.until(count=2)
    assert [str(one) for one in told.of(slow["id"])] == STORY
    assert [str(one) for one in told.of(other["id"])] == STORY
    order = [one.path for one in told.told]
    assert order.index("/other") < len(order) - 1 - order[::-1].index("/slow")


# --- c054: a receiver that is down ---------------------------------------------------------------


def test_c054_the_end_is_told_after_five_minutes_and_a_restart(stack: ExitStack, tmp_path: Path) -> None:
    down = True

    async def script(_: Told) -> HookAnswer | None:
        return HookAnswer(503) if down else None

    told = stack.enter_context(hook(script))
    url = stack.enter_context(running(Agent(five)))
    b = stack.enter_context(served(tmp_path, forked=True, webhook_retry_delay=0.05))
    b.register("worker", card=card(url, streaming=True))
    configuration = {"taskPushNotificationConfig": {"url": told.url}}
    b.send("go", wait=True, context={"target_agent": "worker"}, configuration=configuration)
    eventually(lambda: len(told.refused) > 3)
    assert b.stop() == 0
    down = False
    b.start()
    told.until()
    assert told.words == STORY


def test_c054_the_waits_grow_to_their_limit_and_the_time_of_the_next_is_ahead(
    stack: ExitStack, tmp_path: Path
) -> None:
    told = stack.enter_context(hook(answers(then=500)))
    b = opened(stack, tmp_path, webhook_retry_delay=0.1, webhook_retry_max=3600, clock=Ahead())
    task = send(b, {"url": told.url})
    shown = doing(b, task["id"], lambda shown: shown["failures"] >= 3)
    assert shown["state"] == "active"
    store = b.app.store
    due_at = eventually(lambda: b.loop.run(store.next_due()))
    assert due_at > b.app.clock.now() - 1
    assert doing(b, task["id"])["failures"] < 6


def test_c054_what_is_refused_for_good_is_seen_and_can_be_set_again(stack: ExitStack, tmp_path: Path) -> None:
    told = stack.enter_context(hook(answers(200, then=403)))
    b = opened(stack, tmp_path, five)
    task = send(b, {"id": "w", "url": told.url})
    lost = doing(b, task["id"], lambda shown: shown["state"] == "given_up")
    assert (lost["status"], lost["error"], lost["delivered"]) == (403, "HTTP 403", 1)
    listed = b.rpc("ListTaskPushNotificationConfigs", {"taskId": task["id"]})["result"]["configs"]
    assert [config["id"] for config in listed] == ["w"]
    other = stack.enter_context(hook())
    b.rpc(SET, {"taskId": task["id"], "id": "w", "url": other.url})
    other.until()
    assert told.words + other.words == STORY


def test_c054_a_webhook_that_is_gone_for_ever_is_removed(stack: ExitStack, tmp_path: Path) -> None:
    told = stack.enter_context(hook(answers(then=410)))
    b = opened(stack, tmp_path)
    task = send(b, {"url": told.url})
    eventually(lambda: not b.http.get(f"/api/handoffs/{task['id']}/webhooks").json()["webhooks"])
    assert len(told.refused) == 1


# --- c055: what is a configuration, and what it is told ------------------------------------------


@pytest.mark.parametrize("config", [{}, {"url": ""}, {"url": None}, {"token": "t"}])
def test_c055_a_configuration_without_a_url_is_refused(stack: ExitStack, tmp_path: Path, config: Any) -> None:
    b = opened(stack, tmp_path)
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    params = {"message": message, "configuration": {"taskPushNotificationConfig": config}}
    assert b.rpc("SendMessage", params)["error"]["code"] == -32602
    assert b.http.get("/api/handoffs").json()["total"] == 0


def test_c055_a_null_is_no_configuration(stack: ExitStack, tmp_path: Path) -> None:
    b = opened(stack, tmp_path)
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    params = {"message": message, "configuration": {"taskPushNotificationConfig": None}}
    task = b.rpc("SendMessage", params)["result"]["task"]
    assert b.http.get(f"/api/handoffs/{task['id']}/webhooks").json()["webhooks"] == []


def test_c055_each_generation_is_told_in_its_own_shape(stack: ExitStack, tmp_path: Path) -> None:
    new, old = stack.enter_context(hook()), stack.enter_context(hook())
    b = opened(stack, tmp_path, five)
    task = send(b, {"url": new.url})
    set_old = {"taskId": task["id"], "pushNotificationConfig": {"url": old.url}}
    b.rpc("tasks/pushNotificationConfig/set", set_old, version="")
    for one in new.until():
        assert len(one.json) == 1
        assert set(one.json) < {"task", "message", "statusUpdate", "artifactUpdate"}
        assert one.headers["content-type"] == "application/a2a+json"
    for one in old.until():
        assert (one.json["kind"], one.json["id"]) == ("task", task["id"])
        assert one.headers["content-type"] == "application/json"


# --- what others say of webhooks -----------------------------------------------------------------


def _answers_with(**artifact: Any) -> Any:
    async def script(agent: Agent, call: Call) -> Answer:
        return {"task": agent.task("COMPLETED", artifacts=[{"artifactId": "a", **artifact}])}

    return script


def _only_artifact(told: Hook) -> Any:
    (found,) = [
        one.json["artifactUpdate"]["artifact"] for one in told.until() if "artifactUpdate" in one.json
    ]
    return found


def test_c083_text_has_the_same_code_points_at_a_webhook(stack: ExitStack, tmp_path: Path) -> None:
    text = "订单 🧪\u200d🦰 مرحبا"
    told = stack.enter_context(hook())
    b = opened(stack, tmp_path, _answers_with(parts=[{"text": text}]))
    task = send(b, {"url": told.url})
    assert _only_artifact(told)["parts"] == [{"text": text}]
    assert task["artifacts"][0]["parts"] == [{"text": text}]


def test_c088_what_is_empty_stays_at_a_webhook(stack: ExitStack, tmp_path: Path) -> None:
    metadata = {"priority": 0, "dry_run": False, "note": "", "tags": [], "opt": None, "nested": {"z": {}}}
    told = stack.enter_context(hook())
    b = opened(stack, tmp_path, _answers_with(parts=[{"text": ""}, {"data": None}], metadata=metadata))
    send(b, {"url": told.url})
    assert _only_artifact(told) == {
        "artifactId": "a",
        "parts": [{"text": ""}, {"data": None}],
        "metadata": metadata,
    }
