"""Registering agents, hearing from them, and what routing makes of it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.core.agents import Agent, Breaker, Readiness, Registration, Role, Status
from a2a_handoff.core.context import (
    EXTENSION_URI,
    HandoffContext,
    HandoffOptions,
    Package,
    Requirements,
    Signals,
)
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Candidate, Outcome, Resolution, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.question import Question
from a2a_handoff.notify import LocalNotifier
from a2a_handoff.ports import USUAL_SCOPES, FetchedCard, Principal
from a2a_handoff.presence import AGENTS_TOPIC, ARRIVALS_TOPIC
from a2a_handoff.registry import Registry, speaks_for_itself
from tests.support.builders import make_trace, offered_event, replay, requested_event
from tests.support.memory_store import MemoryData, MemoryStore

ANYBODY = Principal(tenant="default", trusted=True)
EXAMPLES = Path(__file__).parents[2] / "agent_cards"


@dataclass
class HandClock:
    """A clock that moves by hand."""

    seconds: float = 1_000.0

    def now(self) -> float:
        return 1_700_000_000.0 + self.seconds

    def ahead_s(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return self.seconds

    def new_id(self) -> str:
        return "id"

    def new_span_id(self) -> str:
        return "1" * 16

    def jitter(self) -> float:
        return 0.0


@dataclass
class Shelf:
    """Cards by address."""

    cards: dict[str, FetchedCard] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def serve(self, at: str, card: dict[str, Any], *, found_at: str = "", etag: str = "") -> None:
        self.cards[at] = FetchedCard(body=json.dumps(card).encode(), url=found_at or at, etag=etag)

    async def fetch(self, url: str) -> FetchedCard:
        self.asked.append(url)
        await asyncio.sleep(0)
        if url not in self.cards:
            raise HandoffError(Code.CARD_UNAVAILABLE)
        return self.cards[url]

    async def fetch_changed(self, url: str, etag: str) -> FetchedCard | None:
        self.told.append(etag)
        card = await self.fetch(url)
        return None if etag and card.etag == etag else card


@dataclass
class World:
    """A registry and all that it stands on."""

    data: MemoryData = field(default_factory=MemoryData)
    clock: HandClock = field(default_factory=HandClock)
    shelf: Shelf = field(default_factory=Shelf)
    notifier: LocalNotifier = field(default_factory=LocalNotifier)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.data)
        self.registry = Registry(
            store=self.store, clock=self.clock, notifier=self.notifier, fetcher=self.shelf, refresh_s=3_600
        )

    async def open(self, folder: Path | None = None) -> World:
        await self.store.open()
        await self.registry.load(folder)
        return self

    async def register(self, agent_id: str = "", *can: str, by: Principal = ANYBODY, **said: Any) -> bool:
        if "card" in said:
            said["card"] = json.dumps(said["card"]).encode()
        registration = Registration(agent_id=agent_id, capabilities=dict.fromkeys(can, True), **said)
        return (await self.registry.register(by, registration))[1]

    def ask(self, **asked: Any) -> Resolution:
        context = HandoffContext(
            correlation_id="c",
            source_agent="me",
            conversation_summary="s",
            user_intent="i",
            target_agent=asked.pop("target_agent", ""),
        )
        package = Package(
            context=context,
            requirements=Requirements(**asked),
            signals=Signals(intent="x"),
            options=HandoffOptions(),
        )
        return self.registry.resolve(Question(tenant="default", package=package, sender="me"))

    def names(self, **asked: Any) -> list[str]:
        return [candidate.agent_id for candidate in self.ask(**asked).candidates]


def play(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await story

    asyncio.run(bounded())


def card(url: str = "http://t.example/", *skills: str, name: str = "T", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "skills": [{"id": skill, "name": skill, "tags": []} for skill in skills],
        **fields,
    }


def handoff(*candidates: str, target: str = "", **fields: Any) -> Handoff:
    return Handoff(
        id="h",
        version=1,
        tenant="default",
        sender="me",
        correlation_id="c",
        context_id="x",
        message_id="m",
        state=State.OFFERED,
        policy=Policy(),
        trace=make_trace("c"),
        created_at=0,
        updated_at=0,
        deadline_at=1e12,
        target_agent=target,
        candidates=tuple(Candidate(agent_id=name, readiness=Readiness.PULL) for name in candidates),
        **fields,
    )


def refusal(code: Code, call: Coroutine[Any, Any, Any]):
    async def story() -> HandoffError:
        with pytest.raises(HandoffError) as caught:
            await call
        assert caught.value.code is code
        return caught.value

    return story()


# --- registering ---------------------------------------------------------------------------------


def test_a_registration_is_stored_and_known_after_a_restart():
    async def story() -> None:
        world = await World().open()
        assert await world.register("ext", platform="external")
        assert not await world.register("ext", platform="external", session_number=2)
        again = await World(data=world.data).open()
        agent = again.registry.get("default", "EXT")
        assert agent is not None
        assert (agent.session_number, agent.capabilities) == (2, {"canBrowse", "canTestUI"})
        assert [a.agent_id for a in again.registry.agents("default")] == ["ext"]
        assert again.registry.agents("other") == []
        await again.registry.close()
        await world.registry.close()

    play(story())


def test_c009_an_inline_card_is_never_fetched():
    async def story() -> None:
        world = await World().open()
        await world.register("t", card=card("http://t.example/", "x"))
        assert world.names(skill="x") == ["t"]
        assert await world.registry.cards.refresh_all() == 0
        assert world.shelf.asked == []
        await world.registry.close()

    play(story())


def test_c007_a_card_is_fetched_by_its_address_and_where_it_was_found_is_remembered():
    async def story() -> None:
        world = await World().open()
        world.shelf.serve("http://t.example", card(), found_at="http://t.example/.well-known/agent.json")
        await world.register("t", card_url="http://t.example")
        agent = world.registry.get("default", "t")
        assert agent is not None
        assert agent.card_url == "http://t.example/.well-known/agent.json"
        assert world.registry.presence.heard_within("default", "t")
        await world.registry.close()

    play(story())


def test_an_address_without_a_card_registers_nothing():
    async def story() -> None:
        world = await World().open()
        await refusal(Code.CARD_UNAVAILABLE, world.register("t", card_url="http://nowhere.example"))
        assert world.registry.agents("default") == []
        await world.registry.close()

    play(story())


def test_c014_a_bad_card_registers_nothing_and_breaks_nothing():
    async def story() -> None:
        world = await World().open()
        await world.register("good", "x")
        error = await refusal(
            Code.INVALID_AGENT, world.register("bad", card=card(skills=[{"id": "a", "tags": 3}]))
        )
        assert error.violations[0].field == "card.skills[0].tags"
        assert world.names(capabilities=("x",)) == ["good"]
        assert len(world.registry.views("default")) == 1
        await world.registry.close()

    play(story())


def test_c011_twenty_registrations_at_once_make_one_agent():
    async def story() -> None:
        world = await World().open()
        urls = ["http://T.example:80/", "http://t.example", "HTTP://t.example/"]
        new = await asyncio.gather(*(world.register(card=card(urls[n % 3])) for n in range(20)))
        assert sum(new) == 1
        assert list(world.data.agents) == [("default", "t")]
        world.shelf.serve("http://other.example", card("http://other.example/"))
        new = await asyncio.gather(*(world.register(card_url="http://other.example") for _ in range(20)))
        assert sum(new) == 1
        assert len(world.data.agents) == 2
        await world.registry.close()

    play(story())


def test_two_agents_of_one_name_are_told_apart_by_their_address():
    async def story() -> None:
        world = await World().open()
        for url in ("http://a.example/", "http://b.example/", "http://b.example"):
            await world.register(card=card(url, name="Hello World"))
        first, second = world.registry.agents("default")
        assert first.agent_id == "hello-world"
        assert second.agent_id.startswith("hello-world-")
        await world.registry.close()

    play(story())


def test_an_id_in_another_case_is_the_same_agent():
    async def story() -> None:
        world = await World().open()
        assert await world.register("Billing", "x")
        assert not await world.register("billing", "y")
        assert [a.agent_id for a in world.registry.agents("default")] == ["Billing"]
        assert world.names(capabilities=("x",)) == []
        await world.registry.close()

    play(story())


def test_c012_a_new_card_routes_at_once_and_keeps_the_vitals():
    async def story() -> None:
        world = await World().open()
        await world.register("t", card=card("http://t.example/", "a"))
        world.registry.presence.note_offered("default", "t")
        await world.register("t", card=card("http://t.example/", "b"))
        assert world.names(skill="b") == ["t"]
        assert world.names(skill="a") == []
        view = world.registry.view("default", "t")
        assert view is not None
        assert view.in_flight == 1
        await world.registry.close()

    play(story())


def test_c012_a_card_with_an_address_is_read_again():
    async def story() -> None:
        world = await World().open()
        url = "http://t.example/.well-known/agent-card.json"
        ours = {
            "extensions": [{"uri": EXTENSION_URI, "params": {"capabilities": ["canFly"], "workspace": "w"}}]
        }
        world.shelf.serve(url, card("http://t.example/", "a", "gone", capabilities=ours))
        await world.register("t", "canDeploy", card_url=url, max_concurrency=3)
        assert await world.registry.cards.refresh_all() == 0
        world.shelf.serve(url, card("http://t.example/v2", "a", "b", version="1.1"))
        assert await world.registry.cards.refresh_all() == 1
        agent = world.registry.get("default", "t")
        assert agent is not None
        assert [skill.id for skill in agent.skills] == ["a", "b"]
        assert (agent.version, agent.interfaces[0].url) == ("1.1", "http://t.example/v2")
        assert agent.capabilities == {"canDeploy"}
        assert (agent.max_concurrency, agent.workspace) == (3, "default")
        assert world.data.agents["default", "t"] == agent
        await world.registry.close()

    play(story())


def test_c009_a_refresh_that_fails_leaves_everything_as_it_was():
    async def story() -> None:
        world = await World().open()
        world.shelf.serve("http://t.example", card("http://t.example/", "a"))
        await world.register("t", card_url="http://t.example")
        before = world.registry.get("default", "t")
        world.shelf.cards.clear()
        assert await world.registry.cards.refresh_all() == 0
        assert world.registry.get("default", "t") is before
        await world.registry.close()

    play(story())


def test_a_newer_card_that_is_not_taken_leaves_the_one_before_in_force_and_says_so():
    async def story() -> None:
        world = await World().open()
        world.shelf.serve("http://t.example", card("http://t.example/", "a"))
        await world.register("t", card_url="http://t.example")
        before = world.registry.get("default", "t")
        assert before is not None
        world.shelf.serve("http://t.example", {"name": 3})
        with world.notifier.listen(AGENTS_TOPIC) as told:
            assert await world.registry.cards.refresh_all() == 0
            assert await told.wait(timeout_s=5)
        after = world.registry.get("default", "t")
        assert after is not None
        assert after.card_notice.startswith("its card has changed and is not taken")
        assert "card.name must be text" in after.card_notice
        assert replace(after, card_notice="") == before
        assert [agent.card_notice for agent in await world.store.list_agents()] == [after.card_notice]

        world.shelf.serve("http://t.example", card("http://t.example/", "a"))
        await world.registry.cards.refresh_all()
        assert world.registry.get("default", "t") == before
        await world.registry.close()

    play(story())


@pytest.mark.parametrize(
    "outcome", [Outcome.INVALID_RESPONSE, Outcome.TARGET_AUTH, Outcome.TARGET_UNAVAILABLE]
)
def test_a_call_that_fails_as_if_the_card_were_old_makes_the_card_be_read_again(outcome: Outcome):
    async def story() -> None:
        world = await World().open()
        world.shelf.serve("http://t.example", card("http://t.example/", "a"))
        await world.register("t", card_url="http://t.example")
        world.shelf.serve("http://t.example", card("http://t.example/", "b"))
        with world.notifier.listen(ARRIVALS_TOPIC) as arrivals:
            world.registry.presence.note_ended("default", "t", Outcome.TARGET_FAILED)
            world.registry.presence.note_ended("default", "t", outcome)
            assert await arrivals.wait(timeout_s=5)
        agent = world.registry.get("default", "t")
        assert agent is not None
        assert [skill.id for skill in agent.skills] == ["b"]
        world.registry.presence.note_ended("default", "t", outcome)
        assert await world.registry.cards.refresh_suspects() == 0
        assert len(world.shelf.asked) == 2  # once more only after a while
        await world.registry.close()

    play(story())


def test_a_card_that_is_still_the_same_is_not_sent_again():
    async def story() -> None:
        world = await World().open()
        world.shelf.serve("http://t.example", card("http://t.example/", "a"), etag='"1"')
        await world.register("t", card_url="http://t.example")
        before = world.registry.get("default", "t")
        assert await world.registry.cards.refresh_all() == 0
        assert world.shelf.told == ['"1"']
        assert world.registry.get("default", "t") is before
        await world.registry.close()

    play(story())


def test_a_registration_during_a_refresh_wins():
    async def story() -> None:
        world = await World().open()
        world.shelf.serve("http://t.example", card("http://t.example/", "a"))
        await world.register("t", card_url="http://t.example")
        world.shelf.serve("http://t.example", card("http://t.example/", "b"))
        refresh = asyncio.create_task(world.registry.cards.refresh_all())
        await asyncio.sleep(0)
        await world.register("t", card=card("http://t.example/", "c"))
        assert await refresh == 0
        assert world.names(skill="c") == ["t"]
        await world.registry.close()

    play(story())


def test_an_agent_that_is_gone_is_nowhere():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        await world.registry.deregister(ANYBODY, "A")
        assert world.registry.get("default", "a") is None
        assert world.data.agents == {}
        assert world.names(capabilities=("x",)) == []
        await refusal(Code.AGENT_NOT_FOUND, world.registry.deregister(ANYBODY, "a"))
        world.registry.presence.note_ended("default", "a", None)
        world.registry.presence.heard_from("default", "a")
        assert world.registry.view("default", "a") is None
        await world.registry.close()

    play(story())


def test_a_store_that_cannot_write_is_told_and_nothing_changes():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        world.store.available = False
        await refusal(Code.UNAVAILABLE, world.register("b", "x"))
        await refusal(Code.UNAVAILABLE, world.registry.deregister(ANYBODY, "a"))
        assert world.names(capabilities=("x",)) == ["a"]
        await world.registry.close()

    play(story())


# --- whose registration it is --------------------------------------------------------------------


def who(name: str, *scopes: str) -> Principal:
    return Principal(
        name=name, tenant="default", scopes=frozenset(scopes) or USUAL_SCOPES, authenticated=True
    )


def test_c069_nobody_registers_or_speaks_for_another_agent():
    async def story() -> None:
        world = await World().open()
        await world.register("agentA", "x", by=who("agentA"))
        await refusal(Code.FORBIDDEN, world.register("agentA", "y", by=who("agentB")))
        await refusal(Code.FORBIDDEN, world.registry.heartbeat(who("agentB"), "agentA", Status.DRAINING))
        await refusal(Code.FORBIDDEN, world.registry.deregister(who("agentB"), "agentA"))
        assert world.names(capabilities=("x",)) == ["agentA"]
        assert not await world.register("agentA", "y", by=who("AGENTA"))
        assert not await world.register("agentA", "z", by=who("ops", "handoff:admin"))
        await world.registry.close()

    play(story())


def test_tenants_do_not_see_each_other():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x", by=Principal(tenant="other"))
        assert world.names(capabilities=("x",)) == []
        assert await world.register("a", "x")
        await refusal(Code.AGENT_NOT_FOUND, world.registry.deregister(Principal(tenant="third"), "a"))
        await world.registry.close()

    play(story())


def test_an_open_broker_lets_everybody_register_everybody():
    assert speaks_for_itself(ANYBODY, "whoever")
    assert not speaks_for_itself(who("a"), "b")


# --- presence ------------------------------------------------------------------------------------


def test_c013_a_silent_pull_agent_expires_when_somebody_looks():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        world.clock.seconds += 19.9
        assert world.names(capabilities=("x",)) == ["a"]
        world.clock.seconds += 0.2
        waiting = world.ask(capabilities=("x",))
        assert (waiting.candidates, waiting.wait) == ((), True)
        view = world.registry.view("default", "a")
        assert view is not None
        assert (view.status, view.present) == (Status.OFFLINE, False)
        world.clock.seconds += 100
        with world.notifier.listen(ARRIVALS_TOPIC) as arrivals:
            await world.registry.heartbeat(ANYBODY, "a", Status.IDLE, 0)
            assert await arrivals.wait(timeout_s=1)
        assert world.names(capabilities=("x",)) == ["a"]
        await refusal(Code.AGENT_NOT_FOUND, world.registry.heartbeat(ANYBODY, "b", Status.IDLE))
        await world.registry.close()

    play(story())


def test_any_call_is_a_sign_of_life_and_an_arrival_after_silence():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        with world.notifier.listen(ARRIVALS_TOPIC) as arrivals:
            world.clock.seconds += 15
            world.registry.presence.heard_from("default", "a")
            assert not await arrivals.wait(timeout_s=0)
            world.clock.seconds += 25
            world.registry.presence.heard_from("default", "A")
            assert await arrivals.wait(timeout_s=1)
        assert world.names(capabilities=("x",)) == ["a"]
        await world.registry.close()

    play(story())


def test_an_open_channel_keeps_an_agent_present():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        with world.registry.presence.connected("default", "a"):
            world.clock.seconds += 500
            assert world.names(capabilities=("x",)) == ["a"]
            assert world.registry.presence.heard_within("default", "a", 1)
        world.clock.seconds += 19
        assert world.names(capabilities=("x",)) == ["a"]
        world.clock.seconds += 2
        assert world.names(capabilities=("x",)) == []
        with world.registry.presence.connected("default", "nobody"):
            pass
        await world.registry.close()

    play(story())


def test_an_agent_that_says_offline_is_so_until_it_calls_again():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        await world.registry.heartbeat(ANYBODY, "a", Status.OFFLINE)
        assert world.ask(capabilities=("x",)).wait
        world.registry.presence.heard_from("default", "a")
        assert world.names(capabilities=("x",)) == ["a"]
        await world.registry.heartbeat(ANYBODY, "a", Status.DRAINING)
        assert not world.ask(capabilities=("x",)).wait
        await world.registry.close()

    play(story())


def test_what_an_agent_says_of_its_load_counts_if_it_is_more():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        await world.register("b", "x")
        await world.registry.heartbeat(ANYBODY, "a", Status.ONLINE, 3)
        assert world.names(capabilities=("x",)) == ["b", "a"]
        await world.registry.close()

    play(story())


def test_a_push_agent_that_somebody_else_registers_is_probed_first():
    async def story() -> None:
        world = await World().open()
        await world.register("t", card=card())
        assert not world.registry.presence.heard_within("default", "t")
        await world.register("t", card=card(), by=who("t"))
        assert world.registry.presence.heard_within("default", "t")
        world.clock.seconds += 6
        assert not world.registry.presence.heard_within("default", "t")
        world.registry.presence.heard_from("default", "t")
        assert world.registry.presence.heard_within("default", "t")
        assert not world.registry.presence.heard_within("default", "unknown")
        await world.registry.close()

    play(story())


# --- what happens to them ------------------------------------------------------------------------


async def two_providers() -> World:
    world = await World().open()
    for name in ("hang", "ok"):
        await world.register(name, "x", card=card(f"http://{name}.example/"))
    return world


def test_c017_an_agent_that_does_not_answer_is_asked_after_others_at_once_and_then_not_at_all():
    async def story() -> None:
        world = await two_providers()
        assert world.names(capabilities=("x",)) == ["hang", "ok"]
        world.registry.presence.note_offered("default", "hang")
        world.registry.presence.note_ended("default", "hang", Outcome.TIMEOUT)
        world.registry.presence.note_offered("default", "ok")
        world.registry.presence.note_acknowledged("default", "ok", response_s=0.4)
        world.registry.presence.note_ended("default", "ok", None)
        assert world.names(capabilities=("x",)) == ["ok", "hang"]
        world.registry.presence.note_offered("default", "hang")
        world.registry.presence.note_ended("default", "hang", Outcome.TARGET_UNAVAILABLE)
        assert world.names(capabilities=("x",)) == ["ok"]
        world.clock.seconds += 15
        assert world.names(capabilities=("x",)) == ["ok", "hang"]
        world.registry.presence.note_offered("default", "hang")
        assert world.names(capabilities=("x",)) == ["ok"]
        world.registry.presence.note_acknowledged("default", "hang", response_s=0.1)
        assert set(world.names(capabilities=("x",))) == {"ok", "hang"}
        await world.registry.close()

    play(story())


def test_a_decline_is_an_answer_and_no_failure():
    async def story() -> None:
        world = await two_providers()
        for _ in range(5):
            world.registry.presence.note_offered("default", "hang")
            world.registry.presence.note_ended("default", "hang", Outcome.TARGET_REJECTED)
        view = world.registry.view("default", "hang")
        assert view is not None
        assert (view.received, view.completed, view.failed, view.success_rate) == (5, 0, 0, 1.0)
        assert not view.breaker_open
        await world.registry.close()

    play(story())


def test_the_breaker_is_not_for_agents_that_fetch_their_work():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        for _ in range(3):
            world.registry.presence.note_offered("default", "a")
            world.registry.presence.note_ended("default", "a", Outcome.TIMEOUT)
        assert world.names(capabilities=("x",)) == ["a"]
        await world.registry.close()

    play(story())


def test_an_agent_that_registers_again_is_forgiven():
    async def story() -> None:
        world = await two_providers()
        for _ in range(2):
            world.registry.presence.note_offered("default", "hang")
            world.registry.presence.note_ended("default", "hang", Outcome.TIMEOUT)
        assert world.names(capabilities=("x",)) == ["ok"]
        await world.register("hang", "x", card=card("http://hang.example/"))
        assert world.names(capabilities=("x",)) == ["ok", "hang"]
        await world.registry.close()

    play(story())


def test_successes_and_failures_make_the_rate():
    async def story() -> None:
        world = await two_providers()
        for outcome in (None, None, None, Outcome.TARGET_FAILED):
            world.registry.presence.note_offered("default", "ok")
            world.registry.presence.note_acknowledged("default", "ok", response_s=1.0)
            world.registry.presence.note_ended("default", "ok", outcome)
        view = world.registry.view("default", "ok")
        assert view is not None
        assert (view.received, view.completed, view.failed) == (4, 3, 1)
        assert (view.success_rate, view.response_s, view.in_flight) == (0.75, 1.0, 0)
        await world.registry.close()

    play(story())


def test_load_is_counted_from_the_store_at_start():
    async def story() -> None:
        world = await two_providers()
        world.data.handoffs["h"] = replay(requested_event(), offered_event("ok"))
        again = await World(data=world.data).open()
        assert again.names(capabilities=("x",)) == ["hang", "ok"]
        view = again.registry.view("default", "ok")
        assert view is not None
        assert view.in_flight == 1
        await again.registry.close()
        await world.registry.close()

    play(story())


# --- routing -------------------------------------------------------------------------------------


def test_only_who_can_be_asked_now_is_eligible():
    async def story() -> None:
        world = await two_providers()
        await world.register("here", "x")
        await world.register("gone", "x")
        await world.register("ann", role=Role.HUMAN)
        await world.registry.heartbeat(ANYBODY, "ok", Status.DRAINING)
        for _ in range(2):
            world.registry.presence.note_ended("default", "hang", Outcome.TIMEOUT)
        everybody = handoff("hang", "ok", "here", "gone", "ann", "unknown")
        assert world.registry.eligible(everybody) == {"here", "gone", "ann"}
        world.clock.seconds += 25
        world.registry.presence.heard_from("default", "here")
        assert world.registry.eligible(everybody) == {"hang", "here", "ann"}
        await world.registry.close()

    play(story())


def test_the_inbox_of_a_named_agent_is_eligible_though_it_is_absent():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        world.clock.seconds += 60
        assert world.registry.eligible(handoff("a")) == frozenset()
        assert world.registry.eligible(handoff("a", target="A")) == {"a"}
        await world.register("t", card=card())
        for _ in range(2):
            world.registry.presence.note_ended("default", "t", Outcome.TIMEOUT)
        assert world.registry.eligible(handoff("t")) == frozenset()
        assert world.registry.eligible(handoff("t", target="t")) == {"t"}
        await world.registry.close()

    play(story())


def test_escalations_stay_in_the_workspace_of_the_sender_and_off_the_path():
    async def story() -> None:
        world = await World().open()
        await world.register("me", workspace="w")
        await world.register("boss", role=Role.SUPERVISOR, workspace="w")
        await world.register("chief", role=Role.SUPERVISOR)
        found = world.registry.supervisors(handoff())
        assert [s.agent_id for s in found] == ["boss"]
        assert [s.agent_id for s in world.registry.supervisors(handoff(path=("me", "boss")))] == ["chief"]
        await world.registry.close()

    play(story())


# --- the folder of cards -------------------------------------------------------------------------


def test_the_example_cards_are_agents_after_a_start():
    async def story() -> None:
        world = await World().open(EXAMPLES)
        assert world.names(agent_type="browser") == ["browser-agent"]
        assert world.names(agent_type="code") == ["code-editor"]
        assert world.names(domain="billing") == ["billing_agent"]
        assert [s.agent_id for s in world.registry.supervisors(handoff())] == ["escalation_agent"]
        assert world.data.agents == {}
        await world.registry.close()

    play(story())


def test_a_card_file_is_an_agent_of_its_name_and_a_change_counts_after_a_restart(tmp_path: Path):
    async def story() -> None:
        file = tmp_path / "my-agent.json"
        file.write_text(json.dumps(card("http://t.example/", "a")))
        world = await World().open(tmp_path)
        assert world.names(skill="a") == ["my-agent"]
        await world.register("my-agent", card=card("http://t.example/", "registered"))
        file.write_text(json.dumps(card("http://t.example/", "b")))
        again = await World(data=world.data).open(tmp_path)
        assert again.names(skill="b") == ["my-agent"]
        assert again.names(skill="registered") == []
        await again.registry.close()
        await world.registry.close()

    play(story())


def test_a_bad_card_file_is_left_out_with_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def story() -> None:
        (tmp_path / "bad.json").write_text('{"name": "A",\n "skills": 3}')
        (tmp_path / "worse.json").write_bytes(b"\xff{")
        (tmp_path / "good.json").write_text(json.dumps(card()))
        (tmp_path / "notes.txt").write_text("x")
        world = await World().open(tmp_path)
        assert [a.agent_id for a in world.registry.agents("default")] == ["good"]
        await world.registry.close()

    with caplog.at_level(logging.WARNING):
        play(story())
    assert "card bad.json is left out: 2:12 skills must be a list" in caplog.text
    assert "card worse.json is left out" in caplog.text


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path):
    async def story() -> None:
        world = await World().open(tmp_path / "nowhere")
        assert world.registry.agents("default") == []
        await world.registry.close()

    play(story())


def test_cards_are_refreshed_in_the_background_until_the_end():
    async def story() -> None:
        world = World()
        world.registry = Registry(
            store=world.store,
            clock=world.clock,
            notifier=world.notifier,
            fetcher=world.shelf,
            refresh_s=0.001,
            breaker=Breaker(opens_after=1),
        )
        await world.open()
        world.shelf.serve("http://t.example", card("http://t.example/", "a"))
        await world.register("t", card_url="http://t.example")
        world.shelf.serve("http://t.example", card("http://t.example/", "b"))
        with world.notifier.listen(ARRIVALS_TOPIC) as arrivals:
            assert await arrivals.wait(timeout_s=5)
        assert world.names(skill="b") == ["t"]
        await world.registry.close()

    play(story())


def test_an_agent_is_the_same_object_until_something_changes():
    async def story() -> None:
        world = await World().open()
        await world.register("a", "x")
        view = world.registry.view("default", "a")
        world.clock.seconds += 5
        assert world.registry.view("default", "a") is view
        world.registry.presence.heard_from("default", "a")
        assert world.registry.view("default", "a") is not view
        agent = world.registry.get("default", "a")
        assert isinstance(agent, Agent)
        await world.registry.close()

    play(story())
