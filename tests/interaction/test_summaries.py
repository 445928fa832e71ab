"""The summary of a chain: joined hop by hop, whatever each agent was given of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Agent, Answer, Call, card, completes, said
from tests.support.running import broker, running

_SEPARATOR = "\n---hop---\n"
_FIRST = "The customer disputes an invoice. " + "It is a long story with many turns. " * 20


async def _adds_a_segment(agent: Agent, call: Call) -> Answer:
    """Hands on with what it was given and a segment of its own, as the kit does it."""
    summary = call.ours["conversation_summary"] + _SEPARATOR + "Found the invoice."
    task = agent.task("COMPLETED")
    directive = {"conversation_summary": summary, "requirements": {"capabilities": ["canEnd"]}}
    task["status"]["message"] = said("handing on", handoff=directive)
    return {"task": task}


@pytest.mark.parametrize(
    "limits", [{}, {"token_budget": 40}, {"token_budget": 400}], ids=["all", "cut", "whole"]
)
def test_what_an_agent_was_given_cut_is_not_joined_a_second_time(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    first, last = Agent(_adds_a_segment), Agent(completes)
    with running(first) as a, running(last) as z, broker(tmp_path) as b:
        b.register("first", card=card(a, capabilities={"canStart": True}, **limits))
        b.register("last", card=card(z, capabilities={"canEnd": True}))
        context = {"requirements": {"capabilities": ["canStart"]}, "conversation_summary": _FIRST.strip()}
        assert b.send(context=context)["status"]["state"] == "TASK_STATE_COMPLETED"
    given = first.calls[0].ours["conversation_summary"]
    assert (given == _FIRST.strip()) == (limits.get("token_budget") != 40)
    assert last.calls[0].ours["conversation_summary"].split(_SEPARATOR) == [
        _FIRST.strip(),
        "Found the invoice.",
    ]
