"""Bad frames on the WebSocket: each has one answer, which tells nothing of the inside, and the socket stays."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_handoff.wire.native.frames import FROM_CLIENT
from tests.fuzz.conftest import Watched, clean
from tests.fuzz.mutations import mangled, spoilt
from tests.fuzz.test_rest import ACTION, AGENT, BROADCAST, HANDOFF
from tests.support.running import WAIT_S
from tests.support.sockets import socket_of

FUZZ = settings.get_profile("fuzz")
FRAMES = {
    "hello": {"type": "hello", "id": 1, "cursor": "", "events": True, "channels": ["x"], **AGENT},
    "accept": {"type": "accept", "id": "a", "handoff_id": "h-1", **ACTION},
    "complete": {"type": "complete", "id": 1.5, "handoff_id": "h-1", **ACTION},
    "create": {"type": "create", "id": 2, "handoff": HANDOFF},
    "broadcast": {"type": "broadcast", "id": 3, **BROADCAST},
    "heartbeat": {"type": "heartbeat", "id": 4, "status": "busy", "in_flight": 1},
    "token": {"type": "token", "id": 5, "token": "a.b.c"},
}
ENDS = itertools.count(1)


def _bad(kind: str) -> st.SearchStrategy[bytes]:
    valid = FRAMES[kind]
    return st.one_of(spoilt(valid), mangled(json.dumps(valid).encode()), st.binary(max_size=50))


def _answered(watched: Watched, frames: list[bytes], agent_id: str = "") -> None:
    with (
        socket_of(watched.broker, agent_id, platform="x") if agent_id else socket_of(watched.broker) as socket
    ):
        for frame in frames:
            socket.connection.send(frame, text=_is_text(frame))
            end = f"end-{next(ENDS)}"
            socket.send("ping", id=end)
            answers: list[str] = []
            while True:
                text = socket.connection.recv(WAIT_S)
                said = json.loads(clean(str(text)))
                if said.get("id") == end:
                    break
                answers.append(said["type"])
                assert said.get("problem", {}).get("code") != "internal", (frame, said)
            assert sum(kind in ("ok", "error", "pong", "welcome") for kind in answers) == 1, (frame, answers)


def _is_text(frame: bytes) -> bool:
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("kind", FRAMES)
def test_a_bad_frame_has_one_answer_and_the_socket_stays(watched: Watched, kind: str) -> None:
    @FUZZ
    @given(st.lists(_bad(kind), min_size=3, max_size=3))
    def attack(frames: list[bytes]) -> None:
        _answered(watched, frames, "fuzzed")

    attack()


def test_a_bad_hello_has_one_answer(watched: Watched) -> None:
    @FUZZ
    @given(_bad("hello"))
    def attack(frame: bytes) -> None:
        _answered(watched, [frame])

    attack()


def test_every_kind_of_frame_has_a_valid_form_to_spoil() -> None:
    alike = {"decline", "progress", "fail", "release", "cancel", "ping"}
    assert set(FRAMES) | alike == set(FROM_CLIENT)
