"""What an agent says reaches its task over restarts and kills of the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.callbacks.conftest import begun
from tests.support.calling import CallingAgent, calling_agent
from tests.support.running import broker, kept_port
from tests.support.served import served
from tests.support.wire import eventually


def test_a_token_is_good_after_a_restart(tmp_path: Path) -> None:
    port = kept_port()
    known: dict[str, Any] = {"public_url": f"http://127.0.0.1:{port}"}
    with calling_agent() as agent:
        with broker(tmp_path, port=port, **known) as b:
            b.register("caller", card=agent.card)
            task_id = begun(b, agent)
        with broker(tmp_path, port=port, **known) as b:
            agent.stand("COMPLETED", "done")
            assert agent.call().status_code == 204
            b.until(task_id, "completed")
    assert len(agent.of("send")) == 1


def test_a_token_of_another_store_is_not(tmp_path: Path) -> None:
    port = kept_port()
    known: dict[str, Any] = {"public_url": f"http://127.0.0.1:{port}"}
    other = tmp_path / "other"
    other.mkdir()
    with calling_agent() as agent:
        with broker(tmp_path, port=port, **known) as b:
            b.register("caller", card=agent.card)
            begun(b, agent)
        with broker(other, port=port, **known):
            assert agent.call().status_code == 404


@pytest.mark.parametrize("generation", ["1.0", "0.3", "0.1"])
@pytest.mark.parametrize("calls", ["after the kill", "while nobody is there"])
def test_a_task_ends_though_the_broker_was_killed_meanwhile(
    tmp_path: Path, generation: str, calls: str
) -> None:
    with (
        calling_agent(generation) as agent,
        served(tmp_path, forked=True, known=True, reconcile_every=0.5) as b,
    ):
        b.register("caller", card=agent.card)
        task_id = b.send("work", context={"target_agent": "caller"})["id"]
        b.until(task_id, "acknowledged")
        b.kill()
        agent.stand("COMPLETED", "done", answer="forty-two")
        if calls == "while nobody is there":
            with pytest.raises(httpx.ConnectError):
                agent.call()
        b.start()
        if calls == "after the kill":
            assert agent.call().status_code == 204
        handoff = b.ended(task_id)
        assert (handoff["state"], [a["parts"][0]["text"] for a in b.task(task_id)["artifacts"]]) == (
            "completed",
            ["forty-two"],
        )
        assert _sends(agent) == 1


@pytest.mark.parametrize("generation", ["1.0", "0.3", "0.1"])
def test_a_delivery_whose_answer_was_lost_is_found_again_by_a_call(tmp_path: Path, generation: str) -> None:
    with calling_agent(generation) as agent, served(tmp_path, forked=True, known=True) as b:
        b.register("caller", card=agent.card)
        agent.mute = True
        task_id = b.send("work", context={"target_agent": "caller"})["id"]
        eventually(lambda: agent.of("send"))
        if generation == "0.1":
            agent.task["id"] = agent.of("send")[0]["id"]
        b.kill()
        b.start()
        b.logged(task_id, "delivery_uncertain")
        agent.stand("WORKING", "at it")
        assert agent.call(agent.notice("status")).status_code == 204
        b.until(task_id, "acknowledged")
        agent.stand("COMPLETED", "done", answer="forty-two")
        assert agent.call(agent.notice("status")).status_code == 204
        assert b.ended(task_id)["state"] == "completed"
        assert b.task(task_id)["artifacts"][0]["parts"] == [{"text": "forty-two"}]
        assert _sends(agent) == 1


def _sends(agent: CallingAgent) -> int:
    return len(agent.of("send"))
