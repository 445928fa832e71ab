"""Commands that ask a running broker: what they show, and what they say when it goes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from a2a_handoff.wire.native import (
    AgentOut,
    AgentPage,
    AttemptOut,
    ChainOut,
    EventOut,
    EventPage,
    HandoffOut,
    HandoffPage,
    ResolutionOut,
)
from a2a_handoff.wire.native.outbound import CandidateOut, InterfaceOut, PassedOverOut, SkillOut
from tests.cli.conftest import Run
from tests.cli.stub import Stub, problem
from tests.support.running import kept_port

TRACE = "0af7651916cd43dd8448eb211c80319c"


def agent(**changes: Any) -> AgentOut:
    fields: dict[str, Any] = {
        "agent_id": "billing_agent",
        "name": "Billing",
        "version": "1.2",
        "capabilities": {"canAnalyze": True, "canBrowse": False, "domains": ["billing"]},
        "skills": [SkillOut(id="refund", name="Refunds", tags=["money"])],
        "interfaces": [InterfaceOut(url="http://b/", binding="JSONRPC", protocol_version="1.0")],
        "readiness": "offer",
        "in_flight": 1,
        "max_concurrency": 4,
        "completed": 7,
        "failed": 2,
        "response_s": 0.25,
    }
    return AgentOut(**(fields | changes))


def handoff(**changes: Any) -> HandoffOut:
    fields: dict[str, Any] = {
        "handoff_id": "h1",
        "correlation_id": "order-7",
        "trace_id": TRACE,
        "trace_url": f"http://jaeger:16686/trace/{TRACE}",
        "state": "completed",
        "status": "completed",
        "owner": "nobody",
        "source_agent": "alice",
        "assigned_to": "bob",
        "task": "Refund order 7",
        "hop_count": 1,
        "handoff_chain": ["alice", "bob"],
        "attempts": [
            AttemptOut(
                number=1,
                agent_id="carl",
                readiness="probe",
                deliveries=2,
                offered_at="2026-02-02T10:00:00.100Z",
                outcome="timeout",
                detail="no answer in 5 s",
            ),
            AttemptOut(
                number=2,
                agent_id="bob",
                readiness="offer",
                offered_at="2026-02-02T10:00:12.000Z",
                acked_at="2026-02-02T10:00:12.250Z",
            ),
        ],
        "created_at": "2026-02-02T10:00:00.000Z",
        "updated_at": "2026-02-02T10:00:14.000Z",
        "ended_at": "2026-02-02T10:00:14.000Z",
        "tokens": 12,
        "tokenizer": "bpe",
        "warnings": ["long summary"],
        "result": "Refunded 12.50",
    }
    return HandoffOut(**(fields | changes))


def answers(stub: Stub, path: str, shape: Any, method: str = "GET") -> None:
    stub.json(method, path, json.loads(shape.model_dump_json()))


# --- what is shown -------------------------------------------------------------------------------


def test_agents_list_has_one_line_for_each_agent(stub: Stub, run: Run) -> None:
    answers(stub, "/api/agents", AgentPage(agents=[agent(), agent(agent_id="x", present=False)], total=2))
    code, out, err = run("agents", "list", "--url", stub.url)
    assert (code, err) == (0, "")
    head, first, second = out.splitlines()
    assert head.split()[:4] == ["AGENT", "STATUS", "READY", "BY"]
    assert first.split()[0] == "billing_agent"
    assert "canAnalyze" in first
    assert "canBrowse" not in first
    assert "1/4" in first
    assert "0.25 s" in first
    assert "absent" in second


def test_no_agents_is_said_in_words(stub: Stub, run: Run) -> None:
    answers(stub, "/api/agents", AgentPage(agents=[], total=0))
    assert run("agents", "list", "--url", stub.url) == (0, "No agents are registered.\n", "")


def test_agents_show_names_skills_addresses_and_card_problems(stub: Stub, run: Run) -> None:
    answers(stub, "/api/agents/billing_agent", agent(card_problem="needs OAuth"))
    code, out, _ = run("agents", "show", "billing_agent", "--url", stub.url)
    assert code == 0
    for part in (
        "Billing 1.2",
        "refund: Refunds [money]",
        "http://b/ (JSONRPC 1.0)",
        "needs OAuth",
        "billing",
    ):
        assert part in out


def test_ids_are_one_segment_of_the_path_whatever_they_hold(stub: Stub, run: Run) -> None:
    run("agents", "show", "a/b c?d", "--url", stub.url)
    assert stub.seen[0][1] == "/api/agents/a%2Fb%20c%3Fd"


def test_handoffs_list_passes_filters_on_and_names_the_next_page(stub: Stub, run: Run) -> None:
    answers(stub, "/api/handoffs", HandoffPage(handoffs=[handoff()], next_cursor="abc", total=9))
    code, out, _ = run(
        "handoffs", "list", "--state", "offered", "--state", "returned", "--agent", "bob", "--limit", "1",
        "--correlation-id", "order-7", "--url", stub.url,
    )  # fmt: skip
    assert code == 0
    path = stub.seen[0][1]
    assert path == "/api/handoffs?limit=1&state=offered%2Creturned&agent=bob&correlation_id=order-7"
    assert "h1" in out
    assert "Refund order 7" in out
    assert "2026-02-02 10:00:14" in out
    assert "1 of 9; more with --cursor abc" in out


def test_handoffs_show_has_attempts_reasons_context_trace_and_result(stub: Stub, run: Run) -> None:
    answers(stub, "/api/handoffs/h1", handoff())
    code, out, _ = run("handoffs", "show", "h1", "--url", stub.url)
    assert code == 0
    assert "attempt 1 carl (probe) at +0.100 s, asked 2 times: timeout: no answer in 5 s" in out
    assert "attempt 2 bob (offer) at +12.000 s: ready after 0.250 s" in out
    assert "12 tokens (bpe)" in out
    assert "long summary" in out
    assert f"http://jaeger:16686/trace/{TRACE}" in out
    assert out.rstrip().endswith("Refunded 12.50")


def test_a_result_that_is_data_is_shown_as_json(stub: Stub, run: Run) -> None:
    answers(stub, "/api/handoffs/h1", handoff(result={"amount": 12.5}))
    _, out, _ = run("handoffs", "show", "h1", "--url", stub.url)
    assert '"amount": 12.5' in out


def test_handoffs_events_has_one_line_for_each_event(stub: Stub, run: Run) -> None:
    event = EventOut(
        id="h1/1",
        source="/api/handoffs",
        type="a2a-handoff.handoff_acknowledged",
        subject="h1",
        time="2026-02-02T10:00:12.250Z",
        seq=3,
        position=99,
        data={"agent_id": "bob"},  # pyright: ignore[reportArgumentType]
    )
    answers(stub, "/api/handoffs/h1/events", EventPage(events=[event], next_cursor=3))
    code, out, _ = run("handoffs", "events", "h1", "--after", "2", "--url", stub.url)
    assert code == 0
    assert stub.seen[0][1].endswith("?after=2")
    assert '3  2026-02-02 10:00:12  handoff_acknowledged  {"agent_id":"bob"}' in out
    assert "more with --after 3" in out


def test_a_chain_is_a_tree_of_handoffs_with_their_attempts(stub: Stub, run: Run) -> None:
    root = handoff(state="handed_off", leaf_id="h2")
    child = handoff(
        handoff_id="h2",
        parent_handoff_id="h1",
        state="returned",
        source_agent="bob",
        assigned_to="",
        target_agent="dora",
        attempts=[],
        outcome="no_capable_agent",
        detail="nobody can canFly",
        created_at="2026-02-02T10:00:13.000Z",
        ended_at="2026-02-02T10:00:13.500Z",
    )
    shape = ChainOut(
        correlation_id="order-7",
        trace_id=TRACE,
        trace_url=f"http://jaeger:16686/trace/{TRACE}",
        state="returned",
        owner="bob",
        hops=1,
        started_at="2026-02-02T10:00:00.000Z",
        handoffs=[root, child],
    )
    answers(stub, "/api/chains/order-7", shape)
    code, out, _ = run("chain", "order-7", "--url", stub.url)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "chain order-7  returned  with bob  2 handoffs, 1 hop"
    assert lines[1] == "└── handed_off  alice > bob  transfer  +0.000 s, took 14.000 s  h1"
    assert (
        lines[2].strip() == "├── attempt 1 carl (probe) at +0.100 s, asked 2 times: timeout: no answer in 5 s"
    )
    assert lines[3].strip() == "├── attempt 2 bob (offer) at +12.000 s: ready after 0.250 s"
    assert lines[4].strip() == "└── returned  bob > dora  transfer  +13.000 s, took 0.500 s  h2"
    assert lines[5].strip() == "└── returned: no_capable_agent: nobody can canFly"
    assert lines[6] == f"trace {TRACE}  http://jaeger:16686/trace/{TRACE}"


def test_resolve_shows_the_order_with_reasons_and_who_was_passed_over(stub: Stub, run: Run) -> None:
    shape = ResolutionOut(
        rule="billing",
        candidates=[CandidateOut(agent_id="bob", readiness="offer", reasons=["skill refund", "idle"])],
        passed_over=[PassedOverOut(agent_id="carl", reason="has no canBrowse", near=True)],
        more=3,
    )
    answers(stub, "/api/resolve", shape, "POST")
    code, out, _ = run(
        "resolve", "Refund", "--capability", "canBrowse", "--skill", "refund", "--url", stub.url
    )
    assert code == 0
    assert out.splitlines() == [
        "rule: billing",
        "1. bob (offer)  skill refund; idle",
        "passed over: carl: has no canBrowse (near miss)",
        "and 3 agents more",
    ]
    assert stub.body("/api/resolve") == {
        "task": "Refund",
        "requirements": {"capabilities": ["canBrowse"], "skill": "refund"},
        "source_agent": "cli",
        "user_intent": "Refund",
        "conversation_summary": "Refund",
        "key_facts": {},
    }


@pytest.mark.parametrize(("wait", "code"), [(False, 1), (True, 0)])
def test_resolve_fails_if_nobody_would_get_it(stub: Stub, run: Run, wait: bool, code: int) -> None:
    answers(stub, "/api/resolve", ResolutionOut(reason="no_capable_agent", wait=wait), "POST")
    got, out, _ = run("resolve", "--url", stub.url)
    assert got == code
    assert "nobody: no_capable_agent" in out


def test_json_is_the_brokers_answer_as_it_came(stub: Stub, run: Run) -> None:
    body = b'{"agents": [], "total": 0, "new": 1.10}'
    stub.answers["GET", "/api/agents"] = (200, "application/json", body)
    assert run("agents", "list", "--json", "--url", stub.url) == (0, body.decode() + "\n", "")


def test_what_a_stranger_wrote_cannot_steer_the_terminal(stub: Stub, run: Run) -> None:
    evil = "\x1b[31m[bold]x\x07\u202e"
    answers(stub, "/api/agents", AgentPage(agents=[agent(agent_id=evil, platform=evil)], total=1))
    answers(stub, "/api/handoffs/h1", handoff(task=evil, result=evil, detail=evil, outcome="timeout"))
    answers(
        stub,
        "/api/chains/c",
        ChainOut(correlation_id=evil, trace_id=evil, state=evil, handoffs=[handoff(source_agent=evil)]),
    )
    for args in (("agents", "list"), ("handoffs", "show", "h1"), ("chain", "c")):
        code, out, _ = run(*args, "--url", stub.url)
        assert code == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert "[bold]x" in out


def test_without_a_terminal_no_line_is_cut(stub: Stub, run: Run) -> None:
    name = "a" * 300
    answers(stub, "/api/agents", AgentPage(agents=[agent(agent_id=name)], total=1))
    _, out, _ = run("agents", "list", "--url", stub.url)
    assert any(line.startswith(name) for line in out.splitlines())


def test_the_url_comes_from_the_environment_and_the_option_goes_over_it(
    stub: Stub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(stub, "/api/agents", AgentPage(agents=[], total=0))
    monkeypatch.setenv("A2A_HANDOFF_URL", stub.url + "/")
    assert run("agents", "list")[0] == 0
    monkeypatch.setenv("A2A_HANDOFF_URL", "http://127.0.0.1:1")
    assert run("agents", "list", "--url", stub.url)[0] == 0


def test_a_proxy_is_not_asked_for_loopback(stub: Stub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(stub, "/api/agents", AgentPage(agents=[], total=0))
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert run("agents", "list", "--url", stub.url)[0] == 0


# --- what goes wrong -----------------------------------------------------------------------------


def test_no_broker_is_one_line_that_says_how_to_start_one(run: Run) -> None:
    url = f"http://127.0.0.1:{kept_port()}"
    code, out, err = run("agents", "list", "--url", url)
    assert (code, out) == (3, "")
    assert err == (
        f"a2a-handoff: no broker answers at {url}: connection refused; "
        "is it running? start one with: a2a-handoff serve\n"
    )


@pytest.mark.parametrize(
    "url", ["localhost:8080", "ftp://x", "http://", "", "http://x:99999999", "http://[::1"]
)
def test_a_wrong_address_is_wrong_usage(run: Run, url: str) -> None:
    code, _, err = run("agents", "list", "--url", url)
    assert code == 2
    assert err.count("\n") == 1
    assert "is not the address of a broker" in err


def test_a_server_that_is_no_broker_is_named(stub: Stub, run: Run) -> None:
    stub.answers["GET", "/api/agents"] = (404, "text/html; charset=utf-8", b"<html>nginx</html>")
    code, _, err = run("agents", "list", "--url", stub.url)
    assert code == 3
    assert err == (
        f"a2a-handoff: GET {stub.url}/api/agents answered 404 with text/html, not JSON: "
        "is that an a2a-handoff broker?\n"
    )


def test_json_of_another_shape_is_told_by_its_place(stub: Stub, run: Run) -> None:
    stub.json("GET", "/api/agents", {"agents": [{"no": "id"}], "total": 1})
    code, _, err = run("agents", "list", "--url", stub.url)
    assert code == 3
    assert err.count("\n") == 1
    assert "agents.0.agent_id" in err


def test_a_broken_connection_is_one_line(stub: Stub, run: Run) -> None:
    def hang_up(request: Any) -> None:
        request.close_connection = True

    stub.answers["GET", "/api/agents"] = hang_up
    code, _, err = run("agents", "list", "--url", stub.url)
    assert code == 3
    assert err.startswith(f"a2a-handoff: the connection to {stub.url} broke: ")
    assert err.count("\n") == 1


def test_a_problem_is_shown_with_its_code_its_fields_and_its_facts(stub: Stub, run: Run) -> None:
    stub.answers["POST", "/api/resolve"] = problem(
        422,
        "context_too_large",
        "Shorten them.",
        errors=[{"field": "conversation_summary", "description": "is too long"}],
        facts={"tokens": "2001"},
    )
    code, out, err = run("resolve", "--url", stub.url)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "a2a-handoff: Shorten them. (context_too_large)",
        "  conversation_summary: is too long",
        "  tokens: 2001",
    ]


def test_an_error_without_problem_details_still_has_its_status(stub: Stub, run: Run) -> None:
    stub.json("GET", "/api/agents", {"oops": 1}, status=502)
    assert run("agents", "list", "--url", stub.url) == (
        1,
        "",
        "a2a-handoff: the broker refused with HTTP 502\n",
    )
