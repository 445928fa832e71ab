"""What somebody meets who knows nothing of the broker yet."""

from __future__ import annotations

import json
import logging
import unicodedata
from pathlib import Path

import pytest

from tests.support.agents import Agent, card, completes
from tests.support.running import Broker, broker, running


def _text(b: Broker, path: str = "/") -> str:
    params = {"message": {"messageId": f"hello-{path}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    answer = b.http.post(path, json=body, headers={"A2A-Version": "1.0"}).json()
    return answer["result"]["task"]["status"]["message"]["parts"][0]["text"]


def test_the_front_page_leads_to_everything(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        page = b.http.get("/").json()
        assert page["name"] == "a2a-handoff"
        links = [value for value in page.values() if value.startswith("http")]
        assert len(links) >= 3
        for link in links:
            expected = 405 if link == page.get("mcp") else 200  # calls are posted there
            assert b.http.get(link).status_code == expected, link


def test_a_plain_hello_that_nobody_can_take_comes_back_with_what_to_say_instead(tmp_path: Path) -> None:
    with running(Agent(completes)) as url, broker(tmp_path) as b:
        b.register("worker", card=card(url, skills=("billing",)))
        text = _text(b)
        assert "name a target_agent or requirements in metadata.handoff_context" in text
        assert _text(b, "/agents/worker/") == "done"


def test_an_address_of_an_agent_that_is_not_there_says_so(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        calls = (("POST", "/agents/nobody"), ("POST", "/agents/nobody/"), ("GET", "/agents/nobody/tasks/1"))
        for method, path in calls:
            answer = b.http.request(method, path)
            assert answer.status_code == 404
            assert answer.json()["code"] == "agent_not_found"
            assert "'nobody'" in answer.json()["detail"]


def test_an_agent_that_has_a_card_is_shown_with_it_byte_for_byte(tmp_path: Path) -> None:
    with running(Agent(completes)) as url, broker(tmp_path) as b:
        own = json.dumps(
            card(url)
            | {
                "x-unknown": 1.0,
                "signatures": [{"protected": "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ", "signature": "c2lnbmVk"}],
            }
        )
        b.http.post("/api/agents", content=f'{{"agent_id": "worker", "card": {own}}}')
        b.http.post("/api/agents", json={"agent_id": "puller"})
        for path in ("agent-card.json", "agent.json"):
            shown = b.http.get(f"/agents/worker/.well-known/{path}")
            assert shown.text == own
            again = b.http.get(
                f"/agents/worker/.well-known/{path}", headers={"If-None-Match": shown.headers["etag"]}
            )
            assert again.status_code == 304
        through = [
            b.http.get("/agents/worker/agent-card.json"),
            b.http.get("/agents/puller/.well-known/agent-card.json"),
        ]
        assert [one.json()["url"] for one in through] == [
            f"{b.url}/agents/worker/",
            f"{b.url}/agents/puller/",
        ]


@pytest.mark.parametrize("agent_id", ["Grüße an alle", "客服", "a+b&c=d", "e\u0301"])
def test_an_agent_of_any_name_has_an_address(tmp_path: Path, agent_id: str) -> None:
    with running(Agent(completes)) as url, broker(tmp_path) as b:
        b.register(agent_id, card=card(url))
        face = b.http.get(f"/agents/{agent_id}/agent-card.json").json()
        assert _text(b, face["url"]) == "done"
        (listed,) = b.http.get("/api/agents").json()["agents"]
        assert listed["agent_id"] == unicodedata.normalize("NFC", agent_id)


def test_the_log_says_at_the_start_how_many_agents_there_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "a2a_handoff"), broker(tmp_path):
        pass
    assert "no agents so far: put AgentCards into" in caplog.text
