"""Webhooks of tasks, set and told on every surface that has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Surface
from tests.interaction.staff import Staff
from tests.interaction.wires import wire
from tests.support.agents import completes, streams
from tests.support.hooks import Hook, hook

SECRETS = {"token": "tok", "authentication": {"scheme": "Bearer", "credentials": "s3cret"}}


@pytest.fixture
def told() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


@proves("push.message")
def test_a_webhook_in_the_message_hears_every_event(surface: Surface, staff: Staff, told: Hook) -> None:
    worker, _ = staff.hire(streams("a", "b"), streaming=True)
    task = surface.send(to=(worker,), push=told.url)
    told.until()
    older = wire(surface).dialect.version != "1.0" or surface.name == "http-0.3"
    states = [one.state for one in told.of(task.id)]
    assert states[0] == "SUBMITTED"
    assert states[-1] == "COMPLETED"
    assert states.count("COMPLETED") == 1
    # What was committed together is one task in the older generations, and each event by itself in 1.0.
    assert len(told.told) == len(told.of(task.id)) >= (3 if older else 5)
    assert {one.headers["content-type"] for one in told.told} == {
        "application/json" if older else "application/a2a+json"
    }
    shown = surface.broker.http.get(f"/api/handoffs/{task.handoff_id}/webhooks").json()["webhooks"]
    assert [one["url"] for one in shown] == [told.url]


@proves("push.set")
def test_a_webhook_is_shown_as_it_was_set_and_told_what_comes(
    surface: Surface, staff: Staff, told: Hook
) -> None:
    worker, agent = staff.puppet(streaming=True)
    task, push = surface.start(to=(worker,)), wire(surface)
    turn = agent.next()
    work = agent.task("WORKING")
    turn.event({"task": work})
    surface.broker.until(task.handoff_id, "acknowledged")
    made = push.set_push(task.id, url=told.url, **SECRETS)
    assert (made.task, made.url, made.token) == (task.id, told.url, "tok")
    assert (made.scheme, made.credentials) == ("Bearer", "s3cret")
    assert push.get_push(task.id, made.id) == made
    turn.event(agent.status(work, "COMPLETED"))
    (end,) = told.until()
    assert end.headers["authorization"] == "Bearer s3cret"
    assert end.headers["x-a2a-notification-token"] == "tok"
    assert end in told.of(task.id)


@proves("push.several")
def test_each_webhook_has_its_id_and_the_same_id_is_the_same_one(
    surface: Surface, staff: Staff, told: Hook
) -> None:
    worker, agent = staff.puppet()
    task, push = surface.start(to=(worker,)), wire(surface)
    for config_id, path in (("w-2", "/old"), ("w-1", "/one"), ("w-2", "/two")):
        assert push.set_push(task.id, id=config_id, url=told.url + path).id == config_id
    assert {one.id: one.url for one in push.list_push(task.id)} == {
        "w-1": told.url + "/one",
        "w-2": told.url + "/two",
    }
    agent.next().answer({"task": agent.task("COMPLETED")})
    told.until(count=2)
    assert {one.path for one in told.told if one.state == "COMPLETED"} == {"/one", "/two"}


@proves("push.one")
def test_before_1_0_the_webhook_without_an_id_is_replaced(surface: Surface, staff: Staff, told: Hook) -> None:
    worker, agent = staff.puppet()
    task, push = surface.start(to=(worker,), push=told.url + "/first"), wire(surface)
    push.set_push(task.id, url=told.url + "/second")
    assert push.get_push(task.id, "" if surface.name != "http-0.3" else task.id).url == told.url + "/second"
    agent.next().answer({"task": agent.task("COMPLETED")})
    told.until()
    shown = surface.broker.http.get(f"/api/handoffs/{task.handoff_id}/webhooks").json()["webhooks"]
    assert [one["url"] for one in shown] == [told.url + "/second"]


@proves("push.delete")
def test_a_webhook_is_removed_once_or_again(surface: Surface, staff: Staff, told: Hook) -> None:
    worker, _ = staff.hire(completes)
    task, push = surface.send(to=(worker,)), wire(surface)
    made = push.set_push(task.id, url=told.url)
    kept = push.set_push(task.id, id="kept", url=told.url)
    empty = None if surface.name == "jsonrpc-0.3" else {}
    assert push.delete_push(task.id, made.id) == empty
    assert push.delete_push(task.id, made.id) == empty
    assert push.list_push(task.id) == [kept]
    with pytest.raises(Refused, match="TASK_NOT_FOUND"):
        push.get_push(task.id, made.id)


@proves("push.unknown")
def test_what_is_not_there_is_not_found(surface: Surface, staff: Staff, told: Hook) -> None:
    worker, _ = staff.hire(completes)
    task, push = surface.send(to=(worker,)), wire(surface)
    with pytest.raises(Refused) as refused:
        push.get_push(task.id, "nobody-made-this")
    assert refused.value.reason == "TASK_NOT_FOUND"
    for ask in (
        lambda: push.set_push("no-task", url=told.url),
        lambda: push.get_push("no-task", "w"),
    ):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code == {"jsonrpc": -32001, "http": 404, "grpc": 5}[surface.codes]


@proves("push.address")
def test_an_address_that_may_not_be_called_is_refused_at_its_place(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.hire(completes)
    task, push = surface.send(to=(worker,)), wire(surface)
    for url in ("http://169.254.169.254/latest", "ftp://127.0.0.1/", "http://0.0.0.0/"):
        with pytest.raises(Refused) as refused:
            push.set_push(task.id, url=url)
        assert refused.value.reason == "INVALID_PARAMS"
        ((field, fault),) = refused.value.violations.items()
        assert field.split(".")[-1] == "url"
        assert fault == "is not an address that the broker may call"
        with pytest.raises(Refused) as refused:
            surface.send(to=(worker,), push=url)
        ((field, _),) = refused.value.violations.items()
        assert field.endswith(".url")
        assert "ushNotification" in field
    shown = surface.broker.http.get(f"/api/handoffs/{task.handoff_id}/webhooks").json()["webhooks"]
    assert shown == []
    assert len(agent.of("SendMessage")) == 1
