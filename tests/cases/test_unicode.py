"""Known faults of text, numbers and times: c083 to c088 of docs/reference/cases.md."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format

from tests.support.agents import URI, Agent, Answer, Call, card, completes, rejects, said, streams
from tests.support.running import Broker, broker, handoff_context, running, send_params

CAN = {"requirements": {"capabilities": ["canWork"]}}
TEXT = "订单 🧪\u200d🦰 مرحبا é e\u0301 \U0001f9d1\U0001f3fd"


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with one agent that completes everything."""
    with running(Agent(completes)) as url, broker(tmp_path_factory.mktemp("broker")) as started:
        register(started, url)
        yield started


def register(b: Broker, url: str, name: str = "worker", **more: Any) -> None:
    """An agent that takes everything: texts, files and data."""
    anything = {"defaultInputModes": [], "defaultOutputModes": []}
    b.register(name, card=card(url, capabilities={"canWork": True}, **more) | anything)


def send_raw(b: Broker, params: str, *, method: str = "SendMessage") -> Any:
    """A call of 1.0 whose params are written as they are."""
    body = f'{{"jsonrpc":"2.0","id":"raw-1","method":"{method}","params":{params}}}'
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    return b.http.post("/", content=body.encode(), headers=headers)


def fields_of(answer: Any) -> list[str]:
    """The fields that a JSON-RPC error names."""
    return [v["field"] for d in answer["error"]["data"] for v in d.get("fieldViolations", ())]


# --- c083: one text on every path ----------------------------------------------------------------


def test_c083_a_text_is_the_same_on_every_path_and_after_a_restart(tmp_path: Path) -> None:
    agent = Agent(completes)
    written = TEXT.encode()
    with running(agent) as url:
        with broker(tmp_path) as b:
            register(b, url)
            context = {**CAN, "user_intent": TEXT, "conversation_summary": TEXT, "key_facts": {TEXT: TEXT}}
            answer = send_raw(b, json.dumps(send_params(TEXT, context=context)))  # escaped on the way in
            task = answer.json()["result"]["task"]
        with broker(tmp_path) as b:
            handoff = b.http.get(f"/api/handoffs/{task['id']}")
            paths = [
                handoff,
                b.http.get(f"/api/handoffs/{task['id']}/events"),
                b.http.get(f"/api/chains/{handoff.json()['correlation_id']}/snapshots/1"),
            ]
            again = b.rpc("GetTask", {"id": task["id"]})["result"]
            listed = b.rpc("ListTasks", {"includeArtifacts": True})["result"]["tasks"][0]
            old = b.rpc("tasks/get", {"id": task["id"]}, version="")["result"]
    for path in paths:
        assert path.headers["content-type"].startswith("application/json")
        assert written in path.content
        assert "�" not in path.text
    for shown in (task, again, listed):
        assert shown["history"][0]["parts"][0]["text"] == TEXT
        assert shown["artifacts"][0]["parts"][0]["text"] == f"done: {TEXT}"
    assert old["history"][0]["parts"][0]["text"] == TEXT
    (call,) = agent.of("SendMessage")
    assert call.text == TEXT
    assert call.ours["user_intent"] == call.ours["conversation_summary"] == TEXT
    assert call.ours["key_facts"] == {TEXT: TEXT}


def test_c083_a_stream_is_as_readable_as_an_answer(tmp_path: Path) -> None:
    with running(Agent(streams(TEXT, TEXT))) as url, broker(tmp_path) as b:
        register(b, url, streaming=True)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
        params = send_params("go", context=CAN)
        with b.http.stream("POST", "/", json=body | {"params": params}, headers={"A2A-Version": "1.0"}) as s:
            raw = b"".join(s.iter_raw())
            assert s.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix(b"data:")) for line in raw.splitlines() if line]
    chunks = [
        event["result"]["artifactUpdate"]["artifact"]["parts"][0]["text"]
        for event in events
        if "artifactUpdate" in event["result"]
    ]
    assert chunks == [TEXT, TEXT]


def test_c083_half_a_surrogate_pair_is_not_json(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        for half in (r"\ud83e", r"\udde4", r"\ud83ex"):
            params = json.dumps(send_params("@", context=CAN)).replace("@", half)
            assert send_raw(b, params).json()["error"]["code"] == -32700, half
        bad = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"x":"\xff"}}'
        assert b.http.post("/", content=bad).json()["error"]["code"] == -32700
        assert b.http.get("/api/handoffs").json()["total"] == 0


@pytest.mark.parametrize(
    ("field", "fits", "over"),
    [("correlation_id", "🧪" * 200, "🧪" * 201), ("user_intent", "é" * 4096, "é" * 4096 + "x")],
    ids=["names in code points", "texts in bytes of UTF-8"],
)
def test_c083_a_limit_counts_the_same_on_a2a_and_rest(
    tmp_path: Path, field: str, fits: str, over: str
) -> None:
    with running(Agent(completes)) as url, broker(tmp_path) as b:
        register(b, url)
        for surface in ("a2a", "rest"):
            if surface == "a2a":
                taken = b.rpc("SendMessage", send_params(context=CAN | {field: fits}))
                refused = b.rpc("SendMessage", send_params(context=CAN | {field: over}))
                assert "result" in taken
                assert fields_of(refused) == [f"metadata.handoff_context.{field}"]
            else:
                body = handoff_context(task="go", **CAN)
                taken = b.http.post("/api/handoffs", json=body | {field: fits})
                refused = b.http.post("/api/handoffs", json=body | {field: over})
                assert taken.status_code == 201
                assert [error["field"] for error in refused.json()["errors"]] == [field]


def test_c083_an_agent_may_have_a_name_of_any_script(tmp_path: Path) -> None:
    name = "агент 订单 é"
    with running(Agent(completes)) as url, broker(tmp_path) as b:
        register(b, url, name)
        face = b.http.get(f"/agents/{quote(name)}/agent-card.json").json()
        address = face["supportedInterfaces"][0]["url"]
        assert address.isascii()
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send_params()}
        task = b.http.post(address, json=body, headers={"A2A-Version": "1.0"}).json()["result"]["task"]
        assert b.handoff(task["id"])["assigned_to"] == name
        assert b.http.get(f"/api/agents/{quote(name)}").json()["agent_id"] == name
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


# --- c084: what is no number ---------------------------------------------------------------------


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "+1", "01", ".5"])
@pytest.mark.parametrize("path", ["/", "/message:send", "/tasks/send", "/api/handoffs", "/api/agents"])
def test_c084_what_is_no_json_number_is_no_json(b: Broker, path: str, token: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"metadata":{{"score":{token}}}}}}}'
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    answer = b.http.post(path, content=body, headers=headers if path != "/tasks/send" else {})
    assert answer.status_code == (200 if path == "/" else 400), answer.text
    if path.startswith("/api"):
        assert answer.json()["code"] == "parse_error"
    elif path == "/message:send":
        assert answer.json()["error"]["details"][0]["reason"] == "PARSE_ERROR"
    else:
        assert answer.json()["error"]["code"] == -32700


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400])
def test_c084_a_number_that_no_double_holds_is_refused_under_its_id(b: Broker, number: str) -> None:
    params = json.dumps(send_params(context=CAN, metadata={"score": "@"})).replace('"@"', number)
    answer = send_raw(b, params).json()
    assert (answer["id"], answer["error"]["code"]) == ("raw-1", -32602)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "1e999"])
def test_c084_an_agent_that_answers_with_no_number_fails_its_own_attempt_only(
    tmp_path: Path, token: str
) -> None:
    other = Agent(completes)
    with running(_Answers(token)) as bad, running(other) as good, broker(tmp_path) as b:
        b.register("bad", card=card(bad))
        b.register("good", card=card(good))
        context = {"target_agent": "bad", "fallback": ["good"]}
        failed = b.send(context=context)
        moved = b.send(context=context | {"replay_safe": True})
        attempts = b.handoff(moved["id"])["attempts"]
        listed = b.rpc("ListTasks", {"includeArtifacts": True})["result"]
    assert failed["status"]["state"] == "TASK_STATE_FAILED"
    assert moved["status"]["state"] == "TASK_STATE_COMPLETED"
    told = [(attempt["agent_id"], attempt["outcome"]) for attempt in attempts]
    assert told == [("bad", "invalid_response"), ("good", None)]
    assert {task["id"] for task in listed["tasks"]} == {failed["id"], moved["id"]}
    assert token not in json.dumps(listed)


def test_c084_no_number_within_a_stream_ends_the_stream_and_the_target_is_asked(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        async def events() -> AsyncIterator[dict[str, Any]]:
            task = agent.task("WORKING")
            yield {"task": dict(task)}
            agent.task("COMPLETED", "done", task_id=task["id"])
            yield agent.artifact(task, "a", "text") | {"score": float("nan")}

        return events()

    agent = Agent(script)
    with running(agent) as url, broker(tmp_path, reconcile_every=0.1) as b:
        register(b, url, streaming=True)
        task = b.send(context=CAN)
        listed = b.rpc("ListTasks", {"includeArtifacts": True})["result"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "artifacts" not in task
    assert [one["id"] for one in listed["tasks"]] == [task["id"]]
    assert (len(agent.of("SendStreamingMessage")), agent.of("SendMessage")) == (1, [])


class _Answers:
    """Answers every call with a finished task that has ``token`` where a number should be."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        task = '{"id":"r","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"metadata":{"score":@}}'
        body = f'{{"jsonrpc":"2.0","id":"1","result":{{"task":{task.replace("@", self._token)}}}}}'
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})


# --- c085: numbers keep their digits -------------------------------------------------------------

NUMBERS = '{"hop":1,"big":9007199254740993,"amount":12345678901234567890,"f":1.10,"small":-0.0,"e":1E2}'


def test_c085_numbers_reach_the_target_and_come_back_digit_by_digit(tmp_path: Path) -> None:
    async def script(agent: Agent, call: Call) -> Answer:
        part = {"data": json.loads('{"big":9007199254740993,"amount":12345678901234567890}')}
        return {"task": agent.task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [part]}])}

    agent = Agent(script)
    message = (
        '{"messageId":"m-1","role":"ROLE_USER","parts":[{"data":@}],"metadata":@}'
    ).replace("@", NUMBERS)  # fmt: skip
    context = json.dumps(handoff_context(**CAN, key_facts="@", hop_count="#")).replace('"@"', NUMBERS)
    context = context.replace('"#"', "1.0")
    with running(agent) as url, broker(tmp_path) as b:
        register(b, url)
        params = f'{{"message":{message},"metadata":{{"numbers":{NUMBERS},"handoff_context":{context}}}}}'
        answer = send_raw(b, params)
        task = answer.json()["result"]["task"]
        read = send_raw(b, f'{{"id":"{task["id"]}"}}', method="GetTask")
        handoff = b.http.get(f"/api/handoffs/{task['id']}")
    (call,) = agent.of("SendMessage")
    # The part, the metadata of message and request, the facts in two places; ours stand behind theirs.
    assert call.body.count(NUMBERS[:-1].encode()) == 5
    assert b'"hop_count":2,' in call.body
    for shown in (answer.content, read.content):
        assert b'"big":9007199254740993' in shown.replace(b" ", b"")
        assert b'"amount":12345678901234567890' in shown.replace(b" ", b"")
        assert shown.count(NUMBERS.encode()) == 3
    assert handoff.content.count(NUMBERS.encode()) == 3
    parsed = json_format.ParseDict(answer.json()["result"], a2a_pb2.SendMessageResponse())
    assert parsed.task.history[0].metadata["hop"] == 1


@pytest.mark.parametrize(("count", "taken"), [("0", 0), ("1.0", 1), ("2e0", 2), ("4", 4)])
def test_c085_a_whole_number_is_an_integer_however_it_is_written(b: Broker, count: str, taken: int) -> None:
    params = json.dumps(send_params(context=CAN | {"hop_count": "#"})).replace('"#"', count)
    task = send_raw(b, params).json()["result"]["task"]
    assert b.handoff(task["id"])["hop_count"] == taken + 1


# --- c086: deadlines -----------------------------------------------------------------------------


def _deadline(b: Broker, deadline: Any) -> Any:
    """The answer to a handoff with a deadline, by A2A."""
    return b.rpc("SendMessage", send_params(context=CAN | {"deadline": deadline}))


def test_c086_an_instant_is_the_same_in_every_offset_and_is_written_in_utc(b: Broker) -> None:
    at = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=500_000)
    east, west = timedelta(hours=5, minutes=30), timedelta(hours=-11)
    spellings = [
        at.strftime("%Y-%m-%dT%H:%M:%S.500Z"),
        at.strftime("%Y-%m-%dT%H:%M:%S.5Z"),
        at.strftime("%Y-%m-%d %H:%M:%S.500000z"),
        (at + east).strftime("%Y-%m-%dT%H:%M:%S.5+05:30"),
        (at + west).strftime("%Y-%m-%dT%H:%M:%S.5-11:00"),
    ]
    shown = set[str]()
    for spelling in spellings:
        task = _deadline(b, spelling)["result"]["task"]
        shown.add(b.handoff(task["id"])["deadline"])
    assert shown == {at.strftime("%Y-%m-%dT%H:%M:%S.500Z")}


@pytest.mark.parametrize(
    "deadline",
    [
        "2030-01-01T00:00:00",
        "2030-02-30T00:00:00Z",
        "2030-01-01",
        "tomorrow",
        "",
        4102444800,
        4102444800.5,
        True,
        "2001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_c086_what_is_no_instant_to_come_is_refused_at_its_place(b: Broker, deadline: Any) -> None:
    answer = _deadline(b, deadline)
    assert answer["error"]["code"] == -32602
    assert fields_of(answer) == ["metadata.handoff_context.deadline"]


@pytest.mark.parametrize("deadline", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-11:00"])
def test_c086_a_deadline_too_far_away_is_brought_forward_and_the_sender_told(
    b: Broker, deadline: str
) -> None:
    before = datetime.now(UTC)
    handoff = b.handoff(_deadline(b, deadline)["result"]["task"]["id"])
    away = datetime.fromisoformat(handoff["deadline"]) - before
    assert timedelta(days=6, hours=23) < away < timedelta(days=7, minutes=1)
    assert any("deadline" in warning for warning in handoff["warnings"])


def test_c086_what_changed_after_an_instant_is_listed_the_same_in_every_offset(b: Broker) -> None:
    first, second = (b.send(context=CAN | {"correlation_id": "case-86"}) for _ in range(2))
    shown = b.rpc("GetTask", {"id": first["id"]})["result"]["status"]["timestamp"]
    at = datetime.fromisoformat(shown)
    found = set[frozenset[str]]()
    for offset in (0, 5.5, -11):
        zone = timezone(timedelta(hours=offset))
        asked = {"statusTimestampAfter": at.astimezone(zone).isoformat(), "pageSize": 100}
        found.add(frozenset(task["id"] for task in b.rpc("ListTasks", asked)["result"]["tasks"]))
    assert len(found) == 1
    assert second["id"] in found.pop()
    for wrong in ("2030-01-01T00:00:00", "2030-02-30T00:00:00Z", 1_900_000_000):
        assert fields_of(b.rpc("ListTasks", {"statusTimestampAfter": wrong})) == ["statusTimestampAfter"]


def test_c086_every_time_that_is_shown_is_utc_with_milliseconds(b: Broker) -> None:
    task = b.send(context=CAN)
    handoff = b.handoff(task["id"])
    events = b.http.get(f"/api/handoffs/{task['id']}/events").json()["events"]
    times = [
        task["status"]["timestamp"],
        *(handoff[name] for name in ("created_at", "updated_at", "accepted_at", "ended_at", "deadline")),
        *(event["time"] for event in events),
    ]
    assert len(times) > 8
    assert [one for one in times if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one)] == []


# --- c087: correlation ids -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "correlation_id",
    ["x\r\nSet-Cookie: a=1", "x\ny", "\x00", "a\u2028b", "\u202eevil", " x", "x\t", "y" * 16_384],
)
def test_c087_an_id_that_could_break_a_line_is_refused_and_not_repeated(
    b: Broker, correlation_id: str
) -> None:
    answer = b.rpc("SendMessage", send_params(context=CAN | {"correlation_id": correlation_id}))
    assert answer["error"]["code"] == -32602
    assert fields_of(answer) == ["metadata.handoff_context.correlation_id"]
    assert correlation_id not in json.dumps(answer, ensure_ascii=False)
    body = handoff_context(task="go", correlation_id=correlation_id, **CAN)
    refused = b.http.post("/api/handoffs", json=body)
    assert [error["field"] for error in refused.json()["errors"]] == ["correlation_id"]


@pytest.mark.parametrize(
    "correlation_id", ["<script>", "a=1 tenant=victim", "../../", "order/42?x#y", "🧪", "%2e%2e", "null"]
)
def test_c087_any_other_id_is_a_name_and_nothing_more(
    b: Broker, caplog: pytest.LogCaptureFixture, correlation_id: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="a2a_handoff")
    params = send_params(context=CAN | {"correlation_id": correlation_id})
    answer = b.http.post(
        "/",
        json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params},
        headers={"A2A-Version": "1.0"},
    )
    task = answer.json()["result"]["task"]
    assert task["metadata"][URI]["correlation_id"] == correlation_id
    chain = b.http.get(f"/api/chains/{quote(correlation_id, safe='')}")
    assert [h["handoff_id"] for h in chain.json()["handoffs"]] == [task["id"]]
    snapshot = b.http.get(f"/api/chains/{quote(correlation_id, safe='')}/snapshots/1")
    assert snapshot.json()["correlation_id"] == correlation_id
    assert re.fullmatch(r"[0-9a-f]{32}", b.handoff(task["id"])["trace_id"])
    for headers in (answer.headers, chain.headers, snapshot.headers):
        assert correlation_id not in str(dict(headers))
    assert f'"{correlation_id}' not in b.http.get("/metrics").text
    assert not [record for record in caplog.records if "\n" in record.getMessage()]


def test_c087_a_correlation_header_is_not_read_and_not_sent_back(b: Broker) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send_params(context=CAN)}
    answer = b.http.post("/", json=body, headers={"A2A-Version": "1.0", "X-Correlation-ID": "forged-7"})
    assert "forged-7" not in answer.text + str(dict(answer.headers))
    correlation_id = answer.json()["result"]["task"]["metadata"][URI]["correlation_id"]
    assert b.http.get(f"/api/chains/{correlation_id}").status_code == 200


# --- c088: falsy is not absent -------------------------------------------------------------------

FALSY: dict[str, Any] = {
    "priority": 0, "dry_run": False, "note": "", "tags": [], "opt": None, "nested": {"z": {}},
}  # fmt: skip


@pytest.mark.parametrize("script", [completes, rejects], ids=["done", "returned"])
def test_c088_empty_values_arrive_and_come_back_as_they_are(tmp_path: Path, script: Any) -> None:
    agent = Agent(script)
    with running(agent) as url, broker(tmp_path) as b:
        register(b, url)
        task = b.send(
            context=CAN | {"key_facts": FALSY, "user_preferences": FALSY, "own": FALSY},
            metadata={"beside": FALSY},
            message={"metadata": FALSY, "parts": [{"text": "", "metadata": FALSY}, {"data": FALSY}]},
        )
        read = b.rpc("GetTask", {"id": task["id"]})["result"]
        handoff = b.handoff(task["id"])
        snapshot = b.http.get(f"/api/chains/{handoff['correlation_id']}/snapshots/1").json()
    call = agent.of("SendMessage")[0]
    assert call.params["metadata"]["beside"] == FALSY
    assert {name: call.message["metadata"][name] for name in FALSY} == FALSY
    assert call.message["parts"] == [{"text": "", "metadata": FALSY}, {"data": FALSY}]
    for package in (call.ours, call.params["metadata"]["handoff_context"], snapshot):
        assert package["key_facts"] == package["user_preferences"] == package["own"] == FALSY
    for shown in (task, read):
        assert shown["metadata"]["beside"] == FALSY
        assert shown["history"][0]["metadata"] == FALSY
        assert shown["history"][0]["parts"] == [{"text": "", "metadata": FALSY}, {"data": FALSY}]


def test_c088_what_an_agent_leaves_empty_stays_so(tmp_path: Path) -> None:
    parts = [{"text": "", "metadata": FALSY}, {"data": FALSY}, {"data": None}, {"data": 0}, {"data": []}]

    async def script(agent: Agent, call: Call) -> Answer:
        task = agent.task("COMPLETED", artifacts=[{"artifactId": "a", "parts": parts, "metadata": FALSY}])
        task["status"]["message"] = said("ok") | {"metadata": FALSY}
        return {"task": task}

    with running(Agent(script)) as url, broker(tmp_path) as b:
        register(b, url)
        task = b.send(context=CAN)
    assert task["artifacts"] == [{"artifactId": "a", "parts": parts, "metadata": FALSY}]
    assert task["status"]["message"]["metadata"] == FALSY
