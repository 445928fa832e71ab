"""A server on a2a-sdk that sends push notifications, in each of its generations and bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.running import broker, kept_port
from tests.support.sdk_agent import SdkAgent, sdk_agent
from tests.support.wire import eventually


def _card(agent: SdkAgent, version: str, binding: str) -> dict[str, Any]:
    where = {"JSONRPC": f"{agent.url}/rpc", "GRPC": f"http://127.0.0.1:{agent.grpc_port}"}.get(
        binding, agent.url
    )
    return {
        "name": "real",
        "description": "A real server.",
        "version": "1",
        "supportedInterfaces": [{"url": where, "protocolBinding": binding, "protocolVersion": version}],
        "capabilities": {"streaming": False, "pushNotifications": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
    }


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("text", ["slow", "ask", "message"])
def test_a_task_is_followed_by_its_calls_alone(tmp_path: Path, version: str, binding: str, text: str) -> None:
    port = kept_port()
    with (
        sdk_agent(push=True) as agent,
        broker(tmp_path, port=port, public_url=f"http://127.0.0.1:{port}", reconcile_every=3_600) as b,
    ):
        b.register("real", card=_card(agent, version, binding))
        task_id = b.send(text, wait=False, context={"target_agent": "real"})["id"]
        if text == "slow":
            b.until(task_id, "acknowledged")
            eventually(lambda: not b.app.service.dispatcher._talks)
            agent.release()
        if text == "ask":
            b.until(task_id, "input_required")
            reply = {
                "messageId": "reply",
                "role": "ROLE_USER",
                "taskId": task_id,
                "parts": [{"text": "blue"}],
            }
            b.rpc("SendMessage", {"message": reply, "configuration": {"returnImmediately": True}})
        b.until(task_id, "completed")
        task = b.rpc("GetTask", {"id": task_id})["result"]
        made = ["".join(part["text"] for part in a["parts"]) for a in task.get("artifacts", [])]
        assert [text for text in made if text == "one two"] == ([] if text == "message" else ["one two"])
        assert len({a["artifactId"] for a in task.get("artifacts", [])}) == len(made)
