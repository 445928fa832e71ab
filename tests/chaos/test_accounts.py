"""What a campaign is judged by, on accounts that are known to be false."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import pytest

from tests.chaos.judging import RECOVERY_S, idle, joined
from tests.chaos.storm import Blow, Down, Habit, Storm, timetable
from tests.chaos.telling import Reader, untrue
from tests.notify.follower import Heard

LOG = ["a/1", "a/2", "b/1", "a/3", "b/2"]


def _heard(ids: list[str] = LOG) -> list[Heard]:
    return [
        Heard("handoff.default.x", {"Nats-Msg-Id": one}, {"id": one, "data": one}, sequence)
        for sequence, one in enumerate(ids, start=1)
    ]


def _altered(heard: list[Heard]) -> list[Heard]:
    return [*heard[:1], Heard("x", heard[1].headers, {"id": "a/2", "data": "other"}, 2), *heard[2:]]


def _without(heard: list[Heard], number: int) -> list[Heard]:
    return [each for each in heard if each.sequence != number]


def _known() -> dict[str, dict[str, Any]]:
    return {one: {"id": one, "data": one} for one in LOG}


def test_a_stream_that_tells_the_log_is_found_true() -> None:
    assert list(untrue(_heard(), LOG, _known())) == []
    # What was committed after it was read it cannot have.
    assert list(untrue(_heard(), [*LOG, "b/3"], _known())) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda _: _heard([*LOG, "b/2"]), "b/2 was told 2 times"),
        (lambda _: _heard(LOG[:-1]), "b/2 was not told"),
        (lambda _: _heard(["a/1", "b/1", "a/3", "b/2"]), "a/2 was not told"),
        (lambda _: _heard([*LOG, "c/1"]), "c/1 was told and is not in the log"),
        (lambda _: _heard(["a/2", "a/1", *LOG[2:]]), "replayed it is not the log: message 1 is a/2"),
        (lambda heard: _without(heard, 3), "messages 3 to 3 are not there any more"),
        (_altered, "a/2 was told otherwise than the log has it"),
        (lambda heard: [Heard("x", {}, heard[0].event, 1), *heard[1:]], "a/1 is message None"),
        (lambda _: [], "a/1 was not told"),
    ],
)
def test_a_stream_that_does_not_tell_the_log_is_found(
    change: Callable[[list[Heard]], list[Heard]], fault: str
) -> None:
    assert any(found.startswith(fault) for found in untrue(change(_heard()), LOG, _known()))


def test_a_program_that_read_along_may_get_again_what_it_had_and_misses_nothing() -> None:
    reader = Reader("", "")

    def took(ids: list[str]) -> list[str]:
        reader.ids = ids
        return list(reader.untrue([*LOG, "b/3"], LOG))

    assert took(LOG) == took([*LOG[:3], *LOG]) == took([*LOG, "b/3", "b/2"]) == []
    assert took(LOG[:-1]) == ["a program that read along did not get 1 events, such as b/2"]
    assert took([*LOG[1:], LOG[0]]) == ["a program that read along got a/2, where the log has 'a/1'"]
    assert took([*LOG, "b/3", "c/1"]) == ["a program that read along got c/1, where the log has ''"]


def test_only_time_in_which_somebody_could_write_is_a_delay() -> None:
    gaps = joined([(30.0, 40.0), (10.0, 12.0), (11.0, 14.0)])
    assert gaps == [(10.0, 14.0 + RECOVERY_S), (30.0, 40.0 + RECOVERY_S)]
    assert idle(0.0, 9.0, gaps) == 9.0
    assert idle(11.0, 14.0, gaps) == 0.0
    assert idle(5.0, 20.0, gaps) == 15.0 - 4.0 - RECOVERY_S
    assert idle(20.0, 10.0, gaps) == 0.0
    # An outage that began long after the deadline excuses nothing that came before it.
    assert idle(17.0, 31.0, gaps) == 13.0


def test_nobody_can_write_while_the_database_is_away_or_all_brokers_are() -> None:
    storm = Storm({}, 1)
    blow = Blow(0.0, True, 1.0)
    for name, since, until in (
        ("broker-1", 0.0, 5.0),
        ("broker-2", 4.0, 8.0),
        ("postgres", 20.0, 21.0),
        ("nats", 30.0, 31.0),
        ("broker-1", 40.0, 41.0),
    ):
        storm.downs.append(Down(name, since, until, blow))
    assert storm.outages(["broker-1", "broker-2"], ["postgres"]) == [(20.0, 21.0), (4.0, 5.0)]


def test_a_seed_gives_each_victim_the_same_blows_again() -> None:
    habit = Habit((2.0, 8.0), 0.7)

    def blows(seed: int, name: str) -> list[Blow]:
        return list(islice(timetable(seed, name, habit), 50))

    assert blows(7, "broker-1") == blows(7, "broker-1")
    assert blows(7, "broker-1") != blows(8, "broker-1") != blows(7, "broker-2")
    for one, later in pairwise(blows(7, "broker-1")):
        assert 2.0 <= later.at_s - (one.at_s + one.for_s) <= 8.0
