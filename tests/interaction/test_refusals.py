"""What every surface refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interaction.manifest import proves
from tests.interaction.seen import Refused, Surface, ask_of
from tests.interaction.staff import Staff
from tests.interaction.surfaces import surfaces
from tests.interaction.wires import FACE, Face, wire
from tests.support.agents import Agent, card, completes, hands_on
from tests.support.running import Broker, broker, running

Names = Callable[[str], str]

FAULTY: dict[str, Any] = {
    "hop_count": "2",
    "key_facts": ["not", "an", "object"],
    "user_intent": " ",
    "priority": "soon",
    "handoff_reason": "boredom",
    "requirements": {"colour": "blue"},
    "deadline": "tomorrow",
}


def handoffs(b: Broker) -> int:
    return b.http.get("/api/handoffs?limit=1").json()["total"]


@proves("context.faults")
def test_every_fault_of_a_context_is_named_at_its_place_and_nothing_is_stored(surface: Surface) -> None:
    before = handoffs(surface.broker)
    # The schema of a tool names the other ones before the broker looks.
    faulty = {n: FAULTY[n] for n in ("requirements", "deadline")} if surface.name == "mcp" else FAULTY
    with pytest.raises(Refused) as refused:
        surface.send(context=faulty)
    at = "" if surface.codes == "native" else "metadata.handoff_context."
    wanted = {at + name for name in faulty if name != "requirements"} | {f"{at}requirements.colour"}
    assert set(refused.value.violations) == wanted
    assert all(refused.value.violations.values())
    assert refused.value.reason == "INVALID_CONTEXT"
    assert refused.value.code == {"jsonrpc": -32602, "http": 400, "grpc": 3, "native": 422}[surface.codes]
    assert handoffs(surface.broker) == before


@proves("context.faults")
def test_a_parent_that_the_sender_does_not_hold_is_named_at_its_place(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.hire(completes)
    with pytest.raises(Refused) as refused:
        surface.send(to=(worker,), context={"parent_handoff_id": "nobody-made-this"})
    at = "" if surface.codes == "native" else "metadata.handoff_context."
    assert list(refused.value.violations) == [f"{at}parent_handoff_id"]
    assert refused.value.reason == "INVALID_CONTEXT"
    assert agent.calls == []


@pytest.mark.parametrize("version", ["0.2", "1.1", "2.0", "one"])
@proves("version.unknown")
def test_a_version_that_is_not_spoken_is_refused(surface: Surface, staff: Staff, version: str) -> None:
    worker, agent = staff.hire(completes)
    with pytest.raises(Refused) as refused:
        surface.send(to=(worker,), headers={"A2A-Version": version})
    assert refused.value.reason == "VERSION_NOT_SUPPORTED"
    assert refused.value.code == {"jsonrpc": -32009, "http": 400, "grpc": 9}[surface.codes]
    assert agent.calls == []


@proves("version.patch")
def test_a_patch_number_does_not_count(surface: Surface, staff: Staff) -> None:
    worker, _ = staff.hire(completes)
    version = wire(surface).dialect.version or "0.3"
    assert surface.send(to=(worker,), headers={"A2A-Version": f"{version}.7"}).state == "completed"


@proves("version.empty")
def test_no_version_is_0_3(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.hire(completes)
    if wire(surface).dialect.version == "1.0":
        # What a caller of 1.0 writes is nothing that 0.3 has.
        with pytest.raises(Refused) as refused:
            surface.send(to=(worker,), headers={"A2A-Version": ""})
        assert refused.value.reason == "VERSION_NOT_SUPPORTED"
        assert refused.value.facts["requestedVersion"] == "0.3"
        assert agent.calls == []
    else:
        assert surface.send(to=(worker,), headers={"A2A-Version": ""}).state == "completed"
        assert surface.send(to=(worker,)).state == "completed"


#: What a message must have (``a2a.proto``), and how it is without it.
LACKING: dict[str, Any] = {
    "no id": ("messageId", None), "an empty id": ("messageId", ""), "no role": ("role", None),
    "no parts": ("parts", None), "empty parts": ("parts", []),
}  # fmt: skip


@pytest.mark.parametrize("lack", LACKING)
@proves("message.required")
def test_a_message_without_what_it_must_have_is_refused_at_its_place(
    surface: Surface, staff: Staff, lack: str
) -> None:
    worker, agent = staff.hire(completes)
    before = handoffs(surface.broker)
    params = wire(surface).dialect.params(wire(surface).aim(ask_of("hello", to=(worker,))))
    message = params.get("message") or params["request"]
    name, value = LACKING[lack]
    written = "content" if name == "parts" and name not in message else name
    del message[written]
    if value is not None:
        message[written] = value
    with pytest.raises(Refused) as refused:
        wire(surface).call("send", params, {}, "")
    assert refused.value.reason == "INVALID_PARAMS"
    (place,) = refused.value.violations
    assert place.rpartition(".")[2] in (name, {"parts": "content"}.get(name))
    assert refused.value.code == {"jsonrpc": -32602, "http": 400, "grpc": 3}[surface.codes]
    assert (handoffs(surface.broker), agent.calls) == (before, [])


#: The errors of A2A that a caller can bring about here, by what it does.
ERRORS: dict[str, Callable[[Any, Any], object]] = {
    "TASK_NOT_FOUND": lambda surface, ended: surface.get("nobody-made-this"),
    "TASK_NOT_CANCELABLE": lambda surface, ended: surface.cancel(ended.id),
    "UNSUPPORTED_OPERATION": lambda surface, ended: list(surface.subscribe(ended.id)),
    "VERSION_NOT_SUPPORTED": lambda surface, ended: surface.call(
        "get", {"id": ended.id}, {"A2A-Version": "7.0"}, ""
    ),
    "INVALID_PARAMS": lambda surface, ended: surface.call("get", {"id": ended.id, "historyLength": -1}, {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("reason", ERRORS)
@proves("errors.whole")
def test_an_error_says_what_it_is_in_words_and_in_details(
    surface: Surface, staff: Staff, reason: str
) -> None:
    worker, _ = staff.hire(completes)
    ended = surface.send(to=(worker,))
    with pytest.raises(Refused) as refused:
        ERRORS[reason](surface, ended)
    error = refused.value
    assert error.message
    infos = [one for one in error.details if one["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"]
    assert [info["reason"] for info in infos] == [reason]
    assert infos[0]["domain"] == "a2a-protocol.org"
    assert all(one["@type"].startswith("type.googleapis.com/google.rpc.") for one in error.details)
    code, status, rpc = ERROR_CODES[reason]
    assert error.code == {"jsonrpc": code, "http": status, "grpc": rpc}[surface.codes]


#: A2A 1.0 section 5.4: JSON-RPC, HTTP, gRPC.
ERROR_CODES = {
    "TASK_NOT_FOUND": (-32001, 404, 5),
    "TASK_NOT_CANCELABLE": (-32002, 400, 9),
    "UNSUPPORTED_OPERATION": (-32004, 400, 9),
    "VERSION_NOT_SUPPORTED": (-32009, 400, 9),
    "INVALID_PARAMS": (-32602, 400, 3),
}


@proves("extension.demanded")
def test_the_face_of_an_agent_that_demands_an_extension_demands_it(surface: Surface, staff: Staff) -> None:
    demanded = "https://example.com/ext/geo/v1"
    worker, agent = staff.hire(completes, demands=demanded)
    params = wire(surface).dialect.params(wire(surface).aim(ask_of("hello", to=(worker,))))
    if not isinstance(surface, Face):
        params["tenant"] = f"agents/{worker}"
    for named in ({}, {"A2A-Extensions": "https://example.com/ext/geo/v2"}):
        with pytest.raises(Refused) as refused:
            wire(surface).call("send", params, named, "")
        assert refused.value.reason == "EXTENSION_SUPPORT_REQUIRED"
        assert refused.value.code == {"jsonrpc": -32008, "grpc": 9}[surface.codes]
    assert agent.calls == []
    wire(surface).call("send", params, {"A2A-Extensions": demanded}, "")
    assert len(agent.calls) == 1


@proves("guard.hops")
def test_a_chain_that_has_used_its_hops_gets_no_further_one(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.hire(completes)
    path = ["a", "b", "c", "d", "e", "triage"]
    before = handoffs(surface.broker)
    for claim in ({"hop_count": 5}, {"handoff_chain": path}, {"hop_count": 0, "handoff_chain": path}):
        with pytest.raises(Refused) as refused:
            surface.send(to=(worker,), context=claim)
        assert refused.value.reason == "MAX_HOPS_EXCEEDED"
        assert refused.value.code == {"jsonrpc": -32050, "http": 409, "grpc": 9, "native": 409}[surface.codes]
    assert surface.send(to=(worker,), context={"hop_count": 4}).state == "completed"
    assert handoffs(surface.broker) == before + 1
    assert len(agent.calls) == 1


@proves("guard.loop")
def test_an_agent_on_the_path_does_not_get_the_task_again(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.hire(completes)
    before = handoffs(surface.broker)
    with pytest.raises(Refused) as refused:
        surface.send(to=(worker,), context={"handoff_chain": [worker, "triage"], "hop_count": 1})
    assert refused.value.reason == "CYCLE_DETECTED"
    assert refused.value.code == {"jsonrpc": -32051, "http": 409, "grpc": 9, "native": 409}[surface.codes]
    assert refused.value.facts["path"] == f"{worker},triage,{worker}"
    assert (handoffs(surface.broker), agent.calls) == (before, [])


@proves("guard.self")
def test_the_sender_does_not_get_its_own_task(surface: Surface, staff: Staff) -> None:
    worker, agent = staff.hire(completes)
    with pytest.raises(Refused) as refused:
        surface.send(to=(worker,), context={"source_agent": worker})
    assert refused.value.reason == "CYCLE_DETECTED"
    assert agent.calls == []


@pytest.mark.parametrize(
    ("max_hops", "outcome", "said"),
    [(5, "cycle_detected", "triage -> first-{n} -> triage"), (1, "max_hops_exceeded", "has used its 1 hops")],
)
@proves("guard.directive")
def test_a_directive_that_may_not_be_followed_gives_the_task_back(
    tmp_path: Any, max_hops: int, outcome: str, said: str
) -> None:
    first, triage = Agent(hands_on(target_agent="triage", user_intent="You do it.")), Agent(completes)
    with running(first) as one, running(triage) as two, broker(tmp_path, max_hops=max_hops) as b:
        b.register("first-1", card=card(one))
        b.register("triage", card=card(two))
        task = surfaces(b)["jsonrpc-1.0"].send(to=("first-1",))
    assert task.state == "rejected"
    assert task.attempts == [("first-1", outcome)]
    assert said.format(n=1) in task.said
    assert triage.calls == []


# --- cards ---------------------------------------------------------------------------------------

PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")


@pytest.mark.parametrize("face", ["", f"/agents/{FACE}"])
@proves("card.paths")
def test_a_card_is_at_the_new_path_and_at_the_old_one(house: Broker, face: str) -> None:
    new, old = (house.http.get(face + path) for path in PATHS)
    assert (new.status_code, old.status_code) == (200, 200)
    assert new.json() == old.json()
    assert new.headers["content-type"] == "application/json"
    through = house.http.get(f"{face}/agent-card.json") if face else new
    faces = through.json()["supportedInterfaces"]
    urls = [interface["url"] for interface in faces if interface["protocolBinding"] != "GRPC"]
    assert all(url.startswith(house.url + face) for url in urls)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("face", ["", f"/agents/{FACE}"])
@proves("card.etag")
def test_who_has_the_card_already_is_told_so(house: Broker, face: str, path: str) -> None:
    card_now = house.http.get(face + path)
    etag = card_now.headers["etag"]
    for named in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = house.http.get(face + path, headers={"If-None-Match": named})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    other = house.http.get(face + path, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, card_now.content)


@proves("card.paths")
def test_an_agent_that_is_not_there_has_no_card(house: Broker) -> None:
    assert house.http.get("/agents/nobody/.well-known/agent-card.json").status_code == 404


# --- faces ---------------------------------------------------------------------------------------


def _plain(text: str) -> dict[str, Any]:
    return {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}


@proves("face.bindings")
def test_a_face_speaks_every_binding_and_generation(house: Broker, staff: Staff, names: Names) -> None:
    worker, agent = staff.hire(completes)
    face, said = f"/agents/{worker}", [names(f"call-{n}") for n in range(6)]
    old = {"messageId": said[3], "role": "user", "parts": [{"kind": "text", "text": said[3]}]}
    first = {"id": said[4], "message": {"role": "user", "parts": [{"type": "text", "text": said[4]}]}}
    calls: list[tuple[str, Any]] = [
        ("/", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": _plain(said[0])}}),
        ("", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": _plain(said[1])}}),
        ("/message:send", {"message": _plain(said[2])}),
        ("/v1/message:send", {"message": old | {"kind": "message"}}),
        ("/tasks/send", first),
        ("/", {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": first | {"id": said[5]}}),
    ]
    for path, body in calls:
        version = {} if "kind" in str(body) or "tasks/send" in path + str(body) else {"A2A-Version": "1.0"}
        answer = house.http.post(face + path, json=body, headers=version)
        assert answer.status_code == 200, (path, answer.text)
        assert "error" not in answer.json(), answer.text
    assert len(agent.calls) == 6
