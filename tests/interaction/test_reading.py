"""Reading tasks, one and many, on every surface that shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interaction.dialects import Dialect01, seen
from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Surface
from tests.interaction.staff import Staff
from tests.interaction.surfaces import surfaces
from tests.interaction.wires import Face, Wire, wire
from tests.support.agents import asks, completes, rejects
from tests.support.running import Broker

Names = Callable[[str], str]


@pytest.mark.parametrize("ask", ["get", "cancel", "subscribe"])
@proves("get.unknown")
def test_a_task_that_does_not_exist_is_not_found_whatever_is_asked_of_it(surface: Surface, ask: str) -> None:
    asked = {
        "get": surface.get,
        "cancel": surface.cancel,
        "subscribe": lambda task_id: list(surface.subscribe(task_id)),
    }
    with pytest.raises(Refused) as refused:
        asked[ask]("nobody-made-this")
    assert refused.value.reason == "TASK_NOT_FOUND"
    assert refused.value.code == {"jsonrpc": -32001, "http": 404, "grpc": 5, "native": 404}[surface.codes]


@proves("get.history")
def test_history_length_cuts_the_history_to_its_newest_messages(surface: Surface, staff: Staff) -> None:
    asker, _ = staff.hire(asks)
    task = surface.reply(surface.send("paint it", to=(asker,)), "the blue one")
    whole = ["paint it", "Which one?", "the blue one"]
    first, older = "first" in surface.name, surface.name in ("jsonrpc-0.3", "http-0.3", "grpc-0.3")
    assert surface.get(task.id).history == ([] if first else whole)
    assert surface.get(task.id, history=0).history == (whole if older else [])
    assert surface.get(task.id, history=1).history == whole[-1:]
    assert surface.get(task.id, history=2).history == whole[-2:]
    assert surface.get(task.id, history=99).history == whole
    assert surface.get(task.id).said == "thanks for the blue one"


@proves("get.history")
def test_the_answer_to_a_message_has_as_much_history_as_was_asked_for(surface: Surface, staff: Staff) -> None:
    asker, _ = staff.hire(asks)
    task = surface.send("paint it", to=(asker,), history=5)
    assert task.history == ["paint it"]
    assert surface.reply(task, "blue", history=1).history == ["blue"]


@proves("list.newest")
def test_the_newest_come_first(surface: Surface, staff: Staff, names: Names) -> None:
    worker, _ = staff.hire(completes)
    session = names("session")
    asked: dict[str, Any] = {"to": (worker,), "context_id": session, "context": {"source_agent": session}}
    sent = [surface.send(str(n), **asked).id for n in range(3)]
    page = surface.list(context=session, size=2)
    assert [task.id for task in page.tasks] == sent[:0:-1]
    assert [task.state for task in page.tasks] == ["completed"] * 2


@proves("list.pages")
def test_pages_come_newest_first_and_the_cursor_leads_through_all_of_them_once(
    surface: Surface, staff: Staff, names: Names
) -> None:
    worker, _ = staff.hire(completes)
    session = names("session")
    sent = [surface.send(str(n), to=(worker,), context_id=session).id for n in range(5)]
    found: list[list[str]] = []
    token = ""
    for _ in range(3):
        page = surface.list(context=session, size=2, token=token)
        assert page.total == 5
        found.append([task.id for task in page.tasks])
        token = page.next
    assert token == ""
    assert [len(ids) for ids in found] == [2, 2, 1]
    assert [task_id for ids in found for task_id in ids] == sent[::-1]


@proves("list.pages")
def test_a_token_that_is_none_is_refused_at_its_place(surface: Surface) -> None:
    with pytest.raises(Refused) as refused:
        surface.list(token="not-a-token")
    assert refused.value.reason == "INVALID_PARAMS"
    assert list(refused.value.violations) == ["cursor" if surface.name == "native" else "pageToken"]


@proves("list.updated")
def test_what_something_happened_to_comes_before_what_is_newer(
    surface: Surface, staff: Staff, names: Names
) -> None:
    asker, _ = staff.hire(asks)
    session = names("session")
    older, newer = (surface.send("paint it", to=(asker,), context_id=session) for _ in range(2))
    assert [task.id for task in surface.list(context=session).tasks] == [newer.id, older.id]
    surface.reply(older, "blue")
    assert [task.id for task in surface.list(context=session).tasks] == [older.id, newer.id]


@proves("list.artifacts")
def test_artifacts_are_listed_for_who_asks_for_them(surface: Surface, staff: Staff, names: Names) -> None:
    worker, _ = staff.hire(completes)
    session = names("session")
    surface.send("fix it", to=(worker,), context_id=session)
    for asked in ({}, {"includeArtifacts": False}):
        (task,) = wire(surface).call("list", {"contextId": session, **asked}, {}, "")["tasks"]
        # The proto that gRPC sends cannot tell an empty list from none.
        assert task.get("artifacts") == ([] if surface.codes == "grpc" else None)
    (task,) = wire(surface).call("list", {"contextId": session, "includeArtifacts": True}, {}, "")["tasks"]
    assert seen(task).artifacts == ["done: fix it"]


@proves("list.token")
def test_the_only_page_has_a_token_which_is_empty(surface: Surface, staff: Staff, names: Names) -> None:
    worker, _ = staff.hire(completes)
    session = names("session")
    surface.send(to=(worker,), context_id=session)
    for context, found in ((session, 1), (names("empty"), 0)):
        page = wire(surface).call("list", {"contextId": context}, {}, "")
        assert page["nextPageToken"] == ""
        assert (len(page["tasks"]), page["totalSize"]) == (found, found)


@proves("get.same")
def test_a_task_is_the_same_wherever_it_is_looked_at(surface: Surface, staff: Staff, house: Broker) -> None:
    asker, _ = staff.hire(asks)
    asked = surface.send("paint it", to=(asker,))
    done = surface.reply(surface.send("paint it", to=(asker,)), "blue")
    others = [one for one in surfaces(house).values() if isinstance(one, Wire)]
    others = [one for one in others if not isinstance(one.dialect, Dialect01)]
    for task in (asked, done):
        mine = surface.get(task.id, history=9)
        for other in others:
            if isinstance(other, Face):
                other.at(asker)
            assert other.get(task.id, history=9) == mine, other.name


@proves("list.filters")
def test_a_listing_is_filtered_by_context_and_state(surface: Surface, staff: Staff, names: Names) -> None:
    asker, _ = staff.hire(asks)
    session = names("session")
    asked, other = (surface.send(to=(asker,), context_id=names(it)) for it in ("session", "elsewhere"))
    finished = surface.send(to=(asker,), context_id=session)
    surface.cancel(finished.id)

    def found(**filters: Any) -> set[str]:
        return {task.id for task in surface.list(context=session, **filters).tasks}

    assert found() == {asked.id, finished.id}
    assert found(state="input_required") == {asked.id}
    assert found(state="canceled") == {finished.id}
    assert found(state="completed") == set()
    assert other.id not in found()


@proves("face.list")
def test_a_face_lists_the_tasks_of_its_own_agent(house: Broker, staff: Staff, names: Names) -> None:
    (one, _), (two, _) = staff.hire(completes), staff.hire(rejects)
    face = surfaces(house)["face"]
    session = names("session")
    mine = [face.send(to=(one,), context_id=session).id for _ in range(2)]
    face.send(to=(two,), context_id=session)
    assert isinstance(face, Face)
    face.at(one)
    assert [task.id for task in face.list(context=session).tasks] == mine[::-1]
