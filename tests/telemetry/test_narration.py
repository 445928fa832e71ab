"""Handoffs in the log: who is asked what became of one finds its lines."""

from __future__ import annotations

import logging

import pytest

from a2a_handoff.core import commands as cmd
from a2a_handoff.core.events import Outcome
from a2a_handoff.telemetry import Telemetry
from tests.telemetry.conftest import Make
from tests.telemetry.story import Story


def lines(story: Story, telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    for change in story.changes:
        telemetry.record(change)
    telemetry.flush()
    return [record for record in caplog.records if record.name == "a2a_handoff.handoffs"]


def declined() -> Story:
    story = Story()
    h = story.request("agent-b", correlation_id="order-7")
    story.do(h, cmd.Decline(agent_id="agent-b", attempt=1, reason="no", means=story.means()))
    return story


def test_what_went_wrong_is_told_with_every_id_and_no_word_of_an_agent(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "a2a_handoff")
    story = declined()
    after = story.changes[-1].after
    (line,) = lines(story, make(), caplog)
    assert line.getMessage() == "handoff of agent-a: attempt 1 ended: agent-b target_rejected"
    assert vars(line) | {
        "trace_id": after.trace.trace_id,
        "span_id": after.trace.hop_span_id,
        "handoff_id": after.id,
        "correlation_id": "order-7",
        "agent": "agent-b",
        "tenant": "default",
    } == vars(line)


def test_a_handoff_that_goes_well_is_silent_unless_everything_is_asked_for(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    story.do(h, cmd.Complete())
    caplog.set_level(logging.INFO, "a2a_handoff")
    assert lines(story, make(), caplog) == []
    caplog.set_level(logging.DEBUG, "a2a_handoff")
    words = [line.getMessage().split(": ")[1] for line in lines(story, make(), caplog)]
    assert words == ["HandoffRequested", "HandoffOffered", "HandoffAcknowledged", "HandoffCompleted"]


@pytest.mark.parametrize("outcome", [Outcome.TARGET_FAILED, Outcome.TIMEOUT])
def test_a_failure_names_its_outcome(make: Make, caplog: pytest.LogCaptureFixture, outcome: Outcome) -> None:
    caplog.set_level(logging.INFO, "a2a_handoff")
    story = Story()
    h = story.request("agent-b")
    story.ack(h)
    story.do(h, cmd.Fail(agent_id="agent-b", outcome=outcome, detail="private"))
    (line,) = lines(story, make(), caplog)
    assert line.getMessage() == f"handoff of agent-a: failed: {outcome.value}"
