"""``agents check`` and ``context check``: faults as a compiler shows them, and the exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.test_discovery import Site
from tests.cli.conftest import Run
from tests.cli.stub import Stub
from tests.support.running import kept_port, running

GOOD: dict[str, Any] = {
    "name": "Billing",
    "description": "Bills.",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "http://127.0.0.1:9000/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "bill", "name": "Bill", "description": "Bills.", "tags": ["bill"]}],
}


# --- cards ---------------------------------------------------------------------------------------


def test_a_good_card_is_called_good(run: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps(GOOD))
    assert run("agents", "check", str(card)) == (0, f"{card}: good\n", "")


def test_a_fault_is_shown_with_line_column_source_and_caret(run: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    interface = GOOD["supportedInterfaces"][0] | {"url": "ftp://b"}
    card.write_text(json.dumps(GOOD | {"supportedInterfaces": [interface]}, indent=2))
    code, out, _ = run("agents", "check", str(card))
    assert code == 1
    lines = out.splitlines()
    number = next(i for i, line in enumerate(card.read_text().splitlines(), 1) if '"url"' in line)
    assert lines[0].startswith(f"{card}:{number}:14: error: ")
    assert lines[0].endswith("[supportedInterfaces[0].url]")
    assert lines[1] == '          "url": "ftp://b",'
    assert lines[2].index("^") == lines[1].index('"ftp')
    assert lines[-1] == f"{card}: 1 error, 0 warnings"


def test_a_file_that_is_not_json_is_shown_where_it_ends_to_be(run: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text('{\n  "name": "x",\n}')
    code, out, _ = run("agents", "check", str(card))
    assert code == 1
    assert f"{card}:3:1: error: not JSON" in out or f"{card}:2:" in out


def test_warnings_alone_are_no_failure(run: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps({key: value for key, value in GOOD.items() if key != "defaultInputModes"}))
    code, out, _ = run("agents", "check", str(card))
    assert code == 0
    assert "0 errors, 1 warning" in out


def test_several_cards_are_checked_and_one_bad_one_fails_all(run: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(GOOD))
    bad.write_text("[]")
    code, out, _ = run("agents", "check", str(good), str(bad))
    assert code == 1
    assert f"{good}: good" in out
    assert f"{bad}:1:1: error: " in out


def test_a_long_line_is_shown_around_the_fault(run: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps(GOOD | {"description": "x" * 500, "supportedInterfaces": [{"url": 7}]}))
    code, out, _ = run("agents", "check", str(card))
    assert code == 1
    assert max(len(line) for line in out.splitlines() if not line.startswith(str(tmp_path))) <= 124


def test_a_card_is_fetched_from_its_address_or_from_below_a_base_address(stub: Stub, run: Run) -> None:
    stub.json("GET", "/.well-known/agent-card.json", GOOD)
    for url in (stub.url, stub.url + "/", stub.url + "/.well-known/agent-card.json"):
        assert run("agents", "check", url) == (0, f"{url}: good\n", "")
    stub.answers.clear()
    stub.json("GET", "/.well-known/agent.json", GOOD)
    assert run("agents", "check", stub.url)[0] == 0


def test_where_no_card_was_found_every_place_is_named_with_the_reason(stub: Stub, run: Run) -> None:
    stub.answers["GET", "/.well-known/agent-card.json"] = (200, "text/html; charset=utf-8", b"<html>")
    code, out, err = run("agents", "check", stub.url)
    assert (code, out) == (3, "")
    assert err == (
        f"a2a-handoff: {stub.url}: there is no card\n"
        f"  {stub.url}/.well-known/agent-card.json: is text/html, not application/json\n"
        f"  {stub.url}/.well-known/agent.json: HTTP 404\n"
    )


def test_a_redirect_is_not_followed_since_brokers_do_not(run: Run) -> None:
    site = Site(pages={"/real.json": GOOD}, redirects={"/card.json": "/real.json"})
    with running(site) as url:
        code, _, err = run("agents", "check", f"{url}/card.json")
        assert code == 3
        assert f"{url}/card.json: leads to /real.json, and redirects are not followed" in err
        assert "/real.json" not in site.asked


def test_a_card_that_is_too_large_or_no_json_at_an_address_is_an_error_of_the_card(
    stub: Stub, run: Run
) -> None:
    stub.answers["GET", "/c.json"] = (200, "application/json", b" " * 2_000_000)
    code, out, _ = run("agents", "check", stub.url + "/c.json")
    assert (code, "error: the card is larger than 1048576 bytes" in out) == (1, True)
    stub.answers["GET", "/c.json"] = (200, "application/json", b"{\n  7}")
    code, out, _ = run("agents", "check", stub.url + "/c.json")
    assert (code, f"{stub.url}/c.json:2:3: error: not JSON" in out) == (1, True)


def test_nobody_at_the_address_is_one_line(run: Run) -> None:
    code, out, err = run("agents", "check", f"http://127.0.0.1:{kept_port()}")
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1


def test_hints_are_counted_and_no_failure(run: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    skill = GOOD["skills"][0] | {"tags": ["browse"]}
    card.write_text(json.dumps(GOOD | {"skills": [skill]}, indent=1))
    code, out, _ = run("agents", "check", str(card))
    assert code == 0
    assert "hint: implies the capability canBrowse [skills[0].tags[0]]" in out
    assert out.endswith(f"{card}: good, 1 hint\n")


def test_findings_can_be_had_as_json(run: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(GOOD))
    bad.write_text(json.dumps(GOOD | {"name": 7, "skills": [{"id": "a", "tags": ["x"]}]}, indent=1))
    code, out, _ = run("agents", "check", "--json", str(good), str(bad))
    assert code == 1
    found = json.loads(out)
    assert [(each["path"], each["severity"]) for each in found] == [
        ("name", "error"), ("skills[0].description", "warning"),
    ]  # fmt: skip
    assert found[0] == {
        "card": str(bad), "line": 2, "column": 10, "path": "name", "severity": "error",
        "message": "must be text",
    }  # fmt: skip
    assert run("agents", "check", "--json", str(good)) == (0, "[]\n", "")


def test_addresses_can_be_tried(run: Run, tmp_path: Path, stub: Stub) -> None:
    card = tmp_path / "card.json"
    dead = kept_port()
    answering = stub.url.removeprefix("http://")
    given = [
        {"url": stub.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": f"http://127.0.0.1:{dead}/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": answering, "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": f"127.0.0.1:{dead}", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
    ]
    card.write_text(json.dumps(GOOD | {"supportedInterfaces": given}))
    assert run("agents", "check", str(card))[0] == 0
    code, out, _ = run("agents", "check", "--live", "--json", str(card))
    assert code == 1
    found = json.loads(out)
    assert [each["path"] for each in found] == ["supportedInterfaces[1].url", "supportedInterfaces[3].url"]
    assert all(each["message"].startswith("does not answer: ") for each in found)
    card.write_text("{")
    assert run("agents", "check", "--live", str(card))[0] == 1


@pytest.mark.parametrize("command", [("agents", "check"), ("context", "check")])
def test_a_file_that_cannot_be_read_is_wrong_usage(
    run: Run, tmp_path: Path, command: tuple[str, str]
) -> None:
    code, _, err = run(*command, str(tmp_path / "gone.json"))
    assert (code, err) == (2, f"a2a-handoff: {tmp_path}/gone.json: No such file or directory\n")
    (tmp_path / "latin").write_bytes(b"\xff")
    assert run(*command, str(tmp_path / "latin"))[2].endswith("latin: not UTF-8\n")


# --- contexts ------------------------------------------------------------------------------------

CONTEXT = {"user_intent": "I", "conversation_summary": "One. Two.", "key_facts": {"a": 1}}


@pytest.mark.parametrize(
    "shape",
    [
        CONTEXT,
        {"handoff_context": CONTEXT},
        {"urn:a2a-handoff:handoff:v1": CONTEXT},
        {"metadata": {"handoff_context": CONTEXT}},
        {"params": {"message": {}, "metadata": {"handoff_context": CONTEXT}}},
    ],
)
def test_a_good_context_is_counted_wherever_it_stands(run: Run, tmp_path: Path, shape: object) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(shape))
    code, out, _ = run("context", "check", str(file))
    assert code == 0
    assert out == f"{file}: 9 of 2000 tokens (tiktoken/cl100k_base)\n"


def test_every_fault_of_a_context_is_shown_at_its_place(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(
        json.dumps({"metadata": {"handoff_context": CONTEXT | {"hop_count": 9, "user_intent": " "}}})
    )
    code, out, _ = run("context", "check", str(file))
    assert code == 1
    assert "[metadata.handoff_context.hop_count]" in out
    assert "[metadata.handoff_context.user_intent]" in out


def test_a_context_over_the_budget_is_refused_with_its_count(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    long = CONTEXT | {"conversation_summary": "Word word. " * 2000}
    file.write_text(json.dumps(long))
    code, out, _ = run("context", "check", str(file))
    assert code == 1
    (line,) = out.splitlines()
    assert line.startswith(f"{file}: error: ")
    assert "6006 tokens" in line

    file.write_text(json.dumps(long | {"context_overflow": "trim"}))
    code, out, _ = run("context", "check", str(file))
    assert code == 0
    assert "left out" in out
    assert "of 2000 tokens" in out


@pytest.mark.parametrize("text", ["[]", "{", "7"])
def test_what_is_no_object_is_wrong_usage(run: Run, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run("context", "check", "-") == (2, "", "a2a-handoff: -: not a JSON object\n")
