"""``send``: what goes to the broker, what is shown as it comes, how it ends."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from a2a_handoff.wire.native import AttemptOut, HandoffOut
from tests.cli.conftest import Run
from tests.cli.stub import Stub

TRACE = "0af7651916cd43dd8448eb211c80319c"


def task(state: str, **more: Any) -> dict[str, Any]:
    return {"task": {"id": "h1", "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"} | more}}


def status(state: str, *parts: dict[str, Any]) -> dict[str, Any]:
    message = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": list(parts)}} if parts else {}
    return {
        "statusUpdate": {
            "taskId": "h1",
            "contextId": "c1",
            "status": {"state": f"TASK_STATE_{state}"} | message,
        }
    }


def chunk(*parts: dict[str, Any], append: bool = False, artifact_id: str = "a") -> dict[str, Any]:
    artifact = {"artifactId": artifact_id, "parts": list(parts)}
    return {"artifactUpdate": {"taskId": "h1", "contextId": "c1", "artifact": artifact, "append": append}}


def event(name: str, message: str, target: str) -> dict[str, Any]:
    return {"data": {"type": "system_event", "event": name, "message": message, "target_agent": target}}


def ended(stub: Stub, state: str, handoff_id: str = "h1", **more: Any) -> None:
    shape = HandoffOut(
        handoff_id=handoff_id,
        correlation_id="c",
        trace_id=TRACE,
        state=state,
        status="x",
        owner="nobody",
        **more,
    )
    stub.json("GET", f"/api/handoffs/{handoff_id}", json.loads(shape.model_dump_json()))


# --- what goes out -------------------------------------------------------------------------------


def sent(stub: Stub) -> dict[str, Any]:
    return stub.body("/")


def test_a_bare_task_is_sent_with_a_whole_context(stub: Stub, run: Run) -> None:
    stub.stream(task("COMPLETED"))
    run("send", "Refund order 7", "--url", stub.url)
    request = sent(stub)
    headers = next(headers for _, path, headers, _ in stub.seen if path == "/")
    assert headers["A2A-Version"] == "1.0"
    assert headers["Accept"] == "text/event-stream"
    assert request["method"] == "SendStreamingMessage"
    assert request["params"]["message"]["role"] == "ROLE_USER"
    assert request["params"]["message"]["parts"] == [{"text": "Refund order 7"}]
    assert request["params"]["metadata"] == {
        "handoff_context": {
            "source_agent": "cli",
            "user_intent": "Refund order 7",
            "conversation_summary": "Refund order 7",
            "key_facts": {},
        }
    }


def test_every_option_has_its_place_in_the_context(stub: Stub, run: Run) -> None:
    stub.stream(task("COMPLETED"))
    run(
        "send", "Do it", "--source", "alice", "--target", "bob", "--capability", "canBrowse", "--capability", "canFly",
        "--skill", "refund", "--domain", "shop", "--tag", "money", "--platform", "cursor", "--summary", "S", "--intent", "I",
        "--fact", "amount=12.50", "--fact", "order=A-7", "--fact", "open=true", "--fact", "empty=", "--mode", "delegate", "--priority", "high",
        "--correlation-id", "order-7", "--parent", "h0", "--replay-safe", "--url", stub.url,
    )  # fmt: skip
    assert sent(stub)["params"]["metadata"]["handoff_context"] == {
        "source_agent": "alice",
        "target_agent": "bob",
        "conversation_summary": "S",
        "user_intent": "I",
        "mode": "delegate",
        "priority": "high",
        "correlation_id": "order-7",
        "parent_handoff_id": "h0",
        "replay_safe": True,
        "requirements": {
            "capabilities": ["canBrowse", "canFly"],
            "skill": "refund",
            "domain": "shop",
            "tags": ["money"],
            "platform": "cursor",
        },
        "key_facts": {"amount": 12.5, "order": "A-7", "open": True, "empty": ""},
    }
    raw = next(body for _, path, _, body in stub.seen if path == "/")
    assert b'"amount":12.50' in raw


def test_options_go_over_the_context_file_and_the_rest_of_it_stays_as_it_is(
    stub: Stub, run: Run, tmp_path: Path
) -> None:
    stub.stream(task("COMPLETED"))
    file = tmp_path / "context.json"
    file.write_text(
        '{"user_intent":"theirs","key_facts":{"a":1.10,"b":2},"requirements":{"skill":"x"},"own":{"n":1.0}}'
    )
    run(
        "send",
        "T",
        "--context",
        str(file),
        "--intent",
        "mine",
        "--fact",
        "b=3",
        "--domain",
        "d",
        "--url",
        stub.url,
    )
    raw = next(body for _, path, _, body in stub.seen if path == "/")
    assert b'"user_intent":"mine"' in raw
    assert b'"key_facts":{"a":1.10,"b":3}' in raw
    assert b'"requirements":{"skill":"x","domain":"d"}' in raw
    assert b'"own":{"n":1.0}' in raw


def test_task_and_context_may_come_from_standard_input(
    stub: Stub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.stream(task("COMPLETED"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("déjà vu\n".encode()), encoding="utf-8"))
    run("send", "-", "--url", stub.url)
    assert sent(stub)["params"]["message"]["parts"] == [{"text": "déjà vu\n"}]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"user_intent":"I"}'), encoding="utf-8"))
    run("send", "T", "--context", "-", "--url", stub.url)
    assert sent(stub)["params"]["metadata"]["handoff_context"]["user_intent"] == "I"


def test_files_travel_as_parts_with_name_and_type(stub: Stub, run: Run, tmp_path: Path) -> None:
    stub.stream(task("COMPLETED"))
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "b.unknownkind").write_bytes(b"\x00")
    run(
        "send",
        "T",
        "--file",
        str(tmp_path / "a.png"),
        "--file",
        str(tmp_path / "b.unknownkind"),
        "--url",
        stub.url,
    )
    _, png, other = sent(stub)["params"]["message"]["parts"]
    assert png == {
        "raw": base64.b64encode(b"\x89PNG").decode(),
        "filename": "a.png",
        "mediaType": "image/png",
    }
    assert other["mediaType"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("T", "--fact", "novalue"), "--fact: 'novalue' must be name=value"),
        (("T", "--fact", "=x"), "must be name=value"),
        (("T", "--file", "gone.png"), "--file: gone.png: No such file or directory"),
        (("T", "--context", "gone.json"), "--context: gone.json: No such file or directory"),
        (("  ",), "TEXT: must not be blank"),
    ],
)
def test_wrong_options_are_told_before_anything_is_sent(
    stub: Stub, run: Run, args: tuple[str, ...], part: str
) -> None:
    code, out, err = run("send", *args, "--url", stub.url)
    assert (code, out) == (2, "")
    assert part in err
    assert stub.seen == []


@pytest.mark.parametrize("text", ["[1]", "{", '{"key_facts":7}'])
def test_a_context_file_that_holds_no_context_is_wrong_usage(
    stub: Stub, run: Run, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "c.json"
    file.write_text(text)
    code, _, err = run("send", "T", "--context", str(file), "--fact", "a=1", "--url", stub.url)
    assert code == 2
    assert err.startswith("a2a-handoff: --context: ")


# --- what comes back -----------------------------------------------------------------------------


def test_output_goes_to_standard_output_and_notes_to_standard_error(stub: Stub, run: Run) -> None:
    stub.stream(
        task("SUBMITTED"),
        status("SUBMITTED", event("handoff_started", "Asking billing", "billing_agent")),
        status("WORKING"),
        chunk({"text": "Refun"}),
        chunk({"text": "ded.\n"}, append=True),
        chunk({"data": {"amount": 12.5}}, artifact_id="b"),
        chunk(
            {"url": "http://x/r.pdf", "filename": "r.pdf", "mediaType": "application/pdf"}, artifact_id="c"
        ),
        status("COMPLETED", {"text": "Done."}),
    )
    ended(stub, "completed", assigned_to="billing_agent")
    code, out, err = run("send", "T", "--url", stub.url)
    assert code == 0
    assert out == 'Refunded.\n{\n  "amount": 12.5\n}\n[r.pdf, application/pdf, http://x/r.pdf]\nDone.\n'
    assert err.splitlines() == [
        "handoff h1",
        "· handoff_started > billing_agent: Asking billing",
        "· working",
        f"completed  by billing_agent  handoff h1  trace {TRACE}",
    ]


def test_who_did_it_is_the_last_of_its_chain(stub: Stub, run: Run) -> None:
    stub.stream(task("SUBMITTED"), status("COMPLETED", {"text": "Done."}))
    ended(stub, "completed", assigned_to="triage", leaf_id="h2")
    ended(stub, "completed", "h2", assigned_to="editor")
    _, _, err = run("send", "T", "--url", stub.url)
    assert err.splitlines()[-1] == f"completed  by editor  handoff h1  trace {TRACE}"


def test_a_returned_task_lists_every_attempt_and_ends_with_1(stub: Stub, run: Run) -> None:
    stub.stream(task("SUBMITTED"), status("REJECTED", {"text": "Nobody took it."}))
    attempt = AttemptOut(number=1, agent_id="bob", outcome="target_rejected", detail="not today")
    ended(stub, "returned", attempts=[attempt], outcome="no_capable_agent", detail="nobody left")
    code, out, err = run("send", "T", "--url", stub.url)
    assert (code, out) == (1, "Nobody took it.\n")
    assert err.splitlines()[1:] == [
        "attempt 1 bob: target_rejected: not today",
        "no_capable_agent: nobody left",
        f"returned  handoff h1  trace {TRACE}",
    ]


def test_what_the_broker_itself_says_is_a_note_and_is_said_once(stub: Stub, run: Run) -> None:
    why = "The task is back with you: nobody took it.\n1. bob: timeout"
    stub.stream(task("SUBMITTED"), status("REJECTED", {"text": why}, event("handoff_returned", why, "")))
    attempt = AttemptOut(number=1, agent_id="bob", outcome="timeout")
    ended(stub, "returned", attempts=[attempt], outcome="timeout")
    code, out, err = run("send", "T", "--url", stub.url)
    assert (code, out) == (1, "")
    assert err == f"handoff h1\n· handoff_returned: {why}\nreturned  handoff h1  trace {TRACE}\n"


def test_a_task_that_waits_for_its_caller_says_so(stub: Stub, run: Run) -> None:
    stub.stream(task("SUBMITTED"), status("INPUT_REQUIRED", {"text": "Which order?"}))
    ended(stub, "input_required")
    code, out, err = run("send", "T", "--url", stub.url)
    assert (code, out) == (1, "Which order?\n")
    assert "it waits for an answer" in err


def test_without_streaming_the_whole_answer_is_shown(stub: Stub, run: Run) -> None:
    answer = task("COMPLETED")
    answer["task"]["artifacts"] = [{"artifactId": "a", "parts": [{"text": "all of it"}]}]
    stub.json("POST", "/", {"jsonrpc": "2.0", "id": 1, "result": answer})
    ended(stub, "completed")
    code, out, _ = run("send", "T", "--no-stream", "--url", stub.url)
    assert (code, out) == (0, "all of it\n")
    assert sent(stub)["method"] == "SendMessage"


def test_an_answer_that_is_a_message_is_shown(stub: Stub, run: Run) -> None:
    stub.stream({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}})
    assert run("send", "T", "--url", stub.url)[:2] == (0, "hello\n")


def test_json_is_every_result_as_it_came_one_a_line_and_nothing_else(stub: Stub, run: Run) -> None:
    stub.stream(task("SUBMITTED"), status("COMPLETED", {"data": 1.50}))
    code, out, err = run("send", "T", "--json", "--url", stub.url)
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        task("SUBMITTED"),
        status("COMPLETED", {"data": 1.5}),
    ]


def test_the_end_is_told_from_the_stream_if_the_broker_cannot_be_asked(stub: Stub, run: Run) -> None:
    stub.stream(task("COMPLETED"))
    code, _, err = run("send", "T", "--url", stub.url)
    assert code == 0
    assert err.splitlines() == ["handoff h1", "completed  handoff h1"]


def test_a_stream_that_breaks_off_says_how_to_look_again(stub: Stub, run: Run) -> None:
    stub.stream(task("SUBMITTED"), status("WORKING"))
    code, _, err = run("send", "T", "--url", stub.url)
    assert code == 3
    assert err.splitlines()[-1] == (
        "a2a-handoff: the stream ended before the task did; the handoff goes on: a2a-handoff handoffs show h1"
    )


def test_an_error_of_the_broker_is_shown_with_its_fields(stub: Stub, run: Run) -> None:
    error = {
        "code": -32602,
        "message": "The handoff context is wrong.",
        "data": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_CONTEXT", "domain": "x"},
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "user_intent", "description": "is blank"}],
            },
        ],
    }
    stub.json("POST", "/", {"jsonrpc": "2.0", "id": 1, "error": error})
    for how in ((), ("--no-stream",)):
        code, out, err = run("send", "T", *how, "--url", stub.url)
        assert (code, out) == (1, "")
        assert err.splitlines() == [
            "a2a-handoff: The handoff context is wrong. (invalid_context)",
            "  user_intent: is blank",
        ]


def test_an_error_in_the_middle_of_a_stream_is_shown_with_the_way_to_look_again(stub: Stub, run: Run) -> None:
    stub.stream(task("SUBMITTED"), {"code": -32603, "message": "The broker failed."})
    code, _, err = run("send", "T", "--url", stub.url)
    assert code == 1
    assert err.splitlines()[-2:] == [
        "a2a-handoff: The broker failed. (-32603)",
        "  the handoff goes on: a2a-handoff handoffs show h1",
    ]


@pytest.mark.parametrize("answer", [{"hello": 1}, {"jsonrpc": "2.0", "id": 1, "result": {"task": 7}}, [1]])
def test_an_answer_that_is_not_a2a_is_one_line(stub: Stub, run: Run, answer: object) -> None:
    stub.json("POST", "/", answer)
    code, _, err = run("send", "T", "--url", stub.url)
    assert code == 3
    assert err.count("\n") == 1
    assert "is that a broker?" in err


def test_text_of_an_agent_cannot_steer_the_terminal(stub: Stub, run: Run) -> None:
    stub.stream(
        task("SUBMITTED"),
        chunk({"text": "\x1b[2J\x07[red]x"}),
        status("COMPLETED", event("\x1b[1m", "\r", "\x9b")),
    )
    _, out, err = run("send", "T", "--url", stub.url)
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(out + err)
    assert "[red]x" in out
