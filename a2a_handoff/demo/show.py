"""What the demo prints: scenes, events as they happen, and the chain as a tree.

Rules: one line for one thing, so that it reads the same in a terminal, in a log file and in a mail.
Not here: what happens (``scenes``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

Json = Mapping[str, Any]

_WIDTH = 160

_STYLES = {
    "requested": "cyan",
    "offered": "cyan",
    "ready": "green",
    "declined": "yellow",
    "unreachable": "yellow",
    "again": "yellow",
    "hands on": "magenta",
    "handed off": "magenta",
    "returned": "red",
    "failed": "red",
    "expired": "red",
    "done": "green",
}


class Show:
    """The screen. Times are seconds since the start of the scene."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        if not self.console.is_terminal:
            self.console.width = _WIDTH  # a log file has no edge
        self._since = time.monotonic()
        self._number = 0

    def note(self, text: str) -> None:
        """A remark beside the scenes."""
        self.console.print(escape(text), style="dim")

    def scene(self, title: str, request: str) -> None:
        """A new scene begins with this request."""
        self._number += 1
        self._since = time.monotonic()
        self.console.print(f"\n[bold]{self._number}. {escape(title)}[/bold]")
        self._line("request", request, "bold")

    def event(self, event: Json) -> None:
        """An event of the log: what was said with it, and what it means, if that is to be told."""
        data: dict[str, Any] = event["data"]
        for output in data.get("outputs", ()):
            self._said(output["body"])
        told = _tell(str(event["type"]).rpartition(".")[2], data)
        if told is not None:
            word, text = told
            self._line(word, text, _STYLES.get(word, ""))

    def proven(self, text: str) -> None:
        """Something that the demo checked."""
        self._line("✓", text, "bold green")

    def missed(self, text: str) -> None:
        """Something that did not happen."""
        self._line("✗", text, "bold red")

    def chain(self, chain: Json) -> None:
        """A chain as a tree with times."""
        handoffs: list[dict[str, Any]] = chain["handoffs"]
        start = min(_at(handoff["created_at"]) for handoff in handoffs)
        root = Tree(f"[bold]{escape(handoffs[0]['source_agent'])}[/bold]  chain {chain['correlation_id']}")
        nodes: dict[str, Tree] = {}
        for handoff in handoffs:
            parent = nodes.get(handoff["parent_handoff_id"], root)
            nodes[handoff["handoff_id"]] = parent.add(_node(handoff, start))
            for attempt in handoff["attempts"]:
                if attempt["outcome"]:
                    why = escape(
                        f"{attempt['agent_id']}: {attempt['outcome']}, {attempt['detail'].partition('. ')[0]}"
                    )
                    nodes[handoff["handoff_id"]].add(f"[yellow]{why}[/yellow]")
        self.console.print(root)

    def _said(self, body: Json) -> None:
        """Words, or a piece of an artifact."""
        text = _text(body)
        if text.strip():
            self._line(str(body.get("name") or "says"), " / ".join(text.strip().splitlines()), "dim")

    def _line(self, word: str, text: str, style: str) -> None:
        at = f"{time.monotonic() - self._since:6.2f}s"
        mark = f"[{style}]{escape(word):<12}[/{style}]" if style else f"{escape(word):<12}"
        self.console.print(f"  [dim]{at}[/dim]  {mark} {escape(text)}")


def _tell(name: str, data: Json) -> tuple[str, str] | None:
    """Word and text for an event, ``None`` for one that only the broker cares about."""
    agent = str(data.get("agent_id", ""))
    match name:
        case "handoff_requested":
            return "requested", f"by {data['sender']}"
        case "handoff_offered":
            return "offered", f"to {agent} (attempt {data['attempt']})"
        case "redelivery_scheduled":
            return "again", f"{data['detail']}: asked once more"
        case "attempt_ended" if data["outcome"] == "target_rejected":
            return "declined", f"{agent}: {data['detail']}"
        case "attempt_ended" if data["outcome"] in ("target_unavailable", "timeout"):
            return "unreachable", f"{agent}: {data['detail']}"
        case "handoff_acknowledged":
            return "ready", f"{agent} acknowledged; the sender goes on standby"
        case "child_attached":
            return "hands on", "the next hop is requested; until its ACK nobody lets go"
        case "handed_off":
            return "handed off", "the next hop carries the task"
        case "handoff_returned" if not data["by_child"]:
            return "returned", f"to the sender: {data['outcome']}, {data['detail']}"
        case "handoff_failed" | "handoff_expired":
            return name.removeprefix("handoff_"), str(data["detail"])
        case "handoff_completed" if not data["by_child"]:
            return "done", _text(data["message"] or {})
        case _:
            return None


def _text(body: Json) -> str:
    parts: list[Json] = body.get("parts", [])
    return "".join(str(part.get("text", "")) for part in parts)


def _node(handoff: Json, start: float) -> str:
    agent = handoff["assigned_to"] or "nobody"
    hop = f"hop {handoff['hop_count']}" if handoff["hop_count"] else "no hop"
    times = [
        f"{word} {(_at(handoff[name]) - start) * 1000:.0f}"
        for word, name in (("asked", "created_at"), ("ready", "accepted_at"), ("over", "ended_at"))
        if handoff[name]
    ]
    return f"[bold]{escape(agent)}[/bold] {hop}, {escape(handoff['state'])} [dim]{', '.join(times)} ms[/dim]"


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
