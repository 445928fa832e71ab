"""What a caller who said who it is may see, and what not: the broker itself, without a surface."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.broker import Claim
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import State
from a2a_handoff.intake import Call, Incoming
from a2a_handoff.ports import USUAL_SCOPES, HandoffQuery, Principal
from a2a_handoff.wire.context import synthesize
from tests.support.running import Broker, broker


def _who(name: str, *scopes: str, tenant: str = "default") -> Principal:
    return Principal(name=name, tenant=tenant, scopes=frozenset(scopes) or USUAL_SCOPES, authenticated=True)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    """A broker in which ``shop`` handed a task to ``editor``, in a chain of its own."""
    folder: Path = tmp_path_factory.mktemp("ownership")
    with broker(folder) as b:
        b.register("editor")
        b.register("shop")
        b.register("stranger")
        body = {"task": "do it", "source_agent": "shop", "target_agent": "editor", "correlation_id": "c-1"}
        assert b.http.post("/api/handoffs", json=body).status_code == 201
        yield b


def _seen(b: Broker, principal: Principal, **filters: Any) -> int:
    page = b.loop.run(b.app.broker.list(principal, HandoffQuery(tenant=principal.tenant, **filters)))
    assert page.total == len(page.handoffs)
    return page.total


@pytest.mark.parametrize("name", ["shop", "editor", "Editor"])
def test_a_list_has_what_the_caller_sent_or_holds(house: Broker, name: str) -> None:
    assert _seen(house, _who(name)) == 1
    assert _seen(house, _who(name), sender="shop") == 1
    assert _seen(house, _who(name), holder="editor") == 1


@pytest.mark.parametrize("filters", [{}, {"sender": "shop"}, {"holder": "editor"}, {"agent": "editor"}])
def test_a_stranger_lists_nothing_whatever_it_asks_for(house: Broker, filters: dict[str, str]) -> None:
    assert _seen(house, _who("stranger"), **filters) == 0


def test_a_supervisor_lists_everything_of_its_tenant(house: Broker) -> None:
    assert _seen(house, _who("boss", "handoff:admin")) == 1
    assert _seen(house, _who("boss", "handoff:admin", tenant="other")) == 0


def test_a_chain_is_there_for_those_who_take_part_in_it(house: Broker) -> None:
    service = house.app.broker
    for who in (_who("shop"), _who("editor"), _who("boss", "handoff:admin")):
        _, handoffs = house.loop.run(service.chain(who, "c-1"))
        assert len(handoffs) == 1
    for who in (_who("stranger"), _who("shop", tenant="other")):
        with pytest.raises(HandoffError) as caught:
            house.loop.run(service.chain(who, "c-1"))
        assert caught.value.code is Code.NOT_FOUND


def test_nobody_reads_the_inbox_of_another(house: Broker) -> None:
    service = house.app.broker
    assert len(house.loop.run(service.inbox.pending(_who("editor"), ""))) == 1
    assert len(house.loop.run(service.inbox.pending(_who("boss", "handoff:admin"), "editor"))) == 1
    with pytest.raises(HandoffError) as caught:
        house.loop.run(service.inbox.pending(_who("stranger"), "editor"))
    assert caught.value.code is Code.AGENT_NOT_FOUND


def test_who_was_only_asked_may_read_a_task_and_neither_ends_it_nor_answers_for_its_sender(
    tmp_path: Path,
) -> None:
    with broker(tmp_path) as b:
        for name in ("editor", "shop", "stranger"):
            b.register(name)
        _only_asked(b)


def _only_asked(b: Broker) -> None:
    service = b.app.broker
    body = {"task": "ask", "source_agent": "shop", "target_agent": "editor", "fallback": ["stranger"]}
    made = b.http.post("/api/handoffs", json=body).json()["handoff_id"]
    b.loop.run(service.decline(_who("editor"), made, Claim(), "no time"))
    b.loop.run(service.accept(_who("stranger"), made, Claim()))
    b.loop.run(service.ask(_who("stranger"), made, Claim(), message=b'{"role":"agent"}'))
    reply = Incoming(
        message=b'{"messageId":"r"}',
        message_id="r",
        package=synthesize(b"{}", source_agent="editor"),
        arrival=Call(),
        digest="",
        task_id=made,
    )
    for who in (_who("editor"), _who("stranger")):
        assert b.loop.run(service.get(who, made)).id == made
        for deed in (service.cancel(who, made), service.send(who, reply)):
            with pytest.raises(HandoffError) as caught:
                b.loop.run(deed)
            assert caught.value.code is Code.TASK_NOT_FOUND
    assert b.loop.run(service.send(_who("shop"), reply)).handoff.state is State.ACKNOWLEDGED
    b.loop.run(service.cancel(_who("shop"), made))
