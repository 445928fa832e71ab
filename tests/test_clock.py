"""The broker's time does not go back when the clock of its machine does, and is soon the same again."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.clock import AHEAD_MAX_S, SteadyTime, SystemClock
from tests.support.running import broker
from tests.support.wire import metric

T0 = 1_800_000_000.0


@dataclass
class Machine:
    """A clock that is set by hand."""

    wall: float = T0
    monotonic: float = 0.0

    def passes(self, seconds: float, *, set_by: float = 0.0) -> None:
        self.monotonic += seconds
        self.wall += seconds + set_by

    def steady(self) -> SteadyTime:
        return SteadyTime(lambda: self.wall, lambda: self.monotonic)


def test_time_is_that_of_the_machine() -> None:
    machine = Machine()
    time = machine.steady()
    for seconds in (0.0, 0.001, 5.0, 86_400.0):
        machine.passes(seconds)
        assert time.now() == machine.wall
        assert time.ahead_s() == 0.0


def test_a_clock_that_is_set_back_is_caught_up_with_at_half_the_pace() -> None:
    machine = Machine()
    time = machine.steady()
    before = time.now()
    machine.passes(0.0, set_by=-600)
    assert time.now() == before
    assert time.ahead_s() == 600.0
    machine.passes(30.0)
    assert time.now() == before + 15.0
    machine.passes(1170.0)
    assert time.now() == machine.wall
    assert time.ahead_s() == 0.0


def test_a_clock_that_is_set_forward_is_followed_at_once() -> None:
    machine = Machine()
    time = machine.steady()
    machine.passes(1.0, set_by=3_600)
    assert time.now() == machine.wall
    machine.passes(1.0, set_by=-100)
    machine.passes(1.0, set_by=100)
    assert time.now() == machine.wall


def test_a_clock_that_was_wrong_by_far_is_followed_also_when_it_is_set_back() -> None:
    machine = Machine()
    time = machine.steady()
    machine.passes(1.0, set_by=-AHEAD_MAX_S - 2)
    assert time.now() == machine.wall
    assert time.ahead_s() == 0.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-40, 40)), max_size=20))
def test_time_goes_on_however_the_clock_is_set(changes: list[tuple[float, float]]) -> None:
    machine = Machine()
    time = machine.steady()
    last = time.now()
    for seconds, set_by in changes:
        machine.passes(seconds, set_by=set_by)
        now = time.now()
        assert now - last >= seconds / 2 - 1e-3
        assert now >= machine.wall
        last = now
    machine.passes(2 * time.ahead_s() + 1e-3)
    assert time.now() == pytest.approx(machine.wall, abs=2e-3)


@pytest.mark.parametrize(
    ("set_by", "level", "words"),
    [
        (
            -75.0,
            logging.WARNING,
            "was set back by 75.0 s: it is given time to catch up",
        ),
        (-7_500.0, logging.ERROR, "was set back by 7500.0 s: what is to be done at a time waits for that"),
        (75.0, logging.WARNING, "was set forward by 75.0 s: what is due is done now"),
    ],
)
def test_a_clock_that_is_set_is_told_of_once(
    set_by: float, level: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    time = machine.steady()
    machine.passes(0.0, set_by=set_by)
    for _ in range(3):
        time.now()
        machine.passes(0.01, set_by=-0.001)
    (told,) = caplog.records
    assert told.levelno == level
    assert words in told.getMessage()


def test_operators_see_that_the_broker_is_ahead_of_its_machine(tmp_path) -> None:
    machine = Machine()
    clock = SystemClock(lambda: machine.wall, lambda: machine.monotonic)
    with broker(tmp_path, clock=clock) as b:
        assert b.http.get("/readyz").text == "ready\n"
        assert metric(b.http.get("/metrics").text, "handoff_clock_ahead_seconds") == 0
        machine.passes(0.0, set_by=-75)
        ready = b.http.get("/readyz")
        assert ready.status_code == 200
        assert "the clock of this machine was set back" in ready.text
        assert metric(b.http.get("/metrics").text, "handoff_clock_ahead_seconds") == 75
