"""Messages to all agents of a workspace, by themselves and in a watch."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_handoff.broadcasts import DATA_BYTES_MAX, MESSAGE_BYTES_MAX, Heard
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.inbox import Found
from a2a_handoff.ports import USUAL_SCOPES, Broadcast, Principal
from tests.inbox.world import ANYBODY, World, bounded, offer_of, run, settle


async def tell(
    world: World, message: str = "hello", *, by: Principal = ANYBODY, sender: str = "cowork", **more: Any
) -> Broadcast:
    said: dict[str, Any] = {"channel": "general", "message": message, "sender": sender} | more
    return await world.broadcasts.send(by, **said)


def messages(heard: Heard | Found) -> list[str]:
    return [broadcast.message for broadcast in heard.broadcasts]


async def read(world: World, *, by: Principal = ANYBODY, **more: Any) -> Heard:
    return await world.broadcasts.read(by, **more)


def test_a_broadcast_reaches_every_agent_of_the_workspace_but_its_sender() -> None:
    async def body(world: World) -> None:
        await world.register("cowork", "cursor", "Code")
        await world.register("far", workspace="lab")
        sent = await tell(world, "the build is red", data=b'{"build":7}', sender="COWORK")
        assert sent.sender == "cowork"
        for name in ("cursor", "code"):
            heard = await read(world, agent_id=name)
            assert heard.broadcasts == (sent,)
        assert messages(await read(world, agent_id="cowork")) == []
        assert messages(await read(world, agent_id="far")) == []
        assert messages(await read(world)) == ["the build is red"]

    run(body)


def test_a_broadcast_goes_to_the_senders_workspace_unless_it_names_another() -> None:
    async def body(world: World) -> None:
        await world.register("cowork", workspace="lab")
        await tell(world, "here")
        await tell(world, "there", workspace="editor2")
        assert messages(await read(world, workspace="lab")) == ["here"]
        assert messages(await read(world, workspace="editor2")) == ["there"]
        assert messages(await read(world, workspace="Editor2")) == [], "another workspace, as in matching"

    run(body)


def test_who_comes_later_hears_what_is_kept_and_no_more() -> None:
    async def body(world: World) -> None:
        await tell(world, "early")
        world.clock.ahead += 30
        await tell(world, "late")
        await world.register("cursor")
        assert messages(await world.watch(broadcasts=True)) == ["early", "late"]
        world.clock.ahead += 30
        assert messages(await world.watch(broadcasts=True)) == ["late"]

    run(body)


def test_an_agent_that_opted_out_hears_nothing() -> None:
    async def body(world: World) -> None:
        await world.register("cursor", broadcasts=False)
        await tell(world)
        assert messages(await read(world, agent_id="cursor")) == []
        assert messages(await world.watch(broadcasts=True)) == []

    run(body)


def test_a_cursor_goes_on_where_it_was_and_stays_when_there_is_nothing() -> None:
    async def body(world: World) -> None:
        await tell(world, "one")
        first = await read(world)
        assert (messages(first), first.resync) == (["one"], False)
        empty = await read(world, after=first.cursor)
        assert (messages(empty), empty.cursor) == ([], first.cursor)
        await tell(world, "two")
        assert messages(await read(world, after=first.cursor)) == ["two"]

    run(body)


def test_what_an_agent_said_itself_moves_its_cursor_on() -> None:
    async def body(world: World) -> None:
        await world.register("cowork")
        for number in range(120):
            await tell(world, f"own {number}")
        await tell(world, "of another", sender="cursor")
        heard = await read(world, agent_id="cowork")
        assert messages(heard) == ["of another"]
        again = await read(world, agent_id="cowork", after=heard.cursor)
        assert (messages(again), again.cursor) == ([], heard.cursor)

    run(body)


def test_a_cursor_from_beyond_the_end_starts_from_the_beginning() -> None:
    async def body(world: World) -> None:
        await world.register("cursor")
        for number in range(3):
            await tell(world, f"before {number}")
        cursor = (await read(world)).cursor
        mark = (await world.watch(broadcasts=True)).cursor
        # A backup from before is restored.
        world.data.broadcasts.clear()
        world.data.broadcast_end = 0
        await tell(world, "after")
        heard = await read(world, after=cursor)
        assert (messages(heard), heard.resync) == (["after"], True)
        assert not (await read(world, after=heard.cursor)).resync
        found = await bounded(world.watching(broadcasts=True, after=mark))
        assert (messages(found), found.resync) == (["after"], True)

    run(body)


@pytest.mark.parametrize("workspace", ["lab", ""])
def test_a_cursor_of_another_workspace_or_store_starts_from_the_beginning(workspace: str) -> None:
    async def body(world: World) -> None:
        await tell(world, "one")
        other = await World().open()
        foreign = (await read(world if workspace else other, workspace=workspace)).cursor
        heard = await read(world, after=foreign)
        assert (messages(heard), heard.resync) == (["one"], True)
        await other.registry.close()

    run(body)


def test_a_watch_that_asks_for_broadcasts_comes_back_for_them_too() -> None:
    async def body(world: World) -> None:
        await world.register("cursor", "cowork")
        plain, asking, own = (
            world.watching(),
            world.watching(broadcasts=True),
            world.watching("cowork", broadcasts=True),
        )
        await settle()
        await tell(world)
        found = await bounded(asking)
        assert (messages(found), offer_of(found), found.resync) == (["hello"], "", False)
        await settle()
        assert not plain.done()
        assert not own.done()
        assert messages(await world.watch(broadcasts=True, after=found.cursor)) == []
        await world.offer("h-1")
        assert offer_of(await bounded(plain)) == "h-1"
        both = await world.watch(broadcasts=True)
        assert (messages(both), offer_of(both)) == (["hello"], "h-1")
        own.cancel()

    run(body)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("channel", {"channel": ""}),
        ("channel", {"channel": "a\nb"}),
        ("workspace", {"workspace": "w" * 201}),
        ("message", {"message": " \u200b "}),
        ("message", {"message": "é" * (MESSAGE_BYTES_MAX // 2 + 1)}),
        ("data", {"data": b'"' + b"x" * DATA_BYTES_MAX + b'"'}),
        ("source_agent", {"sender": "a\u202eb"}),
    ],
)
def test_a_broadcast_that_is_wrong_is_refused_at_its_place(field: str, said: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        with pytest.raises(HandoffError) as caught:
            await tell(world, **said)
        assert [violation.field for violation in caught.value.violations] == [field]
        assert messages(await read(world)) == []

    run(body)


def test_nobody_speaks_or_hears_in_the_name_of_another() -> None:
    async def body(world: World) -> None:
        await world.register("cowork", "cursor")
        mallory = Principal(name="mallory", scopes=USUAL_SCOPES, authenticated=True)
        with pytest.raises(HandoffError) as caught:
            await tell(world, by=mallory)
        assert caught.value.code is Code.FORBIDDEN
        with pytest.raises(HandoffError) as caught:
            await read(world, by=mallory, agent_id="cursor")
        assert caught.value.code is Code.AGENT_NOT_FOUND
        assert (await tell(world, by=mallory, sender="")).sender == "mallory"

    run(body)


def test_the_tenants_do_not_hear_each_other() -> None:
    async def body(world: World) -> None:
        await tell(world)
        assert messages(await read(world, by=Principal(tenant="other"))) == []

    run(body)
