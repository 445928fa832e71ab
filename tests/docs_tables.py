"""The tables and the diagram of ``docs/reference`` that are made from the code.

``python -m tests.docs_tables --write`` puts them into their pages; without it, the pages that are not
current are named and the exit code is 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from a2a_handoff.config import settings_table
from a2a_handoff.core import events as ev
from a2a_handoff.core.errors import ERRORS, HandoffError
from a2a_handoff.core.events import State
from a2a_handoff.core.machine import ALLOWED
from a2a_handoff.ports import RemoteState
from a2a_handoff.transports.asyncapi import document as asyncapi
from a2a_handoff.transports.mcp.tools import TOOLS
from a2a_handoff.wire.native.frames import EVENTS, FROM_BROKER, FROM_CLIENT
from a2a_handoff.wire.native.tools import HandoffGiven, schema_of
from a2a_handoff.wire.projection import states_of
from tests.conformance.suite import SUITES
from tests.interaction.rules import OUT, RULES, chapters_of, exceptions, proofs, sections
from tests.interaction.sentences import CHAPTERS
from tests.support.foreign import PROGRAMS
from tests.support.machine import every_command, in_state
from tests.telemetry import tables as telemetry

DOCS = Path(__file__).parents[1] / "docs"


def errors() -> str:
    """Every code with its numbers on each protocol."""
    rows = [
        f"| `{code}` | {row.meaning} | {row.remedy} | {row.jsonrpc} | {row.a2a_http} | {row.http} "
        f"| `{row.grpc}` | {'yes' if row.retryable else 'no'} |"
        for code, row in ERRORS.items()
    ]
    head = (
        "| Code | What it means | What to do | JSON-RPC | A2A HTTP+JSON | REST | gRPC | Retry as it is |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    return "\n".join((head, *rows))


def transitions() -> dict[tuple[State, State], list[str]]:
    """What ``decide`` does: from each state, by each command, to which other state."""
    found: dict[tuple[State, State], list[str]] = {}
    for state in State:
        for command in every_command():
            if state not in ALLOWED[type(command)]:
                continue
            world = in_state(state)
            try:
                world.do(command)
            except HandoffError:
                continue
            if world.h.state is not state:
                found.setdefault((state, world.h.state), []).append(type(command).__name__)
    return found


def diagram() -> str:
    """The states and what leads from one to another."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> requested: Request"]
    for (before, after), names in sorted(transitions().items()):
        lines.append(f"    {before} --> {after}: {', '.join(sorted(names))}")
    lines += [f"    {state} --> [*]" for state in State if state.terminal]
    return "\n".join((*lines, "```"))


def commands() -> str:
    """Where each command is obeyed."""
    rows = []
    for command, states in ALLOWED.items():
        allowed = (
            "every state" if states == frozenset(State) else ", ".join(f"`{s}`" for s in State if s in states)
        )
        meaning = (command.__doc__ or "").split("\n")[0]
        rows.append(f"| `{command.__name__}` | {meaning} | {allowed or 'before there is a handoff'} |")
    return "\n".join(("| Command | What it says | Obeyed in |", "|---|---|---|", *rows))


def states() -> str:
    """Each state, its owner and how A2A shows it."""
    shown = {state: remote for remote in RemoteState for state in states_of(remote)}
    rows = []
    for state in State:
        owner = in_state(state).h.owner
        rows.append(f"| `{state}` | {owner} | `{shown[state]}` | {'yes' if state.terminal else 'no'} |")
    return "\n".join(("| State | Owner | In A2A | Final |", "|---|---|---|---|", *rows))


def outcomes() -> str:
    """Why attempts and handoffs end badly."""
    return "\n".join(f"- `{outcome}`" for outcome in ev.Outcome)


def tools() -> str:
    """Every MCP tool and what a client may assume of it."""
    rows = [
        f"| `{tool.name}` | {tool.description} | {'changes' if tool.changes else 'reads'} |" for tool in TOOLS
    ]
    return "\n".join(("| Tool | What it does | |", "|---|---|---|", *rows))


def tool_parameters() -> str:
    """The parameters of each MCP tool."""
    rows = [
        f"| `{tool.name}` | `{name}` | {_kind(field)} | {_default(name, field, schema)} "
        f"| {field.get('description', '')} |"
        for tool in TOOLS
        for schema in [schema_of(tool.taken)]
        for name, field in schema["properties"].items()
        if name != "agentId"
    ]
    head = "| Tool | Parameter | Type | Default | What it is |\n|---|---|---|---|---|"
    return "\n".join((head, *rows))


def tool_results() -> str:
    """The fields of what each MCP tool gives."""
    rows = [
        f"| `{tool.name}` | `{name}` | {_kind(field)} | {field.get('description', '')} |"
        for tool in TOOLS
        for name, field in schema_of(tool.given)["properties"].items()
    ]
    return "\n".join(("| Tool | Field | Type | What it is |", "|---|---|---|---|", *rows))


def tool_handoff() -> str:
    """The fields of a handoff as MCP tools show it."""
    rows = [
        f"| `{name}` | {_kind(field)} | {field.get('description', '')} |"
        for name, field in schema_of(HandoffGiven)["properties"].items()
    ]
    return "\n".join(("| Field | Type | What it is |", "|---|---|---|", *rows))


def _kind(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"] if word)
    if "$ref" in field:
        return "a " + field["$ref"].rpartition("/")[2].removesuffix("Given").lower()
    if "anyOf" in field:
        return next(_kind(each) for each in field["anyOf"] if each.get("type") != "null")
    kind = field.get("type", "any")
    return f"array, {_kind(field['items'])} each" if kind == "array" else kind


def _default(name: str, field: dict[str, Any], schema: dict[str, Any]) -> str:
    if name in schema.get("required", ()):
        return "needed"
    value = field.get("default")
    return "" if value in (None, "") else f"`{json.dumps(value)}`"


def frames() -> str:
    """Every kind of WebSocket frame, and what it says."""
    rows = [
        f"| {sender} | `{kind}` | {' '.join((model.__doc__ or '').split())} |"
        for sender, models in (("agent", FROM_CLIENT), ("broker", FROM_BROKER))
        for kind, model in models.items()
    ]
    return "\n".join(("| Sent by | `type` | What it is |", "|---|---|---|", *rows))


def socket_events() -> str:
    """The events that a workspace hears over WebSockets."""
    rows = [f"| `handoff:{name}` | {data} | {meaning} |" for name, (data, meaning) in EVENTS.items()]
    return "\n".join(("| Event | In its data | When |", "|---|---|---|", *rows))


def kits() -> str:
    """The programs of other makers that the tests run."""
    rows = [f"| `{one.package}` | {one.version} | {one.role} | {one.speaks} |" for one in PROGRAMS]
    return "\n".join(("| Program | Version | As | Speaks |", "|---|---|---|---|", *rows))


def excluded() -> str:
    """The tests of compatibility kits that are left out."""
    rows = [
        f"| `{suite.branch}` | `{test.rpartition('/')[2]}` | {why} |"
        for suite in SUITES
        for test, why in suite.excluded.items()
    ]
    return "\n".join(("| Branch | Test | It |", "|---|---|---|", *rows))


def letter() -> str:
    """How many demands of the specification there are, and what holds them."""
    rules, shown = Counter[str](), Counter[str]()
    for counter, entries in ((rules, RULES), (shown, OUT)):
        counter.update(chapter for one in entries for chapter in chapters_of(one.at))
    rows = [
        f"| {chapter} | {rules[chapter] + shown[chapter]} | {rules[chapter]} | {shown[chapter] or ''} |"
        for chapter in CHAPTERS
    ]
    rows.append(f"| all | {rules.total() + shown.total()} | {rules.total()} | {shown.total()} |")
    tests = {
        name for rule in RULES for name in (*rule.tests, *(t for one in rule.shown for t in proofs(one)))
    }
    return "\n".join(
        (
            f"{len(RULES)} rules, shown by {len(tests)} tests, most of them on every way in.",
            "",
            "| Chapter | Sentences | In a rule | Out |",
            "|---|---|---|---|",
            *rows,
        )
    )


def not_held() -> str:
    """Where a way of 1.0 is left out of a rule, and why."""
    rows = [
        f"| {', '.join(sections(rule.at))} | {rule.rule} | `{way}` | {why} |"
        for rule in RULES
        for way, why in exceptions(rule).items()
    ]
    return "\n".join(("| Section | Rule | But on | Because |", "|---|---|---|---|", *rows))


def out() -> str:
    """The sentences that demand nothing of this server."""
    rows = [
        f"| {', '.join(sections(one.at))} | {len(one.at.split())} | {one.why} | {one.because} |"
        for one in OUT
    ]
    return "\n".join(("| Section | Sentences | Each is | And |", "|---|---|---|---|", *rows))


#: page -> section -> what makes it.
SECTIONS: dict[str, dict[str, Callable[[], str]]] = {
    "reference/conformance.md": {
        "kits": kits,
        "excluded": excluded,
        "letter": letter,
        "not held": not_held,
        "out": out,
    },
    "reference/errors.md": {"errors": errors, "outcomes": outcomes},
    "reference/life-cycle.md": {"states": states, "diagram": diagram, "commands": commands},
    "reference/mcp.md": {
        "tools": tools,
        "parameters": tool_parameters,
        "results": tool_results,
        "handoff": tool_handoff,
    },
    "reference/settings.md": {"settings": settings_table},
    "reference/websocket.md": {"frames": frames, "events": socket_events},
}


def current(page: str) -> str:
    """The page as it should be."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, make in SECTIONS[page].items():
        pattern = re.compile(rf"(<!-- {name}: [^>]*-->\n)(.*?)(<!-- end of {name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"docs/{page} has no section {name!r}")
        text = _filled(pattern, make().rstrip("\n"), text)
    return text


def _filled(pattern: re.Pattern[str], table: str, text: str) -> str:
    return pattern.sub(lambda match: f"{match[1]}{table}\n{match[3]}", text)


def main(arguments: list[str]) -> int:
    """Check or write every page."""
    stale = [page for page in SECTIONS if (DOCS / page).read_text(encoding="utf-8") != current(page)]
    if "--write" not in arguments:
        print("\n".join(f"docs/{page} is not current: make docs" for page in stale))
        return 1 if stale else 0
    for page in stale:
        (DOCS / page).write_text(current(page), encoding="utf-8")
    described = json.dumps(json.loads(asyncapi()), indent=1, ensure_ascii=False)
    (DOCS / "reference" / "asyncapi.json").write_text(f"{described}\n", encoding="utf-8")
    telemetry.PAGE.write_text(telemetry.written(telemetry.PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
