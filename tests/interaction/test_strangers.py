"""Who calls, on every surface of A2A of a broker that asks (1.0 sections 3.3.2, 3.3.4, 7.4 and 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.interaction.dialects import Dialect01
from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Seen, Surface
from tests.interaction.surfaces import surfaces
from tests.interaction.wires import FACE, Wire, wire
from tests.support.bearers import SECRET, bearer
from tests.support.running import Broker, broker

SHOP = bearer("shop", tenant="acme")
#: Another tenant's, who may do everything there, and one of the same tenant who has no part in the task.
STRANGERS = {
    "another tenant": bearer("spy", tenant="other", scope="handoff:admin"),
    "a bystander": bearer("spy", tenant="acme"),
}
_HOOK = {"url": "http://127.0.0.1:9/hook"}

#: What can be asked of a task.
ON_A_TASK: Mapping[str, Callable[[Wire, str], object]] = {
    "get": lambda way, task: way.get(task),
    "cancel": lambda way, task: way.cancel(task),
    "subscribe": lambda way, task: list(way.subscribe(task)),
    "send": lambda way, task: way.send("more", task=task, context=False),
    "stream": lambda way, task: list(way.stream("more", task=task, context=False)),
    "set_push": lambda way, task: way.set_push(task, **_HOOK),
    "get_push": lambda way, task: way.get_push(task, "hook"),
    "list_push": lambda way, task: way.list_push(task),
    "delete_push": lambda way, task: way.delete_push(task, "hook"),
}
#: What can be asked besides.
ON_NOTHING: Mapping[str, Callable[[Wire, str], object]] = {
    "list": lambda way, task: way.list(),
    "card": lambda way, task: way.call("card", {}, {}, ""),
}
EVERYTHING = {**ON_A_TASK, **ON_NOTHING}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that asks everybody who it is. ``porter`` fetches its work in both tenants, and takes none."""
    with broker(tmp_path_factory.mktemp("closed"), auth_secret=SECRET, grpc_port=0) as b:
        for tenant in ("acme", "other"):
            named = bearer(FACE, tenant=tenant)
            with httpx.Client(base_url=b.url, headers=named, trust_env=False) as client:
                replace(b, http=client).register(FACE)
        yield b


def as_(way: Surface, closed: Broker, who: Mapping[str, str]) -> Wire:
    """The same way into the closed broker, for one caller."""
    made = wire(surfaces(closed)[way.name])
    made.token = who
    return made


def has(way: Wire, operation: str) -> bool:
    """Whether the generation has the operation there: 0.3 lists tasks over HTTP only."""
    if operation == "list" and way.name == "grpc-0.3":
        return False
    return operation in way.dialect.methods


def start(way: Wire, **more: Any) -> Seen:
    return way.start("a secret", to=(FACE,), context={"source_agent": "shop"}, **more)


@pytest.mark.parametrize("operation", EVERYTHING)
@proves("who.nobody")
def test_nothing_is_done_for_who_does_not_say_who_it_is(
    surface: Surface, closed: Broker, operation: str
) -> None:
    shop = as_(surface, closed, SHOP)
    if not has(shop, operation):
        return
    task = start(shop)
    for who in ({}, {"Authorization": "Bearer nonsense"}):
        with pytest.raises(Refused) as refused:
            EVERYTHING[operation](as_(surface, closed, who), task.id)
        assert refused.value.reason == "UNAUTHENTICATED"
        assert refused.value.code == {"jsonrpc": -32058, "http": 401, "grpc": 16}[surface.codes]
    assert shop.get(task.id).state == "submitted"


@proves("who.scope")
def test_what_a_caller_may_not_do_is_denied_and_named(surface: Surface, closed: Broker) -> None:
    worker = as_(surface, closed, bearer("shop", tenant="acme", scope="handoff:work"))
    with pytest.raises(Refused) as refused:
        start(worker)
    assert refused.value.reason == "FORBIDDEN"
    assert "handoff:send" in refused.value.message
    assert refused.value.code == {"jsonrpc": -32059, "http": 403, "grpc": 7}[surface.codes]


@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize("operation", ON_A_TASK)
@proves("who.stranger")
def test_to_a_stranger_a_task_is_like_one_that_never_was(
    surface: Surface, closed: Broker, operation: str, who: str
) -> None:
    shop, spy = as_(surface, closed, SHOP), as_(surface, closed, STRANGERS[who])
    if not has(spy, operation):
        return
    if isinstance(spy.dialect, Dialect01) and operation in ("send", "stream"):
        return  # there the client makes the id, so a stranger's begins a task of the stranger's own
    task = start(shop)
    if has(shop, "set_push"):
        shop.set_push(task.id, id="hook", **_HOOK)
    told: list[tuple[str, int, str]] = []
    for asked in (task.id, "nobody-made-this"):
        with pytest.raises(Refused) as refused:
            ON_A_TASK[operation](spy, asked)
        error = refused.value
        assert not error.violations
        told.append((error.reason, error.code, error.message.replace(asked, "ID")))
    assert told[0] == told[1]
    assert told[0][0] == "TASK_NOT_FOUND"
    left = shop.get(task.id, history=9)
    assert (left.state, left.history) == ("submitted", ["a secret"])


@pytest.mark.parametrize("who", STRANGERS)
@proves("who.list")
def test_a_listing_has_what_its_caller_may_see(surface: Surface, closed: Broker, who: str) -> None:
    shop, spy = as_(surface, closed, SHOP), as_(surface, closed, STRANGERS[who])
    task = start(shop)
    filtered: tuple[dict[str, Any], ...] = ({}, {"context": task.context_id}, {"state": "submitted"})
    for filters in filtered:
        assert task.id in [one.id for one in shop.list(**filters).tasks]
        page = spy.list(**filters)
        assert (page.tasks, page.total) == ([], 0)


@proves("card.extended")
def test_the_extended_card_is_for_those_who_said_who_they_are(surface: Surface, closed: Broker) -> None:
    public = closed.http.get("/.well-known/agent-card.json").json()
    assert public["capabilities"]["extendedAgentCard"] is True
    shown = as_(surface, closed, SHOP).call("card", {}, {}, "")
    assert shown["capabilities"]["extensions"]
    assert FACE not in str(public)
    assert FACE in str(shown)


@proves("card.extended")
def test_where_nobody_must_say_who_it_is_there_is_no_extended_card(surface: Surface, house: Broker) -> None:
    public = house.http.get("/.well-known/agent-card.json").json()
    assert not public["capabilities"].get("extendedAgentCard")
    with pytest.raises(Refused) as refused:
        wire(surface).call("card", {}, {}, "")
    old = surface.name in ("jsonrpc-0.3", "http-0.3", "grpc-0.3")
    assert refused.value.reason == ("EXTENDED_AGENT_CARD_NOT_CONFIGURED" if old else "UNSUPPORTED_OPERATION")
    code = -32007 if old else -32004
    assert refused.value.code == {"jsonrpc": code, "http": 400, "grpc": 9}[surface.codes]
