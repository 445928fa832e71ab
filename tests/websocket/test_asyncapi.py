"""The description of the WebSocket is that of its code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from a2a_handoff.transports.asyncapi import document
from a2a_handoff.wire import native
from a2a_handoff.wire.native.frames import FROM_BROKER, FROM_CLIENT
from tests.support.puller import hand_off
from tests.support.running import Broker
from tests.support.sockets import socket_of

ROOT = Path(__file__).parents[2]
DOCUMENT: dict[str, Any] = json.loads(document())
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]


def _checked(name: str, payload: Any) -> None:
    """A frame is what the description of its kind says."""
    schema = {**MESSAGES[name]["payload"], "components": DOCUMENT["components"]}
    jsonschema_rs.validator_for(schema).validate(payload)


def test_the_page_in_the_docs_is_the_one_that_the_broker_serves(b: Broker) -> None:
    page = json.loads((ROOT / "docs/reference/asyncapi.json").read_text(encoding="utf-8"))
    assert page == DOCUMENT, "run: make docs"
    assert b.http.get("/asyncapi.json").json() == DOCUMENT


def test_every_kind_of_frame_is_described() -> None:
    assert set(MESSAGES) == {f"send_{k}" for k in FROM_CLIENT} | {f"receive_{k}" for k in FROM_BROKER}
    named = {m["$ref"].rsplit("/", 1)[1] for op in DOCUMENT["operations"].values() for m in op["messages"]}
    assert named == set(MESSAGES) == set(DOCUMENT["channels"]["socket"]["messages"])


def test_every_kind_that_the_code_writes_is_known() -> None:
    """Where a frame is written, its kind stands as a word."""
    written: set[str] = set()
    for path in ("bulletin.py", "transports/websocket.py", "transports/socket_protocol.py"):
        code = (ROOT / "a2a_handoff" / path).read_text(encoding="utf-8")
        written |= set(re.findall(r'(?:frame|framed|_answer)\(\s*"(\w+)"', code))
    assert written == set(FROM_BROKER)


@pytest.mark.parametrize("name", MESSAGES)
def test_every_example_is_what_it_is_an_example_of(name: str) -> None:
    (example,) = MESSAGES[name]["examples"]
    _checked(name, example["payload"])
    body = json.dumps(example["payload"]).encode()
    kind = MESSAGES[name]["name"]
    if name.startswith("send_"):
        assert native.decode(FROM_CLIENT[kind], body).unknown_fields == ()
    else:
        FROM_BROKER[kind].model_validate(example["payload"])
        assert set(example["payload"]) <= set(FROM_BROKER[kind].model_fields)


def test_every_reference_of_the_document_leads_somewhere() -> None:
    for ref in set(re.findall(r"'#/([^']+)'", str(DOCUMENT))):
        place: Any = DOCUMENT
        for step in ref.split("/"):
            place = place[step]


def test_the_frames_of_a_whole_story_are_as_described(b: Broker) -> None:
    with socket_of(b) as socket, socket_of(b, "cowork", platform="cowork") as cowork:
        frames = [socket.hello("cursor", platform="cursor", events=True), socket.ask("ping"), socket.ask("x")]
        made = hand_off(b, target_agent="cursor", source_agent="cowork")["handoff_id"]
        frames += [socket.next("offer"), socket.do("accept", handoff_id=made), socket.next("taken")]
        cowork.do("broadcast", channel="x", message="y", data={"a": 1})
        frames += [socket.next("broadcast"), socket.do("heartbeat", status="busy")]
        asking = socket.do("progress", handoff_id=made, state="input_required", message="?")
        b.send("The first.", wait=False, message={"taskId": made})
        frames += [asking, socket.next("reply")]
        cowork.do("cancel", handoff_id=made)
        frames += [
            socket.next("cancel_requested"),
            socket.do("release", handoff_id=made),
            socket.next("rescinded"),
        ]
        frames += socket.frames
        seen = {frame["type"] for frame in frames}
        for frame in frames:
            _checked(f"receive_{frame['type']}", frame)
    assert seen == set(FROM_BROKER) - {"resync", "lagging", "closing"}
