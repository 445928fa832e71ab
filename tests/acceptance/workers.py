"""Agents of the two worked examples, as programs of their own that know nothing but HTTP, WebSockets and JSON.

``python workers.py ROLE URL``. Each prints what it did, one line of JSON for each step.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any


def call(url: str, path: str, body: Any = None) -> Any:
    """A call of the broker: what it says."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def tell(**said: Any) -> None:
    print(json.dumps(said), flush=True)


# --- the desktop assistant asks the editor for a review ---------------------------------------------


def watch(url: str, timeout: int, after: str = "") -> tuple[Any, str]:
    """What the long poll came back with, if with anything, and the cursor to go on from."""
    path = f"/api/handoffs/watch?agent=cursor&timeout={timeout}&include=broadcasts&after={after}"
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        text = answer.read()
        return json.loads(text) if text else None, answer.headers["A2A-Handoff-Cursor"]


def reviewing_editor(url: str) -> None:
    """Waits for work by long poll, does it, waits on, until it is told that this was all."""
    call(url, "/api/agents", {"agent_id": "cursor", "platform": "cursor", "instance_id": "window-1"})
    _, cursor = watch(url, 0)  # what was said before it came is not for it
    tell(did="registered")
    while True:
        offer, cursor = watch(url, 30, cursor)
        if offer is None:
            continue
        if any(said["message"] == "that was all" for said in offer["broadcasts"]):
            return
        handoff = f"/api/handoffs/{offer['handoff_id']}"
        call(url, f"{handoff}/accept", {"agent_id": "cursor", "attempt": offer["attempt"]})
        facts = offer["context"]["key_facts"]
        tell(did="accepted", task=offer["task"], files=facts["files"], focus=facts["focusAreas"])
        call(url, f"{handoff}/progress", {"agent_id": "cursor", "message": f"reading {facts['files'][0]}"})
        comments = [f"{area}: fine" for area in facts["focusAreas"]]
        call(url, f"{handoff}/complete", {"agent_id": "cursor", "result": {"comments": comments}})


def asking_assistant(url: str) -> None:
    """Hands a review to the editor in the older shape, and polls for the result."""
    call(url, "/api/agents", {"agent_id": "cowork", "platform": "cowork"})
    made = call(
        url,
        "/api/handoffs",
        {
            "targetAgent": "cursor",
            "task": "Review the new CodeDnaService implementation",
            "context": {
                "files": ["apis/backend-ai-api/src/app/learning/services/code-dna.service.ts"],
                "focusAreas": ["error handling", "performance"],
            },
            "priority": "high",
        },
    )
    tell(did="asked", status=made["status"], priority=made["priority"])
    result = poll_result(url, made["handoff_id"])
    tell(did="read", comments=result["comments"])
    call(url, "/api/broadcasts", {"channel": "general", "message": "that was all", "source_agent": "cowork"})


def poll_result(url: str, handoff_id: str) -> Any:
    """Poll until it is completed, at the price of a 304 while nothing changes."""
    tag = ""
    while True:
        request = urllib.request.Request(f"{url}/api/handoffs/{handoff_id}", headers={"If-None-Match": tag})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                tag = answer.headers["ETag"]
                handoff = json.loads(answer.read())
        except urllib.error.HTTPError as unchanged:
            if unchanged.code != 304:
                raise
            continue
        if handoff["status"] == "completed":
            return handoff["result"]


# --- the editor delegates browser tests to the desktop assistant ------------------------------------


def delegating_editor(url: str) -> None:
    """Delegates, and reads the result among its own handoffs."""
    call(url, "/api/agents", {"agent_id": "cursor", "platform": "cursor"})
    made = call(
        url,
        "/api/handoffs",
        {
            "sourceAgent": "cursor",
            "targetAgent": "cowork",
            "task": "Run E2E tests for groundbreaking features",
            "context": {"testFile": "groundbreaking-features.test.ts"},
        },
    )
    tell(did="delegated", state=made["state"])
    while True:
        page = call(url, "/api/handoffs?sender=cursor&state=completed&include=result")
        if page["handoffs"]:
            (handoff,) = page["handoffs"]
            tell(did="read", same=handoff["handoff_id"] == made["handoff_id"], result=handoff["result"])
            return


def testing_assistant(url: str) -> None:
    """Polls its inbox, runs the tests, reports."""
    call(url, "/api/agents", {"agent_id": "cowork", "platform": "cowork"})
    tell(did="registered")
    while True:
        page = call(url, "/api/handoffs/pending?target=cowork")
        if page["handoffs"]:
            break
    (offer,) = page["handoffs"]
    file = offer["context"]["key_facts"]["testFile"]
    tell(did="found", task=offer["task"], file=file)
    call(url, f"/api/handoffs/{offer['handoff_id']}/complete", {"result": f"{file}: 12 passed"})


# --- the desktop assistant of an editor that speaks MCP -----------------------------------------------


def assistant_with_a_browser(url: str) -> None:
    """Asks the editor for a review, runs the browser tests that this needs, reads the review."""
    call(url, "/api/agents", {"agent_id": "cowork", "platform": "cowork"})
    made = call(
        url,
        "/api/handoffs",
        {
            "targetAgent": "cursor",
            "sourceAgent": "cowork",
            "task": "Review the new CodeDnaService implementation",
            "context": {"files": ["code-dna.service.ts"]},
            "priority": "high",
        },
    )
    tell(did="asked", handoff=made["handoff_id"])
    testing_assistant(url)
    tell(did="read", result=poll_result(url, made["handoff_id"]))


# --- the same review with a socket in place of every poll -------------------------------------------


def connected(url: str, **hello: Any) -> Any:
    """A socket of an agent, after its hello."""
    from websockets.sync.client import connect

    socket = connect(url.replace("http", "ws", 1) + "/ws", proxy=None)
    socket.send(json.dumps({"type": "hello", **hello}))
    welcome = json.loads(socket.recv(60))
    assert welcome["type"] == "welcome", welcome
    return socket


def live_editor(url: str) -> None:
    """Is told of work, does it, tells on, until it hears that this was all. Its socket is cut once."""
    socket = connected(url, agent_id="cursor", platform="cursor", instance_id="window-1")
    tell(did="registered")
    cut = False
    while True:
        frame = json.loads(socket.recv(60))
        if frame["type"] == "broadcast" and frame["message"] == "that was all" and cut:
            socket.close()
            return
        if frame["type"] != "offer":
            continue
        if not cut:
            cut = True
            socket.socket.close()  # the laptop sleeps, without a word
            socket = connected(url, agent_id="cursor", cursor=frame["cursor"])
        here, facts = {"handoff_id": frame["handoff_id"]}, frame["context"]["key_facts"]
        socket.send(json.dumps({"type": "accept", **here, "attempt": frame["attempt"]}))
        tell(did="accepted", task=frame["task"], files=facts["files"])
        socket.send(json.dumps({"type": "progress", **here, "message": f"reading {facts['files'][0]}"}))
        socket.send(json.dumps({"type": "complete", **here, "result": {"comments": ["fine"]}}))


def live_assistant(url: str) -> None:
    """Hands the review over its socket, and hears of the result as everybody in the workspace does."""
    socket = connected(url, agent_id="cowork", platform="cowork", events=True)
    handoff = {"targetAgent": "cursor", "task": "Review a.py", "context": {"files": ["a.py"]}}
    socket.send(json.dumps({"type": "create", "id": "c-1", "handoff": handoff}))
    mine = ""
    while True:
        frame = json.loads(socket.recv(60))
        if frame["type"] == "ok":
            mine = frame["handoff"]["handoff_id"]
            tell(did="asked", status=frame["handoff"]["status"])
        if frame["type"] == "event" and frame["event"] in ("handoff:created", "handoff:completed"):
            data = dict(frame["data"])
            tell(did="heard", event=frame["event"], mine=data.pop("handoffId") == mine or not mine, data=data)
        if frame["type"] == "event" and frame["event"] == "handoff:completed":
            break
    socket.send(json.dumps({"type": "broadcast", "channel": "general", "message": "that was all"}))
    socket.recv(60)
    socket.close()


ROLES: dict[str, Callable[[str], None]] = {
    role.__name__: role
    for role in (
        reviewing_editor,
        asking_assistant,
        delegating_editor,
        testing_assistant,
        assistant_with_a_browser,
        live_editor,
        live_assistant,
    )
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2])
