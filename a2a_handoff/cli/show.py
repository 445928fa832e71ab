"""Answers of the broker as tables, trees and lines.

Rules: what agents and callers wrote is never markup and loses its control characters, so that no text
of theirs moves the cursor or changes a colour. Without a terminal there is no colour and no line is
cut or wrapped.
Not here: asking (``remote``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime

import msgspec
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from a2a_handoff.wire.native.outbound import (
    AgentOut,
    AgentPage,
    AttemptOut,
    ChainOut,
    EventPage,
    HandoffOut,
    HandoffPage,
    ResolutionOut,
)

#: Wide enough that nothing is cut where no terminal sets the width.
_NO_TERMINAL_WIDTH = 10_000

#: A narrower terminal has no room for dates beside ids.
_DATED_WIDTH = 110

_STATES = {
    "completed": "green",
    "failed": "red",
    "returned": "red",
    "expired": "red",
    "canceled": "yellow",
    "input_required": "magenta",
    "auth_required": "magenta",
}


def console(*, stderr: bool = False) -> Console:
    """Where to write: with colour and width of the terminal, or plainly if it is none."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _NO_TERMINAL_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=True)


def clean(text: str) -> str:
    """``text`` without what would steer a terminal; line breaks and tabs stay."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def one_line(text: str, chars_max: int) -> str:
    """The beginning of ``text`` in one line."""
    words = " ".join(clean(text).split())
    return words if len(words) <= chars_max else words[: chars_max - 1] + "…"


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(clean(state), style=_STATES.get(state, "cyan"))


# --- agents --------------------------------------------------------------------------------------


def agents(page: AgentPage, out: Console) -> None:
    """The agents, one a line."""
    if not page.agents:
        out.print("No agents are registered.")
        return
    table = _table("AGENT", "STATUS", "READY BY", "LOAD", "DONE", "FAILED", "ACK", "CAN")
    for agent in page.agents:
        limit = "" if agent.max_concurrency is None else f"/{agent.max_concurrency}"
        _row(
            table,
            agent.agent_id if agent.role == "agent" else f"{agent.agent_id} ({agent.role})",
            agent.status if agent.present else "absent",
            agent.readiness,
            f"{agent.in_flight}{limit}",
            str(agent.completed),
            str(agent.failed),
            "-" if agent.response_s is None else f"{agent.response_s:.3g} s",
            _abilities(agent),
        )
    out.print(table, soft_wrap=False)


def agent(shown: AgentOut, out: Console) -> None:
    """One agent in full."""
    limit = "no limit" if shown.max_concurrency is None else f"at most {shown.max_concurrency}"
    ack = "" if shown.response_s is None else f"{shown.response_s:.3g} s"
    _facts(
        out,
        ("agent", shown.agent_id),
        ("name", f"{shown.name} {shown.version}".strip()),
        ("role", shown.role),
        ("platform", shown.platform),
        ("workspace", shown.workspace),
        ("instance", shown.instance_id),
        ("status", shown.status + ("" if shown.present else " (absent)")),
        ("last heard", shown.last_heard_at or ""),
        ("ready by", shown.readiness),
        ("can", _abilities(shown)),
        ("domains", ", ".join(_domains(shown))),
        ("load", f"{shown.in_flight}, {limit}"),
        ("handoffs", f"{shown.received} received, {shown.completed} completed, {shown.failed} failed"),
        ("time to ack", ack),
        ("card from", shown.card_url),
        ("card problem", shown.card_problem),
        ("card notice", shown.card_notice),
        ("signature", _signature(shown)),
        *(("address", f"{i.url} ({i.binding} {i.protocol_version})") for i in shown.interfaces),
        *(("skill", f"{s.id}: {s.name} [{', '.join(s.tags)}]") for s in shown.skills),
    )


def _signature(shown: AgentOut) -> str:
    """``verified (key k1 of card_keys)``; nothing if nobody looked."""
    found = shown.card_signature
    if found.status == "unchecked":
        return ""
    more = f"key {found.key_id} of {found.key_from}" if found.key_id else found.detail
    return f"{found.status} ({more})" if more else found.status


def _abilities(shown: AgentOut) -> str:
    return ", ".join(name for name, has in shown.capabilities.items() if has is True) or "-"


def _domains(shown: AgentOut) -> list[str]:
    domains = shown.capabilities.get("domains", [])
    return domains if isinstance(domains, list) else []


# --- handoffs ------------------------------------------------------------------------------------


def handoffs(page: HandoffPage, out: Console) -> None:
    """Handoffs, one a line, newest update first."""
    if not page.handoffs:
        out.print("No handoffs.")
        return
    dated = out.width >= _DATED_WIDTH
    table = _table("HANDOFF", "STATE", "FROM > TO", *(["UPDATED"] if dated else []), "NOTE")
    for each in page.handoffs:
        _row(
            table,
            each.handoff_id,
            state_text(each.state),
            f"{each.source_agent or '-'} > {each.assigned_to or '-'}",
            *([_clock(each.updated_at)] if dated else []),
            one_line(why(each.outcome, each.detail) or each.task, 60),
        )
    out.print(table, soft_wrap=False)
    if page.next_cursor:
        out.print(f"{len(page.handoffs)} of {page.total}; more with --cursor {page.next_cursor}", style="dim")


def handoff(shown: HandoffOut, out: Console) -> None:
    """One handoff in full."""
    _facts(
        out,
        ("handoff", shown.handoff_id),
        ("state", state_text(shown.state)),
        ("outcome", why(shown.outcome, shown.detail)),
        ("owner", shown.owner),
        ("from", shown.source_agent),
        ("to", shown.assigned_to),
        ("asked for", shown.target_agent),
        ("task", one_line(shown.task, 200)),
        ("mode", f"{shown.mode}, priority {shown.priority}"),
        ("reason", shown.reason),
        ("chain", shown.correlation_id),
        ("path", f"{' > '.join(shown.handoff_chain)} (hop {shown.hop_count})"),
        ("parent", shown.parent_handoff_id),
        *(
            ("child", f"{child.handoff_id} ({child.mode}, {child.state or 'open'})")
            for child in shown.children
        ),
        *(("attempt", _attempt(each, shown.created_at)) for each in shown.attempts),
        *(("passed over", f"{each.agent_id}: {each.reason}") for each in shown.passed_over),
        ("context", _context(shown)),
        *(("warning", each) for each in shown.warnings),
        ("created", shown.created_at or ""),
        ("accepted", shown.accepted_at or ""),
        ("ended", shown.ended_at or ""),
        ("deadline", shown.deadline or ""),
        ("trace", _trace(shown.trace_id, shown.trace_url)),
    )
    if shown.result is not None:
        out.print()
        out.print(readable(bytes(shown.result)))


def readable(raw: bytes) -> str:
    """Text as it is, other JSON as JSON."""
    if raw.startswith(b'"'):
        return clean(msgspec.json.decode(raw, type=str))
    return clean(msgspec.json.format(raw, indent=2).decode())


def events(page: EventPage, out: Console) -> None:
    """The log of a handoff, one event a line."""
    table = _table("#", "TIME", "EVENT", "DATA")
    for each in page.events:
        data = msgspec.json.format(bytes(each.data), indent=-1).decode()
        _row(table, str(each.seq), _clock(each.time), each.type.rpartition(".")[2], one_line(data, 160))
    out.print(table, soft_wrap=False)
    if page.next_cursor is not None:
        out.print(f"more with --after {page.next_cursor}", style="dim")


def _context(shown: HandoffOut) -> str:
    counted = f"{shown.tokens} tokens ({shown.tokenizer})" if shown.tokens else ""
    score = "" if shown.context_score is None else f"score {shown.context_score:.2f}"
    made = "made from the message" if shown.synthesized else ""
    return ", ".join(part for part in (shown.context_ref, counted, score, made) if part)


# --- chains --------------------------------------------------------------------------------------


def chain(shown: ChainOut, out: Console) -> None:
    """A chain as a tree: a handoff below the one that it continues, its attempts below itself."""
    head = Text.assemble(("chain ", "bold"), clean(shown.correlation_id), "  ", state_text(shown.state))
    if shown.owner:
        head.append(f"  with {clean(shown.owner)}")
    head.append(f"  {_count(len(shown.handoffs), 'handoff')}, {_count(shown.hops, 'hop')}", style="dim")
    tree = Tree(head, guide_style="dim")
    known = {each.handoff_id for each in shown.handoffs}
    nodes: dict[str, Tree] = {}
    for each in shown.handoffs:
        above = nodes.get(each.parent_handoff_id, tree) if each.parent_handoff_id in known else tree
        nodes[each.handoff_id] = _chain_node(above, each, shown.started_at)
    out.print(tree, soft_wrap=False)
    out.print(Text.assemble(("trace ", "dim"), _trace(shown.trace_id, shown.trace_url)))


def _chain_node(above: Tree, shown: HandoffOut, since: str | None) -> Tree:
    to = shown.assigned_to or shown.target_agent or "nobody"
    line = Text.assemble(
        state_text(shown.state),
        f"  {clean(shown.source_agent) or 'somebody'} > {clean(to)}",
        (f"  {shown.mode}  {_span(shown.created_at, shown.ended_at, since)}  {shown.handoff_id}", "dim"),
    )
    node = above.add(line)
    for attempt in shown.attempts:
        node.add(Text(clean(_attempt(attempt, since))))
    if shown.outcome:
        node.add(
            Text(
                f"{shown.state}: {clean(why(shown.outcome, shown.detail))}",
                style=_STATES.get(shown.state, ""),
            )
        )
    return node


def _attempt(attempt: AttemptOut, since: str | None) -> str:
    if attempt.outcome:
        end = why(attempt.outcome, attempt.detail)
    elif attempt.acked_at:
        end = f"ready after {_seconds(attempt.offered_at, attempt.acked_at)}"
    else:
        end = "waiting for its answer"
    asked = f", asked {attempt.deliveries} times" if attempt.deliveries > 1 else ""
    when = _seconds(since, attempt.offered_at)
    return f"attempt {attempt.number} {attempt.agent_id} ({attempt.readiness}) at +{when}{asked}: {end}"


# --- decisions -----------------------------------------------------------------------------------


def resolution(shown: ResolutionOut, out: Console) -> None:
    """Who would get it, in order, and who would not, each with the reason."""
    if shown.rule:
        out.print(f"rule: {clean(shown.rule)}")
    for place, each in enumerate(shown.candidates, 1):
        how = each.readiness if each.role == "agent" else f"{each.readiness}, {each.role}"
        line = Text.assemble(f"{place}. ", (clean(each.agent_id), "bold"), f" ({how})")
        line.append("  " + clean("; ".join(each.reasons)))
        out.print(line)
    if not shown.candidates:
        out.print(f"nobody: {clean(shown.reason or 'no candidates')}", style="red")
    if shown.wait:
        out.print("agents match, but none is present: a handoff would wait")
    for each in shown.passed_over:
        near = " (near miss)" if each.near else ""
        out.print(f"passed over: {clean(each.agent_id)}: {clean(each.reason)}{near}", style="dim")
    if shown.more:
        out.print(f"and {_count(shown.more, 'agent')} more", style="dim")
    for warning in shown.warnings:
        out.print(f"warning: {clean(warning)}", style="yellow")


# --- parts ---------------------------------------------------------------------------------------


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        # What is narrow stays whole; the last column takes what is left.
        table.add_column(heading, overflow="fold", no_wrap=heading != headings[-1])
    return table


def _row(table: Table, *cells: str | Text) -> None:
    table.add_row(*(Text(clean(cell)) if isinstance(cell, str) else cell for cell in cells))


def _facts(out: Console, *facts: tuple[str, str | Text]) -> None:
    """Names and values; what is empty is left out."""
    shown: Iterable[tuple[str, str | Text]] = [fact for fact in facts if fact[1]]
    for name, value in shown:
        text = Text(clean(value)) if isinstance(value, str) else value
        out.print(Text.assemble((f"{name:<13}", "dim"), text))


def why(outcome: str | None, detail: str) -> str:
    """An outcome with its detail, if there is one."""
    return f"{outcome}: {detail}" if outcome and detail else outcome or ""


def _trace(trace_id: str, url: str) -> Text:
    if not url:
        return Text(clean(trace_id))
    return Text.assemble(clean(trace_id), "  ", (clean(url), Style(link=clean(url))))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _clock(at: str | None) -> str:
    """An RFC 3339 time without the T and the fractions."""
    return (at or "-").partition(".")[0].replace("T", " ")


def _instant(at: str | None) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp() if at else None
    except ValueError:
        return None


def _seconds(start: str | None, end: str | None) -> str:
    first, last = _instant(start), _instant(end)
    return "?" if first is None or last is None else f"{last - first:.3f} s"


def _span(start: str | None, end: str | None, since: str | None) -> str:
    took = f", took {_seconds(start, end)}" if end else ", open"
    return f"+{_seconds(since, start)}{took}"
